//! `gsplit bench table3`: the epoch time of the systems of GSplit's Table 3, by phase.

use std::path::PathBuf;

use gsplit_store::{Dataset, Progress};
use gsplit_trainer::{EpochReport, TrainConfig};
use serde_json::{Value, json};

use super::row::{Row, header, mean};
use super::run::{Run, train};
use super::setting::{Setting, WithMap};
use crate::system::System;
use gsplit::ui::Ui;

/// Time an epoch of the systems that GSplit's Table 3 compares, on this machine and graph
///
/// One line a system: seconds of an epoch that go into sampling (S; with split parallelism splitting and the exchange of ids too),
/// loading feature rows (L), and forward and backward passes with all exchanges of rows, gradients and updates (FB); the wall time
/// of the epoch; and how many times GSplit's that is. Phases are the mean of the ranks; every number is the median over
/// --rounds runs, which take turns. Nothing is sampled ahead, and phases end with what they launched, so that they add up.
///
/// The systems are choices of gsplit (train --preset), run by the same code: DGL is data parallelism with all rows in host memory;
/// Quiver has the hottest rows once over all GPUs (--placement peer); Rand, Edge, Node and GSplit are split parallelism with a
/// random map and maps by --weights degree, vertex and presampled, and each part's hottest rows on its GPU (--placement
/// partitioned). Beside the paper's stand Intel's hybrid partitioning, which fetches feature rows alone (--split-layers 1), and
/// Owned, which exchanges nothing. Samples are the same for all.
/// Song & Jiang's is left out, because it draws other samples.
/// P3 computes the bottom layer by columns of the features, on CPUs alone; it updates at once here, as the others do. On CPUs
/// nothing is cached, and Quiver is left out; DGL's rows are read where they are stored, within FB.
///
/// The presample and the maps are stored in the dataset, and found there the next time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit bench table3 products --device cuda --ranks 4
  gsplit bench table3 products --device cuda --ranks 4 --model gat --cache 4GiB --json
  gsplit bench table3 products --ranks 2 --systems dgl,gsplit --rounds 5")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    #[command(flatten)]
    setting: Setting,
    /// Epochs of a run that are measured; their mean counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    epochs: u32,
    /// Epochs of a run before those
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    warmup: u32,
    /// Runs of each system, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// A system, ready to be run.
struct Entry {
    system: System,
    map: Option<String>,
    rounds: Vec<Run>,
}

/// Runs the systems in turn, and prints the table.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    // Checked before the dataset is opened and prepared.
    let config = |system| args.setting.config(system, args.warmup + args.epochs);
    let others = "it makes mini-batches of its own, which the others do not train on";
    let (systems, left_out) = args.setting.choose(config, |system| (!system.draws()).then_some(others))?;
    let dataset = Dataset::open(&args.dataset)?;
    let entry = |(system, map): WithMap| {
        let map = map.map(|map| map.key().to_string());
        Entry { system, map, rounds: Vec::new() }
    };
    let mut entries: Vec<Entry> = args.setting.prepare(&dataset, &systems, ui)?.into_iter().map(entry).collect();
    for round in 0..args.rounds {
        for entry in &mut entries {
            let name = entry.system.name();
            let config = TrainConfig { partition: entry.map.clone(), ..config(entry.system) };
            let run = train(&dataset, &config, &args.setting.around(entry.system), ui);
            let run = run.map_err(|error| match error.to_string().starts_with("interrupted: ") {
                true => error,
                false => error.context(format!("system {name}")),
            })?;
            let seconds = mean(&args.measured(&run), |epoch| epoch.seconds);
            ui.note(&format!("round {} of {}: {name}: {seconds:.3} s an epoch", round + 1, args.rounds));
            entry.rounds.push(run);
        }
    }
    args.show(&dataset, &entries, &left_out, ui);
    Ok(())
}

impl Args {
    /// The epochs of a run that count.
    fn measured(&self, run: &Run) -> Vec<EpochReport> {
        run.epochs.iter().skip(self.warmup as usize).cloned().collect()
    }

    fn row(&self, entry: &Entry) -> Row {
        let cache = entry.rounds.first().map(|run| run.cache.clone()).unwrap_or_default();
        let rounds = entry.rounds.iter().map(|run| self.measured(run)).collect();
        Row::new((entry.system, self.setting.device), entry.map.clone(), cache, rounds)
    }

    fn show(&self, dataset: &Dataset, entries: &[Entry], left_out: &[(System, String)], ui: &Ui) {
        let rows: Vec<Row> = entries.iter().map(|entry| self.row(entry)).collect();
        let gsplit = rows.iter().find(|row| row.system == System::Gsplit).map(|row| row.total);
        ui.say(self.setting.line(dataset));
        ui.say(format_args!(
            "seconds of an epoch; the median of {} rounds, {} warm-up epochs each",
            self.rounds, self.warmup
        ));
        ui.say(header());
        rows.iter().for_each(|row| ui.say(row.line(gsplit)));
        for (system, why) in left_out {
            ui.say(format_args!("{} is left out: {why}", system.name()));
        }
        let systems: Vec<Value> = rows.iter().map(|row| row.json(gsplit)).collect();
        let more = json!({
            "epochs": self.epochs, "warmup": self.warmup, "rounds": self.rounds, "systems": systems,
        });
        ui.json(&self.setting.json(dataset, left_out, more));
    }
}
