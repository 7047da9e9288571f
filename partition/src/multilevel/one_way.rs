//! The edges by their source, for topologies that hold one direction only.
//!
//! Returns, for every vertex u, the heads v of its out-edges u→v, ascending and distinct, without loops and without those
//! where v→u is an edge too: the in-neighbours of u name these. Cost: O(m) and sorting rows, parallel; 4 bytes an edge
//! and 8 a vertex.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gsplit_store::Topology;
use rayon::prelude::*;

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 1024;

/// Rows of heads.
pub(super) struct OneWayEdges {
    starts: Vec<u64>,
    heads: Vec<u32>,
}

impl OneWayEdges {
    /// Turns the one-way edges of `topology` round.
    pub fn one_way(topology: &Topology) -> Self {
        let (ends, mut heads) = scatter(topology);
        let start_of = |u: usize| if u == 0 { 0 } else { ends[u - 1] };
        let rows = split_rows(&ends, &mut heads);
        let lengths = rows.into_par_iter().map(|(first, ends, mine)| {
            let base = start_of(first);
            let mut start = base;
            let keep = |(u, &end): (usize, &u64)| {
                let row = &mut mine[(start - base) as usize..(end - base) as usize];
                start = end;
                row.sort_unstable();
                keep_one_way(row, topology.in_neighbours((first + u) as u32), (first + u) as u32)
            };
            ends.iter().enumerate().map(keep).collect::<Vec<u32>>()
        });
        let lengths: Vec<u32> = lengths.collect::<Vec<_>>().concat();

        let mut starts = Vec::with_capacity(lengths.len() + 1);
        let mut at = 0;
        for (u, &length) in lengths.iter().enumerate() {
            let from = start_of(u) as usize;
            heads.copy_within(from..from + length as usize, at);
            starts.push(at as u64);
            at += length as usize;
        }
        starts.push(at as u64);
        heads.truncate(at);
        heads.shrink_to_fit();
        Self { starts, heads }
    }

    /// The heads of `u`.
    pub fn of(&self, u: u32) -> &[u32] {
        &self.heads[self.start(u)..self.start(u + 1)]
    }

    /// Start of the heads of `u` among all.
    pub fn start(&self, u: u32) -> usize {
        self.starts[u as usize] as usize
    }

    /// One offset per vertex, and the number of heads.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Number of heads.
    pub fn len(&self) -> u64 {
        self.heads.len() as u64
    }
}

/// Heads by source in no order, and the end of each source's.
fn scatter(topology: &Topology) -> (Vec<u64>, Vec<u32>) {
    let n = topology.num_vertices();
    let cursors: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
    let each_edge = |visit: &(dyn Fn(u32, u32) + Sync)| {
        (0..n as u32).into_par_iter().with_min_len(ROWS_PER_TASK).for_each(|v| {
            topology.in_neighbours(v).iter().filter(|&&u| u != v).for_each(|&u| visit(u, v));
        });
    };
    each_edge(&|u, _| {
        cursors[u as usize].fetch_add(1, Relaxed);
    });
    let mut total = 0;
    for cursor in &cursors {
        total += cursor.swap(total, Relaxed);
    }
    let slots: Vec<AtomicU32> = (0..total).map(|_| AtomicU32::new(0)).collect();
    each_edge(&|u, v| {
        let slot = cursors[u as usize].fetch_add(1, Relaxed);
        slots[slot as usize].store(v, Relaxed);
    });
    // Each cursor has moved to the end of its row.
    let ends = cursors.into_iter().map(AtomicU64::into_inner).collect();
    (ends, slots.into_iter().map(AtomicU32::into_inner).collect())
}

/// Runs of rows, each with its first row, the ends of its rows, and its stretch of the heads.
fn split_rows<'a>(ends: &'a [u64], mut heads: &'a mut [u32]) -> Vec<(usize, &'a [u64], &'a mut [u32])> {
    let (mut start, mut runs) = (0, Vec::with_capacity(ends.len() / ROWS_PER_TASK + 1));
    for (run, ends) in ends.chunks(ROWS_PER_TASK).enumerate() {
        let end = ends.last().copied().unwrap_or(start);
        let (mine, rest) = heads.split_at_mut((end - start) as usize);
        runs.push((run * ROWS_PER_TASK, ends, mine));
        (heads, start) = (rest, end);
    }
    runs
}

/// Moves the distinct elements of the sorted `row` that `inward`, sorted too, does not name to its front; how many.
fn keep_one_way(row: &mut [u32], inward: &[u32], own: u32) -> u32 {
    let (mut kept, mut at) = (0, 0);
    let mut previous = own;
    for i in 0..row.len() {
        let head = row[i];
        at += inward[at..].partition_point(|&u| u < head).min(inward.len() - at);
        if head != previous && inward.get(at) != Some(&head) {
            row[kept] = head;
            kept += 1;
        }
        previous = head;
    }
    kept as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tests::graphs;

    #[test]
    fn oracle_one_way_edges_by_their_source() {
        for graph in graphs() {
            let dataset = graph.dataset();
            let topology = dataset.topology();
            let reversed = OneWayEdges::one_way(topology);
            for u in 0..topology.num_vertices() as u32 {
                let is_edge = |from: u32, to: u32| topology.in_neighbours(to).contains(&from);
                let heads = (0..topology.num_vertices() as u32).filter(|&v| u != v && is_edge(u, v) && !is_edge(v, u));
                assert_eq!(
                    reversed.of(u),
                    heads.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
                    "{}",
                    graph.name
                );
            }
        }
    }
}
