//! Records in Avro: the program that one schema is, and what it finds. agents/formats/avro_programs.py compiles schemas.
//!
//! The whole record is passed over, whatever is wanted of it, because one that cannot be read is refused as a whole. A record is
//! taken if it is written as every writer does it; of odd ones, such as blocks that say their size, the library in Python decides.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::bytes::{zigzag, Bytes};
use crate::framed::Program;
use crate::slots::{SlotReader, Token};
use crate::written::{hexadecimal, Slot, Written, INSTANTS, LONGEST};

/// Python compiles no schema that is deeper.
const DEEPEST: usize = 100;
/// Bytes of a decimal that are looked at.
const DECIMAL_BYTES: usize = 16;

/// What a schema is, as far as bytes are concerned.
enum Step {
    Null(Slot),
    Boolean(Slot),
    /// An integer, and the range within which its logical type has a value.
    Integer(Slot, i64, i64),
    /// An integer that becomes a float.
    Widened(Slot),
    /// Milliseconds since 1970 times a factor.
    Instant(Slot, i64),
    Float(Slot),
    Double(Slot),
    Text(Slot),
    /// A UUID as text.
    UuidText(Slot),
    /// Of a size, or behind their length.
    Bytes(Slot, Option<usize>),
    /// Sixteen bytes.
    Uuid(Slot),
    /// Precision, scale and, where it is fixed, size.
    Decimal(Slot, u32, u32, Option<usize>),
    /// Symbols with their quotes.
    Enum(Slot, Vec<Vec<u8>>),
    Array(Box<Step>),
    Map(Box<Step>),
    Union(Vec<Step>),
    Record(Vec<Step>),
    /// What the reader's schema has in place of a field that was not written: it takes no bytes.
    Constant(Slot, fn(u32, u32) -> Token, Vec<u8>),
    /// Something of which nothing is certain.
    Leave,
}

/// A schema, and the names of none of its fields: a wanted one has its slot.
struct Schema(Step);

/// The program of a schema. step: a tuple of a kind and what the kind needs, with tuples inside. Raises ValueError.
#[pyfunction]
pub fn avro_program(step: &Bound<'_, PyTuple>, slots: usize) -> PyResult<Program> {
    Ok(Program::new(Schema(compiled(step, slots, 0)?), slots))
}

fn compiled(step: &Bound<'_, PyTuple>, slots: usize, depth: usize) -> PyResult<Step> {
    if depth > DEEPEST {
        return Err(PyValueError::new_err("a schema is too deep"));
    }
    let slot = || -> PyResult<Slot> {
        let slot: Slot = step.get_item(1)?.extract()?;
        match slot {
            Some(number) if number >= slots => Err(PyValueError::new_err("there is no slot of such a number")),
            _ => Ok(slot),
        }
    };
    let inner = |at: usize| compiled(step.get_item(at)?.cast()?, slots, depth + 1);
    let several =
        || (1..step.len()).map(|at| compiled(step.get_item(at)?.cast()?, slots, depth + 1)).collect::<PyResult<_>>();
    let kind: String = step.get_item(0)?.extract()?;
    Ok(match &kind[..] {
        "null" => Step::Null(slot()?),
        "boolean" => Step::Boolean(slot()?),
        "integer" => Step::Integer(slot()?, step.get_item(2)?.extract()?, step.get_item(3)?.extract()?),
        "widened" => Step::Widened(slot()?),
        "constant" => {
            let kind: String = step.get_item(2)?.extract()?;
            let token: fn(u32, u32) -> Token = match &kind[..] {
                "null" => |start, end| Token::Null { start, end },
                "boolean" => |start, end| Token::Boolean { start, end },
                "integer" => |start, end| Token::Integer { start, end },
                "float" => |start, end| Token::Float { start, end },
                "text" => |start, end| Token::Text { start, end },
                _ => return Err(PyValueError::new_err("there is no constant of such a kind")),
            };
            Step::Constant(slot()?, token, step.get_item(3)?.extract()?)
        }
        "instant" => match step.get_item(2)?.extract()? {
            per @ 1.. => Step::Instant(slot()?, per),
            _ => return Err(PyValueError::new_err("a millisecond has at least one part")),
        },
        "float" => Step::Float(slot()?),
        "double" => Step::Double(slot()?),
        "string" => Step::Text(slot()?),
        "uuid text" => Step::UuidText(slot()?),
        "bytes" => Step::Bytes(slot()?, step.get_item(2)?.extract()?),
        "uuid" => Step::Uuid(slot()?),
        "decimal" => Step::Decimal(
            slot()?,
            step.get_item(2)?.extract()?,
            step.get_item(3)?.extract()?,
            step.get_item(4)?.extract()?,
        ),
        "enum" => {
            let symbols: Vec<String> = step.get_item(2)?.extract()?;
            Step::Enum(slot()?, symbols.iter().map(|symbol| format!("\"{symbol}\"").into_bytes()).collect())
        }
        "array" => Step::Array(Box::new(inner(1)?)),
        "map" => Step::Map(Box::new(inner(1)?)),
        "union" => Step::Union(several()?),
        "record" => Step::Record(several()?),
        "leave" => Step::Leave,
        _ => return Err(PyValueError::new_err("there is no step of such a kind")),
    })
}

impl SlotReader for Schema {
    fn read<'a>(&self, value: &'a [u8], arena: &'a mut Vec<u8>, slots: &mut [Token]) -> Option<&'a [u8]> {
        if value.len() > LONGEST {
            return None;
        }
        let mut cursor = Cursor { bytes: Bytes { rest: value }, written: Written::new(arena, slots) };
        cursor.over(&self.0)?;
        cursor.bytes.rest.is_empty().then_some(())?;
        Some(cursor.written.text())
    }
}

struct Cursor<'a, 'b, 's> {
    bytes: Bytes<'a>,
    written: Written<'b, 's>,
}

impl<'a> Cursor<'a, '_, '_> {
    /// Over the value of a step.
    fn over(&mut self, step: &Step) -> Option<()> {
        match step {
            Step::Null(slot) => self.written.null(*slot),
            Step::Boolean(slot) => match self.bytes.take(1)? {
                [0] => self.written.boolean(*slot, false),
                [1] => self.written.boolean(*slot, true),
                _ => return None,
            },
            &Step::Integer(slot, low, high) => {
                let number = self.number()?;
                if !(low..=high).contains(&number) {
                    return None;
                }
                self.written.integer(slot, number);
            }
            &Step::Widened(slot) => {
                let number = self.number()?;
                self.written.float(slot, number as f64);
            }
            Step::Constant(slot, token, text) => {
                self.written.write(*slot, *token, |arena| arena.extend_from_slice(text))
            }
            &Step::Instant(slot, per) => {
                let instant = self.number()?.div_euclid(per);
                if !INSTANTS.contains(&instant) {
                    return None;
                }
                self.written.instant(slot, instant);
            }
            &Step::Float(slot) => {
                let number = f32::from_le_bytes(self.bytes.array()?);
                self.written.float(slot, f64::from(number));
            }
            &Step::Double(slot) => {
                let number = f64::from_le_bytes(self.bytes.array()?);
                self.written.float(slot, number);
            }
            &Step::Text(slot) => {
                let text = self.text()?;
                self.written.text_of(slot, text)?;
            }
            &Step::UuidText(slot) => {
                let text = self.text()?;
                (text.len() == 36).then_some(())?;
                for (at, &byte) in text.iter().enumerate() {
                    let good = if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() };
                    good.then_some(())?;
                }
                self.written.quoted(slot, |arena| arena.extend(text.iter().map(u8::to_ascii_lowercase)));
            }
            &Step::Bytes(slot, size) => {
                let bytes = self.sized(size)?;
                self.written.bytes(slot, bytes);
            }
            &Step::Uuid(slot) => {
                let bytes = self.bytes.take(16)?;
                self.written.quoted(slot, |arena| {
                    for (number, (start, end)) in [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)].into_iter().enumerate() {
                        if number > 0 {
                            arena.push(b'-');
                        }
                        hexadecimal(&bytes[start..end], arena);
                    }
                });
            }
            &Step::Decimal(slot, precision, scale, size) => {
                let bytes = self.sized(size)?;
                if slot.is_some() {
                    self.decimal(slot, bytes, precision, scale)?;
                } else {
                    (bytes.len() <= DECIMAL_BYTES).then_some(())?;
                }
            }
            Step::Enum(slot, symbols) => {
                let symbol = symbols.get(usize::try_from(self.number()?).ok()?)?;
                self.written.write(
                    *slot,
                    |start, end| Token::Text { start, end },
                    |arena| arena.extend_from_slice(symbol),
                );
            }
            Step::Array(item) => {
                while let count @ 1.. = self.count()? {
                    for _ in 0..count {
                        self.over(item)?;
                    }
                }
            }
            Step::Map(value) => {
                while let count @ 1.. = self.count()? {
                    for _ in 0..count {
                        self.text()?;
                        self.over(value)?;
                    }
                }
            }
            Step::Union(branches) => {
                let branch = usize::try_from(self.number()?).ok()?;
                self.over(branches.get(branch)?)?;
            }
            Step::Record(fields) => {
                for field in fields {
                    self.over(field)?;
                }
            }
            Step::Leave => return None,
        }
        Some(())
    }

    /// A signed number in zigzag form.
    #[inline]
    fn number(&mut self) -> Option<i64> {
        self.bytes.varint().map(zigzag)
    }

    /// How many items a block has. Each has a byte at least, or the schema would not have been compiled.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|&count| count <= self.bytes.rest.len())
    }

    /// Bytes of a size, or behind their length.
    fn sized(&mut self, size: Option<usize>) -> Option<&'a [u8]> {
        let size = match size {
            Some(size) => size,
            None => usize::try_from(self.number()?).ok()?,
        };
        self.bytes.take(size)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let bytes = self.sized(None)?;
        (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()).then_some(bytes)
    }

    /// The number that topics/records/fields.py makes of a decimal that its precision does not round.
    fn decimal(&mut self, slot: Slot, bytes: &[u8], precision: u32, scale: u32) -> Option<()> {
        let mut wide = [if bytes.first().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 }; DECIMAL_BYTES];
        wide.get_mut(DECIMAL_BYTES.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
        let unscaled = i64::try_from(i128::from_be_bytes(wide)).ok()?;
        let rounded = 10u64.checked_pow(precision).is_some_and(|limit| unscaled.unsigned_abs() >= limit);
        let unit = 10u64.checked_pow(scale).filter(|_| !rounded)?;
        let (whole, fraction) = (unscaled.unsigned_abs() / unit, unscaled.unsigned_abs() % unit);
        if fraction == 0 {
            self.written.integer(slot, unscaled.signum() * i64::try_from(whole).ok()?);
            return Some(());
        }
        self.written.write(
            slot,
            |start, end| Token::Decimal { start, end },
            |arena| {
                if unscaled < 0 {
                    arena.push(b'-');
                }
                arena.extend(format!("{whole}.{fraction:0places$}", places = scale as usize).bytes());
            },
        );
        Some(())
    }
}
