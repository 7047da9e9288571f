//! The edges by their source, and the weights of the arcs that they make.
//!
//! Returns, for every vertex u, the heads v of its out-edges u→v, ascending and distinct, without
//! loops and without those where v→u is an edge too: the in-neighbours of u name these. With
//! counts, also a weight for each arc, of the topology's own edges and of the outward ones: see
//! [`arc_weights`](super::arc_weights). Idea: the row of each source ([`by_source`]) is merged with
//! the in-neighbours of its vertex. So an edge and the one the other way meet, and nothing is
//! looked up out of order but the rows of a range. Cost: that of [`by_source`]; 4 bytes a one-way
//! edge, a byte an arc with counts and 8 a vertex to keep.

use std::path::Path;

use gsplit_store::Topology;

use super::arc_weights::EdgeCounts;
use super::kept::{Keeper, Kept};
use crate::Result;
use crate::by_source::by_source;

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
        let merge = |u: u32, outs: &[u64], turned: &mut Turned| {
            turned.merge(topology, counts, u, outs);
        };
        by_source(topology, counts.map(EdgeCounts::all), memory, merge, |turned| {
            turned.iter().try_for_each(|rows| {
                heads.push(&rows.heads)?;
                if let Some((inward, outward)) = &mut weights {
                    inward.push(&rows.inward)?;
                    outward.push(&rows.outward)?;
                }
                starts.extend(rows.lengths.iter().map(|&length| {
                    end += u64::from(length);
                    end
                }));
                Ok(())
            })
        })?;
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

/// Rows of some sources that follow each other.
#[derive(Default)]
struct Turned {
    lengths: Vec<u32>,
    heads: Vec<u32>,
    inward: Vec<u8>,
    outward: Vec<u8>,
}

impl Turned {
    /// Adds the row of `u`, whose out-edges `outs` and in-neighbours both ascend.
    fn merge(
        &mut self,
        topology: &Topology,
        counts: Option<&EdgeCounts<'_>>,
        u: u32,
        outs: &[u64],
    ) {
        let (before, mut outs) = (self.heads.len(), outs.iter().copied().peekable());
        let head = |packed: u64| (packed >> 32) as u32;
        let outward_to = |next: u32, turned: &mut Turned, outs: &mut std::iter::Peekable<_>| {
            while let Some(packed) = outs.next_if(|&packed| head(packed) < next) {
                let mut count = packed & u64::from(u32::MAX);
                while let Some(same) = outs.next_if(|&other| head(other) == head(packed)) {
                    count += same & u64::from(u32::MAX);
                }
                turned.heads.push(head(packed));
                turned.outward.extend(counts.map(|counts| counts.weigh(count)));
            }
        };
        let (row, start) = (topology.in_neighbours(u), topology.indptr()[u as usize] as usize);
        let mut i = 0;
        while i < row.len() {
            let (w, first) = (row[i], i);
            let mut count = 0;
            while i < row.len() && row[i] == w {
                count += counts.map_or(0, |counts| u64::from(counts.of(start + i)));
                i += 1;
            }
            outward_to(w, self, &mut outs);
            while let Some(packed) = outs.next_if(|&packed| head(packed) == w) {
                count += packed & u64::from(u32::MAX);
            }
            if let Some(counts) = counts {
                // Of an edge that is repeated the first mention weighs all.
                self.inward.push(counts.weigh(count));
                self.inward.resize(self.inward.len() + (i - first - 1), 0);
            }
        }
        outward_to(u32::MAX, self, &mut outs);
        self.lengths.push((self.heads.len() - before) as u32);
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
