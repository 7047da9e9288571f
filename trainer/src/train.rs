//! A training run: ranks, epochs, evaluation, checkpoints.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use gsplit_kernels::{CommError, Communicator, Solo, Threads};
use gsplit_store::{Dataset, Progress, Split, Unit};

use crate::checkpoint::{self, Inputs, Resume};
use crate::epoch::train_epoch;
use crate::error::first_line;
use crate::evaluate::{evaluate, num_rows};
use crate::job::{Artifacts, Job};
use crate::model::{Model, check_size};
use crate::optimizer::Adam;
use crate::report::{EpochReport, Log, Summary};
use crate::{Error, Result, TrainConfig};

/// What surrounds a run without changing its result.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Folder for a checkpoint after every epoch.
    pub checkpoint: Option<PathBuf>,
    /// Continue after the newest checkpoint there.
    pub resume: bool,
    /// JSONL file with one line an epoch.
    pub log: Option<PathBuf>,
    /// Threads for torch's operators, over all ranks together; the machine's cores when `None`.
    pub threads: Option<usize>,
    /// Becomes true when the run is to stop before its next mini-batch.
    pub stop: Option<&'static AtomicBool>,
}

/// Trains a model on `dataset` as `config` says. `on_epoch` is called once an epoch, from rank 0.
pub fn train(
    dataset: &Dataset,
    config: &TrainConfig,
    options: &RunOptions,
    progress: &dyn Progress,
    on_epoch: &(dyn Fn(&EpochReport) + Sync),
) -> Result<Summary> {
    config.check()?;
    let artifacts = Artifacts::open(dataset, config)?;
    let job = Job::new(dataset, &artifacts, config, options.stop)?;
    let ranks = config.num_ranks();
    let threads = options.threads.or_else(|| thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let inputs = Inputs::of(dataset, artifacts.partition(), (threads / ranks).max(1), job.shape());
    let resume = match (&options.checkpoint, options.resume) {
        (Some(folder), true) => Some(checkpoint::find(folder, dataset, &inputs, config)?),
        (None, true) => return Err(Error::Option("--resume needs --checkpoint DIR".into())),
        (Some(folder), false) => checkpoint::refuse_foreign(folder).map(|()| None)?,
        (None, false) => None,
    };
    if let Some(folder) = &options.checkpoint {
        checkpoint::check_writable(folder)?;
    }
    if config.batch_size > job.train.len() {
        let (size, there) = (config.batch_size, job.train.len());
        progress.note(&format!("--batch-size {size}: there are {there} to train on, an epoch is one mini-batch"));
    }
    check_size(config, job.features.dim(), job.outputs)?;
    let history = resume.as_ref().map_or(&[][..], |resume| &resume.history);
    let done = history.len();
    let log = options.log.as_deref().map(|path| Log::start(path, history)).transpose()?;
    let metric = job.metric;
    let run = Run { dataset, inputs, threads, job, options, resume, log: Mutex::new(log), progress, on_epoch };
    let (mut epochs, num_parameters) = run.on_all_ranks()?;
    Ok(Summary {
        epochs: epochs.split_off(done),
        num_parameters,
        partition: artifacts.partition().map(|map| map.key().to_string()),
        resumed_after: done as u32,
        metric,
    })
}

struct Run<'a> {
    dataset: &'a Dataset,
    inputs: Inputs,
    threads: usize,
    job: Job<'a>,
    options: &'a RunOptions,
    resume: Option<Resume>,
    log: Mutex<Option<Log>>,
    progress: &'a dyn Progress,
    on_epoch: &'a (dyn Fn(&EpochReport) + Sync),
}

type RankResult = Result<(Vec<EpochReport>, usize)>;

impl Run<'_> {
    /// One thread a rank; the first failure stops all of them and is the one reported.
    fn on_all_ranks(&self) -> RankResult {
        let ranks = self.job.config.num_ranks();
        let comms: Vec<Box<dyn Communicator>> = match ranks {
            1 => vec![Box::new(Solo)],
            _ => Threads::group(ranks).into_iter().map(|comm| Box::new(comm) as Box<dyn Communicator>).collect(),
        };
        let results: Vec<RankResult> = thread::scope(|scope| {
            let handles: Vec<_> =
                comms.into_iter().map(|comm| scope.spawn(move || self.on_rank(comm.as_ref()))).collect();
            handles
                .into_iter()
                .enumerate()
                .map(|(rank, handle)| {
                    let died = |_| Err(Error::Rank { rank, reason: "its thread panicked, see the line above".into() });
                    handle.join().unwrap_or_else(died)
                })
                .collect()
        });
        let mut first = None;
        for result in results {
            match result {
                // Ranks that were told of another's failure repeat it; the cause is with the other.
                Err(error @ Error::Comm(CommError::PeerFailed { .. })) => first = first.or(Some(Err(error))),
                Err(error) => return Err(error),
                Ok(value) => first = first.or(Some(Ok(value))),
            }
        }
        first.unwrap_or_else(|| Err(Error::Option("--ranks: expected 1 or more".into())))
    }

    fn on_rank(&self, comm: &dyn Communicator) -> RankResult {
        let result = catch_unwind(AssertUnwindSafe(|| self.epochs(comm)));
        match result {
            Ok(result) => {
                if let Err(error) = &result {
                    comm.fail(&error.to_string());
                }
                result
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
                let reason = first_line(text).to_string();
                comm.fail(&reason);
                Err(Error::Rank { rank: comm.rank(), reason })
            }
        }
    }

    fn epochs(&self, comm: &dyn Communicator) -> RankResult {
        let (job, config) = (&self.job, self.job.config);
        self.share_threads(comm.size());
        let model = Model::new(config, job.features.dim(), job.outputs);
        let mut adam = Adam::new(model.parameters(), config.optimizer.lr);
        let mut reports = Vec::new();
        if let Some(resume) = &self.resume {
            checkpoint::restore(resume, model.parameters(), &mut adam)?;
            reports.clone_from(&resume.history);
        }
        let steps = job.train.len().div_ceil(config.batch_size) as u64;
        for epoch in reports.len() as u32 + 1..=config.epochs {
            let started = Instant::now();
            let name = format!("epoch {epoch}/{}", config.epochs);
            let stage = match comm.rank() {
                0 => self.progress.stage(&name, Some(steps), Unit::Items("batches")),
                _ => Box::new(gsplit_store::NoProgress),
            };
            let sums = train_epoch(job, epoch, &model, &mut adam, comm, stage.as_ref())?.reduce(comm)?;
            drop(stage);
            let mut report = EpochReport {
                epoch,
                loss: sums.loss / steps as f64,
                train: sums.correct as f64 / sums.counted.max(1) as f64,
                valid: None,
                test: None,
                timings: sums.timings,
                seconds: started.elapsed().as_secs_f64(),
                evaluate_s: 0.0,
                edges: sums.edges,
                rows_loaded: sums.rows_loaded,
                rows_exchanged: sums.rows_exchanged,
            };
            if comm.rank() == 0 {
                self.evaluate(&mut report, &model)?;
            }
            reports.push(report);
            if comm.rank() == 0 {
                self.keep(&reports, &model, &adam)?;
            }
            comm.barrier()?;
        }
        Ok((reports, model.parameters().num_values()))
    }

    /// Fills in the scores, when it is time to: rank 0 alone, while the others wait.
    fn evaluate(&self, report: &mut EpochReport, model: &Model) -> Result<()> {
        let (job, config) = (&self.job, self.job.config);
        let last = report.epoch == config.epochs;
        let due = config.eval_every > 0 && (last || report.epoch.is_multiple_of(config.eval_every));
        let Some(total) = num_rows(model, job).filter(|_| due) else { return Ok(()) };
        let started = Instant::now();
        self.share_threads(1);
        let stage = self.progress.stage("evaluate", Some(total), Unit::Items("vertices"));
        for (split, score) in evaluate(model, job, stage.as_ref())? {
            match split {
                Split::Test => report.test = score,
                _ => report.valid = score,
            }
        }
        self.share_threads(config.num_ranks());
        report.evaluate_s = started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Checkpoints, logs and tells the caller about the last epoch of `reports`: rank 0 alone.
    fn keep(&self, reports: &[EpochReport], model: &Model, adam: &Adam) -> Result<()> {
        if let Some(folder) = &self.options.checkpoint {
            let origin = (self.dataset, &self.inputs, self.job.config);
            checkpoint::save(folder, reports, origin, model.parameters(), adam)?;
        }
        let Some(report) = reports.last() else { return Ok(()) };
        if let Some(log) = self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).as_mut() {
            log.write(report)?;
        }
        (self.on_epoch)(report);
        Ok(())
    }

    /// Gives the calling thread its share of the threads for torch's operators.
    fn share_threads(&self, among: usize) {
        tch::set_num_threads((self.threads / among).max(1) as i32);
    }
}
