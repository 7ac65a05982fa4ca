//! Records in Protobuf: what the program of a type of messages (protobuf_types.rs) finds in them.
//!
//! The whole message is passed over, whatever is wanted of it, because one that cannot be parsed is refused as a whole. A message is
//! taken if it is written as every writer does it; of odd ones, such as those that write a submessage twice, the library in Python
//! decides.

use crate::bytes::{zigzag, Bytes};
use crate::protobuf_types::{Field, Kind, Message, Types, DELIMITED, EIGHT_BYTES, FOUR_BYTES, VARINT};
use crate::slots::{SlotReader, Token};
use crate::written::{Written, INSTANTS, LONGEST};

/// Messages inside each other. The library takes 100.
const DEEPEST: usize = 60;
/// The most bytes of a tag, and of a length.
const TAG_BYTES: usize = 5;
const LONGEST_PART: u64 = i32::MAX as u64;
const NANOS: i64 = 1_000_000_000;

impl SlotReader for Types {
    fn read<'a>(&self, value: &'a [u8], arena: &'a mut Vec<u8>, slots: &mut [Token]) -> Option<&'a [u8]> {
        if value.len() > LONGEST {
            return None;
        }
        // Of all that stand not behind the value, only the last can begin it.
        let at = self.starts.partition_point(|(start, _)| start[..] <= *value).checked_sub(1)?;
        let (start, number) = &self.starts[at];
        let rest = value.strip_prefix(&start[..])?;
        let mut cursor =
            Cursor { bytes: Bytes { rest }, messages: &self.messages, written: Written::new(arena, slots) };
        cursor.message(&self.messages[*number], 0)?;
        Some(cursor.written.text())
    }
}

struct Cursor<'a, 'm, 'b, 's> {
    bytes: Bytes<'a>,
    messages: &'m [Message],
    written: Written<'b, 's>,
}

impl<'a> Cursor<'a, '_, '_, '_> {
    /// Over all that is left, which is a message.
    fn message(&mut self, message: &Message, depth: usize) -> Option<()> {
        let mut next = 0; // the field that is expected, as writers have them in their order
        let mut seen = 0;
        while !self.bytes.rest.is_empty() {
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
                let behind = std::mem::replace(&mut self.bytes.rest, part);
                while !self.bytes.rest.is_empty() {
                    self.bytes.varint()?;
                }
                self.bytes.rest = behind;
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
            VARINT => self.bytes.varint().map(|_| ()),
            EIGHT_BYTES => self.bytes.take(8).map(|_| ()),
            DELIMITED => self.part().map(|_| ()),
            FOUR_BYTES => self.bytes.take(4).map(|_| ()),
            _ => None,
        }
    }

    /// Over the value of a field.
    fn value(&mut self, field: &Field, depth: usize) -> Option<()> {
        let slot = field.slot;
        match field.kind {
            Kind::Int32 => {
                let number = self.bytes.varint()? as i32;
                self.written.integer(slot, i64::from(number));
            }
            Kind::Int64 => {
                let number = self.bytes.varint()? as i64;
                self.written.integer(slot, number);
            }
            Kind::Uint32 => {
                let number = self.bytes.varint()? as u32;
                self.written.unsigned(slot, u64::from(number));
            }
            Kind::Uint64 => {
                let number = self.bytes.varint()?;
                self.written.unsigned(slot, number);
            }
            Kind::Sint32 => {
                let word = self.bytes.varint()? as u32;
                self.written.integer(slot, i64::from((word >> 1) as i32 ^ -((word & 1) as i32)));
            }
            Kind::Sint64 => {
                let number = zigzag(self.bytes.varint()?);
                self.written.integer(slot, number);
            }
            Kind::Bool => {
                let is = self.bytes.varint()? != 0;
                self.written.boolean(slot, is);
            }
            Kind::Enum => {
                let number = self.bytes.varint()? as i32;
                self.named(field, number)?;
            }
            Kind::Fixed32 => {
                let number = u32::from_le_bytes(self.bytes.array()?);
                self.written.unsigned(slot, u64::from(number));
            }
            Kind::Sfixed32 => {
                let number = i32::from_le_bytes(self.bytes.array()?);
                self.written.integer(slot, i64::from(number));
            }
            Kind::Float => {
                let number = f32::from_le_bytes(self.bytes.array()?);
                self.written.float(slot, f64::from(number));
            }
            Kind::Fixed64 => {
                let number = u64::from_le_bytes(self.bytes.array()?);
                self.written.unsigned(slot, number);
            }
            Kind::Sfixed64 => {
                let number = i64::from_le_bytes(self.bytes.array()?);
                self.written.integer(slot, number);
            }
            Kind::Double => {
                let number = f64::from_le_bytes(self.bytes.array()?);
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
                let behind = std::mem::replace(&mut self.bytes.rest, part);
                let messages = self.messages;
                self.message(&messages[number], depth + 1)?;
                self.bytes.rest = behind;
            }
            Kind::Instant => {
                let part = self.part()?;
                let behind = std::mem::replace(&mut self.bytes.rest, part);
                let instant = self.instant()?;
                self.bytes.rest = behind;
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
        while !self.bytes.rest.is_empty() {
            match self.short()? {
                0x08 => seconds = self.bytes.varint()? as i64,
                0x10 => nanos = i64::from(self.bytes.varint()? as i32),
                _ => return None,
            }
        }
        let good = (0..NANOS).contains(&nanos);
        let instant = seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)?;
        (good && INSTANTS.contains(&instant)).then_some(instant)
    }

    /// Bytes behind their length.
    fn part(&mut self) -> Option<&'a [u8]> {
        let size = u64::from(self.short()?);
        (size <= LONGEST_PART).then_some(())?;
        self.bytes.take(size as usize)
    }

    /// A number of 32 bits in five bytes at most.
    fn short(&mut self) -> Option<u32> {
        let before = self.bytes.rest.len();
        let word = self.bytes.varint()?;
        (before - self.bytes.rest.len() <= TAG_BYTES).then_some(())?;
        u32::try_from(word).ok()
    }
}
