//! A training run: epochs, evaluation, checkpoints.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use gsplit_kernels::Communicator;
use gsplit_store::staging::FolderLock;
use gsplit_store::{Dataset, Progress, Split, Stage, Unit};

use crate::batch::Near;
use crate::cache::{Caches, Counted};
use crate::checkpoint::{self, Inputs, Resume};
use crate::comms::Comms;
use crate::epoch::train_epoch;
use crate::evaluate::{evaluate, evaluate_owned, num_rows};
use crate::infer::Team;
use crate::job::{Artifacts, Job};
use crate::log::{Logs, StepLog, StepRecord};
use crate::model::{Model, check_size};
use crate::operator::{Place, set_torch_threads};
use crate::optimizer::Optimizer;
use crate::options::RunOptions;
use crate::places::places;
use crate::report::{EpochReport, StepReport, Summary};
use crate::source::{FeatureSource, Pinned};
use crate::stopping::{best_epoch, evaluations, is_exhausted};
use crate::topology::{Copied, DeviceRoom, Topology};
use crate::{Error, Result, TrainConfig, hosts, locality, shard};

/// Trains a model on `dataset` as `config` says. `on_epoch` is called once an epoch, from rank 0.
pub fn train(
    dataset: &Dataset,
    config: &TrainConfig,
    options: &RunOptions,
    progress: &dyn Progress,
    on_epoch: &(dyn Fn(&EpochReport) + Sync),
) -> Result<Summary> {
    let trained = prepare_and_train(dataset, config, options, progress, on_epoch);
    let trained = trained.map_err(|error| error.advised(config, options));
    // The others may wait for this one in what they prepare together.
    trained.inspect_err(|error| options.process.iter().for_each(|process| process.fail(&error.to_string())))
}

fn prepare_and_train(
    dataset: &Dataset,
    config: &TrainConfig,
    options: &RunOptions,
    progress: &dyn Progress,
    on_epoch: &(dyn Fn(&EpochReport) + Sync),
) -> Result<Summary> {
    config.check()?;
    let threads = options.threads.or_else(|| thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    options.process.as_ref().map_or(Ok(()), |process| process.check(config))?;
    let ranks = options.ranks_here(config.num_ranks()).len();
    let compute_threads = options.compute_threads(threads, ranks)?;
    let places = places(config, options)?;
    let artifacts = Artifacts::open(dataset, config)?;
    shard::check(dataset, config, artifacts.partition(), options)?;
    if let Some(process) = &options.process {
        shard::agree(dataset, artifacts.partition(), process.comms().all())?;
    }
    let job = Job::new(dataset, &artifacts, config, options)?;
    let mut inputs = Inputs::of(dataset, artifacts.partition(), (compute_threads / ranks).max(1), job.shape());
    if let (Some(user), true) = (config.watches_valid(), !job.has_valid()) {
        let problem = format!("{user} needs a valid split with vertices: leave it out, or convert with another split");
        return Err(Error::Option(problem));
    }
    // Nobody else may write there from before its state is read.
    let kept = options.checkpoint.as_deref().filter(|_| options.leads());
    let _lock = kept.map(FolderLock::acquire).transpose()?;
    let resume = match (&options.checkpoint, options.resume) {
        (Some(folder), true) => checkpoint::find(folder, dataset, &inputs, config)?,
        (None, true) => return Err(Error::Option("--resume needs --checkpoint DIR".into())),
        (Some(folder), false) => checkpoint::refuse_foreign(folder).map(|()| None)?,
        (None, false) => None,
    };
    if let Some(folder) = kept {
        checkpoint::check_writable(folder)?;
        if options.resume && resume.is_none() {
            progress.note(&format!("--resume: no checkpoint in {} yet: starts from the beginning", folder.display()));
        }
    }
    if config.batch_size > job.train.len() {
        let (size, there) = (config.batch_size, job.train.len());
        progress.note(&format!(
            "note: a mini-batch may have {size}, there are {there} to train on: an epoch is one mini-batch"
        ));
    }
    config.exchange_note(options.layer.is_some()).iter().for_each(|note| progress.note(note));
    check_size(config, job.features.dim(), job.outputs)?;
    let copied = Copied::default();
    let room = DeviceRoom::find(&job, &places, options, compute_threads, progress)?;
    let topology = Topology::new((dataset, &job), &places, options, &room, &copied, progress)?;
    let (sampled_from, sampled_share) = (topology.place(), topology.share());
    let left = topology.left_of(&room);
    let caches = Caches::new(dataset, &job, &artifacts, options, (&places, &left), progress)?;
    let pinned = pinned_rows(&job, caches.as_ref(), options, &places, progress)?;
    if config.draws_locally() {
        inputs.kept = caches.as_ref().map(Caches::checksum);
        if inputs.kept.is_none() {
            let problem = "it draws more often the rows that ranks keep: give --cache SIZE";
            return Err(Error::Option(format!("--draw locality: {problem}, or leave it out")));
        }
    }
    resume.as_ref().map_or(Ok(()), |resume| resume.check_kept(&inputs))?;
    let count = |rank| caches.as_ref().map(|caches| Counted::new(caches, rank, job.graph.num_vertices()));
    let sources = options.ranks_here(places.len()).map(|rank| match &pinned {
        Some(pinned) => FeatureSource::pinned(&job.features, &places[rank], pinned, rank).map_err(|e| e.of_rank(rank)),
        None => Ok(FeatureSource::new(&job.features, &places[rank]).with_count(count(rank))),
    });
    let sources = sources.collect::<Result<Vec<_>>>()?;
    let history = resume.as_ref().map_or(&[][..], |resume| &resume.history);
    let done = history.len();
    let metric = job.metric;
    let steps = job.num_steps() * history.len() as u64;
    let logs = match options.leads() {
        true => Logs::start(options, history, steps)?,
        false => Logs::start(&RunOptions::default(), history, steps)?,
    };
    let logs = Mutex::new(logs);
    let job = &job;
    let run = Run {
        dataset,
        inputs,
        threads,
        compute_threads,
        job,
        places,
        sources,
        topology,
        caches: caches.as_ref(),
        options,
        resume,
        logs,
        progress,
        on_epoch,
    };
    let (mut epochs, num_parameters) = options.on_all_ranks(job.config, |comms| run.epochs(comms))?;
    drop(run);
    if let (Some(pinned), Some(process), true) = (pinned, &options.process, is_shared(caches.as_ref())) {
        pinned.part(process.comms().all())?;
    }
    let best = best_epoch(&epochs).and_then(|best| epochs.iter().find(|report| report.epoch == best).cloned());
    Ok(Summary {
        best,
        stopped_early: (epochs.len() as u32) < config.epochs,
        epochs: epochs.split_off(done),
        num_parameters,
        partition: artifacts.partition().map(|map| map.key().to_string()),
        cache: caches.as_ref().map(Caches::summary),
        resumed_after: done as u32,
        metric,
        topology: sampled_from,
        topology_share: sampled_share,
    })
}

/// Whether ranks read each other's caches.
fn is_shared(caches: Option<&Caches>) -> bool {
    caches.is_some_and(Caches::are_shared)
}

/// The feature rows as GPUs read them themselves, if ranks compute there and the driver can pin them, with what they keep of them.
fn pinned_rows<'a>(
    job: &'a Job<'_>,
    caches: Option<&'a Caches>,
    options: &RunOptions,
    places: &[Place],
    progress: &dyn Progress,
) -> Result<Option<Pinned<'a>>> {
    let pinned = match places[0].gpu().map(|gpu| Pinned::new(&job.features, gpu)) {
        Some(Err(error)) if caches.is_none() => {
            progress.note(&format!("the host gathers the feature rows for the GPUs, which cannot read them: {error}"));
            None
        }
        pinned => pinned.transpose()?.flatten(),
    };
    match (pinned, caches) {
        (Some(mut pinned), Some(caches)) => {
            let here = options.ranks_here(places.len());
            let ranks: Vec<_> = here.filter_map(|rank| Some((rank, places[rank].gpu()?))).collect();
            match (&options.process, &ranks[..]) {
                (Some(process), &[here]) if is_shared(Some(caches)) => {
                    pinned.share(caches, here, process.comms().all())?
                }
                _ => pinned.fill(caches, &ranks)?,
            }
            Ok(Some(pinned))
        }
        (None, Some(_)) if places[0].gpu().is_some() => {
            let flag = if options.cache.is_some() { "--cache" } else { "--placement" };
            Err(Error::Option(format!(
                "{flag}: the feature rows are read from their file: pass --load-features memory, or leave it out"
            )))
        }
        (pinned, _) => Ok(pinned),
    }
}

struct Run<'a> {
    dataset: &'a Dataset,
    inputs: Inputs,
    /// Of the whole run; all of them evaluate.
    threads: usize,
    /// Those that do not sample.
    compute_threads: usize,
    job: &'a Job<'a>,
    /// Of each rank.
    places: Vec<Place>,
    /// The feature rows of each rank of this process.
    sources: Vec<FeatureSource<'a>>,
    topology: Topology<'a>,
    caches: Option<&'a Caches>,
    options: &'a RunOptions,
    resume: Option<Resume>,
    logs: Mutex<Logs>,
    progress: &'a dyn Progress,
    on_epoch: &'a (dyn Fn(&EpochReport) + Sync),
}

/// Reports of all epochs, and the number of parameters.
type RankResult = Result<(Vec<EpochReport>, usize)>;

impl Run<'_> {
    fn epochs(&self, comms: &Comms) -> RankResult {
        let (job, config, comm) = (self.job, self.job.config, comms.all());
        set_torch_threads(self.compute_threads / self.here().len());
        if self.options.process.is_some() {
            comms.set_routes(hosts::routes(comm, config, self.progress)?);
        }
        let place = &self.places[comm.rank()];
        let source = &self.sources[comm.rank() - self.here().start];
        let mut sampler = self.topology.sampler(job, place, comm.rank())?;
        if let (Some(caches), true) = (self.caches, config.draws_locally()) {
            sampler.prefer(Near::new(&job.graph, caches.of(comm.rank()), config.fanouts.len()));
        }
        let model = self.model(place);
        let steps = job.num_steps();
        let mut optimizer = Optimizer::new(model.parameters(), config, steps)?;
        let mut reports = Vec::new();
        if let Some(resume) = &self.resume {
            checkpoint::restore(resume, model.parameters(), &mut optimizer)?;
            reports.clone_from(&resume.history);
        }
        if self.options.resume {
            checkpoint::agree(comm, reports.len() as u64)?;
        }
        for epoch in reports.len() as u32 + 1..=config.epochs {
            if config.patience.is_some_and(|patience| is_exhausted(&reports, patience, config.min_delta)) {
                break;
            }
            optimizer.follow(evaluations(&reports).map(|(_, metric)| metric));
            let draw_factor = locality::factor(config, &reports);
            draw_factor.iter().for_each(|&factor| sampler.set_factor(factor));
            let started = Instant::now();
            let name = format!("epoch {epoch}/{}{}", config.epochs, self.to_go(&reports));
            let stage = self.stage(comm, &name, (job.train.len() as u64, "seeds"));
            let write = |record: &StepRecord| self.logs().write_step(record);
            let log = StepLog { every: self.options.log_every, write: &write };
            let sums =
                train_epoch((job, source), &mut sampler, epoch, (&model, &mut optimizer), comms, stage.as_ref(), log)?
                    .reduce(comm)?;
            drop(stage);
            let mut report = report_of(epoch, &sums, steps, started.elapsed().as_secs_f64());
            report.draw_factor = draw_factor;
            if self.dataset.shard().is_some() {
                self.evaluate(&mut report, &model, comms)?;
            }
            // Rank 0 leads the evaluation and writes, for as long as that takes. It finds the others waiting for it, or does not wait
            // long.
            comm.suspend_timeout(comm.rank() > 0);
            if self.dataset.shard().is_none() && comm.rank() == 0 {
                self.evaluate(&mut report, &model, comms)?;
            }
            report.share_metrics(comm)?;
            reports.push(report);
            if comm.rank() == 0 {
                self.keep(&reports, &model, &optimizer)?;
            }
            comm.barrier()?;
            comm.suspend_timeout(false);
        }
        Ok((reports, model.parameters().num_values()))
    }

    /// How long the rest of the run would take at the pace of the epochs of this process, for people.
    fn to_go(&self, reports: &[EpochReport]) -> String {
        let before = self.resume.as_ref().map_or(0, |resume| resume.history.len());
        let done = &reports[before..];
        if done.is_empty() {
            return String::new();
        }
        let spent: f64 = done.iter().map(|report| report.seconds + report.evaluate_s).sum();
        let left = (spent / done.len() as f64 * f64::from(self.job.config.epochs - reports.len() as u32)) as u64;
        let (hours, minutes, seconds) = (left / 3600, left / 60 % 60, left % 60);
        match (hours, minutes) {
            (0, 0) => format!(", {seconds} s to go"),
            (0, _) => format!(", {minutes}:{seconds:02} min to go"),
            _ => format!(", {hours}:{minutes:02} h to go"),
        }
    }

    /// Watches work on so many items from rank 0.
    fn stage(&self, comm: &dyn Communicator, name: &str, (total, items): (u64, &'static str)) -> Box<dyn Stage> {
        match comm.rank() {
            0 => self.progress.stage(name, Some(total), Unit::Items(items)),
            _ => Box::new(gsplit_store::NoProgress),
        }
    }

    /// Ranks of this process.
    fn here(&self) -> Range<usize> {
        self.options.ranks_here(self.places.len())
    }

    /// A model at `place` with its first parameters.
    fn model(&self, place: &Place) -> Model {
        let job = self.job;
        Model::with_layers(place, job.config, job.features.dim(), job.outputs, self.options.layer.as_ref())
    }

    /// Those who evaluate `model`, which is rank 0's: a worker for each rank of this process.
    fn team<'m>(&'m self, model: &'m Model) -> Result<Team<'m>> {
        let others = self.places[self.here()][1..].iter().map(|place| {
            let other = self.model(place);
            other.parameters().copy_from(model.parameters()).map(|()| other)
        });
        Ok(Team::new(model, others.collect::<Result<_>>()?, &self.sources))
    }

    /// Fills in the scores, when it is time to: on rank 0, while the other ranks' own threads wait. Of a shard on all ranks; collective.
    fn evaluate(&self, report: &mut EpochReport, model: &Model, comms: &Comms) -> Result<()> {
        let (job, config) = (self.job, self.job.config);
        let last = report.epoch == config.epochs;
        let due = config.eval_every > 0 && (last || report.epoch.is_multiple_of(config.eval_every));
        let Some(total) = num_rows(model, job).filter(|_| due) else { return Ok(()) };
        let started = Instant::now();
        let stage = self.stage(comms.all(), "evaluate", (total, "vertices"));
        let scores = match self.dataset.shard() {
            None => {
                set_torch_threads(self.threads);
                evaluate(self.team(model)?, job, stage.as_ref())?
            }
            Some(_) => {
                let source = &self.sources[comms.all().rank() - self.here().start];
                evaluate_owned((model, source), job, comms.ranks().group, stage.as_ref())?
            }
        };
        for (split, score) in scores {
            match split {
                Split::Test => report.test = score,
                _ => report.valid = score,
            }
        }
        set_torch_threads(self.compute_threads / self.here().len());
        report.evaluate_s = started.elapsed().as_secs_f64();
        match (config.watches_valid(), report.valid) {
            (Some(user), None) => Err(Error::Option(format!("{user} needs a labelled vertex in the valid split"))),
            _ => Ok(()),
        }
    }

    /// Checkpoints, logs and tells the caller about the last epoch of `reports`: rank 0 alone.
    fn keep(&self, reports: &[EpochReport], model: &Model, optimizer: &Optimizer) -> Result<()> {
        if let Some(folder) = &self.options.checkpoint {
            let origin = (self.dataset, &self.inputs, self.job.config);
            checkpoint::save(folder, reports, origin, model.parameters(), optimizer)?;
        }
        let Some(report) = reports.last() else { return Ok(()) };
        self.logs().write(report)?;
        (self.on_epoch)(report);
        Ok(())
    }

    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The report of an epoch of `steps` mini-batches, not evaluated yet.
fn report_of(epoch: u32, sums: &StepReport, steps: u64, seconds: f64) -> EpochReport {
    EpochReport {
        epoch,
        loss: sums.loss / sums.counted_of(steps),
        gradient_norm: sums.gradient_norm / sums.counted_of(steps),
        learning_rate: sums.learning_rate,
        loss_scale: sums.loss_scale,
        skipped: sums.skipped,
        draw_factor: None,
        train: sums.correct as f64 / sums.counted.max(1) as f64,
        valid: None,
        test: None,
        timings: sums.timings,
        seconds,
        evaluate_s: 0.0,
        work: sums.work.clone(),
    }
}
