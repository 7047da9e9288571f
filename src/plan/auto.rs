//! `train --parallelism auto`: the plan for this machine, its best three tried on a few mini-batches.

use std::path::Path;

use gsplit_preprocess::memory::Memory;
use gsplit_store::{Dataset, NoProgress, PartitionMap, Presample, Progress, bare_key, entries, read_text};
use gsplit_trainer::{Device, Parallelism, RunOptions, TrainConfig, train};
use serde::Serialize;
use serde_json::Value;

use super::candidate::Candidate;
use super::measure::{measure, with_disk};
use super::question::Question;
use crate::compare::own_key;
use crate::train::as_usage;
use gsplit::ui::{Ui, usage};

/// How many are tried, how often, and on how many mini-batches.
const TRIED: usize = 3;
const ROUNDS: usize = 2;
const STEPS: usize = 6;

/// A candidate that was tried.
#[derive(Serialize)]
pub struct Tried {
    name: String,
    ranks: usize,
    /// The options of `gsplit train` that run it.
    options: Vec<String>,
    /// Seconds of an epoch by the plan.
    predicted_s: f64,
    /// Seconds of an epoch by the mini-batches of the trial.
    measured_s: f64,
}

/// `config` with the fastest parallelism, ranks, split layers and partition for `dataset` on this machine, and what was tried, that first;
/// of a run that goes on, those it began with, and nothing. Says why.
///
/// # Errors
/// Of usage, where it cannot choose; those of planning and training.
pub fn choose(
    dataset: &Dataset,
    config: &TrainConfig,
    options: &RunOptions,
    ui: &Ui,
) -> anyhow::Result<(TrainConfig, Vec<Tried>)> {
    if config.device == Device::Cuda {
        return Err(usage(
            "--parallelism auto measures the CPU: for GPUs plan with a profile (gsplit plan --profile NAME), and name the parallelism",
        ));
    }
    if config.task.is_link() || options.process.is_some() {
        return Err(usage("--parallelism auto is for vertices, with ranks that are threads: name the parallelism"));
    }
    if let Some(begun) = options.checkpoint.as_deref().filter(|_| options.resume).and_then(begun) {
        let was = TrainConfig { epochs: config.epochs, ..config.clone() };
        let goes_on = TrainConfig {
            parallelism: begun.parallelism,
            ranks: begun.ranks,
            split_layers: begun.split_layers,
            partition: begun.partition,
            ..was
        };
        return Ok((goes_on, Vec::new()));
    }
    let profile = measure(Device::Cpu)?;
    let ranks = config.ranks.unwrap_or(profile.ranks).max(2);
    let question = Question {
        systems: Vec::new(),
        model: config.model.clone(),
        fanouts: config.fanouts.clone(),
        batch_size: config.batch_size,
        ranks: vec![ranks as u32],
        hosts: 1,
        device: config.device,
        feature_dim: None,
        caches: Vec::new(),
        memory: options.memory.map(Memory::bytes),
        batches: 20,
        partitions: config.partition.iter().cloned().collect(),
        apart: false,
        seed: config.seed,
    };
    question.check().map_err(as_usage)?;
    let found = question.candidates(dataset, ui)?;
    if let Some(name) = found.presample.as_ref().map(Presample::key).filter(|key| bare_key(key) != *key) {
        // Ranks the rows that stay in memory, in the trials as in the run.
        Presample::keep(dataset, name, &own_key(name, |key| Presample::folder(dataset, key)))?;
    }
    let profile = with_disk(profile, &found, dataset, ui);
    let ranked = found.rank(&profile);
    let mut best: Vec<(&Candidate, f64, f64)> = Vec::new();
    for row in &ranked {
        // Systems that differ by the placement of rows alone do the same on a CPU.
        let fits = row.candidate.applied(config).check().is_ok();
        if fits && best.len() < TRIED && best.iter().all(|(other, ..)| !other.is_as(row.candidate)) {
            best.push((row.candidate, row.epoch_s, f64::INFINITY));
        }
    }
    for _ in 0..ROUNDS {
        for (candidate, _, measured) in &mut best {
            let config = TrainConfig {
                epochs: 1,
                eval_every: 0,
                eval_fanouts: None,
                patience: None,
                ..candidate.applied(config)
            };
            let around = RunOptions { trial: Some(STEPS), ..aside(options) };
            let epoch = train(dataset, &config, &around, &NoProgress, &|_| {})?.epochs;
            let seconds = epoch.first().map_or(f64::INFINITY, |epoch| epoch.seconds);
            *measured = measured.min(seconds * found.steps as f64 / STEPS.min(found.steps).max(1) as f64);
        }
    }
    for (candidate, predicted, measured) in &best {
        let (name, ranks) = (&candidate.name, candidate.ranks);
        ui.note(&format!(
            "auto: {name}, ranks {ranks}: {predicted:.2} s an epoch predicted, {measured:.2} s by {STEPS} mini-batches"
        ));
    }
    best.sort_by(|a, b| a.2.total_cmp(&b.2));
    let chosen = best.first().map(|(candidate, ..)| *candidate);
    let chosen = chosen.ok_or_else(|| anyhow::anyhow!("--parallelism auto: no system fits this machine; name one"))?;
    let (mut config, mut words) = (chosen.applied(config), chosen.options.join(" "));
    if let Some(name) = chosen.partition.as_deref().filter(|key| bare_key(key) != *key) {
        // A run goes on with it, whatever becomes of the cache.
        let key = own_key(name, |key| PartitionMap::folder(dataset, key));
        PartitionMap::keep(dataset, name, &key)?;
        words = words.replace(name, &key);
        config.partition = Some(key);
    }
    ui.note(&format!("auto: trains by {words}"));
    let tried = best.iter().map(|&(candidate, predicted_s, measured_s)| Tried {
        name: candidate.name.clone(),
        ranks: candidate.ranks,
        options: candidate.options.clone(),
        predicted_s,
        measured_s,
    });
    Ok((config, tried.collect()))
}

/// `options` without what is written or read beside the dataset.
fn aside(options: &RunOptions) -> RunOptions {
    RunOptions { checkpoint: None, resume: false, log: None, tensorboard: None, log_every: 0, ..options.clone() }
}

/// The configuration of the newest checkpoint in `folder`, if there is one.
fn begun(folder: &Path) -> Option<TrainConfig> {
    let newest = entries(folder).ok()?.into_iter().filter(|path| path.join("checkpoint.json").is_file()).max()?;
    let text = read_text(newest.join("checkpoint.json")).ok()?;
    let mut document: Value = serde_json::from_str(&text).ok()?;
    let config: TrainConfig = serde_json::from_value(document["content"]["config"].take()).ok()?;
    (config.parallelism != Parallelism::Auto).then_some(config)
}
