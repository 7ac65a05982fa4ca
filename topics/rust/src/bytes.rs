//! The bytes of a binary record, from the front: what readers of binary formats (avro.rs, protobuf.rs) have in common.

/// What is left of a record, or of a part of it.
pub struct Bytes<'a> {
    pub rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// So many bytes.
    pub fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(taken)
    }

    /// So many bytes, as an array.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A number of 64 bits, seven bits a byte; of the tenth byte there is one bit.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        match self.rest {
            // Most numbers are tags, lengths, branches and small.
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

/// The signed number of a word in zigzag form.
pub fn zigzag(word: u64) -> i64 {
    (word >> 1) as i64 ^ -((word & 1) as i64)
}
