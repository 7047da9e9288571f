//! In-edges drawn by their weights.
//!
//! Returns: ascending offsets of the edges drawn. Input: a weight for each edge of the graph,
//! finite and not negative. An edge of weight 0 is never drawn. Idea: each candidate gets an
//! exponentially distributed time with its weight as rate, from a word of its own, and the first
//! ones win. That equals drawing one after another, each time in proportion to the remaining
//! weights. All arithmetic is in integers and in additions, products and quotients of floats in a
//! fixed order (the logarithm is a series), so every machine gets the same bits.
//!
//! Correction: how likely an edge is among the drawn ones is a sum over all orders. But given the
//! times of all others it is simple: an edge of weight w is drawn if its time is before the first
//! one that loses, τ, so with probability p = 1 − e^(−w τ). With k of d candidates drawn, a drawn
//! edge counts c = k / (d p) times. Then the mean over the drawn edges of c · x has the expectation
//!
//! ```text
//! E[ 1/k Σ_drawn c x ] = 1/d Σ_all x
//! ```
//!
//! the mean over all candidates, whatever the weights are, as in `locality.rs`.
//!
//! Source: Efraimidis, Spirakis, "Weighted random sampling with a reservoir", 2006; the correction
//! is the rank conditioning estimator of Cohen, Kaplan, "Summarizing data using bottom-k sketches",
//! PODC 2007. Cost: one random word and one logarithm for each in-edge of a vertex that has more
//! than the fanout.

use super::Fanout;
use super::draw::{Draw, DrawVertex, Kept, Scratch, Vertex};
use crate::error::KernelError;
use crate::philox::{BLOCKS, StreamKey};
use crate::simd::exp_m1_below_zero;

/// Draws every in-edge with a probability that grows with its weight.
pub(super) struct Weighted<'a> {
    pub to_draw: Draw<'a>,
    pub weights: &'a [f32],
    /// Whether to return the factors that correct sums.
    pub corrects: bool,
}

impl Weighted<'_> {
    /// Calls `visit` with the offset and weight of every candidate, and returns their number.
    fn candidates(
        &self,
        vertex: Vertex,
        mut visit: impl FnMut(u32, f32),
    ) -> Result<u32, KernelError> {
        let Vertex { start, degree, .. } = vertex;
        let mut excluded = self.to_draw.excluded_of(vertex).iter().peekable();
        let mut count = 0;
        for (offset, &weight) in (0..degree).zip(&self.weights[start as usize..][..degree as usize])
        {
            let edge = start + u64::from(offset);
            if !(0.0..f32::INFINITY).contains(&weight) {
                return Err(KernelError::Weight { edge, got: weight });
            }
            if excluded.next_if_eq(&&edge).is_none() && weight > 0.0 {
                count += 1;
                visit(offset, weight);
            }
        }
        Ok(count)
    }

    /// Picks the `fanout` candidates with the earliest times.
    fn race(
        &self,
        vertex: Vertex,
        fanout: u32,
        key: &StreamKey,
        Scratch { keys, factors, picks, .. }: &mut Scratch,
    ) -> Result<u32, KernelError> {
        keys.clear();
        let mut words = Words::new(key, vertex.id);
        let count = self.candidates(vertex, |offset, weight| {
            let time = exponential(words.get(u64::from(offset))) / weight;
            // Positive floats are ordered like their bits; of equal times the first edge's counts
            // as earlier.
            keys.push(u64::from(time.to_bits()) << 32 | u64::from(offset));
        })?;
        let kept = count.min(fanout);
        if count > fanout {
            // The earliest loser, after all winners.
            keys.select_nth_unstable(fanout as usize);
        }
        let places = picks.places(kept as usize);
        places.iter_mut().zip(keys.iter()).for_each(|(place, &key)| *place = key as u32);
        places.sort_unstable();
        match keys.get(kept as usize).filter(|_| self.corrects) {
            None => self.count_once(kept, factors),
            Some(first_to_lose) => {
                let (time, weights) = (
                    f32::from_bits((first_to_lose >> 32) as u32),
                    &self.weights[vertex.start as usize..],
                );
                let fraction = kept as f32 / count as f32;
                let correction =
                    |offset: &u32| fraction / -exp_m1_below_zero(-time * weights[*offset as usize]);
                factors.extend(places.iter().map(correction));
            }
        }
        Ok(kept)
    }

    /// Appends the factor 1 for the next `count` edges, if factors are returned.
    fn count_once(&self, count: u32, factors: &mut Vec<f32>) {
        let count = if self.corrects { count as usize } else { 0 };
        factors.resize(factors.len() + count, 1.0);
    }
}

impl DrawVertex for Weighted<'_> {
    const READS_ALL: bool = true;

    fn draw(
        &self,
        vertex: Vertex,
        key: &StreamKey,
        scratch: &mut Scratch,
    ) -> Result<Kept, KernelError> {
        let count = match self.to_draw.fanout {
            Fanout::Take(fanout) if vertex.degree > fanout => {
                self.race(vertex, fanout, key, scratch)?
            }
            _ => {
                let Scratch { keys, factors, picks, .. } = scratch;
                keys.clear();
                let count = self.candidates(vertex, |offset, _| keys.push(u64::from(offset)))?;
                self.count_once(count, factors);
                if count == vertex.degree {
                    return Ok(Kept::All);
                }
                let places = picks.places(count as usize);
                places
                    .iter_mut()
                    .zip(keys.iter())
                    .for_each(|(place, &offset)| *place = offset as u32);
                count
            }
        };
        Ok(Kept::Picked(count))
    }
}

/// Words of one vertex's sequence by number, without limit. Words beyond
/// [`DRAWS_PER_ITEM`](crate::DRAWS_PER_ITEM) come from further sequences, whose seeds come from
/// [`Stream::Pages`].
struct Words<'a> {
    key: &'a StreamKey,
    item: u32,
    /// The words from `first` on.
    words: [u32; 4 * BLOCKS],
    first: u64,
}

impl<'a> Words<'a> {
    fn new(key: &'a StreamKey, item: u32) -> Self {
        Self { key, item, words: [0; 4 * BLOCKS], first: u64::MAX }
    }

    #[inline]
    fn get(&mut self, number: u64) -> u32 {
        let first = number - number % (4 * BLOCKS as u64);
        if first != self.first {
            self.first = first;
            self.words = self.read(first / 4);
        }
        self.words[(number - first) as usize]
    }

    #[inline]
    fn read(&self, block: u64) -> [u32; 4 * BLOCKS] {
        self.key.page(self.item, (block >> 16) as u16).words(self.item, block as u16)
    }
}

/// An exponentially distributed time of rate 1 from a random word: −ln of (2^33 − (2 · word + 1)) /
/// 2^33.
///
/// With that number = m · 2^−e, m within a factor of √2 of 1, it is e · ln 2 − ln m, and ln m = 2
/// (s + s³/3 + s⁵/5 + ..) for s = (m − 1) / (m + 1). Times near 0, which decide the race, keep
/// their full precision: m − 1 is exact there.
#[inline]
fn exponential(word: u32) -> f32 {
    const ONE: i64 = 1 << 33;
    /// 2^33 / √2.
    const ROOT: i64 = 6_074_001_000;
    let number = ONE - (2 * i64::from(word) + 1);
    // The number is below 2^33, so it has 31 leading zeros or more.
    let mut shift = number.leading_zeros() - 31;
    if number << shift < ROOT {
        shift += 1;
    }
    let mantissa = number << shift;
    let difference = (mantissa - ONE) as f32 / ONE as f32;
    let s = difference / (2.0 + difference);
    let square = s * s;
    let series = 1.0
        + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    shift as f32 * std::f32::consts::LN_2 - 2.0 * s * series
}
