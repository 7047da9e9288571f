//! Figures of a graph: degrees, components, reciprocity, homophily, and classes or numeric labels.
//!
//! ```text
//! indptr ─▶ degrees (in)          labels ─▶ classes         one pass over the vertices
//! indices ─▶ degrees (out) ─▶ components ─▶ pairs           one pass each over the edges
//! ```
//!
//! Returns: [`Figures`]. Input: a dataset whose files may be damaged; an index that is out of bounds is an error. All
//! sums are of integers, and a component is identified by its lowest vertex: the result does not depend on the number
//! of threads. Cost: figures that read edges are left out above [`CHEAP_EDGES`] edges unless requested. Memory: 8 bytes
//! per vertex; the graph is read from its mapped file.

mod classes;
mod components;
mod degrees;
mod numbers;
mod pairs;
#[cfg(test)]
mod tests;

use anyhow::Result;
use gsplit_store::{Dataset, Progress, Stage, Topology, Unit, out_degrees};
use rayon::prelude::*;
use serde::Serialize;

pub use classes::{ClassCount, count_classes};
pub use components::Components;
pub use degrees::Degrees;
pub use numbers::NumberFigures;
pub use pairs::Pairs;

/// Edges up to which all figures are computed without `--full`.
pub const CHEAP_EDGES: u64 = 200_000_000;

/// Vertices per task.
const VERTICES_PER_TASK: usize = 4096;

/// Figures of a graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// In-degrees; `None` for a graph without vertices.
    pub in_degree: Option<Degrees>,
    /// Number of vertices of each class that occurs; `None` without labels, and for a shard, which does not have all labels.
    pub classes: Option<Vec<ClassCount>>,
    /// Figures of numeric labels; `None` without any, and for a shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<NumberFigures>,
    /// Figures that need passes over the edges; `None` for a large graph, unless requested.
    pub edges: Option<EdgeFigures>,
}

/// Figures that need passes over the edges.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EdgeFigures {
    /// Out-degrees; `None` for a graph without vertices.
    pub out_degree: Option<Degrees>,
    /// Vertices without any edge, in or out.
    pub isolated: u64,
    /// Weakly connected components.
    pub components: Components,
    /// Figures of the edges as pairs of vertices.
    #[serde(flatten)]
    pub pairs: Pairs,
}

impl Figures {
    /// The figures of `dataset`; figures of edges only with `full` or up to [`CHEAP_EDGES`].
    ///
    /// # Errors
    /// A damaged topology or label file.
    pub fn of(dataset: &Dataset, full: bool, progress: &dyn Progress) -> Result<Self> {
        let topology = dataset.topology();
        let is_cheap = topology.num_edges() as u64 <= CHEAP_EDGES;
        Ok(Self {
            in_degree: Degrees::of(in_degrees(topology)),
            classes: count_classes(dataset)?,
            numbers: NumberFigures::of(dataset)?,
            edges: (full || is_cheap).then(|| EdgeFigures::of(dataset, progress)).transpose()?,
        })
    }
}

impl EdgeFigures {
    fn of(dataset: &Dataset, progress: &dyn Progress) -> Result<Self> {
        let topology = dataset.topology();
        topology.check_indices()?;
        let out = out_degrees(topology.num_vertices(), topology.indices());
        let is_isolated = |v: &usize| out[*v] == 0 && topology.in_neighbours(*v as u32).is_empty();
        let isolated = (0..out.len()).into_par_iter().filter(is_isolated).count() as u64;
        let edges = Some(topology.num_edges() as u64);
        let components = Components::of(topology, &*progress.stage("components", edges, Unit::Items("edges")));
        let stage = progress.stage("pairs", edges, Unit::Items("edges"));
        let labels = classes::labels(dataset)?;
        let pairs = Pairs::of(topology, labels.as_deref(), &*stage);
        Ok(Self { out_degree: Degrees::of(out), isolated, components, pairs })
    }
}

fn in_degrees(topology: &Topology) -> Vec<u32> {
    // More than 2^32 edges into one vertex count as 2^32 - 1.
    let degree = |ends: &[u64]| u32::try_from(ends[1] - ends[0]).unwrap_or(u32::MAX);
    topology.indptr().par_windows(2).map(degree).collect()
}

/// Maps ranges of vertices to sums, in parallel, and reports their edges to `stage`.
fn sum_over<T: Send + Default>(
    topology: &Topology,
    stage: &dyn Stage,
    of_vertex: impl Fn(u32, &mut T) + Sync,
    add: impl Fn(T, T) -> T + Sync + Send,
) -> T {
    let n = topology.num_vertices();
    let ranges = (0..n.div_ceil(VERTICES_PER_TASK)).into_par_iter();
    let sums = ranges.map(|range| {
        let (start, end) = (range * VERTICES_PER_TASK, ((range + 1) * VERTICES_PER_TASK).min(n));
        let mut sum = T::default();
        (start..end).for_each(|v| of_vertex(v as u32, &mut sum));
        stage.advance(topology.indptr()[end] - topology.indptr()[start]);
        sum
    });
    sums.reduce(T::default, add)
}
