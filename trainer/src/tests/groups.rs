//! Groups of ranks: each trains split-parallel on its share of every mini-batch, and all together as data parallelism with a rank
//! for each group does.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gsplit_kernels::{CommError, Communicator, Threads};
use gsplit_store::Dataset;

use super::fixture::{Cut, changed, communities, config, dataset, emulated, store_partition};
use super::processes::{before, lose_first, on_processes};
use super::runs::{losses, run};
use crate::config::{ModelKind, NormKind, Parallelism, TaskKind, TrainConfig};
use crate::{Error, Process, RowPlacement, RunOptions, Summary};

/// `base` on `groups` of `ranks` each, by a partition map of `cut`.
fn grouped(dataset: &Dataset, base: &TrainConfig, groups: usize, ranks: usize, cut: Cut) -> TrainConfig {
    let partition = Some(store_partition(dataset, cut, ranks));
    TrainConfig { parallelism: Parallelism::Split, ranks: Some(groups * ranks), groups, partition, ..base.clone() }
}

/// Counts that are exact.
fn counts(summary: &Summary) -> Vec<(u64, u64)> {
    summary.epochs.iter().map(|epoch| (epoch.work.edges, epoch.work.rows_loaded)).collect()
}

fn assert_near(found: &Summary, expected: &Summary, what: &str) {
    assert_eq!(found.epochs.len(), expected.epochs.len(), "{what}");
    for (found, expected) in found.epochs.iter().zip(&expected.epochs) {
        assert!((found.loss - expected.loss).abs() <= 1e-4 * expected.loss, "{what}: {found:?}, expected {expected:?}");
    }
}

#[test]
fn a_run_on_groups_is_one_of_data_parallelism_with_a_rank_for_each() {
    let fixture = dataset(82, 150, 4);
    let dataset = &fixture.dataset;
    let base = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| config.batch_size = 40);
    for (order, sizes) in [(None, &[1, 4][..]), (Some(1), &[2])] {
        let options = RunOptions { places: order.and_then(emulated), ..RunOptions::default() };
        let data = run(&fixture, &base, &options).unwrap();
        for &ranks in sizes {
            let what = format!("2 groups of {ranks}, {order:?}");
            let config = grouped(dataset, &base, 2, ranks, Cut::Random);
            let found = run(&fixture, &config, &options).unwrap();
            // Every group samples and loads what the one rank of data parallelism does, once.
            assert_eq!(counts(&found), counts(&data), "{what}");
            assert_near(&found, &data, &what);
            let exchanged = found.epochs.iter().map(|epoch| epoch.work.rows_exchanged).sum::<u64>();
            assert_eq!(exchanged > 0, ranks > 1, "{what}");
            let ahead = run(&fixture, &config, &RunOptions { prefetch: 2, ..options.clone() }).unwrap();
            assert_eq!((losses(&ahead), counts(&ahead)), (losses(&found), counts(&found)), "{what}, ahead");
        }
        // One group is split parallelism itself, to the bit.
        let split = TrainConfig { groups: 1, ..grouped(dataset, &base, 1, 3, Cut::Random) };
        let ungrouped =
            TrainConfig { parallelism: Parallelism::Split, ranks: Some(3), partition: None, ..base.clone() };
        let [one, other] = [&split, &ungrouped].map(|config| losses(&run(&fixture, config, &options).unwrap()));
        assert_eq!(one, other);
    }
}

#[test]
fn links_are_learnt_alike_on_groups() {
    let fixture = communities(300, 4);
    let base = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.task.kind, config.epochs, config.batch_size) = (Some(TaskKind::Link), 1, 64);
    });
    let single = run(&fixture, &base, &RunOptions::default()).unwrap();
    for (groups, ranks) in [(2, 2), (3, 2)] {
        let config = grouped(&fixture.dataset, &base, groups, ranks, Cut::Random);
        assert_near(&run(&fixture, &config, &RunOptions::default()).unwrap(), &single, &format!("{groups} of {ranks}"));
    }
}

#[test]
fn a_resumed_run_on_groups_continues_exactly_and_with_the_same_groups() {
    let fixture = dataset(83, 200, 5);
    let base = changed(&config(ModelKind::Gcn, Parallelism::Split, 4), |config| {
        (config.model.norm, config.epochs) = (Some(NormKind::Batch), 3);
    });
    let whole = grouped(&fixture.dataset, &base, 2, 2, Cut::Random);
    let kept = |resume| RunOptions {
        checkpoint: Some(fixture.folder.path().join("kept")),
        resume,
        threads: Some(2),
        ..RunOptions::default()
    };
    let straight = run(&fixture, &whole, &RunOptions { threads: Some(2), ..RunOptions::default() }).unwrap();
    let first = run(&fixture, &TrainConfig { epochs: 1, ..whole.clone() }, &kept(false)).unwrap();
    let rest = run(&fixture, &whole, &kept(true)).unwrap();
    assert_eq!([losses(&first), losses(&rest)].concat(), losses(&straight));
    let other = grouped(&fixture.dataset, &base, 1, 2, Cut::Random);
    let message = run(&fixture, &other, &kept(true)).unwrap_err().to_string();
    assert!(message.contains("--groups is 1, the checkpoint has 2"), "{message}");
}

#[test]
fn each_group_keeps_the_rows_of_all_parts_on_its_gpus() {
    let fixture = dataset(84, 100, 4);
    let base = changed(&config(ModelKind::Sage, Parallelism::Split, 4), |config| {
        (config.eval_every, config.epochs) = (0, 1);
    });
    let config = grouped(&fixture.dataset, &base, 2, 2, Cut::Random);
    let with = |placement: Option<RowPlacement>| {
        let options = RunOptions { places: emulated(1), placement, ..RunOptions::default() };
        run(&fixture, &config, &options).unwrap()
    };
    let plain = with(None);
    for placement in [RowPlacement::Partitioned, RowPlacement::Replicated, RowPlacement::Peer] {
        let found = with(Some(placement.clone()));
        assert_eq!((losses(&found), counts(&found)), (losses(&plain), counts(&plain)), "{placement}");
        let rows = found.cache.as_ref().unwrap().rows.clone();
        let own = found.epochs.iter().all(|epoch| epoch.work.rows_cached == epoch.work.rows_loaded);
        match placement {
            RowPlacement::Partitioned => assert_eq!((own, rows[0] + rows[1], &rows[..2]), (true, 100, &rows[2..])),
            RowPlacement::Replicated => assert_eq!((own, rows), (true, vec![100; 4])),
            _ => assert_eq!(rows, [25; 4], "once over all GPUs"),
        }
    }
}

#[test]
fn processes_in_groups_train_as_threads_do() {
    let fixture = dataset(85, 100, 4);
    let base = changed(&config(ModelKind::Sage, Parallelism::Split, 4), |config| config.epochs = 1);
    let config = grouped(&fixture.dataset, &base, 2, 2, Cut::Random);
    for order in [None, Some(3)] {
        let options = |threads| RunOptions {
            places: order.and_then(emulated),
            prefetch: 1,
            threads: Some(threads),
            ..RunOptions::default()
        };
        let threads = run(&fixture, &config, &options(4)).unwrap();
        for summary in on_processes(&fixture, &config, &options(1)) {
            assert_eq!(losses(&summary), losses(&threads), "{order:?}");
        }
    }
    // Processes that were joined otherwise than the configuration says.
    let process = |groups: usize| {
        let mut ends = [Threads::group(4), Threads::group(4 / groups), Threads::group(4 / groups)];
        let [all, sampling, computing] = ends.each_mut().map(|ends| Box::new(ends.remove(0)) as Box<dyn Communicator>);
        let process = Process::in_group(all, [sampling, computing], Some(0));
        RunOptions { process: Some(Arc::new(process)), ..RunOptions::default() }
    };
    let message = run(&fixture, &config, &process(4)).unwrap_err().to_string();
    assert!(message.contains("--groups 2: the processes form groups of 1"), "{message}");
}

#[test]
fn a_rank_that_fails_ends_all_groups() {
    static LEFT: AtomicBool = AtomicBool::new(true);
    let fixture = dataset(86, 120, 4);
    let base = changed(&config(ModelKind::Sage, Parallelism::Split, 6), |config| config.eval_every = 0);
    let config = grouped(&fixture.dataset, &base, 3, 2, Cut::Random);
    let options = RunOptions {
        layer: Some(before(|| lose_first(&LEFT))),
        timeout: Some(Duration::from_secs(60)),
        prefetch: 1,
        ..RunOptions::default()
    };
    let started = Instant::now();
    let error = run(&fixture, &config, &options).unwrap_err();
    assert!(matches!(error, Error::Comm(CommError::Gpu { rank: 9, .. })), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn groups_that_do_not_fit_are_refused_in_one_line() {
    let fixture = dataset(87, 60, 3);
    let two = store_partition(&fixture.dataset, Cut::Random, 2);
    let split = |ranks, groups| TrainConfig { groups, ..config(ModelKind::Sage, Parallelism::Split, ranks) };
    let named = TrainConfig { partition: Some(two), ..split(6, 2) };
    for (config, words) in [
        (split(4, 3), "--groups 3: expected a number that divides --ranks 4"),
        (split(4, 0), "--groups 0: expected a number"),
        (split(2, 4), "--groups 4: expected a number"),
        (TrainConfig { parallelism: Parallelism::Data, ..split(4, 2) }, "--groups 2 is for --parallelism split"),
        (TrainConfig { parallelism: Parallelism::Single, ranks: None, ..split(1, 2) }, "under single leave it out"),
        (split(6, 2), "has no partition into 3 parts (there are: random-2 into 2)"),
        (named, "--partition random-2 has 2 parts, each of 2 groups has 3 ranks"),
    ] {
        let message = run(&fixture, &config, &RunOptions::default()).unwrap_err().to_string();
        assert!(message.contains(words) && !message.contains('\n'), "{message}");
    }
}
