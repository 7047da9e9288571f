//! Partitioning a dataset: options in, assignment, cache order and report out.

use std::time::Instant;

use gsplit_store::{Dataset, PartitionReport, Presample, Progress, Unit};

use crate::{Error, PartitionOptions, Problem, Result, VertexWeights, Weights, cache_order, report};

/// A finished partition, to be stored with `PartitionMap::save`.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// The part of each vertex.
    pub assignment: Vec<u16>,
    /// [`cache_order`](cache_order()).
    pub cache_order: Vec<u32>,
    /// What the partition is worth.
    pub report: PartitionReport,
    /// Time of the partitioner alone, symmetrising included, in seconds.
    pub seconds: f64,
}

/// Partitions `dataset`. `presample` gives the weights that the options ask for; where they ask for none it still serves
/// the report and the cache order.
///
/// No part of the result is empty. With METIS every part weighs at most 1 + ε times the mean, in each of the weights that
/// were balanced; where the weights do not allow that, a note to `progress` says so and why.
///
/// Fails on options without sense, on weights that need a presample when there is none, on more parts than vertices,
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
    let choice = options.weights();
    if choice.need_presample() && presample.is_none() {
        let problem = format!("--weights {}: the dataset has no presample", options.weights_name());
        return Err(Error::Option(format!("{problem}; run `gsplit presample` first, or choose degree or unit")));
    }
    let problem = Problem {
        topology: dataset.topology(),
        weights: VertexWeights::choose(choice, options.load, dataset, presample, progress)?,
        edge_counts: presample.filter(|_| choice == Weights::Presampled).map(Presample::edge),
        parts,
        epsilon: options.epsilon,
        seed: options.seed,
    };
    let started = Instant::now();
    let assignment = match parts {
        1 => vec![0; n],
        _ => options.partitioner.partitioner().assign(&problem, progress)?,
    };
    let seconds = started.elapsed().as_secs_f64();

    let _stage = progress.stage("report", None, Unit::Items("edges"));
    let report = report(dataset, &assignment, parts, &problem.weights, presample)?;
    if options.partitioner == crate::Method::Metis {
        explain_imbalance(&problem, &report, progress);
    }
    let cache_order = cache_order(dataset.topology(), &assignment, presample);
    Ok(Partitioned { assignment, cache_order, report, seconds })
}

/// Says why ε was not kept, where it was not.
fn explain_imbalance(problem: &Problem<'_>, report: &PartitionReport, progress: &dyn Progress) {
    let limit = 1.0 + problem.epsilon;
    if report.imbalance <= limit {
        return;
    }
    let means: Vec<f64> =
        problem.weights.totals().iter().map(|&total| total as f64 / f64::from(problem.parts)).collect();
    let share = |v: u32| {
        let shares = problem.weights.of(v).iter().zip(&means).map(|(&weight, mean)| f64::from(weight) / mean);
        (shares.fold(0.0, f64::max), v)
    };
    let vertices = 0..problem.topology.num_vertices() as u32;
    let heaviest = vertices.map(share).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let reason = match heaviest {
        Some((share, v)) if share > problem.epsilon => {
            format!("vertex {v} alone weighs {share:.3} times the mean; ask for fewer parts or a larger --epsilon")
        }
        _ => {
            "no single vertex can move to balance all weights at once; try another --seed or a larger --epsilon".into()
        }
    };
    progress.note(&format!(
        "warning: the heaviest part weighs {:.3} times the mean, more than {limit:.3}: {reason}",
        report.imbalance
    ));
}
