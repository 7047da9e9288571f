//! Small random datasets with partitions, and groups of ranks to run on.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gsplit_gpu_sim::Emulation;
use gsplit_kernels::{Communicator, Counted, Draws, Stream, StreamKey, Threads};
use gsplit_store::{
    Balance, Baseline, Dataset, DatasetWriter, FeatureDtype, PartitionConfig, PartitionMap,
    PartitionReport, Progress, Provenance, Size, Split,
};
use tempfile::TempDir;

use crate::config::{
    Config, Dtype, FeatureNorm, FeatureStorage, GpuList, JumpingKnowledge, ModelConfig, ModelKind,
    NormKind, Parallelism, Products, RowPlacement, TopologyStorage,
};
use crate::job::hooks::Hooks;
use crate::model::OwnLayer;
use crate::operator::{OwnPlaces, Place};
use crate::ranks::comms::Ranks;
use crate::ranks::process::Process;
use crate::ranks::threads::Abandon;
use crate::{EpochReport, Result, Summary};

/// Number of classes of every fixture.
pub const CLASSES: usize = 4;

/// Number of classes if a vertex can have several.
pub const SEVERAL_CLASSES: usize = 9;

impl Place {
    /// An emulated GPU: slow.
    pub fn emulated(order: u32) -> Self {
        Self::Device(gsplit_gpu_sim::emulated(order), tch::Device::Cpu, Dtype::F32)
    }

    /// The GPU of a test: an emulated one, or GPU 0 if `GSPLIT_TEST_GPU` is set.
    pub fn under_test(order: u32) -> Self {
        match std::env::var_os("GSPLIT_TEST_GPU") {
            None => Self::emulated(order),
            Some(_) => {
                Self::open(0).unwrap_or_else(|error| panic!("GSPLIT_TEST_GPU is set, but {error}"))
            }
        }
    }
}

/// [`Place::under_test`], with this order of threads.
#[derive(Debug)]
struct UnderTest(u32);

impl OwnPlaces for UnderTest {
    fn place(&self, _: usize) -> Result<Place> {
        Ok(Place::under_test(self.0))
    }
}

impl OwnPlaces for Emulation {
    fn place(&self, _: usize) -> Result<Place> {
        Ok(Place::Device(self.gpu(), tch::Device::Cpu, Dtype::F32))
    }
}

/// For a run on GPUs: each rank's is a [`Place::under_test`].
pub fn emulated(order: u32) -> Option<Arc<dyn OwnPlaces>> {
    Some(Arc::new(UnderTest(order)))
}

/// For a run on GPUs that are emulated, even where `GSPLIT_TEST_GPU` is set.
pub fn emulation(emulation: Emulation) -> Option<Arc<dyn OwnPlaces>> {
    Some(Arc::new(emulation))
}

/// A dataset in a folder that is deleted with it.
pub struct Fixture {
    pub dataset: Dataset,
    pub folder: TempDir,
}

/// A graph of `n` vertices whose in-degrees vary from 0 to about `3 * degree`, with 6 features,
/// labels (some unlabelled) and splits, and an edge column `weight` with some zeros. The same seed
/// gives the same graph.
pub fn dataset(seed: u64, n: u32, degree: u32) -> Fixture {
    build(seed, n, degree, 6, false)
}

/// Like [`dataset`], with numbers to learn: 40 plus 7 times the features' sum. Vertices without a
/// class have none.
pub fn numbers(seed: u64, n: u32, degree: u32) -> Fixture {
    build_as(FeatureDtype::F32, seed, n, degree, 6, Learnt::Numbers)
}

/// Like [`dataset`], with features of `dim` values that are stored as `dtype`.
pub fn stored_as(dtype: FeatureDtype, seed: u64, n: u32, degree: u32, dim: usize) -> Fixture {
    build_as(dtype, seed, n, degree, dim, Learnt::Classes)
}

/// Like [`dataset`], with any number of [`SEVERAL_CLASSES`] per vertex.
pub fn several_labels(seed: u64, n: u32, degree: u32) -> Fixture {
    build(seed, n, degree, 6, true)
}

/// Like [`dataset`], with features of `dim` values, and [`several_labels`].
pub fn build(seed: u64, n: u32, degree: u32, dim: usize, several: bool) -> Fixture {
    let learnt = if several { Learnt::Several } else { Learnt::Classes };
    build_as(FeatureDtype::F32, seed, n, degree, dim, learnt)
}

/// Labels of a fixture.
enum Learnt {
    Classes,
    Several,
    Lacking,
    Numbers,
}

fn build_as(
    dtype: FeatureDtype,
    seed: u64,
    n: u32,
    degree: u32,
    dim: usize,
    learnt: Learnt,
) -> Fixture {
    let key = StreamKey::new(seed, Stream::Generate);
    let list = |v: u32| {
        let mut draws = Draws::new(&key, v);
        let list: BTreeSet<u32> =
            (0..draws.below(3 * degree + 1)).map(|_| draws.below(n).min(draws.below(n))).collect();
        Vec::from_iter(list)
    };
    let lists: Vec<Vec<u32>> = (0..n).map(list).collect();
    let num_edges = lists.concat().len() as u32;
    on_graph(&lists, |writer| {
        let mut features = writer.feature_writer(dtype, dim).unwrap();
        let (mut labels, mut numbers) = (Vec::new(), Vec::new());
        for v in 0..n {
            let mut draws = Draws::new(&StreamKey { epoch: 1, ..key }, v);
            let label = draws.below(CLASSES as u32 + 1) as i32 - 1;
            let row: Vec<f32> = (0..dim as i32)
                .map(|i| draws.unit_f32() - 0.5 + if i == label { 0.5 } else { 0.0 })
                .collect();
            features.push_rows(&row).unwrap();
            labels.push(label);
            numbers.push(if label < 0 { f32::NAN } else { 40.0 + 7.0 * row.iter().sum::<f32>() });
        }
        writer.add_features(features, None).unwrap();
        let mut weight = writer.edge_column_writer("weight", "<f4", 1).unwrap();
        let weights = (0..num_edges)
            .map(|edge| Draws::new(&StreamKey { epoch: 2, ..key }, edge).below(9) as f32);
        weight
            .push(&weights.flat_map(|weight| (weight / 4.0).to_le_bytes()).collect::<Vec<u8>>())
            .unwrap();
        writer.add_edge_column("weight", weight).unwrap();
        labels[0] = CLASSES as i32 - 1;
        match learnt {
            Learnt::Numbers => writer.add_numeric_labels(&numbers).unwrap(),
            Learnt::Classes => {
                writer.add_labels(&labels).unwrap();
                writer
                    .name_classes(
                        &(0..CLASSES).map(|class| format!("class {class}")).collect::<Vec<_>>(),
                    )
                    .unwrap();
            }
            Learnt::Several | Learnt::Lacking => {
                // The class in the features, and class 8 for every third vertex; class 7 for none.
                let bits = labels.iter().zip(0u32..).map(|(&label, v)| {
                    let of_features = if label >= 0 { 1 << label } else { 0u16 };
                    of_features | if v % 3 == 0 { 1 << 8 } else { 0 }
                });
                let mut out = writer.multi_label_writer(SEVERAL_CLASSES as u32).unwrap();
                for (bits, v) in bits.zip(0u32..) {
                    let mut draws = Draws::new(&StreamKey { epoch: 3, ..key }, v);
                    let drawn = (0..9).filter(|_| draws.below(3) > 0);
                    let known = match v % 7 {
                        1 => 0,
                        _ => drawn.fold(0u16, |known, class| known | 1 << class) & !(1 << 6),
                    };
                    match learnt {
                        Learnt::Lacking => out
                            .push_known(&(bits & known).to_le_bytes(), &known.to_le_bytes())
                            .unwrap(),
                        _ => out.push(&bits.to_le_bytes()).unwrap(),
                    }
                }
                writer.add_multi_labels(out).unwrap();
            }
        }
        writer.add_split(Split::Train, (0..n).filter(|v| v % 3 != 2).collect()).unwrap();
        writer.add_split(Split::Valid, (0..n).filter(|v| v % 6 == 2).collect()).unwrap();
        writer.add_split(Split::Test, (0..n).filter(|v| v % 6 == 5).collect()).unwrap();
    })
}

/// A dataset on the graph with these in-neighbours, to which `add` adds arrays.
pub fn on_graph(lists: &[Vec<u32>], add: impl FnOnce(&mut DatasetWriter)) -> Fixture {
    let ends = lists.iter().scan(0, |end, list| {
        *end += list.len() as u64;
        Some(*end)
    });
    let indptr: Vec<u64> = [0].into_iter().chain(ends).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut writer =
        DatasetWriter::create(&folder.path().join("ds"), false, &indptr, &lists.concat()).unwrap();
    add(&mut writer);
    Fixture { dataset: writer.finish(provenance()).unwrap(), folder }
}

/// Features of `dim` values.
pub fn add_features(writer: &mut DatasetWriter, dim: usize, rows: &[f32]) {
    let mut features = writer.feature_writer(FeatureDtype::F32, dim).unwrap();
    features.push_rows(rows).unwrap();
    writer.add_features(features, None).unwrap();
}

/// Like [`several_labels`], without a value in about a third of the cells, in all cells of some
/// vertices, and in all of class 6.
pub fn lacking_cells(seed: u64, n: u32, degree: u32) -> Fixture {
    build_as(FeatureDtype::F32, seed, n, degree, 6, Learnt::Lacking)
}

/// Adds any number of `classes` per vertex: a bit for each.
pub fn add_multi_labels(writer: &mut DatasetWriter, classes: u32, rows: &[u8]) {
    let mut out = writer.multi_label_writer(classes).unwrap();
    out.push(rows).unwrap();
    writer.add_multi_labels(out).unwrap();
}

/// A symmetric graph of `n` vertices in communities of 20, each joined to `degree` others of its
/// own, without labels or splits. Features indicate the community, with noise.
pub fn communities(n: u32, degree: u32) -> Fixture {
    const SIZE: u32 = 20;
    let key = StreamKey::new(5, Stream::Generate);
    let mut lists = vec![BTreeSet::new(); n as usize];
    for v in 0..n {
        let mut draws = Draws::new(&key, v);
        for _ in 0..degree {
            let u = v / SIZE * SIZE + draws.below(SIZE);
            if u != v && u < n {
                lists[v as usize].insert(u);
                lists[u as usize].insert(v);
            }
        }
    }
    on_graph(&lists.into_iter().map(Vec::from_iter).collect::<Vec<_>>(), add_community_features)
}

/// Adds features that indicate the communities of 20, with noise.
pub fn add_community_features(writer: &mut DatasetWriter) {
    const SIZE: u32 = 20;
    let key = StreamKey::new(5, Stream::Generate);
    let row = |v: u32| {
        let mut of_community = Draws::new(&StreamKey { epoch: 1, ..key }, v / SIZE);
        let mut own = Draws::new(&StreamKey { epoch: 2, ..key }, v);
        [(); 8].map(|()| of_community.unit_f32() - 0.5 + 0.2 * (own.unit_f32() - 0.5))
    };
    let rows: Vec<f32> = (0..writer.num_vertices() as u32).flat_map(row).collect();
    add_features(writer, 8, &rows);
}

/// The provenance of a dataset made by a test.
pub fn provenance() -> Provenance {
    Provenance {
        tool_version: String::new(),
        command: "test".into(),
        options: serde_json::Value::Null,
        sources: Vec::new(),
        facts: Default::default(),
        decisions: Vec::new(),
        schema: Default::default(),
    }
}

/// Two pairs of vertices, with only a training split.
pub fn without_valid() -> Fixture {
    on_graph(&[1, 0, 3, 2].map(|u| vec![u]), |writer| {
        add_features(writer, 2, &[0.5; 8]);
        writer.add_labels(&[0, 1, 0, 1]).unwrap();
        writer.add_split(Split::Train, (0..4).collect()).unwrap();
    })
}

/// Ways of cutting a graph, from fair to absurd.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    Random,
    Ranges,
    /// Part 0 owns all vertices except one for each other part.
    Lopsided,
}

impl Cut {
    pub const ALL: [Cut; 3] = [Cut::Random, Cut::Ranges, Cut::Lopsided];

    pub fn assignment(self, n: usize, parts: usize) -> Vec<u16> {
        let key = StreamKey::new(9, Stream::Assign);
        let part = |v: usize| match self {
            _ if v < parts => v,
            Cut::Random => Draws::new(&key, v as u32).below(parts as u32) as usize,
            Cut::Ranges => v * parts / n,
            Cut::Lopsided => 0,
        };
        (0..n).map(|v| part(v) as u16).collect()
    }

    /// Key of [`store_partition`].
    pub fn key(self, parts: usize) -> String {
        format!("{self:?}-{parts}").to_lowercase()
    }
}

/// Stores `cut` into `parts` as a partition of `dataset` and returns its key.
pub fn store_partition(dataset: &Dataset, cut: Cut, parts: usize) -> String {
    store_on_servers(dataset, cut, parts, 1)
}

/// Like [`store_partition`], with the parts on `servers`.
pub fn store_on_servers(dataset: &Dataset, cut: Cut, parts: usize, servers: usize) -> String {
    let assignment = cut.assignment(dataset.num_vertices(), parts);
    let mut order: Vec<u32> = (0..assignment.len() as u32).collect();
    order.sort_by_key(|&v| assignment[v as usize]);
    let sizes = (0..parts)
        .map(|part| assignment.iter().filter(|&&p| p as usize == part).count() as u64)
        .collect();
    let config = PartitionConfig {
        parts: parts as u32,
        servers: servers as u32,
        targets: None,
        partitioner: "test".into(),
        weights: "unit".into(),
        epsilon: 1.0,
        seed: 0,
        source: None,
    };
    let report = PartitionReport {
        part_sizes: sizes,
        cut: 0,
        adjacent_pairs: 0,
        weighted_cut: 0,
        total_weight: 0,
        imbalance: 1.0,
        balance: Balance { vertices: 1.0, edges: 1.0, targets: None, work: None },
        expected_cross_share: 0.0,
        expected_cross_edges: None,
        between_servers: None,
        pieces: None,
        own_weights: None,
        of_target: None,
    };
    let key = match servers {
        1 => cut.key(parts),
        _ => format!("{}-on-{servers}", cut.key(parts)),
    };
    PartitionMap::save(dataset, &key, None, config, report, &assignment, &order, true).unwrap();
    key
}

/// A short run on a fixture.
pub fn config(model: ModelKind, parallelism: Parallelism, ranks: usize) -> Config {
    changed(&Config::default(), |config| {
        (config.system.parallelism, config.system.ranks) = (parallelism, Some(ranks));
        (config.model.kind, config.model.hidden, config.model.dropout) = (model, 8, 0.4);
        config.model.heads = if model.attends() { 2 } else { 4 };
        config.model.attention_dropout =
            if matches!(model, ModelKind::Gat | ModelKind::Gatv2) { 0.3 } else { 0.0 };
        config.data.fanouts = "4,3,2".parse().unwrap();
        (config.data.batch_size, config.run.epochs, config.run.seed, config.run.optimizer.lr) =
            (50, 2, 3, 0.01);
    })
}

/// Every kind of model, and the options of models in combinations that use every part of the pass.
pub fn models() -> Vec<ModelConfig> {
    use {JumpingKnowledge as J, ModelKind as M, NormKind as N};
    let base = config(M::Sage, Parallelism::Single, 1).model;
    let with = |kind, norm, residual, jumping_knowledge| ModelConfig {
        kind,
        norm: Some(norm),
        residual,
        jumping_knowledge,
        ..base.clone()
    };
    let plain = M::ALL.iter().map(|&kind| ModelConfig { kind, ..base.clone() });
    plain
        .chain([
            with(M::Sage, N::Layer, true, J::Cat),
            with(M::Gcn, N::Batch, false, J::Max),
            with(M::Gin, N::None, false, J::None),
            with(M::Gin, N::Batch, true, J::None),
            ModelConfig { attention_dropout: 0.3, ..with(M::Gatv2, N::None, true, J::Max) },
            with(M::Resgcn, N::Batch, false, J::None),
            with(M::Resgcn, N::None, false, J::Max),
            with(M::Resgcn, N::Batch, false, J::Cat),
            ModelConfig { input_dropout: 0.3, ..base.clone() },
            ModelConfig {
                normalise_features: FeatureNorm::Row,
                ..with(M::Gcn, N::None, true, J::None)
            },
            ModelConfig {
                normalise_features: FeatureNorm::Row,
                input_dropout: 0.6,
                attention_dropout: 0.6,
                ..with(M::Gat, N::None, false, J::None)
            },
        ])
        .collect()
}

/// `base` with a change.
pub fn changed(base: &Config, change: impl FnOnce(&mut Config)) -> Config {
    let mut config = base.clone();
    change(&mut config);
    config
}

/// Options of a run that affect no results, as tests write them, and hooks.
#[derive(Clone, Debug, Default)]
pub struct Around {
    pub checkpoint: Option<PathBuf>,
    pub resume: bool,
    pub init: Option<PathBuf>,
    pub log: Option<PathBuf>,
    pub tensorboard: Option<PathBuf>,
    pub log_every: u32,
    pub threads: Option<usize>,
    pub products: Option<Products>,
    pub features: FeatureStorage,
    pub memory: Option<u64>,
    pub rows_kept: Option<usize>,
    pub gpus: Option<GpuList>,
    pub placement: Option<RowPlacement>,
    pub cache: Option<u64>,
    pub presample: Option<String>,
    pub topology: TopologyStorage,
    pub places: Option<Arc<dyn OwnPlaces>>,
    pub process: Option<Arc<Process>>,
    pub timeout: Option<Duration>,
    pub trial: Option<u32>,
    pub abandon: Option<Abandon>,
    pub prefetch: usize,
    pub baseline: Option<Arc<OnceLock<Baseline>>>,
    pub stop: Option<&'static AtomicBool>,
    pub layer: Option<OwnLayer>,
}

impl Around {
    /// `config` with these options, and the hooks.
    pub fn of(&self, config: &Config) -> (Config, Hooks) {
        let around = self.clone();
        let mut config = config.clone();
        let run = &mut config.run;
        (run.checkpoint, run.resume, run.init) = (around.checkpoint, around.resume, around.init);
        (run.log, run.tensorboard, run.log_every) =
            (around.log, around.tensorboard, around.log_every);
        run.trial = around.trial;
        run.timeout = around.timeout.map_or(run.timeout, |timeout| timeout.as_secs_f64());
        let system = &mut config.system;
        system.threads = around.threads;
        (system.products, system.load_features) = (around.products, around.features);
        (system.memory, system.cache) =
            (around.memory.map(Size::Bytes), around.cache.map(Size::Bytes));
        (system.gpus, system.placement, system.presample) =
            (around.gpus, around.placement, around.presample);
        (system.topology, system.prefetch) = (around.topology, around.prefetch);
        let Self { process, places, layer, rows_kept, baseline, stop, abandon, .. } = self.clone();
        (
            config,
            Hooks {
                process,
                places,
                layer,
                exact_phases: false,
                rows_kept,
                baseline,
                stop,
                abandon,
            },
        )
    }
}

/// Trains on `dataset` with `config` and what is around it.
pub fn train(
    dataset: &Dataset,
    config: &Config,
    around: &Around,
    progress: &dyn Progress,
    on_epoch: &(dyn Fn(&[EpochReport]) + Sync),
) -> Result<Summary> {
    let (config, hooks) = around.of(config);
    crate::train(dataset, &config, &hooks, progress, on_epoch)
}

/// Fails unless `outcome` is an error of one line that contains `words`.
#[track_caller]
pub fn assert_refused<T>(outcome: crate::Result<T>, words: &str) {
    let line = outcome.err().unwrap_or_else(|| panic!("taken, expected {words}")).to_string();
    assert!(line.contains(words) && !line.contains('\n'), "{line}, expected {words}");
}

/// Runs `body` on each rank of `groups` equal groups and returns the results in rank order.
pub fn on_groups<T: Send>(
    ranks: usize,
    groups: usize,
    body: impl Fn(Ranks<'_>) -> T + Sync,
) -> Vec<T> {
    let ends =
        Threads::group(ranks).into_iter().zip(Threads::groups_within(groups, ranks / groups, None));
    std::thread::scope(|scope| {
        let body = &body;
        let start = |(all, group)| {
            scope.spawn(move || body(Ranks { all: &all as &Threads, group: &group as &Threads }))
        };
        let handles: Vec<_> = ends.map(start).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

/// Runs `body` on each rank and returns the results in rank order.
pub fn on_ranks<T: Send>(ranks: usize, body: impl Fn(&dyn Communicator) -> T + Sync) -> Vec<T> {
    let group = Threads::group(ranks);
    std::thread::scope(|scope| {
        let body = &body;
        let start = |comm| scope.spawn(move || body(&Counted::new(Box::new(comm))));
        let handles: Vec<_> = group.into_iter().map(start).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}
