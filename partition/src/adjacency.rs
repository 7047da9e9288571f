//! The symmetrised graph, weighted, as METIS wants it.
//!
//! Returns, for every vertex that has a neighbour, its distinct neighbours in ascending order, each
//! with a weight. Self-loops are dropped; vertices without a neighbour have no row. Every pair is
//! in the rows of both ends with the same weight: the type is symmetric and free of loops by
//! construction, because METIS silently answers 0 for other graphs. Input: any topology that has
//! passed `check_indices` (duplicates allowed), and perhaps a count for each edge. Idea: the row of
//! each source ([`by_source`]) is merged with the in-neighbours of its vertex. Weight of a pair:
//! `1 + count`, where count sums u→v and v→u and all duplicates; the counts are scaled down where the
//! sum over the pairs would pass 2^30. Without counts every pair weighs 1. The 1 is there because
//! METIS takes no zero, and because an edge that was not sampled may still be. On six real and
//! generated graphs, k = 4 and 8, the share of cross edges in fresh mini-batches did not depend on
//! its size: `1 + s · count` gave the same for s from 0.1 to 256. Cost: O(n + m) except for sorting
//! rows, parallel; temporarily 8 bytes per edge and 16 per arc; 4 (weighted 8) bytes per arc in the
//! result.

use gsplit_store::Topology;
use rayon::prelude::*;

use crate::by_source::by_source;
use crate::repair::Neighbours;
use crate::{Error, Result};

/// Most vertices with a neighbour: their weights, at least 1 each, must stay below 2^30 with room
/// for proportions.
pub(crate) const MAX_VERTICES: usize = 1 << 28;
/// Most arcs.
pub(crate) const MAX_ARCS: u64 = i32::MAX as u64;
/// Bound of the sum of weights over all pairs, so that the sum over both directions is a 32-bit
/// number.
const MAX_WEIGHT: u64 = 1 << 30;

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
    /// Symmetrises `topology`. `counts` holds a number for each edge, in the order of the
    /// topology's indices.
    ///
    /// Fails on graphs beyond 2^31 - 1 arcs.
    pub fn build(topology: &Topology, counts: Option<&[u32]>) -> Result<Self> {
        let merge = |v: u32, outs: &[u64], rows: &mut Rows| {
            let edges = topology.indptr()[v as usize] as usize..;
            let ins = edges.zip(topology.in_neighbours(v)).filter(|&(_, &u)| u != v);
            let count = |e: usize| counts.map_or(0, |counts| u64::from(counts[e]));
            rows.both.clear();
            rows.both.extend(ins.map(|(e, &u)| u64::from(u) << 32 | count(e)));
            rows.both.extend_from_slice(outs);
            rows.both.sort();
            let before = rows.arcs.len();
            rows.arcs.extend(rows.both.chunk_by(|a, b| a >> 32 == b >> 32).map(|same| {
                let sum = same.iter().map(|&edge| u64::from(edge as u32)).sum();
                ((same[0] >> 32) as u32, sum)
            }));
            rows.degrees.push((rows.arcs.len() - before) as u32);
        };
        let mut found: Vec<Rows> = Vec::new();
        by_source(topology, counts, u64::MAX, merge, |rows| {
            found.extend(rows);
            Ok(())
        })?;
        let degrees = found.iter().flat_map(|rows| rows.degrees.iter().copied());
        let vertices: Vec<u32> =
            (0..).zip(degrees.clone()).filter(|&(_, degree)| degree > 0).map(|(v, _)| v).collect();
        let arcs = found.iter().map(|rows| rows.arcs.len() as u64).sum();
        if arcs > MAX_ARCS || vertices.len() > MAX_VERTICES {
            return Err(Error::TooLarge { vertices: vertices.len(), arcs });
        }
        let indptr = starts(degrees.clone().filter(|&degree| degree > 0));
        // How many of the vertices before each have a neighbour.
        let rows = starts(degrees.map(|degree| u32::from(degree > 0)));
        let each_arc = || found.par_iter().flat_map_iter(|rows| rows.arcs.iter().copied());
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

/// Rows that follow each other.
#[derive(Default)]
struct Rows {
    degrees: Vec<u32>,
    /// Each distinct neighbour, ascending in a row, with the sum of its counts.
    arcs: Vec<(u32, u64)>,
    /// The edges of a vertex in both directions, to work in.
    both: Vec<u64>,
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
