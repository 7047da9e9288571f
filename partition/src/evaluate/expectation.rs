//! Expectations of a mini-batch, computed from the presample, and compared with the measurement.
//!
//! GSplit, section 4: a mini-batch has as many cross edges on average as the pre-sampled counts of
//! the edges between parts, divided by the number of pre-sampled mini-batches. That holds for a map
//! chosen without looking at these counters. A map made to cut few of them does cut edges that just
//! happened not to be drawn, so fresh mini-batches cross more than it promised: the more so the
//! fewer epochs were pre-sampled and the rarer edges are drawn. Cost: a pass over edges and
//! counters for each map.

use gsplit_store::{Presample, Progress, Topology, Unit};
use rayon::prelude::*;
use serde::Serialize;

use super::schedule::{Measured, Record};
use super::{MeasuredMap, imbalance, ratio};
use crate::report::max_over_target;

/// Expected and measured, for one map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// Cross edges that the presample expects in a mini-batch.
    pub expected_cross_edges: f64,
    /// Mean of the cross edges measured.
    pub measured_cross_edges: f64,
    /// Share of the pre-sampled edges between parts.
    pub expected_cross_share: f64,
    /// Share of all sampled edges between parts.
    pub measured_cross_share: f64,
    /// Heaviest part over the mean, by pre-sampled work.
    pub expected_work_balance: f64,
    /// Heaviest part over the mean, by the sampled edges of all mini-batches together. A single
    /// mini-batch is less even.
    pub measured_work_balance: f64,
}

/// Sums over the presample.
pub(super) struct Expected {
    num_batches: u64,
    /// Pre-sampled counts of all edges.
    total: u64,
    /// For each candidate, the pre-sampled counts of the edges between parts.
    cross: Vec<u64>,
    /// For each candidate, the heaviest part's pre-sampled work over the mean.
    work_balance: Vec<f64>,
}

/// Weighs the candidates with the counters of `presample`.
pub(super) fn expect(
    topology: &Topology,
    presample: &Presample,
    candidates: &[MeasuredMap<'_>],
    progress: &dyn Progress,
) -> Expected {
    let stage = progress.stage("expected", Some(candidates.len() as u64), Unit::Items("maps"));
    let cross = candidates.iter().map(|candidate| {
        let part = |v: u32| candidate.assignment[v as usize];
        let of_vertex = |v: u32| {
            let counts = &presample.edge()[topology.indptr()[v as usize] as usize..];
            let edges = topology.in_neighbours(v).iter().zip(counts);
            edges
                .filter(|&(&u, _)| part(u) != part(v))
                .map(|(_, &count)| u64::from(count))
                .sum::<u64>()
        };
        let vertices = (0..topology.num_vertices() as u32).into_par_iter().with_min_len(1024);
        let cross = vertices.map(of_vertex).sum();
        stage.advance(1);
        cross
    });
    let cross = cross.collect();
    let total = presample.edge().par_iter().map(|&count| u64::from(count)).sum();
    let work = |v: usize| u64::from(presample.work()[v]);
    let work_balance = candidates
        .iter()
        .map(|candidate| max_over_target(&candidate.assignment, candidate.layout, &work))
        .collect();
    Expected { num_batches: presample.meta().num_batches.max(1), total, cross, work_balance }
}

impl Expected {
    /// Expectation of map `i`, compared with the measurement.
    pub fn beside(&self, measured: &Measured, i: usize) -> Expectation {
        let sum = |of: &dyn Fn(&Record) -> u64| measured.records.iter().map(of).sum::<u64>();
        let (cross, edges) = (sum(&|record| record.cross(i)), sum(&Record::edges));
        let (work, parts) = (&measured.work[i], measured.work[i].len() as u32);
        Expectation {
            expected_cross_edges: self.cross[i] as f64 / self.num_batches as f64,
            measured_cross_edges: ratio(cross, measured.records.len() as u64, 0.0),
            expected_cross_share: ratio(self.cross[i], self.total, 0.0),
            measured_cross_share: ratio(cross, edges, 0.0),
            expected_work_balance: self.work_balance[i],
            measured_work_balance: imbalance(
                work.iter().copied().max().unwrap_or(0),
                work.iter().sum(),
                parts,
            ),
        }
    }
}
