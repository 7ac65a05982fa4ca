//! Fields of known kinds as typed columns: what found.rs hands to an engine, by way of arrow.rs.

use std::ffi::CString;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow::{capsule, Column, Columns};
use crate::coding::{float, piece};
use crate::numbers::{decimal, integer};
use crate::slots::Token;

/// Of a field, as agents/expressions/kinds.py numbers them.
const NULL: u8 = 0;
const BOOLEAN: u8 = 1;
const BIGINT: u8 = 2;
const DOUBLE: u8 = 4;
const TEXT: u8 = 5;

/// The kind of a field; None where the definition in Python decides. longest: bytes of a text.
pub fn kind(token: Token, text: &[u8], longest: usize) -> Option<u8> {
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

/// A column of so many fields; there is none for nulls. None: one of them is not of the kind. longest: becomes the size of the longest
/// text in bytes.
pub fn filled<'a>(
    kind: u8,
    rows: usize,
    fields: impl Iterator<Item = Option<(Token, &'a [u8])>>,
    longest: &mut usize,
) -> Option<Option<Column>> {
    Some(Some(match kind {
        NULL => return Some(None),
        BOOLEAN => {
            let mut bits = vec![0; rows.div_ceil(8)];
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
            let (mut ends, mut texts) = (Vec::with_capacity(rows + 1), Vec::new());
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
    }))
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
    /// columns: by their numbers. longest: bytes of a text.
    pub fn new(rows: usize, columns: Vec<Option<Column>>, longest: usize) -> Self {
        let named = columns.into_iter().enumerate().filter_map(|(number, column)| Some((name(number), column?)));
        let mut columns: Vec<(CString, Column)> = named.collect();
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
        let columns = kinds.iter().map(|&kind| filled(kind, 0, std::iter::empty(), &mut 0)).collect::<Option<_>>();
        let columns = columns.ok_or_else(|| PyValueError::new_err("no column is of this kind"))?;
        Ok(Table::new(0, columns, 0))
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
