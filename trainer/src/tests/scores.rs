//! Baselines and scores of classes by hand, notes that are given once, and the epoch that predicts.

use gsplit_store::{ClassScores, Confused, Dataset, DatasetWriter, NoProgress, Notes, Split};
use tempfile::TempDir;

use super::fixture::{
    Cut, Fixture, add_features, add_multi_labels, changed, config, dataset, on_graph,
    several_labels, store_partition, without_valid,
};
use super::runs::{options, run};
use crate::config::{Config, ModelKind, Parallelism};
use crate::metric::ClassCounts;
use crate::report::stopping::is_exhausted;
use crate::report::{EpochReport, notes};
use crate::tests::fixture::{Around, train};
use crate::{ChosenEpoch, InferConfig, infer};

fn single(metric: Option<&str>) -> Config {
    changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.run.epochs, config.data.task.metric) =
            (1, metric.map(|metric| metric.parse().unwrap()));
    })
}

/// A dataset without edges whose features are `feature`, with the labels that `add` gives.
fn labelled(
    splits: [&[u32]; 3],
    feature: f32,
    add: impl FnOnce(&mut DatasetWriter),
) -> (Dataset, TempDir) {
    let n: usize = splits.iter().map(|split| split.len()).sum();
    let Fixture { dataset, folder } = on_graph(&vec![vec![]; n], |writer| {
        add_features(writer, 2, &[feature, 0.5].repeat(n));
        add(writer);
        for (split, vertices) in
            Split::ALL.into_iter().zip(splits).filter(|(_, vertices)| !vertices.is_empty())
        {
            writer.add_split(split, vertices.to_vec()).unwrap();
        }
    });
    (dataset, folder)
}

#[track_caller]
fn assert_baseline(dataset: &Dataset, metric: Option<&str>, expected: (Option<u32>, f64, f64)) {
    let summary =
        train(dataset, &single(metric), &Around::default(), &NoProgress, &|_| {}).unwrap();
    let found = summary.baseline.unwrap();
    let (valid, test) = (found.valid.unwrap(), found.test.unwrap());
    let off = (valid - expected.1).abs().max((test - expected.2).abs());
    assert!(
        found.class == expected.0 && off < 1e-12,
        "{metric:?}: {found:?}, expected {expected:?}"
    );
}

#[test]
fn the_majority_of_the_train_split_is_scored_as_predictions_are() {
    // Class 0 in training; valid has 0 0 1 2, test 0 1 and one without a class.
    let labels = [0, 0, 1, 0, 0, 1, 2, 0, 1, -1];
    let splits: [&[u32]; 3] = [&[0, 1, 2], &[3, 4, 5, 6], &[7, 8, 9]];
    let (one, _folder) = labelled(splits, 0.5, |writer| writer.add_labels(&labels).unwrap());
    for (metric, valid, test) in
        [(None, 0.5, 0.5), (Some("micro-f1"), 0.5, 0.5), (Some("macro-f1"), 2.0 / 9.0, 1.0 / 3.0)]
    {
        assert_baseline(&one, metric, (Some(0), valid, test));
    }
    let two = [1, 1, 0, 0, 0, 1, 1, 0, 1, -1];
    let (two, _folder) = labelled(splits, 0.5, |writer| writer.add_labels(&two).unwrap());
    assert_baseline(&two, None, (Some(1), 0.5, 0.5));
    assert_baseline(&two, Some("accuracy"), (Some(1), 0.5, 0.5));

    // Bits of the classes: in training all three vertices have class 0, one class 1, none class 2.
    let rows = [0b11u8, 0b01, 0b01, 0b01, 0b10, 0b11, 0b100];
    let splits: [&[u32]; 3] = [&[0, 1, 2], &[3, 4], &[5, 6]];
    let (several, _folder) = labelled(splits, 0.5, |writer| add_multi_labels(writer, 3, &rows));
    // Predicting only class 0 is best on the train split (6/7, with class 1 8/10).
    assert_baseline(&several, None, (None, 0.5, 0.4));
    assert_baseline(&several, Some("accuracy"), (None, 0.5, 0.0));
    // Predicting classes 0 and 1, each of them right once out of twice.
    assert_baseline(&several, Some("macro-f1"), (None, 4.0 / 9.0, 4.0 / 9.0));
    assert_baseline(&several, Some("roc-auc"), (None, 0.5, 0.5));

    // In training class 0 has the values 1, 0 and 0, class 1 a single 1, class 2 none. So class 1
    // is the most frequent, and predicting only it is best (2/3, with class 0 4/6).
    let cells = [(0b11, 0b11), (0, 0b01), (0, 0b01), (0b10, 0b11), (0, 0b10), (0b10, 0b10), (0, 0)];
    let (lacking, _folder) = labelled(splits, 0.5, |writer| {
        let mut out = writer.multi_label_writer(3).unwrap();
        cells.iter().for_each(|&(has, known)| out.push_known(&[has], &[known]).unwrap());
        writer.add_multi_labels(out).unwrap();
    });
    assert_baseline(&lacking, None, (None, 2.0 / 3.0, 1.0));
    assert_baseline(&lacking, Some("accuracy"), (None, 0.5, 1.0));
}

#[test]
fn golden_scores_of_classes_counted_by_hand() {
    let mut counts = ClassCounts::new(3);
    for (actual, predicted) in [(0, 0), (0, 0), (0, 1), (1, 1), (2, 0), (2, 1), (2, 1)] {
        counts.choose(predicted, actual);
    }
    let found = counts.scores(Split::Test, true);
    let class = |precision, recall, f1, support, predicted, right| ClassScores {
        precision,
        recall,
        f1,
        support,
        predicted,
        right,
    };
    let third = 1.0 / 3.0;
    let expected = [
        class(2.0 * third, 2.0 * third, 2.0 * third, 3, 3, 2),
        class(0.25, 1.0, 0.4, 1, 4, 1),
        class(0.0, 0.0, 0.0, 3, 0, 0),
    ];
    assert_eq!(found.classes, expected);
    let pair = |actual, predicted, count| Confused { actual, predicted, count };
    assert_eq!(found.confused, [pair(2, 1, 2), pair(0, 1, 1), pair(2, 0, 1)]);
    assert!((found.macro_f1 - (2.0 * third + 0.4) / 3.0).abs() < 1e-12);
}

#[test]
fn scores_of_the_best_epoch_survive_a_resume_and_agree_over_ranks() {
    for several in [false, true] {
        let fixture = if several { several_labels(37, 300, 5) } else { dataset(36, 300, 5) };
        store_partition(&fixture.dataset, Cut::Random, 3);
        let of = |parallelism, ranks, epochs| {
            changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
                config.run.epochs = epochs
            })
        };
        let single = run(&fixture, &of(Parallelism::Single, 1, 4), &Around::default()).unwrap();
        let scores = single.scores.clone().unwrap();
        let best = single.best.as_ref().unwrap();
        assert_eq!((scores.epoch, &scores.baseline), (best.epoch, &single.baseline));
        let [valid, test] = &scores.splits[..] else { panic!("{scores:?}") };
        assert_eq!((valid.split, test.split), (Split::Valid, Split::Test));
        assert_eq!(valid.confused.is_empty(), several);
        let sum = |of: fn(&ClassScores) -> u64| valid.classes.iter().map(of).sum::<u64>() as f64;
        let score = match several {
            true => {
                2.0 * sum(|class| class.right)
                    / (sum(|class| class.predicted) + sum(|class| class.support))
            }
            false => sum(|class| class.right) / sum(|class| class.support),
        };
        assert!((score - best.valid.unwrap()).abs() < 1e-12, "{score} and {best:?}");
        let split = run(&fixture, &of(Parallelism::Split, 3, 4), &Around::default()).unwrap();
        assert_eq!((&split.baseline, &split.scores), (&single.baseline, &single.scores));
        run(&fixture, &of(Parallelism::Single, 1, 3), &options(&fixture, false)).unwrap();
        let rest = run(&fixture, &of(Parallelism::Single, 1, 4), &options(&fixture, true)).unwrap();
        assert_eq!(rest.scores, single.scores);
    }
}

/// Notes of a run of one epoch on `dataset`.
fn told(dataset: &Dataset, config: &Config) -> String {
    let told = Notes::default();
    train(dataset, config, &Around::default(), &told, &|_| {}).unwrap();
    told.lines().join("\n")
}

#[test]
fn notes_are_said_where_they_help_and_nowhere_else() {
    let notable = ["no valid split", "the first epoch", "still rising"];
    let quiet = told(&dataset(38, 300, 5).dataset, &single(None));
    assert!(notable.iter().all(|words| !quiet.contains(words)), "{quiet}");
    let splits: [&[u32]; 3] = [&[0, 1, 2, 3], &[4, 5], &[6, 7]];
    let (large, _folder) =
        labelled(splits, 3e5, |writer| writer.add_labels(&[0, 1, 2, 0, 1, 2, 0, 1]).unwrap());
    let line = told(&large, &single(None));
    assert!(line.contains("a guess has 1.0986: lower --lr, now "), "{line}");
    assert!(line.contains("convert with --schema scale=standard"), "{line}");
    let Fixture { dataset: blind, folder: _folder } = without_valid();
    assert!(told(&blind, &single(None)).contains("note: no valid split"));
    let unasked = changed(&single(None), |config| config.run.eval_every = 0);
    assert!(!told(&blind, &unasked).contains("no valid split"));

    let reports = |valid: &[Option<f64>]| -> Vec<EpochReport> {
        (1..)
            .zip(valid)
            .map(|(epoch, &valid)| EpochReport { epoch, valid, ..EpochReport::default() })
            .collect()
    };
    let rising = |valid: &[Option<f64>]| notes::rising(&reports(valid), Some(1.0));
    assert!(
        rising(&[Some(0.1), Some(0.2), Some(0.3)])
            .unwrap()
            .ends_with("still rising: train longer, --epochs 6")
    );
    let mut errors = reports(&[Some(3.0), Some(2.0)]);
    errors.iter_mut().for_each(|report| report.scores_are_errors = true);
    assert!(notes::rising(&errors, None).unwrap().contains("its error still falling"));
    // Nor if more epochs do not help: a perfect score, a loss that diverged, and one far above a
    // guess.
    assert_eq!(rising(&[Some(0.9), Some(0.99996)]), None);
    let mut diverged = reports(&[Some(0.1), Some(0.2), Some(0.3)]);
    for (report, loss) in diverged.iter_mut().zip([0.99, 9e10, 2.0]) {
        report.loss = loss;
    }
    assert_eq!(notes::rising(&diverged, Some(1.0)), None);
    let mut absurd = reports(&[Some(0.1), Some(0.2)]);
    absurd.iter_mut().for_each(|report| report.loss = 10.0);
    assert!(
        notes::rising(&absurd, Some(1.0)).is_none() && notes::rising(&absurd, Some(1.1)).is_some()
    );
    let no_number = reports(&[Some(f64::NAN), Some(0.1), Some(f64::NAN)]);
    assert_eq!(EpochReport::best(&no_number).map(|best| best.epoch), Some(2));
    for still in
        [&[Some(0.3), Some(0.2)][..], &[Some(0.2), Some(0.2)], &[Some(0.5)], &[None, None], &[]]
    {
        assert_eq!(rising(still), None, "{still:?}");
    }
}

#[test]
fn a_split_without_a_class_has_no_score_and_training_goes_on() {
    let splits: [&[u32]; 3] = [&[0, 1, 2, 3], &[4, 5], &[6, 7]];
    let lines = |dataset: &Dataset, config: &Config| {
        let summary = train(dataset, config, &Around::default(), &NoProgress, &|_| {})?;
        Ok::<_, crate::Error>(summary.notes.join("\n"))
    };
    let (rare, _folder) =
        labelled(splits, 0.5, |writer| writer.add_labels(&[0, 1, 0, 1, 0, 0, 1, 1]).unwrap());
    let of_both = lines(&rare, &single(None)).unwrap();
    let problem = "roc-auc has no value in the valid split, which has no class that some of \
                   its vertices have and others have not";
    assert!(
        of_both.contains(&format!(
            "{problem}: no epoch is the best, and the model is that of the last"
        )),
        "{of_both}"
    );
    assert!(of_both.contains("in the test split, which has no class"), "{of_both}");
    assert!(told(&rare, &single(None)).contains(problem));
    assert_eq!(crate::unscored(&rare, None, Split::Valid).unwrap().as_deref(), Some(problem));
    assert_eq!(
        crate::unscored(&rare, Some("accuracy".parse().unwrap()), Split::Valid).unwrap(),
        None
    );
    let patient = changed(&single(None), |config| config.run.patience = Some(3));
    let refused = lines(&rare, &patient).unwrap_err().to_string();
    assert!(
        refused.starts_with(&format!("--patience needs a score of the valid split: {problem}:")),
        "{refused}"
    );
    let with_accuracy = changed(&single(Some("accuracy")), |config| config.run.patience = Some(3));
    assert!(!lines(&rare, &with_accuracy).unwrap().contains("no value"));
    let (bare, _folder) =
        labelled(splits, 0.5, |writer| writer.add_labels(&[0, 1, 2, 1, -1, -1, 1, 1]).unwrap());
    let line = lines(&bare, &single(None)).unwrap();
    assert!(
        line.contains("accuracy has no value in the valid split, which has no labelled vertex"),
        "{line}"
    );
}

#[test]
fn of_equal_scores_patience_and_the_best_epoch_go_by_the_loss() {
    let reports = |valid: f64, losses: &[f64]| -> Vec<EpochReport> {
        let report = |(epoch, &loss): (u32, &f64)| EpochReport {
            epoch,
            valid: Some(valid),
            valid_loss: Some(loss),
            ..EpochReport::default()
        };
        (1..).zip(losses).map(report).collect()
    };
    let falling = reports(0.9, &[0.3, 0.2, 0.1, 0.2, 0.2]);
    assert_eq!(EpochReport::best(&falling).unwrap().epoch, 3);
    assert!(is_exhausted(&falling, 2) && !is_exhausted(&falling[..4], 2));
    // A perfect score ends the wait, and among the epochs until then the one with the lowest loss
    // is the best.
    let perfect = reports(1.0, &[0.3, 0.2, 0.1]);
    assert!(is_exhausted(&perfect, 2) && !is_exhausted(&perfect[..2], 2));
    assert_eq!(EpochReport::best(&perfect).unwrap().epoch, 3);
    // The smallest error is the best.
    let error = |(epoch, error)| EpochReport {
        scores_are_errors: true,
        ..reports(error, &vec![0.1; epoch]).remove(epoch - 1)
    };
    let errors: Vec<EpochReport> = (1..).zip([3.0, 1.0, 2.0, 1.5]).map(error).collect();
    assert_eq!(EpochReport::best(&errors).unwrap().epoch, 2);
    assert!(is_exhausted(&errors, 2) && !is_exhausted(&errors[..3], 2));
}

#[test]
fn the_best_epoch_predicts_unless_another_is_chosen() {
    let fixture = dataset(33, 200, 5);
    let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.run.epochs, config.run.patience) = (60, Some(3));
    });
    let summary = run(&fixture, &config, &options(&fixture, false)).unwrap();
    let (best, last) = (summary.best.unwrap(), summary.epochs.last().unwrap());
    assert!(best.epoch + 1 < last.epoch, "nothing to choose: {best:?}");
    let folder = fixture.folder.path().join("checkpoints");
    let with = |checkpoint: std::path::PathBuf, epoch: Option<&str>| {
        let epoch = epoch.map(|epoch| epoch.parse::<ChosenEpoch>().unwrap());
        let config = InferConfig { checkpoint, epoch, ..InferConfig::default() };
        let found = infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress);
        found
            .map(|found| (found.epochs as u32, found.best, found.scores[1].1))
            .map_err(|error| error.to_string())
    };
    let of_best = Ok((best.epoch, true, best.valid));
    let of_last = Ok((last.epoch, false, last.valid));
    let number = best.epoch.to_string();
    for chosen in [None, Some("best"), Some(&*number)] {
        assert_eq!(with(folder.clone(), chosen), of_best, "{chosen:?}");
    }
    assert_eq!(with(folder.clone(), Some("last")), of_last);
    assert_eq!(with(folder.join("best"), None), of_best);
    assert_eq!(with(folder.join(format!("epoch-{:05}", last.epoch)), None), of_last);
    let refused = with(folder.clone(), Some("9999")).unwrap_err();
    assert!(
        refused.contains("--epoch: not in") && refused.contains("are kept: choose last, or one of"),
        "{refused}"
    );
    let refused = with(folder.join("best"), Some("last")).unwrap_err();
    assert!(refused.contains("is a single epoch already"), "{refused}");
    // For a file system without links.
    std::fs::remove_file(folder.join("best")).unwrap();
    assert_eq!(with(folder, None), of_best);
    assert!("newest".parse::<ChosenEpoch>().is_err());
}
