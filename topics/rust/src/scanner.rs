//! `Scanner`: from record batches to columns, for one schema. topics/records/scanning.py calls it and says what the answers mean.
//!
//! A row is taken if each of its fields is found by its reader (slots.rs) and understood by `coding`. All other rows are listed as
//! left, and the caller decodes those in Python. Where expressions are to be evaluated first, the fields found are kept (found.rs).

use std::sync::{Arc, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::batch::Section;
use crate::coding::{column, Coding, Columns, GroupOf, Layout, TimeOf};
use crate::facts::{shifted, Facts};
use crate::found::Found;
use crate::framed::{Framed, Lookup};
use crate::json::Tree;
use crate::kept::Kept;
use crate::slots::{SlotReader, Token};

/// What reads the values.
enum Source {
    Json(Tree),
    Framed(Py<Framed>),
}

#[pyclass(frozen)]
pub struct Scanner {
    source: Source,
    paths: usize,
    layout: Arc<Layout>,
}

#[pymethods]
impl Scanner {
    /// framed: what reads values that are no JSON; it knows the paths by their numbers. computed: how many scalars are computed; they
    /// have the numbers behind the paths, and only `find` can be used if there are any.
    #[new]
    #[pyo3(signature = (paths, groups, numbers, time, framed, computed))]
    fn new(
        paths: Vec<Vec<String>>,
        groups: Vec<GroupOf>,
        numbers: Vec<usize>,
        time: Option<TimeOf>,
        framed: Option<Py<Framed>>,
        computed: usize,
    ) -> PyResult<Self> {
        let mut tree = Tree::default();
        for (number, path) in paths.iter().enumerate() {
            tree.add(path, number).ok_or_else(|| PyValueError::new_err("a path is empty, or leads through another"))?;
        }
        if framed.as_ref().is_some_and(|framed| framed.get().slots != paths.len()) {
            return Err(PyValueError::new_err("the programs are of other paths"));
        }
        let layout = Arc::new(Layout::new(groups, numbers, time, paths.len() + computed)?);
        let source = framed.map_or(Source::Json(tree), Source::Framed);
        Ok(Scanner { source, paths: paths.len(), layout })
    }

    /// The records with start <= offset < below. Raises ValueError for a malformed batch.
    fn scan<'py>(&self, py: Python<'py>, sections: Vec<Section>, start: i64, below: i64) -> PyResult<Scanned<'py>> {
        let found = py.detach(|| self.with_reader(|reader| scanned(self, reader, &sections, start, below)));
        let (facts, rest, coding, unknown) = found.ok_or_else(malformed)?;
        let facts_found = facts_of(py, &facts, &rest)?;
        Ok((facts_found, coding.columns(py)?, unknown))
    }

    /// The same records, of which the fields are kept until expressions over them were evaluated; and the numbers of schemas that are
    /// not known. Raises ValueError for a malformed batch.
    fn find<'py>(&self, py: Python<'py>, sections: Vec<Section>, start: i64, below: i64) -> PyResult<FoundOf<'py>> {
        let found = py.detach(|| {
            self.with_reader(|reader| {
                let (mut facts, mut rest) = (Facts::default(), Rest::default());
                let mut kept = Kept::new(self.paths);
                for (number, section) in sections.iter().enumerate() {
                    facts.section(section, start, below, |row, text, record| {
                        rest.headers.extend(shifted(record.headers, section.1));
                        let value = record.value.of(text);
                        if value.and_then(|value| kept.read(reader, value, (number, text, section.1))).is_none() {
                            kept.leave();
                            rest.left.push(row as i64);
                        }
                    })?;
                }
                Some((facts, rest, kept, reader.unknown()))
            })
        });
        let (facts, rest, kept, unknown) = found.ok_or_else(malformed)?;
        let facts_found = facts_of(py, &facts, &rest)?;
        let found = Found::new(self.layout.clone(), sections, facts.counts, facts.places, kept);
        Ok((facts_found, Bound::new(py, found)?, unknown))
    }
}

impl Scanner {
    fn with_reader<T>(&self, f: impl FnOnce(&mut Reader) -> T) -> T {
        match &self.source {
            Source::Json(tree) => f(&mut Reader::Json(tree)),
            Source::Framed(framed) => {
                let framed = framed.get();
                let programs = framed.programs.read().unwrap_or_else(PoisonError::into_inner);
                f(&mut Reader::Framed(Lookup::new(framed, &programs)))
            }
        }
    }
}

fn malformed() -> PyErr {
    PyValueError::new_err("a record batch is malformed")
}

/// The rows that were left, and where headers are: of these rows, or of all rows where more may be left later.
#[derive(Default)]
struct Rest {
    left: Vec<i64>,
    headers: Vec<i32>,
}

fn scanned<'a>(
    scanner: &'a Scanner,
    reader: &mut Reader,
    sections: &[Section],
    start: i64,
    below: i64,
) -> Option<(Facts, Rest, Coding<'a>, Vec<u64>)> {
    let (mut facts, mut rest, mut coding) = (Facts::default(), Rest::default(), Coding::new(&scanner.layout));
    let mut slots = vec![Token::Absent; scanner.paths];
    let mut arena = Vec::new();
    for section in sections {
        facts.section(section, start, below, |row, text, record| {
            let mut add = || {
                arena.clear();
                let scalars = reader.read(record.value.of(text)?, &mut arena, &mut slots)?;
                coding.add(|number| (slots[number], scalars), record.key.of(text))
            };
            if add().is_none() {
                coding.leave();
                rest.left.push(row as i64);
                rest.headers.extend(shifted(record.headers, section.1));
            }
        })?;
    }
    Some((facts, rest, coding, reader.unknown()))
}

/// What reads the values during a scan.
pub enum Reader<'a> {
    Json(&'a Tree),
    Framed(Lookup<'a>),
}

impl Reader<'_> {
    /// As `SlotReader::read`; None, too, where the schema of a record is not known.
    pub fn read<'b>(&mut self, value: &'b [u8], arena: &'b mut Vec<u8>, slots: &mut [Token]) -> Option<&'b [u8]> {
        match self {
            Reader::Json(tree) => tree.read(value, arena, slots),
            Reader::Framed(lookup) => {
                let (reader, body) = lookup.of(value)?;
                reader.read(body, arena, slots)
            }
        }
    }

    /// The numbers of schemas that are not known.
    fn unknown(&mut self) -> Vec<u64> {
        match self {
            Reader::Json(_) => Vec::new(),
            Reader::Framed(lookup) => lookup.unknown.drain().collect(),
        }
    }
}

/// Offsets and time stamps (int64); places of key and value (int32, four a row, -1 = absent); rows of each section; rows that were
/// left (int64); places of headers (int32, two a row: of the rows left, or of all); number of records from `below` on.
type FactsFound<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyList>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    usize,
);
/// The last one: numbers of schemas that are not known.
type Scanned<'py> = (FactsFound<'py>, Columns<'py>, Vec<u64>);
type FoundOf<'py> = (FactsFound<'py>, Bound<'py, Found>, Vec<u64>);

fn facts_of<'py>(py: Python<'py>, facts: &Facts, rest: &Rest) -> PyResult<FactsFound<'py>> {
    Ok((
        column(py, &facts.offsets, |x| x.to_ne_bytes())?,
        column(py, &facts.timestamps, |x| x.to_ne_bytes())?,
        column(py, &facts.places, |x| x.to_ne_bytes())?,
        PyList::new(py, &facts.counts)?,
        column(py, &rest.left, |x| x.to_ne_bytes())?,
        column(py, &rest.headers, |x| x.to_ne_bytes())?,
        facts.beyond,
    ))
}
