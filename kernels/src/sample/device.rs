//! Inputs and outputs of sampling on a GPU: the twins of [`Graph`](super::Graph), which has no
//! weights here, of [`Draw`](super::Draw) and of [`SampledCsc`](super::SampledCsc).

use super::cuda::MODULE;
use super::{DeviceSubgraph, ExcludedEdges, Fanout, graph};
use crate::count::DeviceCounters;
use crate::cuda::{
    Argument, DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Shape, arguments, pair,
};
use crate::error::check_len;

/// A [`Graph`](super::Graph) that a GPU reads: in its memory, or in the host's, mapped
/// ([`Gpu::map_host`]) and read over the bus. With a [`DeviceSubgraph`], only its vertices have
/// in-edges and others may not be sampled.
///
/// `indptr` ascends, as the reader of the file has checked. A row that does not, or a source that
/// is not a vertex, is an error of the layer that reads it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceGraph<'a> {
    /// First in-edge of each vertex, and the number of edges at the end.
    pub(super) indptr: DeviceSlice<'a, u64>,
    /// Source vertex of each edge, of the whole graph or of the subgraph.
    indices: DeviceSlice<'a, u32>,
    num_edges: usize,
    subgraph: Option<&'a DeviceSubgraph>,
}

impl<'a> DeviceGraph<'a> {
    /// Wraps the two arrays; checks their lengths and both ends of `indptr`, for which the host
    /// waits.
    pub fn new(
        gpu: &Gpu,
        indptr: DeviceSlice<'a, u64>,
        indices: DeviceSlice<'a, u32>,
    ) -> Result<Self, GpuError> {
        check_ends(gpu, indptr, indices.len())?;
        Ok(Self { indptr, indices, num_edges: indices.len(), subgraph: None })
    }

    /// Restricts a graph with this `indptr` to the vertices of `subgraph`: a frontier with other
    /// vertices is an error.
    pub fn of_subgraph(
        gpu: &Gpu,
        indptr: DeviceSlice<'a, u64>,
        subgraph: &'a DeviceSubgraph,
    ) -> Result<Self, GpuError> {
        check_ends(gpu, indptr, subgraph.num_edges)?;
        check_len("vertices of a subgraph's graph", indptr.len() - 1, subgraph.num_vertices)?;
        Ok(Self {
            indptr,
            indices: subgraph.indices.slice(),
            num_edges: subgraph.num_edges,
            subgraph: Some(subgraph),
        })
    }

    /// Number of vertices.
    pub fn num_vertices(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of edges, including edges outside the subgraph.
    pub fn num_edges(&self) -> usize {
        self.num_edges
    }

    /// Number of in-edges of each of `vertices`, sampled or not, in a subgraph or not; 0 for ids
    /// that are not vertices.
    pub fn degrees(
        &self,
        gpu: &Gpu,
        vertices: DeviceSlice<'_, u32>,
    ) -> Result<DeviceBuffer<u64>, GpuError> {
        let out = gpu.alloc(vertices.len())?;
        self.launch_degrees(gpu, "vertex_degrees", vertices, (&out).into())?;
        Ok(out)
    }

    /// Sets `out` to [`DeviceGraph::degrees`] as f32.
    pub fn degrees_as_f32(
        &self,
        gpu: &Gpu,
        vertices: DeviceSlice<'_, u32>,
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        check_len("degrees", vertices.len(), out.len())?;
        self.launch_degrees(gpu, "vertex_degrees_f32", vertices, (&*out).into())
    }

    fn launch_degrees(
        &self,
        gpu: &Gpu,
        name: &'static str,
        vertices: DeviceSlice<'_, u32>,
        out: Argument,
    ) -> Result<(), GpuError> {
        let of =
            arguments![self.words(self.indptr.address(), false), vertices, vertices.len(), out];
        let shape = gpu.limit_zero_copy(Shape::per_item(vertices.len()), self.indptr.address());
        gpu.launch(MODULE.kernel(name), shape, &of)
    }

    /// The shape of a kernel for any number of blocks that draws edges; `ids` if it needs the
    /// edges' ids.
    pub(super) fn shape(&self, gpu: &Gpu, shape: Shape, ids: bool) -> Shape {
        gpu.limit_zero_copy(
            gpu.limit_zero_copy(shape, self.drawn_indptr(ids)),
            self.indices.address(),
        )
    }

    /// The argument of kernels that draw edges; `ids` if they need the edges' ids.
    pub(super) fn argument(&self, ids: bool) -> Argument {
        self.words(self.drawn_indptr(ids), ids)
    }

    /// Address of the `indptr` for drawing, or 0: a subgraph has its own, and needs the graph's
    /// only for ids.
    fn drawn_indptr(&self, ids: bool) -> u64 {
        if ids || self.subgraph.is_none() { self.indptr.address() } else { 0 }
    }

    fn words(&self, indptr: u64, ids: bool) -> Argument {
        let of_subgraph = |subgraph: &DeviceSubgraph| {
            [subgraph.held.slice().address(), subgraph.indptr.slice().address()]
        };
        let [held, subgraph_indptr] = self.subgraph.map_or([0; 2], of_subgraph);
        let numbers = pair(self.num_vertices(), ids.into());
        let (indices, edges) = (self.indices.address(), self.num_edges as u64);
        [indptr, indices, held, subgraph_indptr, edges, numbers, 0, 0].into()
    }
}

/// [`graph::check_ends`] of an indptr on a GPU.
fn check_ends(gpu: &Gpu, indptr: DeviceSlice<'_, u64>, edges: usize) -> Result<(), GpuError> {
    let len = indptr.len();
    let at = |place: usize| Ok::<u64, GpuError>(indptr.part(place, place + 1)?.to_vec(gpu)?[0]);
    let ends = if len > 0 { Some([at(0)?, at(len - 1)?]) } else { None };
    Ok(graph::check_ends(len, ends, edges)?)
}

/// [`ExcludedEdges`] on a GPU.
#[derive(Debug)]
pub struct DeviceExcludedEdges(DeviceBuffer<u64>);

impl DeviceExcludedEdges {
    /// A copy of `excluded`.
    pub fn new(gpu: &Gpu, excluded: &ExcludedEdges) -> Result<Self, GpuError> {
        gpu.upload(excluded.as_slice()).map(Self)
    }
}

/// [`Draw`](super::Draw) on a GPU: it draws the same edges of a graph without weights.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDraw<'a> {
    pub(super) fanout: Fanout,
    excluded: Option<&'a DeviceExcludedEdges>,
}

impl<'a> DeviceDraw<'a> {
    /// Like [`Draw::new`](super::Draw::new).
    pub fn new(fanout: Fanout) -> Self {
        Self { fanout, excluded: None }
    }

    /// Draws none of the `excluded` edges.
    pub fn without(self, excluded: &'a DeviceExcludedEdges) -> Self {
        Self { excluded: Some(excluded), ..self }
    }

    /// The fanout as a kernel's argument.
    pub(super) fn number(&self) -> u32 {
        match self.fanout {
            Fanout::Take(fanout) => fanout,
            Fanout::All => u32::MAX,
        }
    }

    /// Whether drawing needs the ids of edges.
    pub(super) fn reads_ids(&self) -> bool {
        self.excluded.is_some_and(|DeviceExcludedEdges(edges)| !edges.is_empty())
    }

    pub(super) fn excluded(&self) -> [Argument; 2] {
        match self.excluded {
            Some(DeviceExcludedEdges(edges)) => arguments![edges, edges.len()],
            None => arguments![0u64, 0u64],
        }
    }
}

/// Use of the ids of a layer's edges on a GPU.
pub enum DeviceEdgeIds<'a> {
    /// The ids are not needed.
    Drop,
    /// [`DeviceLayer::edges`] holds them.
    Keep,
    /// They are counted as they are drawn: `edge` of each, and `work` of each frontier vertex.
    Count(&'a mut DeviceCounters),
}

/// One layer of a mini-batch on a GPU, with the contents of a [`SampledCsc`](super::SampledCsc).
#[derive(Debug)]
pub struct DeviceLayer {
    /// Edges of frontier position `i` are `indptr[i]..indptr[i + 1]`; length frontier + 1.
    pub indptr: DeviceBuffer<u32>,
    /// The source of each edge, as a position in the mixed frontier.
    pub local: DeviceBuffer<u32>,
    /// The target of each edge, as a position in the frontier, where it is known.
    pub targets: Option<DeviceBuffer<u32>>,
    /// The id of each edge, its position in the graph's `indices`, ascending within a vertex;
    /// `None` unless [kept](DeviceEdgeIds::Keep).
    pub edges: Option<DeviceBuffer<u64>>,
}

impl DeviceLayer {
    /// Number of vertices that this layer computes: the frontier's.
    pub fn num_vertices(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.local.len()
    }

    /// Keeps the first `vertices`, which have `edges` edges.
    pub(super) fn truncate(&mut self, vertices: usize, edges: usize) {
        self.indptr.truncate(vertices + 1);
        self.local.truncate(edges);
        self.targets.iter_mut().for_each(|targets| targets.truncate(edges));
        self.edges.iter_mut().for_each(|ids| ids.truncate(edges));
    }
}
