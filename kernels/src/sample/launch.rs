//! The launches of one layer, in memory that [`DeviceSampler`](super::DeviceSampler) has made room in.

use super::cuda::MODULE;
use super::device::{DeviceDraw, DeviceGraph};
use super::fanout::Fanout;
use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, Gpu, GpuError, Kernel, Shape};
use crate::philox::StreamKey;

const THREADS: u32 = 256;
/// Up to here, the lanes of a warp share a vertex's edges.
const FEW: u32 = 32;
/// Threads of a block that has a vertex of more.
const MANY_THREADS: u32 = 128;
/// Edges that one block copies.
const COPIED: usize = 2048;
/// Bytes of shared memory that every GPU gives a block without being asked.
const SHARED_BYTES: usize = 32 << 10;
/// Memory for the picks of all blocks, where those of one are more.
const PICKS_BYTES: usize = 64 << 20;

// Places in a layer's numbers.
pub(super) const STATUS: usize = 0;
pub(super) const EDGES: usize = 1;
const LISTED: usize = 2;
pub(super) const NEW: usize = 3;
pub(super) const NUMBERS: usize = 4;

/// What the launches of one layer share.
pub(super) struct Launch<'a> {
    pub gpu: &'a Gpu,
    pub graph: &'a DeviceGraph<'a>,
    pub draw: &'a DeviceDraw<'a>,
    pub frontier: DeviceSlice<'a, u32>,
    pub numbers: &'a DeviceBuffer<u64>,
    /// Whether somebody asks for the ids of edges.
    pub ids: bool,
}

/// Blocks that have a vertex each, and go on to another, with memory of their own.
struct Blocks {
    shape: Shape,
    /// Where it does not fit into shared memory; kept until the kernel is launched.
    memory: Option<DeviceBuffer<u8>>,
}

impl Blocks {
    fn memory(&self) -> Argument {
        self.memory.as_ref().map_or(0, |memory| memory.slice().address()).into()
    }
}

impl Launch<'_> {
    /// A kernel of any number of blocks whose first argument is the graph.
    fn launch(&self, name: &'static str, shape: Shape, arguments: &[&[Argument]]) -> Result<(), GpuError> {
        let arguments = [&[self.graph.argument(self.ids)], &arguments.concat()[..]].concat();
        self.gpu.launch(Kernel { module: &MODULE, name }, self.graph.shape(self.gpu, shape), &arguments)
    }

    fn frontier(&self) -> [Argument; 2] {
        [self.frontier.into(), (self.frontier.len() as u64).into()]
    }

    fn number(&self, which: usize) -> Result<Argument, GpuError> {
        Ok(self.numbers.slice().part(which, which + 1)?.into())
    }

    /// As many blocks as are worth while, each with `bytes`.
    fn blocks(&self, threads: u32, bytes: usize) -> Result<Blocks, GpuError> {
        let most = self.frontier.len().min(32 * self.gpu.multiprocessors() as usize);
        let (shared, blocks, memory) = match bytes <= SHARED_BYTES {
            true => (bytes, most, None),
            false => {
                let blocks = most.min((PICKS_BYTES / bytes).max(1));
                (0, blocks, Some(self.gpu.alloc(blocks * bytes)?))
            }
        };
        Ok(Blocks { shape: Shape { blocks: blocks as u32, threads, shared: shared as u32 }, memory })
    }

    /// The number of edges of each frontier vertex, with room for their sum, and the vertices that a kernel of their own has
    /// to draw for, if there may be any.
    pub(super) fn count(
        &self,
        work: Option<DeviceSlice<'_, u32>>,
    ) -> Result<(DeviceBuffer<u32>, Option<DeviceBuffer<u32>>), GpuError> {
        let (len, fanout) = (self.frontier.len(), self.draw.number());
        let counts = self.gpu.alloc(len + 1)?;
        let listing = fanout > FEW && self.draw.fanout != Fanout::All;
        let list = if listing { Some(self.gpu.alloc(len)?) } else { None };
        let work = work.map_or(0, |work| work.address());
        let at = list.as_ref().map_or(0, |list: &DeviceBuffer<u32>| list.slice().address());
        let rest = [(&counts).into(), work.into(), at.into(), self.number(LISTED)?, self.number(STATUS)?];
        let arguments = [&self.frontier()[..], &[fanout.into()], &self.draw.excluded(), &rest];
        self.launch("sample_count", Shape::per_item(len, THREADS), &arguments)?;
        Ok((counts, list))
    }

    /// Draws the edges, of which there are up to `room`.
    pub(super) fn draw(
        &self,
        key: &StreamKey,
        table: [Argument; 3],
        sampled: [Argument; 5],
        list: Option<&DeviceBuffer<u32>>,
        room: usize,
    ) -> Result<(), GpuError> {
        let to = [&table[..], &sampled].concat();
        match self.draw.fanout {
            Fanout::Take(..=FEW) => self.draw_few(key.into(), &to),
            _ => self.draw_many(key.into(), &to, list, room),
        }
    }

    fn draw_few(&self, key: Argument, to: &[Argument]) -> Result<(), GpuError> {
        let (name, lanes) = match self.draw.number() {
            ..=4 => ("sample_few_4", 4),
            5..=8 => ("sample_few_8", 8),
            9..=16 => ("sample_few_16", 16),
            _ => ("sample_few_32", FEW as usize),
        };
        let arguments = [&self.frontier()[..], &[key], &self.draw.excluded(), to];
        self.launch(name, Shape::per_item(self.frontier.len() * lanes, THREADS), &arguments)
    }

    fn draw_many(
        &self,
        key: Argument,
        to: &[Argument],
        list: Option<&DeviceBuffer<u32>>,
        room: usize,
    ) -> Result<(), GpuError> {
        let (frontier, excluded) = (self.frontier(), self.draw.excluded());
        let shape = Shape { blocks: room.div_ceil(COPIED) as u32, threads: THREADS, shared: 0 };
        self.launch("sample_copy", shape, &[&frontier[..], &excluded, to])?;
        let Some(list) = list else { return Ok(()) };
        let size = self.draw.number().next_power_of_two();
        let blocks = self.blocks(MANY_THREADS, 16 * size as usize)?;
        let rest = [list.into(), self.number(LISTED)?, size.into(), blocks.memory()];
        let arguments = [&frontier[..], &[key], &excluded, to, &rest];
        self.launch("sample_many", blocks.shape, &arguments)
    }
}
