//! Datasets that are there already: reused, refused or replaced.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use gsplit_store::{Checksum, DatasetManifest, Notes, Stage, Unit, document};

use super::*;

#[test]
fn the_same_conversion_is_reused_and_another_refused() {
    let raw = copy("ogb-csv");
    let source = ogb(raw.path());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ds");
    let run = |words: &str, force| {
        convert(&source, &out, &options(words), force, &NoProgress).map(|(_, outcome)| outcome)
    };

    assert_eq!(run("", false).unwrap(), Outcome::Converted);
    assert_eq!(run("", false).unwrap(), Outcome::Reused);
    let other = "--symmetrise";
    let message = run(other, false).unwrap_err().to_string();
    let difference = "it was made without --symmetrise and is asked for with --symmetrise";
    assert!(message.contains(difference), "{message}");
    assert_eq!(run(other, true).unwrap(), Outcome::Converted);
    assert_eq!(run(other, false).unwrap(), Outcome::Reused);
}

const EDGES: &str = "0 1\n1 2\n2 3\n";

/// Another graph in as many bytes.
fn other(edges: &str) -> String {
    edges.replace("2 3", "2 0")
}

/// Overwrites the file at `path` with `text` like `cp -p`: the file keeps its modification time.
fn copy_over(path: &Path, text: &str) {
    let time = path.metadata().unwrap().modified().unwrap();
    fs::write(path, text).unwrap();
    fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn the_content_of_the_input_decides() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (snap(folder.path().join("edges.txt")), folder.path().join("ds"));
    let run = |force| convert(&source, &out, &ConvertOptions::default(), force, &NoProgress);
    let touch = |seconds| {
        let file = fs::File::options().append(true).open(&source).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    fs::write(&source, EDGES).unwrap();
    touch(3600);
    // Whether the input was written just before, or is at rest and has a stamp.
    for pause in [0, 2100] {
        std::thread::sleep(Duration::from_millis(pause));
        let (made, _) = run(true).unwrap();
        let sources = &made.manifest().provenance.sources;
        assert_eq!(sources[0].stamp.is_some(), pause > 0, "{sources:?}");
        assert_eq!(sources[0].checksum, Some(Checksum::of(EDGES.as_bytes())));
        assert_eq!(run(false).unwrap().1, Outcome::Reused);

        copy_over(&source, &other(EDGES));
        let message = run(false).unwrap_err().to_string();
        assert!(message.contains("edges.txt has other content than it had"), "{message}");
        let beside = folder.path().join("beside");
        fs::write(&beside, other(EDGES)).unwrap();
        fs::rename(&beside, &source).unwrap();
        assert!(run(false).is_err());

        // The original content again, at any time.
        fs::write(&source, EDGES).unwrap();
        for seconds in [3600, 0] {
            touch(seconds);
            assert_eq!(run(false).unwrap().1, Outcome::Reused);
        }
    }
    fs::write(&source, format!("{EDGES}3 0\n")).unwrap();
    let message = run(false).unwrap_err().to_string();
    assert!(message.contains("edges.txt had 12 bytes and has 16"), "{message}");

    fs::write(&source, EDGES).unwrap();
    let path = out.join("dataset.json");
    let (mut manifest, _) = document::read::<DatasetManifest>(&path).unwrap();
    manifest.provenance.sources[0].checksum = None;
    document::write(&path, &manifest).unwrap();
    let message = run(false).unwrap_err().to_string();
    assert!(message.contains("it has no checksum of edges.txt"), "{message}");
}

#[test]
fn a_refusal_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("edges.csv"), "a,b\n1,2\n").unwrap();
    fs::write(at("nodes.csv"), "id,f0\n1,0\n").unwrap();
    let options = options(&format!("--nodes {}", at("nodes.csv").display()));
    let message =
        convert(&at("edges.csv"), &at("ds"), &options, false, &NoProgress).unwrap_err().to_string();
    assert!(message.contains("1 of 2 vertices have edges and no row, for example 2"), "{message}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "the graph was finished, and is of no use"
    );
}

/// Dies where the features begin.
struct Dies(Notes);

impl Progress for Dies {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage> {
        assert_ne!(name, "writing features");
        NoProgress.stage(name, total, unit)
    }

    fn note(&self, line: &str) {
        self.0.note(line);
    }
}

#[test]
fn a_resumed_conversion_is_of_the_same_content() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (snap(folder.path().join("edges.txt")), folder.path().join("ds"));
    let options = options("--features random:2");
    let indices = folder.path().join(".ds.partial/dataset/topology/indices.npy");
    let die = || {
        let dead = std::panic::catch_unwind(|| {
            convert(&source, &out, &options, false, &Dies(Notes::default())).is_ok()
        });
        assert!(dead.is_err() && indices.exists());
        fs::metadata(&indices).unwrap().ino()
    };
    let finish = || {
        let notes = Notes::default();
        let (dataset, _) = convert(&source, &out, &options, false, &notes).unwrap();
        let inode = fs::metadata(out.join("topology/indices.npy")).unwrap().ino();
        let sources = dataset.manifest().provenance.sources.clone();
        let expected = Checksum::of(&fs::read(&source).unwrap());
        assert_eq!(sources[0].checksum, Some(expected));
        fs::remove_dir_all(&out).unwrap();
        (dataset.topology().indices().to_vec(), inode, notes.lines().join("\n"))
    };
    fs::write(&source, EDGES).unwrap();
    let left = die();
    fs::write(&source, EDGES).unwrap();
    let (first, inode, notes) = finish();
    assert_eq!(inode, left, "the graph was built again: {notes}");

    die();
    copy_over(&source, &other(EDGES));
    let (second, _, notes) = finish();
    assert_ne!(first, second);
    assert!(
        notes.contains("an unfinished conversion cannot be resumed: edges.txt has other content"),
        "{notes}"
    );
}

#[test]
fn a_resumed_conversion_has_the_same_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("edges.csv"), "a,b\n1,2\n2,3\n3,1\n4,1\n").unwrap();
    fs::write(at("nodes.csv"), "id,label\n1,x\n2,y\n3,x\n4,\n").unwrap();
    let words =
        format!("--features random:2 --random-split auto --nodes {}", at("nodes.csv").display());
    let options = options(&words);
    let run = || {
        convert(&at("edges.csv"), &at("ds"), &options, false, &NoProgress).unwrap();
        let manifest = fs::read_to_string(at("ds/dataset.json")).unwrap();
        fs::remove_dir_all(at("ds")).unwrap();
        manifest
    };
    let undisturbed = run();
    assert!(
        undisturbed.contains("drawn at random")
            && undisturbed.contains("1 of 4 vertices are unlabelled")
    );
    let dies =
        || convert(&at("edges.csv"), &at("ds"), &options, false, &Dies(Notes::default())).is_ok();
    assert!(std::panic::catch_unwind(dies).is_err() && at(".ds.partial/journal.json").exists());
    assert_eq!(run(), undisturbed);
}

#[test]
fn an_input_that_changes_while_it_is_read_is_refused() {
    let (folder, source) = file("edges.txt", EDGES);
    let out = folder.path().join("ds");
    struct Changes<'a>(&'a Path);
    impl Progress for Changes<'_> {
        fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage> {
            if name == "writing features" {
                copy_over(self.0, &other(EDGES));
            }
            NoProgress.stage(name, total, unit)
        }

        fn note(&self, _: &str) {}
    }
    let options = options("--features random:2");
    let message =
        convert(&source, &out, &options, false, &Changes(&source)).unwrap_err().to_string();
    assert!(
        message.contains("was changed while it was read: edges.txt has other content"),
        "{message}"
    );
    assert!(!out.exists());
}

#[test]
fn only_datasets_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("precious"), "x").unwrap();
    let raw = copy("ogb-csv");
    let source = ogb(raw.path());
    // Refused before the input is read, which would fail too.
    fs::write(raw.path().join("raw/node-feat.csv.gz"), "damaged").unwrap();
    for force in [false, true] {
        let error = convert(&source, folder.path(), &ConvertOptions::default(), force, &NoProgress)
            .unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("{}: ", folder.path().display())),
            "{error}"
        );
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
    let good = fs::read(raw.path().join("raw/node-feat.csv.gz")).unwrap();
    let damage =
        || fs::write(raw.path().join("raw/node-feat.csv.gz"), &good[..good.len() - 4]).unwrap();

    damage();
    assert!(run(false).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    fs::write(raw.path().join("raw/node-feat.csv.gz"), &good).unwrap();
    let first = run(false).unwrap().0;
    damage();
    assert!(run(true).is_err());
    assert_eq!(Dataset::open(&out).unwrap().manifest(), first.manifest());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
