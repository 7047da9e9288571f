//! Weights of arcs in one byte each, made of the counters of both directions.
//!
//! The weight of a pair {u, v} is 1 + s · count, where count sums the counters of u→v and v→u, duplicates included, and s
//! is at most 1, smaller where the largest weight would pass [`MAX`]. A byte is a number of four binary digits after the
//! first and four of exponent: exact up to 31, else off by at most 1/32. The cut that the report states is exact.
//! Cost: one pass over the topology in the order of the rows, with a cursor into every other row: O(n + m), parallel by
//! ranges of rows; 8 bytes a vertex and range while at work, a byte an arc to keep.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use gsplit_store::Topology;
use rayon::prelude::*;

use super::one_way::OneWayEdges;

/// Largest weight there is.
const MAX: u32 = 31 << 14;
/// Ranges of rows at most: each has a cursor for every vertex.
const MAX_RANGES: usize = 8;

/// Weight that each byte stands for.
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

/// The weight that a byte stands for.
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

/// Weights of arcs.
#[derive(Debug, Default)]
pub(super) struct ArcWeights(Vec<u8>);

impl ArcWeights {
    /// The weights of `length` arcs from `start`, to [`decode`].
    #[inline]
    pub fn bytes(&self, start: usize, length: usize) -> &[u8] {
        &self.0[start..start + length]
    }
}

/// Counters by edge, and what they are multiplied with.
pub(super) struct EdgeCounts<'a> {
    topology: &'a Topology,
    counts: &'a [u32],
    scale: f64,
}

impl<'a> EdgeCounts<'a> {
    /// `counts` holds a number for each edge of `topology`.
    pub fn new(topology: &'a Topology, counts: &'a [u32]) -> Self {
        let most = counts.par_iter().copied().max().unwrap_or(0);
        let scale = f64::min(1.0, f64::from(MAX - 1) / (2.0 * f64::from(most.max(1))));
        Self { topology, counts, scale }
    }

    /// Weights of the arcs of a symmetric topology. As rows ascend, the other direction of an edge is the next of its
    /// source's row: its counter is sent there, in one byte, so that little memory is reached for out of order.
    pub fn pack_symmetric(&self) -> ArcWeights {
        let (indptr, indices) = (self.topology.indptr(), self.topology.indices());
        let received: Vec<AtomicU8> = (0..indices.len()).map(|_| AtomicU8::new(0)).collect();
        let ranges = ranges_of(indptr.len() - 1, rayon::current_num_threads().min(MAX_RANGES));
        ranges.collect::<Vec<_>>().into_par_iter().for_each(|range| {
            let mut cursors = self.cursors(range.start);
            for e in indptr[range.start] as usize..indptr[range.end] as usize {
                let cursor = &mut cursors[indices[e] as usize];
                received[*cursor as usize].store(encode(self.scaled(u64::from(self.counts[e]))), Relaxed);
                *cursor += 1;
            }
        });
        let mut bytes: Vec<u8> = received.into_iter().map(AtomicU8::into_inner).collect();
        bytes.par_iter_mut().zip(self.counts).for_each(|(byte, &count)| {
            // Rounded as the other direction's, or the two arcs of a pair could weigh differently.
            *byte = encode(1 + decode(*byte) + decode(encode(self.scaled(u64::from(count)))));
        });
        ArcWeights(bytes)
    }

    fn scaled(&self, count: u64) -> u32 {
        (count as f64 * self.scale) as u32
    }

    /// For each vertex, the first edge of its row whose target is `first` or later.
    fn cursors(&self, first: usize) -> Vec<u64> {
        let indptr = self.topology.indptr();
        if first == 0 {
            return indptr[..indptr.len() - 1].to_vec();
        }
        let later = |u: u32| self.topology.in_neighbours(u).partition_point(|&v| (v as usize) < first) as u64;
        (0..self.topology.num_vertices() as u32).map(|u| indptr[u as usize] + later(u)).collect()
    }

    /// Weights of the topology's own arcs.
    pub fn pack(&self) -> ArcWeights {
        let row = |v: u32| self.topology.in_neighbours(v);
        self.pack_rows(&row, self.topology.indptr(), true)
    }

    /// Weights of the outward arcs.
    pub fn pack_outwards(&self, outwards: &OneWayEdges) -> ArcWeights {
        self.pack_rows(&|v| outwards.of(v), outwards.starts(), false)
    }

    /// Weights of the arcs in `rows`, which begin at `starts`: of the edges u→v of the row of v where `inward`, and of v→u.
    fn pack_rows<'r>(&self, rows: &(dyn Fn(u32) -> &'r [u32] + Sync), starts: &[u64], inward: bool) -> ArcWeights {
        let n = starts.len() - 1;
        let mut bytes = vec![0; starts[n] as usize];
        let mut ranges = Vec::new();
        let mut rest = &mut bytes[..];
        for range in ranges_of(n, rayon::current_num_threads().min(MAX_RANGES)) {
            let (mine, others) = rest.split_at_mut((starts[range.end] - starts[range.start]) as usize);
            ranges.push((range, mine));
            rest = others;
        }
        ranges.into_par_iter().for_each(|(range, bytes)| self.pack_range(rows, starts, inward, range, bytes));
        ArcWeights(bytes)
    }

    fn pack_range<'r>(
        &self,
        rows: &(dyn Fn(u32) -> &'r [u32] + Sync),
        starts: &[u64],
        inward: bool,
        range: Range<usize>,
        bytes: &mut [u8],
    ) {
        let (indptr, indices) = (self.topology.indptr(), self.topology.indices());
        let mut cursors = self.cursors(range.start);
        let base = starts[range.start];
        for v in range {
            let row = rows(v as u32);
            let start = (starts[v] - base) as usize;
            for (i, &u) in row.iter().enumerate() {
                if i > 0 && row[i - 1] == u {
                    continue;
                }
                let mut count = 0;
                if inward {
                    let same = row[i..].iter().take_while(|&&other| other == u).count();
                    let e = starts[v] as usize + i;
                    count += self.counts[e..e + same].iter().map(|&count| u64::from(count)).sum::<u64>();
                }
                let (mut e, end) = (cursors[u as usize] as usize, indptr[u as usize + 1] as usize);
                while e < end && indices[e] as usize <= v {
                    count += if indices[e] as usize == v { u64::from(self.counts[e]) } else { 0 };
                    e += 1;
                }
                cursors[u as usize] = e as u64;
                bytes[start + i] = encode(1 + self.scaled(count));
            }
        }
    }
}

/// `parts` ranges that cover 0 to `n`.
fn ranges_of(n: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    (0..parts).map(move |part| n * part / parts..n * (part + 1) / parts)
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
