//! Losses do not depend on where rows are read from and how far ahead mini-batches are prepared.

use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_store::NoProgress;

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
