//! The rows of a compressed layout, which assign edges to vertices. They are handed out as tables
//! that any thread expands.

use std::io::Read;

use crate::Result;
use crate::read::arrays::numbers::Numbers;

/// Maximum number of rows per compressed piece: many rows may be empty.
const ROWS_PER_PIECE: usize = 1 << 16;

/// The rows of a compressed layout, read once in order.
pub(super) struct Rows {
    indptr: Numbers,
    reader: Option<Box<dyn Read + Send>>,
    /// Ends of the rows from `row` on that have been read.
    ends: std::collections::VecDeque<u64>,
    row: u64,
    num_rows: u64,
    /// Entries of `indptr` that are not read yet.
    left: u64,
}

impl Rows {
    /// Creates `num_rows` rows, whose ends follow a zero in `indptr`.
    pub(super) fn new(indptr: Numbers, num_rows: u64) -> Self {
        let left = num_rows + 1;
        Self { indptr, reader: None, ends: Default::default(), row: 0, num_rows, left }
    }

    /// Starts again at the first row.
    pub(super) fn again(&self) -> Self {
        Self::new(self.indptr.clone(), self.num_rows)
    }

    /// Bytes of all ends of rows.
    pub(super) fn bytes(&self) -> u64 {
        self.num_rows * self.indptr.dtype().bytes() as u64
    }

    /// Bytes of the ends of the rows that have been handed out.
    pub(super) fn bytes_done(&self) -> u64 {
        self.row * self.indptr.dtype().bytes() as u64
    }

    /// The end of the current row, or `None` after the last row.
    fn end(&mut self) -> Result<Option<u64>> {
        if self.ends.is_empty() && self.left > 0 {
            let at_start = self.reader.is_none();
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => none.insert(self.indptr.reader(0)?),
            };
            let count = self.left.min(ROWS_PER_PIECE as u64 + u64::from(at_start));
            let (mut bytes, mut ends) = (Vec::new(), Vec::new());
            self.indptr.read_next(&mut **reader, count, &mut bytes)?;
            let decoded = self.indptr.dtype().ids(&bytes, &mut ends);
            let base = self.num_rows + 1 - self.left;
            decoded.map_err(|(at, problem)| {
                self.indptr.error(format!("entry {}: {problem}", base + at))
            })?;
            self.left -= count;
            self.ends = ends.into();
            if at_start && self.ends.pop_front() != Some(0) {
                return Err(self.indptr.error("entry 0: expected 0, where the first row starts"));
            }
        }
        Ok(self.ends.front().copied())
    }

    /// Writes the table of the rows of at most `most` edges, starting at edge `from` of
    /// `num_edges`, and returns the edge after them. The table holds the first row and, for each
    /// row from there, the edge at which it ends, cut at the last edge of the piece.
    pub(super) fn table(
        &mut self,
        from: u64,
        most: u64,
        num_edges: u64,
        table: &mut Vec<u8>,
    ) -> Result<u64> {
        let mut edge = from;
        while edge == from {
            table.clear();
            table.extend(self.row.to_le_bytes());
            table.extend([0; 8]);
            let mut rows = 0usize;
            while rows < ROWS_PER_PIECE && edge < from + most {
                let Some(end) = self.end()? else { break };
                if end < edge || end > num_edges {
                    let problem =
                        format!("entry {}: {end}, expected {edge} to {num_edges}", self.row + 1);
                    return Err(self
                        .indptr
                        .error(format!("{problem}: its entries ascend to the number of edges")));
                }
                edge = end.min(from + most);
                table.extend(edge.to_le_bytes());
                rows += 1;
                if edge == end {
                    self.ends.pop_front();
                    self.row += 1;
                }
            }
            table[8..16].copy_from_slice(&(rows as u64).to_le_bytes());
            if rows == 0 {
                break;
            }
        }
        if edge == from && from != num_edges {
            return Err(self.indptr.error(format!(
                "ends at edge {from} of {num_edges}: expected all of them in rows"
            )));
        }
        Ok(edge)
    }
}

/// Appends the row of every edge from edge `start` on, according to a table of [`Rows::table`].
pub(super) fn expand(table: &[u8], start: u64, rows: &mut Vec<u64>) {
    let numbers = table.as_chunks::<8>().0;
    let Some((&first_row, ends)) = numbers.split_first() else { return };
    let (first_row, before, from) = (u64::from_le_bytes(first_row), rows.len(), start);
    for (row, &end) in (first_row..).zip(&ends[1..]) {
        rows.resize(before + (u64::from_le_bytes(end) - from) as usize, row);
    }
}
