//! Mini-batches sampled on a GPU, layer after layer.
//!
//! Returns: each layer's edges as CSC, and the mixed frontier, all on the device and bit for bit
//! the results of [`Sampler`](super::Sampler). Input: distinct seeds, vertices of the graph. Idea:
//! up to 32 edges per vertex, as many lanes of a warp as the fanout draw, and compare their picks
//! with each other; each vertex has as many places as the fanout. Sources are noted in a table as
//! they are drawn and numbered afterwards (`unique`), while the numbers of used places are summed
//! up, and edges are moved into contiguous lists. For more edges per vertex, these are counted and
//! summed up first; then a block draws for each vertex that picks, with its picks in shared memory,
//! and one thread copies each edge of vertices that keep all, however many. Draws by weight run
//! only on the host. Only the GPU knows the number of vertices of a frontier: kernels read it
//! there, and the host launches as many threads as there can be at most. So layers follow each
//! other, and the host waits once for the numbers of all ([`DeviceSampler::finish`]). It waits
//! earlier if a layer could be too large to reserve memory for the maximum: above [`MOST_PLACES`],
//! or if the fanout does not bound the number of edges well (`all`, or more than most vertices
//! have). Cost: one read of the graph at a random place for each edge, and four of the table;
//! launches: five per layer, and two to start.

use super::device::{DeviceDraw, DeviceEdgeIds, DeviceGraph, DeviceLayer};
use super::fanout::Fanout;
use super::launch::{FEW, Launch, Request};
use super::numbers::{Block, EDGES, LEN, NEW, Numbers, OF_SPLIT, STATUS};
use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, HostBytes, Module, arguments};
use crate::error::KernelError;
use crate::philox::StreamKey;
use crate::scan::cuda::sums_before;
use crate::unique::{DeviceNumbering, Items};

pub(crate) static MODULE: Module = Module { name: "sample", source: include_str!("cuda.cu") };

/// Layers of up to this many edges are too small to wait for their exact number.
const SMALL_LAYER: u64 = 1 << 20;
/// No layer reserves memory for more edges before the number of its vertices is known.
const MOST_PLACES: u64 = 1 << 24;

/// Samples mini-batches on a GPU, one after another; the twin of [`Sampler`](super::Sampler).
///
/// Launches on the stream of its [`Gpu`], and frees and reuses memory in its order.
#[derive(Debug)]
pub struct DeviceSampler {
    gpu: Gpu,
    numbering: DeviceNumbering,
    block: Block,
    /// The previous block: kernels of the first layer of `block` read its last numbers.
    previous: Option<Block>,
    /// Layers that were launched and not finished, with the places of their numbers until these are
    /// read.
    launched: Vec<(DeviceLayer, Option<usize>)>,
    /// Whether the number of vertices of the frontier is known.
    settled: bool,
    /// Whether a vertex of the frontier may be repeated.
    check: bool,
    most_places: u64,
}

impl DeviceSampler {
    /// A sampler that launches on `gpu`'s stream.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        let (numbering, block) = (DeviceNumbering::new(gpu)?, Block::new(gpu)?);
        let (previous, launched, most_places) = (None, Vec::new(), MOST_PLACES);
        Ok(Self {
            gpu: gpu.clone(),
            numbering,
            block,
            previous,
            launched,
            settled: true,
            check: false,
            most_places,
        })
    }

    /// Begins a mini-batch from `graph`: `frontier` is the frontier of its first layer.
    pub fn start(
        &mut self,
        graph: &DeviceGraph<'_>,
        frontier: DeviceSlice<'_, u32>,
    ) -> Result<(), GpuError> {
        let numbers = self.restart(graph, frontier.len())?;
        self.numbering.know(frontier, [numbers.at(LEN), numbers.at(STATUS)])?;
        (self.settled, self.check) = (true, true);
        Ok(())
    }

    /// Begins a mini-batch with the vertices of both lists, each once. The host does not wait.
    /// Returns their slots in the table.
    pub(crate) fn restart_with(
        &mut self,
        graph: &DeviceGraph<'_>,
        lists: [DeviceSlice<'_, u32>; 2],
    ) -> Result<DeviceBuffer<u32>, GpuError> {
        let numbers = self.restart(graph, lists.iter().map(|list| list.len()).sum())?;
        let slots =
            self.numbering.start_with(lists, [NEW, LEN, STATUS].map(|which| numbers.at(which)))?;
        (self.settled, self.check) = (false, false);
        Ok(slots)
    }

    /// Begins a mini-batch with up to `most` vertices; discards unfinished layers.
    fn restart(&mut self, graph: &DeviceGraph<'_>, most: usize) -> Result<Numbers, GpuError> {
        self.launched.clear();
        self.block.settle(0);
        self.numbering.restart(graph.num_vertices(), most)?;
        self.numbers(graph)
    }

    /// Reserves the numbers of the next layer.
    fn numbers(&mut self, graph: &DeviceGraph<'_>) -> Result<Numbers, GpuError> {
        if self.block.is_full() {
            self.look(graph, 0, None)?;
            self.previous = Some(std::mem::replace(&mut self.block, Block::new(&self.gpu)?));
        }
        Ok(self.block.take())
    }

    /// The frontier of the next layer, once the earlier ones are finished: after a layer, its mixed
    /// frontier, which starts with that layer's frontier.
    pub fn mixed_frontier(&self) -> DeviceSlice<'_, u32> {
        self.numbering.ids()
    }

    /// Like [`DeviceSampler::mixed_frontier`], but takes the frontier; the next mini-batch starts
    /// after it.
    pub fn take_mixed_frontier(&mut self) -> Result<DeviceBuffer<u32>, GpuError> {
        self.numbering.take_ids()
    }

    /// Samples the next layer, and extends the mixed frontier: [`DeviceSampler::launch`], and
    /// [`DeviceSampler::finish`].
    pub fn layer(
        &mut self,
        graph: &DeviceGraph<'_>,
        draw: &DeviceDraw<'_>,
        key: &StreamKey,
        edges: DeviceEdgeIds<'_>,
    ) -> Result<DeviceLayer, GpuError> {
        self.launch(graph, draw, key, edges)?;
        let none =
            || KernelError::Length { what: "layers that were launched", expected: 1, got: 0 };
        self.finish(graph)?.pop().ok_or_else(|| none().into())
    }

    /// Launches the next layer from `graph`, the graph of [`DeviceSampler::start`]. The host seldom
    /// waits.
    pub fn launch(
        &mut self,
        graph: &DeviceGraph<'_>,
        draw: &DeviceDraw<'_>,
        key: &StreamKey,
        edges: DeviceEdgeIds<'_>,
    ) -> Result<(), GpuError> {
        draw.fanout.check()?;
        let (keep, counters) = match edges {
            DeviceEdgeIds::Drop => (false, None),
            DeviceEdgeIds::Keep => (true, None),
            DeviceEdgeIds::Count(counters) => (false, Some(counters.lend(graph)?)),
        };
        let ids = keep || counters.is_some() || draw.reads_ids();
        let [work, edge] = counters.map_or([0; 2], |(work, edge)| [work.address(), edge.address()]);
        if !self.settled && draw.fanout != Fanout::All && self.room(graph, draw.fanout).is_none() {
            self.look(graph, 0, None)?;
        }
        let (numbers, room) = (self.numbers(graph)?, self.room(graph, draw.fanout));
        let request = Request { graph, draw, numbers, key, keep, ids, work, edge };
        let layer = match (draw.fanout, room) {
            (Fanout::Take(..=FEW), Some(room)) => self.draw_few(&request, room)?,
            (_, room) => self.draw_counted(&request, room)?,
        };
        self.launched.push((layer, Some(self.block.last())));
        (self.settled, self.check) = (false, false);
        Ok(())
    }

    /// Returns the layers of `graph` that were launched since the last call. Waits for them.
    ///
    /// # Errors
    /// Errors of [`Sampler::layer`](super::Sampler::layer) as [`GpuError::Input`]
    /// ([`KernelError::CounterOverflow`] at once, and [`KernelError::Topology`] for a damaged
    /// graph), and errors of the GPU. The mini-batch is then lost: [`start`](Self::start) another.
    pub fn finish(&mut self, graph: &DeviceGraph<'_>) -> Result<Vec<DeviceLayer>, GpuError> {
        self.look(graph, 0, None)?;
        Ok(self.finished())
    }

    fn finished(&mut self) -> Vec<DeviceLayer> {
        self.launched.drain(..).map(|(layer, _)| layer).collect()
    }

    /// [`DeviceSampler::finish`], which also returns the status word of splitting the last mixed
    /// frontier, and copies `others` to the host in the same copy.
    pub(crate) fn finish_with(
        &mut self,
        graph: &DeviceGraph<'_>,
        others: DeviceSlice<'_, u8>,
    ) -> Result<(Vec<DeviceLayer>, u64, HostBytes), GpuError> {
        let (last, others) = self.look(graph, 0, Some(others))?;
        let split_status = last.get(OF_SPLIT).copied().unwrap_or(0);
        Ok((self.finished(), split_status, others))
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) fn numbering(&self) -> &DeviceNumbering {
        &self.numbering
    }

    /// Address of the status word of splitting the last mixed frontier.
    pub(crate) fn split_status(&self) -> u64 {
        self.block.latest().at(OF_SPLIT)
    }

    /// Reads the numbers of the launched layers, and `others`, in one copy; settles all layers
    /// except the last `open` ones. Returns the numbers of the last layer.
    fn look(
        &mut self,
        graph: &DeviceGraph<'_>,
        open: usize,
        others: Option<DeviceSlice<'_, u8>>,
    ) -> Result<(Vec<u64>, HostBytes), GpuError> {
        let (first, unread) = (self.block.first_unread(), self.block.unread()?);
        let others = others.unwrap_or(unread.part(0, 0)?.as_bytes());
        let [words, others] = self.gpu.read([unread.as_bytes(), others])?;
        self.block.settle(open);
        let words = words.values::<u64>();
        let layers: Vec<&[u64]> = Block::layers(&words).collect();
        layers.iter().try_for_each(|of| self.checked(graph, of))?;
        for (layer, at) in &mut self.launched {
            if let Some(of) = at.take().and_then(|at| layers.get(at - first)) {
                layer.truncate((of[LEN] - of[NEW]) as usize, of[EDGES] as usize);
            }
        }
        if let Some(of) = layers.iter().rev().nth(open) {
            self.numbering.settle(of[LEN] as usize);
        }
        self.settled = true;
        Ok((layers.last().map_or(Vec::new(), |last| last.to_vec()), others))
    }

    /// Draws up to [`FEW`] edges per vertex, in `room` places.
    fn draw_few(&mut self, request: &Request<'_>, room: usize) -> Result<DeviceLayer, GpuError> {
        let (gpu, numbers) = (self.gpu.clone(), request.numbers);
        self.numbering.reserve(room)?;
        self.numbering.spoil();
        let (len, slots) = (self.numbering.len(), gpu.alloc(room)?);
        let mut indptr = gpu.alloc(self.mixed_frontier().len() + 1)?;
        let ids = if request.keep { Some(gpu.alloc(room)?) } else { None };
        self.launch_of(request).draw_few(&indptr, (&slots, ids.as_ref()))?;
        let width = request.draw.number();
        let items = Items { slots: slots.slice(), rows: Some(len), width: width as usize };
        let sums = Some((&mut indptr, numbers.at(EDGES)));
        self.numbering.number(&items, [numbers.at(NEW), numbers.at(LEN)], sums)?;
        let [local, targets] = [gpu.alloc(room)?, gpu.alloc(room)?];
        let kept = if request.keep { Some(gpu.alloc(room)?) } else { None };
        // Contiguous lists of the edges, each vertex's at the positions in `indptr`.
        let (from, table) = (arguments![len, width, room], self.numbering.table.arguments());
        let to = arguments![&indptr, &slots, ids.as_ref(), &local, &targets, kept.as_ref()];
        gpu.run(MODULE.kernel("sample_close"), room, &[&from[..], &table, &to].concat())?;
        Ok(DeviceLayer { indptr, local, targets: Some(targets), edges: kept })
    }

    /// Draws any number of edges per vertex, which are counted first: without `room` for the
    /// maximum, the host waits for their number.
    fn draw_counted(
        &mut self,
        request: &Request<'_>,
        room: Option<usize>,
    ) -> Result<DeviceLayer, GpuError> {
        let (gpu, numbers) = (self.gpu.clone(), request.numbers);
        let (mut indptr, list) = self.launch_of(request).count()?;
        sums_before(&gpu, [(&indptr.slice_mut(), numbers.at(EDGES))])?;
        let room = match room {
            Some(room) => room,
            None => {
                let edges = self.look(request.graph, 1, None)?.0[EDGES];
                // The frontier and all edges must have distinct positions.
                if edges + self.mixed_frontier().len() as u64 >= u64::from(u32::MAX) {
                    return Err(KernelError::TooManyEdges { edges }.into());
                }
                edges as usize
            }
        };
        self.numbering.reserve(room)?;
        self.numbering.spoil();
        let local = gpu.alloc(room)?;
        let edges = if request.keep { Some(gpu.alloc(room)?) } else { None };
        self.launch_of(request).draw(&indptr, list.as_ref(), (&local, edges.as_ref()))?;
        let items = Items { slots: local.slice(), rows: Some(numbers.at(EDGES)), width: 1 };
        self.numbering.number(&items, [numbers.at(NEW), numbers.at(LEN)], None)?;
        self.numbering.look_up(&items)?;
        Ok(DeviceLayer { indptr, local, targets: None, edges })
    }

    fn launch_of<'a>(&'a self, request: &'a Request<'a>) -> Launch<'a> {
        let (frontier, len, table) =
            (self.mixed_frontier(), self.numbering.len(), self.numbering.table.arguments());
        Launch { gpu: &self.gpu, request, frontier, len, check: self.check, table }
    }

    /// Memory for the edges of a layer, if the fanout bounds their number well enough.
    fn room(&self, graph: &DeviceGraph<'_>, fanout: Fanout) -> Option<usize> {
        let Fanout::Take(most) = fanout else { return None };
        let frontier = self.numbering.most() as u64;
        let room = frontier.checked_mul(most.into())?;
        let degree = (graph.num_edges() as u64).div_ceil(graph.num_vertices().max(1) as u64);
        let fits = room <= SMALL_LAYER || room <= 2 * frontier * fanout.kept(degree);
        let known = self.settled || room <= self.most_places;
        (fits && known && room + frontier < u64::from(u32::MAX)).then_some(room as usize)
    }

    /// Turns the status that the kernels reported into the error of the host's sampler.
    fn checked(&mut self, graph: &DeviceGraph<'_>, numbers: &[u64]) -> Result<(), GpuError> {
        if numbers[STATUS] == 0 {
            return Ok(());
        }
        self.numbering.spoil();
        let (at, what) = ((!numbers[STATUS] >> 3) as usize, !numbers[STATUS] & 7);
        let gpu = &self.gpu;
        let vertex =
            |of: DeviceSlice<'_, u32>| of.part(at, at + 1)?.to_vec(gpu).map(|found| found[0]);
        let num_vertices = graph.num_vertices();
        Err(match what {
            0 => KernelError::NotHeld { vertex: vertex(self.mixed_frontier())? },
            1 => KernelError::VertexOutOfRange {
                vertex: vertex(self.mixed_frontier())?,
                num_vertices,
            },
            2 => KernelError::RepeatedVertex { vertex: vertex(self.mixed_frontier())? },
            3 => {
                let v = vertex(self.mixed_frontier())? as usize;
                let ends = graph.indptr.part(v, v + 2)?.to_vec(gpu)?;
                KernelError::TooManyEdges { edges: ends[1] - ends[0] }
            }
            5 => KernelError::VertexOutOfRange { vertex: at as u32, num_vertices },
            6 => KernelError::Topology {
                expected: "an indptr that ascends to the number of edges",
                got: format!("another one at vertex {}", vertex(self.mixed_frontier())?),
            },
            _ => KernelError::CounterOverflow,
        }
        .into())
    }

    /// Limits tables with a word for each vertex to `bytes`, and layers whose frontier is unknown
    /// to `most_places` places. No result depends on it.
    #[cfg(test)]
    pub(super) fn tuned(&mut self, bytes: usize, most_places: u64) {
        self.numbering.direct_up_to(bytes);
        self.most_places = most_places;
    }
}
