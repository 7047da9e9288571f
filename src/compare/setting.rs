//! Settings that the systems of a comparison share: model, mini-batches, ranks and device; and the artifacts that they need.

use clap::ValueEnum;
use gsplit_kernels::Gpu;
use gsplit_kernels::schedule::Fanouts;
use gsplit_partition::placement::CacheSize;
use gsplit_preprocess::presample::Options;
use gsplit_store::{Dataset, PartitionMap, Presample};
use gsplit_trainer::{Device, FeatureStorage, GpuList, ModelConfig, RowPlacement, TrainConfig};
use serde_json::{Value, json};

use super::prepare::{partitioned, presampled};
use crate::system::{Choices, System};
use crate::train::as_usage;
use gsplit::ui::{Ui, usage};

/// The options of every comparison.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Setting {
    /// Systems to compare [default: all that the device can run]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    systems: Vec<System>,
    #[command(flatten)]
    pub model: ModelConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every one
    #[arg(long, default_value = "15,15,15")]
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    pub batch_size: usize,
    /// Number of ranks, each with its own part
    #[arg(long, default_value_t = 4)]
    pub ranks: usize,
    /// Groups of these ranks, as hosts are: systems that split a mini-batch over ranks do so within a group, and deal
    /// mini-batches to the groups. GraNNDis uses them as its servers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub groups: usize,
    /// Device that ranks compute on
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: Device,
    /// With --device cuda, the GPU of each rank, e.g. 0,1,2,3; one named more than once is shared [default: 0,1,...]
    #[arg(long, value_name = "LIST")]
    gpus: Option<GpuList>,
    /// With --device cuda, GPU memory of each rank for feature rows, in systems that cache: 4GiB, or 20% of all rows
    /// [default: the memory that the graph and a few trial mini-batches leave free]
    #[arg(long, value_name = "SIZE")]
    cache: Option<CacheSize>,
    /// Storage that feature rows are read from
    #[arg(long, value_enum, value_name = "PLACE", default_value = "auto")]
    load_features: FeatureStorage,
    /// Epochs of the presample that gives the weights of the maps and ranks the rows
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    presample_epochs: u32,
    /// Seed of every random choice: weights, batches, samples, dropout, maps
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The systems of a comparison that can run here, and the other systems with the reason.
pub type Chosen = (Vec<System>, Vec<(System, String)>);

/// Artifacts that the systems of a comparison need.
pub struct Prepared {
    /// The systems, each with its map if it needs one.
    pub systems: Vec<(System, Option<PartitionMap>)>,
    /// Key of the presample, if any system needs it.
    pub presample: Option<String>,
}

impl Setting {
    /// Settings of all systems on `ranks` CPU ranks, to count their work without a run.
    pub fn counted(model: ModelConfig, (fanouts, batch_size): (Fanouts, usize), ranks: usize, seed: u64) -> Self {
        Self {
            systems: Vec::new(),
            model,
            fanouts,
            batch_size,
            ranks,
            groups: 1,
            device: Device::Cpu,
            gpus: None,
            cache: None,
            load_features: FeatureStorage::default(),
            presample_epochs: 10,
            seed,
        }
    }

    /// Sorts the requested systems (or all) into [`Chosen`]. `config` gives the run of a system.
    ///
    /// # Errors
    /// A usage error, if the options contradict each other or a system that was named cannot run.
    pub fn choose(&self, config: impl Fn(System) -> TrainConfig) -> anyhow::Result<Chosen> {
        if self.cache.is_some() && self.device == Device::Cpu {
            return Err(usage("--cache is for --device cuda: leave it out, or give both"));
        }
        if self.ranks == 0 || self.ranks > 256 {
            return Err(usage(format!("--ranks {}: expected 1 to 256", self.ranks)));
        }
        // A problem of these two systems is a problem of the options.
        for system in [System::Dgl, System::Gsplit] {
            self.config(system, 1).check().map_err(as_usage)?;
        }
        let problem = |system: System| {
            let problem = system.problem(self.device).map(str::to_string);
            problem.or_else(|| config(system).check().err().map(|error| error.to_string()))
        };
        let (mut runs, mut left_out) = (Vec::new(), Vec::new());
        for &system in System::value_variants() {
            match problem(system) {
                _ if !self.systems.is_empty() && !self.systems.contains(&system) => {}
                None => runs.push(system),
                Some(why) if self.systems.is_empty() => left_out.push((system, why)),
                Some(why) => return Err(usage(format!("--systems: {} cannot run here: {why}", system.name()))),
            }
        }
        Ok((runs, left_out))
    }

    /// A run of `system` for `epochs` epochs, still without a partition map.
    pub fn config(&self, system: System, epochs: u32) -> TrainConfig {
        let Choices { parallelism, split_layers, .. } = system.choices();
        TrainConfig {
            parallelism,
            split_layers,
            ranks: Some(self.ranks),
            groups: if parallelism.splits() { self.groups } else { 1 },
            device: self.device,
            partition: None,
            cooperative: Default::default(),
            model: self.model.clone(),
            fanouts: self.fanouts.clone(),
            draw_by: None,
            draw: Default::default(),
            edge_weights: None,
            batch_size: self.batch_size,
            epochs,
            optimizer: Default::default(),
            schedule: Default::default(),
            task: Default::default(),
            seed: self.seed,
            eval_every: 0,
            eval_fanouts: None,
            patience: None,
            min_delta: 0.0,
        }
    }

    /// The options of `gsplit train` in addition to the configuration of `system`; `presample` ranks the rows.
    pub fn around(&self, system: System, presample: Option<&str>) -> Vec<String> {
        let placement = system.placement(self.device);
        let caches = placement.as_ref().is_some_and(|placement| *placement != RowPlacement::Host);
        let option = |name: &str, value: Option<String>| value.map(|value| format!("--{name}={value}"));
        [
            // Phases follow one another, each with its own launches.
            option("prefetch", Some("0".to_string())),
            option("load-features", Some(value_name(self.load_features))),
            option("gpus", self.gpus.as_ref().map(GpuList::to_string)),
            option("placement", placement.map(|placement| placement.to_string())),
            option("presample", presample.map(str::to_string)),
            option("cache", self.cache.filter(|_| caches).map(|cache| cache.to_string())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Finds or makes the presample that gives the weights of the maps and ranks the rows.
    pub fn presample(&self, dataset: &Dataset, gpu: Option<&Gpu>, ui: &Ui) -> anyhow::Result<Presample> {
        let options = Options {
            fanouts: self.fanouts.clone(),
            batch_size: self.batch_size as u64,
            epochs: self.presample_epochs,
            seed: self.seed,
            draw_by: None,
            task: Default::default(),
            negatives: 1,
            memory: None,
        };
        presampled(dataset, &options, gpu, ui)
    }

    /// Finds or makes the presample and the maps that `systems` need.
    pub fn prepare(&self, dataset: &Dataset, systems: &[System], ui: &Ui) -> anyhow::Result<Prepared> {
        let gpu = match self.device {
            Device::Cpu => None,
            Device::Cuda => {
                let first = self.gpus.as_ref().and_then(|gpus| gpus.0.first()).copied();
                Some(Gpu::open(first.unwrap_or(0)).map_err(gsplit_trainer::Error::from)?)
            }
        };
        let caches = |system: &System| system.placement(self.device).is_some_and(|rows| rows != RowPlacement::Host);
        // GraNNDis prepares its mini-batches from in-edges, without draws.
        let needs = |system: &System| system.draws() && (system.choices().parallelism.needs_map() || caches(system));
        let presample = systems.iter().any(needs).then(|| self.presample(dataset, gpu.as_ref(), ui)).transpose()?;
        let with_map = |&system: &System| {
            let config = self.config(system, 1);
            let options = system.map(config.num_parts() as u32, config.groups as u32, self.seed);
            let presample = presample.as_ref().filter(|_| system.draws());
            let map = options.map(|options| partitioned(dataset, &options, presample, ui)).transpose()?;
            Ok((system, map))
        };
        let systems = systems.iter().map(with_map).collect::<anyhow::Result<_>>()?;
        Ok(Prepared { systems, presample: presample.map(|presample| presample.key().to_string()) })
    }

    /// Line above a table, for people.
    pub fn line(&self, dataset: &Dataset) -> String {
        let groups = if self.groups > 1 { format!(" in {} groups", self.groups) } else { String::new() };
        format!(
            "{}: {} vertices, {} edges; {:?}, {} layers of {}, fanouts {}, batches of {}, {} ranks{groups} on {}",
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
        )
    }

    /// JSON object of a table, with the fields of `more` added.
    pub fn json(&self, dataset: &Dataset, left_out: &[(System, String)], more: Value) -> Value {
        let left_out = left_out.iter().map(|(system, why)| json!({ "system": system.name(), "why": why }));
        let mut said = json!({
            "dataset": dataset.name(),
            "device": value_name(self.device),
            "ranks": self.ranks,
            "groups": self.groups,
            "model": self.model,
            "fanouts": self.fanouts,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "left_out": left_out.collect::<Vec<_>>(),
        });
        if let (Some(said), Value::Object(more)) = (said.as_object_mut(), more) {
            said.extend(more);
        }
        said
    }
}

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
