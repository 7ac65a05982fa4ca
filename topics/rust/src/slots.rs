//! What a reader of one format finds in a record's value: scalars at wanted paths, as tokens in a text.
//!
//! bytes of a value ──SlotReader (json, avro, …)──▶ tokens ──scanner──▶ codes, numbers, times
//!
//! Whatever reads tokens does not know the format. So every reader writes a scalar as plain JSON has it, or leaves the record.

/// What stands at a path. The numbers say where in the text, `end` excluded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// The field or one of its parents is absent, or a parent is null.
    Absent,
    Null {
        start: u32,
        end: u32,
    },
    Boolean {
        start: u32,
        end: u32,
    },
    /// A string with its quotes, without escapes and control characters.
    Text {
        start: u32,
        end: u32,
    },
    /// An integer without fraction and exponent; "-0" is none.
    Integer {
        start: u32,
        end: u32,
    },
    /// A number with a fraction and without exponent.
    Decimal {
        start: u32,
        end: u32,
    },
    /// The eight bytes of a float64, little-endian, which may be any: only binary formats have it.
    Float {
        start: u32,
        end: u32,
    },
    /// Bytes as lower-case hexadecimal digits in quotes: only binary formats have it. It is a user or key like a text, and else none.
    Bytes {
        start: u32,
        end: u32,
    },
    /// An instant as an integer of milliseconds since 1970: only binary formats have it. It is an event time, and else nothing.
    Instant {
        start: u32,
        end: u32,
    },
}

impl Token {
    /// A number for what it is, and what stands there.
    pub fn piece(self, text: &[u8]) -> (u8, &[u8]) {
        let (number, start, end) = match self {
            Token::Absent => (0, 0, 0),
            Token::Null { start, end } => (1, start, end),
            Token::Boolean { start, end } => (2, start, end),
            Token::Text { start, end } => (3, start, end),
            Token::Integer { start, end } => (4, start, end),
            Token::Decimal { start, end } => (5, start, end),
            Token::Float { start, end } => (6, start, end),
            Token::Bytes { start, end } => (7, start, end),
            Token::Instant { start, end } => (8, start, end),
        };
        (number, &text[start as usize..end as usize])
    }
}

/// Finds the wanted scalars of one record's value.
pub trait SlotReader: Send + Sync {
    /// `slots[n]` is what stands at path n, as a place in the text returned: the value itself, or what was written to `arena`, which
    /// is empty. All slots are written. None: not certain; the definition in Python reads the record.
    fn read<'a>(&self, value: &'a [u8], arena: &'a mut Vec<u8>, slots: &mut [Token]) -> Option<&'a [u8]>;
}
