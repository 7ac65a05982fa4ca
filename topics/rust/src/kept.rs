//! What readers have found in all rows of a batch, kept for a while (found.rs): tokens, and where the texts are that they are places in.

use crate::batch::Section;
use crate::scanner::Reader;
use crate::slots::Token;

/// Where the text is that a row's tokens are places in.
#[derive(Clone, Copy)]
enum Origin {
    /// The row is left.
    Nowhere,
    /// In the data of a section, from a byte on.
    Section(usize, usize),
    /// In what readers have written, from a byte on.
    Arena(usize),
}

/// The tokens of all rows.
pub struct Kept {
    pub paths: usize,
    tokens: Vec<Token>,
    origins: Vec<Origin>,
    arena: Vec<u8>,
    slots: Vec<Token>,
    scratch: Vec<u8>,
}

impl Kept {
    pub fn new(paths: usize) -> Self {
        Kept {
            paths,
            tokens: Vec::new(),
            origins: Vec::new(),
            arena: Vec::new(),
            slots: vec![Token::Absent; paths],
            scratch: Vec::new(),
        }
    }

    /// Adds a row. section: its number, the text of its records, which has the value, and where that begins in its data. None: the
    /// value is not certain, and nothing is added.
    pub fn read(&mut self, reader: &mut Reader, value: &[u8], section: (usize, &[u8], usize)) -> Option<()> {
        let (number, text, first) = section;
        self.scratch.clear();
        let scalars = reader.read(value, &mut self.scratch, &mut self.slots)?;
        let at = (scalars.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        if at <= text.len() {
            self.origins.push(Origin::Section(number, first + at));
        } else {
            self.origins.push(Origin::Arena(self.arena.len()));
            self.arena.extend_from_slice(scalars);
        }
        self.tokens.extend_from_slice(&self.slots);
        Some(())
    }

    /// Adds a row that is left.
    pub fn leave(&mut self) {
        self.origins.push(Origin::Nowhere);
        self.tokens.extend(std::iter::repeat_n(Token::Absent, self.paths));
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.origins.len()
    }

    /// The tokens of a row and the text that they are places in; None where it is left. sections: those that rows were read of.
    pub fn row<'a>(&'a self, row: usize, sections: &'a [Section]) -> Option<(&'a [Token], &'a [u8])> {
        let text = match self.origins[row] {
            Origin::Nowhere => return None,
            Origin::Section(number, start) => &sections[number].0[start..],
            Origin::Arena(start) => &self.arena[start..],
        };
        Some((&self.tokens[row * self.paths..(row + 1) * self.paths], text))
    }
}
