//! Staging folders under kills, faults, rival writers and next to files of the user's.

pub(super) mod faults;

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::{DatasetWriter, Error, Presample, Provenance, dataset_target, document};

/// The mark of these tests' artifacts is their only file.
fn at(path: &Path) -> Target {
    Target::new(path, Mark { file: "x", word: "" })
}

/// An empty folder, and the path in it of an artifact.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("artifact");
    (folder, target)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path.join("x")).unwrap()
}

#[test]
fn old_state_until_commit_then_new() {
    let (folder, target) = place();
    for (round, replace) in [(0, false), (1, true)] {
        let staging = Staging::begin(at(&target), replace).unwrap();
        fs::write(staging.path("x"), round.to_string()).unwrap();
        assert_eq!(target.exists(), round > 0);
        staging.commit().unwrap();
        assert_eq!(read(&target), round.to_string());
    }
    assert!(matches!(Staging::begin(at(&target), false), Err(Error::Exists(_))));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn who_comes_second_is_refused_and_half_exchanges_are_mended() {
    let (folder, target) = place();
    let staging = Staging::begin(at(&target), false).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(target.join("x"), "another process").unwrap();
    assert!(matches!(staging.commit(), Err(Error::Exists(_))));
    assert_eq!(read(&target), "another process");

    // Killed between the two renames of a file system that cannot exchange.
    let staging = Staging::open(at(&target), true, "artifact").unwrap();
    staging
        .folder
        .parent
        .rename(OsStr::new("artifact"), &staging.folder.folder, OsStr::new(REPLACED))
        .unwrap();
    drop(staging);
    assert!(!target.exists());
    assert!(matches!(Staging::begin(at(&target), false), Err(Error::Exists(_))));
    assert_eq!(read(&target), "another process");
    // Killed right after them.
    let staging = Staging::open(at(&target), true, "artifact").unwrap();
    fs::create_dir(staging.root().join(REPLACED)).unwrap();
    drop(staging);
    Staging::begin(at(&target), true).unwrap().commit().unwrap();
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_knows_how_it_was_made_until_it_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::file(folder.path().join("p.npy"));
    let [this, other] = ["this", "other"].map(|way| Checksum::of(way.as_bytes()));
    assert!(!target.is_made_by(&this).unwrap());
    let staging = Staging::begin(target.clone(), false).unwrap();
    fs::write(staging.file(), "1").unwrap();
    staging.record(&this).unwrap();
    staging.commit().unwrap();
    if !target.is_made_by(&this).unwrap() {
        eprintln!("skipped: no extended attributes here");
        return;
    }
    assert!(!target.is_made_by(&other).unwrap());
    fs::write(target.path(), "12").unwrap();
    assert!(!target.is_made_by(&this).unwrap());
}

/// Leaves a staging folder as a killed run does.
fn abandon(target: &Path) {
    let staging = Staging::open(at(target), true, "artifact").unwrap();
    fs::create_dir(staging.path("")).unwrap();
    fs::write(staging.path("stale"), "").unwrap();
}

#[test]
fn dropped_and_abandoned_work_disappears() {
    let (folder, target) = place();
    drop(Staging::begin(at(&target), false).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    abandon(&target);
    Staging::begin(at(&target), false).unwrap().commit().unwrap();
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_second_writer_is_refused_at_once() {
    let (_folder, target) = place();
    let first = Staging::begin(at(&target), false).unwrap();
    fs::write(first.path("x"), "first").unwrap();
    for replace in [false, true] {
        let line = Staging::begin(at(&target), replace).unwrap_err().to_string();
        let own = std::process::id();
        let expected = format!(
            "artifact: another gsplit is writing it (process {own}): wait for it, or stop it"
        );
        assert!(line.ends_with(&expected), "{line}");
    }
    assert_eq!(read(&first.commit().unwrap()), "first");
    Staging::begin(at(&target), true).unwrap();
}

#[test]
fn tidying_leaves_who_is_writing_alone() {
    let (folder, target) = place();
    let staging = Staging::begin(at(&target), false).unwrap();
    fs::write(staging.path("x"), "whole").unwrap();
    tidy(&at(&target));
    assert_eq!(read(&staging.commit().unwrap()), "whole");
    abandon(&target);
    tidy(&at(&target));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn many_threads_want_one_target() {
    let (folder, target) = place();
    let writer = || {
        let mut commits = 0;
        while commits < 20 {
            match Staging::begin(at(&target), true) {
                Ok(staging) => {
                    fs::write(staging.path("x"), "whole").unwrap();
                    staging.commit().unwrap();
                    commits += 1;
                }
                Err(Error::Busy { .. }) => thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(writer);
        }
    });
    assert_eq!(read(&target), "whole");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A folder of the user's, and its content.
fn home(folder: &Path) -> PathBuf {
    let home = folder.join("home");
    fs::create_dir_all(home.join("deep")).unwrap();
    fs::write(home.join("letter"), "dear").unwrap();
    fs::write(home.join("deep/lock"), "mine").unwrap();
    home
}

fn is_untouched(home: &Path) -> bool {
    let names = tree::lengths(home).unwrap().into_keys().collect::<Vec<_>>();
    let letters = fs::read_to_string(home.join("letter")).unwrap()
        + &fs::read_to_string(home.join("deep/lock")).unwrap();
    names == ["deep/lock", "letter"] && letters == "dearmine"
}

#[test]
fn what_gsplit_did_not_make_is_refused_and_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let home = home(folder);
    let (target, partial) = (folder.join("artifact"), folder.join(".artifact.partial"));
    let refused = |words: &str| {
        for replace in [false, true] {
            let line = Staging::begin(at(&target), replace).unwrap_err().to_string();
            assert!(
                line.contains(words)
                    && line.contains("not gsplit's own")
                    && line.contains("move it"),
                "{line}"
            );
            tidy(&at(&target));
            assert!(is_untouched(&home) && !target.exists());
        }
    };
    symlink("home", &partial).unwrap();
    refused("a link");
    fs::remove_file(&partial).unwrap();
    fs::write(&partial, "a file").unwrap();
    refused("no folder");
    fs::remove_file(&partial).unwrap();
    // A folder of the user's, with and without a lock of theirs.
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("thesis"), "finished").unwrap();
    refused("without gsplit's lock");
    assert_eq!(fs::read_dir(&partial).unwrap().count(), 1, "no lock was made in it");
    for lock in ["", "4711"] {
        fs::write(partial.join("lock"), lock).unwrap();
        refused("without gsplit's lock");
        assert_eq!(fs::read_to_string(partial.join("lock")).unwrap(), lock);
    }
    assert_eq!(fs::read_to_string(partial.join("thesis")).unwrap(), "finished");
    fs::remove_file(partial.join("thesis")).unwrap();
    fs::remove_file(partial.join("lock")).unwrap();
    symlink("../home/letter", partial.join("lock")).unwrap();
    refused("a link");
    fs::remove_file(partial.join("lock")).unwrap();
    // A kill right after the folder was made, or its lock.
    Staging::begin(at(&target), false).unwrap();
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("lock"), "").unwrap();
    Staging::begin(at(&target), false).unwrap();
    assert!(!partial.exists());
}

#[test]
fn clearing_and_replacing_follow_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let home = home(folder);
    let target = folder.join("artifact");
    abandon(&target);
    for name in ["link", "artifact/link"] {
        symlink(&home, folder.join(".artifact.partial").join(name)).unwrap();
    }
    Staging::begin(at(&target), false).unwrap().commit().unwrap();
    assert!(is_untouched(&home) && !folder.join(".artifact.partial").exists());
    fs::remove_dir(&target).unwrap();
    // A dataset that is to be resumed, with links in its content and its scratch folder.
    let partial = folder.join(".ds.partial");
    for name in ["scratch", "dataset", "dataset/nodes", "journal.json", "journal.json.next"] {
        let staging = Staging::open(dataset_target(&folder.join("ds")), false, DATASET).unwrap();
        fs::create_dir_all(partial.join(name).parent().unwrap()).unwrap();
        symlink(&home, partial.join(name)).unwrap();
        drop(staging);
        let mut writer =
            DatasetWriter::resume(&folder.join("ds"), false, &serde_json::json!(1)).unwrap();
        fs::write(writer.scratch().join("bucket"), "x").unwrap();
        writer.add_graph(&[0, 1, 1], &[1]).unwrap();
        writer.complete("topology").unwrap();
        drop(writer);
        assert!(is_untouched(&home), "{name}");
        fs::remove_dir_all(&partial).unwrap();
    }
    // Only what gsplit made is replaced.
    fs::rename(&home, &target).unwrap();
    let line = Staging::begin(dataset_target(&target), true).unwrap_err().to_string();
    assert!(
        line.contains("holds no dataset.json of gsplit's, so even --force will not replace it"),
        "{line}"
    );
    fs::write(target.join("dataset.json"), r#"{ "format": "huggingface" }"#).unwrap();
    assert!(matches!(
        Staging::begin(dataset_target(&target), true),
        Err(Error::NotReplaced { .. })
    ));
    fs::remove_file(target.join("dataset.json")).unwrap();
    dataset_target(&target).remove().unwrap();
    fs::rename(&target, &home).unwrap();
    symlink(&home, &target).unwrap();
    assert!(Staging::begin(at(&target), true).unwrap_err().to_string().contains("is a link"));
    dataset_target(&target).remove().unwrap_err();
    assert!(is_untouched(&home));
}

#[test]
fn no_link_leads_out_of_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let home = home(folder);
    let path = folder.join("ds");
    DatasetWriter::create(&path, false, &[0, 1, 1], &[1])
        .unwrap()
        .finish(Provenance::default())
        .unwrap();
    // The way to the dataset is the user's choice.
    symlink(&path, folder.join("way")).unwrap();
    let dataset = crate::Dataset::open(folder.join("way")).unwrap();
    let begin = || Staging::begin(Presample::target(&dataset, "k"), true);
    begin().unwrap();
    for (link, to) in [
        ("presample", "../home"),
        ("presample/.k.partial", "../../home"),
        ("presample/k", "../../home"),
    ] {
        let link = path.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_dir(&link);
        symlink(to, &link).unwrap();
        let line = begin().unwrap_err().to_string();
        assert!(line.contains("is a link, and not gsplit's own"), "{line}");
        tidy(&Presample::target(&dataset, "k"));
        assert!(is_untouched(&home));
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(fs::read_dir(path.join("presample")).unwrap().count(), 0);
}

/// Leaves the same files as a kill: the staging folders, even with only a lock in them.
fn kill(stagings: impl IntoIterator<Item = Staging>) {
    for staging in stagings {
        staging.keep(true);
        fs::write(staging.root().join("stray"), "").unwrap();
    }
}

#[test]
fn a_kill_at_any_step_of_a_joint_commit_leaves_all_or_none() {
    const FILES: [&str; 4] = ["p.npy", "p.ids.npy", "elsewhere/e.npy", "elsewhere/e.ids.npy"];
    let begin = |folder: &Path, replace| {
        let targets = FILES.map(|name| Target::file(folder.join(name)));
        recover(&targets)?;
        targets
            .into_iter()
            .map(|target| Staging::begin(target, replace))
            .collect::<Result<Vec<_>>>()
    };
    let write = |stagings: &[Staging], text: &str| {
        stagings.iter().for_each(|staging| fs::write(staging.file(), text).unwrap());
    };
    let texts =
        |folder: &Path| FILES.map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default());
    for replace in [false, true] {
        let mut kills = 0..;
        loop {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            if replace {
                // One of them was not there before.
                let stagings = begin(folder, false).unwrap();
                write(&stagings, "old");
                commit_all(stagings).unwrap();
                fs::remove_file(folder.join(FILES[1])).unwrap();
            }
            let before = texts(folder);
            let stagings = begin(folder, replace).unwrap();
            write(&stagings, "new");
            let steps = together::steps(&stagings);
            let killed_after = kills.next().unwrap();
            for step in steps.iter().take(killed_after) {
                step.run(&stagings).unwrap();
                let now = texts(folder);
                let both =
                    now.iter().any(|text| text == "old") && now.iter().any(|text| text == "new");
                assert!(!both, "old next to new after {step:?}: {now:?}");
            }
            kill(stagings);
            if killed_after == steps.len() {
                assert!(texts(folder).iter().all(|text| text == "new"));
                assert!(matches!(begin(folder, false), Err(Error::Exists(_))));
            } else {
                let stagings = begin(folder, replace).unwrap();
                assert_eq!(texts(folder), before, "killed after {killed_after} steps of {steps:?}");
                write(&stagings, "newer");
                // The artifact of a writer that came in between stays, and the ones that had
                // appeared are taken back.
                if !replace {
                    fs::write(folder.join(FILES[0]), "mine").unwrap();
                    assert!(matches!(commit_all(stagings), Err(Error::Exists(_))));
                    assert_eq!(texts(folder), ["mine", "", "", ""]);
                } else {
                    commit_all(stagings).unwrap();
                    assert!(texts(folder).iter().all(|text| text == "newer"));
                }
            }
            drop(begin(folder, true).unwrap());
            assert!(
                tree::lengths(folder).unwrap().keys().all(|name| !name.contains(".partial")),
                "nothing is left"
            );
            if killed_after == steps.len() {
                break;
            }
        }
    }
}

/// Two files that a killed run was about to show as one: the second has appeared.
fn killed_before_the_first(folder: &Path) -> [Target; 2] {
    let targets = ["first", "second"].map(|name| Target::file(folder.join(name)));
    let stagings = targets.clone().map(|target| Staging::begin(target, false).unwrap());
    stagings.iter().for_each(|staging| fs::write(staging.file(), "new").unwrap());
    let steps = together::steps(&stagings);
    steps[..steps.len() - 1].iter().for_each(|step| step.run(&stagings).unwrap());
    kill(stagings);
    targets
}

#[test]
fn a_forged_note_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let home = home(folder);
    // The note on the other artifact fits a file and a folder of the user's, or the user's own is
    // named in its place.
    for victim in ["letter", "deep"] {
        let own =
            folder::Folder::open(&home).unwrap().identity(OsStr::new(victim)).unwrap().unwrap();
        for place in [folder.join("second"), home.join("other"), home.join(victim)] {
            let targets = killed_before_the_first(folder);
            let partial = folder::Folder::open(&folder.join(".first.partial")).unwrap();
            let first = partial.identity(OsStr::new(ARTIFACT)).unwrap().unwrap();
            let forged = Staging::lock(dataset_target(&place), true, ARTIFACT).unwrap();
            document::write(
                &forged.root().join("together.json"),
                &together::Together { first, own: own.clone() },
            )
            .unwrap();
            drop(forged);
            let _ = recover(&[targets[0].clone(), dataset_target(&place)]);
            let _ = recover(&targets);
            fs::remove_dir_all(
                place.with_file_name(format!(".{}.partial", place.file_name().unwrap().display())),
            )
            .ok();
            assert!(is_untouched(&home), "{victim} at {}", place.display());
            fs::remove_file(folder.join("second")).ok();
        }
    }
    // The artifacts of the killed run are taken back by the next writer of both.
    let targets = killed_before_the_first(folder);
    recover(&targets).unwrap();
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "the home alone");
}

#[test]
fn what_another_user_left_is_refused_and_untouched() {
    use std::os::unix::fs::chown;
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for owned in ["", "lock", "together.json"] {
        let targets = killed_before_the_first(folder);
        let path = folder.join(".first.partial").join(owned);
        if chown(&path, Some(NOBODY), None).is_err() {
            eprintln!("skipped: only root gives files away");
            return;
        }
        for refused in [
            recover(&targets).unwrap_err(),
            Staging::begin(targets[0].clone(), false).unwrap_err(),
            Staging::begin(targets[0].clone(), true).unwrap_err(),
        ] {
            assert!(
                refused.to_string().contains("of another user, and not gsplit's own"),
                "{owned}: {refused}"
            );
        }
        tidy(&targets[0]);
        assert!(
            folder.join("second").exists() && folder.join(".first.partial/artifact").exists(),
            "{owned}"
        );
        // Its owner goes on.
        chown(&path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        recover(&targets).unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "{owned}");
    }
}
