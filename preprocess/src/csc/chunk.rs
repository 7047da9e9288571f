//! The edges of one piece of the input, sorted into buckets of targets.
//!
//! Returns: a [`Chunk`] whose edges are ordered by bucket, and within a bucket in the input's
//! order. Idea: a counting sort by bucket. A bucket is a range of 2^shift target ids, so a target
//! is known by its low bits, 2 bytes, and an edge takes 6 bytes and its values. Cost: two passes
//! over the piece, which is small enough to stay in a core's cache.

use super::BuildOptions;
use crate::edges::EdgeBatch;

/// Most target ids of a bucket, as a power of two: the low bits of one fit `u16`.
pub const LARGEST_SHIFT: u32 = 16;

/// Edges in buckets.
#[derive(Debug)]
pub struct Chunk {
    /// Number of the piece of the input: smaller ones come first.
    pub number: u64,
    /// Non-empty buckets, ascending, and where each ends.
    pub ends: Vec<(u32, u32)>,
    /// Source of each edge.
    pub sources: Vec<u32>,
    /// The low bits of the target of each edge.
    pub targets: Vec<u16>,
    /// The values of each.
    pub values: Vec<u8>,
}

impl Chunk {
    /// Bytes that it holds, and that are held for each of its buckets when they are gathered.
    pub fn bytes(&self) -> u64 {
        const FOR_BUCKET: usize = 96;
        (self.ends.len() * FOR_BUCKET
            + self.sources.len() * 4
            + self.targets.len() * 2
            + self.values.len()) as u64
    }
}

/// Sorts batches into chunks; its buffers are used again for every batch.
pub struct Bucketer {
    shift: u32,
    options: BuildOptions,
    value_bytes: usize,
    /// Id of vertex 0.
    first: u64,
    cursors: Vec<u32>,
}

impl Bucketer {
    /// For buckets of 2^`shift` targets and edges with `value_bytes` of values each, whose ids
    /// count from `first`.
    pub fn new(shift: u32, options: BuildOptions, value_bytes: usize, first: u64) -> Self {
        Self { shift, options, value_bytes, first, cursors: Vec::new() }
    }

    /// The edges of `batch`, prepared as the options say, with their reverses and without
    /// self-loops. Ids range from `first` to `largest`, fewer than 2^32. Also returns the number of
    /// self-loops in the batch.
    pub fn sort(&mut self, number: u64, batch: &EdgeBatch, largest: u64) -> (Chunk, u64) {
        let (shift, reverse, keep_loops) =
            (self.shift, self.options.symmetrise, !self.options.drop_self_loops);
        let first = self.first;
        self.cursors.clear();
        self.cursors.resize((largest.saturating_sub(first) >> shift) as usize + 1, 0);
        let cursors = &mut self.cursors[..];
        let mut loops = 0;
        for (&u, &v) in batch.sources.iter().zip(&batch.targets) {
            let is_loop = u == v;
            loops += u64::from(is_loop);
            cursors[((v - first) >> shift) as usize] += u32::from(!is_loop | keep_loops);
            if reverse {
                cursors[((u - first) >> shift) as usize] += u32::from(!is_loop);
            }
        }
        let (ends, total) = starts_from_counts(cursors);
        let mut chunk = Chunk {
            number,
            ends,
            sources: vec![0; total],
            targets: vec![0; total],
            values: vec![0; total * self.value_bytes],
        };
        let mask = (1u64 << shift) - 1;
        let mut put = |u: u64, v: u64, edge: usize| {
            let (u, v) = (u - first, v - first);
            let cursor = &mut cursors[(v >> shift) as usize];
            let at = *cursor as usize;
            *cursor += 1;
            chunk.sources[at] = u as u32;
            chunk.targets[at] = (v & mask) as u16;
            if self.value_bytes > 0 {
                let (to, from) = (at * self.value_bytes, edge * self.value_bytes);
                chunk.values[to..to + self.value_bytes]
                    .copy_from_slice(&batch.values[from..from + self.value_bytes]);
            }
        };
        for (edge, (&u, &v)) in batch.sources.iter().zip(&batch.targets).enumerate() {
            if u != v {
                put(u, v, edge);
                if reverse {
                    put(v, u, edge);
                }
            } else if keep_loops {
                put(u, v, edge);
            }
        }
        (chunk, loops)
    }
}

/// Turns counts into starts. Returns the non-empty ranges' numbers and ends, and the sum.
fn starts_from_counts(counts: &mut [u32]) -> (Vec<(u32, u32)>, usize) {
    let mut ends = Vec::with_capacity(counts.iter().filter(|&&count| count > 0).count());
    let mut start = 0;
    for (bucket, count) in counts.iter_mut().enumerate() {
        let end = start + *count;
        if *count > 0 {
            ends.push((bucket as u32, end));
        }
        *count = start;
        start = end;
    }
    (ends, start as usize)
}
