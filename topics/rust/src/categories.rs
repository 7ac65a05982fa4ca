//! Distinct byte strings and their codes, which count up in order of first occurrence (topics/records/categories.py).

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// The hash is keyed by chance: whoever chooses the strings cannot make them collide.
#[derive(Default)]
pub struct Categories {
    hasher: RandomState,
    table: HashTable<u32>,
    hashes: Vec<u64>,
    joined: Vec<u8>,
    ends: Vec<usize>,
}

impl Categories {
    /// The code of a string.
    pub fn code(&mut self, item: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(item);
        let (hashes, joined, ends) = (&self.hashes, &self.joined, &self.ends);
        let known = |code: u32| hashes[code as usize] == hash && slice(joined, ends, code as usize) == item;
        if let Some(&code) = self.table.find(hash, |&code| known(code)) {
            return code;
        }
        let code = self.ends.len() as u32;
        self.hashes.push(hash);
        self.joined.extend_from_slice(item);
        self.ends.push(self.joined.len());
        self.table.insert_unique(hash, code, |&code| self.hashes[code as usize]);
        code
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The strings by code.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|code| slice(&self.joined, &self.ends, code))
    }
}

fn slice<'a>(joined: &'a [u8], ends: &[usize], code: usize) -> &'a [u8] {
    &joined[code.checked_sub(1).map_or(0, |before| ends[before])..ends[code]]
}

/// What topics/wire/partitioner.py takes a remainder of: CRC-32, finalised as in MurmurHash3.
pub fn placement(item: &[u8]) -> u32 {
    let mut mixed = crc32fast::hash(item);
    mixed ^= mixed >> 16;
    mixed = mixed.wrapping_mul(0x85EB_CA6B);
    mixed ^= mixed >> 13;
    mixed = mixed.wrapping_mul(0xC2B2_AE35);
    mixed ^ mixed >> 16
}

/// `placement` of each of these bytes, as uint32 in the machine's order.
#[pyfunction]
pub fn placements<'py>(py: Python<'py>, items: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    let mut placed = Vec::with_capacity(4 * items.len());
    for item in items {
        placed.extend_from_slice(&placement(item.cast::<PyBytes>()?.as_bytes()).to_ne_bytes());
    }
    Ok(PyBytes::new(py, &placed))
}
