//! Records that say by a number before them what they are, as schema registries have it: a program reads those of each number.
//!
//! value ──framing──▶ number, body ──program of that number──▶ tokens
//!
//! The scan lists the numbers of which nothing was added, so that Python adds it or reads the records. Of a number whose schema no
//! program can read, this is added, and its records are left.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::slots::SlotReader;

/// What reads the records of one schema. Each format makes its own.
#[pyclass(frozen)]
pub struct Program {
    reader: Arc<dyn SlotReader>,
    slots: usize,
}

impl Program {
    /// slots: how many paths there are; the reader writes no other.
    pub fn new(reader: impl SlotReader + 'static, slots: usize) -> Self {
        Program { reader: Arc::new(reader), slots }
    }
}

/// By numbers, and of all other numbers. None in it: the records are left.
#[derive(Default)]
pub struct Programs {
    by_number: HashMap<u64, Option<Arc<dyn SlotReader>>>,
    others: Option<Option<Arc<dyn SlotReader>>>,
}

impl Programs {
    fn of(&self, number: u64) -> Option<Option<&dyn SlotReader>> {
        self.by_number.get(&number).or(self.others.as_ref()).map(Option::as_deref)
    }
}

/// The programs of one source. prefix: what stands before the number. size: its bytes, of which the first is the highest; without
/// any, all records have the number 0. numbers: the first and the last; records with others are left. slots: how many paths there are.
#[pyclass(frozen)]
pub struct Framed {
    prefix: Vec<u8>,
    size: usize,
    numbers: (u64, u64),
    pub slots: usize,
    pub programs: RwLock<Programs>,
}

#[pymethods]
impl Framed {
    #[new]
    fn new(prefix: Vec<u8>, size: usize, numbers: (u64, u64), slots: usize) -> PyResult<Self> {
        if size > 8 {
            return Err(PyValueError::new_err("a number has eight bytes at most"));
        }
        Ok(Framed { prefix, size, numbers, slots, programs: RwLock::default() })
    }

    /// From now on the records of a number, or of all that have none of their own (None), are read by a program, or left (None).
    #[pyo3(signature = (number, program))]
    fn add(&self, number: Option<u64>, program: Option<&Program>) -> PyResult<()> {
        if program.is_some_and(|program| program.slots != self.slots) {
            return Err(PyValueError::new_err("the program is of other paths"));
        }
        let reader = program.map(|program| program.reader.clone());
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        match number {
            Some(number) => {
                programs.by_number.insert(number, reader);
            }
            None => programs.others = Some(reader),
        }
        Ok(())
    }
}

/// The programs during a scan.
pub struct Lookup<'a> {
    framed: &'a Framed,
    programs: &'a Programs,
    /// The number of the record before, and its program: records of one kind mostly come together.
    last: Option<(u64, Option<&'a dyn SlotReader>)>,
    /// Numbers that Python is to be asked about.
    pub unknown: HashSet<u64>,
}

impl<'a> Lookup<'a> {
    /// programs: those of `framed`, locked.
    pub fn new(framed: &'a Framed, programs: &'a Programs) -> Self {
        Lookup { framed, programs, last: None, unknown: HashSet::new() }
    }

    /// What reads a record, and what it is to read. None: the record is left.
    pub fn of<'b>(&mut self, value: &'b [u8]) -> Option<(&'a dyn SlotReader, &'b [u8])> {
        // An empty record is refused as such, whatever a schema could make of it.
        if value.is_empty() {
            return None;
        }
        let behind = value.strip_prefix(&self.framed.prefix[..])?;
        let (digits, body) = behind.split_at_checked(self.framed.size)?;
        let number = digits.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        match self.last {
            Some((known, reader)) if known == number => Some((reader?, body)),
            _ => {
                let (first, last) = self.framed.numbers;
                let found = if (first..=last).contains(&number) { self.programs.of(number) } else { Some(None) };
                if found.is_none() {
                    self.unknown.insert(number);
                }
                self.last = Some((number, found.flatten()));
                Some((found.flatten()?, body))
            }
        }
    }
}
