//! Keys of rows, canonical JSON, to the bytes of a binary format. `ScalarForm` and `Keys` in topics/wire/row_parts.py say what these are.
//! Texts without escapes, integers of up to 18 digits, booleans and nulls are taken; of all else the Python code makes the bytes.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

const MOST_DIGITS: usize = 18;

/// How a part of a key is written.
#[derive(FromPyObject)]
pub struct Form {
    tag: Option<PyBackedBytes>,
    null: PyBackedBytes,
    r#false: PyBackedBytes,
    r#true: PyBackedBytes,
    integer: PyBackedBytes,
    zigzag: bool,
    text: PyBackedBytes,
    factor: u64,
}

/// Those of the parts, in their order.
#[derive(FromPyObject)]
#[pyo3(transparent)]
pub struct Forms(Vec<Form>);

impl Forms {
    /// Appends the bytes of a key. None: the key is not taken, and what was appended means nothing.
    pub fn write(&self, key: &[u8], row: &mut Vec<u8>) -> Option<()> {
        if let [form] = self.0.as_slice() {
            let rest = form.write(key, row)?;
            return rest.is_empty().then_some(());
        }
        let mut rest = key.strip_prefix(b"[")?;
        for (number, form) in self.0.iter().enumerate() {
            if number > 0 {
                rest = rest.strip_prefix(b",")?;
            }
            rest = form.write(rest, row)?;
        }
        (rest == b"]").then_some(())
    }
}

impl Form {
    /// Appends the bytes of the scalar at the beginning of a text. Returns what follows it.
    fn write<'a>(&self, text: &'a [u8], row: &mut Vec<u8>) -> Option<&'a [u8]> {
        match text.first()? {
            b'"' => {
                let length = text[1..].iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
                let (inside, rest) = text[1..].split_at(length);
                if rest[0] != b'"' {
                    return None;
                }
                self.marked(&self.text, Some(inside.len() as u64 * self.factor), inside, row);
                Some(&rest[1..])
            }
            b'n' => self.word(text, b"null", &self.null, row),
            b'f' => self.word(text, b"false", &self.r#false, row),
            b't' => self.word(text, b"true", &self.r#true, row),
            _ => {
                let negative = text[0] == b'-';
                let digits = &text[usize::from(negative)..];
                let length = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
                let (digits, rest) = digits.split_at(length);
                let whole = !matches!(rest.first(), Some(b'.' | b'e' | b'E'));
                let plain = digits == b"0" && !negative || matches!(digits.first(), Some(b'1'..=b'9'));
                if !whole || !plain || length > MOST_DIGITS {
                    return None;
                }
                let number = digits.iter().fold(0i64, |number, digit| number * 10 + i64::from(digit - b'0'));
                let number = if negative { -number } else { number };
                let written = if self.zigzag { (number << 1) ^ (number >> 63) } else { number };
                self.marked(&self.integer, Some(written as u64), b"", row);
                Some(rest)
            }
        }
    }

    fn word<'a>(&self, text: &'a [u8], word: &[u8], mark: &[u8], row: &mut Vec<u8>) -> Option<&'a [u8]> {
        let rest = text.strip_prefix(word)?;
        self.marked(mark, None, b"", row);
        Some(rest)
    }

    /// Appends mark, number and what follows, behind the tag and their length where there is a tag.
    fn marked(&self, mark: &[u8], number: Option<u64>, then: &[u8], row: &mut Vec<u8>) {
        if let Some(tag) = &self.tag {
            row.extend_from_slice(tag);
            let length = mark.len() + number.map_or(0, width) + then.len();
            varint(length as u64, row);
        }
        row.extend_from_slice(mark);
        if let Some(number) = number {
            varint(number, row);
        }
        row.extend_from_slice(then);
    }
}

/// Appends LEB128 of a number.
pub fn varint(mut number: u64, row: &mut Vec<u8>) {
    while number > 127 {
        row.push(number as u8 | 128);
        number >>= 7;
    }
    row.push(number as u8);
}

/// The bytes of its LEB128.
fn width(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}
