//! Detects whether each row of an edge table means an edge in both directions.
//!
//! One pass over the edges counts a sample of the pairs of vertices, chosen by their hashes: at
//! most 2^20 pairs and 2^20 vertices are in memory.

use std::collections::HashMap;
use std::hash::Hash;

use xxhash_rust::xxh3::xxh3_64;

use crate::Result;
use crate::edges::{EdgeSource, for_each_batch};

/// Maximum number of pairs, and of vertices, that are counted.
const MOST: usize = 1 << 20;
/// If at most this share of the pairs has edges in both directions, the edges are undirected.
const HARDLY_ANY: f64 = 0.05;
/// If at least this share of the sources or of the targets (of the fewer) are both, source and
/// target ids are of one kind.
const ONE_KIND: f64 = 0.1;

/// Sample of values, each with two flags.
struct Sample<T> {
    flags: HashMap<T, u8>,
    /// One hash in `every` is kept.
    every: u64,
}

impl<T: Copy + Eq + Hash> Sample<T> {
    fn new() -> Self {
        Self { flags: HashMap::new(), every: 1 }
    }

    fn add(&mut self, value: T, flag: u8, hash: impl Fn(T) -> u64) {
        if !hash(value).is_multiple_of(self.every) {
            return;
        }
        *self.flags.entry(value).or_default() |= flag;
        if self.flags.len() > MOST {
            self.every *= 2;
            let every = self.every;
            self.flags.retain(|&value, _| hash(value).is_multiple_of(every));
        }
    }

    /// Number of values that have all flags of `mask`.
    fn count(&self, mask: u8) -> f64 {
        self.flags.values().filter(|&&flags| flags & mask == mask).count() as f64
    }
}

/// The share of the pairs of vertices with edges in both directions if it is so small that each
/// edge means both directions, although sources and targets are of one kind. `None` if the edges
/// are directed.
pub fn undirected(edges: &dyn EdgeSource) -> Result<Option<f64>> {
    let (mut pairs, mut ends) = (Sample::new(), Sample::new());
    let of_pair = |(u, v): (u64, u64)| xxh3_64([u.to_le_bytes(), v.to_le_bytes()].as_flattened());
    let of_end = |v: u64| xxh3_64(&v.to_le_bytes());
    for_each_batch(edges, |batch| {
        for (&u, &v) in batch.sources.iter().zip(&batch.targets).filter(|(u, v)| u != v) {
            pairs.add((u.min(v), u.max(v)), if u < v { 1 } else { 2 }, of_pair);
            ends.add(u, 1, of_end);
            ends.add(v, 2, of_end);
        }
        Ok(())
    })?;
    edges.rewind()?;
    let both = pairs.count(3) / pairs.count(0).max(1.0);
    let fewer = ends.count(1).min(ends.count(2));
    let are_one_kind = fewer > 0.0 && ends.count(3) >= ONE_KIND * fewer;
    Ok(Some(both).filter(|&both| are_one_kind && both <= HARDLY_ANY))
}
