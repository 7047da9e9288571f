//! The symmetrised graph, weighted, as METIS wants it.
//!
//! Returns, for every vertex that has a neighbour, its distinct neighbours in ascending order, each
//! with a weight. Self-loops are dropped; vertices without a neighbour have no row. Every pair is
//! in the rows of both ends with the same weight: the type is symmetric and free of loops by
//! construction, because METIS silently answers 0 for other graphs. Input: any topology that has
//! passed `check_indices` (duplicates allowed), and perhaps a count for each edge. Idea: scatter
//! the edges into the rows of their sources (the transpose), sort those rows, and merge each with
//! the in-neighbours of its vertex. Weight of a pair: 1 + count, where count sums u→v and v→u and
//! all duplicates; the counts are scaled down where the sum over the pairs would pass 2^30. Without
//! counts every pair weighs 1. The 1 is there because METIS takes no zero, and because an edge that
//! was not sampled may still be. On six real and generated graphs, k = 4 and 8, the share of cross
//! edges in fresh mini-batches did not depend on its size: 1 + s · count gave the same for s from
//! 0.1 to 256. Cost: O(n + m) except for sorting rows, parallel; temporarily 8 bytes per edge and
//! 16 per arc; 4 (weighted 8) bytes per arc in the result.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_store::Topology;
use rayon::prelude::*;

use crate::repair::Neighbours;
use crate::{Error, Result};

/// Most vertices with a neighbour: their weights, at least 1 each, must stay below 2^30 with room
/// for proportions.
pub(crate) const MAX_VERTICES: usize = 1 << 28;
/// Most arcs.
const MAX_ARCS: u64 = i32::MAX as u64;
/// Bound of the sum of weights over all pairs, so that the sum over both directions is a 32-bit
/// number.
const MAX_WEIGHT: u64 = 1 << 30;
/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 1024;

/// An undirected graph in compressed rows with 32-bit signed numbers. A row is not a vertex: see
/// [`Adjacency::vertices`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjacency {
    vertices: Vec<u32>,
    indptr: Vec<i32>,
    indices: Vec<i32>,
    weights: Option<Vec<i32>>,
}

impl Adjacency {
    /// Arcs of the symmetrised graph: twice the number of adjacent pairs. Cost: O(m log d),
    /// parallel, no memory.
    pub fn count_arcs(topology: &Topology) -> u64 {
        // A pair is counted at its first mention: in the row of the larger end, or of the smaller
        // when the larger has none.
        let pairs_of = |v: u32| {
            let row = topology.in_neighbours(v);
            let first = |at: usize| at == 0 || row[at - 1] != row[at];
            let mentioned = |u: u32| u > v && topology.in_neighbours(u).binary_search(&v).is_ok();
            let pairs =
                (0..row.len()).filter(|&at| row[at] != v && first(at) && !mentioned(row[at]));
            pairs.count() as u64
        };
        let vertices =
            (0..topology.num_vertices() as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
        2 * vertices.map(pairs_of).sum::<u64>()
    }

    /// Fails on graphs of more arcs than METIS takes, before memory is spent on them.
    pub fn check_size(topology: &Topology) -> Result<()> {
        // Every edge is two arcs at most. Counting them takes time.
        let few = 2 * topology.num_edges() as u64 <= MAX_ARCS;
        let arcs = if few { 0 } else { Self::count_arcs(topology) };
        match arcs > MAX_ARCS {
            true => Err(Error::TooLarge { vertices: topology.num_vertices(), arcs }),
            false => Ok(()),
        }
    }

    /// Symmetrises `topology`. `counts` holds a number for each edge, in the order of the
    /// topology's indices.
    ///
    /// Fails on graphs beyond 2^31 - 1 arcs.
    pub fn build(topology: &Topology, counts: Option<&[u32]>) -> Result<Self> {
        let n = topology.num_vertices();
        let edges = BothWays { topology, counts, reversed: EdgesBySource::build(topology, counts) };
        let firsts: Vec<usize> = (0..n).step_by(ROWS_PER_TASK).collect();
        let rows_from = |first: usize| {
            let (mut degrees, mut arcs, mut outs) = (Vec::new(), Vec::new(), Vec::new());
            for v in first..n.min(first + ROWS_PER_TASK) {
                let before = arcs.len();
                edges.each_neighbour(v as u32, &mut outs, |neighbour, count| {
                    arcs.push((neighbour, count))
                });
                degrees.push((arcs.len() - before) as u32);
            }
            (degrees, arcs)
        };
        let found: Vec<_> = firsts.into_par_iter().map(rows_from).collect();
        drop(edges);
        let degrees = found.iter().flat_map(|(degrees, _)| degrees.iter().copied());
        let vertices: Vec<u32> =
            (0..).zip(degrees.clone()).filter(|&(_, degree)| degree > 0).map(|(v, _)| v).collect();
        let arcs = found.iter().map(|(_, arcs)| arcs.len() as u64).sum();
        if arcs > MAX_ARCS || vertices.len() > MAX_VERTICES {
            return Err(Error::TooLarge { vertices: vertices.len(), arcs });
        }
        let indptr = starts(degrees.clone().filter(|&degree| degree > 0));
        // How many of the vertices before each have a neighbour.
        let rows = starts(degrees.map(|degree| u32::from(degree > 0)));
        let each_arc = || found.par_iter().flat_map_iter(|(_, arcs)| arcs.iter().copied());
        let indices = each_arc().map(|(neighbour, _)| rows[neighbour as usize]).collect();
        let scale = counts.map(|counts| count_scale(counts, arcs / 2));
        let weight = |scale: f64| move |(_, count)| 1 + (count as f64 * scale) as i32;
        let weights = scale.map(|scale| each_arc().map(weight(scale)).collect());
        Ok(Self { vertices, indptr, indices, weights })
    }

    /// The vertex of each row, ascending: all vertices that have a neighbour.
    pub fn vertices(&self) -> &[u32] {
        &self.vertices
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.vertices.len()
    }

    /// One offset per row, and the number of arcs.
    pub fn indptr(&self) -> &[i32] {
        &self.indptr
    }

    /// The rows of each row's neighbours.
    pub fn indices(&self) -> &[i32] {
        &self.indices
    }

    /// One weight per arc, at least 1; `None` when every arc weighs 1.
    pub fn weights(&self) -> Option<&[i32]> {
        self.weights.as_deref()
    }

    /// The neighbours of `row` with their weights.
    pub fn neighbours(&self, row: usize) -> impl Iterator<Item = (usize, i64)> {
        let arcs = self.indptr[row] as usize..self.indptr[row + 1] as usize;
        arcs.map(|arc| {
            let weight = self.weights.as_ref().map_or(1, |weights| i64::from(weights[arc]));
            (self.indices[arc] as usize, weight)
        })
    }

    /// Sum of the weights of the pairs whose ends are in different parts.
    pub fn cut(&self, parts: &[u16]) -> u64 {
        let cut_of = |row: usize| {
            let others = self.neighbours(row).filter(|&(other, _)| parts[other] != parts[row]);
            others.map(|(_, weight)| weight as u64).sum::<u64>()
        };
        (0..self.num_rows()).into_par_iter().map(cut_of).sum::<u64>() / 2
    }
}

impl Neighbours for Adjacency {
    fn each_neighbour(&self, v: u32, visit: &mut dyn FnMut(u32, u64)) {
        if let Ok(row) = self.vertices.binary_search(&v) {
            self.neighbours(row)
                .for_each(|(other, weight)| visit(self.vertices[other], weight as u64));
        }
    }
}

/// The edges by both of their ends.
struct BothWays<'a> {
    topology: &'a Topology,
    counts: Option<&'a [u32]>,
    reversed: EdgesBySource,
}

impl BothWays<'_> {
    /// Visits every distinct neighbour of `v`, ascending, with the sum of its counts. `sorted` is
    /// memory to work in.
    fn each_neighbour(&self, v: u32, sorted: &mut Vec<u64>, mut visit: impl FnMut(u32, u64)) {
        let (start, end) =
            (self.topology.indptr()[v as usize], self.topology.indptr()[v as usize + 1]);
        let count = |e: u64| self.counts.map_or(0, |counts| counts[e as usize]);
        let ins = (start..end).map(|e| (self.topology.indices()[e as usize], count(e)));
        let mut ins = ins.filter(|&(u, _)| u != v).peekable();
        // The scatter left them in the order of its threads.
        sorted.clear();
        sorted.extend_from_slice(self.reversed.of(v));
        sorted.sort_unstable();
        let mut outs =
            sorted.iter().map(|&packed| ((packed >> 32) as u32, packed as u32)).peekable();
        loop {
            let next = match (ins.peek(), outs.peek()) {
                (Some(a), Some(b)) => a.0.min(b.0),
                (Some(one), None) | (None, Some(one)) => one.0,
                (None, None) => return,
            };
            let mut sum = 0;
            while let Some((_, count)) = ins.next_if(|&(u, _)| u == next) {
                sum += u64::from(count);
            }
            while let Some((_, count)) = outs.next_if(|&(u, _)| u == next) {
                sum += u64::from(count);
            }
            visit(next, sum);
        }
    }
}

/// The edges by their source: row `u` holds (v, count) for every edge u→v but loops.
struct EdgesBySource {
    ends: Vec<u64>,
    edges: Vec<u64>,
}

impl EdgesBySource {
    fn build(topology: &Topology, counts: Option<&[u32]>) -> Self {
        let n = topology.num_vertices();
        let cursors: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
        let each_edge = |visit: &(dyn Fn(u32, u32, usize) + Sync)| {
            (0..n as u32).into_par_iter().with_min_len(ROWS_PER_TASK).for_each(|v| {
                let start = topology.indptr()[v as usize] as usize;
                let others = topology.in_neighbours(v).iter().enumerate().filter(|&(_, &u)| u != v);
                others.for_each(|(i, &u)| visit(u, v, start + i));
            });
        };
        each_edge(&|u, _, _| {
            cursors[u as usize].fetch_add(1, Relaxed);
        });
        let mut total = 0;
        for cursor in &cursors {
            total += cursor.swap(total, Relaxed);
        }
        let slots: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
        each_edge(&|u, v, e| {
            let slot = cursors[u as usize].fetch_add(1, Relaxed);
            slots[slot as usize].store(
                u64::from(v) << 32 | u64::from(counts.map_or(0, |counts| counts[e])),
                Relaxed,
            );
        });
        // Each cursor has moved to the end of its row.
        let ends: Vec<u64> = cursors.into_iter().map(AtomicU64::into_inner).collect();
        Self { ends, edges: slots.into_iter().map(AtomicU64::into_inner).collect() }
    }

    fn of(&self, u: u32) -> &[u64] {
        let u = u as usize;
        let start = if u == 0 { 0 } else { self.ends[u - 1] };
        &self.edges[start as usize..self.ends[u] as usize]
    }
}

/// Factor of the counts that keeps the sum of weights in bounds.
fn count_scale(counts: &[u32], pairs: u64) -> f64 {
    let total: u64 = counts.par_iter().map(|&count| u64::from(count)).sum();
    f64::min(1.0, (MAX_WEIGHT - pairs.min(MAX_WEIGHT)) as f64 / total.max(1) as f64)
}

/// The start of each of `lengths`, and the end of all.
fn starts(lengths: impl Iterator<Item = u32>) -> Vec<i32> {
    let mut end = 0;
    let ends = lengths.map(|length| {
        end += length as i32;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests;
