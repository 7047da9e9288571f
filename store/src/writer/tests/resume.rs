//! Invariant 10: whatever the moment of a kill, running again gives the bytes of an undisturbed
//! run.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;
use crate::staging::tidy;

const STAGES: [&str; 3] = ["buckets", "topology", "columns"];

/// Folders next to the target after each step of [`run`], as a kill at that moment would leave
/// them, with the number of complete stages.
fn snapshots(replacing: bool) -> (tempfile::TempDir, Vec<(PathBuf, usize)>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live/ds");
    if replacing {
        DatasetWriter::create(&path, false, &[0, 1, 1], &[1])
            .unwrap()
            .finish(provenance())
            .unwrap();
    }
    let mut taken = Vec::new();
    let take = |writer: &DatasetWriter| {
        let copied = folder.path().join(format!("kill-{}", taken.len()));
        copy(&folder.path().join("live"), &copied);
        taken.push((copied, STAGES.iter().filter(|stage| writer.is_done(stage)).count()));
    };
    run(&path, take).unwrap();
    (folder, taken)
}

#[test]
fn a_kill_at_any_step_is_resumed_at_the_last_finished_stage() {
    let (_keep, whole) = undisturbed();
    let whole = contents(&whole);
    for replacing in [false, true] {
        let (_folder, snapshots) = snapshots(replacing);
        assert!(snapshots.len() == 10);
        for (step, (place, done)) in snapshots.into_iter().enumerate() {
            let before = contents(&place.join("ds"));
            let (dataset, ran) = run(&place.join("ds"), |_| {}).unwrap();
            // A kill right after a stage is complete finds it complete, whatever the writer
            // thought.
            assert_eq!(ran, STAGES[done..], "step {step}");
            assert!(contents(dataset.path()) == whole && before != whole, "step {step}");
            assert_eq!(fs::read_dir(place).unwrap().count(), 1, "step {step}");
        }
    }
}

#[test]
fn an_error_keeps_what_was_complete_and_only_that() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds");
    let identity = json!(1);
    let mut writer = DatasetWriter::resume(&path, false, &identity).unwrap();
    writer.add_graph(&INDPTR, &INDICES).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no stage was complete");

    let mut writer = DatasetWriter::resume(&path, false, &identity).unwrap();
    writer.add_graph(&INDPTR, &INDICES).unwrap();
    writer.complete("topology").unwrap();
    writer.add_labels(&[0, 0, 1, 1]).unwrap();
    *writer.facts_mut().entry("lost".into()).or_default() += 1;
    drop(writer);
    let writer = DatasetWriter::resume(&path, false, &identity).unwrap();
    assert!(writer.is_done("topology") && writer.facts().is_empty() && writer.num_edges() == 6);
    let dataset = writer.finish(provenance()).unwrap();
    assert!(dataset.labels().is_err() && !path.join("nodes/label.npy").exists());

    // A writer that was not asked to be resumable leaves nothing, and takes nothing over.
    let path = folder.path().join("other");
    let mut writer = DatasetWriter::resume(&path, false, &identity).unwrap();
    writer.complete("nothing").unwrap();
    drop(writer);
    let mut writer = DatasetWriter::begin(&path, false).unwrap();
    assert!(!writer.is_done("nothing"));
    writer.complete("nothing").unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_does_not_fit_the_journal_begins_anew() {
    let (_folder, snapshots) = snapshots(false);
    let (last, done) = snapshots.last().unwrap();
    assert_eq!(*done, STAGES.len());
    let (_keep, whole) = undisturbed();
    let whole = contents(&whole);
    let identity = json!({ "input": "a graph", "bytes": 12 });
    let partial = |name: &str| PathBuf::from(".ds.partial").join(name);
    let cut = |path: PathBuf| fs::write(&path, &fs::read(&path).unwrap()[1..]).unwrap();
    type Damage<'a> = &'a dyn Fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("another input", &|_| {}),
        ("a shorter column", &|place| cut(place.join(partial("dataset/nodes/year.npy")))),
        ("no topology", &|place| {
            fs::remove_file(place.join(partial("dataset/topology/indptr.npy"))).unwrap()
        }),
        ("a shorter scratch file", &|place| cut(place.join(partial("scratch/bucket-0")))),
        ("no scratch", &|place| fs::remove_dir_all(place.join(partial("scratch"))).unwrap()),
        ("half a journal", &|place| cut(place.join(partial("journal.json")))),
        ("no journal", &|place| fs::remove_file(place.join(partial("journal.json"))).unwrap()),
    ];
    for (what, damage) in damages {
        let place = last.with_extension(what.replace(' ', "-"));
        copy(last, &place);
        damage(&place);
        if what == "another input" {
            let writer = DatasetWriter::resume(
                &place.join("ds"),
                false,
                &json!({ "input": "a graph", "bytes": 13 }),
            );
            assert!(!STAGES.iter().any(|stage| writer.as_ref().unwrap().is_done(stage)));
            assert!(!place.join(partial("journal.json")).exists());
            continue;
        }
        let (dataset, ran) = run(&place.join("ds"), |_| {}).unwrap();
        assert_eq!(ran, STAGES, "{what}");
        assert!(contents(dataset.path()) == whole, "{what}");
    }
    // Undamaged, the same place is resumed.
    assert!(DatasetWriter::resume(&last.join("ds"), false, &identity).unwrap().is_done("columns"));
}

#[test]
fn no_flipped_bit_of_a_journal_is_believed() {
    let (_folder, snapshots) = snapshots(false);
    let (last, _) = snapshots.last().unwrap();
    let journal = last.join(".ds.partial/journal.json");
    let good = fs::read(&journal).unwrap();
    let content = last.join(".ds.partial/dataset");
    let identity = json!({ "input": "a graph", "bytes": 12 });
    let resumed = |bytes: &[u8]| {
        fs::write(&journal, bytes).unwrap();
        Journal::resume(
            journal.parent().unwrap(),
            &content,
            &last.join(".ds.partial/scratch"),
            &identity,
        )
        .unwrap()
    };
    for bit in (0..good.len() * 8).step_by(37) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(resumed(&bad).is_none(), "bit {bit}");
    }
    assert!(resumed(&good).is_some_and(|journal| journal.stages == STAGES));
}

/// The moments inside [`DatasetWriter::finish`]: before the dataset becomes visible nothing is
/// lost; afterwards the replaced dataset is not mistaken for the one being written.
#[test]
fn a_kill_around_the_commit_loses_nothing_and_mixes_nothing() {
    let (_keep, whole) = undisturbed();
    let (_folder, snapshots) = snapshots(true);
    let (last, _) = snapshots.last().unwrap();
    let (target, root) = (last.join("ds"), last.join(".ds.partial"));
    let (_, manifest) =
        document::read::<crate::DatasetManifest>(&whole.join("dataset.json")).unwrap();

    // The manifest is written and noted, and the dataset is not visible yet.
    fs::copy(whole.join("dataset.json"), root.join("dataset/dataset.json")).unwrap();
    Journal::committing(&root, manifest).unwrap();
    let exchanged = last.with_extension("exchanged");
    copy(last, &exchanged);
    // Twice: resuming takes the note back before it removes the manifest.
    for _ in 0..2 {
        let identity = json!({ "input": "a graph", "bytes": 12 });
        let writer = DatasetWriter::resume(&target, true, &identity).unwrap();
        assert!(
            STAGES.iter().all(|stage| writer.is_done(stage))
                && !root.join("dataset/dataset.json").exists()
        );
    }

    tidy(&dataset_target(&target));
    assert!(root.join("journal.json").exists(), "not committed: the next run goes on");

    // It is visible, and the replaced dataset has the same files with the same lengths.
    let root = exchanged.join(".ds.partial");
    fs::remove_dir_all(root.join("dataset")).unwrap();
    copy(&whole, &root.join("dataset"));
    let path = root.join("dataset/dataset.json");
    let (mut old, _) = document::read::<crate::DatasetManifest>(&path).unwrap();
    old.provenance.options = json!({ "seed": 4 });
    document::write(&path, &old).unwrap();
    let left = last.with_extension("left");
    copy(&exchanged, &left);
    tidy(&dataset_target(&left.join("ds")));
    assert_eq!(fs::read_dir(&left).unwrap().count(), 1, "nothing but the dataset");
    let (dataset, ran) = run(&exchanged.join("ds"), |_| {}).unwrap();
    assert_eq!(ran, STAGES);
    assert!(contents(dataset.path()) == contents(&whole));
}

const HOLD: &str = "GSPLIT_TEST_HOLD";

/// Not a test by itself: the process that
/// [`another_process_is_named_and_its_kill_frees_the_target`] starts.
#[test]
fn hold_a_target_until_killed() {
    let Some(path) = std::env::var_os(HOLD) else { return };
    let _ = run(Path::new(&path), |writer| {
        if writer.is_done("topology") {
            println!("\nholding");
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
    });
}

#[test]
fn another_process_is_named_and_its_kill_frees_the_target() {
    let (_keep, whole) = undisturbed();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer::tests::resume::hold_a_target_until_killed", "--nocapture"])
        .env(HOLD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "holding"));
    let before = contents(folder.path());
    for result in [DatasetWriter::begin(&path, false).map(drop), run(&path, |_| {}).map(drop)] {
        let line = result.unwrap_err().to_string();
        assert!(line.ends_with(&format!(
            "another gsplit is writing it (process {}): wait for it, or stop it",
            child.id()
        )));
    }
    assert!(contents(folder.path()) == before, "a refused writer changes nothing");
    child.kill().unwrap();
    child.wait().unwrap();
    let (dataset, ran) = run(&path, |_| {}).unwrap();
    assert_eq!(ran, ["columns"]);
    assert!(contents(dataset.path()) == contents(&whole));
}
