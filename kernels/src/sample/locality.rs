//! In-neighbours in a set drawn more often than the others: locality-aware sampling.
//!
//! Returns: ascending offsets of the edges drawn, and for each the factor that corrects it in sums.
//! Input: a set of vertices, whose rows are cheap to load, and a factor F above 1. Each of the a
//! in-neighbours in the set gets F times the probability of each of the b others: with k draws from
//! a + b = d,
//!
//! ```text
//! p_in = min(1, k F / (a F + b))        p_out = (k − a p_in) / b
//! ```
//!
//! Idea: the multiplied and renormalised probabilities hold for one draw; for k draws without
//! replacement each edge must have the right probability of being among them. Here that is exact,
//! because the number of draws from the set is drawn first: a p_in, rounded up with the probability
//! of its fraction, else down. That number is then drawn from the set, uniformly, and the rest from
//! the others (Floyd's algorithm twice). k edges are kept, always.
//!
//! Correction: a drawn edge counts c = k / (d p) times. Then the mean over the k drawn edges of c ·
//! x has the expectation
//!
//! ```text
//! E[ 1/k Σ_drawn c x ] = 1/k Σ_all p · k / (d p) · x = 1/d Σ_all x
//! ```
//!
//! the mean over all in-edges, and d times it is their sum (Horvitz and Thompson, 1952). So an
//! estimate of a sum or mean from uniform draws, where every c is 1, needs no other change than
//! this factor of a row. An estimate that is not linear in the rows is not unbiased: attention
//! weights, which are divided by their own sum, are right in the limit of many draws only.
//!
//! Why not drawing one after another in proportion to the remaining weights, as `weighted.rs` does:
//! the probability of an edge is then a sum over all orders, and its correction depends on the
//! draw. Why not with replacement: a source that is drawn twice takes the place of another.
//!
//! All arithmetic is on f64 in a fixed order, so every machine gets the same bits; the rounding
//! uses a word of 32 bits. Source: Song and Jiang, ICS 2022, who introduced this factor. Cost: a
//! look at every in-neighbour of a vertex that has more than the fanout, and two draws.

use super::Fanout;
use super::draw::{Draw, DrawVertex, Kept, Preferred, Scratch, Vertex};
use super::uniform::{Uniform, floyd};
use crate::error::KernelError;
use crate::philox::StreamKey;

/// Draws from a set more often.
pub(super) struct Locality<'a> {
    pub to_draw: Draw<'a>,
    pub preferred: Preferred<'a>,
    pub indices: &'a [u32],
}

impl Locality<'_> {
    /// Splits the offsets of the in-edges of `vertex` that may be drawn into in-neighbours from the
    /// set and others.
    fn candidates(&self, vertex: Vertex, [near, far]: &mut [Vec<u32>; 2]) {
        let Vertex { start, degree, .. } = vertex;
        let mut excluded = self.to_draw.excluded_of(vertex).iter().peekable();
        near.clear();
        far.clear();
        for (offset, &source) in (0..degree).zip(&self.indices[start as usize..]) {
            if excluded.next_if_eq(&&(start + u64::from(offset))).is_none() {
                if self.preferred.set.contains(source) { &mut *near } else { &mut *far }
                    .push(offset);
            }
        }
    }
}

impl DrawVertex for Locality<'_> {
    const READS_ALL: bool = true;

    fn draw(
        &self,
        vertex: Vertex,
        key: &StreamKey,
        scratch: &mut Scratch,
    ) -> Result<Kept, KernelError> {
        let Scratch { picks, seen, sides, factors, .. } = scratch;
        let most = match self.to_draw.fanout {
            Fanout::Take(fanout) if fanout < vertex.degree => {
                self.candidates(vertex, sides);
                let [near, far] = sides.each_ref().map(Vec::len);
                Some(fanout).filter(|&fanout| near > 0 && far > 0 && near + far > fanout as usize)
            }
            _ => None,
        };
        let Some(fanout) = most else {
            // No preference: uniform draws.
            let kept = Uniform(self.to_draw).draw(vertex, key, scratch)?;
            let count = if let Kept::Picked(count) = kept { count } else { vertex.degree };
            scratch.factors.resize(scratch.factors.len() + count as usize, 1.0);
            return Ok(kept);
        };
        let draws = SideDraws::new(sides.each_ref().map(Vec::len), fanout, self.preferred.factor);
        // The picks of the two sides and the rounding have pages of the vertex's words each.
        let near = draws.near(key.page(vertex.id, 2).block(vertex.id, 0)[0]);
        for (side, (list, count)) in (0..).zip(sides.iter().zip([near, fanout as usize - near])) {
            match count {
                0 => {}
                all if all == list.len() => picks.places(all).copy_from_slice(list),
                some => {
                    floyd(
                        list.len() as u32,
                        some,
                        &key.page(vertex.id, side),
                        vertex.id,
                        seen,
                        picks,
                    );
                    picks.last(some).iter_mut().for_each(|pick| *pick = list[*pick as usize]);
                }
            }
        }
        let drawn = picks.last(fanout as usize);
        drawn.sort_unstable();
        let sources = &self.indices[vertex.start as usize..];
        let is_far =
            |offset: &u32| usize::from(!self.preferred.set.contains(sources[*offset as usize]));
        factors.extend(drawn.iter().map(|offset| draws.factors[is_far(offset)]));
        Ok(Kept::Picked(fanout))
    }
}

/// Distribution of the draws between the set and the others.
struct SideDraws {
    /// Expected draws from the set.
    expected: f64,
    /// Corrections of an edge from the set, and of another.
    factors: [f32; 2],
}

impl SideDraws {
    /// For `fanout` draws, fewer than the candidates, from a set of `near` that count `factor`
    /// times, and `far` others; neither is 0.
    fn new([near, far]: [usize; 2], fanout: u32, factor: f64) -> Self {
        let ([near, far], draws) = ([near, far].map(|count| count as f64), f64::from(fanout));
        let expected = (near * factor * draws / (near * factor + far)).min(near);
        let factor = |count: f64, expected: f64| (draws / (near + far) * count / expected) as f32;
        Self { expected, factors: [factor(near, expected), factor(far, draws - expected)] }
    }

    /// The number of draws from the set, given a random word.
    fn near(&self, word: u32) -> usize {
        let floor = self.expected.floor();
        floor as usize + usize::from(f64::from(word) < (self.expected - floor) * 4_294_967_296.0)
    }
}
