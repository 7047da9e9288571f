//! Feature rows stored as a sparse matrix (CSR): missing entries are zero.
//!
//! Several rows are built at a time; all three arrays are read once, in sequence.

use gsplit_store::{Progress, Unit};

use super::numbers::Numbers;
use crate::read::raw::{Column, describe_column, numbers};
use crate::{Error, Result};

/// Maximum number of columns.
const MAX_WIDTH: u64 = 1 << 24;
/// Approximate bytes of rows that are built at a time.
const BYTES_PER_TAKE: usize = 1 << 18;

/// A sparse matrix with a row for every vertex.
pub struct SparseColumn {
    indptr: Numbers,
    indices: Numbers,
    data: Numbers,
    num_rows: u64,
    width: usize,
}

impl SparseColumn {
    /// The matrix with these arrays and this shape; fails if they do not match.
    pub fn new(indptr: Numbers, indices: Numbers, data: Numbers, shape: &[u64]) -> Result<Self> {
        let (num_rows, width) = match *shape {
            [rows, width @ 1..=MAX_WIDTH] => (rows, width as usize),
            ref other => {
                let problem =
                    format!("a shape of {other:?}: expected rows, and columns up to {MAX_WIDTH}");
                return Err(indptr.error(problem));
            }
        };
        for (array, expected) in [(&indptr, num_rows.saturating_add(1)), (&data, indices.len())] {
            if array.len() != expected {
                return Err(array.error(format!("{} numbers, expected {expected}", array.len())));
            }
        }
        Ok(Self { indptr, indices, data, num_rows, width })
    }
}

/// The numbers of `array` in `bytes`, in single precision.
pub fn as_f32(array: &Numbers, bytes: &[u8]) -> Result<Vec<f32>> {
    let mut wide = Vec::new();
    array.dtype().values(bytes, &mut wide).map_err(|(_, problem)| array.error(problem))?;
    let values = numbers(array.dtype().value_type().descr(), &wide);
    Ok(values.map(|value| value as f32).collect())
}

/// All numbers of `array`, in single precision.
pub fn floats(array: &Numbers) -> Result<Vec<f32>> {
    let mut bytes = Vec::new();
    array.read_next(&mut *array.reader(0)?, array.len(), &mut bytes)?;
    as_f32(array, &bytes)
}

impl Column for SparseColumn {
    describe_column!(self: self.indptr.path(), "features", "<f4", self.width, Some(self.num_rows));

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let stage = progress.stage("reading features", Some(self.num_rows), Unit::Items("rows"));
        let (mut ends, mut columns, mut numbers) =
            (self.indptr.reader(0)?, self.indices.reader(0)?, self.data.reader(0)?);
        let ids = |array: &Numbers, bytes: &[u8], into: &mut Vec<u64>| {
            array
                .dtype()
                .ids(bytes, into)
                .map_err(|(at, problem)| -> Error { array.error(format!("entry {at}: {problem}")) })
        };
        let (mut bytes, mut bounds, mut places, mut rows) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        self.indptr.read_next(&mut *ends, 1, &mut bytes)?;
        ids(&self.indptr, &bytes, &mut bounds)?;
        let mut row = 0;
        while row < self.num_rows {
            let count =
                (self.num_rows - row).min((BYTES_PER_TAKE / (4 * self.width)).max(1) as u64);
            bytes.clear();
            self.indptr.read_next(&mut *ends, count, &mut bytes)?;
            ids(&self.indptr, &bytes, &mut bounds)?;
            let fits = |ends: &[u64]| ends[0] <= ends[1] && ends[1] - ends[0] <= self.width as u64;
            let entries = self.indices.len();
            let wrong = bounds.windows(2).position(|ends| !fits(ends) || ends[1] > entries);
            if let Some(at) = wrong {
                let (row, from, to) = (row + at as u64, bounds[at], bounds[at + 1]);
                let problem =
                    format!("row {row}: entries {from} to {to} of {entries}: truncated or damaged");
                return Err(self.indptr.error(problem));
            }
            let entries = bounds[count as usize] - bounds[0];
            bytes.clear();
            self.indices.read_next(&mut *columns, entries, &mut bytes)?;
            places.clear();
            ids(&self.indices, &bytes, &mut places)?;
            bytes.clear();
            self.data.read_next(&mut *numbers, entries, &mut bytes)?;
            let values = as_f32(&self.data, &bytes)?;
            rows.clear();
            rows.resize(count as usize * self.width, 0f32);
            let each = bounds.windows(2).zip(rows.chunks_exact_mut(self.width));
            for (row, (ends, cells)) in (row..).zip(each) {
                let range = (ends[0] - bounds[0]) as usize..(ends[1] - bounds[0]) as usize;
                for (&place, &value) in places[range.clone()].iter().zip(&values[range]) {
                    let cell = usize::try_from(place).ok().and_then(|place| cells.get_mut(place));
                    *cell.ok_or_else(|| {
                        let width = self.width;
                        let problem =
                            format!("row {row}: column {place}, expected columns below {width}");
                        self.indices.error(problem)
                    })? += value;
                }
            }
            take(bytemuck::cast_slice(&rows))?;
            bounds.drain(..count as usize);
            row += count;
            stage.advance(count);
        }
        match bounds[..] == [self.indices.len()] {
            true => Ok(()),
            false => Err(self
                .indptr
                .error(format!("ends at {bounds:?} of {} entries: damaged", self.indices.len()))),
        }
    }
}
