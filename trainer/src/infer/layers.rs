//! Exact inference, layer after layer: what a forward pass over the whole graph with all neighbours gives.
//!
//! Returns: the rows of the last hidden layer and of the last layer, chunk by chunk in the order of the vertices.
//! Input: a model, on the host or a GPU, and a graph with its features.
//! Idea: a layer over all vertices before the next one begins, so that nothing is computed twice. Vertices go through a
//! layer in chunks of bounded edges; what a chunk needs is relabelled as in training, so a model's layers are the same
//! code in both. Where the rows of two layers do not fit the memory, finished layers lie in a mapped file.
//! On a GPU the host relabels and sends edges; rows of finished layers stay on the GPU where they fit half of what it has
//! left, and the host waits for the rows that somebody looks at alone, so it prepares a chunk while another is computed.
//! Cost: one pass over the edges a layer, and one row a sampled edge and chunk read from memory or disk. Memory: a chunk's
//! rows, and 4 · n · (width below + width above) bytes where they fit.
//! Results do not depend on the number of threads, nor on where the rows lie. A budget below a few hundred megabytes makes
//! the chunks smaller, which may change the last bits: a layer chooses the cheaper order of its products by the shapes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_kernels::{EdgeIds, Fanout, Graph, SampledLayer, Sampler, Stream, StreamKey, Uniform};
use gsplit_store::Stage;

use super::hidden::{Hidden, HiddenReader, HiddenWriter, Home};
use crate::autograd::values;
use crate::model::{LayerEdges, Model};
use crate::operator::Rows;
use crate::place::on_host;
use crate::source::FeatureSource;
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
    /// Bytes of the GPU's memory, half of them for finished layers; four fifths of what is free when `None`.
    pub device_bytes: Option<u64>,
    /// What to do where a GPU has not the memory.
    pub remedy: &'static str,
}

impl Room<'_> {
    /// As much as it takes, of a run that evaluates.
    pub const UNLIMITED: Self = Self {
        bytes: u64::MAX,
        scratch: None,
        device_bytes: None,
        remedy: "pass --eval-every 0, and run `gsplit infer --device cpu` afterwards",
    };
}

/// A model over a whole graph.
pub struct LayerWise<'a> {
    model: &'a Model,
    graph: Graph<'a>,
    source: &'a FeatureSource<'a>,
    room: Room<'a>,
    /// Bytes of the GPU's memory, where the model is on one.
    device_bytes: Option<u64>,
    stop: Option<&'static AtomicBool>,
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

impl<'a> LayerWise<'a> {
    /// `model` over `graph` with the feature rows of `source`, both at the model's place. `stop` becomes true when the run is to
    /// stop.
    ///
    /// # Errors
    /// What the driver says of the GPU's memory.
    pub fn new(
        model: &'a Model,
        graph: Graph<'a>,
        source: &'a FeatureSource<'a>,
        room: Room<'a>,
        stop: Option<&'static AtomicBool>,
    ) -> Result<Self> {
        let device_bytes = match (model.place().gpu(), room.device_bytes) {
            (None, _) => None,
            (Some(_), Some(bytes)) => Some(bytes),
            (Some(gpu), None) => {
                let (free, total) = gpu.memory()?;
                // What torch and the driver's pool keep for the next mini-batch counts as used, but is used again.
                Some(free.max(total / 8) / 5 * 4)
            }
        };
        Ok(Self { model, graph, source, room, device_bytes, stop })
    }

    /// The model.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// In-neighbours.
    pub fn graph(&self) -> Graph<'a> {
        self.graph
    }

    /// Runs all layers; hands every chunk of those from `lowest` on to `visit`. `wanted`, ascending, are the vertices that the
    /// last layer computes, all when `None`; the layers below it cover every vertex. `stage` counts [`Self::num_rows`].
    ///
    /// # Errors
    /// Those of the layers and of `visit`; [`Error::Inference`] where a GPU has not the memory.
    pub fn run(
        &self,
        lowest: usize,
        wanted: Option<&[u32]>,
        stage: &dyn Stage,
        visit: &mut dyn FnMut(Chunk<'_>) -> Result<()>,
    ) -> Result<()> {
        let layers = self.model.num_layers();
        let mut below: Option<Hidden> = None;
        let mut sampler = Sampler::default();
        for layer in 0..layers {
            let wanted = wanted.filter(|_| layer + 1 == layers);
            let finished = self.layer(layer, below.as_ref(), &mut sampler, wanted, &mut |chunk, rows| {
                if layer >= lowest {
                    let rows = on_host(rows)?;
                    visit(Chunk { layer, vertices: chunk, rows: values(&rows)? })?;
                }
                stage.advance(chunk.len() as u64);
                Ok(())
            });
            below = finished.map_err(|error| error.of_inference(layer + 1, self.room.remedy))?;
        }
        Ok(())
    }

    /// Computes one layer; returns its rows for the next, if there is one.
    fn layer(
        &self,
        layer: usize,
        below: Option<&Hidden>,
        sampler: &mut Sampler,
        wanted: Option<&[u32]>,
        visit: &mut dyn FnMut(&[u32], &tch::Tensor) -> Result<()>,
    ) -> Result<Option<Hidden>> {
        let limit = self.limit(layer)?;
        let below = below.map(|below| below.reader(self.model.place()));
        let count = wanted.map_or(self.graph.num_vertices(), <[u32]>::len);
        let vertex = |at: usize| wanted.map_or(at as u32, |wanted| wanted[at]);
        let mut above = match layer + 1 == self.model.num_layers() {
            true => None,
            false => {
                let len = count * self.model.out_dim(layer);
                Some(HiddenWriter::begin(self.home(), self.model.place(), layer, len)?)
            }
        };
        let mut start = 0;
        while start < count {
            self.check_stop()?;
            let end = self.chunk_end(start..count, limit, vertex);
            let vertices: Vec<u32> = (start..end).map(vertex).collect();
            let rows = self.chunk(layer, sampler, &vertices, below.as_ref())?;
            if let Some(above) = &mut above {
                above.push_tensor(&rows)?;
            }
            visit(&vertices, &rows)?;
            start = end;
        }
        above.map(HiddenWriter::finish).transpose()
    }

    /// Rows that [`Self::run`] computes.
    pub fn num_rows(&self, wanted: Option<&[u32]>) -> u64 {
        let all = self.graph.num_vertices();
        ((self.model.num_layers() - 1) * all + wanted.map_or(all, <[u32]>::len)) as u64
    }

    /// Whether finished layers lie on disk.
    pub fn spills(&self) -> bool {
        matches!(self.home(), Home::Disk(_))
    }

    /// Where finished layers lie: two at a time.
    fn home(&self) -> Home<'a> {
        let hidden = self.model.num_layers() - 1;
        let widths: Vec<u64> = (0..hidden).map(|layer| self.model.out_dim(layer) as u64).collect();
        let widest = widths.windows(2).map(|pair| pair[0] + pair[1]).chain(widths.iter().copied()).max().unwrap_or(0);
        let bytes = widest.saturating_mul(self.graph.num_vertices() as u64 * size_of::<f32>() as u64);
        match (self.device_bytes, self.room.scratch) {
            (Some(device_bytes), _) if bytes <= device_bytes / 2 => Home::Device,
            (_, Some(folder)) if bytes > self.room.bytes / 2 => Home::Disk(folder),
            _ => Home::Memory,
        }
    }

    /// Rows that a chunk of `layer` may read, edges and vertices together.
    fn limit(&self, layer: usize) -> Result<u64> {
        let width = self.in_dim(layer).max(self.model.out_dim(layer)) as u64;
        let row = COPIES * size_of::<f32>() as u64 * width + POSITIONS;
        let device_bytes = self.device_bytes.unwrap_or(u64::MAX);
        let limit = self.room.bytes.min(device_bytes) / 2 / row;
        let degrees = self.graph.indptr.windows(2).map(|pair| pair[1] - pair[0]);
        let (largest, v) = degrees.zip(0u32..).max().unwrap_or((0, 0));
        if largest < limit {
            return Ok(limit);
        }
        let (needed, number) = (((largest + 1) * row * 2).div_ceil(1 << 20), layer + 1);
        Err(match device_bytes < self.room.bytes {
            true => Error::Inference {
                layer: number,
                what: format!(
                    "vertex {v} has {largest} in-edges, for which it needs {needed} MiB of the GPU's memory, {} MiB are left",
                    device_bytes >> 20
                ),
                remedy: self.room.remedy,
            },
            false => Error::Option(format!(
                "--memory: vertex {v} has {largest} in-edges, for which layer {number} needs {needed} MiB beside the \
                 program's own: raise it"
            )),
        })
    }

    /// Width of the rows that `layer` reads.
    fn in_dim(&self, layer: usize) -> usize {
        layer.checked_sub(1).map_or(self.source.table().dim(), |below| self.model.out_dim(below))
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

    /// The rows of `frontier`, at the model's place.
    fn chunk(
        &self,
        layer: usize,
        sampler: &mut Sampler,
        frontier: &[u32],
        below: Option<&HiddenReader<'_>>,
    ) -> Result<tch::Tensor> {
        let (key, mut all) = (StreamKey::new(0, Stream::Sample), SampledLayer::default());
        sampler.start(frontier);
        sampler.layer(&self.graph, &Uniform::new(Fanout::All), &key, EdgeIds::Drop, &mut all)?;
        let vertices = sampler.mixed();
        let (place, input) = (self.model.place(), self.model.input());
        let rows = match below {
            Some(below) => Some(below.rows(place, vertices, self.in_dim(layer))?),
            None if self.source.is_read_in_place() && input.is_plain() => None,
            None => Some(self.source.rows(vertices, input)?),
        };
        let edges = LayerEdges::new(place, self.graph, &all.indptr, &all.local, vertices)?;
        let stored = Rows::Stored { features: self.source.table(), vertices };
        self.model.infer_layer(layer, &edges, rows.as_ref().map_or(stored, Rows::Hidden))
    }

    fn check_stop(&self) -> Result<()> {
        match self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}
