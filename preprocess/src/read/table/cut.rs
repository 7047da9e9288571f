//! Cuts lines of text into the places of their cells, once for a piece. Each column is then read in
//! a loop of its own, like a column of Parquet.

use std::borrow::Cow;

use super::cells::WrittenCells;
use super::sheet::Sheet;
use crate::Error;
use crate::edges::Piece;
use crate::read::text::line::fields;
use crate::read::text::lines;

/// Lines are numbered through all text files: the n-th file starts at n times this.
pub const LINES_PER_FILE: u64 = 1 << 40;

/// Rows of text, cut into the cells of some columns.
pub struct CutRows<'t> {
    text: &'t [u8],
    /// Cells that are written otherwise in the text: in quotes, or in a style.
    others: Vec<u8>,
    /// Start and bytes of the cells of each column, as [`WrittenCells`] has them.
    places: Vec<Vec<(u32, u32)>>,
    /// The line of each row.
    pub lines: Vec<u64>,
    /// The problem with the first wrong line. It and the lines below are not among the rows.
    pub problem: Option<Error>,
}

impl CutRows<'_> {
    /// The cells of a column.
    pub fn cells(&self, slot: usize) -> WrittenCells<'_> {
        WrittenCells { texts: [self.text, &self.others], places: &self.places[slot] }
    }

    fn push(&mut self, slot: usize, cell: &[u8]) {
        let mut start = (cell.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        if start.checked_add(cell.len()).is_none_or(|end| end > self.text.len()) {
            start = self.text.len() + self.others.len();
            self.others.extend_from_slice(cell);
        }
        self.places[slot].push((start as u32, cell.len() as u32));
    }
}

impl Sheet {
    /// Cuts the lines of `piece`, from a part, into the cells of `columns`, which ascend. `plain`
    /// converts each cell.
    pub fn cut<'t>(
        &self,
        part: usize,
        piece: &'t Piece,
        columns: &[usize],
        plain: impl for<'c> Fn(usize, &'c [u8]) -> Result<Cow<'c, [u8]>, String>,
    ) -> CutRows<'t> {
        let mut slots = vec![None; self.columns.len()];
        columns.iter().enumerate().for_each(|(slot, &at)| slots[at] = Some(slot));
        let most = memchr::memchr_iter(b'\n', &piece.bytes).count() + 1;
        let mut cut = CutRows {
            text: &piece.bytes,
            others: Vec::new(),
            places: columns.iter().map(|_| Vec::with_capacity(most)).collect(),
            lines: Vec::with_capacity(most),
            problem: None,
        };
        let cut_row = |cut: &mut CutRows<'_>, row: &[u8]| {
            let (mut count, mut wrong) = (0, None);
            fields(row, self.delimiter, |at, cell| {
                count = at + 1;
                if let Some(slot) = slots.get(at).copied().flatten() {
                    match plain(at, &cell) {
                        Ok(cell) => cut.push(slot, &cell),
                        Err(problem) => {
                            wrong = Some(format!("column `{}`: {problem}", self.columns[at]));
                        }
                    }
                }
                wrong.is_none()
            })?;
            wrong.map_or_else(|| self.check_count(count), Err)
        };
        for (number, line) in lines(piece).map(|(number, line)| (number % LINES_PER_FILE, line)) {
            let row = self.row(number, line);
            let row = row.and_then(|row| row.map(|row| cut_row(&mut cut, row)).transpose());
            match row {
                Ok(row) => cut.lines.extend(row.map(|()| number)),
                Err(problem) => {
                    let rows = cut.lines.len();
                    cut.places.iter_mut().for_each(|places| places.truncate(rows));
                    cut.problem = Some(Error::line(&self.files[part], number, problem));
                    break;
                }
            }
        }
        cut
    }
}
