//! Whose in-edges are read most, for the memory that they take.
//!
//! Returns: the vertices whose in-edges a GPU is to hold, and the share of all sampled edges that is expected to be read there. Input:
//! room in bytes, the vertices to choose among, and how many in-edges of each are sampled.
//! Idea: a presample has counted that (`work`). Without one, and where links are learnt, a vertex is met as often as edges lead from
//! it, and as many of its in-edges are then read as the last layer's fanout keeps. What is read most per byte comes first: that is the
//! most that fits, but for the last vertex (Dantzig's bound for the knapsack). A vertex of many in-edges is read often but takes much.
//! Cost: a sort of the vertices; a pass over the edges without a presample.

use std::cmp::Reverse;

use gsplit_kernels::{DeviceTier, Fanout, Graph};
use gsplit_store::{Dataset, Progress};
use rayon::prelude::*;

use crate::Result;
use crate::job::Job;
use crate::residence::cache::presample_like;

/// How many in-edges of each vertex are sampled, to scale.
pub struct Reads {
    of: Vec<f32>,
    /// What says so.
    pub by: String,
}

impl Reads {
    /// Those that are expected of `job`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn of(dataset: &Dataset, job: &Job<'_>, progress: &dyn Progress) -> Result<Self> {
        if let Some(presample) = presample_like(dataset, job.config, progress)? {
            let of = presample.work().par_iter().map(|&times| times as f32).collect();
            return Ok(Self { of, by: format!("presample {}", presample.key()) });
        }
        let fanout = job.config.fanouts.iter().last().unwrap_or(Fanout::All);
        Ok(Self { of: expected(&job.graph, fanout), by: "the edges that lead from vertices".to_string() })
    }
}

/// Reads where each edge is as likely as the others to lead to a vertex.
fn expected(graph: &Graph<'_>, fanout: Fanout) -> Vec<f32> {
    // Who is no source may be a seed.
    let mut met = vec![1u32; graph.num_vertices()];
    graph.indices.iter().for_each(|&source| met[source as usize] = met[source as usize].saturating_add(1));
    met.par_iter()
        .zip(0u32..graph.num_vertices() as u32)
        .map(|(&met, v)| met as f32 * fanout.kept(graph.degree(v)) as f32)
        .collect()
}

/// Vertices whose in-edges a GPU holds.
#[derive(Debug, PartialEq)]
pub struct Chosen {
    /// A bit for each vertex of the graph, 64 a word.
    pub bits: Vec<u64>,
    /// How many.
    pub vertices: u64,
    /// How many in-edges they have.
    pub edges: u64,
    /// Reads that are expected of them, and of all candidates.
    pub reads: [f64; 2],
}

impl Chosen {
    /// All vertices that are `candidates`.
    pub fn all(graph: &Graph<'_>, is_candidate: impl Fn(u32) -> bool) -> Self {
        let mut chosen =
            Self { bits: vec![0; graph.num_vertices().div_ceil(64)], vertices: 0, edges: 0, reads: [0.0; 2] };
        (0..graph.num_vertices() as u32).filter(|&v| is_candidate(v)).for_each(|v| chosen.add(graph, v));
        chosen
    }

    /// Of the candidates those whose in-edges are read most per byte, in `room` bytes of a [`DeviceTier`].
    pub fn hottest(graph: &Graph<'_>, reads: &Reads, is_candidate: impl Fn(u32) -> bool + Sync, room: u64) -> Self {
        let n = graph.num_vertices();
        let mut chosen = Self { bits: vec![0; n.div_ceil(64)], vertices: 0, edges: 0, reads: [0.0; 2] };
        let of = |v: u32| reads.of[v as usize];
        let worth = |v: u32| of(v) / DeviceTier::bytes(0, 0, graph.degree(v)) as f32;
        let mut order: Vec<u32> = (0..n as u32).into_par_iter().filter(|&v| of(v) > 0.0 && is_candidate(v)).collect();
        // Positive floats are ordered as their bits are.
        order.par_sort_unstable_by_key(|&v| (Reverse(worth(v).to_bits()), v));
        for v in order {
            let read = f64::from(of(v));
            chosen.reads[1] += read;
            let (vertices, edges) = (chosen.vertices + 1, chosen.edges + graph.degree(v));
            if DeviceTier::bytes(n as u64, vertices, edges) <= room {
                chosen.reads[0] += read;
                chosen.add(graph, v);
            }
        }
        chosen
    }

    fn add(&mut self, graph: &Graph<'_>, v: u32) {
        self.bits[v as usize / 64] |= 1 << (v % 64);
        self.vertices += 1;
        self.edges += graph.degree(v);
    }

    /// Bytes on the GPU.
    pub fn bytes(&self, graph: &Graph<'_>) -> u64 {
        DeviceTier::bytes(graph.num_vertices() as u64, self.vertices, self.edges)
    }
}

#[cfg(test)]
mod tests {
    use gsplit_kernels::{Draws, Stream, StreamKey};

    use super::*;

    #[test]
    fn what_leads_to_more_vertices_and_keeps_more_edges_is_read_more() {
        let (indptr, indices) = ([0u64, 3, 5, 6, 6], [1u32, 2, 3, 1, 3, 3]);
        let graph = Graph::new(&indptr, &indices).unwrap();
        assert_eq!(expected(&graph, Fanout::Take(2)), [2.0, 6.0, 2.0, 0.0]);
        assert_eq!(expected(&graph, Fanout::All), [3.0, 6.0, 2.0, 0.0]);
    }

    #[test]
    fn the_most_reads_per_byte_fill_the_room() {
        // In-degrees 0, 3, 10, 1, 2, 4.
        let (indptr, indices) = ([0u64, 0, 3, 13, 14, 16, 20], [0u32; 20]);
        let graph = Graph::new(&indptr, &indices).unwrap();
        let reads = Reads { of: vec![0.0, 30.0, 40.0, 11.0, 20.0, 3.0], by: String::new() };
        let held = |chosen: &Chosen| (0..6).filter(|v| chosen.bits[0] >> v & 1 == 1).collect::<Vec<u32>>();
        // 16 for the word, 8 for the end; 30/20, 20/16, 11/12, 40/48 a byte.
        for (room, expected, share) in [
            (0, &[][..], 0.0),
            (43, &[4], 20.0 / 104.0),
            (44, &[1], 30.0 / 104.0),
            (60, &[1, 4], 50.0 / 104.0),
            (72, &[1, 3, 4], 61.0 / 104.0),
            // The hub does not fit, what is read less does.
            (119, &[1, 3, 4, 5], 64.0 / 104.0),
            (120, &[1, 2, 3, 4], 101.0 / 104.0),
            (1000, &[1, 2, 3, 4, 5], 1.0),
        ] {
            let chosen = Chosen::hottest(&graph, &reads, |_| true, room);
            assert_eq!(held(&chosen), expected, "{room}");
            let [here, all] = chosen.reads;
            assert!((here / all - share).abs() < 1e-9 && chosen.bytes(&graph) <= room.max(24), "{room}: {chosen:?}");
            let own = Chosen::hottest(&graph, &reads, |v| v == 3 || v == 5, room);
            assert!(held(&own).iter().all(|v| [3, 5].contains(v)));
        }
        let odd = Chosen::all(&graph, |v| v % 2 == 1);
        assert_eq!((held(&odd), odd.edges, odd.bytes(&graph)), (vec![1, 3, 5], 8, 16 + 4 * 8 + 8 * 4));
    }

    #[test]
    fn oracle_no_other_choice_is_worth_more_than_by_one_vertex() {
        let mut draws = Draws::new(&StreamKey::new(3, Stream::Generate), 0);
        for _ in 0..30 {
            let degrees: Vec<u64> = (0..10).map(|_| u64::from(draws.below(9))).collect();
            let indptr: Vec<u64> = (0..=10).map(|v| degrees[..v].iter().sum()).collect();
            let indices = vec![0u32; indptr[10] as usize];
            let graph = Graph::new(&indptr, &indices).unwrap();
            let of: Vec<f32> = (0..10).map(|_| draws.below(50) as f32).collect();
            let room = 24 + u64::from(draws.below(250));
            let worth = |bits: u64| (0..10).filter(|v| bits >> v & 1 == 1).map(|v| of[v]).sum::<f32>();
            let bytes =
                |bits: u64| 24 + (0..10).filter(|v| bits >> v & 1 == 1).map(|v| 8 + 4 * degrees[v]).sum::<u64>();
            let best = (0..1024).filter(|&bits| bytes(bits) <= room).map(worth).fold(0.0, f32::max);
            let reads = Reads { of: of.clone(), by: String::new() };
            let chosen = Chosen::hottest(&graph, &reads, |_| true, room);
            assert!(bytes(chosen.bits[0]) <= room);
            assert!(worth(chosen.bits[0]) + of.iter().copied().fold(0.0, f32::max) >= best);
        }
    }
}
