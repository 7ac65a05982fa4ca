//! From the scalars of a record to codes, numbers and a time: the same for every format, and for scalars that were computed.
//!
//! tokens of a record ──Layout──▶ Coding: codes of users and keys, measured numbers, event times
//!
//! A record is added if each of its scalars is understood. Otherwise nothing of it is added, and the caller decodes it in Python.

use std::io::Write;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::categories::{placement, Categories};
use crate::numbers::{decimal, instant, integer, whole};
use crate::slots::Token;

/// The scalars that make one code together: by number, or none for the record's own key as a JSON string.
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
    scalar: usize,
    text: bool,
    low: i64,
    high: i64,
    numerator: i64,
    denominator: i64,
}

pub type GroupOf = (Vec<usize>, bool, bool, usize);
pub type TimeOf = (usize, bool, i64, i64, i64, i64);

/// Which scalars are users, keys, numbers and times.
pub struct Layout {
    groups: Vec<Group>,
    numbers: Vec<usize>,
    time: Option<Time>,
    scalars: usize,
}

impl Layout {
    /// scalars: how many there are. Raises ValueError.
    pub fn new(groups: Vec<GroupOf>, numbers: Vec<usize>, time: Option<TimeOf>, scalars: usize) -> PyResult<Self> {
        let used = groups.iter().flat_map(|group| &group.0).chain(&numbers).chain(time.as_ref().map(|time| &time.0));
        if used.into_iter().any(|&number| number >= scalars) {
            return Err(PyValueError::new_err("there is no scalar of such a number"));
        }
        if time.as_ref().is_some_and(|time| time.5 < 1) {
            return Err(PyValueError::new_err("the denominator is not positive"));
        }
        let group = |(parts, nullable, empty, limit)| Group { parts, nullable, empty, limit };
        let groups = groups.into_iter().map(group).collect();
        let time = time.map(|(scalar, text, low, high, numerator, denominator)| Time {
            scalar,
            text,
            low,
            high,
            numerator,
            denominator,
        });
        Ok(Layout { groups, numbers, time, scalars })
    }

    /// Whether all of its scalars are among so many.
    pub fn fits(&self, scalars: usize) -> bool {
        self.scalars <= scalars
    }
}

/// The columns of a batch as far as they are known.
pub struct Coding<'a> {
    layout: &'a Layout,
    codes: Vec<Vec<i32>>,
    items: Vec<Categories>,
    numbers: Vec<Vec<f64>>,
    times: Vec<i64>,
    canonical: Vec<u8>,
    /// The canonical texts of the row under way: where each group's ends.
    ends: Vec<usize>,
    /// The numbers of the row under way.
    row: Vec<f64>,
}

impl<'a> Coding<'a> {
    pub fn new(layout: &'a Layout) -> Self {
        Coding {
            layout,
            codes: vec![Vec::new(); layout.groups.len()],
            items: layout.groups.iter().map(|_| Categories::default()).collect(),
            numbers: vec![Vec::new(); layout.numbers.len()],
            times: Vec::new(),
            canonical: Vec::new(),
            ends: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Adds a record. scalar: a token by its number, and the text that it is a place in. None: one of them is not certain, and
    /// nothing is added.
    pub fn add<'b>(&mut self, scalar: impl Fn(usize) -> (Token, &'b [u8]), key: Option<&[u8]>) -> Option<()> {
        let layout = self.layout;
        self.canonical.clear();
        self.ends.clear();
        self.row.clear();
        for group in &layout.groups {
            let start = self.canonical.len();
            match group.parts[..] {
                [] => own_key(key, group, &mut self.canonical)?,
                [part] => category(scalar(part), group, &mut self.canonical)?,
                _ => {
                    let mut open = b'[';
                    for &part in &group.parts {
                        self.canonical.push(open);
                        category(scalar(part), group, &mut self.canonical)?;
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
        for &number in &layout.numbers {
            let (token, text) = scalar(number);
            self.row.push(match token {
                Token::Integer { start, end } => integer(piece(text, start, end))? as f64,
                Token::Decimal { start, end } => decimal(piece(text, start, end))?,
                Token::Float { start, end } => float(piece(text, start, end)).filter(|x| x.is_finite())?,
                _ => return None,
            });
        }
        if let Some(time) = &layout.time {
            let (token, text) = scalar(time.scalar);
            self.times.push(match token {
                Token::Integer { start, end } if !time.text => {
                    let stamp = integer(piece(text, start, end)).filter(|x| (time.low..=time.high).contains(x))?;
                    stamp.checked_mul(time.numerator)?.div_euclid(time.denominator)
                }
                Token::Text { start, end } if time.text => instant(piece(text, start + 1, end - 1))?,
                Token::Instant { start, end } => integer(piece(text, start, end))?,
                _ => return None,
            });
        }
        let mut start = 0;
        for ((codes, items), &end) in self.codes.iter_mut().zip(&mut self.items).zip(&self.ends) {
            codes.push(items.code(&self.canonical[start..end]) as i32);
            start = end;
        }
        for (numbers, &number) in self.numbers.iter_mut().zip(&self.row) {
            numbers.push(number);
        }
        Some(())
    }

    /// Adds a row without a code.
    pub fn leave(&mut self) {
        self.codes.iter_mut().for_each(|codes| codes.push(-1));
        self.numbers.iter_mut().for_each(|numbers| numbers.push(0.0));
        if self.layout.time.is_some() {
            self.times.push(0);
        }
    }

    /// The columns as Python has them.
    pub fn columns<'py>(&self, py: Python<'py>) -> PyResult<Columns<'py>> {
        let groups = self.codes.iter().zip(&self.items).map(|(codes, items)| {
            let names = PyList::new(py, items.items().map(|item| PyBytes::new(py, item)))?;
            let placements: Vec<u32> = items.items().map(placement).collect();
            Ok((column(py, codes, |x| x.to_ne_bytes())?, names, column(py, &placements, |x| x.to_ne_bytes())?))
        });
        let numbers = self.numbers.iter().map(|numbers| column(py, numbers, |x| x.to_ne_bytes()));
        Ok((
            groups.collect::<PyResult<_>>()?,
            numbers.collect::<PyResult<_>>()?,
            column(py, &self.times, |x| x.to_ne_bytes())?,
        ))
    }
}

type GroupFound<'py> = (Bound<'py, PyBytes>, Bound<'py, PyList>, Bound<'py, PyBytes>);
/// Codes (int32), items and placements (uint32) of each group; numbers (float64); times (int64, ms).
pub type Columns<'py> = (Vec<GroupFound<'py>>, Vec<Bound<'py, PyBytes>>, Bound<'py, PyBytes>);

/// The bytes of an array.
pub fn column<'py, T: Copy, const N: usize>(
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

pub fn piece(text: &[u8], start: u32, end: u32) -> &[u8] {
    &text[start as usize..end as usize]
}

pub fn float(bytes: &[u8]) -> Option<f64> {
    Some(f64::from_le_bytes(bytes.try_into().ok()?))
}

/// Appends the canonical text of a scalar: what is plain is its own.
fn category((token, text): (Token, &[u8]), group: &Group, canonical: &mut Vec<u8>) -> Option<()> {
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
