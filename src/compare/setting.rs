//! Settings that the systems of a comparison share: model, mini-batches, ranks and device; and the
//! artifacts that they need.

use gsplit_kernels::Gpu;
use gsplit_kernels::schedule::Fanouts;
use gsplit_preprocess::presample::Options;
use gsplit_store::{Dataset, PartitionMap, Presample, Size};
use gsplit_trainer::{Config, Device, FeatureStorage, GpuList, ModelConfig, RowPlacement, name_of};
use serde_json::{Value, json};

use super::prepare::{partitioned, presampled};
use crate::system::map_options;
use crate::train::as_usage;
use gsplit::ui::{Ui, usage};
use gsplit_trainer::systems::{self, System};

/// The options of every comparison.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Setting {
    /// Systems to compare [default: all that the device can run]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    pub systems: Vec<System>,
    #[command(flatten)]
    pub model: ModelConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every
    /// one
    #[arg(long, default_value = "15,15,15")]
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    pub batch_size: usize,
    /// Number of ranks, each with its own part
    #[arg(long, default_value_t = 4)]
    pub ranks: usize,
    /// Groups of these ranks, as hosts are: systems that split a mini-batch over ranks do so within
    /// a group, and deal mini-batches to the groups. GraNNDis uses them as its servers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub groups: usize,
    /// Device that ranks compute on
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: Device,
    /// With --device cuda, the GPU of each rank, e.g. 0,1,2,3; one named more than once is shared
    /// [default: 0,1,...]
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<GpuList>,
    /// With --device cuda, GPU memory of each rank for feature rows, in systems that cache: 4GiB,
    /// or 20% of all rows [default: the memory that the graph and a few trial mini-batches leave
    /// free]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<Size>,
    /// Storage that feature rows are read from
    #[arg(long, value_enum, value_name = "PLACE", default_value = "auto")]
    pub load_features: FeatureStorage,
    /// Epochs of the presample that gives the weights of the maps and ranks the rows
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub presample_epochs: u32,
    /// Seed of every random choice: weights, batches, samples, dropout, maps
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
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
    /// Sorts the requested systems (or all) into [`Chosen`]. `config` gives the run of a system.
    pub fn choose(&self, config: impl Fn(System) -> Config) -> anyhow::Result<Chosen> {
        if self.cache.is_some() && self.device == Device::Cpu {
            return Err(usage("--cache is for --device cuda: leave it out, or give both"));
        }
        if self.ranks == 0 || self.ranks > 256 {
            return Err(usage(format!("--ranks {}: expected 1 to 256", self.ranks)));
        }
        // A problem of these two systems is a problem of the options.
        for system in [systems::DGL, systems::GSPLIT] {
            self.config(system, 1).check().map_err(as_usage)?;
        }
        let problem = |system: System| {
            let problem = (system.problem)(self.device).map(str::to_string);
            problem.or_else(|| config(system).check().err().map(|error| error.to_string()))
        };
        let (mut runs, mut left_out) = (Vec::new(), Vec::new());
        for system in systems::ALL {
            match problem(system) {
                _ if !self.systems.is_empty() && !self.systems.contains(&system) => {}
                None => runs.push(system),
                Some(why) if self.systems.is_empty() => left_out.push((system, why)),
                Some(why) => {
                    return Err(usage(format!(
                        "--systems: {} cannot run here: {why}",
                        system.name
                    )));
                }
            }
        }
        Ok((runs, left_out))
    }

    /// A run of `system` for `epochs` epochs, still without a partition map.
    pub fn config(&self, system: System, epochs: u32) -> Config {
        let mut config = Config { model: self.model.clone(), ..Config::default() };
        (config.data.fanouts, config.data.batch_size) = (self.fanouts.clone(), self.batch_size);
        (config.run.epochs, config.run.seed, config.run.eval_every) = (epochs, self.seed, 0);
        let of = &mut config.system;
        (of.parallelism, of.split_layers) = (system.parallelism, system.split_layers);
        (of.ranks, of.device) = (Some(self.ranks), self.device);
        of.groups = if system.parallelism.splits() { self.groups } else { 1 };
        config
    }

    /// `config`, a run of `system`, with what it needs to be measured; `presample` ranks the rows.
    pub fn measured(&self, mut config: Config, system: System, presample: Option<&str>) -> Config {
        let of = &mut config.system;
        of.placement = system.rows_on(self.device);
        let caches =
            of.placement.as_ref().is_some_and(|placement| *placement != RowPlacement::Host);
        of.cache = self.cache.filter(|_| caches);
        (of.load_features, of.gpus) = (self.load_features, self.gpus.clone());
        of.presample = presample.map(str::to_string);
        // Phases follow one another, each with its own launches.
        of.prefetch = 0;
        config
    }

    /// Finds or makes the presample that gives the weights of the maps and ranks the rows.
    pub fn presample(
        &self,
        dataset: &Dataset,
        gpu: Option<&Gpu>,
        ui: &Ui,
    ) -> anyhow::Result<Presample> {
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
    pub fn prepare(
        &self,
        dataset: &Dataset,
        systems: &[System],
        ui: &Ui,
    ) -> anyhow::Result<Prepared> {
        let gpu = match self.device {
            Device::Cpu => None,
            Device::Cuda => {
                let first = self.gpus.as_ref().and_then(|gpus| gpus.0.first()).copied();
                Some(Gpu::open(first.unwrap_or(0)).map_err(gsplit_trainer::Error::from)?)
            }
        };
        let caches = |system: &System| {
            system.rows_on(self.device).is_some_and(|rows| rows != RowPlacement::Host)
        };
        // GraNNDis prepares its mini-batches from in-edges, without draws.
        let needs =
            |system: &System| system.draws() && (system.parallelism.needs_map() || caches(system));
        let presample = systems
            .iter()
            .any(needs)
            .then(|| self.presample(dataset, gpu.as_ref(), ui))
            .transpose()?;
        let with_map = |&system: &System| {
            let config = self.config(system, 1);
            let options = map_options(
                system,
                config.num_parts() as u32,
                config.system.groups as u32,
                self.seed,
            );
            let presample = presample.as_ref().filter(|_| system.draws());
            let map =
                options.map(|options| partitioned(dataset, &options, presample, ui)).transpose()?;
            Ok((system, map))
        };
        let systems = systems.iter().map(with_map).collect::<anyhow::Result<_>>()?;
        Ok(Prepared { systems, presample: presample.map(|presample| presample.key().to_string()) })
    }

    /// Line above a table, for people.
    pub fn line(&self, dataset: &Dataset) -> String {
        let groups =
            if self.groups > 1 { format!(" in {} groups", self.groups) } else { String::new() };
        format!(
            "{}: {} vertices, {} edges; {:?}, {} layers of {}, fanouts {}, batches of {}, {} \
             ranks{groups} on {}",
            dataset.name(),
            dataset.num_vertices(),
            dataset.topology().num_edges(),
            self.model.kind,
            self.model.layers,
            self.model.hidden,
            self.fanouts,
            self.batch_size,
            self.ranks,
            name_of(&self.device),
        )
    }

    /// JSON object of a table, with the fields of `more` added.
    pub fn json(&self, dataset: &Dataset, left_out: &[(System, String)], more: Value) -> Value {
        let left_out =
            left_out.iter().map(|(system, why)| json!({ "system": system.name, "why": why }));
        let mut said = json!({
            "dataset": dataset.name(),
            "device": name_of(&self.device),
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
