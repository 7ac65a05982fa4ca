//! The scalars at some paths of a JSON object, as pieces of its text.
//!
//! `scan` takes an object only if every reader of JSON must read it in the same way: names without escapes, nothing that is
//! nested deep, numbers of usual size, valid UTF-8 throughout. All else is `None`, and the caller reads it by other means.
//! Of duplicate names the last wins, as in topics/records/fields.py.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::framed::Program;
use crate::slots::{SlotReader, Token};
use crate::text::Cursor;

/// The names at one level of the paths.
#[derive(Default)]
pub struct Tree {
    children: Vec<(Box<[u8]>, Child)>,
    /// The numbers of all paths that lead through here.
    leaves: Vec<usize>,
}

/// The program of values in JSON that something stands before. Raises ValueError.
#[pyfunction]
pub fn json_program(paths: Vec<Vec<String>>) -> PyResult<Program> {
    Ok(Program::new(Tree::of(&paths)?, paths.len()))
}

enum Child {
    Leaf(usize),
    Inner(Tree),
}

impl Tree {
    /// All paths by their numbers. Raises ValueError.
    pub fn of(paths: &[Vec<String>]) -> PyResult<Self> {
        let mut tree = Tree::default();
        for (number, path) in paths.iter().enumerate() {
            tree.add(path, number).ok_or_else(|| PyValueError::new_err("a path is empty, or leads through another"))?;
        }
        Ok(tree)
    }

    /// Adds a path. None: it is empty, or leads through another.
    pub fn add(&mut self, path: &[String], number: usize) -> Option<()> {
        let (name, rest) = path.split_first()?;
        self.leaves.push(number);
        let at = self.children.iter().position(|(known, _)| **known == *name.as_bytes());
        let child = match at {
            Some(at) => &mut self.children[at].1,
            None => {
                let child = if rest.is_empty() { Child::Leaf(number) } else { Child::Inner(Tree::default()) };
                self.children.push((name.as_bytes().into(), child));
                &mut self.children.last_mut()?.1
            }
        };
        match child {
            Child::Inner(tree) if !rest.is_empty() => tree.add(rest, number),
            Child::Leaf(_) if rest.is_empty() && at.is_none() => Some(()),
            _ => None,
        }
    }

    /// The child of a name. `next`: where it is expected, as records mostly have their fields in the same order.
    fn find(&self, name: &[u8], next: &mut usize) -> Option<&Child> {
        let number = self.children.len();
        for step in 0..number {
            let mut at = *next + step;
            if at >= number {
                at -= number;
            }
            let (known, child) = &self.children[at];
            if **known == *name {
                *next = if at + 1 == number { 0 } else { at + 1 };
                return Some(child);
            }
        }
        None
    }
}

impl SlotReader for Tree {
    fn read<'a>(&self, value: &'a [u8], _arena: &'a mut Vec<u8>, slots: &mut [Token]) -> Option<&'a [u8]> {
        scan(value, self, slots)?;
        Some(value)
    }
}

/// Finds the scalars of one object: `slots[n]` is what stands at path n of `tree`. None: the object is not taken.
fn scan(text: &[u8], tree: &Tree, slots: &mut [Token]) -> Option<()> {
    if text.len() > u32::MAX as usize {
        return None;
    }
    let mut cursor = Cursor::new(text);
    cursor.space();
    cursor.object(tree, slots)?;
    cursor.space();
    (cursor.at == text.len()).then_some(())
}

impl Cursor<'_> {
    /// An object with fields that are wanted. The depth is that of the paths.
    fn object(&mut self, tree: &Tree, slots: &mut [Token]) -> Option<()> {
        // A second object of the same name replaces all of the first.
        for &leaf in &tree.leaves {
            slots[leaf] = Token::Absent;
        }
        self.take(b'{')?;
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        let mut next = 0;
        loop {
            let name = self.name()?;
            match tree.find(name, &mut next) {
                None => self.pass_over()?,
                Some(Child::Leaf(number)) => slots[*number] = self.scalar()?,
                Some(Child::Inner(inner)) => match self.peek()? {
                    b'n' => {
                        self.word(b"null")?;
                        for &leaf in &inner.leaves {
                            slots[leaf] = Token::Absent;
                        }
                    }
                    _ => self.object(inner, slots)?,
                },
            }
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
            self.space();
        }
    }

    fn scalar(&mut self) -> Option<Token> {
        let start = self.at as u32;
        Some(match self.peek()? {
            b'"' => {
                self.plain_text()?;
                Token::Text { start, end: self.at as u32 }
            }
            b'n' => {
                self.word(b"null")?;
                Token::Null { start, end: self.at as u32 }
            }
            b't' => {
                self.word(b"true")?;
                Token::Boolean { start, end: self.at as u32 }
            }
            b'f' => {
                self.word(b"false")?;
                Token::Boolean { start, end: self.at as u32 }
            }
            _ => {
                let number = self.number()?;
                let end = self.at as u32;
                match number {
                    _ if number.exponent => return None,
                    _ if number.fraction => Token::Decimal { start, end },
                    _ if self.text[start as usize..].starts_with(b"-0") => return None,
                    _ => Token::Integer { start, end },
                }
            }
        })
    }
}
