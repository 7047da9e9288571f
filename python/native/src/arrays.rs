//! A mini-batch as Python sees it: NumPy arrays that own the memory that Rust filled, or arrays in
//! a GPU's memory. Only the sizes are copied.

use std::sync::Arc;

use gsplit_sample::{HostExchange, HostLayer};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::batch::{Edges, Made, Plan, Problem, wide};
use crate::links::EdgePairs;
use crate::memory::{Memory, Pool};
use crate::on_gpu::{Elsewhere, GpuArray, GpuLayers};
use crate::rows::{Classes, Features, Hits, Kind, Rows};
use crate::types::TypedLayer;

/// A mini-batch.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct Batch {
    /// Number of the mini-batch in the epoch.
    step: u32,
    /// Seeds of all ranks that sample together.
    num_seeds: usize,
    /// int64: the vertex of each feature row; all vertices, seeds first, if the rank samples by
    /// itself. From a GPU the bits of uint32.
    n_id: Py<PyAny>,
    /// int64: position of each seed in the list of seeds; empty if ranks sample together.
    input_id: Py<PyArray1<i64>>,
    /// int64 [2, edges] of a subgraph.
    edge_index: Option<Py<PyArray2<i64>>>,
    /// int64 [edges] of a subgraph, if asked for.
    e_id: Option<Py<PyArray1<i64>>>,
    /// Vertices of a subgraph by layer: seeds, then the vertices that each layer reached first.
    num_sampled_nodes: Vec<usize>,
    /// Edges of a subgraph, by layer.
    num_sampled_edges: Vec<usize>,
    /// Layers, the one that reads features first.
    layers: Vec<Py<Layer>>,
    /// Pairs of a mini-batch of edges.
    pairs: Option<Py<Pairs>>,
    /// Layers between vertices of several types, the one that reads features first.
    typed: Vec<Py<ByType>>,
    /// Feature rows, except the ones in the cache, of each type of vertices that has any, and
    /// whether they are the bits of bf16.
    x: Vec<(Py<PyAny>, bool)>,
    /// int64: positions of the rows of `x`, and a place in the cache for each row; `None` without a
    /// cache.
    hits: Option<[Py<PyArray1<i64>>; 2]>,
    /// Labels.
    y: Option<Py<PyAny>>,
}

/// A layer, and the rows that move below it: arrays of NumPy's, or [`GpuArray`]s.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct Layer {
    /// int32 [targets + 1].
    indptr: Py<PyAny>,
    /// int32 [edges]: positions in `src`.
    indices: Py<PyAny>,
    /// int64 [edges], if asked for.
    e_id: Option<Py<PyAny>>,
    /// float32 [edges]: factors of edges that were drawn by weight.
    factors: Option<Py<PyArray1<f32>>>,
    /// int64: the vertex of each row that it reads. Of a GPU the bits of uint32.
    src: Py<PyAny>,
    /// Number of rows that it computes: the first of the rows that it reads.
    num_dst: usize,
    /// Rows of the layer below that move; `None` if none move.
    moved: Option<Py<Moved>>,
}

/// A layer between vertices of several types, in lists of an item for each type or relation.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct ByType {
    /// int64 [2, edges] for each relation: rows of its types.
    edge_index: Vec<Py<PyArray2<i64>>>,
    /// int64: the vertex of each row that it reads, from 0.
    src: Vec<Py<PyArray1<i64>>>,
    /// Number of rows that it computes: the first of the rows that it reads.
    num_dst: Vec<usize>,
    /// Rows of the layer below that move; empty if none move.
    moved: Vec<Py<Moved>>,
}

/// Pairs of vertices: each edge is followed by its negatives.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct Pairs {
    /// int64 [2, pairs]: sources, then targets, as rows of this rank's seeds and of the received
    /// rows.
    ends: Py<PyArray2<i64>>,
    /// int64: the position of each edge.
    e_id: Py<PyArray1<i64>>,
    /// Rows of the seeds that move; `None` if none move.
    moved: Option<Py<Moved>>,
}

/// Rows that move between ranks.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct Moved {
    /// int64: this rank's rows that go to others, by rank.
    asked: Py<PyArray1<i64>>,
    /// Rows to each rank.
    sent: Vec<usize>,
    /// Rows from each rank.
    received: Vec<usize>,
}

impl Batch {
    pub fn new(py: Python<'_>, made: Made, plan: &Plan) -> PyResult<Self> {
        let Made { step, num_seeds, vertices, inputs, edges, pairs, rows, labels } = made;
        let (features, hits) =
            rows.map_or_else(Default::default, |Rows { features, hits }| (features, hits));
        let array = |numbers: Vec<i64>| numbers.into_pyarray(py).unbind();
        let mut batch = Self {
            step,
            num_seeds,
            num_sampled_nodes: vec![inputs.len()],
            n_id: array(vertices).into_any(),
            input_id: array(inputs),
            edge_index: None,
            e_id: None,
            num_sampled_edges: Vec::new(),
            layers: Vec::new(),
            pairs: pairs.map(|pairs| Py::new(py, Pairs::new(py, pairs)?)).transpose()?,
            typed: Vec::new(),
            x: feature_rows(py, features, &plan.pool)?,
            hits: hits.map(|Hits { missed, places }| [missed, places].map(array)),
            y: labels.map(|labels| classes(py, labels)).transpose()?,
        };
        match edges {
            Edges::Subgraph(found) => {
                batch.edge_index = Some(in_two(py, found.ends)?.unbind());
                batch.e_id = plan.edge_ids.then(|| signed(py, found.ids));
                batch.num_sampled_nodes.extend(found.new_vertices);
                batch.num_sampled_edges = found.num_edges;
            }
            Edges::Blocks(blocks) => {
                let layers = blocks.into_iter().rev();
                let layers = layers
                    .map(|(layer, src)| Py::new(py, Layer::new(py, layer, src, plan.edge_ids)?));
                batch.layers = layers.collect::<PyResult<_>>()?;
            }
            Edges::Typed(layers) => {
                let layers =
                    layers.into_iter().rev().map(|layer| Py::new(py, ByType::new(py, layer)?));
                batch.typed = layers.collect::<PyResult<_>>()?;
            }
            Edges::OnGpu(layers) => {
                batch.n_id = GpuArray::shown(py, layers.vertices.slice(), &layers)?;
                let made = (0..layers.layers.len())
                    .rev()
                    .map(|depth| Py::new(py, Layer::on_gpu(py, &layers, depth)?));
                batch.layers = made.collect::<PyResult<_>>()?;
            }
        }
        Ok(batch)
    }
}

impl Layer {
    fn new(py: Python<'_>, layer: HostLayer, src: Vec<i64>, edge_ids: bool) -> PyResult<Self> {
        // There are fewer than 2^31: `batch` has checked it.
        let of_i32 = |numbers: Vec<u32>| {
            bytemuck::cast_vec::<u32, i32>(numbers).into_pyarray(py).unbind().into_any()
        };
        let (indptr, indices) = layer.edges.into_lists();
        Ok(Self {
            indptr: of_i32(indptr),
            indices: of_i32(indices),
            e_id: edge_ids.then(|| signed(py, layer.edge_ids).into_any()),
            factors: (!layer.factors.is_empty()).then(|| layer.factors.into_pyarray(py).unbind()),
            src: src.into_pyarray(py).unbind().into_any(),
            num_dst: layer.frontier.len(),
            moved: layer.exchange.map(|exchange| Moved::new(py, exchange)).transpose()?,
        })
    }

    fn on_gpu(py: Python<'_>, of: &Arc<Elsewhere<GpuLayers>>, depth: usize) -> PyResult<Self> {
        let layer = &of.layers[depth];
        let src = of.vertices.slice().part(0, of.num_src(depth)).map_err(Problem::from)?;
        Ok(Self {
            indptr: GpuArray::shown(py, layer.indptr.slice(), of)?,
            indices: GpuArray::shown(py, layer.local.slice(), of)?,
            e_id: layer
                .edges
                .as_ref()
                .map(|edges| GpuArray::shown(py, edges.slice(), of))
                .transpose()?,
            factors: None,
            src: GpuArray::shown(py, src, of)?,
            num_dst: layer.num_vertices(),
            moved: None,
        })
    }
}

impl ByType {
    fn new(py: Python<'_>, layer: TypedLayer) -> PyResult<Self> {
        let TypedLayer { ends, src, num_dst, exchanges } = layer;
        let moved = exchanges.into_iter().map(|exchange| Moved::new(py, exchange));
        Ok(Self {
            edge_index: ends
                .into_iter()
                .map(|ends| Ok(in_two(py, ends)?.unbind()))
                .collect::<PyResult<_>>()?,
            src: src.into_iter().map(|of| of.into_pyarray(py).unbind()).collect(),
            num_dst,
            moved: moved.collect::<PyResult<_>>()?,
        })
    }
}

impl Pairs {
    fn new(py: Python<'_>, pairs: EdgePairs) -> PyResult<Self> {
        Ok(Self {
            ends: in_two(py, pairs.ends)?.unbind(),
            e_id: signed(py, pairs.edge_ids),
            moved: pairs.exchange.map(|exchange| Moved::new(py, exchange)).transpose()?,
        })
    }
}

impl Moved {
    fn new(py: Python<'_>, exchange: HostExchange) -> PyResult<Py<Self>> {
        let HostExchange { asked, counts, .. } = exchange;
        let asked = wide(&asked).into_pyarray(py).unbind();
        Py::new(py, Self { asked, sent: counts.send, received: counts.receive })
    }
}

/// Returns sources and then targets with the shape `[2, count]`.
pub fn in_two(py: Python<'_>, ends: Vec<i64>) -> PyResult<Bound<'_, PyArray2<i64>>> {
    let count = ends.len() / 2;
    ends.into_pyarray(py).reshape([2, count])
}

/// Positions as int64: there are fewer than 2^63.
fn signed(py: Python<'_>, ids: Vec<u64>) -> Py<PyArray1<i64>> {
    bytemuck::cast_vec::<u64, i64>(ids).into_pyarray(py).unbind()
}

/// Matrices of `features`, and whether they hold the bits of bf16.
pub fn feature_rows(
    py: Python<'_>,
    features: Vec<Features>,
    pool: &Arc<Pool>,
) -> PyResult<Vec<(Py<PyAny>, bool)>> {
    let is_bf16 = |features: &Features| features.kind == Kind::Bf16;
    let matrices = features.into_iter().map(|of| (is_bf16(&of), matrix(py, of, pool)));
    matrices.map(|(is_bf16, rows)| Ok((rows?, is_bf16))).collect()
}

fn matrix(py: Python<'_>, features: Features, pool: &Arc<Pool>) -> PyResult<Py<PyAny>> {
    let Features { memory, kind, rows, dim } = features;
    let count = rows * dim;
    let places = if kind == Kind::F32 { count } else { count.div_ceil(2) };
    let values = Memory::into_array(py, memory, places, Arc::clone(pool))?.into_any();
    let values = match kind {
        Kind::F32 => values,
        Kind::F16 => values.call_method1("view", ("float16",))?,
        Kind::Bf16 => values.call_method1("view", ("uint16",))?,
    };
    // An odd count leaves one place unused.
    let values = values.get_item(PySlice::new(py, 0, count as isize, 1))?;
    Ok(values.call_method1("reshape", (rows, dim))?.unbind())
}

fn classes(py: Python<'_>, labels: Classes) -> PyResult<Py<PyAny>> {
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
