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
    Device, EpochReport, ExchangeKind, FeaturePlace, GpuList, ModelConfig, RowPlacement, RunOptions, Summary,
    TrainConfig, train,
};
use serde_json::{Value, json};

use super::prepare::{partitioned, presampled};
use super::row::{Row, header, mean};
use crate::environment;
use crate::system::{Choices, System};
use crate::train::as_usage;
use gsplit::ui::{Ui, stop_gently, usage};

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
    /// rows [default: what a few mini-batches on trial and the graph leave there]
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
            return Err(usage("--cache is for --device cuda, where it changes times: leave it out, or give both"));
        }
        if self.ranks == 0 || self.ranks > 256 {
            return Err(usage(format!("--ranks {}: expected 1 to 256", self.ranks)));
        }
        let unfit = self.systems.iter().find_map(|system| Some((system, self.problem(*system)?)));
        if let Some((system, problem)) = unfit {
            return Err(usage(format!("--systems: {} cannot run here: {problem}", system.name())));
        }
        let is_asked = |system: &System| self.systems.is_empty() || self.systems.contains(system);
        let runs = |system: &System| is_asked(system) && self.problem(*system).is_none();
        Ok(System::value_variants().iter().copied().filter(runs).collect())
    }

    /// Why `system` has no row in this table, if it has none.
    fn problem(&self, system: System) -> Option<&'static str> {
        let others = "it makes mini-batches of its own, which the others do not train on";
        system.problem(self.device).or_else(|| (!system.draws()).then_some(others))
    }

    /// The systems that were not asked for by name and cannot be run, and why.
    fn left_out(&self) -> Vec<(System, &'static str)> {
        match self.systems.is_empty() {
            true => System::value_variants().iter().filter_map(|&s| Some((s, self.problem(s)?))).collect(),
            false => Vec::new(),
        }
    }

    /// A run of `system` with the partition map `key`.
    fn config(&self, system: System, partition: Option<String>) -> TrainConfig {
        let Choices { parallelism, split_layers, .. } = system.choices();
        TrainConfig {
            parallelism,
            split_layers,
            exchange: ExchangeKind::Rows,
            ranks: Some(self.ranks),
            groups: 1,
            device: self.device,
            partition,
            cooperative: Default::default(),
            model: self.model.clone(),
            fanouts: self.fanouts.clone(),
            draw_by: None,
            draw: Default::default(),
            edge_weights: None,
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
            draw_by: None,
        };
        let presample =
            systems.iter().any(needs).then(|| presampled(dataset, &options, gpu.as_ref(), ui)).transpose()?;
        let entry = |&system: &System| {
            let map = match (system.map(self.ranks as u32, 1, self.seed), &presample) {
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

    fn row(&self, entry: &Entry) -> Row {
        let map = entry.map.as_ref().map(|map| map.key().to_string());
        let cache = entry.rounds.first().and_then(|run| run.cache.clone());
        let rounds = entry.rounds.iter().map(|run| self.measured(run)).collect();
        Row::new((entry.system, self.device), map, cache, rounds)
    }

    fn show(&self, dataset: &Dataset, entries: &[Entry], ui: &Ui) -> anyhow::Result<()> {
        let rows: Vec<Row> = entries.iter().map(|entry| self.row(entry)).collect();
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
        let systems: Vec<Value> = rows.iter().map(|row| row.json(gsplit)).collect();
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

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
