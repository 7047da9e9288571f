//! What is planned for, and what each system would do: counted on simulated mini-batches.

use clap::ValueEnum;
use gsplit_kernels::schedule::Fanouts;
use gsplit_partition::evaluate::{self, Cooperative, LayerWork, Local, MapEvaluation, Work};
use gsplit_partition::placement::{CacheSize, PlaceOptions, PlacementRule, row_bytes};
use gsplit_store::{Dataset, PartitionMap, Presample, Readers, Split};
use gsplit_trainer::{
    CooperativeConfig, Device, ExchangeKind, ModelConfig, Parallelism, RowPlacement, TrainConfig, next_draw_factor,
};

use super::candidate::{Candidate, Choice};
use super::cost::Sources;
use super::found::{Found, Hits};
use super::shape::Shape;
use crate::bench::{Setting, placed};
use crate::system::System;
use gsplit::ui::{Ui, usage};

/// Mini-batches of an epoch that GraNNDis is planned with: full-graph training, and where that does not fit.
const COOPERATIVE: [usize; 3] = [1, 4, 16];

/// Cache of Song and Jiang's systems (section 6), unless another is named.
const SONG_JIANG: CacheSize = CacheSize::Percent(20.0);

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
    /// Hosts that these lie on.
    pub hosts: usize,
    pub device: Device,
    /// Values of the feature rows, if they are not the dataset's.
    pub feature_dim: Option<usize>,
    /// Memory for feature rows of each rank, if it is not what is left.
    pub caches: Vec<CacheSize>,
    /// How many are simulated.
    pub batches: u32,
    /// Further maps.
    pub partitions: Vec<String>,
    /// Whether systems are counted whose seconds stand apart.
    pub apart: bool,
    pub seed: u64,
}

/// The systems with their maps on some number of ranks, and what is counted with them.
struct Counting<'a> {
    question: &'a Question,
    dataset: &'a Dataset,
    presample: &'a Presample,
    ranks: usize,
    /// Mini-batches of an epoch.
    steps: usize,
    drawn: evaluate::Setting,
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
        let steps = dataset.split(Split::Train)?.len().div_ceil(self.batch_size);
        let drawn = evaluate::Setting {
            fanouts: self.fanouts.clone(),
            batch_size: self.batch_size as u64,
            batches: self.batches,
            seed: self.seed,
            draw_by: None,
        };
        let (mut candidates, mut left_out, mut single) = (Vec::new(), Vec::new(), None);
        for &ranks in &self.ranks {
            let (systems, why_not) = self.systems_on(ranks as usize);
            if Some(&ranks) == self.ranks.first() {
                left_out = why_not;
            }
            let (presample, drawn) = (&presample, drawn.clone());
            let counting = Counting { question: self, dataset, presample, ranks: ranks as usize, steps, drawn };
            let (found, one) = counting.count(&systems, ui)?;
            candidates.extend(found);
            single.get_or_insert(one);
        }
        candidates.extend(single);
        let outputs = dataset.manifest().num_classes.unwrap_or(self.model.hidden as u32) as usize;
        let model = &self.model;
        Ok(Found {
            line: format!(
                "{:?}, {} layers of {}, fanouts {}, batches of {}, {} mini-batches counted",
                model.kind, model.layers, model.hidden, self.fanouts, self.batch_size, self.batches
            ),
            steps,
            candidates,
            left_out,
            shape: Shape::new(model.kind, model.layers, [dim, model.hidden, outputs], model.dtype, stored),
            hits: Hits::of(&presample),
            graph_bytes: 8.0 * (dataset.num_vertices() + 1) as f64 + 4.0 * dataset.topology().num_edges() as f64,
            row_bytes: (dim * stored) as f64,
            caches: self.caches.clone(),
        })
    }

    /// The systems that are counted on `ranks` ranks; and those that cannot be, with the reason.
    fn systems_on(&self, ranks: usize) -> (Vec<System>, Vec<(String, String)>) {
        let (mut counted, mut left_out) = (Vec::new(), Vec::new());
        let wanted = |system: &&System| match self.systems.is_empty() {
            true => self.apart || !stands_apart(**system),
            false => self.systems.contains(system),
        };
        for &system in System::value_variants().iter().filter(wanted) {
            let problem = system.problem(self.device).filter(|_| !self.is_counted(system)).map(str::to_string);
            let config = self.setting(ranks).config(system, 1);
            match problem.or_else(|| config.check().err().map(|error| error.to_string())) {
                None => counted.push(system),
                Some(why) => left_out.push((system.name().to_string(), why)),
            }
        }
        (counted, left_out)
    }

    /// Whether what `system` does is counted, though it cannot be run there yet or compared with the others.
    fn is_counted(&self, system: System) -> bool {
        stands_apart(system) || (self.device == Device::Cuda && system.choices().parallelism.slices_columns())
    }

    /// Whether sums may cross in place of rows.
    fn has_sums(&self) -> bool {
        self.model.kind.sums_sources()
    }

    /// What would be wrong with sums in place of rows there.
    fn problem_of_sums(&self) -> Option<String> {
        let config = TrainConfig { device: self.device, ..self.setting(2).config(System::Gsplit, 1) };
        let config = TrainConfig { exchange: ExchangeKind::Auto, ..config };
        config.check().err().map(|error| error.to_string())
    }
}

/// Whether `system` trains on samples of its own.
fn stands_apart(system: System) -> bool {
    matches!(system, System::SongJiang | System::GraNNDis)
}

impl Counting<'_> {
    /// The candidates of `systems`, and one rank.
    fn count(&self, systems: &[System], ui: &Ui) -> anyhow::Result<(Vec<Candidate>, Candidate)> {
        let setting = self.question.setting(self.ranks);
        let alike: Vec<System> = systems.iter().copied().filter(|&system| !stands_apart(system)).collect();
        let mut of_systems = setting.prepare(self.dataset, &alike, ui)?;
        if of_systems.iter().all(|(_, map)| map.is_none()) {
            // Data parallelism is counted beside a map, whichever.
            let any = setting.prepare(self.dataset, &[System::Rand], ui)?;
            of_systems.splice(0..0, any);
        }
        let keys = of_systems.iter().filter_map(|(_, map)| Some(map.as_ref()?.key()));
        let mut keys: Vec<&str> = keys.chain(self.question.partitions.iter().map(String::as_str)).collect();
        keys.sort_unstable();
        keys.dedup();
        let maps = keys.iter().map(|key| PartitionMap::open(self.dataset, key)).collect::<Result<Vec<_>, _>>()?;
        let maps: Vec<PartitionMap> = maps.into_iter().filter(|map| map.num_parts() == self.ranks).collect();
        let evaluation = evaluate::evaluate(self.dataset, &maps, None, &self.drawn, ui)?;
        let of_key = |key: &str| evaluation.maps.iter().find(|map| map.key.as_deref() == Some(key));
        let mut found = Vec::new();
        for (system, map) in of_systems.iter().filter(|(system, _)| systems.contains(system)) {
            let evaluated = map.as_ref().and_then(|map| of_key(map.key())).or(evaluation.maps.first());
            found.extend(
                evaluated.map(|evaluated| self.of_system(*system, evaluated, map.as_ref())).unwrap_or_default(),
            );
        }
        for key in self.question.partitions.iter().filter_map(|key| of_key(key)) {
            found.extend(self.in_part(key, 1..=self.question.model.layers));
        }
        if let (Some(map), true) = (maps.first(), systems.contains(&System::SongJiang)) {
            let usual = [SONG_JIANG];
            let caches = if self.question.caches.is_empty() { &usual[..] } else { &self.question.caches };
            for &cache in caches {
                found.push(self.song_jiang(map, cache, ui)?);
            }
        }
        if systems.contains(&System::GraNNDis) {
            found.extend(self.granndis(ui)?);
        }
        let alone = Choice::rows(Parallelism::Single, 0);
        let one = ("one rank", 1, self.steps);
        let one = Candidate::new(one, alone, &RowPlacement::Replicated, None, self.question, &one_rank(&evaluation));
        Ok((found, one))
    }

    fn candidate(
        &self,
        name: &str,
        way: Choice,
        rows: &RowPlacement,
        map: Option<(&str, u32)>,
        work: &Work,
    ) -> Candidate {
        Candidate::new((name, self.ranks, self.steps), way, rows, map, self.question, work)
    }

    /// A system's row; under GSplit's map those with some layers split; and on GPUs other placements of rows.
    fn of_system(&self, system: System, evaluated: &MapEvaluation, map: Option<&PartitionMap>) -> Vec<Candidate> {
        let (choices, layers) = (system.choices(), self.question.model.layers);
        let parallelism = choices.parallelism;
        let split_layers = if parallelism.splits() { choices.split_layers.unwrap_or(layers).min(layers) } else { 0 };
        let work = match parallelism.needs_map() {
            true => &evaluated.split_layers[split_layers].work,
            false => &evaluated.data_work,
        };
        let way = Choice::rows(parallelism, split_layers);
        let map = map.map(|map| (map.key(), evaluated.servers));
        let of = |name: &str, rows: &RowPlacement| self.candidate(name, way, rows, map, work);
        let problem = system.problem(self.question.device).map(str::to_string);
        let mut found = vec![Candidate { problem, ..of(system.name(), choices.rows()) }];
        match (system, self.question.device) {
            (System::Gsplit, _) => {
                found.extend(self.with_sums("GSplit", evaluated, layers));
                found.extend(self.in_part(evaluated, 1..=layers - 1));
            }
            (System::Dgl, Device::Cuda) => found.push(of("DGL, replicated", &RowPlacement::Replicated)),
            (System::Owned, Device::Cuda) => found.push(of("Owned, peer", &RowPlacement::Peer)),
            _ => {}
        }
        found
    }

    /// The lowest layers split, by this map.
    fn in_part(&self, map: &MapEvaluation, split_layers: std::ops::RangeInclusive<usize>) -> Vec<Candidate> {
        let of = |split_layers: usize| {
            let name = format!("split {split_layers} of {}", self.question.model.layers);
            let rows = self.split(&name, map, Choice::rows(Parallelism::Split, split_layers));
            std::iter::once(rows).chain(self.with_sums(&name, map, split_layers))
        };
        split_layers.flat_map(of).collect()
    }

    /// The same with partial sums, where some layer may have them.
    fn with_sums(&self, name: &str, map: &MapEvaluation, split_layers: usize) -> Option<Candidate> {
        let work = &map.split_layers[split_layers];
        let way = Choice { exchange: ExchangeKind::Auto, ..Choice::rows(Parallelism::Split, split_layers) };
        let problem = self.question.problem_of_sums();
        let made = || Candidate { problem, ..self.split(&format!("{name}, sums"), map, way) };
        (self.question.has_sums() && work.with_sums != work.work).then(made)
    }

    fn split(&self, name: &str, map: &MapEvaluation, way: Choice) -> Candidate {
        let work = &map.split_layers[way.split_layers];
        let work = if way.exchange == ExchangeKind::Rows { &work.work } else { &work.with_sums };
        let map = (map.key.as_deref().unwrap_or_default(), map.servers);
        self.candidate(name, way, &RowPlacement::Partitioned, Some(map), work)
    }

    /// Song and Jiang's placement, stored in the dataset where it has rows, with draws that prefer what a rank keeps. `map` says how many
    /// devices there are.
    fn song_jiang(&self, map: &PartitionMap, cache: CacheSize, ui: &Ui) -> anyhow::Result<Candidate> {
        let options = PlaceOptions {
            cache,
            parallelism: Readers::Data,
            placement: PlacementRule::SongJiang,
            alpha: None,
            host_bandwidth: None,
            peer_bandwidth: None,
        };
        let row_bytes = match self.question.feature_dim {
            Some(dim) => 4 * dim as u64,
            None => row_bytes(self.dataset)?,
        };
        let store = self.question.feature_dim.is_none();
        let (key, kept) = placed(self.dataset, &options, (map, self.presample), (row_bytes, store), ui)?;
        let Local { work, sources: [own, peers, host], factor } =
            evaluate::locality(self.dataset, &kept, &self.drawn, next_draw_factor)?;
        let bytes = (kept.shared.len() + kept.own.iter().map(Vec::len).max().unwrap_or(0)) as f64 * row_bytes as f64;
        let mut candidate = self.candidate(
            &format!("Song & Jiang, {cache}"),
            Choice::rows(Parallelism::Data, 0),
            &RowPlacement::Stored(key),
            None,
            &work,
        );
        if self.question.device == Device::Cpu {
            candidate.options.push(format!("--placement {}", candidate.rows));
        }
        candidate.options.push(format!("--cache {cache} --draw locality"));
        let apart = format!("it draws other samples than the others, rows that a rank keeps {factor} times more often");
        Ok(Candidate { kept: Some((Sources { own, peers, host }, bytes)), apart: Some(apart), ..candidate })
    }

    /// Full-graph training, and with a few mini-batches an epoch.
    fn granndis(&self, ui: &Ui) -> anyhow::Result<Vec<Candidate>> {
        let (system, question) = (System::GraNNDis, self.question);
        let servers = if self.ranks.is_multiple_of(question.hosts) { question.hosts } else { 1 };
        let mut setting = question.setting(self.ranks);
        setting.groups = servers;
        let maps = setting.prepare(self.dataset, &[system], ui)?;
        let Some(map) = maps.first().and_then(|(_, map)| map.as_ref()) else { return Ok(Vec::new()) };
        let (config, layers) = (CooperativeConfig::default(), question.model.layers);
        let train = self.dataset.split(Split::Train)?.len();
        let count = |batches: usize| {
            let (hops, fanout) = (config.hops(), config.fanout());
            let made = Cooperative { batches, counted: 2, layers, hops, fanout, seed: question.seed };
            let work = evaluate::cooperative(self.dataset, map, made)?;
            let name =
                if batches == 1 { system.name().to_string() } else { format!("{}, {batches} batches", system.name()) };
            let way = Choice::rows(Parallelism::Cooperative, layers);
            let what = (name.as_str(), self.ranks, batches);
            let map = Some((map.key(), servers as u32));
            let mut candidate = Candidate::new(what, way, system.choices().rows(), map, question, &work);
            candidate.options.extend((batches > 1).then(|| format!("--batches {batches}")));
            candidate.options.extend((servers > 1).then(|| format!("--groups {servers}")));
            let problem = system.problem(question.device).map(str::to_string);
            let updates = if batches == 1 { "update".to_string() } else { "updates".to_string() };
            let apart = Some(format!("its epoch is {batches} {updates}, on mini-batches of its own"));
            Ok(Candidate { problem, apart, ..candidate })
        };
        COOPERATIVE.into_iter().filter(|&batches| batches <= train).map(count).collect()
    }
}

/// What one rank does.
fn one_rank(evaluation: &evaluate::Evaluation) -> Work {
    let layer = |layer: &evaluate::LayerSize| LayerWork {
        vertices: layer.vertices.mean,
        edges: layer.edges.mean,
        ..LayerWork::default()
    };
    Work {
        layers: evaluation.batch.layers.iter().map(layer).collect(),
        rows_loaded: evaluation.batch.input_rows.mean,
        edge_imbalance: 1.0,
        row_imbalance: 1.0,
    }
}
