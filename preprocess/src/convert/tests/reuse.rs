//! What is there already: reused, refused or replaced.

use std::time::{Duration, SystemTime};

use super::*;

#[test]
fn the_same_conversion_is_reused_and_another_refused() {
    let raw = copy("ogb-csv");
    let source = ogb(raw.path());
    let options = ConvertOptions::default();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ds");
    let run = |options: &ConvertOptions, force| {
        convert(&source, &out, options, force, &NoProgress).map(|(_, outcome)| outcome)
    };

    assert_eq!(run(&options, false).unwrap(), Outcome::Converted);
    assert_eq!(run(&options, false).unwrap(), Outcome::Reused);
    let other = ConvertOptions { build: BuildOptions { symmetrise: true, ..Default::default() }, ..Default::default() };
    let message = run(&other, false).unwrap_err().to_string();
    assert!(message.contains("made with other input or options"), "{message}");
    assert_eq!(run(&other, true).unwrap(), Outcome::Converted);
    assert_eq!(run(&other, false).unwrap(), Outcome::Reused);

    // A file that was written since, be it with the same number of bytes.
    let labels = std::fs::File::options().append(true).open(raw.path().join("raw/node-label.csv.gz")).unwrap();
    labels.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    assert!(run(&other, false).is_err());
}

#[test]
fn only_datasets_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("precious"), "x").unwrap();
    let raw = copy("ogb-csv");
    let source = ogb(raw.path());
    // Refused before the input is read, which would fail too.
    std::fs::write(raw.path().join("raw/edge.csv.gz"), "damaged").unwrap();
    for force in [false, true] {
        let error = convert(&source, folder.path(), &ConvertOptions::default(), force, &NoProgress).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}: ", folder.path().display())), "{error}");
    }
    assert!(folder.path().join("precious").exists());
}

#[test]
fn a_failed_conversion_leaves_nothing_and_a_failed_replacement_the_old() {
    let raw = copy("ogb-csv");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ds");
    let source = ogb(raw.path());
    let run = |force| convert(&source, &out, &ConvertOptions::default(), force, &NoProgress);
    let good = std::fs::read(raw.path().join("raw/node-feat.csv.gz")).unwrap();
    let damage = || std::fs::write(raw.path().join("raw/node-feat.csv.gz"), &good[..good.len() - 4]).unwrap();

    damage();
    assert!(run(false).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(raw.path().join("raw/node-feat.csv.gz"), &good).unwrap();
    let first = run(false).unwrap().0;
    damage();
    assert!(run(true).is_err());
    assert_eq!(Dataset::open(&out).unwrap().manifest(), first.manifest());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
