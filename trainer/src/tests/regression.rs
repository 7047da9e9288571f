//! Numbers are learnt, scored and predicted in their unit.

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use gsplit_store::{Column, ColumnFile, NoProgress, Notes, Split};

use super::fixture::{Fixture, assert_refused, changed, config, dataset, numbers};
use super::infer::of_parquet;
use super::runs::{options, resumed, run};
use crate::config::{ClassWeights, ModelKind, NumberLoss, Parallelism, TaskConfig, TaskKind};
use crate::infer::Trained;
use crate::metric::labels::TargetScale;
use crate::tests::fixture::{Around, train};
use crate::{ChosenEpoch, InferConfig, Metric, Predict, infer};

#[test]
fn numbers_are_learnt_and_predicted_in_their_unit() {
    let fixture = numbers(47, 600, 4);
    let config = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        (config.run.epochs, config.model.dropout, config.run.optimizer.lr, config.model.hidden) =
            (40, 0.0, 0.02, 16);
    });
    let notes = Notes::default();
    let summary =
        train(&fixture.dataset, &config, &options(&fixture, false), &notes, &|_| {}).unwrap();
    assert_eq!(notes.lines(), ["the labels are numbers, which are learnt: --task regression"]);
    let last = summary.epochs.last().unwrap();
    assert_eq!((summary.metric, last.train, last.scores_are_errors), (Metric::Rmse, None, true));
    let least = summary.epochs.iter().filter_map(|epoch| epoch.valid).reduce(f64::min);
    assert_eq!(summary.best.as_ref().and_then(|best| best.valid), least);

    let labels = fixture.dataset.numeric_labels().unwrap();
    let of = |split: Split| {
        let vertices = fixture.dataset.split(split).unwrap();
        let labelled = vertices.iter().copied().filter(|&v| !labels[v as usize].is_nan());
        labelled.collect::<Vec<u32>>()
    };
    let scale = TargetScale::of(of(Split::Train).into_iter().map(|v| labels[v as usize]));
    let checkpoint = fixture.folder.path().join("checkpoints");
    assert_eq!(Trained::open(&checkpoint, None).unwrap().checkpoint.target_scale, Some(scale));
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
    // Scores computed again from the file.
    let errors = |split| {
        of(split)
            .into_iter()
            .map(|v| f64::from(predicted[v as usize]) - f64::from(labels[v as usize]))
    };
    let count = of(Split::Test).len() as f64;
    let rmse = (errors(Split::Test).map(|error| error * error).sum::<f64>() / count).sqrt();
    assert!((rmse - last.test.unwrap()).abs() < 1e-9, "{rmse}, {last:?}");
    let with = InferConfig { metric: Some(Metric::Mae), ..of_config(out("n.parquet")) };
    let mae = run(&with).unwrap().scores[2].1.unwrap();
    assert!((mae - errors(Split::Test).map(f64::abs).sum::<f64>() / count).abs() < 1e-9);
    let batches = of_parquet(&out("n.parquet").unwrap());
    let column: Vec<f32> = batches
        .flat_map(|batch| batch["prediction"].as_primitive::<Float32Type>().values().to_vec())
        .collect();
    assert_eq!(column, predicted[..]);

    let embedded = InferConfig { embeddings: out("e.npy"), ..of_config(None) };
    run(&embedded).unwrap();
    assert_eq!(ColumnFile::open(out("e.npy").unwrap()).unwrap().width(), 16);
    for predict in [Predict::Class, Predict::Logits, Predict::Probabilities] {
        assert_refused(
            run(&InferConfig { predict: Some(predict), ..of_config(out("x.npy")) }),
            "the model was trained on numbers: leave it out",
        );
    }
    let accuracy = InferConfig { metric: Some(Metric::Accuracy), ..of_config(None) };
    assert!(run(&accuracy).unwrap_err().to_string().contains("choose rmse, mae or r2"));
    // A dataset with classes is predicted, not scored.
    let notes = Notes::default();
    let others = dataset(48, 100, 4);
    let summary = infer(&others.dataset, &of_config(None), 1 << 30, None, &notes).unwrap();
    assert!(summary.scores.is_empty());
    let [note] = &notes.lines()[..] else { panic!("{:?}", notes.lines()) };
    assert!(note.contains("labels (4 classes)") && note.contains("the model's (numbers)"));
}

#[test]
fn a_resumed_run_of_numbers_continues_exactly() {
    let fixture = numbers(50, 200, 4);
    let base =
        changed(&config(ModelKind::Gcn, Parallelism::Single, 1), |config| config.run.epochs = 3);
    // The task found by the labels, and its loss, equal the ones that are named.
    let named = changed(&base, |config| {
        (config.data.task.kind, config.data.task.loss) =
            (Some(TaskKind::Regression), Some(NumberLoss::Mse));
    });
    resumed(&fixture, &named, &changed(&base, |config| config.run.epochs = 1));
    let other = changed(&base, |config| config.data.task.loss = Some(NumberLoss::Mae));
    assert_refused(run(&fixture, &other, &options(&fixture, true)), "--loss is");
}

#[test]
fn tasks_of_other_labels_are_refused_in_one_line() {
    let (of_numbers, of_classes) = (numbers(51, 60, 3), dataset(52, 60, 3));
    let base = config(ModelKind::Sage, Parallelism::Single, 1);
    let refused = |fixture: &Fixture, change: &dyn Fn(&mut TaskConfig), words: &str| {
        let config = changed(&base, |config| change(&mut config.data.task));
        assert_refused(run(fixture, &config, &Around::default()), words);
    };
    let kind = |kind| move |task: &mut TaskConfig| task.kind = Some(kind);
    refused(&of_numbers, &kind(TaskKind::Node), "choose --task regression");
    refused(
        &of_classes,
        &kind(TaskKind::Regression),
        "labels are classes: convert with --schema label-kind=number",
    );
    refused(
        &of_classes,
        &|task| task.metric = Some(Metric::Rmse),
        "choose accuracy, micro-f1 or macro-f1, or another --task",
    );
    refused(&of_numbers, &|task| task.metric = Some(Metric::Accuracy), "choose rmse, mae or r2");
    refused(
        &of_classes,
        &|task| task.loss = Some(NumberLoss::Mae),
        "--loss is for --task regression: leave it out",
    );
    let weights = Some(ClassWeights::Balanced);
    refused(
        &of_numbers,
        &|task| task.class_weights.clone_from(&weights),
        "--class-weights is for --task node",
    );
    let words = "3 weights, expected 4, one for each class: class 0, class 1, class 2, class 3";
    refused(
        &of_classes,
        &|task| task.class_weights = Some(ClassWeights::Each(vec![1.0; 3])),
        words,
    );
    // Links are learnt whatever the labels.
    let link = changed(&base, |config| {
        (config.data.task.kind, config.data.task.valid_edges) = (Some(TaskKind::Link), 0.0)
    });
    assert!(link.of_labels(&of_numbers.dataset, &NoProgress).is_ok());
}
