//! A mini-batch as Python sees it: NumPy arrays that own the memory that Rust filled. Nothing is copied here, but the sizes.

use std::sync::Arc;

use gsplit_kernels::SampledCsc;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::batch::{Edges, Made, Plan};
use crate::memory::{Memory, Pool};
use crate::rows::{Classes, Features, Kind};

/// A mini-batch.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct Batch {
    /// int64: all vertices, the seeds first.
    n_id: Py<PyArray1<i64>>,
    /// int64: where each seed lies in the list of seeds.
    input_id: Py<PyArray1<i64>>,
    /// int64 [2, edges] of a subgraph.
    edge_index: Option<Py<PyArray2<i64>>>,
    /// int64 [edges] of a subgraph, if asked for.
    e_id: Option<Py<PyArray1<i64>>>,
    /// Vertices of a subgraph by layer: seeds, then the vertices that each layer reached first.
    num_sampled_nodes: Vec<usize>,
    /// Edges of a subgraph, by layer.
    num_sampled_edges: Vec<usize>,
    /// Blocks, the one that reads features first.
    layers: Vec<Py<Layer>>,
    /// Feature rows.
    x: Option<Py<PyAny>>,
    /// Whether `x` holds the bits of bf16.
    bf16: bool,
    /// Labels.
    y: Option<Py<PyAny>>,
}

/// A block.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct Layer {
    /// int32 [targets + 1].
    indptr: Py<PyArray1<i32>>,
    /// int32 [edges].
    indices: Py<PyArray1<i32>>,
    /// int64 [edges], if asked for.
    e_id: Option<Py<PyArray1<i64>>>,
    /// Vertices that it reads.
    num_src: usize,
    /// Vertices that it computes.
    num_dst: usize,
}

impl Batch {
    pub fn new(py: Python<'_>, made: Made, plan: &Plan) -> PyResult<Self> {
        let edge_ids = plan.edge_ids;
        let Made { vertices, inputs, edges, features, labels } = made;
        let mut batch = Self {
            num_sampled_nodes: vec![inputs.len()],
            n_id: vertices.into_pyarray(py).unbind(),
            input_id: inputs.into_pyarray(py).unbind(),
            edge_index: None,
            e_id: None,
            num_sampled_edges: Vec::new(),
            layers: Vec::new(),
            bf16: features.as_ref().is_some_and(|features| features.kind == Kind::Bf16),
            x: features.map(|features| feature_rows(py, features, &plan.pool)).transpose()?,
            y: labels.map(|labels| classes(py, labels)).transpose()?,
        };
        match edges {
            Edges::Subgraph(found) => {
                let count = found.ends.len() / 2;
                batch.edge_index = Some(found.ends.into_pyarray(py).reshape([2, count])?.unbind());
                batch.e_id = edge_ids.then(|| signed(py, found.ids));
                batch.num_sampled_nodes.extend(found.new_vertices);
                batch.num_sampled_edges = found.num_edges;
            }
            Edges::Blocks(layers) => {
                let layers = layers.into_iter().rev().map(|(layer, read)| Layer::new(py, layer, read, edge_ids));
                batch.layers = layers.map(|layer| Py::new(py, layer?)).collect::<PyResult<_>>()?;
            }
        }
        Ok(batch)
    }
}

impl Layer {
    fn new(py: Python<'_>, layer: SampledCsc, num_src: usize, edge_ids: bool) -> PyResult<Self> {
        let num_dst = layer.num_vertices();
        if i32::try_from(layer.num_edges().max(num_src)).is_err() {
            return Err(PyOverflowError::new_err("a layer of 2^31 edges or more: ask for smaller mini-batches"));
        }
        let of_i32 = |numbers: Vec<u32>| bytemuck::cast_vec::<u32, i32>(numbers).into_pyarray(py).unbind();
        Ok(Self {
            indptr: of_i32(layer.indptr),
            indices: of_i32(layer.local),
            e_id: edge_ids.then(|| signed(py, layer.edges)),
            num_src,
            num_dst,
        })
    }
}

/// Positions as int64: there are fewer than 2^63.
pub fn signed(py: Python<'_>, ids: Vec<u64>) -> Py<PyArray1<i64>> {
    bytemuck::cast_vec::<u64, i64>(ids).into_pyarray(py).unbind()
}

pub fn feature_rows(py: Python<'_>, features: Features, pool: &Arc<Pool>) -> PyResult<Py<PyAny>> {
    let Features { memory, kind, rows, dim } = features;
    let count = rows * dim;
    let places = if kind == Kind::F32 { count } else { count.div_ceil(2) };
    let values = Memory::into_array(py, memory, places, Arc::clone(pool))?.into_any();
    let values = match kind {
        Kind::F32 => values,
        Kind::F16 => values.call_method1("view", ("float16",))?,
        Kind::Bf16 => values.call_method1("view", ("uint16",))?,
    };
    // Halves may leave one place.
    let values = values.get_item(PySlice::new(py, 0, count as isize, 1))?;
    Ok(values.call_method1("reshape", (rows, dim))?.unbind())
}

pub fn classes(py: Python<'_>, labels: Classes) -> PyResult<Py<PyAny>> {
    Ok(match labels {
        Classes::One(classes) => classes.into_pyarray(py).into_any(),
        Classes::Number(numbers) => numbers.into_pyarray(py).into_any(),
        Classes::Several(values, width) => {
            let rows = values.len() / width.max(1);
            values.into_pyarray(py).reshape([rows, width])?.into_any()
        }
    }
    .unbind())
}
