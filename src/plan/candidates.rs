//! What could be run: each system with its map, number of ranks and split layers, and what it does on simulated mini-batches.

use gsplit_kernels::schedule::Fanouts;
use gsplit_partition::evaluate::{self, LayerWork, MapEvaluation, Work};
use gsplit_partition::placement::CacheSize;
use gsplit_store::{Dataset, PartitionMap, Presample, Split};
use gsplit_trainer::{Device, ModelConfig, Parallelism, RowPlacement, TrainConfig};
use serde::Serialize;

use super::cost::{Cost, Shape, Sources, Way, cost};
use super::profile::Profile;
use crate::bench::Setting;
use crate::system::System;
use gsplit::ui::{Ui, bytes, usage};

/// Share of a GPU's memory that is never planned with: libraries, fragments.
const SPARE: f64 = 0.1;

/// What is to be planned for.
#[derive(Clone, Debug)]
pub struct Question {
    /// Those to plan for; all, if none is named.
    pub systems: Vec<System>,
    pub model: ModelConfig,
    pub fanouts: Fanouts,
    pub batch_size: usize,
    /// Numbers of ranks to try, beside one.
    pub ranks: Vec<u32>,
    pub device: Device,
    /// Values of the feature rows, if they are not the dataset's.
    pub feature_dim: Option<usize>,
    /// Memory for feature rows of each rank, if it is not what is left.
    pub cache: Option<CacheSize>,
    /// How many are simulated.
    pub batches: u32,
    /// Further maps.
    pub partitions: Vec<String>,
    pub seed: u64,
}

/// Something that could be run.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    pub name: String,
    pub ranks: usize,
    /// The options of `gsplit train` that run it.
    pub options: Vec<String>,
    #[serde(skip)]
    parallelism: Parallelism,
    #[serde(skip)]
    split_layers: usize,
    /// Servers that its map was made for.
    #[serde(skip)]
    servers: usize,
    #[serde(skip)]
    rows: RowPlacement,
    /// Why it cannot be run there yet, if it cannot.
    #[serde(skip)]
    problem: Option<String>,
    /// Key of its map.
    pub partition: Option<String>,
    /// What all ranks together do in a mini-batch.
    pub work: Work,
}

/// Everything that a ranking on some hardware needs.
pub struct Found {
    /// The question, for people.
    pub line: String,
    /// Mini-batches of an epoch.
    pub steps: usize,
    candidates: Vec<Candidate>,
    left_out: Vec<(String, String)>,
    shape: Shape,
    /// Share of all loads that so many of the hottest rows serve.
    hits: Hits,
    graph_bytes: f64,
    row_bytes: f64,
    cache: Option<CacheSize>,
}

/// What is not ranked.
#[derive(Serialize)]
pub struct LeftOut<'a> {
    pub system: String,
    pub why: String,
    /// What it would cost, where that is known.
    pub plan: Option<Ranked<'a>>,
}

/// A candidate on some hardware.
#[derive(Serialize)]
pub struct Ranked<'a> {
    #[serde(flatten)]
    pub candidate: &'a Candidate,
    pub epoch_s: f64,
    /// What takes longest.
    pub bound: &'static str,
    /// Bytes of a rank, the graph and cached rows included.
    pub memory: f64,
    /// Where its feature rows come from.
    sources: Sources,
    pub cost: Cost,
}

impl Question {
    /// Refuses a model or ranks that cannot be trained.
    ///
    /// # Errors
    /// Of usage.
    pub fn check(&self) -> gsplit_trainer::Result<()> {
        self.setting(self.ranks.first().map_or(2, |&ranks| ranks as usize)).config(System::Gsplit, 1).check()
    }

    fn setting(&self, ranks: usize) -> Setting {
        Setting::counted(self.model.clone(), (self.fanouts.clone(), self.batch_size), ranks, self.seed)
    }

    /// Finds or makes the maps, and counts what each system does.
    ///
    /// # Errors
    /// Those of pre-sampling, partitioning and evaluating.
    pub fn candidates(&self, dataset: &Dataset, ui: &Ui) -> anyhow::Result<Found> {
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
                    "--partition {key}: has {parts} parts, and no plan has as many ranks: pass --ranks {parts}"
                )));
            }
        }
        let presample = self.setting(2).presample(dataset, None, ui)?;
        let train = dataset.split(Split::Train)?.len();
        let (mut candidates, mut left_out, mut single) = (Vec::new(), Vec::new(), None);
        for &ranks in &self.ranks {
            let setting = self.setting(ranks as usize);
            let (mut systems, mut maps) = (Vec::new(), Vec::new());
            let wanted = |system: &&System| self.systems.is_empty() || self.systems.contains(system);
            for &system in <System as clap::ValueEnum>::value_variants().iter().filter(wanted) {
                let unlike = (!system.draws()).then_some("it trains on mini-batches of its own, which are made once");
                let config = setting.config(system, 1);
                let problem = system.problem(self.device).filter(|_| !self.is_counted(system));
                let why = problem.or(unlike).map(str::to_string);
                match why.or_else(|| config.check().err().map(|error| error.to_string())) {
                    None => systems.push(system),
                    Some(why) if Some(&ranks) == self.ranks.first() => left_out.push((system.name().to_string(), why)),
                    Some(_) => {}
                }
            }
            let of_systems = setting.prepare(dataset, &systems, ui)?;
            let mut made = of_systems.iter().filter_map(|(_, map)| map.as_ref()).collect::<Vec<_>>();
            // Data parallelism is counted beside a map, whichever.
            let any = if made.is_empty() { setting.prepare(dataset, &[System::Rand], ui)? } else { Vec::new() };
            made.extend(any.iter().filter_map(|(_, map)| map.as_ref()));
            maps.extend(made.iter().map(|map| map.key().to_string()));
            maps.extend(self.partitions.iter().cloned());
            maps.sort();
            maps.dedup();
            let opened = maps.iter().map(|key| PartitionMap::open(dataset, key)).collect::<Result<Vec<_>, _>>()?;
            let fitting: Vec<PartitionMap> =
                opened.into_iter().filter(|map| map.num_parts() == ranks as usize).collect();
            let drawn = evaluate::Setting {
                fanouts: self.fanouts.clone(),
                batch_size: self.batch_size as u64,
                batches: self.batches,
                seed: self.seed,
                draw_by: None,
            };
            let evaluation = evaluate::evaluate(dataset, &fitting, None, &drawn, ui)?;
            single.get_or_insert_with(|| one_rank(&evaluation));
            let of_key = |key: &str| evaluation.maps.iter().find(|map| map.key.as_deref() == Some(key));
            for (system, map) in of_systems {
                let evaluated = map.as_ref().and_then(|map| of_key(map.key()));
                candidates.extend(self.of_system(
                    system,
                    evaluated.or(evaluation.maps.first()),
                    ranks as usize,
                    map.as_ref(),
                ));
            }
            for key in self.partitions.iter().filter_map(|key| of_key(key)) {
                candidates.extend(self.in_part(key, ranks as usize));
            }
        }
        candidates.extend(single.map(|work| Candidate {
            name: "one rank".into(),
            ranks: 1,
            options: self.options(vec!["--parallelism single".into()]),
            parallelism: Parallelism::Single,
            split_layers: 0,
            servers: 1,
            rows: RowPlacement::Replicated,
            problem: None,
            partition: None,
            work,
        }));
        let outputs = dataset.manifest().num_classes.unwrap_or(self.model.hidden as u32) as usize;
        let model = &self.model;
        Ok(Found {
            line: format!(
                "{:?}, {} layers of {}, fanouts {}, batches of {}, {} mini-batches counted",
                model.kind, model.layers, model.hidden, self.fanouts, self.batch_size, self.batches
            ),
            steps: train.div_ceil(self.batch_size),
            candidates,
            left_out,
            shape: Shape::new(model.kind, model.layers, [dim, model.hidden, outputs], model.dtype, stored),
            hits: Hits::of(&presample),
            graph_bytes: 8.0 * (dataset.num_vertices() + 1) as f64 + 4.0 * dataset.topology().num_edges() as f64,
            row_bytes: (dim * stored) as f64,
            cache: self.cache,
        })
    }

    /// Whether the costs of `system` are known where it cannot be run yet.
    fn is_counted(&self, system: System) -> bool {
        self.device == Device::Cuda && system.choices().parallelism.slices_columns()
    }

    /// A system's row, and under GSplit's map those with some layers split.
    fn of_system(
        &self,
        system: System,
        evaluated: Option<&MapEvaluation>,
        ranks: usize,
        map: Option<&PartitionMap>,
    ) -> Vec<Candidate> {
        let Some(evaluated) = evaluated else { return Vec::new() };
        let choices = system.choices();
        let layers = self.model.layers;
        let split_layers = if choices.parallelism.splits() { choices.split_layers.unwrap_or(layers) } else { 0 };
        let work = match choices.parallelism.needs_map() {
            true => evaluated.split_layers[split_layers.min(layers)].work.clone(),
            false => evaluated.data_work.clone(),
        };
        let mut options = vec![format!("--parallelism {}", choices.parallelism), format!("--ranks {ranks}")];
        options.extend(choices.split_layers.map(|layers| format!("--split-layers {layers}")));
        options.extend(map.map(|map| format!("--partition {}", map.key())));
        options.extend((self.device == Device::Cuda).then(|| format!("--device cuda --placement {}", choices.rows())));
        let mut found = vec![Candidate {
            name: system.name().to_string(),
            ranks,
            options: self.options(options),
            parallelism: choices.parallelism,
            split_layers,
            servers: evaluated.servers as usize,
            rows: choices.rows().clone(),
            problem: system.problem(self.device).map(str::to_string),
            partition: map.map(|map| map.key().to_string()),
            work,
        }];
        if system == System::Gsplit {
            found.extend(self.in_part(evaluated, ranks).into_iter().filter(|one| one.split_layers < layers));
        }
        found
    }

    /// The lowest layers split, by this map: from one to all.
    fn in_part(&self, map: &MapEvaluation, ranks: usize) -> Vec<Candidate> {
        let key = map.key.clone().unwrap_or_default();
        let candidate = |split_layers: usize| {
            let mut options = vec![
                "--parallelism split".to_string(),
                format!("--ranks {ranks}"),
                format!("--split-layers {split_layers}"),
                format!("--partition {key}"),
            ];
            options.extend((self.device == Device::Cuda).then(|| "--device cuda --placement partitioned".to_string()));
            Candidate {
                name: format!("split {split_layers} of {}", self.model.layers),
                ranks,
                options: self.options(options),
                parallelism: Parallelism::Split,
                split_layers,
                servers: map.servers as usize,
                rows: RowPlacement::Partitioned,
                problem: None,
                partition: map.key.clone(),
                work: map.split_layers[split_layers].work.clone(),
            }
        };
        (1..=self.model.layers).map(candidate).collect()
    }

    /// `options` of a system, with those that all have.
    fn options(&self, mut options: Vec<String>) -> Vec<String> {
        let model = &self.model;
        let kind =
            clap::ValueEnum::to_possible_value(&model.kind).map_or(String::new(), |value| value.get_name().to_string());
        options.push(format!("--model {kind} --layers {} --hidden {}", model.layers, model.hidden));
        options.push(format!("--fanouts {} --batch-size {}", self.fanouts, self.batch_size));
        options
    }
}

impl Candidate {
    /// Whether `other` computes the same on a CPU.
    pub fn is_as(&self, other: &Self) -> bool {
        let what = |one: &Self| (one.parallelism, one.split_layers, one.ranks, one.partition.clone());
        what(self) == what(other)
    }

    /// `config` with what this chooses.
    pub fn applied(&self, config: &TrainConfig) -> TrainConfig {
        TrainConfig {
            parallelism: self.parallelism,
            split_layers: self.parallelism.splits().then_some(self.split_layers),
            ranks: Some(self.ranks),
            partition: self.partition.clone(),
            ..config.clone()
        }
    }
}

/// What one rank does.
fn one_rank(evaluation: &evaluate::Evaluation) -> Work {
    let layer = |layer: &evaluate::LayerSize| LayerWork {
        vertices: layer.vertices.mean,
        edges: layer.edges.mean,
        rows_exchanged: 0.0,
        rows_abroad: 0.0,
    };
    Work {
        layers: evaluation.batch.layers.iter().map(layer).collect(),
        rows_loaded: evaluation.batch.input_rows.mean,
        edge_imbalance: 1.0,
        row_imbalance: 1.0,
    }
}

impl Found {
    /// The candidates that fit `profile`, the fastest first.
    pub fn rank(&self, profile: &Profile) -> Vec<Ranked<'_>> {
        let runs = self.candidates.iter().filter(|candidate| candidate.problem.is_none());
        let mut ranked: Vec<Ranked<'_>> = runs.filter_map(|candidate| self.on(candidate, profile).ok()).collect();
        ranked.sort_by(|a, b| a.epoch_s.total_cmp(&b.epoch_s));
        ranked
    }

    /// Those that do not, and what cannot be planned for, with the reason.
    pub fn unfit(&self, profile: &Profile) -> Vec<LeftOut<'_>> {
        let never = self.left_out.iter().map(|(system, why)| (system, why.clone(), None));
        let not_here = self.candidates.iter().filter_map(|candidate| {
            let (why, plan) = match (self.on(candidate, profile), &candidate.problem) {
                (Err(why), _) => (why, None),
                (Ok(plan), Some(why)) => (why.clone(), Some(plan)),
                (Ok(_), None) => return None,
            };
            Some((&candidate.name, why, plan))
        });
        never.chain(not_here).map(|(system, why, plan)| LeftOut { system: system.clone(), why, plan }).collect()
    }

    /// Lines about hardware that would have another system first.
    pub fn what_changes(&self, profile: &Profile) -> Vec<String> {
        let first = |profile: &Profile| {
            self.rank(profile).first().map(|first| (first.candidate.name.clone(), first.candidate.ranks))
        };
        let now = first(profile);
        let with = |change: &dyn Fn(&mut Profile)| {
            let mut other = profile.clone();
            change(&mut other);
            other
        };
        let link = |link: &mut Option<super::profile::Link>, by: f64| link.iter_mut().for_each(|link| link.bytes *= by);
        let changes = [
            ("8 GiB more memory a rank", with(&|other| other.memory += (8u64 << 30) as f64)),
            ("half the memory a rank", with(&|other| other.memory /= 2.0)),
            ("links between ranks twice as fast", with(&|other| other.peer.bytes *= 2.0)),
            ("links between ranks half as fast", with(&|other| other.peer.bytes /= 2.0)),
            ("a bus twice as fast", with(&|other| link(&mut other.bus, 2.0))),
            ("a network twice as fast", with(&|other| link(&mut other.network, 2.0))),
            (
                "products twice as fast",
                with(&|other| (other.dense.f32, other.dense.bf16) = (2.0 * other.dense.f32, 2.0 * other.dense.bf16)),
            ),
        ];
        let line = |(what, other): (&str, Profile)| {
            let (name, ranks) = first(&other).filter(|_| other != *profile)?;
            (Some(&(name.clone(), ranks)) != now.as_ref())
                .then(|| format!("with {what}: {name} on {ranks} ranks first"))
        };
        changes.into_iter().filter_map(line).collect()
    }

    /// `candidate` on `profile`, or why it does not fit.
    fn on<'a>(&'a self, candidate: &'a Candidate, profile: &Profile) -> Result<Ranked<'a>, String> {
        let whole = Sources { own: 1.0, peers: 0.0, host: 0.0 };
        let way = |sources, far_graph| Way {
            parallelism: candidate.parallelism,
            split_layers: candidate.split_layers,
            servers: candidate.servers,
            ranks: candidate.ranks,
            sources,
            far_graph,
        };
        let bare = cost(&candidate.work, way(whole, false), &self.shape, profile);
        let room = profile.memory * (1.0 - SPARE);
        if bare.memory > room {
            return Err(format!("needs {}, there are {}", bytes(bare.memory as u64), bytes(room as u64)));
        }
        let (sources, far_graph, memory) = match profile.shared {
            true => (whole, false, bare.memory),
            false => self.placed(candidate, room - bare.memory, bare.memory),
        };
        let cost = cost(&candidate.work, way(sources, far_graph), &self.shape, profile);
        Ok(Ranked { candidate, epoch_s: cost.seconds * self.steps as f64, bound: cost.bound(), memory, sources, cost })
    }

    /// Where the rows of `candidate` come from with `left` bytes of a GPU for the graph, if it fits, and rows; whether it does not; and
    /// what is then taken.
    fn placed(&self, candidate: &Candidate, left: f64, taken: f64) -> (Sources, bool, f64) {
        // Where all layers are split a rank draws for its own vertices alone.
        let parts = if candidate.split_layers == self.shape.widths.len() { candidate.ranks as f64 } else { 1.0 };
        let graph = self.graph_bytes / parts;
        let far_graph = graph > left / 2.0;
        let graph = if far_graph { 0.0 } else { graph };
        let all = self.hits.vertices() * self.row_bytes;
        let wanted = match self.cache {
            Some(size) => size.bytes(all as u64) as f64,
            None => f64::INFINITY,
        };
        let room = (left - graph).min(wanted);
        let ranks = candidate.ranks as f64;
        let (hit, rows) = match candidate.rows {
            // A rank's columns of all rows, or none: a row is computed by all ranks.
            _ if candidate.parallelism.slices_columns() && all / ranks <= room => (all, all / ranks),
            RowPlacement::Host => (0.0, 0.0),
            RowPlacement::Peer | RowPlacement::Partitioned => (room * ranks, (all / ranks).min(room)),
            _ => (room, all.min(room)),
        };
        let hit = self.hits.of_rows(hit / self.row_bytes);
        let own = if candidate.rows == RowPlacement::Peer { hit / ranks } else { hit };
        (Sources { own, peers: hit - own, host: 1.0 - hit }, far_graph, taken + graph + rows)
    }
}

/// How many loads the hottest rows serve, by the presample.
struct Hits {
    /// Loads of the rows so far, hottest first.
    sums: Vec<u64>,
}

impl Hits {
    fn of(presample: &Presample) -> Self {
        let mut loads = presample.input().to_vec();
        loads.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        let sums = loads.into_iter().map(|loads| {
            sum += u64::from(loads);
            sum
        });
        Self { sums: sums.collect() }
    }

    fn vertices(&self) -> f64 {
        self.sums.len() as f64
    }

    /// Share of the loads that so many rows serve.
    fn of_rows(&self, rows: f64) -> f64 {
        let all = self.sums.last().copied().unwrap_or(0).max(1);
        let served = (rows as usize).min(self.sums.len()).checked_sub(1).map_or(0, |last| self.sums[last]);
        served as f64 / all as f64
    }
}
