//! Feature rows in the host's memory, within a budget.
//!
//! Returns: the feature rows of a run, in memory, mapped, or read from their file with the hottest
//! of them in memory. Input: the budget of this process, `--memory`; by default its current size
//! plus four fifths of the free memory. Idea: the graph, mini-batches in flight and the program
//! come first; the rest of the budget is for rows. If all rows fit, nothing is read from disk
//! again. Else the rows that are loaded most stay in memory ([`hottest`]), once for all ranks of
//! the host ([`HostProcesses`]); under push-pull parallelism each rank keeps its own columns of
//! them. The matrices of mini-batches are counted as in `gsplit plan`
//! ([`held`](crate::model::held)), from a few that are sampled here: nothing is loaded or computed
//! before it is known whether it fits. Cost: sampling these mini-batches; one read of each row that
//! is kept.
//!
//! Graph arrays are mapped files, and count. If they do not fit, edges are read as they are drawn
//! ([`Graph::reading_ahead`](gsplit_kernels::Graph::reading_ahead)), and get half of the remaining
//! budget: a mini-batch reads about as many pages of edges as of rows. Mini-batches that are made
//! once (`--parallelism cooperative`) are as large as their servers' graphs. Their size is known
//! once they are made, and no rows are kept in addition.

use std::sync::{Mutex, PoisonError};

use gsplit_kernels::schedule::{Step, epoch_seeds};
use gsplit_kernels::{Sampler, VertexSet};
use gsplit_store::memory::{Memory, resident, shown};
use gsplit_store::{FeatureDtype, FeatureTable, HostMemory, Progress, Reading};

use super::dry_run::any_process;
use super::processes::{HeldBytes, HostProcesses, Needs};
use crate::batch::Preparation;
use crate::config::FeatureStorage;
use crate::infer::least_room;
use crate::job::{Job, LEAST_OF_BATCHES};
use crate::model::held::{Batch, HeldLayer, mailed, values};
use crate::model::{Model, order_of_layer};
use crate::operator::{Place, sharing};
use crate::ranks::comms::Comms;
use crate::residence::cache::{Caches, hotness::hottest, row_bytes, wanted};
use crate::residence::source::FeatureSource;
use crate::residence::topology::{graph_bytes, held_bytes};
use crate::sample::{BatchSampler, Sampled, SampledLayer};
use crate::{Error, Result};

/// Mini-batches that are sampled to know their size.
const TRIED: usize = 3;
/// Bytes of an id.
const ID: u64 = 4;
/// Bytes of a value.
const VALUE: u64 = 4;
/// Bytes of a value of a parameter, with its gradient and moments.
const PARAMETER: u64 = 16;

/// Storage of the feature rows of a run.
pub struct HostRows {
    way: Way,
    room: Option<u64>,
    for_gpus: bool,
    /// Number of rows to keep in addition to the GPUs' rows, once these are known.
    beside_gpus: Option<usize>,
    processes: HostProcesses,
}

enum Way {
    /// As they are, or loaded into this storage.
    Given(FeatureStorage),
    /// Read from their file, except the rows of these vertices, or the rows in the memory that
    /// another process fills.
    Read(Vec<u32>),
}

impl HostRows {
    /// The storage that the options of `job` ask for, or the one that suits the memory, for ranks
    /// at `places`. Collective if ranks are processes.
    pub fn find(job: &Job<'_>, places: &[Place], progress: &dyn Progress) -> Result<Self> {
        let (config, hooks, features) = (job.config, job.hooks, &job.features);
        let (asked, storage) = (config.system.memory_bytes(), config.system.load_features);
        let refused = |problem: &str| Err(Error::Option(format!("--memory: {problem}")));
        let cooperates = job.config.system.parallelism.cooperates();
        if asked.is_some() && storage == FeatureStorage::Mapped {
            return refused(
                "the system decides how much of a mapped file is in memory: leave out \
                 --load-features mapped",
            );
        }
        if asked.is_some() && cooperates {
            return refused(
                "mini-batches that are made once are kept, however large: leave it out, or train \
                 with split",
            );
        }
        let (bytes, available) =
            (features.num_bytes() as u64, Memory::of_this_machine().available());
        let free = available / 5 * 4;
        let for_gpus = places.iter().any(|place| place.gpu().is_some());
        let most = FeatureStorage::most_in_memory(available, for_gpus);
        let processes = HostProcesses::meet(hooks, features)?;
        // Ranks with their own columns have all rows once, together.
        let copies =
            if job.config.system.parallelism.slices_columns() { 1 } else { processes.copies() };
        let stays = match storage {
            _ if asked.is_some() => None,
            FeatureStorage::Memory if copies > 1 && bytes > available / copies => {
                let why = processes.apart().unwrap_or("its processes read different files");
                let problem = format!(
                    "{copies} copies of {} are more than this host has: pass `disk`",
                    shown(bytes)
                );
                return Err(Error::Option(format!("--load-features memory: {problem} ({why})")));
            }
            FeatureStorage::Auto if features.is_in_memory() || bytes <= most / copies => {
                Some(FeatureStorage::Auto)
            }
            // GPUs read kept rows themselves, but not from a mapped file.
            FeatureStorage::Auto if !for_gpus && bytes.saturating_add(graph_bytes(job)) <= free => {
                Some(FeatureStorage::Mapped)
            }
            FeatureStorage::Auto | FeatureStorage::Disk => None,
            storage => Some(storage),
        };
        let beside_gpus = None;
        if let (false, Some(storage)) = (any_process(hooks, stays.is_none())?, stays) {
            let (way, room) = (Way::Given(storage), None);
            return Ok(Self { way, room, for_gpus, beside_gpus, processes });
        }
        let batches = if cooperates { 0 } else { batches_in_flight(job, places)? };
        let scales = if features.dtype() == FeatureDtype::I8 {
            features.num_rows() as u64 * VALUE
        } else {
            0
        };
        // A rank whose GPU keeps rows looks each vertex up.
        let gpus_keep = for_gpus && wanted(job, places)?.is_some();
        let lookups = if gpus_keep { hooks.ranks_here(places.len()).len() } else { 0 };
        let lookups = (lookups * features.num_rows()) as u64 * ID;
        let [graph, least_of_graph] = held_bytes(job);
        // A copy of the graph counts as the graph.
        let program = resident().saturating_sub(job.artifacts.copied_bytes()) + scales + lookups;
        let held = HeldBytes { graph, batches, program };
        let is_for_all = asked.is_some() && storage == FeatureStorage::Memory;
        let rows = if is_for_all { bytes } else { 0 };
        let needs = Needs { budget: asked, free, held, least_of_graph, rows };
        let shared = processes.budget(hooks, needs)?;
        if shared.held.graph < shared.graph {
            let [all, kept] = [shared.graph, shared.held.graph].map(shown);
            progress.note(&format!(
                "edges are read from disk as they are drawn: the graph takes {all}, {kept} of the \
                 budget are for it"
            ));
        }
        // Bytes for an evaluation: this process's share of the memory that `rows` bytes of feature
        // rows leave.
        let room = |rows: u64| {
            (!cooperates).then(|| batches + shared.left.saturating_sub(rows) / shared.processes)
        };
        if asked.is_some() && storage != FeatureStorage::Disk && bytes <= shared.left {
            let (way, room) = (Way::Given(FeatureStorage::Memory), room(bytes));
            return Ok(Self { way, room, for_gpus, beside_gpus, processes });
        }
        // Includes its position.
        let each = row_bytes(features) + ID;
        let fitting =
            if cooperates { 0 } else { usize::try_from(shared.room / each).unwrap_or(usize::MAX) };
        let rows = hooks.rows_kept.unwrap_or(fitting).min(features.num_rows());
        let is_anothers = !shared_memory(job, &processes).is_none_or(HostMemory::is_own);
        let beside_gpus = (gpus_keep && shared_memory(job, &processes).is_none()).then_some(rows);
        let (kept, by) = match beside_gpus {
            Some(_) => (Vec::new(), "the most loaded rows that no GPU keeps".into()),
            None if rows > 0 && !is_anothers => hottest(job, rows, progress)?,
            None => (Vec::new(), "none".into()),
        };
        let of_all = if shared.processes > 1 {
            format!(" for {} processes", shared.processes)
        } else {
            String::new()
        };
        progress.note(&format!(
            "feature rows are read from disk: {rows} of {} stay in memory ({}){of_all}, by {by}; \
             {} are the budget, {}",
            features.num_rows(),
            shown(rows as u64 * row_bytes(features)),
            shown(shared.budget),
            shared.held,
        ));
        if rows < features.num_rows()
            && rows > 0
            && beside_gpus.is_none()
            && !by.starts_with("presample")
        {
            progress.note(
                "note: a presample shows which rows are loaded most, and saves reads: run `gsplit \
                 presample` first",
            );
        }
        let (way, room) = (Way::Read(kept), room(rows as u64 * each));
        Ok(Self { way, room, for_gpus, beside_gpus, processes })
    }

    /// Bytes that an evaluation may take for rows; unlimited when `None`.
    pub fn room(&self) -> Option<u64> {
        self.room
    }

    /// The feature rows of `job`. Notes on `progress` how they are read. Collective if ranks are
    /// processes.
    pub fn bring(&self, job: &Job<'_>, progress: &dyn Progress) -> Result<FeatureTable> {
        let (features, memory) = (&job.features, shared_memory(job, &self.processes));
        let is_sliced = job.config.system.parallelism.slices_columns();
        let brought = self.processes.in_turn(job.hooks, || match &self.way {
            _ if features.is_in_memory() => Ok(features.clone()),
            // Ranks have columns of their own; evaluation reads whole rows, wherever these are.
            Way::Given(_) if is_sliced => Ok(features.clone()),
            Way::Read(_) if is_sliced => read(job, features, &[], None),
            Way::Given(storage) => storage.bring(features.clone(), memory, self.for_gpus),
            Way::Read(kept) => read(job, features, kept, memory),
        })?;
        if brought.is_in_memory() || brought.read_by().is_some() {
            self.processes.apart().iter().for_each(|line| progress.note(line));
        }
        if let Some((by, cached)) = brought.read_by() {
            let path = if cached {
                "through the page cache, since their file system allows nothing else"
            } else {
                "past the page cache"
            };
            progress.note(&format!("feature rows are read by {by}, {path}"));
        }
        Ok(brought)
    }

    /// Like [`Self::bring`], if the rows depend on what `caches` leave: keeps the hottest rows that
    /// some rank does not find on GPUs.
    pub fn bring_beside(
        &self,
        job: &Job<'_>,
        caches: Option<&Caches>,
        progress: &dyn Progress,
    ) -> Result<Option<FeatureTable>> {
        let Some(rows) = self.beside_gpus else { return Ok(None) };
        let on_gpus = caches.map_or_else(Vec::new, |caches| caches.found_by_all(job));
        let (mut kept, _) = hottest(job, rows + on_gpus.len(), progress)?;
        let on_gpus = VertexSet::new(job.features.num_rows(), on_gpus);
        kept.retain(|&v| !on_gpus.contains(v));
        kept.truncate(rows);
        read(job, &job.features, &kept, None).map(Some)
    }

    /// Like [`Self::bring`], for a rank's `columns`.
    pub fn bring_columns(&self, job: &Job<'_>, columns: FeatureTable) -> Result<FeatureTable> {
        match &self.way {
            Way::Given(storage) => storage.bring(columns, None, self.for_gpus),
            Way::Read(kept) => read(job, &columns, kept, None),
        }
    }
}

/// Memory in which a process finds whole rows that another has read, or reads them for others.
fn shared_memory<'a>(job: &Job<'_>, processes: &'a HostProcesses) -> Option<&'a HostMemory> {
    processes.memory().filter(|_| !job.config.system.parallelism.slices_columns())
}

/// `features`, read from their file except for the vertices `kept` or the rows that another process
/// put in `memory`.
fn read(
    job: &Job<'_>,
    features: &FeatureTable,
    kept: &[u32],
    memory: Option<&HostMemory>,
) -> Result<FeatureTable> {
    Ok(features.on_disk(kept, memory, &Reading { stop: job.hooks.stop, ..Reading::default() })?)
}

/// Numbers of vertices, edges, rows read and rows received of each layer, from the seeds down.
type Counts = Vec<[u64; 4]>;

/// Bytes of the mini-batches in flight on the ranks of this process, at least the bytes of an
/// evaluation. Collective.
fn batches_in_flight(job: &Job<'_>, places: &[Place]) -> Result<u64> {
    let sampled: Mutex<Vec<Counts>> = Mutex::default();
    job.hooks.on_all_ranks(job.config, |comms| {
        let own = sample_some(job, places, comms)?;
        let mut all = sampled.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            *all = own;
            return Ok(());
        }
        let sums = all.iter_mut().flatten().flatten();
        sums.zip(own.into_iter().flatten().flatten()).for_each(|(sum, more)| *sum += more);
        Ok(())
    })?;
    let sampled = sampled.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (config, model) = (job.config, job.model(&Place::host()));
    let features = model.in_dim(job.features.dim());
    let most =
        sampled.iter().map(|counts| bytes_of(job, &model, places, counts)).max().unwrap_or(0);
    // An evaluation has the same memory.
    let workers = job.hooks.ranks_here(places.len()).len() as u64;
    let evaluates = config.run.eval_every > 0;
    let evaluating = if evaluates { least_room(&model, features, &job.graph, workers) } else { 0 };
    // A margin for larger mini-batches and for memory that is not counted: vectors, gradients of
    // parameters, the loss, reads.
    Ok((most + most / 10 + LEAST_OF_BATCHES).max(evaluating))
}

/// Sizes of this rank's part of the first mini-batches. Collective.
fn sample_some(job: &Job<'_>, places: &[Place], comms: &Comms) -> Result<Vec<Counts>> {
    let (config, place) = (job.config, &places[comms.all().rank()]);
    let source = FeatureSource::new(&job.features, place);
    let with = Preparation { job, source: &source, comm: comms.sampling() };
    let mut sampler = BatchSampler::on_host(Sampler::default(), job.graph, place);
    let order = epoch_seeds(&job.train, config.run.seed, 1)?;
    let mut all = Vec::new();
    for (step, global) in (0..).zip(order.chunks(config.data.batch_size).take(TRIED)) {
        job.check_stop()?;
        let (sampled, _) =
            with.sample(&mut sampler, Step { seed: config.run.seed, epoch: 1, step }, global)?;
        all.push(counts_of(&sampled));
    }
    comms.all().barrier()?;
    Ok(all)
}

fn counts_of(sampled: &Sampled<'_>) -> Counts {
    let of = |layer: &SampledLayer| {
        let counts = [
            layer.edges.num_targets(),
            layer.edges.num_edges(),
            layer.read.len(),
            layer.exchange.rows_received(),
        ];
        counts.map(|count| count as u64)
    };
    sampled.layers.iter().map(of).collect()
}

/// Bytes of host memory for mini-batches with these `counts` of rows and edges, over the ranks of
/// this process.
fn bytes_of(job: &Job<'_>, model: &Model, places: &[Place], counts: &Counts) -> u64 {
    let (config, here) = (job.config, job.hooks.ranks_here(places.len()));
    let ahead = job.config.system.prefetch as u64;
    let rows = counts.last().map_or(0, |[.., read, _]| *read) * job.features.dim() as u64 * VALUE;
    // Ids of edges by target, of those ahead too; by source for backward.
    let edges: u64 = counts
        .iter()
        .map(|[vertices, edges, read, _]| (ahead + 2) * (edges + 2 * vertices + read) + 2 * edges)
        .sum();
    let parameters = PARAMETER * model.parameters().num_values() as u64 * here.len() as u64;
    if !sharing(&places[here.clone()]).is_empty() {
        // Gathered by the host as f32, and as the GPU takes them.
        return 2 * (ahead + 1) * rows + edges * ID;
    }
    let layers = counts.len();
    let layer = |(at, &[vertices, edges, read, received]): (usize, &[u64; 4])| {
        let index = layers - 1 - at;
        let widths = [
            index
                .checked_sub(1)
                .map_or(model.in_dim(job.features.dim()), |below| model.width(below)),
            model.width(index),
        ];
        let heads = if at == 0 { 1 } else { config.model.heads };
        let (sizes, by_columns) =
            ([vertices, read, edges], index == 0 && config.system.parallelism.slices_columns());
        let sizes = sizes.map(|count| count as usize);
        let order = order_of_layer(config.model.kind, heads, sizes, widths, index > 0, by_columns);
        let [vertices, edges, read, received] =
            [vertices, edges, read, received].map(|count| count as f64);
        let received_above = at.checked_sub(1).map_or(0.0, |above| counts[above][3] as f64);
        let (widths, heads) = (widths.map(|width| width as f64), heads as f64);
        HeldLayer { vertices, edges, read, received, widths, received_above, order, heads }
    };
    let batch = Batch {
        layers: counts.iter().enumerate().map(layer).collect(),
        kind: config.model.kind,
        ranks: here.len(),
        sliced: config.system.parallelism.slices_columns(),
        ahead: false,
    };
    let [_, kept] = values(&batch);
    (kept as u64 + mailed(&batch) as u64) * VALUE + ahead * rows + edges * ID + parameters
}
