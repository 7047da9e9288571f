//! Inputs that the ranks of a run share: opened, checked and put in place, in the order in which
//! users should see problems.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use gsplit_kernels::Communicator;
use gsplit_store::staging::FolderLock;
use gsplit_store::{Dataset, NoProgress, Progress, Stage, Unit, columns_of};

use crate::config::{Parallelism, RunConfig};
use crate::infer::Trained;
use crate::job::hooks::Hooks;
use crate::job::{Artifacts, Job, check_links_fit, partition};
use crate::model::{Model, Typed};
use crate::operator::{Place, link};
use crate::report::checkpoint::{self, Inputs, Resume};
use crate::report::log::Logs;
use crate::residence::cache::{Caches, SimulatedCache};
use crate::residence::places::{number_types, places};
use crate::residence::source::{FeatureSource, HostStorage, prepare_gpu_table, sources};
use crate::residence::topology::{DeviceRoom, Topology};
use crate::run::host::HostRows;
use crate::run::shard;
use crate::task::{Task, links};
use crate::{Config, Error, Result};

/// A run that is ready to start.
pub struct Run<'a> {
    /// Data and options, as every rank sees them.
    pub job: &'a Job<'a>,
    /// Record of the inputs for checkpoints.
    pub inputs: Inputs,
    /// Threads of the whole run.
    pub threads: usize,
    /// The place of each rank, including ranks of other processes.
    pub places: Vec<Place>,
    /// The feature rows of each rank of this process.
    pub sources: Vec<FeatureSource<'a>>,
    /// Its columns of them, if each rank trains on some.
    slices: Vec<FeatureSource<'a>>,
    /// Graph that each rank samples from.
    pub topology: Topology<'a>,
    /// Storage of the host that feature rows are read from.
    pub storage: HostStorage,
    /// Feature rows on GPUs.
    pub caches: Option<&'a Caches>,
    /// Checkpoint that it resumes.
    pub resume: Option<Resume>,
    /// Initial model, if it does not resume.
    pub init: Option<Trained>,
    /// Receives the progress of the run.
    pub progress: &'a dyn Progress,
    logs: Mutex<Logs>,
}

impl Run<'_> {
    /// Ranks of this process.
    pub fn here(&self) -> Range<usize> {
        self.job.hooks.ranks_here(self.places.len())
    }

    /// The feature rows of `rank`, one of this process.
    pub fn source(&self, rank: usize) -> &FeatureSource<'_> {
        &self.sources[rank - self.here().start]
    }

    /// Rows that `rank`, one of this process, trains on: all columns, or its own.
    pub fn trained_on(&self, rank: usize) -> &FeatureSource<'_> {
        self.slices.get(rank - self.here().start).unwrap_or_else(|| self.source(rank))
    }

    /// A model at `place` with its first parameters.
    pub fn model(&self, place: &Place) -> Model {
        self.job.model(place)
    }

    /// Reports the progress of work on `total` items from rank 0.
    pub fn stage(
        &self,
        comm: &dyn Communicator,
        name: &str,
        total: u64,
        items: &'static str,
    ) -> Box<dyn Stage> {
        match comm.rank() {
            0 => self.progress.stage(name, Some(total), Unit::Items(items)),
            _ => Box::new(NoProgress),
        }
    }

    /// The logs, for one rank at a time.
    pub fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the run of `config` and `options` on `dataset`, and returns the result of `work`.
/// Collective over the processes of a run.
pub fn with_run<R>(
    dataset: &Dataset,
    config: &Config,
    hooks: &Hooks,
    progress: &dyn Progress,
    work: impl FnOnce(&Run<'_>) -> Result<R>,
) -> Result<R> {
    config.check()?;
    if config.system.parallelism == Parallelism::Auto {
        return Err(Error::Option(
            "--parallelism auto: is to be chosen before training begins".into(),
        ));
    }
    let threads = config
        .system
        .threads
        .or_else(|| thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    hooks.process.as_ref().map_or(Ok(()), |process| process.check(config))?;
    let ranks = hooks.ranks_here(config.num_ranks()).len();
    let places = places(config, hooks)?;
    number_types(config).filter(|_| hooks.leads()).iter().for_each(|line| progress.note(line));
    link_gpus(&places[hooks.ranks_here(places.len())], progress)?;
    check_links_fit(dataset, config, config.system.memory_bytes())?;
    let artifacts = Artifacts::open(dataset, config)?;
    shard::check(dataset, config, artifacts.partition(), hooks)?;
    if let Some(process) = &hooks.process {
        shard::agree(dataset, artifacts.partition(), process.comms().all())?;
    }
    let mut job = Job::new(dataset, &artifacts, config, hooks)?;
    if let Some(note) = job.typed.as_ref().and_then(Typed::note).filter(|_| hooks.leads()) {
        progress.note(&note);
    }
    let mut inputs =
        Inputs::of(dataset, config, artifacts.partition(), (threads / ranks).max(1), job.shape());
    if let (Some(user), true) = (config.watches_valid(), !job.has_valid()) {
        let problem = format!(
            "{user} needs a valid split with vertices: leave it out, or convert with another split"
        );
        return Err(Error::Option(problem));
    }
    // Locked before the state in it is read.
    let kept = config.run.checkpoint.as_deref().filter(|_| hooks.leads());
    let _lock = kept.map(FolderLock::acquire).transpose()?;
    let resume = resume_from(&job, &inputs, progress)?;
    let init = config.run.init.as_ref().filter(|_| resume.is_none());
    let init = init.map(|folder| starting_model(folder, &job, progress)).transpose()?;
    let notes =
        artifacts.partition().map(|map| partition::notes(dataset, map, config)).unwrap_or_default();
    notes.iter().for_each(|note| progress.note(note));
    if let (Task::Links(split), true) = (&job.task, hooks.leads()) {
        let notes = links::notes(dataset, split, &job.whole, &config.data.task);
        notes.iter().for_each(|note| progress.note(note));
    }
    let host = HostRows::find(&job, &places, progress)?;
    (job.features, job.room) = (host.bring(&job, progress)?, host.room());
    let room = DeviceRoom::find(&job, &places, threads, progress)?;
    let topology = Topology::new(&job, &places, &room, progress)?;
    let left = topology.left_of(&room);
    let caches = Caches::new(&job, &places, &left, progress)?;
    if let Some(features) = host.bring_beside(&job, caches.as_ref(), progress)? {
        job.features = features;
    }
    let job = job;
    let gpu_table = prepare_gpu_table(&job.features, caches.as_ref(), &places, hooks, progress)?;
    if config.draws_locally() {
        inputs.kept = caches.as_ref().map(Caches::checksum);
        if inputs.kept.is_none() {
            let problem = "it draws more often the rows that ranks keep: give --cache SIZE";
            return Err(Error::Option(format!("--draw locality: {problem}, or leave it out")));
        }
    }
    resume.as_ref().map_or(Ok(()), |resume| resume.check_kept(&inputs))?;
    let count = |rank| {
        caches.as_ref().map(|caches| SimulatedCache::new(caches, rank, job.graph.num_vertices()))
    };
    let sources = sources(&job.features, gpu_table.as_ref(), &places, hooks)?.into_iter();
    let here = hooks.ranks_here(places.len());
    let sources = sources.zip(here).map(|(source, rank)| source.with_count(count(rank))).collect();
    let ranks =
        hooks.ranks_here(places.len()).filter(|_| config.system.parallelism.slices_columns());
    let columns = ranks.clone().map(|rank| columns_of(job.features.dim(), rank, places.len()));
    let slices = columns
        .map(|columns| host.bring_columns(&job, job.features.columns(columns)))
        .collect::<Result<Vec<_>>>()?;
    let slices =
        ranks.zip(&slices).map(|(rank, slice)| FeatureSource::new(slice, &places[rank])).collect();
    let history = resume.as_ref().map_or(&[][..], |resume| &resume.history);
    let steps = job.num_steps() * history.len() as u64;
    let logs = match hooks.leads() {
        true => Logs::start(&config.run, history, steps)?,
        false => Logs::start(&RunConfig::default(), history, steps)?,
    };
    let run = Run {
        job: &job,
        inputs,
        threads,
        places,
        sources,
        slices,
        topology,
        storage: HostStorage::of(&job.features, gpu_table.as_ref()),
        caches: caches.as_ref(),
        resume,
        init,
        progress,
        logs: Mutex::new(logs),
    };
    let done = work(&run)?;
    drop(run);
    let is_shared = caches.as_ref().is_some_and(Caches::are_shared);
    if let (Some(mut gpu_table), Some(process), true) = (gpu_table, &hooks.process, is_shared) {
        gpu_table.part(process.comms().all())?;
    }
    Ok(done)
}

/// Lets the GPUs of `places` access each other's memory, and reports pairs that cannot.
fn link_gpus(places: &[Place], progress: &dyn Progress) -> Result<()> {
    let apart = link(places)?;
    if !apart.is_empty() {
        let pairs: Vec<_> = apart.iter().map(|(one, other)| format!("{one} and {other}")).collect();
        let pairs = pairs.join(", ");
        progress.note(&format!(
            "rows between these ranks go through the host, which their GPUs do not bypass: {pairs}"
        ));
    }
    Ok(())
}

/// The model in `folder`, which fits `job`.
fn starting_model(folder: &Path, job: &Job<'_>, progress: &dyn Progress) -> Result<Trained> {
    let trained = Trained::open(folder, None)?;
    trained.check_start(job)?;
    let (path, epochs) = (trained.path.display(), trained.epochs());
    progress
        .note(&format!("starts from the parameters of {path}, after epoch {epochs} of its run"));
    Ok(trained)
}

/// The checkpoint to go on after, if there is one.
fn resume_from(job: &Job<'_>, inputs: &Inputs, progress: &dyn Progress) -> Result<Option<Resume>> {
    let (config, hooks) = (job.config, job.hooks);
    let resume = match (&config.run.checkpoint, config.run.resume) {
        (Some(folder), _) if checkpoint::newest(&folder.join("checkpoint")).is_some() => {
            let (place, inner) = (folder.display(), folder.join("checkpoint"));
            let problem = format!(
                "is the folder of a run: name {}, where its checkpoints are",
                inner.display()
            );
            return Err(Error::Option(format!("--checkpoint {place}: {problem}")));
        }
        (Some(folder), true) => checkpoint::find(folder, job, inputs)?,
        (None, true) => return Err(Error::Option("--resume needs --checkpoint DIR".into())),
        (Some(folder), false) => checkpoint::refuse_foreign(folder).map(|()| None)?,
        (None, false) => None,
    };
    if let Some(folder) = config.run.checkpoint.as_deref().filter(|_| hooks.leads()) {
        checkpoint::check_writable(folder)?;
        if config.run.resume && resume.is_none() {
            progress.note(&format!(
                "no checkpoint in {} yet: starts from the beginning",
                folder.display()
            ));
        }
    }
    Ok(resume)
}
