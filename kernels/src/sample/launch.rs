//! The launches of one layer, in memory that [`DeviceSampler`](super::DeviceSampler) has allocated.

use super::cuda::MODULE;
use super::device::{DeviceDraw, DeviceGraph};
use super::fanout::Fanout;
use super::numbers::{LISTED, Numbers, STATUS};
use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, Gpu, GpuError, Shape, THREADS, arguments};
use crate::philox::StreamKey;

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

/// Lists of the drawn edges: their sources, and their ids if they are kept.
pub(super) type EdgeOutput<'a> = (&'a DeviceBuffer<u32>, Option<&'a DeviceBuffer<u64>>);

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

    fn drawn(&self, (local, edges): EdgeOutput<'_>) -> [Argument; 4] {
        arguments![local, edges, self.request.edge, self.request.numbers.at(STATUS)]
    }

    /// Draws up to [`FEW`] edges of each frontier vertex into the first of its `fanout` places;
    /// stores their number in `counts`.
    pub(super) fn draw_few(
        &self,
        counts: &DeviceBuffer<u32>,
        to: EdgeOutput<'_>,
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
        self.launch(name, Shape::per_item(self.frontier.len() * lanes), &arguments)
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
        self.launch("sample_count", Shape::per_item(most), &arguments)?;
        Ok((counts, list))
    }

    /// Draws the edges that were counted; `to` has room for all of them.
    pub(super) fn draw(
        &self,
        indptr: &DeviceBuffer<u32>,
        list: Option<&DeviceBuffer<u32>>,
        to: EdgeOutput<'_>,
    ) -> Result<(), GpuError> {
        let (excluded, drawn) = (self.request.draw.excluded(), self.drawn(to));
        let shared = [&excluded[..], &self.table, &arguments![indptr], &drawn].concat();
        let shape =
            Shape { blocks: to.0.len().div_ceil(COPIED) as u32, threads: THREADS, shared: 0 };
        self.launch("sample_copy", shape, &[&shared])?;
        let Some(list) = list else { return Ok(()) };
        let size = self.request.draw.number().next_power_of_two();
        // Blocks that handle one vertex after another: as many as are useful. Picks that do not fit
        // into shared memory have memory of their own, which stays until the kernel is launched.
        let (most, bytes) =
            (list.len().min(32 * self.gpu.multiprocessors() as usize), 16 * size as usize);
        let (in_block, blocks, memory) = match bytes <= SHARED_BYTES {
            true => (bytes, most, None),
            false => {
                let blocks = most.min((PICKS_BYTES / bytes).max(1));
                (0, blocks, Some(self.gpu.alloc::<u8>(blocks * bytes)?))
            }
        };
        let shape = Shape { blocks: blocks as u32, threads: MANY_THREADS, shared: in_block as u32 };
        let listed = self.request.numbers.at(LISTED);
        let rest = arguments![self.request.key, list, listed, size, memory.as_ref()];
        self.launch("sample_many", shape, &[&shared, &rest])
    }
}
