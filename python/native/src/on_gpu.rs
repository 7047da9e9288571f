//! Layers that a GPU samples, and their arrays as torch takes them: in the GPU's memory, without a
//! copy on the host.
//!
//! Returns: a mini-batch's vertices, and its layers as CSC with the ids of edges, equal bit for bit
//! to the CPU's. Input: the seeds, and the graph in the GPU's memory or in pinned host memory.
//! Cost: that of [`DeviceSampler`], and a copy of the vertices to the host, for which the thread
//! waits.
//!
//! A loader samples on one stream, on which the memory of all its mini-batches is also freed. The
//! thread waits for that stream before Python sees arrays, and Python drops them once torch has
//! copied them. So no kernel of torch's waits for this stream, or reads memory that it uses again.
//!
//! A call of the driver makes its GPU the calling thread's, which torch would take for the script's
//! choice. So no Python thread calls the driver here: neither to open a GPU nor to free memory
//! ([`Elsewhere`]).

use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{
    DeviceBuffer, DeviceDraw, DeviceEdgeIds, DeviceGraph, DeviceLayer, DeviceSampler, DeviceSlice,
    Gpu, GpuError, Graph, MappedHost, before_out_of_memory,
};
use gsplit_store::memory::{Memory, shown};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::{Problem, check_size};

/// A value that is dropped on a separate thread.
pub struct Elsewhere<T: Send + 'static>(Option<T>);

impl<T: Send> Elsewhere<T> {
    pub fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send> Deref for Elsewhere<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }
}

impl<T: Send> Drop for Elsewhere<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        let thread =
            std::thread::Builder::new().name("gsplit-free".into()).spawn(move || drop(value));
        let _ = thread.map(std::thread::JoinHandle::join);
    }
}

/// An array of the graph that the GPU can read.
enum Kept<T: 'static> {
    Device(DeviceBuffer<T>),
    Pinned(MappedHost<'static, T>),
}

impl<T: Pod> Kept<T> {
    fn new(gpu: &Gpu, values: &[T], pinned: bool) -> Result<Self, GpuError> {
        Ok(if pinned {
            Self::Pinned(gpu.pinned_copy(values)?)
        } else {
            Self::Device(gpu.upload(values)?)
        })
    }

    fn slice(&self) -> DeviceSlice<'_, T> {
        match self {
            Self::Device(values) => values.slice(),
            Self::Pinned(values) => values.slice(),
        }
    }
}

/// Lets torch give back the memory of GPUs that it keeps for later tensors. Nobody who has Python's
/// lock waits for a thread that asks.
fn ask_torch() {
    Python::attach(|py| {
        let torch = py.import("sys").and_then(|sys| sys.getattr("modules")?.get_item("torch"));
        let _ = torch.and_then(|torch| torch.getattr("cuda")?.call_method0("empty_cache"));
    });
}

/// The graph where a GPU reads it, and the stream that samples.
pub struct GpuGraph {
    gpu: Gpu,
    indptr: Kept<u64>,
    indices: Kept<u32>,
}

impl GpuGraph {
    /// Copies `graph` into the memory of GPU `ordinal`, or into pinned host memory.
    pub fn new(ordinal: usize, pinned: bool, graph: &Graph<'_>) -> Result<Self, Problem> {
        let (bytes, free) = (graph.num_bytes(), Memory::of_this_machine().available());
        if pinned && bytes > free {
            let line = format!(
                "the graph takes {} of pinned memory, {} are free",
                shown(bytes),
                shown(free)
            );
            return Err(Problem::Gpu(line, "pass topology='host', with which the CPU samples"));
        }
        before_out_of_memory(ask_torch);
        let gpu = Gpu::open(ordinal)?.side_stream()?;
        let (indptr, indices) =
            (Kept::new(&gpu, graph.indptr, pinned)?, Kept::new(&gpu, graph.indices, pinned)?);
        gpu.synchronise()?;
        Ok(Self { gpu, indptr, indices })
    }

    pub fn sampler(&self) -> Result<GpuSampler<'_>, Problem> {
        let graph = DeviceGraph::new(&self.gpu, self.indptr.slice(), self.indices.slice())?;
        Ok(GpuSampler { gpu: &self.gpu, graph, sampler: DeviceSampler::new(&self.gpu)? })
    }
}

/// Sampler of mini-batches, one after another.
pub struct GpuSampler<'g> {
    gpu: &'g Gpu,
    graph: DeviceGraph<'g>,
    sampler: DeviceSampler,
}

impl GpuSampler<'_> {
    /// Samples the mini-batch of `seeds`. Returns its vertices, the seeds first, and its layers,
    /// once they are there.
    pub fn sample(
        &mut self,
        seeds: &[u32],
        fanouts: &Fanouts,
        step: Step,
    ) -> Result<(Vec<u32>, Arc<Elsewhere<GpuLayers>>), Problem> {
        let Self { gpu, graph, sampler } = self;
        let frontier = gpu.upload(seeds)?;
        sampler.start(graph, frontier.slice())?;
        for (key, fanout) in step.layers(fanouts) {
            let draw = DeviceDraw::new(fanout.of_vertices()?);
            sampler.launch(graph, &draw, &key, DeviceEdgeIds::Keep)?;
        }
        let mut layers = sampler.finish(graph)?;
        layers.iter_mut().for_each(|layer| layer.targets = None);
        let vertices = sampler.take_mixed_frontier()?;
        layers.iter().try_for_each(|layer| check_size(layer.num_edges().max(vertices.len())))?;
        // Waits for the stream, so that all arrays are complete before Python sees them.
        let on_host = vertices.to_vec()?;
        Ok((on_host, Arc::new(Elsewhere::new(GpuLayers { layers, vertices }))))
    }
}

/// The layers of a mini-batch in a GPU's memory, from the seeds down.
pub struct GpuLayers {
    pub layers: Vec<DeviceLayer>,
    /// All vertices: a layer reads the first of them, and computes the first of those.
    pub vertices: DeviceBuffer<u32>,
}

impl GpuLayers {
    /// Vertices that layer `depth` reads.
    pub fn num_src(&self, depth: usize) -> usize {
        self.layers.get(depth + 1).map_or(self.vertices.len(), DeviceLayer::num_vertices)
    }
}

/// An array in a GPU's memory, there until all arrays of its mini-batch are dropped; nothing writes
/// it.
#[pyclass(frozen, module = "gsplit._native")]
pub struct GpuArray {
    address: u64,
    len: usize,
    typestr: &'static str,
    _layers: Arc<Elsewhere<GpuLayers>>,
}

impl GpuArray {
    /// `values` of `layers`, as signed integers of their size.
    pub fn shown<T: Pod>(
        py: Python<'_>,
        values: DeviceSlice<'_, T>,
        layers: &Arc<Elsewhere<GpuLayers>>,
    ) -> PyResult<Py<PyAny>> {
        let typestr = if size_of::<T>() == 8 { "<i8" } else { "<i4" };
        let array = Self {
            address: values.address(),
            len: values.len(),
            typestr,
            _layers: Arc::clone(layers),
        };
        Ok(Py::new(py, array)?.into_any())
    }
}

#[pymethods]
impl GpuArray {
    fn __len__(&self) -> usize {
        self.len
    }

    /// Version 3 of the interface that Numba describes. It names no stream, because all work has
    /// been waited for.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        found.set_item("shape", (self.len,))?;
        found.set_item("typestr", self.typestr)?;
        found.set_item("data", (self.address, false))?;
        found.set_item("strides", py.None())?;
        found.set_item("stream", py.None())?;
        found.set_item("version", 3)?;
        Ok(found)
    }
}
