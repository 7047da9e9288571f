//! Expansion-aware sampling: the vertices that a server of several reads for its seeds (GraNNDis,
//! section 4.2).
//!
//! Returns: a [`ReceptiveField`], the vertices and the edges among them. Input: the seeds of a
//! server, which are its own. A server reads its own vertices up to as many hops before its seeds
//! as there are layers; beyond them at most `hops` hops, and at each hop at most `fanout`
//! in-neighbours of a vertex. Edges within a server are never left out.
//!
//! Cost: a pass over the in-edges of the vertices reached; a byte for each vertex of the graph. The
//! draws are a function of the key and the vertex.

use std::ops::Range;

use rayon::prelude::*;

use super::{Fanout, Graph};
use crate::philox::{Draws, Stream, StreamKey};

/// A server, and its limits for reading beyond its own vertices.
#[derive(Clone, Debug)]
pub struct Expansion<'a> {
    /// Part of each vertex.
    pub parts: &'a [u16],
    /// The parts of this server.
    pub own: Range<usize>,
    /// Layers of the model.
    pub layers: usize,
    /// Hops beyond the server.
    pub hops: u8,
    /// In-neighbours of a vertex at each of these hops.
    pub fanout: Fanout,
}

impl Expansion<'_> {
    /// Key of the draws of mini-batch `batch` of a run with this `seed`.
    pub fn key(seed: u64, batch: usize) -> StreamKey {
        StreamKey { step: batch as u32, ..StreamKey::new(seed, Stream::Expansion) }
    }

    /// Whether `v` is the server's own.
    pub fn owns(&self, v: u32) -> bool {
        self.own.contains(&usize::from(self.parts[v as usize]))
    }

    /// The hop at which the server reads each vertex for `seeds`, which are its own.
    pub fn reach(&self, graph: Graph<'_>, seeds: &[u32], key: &StreamKey) -> ReceptiveField {
        let mut hop = vec![ReceptiveField::NOT; graph.num_vertices()];
        seeds.iter().for_each(|&v| hop[v as usize] = 0);
        let mut frontier = seeds.to_vec();
        for _ in 0..self.layers {
            let found: Vec<Vec<(u32, u8)>> = frontier
                .par_iter()
                .map(|&v| self.read_for(graph, v, hop[v as usize], key))
                .collect();
            frontier.clear();
            for (u, at) in found.into_iter().flatten() {
                if at < hop[u as usize] {
                    hop[u as usize] = at;
                    frontier.push(u);
                }
            }
            // A vertex may have been reached twice in one hop.
            frontier.sort_unstable();
            frontier.dedup();
        }
        ReceptiveField { hop }
    }

    /// The in-neighbours that are read for `v`, itself `at` hops beyond the server, with their own
    /// hops beyond it.
    fn read_for(&self, graph: Graph<'_>, v: u32, at: u8, key: &StreamKey) -> Vec<(u32, u8)> {
        let edges = graph.in_edges(v);
        let sources = &graph.indices[edges.start as usize..edges.end as usize];
        if at > self.hops {
            return Vec::new();
        }
        let (own, others): (Vec<u32>, Vec<u32>) = sources.iter().partition(|&&u| self.owns(u));
        let beyond = if at < self.hops { drawn(&others, self.fanout, key, v) } else { Vec::new() };
        // Vertices at the last hop are read, but nothing is read for them.
        let own = if at == 0 || at < self.hops { own } else { Vec::new() };
        own.into_iter().map(|u| (u, 0)).chain(beyond.into_iter().map(|u| (u, at + 1))).collect()
    }
}

/// `fanout` of `sources`, drawn for `v` by Floyd's algorithm.
fn drawn(sources: &[u32], fanout: Fanout, key: &StreamKey, v: u32) -> Vec<u32> {
    let (all, kept) = (sources.len() as u32, fanout.kept(sources.len() as u64) as u32);
    if kept == all {
        return sources.to_vec();
    }
    let (mut draws, mut picked) = (Draws::new(key, v), Vec::with_capacity(kept as usize));
    for last in all - kept..all {
        let at = draws.below(last + 1);
        picked.push(if picked.contains(&at) { last } else { at });
    }
    picked.into_iter().map(|at| sources[at as usize]).collect()
}

/// The vertices that a server reads.
#[derive(Clone, Debug)]
pub struct ReceptiveField {
    /// Number of hops beyond the server of each vertex; [`ReceptiveField::NOT`] for vertices that
    /// are not read.
    hop: Vec<u8>,
}

impl ReceptiveField {
    const NOT: u8 = u8::MAX;

    /// Whether `v` is read.
    pub fn reads(&self, v: u32) -> bool {
        self.hop[v as usize] != Self::NOT
    }

    /// The edges of `graph` among these vertices, as CSC for all vertices.
    pub fn edges(&self, graph: Graph<'_>) -> (Vec<u64>, Vec<u32>) {
        let of = |v: u32| {
            let edges = if self.reads(v) { graph.in_edges(v) } else { 0..0 };
            graph.indices[edges.start as usize..edges.end as usize]
                .iter()
                .copied()
                .filter(|&u| self.reads(u))
        };
        let n = graph.num_vertices() as u32;
        let degrees: Vec<u64> = (0..n).into_par_iter().map(|v| of(v).count() as u64).collect();
        let mut indptr = Vec::with_capacity(degrees.len() + 1);
        indptr.push(0);
        indptr.extend(degrees.iter().scan(0, |sum, degree| {
            *sum += degree;
            Some(*sum)
        }));
        (indptr, (0..n).flat_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A random graph of `n` vertices with `degree` in-edges each.
    fn graph(n: u32, degree: u32) -> (Vec<u64>, Vec<u32>) {
        let key = StreamKey::new(5, Stream::Generate);
        let rows = (0..n).map(|v| {
            let mut draws = Draws::new(&key, v);
            let mut row: Vec<u32> = (0..degree).map(|_| draws.below(n)).collect();
            row.sort_unstable();
            row.dedup();
            row
        });
        let rows: Vec<Vec<u32>> = rows.collect();
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.len() as u64;
            Some(*end)
        });
        (std::iter::once(0).chain(ends).collect(), rows.concat())
    }

    #[test]
    fn oracle_reach_goes_as_far_as_it_may() {
        let (n, layers) = (200, 3);
        let (indptr, indices) = graph(n, 4);
        let graph = Graph::new(&indptr, &indices).unwrap();
        let parts: Vec<u16> = (0..n).map(|v| (v * 7 % 4) as u16).collect();
        let key = StreamKey::new(9, Stream::Expansion);
        let of = |hops, fanout| Expansion { parts: &parts, own: 0..2, layers, hops, fanout };
        let own = |v: u32| parts[v as usize] < 2;
        let seeds: Vec<u32> = (0..n).filter(|&v| own(v) && v % 5 == 0).collect();
        // Naively: all vertices at most `layers` edges before a seed, by edges that `may` be taken.
        let naive = |may: &dyn Fn(u32, u32) -> bool| {
            let mut read: Vec<bool> = (0..n).map(|v| seeds.contains(&v)).collect();
            for _ in 0..layers {
                let before = read.clone();
                for v in (0..n).filter(|&v| before[v as usize]) {
                    let edges = graph.in_edges(v);
                    for &u in &indices[edges.start as usize..edges.end as usize] {
                        read[u as usize] |= may(u, v);
                    }
                }
            }
            read
        };
        let read = |reach: &ReceptiveField| (0..n).map(|v| reach.reads(v)).collect::<Vec<_>>();
        let all = of(3, Fanout::All).reach(graph, &seeds, &key);
        assert_eq!(read(&all), naive(&|_, _| true));
        assert_eq!(read(&of(0, Fanout::All).reach(graph, &seeds, &key)), naive(&|u, _| own(u)));
        // One hop beyond: nothing is read for the vertices beyond.
        let one = of(1, Fanout::All).reach(graph, &seeds, &key);
        assert_eq!(read(&one), naive(&|_, v| own(v)));
        let few = of(2, Fanout::Take(2)).reach(graph, &seeds, &key);
        assert!(
            read(&few)
                .iter()
                .zip(read(&of(2, Fanout::All).reach(graph, &seeds, &key)))
                .all(|(few, all)| !few | all)
        );
        assert!((0..n).all(|v| !few.reads(v) || own(v) == (few.hop[v as usize] == 0)));
        let count =
            |reach: &ReceptiveField| read(reach).into_iter().filter(|is_read| *is_read).count();
        assert!(count(&few) < count(&all) && (0..n).any(|v| few.reads(v) && !own(v)));
        // The edges among the read vertices, in order.
        let (ends, sources) = few.edges(graph);
        for v in 0..n {
            let edges = graph.in_edges(v);
            let whole = &indices[edges.start as usize..edges.end as usize];
            let kept: Vec<u32> =
                whole.iter().copied().filter(|&u| few.reads(u) && few.reads(v)).collect();
            assert_eq!(sources[ends[v as usize] as usize..ends[v as usize + 1] as usize], kept);
        }
    }

    #[test]
    fn as_many_as_the_fanout_are_drawn_each_alike() {
        let sources: Vec<u32> = (100..107).collect();
        let mut counts = [0u32; 7];
        for v in 0..7000 {
            let mut picked =
                drawn(&sources, Fanout::Take(3), &StreamKey::new(1, Stream::Expansion), v);
            picked.sort_unstable();
            picked.dedup();
            assert_eq!(picked.len(), 3);
            picked.iter().for_each(|u| counts[*u as usize - 100] += 1);
        }
        // 3000 expected; the deviation of a share of 3/7 of 7000 is 41.
        assert!(counts.iter().all(|&count| count.abs_diff(3000) < 210), "{counts:?}");
        assert_eq!(
            drawn(&sources, Fanout::Take(9), &StreamKey::new(1, Stream::Expansion), 0),
            sources
        );
    }
}
