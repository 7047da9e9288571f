//! Feature rows with each number scaled, if `--schema scale` asks for it, and missing ones filled, if
//! `--schema fill` does. One more pass over the rows computes the scales and means; a constant to fill
//! with needs no pass.

use gsplit_store::Progress;

use super::options::{Fill, Scale};
use super::raw::{Column, describe_column, numbers};
use super::table::Moments;
use crate::Result;

/// Rows of `f32`, scaled.
pub struct Scaled {
    rows: Box<dyn Column>,
    /// Shift and scale of each number of a row.
    scales: Vec<(f64, f64)>,
    /// For each number of a row, the value that replaces NaN.
    fills: Vec<f64>,
}

impl Scaled {
    /// Scales `rows` by `scale`, and replaces NaN by `fill`.
    pub fn of(
        rows: Box<dyn Column>,
        scale: Scale,
        fill: Option<Fill>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn Column>> {
        let mut seen = vec![Moments::default(); rows.width()];
        match (scale, fill) {
            (Scale::None, None) => return Ok(rows),
            (Scale::None, Some(Fill::Value(value))) => {
                let (scales, fills) =
                    (vec![(0.0, 1.0); seen.len()], vec![value.into(); seen.len()]);
                return Ok(Box::new(Self { rows, scales, fills }));
            }
            _ => {}
        }
        rows.read(progress, &mut |bytes| {
            for (at, number) in
                numbers(rows.descr(), bytes).enumerate().filter(|(_, number)| number.is_finite())
            {
                let at = at % seen.len();
                seen[at].add(number);
            }
            Ok(())
        })?;
        let scale_of = |seen: &Moments| match scale {
            Scale::Minmax => (seen.least, seen.range()),
            Scale::Standard => (seen.mean, seen.deviation()),
            Scale::None => (0.0, 1.0),
        };
        let fill_of = |seen: &Moments| match fill {
            Some(Fill::Value(value)) => value.into(),
            Some(Fill::Mean) => seen.mean,
            None => f64::NAN,
        };
        let fills = seen.iter().map(fill_of).collect();
        Ok(Box::new(Self { scales: seen.iter().map(scale_of).collect(), fills, rows }))
    }

    fn scale(&self, bytes: &[u8]) -> Vec<u8> {
        let scales = self.scales.iter().zip(&self.fills).cycle();
        let scaled = numbers(self.rows.descr(), bytes).zip(scales).map(
            |(number, ((shift, scale), fill))| {
                let number = if number.is_nan() { *fill } else { number };
                (number - shift) / scale
            },
        );
        scaled.flat_map(|number| (number as f32).to_le_bytes()).collect()
    }
}

impl Column for Scaled {
    describe_column!(self:
        self.rows.path(),
        self.rows.name(),
        "<f4",
        self.rows.width(),
        self.rows.num_rows()
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.rows.read(progress, &mut |bytes| take(&self.scale(bytes)))
    }

    fn missing_row(&self) -> Result<Vec<u8>> {
        Ok(self.scale(&self.rows.missing_row()?))
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> crate::Error {
        self.rows.error(row, column, problem)
    }
}
