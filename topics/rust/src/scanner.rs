//! `Scanner`: from record batches to columns, for one schema. topics/records/scanning.py calls it and says what the answers mean.
//!
//! A row is taken if each of its fields is found by its reader (slots.rs) and understood by `numbers`. All other rows are listed as
//! left, and the caller decodes those in Python.

use std::io::Write;
use std::sync::PoisonError;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::batch::{self, opened, Place, Record, Section, ABSENT};
use crate::categories::{placement, Categories};
use crate::framed::{Framed, Lookup};
use crate::json::Tree;
use crate::numbers::{decimal, instant, integer, whole};
use crate::slots::{SlotReader, Token};

/// The scalars that make one code together: paths by number, or none for the record's own key as a JSON string.
struct Group {
    parts: Vec<usize>,
    nullable: bool,
    /// Whether the empty text is a scalar like others.
    empty: bool,
    /// Longest canonical text, in bytes.
    limit: usize,
}

/// An event time: a text, or an integer of which `numerator / denominator` is milliseconds. Integers outside [low, high] are left to
/// the caller; those inside are instants of the years 1 to 9999.
struct Time {
    path: usize,
    text: bool,
    low: i64,
    high: i64,
    numerator: i64,
    denominator: i64,
}

/// What reads the values.
enum Source {
    Json(Tree),
    Framed(Py<Framed>),
}

type GroupOf = (Vec<usize>, bool, bool, usize);
type TimeOf = (usize, bool, i64, i64, i64, i64);

#[pyclass(frozen)]
pub struct Scanner {
    source: Source,
    paths: usize,
    groups: Vec<Group>,
    numbers: Vec<usize>,
    time: Option<Time>,
}

#[pymethods]
impl Scanner {
    /// framed: what reads values that are no JSON; it knows the paths by their numbers.
    #[new]
    #[pyo3(signature = (paths, groups, numbers, time, framed))]
    fn new(
        paths: Vec<Vec<String>>,
        groups: Vec<GroupOf>,
        numbers: Vec<usize>,
        time: Option<TimeOf>,
        framed: Option<Py<Framed>>,
    ) -> PyResult<Self> {
        let mut tree = Tree::default();
        for (number, path) in paths.iter().enumerate() {
            tree.add(path, number).ok_or_else(|| PyValueError::new_err("a path is empty, or leads through another"))?;
        }
        let used = groups.iter().flat_map(|group| &group.0).chain(&numbers).chain(time.as_ref().map(|time| &time.0));
        if used.into_iter().any(|&number| number >= paths.len()) {
            return Err(PyValueError::new_err("there is no path of such a number"));
        }
        if framed.as_ref().is_some_and(|framed| framed.get().slots != paths.len()) {
            return Err(PyValueError::new_err("the programs are of other paths"));
        }
        if time.as_ref().is_some_and(|time| time.5 < 1) {
            return Err(PyValueError::new_err("the denominator is not positive"));
        }
        let group = |(parts, nullable, empty, limit)| Group { parts, nullable, empty, limit };
        let groups = groups.into_iter().map(group).collect();
        let time = time.map(|(path, text, low, high, numerator, denominator)| Time {
            path,
            text,
            low,
            high,
            numerator,
            denominator,
        });
        let source = framed.map_or(Source::Json(tree), Source::Framed);
        Ok(Scanner { source, paths: paths.len(), groups, numbers, time })
    }

    /// The records with start <= offset < below. Raises ValueError for a malformed batch.
    fn scan<'py>(&self, py: Python<'py>, sections: Vec<Section>, start: i64, below: i64) -> PyResult<Scanned<'py>> {
        let found = py.detach(|| match &self.source {
            Source::Json(tree) => Rows::new(self, Reader::Json(tree)).all(&sections, start, below),
            Source::Framed(framed) => {
                let framed = framed.get();
                let programs = framed.programs.read().unwrap_or_else(PoisonError::into_inner);
                Rows::new(self, Reader::Framed(Lookup::new(framed, &programs))).all(&sections, start, below)
            }
        });
        let rows: Found = found.ok_or_else(|| PyValueError::new_err("a record batch is malformed"))?;
        let groups: PyResult<Vec<_>> = rows
            .codes
            .iter()
            .zip(&rows.items)
            .map(|(codes, items)| {
                let names = PyList::new(py, items.items().map(|item| PyBytes::new(py, item)))?;
                let placements: Vec<u32> = items.items().map(placement).collect();
                Ok((column(py, codes, |x| x.to_ne_bytes())?, names, column(py, &placements, |x| x.to_ne_bytes())?))
            })
            .collect();
        Ok((
            column(py, &rows.offsets, |x| x.to_ne_bytes())?,
            column(py, &rows.timestamps, |x| x.to_ne_bytes())?,
            column(py, &rows.places, |x| x.to_ne_bytes())?,
            rows.counts,
            column(py, &rows.left, |x| x.to_ne_bytes())?,
            column(py, &rows.headers, |x| x.to_ne_bytes())?,
            rows.beyond,
            groups?,
            rows.numbers.iter().map(|numbers| column(py, numbers, |x| x.to_ne_bytes())).collect::<PyResult<_>>()?,
            column(py, &rows.times, |x| x.to_ne_bytes())?,
            rows.unknown,
        ))
    }
}

type GroupFound<'py> = (Bound<'py, PyBytes>, Bound<'py, PyList>, Bound<'py, PyBytes>);
/// Offsets and time stamps (int64); places of key and value (int32, four a row, -1 = absent); rows of each section; rows that were
/// left (int64), and the places of their headers (int32, two a row); number of records from `below` on; codes (int32), items and
/// placements (uint32) of each group; numbers (float64); times (int64, ms); numbers of schemas that are not known.
type Scanned<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Vec<usize>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    usize,
    Vec<GroupFound<'py>>,
    Vec<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    Vec<u64>,
);

fn column<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    numbers: &[T],
    bytes: fn(T) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, N * numbers.len(), |text| {
        for (place, &number) in text.chunks_exact_mut(N).zip(numbers) {
            place.copy_from_slice(&bytes(number));
        }
        Ok(())
    })
}

/// What reads the values during a scan.
enum Reader<'a> {
    Json(&'a Tree),
    Framed(Lookup<'a>),
}

/// The columns as far as they are known.
#[derive(Default)]
struct Found {
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    places: Vec<i32>,
    counts: Vec<usize>,
    left: Vec<i64>,
    headers: Vec<i32>,
    beyond: usize,
    codes: Vec<Vec<i32>>,
    items: Vec<Categories>,
    numbers: Vec<Vec<f64>>,
    times: Vec<i64>,
    unknown: Vec<u64>,
}

/// A scan under way.
struct Rows<'a> {
    schema: &'a Scanner,
    reader: Reader<'a>,
    slots: Vec<Token>,
    /// Where readers of binary formats write the scalars of the row under way.
    arena: Vec<u8>,
    canonical: Vec<u8>,
    found: Found,
    /// The numbers of the row under way.
    row: Vec<f64>,
    /// The canonical texts of the row under way: where each group's ends.
    ends: Vec<usize>,
}

impl<'a> Rows<'a> {
    fn new(schema: &'a Scanner, reader: Reader<'a>) -> Self {
        Rows {
            schema,
            reader,
            slots: vec![Token::Absent; schema.paths],
            arena: Vec::new(),
            canonical: Vec::new(),
            found: Found {
                codes: vec![Vec::new(); schema.groups.len()],
                items: schema.groups.iter().map(|_| Categories::default()).collect(),
                numbers: vec![Vec::new(); schema.numbers.len()],
                ..Found::default()
            },
            row: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn all(mut self, sections: &[Section], start: i64, below: i64) -> Option<Found> {
        for section in sections {
            self.section(section, start, below)?;
        }
        if let Reader::Framed(lookup) = self.reader {
            self.found.unknown.extend(lookup.unknown);
        }
        Some(self.found)
    }

    fn section(&mut self, section: &Section, start: i64, below: i64) -> Option<()> {
        let first = section.1;
        let (text, header) = opened(section).filter(|_| i32::try_from(section.2).is_ok())?;
        let before = self.found.offsets.len();
        // A record takes seven bytes at least, whatever the header says.
        let most = header.count.min(text.len() / 7 + 1);
        self.found.offsets.reserve(most);
        self.found.timestamps.reserve(most);
        self.found.places.reserve(4 * most);
        batch::for_each(text, &header, |record| {
            if record.offset >= below {
                self.found.beyond += 1;
            } else if record.offset >= start {
                self.record(text, first, record);
            }
        })?;
        self.found.counts.push(self.found.offsets.len() - before);
        Some(())
    }

    fn record(&mut self, text: &[u8], shift: usize, record: Record) {
        let row = self.found.offsets.len() as i64;
        self.found.offsets.push(record.offset);
        self.found.timestamps.push(record.timestamp);
        let places = |place: Place| {
            let absent = place.start == ABSENT;
            let at = |position: usize| if absent { -1 } else { (shift + position) as i32 };
            [at(place.start), at(place.end)]
        };
        self.found.places.extend(places(record.key));
        self.found.places.extend(places(record.value));
        if self.fields(text, record.key, record.value).is_none() {
            let found = &mut self.found;
            found.left.push(row);
            found.headers.extend(places(record.headers));
            found.codes.iter_mut().for_each(|codes| codes.push(-1));
            found.numbers.iter_mut().for_each(|numbers| numbers.push(0.0));
            if self.schema.time.is_some() {
                found.times.push(0);
            }
        }
    }

    /// Adds the fields of a record; None, and nothing is added, where one of them is not certain.
    fn fields(&mut self, text: &[u8], key: Place, value: Place) -> Option<()> {
        let schema = self.schema;
        let value = value.of(text)?;
        self.arena.clear();
        let scalars = match &mut self.reader {
            Reader::Json(tree) => tree.read(value, &mut self.arena, &mut self.slots)?,
            Reader::Framed(lookup) => {
                let (reader, body) = lookup.of(value)?;
                reader.read(body, &mut self.arena, &mut self.slots)?
            }
        };
        self.canonical.clear();
        self.ends.clear();
        self.row.clear();
        for group in &schema.groups {
            let start = self.canonical.len();
            match group.parts[..] {
                [] => own_key(key.of(text), group, &mut self.canonical)?,
                [part] => category(self.slots[part], scalars, group, &mut self.canonical)?,
                _ => {
                    let mut open = b'[';
                    for &part in &group.parts {
                        self.canonical.push(open);
                        category(self.slots[part], scalars, group, &mut self.canonical)?;
                        open = b',';
                    }
                    self.canonical.push(b']');
                }
            }
            if self.canonical.len() - start > group.limit {
                return None;
            }
            self.ends.push(self.canonical.len());
        }
        for &path in &schema.numbers {
            self.row.push(match self.slots[path] {
                Token::Integer { start, end } => integer(piece(scalars, start, end))? as f64,
                Token::Decimal { start, end } => decimal(piece(scalars, start, end))?,
                Token::Float { start, end } => float(piece(scalars, start, end)).filter(|x| x.is_finite())?,
                _ => return None,
            });
        }
        if let Some(time) = &schema.time {
            self.found.times.push(match self.slots[time.path] {
                Token::Integer { start, end } if !time.text => {
                    let stamp = integer(piece(scalars, start, end)).filter(|x| (time.low..=time.high).contains(x))?;
                    stamp.checked_mul(time.numerator)?.div_euclid(time.denominator)
                }
                Token::Text { start, end } if time.text => instant(piece(scalars, start + 1, end - 1))?,
                Token::Instant { start, end } => integer(piece(scalars, start, end))?,
                _ => return None,
            });
        }
        let mut start = 0;
        for ((codes, items), &end) in self.found.codes.iter_mut().zip(&mut self.found.items).zip(&self.ends) {
            codes.push(items.code(&self.canonical[start..end]) as i32);
            start = end;
        }
        for (numbers, &number) in self.found.numbers.iter_mut().zip(&self.row) {
            numbers.push(number);
        }
        Some(())
    }
}

fn piece(text: &[u8], start: u32, end: u32) -> &[u8] {
    &text[start as usize..end as usize]
}

fn float(bytes: &[u8]) -> Option<f64> {
    Some(f64::from_le_bytes(bytes.try_into().ok()?))
}

/// Appends the canonical text of a scalar: what is plain is its own.
fn category(token: Token, text: &[u8], group: &Group, canonical: &mut Vec<u8>) -> Option<()> {
    let (start, end) = match token {
        Token::Text { start, end } | Token::Bytes { start, end } if end - start == 2 && !group.empty => return None,
        Token::Text { start, end } | Token::Bytes { start, end } | Token::Boolean { start, end } => (start, end),
        Token::Null { start, end } if group.nullable => (start, end),
        Token::Absent if group.nullable => {
            canonical.extend_from_slice(b"null");
            return Some(());
        }
        Token::Integer { start, end } => {
            integer(piece(text, start, end))?;
            (start, end)
        }
        Token::Float { start, end } => {
            let number = whole(float(piece(text, start, end))?)?;
            return write!(canonical, "{number}").ok();
        }
        _ => return None,
    };
    canonical.extend_from_slice(piece(text, start, end));
    Some(())
}

/// Appends the record's own key as a JSON string; no key is null.
fn own_key(key: Option<&[u8]>, group: &Group, canonical: &mut Vec<u8>) -> Option<()> {
    match key {
        None if group.nullable => canonical.extend_from_slice(b"null"),
        None => return None,
        Some(key) => {
            let plain = |&byte: &u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
            if !key.iter().all(plain) || std::str::from_utf8(key).is_err() {
                return None;
            }
            canonical.push(b'"');
            canonical.extend_from_slice(key);
            canonical.push(b'"');
        }
    }
    Some(())
}
