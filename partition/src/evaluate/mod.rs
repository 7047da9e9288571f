//! Is this partition good? Split-parallel training simulated on fresh mini-batches, its costs
//! counted for several maps.
//!
//! ```text
//! setting ─▶ schedule ─▶ mini-batch ─┬─▶ split: cross edges, imbalance, rows exchanged     a map
//!                                    ├─▶ split in part: rows, edges, rows exchanged        a map
//!                                    └─▶ data: rows and edges of separate micro-batches    a number of parts
//! server's graph (`cooperative`) ─▶ work                                                   for `gsplit plan` alone
//! presample ─▶ expectation ──────────────▶ report
//! ```
//!
//! Returns: an [`Evaluation`], for every map and for a random partition with as many parts. Input:
//! maps and presample of the dataset, which has a training split. Idea: a vertex's draws depend on
//! (seed, epoch, step, layer, vertex) and not on the rank, so the union of the ranks' samples is
//! the sample of a single rank: each mini-batch is sampled once, and every edge and row attributed
//! to the ranks that the map, or data parallelism, gives it to. All counts are integers of one
//! mini-batch, put in order before anything is averaged: the same for any number of threads.
//! Source: GSplit, section 6.3 (Figure 5: cross edges and imbalance) and section 2 (Table 1:
//! redundancy). Cost: a mini-batch costs its sampling, two passes over its edges for each map and
//! one for each map and layer (more for every 64 parts); the expectation is one pass over the graph
//! for each map. Memory: 2 bytes a vertex for each random partition, one shuffled training split
//! and a mini-batch for each thread, and a few numbers for each map, layer and mini-batch.

mod cooperative;
mod expectation;
mod options;
mod report;
mod sample;
mod schedule;
mod split;
#[cfg(test)]
mod tests;
mod volume;

use std::borrow::Cow;
use std::collections::BTreeSet;

use gsplit_kernels::{Graph, RowLayout};
use gsplit_store::{Dataset, PartitionMap, Presample, Progress, Split};

use crate::baseline::deal;
use crate::{Layout, Result};

pub use cooperative::{Cooperative, cooperative};
pub use expectation::Expectation;
pub use options::{Options, Setting};
pub use report::{
    BatchSize, Evaluation, LayerEvaluation, LayerSize, LayerWork, MapEvaluation, Work,
};

/// A partition to be measured.
struct MeasuredMap<'a> {
    /// Key of a stored map; `None` for the random baseline.
    key: Option<&'a str>,
    layout: Layout<'static>,
    assignment: Cow<'a, [u16]>,
}

/// Measures `maps`, and after them a random partition for every number of parts they have, on the
/// mini-batches of `setting`. Where `presample` was made with the same fanouts and batch size, its
/// expectations are compared with the measurements.
///
/// Fails on a dataset without training vertices, on a setting without sense, and on a damaged
/// topology.
pub fn evaluate(
    dataset: &Dataset,
    maps: &[PartitionMap],
    presample: Option<&Presample>,
    setting: &Setting,
    progress: &dyn Progress,
) -> Result<Evaluation> {
    setting.check()?;
    let train = dataset.split(Split::Train)?;
    if train.is_empty() {
        let remedy =
            "its training split is empty; convert or generate it with a split that has some"
                .to_string();
        let what = "training vertices to draw mini-batches from".to_string();
        return Err(
            gsplit_store::Error::Missing { path: dataset.path().into(), what, remedy }.into()
        );
    }
    let topology = dataset.topology();
    topology.check_indices()?;
    let weights =
        setting.draw_by.as_ref().map(|column| dataset.edge_weights(column)).transpose()?;
    let mut graph = Graph::new(topology.indptr(), topology.indices())?;
    if let Some(weights) = &weights {
        graph = graph.with_weights(weights)?;
    }
    let layout = dataset.types().map(|types| RowLayout::new(types.shapes())).transpose()?;
    setting.fanouts.check(layout.as_ref())?;
    if let Some((rows, layout)) = topology.rows().zip(layout.as_ref()) {
        graph = graph.with_rows(rows, layout)?;
    }

    let candidates = candidates(dataset, maps, setting.seed);
    let fitting = presample.filter(|presample| setting.is_of(presample));
    let expected =
        fitting.map(|presample| expectation::expect(topology, presample, &candidates, progress));
    let measured = schedule::measure(&graph, &train, setting, &candidates, progress)?;
    Ok(report::report(setting, fitting, &candidates, expected.as_ref(), &measured))
}

fn candidates<'a>(dataset: &Dataset, maps: &'a [PartitionMap], seed: u64) -> Vec<MeasuredMap<'a>> {
    let stored = maps.iter().map(|map| MeasuredMap {
        key: Some(map.key()),
        layout: Layout::new(map.num_parts() as u32, map.num_servers() as u32),
        assignment: map.assignment().into(),
    });
    let parts: BTreeSet<u32> = maps.iter().map(|map| map.num_parts() as u32).collect();
    let random = parts.into_iter().map(|parts| MeasuredMap {
        key: None,
        layout: parts.into(),
        // What `--partitioner random` makes with that seed.
        assignment: deal(dataset.num_vertices(), seed, |i| (i % parts) as u16).into(),
    });
    stored.chain(random).collect()
}

/// `part / whole`, and `otherwise` of nothing.
fn ratio(part: u64, whole: u64, otherwise: f64) -> f64 {
    if whole == 0 { otherwise } else { part as f64 / whole as f64 }
}

/// Mean of `values`; 0 of none.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    if count == 0.0 { 0.0 } else { sum / count }
}

/// The heaviest of `parts` parts over their mean; 1 when there is nothing to share.
fn imbalance(heaviest: u64, total: u64, parts: u32) -> f64 {
    ratio(heaviest.saturating_mul(parts.into()), total, 1.0)
}
