//! The launches of one layer, in memory that [`DeviceSampler`](super::DeviceSampler) has allocated.

use super::cuda::MODULE;
use super::device::{DeviceDraw, DeviceGraph};
use super::fanout::Fanout;
use super::numbers::{LISTED, Numbers, STATUS};
use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, Gpu, GpuError, Shape, arguments};
use crate::philox::StreamKey;

const THREADS: u32 = 256;
/// Largest fanout at which the lanes of a warp share a vertex's edges.
pub(super) const FEW: u32 = 32;
/// Threads of a block that handles one vertex with a larger fanout.
const MANY_THREADS: u32 = 128;
/// Edges that one block copies.
const COPIED: usize = 2048;
/// Bytes of shared memory that every GPU gives a block by default.
const SHARED_BYTES: usize = 32 << 10;
/// Memory for the picks of all blocks, if one block's picks do not fit in shared memory.
const PICKS_BYTES: usize = 64 << 20;

/// Parameters of a layer.
pub(super) struct Request<'a> {
    pub graph: &'a DeviceGraph<'a>,
    pub draw: &'a DeviceDraw<'a>,
    pub key: &'a StreamKey,
    pub numbers: Numbers,
    /// Whether the ids of the edges are kept, and whether they are needed at all.
    pub keep: bool,
    pub ids: bool,
    /// Address of the counts of edges, charged to frontier vertices, and of the counters of edges,
    /// or 0.
    pub work: u64,
    pub edge: u64,
}

/// Arguments that the launches of one layer share.
pub(super) struct Launch<'a> {
    pub gpu: &'a Gpu,
    pub request: &'a Request<'a>,
    /// The vertices, and room for more.
    pub frontier: DeviceSlice<'a, u32>,
    /// Address of their number.
    pub len: u64,
    /// Whether a vertex may be repeated.
    pub check: bool,
    /// The table that they are in.
    pub table: [Argument; 3],
}

/// Output of the drawn edges.
pub(super) struct EdgeOutput<'a> {
    pub local: &'a DeviceBuffer<u32>,
    /// Their ids, if they are kept.
    pub edges: Option<&'a DeviceBuffer<u64>>,
}

/// Blocks that handle one vertex after another, with memory of their own.
struct Blocks {
    shape: Shape,
    /// Bitmaps that do not fit into shared memory; kept until the kernel is launched.
    memory: Option<DeviceBuffer<u8>>,
}

/// EdgeSlots of [`Launch::draw_few`], whose slots are numbered.
pub(super) struct EdgeSlots<'a> {
    pub slots: &'a DeviceBuffer<u32>,
    /// Ids of the edges, if they are kept.
    pub ids: Option<&'a DeviceBuffer<u64>>,
    /// Address of the number of vertices, of `width` places each.
    pub rows: u64,
    pub width: u32,
}

impl EdgeSlots<'_> {
    /// Makes contiguous lists of the edges, each vertex's at the positions in `indptr`: their
    /// sources and targets, and their ids.
    pub(super) fn close(
        &self,
        gpu: &Gpu,
        table: [Argument; 3],
        indptr: &DeviceBuffer<u32>,
        [local, targets]: [&DeviceBuffer<u32>; 2],
        edges: Option<&DeviceBuffer<u64>>,
    ) -> Result<(), GpuError> {
        let first = arguments![self.rows, self.width, self.slots.len()];
        let rest = arguments![indptr, self.slots, self.ids, local, targets, edges];
        let shape = Shape::per_item(self.slots.len(), THREADS);
        gpu.launch(MODULE.kernel("sample_close"), shape, &[&first[..], &table, &rest].concat())
    }
}

impl Launch<'_> {
    /// Launches a kernel for any number of blocks that reads the graph and the frontier.
    fn launch(
        &self,
        name: &'static str,
        shape: Shape,
        arguments: &[&[Argument]],
    ) -> Result<(), GpuError> {
        let (graph, check) = (self.request.graph.argument(self.request.ids), u32::from(self.check));
        let first = arguments![graph, self.frontier, self.len, self.frontier.len(), check];
        let arguments = [&first[..], &arguments.concat()].concat();
        self.gpu.launch(
            MODULE.kernel(name),
            self.request.graph.shape(self.gpu, shape, self.request.ids),
            &arguments,
        )
    }

    /// As many blocks as are useful, each with `bytes` of memory.
    fn blocks(&self, threads: u32, bytes: usize) -> Result<Blocks, GpuError> {
        let most = self.frontier.len().min(32 * self.gpu.multiprocessors() as usize);
        let (shared, blocks, memory) = match bytes <= SHARED_BYTES {
            true => (bytes, most, None),
            false => {
                let blocks = most.min((PICKS_BYTES / bytes).max(1));
                (0, blocks, Some(self.gpu.alloc(blocks * bytes)?))
            }
        };
        Ok(Blocks {
            shape: Shape { blocks: blocks as u32, threads, shared: shared as u32 },
            memory,
        })
    }

    fn drawn(&self, to: &EdgeOutput<'_>) -> [Argument; 4] {
        arguments![to.local, to.edges, self.request.edge, self.request.numbers.at(STATUS)]
    }

    /// Draws up to [`FEW`] edges of each frontier vertex into the first of its `fanout` places;
    /// stores their number in `counts`.
    pub(super) fn draw_few(
        &self,
        counts: &DeviceBuffer<u32>,
        to: &EdgeOutput<'_>,
    ) -> Result<(), GpuError> {
        let fanout = self.request.draw.number();
        let (name, lanes) = match fanout {
            ..=4 => ("sample_few_4", 4),
            5..=8 => ("sample_few_8", 8),
            9..=16 => ("sample_few_16", 16),
            _ => ("sample_few_32", FEW as usize),
        };
        let rest = arguments![counts, self.request.work, self.request.key];
        let arguments = [
            &arguments![fanout][..],
            &self.request.draw.excluded(),
            &self.table,
            &rest,
            &self.drawn(to),
        ];
        self.launch(name, Shape::per_item(self.frontier.len() * lanes, THREADS), &arguments)
    }

    /// Counts the edges of each frontier vertex, with room for their sum, and lists the vertices
    /// that a separate kernel has to draw for, if there may be any.
    pub(super) fn count(&self) -> Result<(DeviceBuffer<u32>, Option<DeviceBuffer<u32>>), GpuError> {
        let (most, fanout) = (self.frontier.len(), self.request.draw.number());
        let counts = self.gpu.alloc(most + 1)?;
        let listing = fanout > FEW && self.request.draw.fanout != Fanout::All;
        let list = listing.then(|| self.gpu.alloc::<u32>(most)).transpose()?;
        let [listed, status] = [LISTED, STATUS].map(|which| self.request.numbers.at(which));
        let rest = arguments![&counts, self.request.work, list.as_ref(), listed, status];
        let arguments =
            [&arguments![fanout][..], &self.request.draw.excluded(), &self.table, &rest];
        self.launch("sample_count", Shape::per_item(most, THREADS), &arguments)?;
        Ok((counts, list))
    }

    /// Draws the edges that were counted; `to` has room for all of them.
    pub(super) fn draw(
        &self,
        indptr: &DeviceBuffer<u32>,
        list: Option<&DeviceBuffer<u32>>,
        to: &EdgeOutput<'_>,
    ) -> Result<(), GpuError> {
        let (excluded, drawn) = (self.request.draw.excluded(), self.drawn(to));
        let shared = [&excluded[..], &self.table, &arguments![indptr], &drawn].concat();
        let shape =
            Shape { blocks: to.local.len().div_ceil(COPIED) as u32, threads: THREADS, shared: 0 };
        self.launch("sample_copy", shape, &[&shared])?;
        let Some(list) = list else { return Ok(()) };
        let size = self.request.draw.number().next_power_of_two();
        let blocks = self.blocks(MANY_THREADS, 16 * size as usize)?;
        let rest = arguments![
            self.request.key,
            list,
            self.request.numbers.at(LISTED),
            size,
            blocks.memory.as_ref()
        ];
        self.launch("sample_many", blocks.shape, &[&shared, &rest])
    }
}
