//! Edges to learn from, and edges held out to be predicted.
//!
//! Returns: the graph without the held-out edges, the edges to train on, and the held-out pairs.
//! Input: a graph with ascending neighbour lists; directed, or symmetric with both directions of every edge.
//! Idea: the share that an edge belongs to is drawn by Philox from the unordered pair of its ends, so both directions of an
//! edge are held out together, and nothing has to be stored: the same seed and shares give the same split of the same
//! graph, whatever its vertices' order in memory, the number of threads or ranks. Self-loops are never held out, nor
//! trained on. Of two directions of an edge the one that ascends stands for both.
//! Cost: one pass over the edges; 4 bytes an edge and 8 a vertex in memory, and 4 bytes a training edge.

use gsplit_kernels::{Draws, Graph, Stream, StreamKey};
use rayon::prelude::*;

use crate::config::TaskConfig;
use crate::{Error, Result};

/// Vertices of a parallel task.
const VERTICES: usize = 1 << 12;

/// A graph split by its edges.
pub struct LinkSplit {
    indptr: Vec<u64>,
    indices: Vec<u32>,
    /// Training edges, as positions in the training graph's indices, ascending.
    pub train: Vec<u32>,
    /// Held-out (source, target) pairs, by target.
    pub valid: Vec<(u32, u32)>,
    /// As `valid`.
    pub test: Vec<(u32, u32)>,
}

/// What an edge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Train,
    Valid,
    Test,
}

/// What a run of vertices contributes.
#[derive(Default)]
struct Piece {
    degrees: Vec<u32>,
    indices: Vec<u32>,
    /// Positions in `indices`.
    train: Vec<u32>,
    valid: Vec<(u32, u32)>,
    test: Vec<(u32, u32)>,
}

impl LinkSplit {
    /// Splits the edges of `graph`.
    ///
    /// # Errors
    /// [`Error::Option`] if more edges are left than 32 bits count, or none.
    pub fn new(graph: &Graph<'_>, config: &TaskConfig) -> Result<Self> {
        let n = graph.num_vertices();
        let runs: Vec<usize> = (0..n).step_by(VERTICES).collect();
        let pieces: Vec<Piece> =
            runs.into_par_iter().map(|from| piece(graph, config, from..(from + VERTICES).min(n))).collect();
        let edges: usize = pieces.iter().map(|piece| piece.indices.len()).sum();
        if u32::try_from(edges).is_err() {
            return Err(Error::Option(format!(
                "--task link: {edges} training edges, at most {} are supported",
                u32::MAX
            )));
        }
        let mut all = Self {
            indptr: Vec::with_capacity(n + 1),
            indices: Vec::with_capacity(edges),
            train: Vec::new(),
            valid: Vec::new(),
            test: Vec::new(),
        };
        all.indptr.push(0);
        let mut end = 0;
        for piece in pieces {
            let before = all.indices.len() as u32;
            for degree in piece.degrees {
                end += u64::from(degree);
                all.indptr.push(end);
            }
            all.indices.extend(piece.indices);
            all.train.extend(piece.train.into_iter().map(|position| before + position));
            all.valid.extend(piece.valid);
            all.test.extend(piece.test);
        }
        if all.train.is_empty() {
            let problem = "no edge is left to train on: lower --valid-edges and --test-edges, or choose a larger graph";
            return Err(Error::Option(format!("--task link: {problem}")));
        }
        Ok(all)
    }

    /// The graph without the held-out edges.
    pub fn graph(&self) -> Result<Graph<'_>> {
        Ok(Graph::new(&self.indptr, &self.indices)?)
    }

    /// Source and target of the edge at position `edge`.
    pub fn ends(&self, edge: u32) -> (u32, u32) {
        let target = self.indptr.partition_point(|&start| start <= u64::from(edge)) - 1;
        (self.indices[edge as usize], target as u32)
    }

    /// Positions of the edges `source` → `target`.
    pub fn positions(&self, source: u32, target: u32) -> std::ops::Range<u64> {
        let start = self.indptr[target as usize];
        let list = &self.indices[start as usize..self.indptr[target as usize + 1] as usize];
        let from = list.partition_point(|&u| u < source) as u64;
        let to = list.partition_point(|&u| u <= source) as u64;
        start + from..start + to
    }
}

/// The in-neighbours of `v`.
pub(super) fn in_neighbours<'a>(graph: &Graph<'a>, v: u32) -> &'a [u32] {
    let range = graph.in_edges(v);
    &graph.indices[range.start as usize..range.end as usize]
}

/// The share of the edge between `u` and `v`, whichever way it points.
fn share(config: &TaskConfig, u: u32, v: u32) -> Share {
    let key = StreamKey { step: u.max(v), ..StreamKey::new(config.edge_seed, Stream::Links) };
    let drawn = f64::from(Draws::new(&key, u.min(v)).unit_f32());
    match drawn {
        _ if u == v => Share::Train,
        drawn if drawn < config.valid_edges => Share::Valid,
        drawn if drawn < config.valid_edges + config.test_edges => Share::Test,
        _ => Share::Train,
    }
}

fn piece(graph: &Graph<'_>, config: &TaskConfig, vertices: std::ops::Range<usize>) -> Piece {
    let mut piece = Piece::default();
    for v in vertices.start as u32..vertices.end as u32 {
        let before = piece.indices.len();
        for &u in in_neighbours(graph, v) {
            let stands = u < v || (u > v && in_neighbours(graph, u).binary_search(&v).is_err());
            let held_out = match share(config, u, v) {
                Share::Train => {
                    if stands {
                        piece.train.push(piece.indices.len() as u32);
                    }
                    piece.indices.push(u);
                    continue;
                }
                Share::Valid => &mut piece.valid,
                Share::Test => &mut piece.test,
            };
            if stands && held_out.last() != Some(&(u, v)) {
                held_out.push((u, v));
            }
        }
        piece.degrees.push((piece.indices.len() - before) as u32);
    }
    piece
}
