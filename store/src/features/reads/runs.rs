//! Groups rows that are read together.

use super::{BLOCK, IN_FLIGHT, MEMORY, PIECE};
use crate::features::{BATCH_SHIFT, ROWS_PER_BATCH};

/// Largest gap in bytes between two rows of one read: a read costs as much time as three or four
/// blocks.
const GAP: u64 = BLOCK;
/// Byte within a block at which the rows of a table begin, as a rule.
const TABLE: u64 = 64;

/// Places of rows in a file.
#[derive(Debug, Default)]
pub struct Layout {
    /// Byte at which each batch of rows begins.
    pub batches: Vec<u64>,
    /// Number of rows.
    pub rows: usize,
    /// Bytes from one row to the next, of a row, and where in a stored row it begins.
    pub stride: usize,
    /// Bytes of a row.
    pub row: usize,
    /// Byte of a stored row at which it begins.
    pub first: usize,
    /// Byte at which the scales of each batch begin, and their number.
    pub scales: Vec<(u64, usize)>,
}

impl Layout {
    /// `rows` rows of `row` bytes, `stride` bytes apart, starting at byte `first_byte` of the file.
    pub fn even(first_byte: u64, stride: usize, row: usize, rows: usize) -> Self {
        let batch = |batch: usize| first_byte + (batch * ROWS_PER_BATCH * stride) as u64;
        let batches = (0..rows.div_ceil(ROWS_PER_BATCH)).map(batch).collect();
        Self { batches, rows, stride, row, ..Self::default() }
    }

    /// Byte of the file at which the row at `position` begins.
    pub fn offset(&self, position: u32) -> u64 {
        let within = (position as usize & (ROWS_PER_BATCH - 1)) * self.stride + self.first;
        self.batches[position as usize >> BATCH_SHIFT] + within as u64
    }

    /// Number of reads in flight, and bytes of the longest.
    pub fn slots(&self) -> (usize, usize) {
        let bytes = PIECE.max((self.row + 2 * BLOCK as usize).next_multiple_of(BLOCK as usize));
        ((MEMORY / bytes).clamp(8, IN_FLIGHT), bytes)
    }
}

/// One read.
#[derive(Debug)]
pub struct Run<'r> {
    /// Byte of the file at which it begins.
    pub start: u64,
    /// Bytes to read, whole blocks.
    pub length: usize,
    /// Bytes up to the end of the last row.
    pub needed: usize,
    /// Position in the file of each of its rows, and its index among the requested rows.
    pub rows: &'r [(u32, u32)],
}

/// The reads of rows whose positions ascend.
pub struct Runs<'r> {
    layout: &'r Layout,
    rows: &'r [(u32, u32)],
    longest: u64,
}

impl<'r> Runs<'r> {
    /// Reads of `rows`: ascending positions, each with its index among the requested rows.
    pub fn new(layout: &'r Layout, rows: &'r [(u32, u32)]) -> Self {
        Self { layout, rows, longest: layout.slots().1 as u64 }
    }
}

impl<'r> Iterator for Runs<'r> {
    type Item = Run<'r>;

    fn next(&mut self) -> Option<Run<'r>> {
        let &(first, _) = self.rows.first()?;
        let start = self.layout.offset(first) / BLOCK * BLOCK;
        let mut end = 0;
        let fits = |&(position, _): &(u32, u32), end: u64| {
            let row = self.layout.offset(position);
            let new_end = row + self.layout.row as u64;
            // Batches need not be in order.
            let is_near = end == 0 || (row >= start && row <= end.next_multiple_of(BLOCK) + GAP);
            (is_near && new_end.next_multiple_of(BLOCK) - start <= self.longest).then_some(new_end)
        };
        let mut count = 0;
        while let Some(new_end) = self.rows.get(count).and_then(|row| fits(row, end)) {
            end = new_end.max(end);
            count += 1;
        }
        let (rows, rest) = self.rows.split_at(count.max(1));
        self.rows = rest;
        let length = (end.next_multiple_of(BLOCK) - start) as usize;
        Some(Run { start, length, needed: (end - start) as usize, rows })
    }
}

/// Number of reads, and their bytes, for rows of `row` bytes at the ascending `positions`, stored
/// `stride` bytes apart.
pub fn planned_reads(positions: &[u32], stride: usize, row: usize) -> [u64; 2] {
    let layout =
        Layout::even(TABLE, stride, row, positions.last().map_or(0, |&last| last as usize + 1));
    let rows: Vec<(u32, u32)> = positions.iter().map(|&position| (position, 0)).collect();
    Runs::new(&layout, &rows)
        .fold([0, 0], |[reads, bytes], run| [reads + 1, bytes + run.length as u64])
}
