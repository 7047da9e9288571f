//! The question that a plan answers, and the systems that can be planned for.

use gsplit_kernels::schedule::Fanouts;
use gsplit_preprocess::memory::Memory;
use gsplit_store::{Dataset, PartitionMap, Size, Split, stored_key};
use gsplit_trainer::{Device, FeatureStorage, ModelConfig, RowPlacement};

use super::counting::Counting;
use super::found::Candidates;
use super::hits::Hits;
use super::profile::Profile;
use super::shape::Shape;
use crate::compare::Setting;
use gsplit::ui::{Ui, usage};
use gsplit_trainer::systems::{self, System};

/// The question that a plan answers.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Question {
    #[command(flatten)]
    pub model: ModelConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every
    /// one
    #[arg(long, default_value = "15,10,5")]
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch, over all ranks together
    #[arg(long, default_value_t = 1024)]
    pub batch_size: usize,
    /// Systems to plan for [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...")]
    pub systems: Vec<System>,
    /// Numbers of ranks to try in addition to one [default: all of the profile]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=256))]
    pub ranks: Vec<u32>,
    /// GPU memory of each rank for feature rows: 4GiB, or 20% of all rows; several sizes, to plan
    /// with each [default: the free memory]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub cache: Vec<Size>,
    /// Memory limit of each run on a host, as with train --memory: feature rows that do not fit are
    /// read from disk [default: with CPUs four fifths of the profile's; with GPUs all rows fit]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Memory>,
    /// Plan for feature rows of N f32 values, instead of the dataset's rows, if it has any
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub feature_dim: Option<u32>,
    /// Mini-batches to count
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batches: u32,
    /// A map to plan with, in addition to the maps of the systems; repeat it for several
    #[arg(long = "partition", value_name = "KEY", value_parser = stored_key)]
    pub partitions: Vec<String>,
    /// Number of hosts of these ranks.
    #[arg(skip = 1usize)]
    pub hosts: usize,
    #[arg(skip)]
    pub device: Device,
    /// Whether to count systems whose seconds cannot be compared.
    #[arg(skip = true)]
    pub apart: bool,
    #[arg(skip)]
    pub seed: u64,
}

impl Question {
    /// The question for the hardware of `profile`, with all of its ranks unless some are named.
    pub fn on(mut self, profile: &Profile) -> Self {
        if self.ranks.is_empty() {
            self.ranks.push((profile.hosts * profile.ranks) as u32);
        }
        self.ranks.retain(|&ranks| ranks > 1);
        Self { hosts: profile.hosts, device: profile.device, ..self }
    }

    /// Refuses a model or ranks that cannot be trained.
    pub fn check(&self) -> gsplit_trainer::Result<()> {
        let system = if self.draws() { systems::GSPLIT } else { systems::GRANNDIS };
        let setting = self.setting(self.ranks.first().map_or(2, |&ranks| ranks as usize));
        setting.config(system, 1).check()
    }

    /// Whether any system draws mini-batches.
    fn draws(&self) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|system| system.draws())
    }

    /// The settings that all systems share on this number of CPU `ranks`, to count their work
    /// without a run.
    pub fn setting(&self, ranks: usize) -> Setting {
        Setting {
            systems: Vec::new(),
            model: self.model.clone(),
            fanouts: self.fanouts.clone(),
            batch_size: self.batch_size,
            ranks,
            groups: 1,
            device: Device::Cpu,
            gpus: None,
            cache: None,
            load_features: FeatureStorage::default(),
            presample_epochs: 10,
            seed: self.seed,
        }
    }

    /// Finds or makes the maps, and counts the work of each system.
    pub fn candidates(&self, dataset: &Dataset, ui: &Ui) -> anyhow::Result<Candidates> {
        if self.ranks.is_empty() {
            return Err(usage("the profile has one rank: pass --ranks N to plan for more"));
        }
        let (dim, stored) = match self.feature_dim {
            Some(dim) => (dim as usize, 4),
            None => {
                let features = dataset.features()?;
                (features.dim(), features.dtype().bytes())
            }
        };
        for key in &self.partitions {
            let parts = PartitionMap::open(dataset, key)?.num_parts();
            if !self.ranks.contains(&(parts as u32)) {
                return Err(usage(format!(
                    "--partition {key}: has {parts} parts, and no plan has as many ranks: pass \
                     --ranks {parts}"
                )));
            }
        }
        let presample =
            self.draws().then(|| self.setting(2).presample(dataset, None, ui)).transpose()?;
        let steps = dataset.split(Split::Train)?.len().div_ceil(self.batch_size);
        let (mut candidates, mut left_out) = (Vec::new(), Vec::new());
        for &ranks in &self.ranks {
            let (systems, why_not) = self.systems_on(ranks as usize);
            if Some(&ranks) == self.ranks.first() {
                left_out = why_not;
            }
            let counting = Counting { question: self, dataset, ranks: ranks as usize, steps };
            if presample.is_some() {
                let (found, one) = counting.drawn(&systems, ui)?;
                candidates.extend((candidates.is_empty()).then_some(one));
                candidates.extend(found);
            }
            if systems.contains(&systems::GRANNDIS) {
                candidates.extend(counting.made_once(ui)?);
            }
        }
        for candidate in &mut candidates {
            let ranks_rows = match self.device {
                Device::Cpu => self.memory.is_some(),
                Device::Cuda => {
                    matches!(candidate.rows, RowPlacement::Replicated | RowPlacement::Peer)
                }
            };
            let by = ranks_rows && !candidate.way.parallelism.cooperates();
            let by = presample.as_ref().filter(|_| by);
            candidate.options.extend(by.map(|by| format!("--presample {}", by.key())));
        }
        let outputs = match dataset.manifest().numeric_label {
            true => 1,
            false => dataset.manifest().num_classes.unwrap_or(self.model.hidden as u32) as usize,
        };
        let model = &self.model;
        Ok(Candidates {
            line: format!(
                "{:?}, {} layers of {}, fanouts {}, batches of {}, {} mini-batches counted",
                model.kind, model.layers, model.hidden, self.fanouts, self.batch_size, self.batches
            ),
            steps,
            candidates,
            left_out,
            shape: Shape::new(model, [dim, outputs], stored),
            hits: Hits::of(presample.as_ref(), dataset.num_vertices()),
            graph_bytes: 8.0 * (dataset.num_vertices() + 1) as f64
                + 4.0 * dataset.topology().num_edges() as f64,
            row_bytes: (dim * stored) as f64,
            presample,
            caches: self.cache.clone(),
            memory: self.memory,
        })
    }

    /// The systems that are counted on `ranks` ranks; and those which cannot be, with the reason.
    fn systems_on(&self, ranks: usize) -> (Vec<System>, Vec<(String, String)>) {
        let (mut counted, mut left_out) = (Vec::new(), Vec::new());
        let wanted = |system: &&System| match self.systems.is_empty() {
            true => self.apart || !system.stands_apart(),
            false => self.systems.contains(system),
        };
        for &system in systems::ALL.iter().filter(wanted) {
            let problem = (system.problem)(self.device)
                .filter(|_| !self.is_counted(system))
                .map(str::to_string);
            let config = self.setting(ranks).config(system, 1);
            match problem.or_else(|| config.check().err().map(|error| error.to_string())) {
                None => counted.push(system),
                Some(why) => left_out.push((system.name.to_string(), why)),
            }
        }
        (counted, left_out)
    }

    /// Whether the work of `system` is counted, although it cannot be run on the device yet or
    /// compared with the others.
    fn is_counted(&self, system: System) -> bool {
        !system.draws() || (self.device == Device::Cuda && system.parallelism.slices_columns())
    }
}
