//! Evaluation during a run: in which epochs it happens, and which workers do it.

use std::time::Instant;

use gsplit_store::{Split, SplitScores};

use super::{evaluate, evaluate_owned, num_rows};
use crate::Result;
use crate::infer::Team;
use crate::metric::Evaluation;
use crate::model::Model;
use crate::operator::set_torch_threads;
use crate::ranks::comms::Comms;
use crate::report::EpochReport;
use crate::run::setup::Run;

/// Scores if it is due; returns the classes' scores. Rank 0 only, while the others wait; for a
/// shard all, collectively.
pub fn score(
    run: &Run<'_>,
    report: &mut EpochReport,
    model: &Model,
    comms: &Comms,
) -> Result<Option<Vec<SplitScores>>> {
    let (job, config) = (run.job, run.job.config);
    let last = report.epoch == config.run.epochs;
    let due =
        config.run.eval_every > 0 && (last || report.epoch.is_multiple_of(config.run.eval_every));
    let Some(total) = num_rows(model, job).filter(|_| due) else { return Ok(None) };
    let started = Instant::now();
    let stage = run.stage(comms.all(), "evaluate", total, "vertices");
    let Evaluation { scores, classes, loss } = match job.dataset.shard() {
        None => {
            set_torch_threads(run.threads);
            evaluate(team(run, model)?, job, stage.as_ref())?
        }
        Some(_) => {
            let source = run.source(comms.all().rank());
            evaluate_owned(model, source, job, comms.ranks().group, stage.as_ref())?
        }
    };
    for (split, score) in scores {
        match split {
            Split::Test => report.test = score,
            _ => report.valid = score,
        }
    }
    report.valid_loss = loss;
    set_torch_threads(run.threads / run.here().len());
    report.evaluate_s = started.elapsed().as_secs_f64();
    Ok(Some(classes))
}

/// Workers that evaluate `model`, which belongs to rank 0: one per rank of this process.
fn team<'m>(run: &'m Run<'_>, model: &'m Model) -> Result<Team<'m>> {
    let others = run.places[run.here()][1..].iter().map(|place| {
        let other = run.model(place);
        other.parameters().copy_from(model.parameters()).map(|()| other)
    });
    Ok(Team::new(model, others.collect::<Result<_>>()?, &run.sources))
}
