//! Numbers are learnt, scored and predicted in their unit; they and weighted classes have the same losses by every parallelism.

use std::fs;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use gsplit_store::{Column, ColumnFile, NoProgress, Notes, Split};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::equivalence::{distance, run as step};
use super::fixture::{
    Cut, Fixture, SEVERAL_CLASSES, changed, config, dataset, emulated, models, numbers, several_labels, store_partition,
};
use super::processes::on_processes;
use super::runs::{losses, options, run};
use super::shards::{cut, outcomes};
use crate::config::{
    ClassWeights, ModelKind, NumberLoss, Parallelism, ScheduleKind, TaskConfig, TaskKind, TrainConfig,
};
use crate::infer::Trained;
use crate::metric::labels::TargetScale;
use crate::report::EpochReport;
use crate::{ChosenEpoch, InferConfig, Metric, Predict, RunOptions, infer, train};

/// Options of tasks with losses of their own, and a dataset for each.
fn tasks() -> Vec<(Fixture, TaskConfig)> {
    let regression = |loss| TaskConfig { kind: Some(TaskKind::Regression), loss, ..TaskConfig::default() };
    let weighted = |weights| TaskConfig { class_weights: Some(weights), ..TaskConfig::default() };
    let each = (0..SEVERAL_CLASSES).map(|class| 0.5 + class as f32).collect();
    vec![
        (numbers(41, 300, 6), regression(None)),
        (numbers(42, 300, 6), regression(Some(NumberLoss::Mae))),
        (dataset(43, 300, 6), weighted(ClassWeights::Balanced)),
        (dataset(44, 300, 6), weighted(ClassWeights::Each(vec![0.5, 1.0, 4.0, 0.0]))),
        (several_labels(45, 300, 6), weighted(ClassWeights::Balanced)),
        (several_labels(46, 300, 6), weighted(ClassWeights::Each(each))),
    ]
}

/// Every loss by every parallelism on 1 to 4 ranks, the models in turn.
#[test]
fn losses_and_gradients_of_numbers_and_weighted_classes_are_equal_for_every_parallelism() {
    let models = models();
    let mut turn = models.iter().cycle();
    for (fixture, task) in tasks() {
        let dataset = &fixture.dataset;
        let train = dataset.split(Split::Train).unwrap();
        let batch = &train[..50];
        for ranks in 1..=4 {
            let model = turn.next().unwrap();
            let with = |parallelism, ranks| {
                changed(&config(model.kind, parallelism, ranks), |config| {
                    (config.model, config.task) = (model.clone(), task.clone());
                })
            };
            let (loss, gradient) = step(dataset, &with(Parallelism::Single, 1), batch);
            if task.class_weights.is_some() {
                let plain = changed(&with(Parallelism::Single, 1), |config| config.task = TaskConfig::default());
                assert!((step(dataset, &plain, batch).0 - loss).abs() > 1e-4 * loss, "{task:?}: weights count");
            }
            let partition = Some(store_partition(dataset, Cut::ALL[ranks % 3], ranks));
            let others = [Parallelism::Data, Parallelism::Owned, Parallelism::Split, Parallelism::PushPull];
            let others =
                others.map(|parallelism| TrainConfig { partition: partition.clone(), ..with(parallelism, ranks) });
            for other in others.into_iter().filter(|config| config.check().is_ok()) {
                let what = format!("{task:?}, {model:?}: {} on {ranks} ranks", other.parallelism);
                let (found, of_other) = step(dataset, &other, batch);
                assert!((found - loss).abs() <= 1e-5 * loss, "{what}: loss {found}, expected {loss}");
                let off = distance(&of_other, &gradient);
                assert!(off <= 1e-5, "{what}: gradients differ by {off}");
            }
        }
    }
}

#[test]
fn runs_on_processes_shards_and_gpus_learn_and_score_the_same() {
    // One task for each kind of labels: losses of the others are compared above.
    for (i, (fixture, task)) in tasks().into_iter().step_by(2).enumerate() {
        let key = store_partition(&fixture.dataset, Cut::Random, 2);
        let groups = 1 + i % 2;
        let config = changed(&config(ModelKind::Sage, Parallelism::Split, 2 * groups), |config| {
            (config.task, config.groups) = (task.clone(), groups);
        });
        let options = RunOptions { threads: Some(1), ..RunOptions::default() };
        let single = changed(&config, |config| {
            (config.parallelism, config.ranks, config.groups) = (Parallelism::Single, Some(1), 1);
        });
        let whole = losses(&on_processes(&fixture, &config, &options)[0]);
        let on_gpus = RunOptions { places: emulated(1), ..options.clone() };
        let others = [run(&fixture, &single, &options).unwrap(), run(&fixture, &config, &on_gpus).unwrap()];
        let close = |found: Option<f64>, expected: Option<f64>| {
            let (found, expected) = (found.unwrap(), expected.unwrap());
            assert!((found - expected).abs() < 1e-3 * expected.max(0.1), "{task:?}: {found}, expected {expected}");
        };
        for other in &others {
            for (found, expected) in losses(other).into_iter().zip(&whole) {
                close(Some(found.1), Some(expected.1));
                if task.is_regression() {
                    close(found.2, expected.2);
                    close(found.3, expected.3);
                }
            }
        }
        let to = tempfile::tempdir().unwrap();
        let shards = cut(&fixture, &key, 2, to.path());
        fs::rename(fixture.dataset.path(), fixture.folder.path().join("hidden")).unwrap();
        for summary in outcomes(&config, &options, |rank| &shards[rank % 2]) {
            for (found, expected) in losses(&summary.unwrap()).into_iter().zip(&whole) {
                assert_eq!(found.1, expected.1, "{task:?}: to the bit");
                assert!((found.2.unwrap() - expected.2.unwrap()).abs() < 1e-5, "{task:?}: {found:?}, {expected:?}");
            }
        }
    }
}

#[test]
fn numbers_are_learnt_and_predicted_in_their_unit() {
    let fixture = numbers(47, 600, 4);
    let config = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        (config.epochs, config.model.dropout, config.optimizer.lr, config.model.hidden) = (40, 0.0, 0.02, 16);
    });
    let notes = Notes::default();
    let summary = train(&fixture.dataset, &config, &options(&fixture, false), &notes, &|_| {}).unwrap();
    assert_eq!(notes.lines(), ["the labels are numbers, which are learnt: --task regression"]);
    let last = summary.epochs.last().unwrap();
    assert_eq!((summary.metric, last.train), (Metric::Rmse, None));

    let labels = fixture.dataset.numeric_labels().unwrap();
    let of = |split: Split| {
        let vertices = fixture.dataset.split(split).unwrap();
        let labelled = vertices.iter().copied().filter(|&v| !labels[v as usize].is_nan());
        labelled.collect::<Vec<u32>>()
    };
    let scale = TargetScale::of(of(Split::Train).into_iter().map(|v| labels[v as usize]));
    let checkpoint = fixture.folder.path().join("checkpoints");
    assert_eq!(Trained::open(&checkpoint, None).unwrap().target_scale(), Some(scale));
    assert!(last.test.unwrap() < 0.5 * scale.deviation, "{last:?}, deviation {}", scale.deviation);

    let out = |name: &str| Some(fixture.folder.path().join(name));
    let of_config = |out| InferConfig {
        checkpoint: checkpoint.clone(),
        out,
        epoch: Some(ChosenEpoch::Last),
        ..InferConfig::default()
    };
    let run = |config: &InferConfig| infer(&fixture.dataset, config, 1 << 30, None, &NoProgress);
    let found = run(&of_config(out("n.npy"))).unwrap();
    assert_eq!(found.scores[2], (Split::Test, last.test));
    let predicted = ColumnFile::open(out("n.npy").unwrap()).unwrap();
    assert_eq!((predicted.rows(), predicted.dimensions(), predicted.descr()), (600, 1, "<f4"));
    let predicted = Column::<f32>::open(out("n.npy").unwrap()).unwrap();
    // Scores once more, from the file.
    let errors =
        |split| of(split).into_iter().map(|v| f64::from(predicted[v as usize]) - f64::from(labels[v as usize]));
    let count = of(Split::Test).len() as f64;
    let rmse = (errors(Split::Test).map(|error| error * error).sum::<f64>() / count).sqrt();
    assert!((rmse - last.test.unwrap()).abs() < 1e-9, "{rmse}, {last:?}");
    let with = InferConfig { metric: Some(Metric::Mae), ..of_config(out("n.parquet")) };
    let mae = run(&with).unwrap().scores[2].1.unwrap();
    assert!((mae - errors(Split::Test).map(f64::abs).sum::<f64>() / count).abs() < 1e-9);
    let rows = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(out("n.parquet").unwrap()).unwrap()).unwrap();
    let batches = rows.build().unwrap().map(|batch| batch.unwrap());
    let column: Vec<f32> =
        batches.flat_map(|batch| batch["prediction"].as_primitive::<Float32Type>().values().to_vec()).collect();
    assert_eq!(column, predicted[..]);

    let embedded = InferConfig { embeddings: out("e.npy"), ..of_config(None) };
    run(&embedded).unwrap();
    assert_eq!(ColumnFile::open(out("e.npy").unwrap()).unwrap().width(), 16);
    for predict in [Predict::Class, Predict::Logits, Predict::Probabilities] {
        let message = run(&InferConfig { predict: Some(predict), ..of_config(out("x.npy")) }).unwrap_err().to_string();
        assert!(message.contains("the model was trained on numbers: leave it out"), "{message}");
    }
    let accuracy = InferConfig { metric: Some(Metric::Accuracy), ..of_config(None) };
    assert!(run(&accuracy).unwrap_err().to_string().contains("choose rmse, mae or r2"));
    // A dataset with classes is predicted, not scored.
    let notes = Notes::default();
    let others = dataset(48, 100, 4);
    let summary = infer(&others.dataset, &of_config(None), 1 << 30, None, &notes).unwrap();
    assert!(summary.scores.is_empty());
    assert_eq!(notes.lines(), ["not scored: the dataset's labels (4 classes) are not the model's (numbers)"]);
}

#[test]
fn the_best_epoch_has_the_least_error() {
    let fixture = numbers(49, 300, 5);
    let base = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.epochs, config.optimizer.lr) = (25, 0.05);
    });
    let valid = |epochs: &[EpochReport]| epochs.iter().map(|report| report.valid.unwrap()).collect::<Vec<f64>>();
    let straight = run(&fixture, &base, &RunOptions::default()).unwrap();
    let errors = valid(&straight.epochs);
    let least = (1..errors.len()).fold(0, |best, at| if errors[at] < errors[best] { at } else { best });
    assert!(errors[0] > errors[least] && least + 1 < errors.len(), "{errors:?}");
    assert_eq!(straight.best.unwrap().epoch as usize, least + 1);
    // By the definition, written out: the first epoch with two before it, itself included, that are no better.
    let last = (2..errors.len()).find(|&at| {
        let best = errors[..at - 1].iter().copied().fold(f64::INFINITY, f64::min);
        errors[at - 1..=at].iter().all(|&error| error >= best)
    });
    let patient = changed(&base, |config| config.patience = Some(2));
    let stopped = run(&fixture, &patient, &options(&fixture, false)).unwrap();
    assert_eq!((stopped.stopped_early, stopped.epochs.len()), (true, last.unwrap() + 1));
    let best = fs::read_link(fixture.folder.path().join("checkpoints/best")).unwrap();
    assert_eq!(best.to_str().unwrap(), format!("epoch-{:05}", stopped.best.unwrap().epoch));
    // A log says that its scores are errors, so that its readers know which is best.
    let log = fs::read_to_string(fixture.folder.path().join("log.jsonl")).unwrap();
    let history: Vec<EpochReport> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(EpochReport::best(&history), EpochReport::best(&stopped.epochs));
    // R² is no error.
    let r2 = changed(&base, |config| config.task.metric = Some(Metric::R2));
    let summary = run(&fixture, &r2, &RunOptions::default()).unwrap();
    let most = valid(&summary.epochs).into_iter().fold(f64::NEG_INFINITY, f64::max);
    assert_eq!(summary.best.unwrap().valid, Some(most));
    // The plateau schedule waits for errors to fall: where each is less than the last, the rate stays.
    let falling = changed(&base, |config| {
        (config.schedule.kind, config.schedule.lr_patience) = (ScheduleKind::Plateau, Some(0));
        (config.epochs, config.optimizer.lr, config.model.dropout) = (6, 0.002, 0.0);
    });
    let summary = run(&fixture, &falling, &RunOptions::default()).unwrap();
    let errors = valid(&summary.epochs);
    assert!(errors[..5].windows(2).all(|pair| pair[1] < pair[0] * (1.0 - 1e-4)), "{errors:?}");
    assert_eq!(summary.epochs[5].learning_rate, 0.002);
}

#[test]
fn a_resumed_run_of_numbers_continues_exactly() {
    let fixture = numbers(50, 200, 4);
    let base = changed(&config(ModelKind::Gcn, Parallelism::Single, 1), |config| config.epochs = 3);
    let straight = losses(&run(&fixture, &base, &RunOptions { threads: Some(2), ..RunOptions::default() }).unwrap());
    let first = changed(&base, |config| config.epochs = 1);
    run(&fixture, &first, &options(&fixture, false)).unwrap();
    // The task that was found by the labels, and its loss, are the same as those that are named.
    let named = changed(&base, |config| {
        (config.task.kind, config.task.loss) = (Some(TaskKind::Regression), Some(NumberLoss::Mse));
    });
    assert_eq!(losses(&run(&fixture, &named, &options(&fixture, true)).unwrap()), straight[1..]);
    let other = changed(&base, |config| config.task.loss = Some(NumberLoss::Mae));
    let message = run(&fixture, &other, &options(&fixture, true)).unwrap_err().to_string();
    assert!(message.contains("--loss is"), "{message}");
}

#[test]
fn tasks_of_other_labels_are_refused_in_one_line() {
    let (of_numbers, of_classes) = (numbers(51, 60, 3), dataset(52, 60, 3));
    let base = config(ModelKind::Sage, Parallelism::Single, 1);
    let refused = |fixture: &Fixture, change: &dyn Fn(&mut TaskConfig), words: &str| {
        let config = changed(&base, |config| change(&mut config.task));
        let message = run(fixture, &config, &RunOptions::default()).unwrap_err().to_string();
        assert!(message.contains(words) && !message.contains('\n'), "{message}");
    };
    let kind = |kind| move |task: &mut TaskConfig| task.kind = Some(kind);
    refused(&of_numbers, &kind(TaskKind::Node), "choose --task regression");
    refused(&of_classes, &kind(TaskKind::Regression), "its labels are classes: convert it with --label-kind number");
    refused(&of_classes, &|task| task.metric = Some(Metric::Rmse), "choose it with --task regression");
    refused(&of_numbers, &|task| task.metric = Some(Metric::Accuracy), "choose rmse, mae or r2");
    refused(&of_classes, &|task| task.loss = Some(NumberLoss::Mae), "--loss is for numbers: leave it out");
    let weights = Some(ClassWeights::Balanced);
    refused(&of_numbers, &|task| task.class_weights.clone_from(&weights), "--class-weights balanced is for classes");
    let words = "3 weights, expected 4, one for each class: class 0, class 1, class 2, class 3";
    refused(&of_classes, &|task| task.class_weights = Some(ClassWeights::Each(vec![1.0; 3])), words);
    // Links are learnt whatever the labels are.
    let link = changed(&base, |config| (config.task.kind, config.task.valid_edges) = (Some(TaskKind::Link), 0.0));
    assert!(link.of_labels(&of_numbers.dataset, &NoProgress).is_ok());
}
