//! Waits of a training step on GPUs: the copies to the host, and the counts that the next launch
//! needs. Launches are kernels, copies and fills through `Gpu`, not torch's own.

use gsplit_gpu_sim::{GpuCounts, counts};
use gsplit_kernels::Gpu;
use gsplit_kernels::schedule::Step;
use gsplit_store::NoProgress;

use super::fixture::{Cut, changed, config, dataset, on_ranks, store_partition};
use crate::RowPlacement;
use crate::batch::{Preparation, prepare};
use crate::config::{Config, FeatureNorm, ModelKind, NormKind, Parallelism, TopologyStorage};
use crate::job::{Artifacts, Job};
use crate::model::Model;
use crate::operator::Place;
use crate::optimizer::Optimizer;
use crate::residence::cache::Caches;
use crate::residence::source::{FeatureSource, open_gpu_table};
use crate::residence::topology::{DeviceRoom, Topology};
use crate::step::train_step;
use crate::tests::fixture::Around;

/// Number of steps before the one that is counted.
const WARM_UP: u32 = 2;

/// Results of `seen` for each rank's streams before a step and after it: of the stream that
/// computes, and of the stream on which mini-batches are made ahead, if they are. Some warm-up
/// steps were before.
pub(super) fn one_step<T: Send>(
    config: &Config,
    prefetch: usize,
    place: impl Fn(u32) -> Place,
    seen: impl Fn(&Gpu) -> T + Sync,
) -> Vec<Vec<[T; 2]>> {
    let fixture = dataset(81, 300, 6);
    let ranks = config.num_ranks();
    let partition = (config.system.parallelism == Parallelism::Split)
        .then(|| store_partition(&fixture.dataset, Cut::Random, ranks));
    let config = &changed(config, |config| config.system.partition = partition);
    let options = Around {
        topology: TopologyStorage::Device,
        placement: Some(RowPlacement::Replicated),
        cache: Some(50 * 24),
        prefetch,
        ..Around::default()
    };
    let artifacts = Artifacts::open(&fixture.dataset, config).unwrap();
    let (config, hooks) = &options.of(config);
    let job = Job::new(&fixture.dataset, &artifacts, config, hooks).unwrap();
    let places: Vec<Place> = (0..ranks as u32).map(place).collect();
    let room = DeviceRoom::given(1 << 30, ranks);
    let topology = Topology::new(&job, &places, &room, &NoProgress).unwrap();
    let caches = Caches::new(&job, &places, &[], &NoProgress).unwrap().unwrap();
    let gpus: Vec<_> =
        places.iter().enumerate().map(|(rank, place)| (rank, place.gpu().unwrap())).collect();
    let mut pinned = open_gpu_table(&job.features, Some(gpus[0].1)).unwrap();
    pinned.fill(&caches, &gpus).unwrap();
    on_ranks(ranks, |comm| {
        crate::operator::set_torch_threads(1);
        let place = &places[comm.rank()];
        let gpu = place.gpu().unwrap();
        let source =
            FeatureSource::with_gpu_table(&job.features, place, &pinned, comm.rank()).unwrap();
        let mut sampler = topology.sampler(&job, place, comm.rank()).unwrap();
        let model = Model::with_layers(place, config, job.features.dim(), job.outputs, None, None);
        let mut optimizer = Optimizer::new(model.parameters(), config, 10).unwrap();
        let mut streams = vec![gpu.clone()];
        let mut step = |step: u32, streams: &mut Vec<Gpu>| {
            let step = Step { seed: config.run.seed, epoch: 1, step };
            let with = Preparation { job: &job, source: &source, comm };
            let prepared = prepare(with, &mut sampler, step, &job.train[..60]).unwrap();
            streams.truncate(1);
            streams.extend(
                prepared
                    .batch
                    .sampled
                    .on_gpu
                    .as_ref()
                    .map(|on_gpu| on_gpu.gpu.clone())
                    .filter(|_| prefetch > 0),
            );
            let dropout = config.model.dropout;
            let launched =
                train_step(&model, &mut optimizer, prepared, job.graph, dropout, comm.into())
                    .unwrap();
            let report = launched.finish().unwrap();
            assert!(report.loss > 0.0 && report.gradient_norm > 0.0 && report.work.rows_cached > 0);
        };
        (0..WARM_UP).for_each(|number| step(number, &mut streams));
        let before: Vec<T> = streams.iter().map(&seen).collect();
        step(WARM_UP, &mut streams);
        before.into_iter().zip(&streams).map(|(before, stream)| [before, seen(stream)]).collect()
    })
}

/// Counts of each rank's work in one step, on each stream.
fn counted(config: &Config, prefetch: usize) -> Vec<Vec<GpuCounts>> {
    let difference = |[before, after]: [GpuCounts; 2]| GpuCounts {
        taken: after.taken - before.taken,
        freed: after.freed - before.freed,
        launches: after.launches - before.launches,
        waits: after.waits - before.waits,
        bytes_down: after.bytes_down - before.bytes_down,
    };
    let of_rank = |streams: Vec<[GpuCounts; 2]>| streams.into_iter().map(difference).collect();
    one_step(config, prefetch, Place::emulated, counts).into_iter().map(of_rank).collect()
}

/// Checks each rank's launches and waits in one step of each of `cases`, and that only counts are
/// copied to the host.
fn check(cases: &[(Config, u64, u64)]) {
    check_with(0, cases);
}

/// Like [`check`], with `prefetch` mini-batches made ahead, on both streams together.
fn check_with(prefetch: usize, cases: &[(Config, u64, u64)]) {
    let mut problems = Vec::new();
    for (config, waits, launches) in cases {
        for streams in counted(config, prefetch) {
            let sum = |of: fn(&GpuCounts) -> u64| streams.iter().map(of).sum::<u64>();
            let few = sum(|counts| counts.bytes_down) <= 512 + 64 * waits;
            if sum(|counts| counts.waits) != *waits
                || sum(|counts| counts.launches) > *launches
                || !few
            {
                let (parallelism, model) = (config.system.parallelism, &config.model);
                let what = format!("{:?}, {parallelism}, {:?}", model.kind, model.norm);
                problems.push(format!("{what}: {streams:?}"));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

pub(super) fn three_layers(
    kind: ModelKind,
    parallelism: Parallelism,
    ranks: usize,
    norm: Option<NormKind>,
) -> Config {
    changed(&config(kind, parallelism, ranks), |config| {
        config.data.fanouts = "4,3,2".parse().unwrap();
        config.model.norm = norm;
    })
}

/// One wait, for the numbers of edges and of new vertices of all layers. The numbers of the step
/// are read after the next was launched. If vertices are split, the host waits for these numbers of
/// each layer, with the number that each rank owns, and for the size of the last local frontier.
/// Rows that are changed only add launches.
#[test]
fn a_step_waits_for_the_counts_of_its_layers() {
    use Parallelism::{Data, Single, Split};
    let sage = |parallelism, ranks| three_layers(ModelKind::Sage, parallelism, ranks, None);
    let changed_rows = changed(&sage(Single, 1), |config| {
        (config.model.normalise_features, config.model.input_dropout) = (FeatureNorm::Row, 0.2);
    });
    check(&[
        (sage(Single, 1), 1, 38),
        (changed_rows, 1, 40),
        (sage(Data, 2), 1, 43),
        (sage(Split, 1), 4, 71),
        (sage(Split, 2), 4, 87),
    ]);
}

/// With `--prefetch` the thread that computes waits for no GPU: counts are awaited where
/// mini-batches are made, and there once more, until all work for the mini-batch is done.
#[test]
fn what_is_made_ahead_is_not_waited_for_where_it_is_computed() {
    use Parallelism::{Data, Single, Split};
    let sage = |parallelism, ranks| three_layers(ModelKind::Sage, parallelism, ranks, None);
    let gat = three_layers(ModelKind::Gat, Single, 1, None);
    let computing = [(sage(Single, 1), 13), (sage(Data, 2), 18), (sage(Split, 2), 30), (gat, 45)];
    for (config, launches) in &computing {
        for streams in counted(config, 1) {
            let [GpuCounts { waits, launches: found, .. }, _] = streams[..] else {
                panic!("{streams:?}")
            };
            assert!(
                waits == 0 && found <= *launches,
                "{:?}, {}: {streams:?}",
                config.model.kind,
                config.system.parallelism
            );
        }
    }
    check_with(1, &[(sage(Single, 1), 2, 39), (sage(Data, 2), 2, 44), (sage(Split, 2), 5, 88)]);
}

/// If ranks share rows, batch norm adds only the exchange that counts the ranks with each row.
#[test]
fn batch_norm_waits_for_no_sums() {
    use Parallelism::{Data, Single, Split};
    let normed = |parallelism, ranks| {
        three_layers(ModelKind::Sage, parallelism, ranks, Some(NormKind::Batch))
    };
    check(&[
        (normed(Single, 1), 1, 39),
        (normed(Data, 2), 1 + 2 * 2, 122),
        (normed(Split, 2), 4, 107),
    ]);
}

#[test]
fn no_model_waits_for_more() {
    let single = |&kind: &ModelKind| (three_layers(kind, Parallelism::Single, 1, None), 1, 96);
    check(&ModelKind::ALL.iter().map(single).collect::<Vec<_>>());
    // Dropout of attention weights is drawn by the softmax.
    for kind in [ModelKind::Gat, ModelKind::Gatv2] {
        let (with, ..) = single(&kind);
        let without = changed(&with, |config| config.model.attention_dropout = 0.0);
        assert!(
            with.model.attention_dropout > 0.0 && counted(&with, 0)[0] == counted(&without, 0)[0],
            "{kind:?}"
        );
    }
}
