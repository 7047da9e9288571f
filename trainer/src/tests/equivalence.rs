//! Invariant 4: losses and gradients do not depend on parallelism, rank count or partition.

use std::collections::BTreeMap;
use std::slice::from_ref;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Communicator, Sampler, Solo};
use gsplit_store::{Dataset, LinkNegatives, NoProgress, columns_of};

use super::cases::cases;
use super::evaluation::{layer_rows, with_job};
use super::fixture::{
    CLASSES, Cut, Fixture, changed, config, dataset, lacking_cells, models, numbers, on_groups,
    on_ranks, several_labels, store_partition,
};
use super::own_links::with_links;
use super::two_kinds::ratings;
use crate::batch::{Preparation, prepare};
use crate::config::{
    ClassWeights, Config, Device, NormKind, NumberLoss, Parallelism, ScorerKind, TaskConfig,
    TaskKind, TopologyStorage,
};
use crate::infer::{Room, Team};
use crate::job::{Artifacts, Job};
use crate::model::{DropoutKey, Input, Model};
use crate::operator::{Place, to_rows};
use crate::optimizer::Optimizer;
use crate::ranks::clock::Clock;
use crate::ranks::comms::Ranks;
use crate::ranks::traffic::Traffic;
use crate::residence::source::{FeatureSource, load};
use crate::residence::topology::{DeviceRoom, Topology};
use crate::sample::{BatchSampler, sample};
use crate::step::pass::forward;
use crate::step::train_step;
use crate::tests::fixture::Around;

/// Bytes of a GPU's memory, enough for everything that a test stores there.
pub const ENOUGH: u64 = 1 << 40;

/// Loss and summed gradient of the mini-batch `batch`, with the initial weights.
pub fn loss_and_gradient(
    (job, topology): (&Job<'_>, &Topology<'_>),
    place: &Place,
    batch: &[u32],
    comm: Ranks<'_>,
) -> (f64, Vec<f32>) {
    let config = job.config;
    let step = Step { seed: config.run.seed, epoch: 1, step: 0 };
    let model = job.model(place);
    let mut optimizer = Optimizer::new(model.parameters(), config, 1).unwrap();
    let mut sampler = topology.sampler(job, place, comm.all.rank()).unwrap();
    let slice = match config.system.parallelism.slices_columns() {
        true => job.features.columns(columns_of(
            job.features.dim(),
            comm.group.rank(),
            comm.group.size(),
        )),
        false => job.features.clone(),
    };
    let source = FeatureSource::new(&slice, place);
    let with = Preparation { job, source: &source, comm: comm.group };
    let prepared = prepare(with, &mut sampler, step, batch).unwrap();
    let launched =
        train_step(&model, &mut optimizer, prepared, job.graph, config.model.dropout, comm)
            .unwrap();
    let report = launched.finish().unwrap();
    let report = report.reduce(comm.all).unwrap();
    // After one step Adam's first moment is the gradient times 1 - β₁.
    let mut moments = to_rows(optimizer.state()[0].1).unwrap();
    for learnt in model.parameters().embeddings().map_or(Vec::new(), |of| of.state(1).unwrap()) {
        moments.extend_from_slice(&learnt.values);
    }
    (report.loss, moments.iter().map(|moment| moment * 10.0).collect())
}

/// [`loss_and_gradient`] with ranks at `place` and the graph in `topology`. All ranks agree, to the
/// bit.
pub fn run_at(
    (place, topology): (&Place, TopologyStorage),
    dataset: &Dataset,
    config: &Config,
    batch: &[u32],
) -> (f64, Vec<f32>) {
    let options = Around { topology, ..Around::default() };
    let artifacts = Artifacts::open(dataset, config).unwrap();
    let (config, hooks) = &options.of(config);
    let job = Job::new(dataset, &artifacts, config, hooks).unwrap();
    let places = vec![place.clone(); config.num_ranks()];
    let room = DeviceRoom::given(ENOUGH, config.num_ranks());
    let topology = Topology::new(&job, &places, &room, &NoProgress).unwrap();
    let mut results = on_groups(config.num_ranks(), config.system.groups, |comm| {
        crate::operator::set_torch_threads(1);
        loss_and_gradient((&job, &topology), place, batch, comm)
    });
    let first = results.remove(0);
    for other in results {
        assert_eq!(first, other, "all ranks hold the same loss and gradient, to the bit");
    }
    first
}

/// [`run_at`] on the host.
pub fn run(dataset: &Dataset, config: &Config, batch: &[u32]) -> (f64, Vec<f32>) {
    run_at((&Place::host(), TopologyStorage::Auto), dataset, config, batch)
}

/// Largest difference, relative to the largest value.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, f32::max);
    let scale = largest(&mut b.iter().map(|value| value.abs()));
    largest(&mut a.iter().zip(b).map(|(a, b)| (a - b).abs())) / scale
}

/// Columns of the edges that a case sums by and draws by.
const EDGES: [[Option<&str>; 2]; 4] = [
    [None, None],
    [Some("weight"), None],
    [None, Some("weight")],
    [Some("weight"), Some("weight")],
];
/// Parallelism, and the number of split layers under split.
const SHARED: [(Parallelism, Option<usize>); 8] = [
    (Parallelism::Single, None),
    (Parallelism::Data, None),
    (Parallelism::PushPull, None),
    (Parallelism::Owned, None),
    (Parallelism::Split, Some(0)),
    (Parallelism::Split, Some(1)),
    (Parallelism::Split, Some(2)),
    (Parallelism::Split, Some(3)),
];
/// Number of groups, and of ranks per group.
const RANKS: [(usize, usize); 9] =
    [(1, 1), (1, 2), (1, 3), (1, 4), (1, 8), (2, 2), (4, 2), (3, 1), (2, 4)];
/// Sizes of a mini-batch: with 2 seeds most ranks have none.
const SEEDS: [usize; 2] = [30, 2];
/// Storages of the graph, for ranks on GPUs.
const ON_GPUS: [Option<TopologyStorage>; 5] = [
    None,
    Some(TopologyStorage::Host),
    Some(TopologyStorage::Pinned),
    Some(TopologyStorage::Device),
    Some(TopologyStorage::Part),
];

/// The property is split into several tests, which run in parallel.
#[test]
fn loss_and_gradients_are_equal_however_the_work_is_shared() {
    loss_and_gradients_are_equal(0);
}

#[test]
fn loss_and_gradients_are_equal_however_the_work_is_shared_in_the_second_quarter_of_the_cases() {
    loss_and_gradients_are_equal(1);
}

#[test]
fn loss_and_gradients_are_equal_however_the_work_is_shared_in_the_third_quarter_of_the_cases() {
    loss_and_gradients_are_equal(2);
}

#[test]
fn loss_and_gradients_are_equal_however_the_work_is_shared_in_the_last_quarter_of_the_cases() {
    loss_and_gradients_are_equal(3);
}

/// Datasets and tasks, with every kind of loss.
fn tasks() -> Vec<(Fixture, TaskConfig)> {
    let default = TaskConfig::default;
    let regression =
        |loss| TaskConfig { kind: Some(TaskKind::Regression), loss: Some(loss), ..default() };
    let weighted = |weights| TaskConfig { class_weights: Some(weights), ..default() };
    let link =
        |scorer| TaskConfig { kind: Some(TaskKind::Link), scorer, negatives: 3, ..default() };
    vec![
        (dataset(11, 200, 6), default()),
        (several_labels(14, 200, 6), default()),
        (numbers(41, 200, 6), regression(NumberLoss::Mse)),
        (numbers(42, 200, 6), regression(NumberLoss::Mae)),
        (dataset(44, 200, 6), weighted(ClassWeights::Each(vec![0.5, 1.0, 4.0, 2.0]))),
        (several_labels(45, 200, 6), weighted(ClassWeights::Balanced)),
        (lacking_cells(46, 200, 6), default()),
        (dataset(43, 200, 6), link(ScorerKind::Dot)),
        (dataset(43, 200, 6), link(ScorerKind::Mlp)),
        (ratings(5, true, false), link(ScorerKind::Dot)),
        (with_links(Some(LinkNegatives::Pairs), "hits@50", false), link(ScorerKind::Dot)),
    ]
}

/// Tries every fourth case of a covering array. Its factors are the task, the model, the columns of
/// weights, the parallelism, the number of groups and ranks, the cut, the size of the mini-batch,
/// activation checkpointing, and the place of the ranks and of the graph.
fn loss_and_gradients_are_equal(quarter: usize) {
    let (tasks, models) = (tasks(), models());
    let config_of = |case: &[usize]| {
        let &[task, model, edges, shared, ranks, cut, _, checkpointing, _] = case else {
            unreachable!()
        };
        let ((parallelism, split_layers), (groups, ranks)) = (SHARED[shared], RANKS[ranks]);
        changed(&config(models[model].kind, parallelism, groups * ranks), |config| {
            (config.model, config.data.task) = (models[model].clone(), tasks[task].1.clone());
            config.model.checkpoint_activations = checkpointing == 1;
            [config.data.edge_weights, config.data.draw_by] =
                EDGES[edges].map(|name| name.map(String::from));
            (config.system.groups, config.system.split_layers) = (groups, split_layers);
            config.system.partition = parallelism.needs_map().then(|| Cut::ALL[cut].key(ranks));
            // With the usual seed all of GIN's few hidden values are zero here.
            config.run.seed = 5;
        })
    };
    let allowed = |case: &[usize]| {
        let &[task, _, edges, shared, ranks, cut, _, _, place] = case else { unreachable!() };
        let (parallelism, split_layers) = SHARED[shared];
        let device = if ON_GPUS[place].is_some() { Device::Cuda } else { Device::Cpu };
        // A cut that is not read would count as tried.
        (cut == 0 || parallelism.needs_map())
            && (ON_GPUS[place] != Some(TopologyStorage::Part) || split_layers == Some(3))
            // Emulated GPUs are slow.
            && (ON_GPUS[place].is_none() || RANKS[ranks].0 * RANKS[ranks].1 <= 4)
            // Only the host draws with weights.
            && (edges == 0 || matches!(ON_GPUS[place], None | Some(TopologyStorage::Host)))
            && (edges == 0 || tasks[task].0.dataset.edge_weights("weight").is_ok())
            && changed(&config_of(case), |config| config.system.device = device).check().is_ok()
    };
    let sizes =
        [EDGES.len(), SHARED.len(), RANKS.len(), Cut::ALL.len(), SEEDS.len(), 2, ON_GPUS.len()];
    let levels = [&[tasks.len(), models.len()], &sizes[..]].concat();
    // Loss and gradient of one rank, by task, model, columns and size.
    let mut alone = BTreeMap::new();
    for (order, case) in (0..).zip(cases(&levels, allowed)).skip(quarter).step_by(4) {
        let [task, model, edges, _, ranks, cut, size, _, place] = case[..] else { unreachable!() };
        let (dataset, config) = (&tasks[task].0.dataset, config_of(&case));
        if config.system.partition.is_some() {
            store_partition(dataset, Cut::ALL[cut], RANKS[ranks].1);
        }
        let batch = &items(dataset, &config)[..SEEDS[size]];
        let mut of_one = |edges: usize| {
            let one =
                || run(dataset, &config_of(&[task, model, edges, 0, 0, 0, size, 0, 0]), batch);
            alone.entry((task, model, edges, size)).or_insert_with(one).clone()
        };
        let (loss, gradient) = of_one(edges);
        let what = format!("{case:?}: {config:?}, {} seeds, {:?}", SEEDS[size], ON_GPUS[place]);
        assert!(loss.is_finite() && gradient.iter().any(|&value| value != 0.0), "{what}");
        // The hidden values of a small model may all be zero with 2 seeds.
        if edges > 0 && SEEDS[size] > 2 {
            assert_ne!(of_one(0).0, loss, "{what}: weights make a difference");
        }
        let (other_loss, other_gradient) = match ON_GPUS[place] {
            Some(graph) => run_at((&Place::under_test(order % 4), graph), dataset, &config, batch),
            None => run(dataset, &config, batch),
        };
        if config.system.parallelism == Parallelism::Single && ON_GPUS[place].is_none() {
            assert!(
                (other_loss, &other_gradient) == (loss, &gradient),
                "{what}: checkpointing changes nothing"
            );
        }
        let off = distance(&other_gradient, &gradient);
        assert!(
            (loss - other_loss).abs() <= 1e-5 * loss,
            "{what}: loss {other_loss}, expected {loss}"
        );
        // The gradient of a batch norm over few rows is a small difference of large numbers.
        let most = match config.model.norm {
            Some(NormKind::Batch) if SEEDS[size] == 2 => 1e-3,
            _ if ON_GPUS[place].is_some() => 2e-5,
            _ => 1e-5,
        };
        assert!(off <= most, "{what}: gradients differ by {off}");
    }
}

/// The training vertices or edges of a run.
pub fn items(dataset: &Dataset, config: &Config) -> Vec<u32> {
    with_job(dataset, config, |job| job.train.to_vec())
}

/// The logits of `seeds` from a mini-batch that `sampler` draws.
pub fn sampled_logits(
    (job, model): (&Job<'_>, &Model),
    sampler: &mut BatchSampler<'_>,
    seeds: &[u32],
    step: Step,
    dropout: Option<DropoutKey>,
) -> Vec<f32> {
    let (solo, place): (&dyn Communicator, _) = (&Solo, Place::host());
    let mine = job.batch(seeds, step, solo).unwrap().0;
    let sampled =
        sample(sampler, mine, &job.config.data.fanouts, step, &job.frontiers, solo).unwrap();
    let input = match dropout {
        Some(_) => Input::training(&job.config.model, step),
        None => Input::new(&job.config.model),
    };
    let source = FeatureSource::new(&job.features, &place);
    let loaded = load(&source, sampled, &input, false, false, solo).unwrap();
    let mut clock = Clock::start(solo.into(), Traffic::default());
    to_rows(
        forward(model, loaded, None, job.graph, dropout, solo.into(), &mut clock).unwrap().logits(),
    )
    .unwrap()
}

/// The logits of all vertices, layer by layer.
pub fn all_logits(job: &Job<'_>, model: &Model) -> Vec<f32> {
    let source = FeatureSource::new(&job.features, model.place());
    let team = Team::new(model, Vec::new(), from_ref(&source));
    let (mut rows, _) = layer_rows(job, team, Room::UNLIMITED, None, model.num_layers() - 1);
    rows.remove(0)
}

#[test]
fn oracle_inference_is_forward_with_all_neighbours() {
    let fixture = dataset(13, 300, 6);
    let weighted = models()
        .into_iter()
        .filter(|model| model.kind.sums_sources())
        .map(|model| (model, Some("weight")));
    for (model, edge_weights) in models().into_iter().map(|model| (model, None)).chain(weighted) {
        let config = changed(&config(model.kind, Parallelism::Single, 1), |config| {
            config.data.fanouts = "all,all,all".parse().unwrap();
            config.model = model.clone();
            config.data.edge_weights = edge_weights.map(String::from);
            // With the usual seed all of GIN's few hidden values are zero here.
            config.run.seed = 5;
        });
        let artifacts = Artifacts::open(&fixture.dataset, &config).unwrap();
        let options = Around::default();
        let (config, hooks) = &options.of(&config);
        let job = Job::new(&fixture.dataset, &artifacts, config, hooks).unwrap();
        let model = Model::new(config, job.features.dim(), job.outputs);
        let pass = |seeds: &[u32], dropout: Option<DropoutKey>| {
            let step = Step { seed: config.run.seed, epoch: 1, step: 0 };
            let mut sampler = BatchSampler::on_host(Sampler::new(2), job.graph, &Place::host());
            sampled_logits((&job, &model), &mut sampler, seeds, step, dropout)
        };
        // Makes running statistics differ from the initial ones.
        let trained = pass(
            &(0..200).collect::<Vec<_>>(),
            Some(DropoutKey { probability: 0.3, step: Step { seed: 1, epoch: 1, step: 1 } }),
        );
        let logits = all_logits(&job, &model);
        let seeds: Vec<u32> = (0..300).step_by(7).collect();
        let forward = pass(&seeds, None);
        let rows =
            seeds.iter().flat_map(|&v| &logits[v as usize * CLASSES..(v as usize + 1) * CLASSES]);
        let inferred: Vec<f32> = rows.copied().collect();
        let off = distance(&forward, &inferred);
        assert!(off < 1e-5, "{:?}: off by {off}", config.model);
        assert!(trained.iter().all(|value| value.is_finite()));
        // The only difference is dropout of attention, which is drawn by seed, epoch and step, and
        // only in training.
        let drawn = |(seed, epoch, step)| {
            let step = Step { seed, epoch, step };
            pass(&seeds, Some(DropoutKey { probability: 0.0, step }))
        };
        let once = drawn((1, 1, 1));
        assert_eq!(once, drawn((1, 1, 1)));
        for other in [(2, 1, 1), (1, 2, 1), (1, 1, 2)] {
            assert_eq!(
                drawn(other) == once,
                config.model.attention_dropout == 0.0,
                "{:?}",
                config.model
            );
        }
    }
}

#[test]
fn every_rank_starts_from_the_same_parameters() {
    for model in models() {
        let config = changed(&config(model.kind, Parallelism::Data, 3), |config| {
            config.model = model.clone()
        });
        let state = |model: &Model| -> Vec<(String, Vec<f32>)> {
            model
                .parameters()
                .state()
                .map(|(name, tensor)| (name.to_string(), to_rows(tensor).unwrap()))
                .collect()
        };
        let mut ranks = on_ranks(3, |_| state(&Model::new(&config, 6, CLASSES)));
        let first = ranks.remove(0);
        assert!(ranks.iter().all(|other| *other == first), "{model:?}");
        let names: std::collections::BTreeSet<&String> =
            first.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), first.len(), "{model:?}: a name for each");
        let other = state(&Model::new(&changed(&config, |config| config.run.seed = 4), 6, CLASSES));
        assert_ne!(other, first);
    }
}
