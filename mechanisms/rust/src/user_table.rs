//! The users of one open window and what they brought: `histogram/user_table.py` as a loop over single records.
//!
//! The loop is the rule as docs/guarantees/bounding.md states it, one record after the other: by user, those of a user by priority,
//! those of equal priority in the order of the rows, which is (source, raw offset).
//! Integers only. Columns come and go as bytes in the machine's order.

use std::collections::hash_map::{HashMap, RandomState};
use std::hash::BuildHasher;

use hashbrown::HashTable;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// Flag in an entry's count: the key took no rank.
const UNRANKED: u32 = 1 << 31;
/// A list of more keys than this has an index.
const LONG: u32 = 48;

const KEPT: u8 = 1;
const FIRST: u8 = 2;

/// Caps and costs, from `Bounding`. A negative `max_keys` is none; `limit` is that of the ledger, if there is one.
struct Rule {
    max_records: i64,
    max_records_per_key: u32,
    max_keys: i64,
    ledger: Option<Ledger>,
    spends: bool,
}

struct Ledger {
    measured: i64,
    counting: i64,
    limit: i64,
}

impl Ledger {
    /// What `records` more records of a key cost that has spent `earlier` before.
    fn cost(&self, earlier: i64, records: i64, root: i64) -> i64 {
        let later = earlier + records * root;
        let first = if earlier == 0 && records > 0 {
            self.counting * root * root
        } else {
            0
        };
        self.measured * (later * later - earlier * earlier) + first
    }
}

#[derive(Clone, Copy, Default)]
struct User {
    /// Where its list begins in the pool; its room is the next power of two of its length.
    start: u32,
    length: u32,
    kept: u32,
    /// Ranks that were taken.
    ranked: u32,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    code: u32,
    count: u32,
}

/// One row of the changes; `place` in the list is only used to find it again.
struct Change {
    user: u32,
    place: u32,
    key: i32,
    added: i64,
}

type Columns<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

#[pyclass]
pub struct UserTable {
    rule: Rule,
    hasher: RandomState,
    index: HashTable<u32>,
    names: Vec<u8>,
    ends: Vec<usize>,
    users: Vec<User>,
    charged: Vec<i64>,
    pool: Vec<Entry>,
    spent: Vec<u32>,
    /// Lists that were moved, by the logarithm of their room.
    free: Vec<Vec<u32>>,
    long: HashMap<u32, HashMap<u32, u32>>,
}

fn column<T: Element>(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    PyBuffer::<T>::get(value)?.to_vec(py)
}

fn bytes<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    values: &[T],
    raw: fn(T) -> [u8; N],
) -> Bound<'py, PyBytes> {
    let mut data = Vec::with_capacity(values.len() * N);
    for &value in values {
        data.extend_from_slice(&raw(value));
    }
    PyBytes::new(py, &data)
}

impl UserTable {
    fn name(&self, number: u32) -> &[u8] {
        name_of(&self.names, &self.ends, number)
    }

    fn enter_one(&mut self, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(name);
        let (names, ends) = (&self.names, &self.ends);
        if let Some(&number) = self
            .index
            .find(hash, |&number| name_of(names, ends, number) == name)
        {
            return number;
        }
        let number = self.ends.len() as u32;
        self.names.extend_from_slice(name);
        self.ends.push(self.names.len());
        self.users.push(User::default());
        if self.rule.ledger.is_some() {
            self.charged.push(0);
        }
        let (names, ends, hasher) = (&self.names, &self.ends, &self.hasher);
        self.index.insert_unique(hash, number, |&other| {
            hasher.hash_one(name_of(names, ends, other))
        });
        number
    }

    /// The place of a key in a user's list.
    fn place_of(&self, number: u32, code: u32) -> Option<u32> {
        let user = self.users[number as usize];
        if user.length > LONG {
            return self.long[&number].get(&code).copied();
        }
        let start = user.start as usize;
        let list = &self.pool[start..start + user.length as usize];
        list.iter()
            .position(|entry| entry.code == code)
            .map(|place| place as u32)
    }

    /// Put a key at the end of a user's list; its place.
    fn append(&mut self, number: u32, entry: Entry) -> u32 {
        let length = self.users[number as usize].length;
        if length == 0 || length.is_power_of_two() {
            self.make_room(
                number,
                if length == 0 {
                    0
                } else {
                    length.ilog2() as usize + 1
                },
            );
        }
        let user = &mut self.users[number as usize];
        user.length += 1;
        let at = (user.start + length) as usize;
        self.pool[at] = entry;
        if self.rule.spends {
            self.spent[at] = 0;
        }
        if length == LONG {
            let start = user.start as usize;
            let list = &self.pool[start..start + length as usize + 1];
            let places = list
                .iter()
                .enumerate()
                .map(|(place, entry)| (entry.code, place as u32));
            self.long.insert(number, places.collect());
        } else if length > LONG {
            self.long
                .get_mut(&number)
                .expect("a long list has an index")
                .insert(entry.code, length);
        }
        length
    }

    /// Move a user's list to a place with room for 2^power entries.
    fn make_room(&mut self, number: u32, power: usize) {
        let User { start, length, .. } = self.users[number as usize];
        if self.free.len() <= power {
            self.free.resize(power + 1, Vec::new());
        }
        let place = self.free[power].pop().unwrap_or_else(|| {
            let place = self.pool.len();
            self.pool.resize(place + (1 << power), Entry::default());
            if self.rule.spends {
                self.spent.resize(self.pool.len(), 0);
            }
            u32::try_from(place).expect("the table is gathered long before it holds 2^32 keys")
        });
        let old = start as usize..(start + length) as usize;
        self.pool.copy_within(old.clone(), place as usize);
        if self.rule.spends {
            self.spent.copy_within(old, place as usize);
        }
        if power > 0 {
            self.free[power - 1].push(start);
        }
        self.users[number as usize].start = place;
    }

    /// What a key has spent of its user's ledger.
    fn spent_at(&self, at: usize) -> i64 {
        if self.rule.spends {
            i64::from(self.spent[at])
        } else {
            i64::from(self.pool[at].count & !UNRANKED)
        }
    }

    /// Note `records` more kept records of an entry.
    fn keep(&mut self, number: u32, place: u32, records: i64, root: i64) {
        let user = self.users[number as usize];
        let at = (user.start + place) as usize;
        let earlier = self.spent_at(at);
        if let Some(ledger) = &self.rule.ledger {
            self.charged[number as usize] += ledger.cost(earlier, records, root);
            if self.rule.spends {
                self.spent[at] = (earlier + records * root) as u32;
            }
        }
        self.pool[at].count += records as u32;
        self.users[number as usize].kept += records as u32;
    }

    /// Whether one more record fits of an entry with `earlier` spent.
    fn fits(&self, number: u32, earlier: i64, root: i64) -> bool {
        match &self.rule.ledger {
            None => i64::from(self.users[number as usize].kept) < self.rule.max_records,
            Some(ledger) => {
                self.charged[number as usize] + ledger.cost(earlier, 1, root) <= ledger.limit
            }
        }
    }

    fn close_rows(&mut self, rows: &Rows) -> (Vec<u8>, Vec<i64>, Vec<Change>) {
        let whole = self.rule.ledger.is_some();
        let mut flags = vec![0u8; rows.user.len()];
        let mut weight = vec![0i64; rows.user.len()];
        let mut changes: Vec<Change> = Vec::new();
        for row in rows.in_order() {
            let number = rows.user[row] as u32;
            let key = rows.key[row];
            let code = rows.codes[key as usize];
            let length = i64::from(self.users[number as usize].length);
            let (place, kept) = match self.place_of(number, code) {
                Some(place) => {
                    let at = (self.users[number as usize].start + place) as usize;
                    let count = self.pool[at].count & !UNRANKED;
                    if count >= self.rule.max_records_per_key
                        || !self.fits(number, self.spent_at(at), rows.root)
                    {
                        continue;
                    }
                    if count == 0 {
                        flags[row] |= FIRST;
                    }
                    (place, true)
                }
                None => {
                    let kept = self.fits(number, 0, rows.root);
                    let most = if whole {
                        rows.longest
                    } else {
                        self.rule.max_keys
                    };
                    if (most >= 0 && length >= most) || !(kept || whole) {
                        continue;
                    }
                    let ranked = rows
                        .public
                        .as_ref()
                        .is_none_or(|public| public[key as usize] == 0);
                    if ranked {
                        let rank = self.users[number as usize].ranked;
                        self.users[number as usize].ranked += 1;
                        weight[row] = match &rows.weights {
                            None => rows.one,
                            Some(weights) => weights.get(rank as usize).copied().unwrap_or(0),
                        };
                    }
                    if kept {
                        flags[row] |= FIRST;
                    }
                    let count = if ranked { 0 } else { UNRANKED };
                    (self.append(number, Entry { code, count }), kept)
                }
            };
            if kept {
                flags[row] |= KEPT;
                self.keep(number, place, 1, rows.root);
            }
            changes.push(Change {
                user: number,
                place,
                key,
                added: i64::from(kept),
            });
        }
        (flags, weight, merged(changes))
    }

    /// Whether some user has more rows than so many.
    fn crowded(&self, user: &[i32], most: i64) -> bool {
        if user.len() as i64 <= most {
            return false;
        }
        let mut rows = vec![0i64; self.users.len()];
        user.iter().any(|&number| {
            rows[number as usize] += 1;
            rows[number as usize] > most
        })
    }

    fn check_numbers(&self, user: &[i32]) -> PyResult<()> {
        if user
            .iter()
            .any(|&number| number < 0 || number as usize >= self.users.len())
        {
            return Err(PyValueError::new_err(
                "user: numbers must be those of the table",
            ));
        }
        Ok(())
    }
}

/// The records of one interval as columns; `codes` and `public` by key, `weights` by rank at this trigger.
struct Rows {
    user: Vec<i32>,
    key: Vec<i32>,
    codes: Vec<u32>,
    priority: Vec<u32>,
    public: Option<Vec<u8>>,
    weights: Option<Vec<i64>>,
    one: i64,
    root: i64,
    longest: i64,
}

impl Rows {
    /// The rows by user, of a user by priority; those of equal priority as they are.
    fn in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let of_row = |(row, (&user, &priority)): (usize, (&i32, &u32))| {
            (
                u64::from(user as u32) << 32 | u64::from(priority),
                row as u32,
            )
        };
        let columns = self.user.iter().zip(&self.priority);
        let mut order: Vec<(u64, u32)> = columns.enumerate().map(of_row).collect();
        order.sort_unstable(); // no two are equal
        order.into_iter().map(|(_, row)| row as usize)
    }
}

fn name_of<'a>(names: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let number = number as usize;
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &names[start..ends[number]]
}

/// One row per (user, key), of changes by user.
fn merged(changes: Vec<Change>) -> Vec<Change> {
    let mut result: Vec<Change> = Vec::with_capacity(changes.len());
    let mut begin = 0;
    let mut seen: HashMap<u32, usize> = HashMap::new();
    for change in changes {
        if result.last().is_none_or(|last| last.user != change.user) {
            begin = result.len();
            seen.clear();
        }
        let found = if result.len() - begin <= 32 {
            result[begin..]
                .iter()
                .position(|other| other.place == change.place)
                .map(|place| begin + place)
        } else {
            if seen.is_empty() {
                seen.extend(
                    result[begin..]
                        .iter()
                        .enumerate()
                        .map(|(at, other)| (other.place, begin + at)),
                );
            }
            seen.get(&change.place).copied()
        };
        match found {
            Some(at) => result[at].added += change.added,
            None => {
                if !seen.is_empty() {
                    seen.insert(change.place, result.len());
                }
                result.push(change);
            }
        }
    }
    result
}

#[pymethods]
impl UserTable {
    #[new]
    #[pyo3(signature = (*, max_records, max_records_per_key, max_keys, ledger, spends))]
    fn new(
        max_records: i64,
        max_records_per_key: u32,
        max_keys: i64,
        ledger: Option<(i64, i64, i64)>,
        spends: bool,
    ) -> Self {
        let ledger = ledger.map(|(measured, counting, limit)| Ledger {
            measured,
            counting,
            limit,
        });
        UserTable {
            rule: Rule {
                max_records,
                max_records_per_key,
                max_keys,
                ledger,
                spends,
            },
            hasher: RandomState::new(),
            index: HashTable::new(),
            names: Vec::new(),
            ends: Vec::new(),
            users: Vec::new(),
            charged: Vec::new(),
            pool: Vec::new(),
            spent: Vec::new(),
            free: Vec::new(),
            long: HashMap::new(),
        }
    }

    fn __len__(&self) -> usize {
        self.users.len()
    }

    #[getter]
    fn size(&self) -> usize {
        let lists: usize = self.long.values().map(|index| 10 * index.capacity()).sum();
        self.names.capacity()
            + 8 * self.ends.capacity()
            + 5 * self.index.capacity()
            + size_of::<User>() * self.users.capacity()
            + 8 * (self.charged.capacity() + self.pool.capacity())
            + 4 * self.spent.capacity()
            + lists
    }

    /// Name i is the `length[i]` bytes of data from `start[i]` on, both i64.
    fn enter<'py>(
        &mut self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
        start: &Bound<'py, PyAny>,
        length: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let data = data.as_bytes();
        let starts = column::<i64>(py, start)?;
        let lengths = column::<i64>(py, length)?;
        if self.users.len() + starts.len() > i32::MAX as usize {
            return Err(PyOverflowError::new_err(
                "users: more than 2^31 in one window",
            ));
        }
        if starts.len() != lengths.len() {
            return Err(PyValueError::new_err("length: one for each start"));
        }
        let names = starts.iter().zip(&lengths).map(|(&start, &length)| {
            let start = usize::try_from(start).ok()?;
            data.get(start..start.checked_add(usize::try_from(length).ok()?)?)
        });
        let Some(names) = names.collect::<Option<Vec<&[u8]>>>() else {
            return Err(PyValueError::new_err("start, length: outside the data"));
        };
        let numbers: Vec<u32> =
            py.detach(|| names.iter().map(|name| self.enter_one(name)).collect());
        Ok(bytes(py, &numbers, u32::to_ne_bytes))
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        names: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut numbers = Vec::with_capacity(names.len());
        for name in names {
            let name = name.cast::<PyBytes>()?.as_bytes();
            let hash = self.hasher.hash_one(name);
            let found = self.index.find(hash, |&number| self.name(number) == name);
            numbers.push(found.map_or(-1, |&number| number as i32));
        }
        Ok(bytes(py, &numbers, i32::to_ne_bytes))
    }

    fn lengths<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let lengths: Vec<i64> = self
            .users
            .iter()
            .map(|user| i64::from(user.length))
            .collect();
        bytes(py, &lengths, i64::to_ne_bytes)
    }

    fn names<'py>(&self, py: Python<'py>, start: u32) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            (start..self.ends.len() as u32).map(|number| PyBytes::new(py, self.name(number))),
        )
    }

    /// (lengths i64, code u32, count u32 with flag, spent u32 or nothing, charged i64 or nothing) of users i64.
    fn lists<'py>(&self, py: Python<'py>, users: &Bound<'py, PyAny>) -> PyResult<Columns<'py>> {
        let users: Vec<i64> = column(py, users)?;
        if users
            .iter()
            .any(|&number| number < 0 || number as usize >= self.users.len())
        {
            return Err(PyValueError::new_err(
                "users: numbers must be those of the table",
            ));
        }
        let (mut lengths, mut code, mut count) =
            (Vec::with_capacity(users.len()), Vec::new(), Vec::new());
        let (mut spent, mut charged) = (Vec::new(), Vec::new());
        for &number in &users {
            let user = self.users[number as usize];
            let list = user.start as usize..(user.start + user.length) as usize;
            lengths.push(i64::from(user.length));
            code.extend(self.pool[list.clone()].iter().map(|entry| entry.code));
            count.extend(self.pool[list.clone()].iter().map(|entry| entry.count));
            if self.rule.spends {
                spent.extend_from_slice(&self.spent[list]);
            }
            if self.rule.ledger.is_some() {
                charged.push(self.charged[number as usize]);
            }
        }
        Ok((
            bytes(py, &lengths, i64::to_ne_bytes),
            bytes(py, &code, u32::to_ne_bytes),
            bytes(py, &count, u32::to_ne_bytes),
            bytes(py, &spent, u32::to_ne_bytes),
            bytes(py, &charged, i64::to_ne_bytes),
        ))
    }

    /// Give users i64, whose lists are empty, lists: lengths i64, code u32, count u32 with flag, spent u32, charged i64.
    #[allow(clippy::too_many_arguments)]
    fn fill(
        &mut self,
        py: Python<'_>,
        users: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        code: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        spent: &Bound<'_, PyAny>,
        charged: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (users, lengths): (Vec<i64>, Vec<i64>) = (column(py, users)?, column(py, lengths)?);
        let (code, count): (Vec<u32>, Vec<u32>) = (column(py, code)?, column(py, count)?);
        let (spent, charged): (Vec<u32>, Vec<i64>) = (column(py, spent)?, column(py, charged)?);
        let entries = usize::try_from(lengths.iter().sum::<i64>()).unwrap_or(usize::MAX);
        let outside = users
            .iter()
            .any(|&number| number < 0 || number as usize >= self.users.len());
        if outside
            || users.len() != lengths.len()
            || users.len() != charged.len()
            || lengths.iter().any(|&n| n < 0)
        {
            return Err(PyValueError::new_err(
                "users: numbers must be those of the table, with a list each",
            ));
        }
        if [code.len(), count.len(), spent.len()] != [entries; 3] {
            return Err(PyValueError::new_err(
                "lists: columns must have one row per entry",
            ));
        }
        let mut at = 0;
        for (index, &number) in users.iter().enumerate() {
            let number = number as u32;
            for _ in 0..lengths[index] {
                let place = self.append(
                    number,
                    Entry {
                        code: code[at],
                        count: count[at],
                    },
                );
                let user = &mut self.users[number as usize];
                user.kept += count[at] & !UNRANKED;
                user.ranked += u32::from(count[at] & UNRANKED == 0);
                if self.rule.spends {
                    let start = user.start;
                    self.spent[(start + place) as usize] = spent[at];
                }
                at += 1;
            }
            if self.rule.ledger.is_some() {
                self.charged[number as usize] = charged[index];
            }
        }
        Ok(())
    }

    /// user i64, code u32, unranked u8, added i64 of each change.
    #[allow(clippy::too_many_arguments)]
    fn apply(
        &mut self,
        py: Python<'_>,
        user: &Bound<'_, PyAny>,
        code: &Bound<'_, PyAny>,
        unranked: &Bound<'_, PyAny>,
        added: &Bound<'_, PyAny>,
        root: i64,
    ) -> PyResult<()> {
        let (user, code): (Vec<i64>, Vec<u32>) = (column(py, user)?, column(py, code)?);
        let (unranked, added): (Vec<u8>, Vec<i64>) = (column(py, unranked)?, column(py, added)?);
        let outside = user
            .iter()
            .any(|&number| number < 0 || number as usize >= self.users.len());
        if outside || [code.len(), unranked.len(), added.len()] != [user.len(); 3] {
            return Err(PyValueError::new_err(
                "changes: columns must have one row per change of a user of the table",
            ));
        }
        py.detach(|| {
            for (row, &number) in user.iter().enumerate() {
                let number = number as u32;
                let place = self.place_of(number, code[row]).unwrap_or_else(|| {
                    let flag = if unranked[row] == 0 { 0 } else { UNRANKED };
                    self.users[number as usize].ranked += u32::from(unranked[row] == 0);
                    self.append(
                        number,
                        Entry {
                            code: code[row],
                            count: flag,
                        },
                    )
                });
                self.keep(number, place, added[row], root);
            }
        });
        Ok(())
    }

    /// (flags u8, weight i64, and user i64, key i32, added i64 of the changes); None, and nothing is changed, where a user has more rows
    /// than `longest` and whole lists are kept.
    #[pyo3(signature = (user, key, codes, priority, public, weights, *, one, root, longest))]
    #[allow(clippy::too_many_arguments)]
    fn close<'py>(
        &mut self,
        py: Python<'py>,
        user: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        codes: &Bound<'py, PyAny>,
        priority: &Bound<'py, PyAny>,
        public: Option<&Bound<'py, PyAny>>,
        weights: Option<&Bound<'py, PyAny>>,
        one: i64,
        root: i64,
        longest: i64,
    ) -> PyResult<Option<Columns<'py>>> {
        let rows = Rows {
            user: column(py, user)?,
            key: column(py, key)?,
            codes: column(py, codes)?,
            priority: column(py, priority)?,
            public: public.map(|public| column(py, public)).transpose()?,
            weights: weights.map(|weights| column(py, weights)).transpose()?,
            one,
            root,
            longest,
        };
        self.check_numbers(&rows.user)?;
        let keys = rows.codes.len();
        if rows.priority.len() != rows.user.len() {
            return Err(PyValueError::new_err("priority: must have one row per row"));
        }
        if rows.user.len() > u32::MAX as usize {
            return Err(PyOverflowError::new_err(
                "rows: more than 2^32 in one interval",
            ));
        }
        if rows.key.len() != rows.user.len()
            || rows.key.iter().any(|&key| key < 0 || key as usize >= keys)
        {
            return Err(PyValueError::new_err(
                "key: must be places in codes, one per row",
            ));
        }
        if rows
            .public
            .as_ref()
            .is_some_and(|public| public.len() != keys)
        {
            return Err(PyValueError::new_err("public: must have one row per key"));
        }
        if self.rule.ledger.is_some() && self.crowded(&rows.user, longest) {
            return Ok(None);
        }
        let (flags, weight, changes) = py.detach(|| self.close_rows(&rows));
        let user: Vec<i64> = changes
            .iter()
            .map(|change| i64::from(change.user))
            .collect();
        let key: Vec<i32> = changes.iter().map(|change| change.key).collect();
        let added: Vec<i64> = changes.iter().map(|change| change.added).collect();
        Ok(Some((
            PyBytes::new(py, &flags),
            bytes(py, &weight, i64::to_ne_bytes),
            bytes(py, &user, i64::to_ne_bytes),
            bytes(py, &key, i32::to_ne_bytes),
            bytes(py, &added, i64::to_ne_bytes),
        )))
    }
}
