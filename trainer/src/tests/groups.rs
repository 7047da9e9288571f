//! Groups of ranks: each trains split-parallel on its share of every mini-batch, and all together
//! like data parallelism with one rank per group.

use gsplit_store::Dataset;

use super::fixture::{Cut, assert_refused, changed, config, dataset, emulated, store_partition};
use super::runs::{losses, run};
use crate::config::{Config, ModelKind, Parallelism};
use crate::tests::fixture::Around;
use crate::{RowPlacement, Summary};

/// `base` on `groups` of `ranks` each.
pub fn grouped(dataset: &Dataset, base: &Config, groups: usize, ranks: usize) -> Config {
    let partition = Some(store_partition(dataset, Cut::Random, ranks));
    changed(base, |config| {
        config.system.parallelism = Parallelism::Split;
        config.system.ranks = Some(groups * ranks);
        config.system.groups = groups;
        config.system.partition = partition
    })
}

/// Exact counts.
fn counts(summary: &Summary) -> Vec<(u64, u64)> {
    summary.epochs.iter().map(|epoch| (epoch.work.edges, epoch.work.rows_loaded)).collect()
}

#[test]
fn a_run_on_groups_is_one_of_data_parallelism_with_a_rank_for_each() {
    let fixture = dataset(82, 150, 4);
    let none = Around::default();
    let base = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        config.data.batch_size = 40
    });
    let data = run(&fixture, &base, &none).unwrap();
    for ranks in [1, 4] {
        let found = run(&fixture, &grouped(&fixture.dataset, &base, 2, ranks), &none).unwrap();
        // Every group samples and loads once what its rank of data parallelism does.
        assert_eq!(counts(&found), counts(&data), "2 groups of {ranks}");
        for (found, data) in found.epochs.iter().zip(&data.epochs) {
            assert!(
                (found.loss - data.loss).abs() <= 1e-4 * data.loss,
                "{found:?}, expected {data:?}"
            );
            assert_eq!(found.work.rows_exchanged > 0, ranks > 1, "2 groups of {ranks}");
        }
    }
    // One group is split parallelism itself, to the bit.
    let split = grouped(&fixture.dataset, &base, 1, 3);
    let ungrouped = changed(&split, |config| config.system.partition = None);
    let [one, other] =
        [&split, &ungrouped].map(|config| losses(&run(&fixture, config, &none).unwrap()));
    assert_eq!(one, other);
}

#[test]
fn each_group_keeps_the_rows_of_all_parts_on_its_gpus() {
    let fixture = dataset(84, 100, 4);
    let base = changed(&config(ModelKind::Sage, Parallelism::Split, 4), |config| {
        (config.run.eval_every, config.run.epochs) = (0, 1);
    });
    let config = grouped(&fixture.dataset, &base, 2, 2);
    let with = |placement: Option<RowPlacement>| {
        let options = Around { places: emulated(1), placement, ..Around::default() };
        run(&fixture, &config, &options).unwrap()
    };
    let plain = with(None);
    for placement in [RowPlacement::Partitioned, RowPlacement::Replicated, RowPlacement::Peer] {
        let found = with(Some(placement.clone()));
        assert_eq!(
            (losses(&found), counts(&found)),
            (losses(&plain), counts(&plain)),
            "{placement}"
        );
        let rows = found.cache.as_ref().unwrap().rows.clone();
        let own = found.epochs.iter().all(|epoch| epoch.work.rows_cached == epoch.work.rows_loaded);
        match placement {
            RowPlacement::Partitioned => {
                assert_eq!((own, rows[0] + rows[1], &rows[..2]), (true, 100, &rows[2..]))
            }
            RowPlacement::Replicated => assert_eq!((own, rows), (true, vec![100; 4])),
            _ => assert_eq!(rows, [25; 4], "once over all GPUs"),
        }
    }
}

#[test]
fn groups_that_do_not_fit_are_refused_in_one_line() {
    let fixture = dataset(87, 60, 3);
    let two = store_partition(&fixture.dataset, Cut::Random, 2);
    let split = |ranks, groups| {
        changed(&config(ModelKind::Sage, Parallelism::Split, ranks), |config| {
            config.system.groups = groups
        })
    };
    let named = changed(&split(6, 2), |config| config.system.partition = Some(two));
    for (config, words) in [
        (split(4, 3), "--groups 3: expected a number that divides --ranks 4"),
        (split(4, 0), "--groups 0: expected a number"),
        (split(2, 4), "--groups 4: expected a number"),
        (
            changed(&split(1, 2), |config| {
                config.system.parallelism = Parallelism::Single;
                config.system.ranks = None
            }),
            "--groups is for --parallelism split or cooperative",
        ),
        (split(6, 2), "has no partition into 3 parts (there are: random-2 into 2)"),
        (named, "--partition random-2 has 2 parts, 3 ranks of a group need one each"),
    ] {
        assert_refused(run(&fixture, &config, &Around::default()), words);
    }
}
