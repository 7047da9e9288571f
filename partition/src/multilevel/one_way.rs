//! The edges by their source, and the weights of the arcs that they make.
//!
//! Returns, for every vertex u, the heads v of its out-edges u→v, ascending and distinct, without
//! loops and without those where v→u is an edge too: the in-neighbours of u name these. With
//! counts, also a weight for each arc, of the topology's own edges and of the outward ones: see
//! [`arc_weights`](super::arc_weights). Idea: a range of sources at a time, as many as their edges
//! fit the memory: all edges are read in order, those from the range are scattered into its rows,
//! each row is sorted and merged with the in-neighbours of its vertex. So an edge and the one the
//! other way meet, and nothing is looked up out of order but the rows of the range. Cost: O(m) a
//! range and sorting rows, parallel; 8 bytes an edge of the range and 8 a vertex while at work, 4 a
//! one-way edge, a byte an arc with counts and 8 a vertex to keep.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gsplit_store::{Topology, out_degrees};
use rayon::prelude::*;

use super::arc_weights::EdgeCounts;
use super::kept::{Keeper, Kept};
use crate::Result;

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 1024;
/// Bytes of an edge while its range is handled.
const BYTES_AT_WORK: u64 = 8;

/// Rows of heads, and weights.
pub(super) struct OneWayEdges {
    starts: Vec<u64>,
    heads: Kept<u32>,
    /// Weights of the topology's edges and of the heads, each as a byte; none without counts.
    pub weights: Option<(Kept<u8>, Kept<u8>)>,
}

impl OneWayEdges {
    /// Reverses the one-way edges of `topology`, in about `memory` bytes besides the result, which
    /// is in a file in `folder` if that is given.
    pub fn turn(
        topology: &Topology,
        counts: Option<&EdgeCounts<'_>>,
        memory: u64,
        folder: Option<&Path>,
    ) -> Result<Self> {
        let mut heads = Keeper::new(folder)?;
        let mut weights = counts
            .map(|_| Ok::<_, crate::Error>((Keeper::new(folder)?, Keeper::new(folder)?)))
            .transpose()?;
        let mut starts = Vec::with_capacity(topology.num_vertices() + 1);
        starts.push(0);
        let mut end = 0;
        for (range, degrees) in ranges(topology, memory) {
            for rows in (Turning { topology, counts, range }).rows(&degrees) {
                heads.push(&rows.heads)?;
                if let Some((inward, outward)) = &mut weights {
                    inward.push(&rows.inward)?;
                    outward.push(&rows.outward)?;
                }
                starts.extend(rows.lengths.iter().map(|&length| {
                    end += u64::from(length);
                    end
                }));
            }
        }
        let weights = weights
            .map(|(inward, outward)| Ok::<_, crate::Error>((inward.finish()?, outward.finish()?)));
        Ok(Self { starts, heads: heads.finish()?, weights: weights.transpose()? })
    }

    /// The heads of `u`.
    #[inline]
    pub fn of(&self, u: u32) -> &[u32] {
        &self.heads[self.start(u)..self.start(u + 1)]
    }

    /// Start of the heads of `u` among all.
    #[inline]
    pub fn start(&self, u: u32) -> usize {
        self.starts[u as usize] as usize
    }

    /// Number of heads.
    pub fn len(&self) -> u64 {
        self.heads.len() as u64
    }
}

/// Ranges of sources whose edges take at most `memory` bytes, if it is not one source, with the
/// out-degrees of each.
fn ranges(topology: &Topology, memory: u64) -> impl Iterator<Item = (Range<usize>, Vec<u32>)> {
    let most = (memory / BYTES_AT_WORK).min(u64::from(u32::MAX));
    let degrees = out_degrees(topology.num_vertices(), topology.indices());
    let mut first = 0;
    std::iter::from_fn(move || {
        let mut edges = 0;
        let fits = |&&degree: &&u32| {
            edges += u64::from(degree);
            edges <= most
        };
        let fitting = degrees[first..].iter().take_while(fits).count();
        let range = first..(first + fitting.max(1)).min(degrees.len());
        first = range.end;
        (!range.is_empty()).then(|| (range.clone(), degrees[range].to_vec()))
    })
}

/// A range of sources whose edges are turned round.
struct Turning<'a> {
    topology: &'a Topology,
    counts: Option<&'a EdgeCounts<'a>>,
    range: Range<usize>,
}

/// Rows of some sources that follow each other.
#[derive(Default)]
struct Turned {
    lengths: Vec<u32>,
    heads: Vec<u32>,
    inward: Vec<u8>,
    outward: Vec<u8>,
}

impl Turning<'_> {
    /// The rows of all sources of the range, which have at most this number of out-edges each, in
    /// order.
    fn rows(&self, degrees: &[u32]) -> Vec<Turned> {
        let (ends, mut edges) = self.scatter(degrees);
        let mut tasks = Vec::with_capacity(ends.len() / ROWS_PER_TASK + 1);
        let (mut rest, mut start) = (&mut edges[..], 0);
        for (task, (ends, degrees)) in
            ends.chunks(ROWS_PER_TASK).zip(degrees.chunks(ROWS_PER_TASK)).enumerate()
        {
            let slots = degrees.iter().map(|&degree| degree as usize).sum::<usize>();
            let (mine, others) = rest.split_at_mut(slots);
            tasks.push((self.range.start + task * ROWS_PER_TASK, start, ends, degrees, mine));
            (rest, start) = (others, start + slots as u32);
        }
        let turned = tasks.into_par_iter().map(|(first, base, ends, degrees, slots)| {
            let (mut turned, mut start) = (Turned::default(), 0);
            for (u, (&end, &degree)) in (first as u32..).zip(ends.iter().zip(degrees)) {
                // A loop leaves its slot at the end of the row free.
                let row = &mut slots[start..(end - base) as usize];
                row.sort_unstable();
                self.merge(u, row, &mut turned);
                start += degree as usize;
            }
            turned
        });
        turned.collect()
    }

    /// The edges from the range by their sources, each a head and above it the edge's count, and
    /// the end of each source's.
    fn scatter(&self, degrees: &[u32]) -> (Vec<u32>, Vec<u64>) {
        let mut total = 0;
        let start = |&degree: &u32| {
            let start = total;
            total += degree;
            AtomicU32::new(start)
        };
        let cursors: Vec<AtomicU32> = degrees.iter().map(start).collect();
        let slots: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
        let vertices =
            (0..self.topology.num_vertices() as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
        vertices.for_each(|v| {
            let first = self.topology.indptr()[v as usize] as usize;
            for (e, &u) in (first..).zip(self.topology.in_neighbours(v)) {
                let at = (u as usize).wrapping_sub(self.range.start);
                if at < cursors.len() && u != v {
                    let slot = cursors[at].fetch_add(1, Relaxed);
                    let count = self.counts.map_or(0, |counts| counts.of(e));
                    slots[slot as usize].store(u64::from(v) << 32 | u64::from(count), Relaxed);
                }
            }
        });
        // Each cursor has moved to the end of its row.
        let ends = cursors.into_iter().map(AtomicU32::into_inner).collect();
        (ends, slots.into_iter().map(AtomicU64::into_inner).collect())
    }

    /// Adds the row of `u`, whose out-edges `outs` and in-neighbours both ascend, to `turned`.
    fn merge(&self, u: u32, outs: &[u64], turned: &mut Turned) {
        let (before, mut outs) = (turned.heads.len(), outs.iter().copied().peekable());
        let head = |packed: u64| (packed >> 32) as u32;
        let outward_to = |next: u32, turned: &mut Turned, outs: &mut std::iter::Peekable<_>| {
            while let Some(packed) = outs.next_if(|&packed| head(packed) < next) {
                let mut count = packed & u64::from(u32::MAX);
                while let Some(same) = outs.next_if(|&other| head(other) == head(packed)) {
                    count += same & u64::from(u32::MAX);
                }
                turned.heads.push(head(packed));
                turned.outward.extend(self.counts.map(|counts| counts.weigh(count)));
            }
        };
        let (row, start) =
            (self.topology.in_neighbours(u), self.topology.indptr()[u as usize] as usize);
        let mut i = 0;
        while i < row.len() {
            let (w, first) = (row[i], i);
            let mut count = 0;
            while i < row.len() && row[i] == w {
                count += self.counts.map_or(0, |counts| u64::from(counts.of(start + i)));
                i += 1;
            }
            outward_to(w, turned, &mut outs);
            while let Some(packed) = outs.next_if(|&packed| head(packed) == w) {
                count += packed & u64::from(u32::MAX);
            }
            if let Some(counts) = self.counts {
                // Of an edge that is repeated the first mention weighs all.
                turned.inward.push(counts.weigh(count));
                turned.inward.resize(turned.inward.len() + (i - first - 1), 0);
            }
        }
        outward_to(u32::MAX, turned, &mut outs);
        turned.lengths.push((turned.heads.len() - before) as u32);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tests::graphs;

    #[test]
    fn oracle_one_way_edges_by_their_source() {
        let folder = tempfile::tempdir().unwrap();
        for graph in graphs() {
            let dataset = graph.dataset();
            let topology = dataset.topology();
            let is_edge = |from: u32, to: u32| topology.in_neighbours(to).contains(&from);
            // At once, and a few edges at a time into a file.
            for (memory, folder) in [(u64::MAX, None), (40, Some(folder.path()))] {
                let reversed = OneWayEdges::turn(topology, None, memory, folder).unwrap();
                for u in 0..topology.num_vertices() as u32 {
                    let heads = (0..topology.num_vertices() as u32)
                        .filter(|&v| u != v && is_edge(u, v) && !is_edge(v, u));
                    let expected: Vec<u32> = heads.collect::<BTreeSet<_>>().into_iter().collect();
                    assert_eq!(reversed.of(u), expected, "{}", graph.name);
                }
            }
        }
    }
}
