//! `Found`: the scalars of a batch's records, kept while expressions over them are evaluated.
//!
//! Scanner.find ──▶ Found ──kinds, table──▶ the engine (arrow.rs) ──▶ Results ──coded──▶ codes, numbers, times
//!
//! agents/expressions/typed.py calls it. Rows are grouped by the kinds of their own fields, so which query evaluates a record depends
//! on that record alone. A row with a field of another kind is left to the definition in Python.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::arrow::{capsule, Column, Columns};
use crate::batch::Section;
use crate::categories::Categories;
use crate::coding::{self, column, float, piece, Coding, Layout};
use crate::numbers::{decimal, integer};
use crate::results::Results;
use crate::scanner::Reader;
use crate::slots::Token;

/// Of a field, as agents/expressions/kinds.py numbers them.
const NULL: u8 = 0;
const BOOLEAN: u8 = 1;
const BIGINT: u8 = 2;
const DOUBLE: u8 = 4;
const TEXT: u8 = 5;

/// Where the text is that a row's tokens are places in.
#[derive(Clone, Copy)]
enum Origin {
    /// The row is left.
    Nowhere,
    /// In the data of a section, from a byte on.
    Section(usize, usize),
    /// In what readers have written, from a byte on.
    Arena(usize),
}

/// The tokens of all rows.
pub struct Kept {
    paths: usize,
    tokens: Vec<Token>,
    origins: Vec<Origin>,
    arena: Vec<u8>,
    slots: Vec<Token>,
    scratch: Vec<u8>,
}

impl Kept {
    pub fn new(paths: usize) -> Self {
        Kept {
            paths,
            tokens: Vec::new(),
            origins: Vec::new(),
            arena: Vec::new(),
            slots: vec![Token::Absent; paths],
            scratch: Vec::new(),
        }
    }

    /// Adds a row. section: its number, the text of its records, which has the value, and where that begins in its data. None: the
    /// value is not certain, and nothing is added.
    pub fn read(&mut self, reader: &mut Reader, value: &[u8], section: (usize, &[u8], usize)) -> Option<()> {
        let (number, text, first) = section;
        self.scratch.clear();
        let scalars = reader.read(value, &mut self.scratch, &mut self.slots)?;
        let at = (scalars.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        if at <= text.len() {
            self.origins.push(Origin::Section(number, first + at));
        } else {
            self.origins.push(Origin::Arena(self.arena.len()));
            self.arena.extend_from_slice(scalars);
        }
        self.tokens.extend_from_slice(&self.slots);
        Some(())
    }

    /// Adds a row that is left.
    pub fn leave(&mut self) {
        self.origins.push(Origin::Nowhere);
        self.tokens.extend(std::iter::repeat_n(Token::Absent, self.paths));
    }
}

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
        let text = match self.kept.origins[row] {
            Origin::Nowhere => return None,
            Origin::Section(number, start) => &self.sections[number].0[start..],
            Origin::Arena(start) => &self.kept.arena[start..],
        };
        Some((&self.kept.tokens[row * self.kept.paths..(row + 1) * self.kept.paths], text))
    }

    /// Adds the value of a path in some rows to a column. None: one of them is not of the kind.
    fn column(&self, path: usize, kind: u8, rows: &[usize], longest: &mut usize) -> Option<Column> {
        let fields = rows.iter().map(|&row| self.row(row).map(|(tokens, text)| (tokens[path], text)));
        Some(match kind {
            BOOLEAN => {
                let mut bits = vec![0; rows.len().div_ceil(8)];
                for (at, field) in fields.enumerate() {
                    let (Token::Boolean { start, .. }, text) = field? else { return None };
                    bits[at / 8] |= u8::from(text[start as usize] == b't') << (at % 8);
                }
                Column::Booleans(bits)
            }
            BIGINT => Column::Integers(
                fields
                    .map(|field| match field? {
                        (Token::Integer { start, end }, text) => integer(piece(text, start, end)),
                        _ => None,
                    })
                    .collect::<Option<_>>()?,
            ),
            DOUBLE => Column::Doubles(
                fields
                    .map(|field| match field? {
                        (Token::Decimal { start, end }, text) => decimal(piece(text, start, end)),
                        (Token::Float { start, end }, text) => float(piece(text, start, end)),
                        _ => None,
                    })
                    .collect::<Option<_>>()?,
            ),
            TEXT => {
                let (mut ends, mut texts) = (Vec::with_capacity(rows.len() + 1), Vec::new());
                ends.push(0);
                for field in fields {
                    let (Token::Text { start, end }, text) = field? else { return None };
                    let before = texts.len();
                    texts.extend_from_slice(piece(text, start + 1, end - 1));
                    ends.push(texts.len() as i64);
                    *longest = (*longest).max(texts.len() - before);
                }
                Column::Texts(ends, texts)
            }
            _ => return None,
        })
    }
}

/// The kind of a field; None where the definition in Python decides. longest: bytes of a text.
fn kind(token: Token, text: &[u8], longest: usize) -> Option<u8> {
    match token {
        Token::Absent | Token::Null { .. } => Some(NULL),
        Token::Boolean { .. } => Some(BOOLEAN),
        Token::Integer { start, end } => integer(piece(text, start, end)).map(|_| BIGINT),
        Token::Decimal { start, end } => decimal(piece(text, start, end)).map(|_| DOUBLE),
        Token::Float { start, end } => float(piece(text, start, end)).filter(|x| x.is_finite()).map(|_| DOUBLE),
        Token::Text { start, end } => ((end - start) as usize <= longest + 2).then_some(TEXT),
        Token::Bytes { .. } | Token::Instant { .. } => None,
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
            let wanted = paths.iter().zip(kinds).enumerate().filter(|(_, (_, &kind))| kind != NULL);
            wanted
                .map(|(number, (&path, &kind))| Some((name(number), self.column(path, kind, &rows, &mut longest)?)))
                .collect()
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
        self.kept.origins.len()
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

/// Columns that an engine reads, as often as it likes.
#[pyclass(frozen)]
pub struct Table {
    columns: Arc<Columns>,
    /// Bytes of the longest text.
    #[pyo3(get)]
    longest: usize,
}

impl Table {
    fn new(rows: usize, mut columns: Vec<(CString, Column)>, longest: usize) -> Self {
        if columns.is_empty() {
            // Without a column it would have no rows.
            columns.push((c"row".to_owned(), Column::Integers(vec![0; rows])));
        }
        Table { columns: Arc::new(Columns { rows, columns }), longest }
    }
}

fn name(number: usize) -> CString {
    CString::new(format!("c{number}")).unwrap_or_default()
}

#[pymethods]
impl Table {
    /// Without rows, for fields of these kinds.
    #[staticmethod]
    fn empty(kinds: &[u8]) -> PyResult<Self> {
        let columns = kinds.iter().enumerate().filter(|(_, &kind)| kind != NULL).map(|(number, &kind)| {
            let column = match kind {
                BOOLEAN => Column::Booleans(Vec::new()),
                BIGINT => Column::Integers(Vec::new()),
                DOUBLE => Column::Doubles(Vec::new()),
                TEXT => Column::Texts(vec![0], Vec::new()),
                _ => return Err(PyValueError::new_err("no column is of this kind")),
            };
            Ok((name(number), column))
        });
        Ok(Table::new(0, columns.collect::<PyResult<_>>()?, 0))
    }

    /// As Arrow's PyCapsule interface has it.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // a wish, which a producer need not fulfil
        capsule(py, &self.columns)
    }

    fn __len__(&self) -> usize {
        self.columns.rows
    }
}
