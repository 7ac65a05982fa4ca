//! Rows of a binary format from their parts: the compiled form of topics/wire/pieces.py. The classes of topics/wire/row_parts.py say
//! what each part is.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::keys::{varint, Forms};

/// What each of n rows has in one place.
enum Part<'py> {
    Constant(PyBackedBytes),
    Doubles {
        tag: PyBackedBytes,
        bits: Vec<u64>,
        zeros: bool,
    },
    Varints {
        tag: PyBackedBytes,
        numbers: Vec<u64>,
        zeros: bool,
    },
    Texts(Vec<Bound<'py, PyBytes>>),
    Keys {
        keys: Vec<Bound<'py, PyBytes>>,
        forms: Forms,
        other: Bound<'py, PyAny>,
    },
    Delimited {
        tag: PyBackedBytes,
        parts: Vec<Part<'py>>,
    },
    /// places: of the rows that have the parts, among these; none for the others.
    OfSome {
        places: Vec<Option<usize>>,
        parts: Vec<Part<'py>>,
        otherwise: PyBackedBytes,
    },
}

/// n rows of the parts, each a tuple that begins with its name. Raises ValueError where a column has another length, and what the
/// Python code for a key raises.
#[pyfunction]
pub fn write_rows<'py>(py: Python<'py>, n: usize, parts: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
    let parts = of_list(parts, n)?;
    let rows = PyList::empty(py);
    let mut row = Vec::new();
    for at in 0..n {
        row.clear();
        for part in &parts {
            part.write(at, &mut row)?;
        }
        rows.append(PyBytes::new(py, &row))?;
    }
    Ok(rows)
}

fn of_list<'py>(parts: &Bound<'py, PyList>, n: usize) -> PyResult<Vec<Part<'py>>> {
    parts.iter().map(|part| Part::of(&part.cast_into()?, n)).collect()
}

impl<'py> Part<'py> {
    fn of(part: &Bound<'py, PyTuple>, n: usize) -> PyResult<Self> {
        let name: String = part.get_item(0)?.extract()?;
        let found = match name.as_str() {
            "constant" => Part::Constant(part.get_item(1)?.extract()?),
            "doubles" => {
                let (_, tag, column, zeros): (String, _, PyBackedBytes, _) = part.extract()?;
                Part::Doubles { tag, bits: words(&column, n)?, zeros }
            }
            "varints" => {
                let (_, tag, column, zeros): (String, _, PyBackedBytes, _) = part.extract()?;
                Part::Varints { tag, numbers: words(&column, n)?, zeros }
            }
            "texts" => Part::Texts(texts(&part.get_item(1)?, n)?),
            "keys" => Part::Keys {
                keys: texts(&part.get_item(1)?, n)?,
                forms: part.get_item(2)?.extract()?,
                other: part.get_item(3)?,
            },
            "delimited" => Part::Delimited {
                tag: part.get_item(1)?.extract()?,
                parts: of_list(&part.get_item(2)?.cast_into()?, n)?,
            },
            "some" => {
                let rows: PyBackedBytes = part.get_item(1)?.extract()?;
                fits(rows.len(), n)?;
                let mut number = 0;
                let mut places = Vec::with_capacity(n);
                for &there in rows.iter() {
                    places.push((there != 0).then_some(number));
                    number += usize::from(there != 0);
                }
                let parts = of_list(&part.get_item(2)?.cast_into()?, number)?;
                Part::OfSome { places, parts, otherwise: part.get_item(3)?.extract()? }
            }
            _ => return Err(PyValueError::new_err("no such part of rows")),
        };
        Ok(found)
    }

    /// Appends what a row has.
    fn write(&self, at: usize, row: &mut Vec<u8>) -> PyResult<()> {
        match self {
            Part::Constant(bytes) => row.extend_from_slice(bytes),
            Part::Doubles { tag, bits, zeros } => {
                if *zeros || bits[at] != 0 {
                    row.extend_from_slice(tag);
                    row.extend_from_slice(&bits[at].to_le_bytes());
                }
            }
            Part::Varints { tag, numbers, zeros } => {
                if *zeros || numbers[at] != 0 {
                    row.extend_from_slice(tag);
                    varint(numbers[at], row);
                }
            }
            Part::Texts(texts) => row.extend_from_slice(texts[at].as_bytes()),
            Part::Keys { keys, forms, other } => {
                let before = row.len();
                if forms.write(keys[at].as_bytes(), row).is_none() {
                    row.truncate(before);
                    row.extend_from_slice(other.call1((&keys[at],))?.cast::<PyBytes>()?.as_bytes());
                }
            }
            Part::Delimited { tag, parts } => {
                row.extend_from_slice(tag);
                let before = row.len();
                for part in parts {
                    part.write(at, row)?;
                }
                let mut length = Vec::with_capacity(10);
                varint((row.len() - before) as u64, &mut length);
                row.splice(before..before, length);
            }
            Part::OfSome { places, parts, otherwise } => match places[at] {
                None => row.extend_from_slice(otherwise),
                Some(place) => {
                    for part in parts {
                        part.write(place, row)?;
                    }
                }
            },
        }
        Ok(())
    }
}

fn texts<'py>(column: &Bound<'py, PyAny>, n: usize) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let found: Vec<Bound<'py, PyBytes>> =
        column.cast::<PyList>()?.iter().map(|text| Ok(text.cast_into()?)).collect::<PyResult<_>>()?;
    fits(found.len(), n)?;
    Ok(found)
}

fn words(column: &[u8], n: usize) -> PyResult<Vec<u64>> {
    fits(column.len(), 8 * n)?;
    Ok(column
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("chunks are of this size")))
        .collect())
}

fn fits(found: usize, n: usize) -> PyResult<()> {
    if found == n {
        return Ok(());
    }
    Err(PyValueError::new_err("a column does not fit the number of rows"))
}
