//! What a training step on GPUs brings to the host, and for what the host waits: the counts that the next launch needs. Launches
//! are those of kernels, copies and fills through `Gpu`, not torch's own.

use clap::ValueEnum;
use gsplit_gpu_sim::{GpuCounts, counts};
use gsplit_kernels::schedule::Step;
use gsplit_store::NoProgress;

use super::fixture::{Cut, changed, config, dataset, on_ranks, store_partition};
use crate::cache::Caches;
use crate::config::{FeatureNorm, ModelKind, NormKind, Parallelism, TrainConfig};
use crate::job::{Artifacts, Job};
use crate::model::Model;
use crate::operator::Place;
use crate::optimizer::Optimizer;
use crate::options::TopologyStorage;
use crate::source::{FeatureSource, PinnedRows};
use crate::step::train_step;
use crate::strategy::prepare;
use crate::topology::{DeviceRoom, Topology};
use crate::{RowPlacement, RunOptions};

/// Steps before the one that is counted.
const WARM_UP: u32 = 2;

/// What each rank does in one step, after some others.
fn one_step(config: &TrainConfig, prefetch: usize) -> Vec<GpuCounts> {
    let fixture = dataset(81, 300, 6);
    let ranks = config.num_ranks();
    let partition =
        (config.parallelism == Parallelism::Split).then(|| store_partition(&fixture.dataset, Cut::Random, ranks));
    let config = &TrainConfig { partition, ..config.clone() };
    let options = RunOptions {
        topology: TopologyStorage::Device,
        placement: Some(RowPlacement::Replicated),
        cache: Some(50 * 24),
        prefetch,
        ..RunOptions::default()
    };
    let artifacts = Artifacts::open(&fixture.dataset, config).unwrap();
    let job = Job::new(&fixture.dataset, &artifacts, config, &options).unwrap();
    let places: Vec<Place> = (0..ranks).map(|rank| Place::emulated(rank as u32)).collect();
    let room = DeviceRoom::given(1 << 30, ranks);
    let topology = Topology::new((&fixture.dataset, &job), &places, &options, &room, &NoProgress).unwrap();
    let caches =
        Caches::new(&fixture.dataset, &job, &artifacts, &options, (&places, &[]), &NoProgress).unwrap().unwrap();
    let gpus: Vec<_> = places.iter().enumerate().map(|(rank, place)| (rank, place.gpu().unwrap())).collect();
    let mut pinned = PinnedRows::new(&job.features, gpus[0].1).unwrap().unwrap();
    pinned.fill(&caches, &gpus).unwrap();
    on_ranks(ranks, |comm| {
        tch::set_num_threads(1);
        let place = &places[comm.rank()];
        let gpu = place.gpu().unwrap();
        let source = FeatureSource::pinned(&job.features, place, &pinned, comm.rank()).unwrap();
        let mut sampler = topology.sampler(&job, place, comm.rank()).unwrap();
        let model = Model::with_layers(place, config, job.features.dim(), job.outputs, None);
        let mut optimizer = Optimizer::new(model.parameters(), config, 10).unwrap();
        let mut of_step = counts(gpu);
        for step in 0..=WARM_UP {
            let before = counts(gpu);
            let step = Step { seed: config.seed, epoch: 1, step };
            let prepared = prepare((&job, &source), &mut sampler, step, &job.train[..60], comm).unwrap();
            let how = (job.graph, config.model.dropout);
            let launched = train_step((&model, &mut optimizer), prepared, how, comm.into()).unwrap();
            let report = launched.finish().unwrap();
            assert!(report.loss > 0.0 && report.gradient_norm > 0.0 && report.work.rows_cached > 0);
            let after = counts(gpu);
            of_step = GpuCounts {
                taken: after.taken - before.taken,
                freed: after.freed - before.freed,
                launches: after.launches - before.launches,
                waits: after.waits - before.waits,
                bytes_down: after.bytes_down - before.bytes_down,
            };
        }
        of_step
    })
}

/// Checks each rank's launches and waits in one step of each of `cases`, and that no more than counts come to the host.
fn check(cases: &[(TrainConfig, u64, u64)]) {
    check_with(0, cases);
}

/// The same on the stream that computes, where mini-batches are made ahead on another.
fn check_with(prefetch: usize, cases: &[(TrainConfig, u64, u64)]) {
    let mut problems = Vec::new();
    for (config, waits, launches) in cases {
        for counts in one_step(config, prefetch) {
            let few = counts.bytes_down <= 64 * (waits + 1) && counts.launches <= *launches;
            if counts.waits != *waits || !few {
                let TrainConfig { parallelism, model, .. } = config;
                let ticks = counts.host_ticks();
                problems.push(format!("{:?}, {parallelism}, {:?}: {counts:?}, {ticks} ticks", model.kind, model.norm));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

fn three_layers(kind: ModelKind, parallelism: Parallelism, ranks: usize, norm: Option<NormKind>) -> TrainConfig {
    changed(&config(kind, parallelism, ranks), |config| {
        config.fanouts = "4,3,2".parse().unwrap();
        config.model.norm = norm;
    })
}

/// Three layers: a wait each for the numbers of edges and of new vertices. The numbers of the step are read when the next was launched.
/// Where vertices are split, two more a layer: how many each rank owns, and how many the local frontier has. Rows that
/// are changed add launches alone.
#[test]
fn a_step_waits_for_the_counts_of_its_layers() {
    use Parallelism::{Data, Single, Split};
    let sage = |parallelism, ranks| three_layers(ModelKind::Sage, parallelism, ranks, None);
    let changed_rows = changed(&sage(Single, 1), |config| {
        (config.model.normalise_features, config.model.input_dropout) = (FeatureNorm::Row, 0.2);
    });
    check(&[
        (sage(Single, 1), 3, 67),
        (changed_rows, 3, 69),
        (sage(Data, 2), 3, 72),
        (sage(Split, 1), 3 * 3, 160),
        (sage(Split, 2), 3 * 3, 187),
    ]);
}

/// With `--prefetch` the thread that computes waits for no GPU: counts are waited for where mini-batches are made.
#[test]
fn what_is_made_ahead_is_not_waited_for_where_it_is_computed() {
    use Parallelism::{Data, Single, Split};
    let sage = |parallelism, ranks| three_layers(ModelKind::Sage, parallelism, ranks, None);
    let gat = three_layers(ModelKind::Gat, Single, 1, None);
    check_with(1, &[(sage(Single, 1), 0, 21), (sage(Data, 2), 0, 26), (sage(Split, 2), 0, 36), (gat, 0, 58)]);
}

/// Batch norm over ranks adds the exchange that counts who holds a row, where ranks share rows, and nothing else.
#[test]
fn batch_norm_waits_for_no_sums() {
    use Parallelism::{Data, Single, Split};
    let normed = |parallelism, ranks| three_layers(ModelKind::Sage, parallelism, ranks, Some(NormKind::Batch));
    check(&[(normed(Single, 1), 3, 97), (normed(Data, 2), 3 + 2 * 2, 204), (normed(Split, 2), 3 * 3, 237)]);
}

#[test]
fn no_model_waits_for_more() {
    let single = |&kind: &ModelKind| (three_layers(kind, Parallelism::Single, 1, None), 3, 119);
    check(&ModelKind::value_variants().iter().map(single).collect::<Vec<_>>());
    // Dropout of shares is drawn by the softmax.
    for kind in [ModelKind::Gat, ModelKind::Gatv2] {
        let (with, ..) = single(&kind);
        let without = changed(&with, |config| config.model.attention_dropout = 0.0);
        assert!(with.model.attention_dropout > 0.0 && one_step(&with, 0)[0] == one_step(&without, 0)[0], "{kind:?}");
    }
}
