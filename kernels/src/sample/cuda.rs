//! Mini-batches sampled on a GPU, layer after layer.
//!
//! Returns: each layer's edges as CSC, and the mixed frontier, all on the device and bit for bit those of
//! [`Sampler`](super::Sampler). Input: distinct seeds, vertices of the graph.
//! Idea: the edges of every frontier vertex are counted, the counts summed up, and every vertex draws into its place. Sources
//! are noted in a table as they are drawn and numbered afterwards (`unique`). Up to 32 edges a vertex: as many lanes of a
//! warp as the fanout, which compare their picks with each other. More: a block for each vertex that picks, with its picks
//! in shared memory, and a thread for each edge of vertices that keep all, however many. By weights the host alone draws.
//! Cost: one read of the graph at a random place for each edge, and four of the table. The host waits once a layer, for the
//! numbers of edges and of new vertices; twice where the fanout says little of the number of edges (`all`, or more than
//! most vertices have).

use super::device::{DeviceDraw, DeviceEdgeIds, DeviceGraph, DeviceLayer};
use super::fanout::Fanout;
use super::launch::{EDGES, Launch, NEW, NUMBERS, STATUS};
use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, Gpu, GpuError, Module};
use crate::error::KernelError;
use crate::philox::StreamKey;
use crate::scan::cuda::sum_before;
use crate::unique::Numbering;

pub(crate) static MODULE: Module = Module { name: "sample", source: include_str!("cuda.cu") };

/// Layers of up to so many edges are not worth waiting for their number.
const SMALL_LAYER: u64 = 1 << 20;

/// Samples mini-batches on a GPU, one after another; the twin of [`Sampler`](super::Sampler).
///
/// Launches on the stream of its [`Gpu`], and frees and reuses memory in its order.
#[derive(Debug)]
pub struct DeviceSampler {
    gpu: Gpu,
    numbering: Numbering,
}

impl DeviceSampler {
    /// A sampler that launches on `gpu`'s stream.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self { gpu: gpu.clone(), numbering: Numbering::new(gpu)? })
    }

    /// Begins a mini-batch: `frontier` is that of its first layer.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`]; what the GPU reports.
    pub fn start(&mut self, frontier: DeviceSlice<'_, u32>) -> Result<(), GpuError> {
        self.numbering.restart(frontier)
    }

    /// The frontier of the next layer: after a layer, its mixed frontier, which starts with that layer's frontier.
    pub fn mixed(&self) -> DeviceSlice<'_, u32> {
        self.numbering.ids()
    }

    /// Samples the next layer, and extends the mixed frontier.
    ///
    /// # Errors
    /// Those of [`Sampler::layer`](super::Sampler::layer) as [`GpuError::Input`] ([`KernelError::CounterOverflow`] at once,
    /// and [`KernelError::Topology`] for a damaged graph), and what the GPU reports. The mini-batch is then lost:
    /// [`start`](Self::start) another.
    pub fn layer(
        &mut self,
        graph: &DeviceGraph<'_>,
        draw: &DeviceDraw<'_>,
        key: &StreamKey,
        edges: DeviceEdgeIds<'_>,
    ) -> Result<DeviceLayer, GpuError> {
        draw.fanout.check()?;
        let gpu = self.gpu.clone();
        let (len, mut numbers) = (self.numbering.len(), gpu.zeros::<u64>(NUMBERS)?);
        self.numbering.reserve(graph.num_vertices(), 0)?;
        self.numbering.enter(numbers.slice().part(STATUS, STATUS + 1)?)?;
        let (keep, counters) = match edges {
            DeviceEdgeIds::Drop => (false, None),
            DeviceEdgeIds::Keep => (true, None),
            DeviceEdgeIds::Count(counters) => (false, Some(counters.lend(graph)?)),
        };
        let ids = keep || counters.is_some() || draw.reads_ids();
        let layer = Launch { gpu: &gpu, graph, draw, frontier: self.mixed(), numbers: &numbers, ids };
        let (mut indptr, list) = layer.count(counters.map(|(work, _)| work))?;
        sum_before(&gpu, &mut indptr.slice_mut(), Some(&mut numbers.slice_mut().part(EDGES, EDGES + 1)?))?;
        let room = match room(graph, draw.fanout, len) {
            Some(room) => room,
            None => {
                let numbers = numbers.to_vec()?;
                self.check(graph, &numbers)?;
                // Positions of the frontier and of all edges are told apart.
                let edges = numbers[EDGES];
                if edges + len as u64 >= u64::from(u32::MAX) {
                    return Err(KernelError::TooManyEdges { edges }.into());
                }
                edges as usize
            }
        };

        self.numbering.reserve(graph.num_vertices(), room)?;
        self.numbering.enter(numbers.slice().part(STATUS, STATUS + 1)?)?;
        self.numbering.spoil();
        let mut local = gpu.alloc(room)?;
        let mut edges = if keep { Some(gpu.alloc(room)?) } else { None };
        let sampled: [Argument; 5] = [
            (&indptr).into(),
            (&local).into(),
            edges.as_ref().map_or(0, |edges: &DeviceBuffer<u64>| edges.slice().address()).into(),
            counters.map_or(0, |(_, edge)| edge.address()).into(),
            (&numbers).into(),
        ];
        let layer = Launch { gpu: &gpu, graph, draw, frontier: self.mixed(), numbers: &numbers, ids };
        layer.draw(key, self.numbering.table.arguments(), sampled, list.as_ref(), room)?;
        let count = indptr.slice().part(len, len + 1)?;
        let mut new = numbers.slice_mut().part(NEW, NEW + 1)?;
        self.numbering.number(&mut local.slice_mut(), count, &mut new)?;

        let numbers = numbers.to_vec()?;
        self.check(graph, &numbers)?;
        self.numbering.grow(numbers[NEW] as usize);
        local.truncate(numbers[EDGES] as usize);
        if let Some(edges) = &mut edges {
            edges.truncate(numbers[EDGES] as usize);
        }
        Ok(DeviceLayer { indptr, local, edges })
    }

    /// What the kernels reported, as the host's sampler would.
    fn check(&mut self, graph: &DeviceGraph<'_>, numbers: &[u64]) -> Result<(), GpuError> {
        if numbers[STATUS] == 0 {
            return Ok(());
        }
        self.numbering.spoil();
        let (at, what) = ((!numbers[STATUS] >> 3) as usize, !numbers[STATUS] & 7);
        let gpu = &self.gpu;
        let vertex = |of: DeviceSlice<'_, u32>| of.part(at, at + 1)?.to_vec(gpu).map(|found| found[0]);
        let num_vertices = graph.num_vertices();
        Err(match what {
            0 => KernelError::NotHeld { vertex: vertex(self.mixed())? },
            1 => KernelError::VertexOutOfRange { vertex: vertex(self.mixed())?, num_vertices },
            2 => KernelError::RepeatedVertex { vertex: vertex(self.mixed())? },
            3 => {
                let v = vertex(self.mixed())? as usize;
                let ends = graph.indptr.part(v, v + 2)?.to_vec(gpu)?;
                KernelError::TooManyEdges { edges: ends[1] - ends[0] }
            }
            5 => KernelError::VertexOutOfRange { vertex: at as u32, num_vertices },
            6 => KernelError::Topology {
                expected: "an indptr that ascends to the number of edges",
                got: format!("another one at vertex {}", vertex(self.mixed())?),
            },
            _ => KernelError::CounterOverflow,
        }
        .into())
    }

    #[cfg(test)]
    pub(super) fn direct_up_to(&mut self, bytes: usize) {
        self.numbering.direct_up_to(bytes);
    }
}

/// Room for the edges of a layer, where the fanout bounds their number well enough.
fn room(graph: &DeviceGraph<'_>, fanout: Fanout, frontier: usize) -> Option<usize> {
    let Fanout::Take(most) = fanout else { return None };
    let room = (frontier as u64).checked_mul(most.into())?;
    let degree = (graph.num_edges() as u64).div_ceil(graph.num_vertices().max(1) as u64);
    let expected = frontier as u64 * fanout.kept(degree);
    let fits = room <= SMALL_LAYER || room <= 2 * expected;
    (fits && room + (frontier as u64) < u64::from(u32::MAX)).then_some(room as usize)
}
