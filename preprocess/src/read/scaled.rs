//! Feature rows with each number scaled, where `--scale` asks for it: one more pass over them finds by what.

use std::path::Path;

use gsplit_store::Progress;

use super::options::Scale;
use super::raw::{Column, numbers};
use super::table::Moments;
use crate::Result;

/// Rows of `f32`, scaled.
pub struct Scaled {
    rows: Box<dyn Column>,
    /// Shift and scale of each number of a row.
    scales: Vec<(f64, f64)>,
}

impl Scaled {
    /// The same `rows`, by `scale`.
    ///
    /// # Errors
    /// Errors of reading the rows.
    pub fn of(rows: Box<dyn Column>, scale: Scale, progress: &dyn Progress) -> Result<Box<dyn Column>> {
        if scale == Scale::None {
            return Ok(rows);
        }
        let mut seen = vec![Moments::default(); rows.width()];
        rows.read(progress, &mut |bytes| {
            for (at, number) in numbers(rows.descr(), bytes).enumerate().filter(|(_, number)| number.is_finite()) {
                let at = at % seen.len();
                seen[at].add(number);
            }
            Ok(())
        })?;
        let scale_of = |seen: &Moments| match scale {
            Scale::Minmax => (seen.least, seen.range()),
            _ => (seen.mean, seen.deviation()),
        };
        Ok(Box::new(Self { scales: seen.iter().map(scale_of).collect(), rows }))
    }

    fn scale(&self, bytes: &[u8]) -> Vec<u8> {
        let scales = self.scales.iter().cycle();
        let scaled =
            numbers(self.rows.descr(), bytes).zip(scales).map(|(number, (shift, scale))| (number - shift) / scale);
        scaled.flat_map(|number| (number as f32).to_le_bytes()).collect()
    }
}

impl Column for Scaled {
    fn path(&self) -> &Path {
        self.rows.path()
    }

    fn name(&self) -> &str {
        self.rows.name()
    }

    fn descr(&self) -> &'static str {
        "<f4"
    }

    fn width(&self) -> usize {
        self.rows.width()
    }

    fn num_rows(&self) -> Option<u64> {
        self.rows.num_rows()
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.rows.read(progress, &mut |bytes| take(&self.scale(bytes)))
    }

    fn missing_row(&self) -> Result<Vec<u8>> {
        Ok(self.scale(&self.rows.missing_row()?))
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> crate::Error {
        self.rows.error(row, column, problem)
    }
}
