//! The records of a Kafka record batch, message format 2: where each record's key and value are.
//!
//! Strict: a batch that is not wholly as the format says is `None`, and its caller parses it by other means. Checksum,
//! compression, and which batches are to be read are decided before (agents/runtime/transport.py).

/// What the header of a record batch says of its records.
#[derive(Clone, Copy)]
pub struct Header {
    pub base_offset: i64,
    pub first_timestamp: i64,
    pub max_timestamp: i64,
    /// Whether the broker has stamped the batch: all records then have `max_timestamp`.
    pub append_time: bool,
    pub count: usize,
}

/// A place in the text of the records; an absent key or value has `start == ABSENT`.
#[derive(Clone, Copy)]
pub struct Place {
    pub start: usize,
    pub end: usize,
}

pub const ABSENT: usize = usize::MAX;

impl Place {
    /// The bytes, `None` where they are absent.
    pub fn of<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        (self.start != ABSENT).then(|| &text[self.start..self.end])
    }
}

/// One record.
#[derive(Clone, Copy)]
pub struct Record {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Place,
    pub value: Place,
}

/// Calls `each` with every record in order. `text`: the records, decompressed. None: the batch is malformed; some of its
/// records may have been passed on before that was seen.
pub fn for_each(text: &[u8], header: &Header, mut each: impl FnMut(Record)) -> Option<()> {
    let mut cursor = Cursor { text, at: 0 };
    let mut last = None;
    for _ in 0..header.count {
        let record = cursor.record(header)?;
        if last.is_some_and(|last| record.offset <= last) {
            return None;
        }
        last = Some(record.offset);
        each(record);
    }
    (cursor.at == text.len()).then_some(())
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn record(&mut self, header: &Header) -> Option<Record> {
        let length = self.length()?;
        let start = self.at;
        // Attributes, of which none is defined. One that does not look the same as a byte and as a varint is not ours to judge.
        if self.byte()? >= 0x80 {
            return None;
        }
        let delta = self.varint()?;
        let timestamp =
            if header.append_time { header.max_timestamp } else { header.first_timestamp.checked_add(delta)? };
        let offset = header.base_offset.checked_add(self.varint()?)?;
        let key = self.place()?;
        let value = self.place()?;
        for _ in 0..self.length()? {
            let name = self.place()?.of(self.text)?;
            if !name.is_ascii() && std::str::from_utf8(name).is_err() {
                return None;
            }
            self.place()?;
        }
        (self.at - start == length).then_some(Record { offset, timestamp, key, value })
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A signed number in zigzag form, seven bits a byte.
    fn varint(&mut self) -> Option<i64> {
        let mut word = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            word |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((word >> 1) as i64 ^ -((word & 1) as i64));
            }
        }
        None // nine bytes hold every offset and instant that Kafka can have
    }

    /// A number of bytes or headers, which cannot be more than what is left.
    fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(self.varint()?).ok()?;
        (length <= self.text.len() - self.at).then_some(length)
    }

    /// Bytes behind their length; -1 where there are none.
    fn place(&mut self) -> Option<Place> {
        let length = self.varint()?;
        if length == -1 {
            return Some(Place { start: ABSENT, end: ABSENT });
        }
        let length = usize::try_from(length).ok().filter(|&length| length <= self.text.len() - self.at)?;
        let start = self.at;
        self.at += length;
        Some(Place { start, end: self.at })
    }
}
