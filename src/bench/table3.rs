//! `gsplit bench table3`: the epoch time of the systems of GSplit's Table 3, by phase.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use gsplit_kernels::Gpu;
use gsplit_kernels::schedule::Fanouts;
use gsplit_partition::placement::CacheSize;
use gsplit_preprocess::presample::Options;
use gsplit_store::{Dataset, NoProgress, PartitionMap, Progress};
use gsplit_trainer::{
    Device, EpochReport, FeatureNorm, FeaturePlace, GpuList, ModelConfig, RowPlacement, RunOptions, Summary,
    TrainConfig, train,
};
use serde_json::{Value, json};

use super::prepare::{partitioned, presampled};
use super::system::System;
use crate::environment;
use crate::train::as_usage;
use gsplit::ui::{Ui, stop_gently, usage};

/// Time an epoch of the systems that GSplit's Table 3 compares, on this machine and graph
///
/// One line a system: seconds of an epoch that go into sampling (S; with split parallelism splitting and the exchange of ids too),
/// loading feature rows (L), and forward and backward passes with all exchanges of rows, gradients and updates (FB); the wall time
/// of the epoch; and how many times GSplit's that is. Phases are the mean of the ranks; every number is the median over
/// --rounds runs, which take turns. Nothing is sampled ahead, and phases end with what they launched, so that they add up.
///
/// The systems are choices of gsplit, run by the same code: DGL is data parallelism with all rows in host memory; Quiver has
/// the hottest rows once over all GPUs (--placement peer); Rand, Edge, Node and GSplit are split parallelism with a random map
/// and maps by --weights degree, vertex and presampled, and each part's hottest rows on its GPU (--placement partitioned).
/// Samples are the same for all.
/// P3* is left out: gsplit has no push-pull parallelism yet. On CPUs nothing is cached, and Quiver is left out; DGL's rows are
/// read where they are stored, within FB.
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
    /// Which systems [default: all that the device can run]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    systems: Vec<System>,
    #[command(flatten)]
    model: ModelConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every one
    #[arg(long, default_value = "15,15,15")]
    fanouts: Fanouts,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    batch_size: usize,
    /// Number of ranks, each with a part of its own
    #[arg(long, default_value_t = 4)]
    ranks: usize,
    /// Where ranks compute
    #[arg(long, value_enum, default_value = "cpu")]
    device: Device,
    /// With --device cuda, the GPU of each rank, as 0,1,2,3; one named more than once is shared [default: 0,1,...]
    #[arg(long, value_name = "LIST")]
    gpus: Option<GpuList>,
    /// With --device cuda, memory of its GPU that each rank has for feature rows, for the systems that cache: 4GiB, or 20% of all
    /// rows [default: half of what is free there]
    #[arg(long, value_name = "SIZE")]
    cache: Option<CacheSize>,
    /// Where feature rows are read from
    #[arg(long, value_enum, value_name = "PLACE", default_value = "auto")]
    load_features: FeaturePlace,
    /// Epochs of a run that are measured; their mean counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    epochs: u32,
    /// Epochs of a run before those
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    warmup: u32,
    /// Runs of each system, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Epochs of the presample that weighs the maps and ranks the rows
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    presample_epochs: u32,
    /// Seed of every random choice: weights, batches, samples, dropout, maps
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A system, ready to be run.
struct Entry {
    system: System,
    map: Option<PartitionMap>,
    rounds: Vec<Summary>,
}

/// Runs the systems in turn, and prints the table.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    environment::set(&[environment::IDLE_THREADS_SLEEP])?;
    let systems = args.chosen()?;
    // Checked before the dataset is opened and prepared.
    for &system in &systems {
        args.config(system, None).check().map_err(as_usage)?;
    }
    let dataset = Dataset::open(&args.dataset)?;
    let mut entries = args.prepare(&dataset, &systems, ui)?;
    let cache = args.cache.map(|cache| dataset.features().map(|features| cache.bytes(features.num_bytes() as u64)));
    let cache = cache.transpose()?;
    for round in 0..args.rounds {
        for entry in &mut entries {
            let key = entry.map.as_ref().map(|map| map.key().to_string());
            let config = args.config(entry.system, key);
            let options = args.options(entry.system, cache, ui.threads());
            // Every round would say the same.
            let progress: &dyn Progress = if round == 0 { ui } else { &NoProgress };
            let run = train(&dataset, &config, &options, progress, &|_| {});
            let run = run.map_err(as_usage).with_context(|| format!("system {}", entry.system.name()))?;
            let seconds = mean(&args.measured(&run), |epoch| epoch.seconds);
            let (name, rounds) = (entry.system.name(), args.rounds);
            ui.note(&format!("round {} of {rounds}: {name}: {seconds:.3} s an epoch", round + 1));
            entry.rounds.push(run);
        }
    }
    args.show(&dataset, &entries, ui)
}

impl Args {
    /// The systems to run.
    fn chosen(&self) -> anyhow::Result<Vec<System>> {
        if self.cache.is_some() && self.device == Device::Cpu {
            return Err(usage("--cache is for --device cuda: leave it out, or give both"));
        }
        if self.ranks == 0 || self.ranks > 256 {
            return Err(usage(format!("--ranks {}: expected 1 to 256", self.ranks)));
        }
        let changed = self.model.input_dropout > 0.0 || self.model.normalise_features != FeatureNorm::None;
        if changed && self.device == Device::Cuda {
            let problem =
                "the host reads rows that are changed, and nothing is cached: leave them out, or pass --device cpu";
            return Err(usage(format!("--input-dropout and --normalise-features: {problem}")));
        }
        let unfit = self.systems.iter().find_map(|system| Some((system, system.problem(self.device)?)));
        if let Some((system, problem)) = unfit {
            return Err(usage(format!("--systems: {} cannot run here: {problem}", system.name())));
        }
        let is_asked = |system: &System| self.systems.is_empty() || self.systems.contains(system);
        let runs = |system: &System| is_asked(system) && system.problem(self.device).is_none();
        Ok(System::value_variants().iter().copied().filter(runs).collect())
    }

    /// The systems that were not asked for by name and cannot be run, and why.
    fn left_out(&self) -> Vec<(System, &'static str)> {
        match self.systems.is_empty() {
            true => System::value_variants().iter().filter_map(|&s| Some((s, s.problem(self.device)?))).collect(),
            false => Vec::new(),
        }
    }

    /// A run of `system` with the partition map `key`.
    fn config(&self, system: System, partition: Option<String>) -> TrainConfig {
        TrainConfig {
            parallelism: system.parallelism(),
            ranks: Some(self.ranks),
            device: self.device,
            partition,
            model: self.model.clone(),
            fanouts: self.fanouts.clone(),
            batch_size: self.batch_size,
            epochs: self.warmup + self.epochs,
            optimizer: Default::default(),
            schedule: Default::default(),
            task: Default::default(),
            seed: self.seed,
            eval_every: 0,
            patience: None,
            min_delta: 0.0,
        }
    }

    /// What surrounds a run of `system`.
    fn options(&self, system: System, cache: Option<u64>, threads: Option<usize>) -> RunOptions {
        let placement = system.placement(self.device);
        RunOptions {
            threads,
            features: self.load_features,
            gpus: self.gpus.clone(),
            cache: cache.filter(|_| placement.as_ref().is_some_and(|placement| *placement != RowPlacement::Host)),
            placement,
            exact_phases: true,
            stop: Some(stop_gently()),
            ..RunOptions::default()
        }
    }

    /// Finds or makes what `systems` need.
    fn prepare(&self, dataset: &Dataset, systems: &[System], ui: &Ui) -> anyhow::Result<Vec<Entry>> {
        let gpu = match self.device {
            Device::Cpu => None,
            Device::Cuda => {
                let first = self.gpus.as_ref().and_then(|gpus| gpus.0.first()).copied();
                Some(Gpu::open(first.unwrap_or(0)).map_err(gsplit_trainer::Error::from)?)
            }
        };
        let needs = |system: &System| *system != System::Dgl;
        let options = Options {
            fanouts: self.fanouts.clone(),
            batch_size: self.batch_size as u64,
            epochs: self.presample_epochs,
            seed: self.seed,
        };
        let presample =
            systems.iter().any(needs).then(|| presampled(dataset, &options, gpu.as_ref(), ui)).transpose()?;
        let entry = |&system: &System| {
            let map = match (system.map(self.ranks as u32, self.seed), &presample) {
                (Some(options), Some(presample)) => Some(partitioned(dataset, &options, presample, ui)?),
                _ => None,
            };
            Ok(Entry { system, map, rounds: Vec::new() })
        };
        systems.iter().map(entry).collect()
    }

    /// The epochs of a run that count.
    fn measured(&self, run: &Summary) -> Vec<EpochReport> {
        run.epochs.iter().skip(self.warmup as usize).cloned().collect()
    }

    fn show(&self, dataset: &Dataset, entries: &[Entry], ui: &Ui) -> anyhow::Result<()> {
        let rows: Vec<Row> = entries.iter().map(|entry| Row::new(self, entry)).collect();
        let gsplit = rows.iter().find(|row| row.system == System::Gsplit).map(|row| row.total);
        ui.say(format_args!(
            "{}: {} vertices, {} edges; {:?}, {} layers of {}, fanouts {}, batches of {}, {} ranks on {}",
            dataset.name(),
            dataset.num_vertices(),
            dataset.topology().num_edges(),
            self.model.kind,
            self.model.layers,
            self.model.hidden,
            self.fanouts,
            self.batch_size,
            self.ranks,
            value_name(self.device),
        ));
        ui.say(format_args!(
            "seconds of an epoch; the median of {} rounds, {} warm-up epochs each",
            self.rounds, self.warmup
        ));
        ui.say(header());
        rows.iter().for_each(|row| ui.say(row.line(gsplit)));
        let left_out = self.left_out();
        for (system, why) in &left_out {
            ui.say(format_args!("{} is left out: {why}", system.name()));
        }
        let left_out: Vec<Value> =
            left_out.iter().map(|(system, why)| json!({ "system": system.name(), "why": why })).collect();
        let systems: Vec<Value> = rows.iter().zip(entries).map(|(row, entry)| row.json(self, entry, gsplit)).collect();
        ui.json(&json!({
            "dataset": dataset.name(),
            "device": value_name(self.device),
            "ranks": self.ranks,
            "model": self.model,
            "fanouts": self.fanouts,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "epochs": self.epochs,
            "warmup": self.warmup,
            "rounds": self.rounds,
            "systems": systems,
            "left_out": left_out,
        }));
        Ok(())
    }
}

/// A line of the table: medians over the rounds, of the means over the epochs of each.
struct Row {
    system: System,
    placement: String,
    map: Option<String>,
    sample: f64,
    load: f64,
    forward_backward: f64,
    /// Of that, the exchanges.
    exchange: f64,
    total: f64,
    edges: f64,
    rows_loaded: f64,
    rows_cached: f64,
    rows_from_peers: f64,
    rows_exchanged: f64,
}

impl Row {
    fn new(args: &Args, entry: &Entry) -> Self {
        let epochs: Vec<Vec<EpochReport>> = entry.rounds.iter().map(|run| args.measured(run)).collect();
        let of = |value: fn(&EpochReport) -> f64| median(epochs.iter().map(|epochs| mean(epochs, value)).collect());
        let placement = entry.system.placement(args.device);
        Self {
            system: entry.system,
            placement: placement.map_or("-".to_string(), |placement| placement.to_string()),
            map: entry.map.as_ref().map(|map| map.key().to_string()),
            sample: of(|epoch| epoch.timings.sample_s),
            load: of(|epoch| epoch.timings.load_s),
            forward_backward: of(|epoch| epoch.timings.compute_s + epoch.timings.exchange_s),
            exchange: of(|epoch| epoch.timings.exchange_s),
            total: of(|epoch| epoch.seconds),
            edges: of(|epoch| epoch.edges as f64),
            rows_loaded: of(|epoch| epoch.rows_loaded as f64),
            rows_cached: of(|epoch| epoch.rows_cached as f64),
            rows_from_peers: of(|epoch| epoch.rows_from_peers as f64),
            rows_exchanged: of(|epoch| epoch.rows_exchanged as f64),
        }
    }

    fn line(&self, gsplit: Option<f64>) -> String {
        let against = gsplit.map_or("-".to_string(), |gsplit| format!("{:.2}x", self.total / gsplit));
        let share = |rows: f64| format!("{:.1}", 100.0 * rows / self.rows_loaded.max(1.0));
        format!(
            "{:<7} {:<5} {:<11} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>8} {:>12.0} {:>11.0} {:>6} {:>6} {:>11.0}  {}",
            self.system.name(),
            self.system.parallelism().to_string(),
            self.placement,
            self.sample,
            self.load,
            self.forward_backward,
            self.total,
            against,
            self.edges,
            self.rows_loaded,
            share(self.rows_cached),
            share(self.rows_from_peers),
            self.rows_exchanged,
            self.map.as_deref().unwrap_or("-"),
        )
    }

    fn json(&self, args: &Args, entry: &Entry, gsplit: Option<f64>) -> Value {
        let rounds = entry.rounds.iter().map(|run| {
            let epochs = args.measured(run);
            json!({
                "sample_s": mean(&epochs, |epoch| epoch.timings.sample_s),
                "load_s": mean(&epochs, |epoch| epoch.timings.load_s),
                "compute_s": mean(&epochs, |epoch| epoch.timings.compute_s),
                "exchange_s": mean(&epochs, |epoch| epoch.timings.exchange_s),
                "seconds": mean(&epochs, |epoch| epoch.seconds),
            })
        });
        json!({
            "system": self.system.name(),
            "parallelism": self.system.parallelism(),
            "partition": self.map,
            "cache": entry.rounds.first().and_then(|run| run.cache.as_ref()),
            "sample_s": self.sample,
            "load_s": self.load,
            "forward_backward_s": self.forward_backward,
            "exchange_s": self.exchange,
            "seconds": self.total,
            "times_gsplit": gsplit.map(|gsplit| self.total / gsplit),
            "edges": self.edges,
            "rows_loaded": self.rows_loaded,
            "rows_cached": self.rows_cached,
            "rows_from_peers": self.rows_from_peers,
            "rows_exchanged": self.rows_exchanged,
            "loss": entry.rounds.first().and_then(|run| run.epochs.last()).map(|epoch| epoch.loss),
            "rounds": rounds.collect::<Vec<_>>(),
        })
    }
}

fn header() -> String {
    format!(
        "{:<7} {:<5} {:<11} {:>8} {:>8} {:>8} {:>8} {:>8} {:>12} {:>11} {:>6} {:>6} {:>11}  {}",
        "system",
        "par.",
        "rows kept",
        "S",
        "L",
        "FB",
        "total",
        "GSplit",
        "edges",
        "rows loaded",
        "own %",
        "peer %",
        "exchanged",
        "map"
    )
}

/// The mean of `value` over `epochs`, of which there are some.
fn mean(epochs: &[EpochReport], value: impl Fn(&EpochReport) -> f64) -> f64 {
    epochs.iter().map(value).sum::<f64>() / epochs.len().max(1) as f64
}

/// The middle of `values`, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len() / 2, values.len() % 2) {
        (0, 0) => f64::NAN,
        (half, 0) => (values[half - 1] + values[half]) / 2.0,
        (half, _) => values[half],
    }
}

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![7.0]), 7.0);
    }
}
