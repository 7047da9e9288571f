//! Datasets that lack what a task needs: one line each, with what to do.

use gsplit_store::{Dataset, DatasetWriter, FeatureDtype, NoProgress, Notes, Split};
use tempfile::TempDir;

use super::fixture::{changed, config, dataset, provenance};
use crate::config::{ModelKind, Parallelism, TaskKind};
use crate::{InferConfig, RunOptions, Wanted, infer, train};

/// A ring of 30 vertices with what `add` gives it.
fn ring(add: impl FnOnce(&mut DatasetWriter)) -> (Dataset, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (indptr, indices): (Vec<u64>, Vec<u32>) = ((0..=30).collect(), (0..30).map(|v| (v + 1) % 30).collect());
    let mut writer = DatasetWriter::create(&folder.path().join("ds"), false, &indptr, &indices).unwrap();
    add(&mut writer);
    (writer.finish(provenance()).unwrap(), folder)
}

fn with_features(writer: &mut DatasetWriter) {
    let mut features = writer.feature_writer(FeatureDtype::F32, 6).unwrap();
    features.push_rows(&[0.5; 30 * 6]).unwrap();
    writer.add_features(features, FeatureDtype::F32, None).unwrap();
}

#[test]
fn what_a_dataset_lacks_is_said_in_one_line() {
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let refused = |(dataset, _folder): (Dataset, TempDir), words: &str| {
        let result = train(&dataset, &config, &RunOptions::default(), &NoProgress, &|_| {});
        let message = result.unwrap_err().to_string();
        assert!(message.contains(words) && !message.contains('\n'), "{message}");
    };
    let labels = |writer: &mut DatasetWriter, labels: [i32; 30]| writer.add_labels(&labels).unwrap();
    refused(ring(|_| {}), "has no features");
    refused(ring(with_features), "has no labels");
    let split = |of: &'static [u32], label: [i32; 30]| {
        ring(|writer| {
            with_features(writer);
            labels(writer, label);
            writer.add_split(Split::Train, of.to_vec()).unwrap();
        })
    };
    let mut half = [1; 30];
    half[..15].fill(-1);
    refused(ring(|writer| (with_features(writer), labels(writer, half)).0), "has no train split");
    refused(split(&[], half), "the train split is empty");
    refused(split(&[1, 2, 3], half), "no vertex of the train split has a label");
    refused(split(&[1, 2, 3], [-1; 30]), "no vertex has a label");
}

#[test]
fn a_batch_beyond_the_training_set_is_one_mini_batch_and_said() {
    let fixture = dataset(61, 90, 4);
    let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.batch_size, config.epochs) = (1000, 1);
    });
    let notes = Notes::default();
    let summary = train(&fixture.dataset, &config, &RunOptions::default(), &notes, &|_| {}).unwrap();
    let whole = changed(&config, |config| config.batch_size = 60);
    let same = train(&fixture.dataset, &whole, &RunOptions::default(), &NoProgress, &|_| {}).unwrap();
    assert_eq!(summary.epochs[0].loss, same.epochs[0].loss);
    let notes = notes.lines();
    assert!(notes.len() == 1 && notes[0].contains("--batch-size 1000: there are 60"), "{notes:?}");
}

#[test]
fn empty_splits_have_no_score_and_cannot_be_predicted() {
    let (dataset, folder) = ring(|writer| {
        with_features(writer);
        writer.add_labels(&std::array::from_fn::<i32, 30, _>(|v| v as i32 % 3)).unwrap();
        writer.add_split(Split::Train, (0..20).collect()).unwrap();
        writer.add_split(Split::Valid, Vec::new()).unwrap();
        writer.add_split(Split::Test, (20..30).collect()).unwrap();
    });
    let checkpoint = folder.path().join("run");
    let options = RunOptions { checkpoint: Some(checkpoint.clone()), ..RunOptions::default() };
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let summary = train(&dataset, &config, &options, &NoProgress, &|_| {}).unwrap();
    assert!(summary.epochs[0].valid.is_none() && summary.epochs[0].test.is_some());
    let infers = |split| {
        let config = InferConfig { checkpoint: checkpoint.clone(), split, ..InferConfig::default() };
        infer(&dataset, &config, 1 << 30, None, &NoProgress)
    };
    assert_eq!(infers(Wanted::All).unwrap().scores[1], (Split::Valid, None));
    let message = infers(Wanted::Valid).unwrap_err().to_string();
    assert!(message.contains("--split valid") && message.contains("is empty"), "{message}");
    // Links need no labels, and a ring has edges to hold out.
    let links = changed(&config, |config| (config.task.kind, config.task.test_edges) = (TaskKind::Link, 0.3));
    let summary = train(&dataset, &links, &RunOptions::default(), &NoProgress, &|_| {}).unwrap();
    assert!(summary.epochs[0].loss.is_finite() && summary.epochs[0].test.is_some());
}
