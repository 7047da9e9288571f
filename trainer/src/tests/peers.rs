//! Ranks that are processes read each other's GPUs: here threads that share nothing but a
//! communicator, on emulated GPUs. (The kernels' tests cover the driver's part between processes.)

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gsplit_gpu_sim::{Emulation, counts};
use gsplit_kernels::{CommError, Threads};
use gsplit_store::{FeatureDtype, NoProgress};

use super::device_room::leaving;
use super::fixture::{
    Cut, Fixture, changed, config, dataset, emulated, emulation, store_partition, stored_as,
};
use super::placement::{found, some_placement, store_placement};
use super::processes::{on_processes, outcomes};
use super::runs::{losses, run};
use crate::config::{Config, ModelKind, Parallelism};
use crate::job::{Artifacts, Job};
use crate::model::Input;
use crate::operator::{Place, gather_features};
use crate::ranks::comms::Comms;
use crate::residence::cache::Caches;
use crate::residence::source::{FeatureSource, open_gpu_table};
use crate::tests::fixture::Around;
use crate::{Error, FeatureStorage, Process, Summary, TopologyStorage};

/// Options of one epoch on `ranks`.
fn quick(parallelism: Parallelism, ranks: usize) -> Config {
    changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
        (config.run.eval_every, config.run.epochs) = (0, 1)
    })
}

fn with(placement: &str) -> Around {
    Around { places: emulated(1), placement: Some(placement.parse().unwrap()), ..Around::default() }
}

#[test]
fn differential_processes_find_the_rows_that_threads_find() {
    let fixture = dataset(81, 150, 5);
    let partition = store_partition(&fixture.dataset, Cut::Random, 3);
    store_placement(&fixture.dataset, "some", &partition, &some_placement(150, 3));
    for (parallelism, placement, rows, prefetch, apart) in [
        (Parallelism::Data, "peer", Some(20), 0, false),
        (Parallelism::Data, "peer", None, 1, false),
        (Parallelism::Data, "peer", Some(20), 0, true),
        (Parallelism::Split, "peer", Some(20), 1, false),
        (Parallelism::Data, "some", Some(40), 0, false),
        (Parallelism::Split, "some", Some(40), 2, false),
        (Parallelism::Data, "partitioned", None, 0, false),
        (Parallelism::Split, "partitioned", Some(20), 0, false),
        (Parallelism::Data, "replicated", Some(20), 0, false),
    ] {
        let config = quick(parallelism, 3);
        let places = emulation(Emulation { order: 1, apart, ..Emulation::default() });
        let options =
            Around { cache: rows.map(|rows| rows * 24), prefetch, places, ..with(placement) };
        let threads = run(&fixture, &config, &options).unwrap();
        let what = format!("{placement}, {parallelism}, {rows:?}, apart: {apart}");
        let [_, own, peers] = found(&threads);
        let reads = !apart
            && placement != "replicated"
            && (placement, parallelism) != ("partitioned", Parallelism::Split);
        assert!(own > 0 && (peers > 0) == reads, "{what}: {peers}");
        for summary in on_processes(&fixture, &config, &options) {
            assert_eq!(losses(&summary), losses(&threads), "{what}");
            assert_eq!(
                (found(&summary), &summary.cache),
                (found(&threads), &threads.cache),
                "{what}"
            );
        }
    }
}

/// One of several processes: the rows it gathers, and the memory of its GPU before and after all
/// have parted.
fn gather_and_part(fixture: &Fixture, config: &Config, process: Process) {
    let (rank, place) = (process.rank(), Place::emulated(process.rank() as u32));
    let gpu = place.gpu().unwrap().clone();
    let places = vec![place.clone(); config.num_ranks()];
    let options = Around { process: Some(Arc::new(process)), cache: Some(20 * 24), ..with("peer") };
    let comm = options.process.as_ref().unwrap().comms().all();
    let artifacts = Artifacts::open(&fixture.dataset, config).unwrap();
    let (config, hooks) = &options.of(config);
    let mut job = Job::new(&fixture.dataset, &artifacts, config, hooks).unwrap();
    job.features = job.features.in_memory().unwrap();
    let caches = Caches::new(&job, &places, &[], &NoProgress);
    let caches = caches.unwrap().unwrap();
    let mut pinned = open_gpu_table(&job.features, Some(&gpu)).unwrap();
    pinned.share(&caches, rank, &gpu, comm).unwrap();
    let vertices: Vec<u32> = (0..job.features.num_rows() as u32).collect();
    let mut stored = vec![f32::NAN; vertices.len() * job.features.dim()];
    gather_features(&job.features, &vertices, &mut stored).unwrap();
    let source = FeatureSource::with_gpu_table(&job.features, &place, &pinned, rank).unwrap();
    let found = source.rows(&vertices, &Input::new(&config.model), 0).unwrap();
    assert_eq!(crate::operator::to_rows(&found).unwrap(), stored, "rank {rank}");
    drop(source);
    let kept = counts(&gpu);
    assert!(kept.taken > kept.freed, "it keeps rows");
    pinned.part(comm).unwrap();
    let kept = counts(&gpu);
    assert_eq!(kept.taken, kept.freed, "rank {rank}");
}

#[test]
fn what_processes_keep_for_each_other_is_freed_when_all_have_closed_it() {
    for dtype in [FeatureDtype::F32, FeatureDtype::I8] {
        let fixture = stored_as(dtype, 85, 120, 4, 6);
        let config = quick(Parallelism::Data, 3);
        let (fixture, config) = (&fixture, &config);
        thread::scope(|scope| {
            for (sampling, all) in Threads::group(3).into_iter().zip(Threads::group(3)) {
                let process =
                    Process::over(Comms::new(Box::new(all), Box::new(sampling), None), Some(0));
                scope.spawn(move || gather_and_part(fixture, config, process));
            }
        });
    }
}

#[test]
fn processes_with_more_room_keep_more_rows_and_all_know_where() {
    let fixture = dataset(82, 150, 5);
    let config = quick(Parallelism::Data, 3);
    let places =
        [0, 1, 2].map(|rank: u64| leaving(1200 - 400 * rank, &fixture.dataset, &config).places);
    let options = |rank: usize| Around {
        places: places[rank].clone(),
        topology: TopologyStorage::Host,
        ..with("peer")
    };
    let plain =
        run(&fixture, &config, &Around { places: emulated(1), ..Around::default() }).unwrap();
    let summaries: Vec<Summary> =
        outcomes(&fixture, &config, options).into_iter().map(Result::unwrap).collect();
    let rows = &summaries[0].cache.as_ref().unwrap().rows;
    assert!(rows[0] > rows[1] && rows[1] > rows[2] && rows[2] > 0 && rows[0] < 150, "{rows:?}");
    for summary in &summaries {
        assert_eq!((losses(summary), &summary.cache), (losses(&plain), &summaries[0].cache));
        assert!(found(summary)[2] > 0);
    }
}

#[test]
fn a_process_whose_rows_are_in_a_file_keeps_what_the_others_read() {
    let fixture = dataset(83, 120, 4);
    let config = quick(Parallelism::Data, 3);
    let options = |features| Around { features, cache: Some(20 * 24), ..with("peer") };
    let features =
        |rank: usize| if rank == 1 { FeatureStorage::Mapped } else { FeatureStorage::Memory };
    let expected = run(&fixture, &config, &options(FeatureStorage::Memory)).unwrap();
    for outcome in outcomes(&fixture, &config, |rank| options(features(rank))) {
        let summary = outcome.unwrap();
        assert_eq!((losses(&summary), found(&summary)), (losses(&expected), found(&expected)));
    }
}

#[test]
fn a_process_that_cannot_keep_rows_ends_the_others_with_its_reason() {
    let fixture = dataset(83, 120, 4);
    let config = quick(Parallelism::Data, 3);
    let cache = |rank: usize| if rank == 1 { 23 } else { 240 };
    let started = Instant::now();
    let outcomes =
        outcomes(&fixture, &config, |rank| Around { cache: Some(cache(rank)), ..with("peer") });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.unwrap_err();
        let line = error.to_string();
        assert!(line.contains("--cache: 23 bytes hold no row"), "rank {rank}: {line}");
        assert_eq!(
            matches!(error, Error::Comm(CommError::PeerFailed { rank: 1, .. })),
            rank != 1,
            "{line}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn processes_that_take_each_other_to_keep_other_rows_are_told() {
    let fixture = dataset(84, 120, 4);
    let config = quick(Parallelism::Data, 2);
    let cache = |rank: u64| Some(24 * (10 + rank));
    let outcomes =
        outcomes(&fixture, &config, |rank| Around { cache: cache(rank as u64), ..with("peer") });
    for outcome in outcomes {
        let line = outcome.unwrap_err().to_string();
        assert!(
            line.contains("keeps other rows than")
                && line.contains("start all with the same options"),
            "{line}"
        );
    }
}
