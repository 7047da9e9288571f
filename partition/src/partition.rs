//! Partitioning a dataset: options in, assignment, cache order and report out.

use std::time::Instant;

use gsplit_store::{Dataset, PartitionMap, PartitionReport, Presample, Progress, Unit};

use crate::cache_order::cache_order;
use crate::loads::Loads;
use crate::report::report;
use crate::{Error, Layout, OwnWeights, PartitionOptions, Problem, Result, VertexWeights, Weights};

/// A finished partition, to be stored with `PartitionMap::save`.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// The part of each vertex.
    pub assignment: Vec<u16>,
    /// The vertices of part 0, then of part 1 and so on; within a part by how much they deserve a
    /// cache slot, hottest first.
    pub cache_order: Vec<u32>,
    /// Quality of the partition.
    pub report: PartitionReport,
    /// Time of the partitioner itself, including symmetrising, in seconds.
    pub seconds: f64,
}

/// Partitions `dataset`. `presample` gives the weights that the options ask for; where they ask for
/// none it still serves the report and the cache order.
///
/// No part of the result is empty. With the multilevel partitioner and METIS every part weighs at
/// most 1 + ε times the mean, or times its target, in each of the weights that were balanced; where
/// the weights do not allow that, a note to `progress` says so and why. A process that may get
/// SIGTERM keeps it blocked on all threads meanwhile, or METIS may take it and never return.
///
/// Fails on options without sense, on weights that need a presample when there is none, or that are
/// not there, and on more parts than vertices. Fails on a number of servers that does not divide
/// the parts, and on a partition to refine that is not there or has another number of parts. Fails
/// on graphs beyond METIS's 32-bit indices, and on a damaged topology.
pub fn partition(
    dataset: &Dataset,
    presample: Option<&Presample>,
    options: &PartitionOptions,
    progress: &dyn Progress,
) -> Result<Partitioned> {
    options.check()?;
    dataset.topology().check_indices()?;
    let (n, parts) = (dataset.num_vertices(), options.parts);
    if parts as usize > n {
        return Err(Error::TooManyParts { parts, vertices: n });
    }
    if options.need_presample() && presample.is_none() {
        let problem = format!("weights {}: the dataset has no presample", options.weights_name());
        return Err(Error::Option(format!(
            "{problem}; run `gsplit presample` first, or choose degree, unit or own"
        )));
    }
    let own = OwnWeights::of(dataset, Some(options))?;
    let weights = VertexWeights::choose(options, dataset, presample, &own.vertices, progress)?;
    let unused = own.unused(options);
    if options.partitioner.weighs() && !unused.is_empty() {
        let columns = unused.join(", ");
        progress.note(&format!(
            "note: weights came with the graph and are not used: {columns}; --weights own uses them"
        ));
    }
    let costs = (options.weights() == Weights::Own).then(|| own.costs()).flatten();
    // They are read again when all is done.
    drop(own);
    let refined =
        options.refine.as_deref().map(|key| open_refined(dataset, key, parts)).transpose()?;
    let counted = presample.filter(|_| options.weights() == Weights::Presampled);
    let problem = Problem {
        topology: dataset.topology(),
        weights,
        edge_counts: costs.as_deref().or(counted.map(Presample::edge)),
        parts,
        servers: options.servers,
        targets: options.targets_over_mean(),
        epsilon: options.epsilon,
        seed: options.seed,
        quality: options.quality.unwrap_or_default(),
        memory: options.memory,
        folder: dataset.path(),
        start: refined.as_ref().map(PartitionMap::assignment),
    };
    let started = Instant::now();
    let assignment = match parts {
        1 => vec![0; n],
        _ => options.implementation().assign(&problem, progress)?,
    };
    let seconds = started.elapsed().as_secs_f64();

    let layout = problem.layout();
    if options.partitioner.weighs() {
        explain_imbalance(&problem.weights, &assignment, layout, options.epsilon, progress);
    }
    let mut made =
        judge(dataset, presample, assignment, layout, &problem.weights, seconds, progress)?;
    let own = OwnWeights::of(dataset, Some(options))?;
    made.report.own_weights = own.judge(dataset.topology(), &made.assignment, layout, unused);
    Ok(made)
}

/// The stored partition that is to be improved.
fn open_refined(dataset: &Dataset, key: &str, parts: u32) -> Result<PartitionMap> {
    let map = PartitionMap::open(dataset, key)?;
    match map.num_parts() as u32 {
        found if found == parts => Ok(map),
        found => {
            Err(Error::Option(format!("--refine {key}: it has {found} parts; leave --parts out")))
        }
    }
}

/// Report and cache order of a partition that was made elsewhere: `assignment` holds a part below
/// `parts` for each vertex of `dataset`, and no part is empty. Its imbalance is that of the number
/// of vertices.
///
/// Fails on a damaged topology.
pub fn assess(
    dataset: &Dataset,
    presample: Option<&Presample>,
    assignment: Vec<u16>,
    parts: u32,
    progress: &dyn Progress,
) -> Result<Partitioned> {
    dataset.topology().check_indices()?;
    let weights = VertexWeights::new(dataset.num_vertices(), &[]);
    let mut made = judge(dataset, presample, assignment, parts.into(), &weights, 0.0, progress)?;
    made.report.own_weights = OwnWeights::of(dataset, None)?.judge(
        dataset.topology(),
        &made.assignment,
        parts.into(),
        Vec::new(),
    );
    Ok(made)
}

fn judge(
    dataset: &Dataset,
    presample: Option<&Presample>,
    assignment: Vec<u16>,
    layout: Layout<'_>,
    weights: &VertexWeights,
    seconds: f64,
    progress: &dyn Progress,
) -> Result<Partitioned> {
    let _stage = progress.stage("report", None, Unit::Items("edges"));
    let report = report(dataset, &assignment, layout, weights, presample)?;
    let cache_order = cache_order(dataset.topology(), &assignment, presample);
    Ok(Partitioned { assignment, cache_order, report, seconds })
}

/// Says that ε was not kept, where it was not.
fn explain_imbalance(
    weights: &VertexWeights,
    assignment: &[u16],
    layout: Layout<'_>,
    epsilon: f64,
    progress: &dyn Progress,
) {
    let (limit, imbalance) = (1.0 + epsilon, Loads::of(layout, weights, assignment).imbalance());
    if imbalance > limit {
        let what = if layout.targets().is_some() { "its target" } else { "the mean" };
        progress.note(&format!(
            "warning: the heaviest part weighs {imbalance:.3} times {what}, more than {limit:.3}, \
             and no single vertex can move to \
             change that: some may be too heavy; ask for fewer parts or a larger --epsilon, or try \
             another --seed"
        ));
    }
}
