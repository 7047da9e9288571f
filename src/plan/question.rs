//! The question that a plan answers, and the systems that can be planned for.

use gsplit_kernels::schedule::Fanouts;
use gsplit_preprocess::memory::Memory;
use gsplit_store::Size;
use gsplit_store::{Dataset, PartitionMap, Split};
use gsplit_trainer::{Device, ModelConfig, RowPlacement};

use super::counting::Counting;
use super::found::Candidates;
use super::hits::Hits;
use super::shape::Shape;
use crate::compare::Setting;
use gsplit::ui::{Ui, usage};
use gsplit_trainer::systems::{self, System};

/// The question that a plan answers.
#[derive(Clone, Debug)]
pub struct Question {
    /// Systems to plan for; all, if empty.
    pub systems: Vec<System>,
    pub model: ModelConfig,
    pub fanouts: Fanouts,
    pub batch_size: usize,
    /// Numbers of ranks to try, in addition to one.
    pub ranks: Vec<u32>,
    /// Number of hosts of these ranks.
    pub hosts: usize,
    pub device: Device,
    /// Width of the feature rows, if it is not the dataset's.
    pub feature_dim: Option<usize>,
    /// Memory of each rank for feature rows; the free memory if empty.
    pub caches: Vec<Size>,
    /// Memory limit of a run on a host, if it is not the profile's memory.
    pub memory: Option<Memory>,
    /// Number of simulated mini-batches.
    pub batches: u32,
    /// Maps to plan with in addition.
    pub partitions: Vec<String>,
    /// Whether to count systems whose seconds cannot be compared.
    pub apart: bool,
    pub seed: u64,
}

impl Question {
    /// Refuses a model or ranks that cannot be trained.
    pub fn check(&self) -> gsplit_trainer::Result<()> {
        let system = if self.draws() { systems::GSPLIT } else { systems::GRANNDIS };
        self.setting(self.ranks.first().map_or(2, |&ranks| ranks as usize))
            .config(system, 1)
            .check()
    }

    /// Whether any system draws mini-batches.
    fn draws(&self) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|system| system.draws())
    }

    /// The settings that all systems share on this number of `ranks`.
    pub fn setting(&self, ranks: usize) -> Setting {
        Setting::counted(
            self.model.clone(),
            self.fanouts.clone(),
            self.batch_size,
            ranks,
            self.seed,
        )
    }

    /// Finds or makes the maps, and counts the work of each system.
    pub fn candidates(&self, dataset: &Dataset, ui: &Ui) -> anyhow::Result<Candidates> {
        super::check_ranks(&self.ranks)?;
        let (dim, stored) = match self.feature_dim {
            Some(dim) => (dim, 4),
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
            let key = presample
                .as_ref()
                .filter(|_| ranks_rows && !candidate.way.parallelism.cooperates());
            candidate
                .options
                .extend(key.map(|presample| format!("--presample {}", presample.key())));
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
            shape: Shape {
                heads: model.heads as f64,
                ..Shape::new(
                    model.kind,
                    model.layers,
                    [dim, model.hidden, outputs],
                    model.dtype,
                    stored,
                )
            },
            hits: Hits::of(presample.as_ref(), dataset.num_vertices()),
            graph_bytes: 8.0 * (dataset.num_vertices() + 1) as f64
                + 4.0 * dataset.topology().num_edges() as f64,
            row_bytes: (dim * stored) as f64,
            presample,
            caches: self.caches.clone(),
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
