//! Losses do not depend on where rows are read from and how far ahead mini-batches are prepared.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gsplit_store::{NoProgress, Progress, Stage, Unit};

use super::fixture::{
    Cut, changed, communities, config, dataset, store_on_servers, store_partition,
};
use super::runs::{losses, run};
use crate::config::{FeatureNorm, ModelKind, Parallelism, TaskKind};
use crate::tests::fixture::{Around, train};

#[test]
fn losses_do_not_depend_on_what_is_prepared_ahead() {
    let (fixture, linked) = (dataset(31, 300, 5), communities(200, 4));
    for fixture in [&fixture, &linked] {
        store_partition(&fixture.dataset, Cut::Random, 3);
    }
    let on_servers = store_on_servers(&fixture.dataset, Cut::Random, 4, 2);
    let of = |parallelism, ranks| {
        changed(&config(ModelKind::Sage, parallelism, ranks), |config| config.data.batch_size = 20)
    };
    let normalised = changed(&of(Parallelism::Single, 1), |config| {
        (config.model.normalise_features, config.model.input_dropout) = (FeatureNorm::Row, 0.2);
    });
    let cooperative = changed(&of(Parallelism::Cooperative, 4), |config| {
        (config.system.groups, config.system.partition) = (2, Some(on_servers));
        config.system.cooperative.batches_per_epoch = Some(3);
    });
    let links = |parallelism, ranks| {
        changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
            config.data.task.kind = Some(TaskKind::Link)
        })
    };
    for (fixture, config) in [
        (&fixture, of(Parallelism::Split, 3)),
        (&fixture, changed(&of(Parallelism::Split, 6), |config| config.system.groups = 2)),
        (&fixture, of(Parallelism::Data, 2)),
        (&fixture, of(Parallelism::PushPull, 3)),
        (&fixture, normalised),
        (&fixture, cooperative),
        (&linked, links(Parallelism::Split, 3)),
        (&linked, links(Parallelism::Data, 2)),
        (&linked, links(Parallelism::PushPull, 2)),
    ] {
        let [none, one, many] = [0, 1, 100].map(|prefetch| {
            let summary = run(fixture, &config, &Around { prefetch, ..Around::default() }).unwrap();
            let counts: Vec<_> = summary
                .epochs
                .iter()
                .map(|epoch| (epoch.work.edges, epoch.work.rows_loaded))
                .collect();
            (losses(&summary), counts)
        });
        assert!(one == none && many == none, "{config:?}");
    }
}

#[test]
fn a_run_that_prepares_ahead_stops_when_it_is_asked_to() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let fixture = dataset(32, 300, 5);
    store_partition(&fixture.dataset, Cut::Random, 3);
    let config =
        changed(&config(ModelKind::Sage, Parallelism::Split, 3), |config| config.run.epochs = 50);
    let options = Around { prefetch: 2, stop: Some(&STOP), ..Around::default() };
    let stopped = train(&fixture.dataset, &config, &options, &NoProgress, &|_| {
        STOP.store(true, Ordering::Relaxed)
    });
    assert!(matches!(stopped, Err(crate::Error::Interrupted(_))), "{stopped:?}");
}

/// Remembers the largest number of sampling threads, recognised by their name, seen while a
/// mini-batch was computed.
#[derive(Default)]
struct Threads(AtomicUsize);

impl Progress for &'static Threads {
    fn stage(&self, _: &str, _: Option<u64>, _: Unit) -> Box<dyn Stage> {
        Box::new(*self)
    }

    fn note(&self, _: &str) {}
}

impl Stage for &'static Threads {
    fn advance(&self, _: u64) {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        // A thread may have ended meanwhile.
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        self.0
            .fetch_max(names.filter(|name| name.trim_end() == "sample").count(), Ordering::Relaxed);
    }
}

#[test]
fn losses_do_not_depend_on_the_threads_that_sample() {
    static SEEN: Threads = Threads(AtomicUsize::new(0));
    let fixture = dataset(33, 300, 5);
    store_partition(&fixture.dataset, Cut::Random, 3);
    for (parallelism, ranks) in [(Parallelism::Split, 3), (Parallelism::Single, 1)] {
        let config = changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
            config.data.batch_size = 20
        });
        let run = |sample_threads: Option<usize>, prefetch: usize| {
            let options =
                Around { threads: Some(9), sample_threads, prefetch, ..Around::default() };
            SEEN.0.store(0, Ordering::Relaxed);
            let summary = train(&fixture.dataset, &config, &options, &&SEEN, &|_| {})
                .map_err(|error| error.to_string());
            (summary.map(|summary| losses(&summary)), SEEN.0.load(Ordering::Relaxed))
        };
        let (shared, none) = run(None, 2);
        assert!(shared.is_ok() && none == 0);
        for threads in [1, 2] {
            let (own, seen) = run(Some(threads), 2);
            assert_eq!(own, shared, "{parallelism}, {threads} threads");
            // The other ranks' epochs begin and end at other times.
            assert!(
                (threads..=threads * ranks).contains(&seen),
                "{parallelism}: {seen} threads sample"
            );
        }
        for (threads, prefetch, words) in [
            (0, 1, "--sample-threads 0: expected 1 or more"),
            (1, 0, "--sample-threads 1: needs --prefetch"),
            (9usize.div_ceil(ranks), 1, "leaves none of 9 threads"),
            (usize::MAX, 1, "leaves none of 9 threads"),
        ] {
            let message = run(Some(threads), prefetch).0.unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }
}
