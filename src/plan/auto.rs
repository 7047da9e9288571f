//! `train --parallelism auto`: plans for this machine and tries the best three plans on a few
//! mini-batches.

use std::path::Path;

use gsplit_preprocess::memory::Memory;
use gsplit_store::{Dataset, NoProgress, PartitionMap, Progress};
use gsplit_trainer::{Config, Device, Hooks, Parallelism, Trained, train};
use serde::Serialize;

use super::candidate::Candidate;
use super::measure::{measure, with_disk};
use super::question::Question;
use crate::train::as_usage;
use gsplit::ui::{Ui, usage};

/// Number of candidates tried, rounds of trials, and mini-batches per trial.
const TRIED: usize = 3;
const ROUNDS: usize = 2;
const STEPS: usize = 6;

/// A candidate that was tried.
#[derive(Serialize)]
pub struct Tried {
    #[serde(flatten)]
    candidate: Candidate,
    /// Predicted seconds of an epoch.
    predicted_s: f64,
    /// Seconds of an epoch, extrapolated from the mini-batches of the trial.
    measured_s: f64,
}

/// Result of [`choose`].
pub struct AutoChoice {
    /// The configuration with the parallelism, ranks, split layers and partition.
    pub config: Config,
    /// The candidates that were tried, the chosen one first.
    pub tried: Vec<Tried>,
}

/// The fastest parallelism, ranks, split layers and partition for `dataset` on this machine, with
/// the reasons printed. A resumed run keeps its choice without trials. Missing artifacts are made
/// in the cache of the dataset (`tried/`), which no default chooses from.
pub fn choose(
    dataset: &Dataset,
    config: &Config,
    hooks: &Hooks,
    ui: &Ui,
) -> anyhow::Result<AutoChoice> {
    if config.system.device == Device::Cuda {
        return Err(usage(
            "--parallelism auto measures the CPU: for GPUs plan with a profile (gsplit plan \
             --profile NAME), and name the parallelism",
        ));
    }
    dataset.expect_one_type("--parallelism auto")?;
    if config.data.task.is_link() || hooks.process.is_some() {
        return Err(usage(
            "--parallelism auto is for vertices, with ranks that are threads: name the parallelism",
        ));
    }
    let goes_on =
        config.run.checkpoint.as_deref().filter(|_| config.run.resume).and_then(begun).map(
            |begun| {
                let (mut config, begun) = (config.clone(), begun.system);
                (config.system.parallelism, config.system.ranks) = (begun.parallelism, begun.ranks);
                (config.system.split_layers, config.system.partition) =
                    (begun.split_layers, begun.partition);
                config
            },
        );
    let needs = goes_on.as_ref().and_then(|begun| begun.system.partition.as_deref());
    if let (Some(config), true) =
        (&goes_on, needs.is_none_or(|key| PartitionMap::open(dataset, key).is_ok()))
    {
        return Ok(AutoChoice { config: config.clone(), tried: Vec::new() });
    }
    let profile = measure(Device::Cpu)?;
    let ranks = config.system.ranks.unwrap_or(profile.ranks).max(2);
    let question = Question {
        systems: Vec::new(),
        model: config.model.clone(),
        fanouts: config.data.fanouts.clone(),
        batch_size: config.data.batch_size,
        ranks: vec![ranks as u32],
        hosts: 1,
        device: config.system.device,
        feature_dim: None,
        cache: Vec::new(),
        memory: config.system.memory_bytes().map(Memory::bytes),
        batches: 20,
        partitions: config.system.partition.iter().cloned().collect(),
        apart: false,
        seed: config.run.seed,
    };
    question.check().map_err(as_usage)?;
    let found = question.candidates(dataset, ui)?;
    let presample = found.presample.as_ref().map(|presample| presample.key().to_string());
    if let Some(config) = goes_on {
        // Its map was removed from the cache and is made again.
        let mut config = config;
        config.system.presample = config.system.presample.or(presample);
        return Ok(AutoChoice { config, tried: Vec::new() });
    }
    let presample = config.system.presample.clone().or(presample);
    let profile = with_disk(profile, &found, dataset, ui);
    let ranked = found.rank(&profile);
    let mut best: Vec<Tried> = Vec::new();
    for row in &ranked {
        // Systems that differ only in the placement of rows do the same on a CPU.
        let is_new = best.iter().all(|other| !other.candidate.is_as(row.candidate));
        if is_new && best.len() < TRIED && row.candidate.applied(config).check().is_ok() {
            let (candidate, measured_s) = (row.candidate.clone(), f64::INFINITY);
            best.push(Tried { candidate, predicted_s: row.epoch_s, measured_s });
        }
    }
    for _ in 0..ROUNDS {
        for tried in &mut best {
            let mut config = tried.candidate.applied(config);
            let run = &mut config.run;
            (run.epochs, run.trial, run.eval_every, run.patience) =
                (1, Some(STEPS as u32), 0, None);
            (run.checkpoint, run.resume, run.log, run.tensorboard, run.log_every) =
                (None, false, None, None, 0);
            config.system.presample.clone_from(&presample);
            let epoch = train(dataset, &config, hooks, &NoProgress, &|_| {})?.epochs;
            let seconds = epoch.first().map_or(f64::INFINITY, |epoch| epoch.seconds);
            let steps = found.steps as f64 / STEPS.min(found.steps).max(1) as f64;
            tried.measured_s = tried.measured_s.min(seconds * steps);
        }
    }
    for Tried { candidate, predicted_s, measured_s } in &best {
        let (name, ranks) = (&candidate.name, candidate.way.ranks);
        ui.note(&format!(
            "auto: {name}, ranks {ranks}: {predicted_s:.2} s an epoch predicted, {measured_s:.2} s \
             by {STEPS} mini-batches"
        ));
    }
    best.sort_by(|a, b| a.measured_s.total_cmp(&b.measured_s));
    let Some(Tried { candidate: chosen, .. }) = best.first() else {
        anyhow::bail!("--parallelism auto: no system fits this machine; name one");
    };
    let mut config = chosen.applied(config);
    config.system.presample = presample;
    ui.note(&format!("auto: trains by {}", chosen.options.join(" ")));
    Ok(AutoChoice { config, tried: best })
}

/// The configuration of the checkpoints in `folder`, if there are any.
fn begun(folder: &Path) -> Option<Config> {
    let config = Trained::open(folder, None).ok()?.config().clone();
    (config.system.parallelism != Parallelism::Auto).then_some(config)
}
