//! Counts the work of each system for a number of ranks on simulated mini-batches.

use gsplit_partition::evaluate::{self, Cooperative, LayerWork, MapEvaluation, Work};
use gsplit_store::{Dataset, PartitionMap, Split};
use gsplit_trainer::{CooperativeConfig, Device, Parallelism, RowPlacement};

use super::candidate::Candidate;
use super::cost::Way;
use super::question::Question;
use gsplit::ui::Ui;
use gsplit_trainer::systems::{self, System};

/// Numbers of mini-batches per epoch planned for GraNNDis: full-graph training, and smaller parts
/// for when that does not fit.
const COOPERATIVE: [usize; 3] = [1, 4, 16];

/// Counts the work of the systems, with their maps, for a number of ranks.
pub struct Counting<'a> {
    pub question: &'a Question,
    pub dataset: &'a Dataset,
    pub ranks: usize,
    /// Mini-batches per epoch.
    pub steps: usize,
}

impl Counting<'_> {
    /// Candidates for the `systems` that draw mini-batches, and the candidate with one rank.
    pub fn drawn(
        &self,
        systems: &[System],
        ui: &Ui,
    ) -> anyhow::Result<(Vec<Candidate>, Candidate)> {
        let setting = self.question.setting(self.ranks);
        let alike: Vec<System> =
            systems.iter().copied().filter(|system| !system.stands_apart()).collect();
        let mut of_systems = setting.prepare(self.dataset, &alike, ui)?.systems;
        if of_systems.iter().all(|(_, map)| map.is_none()) {
            // Data parallelism needs no map, but is counted with one; any will do.
            let any = setting.prepare(self.dataset, &[systems::RANDOM], ui)?.systems;
            of_systems.splice(0..0, any);
        }
        let keys = of_systems.iter().filter_map(|(_, map)| Some(map.as_ref()?.key()));
        let mut keys: Vec<&str> =
            keys.chain(self.question.partitions.iter().map(String::as_str)).collect();
        keys.sort_unstable();
        keys.dedup();
        let maps = keys.iter().map(|key| PartitionMap::open(self.dataset, key));
        let mut maps = maps.collect::<Result<Vec<_>, _>>()?;
        maps.retain(|map| map.num_parts() == self.ranks);
        let question = self.question;
        let drawn = evaluate::Setting {
            fanouts: question.fanouts.clone(),
            batch_size: question.batch_size as u64,
            batches: question.batches,
            seed: question.seed,
            draw_by: None,
        };
        let evaluation = evaluate::evaluate(self.dataset, &maps, None, &drawn, ui)?;
        let of_key = |key: &str| evaluation.maps.iter().find(|map| map.key.as_deref() == Some(key));
        let mut found = Vec::new();
        for (system, map) in of_systems.iter().filter(|(system, _)| systems.contains(system)) {
            let evaluated = map.as_ref().and_then(|map| of_key(map.key()));
            if let Some(evaluated) = evaluated.or(evaluation.maps.first()) {
                found.extend(self.of_system(*system, evaluated, map.as_ref()));
            }
        }
        for key in self.question.partitions.iter().filter_map(|key| of_key(key)) {
            found.extend(self.in_part(key, 1..=self.question.model.layers));
        }
        let alone = Way { ranks: 1, ..self.way(Parallelism::Single, 0) };
        let (rows, work) = (RowPlacement::Replicated, one_rank(&evaluation));
        Ok((found, Candidate::new("one rank", alone, rows, None, self.question, work)))
    }

    fn way(&self, parallelism: Parallelism, split_layers: usize) -> Way {
        Way::new(parallelism, split_layers, self.ranks, self.steps)
    }

    /// Candidates for a system: the system itself; for GSplit also with only some layers split; on
    /// GPUs also other placements of rows.
    fn of_system(
        &self,
        system: System,
        evaluated: &MapEvaluation,
        map: Option<&PartitionMap>,
    ) -> Vec<Candidate> {
        let (parallelism, layers) = (system.parallelism, self.question.model.layers);
        let split_layers = if parallelism.splits() {
            system.split_layers.unwrap_or(layers).min(layers)
        } else {
            0
        };
        let work = match parallelism.needs_map() {
            true => &evaluated.split_layers[split_layers],
            false => &evaluated.data,
        };
        let (way, question) = (self.way(parallelism, split_layers), self.question);
        let map = map.map(|map| (map.key(), evaluated.servers));
        let of = |name, rows| Candidate::new(name, way, rows, map, question, work.clone());
        let problem = (system.problem)(question.device).map(str::to_string);
        let mut found = vec![Candidate { problem, ..of(system.name, system.rows()) }];
        if system == systems::GSPLIT {
            found.extend(self.in_part(evaluated, 1..=layers - 1));
        } else if question.device == Device::Cuda {
            let replicated = || of("DGL, replicated", RowPlacement::Replicated);
            found.extend((system == systems::DGL).then(replicated));
            found.extend((system == systems::OWNED).then(|| of("Owned, peer", RowPlacement::Peer)));
        }
        found
    }

    /// Candidates that split only the lowest layers, with this map.
    fn in_part(
        &self,
        map: &MapEvaluation,
        split_layers: std::ops::RangeInclusive<usize>,
    ) -> Vec<Candidate> {
        let of = |split_layers: usize| {
            let name = format!("split {split_layers} of {}", self.question.model.layers);
            let (way, rows) =
                (self.way(Parallelism::Split, split_layers), RowPlacement::Partitioned);
            let work = map.split_layers[split_layers].clone();
            let map = (map.key.as_deref().unwrap_or_default(), map.servers);
            Candidate::new(&name, way, rows, Some(map), self.question, work)
        };
        split_layers.map(of).collect()
    }

    /// Candidates whose mini-batches are made once: GraNNDis with full-graph training and with a
    /// few mini-batches per epoch; with several servers also full-graph training split over all of
    /// them.
    pub fn made_once(&self, ui: &Ui) -> anyhow::Result<Vec<Candidate>> {
        let hosts = self.question.hosts;
        let servers = if self.ranks.is_multiple_of(hosts) { hosts } else { 1 };
        let mut setting = self.question.setting(self.ranks);
        setting.groups = servers;
        let maps = setting.prepare(self.dataset, &[systems::GRANNDIS], ui)?.systems;
        let Some(map) = maps.first().and_then(|(_, map)| map.as_ref()) else {
            return Ok(Vec::new());
        };
        let train = self.dataset.split(Split::Train)?.len();
        let of_servers = COOPERATIVE.into_iter().filter(|&batches| batches <= train);
        let ways = of_servers.map(|batches| (batches, servers));
        let ways = ways.chain((servers > 1).then_some((1, 1)));
        ways.map(|(batches, groups)| self.cooperative(map, batches, groups)).collect()
    }

    fn cooperative(
        &self,
        map: &PartitionMap,
        batches: usize,
        groups: usize,
    ) -> anyhow::Result<Candidate> {
        let (system, question, config) =
            (systems::GRANNDIS, self.question, CooperativeConfig::default());
        let made = Cooperative {
            batches,
            groups,
            layers: question.model.layers,
            hops: config.hops(),
            fanout: config.fanout(),
            seed: question.seed,
        };
        let work = evaluate::cooperative(self.dataset, map, made)?;
        let name = match (batches, groups == map.num_servers()) {
            (1, true) => system.name.to_string(),
            (_, true) => format!("{}, {batches} batches", system.name),
            (_, false) => "full graph".to_string(),
        };
        let way = self.way(Parallelism::Cooperative, question.model.layers);
        let (way, of) = (Way { steps: batches, ..way }, (map.key(), map.num_servers() as u32));
        let mut candidate = Candidate::new(&name, way, system.rows(), Some(of), question, work);
        candidate.options.extend((batches > 1).then(|| format!("--batches-per-epoch {batches}")));
        candidate.options.extend((groups > 1).then(|| format!("--groups {groups}")));
        let problem = (system.problem)(question.device).map(str::to_string);
        let updates = if batches == 1 { "update" } else { "updates" };
        let apart = Some(format!("its epoch is {batches} {updates}, on mini-batches of its own"));
        Ok(Candidate { problem, apart, ..candidate })
    }
}

/// Work of a mini-batch with one rank.
fn one_rank(evaluation: &evaluate::Evaluation) -> Work {
    let layer = |layer: &evaluate::LayerSize| LayerWork {
        vertices: layer.vertices,
        edges: layer.edges,
        ..LayerWork::default()
    };
    Work {
        layers: evaluation.batch.layers.iter().map(layer).collect(),
        rows_loaded: evaluation.batch.input_rows,
        edge_imbalance: 1.0,
        row_imbalance: 1.0,
    }
}
