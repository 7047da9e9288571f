//! `gsplit plan`: which system is fastest on given hardware, by how much, and why.
//!
//! ```text
//! dataset ─▶ presample, maps ─▶ simulated mini-batches (evaluate) ─▶ candidates ─┬─▶ cost ─▶ ranking ─▶ table, JSON
//! profile: built in, a file, or measured now ────────────────────────────────────┘
//!
//! question.rs    the question of a plan        profile.rs, measure.rs   the rates of hardware
//! counting.rs    the work of each system       cost.rs, shape.rs        the formulas, and the model's widths
//! candidate.rs   a system on some ranks        found.rs                 candidates that fit, in order
//! hits.rs        rows: hot, kept, read         auto.rs                  tries the best three
//! commands.rs    commands for the fastest
//! ```

use std::path::PathBuf;

use gsplit_kernels::schedule::Fanouts;
use gsplit_preprocess::memory::Memory;
use gsplit_store::Size;
use gsplit_store::{Dataset, shell_path, stored_key};
use gsplit_trainer::{Device, ModelConfig};
use serde_json::json;

use crate::train::as_usage;
use gsplit::ui::{Ui, bytes, usage};
use gsplit_trainer::systems::System;

mod auto;
mod candidate;
mod commands;
mod cost;
mod counting;
mod found;
mod hits;
mod measure;
mod profile;
mod question;
mod shape;

pub use auto::choose;
use found::{Candidates, LeftOut, Ranked};
pub use measure::measure;
use measure::with_disk;
pub use profile::Profile;

use commands::commands;
use cost::Phase;
use question::Question;

/// Predict which training system is fastest on given hardware, and why
///
/// Counts the work of every system on mini-batches drawn as in training, each system once, and
/// divides it by the rates of the hardware: of products, memory and links. Prints seconds of an
/// epoch by phase (sampling, loading feature rows, forward and backward with the update, exchange
/// between ranks), memory of a rank, the work that takes longest, and changes of the hardware that
/// would reorder the systems. docs/reference.md has its assumptions. If each rank has its own
/// device, mini-batches are sampled and loaded while others are computed. Feature rows that do not
/// fit in memory are loaded from disk, and a line gives their number.
///
/// GraNNDis, which trains on its own mini-batches, is listed below the others: its seconds are not
/// comparable.
///
/// The hardware is a profile: a file measured by `gsplit doctor --profile FILE` (for this machine's
/// CPU or GPUs), or one that is built in (cpu-2, v100-4-nvlink, v100-4-pcie, a100-4, h100-8,
/// rtx4090-4, hosts-2-100g, hosts-8-10g, cpu-cluster-4). Presample, maps and placements that are
/// needed are kept in a cache of the dataset (`tried/`), which gsplit clean empties; nothing else
/// changes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit plan products
  gsplit plan products --profile a100-4 --model gat --hidden 128
  gsplit plan products --profile h100-8 --ranks 4,8 --json")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    /// The hardware: a profile's name or file [default: this machine's CPU, measured now]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    #[command(flatten)]
    pub model: ModelConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every
    /// one
    #[arg(long, default_value = "15,10,5")]
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    batch_size: usize,
    /// Systems to plan for [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    systems: Vec<System>,
    /// Numbers of ranks to try in addition to one [default: all of the profile]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=256))]
    ranks: Vec<u32>,
    /// GPU memory of each rank for feature rows: 4GiB, or 20% of all rows; several sizes, to plan
    /// with each [default: the free memory]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    cache: Vec<Size>,
    /// Memory limit of each run on a host, as with train --memory: feature rows that do not fit are
    /// read from disk [default: with CPUs four fifths of the profile's; with GPUs all rows fit]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
    /// Plan for feature rows of N f32 values, instead of the dataset's rows, if it has any
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    feature_dim: Option<u32>,
    /// Mini-batches to count
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batches: u32,
    /// A map to plan with, in addition to the maps of the systems; repeat it for several
    #[arg(long = "partition", value_name = "KEY", value_parser = stored_key)]
    partitions: Vec<String>,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let mut profile = match &args.profile {
        Some(name) => Profile::named(name)?,
        None => measure(Device::Cpu)?,
    };
    let question = args.question(&profile);
    question.check().map_err(as_usage)?;
    let dataset = Dataset::open(&args.dataset)?;
    let candidates = question.candidates(&dataset, ui)?;
    if args.profile.is_none() {
        profile = with_disk(profile, &candidates, &dataset, ui);
    }
    let (ranked, apart) = (candidates.rank(&profile), candidates.apart(&profile));
    let left_out = candidates.unfit(&profile);
    let fits = !ranked.is_empty() || !apart.is_empty() || left_out.iter().any(|row| row.fits);
    anyhow::ensure!(fits, "no system fits: {}", left_out.last().map_or("", |row| &row.why));
    let commands = ranked
        .first()
        .map(|first| commands(first, candidates.presample.as_ref(), &dataset))
        .transpose()?;
    say(&candidates, [&ranked, &apart], &profile, &dataset, ui);
    for command in commands.iter().flatten() {
        ui.say(format_args!("to train with it: {command}"));
    }
    ui.json(&json!({
        "dataset": dataset.name(), "profile": profile, "fanouts": args.fanouts.to_string(), "batch_size": args.batch_size,
        "steps": candidates.steps, "plans": ranked, "apart": apart, "would_change": candidates.what_changes(&profile), "left_out": left_out,
        "commands": commands,
    }));
    Ok(())
}

impl Args {
    fn question(&self, profile: &Profile) -> Question {
        let ranks = if self.ranks.is_empty() {
            vec![(profile.hosts * profile.ranks) as u32]
        } else {
            self.ranks.clone()
        };
        Question {
            systems: self.systems.clone(),
            model: self.model.clone(),
            fanouts: self.fanouts.clone(),
            batch_size: self.batch_size,
            ranks: ranks.into_iter().filter(|&ranks| ranks > 1).collect(),
            hosts: profile.hosts,
            device: profile.device,
            feature_dim: self.feature_dim.map(|dim| dim as usize),
            caches: self.cache.clone(),
            memory: self.memory,
            batches: self.batches,
            partitions: self.partitions.clone(),
            apart: true,
            seed: 0,
        }
    }
}

/// For people.
fn say(
    candidates: &Candidates,
    [ranked, apart]: [&[Ranked<'_>]; 2],
    profile: &Profile,
    dataset: &Dataset,
    ui: &Ui,
) {
    ui.say(format_args!("{}: {}", dataset.name(), candidates.line));
    ui.say(format_args!("hardware: {}", profile.about));
    ui.say(format_args!(
        "{:<24} {:>5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>6} {:>9}  bound by",
        "", "ranks", "sample", "load", "compute", "exchange", "epoch (s)", "times", "memory"
    ));
    let best = ranked.first().map_or(1.0, |first| first.epoch_s);
    for row in ranked.iter().chain(apart) {
        let of = |phase| row.cost.of(phase) * row.candidate.steps as f64;
        ui.say(format_args!(
            "{:<24} {:>5} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>9.3} {:>6.2} {:>9}  {}",
            row.name(),
            row.candidate.ranks,
            of(Phase::Sample),
            of(Phase::Load),
            of(Phase::Compute),
            of(Phase::Exchange),
            row.epoch_s,
            row.epoch_s / best,
            bytes(row.memory as u64),
            row.bound,
        ));
    }
    for candidate in apart.iter().map(|row| row.candidate) {
        let why = candidate.apart.as_deref().unwrap_or_default();
        ui.say(format_args!("{} stands apart: {why}", candidate.name));
    }
    for LeftOut { system, why, plan, .. } in candidates.unfit(profile) {
        let would =
            plan.map_or(String::new(), |plan| format!("; it would take {:.3} s", plan.epoch_s));
        ui.say(format_args!("{system} is left out: {why}{would}"));
    }
    let disk = ranked.iter().find_map(|row| row.disk_line(&shell_path(dataset.path())));
    disk.iter().for_each(|line| ui.say(line));
    candidates.what_changes(profile).iter().for_each(|line| ui.say(line));
}

/// Fails unless there is a plan with several ranks.
fn check_ranks(ranks: &[u32]) -> anyhow::Result<()> {
    match ranks.is_empty() {
        true => Err(usage("the profile has one rank: pass --ranks N to plan for more")),
        false => Ok(()),
    }
}
