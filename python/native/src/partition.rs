//! Partitions of graphs in memory, for `gsplit.partition`.

use gsplit_partition::{GraphOptions, Quality, partition_graph};
use gsplit_store::Topology;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::batch::Problem;
use crate::loader::pool_of;

/// The part of each of `num_vertices` vertices, of a graph with an edge from each of `sources` to
/// the one of `targets` at its place.
#[pyfunction]
#[pyo3(signature = (sources, targets, num_vertices, *, parts, epsilon, seed, quality, threads))]
pub fn partition<'py>(
    py: Python<'py>,
    sources: PyReadonlyArray1<'py, u32>,
    targets: PyReadonlyArray1<'py, u32>,
    num_vertices: usize,
    parts: u32,
    epsilon: f64,
    seed: u64,
    quality: &str,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let quality = match quality {
        "fast" => Quality::Fast,
        "default" => Quality::Default,
        "high" => Quality::High,
        other => {
            return Err(PyValueError::new_err(format!(
                "quality '{other}', expected fast, default or high"
            )));
        }
    };
    let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
    let options = GraphOptions { parts, epsilon, seed, quality };
    let cut = || {
        pool_of(threads)?.install(|| -> Result<Vec<i64>, Problem> {
            let graph = Topology::of_edges(num_vertices, sources, targets)
                .map_err(|error| Problem::Options(error.to_string()))?;
            let parts = partition_graph(&graph, &options)
                .map_err(|error| Problem::Options(error.to_string()))?;
            Ok(parts.into_iter().map(i64::from).collect())
        })
    };
    Ok(py.detach(cut)?.into_pyarray(py))
}
