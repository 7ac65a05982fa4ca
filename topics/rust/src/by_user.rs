//! Blocks of by-user from the columns of a fetch: the rows of each partition, packed as topics/by_user.py, blocks.py and packing.py
//! say.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

const KIND: u8 = 1;
const VERSION: u8 = 1;

/// The columns of a fetch and the items that codes point to.
struct Columns<'a> {
    source: i64,
    /// Offset, interval, window.
    facts: Vec<Vec<i64>>,
    user: Vec<i32>,
    key: Vec<i32>,
    values: Vec<Vec<i64>>,
    users: Vec<&'a [u8]>,
    keys: Vec<&'a [u8]>,
}

/// Rows by partition, in blocks of at most `max_bytes`: (partition, blocks) in order of the partitions.
///
/// facts: offset, interval and window, int64 each; user, key: int32 codes into users and keys; values: int64 columns; rows: int64;
/// partitions: int32 for each user. Raises ValueError where the columns do not fit together, or one row is too large for a block.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn pack_by_user<'py>(
    py: Python<'py>,
    source: i64,
    facts: [PyBackedBytes; 3],
    user: PyBackedBytes,
    users: &Bound<'py, PyList>,
    key: PyBackedBytes,
    keys: &Bound<'py, PyList>,
    values: Vec<PyBackedBytes>,
    rows: PyBackedBytes,
    partitions: PyBackedBytes,
    max_bytes: usize,
) -> PyResult<Vec<(i32, Vec<Bound<'py, PyBytes>>)>> {
    let (users, keys) = (owned(users)?, owned(keys)?);
    let columns = Columns {
        source,
        facts: facts.iter().map(|column| numbers(column, i64::from_ne_bytes)).collect(),
        user: numbers(&user, i32::from_ne_bytes),
        key: numbers(&key, i32::from_ne_bytes),
        values: values.iter().map(|column| numbers(column, i64::from_ne_bytes)).collect(),
        users: users.iter().map(|item| item.as_bytes()).collect(),
        keys: keys.iter().map(|item| item.as_bytes()).collect(),
    };
    let rows = numbers(&rows, i64::from_ne_bytes);
    let partitions = numbers(&partitions, i32::from_ne_bytes);
    let packed = py.detach(|| columns.packed(&rows, &partitions, max_bytes));
    let packed = packed.ok_or_else(|| PyValueError::new_err("columns do not fit together, or a row is too large"))?;
    let as_bytes = |blocks: Vec<Vec<u8>>| blocks.iter().map(|block| PyBytes::new(py, block)).collect();
    Ok(packed.into_iter().map(|(partition, blocks)| (partition, as_bytes(blocks))).collect())
}

fn owned<'py>(items: &Bound<'py, PyList>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    items.iter().map(|item| Ok(item.cast_into::<PyBytes>()?)).collect()
}

fn numbers<T, const N: usize>(text: &[u8], number: fn([u8; N]) -> T) -> Vec<T> {
    text.chunks_exact(N).map(|bytes| number(bytes.try_into().expect("chunks are of this size"))).collect()
}

impl Columns<'_> {
    fn packed(&self, rows: &[i64], partitions: &[i32], max_bytes: usize) -> Option<Vec<(i32, Vec<Vec<u8>>)>> {
        let height = self.user.len();
        let of_int64 = self.facts.iter().chain(&self.values);
        let fits = self.key.len() == height
            && of_int64.into_iter().all(|column| column.len() == height)
            && partitions.len() == self.users.len()
            && !self.users.iter().chain(&self.keys).any(|item| item.is_empty());
        if !fits {
            return None;
        }
        let most = partitions.iter().copied().max().unwrap_or(0);
        let mut of_partition: Vec<Vec<usize>> = vec![Vec::new(); usize::try_from(most).ok()? + 1];
        for &row in rows {
            let row = usize::try_from(row).ok().filter(|&row| row < height)?;
            let user = usize::try_from(self.user[row]).ok()?;
            if usize::try_from(self.key[row]).ok()? >= self.keys.len() {
                return None;
            }
            of_partition[usize::try_from(*partitions.get(user)?).ok()?].push(row);
        }
        let mut packed = Vec::new();
        for (partition, rows) in of_partition.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let mut blocks = Vec::new();
            self.split(rows, max_bytes, &mut blocks)?;
            packed.push((partition as i32, blocks));
        }
        Some(packed)
    }

    /// Halves until each block is small enough.
    fn split(&self, rows: &[usize], max_bytes: usize, blocks: &mut Vec<Vec<u8>>) -> Option<()> {
        let block = self.block(rows);
        if block.len() <= max_bytes {
            blocks.push(block);
            return Some(());
        }
        if rows.len() == 1 {
            return None;
        }
        let (first, second) = rows.split_at(rows.len() / 2);
        self.split(first, max_bytes, blocks)?;
        self.split(second, max_bytes, blocks)
    }

    fn block(&self, rows: &[usize]) -> Vec<u8> {
        let (user, users) = narrow(rows, &self.user, &self.users);
        let (key, keys) = narrow(rows, &self.key, &self.keys);
        let mut block = vec![KIND, VERSION];
        let counts = [rows.len(), self.values.len(), users.len(), keys.len()];
        for number in [self.source].into_iter().chain(counts.iter().map(|&count| count as i64)) {
            block.extend(number.to_le_bytes());
        }
        let of_rows = |column: &[i64]| rows.iter().map(|&row| column[row]).collect::<Vec<_>>();
        for column in &self.facts {
            pack_column(&mut block, &of_rows(column));
        }
        pack_column(&mut block, &user);
        pack_column(&mut block, &key);
        for column in &self.values {
            pack_column(&mut block, &of_rows(column));
        }
        pack_blobs(&mut block, &users);
        pack_blobs(&mut block, &keys);
        block
    }
}

/// Codes of some rows into a list of only the items that they use, in the same order.
fn narrow<'a>(rows: &[usize], codes: &[i32], items: &[&'a [u8]]) -> (Vec<i64>, Vec<&'a [u8]>) {
    let mut renumbered = vec![-1i64; items.len()];
    for &row in rows {
        renumbered[codes[row] as usize] = 0;
    }
    let mut used = Vec::new();
    for (number, &item) in renumbered.iter_mut().zip(items) {
        if *number == 0 {
            *number = used.len() as i64;
            used.push(item);
        }
    }
    (rows.iter().map(|&row| renumbered[codes[row] as usize]).collect(), used)
}

fn pack_column(block: &mut Vec<u8>, column: &[i64]) {
    let (low, high) = column.iter().fold((i64::MAX, i64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let low = if column.is_empty() { 0 } else { low };
    let spread = if column.is_empty() { 0 } else { high.wrapping_sub(low) as u64 };
    block.extend(low.to_le_bytes());
    let differences = column.iter().map(|x| x.wrapping_sub(low) as u64);
    match spread {
        0 => block.push(0),
        1..=0xff => {
            block.push(1);
            block.extend(differences.map(|x| x as u8));
        }
        0x100..=0xffff => put(block, differences, |x| (x as u16).to_le_bytes()),
        0x1_0000..=0xffff_ffff => put(block, differences, |x| (x as u32).to_le_bytes()),
        _ => put(block, differences, u64::to_le_bytes),
    }
}

fn put<const N: usize>(block: &mut Vec<u8>, numbers: impl Iterator<Item = u64>, bytes: fn(u64) -> [u8; N]) {
    block.push(N as u8);
    for number in numbers {
        block.extend_from_slice(&bytes(number));
    }
}

fn pack_blobs(block: &mut Vec<u8>, items: &[&[u8]]) {
    let lengths: Vec<i64> = items.iter().map(|item| item.len() as i64).collect();
    pack_column(block, &lengths);
    for item in items {
        block.extend_from_slice(item);
    }
}
