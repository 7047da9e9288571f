//! Dropout masks on the host.
//!
//! Returns: factors 0 and 1/(1 - p) to multiply activations with (Srivastava et al., JMLR 2014, in
//! its inverted form). Input: a rate in `[0, 1)`. The rate is rounded to 16 bits, which moves the
//! mean of a mask from 1 by at most 2^-17 / (1 - p), and by at most 2^-16 / (1 - p) for rates above
//! 1 - 2^-16. Cost: one Philox call for eight features; parallel over rows.

use rayon::prelude::*;

use crate::error::{KernelError, check_matrix};
use crate::philox::StreamKey;
use crate::simd::vectorised;

/// Features that one group of Philox words decides.
const FEATURES: usize = 8;
/// Groups whose features alternate, so that half of one word of all groups decides neighbouring
/// features.
const GROUPS: usize = 16;
/// The widest row a mask can have.
pub const MAX_DROPOUT_DIM: usize = FEATURES << 16;

/// Fills `out` (`ids.len()` × `dim`) with the masks of the vertices `ids`: 0 with probability `p`,
/// else 1/(1 - p).
///
/// `key` holds seed, epoch, step and layer; its stream is normally
/// [`Stream::Dropout`](crate::Stream::Dropout).
///
/// # Errors
/// [`KernelError::DropoutRate`], and [`KernelError::Length`] if `out`
/// has another size.
pub fn dropout_mask(
    ids: &[u32],
    dim: usize,
    p: f32,
    key: &StreamKey,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let mask = RowMask::new(p, dim, key)?;
    check_matrix("dropout mask", ids.len(), dim, out.len())?;
    if dim == 0 {
        return Ok(());
    }
    out.par_chunks_mut(dim).zip(ids).with_min_len(32).for_each(|(row, &id)| {
        vectorised!({
            row.fill(1.0);
            mask.multiply(id, row);
        });
    });
    Ok(())
}

/// The masks of all vertices, for rows of one width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowMask {
    threshold: u32,
    keep: f32,
    key: StreamKey,
}

impl RowMask {
    /// Dropout at rate `p`.
    pub(crate) fn new(p: f32, dim: usize, key: &StreamKey) -> Result<Self, KernelError> {
        if !(0.0..1.0).contains(&p) {
            return Err(KernelError::DropoutRate { rate: p });
        }
        if dim > MAX_DROPOUT_DIM {
            let (what, expected) = ("features of a row with dropout, at most", MAX_DROPOUT_DIM);
            return Err(KernelError::Length { what, expected, got: dim });
        }
        // At least one of the 2^16 values keeps its feature, as p is below 1.
        Ok(Self {
            threshold: ((p * 65_536.0).round() as u32).min(65_535),
            keep: 1.0 / (1.0 - p),
            key: *key,
        })
    }

    /// Features whose 16 bits are below the first are dropped, the others are multiplied by the
    /// second.
    pub(crate) fn threshold_and_factor(&self) -> (u32, f32) {
        (self.threshold, self.keep)
    }

    /// Multiplies `row` by the mask of vertex `id`.
    #[inline(always)]
    pub(crate) fn multiply(&self, id: u32, row: &mut [f32]) {
        let keep = self.keep.to_bits();
        self.scale(id, row, |bits| {
            f32::from_bits(keep & u32::from(bits >= self.threshold).wrapping_neg())
        });
    }

    /// Changes the sign of the values of `row`, of any width, that the mask of `id` drops.
    #[inline(always)]
    pub(crate) fn negate(&self, id: u32, row: &mut [f32]) {
        let one = 1f32.to_bits();
        for (page, part) in (0..).zip(row.chunks_mut(MAX_DROPOUT_DIM)) {
            let mask = Self { key: self.key.page(id, page), ..*self };
            mask.scale(id, part, |bits| {
                f32::from_bits(one | u32::from(bits < self.threshold) << 31)
            });
        }
    }

    /// Multiplies each value by `factor` of its 16 bits.
    #[inline(always)]
    fn scale(&self, id: u32, row: &mut [f32], factor: impl Fn(u32) -> f32) {
        for (first, features) in
            (0..=u16::MAX).step_by(GROUPS).zip(row.chunks_mut(FEATURES * GROUPS))
        {
            // Loops over slices, whose lengths the compiler does not know: it would split arrays
            // into single numbers.
            for (pair, words) in
                features.chunks_mut(2 * GROUPS).zip(&self.key.blocks::<GROUPS>(id, first))
            {
                let (low, high) = pair.split_at_mut(pair.len().min(GROUPS));
                low.iter_mut().zip(words).for_each(|(value, word)| *value *= factor(word & 0xFFFF));
                high.iter_mut().zip(words).for_each(|(value, word)| *value *= factor(word >> 16));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::Stream;

    const KEY: StreamKey =
        StreamKey { seed: 4, epoch: 1, step: 2, stream: Stream::Dropout, layer: 0 };

    fn mask(ids: &[u32], dim: usize, p: f32, key: &StreamKey) -> Vec<f32> {
        let mut out = vec![f32::NAN; ids.len() * dim];
        dropout_mask(ids, dim, p, key, &mut out).unwrap();
        out
    }

    #[test]
    fn values_and_mean() {
        let ids: Vec<u32> = (0..2000).collect();
        for p in [0.0, 0.1, 0.5, 0.9] {
            let values = mask(&ids, 100, p, &KEY);
            let keep = 1.0 / (1.0 - p);
            assert!(values.iter().all(|&v| v == 0.0 || v == keep));
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
            // Standard deviation of the mean: sqrt(p / (1 - p) / 200000), at most 0.007.
            assert!((mean - 1.0).abs() < 0.03, "rate {p}: mean {mean}");
        }
        assert!(mask(&ids, 9, 0.0, &KEY).iter().all(|&v| v == 1.0));
    }

    #[test]
    fn a_row_depends_on_its_vertex_only() {
        for dim in [1, 7, 8, 9, 100] {
            let forward = mask(&[5, 6, u32::MAX, 8], dim, 0.5, &KEY);
            let backward = mask(&[8, u32::MAX, 6, 5], dim, 0.5, &KEY);
            let reversed: Vec<f32> = backward.chunks(dim).rev().flatten().copied().collect();
            assert_eq!(forward, reversed);
        }
        // A wider row starts with the narrower one.
        assert_eq!(mask(&[3], 100, 0.5, &KEY)[..37], mask(&[3], 37, 0.5, &KEY));
        assert_ne!(mask(&[3], 100, 0.5, &KEY), mask(&[4], 100, 0.5, &KEY));
        for other in [StreamKey { step: 3, ..KEY }, StreamKey { layer: 1, ..KEY }] {
            assert_ne!(mask(&[3], 100, 0.5, &KEY), mask(&[3], 100, 0.5, &other));
        }
    }

    #[test]
    fn oracle_bits_of_a_row() {
        let expected: Vec<f32> = (0..301)
            .map(|f| {
                let word = KEY.block(7, (f / 128 * 16 + f % 16) as u16)[f % 128 / 32];
                let half = if f % 32 < 16 { word & 0xFFFF } else { word >> 16 };
                if half < 0x4000 { 0.0 } else { 1.0 / 0.75 }
            })
            .collect();
        assert_eq!(mask(&[7], 301, 0.25, &KEY), expected);
    }

    #[test]
    fn oracle_signs_of_a_row_of_any_width() {
        let mut row = vec![2.0; 2 * MAX_DROPOUT_DIM + 300];
        RowMask::new(0.25, 0, &KEY).unwrap().negate(7, &mut row);
        assert!(row.iter().all(|value| value.abs() == 2.0));
        let mut pages = row.chunks(MAX_DROPOUT_DIM);
        let signs = |mask: &[f32]| -> Vec<f32> {
            mask.iter().map(|&m| if m == 0.0 { -2.0 } else { 2.0 }).collect()
        };
        assert!(pages.next().unwrap() == signs(&mask(&[7], MAX_DROPOUT_DIM, 0.25, &KEY)));
        for (page, found) in (1..).zip(pages) {
            let [low, high, ..] = StreamKey { stream: Stream::Pages, ..KEY }.block(7, page);
            let key = StreamKey { seed: u64::from(high) << 32 | u64::from(low), ..KEY };
            assert!(found == signs(&mask(&[7], found.len(), 0.25, &key)), "page {page}");
        }
        assert!(row[..300] != row[MAX_DROPOUT_DIM..][..300]);
    }

    #[test]
    fn widest_row_and_edges() {
        let row = mask(&[1], MAX_DROPOUT_DIM, 0.5, &KEY);
        let kept = row.iter().filter(|&&v| v > 0.0).count();
        assert!((255_000..270_000).contains(&kept), "{kept}");
        assert!(mask(&[], 8, 0.5, &KEY).is_empty() && mask(&[1], 0, 0.5, &KEY).is_empty());
    }

    #[test]
    fn bad_input_is_refused() {
        for rate in [-0.1, 1.0, f32::INFINITY] {
            assert_eq!(
                dropout_mask(&[], 1, rate, &KEY, &mut []),
                Err(KernelError::DropoutRate { rate })
            );
        }
        assert!(dropout_mask(&[], 1, f32::NAN, &KEY, &mut []).is_err());
        let dim = MAX_DROPOUT_DIM + 1;
        let error = dropout_mask(&[], dim, 0.5, &KEY, &mut []);
        assert!(matches!(error, Err(KernelError::Length { got, .. }) if got == dim));
        let error = dropout_mask(&[1, 2], 3, 0.5, &KEY, &mut [0.0; 5]);
        assert!(matches!(error, Err(KernelError::Length { expected: 6, got: 5, .. })));
    }
}
