//! What is known of records before their values are read: offsets, time stamps, and where keys, values and headers are.

use crate::batch::{self, opened, Place, Record, Section, ABSENT};

/// Of all records in order.
#[derive(Default)]
pub struct Facts {
    pub offsets: Vec<i64>,
    pub timestamps: Vec<i64>,
    /// Of key and value: four a row, in the data of the row's section; -1 where there is none.
    pub places: Vec<i32>,
    /// Rows of each section.
    pub counts: Vec<usize>,
    /// How many records came from `below` on.
    pub beyond: usize,
}

impl Facts {
    /// Adds the records with start <= offset < below of a section, and calls `each` with every one of them. None: malformed.
    pub fn section(
        &mut self,
        section: &Section,
        start: i64,
        below: i64,
        mut each: impl FnMut(usize, &[u8], &Record),
    ) -> Option<()> {
        let first = section.1;
        let (text, header) = opened(section).filter(|_| i32::try_from(section.2).is_ok())?;
        let before = self.offsets.len();
        // A record takes seven bytes at least, whatever the header says.
        let most = header.count.min(text.len() / 7 + 1);
        self.offsets.reserve(most);
        self.timestamps.reserve(most);
        self.places.reserve(4 * most);
        batch::for_each(text, &header, |record| {
            if record.offset >= below {
                self.beyond += 1;
            } else if record.offset >= start {
                let row = self.offsets.len();
                self.offsets.push(record.offset);
                self.timestamps.push(record.timestamp);
                self.places.extend(shifted(record.key, first));
                self.places.extend(shifted(record.value, first));
                each(row, text, &record);
            }
        })?;
        self.counts.push(self.offsets.len() - before);
        Some(())
    }
}

/// A place in the data of a section whose records begin at `first`.
pub fn shifted(place: Place, first: usize) -> [i32; 2] {
    let absent = place.start == ABSENT;
    [place.start, place.end].map(|position| if absent { -1 } else { (first + position) as i32 })
}
