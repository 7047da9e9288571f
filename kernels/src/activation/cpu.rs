//! The epilogue of a product on the host.
//!
//! Returns: the rows, changed in place; backwards, the gradient of the product and of the bias.
//! Input: matrices of matching sizes. Cost: one read and one write of the rows; backwards two reads
//! and one write.

use std::hint::select_unpredictable;

use rayon::prelude::*;

use crate::dropout::RowMask;
use crate::error::{KernelError, check_len, count_rows};
use crate::gather::StoredRow;
use crate::philox::StreamKey;
use crate::simd::{exp_m1_below_zero, vectorised};

/// Rows of one parallel task, and of one partial sum.
const ROWS: usize = 128;

/// Function that is applied to each value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Itself.
    #[default]
    Identity,
    /// Zero instead of a value below zero.
    Relu,
    /// e^x - 1 instead of an x below zero (Clevert et al., ICLR 2016).
    Elu,
}

/// Steps applied to the rows of a product.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Added to every row.
    pub bias: Option<&'a [f32]>,
    /// Applied last.
    pub activation: Activation,
    /// Vertices of the rows, and rate and key of their [dropout](crate::dropout_mask).
    pub dropout: Option<(&'a [u32], f32, StreamKey)>,
}

impl Epilogue<'_> {
    /// Changes `rows` (any number × `dim`) in place.
    pub fn apply(&self, rows: &mut [f32], dim: usize) -> Result<(), KernelError> {
        if let (Some((ids, rate, key)), 1..) = (self.dropout, dim) {
            check_len("vertices of the rows", rows.len().checked_div(dim).unwrap_or(0), ids.len())?;
            RowMask::new(rate, dim, &key)?;
        }
        let pieces = rows.par_chunks_mut((ROWS * dim).max(1)).enumerate();
        pieces.try_for_each(|(piece, rows)| self.apply_part(piece * ROWS, rows, dim))
    }

    /// Applies [`Epilogue::apply`] to a part of the rows, from row `first` on, on the calling
    /// thread only.
    pub fn apply_part(
        &self,
        first: usize,
        rows: &mut [f32],
        dim: usize,
    ) -> Result<(), KernelError> {
        let count = count_rows("rows of the product", dim, rows.len())?;
        if let Some(bias) = self.bias {
            check_len("bias", dim, bias.len())?;
        }
        let mask = self.mask(first, count, dim)?;
        if dim == 0
            || (self.bias.is_none() && self.activation == Activation::Identity && mask.is_none())
        {
            return Ok(());
        }
        vectorised!({
            for (i, row) in rows.chunks_exact_mut(dim).enumerate() {
                if let Some(bias) = self.bias {
                    bias.add_to(1.0, row);
                }
                match self.activation {
                    Activation::Identity => {}
                    Activation::Relu => {
                        for x in &mut *row {
                            *x = if *x < 0.0 { 0.0 } else { *x };
                        }
                    }
                    Activation::Elu => {
                        for x in &mut *row {
                            *x = if *x < 0.0 { exp_m1_below_zero(*x) } else { *x };
                        }
                    }
                }
                if let Some((ids, mask)) = &mask {
                    mask.multiply(ids[i], row);
                }
            }
        });
        Ok(())
    }

    /// Fills `out` with the gradient of the product, given `rows`, the output of
    /// [`Epilogue::apply`], and their `gradient`. All have the same size, any number × `dim`.
    pub fn backward(
        &self,
        rows: &[f32],
        gradient: &[f32],
        dim: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        check_len("gradient of the rows", rows.len(), gradient.len())?;
        check_len("gradient of the product", rows.len(), out.len())?;
        let values = (ROWS * dim).max(1);
        let parts = rows
            .par_chunks(values)
            .zip(gradient.par_chunks(values))
            .zip(out.par_chunks_mut(values));
        let parts = parts.enumerate();
        parts.try_for_each(|(piece, ((rows, gradient), out))| {
            self.backward_part(piece * ROWS, [rows, gradient], dim, out, &mut [])
        })
    }

    /// Computes [`Epilogue::backward`] for a part of the rows, from row `first` on, on the calling
    /// thread only. `rows` and `gradient` hold that part. Adds the gradients of the product to
    /// `sums` (`dim` values), unless it is empty.
    pub fn backward_part(
        &self,
        first: usize,
        [rows, gradient]: [&[f32]; 2],
        dim: usize,
        out: &mut [f32],
        sums: &mut [f32],
    ) -> Result<(), KernelError> {
        let count = count_rows("rows of the product", dim, rows.len())?;
        check_len("gradient of the rows", rows.len(), gradient.len())?;
        check_len("gradient of the product", rows.len(), out.len())?;
        check_len("sums of the gradients", if sums.is_empty() { 0 } else { dim }, sums.len())?;
        let keep = self.dropout.map_or(1.0, |(_, rate, _)| 1.0 / (1.0 - rate));
        // ReLU's derivative is 0 where the row is, dropped or not. Others need the mask: a 0 does
        // not mean that a value was dropped.
        let mask =
            if self.activation == Activation::Relu { None } else { self.mask(first, count, dim)? };
        vectorised!({
            let parts = out
                .chunks_mut(dim.max(1))
                .zip(gradient.chunks(dim.max(1)))
                .zip(rows.chunks(dim.max(1)));
            for (i, ((out, gradient), rows)) in parts.enumerate() {
                let triples = out.iter_mut().zip(gradient).zip(rows);
                match self.activation {
                    Activation::Identity => out.copy_from_slice(gradient),
                    Activation::Relu => {
                        for ((out, &gradient), &value) in triples {
                            // A NaN passes, as in the forward pass.
                            *out = select_unpredictable(value <= 0.0, 0.0, keep * gradient);
                        }
                    }
                    Activation::Elu => {
                        for ((out, &gradient), &value) in triples {
                            // Below zero the derivative is e^x, which is the value before dropout
                            // plus 1.
                            *out = select_unpredictable(value < 0.0, value / keep + 1.0, 1.0)
                                * gradient;
                        }
                    }
                }
                if let Some((ids, mask)) = &mask {
                    mask.multiply(ids[i], out);
                }
                if !sums.is_empty() {
                    (&*out).add_to(1.0, sums);
                }
            }
        });
        Ok(())
    }

    /// The vertices and the mask of `count` rows from row `first` on, if there is dropout.
    fn mask(
        &self,
        first: usize,
        count: usize,
        dim: usize,
    ) -> Result<Option<(&[u32], RowMask)>, KernelError> {
        let Some((ids, rate, key)) = &self.dropout else { return Ok(None) };
        let got = ids.len().saturating_sub(first);
        let missing = KernelError::Length { what: "vertices of the rows", expected: count, got };
        Ok(Some((ids.get(first..first + count).ok_or(missing)?, RowMask::new(*rate, dim, key)?)))
    }
}

/// Fills `out` with the sum of the rows of `values`, which have the same width.
pub fn column_sums(values: &[f32], out: &mut [f32]) -> Result<(), KernelError> {
    let dim = out.len();
    count_rows("rows to sum", dim, values.len())?;
    out.fill(0.0);
    if dim == 0 {
        return Ok(());
    }
    let pieces = values.par_chunks(8 * ROWS * dim).map(|rows| {
        let mut sums = vec![0f32; dim];
        add_rows(rows, &mut sums);
        sums
    });
    for piece in pieces.collect::<Vec<_>>() {
        piece.as_slice().add_to(1.0, out);
    }
    Ok(())
}

/// Adds the rows of `values`, which have the width of `sums`, to `sums`, on the calling thread
/// only. Ignores an incomplete last row.
pub fn add_rows(values: &[f32], sums: &mut [f32]) {
    let dim = sums.len();
    if dim > 0 {
        vectorised!(values.chunks_exact(dim).for_each(|row| row.add_to(1.0, sums)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropout::dropout_mask;
    use crate::philox::Stream;
    use crate::spmm::tests::{assert_close, on_any_threads, values, wide};

    const KEY: StreamKey =
        StreamKey { seed: 5, epoch: 1, step: 2, stream: Stream::Dropout, layer: 0 };

    fn for_each_case(body: impl Fn(&Epilogue<'_>, usize, &[f32], &[f32])) {
        for (rows, dim) in [(0, 3), (1, 1), (300, 7), (1500, 64), (3, 0)] {
            let (mut product, bias) = (values(1, rows * dim), values(2, dim));
            // Rows of zeros, some values of which dropout keeps.
            product.chunks_mut(dim.max(1)).step_by(3).for_each(|row| row.fill(0.0));
            let ids: Vec<u32> = (0..rows as u32).map(|row| row * 7 % 31).collect();
            for (with_bias, activation, rate) in [
                (false, Activation::Identity, 0.0),
                (true, Activation::Identity, 0.25),
                (false, Activation::Identity, 0.25),
                (true, Activation::Relu, 0.0),
                (true, Activation::Relu, 0.5),
                (false, Activation::Relu, 0.5),
                (false, Activation::Elu, 0.0),
                (true, Activation::Elu, 0.2),
                (false, Activation::Elu, 0.2),
            ] {
                let dropout = (rate > 0.0).then_some((&ids[..], rate, KEY));
                let mut mask = vec![1.0; rows * dim];
                if rate > 0.0 {
                    dropout_mask(&ids, dim, rate, &KEY, &mut mask).unwrap();
                }
                body(
                    &Epilogue { bias: with_bias.then_some(&bias[..]), activation, dropout },
                    dim,
                    &product,
                    &mask,
                );
            }
        }
    }

    fn applied(epilogue: &Epilogue<'_>, dim: usize, product: &[f32]) -> Vec<f32> {
        on_any_threads(|| {
            let mut rows = product.to_vec();
            epilogue.apply(&mut rows, dim).unwrap();
            rows
        })
    }

    #[test]
    fn oracle_rows_and_gradient() {
        for_each_case(|epilogue, dim, product, mask| {
            let rows = applied(epilogue, dim, product);
            let gradient = values(3, rows.len());
            let before = |at: usize| product[at] + epilogue.bias.map_or(0.0, |bias| bias[at % dim]);
            let active = |x: f64| match epilogue.activation {
                Activation::Identity => x,
                Activation::Relu => x.max(0.0),
                Activation::Elu if x < 0.0 => x.exp_m1(),
                Activation::Elu => x,
            };
            let value =
                |at: usize, by: f64| f64::from(mask[at]) * active(f64::from(before(at)) + by);
            let expected: Vec<f64> = (0..rows.len()).map(|at| value(at, 0.0)).collect();
            assert_close(&rows, &expected, "rows");
            let found = on_any_threads(|| {
                let mut out = vec![f32::NAN; rows.len()];
                epilogue.backward(&rows, &gradient, dim, &mut out).unwrap();
                out
            });
            const STEP: f64 = 1e-7;
            // At 0 ReLU has the derivative that it has below 0.
            let above = |at: usize| {
                if epilogue.activation == Activation::Relu && rows[at] == 0.0 { 0.0 } else { STEP }
            };
            let rise = |at: usize| (value(at, above(at)) - value(at, -STEP)) / (above(at) + STEP);
            let expected: Vec<f64> =
                (0..rows.len()).map(|at| rise(at) * f64::from(gradient[at])).collect();
            assert_close(&found, &expected, "gradient");
        });
    }

    #[test]
    fn oracle_column_sums() {
        for (rows, dim) in [(0, 4), (1, 1), (5000, 3), (2048, 40), (7, 0)] {
            let matrix = values(1, rows * dim);
            let found = on_any_threads(|| {
                let mut out = vec![f32::NAN; dim];
                column_sums(&matrix, &mut out).unwrap();
                out
            });
            let mut expected = vec![0.0; dim];
            wide(&matrix).iter().enumerate().for_each(|(at, value)| expected[at % dim] += value);
            assert_close(&found, &expected, "sums");
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let length =
            |result: Result<(), KernelError>| matches!(result, Err(KernelError::Length { .. }));
        let plain = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
        assert!(length(plain.apply(&mut [0.0; 3], 2)));
        assert!(length(Epilogue { bias: Some(&[0.0]), ..plain }.apply(&mut [0.0; 4], 2)));
        assert!(length(
            Epilogue { dropout: Some((&[1], 0.5, KEY)), ..plain }.apply(&mut [0.0; 4], 2)
        ));
        assert!(length(plain.backward(&[0.0; 2], &[0.0; 3], 1, &mut [0.0; 2])));
        assert!(length(plain.backward(&[0.0; 2], &[0.0; 2], 1, &mut [0.0; 3])));
        assert!(length(plain.backward(&[0.0; 3], &[0.0; 3], 2, &mut [0.0; 3])));
        let dropping =
            Epilogue { activation: Activation::Elu, dropout: Some((&[1], 0.5, KEY)), ..plain };
        assert!(length(dropping.backward(&[0.0; 4], &[0.0; 4], 2, &mut [0.0; 4])));
        assert!(length(column_sums(&[0.0; 3], &mut [0.0; 2])));
        let rate = Epilogue { dropout: Some((&[], 1.0, KEY)), ..plain };
        assert!(matches!(rate.apply(&mut [], 2), Err(KernelError::DropoutRate { .. })));
    }
}
