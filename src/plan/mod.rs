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

use gsplit_store::{Dataset, shell_path};
use gsplit_trainer::Device;
use serde_json::json;

use crate::train::as_usage;
use gsplit::ui::{Ui, bytes};

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
    pub question: Question,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let mut profile = match &args.profile {
        Some(name) => Profile::named(name)?,
        None => measure(Device::Cpu)?,
    };
    let question = args.question.on(&profile);
    question.check().map_err(as_usage)?;
    let dataset = Dataset::open(&args.dataset)?;
    dataset.expect_one_type("plan")?;
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
        "dataset": dataset.name(), "profile": profile, "fanouts": question.fanouts.to_string(), "batch_size": question.batch_size,
        "steps": candidates.steps, "plans": ranked, "apart": apart, "would_change": candidates.what_changes(&profile), "left_out": left_out,
        "commands": commands,
    }));
    Ok(())
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
    let best = ranked.first().map_or(1.0, |first| first.epoch_s);
    let cells = |row: &Ranked<'_>| {
        let mut cells = vec![row.name(), row.candidate.way.ranks.to_string()];
        let phases = [Phase::Sample, Phase::Load, Phase::Compute, Phase::Exchange];
        let seconds = phases.map(|phase| row.cost.of(phase) * row.candidate.way.steps as f64);
        cells.extend(seconds.iter().chain([&row.epoch_s]).map(|seconds| format!("{seconds:.3}")));
        cells.extend([format!("{:.2}", row.epoch_s / best), bytes(row.memory as u64)]);
        cells.push(row.bound.to_string());
        cells
    };
    let heads = ", ranks, sample, load, compute, exchange, epoch (s), times, memory, bound by";
    ui.columns(heads, ranked.iter().chain(apart).map(cells));
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
