//! Scalars as readers of binary formats write them for the scanner (slots.rs): plain JSON in the arena, and its place in a slot.

use crate::slots::Token;

/// A path's number, where the value is wanted.
pub type Slot = Option<usize>;

/// Instants that Python's datetime has: the years 1 to 9999, in ms.
pub const INSTANTS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// Places in the arena fit into 32 bits for records of so many bytes: of a byte come two digits at most, and there is little else.
pub const LONGEST: usize = (u32::MAX / 4) as usize;

/// Where the scalars of a record go.
pub struct Written<'a, 's> {
    arena: &'a mut Vec<u8>,
    slots: &'s mut [Token],
}

impl<'a, 's> Written<'a, 's> {
    /// Nothing is there yet: all slots are absent.
    pub fn new(arena: &'a mut Vec<u8>, slots: &'s mut [Token]) -> Self {
        slots.fill(Token::Absent);
        Written { arena, slots }
    }

    /// All that was written.
    pub fn text(self) -> &'a [u8] {
        self.arena
    }

    /// Whether nothing was written for a slot.
    pub fn is_absent(&self, slot: usize) -> bool {
        self.slots[slot] == Token::Absent
    }

    /// Notes a scalar that is wanted, as `write` writes it.
    pub fn write(&mut self, slot: Slot, token: fn(u32, u32) -> Token, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(number) = slot {
            let start = self.arena.len() as u32;
            write(self.arena);
            self.slots[number] = token(start, self.arena.len() as u32);
        }
    }

    pub fn null(&mut self, slot: Slot) {
        self.write(slot, |start, end| Token::Null { start, end }, |arena| arena.extend(b"null"));
    }

    pub fn boolean(&mut self, slot: Slot, is: bool) {
        let word: &[u8] = if is { b"true" } else { b"false" };
        self.write(slot, |start, end| Token::Boolean { start, end }, |arena| arena.extend(word));
    }

    pub fn integer(&mut self, slot: Slot, number: i64) {
        self.write(
            slot,
            |start, end| Token::Integer { start, end },
            |arena| digits(number < 0, number.unsigned_abs(), arena),
        );
    }

    pub fn unsigned(&mut self, slot: Slot, number: u64) {
        self.write(slot, |start, end| Token::Integer { start, end }, |arena| digits(false, number, arena));
    }

    pub fn float(&mut self, slot: Slot, number: f64) {
        self.write(slot, |start, end| Token::Float { start, end }, |arena| arena.extend(number.to_le_bytes()));
    }

    /// An instant in ms, of those that there are.
    pub fn instant(&mut self, slot: Slot, instant: i64) {
        self.write(
            slot,
            |start, end| Token::Instant { start, end },
            |arena| digits(instant < 0, instant.unsigned_abs(), arena),
        );
    }

    pub fn bytes(&mut self, slot: Slot, bytes: &[u8]) {
        self.write(
            slot,
            |start, end| Token::Bytes { start, end },
            |arena| {
                arena.push(b'"');
                hexadecimal(bytes, arena);
                arena.push(b'"');
            },
        );
    }

    /// A text, unless JSON would write it with escapes. text: UTF-8.
    pub fn text_of(&mut self, slot: Slot, text: &[u8]) -> Option<()> {
        if slot.is_some() {
            text.iter().all(|&byte| byte >= 0x20 && byte != b'"' && byte != b'\\').then_some(())?;
            self.quoted(slot, |arena| arena.extend_from_slice(text));
        }
        Some(())
    }

    /// A text that `write` writes between quotes, without escapes.
    pub fn quoted(&mut self, slot: Slot, write: impl FnOnce(&mut Vec<u8>)) {
        self.write(
            slot,
            |start, end| Token::Text { start, end },
            |arena| {
                arena.push(b'"');
                write(arena);
                arena.push(b'"');
            },
        );
    }
}

/// Appends an integer as JSON has it.
fn digits(negative: bool, magnitude: u64, arena: &mut Vec<u8>) {
    let mut text = [0; 21];
    let mut at = text.len();
    let mut rest = magnitude;
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if negative {
        at -= 1;
        text[at] = b'-';
    }
    arena.extend_from_slice(&text[at..]);
}

/// Appends two lower-case digits for each byte.
pub fn hexadecimal(bytes: &[u8], arena: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        arena.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}
