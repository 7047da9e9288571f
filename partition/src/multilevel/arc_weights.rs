//! Weights of arcs in one byte each, made of the counters of both directions.
//!
//! The weight of a pair {u, v} is 1 + s · count, where count sums the counters of u→v and v→u,
//! duplicates included, and s is at most 1, smaller where the largest weight would pass [`MAX`]. A
//! byte is a number of four binary digits after the first and four of exponent: exact up to 31,
//! else off by at most 1/32. The cut that the report states is exact.

use rayon::prelude::*;

/// Largest weight there is.
const MAX: u32 = 31 << 14;

/// Weight represented by each byte.
const DECODED: [u32; 256] = decoded();

const fn decoded() -> [u32; 256] {
    let (mut values, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (exponent, digits) = (byte as u32 >> 4, byte as u32 & 15);
        values[byte] = if exponent == 0 { digits } else { (16 + digits) << (exponent - 1) };
        byte += 1;
    }
    values
}

/// The weight represented by a byte.
#[inline]
pub(super) fn decode(byte: u8) -> u32 {
    DECODED[byte as usize]
}

/// The byte whose weight is nearest.
fn encode(weight: u32) -> u8 {
    if weight < 32 {
        return weight as u8;
    }
    let weight = weight.min(MAX);
    let shift = 27 - weight.leading_zeros();
    let rounded = (weight + (1 << shift >> 1)) >> shift;
    // Rounding up may reach the next exponent, whose first number it then is.
    ((shift << 4) + rounded).min(255) as u8
}

/// Counters by edge, and their factor.
pub(super) struct EdgeCounts<'a> {
    counts: &'a [u32],
    scale: f64,
}

impl<'a> EdgeCounts<'a> {
    /// `counts` holds a number for each edge.
    pub fn new(counts: &'a [u32]) -> Self {
        let most = counts.par_iter().copied().max().unwrap_or(0);
        let scale = f64::min(1.0, f64::from(MAX - 1) / (2.0 * f64::from(most.max(1))));
        Self { counts, scale }
    }

    /// The counter of each edge.
    pub fn all(&self) -> &[u32] {
        self.counts
    }

    /// The counter of an edge.
    #[inline]
    pub fn of(&self, edge: usize) -> u32 {
        self.counts[edge]
    }

    /// The weight, as a byte, of a pair whose edges have this count.
    #[inline]
    pub fn weigh(&self, count: u64) -> u8 {
        encode(1 + (count as f64 * self.scale) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_within_a_32nd() {
        for weight in (0..4096).chain((4096..=MAX).step_by(77)).chain([MAX]) {
            let found = DECODED[encode(weight) as usize];
            let error = f64::from(found.abs_diff(weight));
            assert!(error <= f64::from(weight) / 32.0, "{weight}: {found}");
            assert!(weight >= 32 || found == weight, "{weight}: {found}");
        }
        assert_eq!(DECODED[encode(u32::MAX) as usize], MAX);
    }
}
