//! Records in Protobuf: the program that a type of messages is, and what it finds. agents/formats/protobuf_programs.py compiles types.
//!
//! The whole message is passed over, whatever is wanted of it, because one that cannot be parsed is refused as a whole. A message is
//! taken if it is written as every writer does it; of odd ones, such as those that write a submessage twice, the library in Python
//! decides.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::framed::Program;
use crate::slots::{SlotReader, Token};
use crate::written::{Slot, Written, INSTANTS, LONGEST};

/// Messages inside each other. The library takes 100.
const DEEPEST: usize = 60;
/// The most bytes of a tag, and of a length.
const TAG_BYTES: usize = 5;
const LONGEST_PART: u64 = i32::MAX as u64;
const NANOS: i64 = 1_000_000_000;

const VARINT: u32 = 0;
const EIGHT_BYTES: u32 = 1;
const DELIMITED: u32 = 2;
const FOUR_BYTES: u32 = 5;

/// What a field holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Bool,
    Enum,
    Fixed32,
    Sfixed32,
    Float,
    Fixed64,
    Sfixed64,
    Double,
    Text,
    Bytes,
    /// A message, by its number.
    Message(usize),
    /// A google.protobuf.Timestamp that is wanted.
    Instant,
    /// Something of which nothing is certain, once it is there.
    Leave,
}

impl Kind {
    fn of(name: &str, inner: usize) -> Option<Kind> {
        Some(match name {
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "uint32" => Kind::Uint32,
            "uint64" => Kind::Uint64,
            "sint32" => Kind::Sint32,
            "sint64" => Kind::Sint64,
            "bool" => Kind::Bool,
            "enum" => Kind::Enum,
            "fixed32" => Kind::Fixed32,
            "sfixed32" => Kind::Sfixed32,
            "float" => Kind::Float,
            "fixed64" => Kind::Fixed64,
            "sfixed64" => Kind::Sfixed64,
            "double" => Kind::Double,
            "string" => Kind::Text,
            "bytes" => Kind::Bytes,
            "message" => Kind::Message(inner),
            "instant" => Kind::Instant,
            "leave" => Kind::Leave,
            _ => return None,
        })
    }

    fn wire(self) -> u32 {
        match self {
            Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Sint32 | Kind::Sint64 => VARINT,
            Kind::Bool | Kind::Enum => VARINT,
            Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => FOUR_BYTES,
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => EIGHT_BYTES,
            Kind::Text | Kind::Bytes | Kind::Message(_) | Kind::Instant | Kind::Leave => DELIMITED,
        }
    }
}

/// The names of an enum's numbers, in their order. closed: other numbers are as if they were not there.
struct Names {
    by_number: Vec<(i32, String)>,
    closed: bool,
}

struct Field {
    tag: u32,
    kind: Kind,
    repeated: bool,
    slot: Slot,
    /// The bit of those fields of which one may be there once: a wanted submessage, or a oneof of which something is wanted.
    once: u64,
    names: Names,
}

struct Message {
    /// By their numbers.
    fields: Vec<Field>,
    /// Of `fields`, those that are wanted and have a default where they are not there.
    defaults: Vec<usize>,
    /// Whether fields of unknown numbers may be known elsewhere.
    extendable: bool,
}

/// A type of messages, or several, which differ in what stands before them.
struct Types {
    messages: Vec<Message>,
    /// What stands before a message, and its number. In their order, and none begins another.
    starts: Vec<(Vec<u8>, usize)>,
}

/// Number, kind, number of the message inside, whether it is repeated, whether it has a default, slot, bit of `once`, names of an
/// enum's numbers, whether the enum is closed.
type FieldOf = (u32, String, usize, bool, bool, Slot, u64, Vec<(i32, String)>, bool);

/// The program of some types of messages. messages: their fields and whether they have extensions, in any order. starts: which bytes
/// stand before which message. Raises ValueError.
#[pyfunction]
pub fn protobuf_program(
    messages: Vec<(Vec<FieldOf>, bool)>,
    mut starts: Vec<(Vec<u8>, usize)>,
    slots: usize,
) -> PyResult<Program> {
    let number = messages.len();
    let messages: Option<Vec<Message>> =
        messages.into_iter().map(|(fields, extendable)| message(fields, extendable, number, slots)).collect();
    starts.sort();
    let told = starts.windows(2).all(|two| !two[1].0.starts_with(&two[0].0));
    match messages {
        Some(messages) if told && starts.iter().all(|&(_, at)| at < number) => {
            Ok(Program::new(Types { messages, starts }, slots))
        }
        _ => Err(PyValueError::new_err("there are no such types")),
    }
}

fn message(fields: Vec<FieldOf>, extendable: bool, messages: usize, slots: usize) -> Option<Message> {
    let mut found = Vec::with_capacity(fields.len());
    for (number, kind, inner, repeated, _, slot, once, mut by_number, closed) in fields.iter().cloned() {
        let kind = Kind::of(&kind, inner)?;
        let good = (1..1 << 29).contains(&number)
            && inner < messages
            && slot.is_none_or(|slot| slot < slots && !repeated)
            && (kind != Kind::Instant || slot.is_some());
        good.then_some(())?;
        by_number.sort();
        found.push(Field {
            tag: number << 3 | kind.wire(),
            kind,
            repeated,
            slot,
            once,
            names: Names { by_number, closed },
        });
    }
    let defaults = (0..found.len()).filter(|&at| fields[at].4 && found[at].slot.is_some()).collect();
    let ordered = found.windows(2).all(|two| two[0].tag >> 3 < two[1].tag >> 3);
    ordered.then_some(Message { fields: found, defaults, extendable })
}

impl SlotReader for Types {
    fn read<'a>(&self, value: &'a [u8], arena: &'a mut Vec<u8>, slots: &mut [Token]) -> Option<&'a [u8]> {
        if value.len() > LONGEST {
            return None;
        }
        // Of all that stand not behind the value, only the last can begin it.
        let at = self.starts.partition_point(|(start, _)| start[..] <= *value).checked_sub(1)?;
        let (start, number) = &self.starts[at];
        let rest = value.strip_prefix(&start[..])?;
        let mut cursor = Cursor { rest, messages: &self.messages, written: Written::new(arena, slots) };
        cursor.message(&self.messages[*number], 0)?;
        Some(cursor.written.text())
    }
}

struct Cursor<'a, 'm, 'b, 's> {
    rest: &'a [u8],
    messages: &'m [Message],
    written: Written<'b, 's>,
}

impl<'a> Cursor<'a, '_, '_, '_> {
    /// Over all that is left, which is a message.
    fn message(&mut self, message: &Message, depth: usize) -> Option<()> {
        let mut next = 0; // the field that is expected, as writers have them in their order
        let mut seen = 0;
        while !self.rest.is_empty() {
            let tag = self.short()?;
            let at = match message.fields.get(next) {
                Some(field) if field.tag == tag => Some(next),
                _ => message.fields.binary_search_by_key(&(tag >> 3), |field| field.tag >> 3).ok(),
            };
            match at {
                Some(at) => {
                    let field = &message.fields[at];
                    if seen & field.once != 0 {
                        return None;
                    }
                    seen |= field.once;
                    self.field(field, tag, depth)?;
                    next = if field.repeated { at } else { at + 1 };
                }
                None => self.unknown(message, tag)?,
            }
        }
        for &at in &message.defaults {
            let field = &message.fields[at];
            if field.slot.is_some_and(|slot| self.written.is_absent(slot)) {
                self.default(field)?;
            }
        }
        Some(())
    }

    fn field(&mut self, field: &Field, tag: u32, depth: usize) -> Option<()> {
        if field.tag == tag {
            return self.value(field, depth);
        }
        // Another wire type than the field's: only numbers in one piece are not unknown then.
        let packed = field.repeated && field.tag & 7 != DELIMITED && tag & 7 == DELIMITED;
        packed.then_some(())?;
        let part = self.part()?;
        match field.tag & 7 {
            VARINT => {
                let behind = std::mem::replace(&mut self.rest, part);
                while !self.rest.is_empty() {
                    self.varint()?;
                }
                self.rest = behind;
                Some(())
            }
            EIGHT_BYTES => (part.len() % 8 == 0).then_some(()),
            _ => (part.len() % 4 == 0).then_some(()),
        }
    }

    /// Over a field of a number that the type has not.
    fn unknown(&mut self, message: &Message, tag: u32) -> Option<()> {
        if message.extendable || tag >> 3 == 0 {
            return None;
        }
        match tag & 7 {
            VARINT => self.varint().map(|_| ()),
            EIGHT_BYTES => self.take(8).map(|_| ()),
            DELIMITED => self.part().map(|_| ()),
            FOUR_BYTES => self.take(4).map(|_| ()),
            _ => None,
        }
    }

    /// Over the value of a field.
    fn value(&mut self, field: &Field, depth: usize) -> Option<()> {
        let slot = field.slot;
        match field.kind {
            Kind::Int32 => {
                let number = self.varint()? as i32;
                self.written.integer(slot, i64::from(number));
            }
            Kind::Int64 => {
                let number = self.varint()? as i64;
                self.written.integer(slot, number);
            }
            Kind::Uint32 => {
                let number = self.varint()? as u32;
                self.written.unsigned(slot, u64::from(number));
            }
            Kind::Uint64 => {
                let number = self.varint()?;
                self.written.unsigned(slot, number);
            }
            Kind::Sint32 => {
                let word = self.varint()? as u32;
                self.written.integer(slot, i64::from((word >> 1) as i32 ^ -((word & 1) as i32)));
            }
            Kind::Sint64 => {
                let word = self.varint()?;
                self.written.integer(slot, (word >> 1) as i64 ^ -((word & 1) as i64));
            }
            Kind::Bool => {
                let is = self.varint()? != 0;
                self.written.boolean(slot, is);
            }
            Kind::Enum => {
                let number = self.varint()? as i32;
                self.named(field, number)?;
            }
            Kind::Fixed32 => {
                let number = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
                self.written.unsigned(slot, u64::from(number));
            }
            Kind::Sfixed32 => {
                let number = i32::from_le_bytes(self.take(4)?.try_into().ok()?);
                self.written.integer(slot, i64::from(number));
            }
            Kind::Float => {
                let number = f32::from_le_bytes(self.take(4)?.try_into().ok()?);
                self.written.float(slot, f64::from(number));
            }
            Kind::Fixed64 => {
                let number = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
                self.written.unsigned(slot, number);
            }
            Kind::Sfixed64 => {
                let number = i64::from_le_bytes(self.take(8)?.try_into().ok()?);
                self.written.integer(slot, number);
            }
            Kind::Double => {
                let number = f64::from_le_bytes(self.take(8)?.try_into().ok()?);
                self.written.float(slot, number);
            }
            Kind::Text => {
                let text = self.part()?;
                (text.is_ascii() || std::str::from_utf8(text).is_ok()).then_some(())?;
                self.written.text_of(slot, text)?;
            }
            Kind::Bytes => {
                let bytes = self.part()?;
                self.written.bytes(slot, bytes);
            }
            Kind::Message(number) => {
                if depth == DEEPEST {
                    return None;
                }
                let part = self.part()?;
                let behind = std::mem::replace(&mut self.rest, part);
                let messages = self.messages;
                self.message(&messages[number], depth + 1)?;
                self.rest = behind;
            }
            Kind::Instant => {
                let part = self.part()?;
                let behind = std::mem::replace(&mut self.rest, part);
                let instant = self.instant()?;
                self.rest = behind;
                self.written.instant(slot, instant);
            }
            Kind::Leave => return None,
        }
        Some(())
    }

    /// What a field that is not there has.
    fn default(&mut self, field: &Field) -> Option<()> {
        let slot = field.slot;
        match field.kind {
            Kind::Bool => self.written.boolean(slot, false),
            Kind::Enum => self.named(field, 0)?,
            Kind::Float | Kind::Double => self.written.float(slot, 0.0),
            Kind::Text => self.written.text_of(slot, b"")?,
            Kind::Bytes => self.written.bytes(slot, b""),
            Kind::Message(_) | Kind::Instant | Kind::Leave => return None,
            _ => self.written.integer(slot, 0),
        }
        Some(())
    }

    /// Notes an enum's value, if it is wanted: its name, or its number where it has none.
    fn named(&mut self, field: &Field, number: i32) -> Option<()> {
        if field.slot.is_some() {
            let names = &field.names;
            match names.by_number.binary_search_by_key(&number, |one| one.0) {
                Ok(at) => self.written.text_of(field.slot, names.by_number[at].1.as_bytes())?,
                Err(_) if names.closed => return None,
                Err(_) => self.written.integer(field.slot, i64::from(number)),
            }
        }
        Some(())
    }

    /// Milliseconds of a Timestamp, which is all that is left.
    fn instant(&mut self) -> Option<i64> {
        let (mut seconds, mut nanos) = (0, 0);
        while !self.rest.is_empty() {
            match self.short()? {
                0x08 => seconds = self.varint()? as i64,
                0x10 => nanos = i64::from(self.varint()? as i32),
                _ => return None,
            }
        }
        let good = (0..NANOS).contains(&nanos);
        let instant = seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)?;
        (good && INSTANTS.contains(&instant)).then_some(instant)
    }

    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(taken)
    }

    /// Bytes behind their length.
    fn part(&mut self) -> Option<&'a [u8]> {
        let size = u64::from(self.short()?);
        (size <= LONGEST_PART).then_some(())?;
        self.take(size as usize)
    }

    /// A number of 32 bits in five bytes at most.
    fn short(&mut self) -> Option<u32> {
        let before = self.rest.len();
        let word = self.varint()?;
        (before - self.rest.len() <= TAG_BYTES).then_some(())?;
        u32::try_from(word).ok()
    }

    /// A number of 64 bits, seven bits a byte; of the tenth byte there is one bit.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        match self.rest {
            // Most numbers are tags and lengths.
            &[byte @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Some(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut word = 0;
        for (at, &byte) in self.rest.iter().enumerate().take(10) {
            if at == 9 && byte > 1 {
                return None;
            }
            word |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Some(word);
            }
        }
        None
    }
}
