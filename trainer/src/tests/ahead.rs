//! Where rows are read from and how far ahead mini-batches are prepared changes no loss.

use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_store::NoProgress;

use super::fixture::{Cut, changed, communities, config, dataset, store_partition};
use super::runs::{losses, run};
use crate::config::{ModelKind, Parallelism, TaskKind, TrainConfig};
use crate::{FeaturePlace, RunOptions, train};

#[test]
fn rows_are_the_same_in_memory_and_mapped() {
    let fixture = dataset(30, 200, 5);
    let config = config(ModelKind::Sage, Parallelism::Data, 2);
    let [copied, mapped] = [FeaturePlace::Memory, FeaturePlace::Mapped]
        .map(|features| losses(&run(&fixture, &config, &RunOptions { features, ..RunOptions::default() }).unwrap()));
    assert_eq!(copied, mapped);
}

#[test]
fn losses_do_not_depend_on_what_is_prepared_ahead() {
    let fixture = dataset(31, 300, 5);
    store_partition(&fixture.dataset, Cut::Random, 3);
    for (parallelism, ranks) in [(Parallelism::Split, 3), (Parallelism::Data, 2), (Parallelism::Single, 1)] {
        let config = changed(&config(ModelKind::Sage, parallelism, ranks), |config| config.batch_size = 20);
        let [none, one, many] = [0, 1, 100].map(|prefetch| {
            let summary = run(&fixture, &config, &RunOptions { prefetch, ..RunOptions::default() }).unwrap();
            let counts: Vec<_> = summary.epochs.iter().map(|epoch| (epoch.edges, epoch.rows_loaded)).collect();
            (losses(&summary), counts)
        });
        assert_eq!(one, none, "{parallelism}");
        assert_eq!(many, none, "{parallelism}");
    }
}

#[test]
fn a_run_that_prepares_ahead_stops_when_it_is_asked_to() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let fixture = dataset(32, 300, 5);
    store_partition(&fixture.dataset, Cut::Random, 3);
    let config = TrainConfig { epochs: 50, ..config(ModelKind::Sage, Parallelism::Split, 3) };
    let options = RunOptions { prefetch: 2, stop: Some(&STOP), ..RunOptions::default() };
    let stopped = train(&fixture.dataset, &config, &options, &NoProgress, &|_| STOP.store(true, Ordering::Relaxed));
    assert!(matches!(stopped, Err(crate::Error::Interrupted)), "{stopped:?}");
}

#[test]
fn links_are_the_same_prepared_ahead() {
    let fixture = communities(200, 4);
    store_partition(&fixture.dataset, Cut::Random, 3);
    for (parallelism, ranks) in [(Parallelism::Split, 3), (Parallelism::Data, 2)] {
        let config = changed(&config(ModelKind::Sage, parallelism, ranks), |config| config.task.kind = TaskKind::Link);
        let [none, many] = [0, 3].map(|prefetch| {
            losses(&run(&fixture, &config, &RunOptions { prefetch, ..RunOptions::default() }).unwrap())
        });
        assert_eq!(many, none, "{parallelism}");
    }
}
