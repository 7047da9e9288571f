//! Exact inference, layer by layer: the result of a forward pass over the whole graph with all
//! neighbours.
//!
//! Returns: the rows of the requested layers, chunk by chunk in the order of the vertices. Input: a
//! model at each place that computes, all on the host or all on GPUs, and a graph with its
//! features. Idea: a layer is computed for all vertices before the next one begins, so nothing is
//! computed twice. Vertices go through a layer in chunks of bounded edges. A chunk is relabelled as
//! in training, so both run the same layer code. Workers take the next chunk when they are free and
//! write rows to one table; the layer ends when all chunks are done. If the rows of two layers do
//! not fit the memory, finished layers are kept in a mapped file. On a GPU the host relabels and
//! sends edges. Every GPU keeps all rows of finished layers if they fit half of its free memory.
//! The host waits only for rows that a callback reads, so it prepares a chunk while another is
//! computed. Cost: one pass over the edges per layer, and one row read from memory or disk per edge
//! and chunk. Memory: a chunk's rows per worker, and 4 · n · (width below + width above) bytes if
//! they fit (half of that for rows of bf16 or f16, on GPUs); on each GPU if the rows are on GPUs.
//! Results do not depend on the number of workers and threads, the storage of the rows, or the
//! budget. Below a few hundred megabytes per worker chunks get smaller; a layer chooses the cheaper
//! order of its products and sums by a [`typical_chunk`], which is the same for every budget.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gsplit_kernels::{Draw, EdgeIds, Fanout, Graph, SampledCsc, Sampler, Stream, StreamKey};
use gsplit_store::Stage;

use super::Team;
use super::chunks::{Bounds, Chunks, Visit};
use super::hidden::{Cell, Hidden, Home};
use crate::model::{LayerEdges, Model};
use crate::operator::{Rows, sharing, with_row};
use crate::{Error, Result};

/// Matrices of a chunk that a layer may hold at once: rows read, transformed rows, scores and sums,
/// rows returned.
const COPIES: u64 = 4;
/// Additional bytes per edge or vertex, for positions and the arrays that they are computed from.
const POSITIONS: u64 = 32;

/// Memory limits, and the storage of rows that exceed them.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    /// Bytes for rows, half of them for finished layers.
    pub bytes: u64,
    /// Folder for finished layers that do not fit.
    pub scratch: Option<&'a Path>,
    /// Bytes of the GPU's memory, half of them for finished layers; four fifths of the free memory
    /// when `None`.
    pub device_bytes: Option<u64>,
    /// Remedy to name when a GPU is out of memory.
    pub remedy: &'static str,
}

impl Room<'_> {
    /// No limit, for a run that evaluates.
    pub const UNLIMITED: Self = Self {
        bytes: u64::MAX,
        scratch: None,
        device_bytes: None,
        remedy: "pass --eval-every 0, and run `gsplit infer --device cpu` afterwards",
    };
}

/// Bytes that a chunk needs per row of `width` values that it reads.
fn row_of(width: u64) -> u64 {
    COPIES * size_of::<f32>() as u64 * width + POSITIONS
}

/// Least [`Room::bytes`] for `workers` to run `model`, which reads `features` values per vertex,
/// over `graph`; a chunk has at least all in-edges of one vertex.
pub fn least_room(model: &Model, features: usize, graph: &Graph<'_>, workers: u64) -> u64 {
    let largest = graph.indptr.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let widths = (0..model.num_layers()).map(|layer| model.out_dim(layer)).chain([features]);
    (largest + 1).saturating_mul(row_of(widths.max().unwrap_or(0) as u64) * 2 * workers)
}

/// Number of targets, sources and edges of the chunk that begins in the middle of `graph`, with
/// unlimited memory.
pub(super) fn typical_chunk(graph: &Graph<'_>) -> Result<[usize; 3]> {
    let bounds = Bounds { graph: *graph, wanted: None, most: u64::MAX };
    let vertices: Vec<u32> = bounds.chunk_at(bounds.count() / 2).map(|at| at as u32).collect();
    if vertices.is_empty() {
        return Ok([0; 3]);
    }
    let mut sampler = Sampler::default();
    let all = in_edges(&mut sampler, graph, &vertices)?;
    Ok([vertices.len(), sampler.mixed_frontier().len(), all.local.len()])
}

/// Returns all in-edges of `frontier`; the vertices at their ends are then in `sampler`.
fn in_edges(sampler: &mut Sampler, graph: &Graph<'_>, frontier: &[u32]) -> Result<SampledCsc> {
    let (key, mut all) = (StreamKey::new(0, Stream::Sample), SampledCsc::default());
    sampler.start(frontier);
    sampler.layer(graph, &Draw::new(Fanout::All), &key, EdgeIds::Drop, &mut all)?;
    Ok(all)
}

/// A model over a whole graph.
pub struct LayerWise<'a> {
    team: Team<'a>,
    graph: Graph<'a>,
    typical: [usize; 3],
    room: Room<'a>,
    /// Bytes of the GPU with the least memory, and the most workers that share one, if the model is
    /// on GPUs.
    device: Option<(u64, u64)>,
    stop: Option<&'static AtomicBool>,
}

impl<'a> LayerWise<'a> {
    /// Prepares the model of `team` to run over `graph`. `stop` becomes true when the run shall
    /// stop.
    pub fn new(
        team: Team<'a>,
        graph: Graph<'a>,
        room: Room<'a>,
        stop: Option<&'static AtomicBool>,
    ) -> Result<Self> {
        let mut device = None;
        for (gpu, workers) in sharing(&team.places()) {
            let bytes = match room.device_bytes {
                Some(bytes) => bytes,
                None => {
                    let (free, total) = gpu.memory()?;
                    // Memory that torch and the driver's pool keep for later counts as used, but is
                    // reused.
                    free.max(total / 8) / 5 * 4
                }
            };
            let (least, most) = device.unwrap_or((bytes, workers));
            device = Some((bytes.min(least), workers.max(most)));
        }
        Ok(Self { team, graph, typical: typical_chunk(&graph)?, room, device, stop })
    }

    pub fn model(&self) -> &'a Model {
        self.team.model()
    }

    /// Runs all layers; passes every chunk of the layers from `lowest` on to `visit`. The last
    /// layer computes only the `wanted` vertices, ascending, or all when `None`; the layers below
    /// cover all. `stage` counts [`Self::num_rows`].
    pub fn run(
        &mut self,
        lowest: usize,
        wanted: Option<&[u32]>,
        stage: &dyn Stage,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        with_row!(self.model().place().row_kind(), |T| self
            .layers::<T>(wanted, None, stage, lowest, visit)
            .map(drop))
    }

    /// Runs all layers and returns the rows of the last, f32 `[vertices, width]`, in the host's
    /// memory, or on disk if its room is bounded and they take more. `stage` counts
    /// [`Self::num_rows`].
    pub fn rows(&mut self, stage: &dyn Stage) -> Result<Option<Hidden<f32>>> {
        let lowest = self.model().num_layers();
        let bytes = (self.graph.num_vertices()
            * self.model().out_dim(self.model().num_layers() - 1)
            * size_of::<f32>()) as u64;
        let home = match self.room.scratch.filter(|_| bytes > self.room.bytes / 2) {
            Some(folder) => Home::Disk(folder),
            None => Home::Memory,
        };
        with_row!(self.model().place().row_kind(), |T| self.layers::<T>(
            None,
            Some(home),
            stage,
            lowest,
            &mut |_| Ok(())
        ))
    }

    /// Runs all layers, with rows of `T` between them; returns the rows of the last layer if `last`
    /// is given.
    fn layers<T: Cell>(
        &mut self,
        wanted: Option<&[u32]>,
        last: Option<Home<'_>>,
        stage: &dyn Stage,
        lowest: usize,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Hidden<f32>>> {
        let (top, home, remedy) = (self.model().num_layers() - 1, self.home(), self.room.remedy);
        let mut below: Option<Hidden<T>> = None;
        for layer in 0..top {
            let visit: Option<&mut Visit<'_>> =
                if layer >= lowest { Some(&mut *visit) } else { None };
            let finished =
                self.layer::<T, T>(layer, below.as_ref(), None, Some(home), stage, visit);
            below = finished.map_err(|error| error.of_inference(layer + 1, remedy))?;
        }
        let visit = if top >= lowest { Some(visit) } else { None };
        let finished = self.layer::<T, f32>(top, below.as_ref(), wanted, last, stage, visit);
        finished.map_err(|error| error.of_inference(top + 1, remedy))
    }

    /// Computes one layer; returns its rows if a `home` is given.
    fn layer<B: Cell, A: Cell>(
        &mut self,
        layer: usize,
        below: Option<&Hidden<B>>,
        wanted: Option<&[u32]>,
        home: Option<Home<'_>>,
        stage: &dyn Stage,
        visit: Option<&mut Visit<'_>>,
    ) -> Result<Option<Hidden<A>>> {
        let (in_dim, out_dim) = (self.in_dim(layer), self.model().out_dim(layer));
        let bounds = Bounds { graph: self.graph, wanted, most: self.limit(layer)? };
        let below = below.map(|below| below.reader(self.model().place()));
        let begin = |home| Hidden::begin(home, &self.team.places(), bounds.count() * out_dim);
        let mut above: Option<Hidden<A>> = home.map(begin).transpose()?;
        let visit = visit.map(|visit| -> &mut Visit<'_> { visit });
        let chunks =
            Chunks::new(bounds, above.as_mut().map(|above| (above.slots(), out_dim)), visit);
        let (graph, typical, stop, below) = (self.graph, self.typical, self.stop, below.as_ref());
        self.team.each(|model, source, failed| {
            let (place, input, mut sampler) = (model.place(), model.input(), Sampler::default());
            let compute = |frontier: &[u32]| {
                let all = in_edges(&mut sampler, &graph, frontier)?;
                let vertices = sampler.mixed_frontier();
                let rows = match below {
                    Some(below) => Some(below.rows(place, vertices, in_dim)?),
                    None if let Some(encoders) = model.encoders() => {
                        let features = source.rows_by_type(vertices, input)?;
                        let encode = || encoders.encode(place, vertices, &features, None);
                        Some(tch::no_grad(encode)?)
                    }
                    None if source.is_read_in_place() && input.is_plain() => None,
                    None => Some(source.rows(vertices, input, 0)?),
                };
                let edges = LayerEdges::new(place, graph, all, vertices)?
                    .into_rows_of(frontier.len())
                    .counted_as(typical);
                let stored = Rows::Stored { features: source.table(), vertices };
                model.infer_layer(layer, &edges, rows.as_ref().map_or(stored, Rows::Hidden))
            };
            chunks.work(layer, place, failed, stop, stage, compute)
        })?;
        drop(chunks);
        above.map(Hidden::finish).transpose()
    }

    /// Number of rows that [`Self::run`] computes.
    pub fn num_rows(&self, wanted: Option<&[u32]>) -> u64 {
        let all = self.graph.num_vertices();
        ((self.model().num_layers() - 1) * all + wanted.map_or(all, <[u32]>::len)) as u64
    }

    /// True if finished layers are kept on disk.
    pub fn spills(&self) -> bool {
        matches!(self.home(), Home::Disk(_))
    }

    /// Storage of finished layers, of which two exist at a time.
    fn home(&self) -> Home<'a> {
        let model = self.model();
        let hidden = model.num_layers() - 1;
        let widths: Vec<u64> = (0..hidden).map(|layer| model.out_dim(layer) as u64).collect();
        let widest = widths
            .windows(2)
            .map(|pair| pair[0] + pair[1])
            .chain(widths.iter().copied())
            .max()
            .unwrap_or(0);
        let bytes = widest.saturating_mul(
            self.graph.num_vertices() as u64 * model.place().row_kind().elt_size_in_bytes() as u64,
        );
        match (self.device, self.room.scratch) {
            (Some((device_bytes, _)), _) if bytes <= device_bytes / 2 => Home::Device,
            (_, Some(folder)) if bytes > self.room.bytes / 2 => Home::Disk(folder),
            _ => Home::Memory,
        }
    }

    /// Maximum number of rows that a chunk of `layer` reads, edges and vertices together.
    fn limit(&self, layer: usize) -> Result<u64> {
        let width = self.in_dim(layer).max(self.model().out_dim(layer)) as u64;
        let row = row_of(width);
        let (device_bytes, on_gpu) = self.device.unwrap_or((u64::MAX, 1));
        let on_host = self.team.places().len() as u64;
        // The smaller share per worker decides.
        let of_gpu = device_bytes / on_gpu < self.room.bytes / on_host;
        let (bytes, workers) =
            if of_gpu { (device_bytes, on_gpu) } else { (self.room.bytes, on_host) };
        let limit = bytes / workers / 2 / row;
        let degrees = self.graph.indptr.windows(2).map(|pair| pair[1] - pair[0]);
        let (largest, v) = degrees.zip(0u32..).max().unwrap_or((0, 0));
        if largest < limit {
            return Ok(limit);
        }
        let (needed, number) = (((largest + 1) * row * 2 * workers).div_ceil(1 << 20), layer + 1);
        Err(match of_gpu {
            true => Error::Inference {
                layer: number,
                what: format!(
                    "vertex {v} has {largest} in-edges, for which it needs {needed} MiB of the \
                     GPU's memory, {} MiB are left",
                    device_bytes >> 20
                ),
                remedy: self.room.remedy,
            },
            false => Error::Option(format!(
                "--memory: vertex {v} has {largest} in-edges, for which layer {number} needs \
                 {needed} MiB beside the \
                 program's own: raise it"
            )),
        })
    }

    /// Width of the rows that `layer` reads.
    fn in_dim(&self, layer: usize) -> usize {
        layer
            .checked_sub(1)
            .map_or(self.model().in_dim(self.team.source().table().dim()), |below| {
                self.model().out_dim(below)
            })
    }

    /// Flag that becomes true when the run shall stop.
    pub fn stop(&self) -> Option<&'static AtomicBool> {
        self.stop
    }
}
