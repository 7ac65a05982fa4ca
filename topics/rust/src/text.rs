//! A position in a text of JSON, and the steps over what stands there. Each step is `None` where the text is wrong or unusual.

const DEEPEST: u32 = 60;
/// Digits of a number: with so many it is finite, and an integer fits into 64 bits with sign; with one more an unsigned one does.
const MOST_DIGITS: usize = 18;

pub struct Cursor<'a> {
    pub text: &'a [u8],
    pub at: usize,
}

const OTHER: u8 = 1;
/// Bytes that end the plain part of a string.
const IN_TEXT: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if byte < 0x20 || byte >= 0x80 || byte == b'"' as usize || byte == b'\\' as usize {
            table[byte] = OTHER;
        }
        byte += 1;
    }
    table
};

impl<'a> Cursor<'a> {
    /// At the start of a text.
    pub fn new(text: &'a [u8]) -> Self {
        Cursor { text, at: 0 }
    }

    /// The next byte.
    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Over white space.
    pub fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Over a byte that must be there.
    pub fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Over a word that must be there.
    pub fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// A name without escapes, and all up to its value.
    pub fn name(&mut self) -> Option<&'a [u8]> {
        let start = self.at + 1;
        self.plain_text()?;
        let name = &self.text[start..self.at - 1];
        self.space();
        self.take(b':')?;
        self.space();
        Some(name)
    }

    /// A string without escapes and control characters.
    pub fn plain_text(&mut self) -> Option<()> {
        self.take(b'"')?;
        match self.run()? {
            b'"' => Some(()),
            _ => None,
        }
    }

    /// The rest of a string up to and including its end or the next backslash, and which of both it was.
    fn run(&mut self) -> Option<u8> {
        let start = self.at;
        let mut ascii = true;
        loop {
            // Eight bytes at a time while none of them is special.
            while let Some(eight) = self.text.get(self.at..self.at + 8) {
                let word = u64::from_le_bytes(eight.try_into().ok()?);
                let found = special(word);
                if found != 0 {
                    self.at += (found.trailing_zeros() / 8) as usize;
                    break;
                }
                self.at += 8;
            }
            while IN_TEXT[self.peek()? as usize] == 0 {
                self.at += 1;
            }
            match self.peek()? {
                byte @ (b'"' | b'\\') => {
                    if !ascii {
                        std::str::from_utf8(&self.text[start..self.at]).ok()?;
                    }
                    self.at += 1;
                    return Some(byte);
                }
                0x80.. => {
                    ascii = false;
                    self.at += 1;
                }
                _ => return None,
            }
        }
    }

    /// A string that nobody wants: escapes are allowed, those of surrogates are not.
    fn any_text(&mut self) -> Option<()> {
        self.take(b'"')?;
        while self.run()? == b'\\' {
            match self.peek()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                b'u' => {
                    let digits = self.text.get(self.at + 1..self.at + 5)?;
                    let surrogate = digits[0].eq_ignore_ascii_case(&b'd') && !(b'0'..=b'7').contains(&digits[1]);
                    if surrogate || !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    self.at += 5;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// A number of usual size, by JSON's grammar.
    pub fn number(&mut self) -> Option<Number> {
        let negative = self.peek()? == b'-';
        if negative {
            self.at += 1;
        }
        let mut digits = match self.peek()? {
            b'0' => {
                self.at += 1;
                1
            }
            b'1'..=b'9' => self.digits(),
            _ => return None,
        };
        let mut number = Number { fraction: false, exponent: false };
        if self.peek() == Some(b'.') {
            self.at += 1;
            let fraction = self.digits();
            if fraction == 0 {
                return None;
            }
            number.fraction = true;
            digits += fraction;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !(1..=2).contains(&self.digits()) {
                return None;
            }
            number.exponent = true;
        }
        let integer = !number.fraction && !number.exponent;
        (digits <= MOST_DIGITS + usize::from(integer && !negative)).then_some(number)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    /// A value that nobody wants. Without recursion, so that no text can exhaust the stack.
    pub fn pass_over(&mut self) -> Option<()> {
        let mut depth = 0;
        let mut objects = 0u64; // a bit for each open bracket, the innermost last: whether it is an object's
        loop {
            match self.peek()? {
                b'"' => self.any_text()?,
                b'{' | b'[' => {
                    let object = self.peek()? == b'{';
                    self.at += 1;
                    self.space();
                    if self.peek()? == if object { b'}' } else { b']' } {
                        self.at += 1;
                    } else {
                        depth += 1;
                        if depth > DEEPEST {
                            return None;
                        }
                        objects = objects << 1 | u64::from(object);
                        if object {
                            self.name()?;
                        }
                        continue;
                    }
                }
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => {
                    self.number()?;
                }
            }
            loop {
                if depth == 0 {
                    return Some(());
                }
                self.space();
                let object = objects & 1 == 1;
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        self.space();
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    b'}' if object => self.at += 1,
                    b']' if !object => self.at += 1,
                    _ => return None,
                }
                depth -= 1;
                objects >>= 1;
            }
        }
    }
}

/// What a number has.
pub struct Number {
    pub fraction: bool,
    pub exponent: bool,
}

/// A bit set in the first byte of a word (from the lowest on) that is a quote, a backslash, a control character or no ASCII;
/// zero if there is none. Bytes behind the first may be marked wrongly.
fn special(word: u64) -> u64 {
    const LOW: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let has = |pattern: u8| {
        let different = word ^ (LOW * u64::from(pattern));
        different.wrapping_sub(LOW) & !different
    };
    (word | has(b'"') | has(b'\\') | (word.wrapping_sub(LOW * 0x20) & !word)) & HIGH
}
