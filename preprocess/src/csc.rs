//! Edges to compressed sparse columns.
//!
//! Returns: `indptr` and `indices` of the in-neighbours, ascending within a vertex.
//! Input: two equally long lists of vertex ids below the number of vertices.
//! Idea: a counting sort by target (count, prefix sums, scatter), then a small sort of every vertex's list, where
//! duplicates meet. Threads scatter into a vertex's range in any order; the sort afterwards makes the result the same
//! for any number of threads.
//! Cost: O(n + m) and the sorts of the lists; 12 bytes an edge (16 where edges are symmetrised) and 8 a vertex at the
//! peak.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gsplit_store::{Progress, Unit};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// What happens to the edges on the way.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, clap::Args)]
pub struct BuildOptions {
    /// Add the reverse of every edge, then merge duplicates
    #[arg(long)]
    pub symmetrise: bool,
    /// Leave out edges from a vertex to itself
    #[arg(long)]
    pub drop_self_loops: bool,
    /// Keep edges that occur several times, instead of merging them into one
    #[arg(long)]
    pub keep_duplicates: bool,
}

/// A graph in compressed sparse columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// `n + 1` offsets into [`Built::indices`].
    pub indptr: Vec<u64>,
    /// The in-neighbours of every vertex, ascending.
    pub indices: Vec<u32>,
    /// Edges left out because they lead from a vertex to itself.
    pub self_loops_dropped: u64,
    /// Edges left out because an equal one is kept; with `symmetrise`, counted after the reverses were added.
    pub duplicates_merged: u64,
}

/// Edges that a thread takes at a time.
const EDGES_PER_TASK: usize = 1 << 16;
/// Pieces that the vertices are cut into for sorting: enough for any number of threads.
const PIECES: u64 = 256;
/// From here on a vertex's list is sorted by several threads.
const LONG: usize = 1 << 16;

/// Builds the graph of the edges `sources[i] -> targets[i]`: the in-neighbours of `v` are
/// `indices[indptr[v]..indptr[v + 1]]`, ascending. Fails when an id is not below `num_vertices`.
pub fn build_csc(
    num_vertices: usize,
    sources: Vec<u32>,
    targets: Vec<u32>,
    options: BuildOptions,
    progress: &dyn Progress,
) -> Result<Built> {
    check(num_vertices, &sources, &targets)?;
    let given = sources.len() as u64;
    let stage = progress.stage("building the graph", Some(3 * given), Unit::Items("edges"));
    let cursors: Vec<AtomicU64> = (0..num_vertices).into_par_iter().map(|_| AtomicU64::new(0)).collect();

    let tasks = || sources.par_chunks(EDGES_PER_TASK).zip(targets.par_chunks(EDGES_PER_TASK));
    let self_loops = tasks().map(|(sources, targets)| {
        let mut loops = 0u64;
        for (&u, &v) in sources.iter().zip(targets) {
            loops += u64::from(u == v);
            for_each_copy(u, v, options, |_, v| {
                cursors[v as usize].fetch_add(1, Relaxed);
            });
        }
        stage.advance(sources.len() as u64);
        loops
    });
    let self_loops: u64 = self_loops.sum();

    let total = starts_from_counts(&cursors);
    let slots: Vec<AtomicU32> = (0..total as usize).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    tasks().for_each(|(sources, targets)| {
        for (&u, &v) in sources.iter().zip(targets) {
            for_each_copy(u, v, options, |u, v| {
                let slot = cursors[v as usize].fetch_add(1, Relaxed);
                slots[slot as usize].store(u, Relaxed);
            });
        }
        stage.advance(sources.len() as u64);
    });
    drop((sources, targets));

    // Every cursor has moved to the end of its vertex. Both conversions reuse the allocation.
    let ends: Vec<u64> = cursors.into_iter().map(AtomicU64::into_inner).collect();
    let indices: Vec<u32> = slots.into_iter().map(AtomicU32::into_inner).collect();
    let (indptr, indices) = sort_lists(ends, indices, options.keep_duplicates);
    stage.advance(given);
    Ok(Built {
        duplicates_merged: total - indices.len() as u64,
        indptr,
        indices,
        self_loops_dropped: if options.drop_self_loops { self_loops } else { 0 },
    })
}

fn check(num_vertices: usize, sources: &[u32], targets: &[u32]) -> Result<()> {
    if num_vertices > u32::MAX as usize {
        return Err(Error::Graph(format!(
            "{num_vertices} vertices; ids are 32-bit, so at most {} are supported",
            u32::MAX
        )));
    }
    if sources.len() != targets.len() {
        return Err(Error::Graph(format!(
            "{} sources and {} targets: expected one each per edge",
            sources.len(),
            targets.len()
        )));
    }
    for ids in [sources, targets] {
        if let Some(edge) = ids.par_iter().position_first(|&id| id as usize >= num_vertices) {
            return Err(Error::Graph(format!("edge {edge}: vertex {}, expected ids below {num_vertices}", ids[edge])));
        }
    }
    Ok(())
}

/// Calls `f` for the edge, unless it is a self-loop to be dropped, and for its reverse where one is to be added.
fn for_each_copy(u: u32, v: u32, options: BuildOptions, f: impl Fn(u32, u32)) {
    if u != v {
        f(u, v);
        if options.symmetrise {
            f(v, u);
        }
    } else if !options.drop_self_loops {
        f(u, v);
    }
}

/// Replaces every count by the sum of those before it. Returns the sum of all.
fn starts_from_counts(counts: &[AtomicU64]) -> u64 {
    counts.iter().fold(0, |start, count| start + count.swap(start, Relaxed))
}

/// Sorts every vertex's list, merges duplicates unless `keep`, and turns the ends of the lists into `indptr`.
fn sort_lists(mut ends: Vec<u64>, mut indices: Vec<u32>, keep: bool) -> (Vec<u64>, Vec<u32>) {
    let pieces = pieces(&ends, indices.len() as u64);
    let mut work = Vec::with_capacity(pieces.len());
    let (mut rest_ends, mut rest_indices, mut start) = (&mut ends[..], &mut indices[..], 0);
    for piece in &pieces {
        let (own_ends, later) = rest_ends.split_at_mut(piece.len());
        rest_ends = later;
        let end = own_ends.last().copied().unwrap_or(start);
        let (own_indices, later) = rest_indices.split_at_mut((end - start) as usize);
        rest_indices = later;
        work.push((own_ends, own_indices, start));
        start = end;
    }
    let spans: Vec<(usize, usize)> = work
        .into_par_iter()
        .map(|(ends, indices, start)| (start as usize, sort_piece(ends, indices, start, keep)))
        .collect();

    let mut kept = 0;
    for (start, length) in spans {
        indices.copy_within(start..start + length, kept);
        kept += length;
    }
    indices.truncate(kept);
    indices.shrink_to_fit();
    let mut indptr = Vec::with_capacity(ends.len() + 1);
    indptr.push(0);
    indptr.extend(ends.iter().scan(0, |end, degree| {
        *end += degree;
        Some(*end)
    }));
    (indptr, indices)
}

/// Cuts the vertices into ranges with about equally many edges.
fn pieces(ends: &[u64], num_edges: u64) -> Vec<Range<usize>> {
    let mut cuts: Vec<usize> = (1..PIECES)
        .map(|piece| {
            let edge = (u128::from(num_edges) * u128::from(piece) / u128::from(PIECES)) as u64;
            ends.partition_point(|&end| end <= edge)
        })
        .collect();
    cuts.push(ends.len());
    let mut from = 0;
    cuts.into_iter().map(|to| std::mem::replace(&mut from, to)..to).collect()
}

/// Sorts the lists of some vertices, whose first starts at `start`, and moves what is kept to the front. Replaces the
/// ends by degrees; returns how many are kept.
fn sort_piece(ends: &mut [u64], indices: &mut [u32], start: u64, keep: bool) -> usize {
    let (mut from, mut kept) = (0, 0);
    for end in ends {
        let to = (*end - start) as usize;
        let list = &mut indices[from..to];
        if list.len() >= LONG {
            list.par_sort_unstable()
        } else {
            list.sort_unstable()
        }
        let first = kept;
        for i in from..to {
            if keep || i == from || indices[i] != indices[kept - 1] {
                indices[kept] = indices[i];
                kept += 1;
            }
        }
        *end = (kept - first) as u64;
        from = to;
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gsplit_kernels::{Draws, Stream, StreamKey};
    use gsplit_store::NoProgress;

    use super::*;

    fn build(n: usize, edges: &[(u32, u32)], options: BuildOptions) -> Result<Built> {
        let (sources, targets) = edges.iter().copied().unzip();
        build_csc(n, sources, targets, options, &NoProgress)
    }

    /// The definition, edge by edge.
    fn oracle(n: usize, edges: &[(u32, u32)], options: BuildOptions) -> Built {
        let kept = edges.iter().filter(|(u, v)| u != v || !options.drop_self_loops).copied();
        let mut all: Vec<(u32, u32)> = kept.map(|(u, v)| (v, u)).collect();
        let self_loops_dropped = (edges.len() - all.len()) as u64;
        if options.symmetrise {
            let reverses: Vec<_> = all.iter().filter(|(v, u)| u != v).map(|&(v, u)| (u, v)).collect();
            all.extend(reverses);
        }
        all.sort();
        let before = all.len();
        if !options.keep_duplicates {
            all = BTreeSet::from_iter(all).into_iter().collect();
        }
        Built {
            indptr: (0..=n as u32).map(|v| all.iter().filter(|edge| edge.0 < v).count() as u64).collect(),
            indices: all.iter().map(|edge| edge.1).collect(),
            self_loops_dropped,
            duplicates_merged: (before - all.len()) as u64,
        }
    }

    fn every_option() -> impl Iterator<Item = BuildOptions> {
        (0..8).map(|bits| BuildOptions {
            symmetrise: bits & 1 != 0,
            drop_self_loops: bits & 2 != 0,
            keep_duplicates: bits & 4 != 0,
        })
    }

    #[test]
    fn oracle_random_graphs() {
        for (seed, (n, m)) in [(0, 0), (1, 0), (1, 5), (6, 9), (40, 300), (300, 40), (30, 3000)].into_iter().enumerate()
        {
            let mut draws = Draws::new(&StreamKey::new(seed as u64, Stream::Generate), 0);
            let edges: Vec<_> = (0..m).map(|_| (draws.below(n), draws.below(n))).collect();
            for options in every_option() {
                let built = build(n as usize, &edges, options).unwrap();
                assert_eq!(built, oracle(n as usize, &edges, options), "seed {seed}, {options:?}");
            }
        }
    }

    #[test]
    fn differential_one_and_many_threads() {
        let mut draws = Draws::new(&StreamKey::new(9, Stream::Generate), 0);
        // A hub receives a third of the edges, so that pieces are uneven and its list is sorted in parallel.
        let edge =
            |draws: &mut Draws| (draws.below(200_000), if draws.below(3) == 0 { 3 } else { draws.below(20_000) });
        let mut key = 0;
        let mut edges: Vec<(u32, u32)> = Vec::new();
        while edges.len() < 300_000 {
            edges.extend((0..50_000).map(|_| edge(&mut draws)));
            key += 1;
            draws = Draws::new(&StreamKey::new(9, Stream::Generate), key);
        }
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| build(200_000, &edges, BuildOptions { symmetrise: true, ..Default::default() }).unwrap())
        };
        let (one, many) = (run(1), run(5));
        assert!(one == many);
        assert!(one.indptr[4] - one.indptr[3] > LONG as u64);
    }

    #[test]
    fn ids_out_of_range_are_named() {
        let error = build(6, &[(0, 1), (2, 6)], BuildOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "edge 1: vertex 6, expected ids below 6");
    }
}
