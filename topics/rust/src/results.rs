//! `Results`: what an engine has computed of rows, as tokens like those of fields (slots.rs), so that `coding` takes both alike.

use std::io::Write;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::coding::column;
use crate::slots::Token;

/// One computed scalar of all rows of a batch; a row that was not added has none, as if a field were absent.
#[pyclass]
pub struct Results {
    tokens: Vec<Token>,
    text: Vec<u8>,
}

impl Results {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The token of a row, and the text that it is a place in.
    pub fn of(&self, row: usize) -> (Token, &[u8]) {
        (self.tokens[row], &self.text)
    }

    /// Sets the token of a row to what is written. None: there is no such row, or no place.
    fn set(&mut self, row: usize, token: fn(u32, u32) -> Token, write: impl FnOnce(&mut Vec<u8>)) -> Option<()> {
        let start = u32::try_from(self.text.len()).ok()?;
        write(&mut self.text);
        *self.tokens.get_mut(row)? = token(start, u32::try_from(self.text.len()).ok()?);
        Some(())
    }

    fn add<const N: usize>(
        &mut self,
        rows: &[u8],
        values: &[u8],
        mut set: impl FnMut(&mut Self, usize, [u8; N]) -> Option<()>,
    ) -> PyResult<()> {
        if rows.len() / 8 != values.len() / N {
            return Err(PyValueError::new_err("there is not a value for each row"));
        }
        let each = numbers(rows).zip(values.chunks_exact(N));
        each.map(|(row, value)| set(self, row, value.try_into().ok()?))
            .collect::<Option<()>>()
            .ok_or_else(|| PyValueError::new_err("there is no such row, or no place for more"))
    }
}

fn numbers(rows: &[u8]) -> impl Iterator<Item = usize> + '_ {
    rows.chunks_exact(8).map(|bytes| usize::from_ne_bytes(bytes.try_into().unwrap_or_default()))
}

#[pymethods]
impl Results {
    #[new]
    fn new(rows: usize) -> Self {
        Results { tokens: vec![Token::Absent; rows], text: Vec::new() }
    }

    /// Gives each of the rows (int64) what one that is like it has: the one at `places` (uint32) among `alike` (int64).
    fn spread(&mut self, rows: &[u8], alike: &[u8], places: &[u8]) -> PyResult<()> {
        let alike: Vec<usize> = numbers(alike).collect();
        let places = places.chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap_or_default()));
        let each = numbers(rows).zip(places).map(|(row, place)| {
            let token = *self.tokens.get(*alike.get(place as usize)?)?;
            *self.tokens.get_mut(row)? = token;
            Some(())
        });
        each.collect::<Option<()>>().ok_or_else(|| PyValueError::new_err("there is no such row"))
    }

    /// rows: int64. values: a byte each, 0 or 1. All of `add_…` raise ValueError for a row that is not there.
    fn add_booleans(&mut self, rows: &[u8], values: &[u8]) -> PyResult<()> {
        let words: [&[u8]; 2] = [b"false", b"true"];
        self.add(rows, values, |results, row, [value]: [u8; 1]| {
            let word = words[usize::from(value != 0)];
            results.set(row, |start, end| Token::Boolean { start, end }, |text| text.extend_from_slice(word))
        })
    }

    /// values: int64.
    fn add_integers(&mut self, rows: &[u8], values: &[u8]) -> PyResult<()> {
        self.add(rows, values, |results, row, bytes| {
            let number = i64::from_ne_bytes(bytes);
            results.set(row, |start, end| Token::Integer { start, end }, |text| write!(text, "{number}").unwrap_or(()))
        })
    }

    /// values: float64.
    fn add_doubles(&mut self, rows: &[u8], values: &[u8]) -> PyResult<()> {
        self.add(rows, values, |results, row, bytes| {
            let number = f64::from_ne_bytes(bytes).to_le_bytes();
            results.set(row, |start, end| Token::Float { start, end }, |text| text.extend(number))
        })
    }

    /// values: a str each. The rows (int64) whose texts have more than `longest` bytes: these are to be left.
    fn add_texts<'py>(
        &mut self,
        py: Python<'py>,
        rows: &[u8],
        values: &Bound<'py, PyList>,
        longest: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut left = Vec::new();
        if rows.len() / 8 != values.len() {
            return Err(PyValueError::new_err("there is not a value for each row"));
        }
        for (row, value) in numbers(rows).zip(values) {
            let value = value.cast_into::<PyString>()?;
            // A text without bytes in UTF-8 is no scalar, and the definition says why.
            let taken = value.to_str().ok().filter(|text| text.len() <= longest).and_then(|text| {
                self.set(row, |start, end| Token::Text { start, end }, |to| quote(text.as_bytes(), to))
            });
            if taken.is_none() {
                left.push(row as i64);
            }
        }
        column(py, &left, |x| x.to_ne_bytes())
    }
}

/// Appends a text as JSON has it: with escapes only where it needs them, as msgspec writes them.
fn quote(text: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    if text.iter().all(|&byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        to.extend_from_slice(text);
    } else {
        for &byte in text {
            match byte {
                b'"' | b'\\' => to.extend([b'\\', byte]),
                0x08 => to.extend(b"\\b"),
                b'\t' => to.extend(b"\\t"),
                b'\n' => to.extend(b"\\n"),
                0x0C => to.extend(b"\\f"),
                b'\r' => to.extend(b"\\r"),
                0..0x20 => {
                    let digit = |four: u8| b"0123456789abcdef"[usize::from(four)];
                    to.extend([b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
                }
                _ => to.push(byte),
            }
        }
    }
    to.push(b'"');
}
