//! The records of a Kafka record batch, message format 2: where each record's key and value are (topics/record_batch.py).
//!
//! A batch that is not as the format says is `None`; what brokers do not look at is not looked at here, either. Checksum,
//! compression, and which batches are to be read are decided before (agents/runtime/faust/transport.py).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// Data, first and last byte of the records in it, base offset, first and largest time stamp, whether the broker stamped them,
/// number of records, number of offsets.
pub type Section = (PyBackedBytes, usize, usize, i64, i64, i64, bool, usize, i64);
type OneRecord<'py> =
    (i64, i64, u8, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>);

/// What the header of a record batch says of its records.
#[derive(Clone, Copy)]
pub struct Header {
    pub base_offset: i64,
    pub first_timestamp: i64,
    pub max_timestamp: i64,
    /// Whether the broker has stamped the batch: all records then have `max_timestamp`.
    pub append_time: bool,
    pub count: usize,
    /// How many offsets the batch has. More than records where some were compacted away.
    pub span: i64,
}

/// The text of a section's records, and their header.
pub fn opened(section: &Section) -> Option<(&[u8], Header)> {
    let &(ref data, first, last, base_offset, first_timestamp, max_timestamp, append_time, count, span) = section;
    let text = data.get(first..last)?;
    Some((text, Header { base_offset, first_timestamp, max_timestamp, append_time, count, span }))
}

/// The records of a section: offset, time stamp, whether the broker stamped it, key, value, and
/// headers as they are in the batch, behind their number. Raises ValueError for a malformed batch.
#[pyfunction]
pub fn records<'py>(py: Python<'py>, section: Section) -> PyResult<Vec<OneRecord<'py>>> {
    let mut found = Vec::new();
    let parsed = opened(&section).and_then(|(text, header)| {
        let bytes = |place: Place| place.of(text).map(|bytes| PyBytes::new(py, bytes));
        let kind = u8::from(header.append_time);
        let record =
            |one: Record| (one.offset, one.timestamp, kind, bytes(one.key), bytes(one.value), bytes(one.headers));
        for_each(text, &header, |one| found.push(record(one)))
    });
    parsed.ok_or_else(|| PyValueError::new_err("a record batch is malformed"))?;
    Ok(found)
}

/// Whether the attributes of all records are bytes below 0x80. False for a malformed batch, too, wherever that is seen.
#[pyfunction]
pub fn plain_attributes(section: Section) -> bool {
    let plain = |(text, header): (&[u8], Header)| {
        let mut cursor = Cursor { text, at: 0 };
        for _ in 0..header.count {
            let length = cursor.length()?;
            text.get(cursor.at).filter(|&&byte| byte < 0x80)?;
            cursor.at += length;
        }
        Some(())
    };
    opened(&section).and_then(plain).is_some()
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
    /// All of them, with their number before them.
    pub headers: Place,
}

/// Calls `each` with every record in order. `text`: the records, decompressed. None: the batch is malformed; some of its
/// records may have been passed on before that was seen.
pub fn for_each(text: &[u8], header: &Header, mut each: impl FnMut(Record)) -> Option<()> {
    let mut cursor = Cursor { text, at: 0 };
    let dense = i64::try_from(header.count).ok()? == header.span;
    let mut last = -1;
    for row in 0..header.count {
        let (mut record, said) = cursor.record(header)?;
        // What a record says of its offset is its producer's word, unless records between were compacted away.
        let delta = if dense { row as i64 } else { said };
        if !dense && (delta <= last || delta >= header.span) {
            return None;
        }
        last = delta;
        record.offset = header.base_offset.checked_add(delta)?;
        each(record);
    }
    (cursor.at == text.len()).then_some(())
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// The next record, with an offset of 0, and what it says of its offset.
    fn record(&mut self, header: &Header) -> Option<(Record, i64)> {
        let length = self.length()?;
        let start = self.at;
        self.byte()?; // attributes, of which none is defined
        let late = self.varint()?;
        // As in Kafka, where a sum may wrap around.
        let stamp = header.first_timestamp.wrapping_add(late);
        let timestamp = if header.append_time { header.max_timestamp } else { stamp };
        let said = self.varint()?;
        let key = self.place()?;
        let value = self.place()?;
        let first = self.at;
        for _ in 0..self.length()? {
            self.at += self.length()?; // a name, of whatever bytes
            self.place()?;
        }
        let headers = Place { start: first, end: self.at };
        (self.at - start == length).then_some((Record { offset: 0, timestamp, key, value, headers }, said))
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A signed number in zigzag form, seven bits a byte, ten bytes at most.
    fn varint(&mut self) -> Option<i64> {
        let mut word = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            word |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((word >> 1) as i64 ^ -((word & 1) as i64));
            }
        }
        None
    }

    /// A number of bytes or headers, which cannot be more than what is left.
    fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(self.varint()?).ok()?;
        (length <= self.text.len() - self.at).then_some(length)
    }

    /// Bytes behind their length; a negative one is none.
    fn place(&mut self) -> Option<Place> {
        let length = self.varint()?;
        if length < 0 {
            return Some(Place { start: ABSENT, end: ABSENT });
        }
        let length = usize::try_from(length).ok().filter(|&length| length <= self.text.len() - self.at)?;
        let start = self.at;
        self.at += length;
        Some(Place { start, end: self.at })
    }
}
