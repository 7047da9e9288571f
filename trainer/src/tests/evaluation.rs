//! Evaluation and inference by several workers: the same bits as by one, and an end if one of them
//! fails.

use std::slice::from_ref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gsplit_kernels::CommError;
use gsplit_store::{Dataset, NoProgress, Progress, Split, Stage, Unit};

use super::fixture::{
    Cut, Fixture, changed, communities, config, dataset, emulated, models, numbers, several_labels,
    store_partition, without_valid,
};
use super::links::link_config;
use super::processes::before;
use super::runs::run;
use crate::config::{Config, Dtype, ModelKind, Parallelism, ScorerKind};
use crate::evaluate::evaluate;
use crate::infer::{Chunk, LayerWise, Room, Team};
use crate::job::{Artifacts, Job};
use crate::model::Model;
use crate::operator::{Engine, Place};
use crate::residence::source::{FeatureSource, open_gpu_table};
use crate::tests::fixture::{Around, train};
use crate::{Error, InferConfig, infer};

/// Adds up the counted items.
#[derive(Default)]
struct Rows(AtomicU64);

impl Stage for Rows {
    fn advance(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

/// Runs `work` with a model with initial parameters at each of `places`.
fn with_team<R>(job: &Job<'_>, places: &[Place], work: impl FnOnce(Team<'_>) -> R) -> R {
    tch::set_num_threads(places.len() as i32);
    let model =
        |place| Model::with_layers(place, job.config, job.features.dim(), job.outputs, None, None);
    let first = model(&places[0]);
    // Changes the parameters of the first model only.
    tch::no_grad(|| {
        first
            .parameters()
            .state()
            .for_each(|(_, tensor)| drop(tensor.shallow_clone().g_add_scalar_(0.01)))
    });
    let others = places[1..].iter().map(|place| {
        let other = model(place);
        other.parameters().copy_from(first.parameters()).unwrap();
        other
    });
    let others: Vec<Model> = others.collect();
    let pinned = places[0].gpu().map(|gpu| open_gpu_table(&job.features, Some(gpu)).unwrap());
    let source = |(worker, place)| match &pinned {
        Some(pinned) => {
            FeatureSource::with_gpu_table(&job.features, place, pinned, worker).unwrap()
        }
        None => FeatureSource::new(&job.features, place),
    };
    let sources: Vec<FeatureSource<'_>> = places.iter().enumerate().map(source).collect();
    work(Team::new(&first, others, &sources))
}

/// Rows of `wanted` that the last two layers return, and whether they needed the disk.
fn rows(
    job: &Job<'_>,
    places: &[Place],
    room: Room<'_>,
    wanted: Option<&[u32]>,
) -> (Vec<Vec<f32>>, bool) {
    with_team(job, places, |team| layer_rows(job, team, room, wanted, job.config.model.layers - 2))
}

/// Rows that each layer from the `lowest` returns, the last only for `wanted`, and whether they
/// needed the disk.
pub fn layer_rows(
    job: &Job<'_>,
    team: Team<'_>,
    room: Room<'_>,
    wanted: Option<&[u32]>,
    lowest: usize,
) -> (Vec<Vec<f32>>, bool) {
    let mut pass = LayerWise::new(team, job.graph, room, None).unwrap();
    let (layers, counted) = (pass.model().num_layers() - lowest, Rows::default());
    let (mut rows, mut seen) = (vec![Vec::new(); layers], vec![Vec::new(); layers]);
    let mut visit = |chunk: Chunk<'_>| {
        rows[chunk.layer - lowest].extend_from_slice(chunk.rows);
        seen[chunk.layer - lowest].extend_from_slice(chunk.vertices);
        Ok(())
    };
    pass.run(lowest, wanted, &counted, &mut visit).unwrap();
    let all: Vec<u32> = (0..job.graph.num_vertices() as u32).collect();
    let (last, others) = seen.split_last().unwrap();
    assert!(
        last == wanted.unwrap_or(&all) && others.iter().all(|seen| *seen == all),
        "each once, in their order"
    );
    assert_eq!(counted.0.into_inner(), pass.num_rows(wanted));
    (rows, pass.spills())
}

/// Scores by this number of `workers` at `place`, and the rows that were counted.
fn scores(job: &Job<'_>, place: &Place, workers: usize) -> (Vec<(Split, Option<f64>)>, u64) {
    let (counted, places) = (Rows::default(), vec![place.clone(); workers]);
    let found = with_team(job, &places, |team| evaluate(team, job, &counted)).unwrap();
    (found.scores, counted.0.into_inner())
}

/// Runs `body` with the job of a run on `config`.
pub fn with_job<R>(dataset: &Dataset, config: &Config, body: impl FnOnce(&Job<'_>) -> R) -> R {
    let artifacts = Artifacts::open(dataset, config).unwrap();
    let (config, hooks) = &Around::default().of(config);
    body(&Job::new(dataset, &artifacts, config, hooks).unwrap())
}

/// Number of values between the layers per vertex, both tables together.
fn hidden_widths(job: &Job<'_>) -> u64 {
    with_team(job, &[Place::host()], |team| {
        (0..2).map(|layer| team.model().out_dim(layer) as u64).sum()
    })
}

/// Memory for chunks of a few vertices, the same for any number of workers.
fn little(bytes: u64, workers: usize) -> Room<'static> {
    Room { bytes: bytes * workers as u64, ..Room::UNLIMITED }
}

#[test]
fn neither_workers_on_the_host_nor_their_memory_change_a_bit() {
    let fixture = dataset(91, 200, 4);
    let host = Place::Host(Engine::in_tiles(Dtype::F32));
    let folder = tempfile::tempdir().unwrap();
    let mut on_disks = 0;
    for (at, shape) in models().into_iter().enumerate() {
        let config = changed(&config(shape.kind, Parallelism::Single, 1), |config| {
            config.model = shape.clone()
        });
        with_job(&fixture.dataset, &config, |job| {
            let subset: Vec<u32> = (0..200).step_by(7).collect();
            let wanted = [None, Some(&subset[..]), Some(&[][..]), Some(&[199][..])][at % 4];
            let expected = rows(job, from_ref(&host), Room::UNLIMITED, wanted).0;
            // One worker, a number that does not divide most chunks, and more than there are
            // chunks.
            for workers in [1, 3, 50] {
                let places = vec![host.clone(); workers];
                let found = rows(job, &places, little(12_000, workers), wanted).0;
                assert!(found == expected, "{shape:?}, {workers} workers");
                let on_disk = Room { scratch: Some(folder.path()), ..little(12_000, workers) };
                let (found, spilled) = rows(job, &places, on_disk, wanted);
                let small = hidden_widths(job) * 200 * 4 <= 12_000 * workers as u64 / 2;
                assert!(
                    found == expected && spilled != small,
                    "{shape:?}, {workers} workers, {spilled}"
                );
                on_disks += u32::from(spilled);
            }
        });
    }
    assert!(on_disks > 0 && std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

/// True if `found` is `expected`: to the bit on an emulated GPU. On a real one torch's products
/// depend on a chunk's number of rows.
fn same_rows(found: &[Vec<f32>], expected: &[Vec<f32>], dtype: Dtype) -> bool {
    if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
        return found == expected;
    }
    let within = if dtype == Dtype::F32 { 1e-4 } else { 0.05 };
    found.iter().zip(expected).all(|(found, expected)| {
        let scale = expected.iter().fold(1f32, |most, value| most.max(value.abs()));
        found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= within * scale)
    })
}

/// Separate GPUs, two workers on each, and a single one; rows on the GPUs, in the host's memory
/// which they read, and on disk.
#[test]
fn workers_on_gpus_compute_what_one_does_to_the_bit() {
    let fixture = dataset(92, 200, 3);
    let folder = tempfile::tempdir().unwrap();
    for (order, dtype) in [(0, Dtype::F32), (1, Dtype::F32), (2, Dtype::Bf16)] {
        let kind = [ModelKind::Sage, ModelKind::Gat, ModelKind::Resgcn][order as usize];
        with_job(&fixture.dataset, &config(kind, Parallelism::Single, 1), |job| {
            let place = |order| Place::under_test(order).with_dtype(dtype);
            let [first, second] = [place(order), place(order + 1)];
            let with = |device_bytes, bytes, workers| Room {
                device_bytes: Some(device_bytes),
                scratch: Some(folder.path()),
                ..little(bytes, workers)
            };
            let expected = rows(job, from_ref(&first), with(1 << 30, 12_000, 1), None).0;
            let apart = [first.clone(), second.clone()];
            let shared = [first.clone(), second.clone(), second.clone(), first.clone()];
            for (places, device_bytes, bytes) in [
                (&apart[..], 1 << 30, 12_000),
                (&shared, 1 << 30, 12_000),
                (&apart, 12_000, 1 << 30),
            ] {
                let (found, spilled) =
                    rows(job, places, with(device_bytes, bytes, places.len()), None);
                assert!(
                    same_rows(&found, &expected, dtype) && !spilled,
                    "{kind:?}, {} workers, {device_bytes}",
                    places.len()
                );
            }
            let (found, spilled) = rows(job, &apart, with(12_000, 12_000, 2), None);
            assert!(
                same_rows(&found, &expected, dtype) && spilled == (dtype == Dtype::F32),
                "{kind:?} on disk"
            );
        });
    }
}

/// Rows between layers are rounded as in training, and take 2 bytes per value wherever they are.
#[test]
fn rows_of_two_bytes_lie_between_layers_in_runs_of_such() {
    let fixture = dataset(99, 120, 4);
    let folder = tempfile::tempdir().unwrap();
    for (order, shape) in (0..).zip(models()).step_by(3) {
        let config = changed(&config(shape.kind, Parallelism::Single, 1), |config| {
            config.model = shape.clone()
        });
        with_job(&fixture.dataset, &config, |job| {
            let exact = rows(job, &[Place::under_test(order % 4)], Room::UNLIMITED, None).0;
            let scale = exact[1].iter().fold(0f32, |most, value| most.max(value.abs()));
            let dtype = [Dtype::Bf16, Dtype::F16][order as usize % 2];
            let place = Place::under_test(order % 4).with_dtype(dtype);
            let (found, _) = rows(job, from_ref(&place), Room::UNLIMITED, None);
            let off =
                found[1].iter().zip(&exact[1]).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            let most = if dtype == Dtype::Bf16 { 0.1 } else { 0.02 };
            assert!(
                found != exact && off < most * scale,
                "{shape:?} in {dtype:?}: {off} of {scale}"
            );
            // The host's memory has room for two tables of 2 bytes per value, not of 4; the GPU's
            // only for chunks.
            let widths = hidden_widths(job);
            let device_bytes = Some(470 * widths);
            let bytes = 120 * widths * 2 * 3;
            let room =
                Room { bytes, scratch: Some(folder.path()), device_bytes, ..Room::UNLIMITED };
            assert!(!rows(job, &[place], room, None).1, "{shape:?} in {dtype:?}");
            assert!(rows(job, &[Place::under_test(0)], room, None).1, "{shape:?} in f32");
        });
    }
}

#[test]
fn scores_do_not_depend_on_the_number_of_workers() {
    let (one, several, linked) =
        (dataset(93, 400, 5), several_labels(94, 400, 5), communities(200, 5));
    let of_numbers = numbers(94, 400, 5);
    let nodes = |metric: &str| {
        changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            config.data.task.metric = Some(metric.parse().unwrap());
        })
    };
    let links = |scorer| {
        changed(&link_config(ModelKind::Gcn, Parallelism::Single, 1), |config| {
            config.data.task.scorer = scorer
        })
    };
    let cases: [(&Fixture, Config); 7] = [
        (&of_numbers, nodes("rmse")),
        (&one, nodes("accuracy")),
        (&one, nodes("macro-f1")),
        (&several, nodes("micro-f1")),
        (&several, nodes("roc-auc")),
        (&linked, links(ScorerKind::Dot)),
        (&linked, links(ScorerKind::Mlp)),
    ];
    for (fixture, config) in cases {
        with_job(&fixture.dataset, &config, |job| {
            for place in [Place::host(), Place::under_test(1)] {
                let expected = scores(job, &place, 1);
                assert!(
                    expected.0.iter().all(|(_, score)| score.is_some_and(|score| score > 0.0)),
                    "{expected:?}"
                );
                for workers in [2, 5] {
                    let found = scores(job, &place, workers);
                    assert_eq!(
                        found, expected,
                        "{:?}, {workers} workers at {place:?}",
                        config.data.task
                    );
                }
            }
        });
    }
}

/// A chunk has the size for a rank of the same process: small graphs are one, a split may have no
/// vertex.
#[test]
fn runs_on_any_number_of_ranks_score_what_inference_does() {
    let fixture = dataset(95, 250, 5);
    store_partition(&fixture.dataset, Cut::Lopsided, 4);
    for (parallelism, order) in
        [(Parallelism::Split, None), (Parallelism::Data, None), (Parallelism::Split, Some(1))]
    {
        let config =
            changed(&config(ModelKind::Gat, parallelism, 4), |config| config.run.epochs = 1);
        let checkpoint = fixture.folder.path().join(format!("{parallelism}-{order:?}"));
        let options = Around {
            checkpoint: Some(checkpoint.clone()),
            places: order.and_then(emulated),
            ..Around::default()
        };
        let summary = run(&fixture, &config, &options).unwrap();
        let last = summary.epochs.last().unwrap();
        let alone =
            InferConfig { checkpoint, places: order.and_then(emulated), ..InferConfig::default() };
        let found = infer(&fixture.dataset, &alone, 1 << 32, None, &NoProgress).unwrap().scores;
        assert_eq!([found[1].1, found[2].1], [last.valid, last.test], "{parallelism}, {order:?}");
        assert!(last.evaluate_s > 0.0);
    }
    let blind = without_valid();
    let config =
        changed(&config(ModelKind::Sage, Parallelism::Data, 3), |config| config.run.epochs = 1);
    let summary = run(&blind, &config, &Around::default()).unwrap();
    assert_eq!((summary.epochs[0].valid, summary.epochs[0].test), (None, None));
}

/// The evaluation of a run: the thread of its first worker once it has begun, whether another has
/// failed, and whether the run shall stop.
#[derive(Debug)]
struct Watched {
    evaluating: Mutex<Option<ThreadId>>,
    failed: AtomicBool,
    stop: AtomicBool,
}

impl Watched {
    const fn new() -> Self {
        Self {
            evaluating: Mutex::new(None),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    /// Fails on all workers except the first, which waits for that.
    fn unless_first(&self, fail: fn() -> crate::Result<()>) -> crate::Result<()> {
        let Some(first) = *self.evaluating.lock().unwrap() else { return Ok(()) };
        if first != thread::current().id() {
            self.failed.store(true, Ordering::Relaxed);
            return fail();
        }
        let started = Instant::now();
        while !self.failed.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Progress for &'static Watched {
    fn stage(&self, name: &str, _total: Option<u64>, _unit: Unit) -> Box<dyn Stage> {
        if name != "evaluate" {
            return Box::new(NoProgress);
        }
        *self.evaluating.lock().unwrap() = Some(thread::current().id());
        Box::new(*self)
    }

    fn note(&self, _line: &str) {}
}

/// Asks to stop when the first rows are counted.
impl Stage for &'static Watched {
    fn advance(&self, _by: u64) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A run of three ranks whose layers call `happens`; it reacts to the stop if it `may_stop`.
fn evaluated(
    fixture: &Fixture,
    run: &'static Watched,
    may_stop: bool,
    happens: fn() -> crate::Result<()>,
) -> Error {
    let config = changed(&config(ModelKind::Sage, Parallelism::Data, 3), |config| {
        (config.data.batch_size, config.run.epochs) = (20_000, 30);
    });
    let (timeout, stop) = (Some(Duration::from_secs(60)), may_stop.then_some(&run.stop));
    let options = Around { layer: Some(before(happens)), timeout, stop, ..Around::default() };
    let started = Instant::now();
    let error = train(&fixture.dataset, &config, &options, &run, &|_| {}).unwrap_err();
    assert!(
        run.evaluating.lock().unwrap().is_some() && started.elapsed() < Duration::from_secs(30)
    );
    error
}

#[test]
fn a_stop_or_a_failure_in_the_evaluation_of_a_worker_ends_all_ranks_with_its_reason() {
    static STOPPED: Watched = Watched::new();
    static FAILED: Watched = Watched::new();
    static PANICKED: Watched = Watched::new();
    // More than one chunk per layer.
    let fixture = dataset(97, 40_000, 1);
    let error = evaluated(&fixture, &STOPPED, true, || Ok(()));
    assert!(matches!(error, Error::Interrupted(_)), "{error}");

    let error = evaluated(&fixture, &FAILED, false, || {
        FAILED.unless_first(|| {
            Err(CommError::Gpu { rank: 9, reason: "the GPU is lost".into() }.into())
        })
    });
    assert!(error.to_string().contains("the GPU is lost"), "{error}");

    let error =
        evaluated(&fixture, &PANICKED, false, || PANICKED.unless_first(|| panic!("a wrong index")));
    assert!(
        matches!(&error, Error::Rank { rank: 1 | 2, reason } if reason == "a wrong index"),
        "{error}"
    );
}

/// Workers that wait to show their chunk do not wait for one that never comes.
#[test]
fn who_is_shown_chunks_may_refuse_one() {
    let fixture = dataset(98, 300, 4);
    with_job(&fixture.dataset, &config(ModelKind::Sage, Parallelism::Single, 1), |job| {
        with_team(job, &vec![Place::host(); 4], |team| {
            let mut pass = LayerWise::new(team, job.graph, little(30_000, 4), None).unwrap();
            let mut shown = 0;
            let mut refuse = |_: Chunk<'_>| {
                shown += 1;
                if shown == 3 { Err(Error::Option("the disk is full".into())) } else { Ok(()) }
            };
            let error = pass.run(1, None, &NoProgress, &mut refuse).unwrap_err();
            assert!(
                error.to_string() == "the disk is full" && shown == 3,
                "{error}, {shown} shown"
            );
        });
    });
}
