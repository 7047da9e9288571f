//! The in-edges of some vertices, in the memory of a GPU that has no room for all in-edges.
//!
//! Returns: the arrays that a [`DeviceGraph`](super::DeviceGraph) reads: the vertices' sources one
//! after another, ascending by vertex, and the start of each vertex's sources. Input: the graph on
//! the host, and a bit for each vertex. Idea: a vertex is found by its rank among the chosen ones,
//! which is a count in a word of 16 bytes for 64 vertices and the bits before its own. All these
//! words take a quarter of a byte per vertex, which stays in the second-level cache of a GPU up to
//! some 100 million vertices; a chosen vertex then costs the same as in a whole graph, one read of
//! a pair and one of each source. Cost: the host collects the sources, in pieces on all threads,
//! and waits for each to be sent. On the GPU a quarter of a byte for every vertex of the graph, 8
//! bytes for a chosen one, 4 for each of its in-edges.
//!
//! Why not a word for each vertex with the start of its sources: 8 bytes for vertices that are not
//! chosen, which are most if the graph is split among 8 GPUs, and a read in addition to the one for
//! the degree.

use rayon::prelude::*;

use super::Graph;
use super::segment::look_up;
use crate::cuda::{DeviceBuffer, Gpu, GpuError};
use crate::error::{KernelError, check_len};

/// Number of sources that one thread collects at a time.
const PIECE: usize = if cfg!(test) { 1000 } else { 1 << 22 };

/// The in-edges of some vertices on a GPU.
#[derive(Debug)]
pub struct DeviceSubgraph {
    /// For each 64 vertices, a bit each and the number of chosen vertices before them.
    pub(super) held: DeviceBuffer<u64>,
    /// First edge of each chosen vertex, and the number of all at the end.
    pub(super) indptr: DeviceBuffer<u64>,
    pub(super) indices: DeviceBuffer<u32>,
    pub(super) num_vertices: usize,
    pub(super) num_edges: usize,
}

impl DeviceSubgraph {
    /// Copies the in-edges of the vertices of `graph` whose bits in `chosen`, 64 vertices per word,
    /// are 1. Returns when they have arrived.
    ///
    /// # Errors
    /// [`KernelError::Length`] unless there is a bit for each vertex; [`KernelError::Topology`] and
    /// [`KernelError::TooManyEdges`] for a vertex that cannot be sampled;
    /// [`GpuError::OutOfMemory`].
    pub fn new(gpu: &Gpu, graph: &Graph<'_>, chosen: &[u64]) -> Result<Self, GpuError> {
        let copied = Copied::new(graph, chosen)?;
        let indptr = gpu.upload(&copied.indptr)?;
        let total = copied.total();
        let mut indices = gpu.alloc(total)?;
        let starts: Vec<usize> = (0..total).step_by(PIECE).collect();
        for starts in starts.chunks(rayon::current_num_threads()) {
            let pieces: Vec<Vec<u32>> = starts
                .par_iter()
                .map(|&from| copied.piece(graph, from, total.min(from + PIECE)))
                .collect();
            for (&from, piece) in starts.iter().zip(&pieces) {
                indices.slice_mut().part(from, from + piece.len())?.upload(gpu, piece)?;
            }
        }
        let held = gpu.upload(&ranked(chosen))?;
        gpu.synchronise()?;
        Ok(Self {
            held,
            indptr,
            indices,
            num_vertices: graph.num_vertices(),
            num_edges: graph.num_edges(),
        })
    }

    /// Bytes that it takes on the GPU, with `chosen` of `num_vertices` vertices, which have `edges`
    /// in-edges.
    pub fn bytes(num_vertices: u64, chosen: u64, edges: u64) -> u64 {
        16 * num_vertices.div_ceil(64) + 8 * (chosen + 1) + 4 * edges
    }

    /// Bytes that this one takes.
    pub fn num_bytes(&self) -> u64 {
        Self::bytes(
            self.num_vertices as u64,
            self.num_chosen() as u64,
            self.num_chosen_edges() as u64,
        )
    }

    /// Number of chosen vertices.
    pub fn num_chosen(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of their in-edges.
    pub fn num_chosen_edges(&self) -> usize {
        self.indices.len()
    }
}

/// Each word of `chosen`, and the number of 1 bits in the words before it.
fn ranked(chosen: &[u64]) -> Vec<u64> {
    let mut before = 0;
    let with_rank = |&word: &u64| {
        let pair = [word, before];
        before += u64::from(word.count_ones());
        pair
    };
    chosen.iter().flat_map(with_rank).collect()
}

/// The chosen vertices, and the starts of their sources.
struct Copied {
    vertices: Vec<u32>,
    indptr: Vec<u64>,
}

impl Copied {
    fn new(graph: &Graph<'_>, chosen: &[u64]) -> Result<Self, KernelError> {
        let n = graph.num_vertices();
        check_len("words of chosen vertices", n.div_ceil(64), chosen.len())?;
        let (mut vertices, mut indptr, mut total) = (Vec::new(), vec![0], 0);
        for (i, &word) in chosen.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let v = 64 * i + left.trailing_zeros() as usize;
                left &= left - 1;
                let vertex = look_up(graph, v as u32)?;
                total += u64::from(vertex.degree);
                vertices.push(v as u32);
                indptr.push(total);
            }
        }
        Ok(Self { vertices, indptr })
    }

    fn total(&self) -> usize {
        self.indptr.last().map_or(0, |&total| total as usize)
    }

    /// The sources at positions `from` to `to`.
    fn piece(&self, graph: &Graph<'_>, from: usize, to: usize) -> Vec<u32> {
        let mut piece = Vec::with_capacity(to - from);
        let mut at = self.indptr.partition_point(|&start| start <= from as u64) - 1;
        while piece.len() < to - from {
            let (start, end) = (self.indptr[at] as usize, self.indptr[at + 1] as usize);
            let source = graph.indptr[self.vertices[at] as usize] as usize;
            let skipped = from.saturating_sub(start);
            piece.extend_from_slice(&graph.indices[source + skipped..source + end.min(to) - start]);
            at += 1;
        }
        piece
    }
}
