//! Exact inference, layer after layer: what a forward pass over the whole graph with all neighbours gives.
//!
//! Returns: the rows of the last hidden layer and of the last layer, chunk by chunk in the order of the vertices.
//! Input: a model, and a graph with its features.
//! Idea: a layer over all vertices before the next one begins, so that nothing is computed twice. Vertices go through a
//! layer in chunks of bounded edges; what a chunk needs is relabelled as in training, so a model's layers are the same
//! code in both. Where the rows of two layers do not fit the memory, finished layers lie in a mapped file.
//! Cost: one pass over the edges a layer, and one row a sampled edge and chunk read from memory or disk. Memory: a chunk's
//! rows, and 4 · n · (width below + width above) bytes where they fit.
//! Results do not depend on the number of threads, nor on where the rows lie. A budget below a few hundred megabytes makes
//! the chunks smaller, which may change the last bits: a layer chooses the cheaper order of its products by the shapes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_kernels::{EdgeIds, Fanout, Graph, SampledLayer, Sampler, Stream, StreamKey, Uniform, gather_f32};
use gsplit_store::{FeatureTable, Stage};

use super::hidden::{Hidden, HiddenWriter};
use crate::autograd::{Buffer, values};
use crate::model::{LayerEdges, Model};
use crate::operator::Rows;
use crate::place::{Place, on_host};
use crate::{Error, Result};

/// Edges of a chunk, unless a single vertex has more.
const CHUNK_EDGES: u64 = 1 << 18;
/// Vertices of a chunk.
const CHUNK_VERTICES: usize = 1 << 14;
/// Matrices of a chunk that a layer may hold at once: rows read, transformed rows, scores and sums, rows returned.
const COPIES: u64 = 4;
/// Bytes beside that for an edge or a vertex: positions, and what they were made from.
const POSITIONS: u64 = 32;

/// How much memory there is, and where the rest goes.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// Bytes for rows, half of them for finished layers.
    pub bytes: u64,
    /// Folder for finished layers that do not fit.
    pub scratch: Option<&'a Path>,
}

impl Room<'_> {
    /// As much as it takes.
    pub const UNLIMITED: Self = Self { bytes: u64::MAX, scratch: None };
}

/// A model over a whole graph.
pub struct LayerWise<'a> {
    /// The model.
    pub model: &'a Model,
    /// In-neighbours.
    pub graph: Graph<'a>,
    /// Feature rows.
    pub features: &'a FeatureTable,
    /// For finished layers and chunks.
    pub room: Room<'a>,
    /// Becomes true when the run is to stop.
    pub stop: Option<&'static AtomicBool>,
}

/// Rows of one chunk.
pub struct Chunk<'a> {
    /// Layer, counted from the features upwards.
    pub layer: usize,
    /// Vertices, ascending.
    pub vertices: &'a [u32],
    /// One row for each.
    pub rows: &'a [f32],
}

impl LayerWise<'_> {
    /// Runs all layers; hands every chunk of the last two to `visit`. `wanted`, ascending, are the vertices that the last
    /// layer computes, all when `None`; the layer below it covers every vertex. `stage` counts [`Self::num_rows`].
    pub fn run(
        &self,
        wanted: Option<&[u32]>,
        stage: &dyn Stage,
        visit: &mut dyn FnMut(Chunk<'_>) -> Result<()>,
    ) -> Result<()> {
        let layers = self.model.num_layers();
        let spills = self.spills();
        let mut below: Option<Hidden> = None;
        let mut sampler = Sampler::default();
        for layer in 0..layers {
            let last = layer + 1 == layers;
            let limit = self.limit(layer)?;
            let wanted = wanted.filter(|_| last);
            let count = wanted.map_or(self.graph.num_vertices(), <[u32]>::len);
            let vertex = |at: usize| wanted.map_or(at as u32, |wanted| wanted[at]);
            let mut above = match last {
                true => None,
                false => {
                    let path = spills.then_some(self.room.scratch).flatten();
                    let path = path.map(|folder| folder.join(format!("layer-{layer}.f32")));
                    Some(HiddenWriter::begin(path.as_deref(), count * self.model.out_dim(layer))?)
                }
            };
            let mut start = 0;
            while start < count {
                self.check_stop()?;
                let end = self.chunk_end(start..count, limit, vertex);
                let vertices: Vec<u32> = (start..end).map(vertex).collect();
                let rows = self.chunk(layer, &mut sampler, &vertices, below.as_ref())?;
                let rows = values(&rows)?;
                if let Some(above) = &mut above {
                    above.push(rows)?;
                }
                if layer + 2 >= layers {
                    visit(Chunk { layer, vertices: &vertices, rows })?;
                }
                stage.advance((end - start) as u64);
                start = end;
            }
            below = above.map(HiddenWriter::finish).transpose()?;
        }
        Ok(())
    }

    /// Rows that [`Self::run`] computes.
    pub fn num_rows(&self, wanted: Option<&[u32]>) -> u64 {
        let all = self.graph.num_vertices();
        ((self.model.num_layers() - 1) * all + wanted.map_or(all, <[u32]>::len)) as u64
    }

    /// Whether finished layers lie on disk.
    pub fn spills(&self) -> bool {
        let hidden = self.model.num_layers() - 1;
        let widths: Vec<u64> = (0..hidden).map(|layer| self.model.out_dim(layer) as u64).collect();
        let widest = widths.windows(2).map(|pair| pair[0] + pair[1]).chain(widths.iter().copied()).max().unwrap_or(0);
        let bytes = widest.saturating_mul(self.graph.num_vertices() as u64 * size_of::<f32>() as u64);
        self.room.scratch.is_some() && bytes > self.room.bytes / 2
    }

    /// Rows that a chunk of `layer` may read, edges and vertices together.
    fn limit(&self, layer: usize) -> Result<u64> {
        let width = self.in_dim(layer).max(self.model.out_dim(layer)) as u64;
        let row = COPIES * size_of::<f32>() as u64 * width + POSITIONS;
        let limit = self.room.bytes / 2 / row;
        let degrees = self.graph.indptr.windows(2).map(|pair| pair[1] - pair[0]);
        let (largest, v) = degrees.zip(0u32..).max().unwrap_or((0, 0));
        if largest >= limit {
            let (needed, layer) = (((largest + 1) * row * 2).div_ceil(1 << 20), layer + 1);
            return Err(Error::Option(format!(
                "--memory: vertex {v} has {largest} in-edges, for which layer {layer} needs {needed} MiB beside the \
                 program's own: raise it"
            )));
        }
        Ok(limit)
    }

    /// Width of the rows that `layer` reads.
    fn in_dim(&self, layer: usize) -> usize {
        layer.checked_sub(1).map_or(self.features.dim(), |below| self.model.out_dim(below))
    }

    fn chunk_end(&self, range: std::ops::Range<usize>, limit: u64, vertex: impl Fn(usize) -> u32) -> usize {
        let (mut edges, mut end) = (0, range.start);
        while end < range.end && end - range.start < CHUNK_VERTICES {
            edges += self.graph.degree(vertex(end));
            let rows = edges + (end + 1 - range.start) as u64;
            if end > range.start && (edges > CHUNK_EDGES || rows > limit) {
                break;
            }
            end += 1;
        }
        end
    }

    /// The rows of `frontier`, contiguous.
    fn chunk(
        &self,
        layer: usize,
        sampler: &mut Sampler,
        frontier: &[u32],
        below: Option<&Hidden>,
    ) -> Result<tch::Tensor> {
        let (key, mut all) = (StreamKey::new(0, Stream::Sample), SampledLayer::default());
        sampler.start(frontier);
        sampler.layer(&self.graph, &Uniform::new(Fanout::All), &key, EdgeIds::Drop, &mut all)?;
        let vertices = sampler.mixed();
        let dim = self.in_dim(layer);
        let (place, input) = (self.model.place(), self.model.input());
        let gathered = |gather: &dyn Fn(&mut [f32]) -> Result<()>| {
            let mut rows = Buffer::new(vertices.len() * dim)?;
            gather(rows.as_mut_slice())?;
            place.bring(&rows.into_tensor(&[vertices.len() as i64, dim as i64])?)
        };
        let rows = match (below, place) {
            (Some(below), _) => Some(gathered(&|rows| Ok(gather_f32(below.values(), dim, vertices, rows)?))?),
            (None, Place::Host(_)) if input.is_plain() => None,
            (None, _) => Some(gathered(&|rows| input.read(self.features, vertices, rows))?),
        };
        let edges = LayerEdges::new(place, self.graph, &all.indptr, &all.local, vertices)?;
        let below = rows.as_ref().map_or(Rows::Stored { features: self.features, vertices }, Rows::Hidden);
        on_host(&self.model.infer_layer(layer, &edges, below)?)
    }

    fn check_stop(&self) -> Result<()> {
        match self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}
