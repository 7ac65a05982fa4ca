//! `Found`: the scalars of a batch's records, kept while expressions over them are evaluated.
//!
//! Scanner.find ──▶ Found ──kinds, table──▶ the engine (arrow.rs) ──▶ Results ──coded──▶ codes, numbers, times
//!
//! agents/expressions/typed.py calls it. Rows are grouped by the kinds of their own fields, so which query evaluates a record depends
//! on that record alone. A row with a field of another kind is left to the definition in Python.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::Section;
use crate::categories::Categories;
use crate::coding::{self, column, Coding, Layout};
use crate::kept::Kept;
use crate::results::Results;
use crate::slots::Token;
use crate::table::{filled, kind, Table};

#[pyclass(frozen)]
pub struct Found {
    layout: Arc<Layout>,
    sections: Vec<Section>,
    counts: Vec<usize>,
    places: Vec<i32>,
    kept: Kept,
}

impl Found {
    /// counts: rows of each section. places: as of `Facts`.
    pub fn new(layout: Arc<Layout>, sections: Vec<Section>, counts: Vec<usize>, places: Vec<i32>, kept: Kept) -> Self {
        Found { layout, sections, counts, places, kept }
    }

    /// The tokens of a row and the text that they are places in; None where it is left.
    fn row(&self, row: usize) -> Option<(&[Token], &[u8])> {
        self.kept.row(row, &self.sections)
    }
}

/// With fewer rows it is not worth it to find those that are alike.
const FEW: usize = 64;
/// If two thirds of the first so many rows differ, all are taken to differ.
const SAMPLE: usize = 4096;

/// Rows, and the place of each among them.
type AlikeFound<'py> = Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;
/// Rows by the kinds of their fields (int64), and the rows that are left.
type KindsFound<'py> = (Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>, Bound<'py, PyBytes>);

#[pymethods]
impl Found {
    /// The rows by the kinds of their fields at these paths, in order of first occurrence. rows: int64. longest: bytes of a text.
    fn kinds<'py>(&self, py: Python<'py>, paths: Vec<usize>, rows: &[u8], longest: usize) -> PyResult<KindsFound<'py>> {
        let rows = self.rows(rows)?;
        self.known(&paths)?;
        let (groups, left) = py.detach(|| {
            let mut groups: Vec<(Vec<u8>, Vec<i64>)> = Vec::new();
            let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
            let (mut left, mut kinds, mut last) = (Vec::new(), Vec::new(), 0);
            for row in rows {
                kinds.clear();
                let found = self.row(row).and_then(|(tokens, text)| {
                    paths.iter().try_for_each(|&path| {
                        kinds.push(kind(tokens[path], text, longest)?);
                        Some(())
                    })
                });
                if found.is_none() {
                    left.push(row as i64);
                    continue;
                }
                if groups.get(last).is_none_or(|(known, _)| *known != kinds) {
                    last = *numbers.entry(kinds.clone()).or_insert(groups.len());
                    if last == groups.len() {
                        groups.push((kinds.clone(), Vec::new()));
                    }
                }
                groups[last].1.push(row as i64);
            }
            (groups, left)
        });
        let groups =
            groups.iter().map(|(kinds, rows)| Ok((PyBytes::new(py, kinds), column(py, rows, |x| x.to_ne_bytes())?)));
        Ok((groups.collect::<PyResult<_>>()?, column(py, &left, |x| x.to_ne_bytes())?))
    }

    /// One row each of those that have the same fields at these paths, and which of these a row is like (int64, uint32). None: hardly
    /// any are alike, or none has a text, so that it is cheaper to evaluate all. rows: int64.
    fn alike<'py>(&self, py: Python<'py>, paths: Vec<usize>, rows: &[u8]) -> PyResult<AlikeFound<'py>> {
        let rows = self.rows(rows)?;
        self.known(&paths)?;
        let found = py.detach(|| {
            let textual = |&row: &usize| {
                self.row(row)
                    .is_some_and(|(tokens, _)| paths.iter().any(|&path| matches!(tokens[path], Token::Text { .. })))
            };
            if rows.len() < FEW || !rows[..FEW].iter().any(textual) {
                return None;
            }
            let (mut items, mut first, mut codes) = (Categories::default(), Vec::new(), Vec::with_capacity(rows.len()));
            let mut key = Vec::new();
            for (at, &row) in rows.iter().enumerate() {
                let (tokens, text) = self.row(row)?;
                key.clear();
                for &path in &paths {
                    let (kind, part) = tokens[path].piece(text);
                    key.push(kind);
                    key.extend_from_slice(&(part.len() as u32).to_le_bytes());
                    key.extend_from_slice(part);
                }
                let code = items.code(&key);
                if code as usize == first.len() {
                    first.push(row as i64);
                }
                codes.push(code);
                if at + 1 == SAMPLE && 3 * first.len() > 2 * SAMPLE {
                    return None;
                }
            }
            Some((first, codes))
        });
        let Some((first, codes)) = found else { return Ok(None) };
        Ok(Some((column(py, &first, |x| x.to_ne_bytes())?, column(py, &codes, |x| x.to_ne_bytes())?)))
    }

    /// A table of the fields at these paths in some rows, each of one kind. Column n of it is c<n>; a null is no column.
    fn table(&self, py: Python<'_>, paths: Vec<usize>, kinds: &[u8], rows: &[u8]) -> PyResult<Table> {
        let rows = self.rows(rows)?;
        self.known(&paths)?;
        let mut longest = 0;
        let columns: Option<Vec<_>> = py.detach(|| {
            let each = paths.iter().zip(kinds).map(|(&path, &kind)| {
                let fields = rows.iter().map(|&row| self.row(row).map(|(tokens, text)| (tokens[path], text)));
                filled(kind, rows.len(), fields, &mut longest)
            });
            each.collect()
        });
        let columns = columns.ok_or_else(|| PyValueError::new_err("a field is not of its kind"))?;
        Ok(Table::new(rows.len(), columns, longest))
    }

    /// Codes, numbers and times of some rows; the other rows have none. rows: int64, ascending. results: of each computed scalar.
    /// The last item: the rows of these that are left.
    fn coded<'py>(
        &self,
        py: Python<'py>,
        rows: &[u8],
        results: Vec<PyRef<'py, Results>>,
    ) -> PyResult<(coding::Columns<'py>, Bound<'py, PyBytes>)> {
        let rows = self.rows(rows)?;
        if !self.layout.fits(self.kept.paths + results.len()) || results.iter().any(|one| one.len() < self.counted()) {
            return Err(PyValueError::new_err("these are not the results of all rows and scalars"));
        }
        let results: Vec<&Results> = results.iter().map(|one| &**one).collect();
        let (coding, left) = py.detach(|| {
            let (mut coding, mut left) = (Coding::new(&self.layout), Vec::new());
            let mut wanted = rows.iter().copied().peekable();
            let mut first = 0;
            for (section, &count) in self.sections.iter().zip(&self.counts) {
                let of_section = first..first + count;
                first += count;
                for row in of_section {
                    if wanted.next_if_eq(&row).is_none() {
                        coding.leave();
                        continue;
                    }
                    let mut add = || {
                        let (tokens, text) = self.row(row)?;
                        let scalar = |number: usize| match number.checked_sub(tokens.len()) {
                            None => (tokens[number], text),
                            Some(computed) => results[computed].of(row),
                        };
                        let [start, end] = [self.places[4 * row], self.places[4 * row + 1]];
                        let key = usize::try_from(start).ok().map(|start| &section.0[start..end as usize]);
                        coding.add(scalar, key)
                    };
                    if add().is_none() {
                        coding.leave();
                        left.push(row as i64);
                    }
                }
            }
            (coding, left)
        });
        Ok((coding.columns(py)?, column(py, &left, |x| x.to_ne_bytes())?))
    }
}

impl Found {
    fn counted(&self) -> usize {
        self.kept.rows()
    }

    fn rows(&self, rows: &[u8]) -> PyResult<Vec<usize>> {
        let numbers = rows.chunks_exact(8).map(|bytes| {
            let row = usize::from_ne_bytes(bytes.try_into().ok()?);
            (row < self.counted()).then_some(row)
        });
        numbers.collect::<Option<_>>().ok_or_else(|| PyValueError::new_err("there is no such row"))
    }

    fn known(&self, paths: &[usize]) -> PyResult<()> {
        let known = paths.iter().all(|&path| path < self.kept.paths);
        known.then_some(()).ok_or_else(|| PyValueError::new_err("there is no path of such a number"))
    }
}
