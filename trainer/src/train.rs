//! A training run: epochs, evaluation, checkpoints.

use std::time::Instant;

use gsplit_kernels::PreferredVertices;
use gsplit_store::{Baseline, Dataset, ModelScores, Progress, diverged};

use crate::batch::Made;
use crate::epoch::{Batches, train_epoch};
use crate::evaluate::{score, yardstick};
use crate::job::hooks::Hooks;
use crate::model::Model;
use crate::operator::set_torch_threads;
use crate::optimizer::Optimizer;
use crate::ranks::comms::Comms;
use crate::ranks::hosts;
use crate::report::log::{StepLog, StepRecord};
use crate::report::stopping::{evaluations, is_exhausted, to_go};
use crate::report::{EpochReport, Summary, checkpoint, notes, share_metrics};
use crate::residence::cache::Caches;
use crate::run::locality;
use crate::run::setup::{Run, with_run};
use crate::{Config, Error, Result};

/// Trains a model on `dataset` with the options of `config`. Rank 0 calls `on_epoch` once per epoch
/// with the reports of all epochs so far, including the epochs before a resume.
pub fn train(
    dataset: &Dataset,
    config: &Config,
    hooks: &Hooks,
    progress: &dyn Progress,
    on_epoch: &(dyn Fn(&[EpochReport]) + Sync),
) -> Result<Summary> {
    // Other processes may be waiting for this one in a collective preparation step.
    let fail =
        |error: &Error| hooks.process.iter().for_each(|process| process.fail(&error.to_string()));
    let config = &config.of_labels(dataset, progress).inspect_err(fail)?;
    let trained = with_run(dataset, config, hooks, progress, |run| {
        let trained = hooks.on_all_ranks(config, |comms| epochs(run, comms, on_epoch))?;
        Ok(summary(run, trained))
    });
    let trained = trained.map_err(|error| error.advised(config));
    trained.inspect_err(fail)
}

/// Epochs trained so far, as seen by one rank.
struct Epochs {
    reports: Vec<EpochReport>,
    num_parameters: usize,
    baseline: Option<Baseline>,
    scores: Option<ModelScores>,
}

/// Trains all epochs on one rank. Collective.
fn epochs(
    run: &Run<'_>,
    comms: &Comms,
    on_epoch: &(dyn Fn(&[EpochReport]) + Sync),
) -> Result<Epochs> {
    let (job, config, comm) = (run.job, run.job.config, comms.all());
    set_torch_threads(run.threads / run.here().len());
    if job.hooks.process.is_some() {
        comms.set_routes(hosts::routes(comm, config, run.progress)?);
    }
    let (place, source) = (&run.places[comm.rank()], run.trained_on(comm.rank()));
    let mut sampler = run.topology.sampler(job, place, comm.rank())?;
    if let (Some(caches), true) = (run.caches, config.draws_locally()) {
        sampler.prefer(PreferredVertices::new(
            &job.graph,
            caches.of(comm.rank()),
            config.model.layers,
        ));
    }
    let model = run.model(place);
    if config.system.parallelism.slices_columns() {
        model.check_by_columns()?;
    }
    let mut optimizer = Optimizer::new(model.parameters(), config, job.num_steps())?;
    let (mut reports, mut scores) = (Vec::new(), None);
    let (baseline, unscored) = yardstick(run, comms)?;
    let of_splits = notes::of_splits(job, &unscored)?;
    if let (Some(told), Some(baseline)) = (&job.hooks.baseline, &baseline) {
        told.get_or_init(|| baseline.clone());
    }
    if let Some(resume) = &run.resume {
        let first = comm.rank() == run.here().start;
        checkpoint::restore(resume, model.parameters(), &mut optimizer, first)?;
        reports.clone_from(&resume.history);
        scores.clone_from(&resume.scores);
        if let (Some(folder), 0) = (&job.config.run.checkpoint, comm.rank()) {
            checkpoint::settle(folder, &reports)?;
        }
    }
    if let Some(init) = &run.init {
        init.restore(model.parameters())?;
    }
    if job.config.run.resume {
        checkpoint::agree(comm, reports.len() as u64)?;
    }
    let made = match config.system.parallelism.cooperates() {
        true => Some(Made::new(job, &model, comms, job.hooks.process.is_none())?),
        false => None,
    };
    let before = reports.len();
    let note = |line: Option<String>| {
        line.filter(|_| comm.rank() == 0).into_iter().for_each(|line| run.progress.note(&line));
    };
    note(notes::unchosen(job));
    of_splits.iter().for_each(|line| note(Some(format!("note: {line}"))));
    for epoch in before as u32 + 1..=config.run.epochs {
        if config.run.patience.is_some_and(|patience| is_exhausted(&reports, patience)) {
            break;
        }
        optimizer.follow(evaluations(&reports));
        let draw_factor = locality::factor(config, &reports);
        draw_factor.iter().for_each(|&factor| sampler.set_factor(factor));
        let started = Instant::now();
        let name = format!(
            "epoch {epoch}/{}{}",
            config.run.epochs,
            to_go(&reports[before..], config.run.epochs - epoch + 1)
        );
        let stage = run.stage(comm, &name, job.train.len() as u64, "seeds");
        let write = |record: &StepRecord| {
            run.logs().write_step(&StepRecord { memory: place.memory_held()?, ..record.clone() })
        };
        let log = StepLog { every: job.config.run.log_every, write: &write };
        let batches = made
            .as_ref()
            .map_or_else(|| Batches::Sampled(&mut sampler, job.num_steps()), Batches::Made);
        let sums = train_epoch(
            job,
            source,
            batches,
            epoch,
            &model,
            &mut optimizer,
            comms,
            stage.as_ref(),
            log,
        )?;
        let sums = sums.reduce(comm)?;
        drop(stage);
        let mut report =
            sums.of_epoch(epoch, job.num_steps(), started.elapsed().as_secs_f64(), job.metric);
        (report.draw_factor, report.memory) = (draw_factor, place.memory_held()?);
        let mut classes = None;
        if job.dataset.shard().is_some() {
            classes = score(run, &mut report, &model, comms)?;
        }
        // The other ranks suspend their timeout while rank 0 evaluates and writes.
        comm.suspend_timeout(comm.rank() > 0);
        if job.dataset.shard().is_none() && comm.rank() == 0 {
            classes = score(run, &mut report, &model, comms)?;
        }
        share_metrics(&mut report, comm)?;
        reports.push(report);
        if let Some(splits) =
            classes.filter(|_| EpochReport::best(&reports).is_none_or(|best| best.epoch == epoch))
        {
            let (metric, baseline) = (job.metric.to_string(), baseline.clone());
            scores =
                Some(ModelScores { epoch, metric, baseline, splits, notes: of_splits.clone() });
        }
        if comm.rank() == 0 {
            keep(run, &reports, scores.as_ref(), &model, &optimizer, on_epoch)?;
        }
        if epoch == 1 {
            note(notes::absurd(job, &reports[0]));
        }
        if diverged(&reports[..reports.len() - 1]).is_none() {
            note(diverged(&reports).map(|line| format!("note: {line}")));
        }
        comm.barrier()?;
        comm.suspend_timeout(false);
    }
    if reports.len() > before && reports.len() == config.run.epochs as usize {
        note(notes::rising(&reports, notes::guess(job)));
    }
    if reports.len() > before {
        let below = scores.as_ref().and_then(|scores| scores.below_baseline(&reports));
        note(below.map(|line| format!("note: {line}")));
    }
    Ok(Epochs { reports, num_parameters: model.parameters().num_learnt(), baseline, scores })
}

/// Writes checkpoints and logs and calls the caller's callback for the last epoch of `reports`.
/// Only on rank 0.
fn keep(
    run: &Run<'_>,
    reports: &[EpochReport],
    scores: Option<&ModelScores>,
    model: &Model,
    optimizer: &Optimizer,
    on_epoch: &(dyn Fn(&[EpochReport]) + Sync),
) -> Result<()> {
    if let Some(folder) = &run.job.config.run.checkpoint {
        checkpoint::save(
            folder,
            reports,
            scores,
            run.job,
            &run.inputs,
            model.parameters(),
            optimizer,
        )?;
    }
    let Some(report) = reports.last() else { return Ok(()) };
    run.logs().write(report)?;
    on_epoch(reports);
    Ok(())
}

/// Summary of `run` from its `trained` epochs, including the epochs before a resume.
fn summary(run: &Run<'_>, trained: Epochs) -> Summary {
    let Epochs { reports: mut epochs, num_parameters, baseline, scores } = trained;
    let done = run.resume.as_ref().map_or(0, |resume| resume.history.len());
    Summary {
        best: EpochReport::best(&epochs).cloned(),
        notes: gsplit_store::notes(&epochs, scores.as_ref()),
        baseline,
        scores,
        stopped_early: (epochs.len() as u32) < run.job.config.run.epochs,
        epochs: epochs.split_off(done),
        num_parameters,
        partition: run.job.artifacts.partition().map(|map| map.key().to_string()),
        cache: run.caches.map(Caches::summary),
        features: run.storage,
        resumed_after: done as u32,
        metric: run.job.metric,
        topology: run.topology.place(),
    }
}
