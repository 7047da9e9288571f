//! Records of mini-batches, through whole runs.

use gsplit_kernels::schedule::epoch_seeds;

use super::evaluation::with_job;
use super::fixture::{
    Cut, assert_refused, changed, config, dataset, several_labels, store_partition,
};
use super::links::link_config;
use super::runs::{losses, run};
use crate::config::{ClassWeights, ModelKind, Parallelism};
use crate::metric::labels::Labels;
use crate::tests::fixture::Around;

#[test]
fn records_of_mini_batches_add_up_to_their_epochs_and_change_nothing() {
    let fixture = several_labels(36, 300, 5);
    store_partition(&fixture.dataset, Cut::Random, 3);
    for (parallelism, ranks) in [(Parallelism::Split, 3), (Parallelism::Single, 1)] {
        // 200 seeds: 10 mini-batches per epoch, in windows of 4, 4 and 2, then 2, 4 and 4 ...
        let config = changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
            (config.data.batch_size, config.run.epochs) = (20, 3);
        });
        let log = |every: u32| {
            let path = fixture.folder.path().join(format!("{parallelism}-{every}.jsonl"));
            let options = Around {
                log: Some(path.clone()),
                log_every: every,
                prefetch: 1,
                ..Default::default()
            };
            let summary = run(&fixture, &config, &options).unwrap();
            let text = std::fs::read_to_string(path).unwrap();
            (
                losses(&summary),
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            )
        };
        let (plain, _): (_, Vec<serde_json::Value>) = log(0);
        let ((each, by_one), (fours, by_four)) = (log(1), log(4));
        assert!(each == plain && fours == plain, "{parallelism}");
        let number = |record: &serde_json::Value, key: &str| record[key].as_f64().unwrap();
        let (steps, epochs): (Vec<_>, Vec<_>) =
            by_one.iter().partition(|record| record.get("step").is_some());
        assert_eq!((steps.len(), epochs.len()), (30, 3));
        for (epoch, steps) in epochs.iter().zip(steps.chunks(10)) {
            let sum = |key: &str| steps.iter().map(|record| number(record, key)).sum::<f64>();
            for key in ["edges", "rows_loaded", "rows_exchanged"] {
                assert_eq!(sum(key), number(epoch, key), "{key}");
            }
            for key in ["loss", "gradient_norm"] {
                assert!(
                    (sum(key) / 10.0 - number(epoch, key)).abs() < 1e-9 * number(epoch, key),
                    "{key}"
                );
            }
            for key in ["sample_s", "load_s", "compute_s", "exchange_s", "wait_s"] {
                assert!((sum(key) - number(epoch, key)).abs() < 1e-9, "{key}");
            }
            assert!(sum("seconds") <= number(epoch, "seconds"));
            assert!(sum("wait_s") <= sum("exchange_s"));
        }
        let found: Vec<(f64, f64)> = by_four
            .iter()
            .filter(|record| record.get("step").is_some())
            .map(|record| {
                let speed = number(record, "edges") / number(record, "seconds");
                assert!((number(record, "edges_per_s") - speed).abs() < 1e-6 * speed);
                (number(record, "step"), number(record, "steps"))
            })
            .collect();
        assert_eq!(
            found,
            [
                (4.0, 4.0),
                (8.0, 4.0),
                (12.0, 2.0),
                (16.0, 4.0),
                (20.0, 4.0),
                (24.0, 4.0),
                (28.0, 4.0)
            ]
        );
        let mean = steps[4..8].iter().map(|record| number(record, "loss")).sum::<f64>() / 4.0;
        assert!((number(&by_four[1], "loss") - mean).abs() < 1e-9);
    }
    let (plain, options) = (
        config(ModelKind::Sage, Parallelism::Single, 1),
        Around { log_every: 5, ..Default::default() },
    );
    assert_refused(run(&fixture, &plain, &options), "--log-every 5: needs --log");
}

/// A short last mini-batch counts only for its own seeds or pairs.
#[test]
fn losses_are_means_over_seeds_and_pairs() {
    const BATCH: usize = 70;
    let fixture = several_labels(37, 300, 5);
    let nodes = |parallelism, ranks| config(ModelKind::Sage, parallelism, ranks);
    let links = link_config(ModelKind::Sage, Parallelism::Data, 2);
    let classes = dataset(38, 300, 5);
    let weighted = changed(&nodes(Parallelism::Data, 2), |config| {
        config.data.task.class_weights = Some(ClassWeights::Each(vec![0.5, 9.0, 0.0, 2.0]));
    });
    let of_fixture = [nodes(Parallelism::Data, 3), nodes(Parallelism::Single, 1), links]
        .map(|config| (&fixture, config));
    for (fixture, config) in of_fixture.into_iter().chain([(&classes, weighted)]) {
        let config =
            changed(&config, |config| (config.data.batch_size, config.run.epochs) = (BATCH, 2));
        with_job(&fixture.dataset, &config, |job| {
            let (items, log) = (job.train.len(), fixture.folder.path().join("log.jsonl"));
            let options = Around { log: Some(log.clone()), log_every: 1, ..Default::default() };
            run(fixture, &config, &options).unwrap();
            let text = std::fs::read_to_string(&log).unwrap();
            std::fs::remove_file(log).unwrap();
            let records =
                text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let (steps, epochs): (Vec<_>, Vec<_>) =
                records.partition(|record| record.get("step").is_some());
            let loss = |record: &serde_json::Value| record["loss"].as_f64().unwrap();
            assert_eq!((epochs.len(), steps.len()), (2, 2 * items.div_ceil(BATCH)));
            for ((number, epoch), steps) in (1..).zip(&epochs).zip(steps.chunks(steps.len() / 2)) {
                let order = epoch_seeds(&job.train, config.run.seed, number).unwrap();
                let weight =
                    |batch: &[u32]| match (&config.data.task.class_weights, job.task.labels()) {
                        (Some(ClassWeights::Each(weights)), Some(Labels::One { class, .. })) => {
                            let weight = |v: &u32| {
                                usize::try_from(class.get(*v).unwrap())
                                    .map_or(0.0, |class| f64::from(weights[class]))
                            };
                            batch.iter().map(weight).sum()
                        }
                        _ => batch.len() as f64,
                    };
                let weights: Vec<f64> = order.chunks(BATCH).map(weight).collect();
                let sum: f64 =
                    steps.iter().zip(&weights).map(|(step, weight)| weight * loss(step)).sum();
                let mean = sum / weights.iter().sum::<f64>();
                let plain = steps.iter().map(loss).sum::<f64>() / steps.len() as f64;
                assert!(
                    (loss(epoch) - mean).abs() < 1e-12 * mean,
                    "{:?}: {}, not {mean}",
                    config.data.task,
                    loss(epoch)
                );
                assert!(
                    (plain - mean).abs() > 1e-6 * mean,
                    "{:?}: mini-batches are alike",
                    config.data.task
                );
            }
        });
    }
}
