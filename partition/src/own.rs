//! Weights that are part of the graph: of vertices, to be balanced, and of edges, the cost of
//! cutting them.
//!
//! Partitioners know costs as pre-sampled counters: a pair costs 1 and what its edges were counted.
//! So the weights of edges become counters in proportion, 256 on average: the 1 is then lost in the
//! byte that the multilevel partitioner keeps of a cost. An edge without weight costs next to
//! nothing. Memory: 4 bytes an edge, and 4 a vertex and column.

use gsplit_store::{Dataset, EDGE_WEIGHT, EdgeWeights, OwnWeightsReport, Topology, VertexLoads};
use rayon::prelude::*;

use crate::report::max_over_target;
use crate::symmetric::is_symmetric_with;
use crate::{Error, Layout, PartitionOptions, Quantity, Result, Weights};

/// Mean of the counters that represent weights.
const MEAN_COST: f64 = 256.0;
/// Vertices whose edges are added up together: sums of floats depend on their order.
const VERTICES_PER_SUM: usize = 1 << 14;

/// Weights of a dataset.
pub(crate) struct OwnWeights {
    /// Columns of weights of vertices.
    pub vertices: Vec<VertexLoads>,
    edges: Option<EdgeWeights>,
}

impl OwnWeights {
    /// Weights of `dataset`. Weights that `options` do not request are left out if nothing can be
    /// weighed by them.
    ///
    /// Fails where weights are asked for that are not there or no weights.
    pub fn of(dataset: &Dataset, options: Option<&PartitionOptions>) -> Result<Self> {
        let [balances, cuts] = options.map_or([false; 2], wanted);
        let vertices = if_fit(dataset.vertex_weights(), balances)?.unwrap_or_default();
        let edges = match dataset.manifest().edge_columns.contains_key(EDGE_WEIGHT) {
            true => if_fit(dataset.edge_weights(EDGE_WEIGHT), cuts)?,
            false => None,
        };
        let named = options.is_some_and(|options| !options.balance.is_empty());
        let lacks_vertices = balances && vertices.is_empty() && (named || edges.is_none());
        if lacks_vertices || (cuts && edges.is_none() && named) {
            let option = if lacks_vertices && named { "--balance" } else { "--weights" };
            let remedy = "--schema vertex-weights=COLUMN, or --schema edge-weights=COLUMN";
            return Err(Error::Option(format!(
                "{option} own: {} has no such weights: convert it again with {remedy}",
                dataset.path().display()
            )));
        }
        Ok(Self { vertices, edges })
    }

    /// Counters that represent the weights of edges, one per edge; `None` if edges have no weights.
    pub fn costs(&self) -> Option<Vec<u32>> {
        let weights = self.edges.as_ref()?;
        let sums = weights
            .par_chunks(VERTICES_PER_SUM)
            .map(|some| some.iter().map(|&weight| f64::from(weight)).sum());
        let mean = sums.collect::<Vec<f64>>().iter().sum::<f64>() / weights.len().max(1) as f64;
        let scale = if mean > 0.0 { MEAN_COST / mean } else { 0.0 };
        // Whole weights keep their proportions.
        let scale = if scale > 1.0 { scale.ceil() } else { scale };
        Some(weights.par_iter().map(|&weight| (f64::from(weight) * scale).round() as u32).collect())
    }

    /// Names of the columns that `options` do not use.
    pub fn unused(&self, options: &PartitionOptions) -> Vec<String> {
        let [balances, cuts] = wanted(options);
        let vertices = self.vertices.iter().filter(|_| !balances).map(|column| column.name.clone());
        let edges = self.edges.iter().filter(|_| !cuts).map(|_| EDGE_WEIGHT.to_string());
        vertices.chain(edges).collect()
    }

    /// Quality of `assignment` in these weights; `None` without weights. `unused` are columns that
    /// the partitioner did not use.
    pub fn judge(
        &self,
        topology: &Topology,
        assignment: &[u16],
        layout: Layout<'_>,
        unused: Vec<String>,
    ) -> Option<OwnWeightsReport> {
        if self.vertices.is_empty() && self.edges.is_none() {
            return None;
        }
        let imbalance = |column: &VertexLoads| {
            max_over_target(assignment, layout, &|v| u64::from(column.values[v]))
        };
        let pairs = self.edges.as_ref().map(|weights| cut(topology, weights, assignment));
        Some(OwnWeightsReport {
            vertices: self
                .vertices
                .iter()
                .map(|column| (column.name.clone(), imbalance(column)))
                .collect(),
            cut: pairs.map(|pairs| pairs.0),
            total: pairs.map(|pairs| pairs.1),
            unused,
        })
    }
}

/// Whether `options` balance the weights of vertices and cut by the weights of edges.
fn wanted(options: &PartitionOptions) -> [bool; 2] {
    [options.quantities().contains(&Quantity::Own), options.weights() == Weights::Own]
}

/// Weights, if they are there and fit, or have to.
fn if_fit<T>(found: gsplit_store::Result<T>, needed: bool) -> Result<Option<T>> {
    match found {
        Err(gsplit_store::Error::Invalid(_)) if !needed => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// Weight of the pairs that are cut, and of all. Loops are none.
fn cut(topology: &Topology, weights: &EdgeWeights, assignment: &[u16]) -> (f64, f64) {
    let starts: Vec<usize> = (0..topology.num_vertices()).step_by(VERTICES_PER_SUM).collect();
    let of_some = |start: usize| {
        let (mut cut, mut total) = (0.0, 0.0);
        for v in start..topology.num_vertices().min(start + VERTICES_PER_SUM) {
            let first = topology.indptr()[v] as usize;
            for (e, &u) in
                (first..).zip(topology.in_neighbours(v as u32)).filter(|&(_, &u)| u as usize != v)
            {
                let weight = f64::from(weights[e]);
                total += weight;
                cut += if assignment[u as usize] == assignment[v] { 0.0 } else { weight };
            }
        }
        (cut, total)
    };
    let sums: Vec<(f64, f64)> = starts.into_par_iter().map(of_some).collect();
    let (cut, total) =
        sums.into_iter().fold((0.0, 0.0), |(cut, total), some| (cut + some.0, total + some.1));
    let both_ways = is_symmetric_with(topology, |e| u64::from(weights[e].to_bits()));
    if both_ways { (cut / 2.0, total / 2.0) } else { (cut, total) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Fixture;

    #[test]
    fn a_pair_weighs_what_its_edges_do() {
        // By target and source: 0←1, 0←2, 1←0, 2←0, with the weights 0, 0.5, 1, 1.5.
        let star = Fixture::new("star", 3, &[(1, 0), (2, 0), (0, 1), (0, 2)]).weighted();
        let directed = star.dataset();
        let own = OwnWeights::of(&directed, None).unwrap();
        let report = own.judge(directed.topology(), &[0, 0, 1], 2.into(), Vec::new()).unwrap();
        assert_eq!((report.cut, report.total), (Some(2.0), Some(3.0)));
        // Weights 1 and 2, 2 and 5, 3 and 1: the first part has 3 of 6, and 7 of 8.
        assert_eq!(report.vertices.into_values().collect::<Vec<f64>>(), [1.0, 1.75]);
        assert_eq!(own.costs().unwrap(), [0, 171, 342, 513]);
    }
}
