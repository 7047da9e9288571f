//! Memory of the GPUs that is left for the graph and for feature rows, found by trying.
//!
//! Returns: bytes for each rank. Input: a job whose ranks' GPUs hold nothing of it yet. Idea: all
//! ranks train the first mini-batches of the first epoch as the run does, on a model of their own
//! that is thrown away. Memory that torch and the driver's pool took for them they keep, so the
//! memory that the driver calls free afterwards is not needed at the largest moment of these
//! mini-batches, including mini-batches that were prepared ahead or queued. Draws are keyed by
//! epoch, mini-batch and vertex, so the run that follows sees nothing of this. The host samples
//! here, because the graph is nowhere else yet; the memory that sampling on a GPU takes is
//! estimated from the samples. A margin is for larger mini-batches, for fragments, and for
//! evaluation. Cost: that of these mini-batches. Kernels that are compiled for them are there when
//! the run begins.
//!
//! The sizes of matrices do not suffice: workspaces of products, transposed edges and torch's
//! rounding are as large as these, and differ by model and version.

use std::sync::Mutex;

use gsplit_kernels::{Gpu, Sampler};
use gsplit_store::memory::shown;
use gsplit_store::{NoProgress, Progress, Stage, Unit};

use crate::Result;
use crate::config::TopologyStorage;
use crate::epoch::{Batches, train_epoch};
use crate::job::Job;
use crate::job::hooks::Hooks;
use crate::operator::{Place, set_torch_threads, sharing};
use crate::optimizer::Optimizer;
use crate::ranks::comms::Comms;
use crate::report::Work;
use crate::report::log::StepLog;
use crate::residence::cache::{is_by_default, wanted};
use crate::residence::source::FeatureSource;
use crate::residence::topology::{DeviceRoom, graph_bytes};
use crate::sample::BatchSampler;

/// Mini-batches that are tried in addition to the ones that are ahead: one that is computed, one
/// that waits for it, and one more.
const TRIED: usize = 3;
/// A graph is small if it takes at most one part in this number of a GPU's free memory.
const SMALL: u64 = 8;
/// Bytes that a sampler numbers vertices in, at most.
const MOST_NUMBERING: u64 = 1 << 30;
/// Bytes that a sampling GPU takes per edge and per vertex of a layer.
const SAMPLED_BYTES: [u64; 2] = [12, 16];

impl DeviceRoom {
    /// Bytes left on the GPUs of `places` of this process's ranks. If nothing needs more than an
    /// eighth of the free memory, nothing is tried, and half of it is left. Collective among
    /// processes.
    pub fn find(
        job: &Job<'_>,
        places: &[Place],
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (config, hooks) = (job.config, job.hooks);
        // Impossible options are refused before anything is tried.
        let caches = wanted(job, places)?.is_some();
        let here = hooks.ranks_here(places.len());
        let gpus = sharing(&places[here.clone()]);
        let mut free = Vec::new();
        for (gpu, _) in &gpus {
            free.push(gpu.memory()?);
        }
        if !any_process(hooks, is_needed(job, caches, &gpus, &free))? {
            return Ok(Self::each(&places[here], &gpus, |which, ranks| free[which].0 / 2 / ranks));
        }
        let batches = (TRIED + config.system.prefetch).min(job.num_steps() as usize);
        let sampled = Mutex::new(0);
        hooks.on_all_ranks(job.config, |comms| {
            let bytes = rehearse(job, places, comms, batches, threads, progress)?;
            let mut most = sampled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *most = bytes.max(*most);
            Ok(())
        })?;
        let sampled = sampled.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let beside = sampled * (config.system.prefetch as u64 + 2)
            + MOST_NUMBERING.min(4 * job.graph.num_vertices() as u64);
        let (mut left, mut lines) = (Vec::new(), Vec::new());
        for ((gpu, ranks), (before, total)) in gpus.iter().zip(&free) {
            let after = gpu.memory()?.0;
            let taken = before.saturating_sub(after) + beside * ranks;
            let evaluating = if job.config.run.eval_every > 0 { total / 10 } else { 0 };
            let margin = (total / 20 + taken / 4).max(evaluating);
            left.push(before.saturating_sub(taken).saturating_sub(margin));
            lines.push(format!(
                "{} free, mini-batches take {}, {} are for the graph and feature rows",
                shown(*before),
                shown(taken),
                shown(left[left.len() - 1]),
            ));
        }
        lines.dedup();
        progress.note(&format!(
            "memory of GPUs, after {batches} mini-batches on trial: {}",
            lines.join("; ")
        ));
        Ok(Self::each(&places[here], &gpus, |which, ranks| left[which] / ranks))
    }

    /// Bytes of each place by the position of its GPU among `gpus` and the number of ranks on it.
    fn each(places: &[Place], gpus: &[(&Gpu, u64)], bytes: impl Fn(usize, u64) -> u64) -> Self {
        let of = |place: &Place| {
            let gpu = place.gpu()?;
            let which = gpus.iter().position(|(other, _)| other.is_same_device(gpu))?;
            Some(bytes(which, gpus[which].1))
        };
        Self(places.iter().map(|place| of(place).unwrap_or(0)).collect())
    }
}

/// True if anything depends on the memory left.
fn is_needed(job: &Job<'_>, caches: bool, gpus: &[(&Gpu, u64)], free: &[(u64, u64)]) -> bool {
    let config = job.config;
    let graph = if config.system.topology == TopologyStorage::Auto { graph_bytes(job) } else { 0 };
    let rows = |ranks: u64| match job.cache_bytes() {
        Some(bytes) => bytes.saturating_mul(ranks),
        None => job.features.num_bytes() as u64,
    };
    let wanted = |ranks: u64| graph + if caches { rows(ranks) } else { 0 };
    let is_large =
        || gpus.iter().zip(free).any(|((_, ranks), (free, _))| wanted(*ranks) > free / SMALL);
    match config.system.topology {
        _ if gpus.is_empty() => false,
        _ if caches && config.system.cache.is_none() && config.system.placement.is_some() => true,
        TopologyStorage::Auto => is_large(),
        _ => caches && is_by_default(config) && is_large(),
    }
}

/// Logical OR of `is` over all processes. Collective.
pub fn any_process(hooks: &Hooks, is: bool) -> Result<bool> {
    let Some(process) = &hooks.process else { return Ok(is) };
    let mut count = [if is { 1.0 } else { 0.0 }];
    process.comms().all().all_reduce_sum_f64(&mut count)?;
    Ok(count[0] > 0.0)
}

/// Trains this rank's part of `batches` mini-batches; returns the bytes to sample one on a GPU.
/// Collective.
fn rehearse(
    job: &Job<'_>,
    places: &[Place],
    comms: &Comms,
    batches: usize,
    threads: usize,
    progress: &dyn Progress,
) -> Result<u64> {
    let (config, comm) = (job.config, comms.all());
    let place = &places[comm.rank()];
    set_torch_threads(threads / job.hooks.ranks_here(comm.size()).len());
    let source = FeatureSource::new(&job.features, place);
    let mut sampler = BatchSampler::on_host(Sampler::default(), job.graph, place);
    let model = job.model(place);
    let mut optimizer = Optimizer::new(model.parameters(), config, job.num_steps())?;
    let seeds = job.train.len().min(batches.saturating_mul(config.data.batch_size)) as u64;
    let stage: Box<dyn Stage> = match comm.rank() {
        0 => progress.stage("mini-batches on trial", Some(seeds), Unit::Items("seeds")),
        _ => Box::new(NoProgress),
    };
    let tried = Batches::Sampled(&mut sampler, batches as u64);
    let log = StepLog { every: 0, write: &|_| Ok(()) };
    let report =
        train_epoch(job, &source, tried, 1, &model, &mut optimizer, comms, stage.as_ref(), log)?;
    place.gpu().map_or(Ok(()), Gpu::synchronise)?;
    comm.barrier()?;
    Ok(sampled_bytes(&report.work, config.model.layers as u64) / batches as u64)
}

/// Maximum bytes that a GPU takes to sample this in `layers` layers. None of them reads more
/// vertices than the lowest.
fn sampled_bytes(work: &Work, layers: u64) -> u64 {
    let [of_edge, of_vertex] = SAMPLED_BYTES;
    of_edge * work.edges + of_vertex * layers * (work.rows_loaded + work.rows_exchanged)
}
