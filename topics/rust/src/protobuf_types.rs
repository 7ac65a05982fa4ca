//! Types of messages in Protobuf as programs: what their fields hold, and what is wanted of them. agents/formats/protobuf_programs.py
//! compiles them, and protobuf.rs reads messages by them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::framed::Program;
use crate::written::Slot;

/// Wire types.
pub const VARINT: u32 = 0;
pub const EIGHT_BYTES: u32 = 1;
pub const DELIMITED: u32 = 2;
pub const FOUR_BYTES: u32 = 5;

/// What a field holds.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
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
pub struct Names {
    pub by_number: Vec<(i32, String)>,
    pub closed: bool,
}

pub struct Field {
    pub tag: u32,
    pub kind: Kind,
    pub repeated: bool,
    pub slot: Slot,
    /// The bit of those fields of which one may be there once: a wanted submessage, or a oneof of which something is wanted.
    pub once: u64,
    pub names: Names,
}

pub struct Message {
    /// By their numbers.
    pub fields: Vec<Field>,
    /// Of `fields`, those that are wanted and have a default where they are not there.
    pub defaults: Vec<usize>,
    /// Whether fields of unknown numbers may be known elsewhere.
    pub extendable: bool,
}

/// A type of messages, or several, which differ in what stands before them.
pub struct Types {
    pub messages: Vec<Message>,
    /// What stands before a message, and its number. In their order, and none begins another.
    pub starts: Vec<(Vec<u8>, usize)>,
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
