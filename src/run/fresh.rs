//! `gsplit run --fresh`: a new run that replaces an earlier one in the same folder.
//!
//! ```text
//! OUT/.fresh/lock         held by the run
//! OUT/.fresh/NAME/        the new run in progress; NAME is the name of OUT
//! OUT/.fresh/finished/    the new run is complete; the earlier one is removed, then this is moved in,
//!                         its record last
//! ```
//!
//! The earlier run stays unchanged until the new one has succeeded. A run that is killed between two
//! steps of the replacement is completed by the next `gsplit run` with the same OUT. Files that
//! gsplit did not make are never touched.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gsplit_store::entries;
use gsplit_store::staging::FolderLock;

use super::steps::{RECORD, Record};

/// Folder of the new run inside the earlier one's folder.
const FOLDER: &str = ".fresh";
/// Folder inside it for the complete run.
const FINISHED: &str = "finished";

/// Place of a new run.
pub struct Fresh {
    out: PathBuf,
    /// Folder that the steps write to.
    pub work: PathBuf,
    _lock: FolderLock,
}

impl Fresh {
    /// Prepares to replace the run in `out`.
    pub fn begin(out: &Path) -> Result<Self> {
        let folder = out.join(FOLDER);
        let lock = FolderLock::acquire(&folder)?;
        let real = out.canonicalize().map_err(gsplit_store::Error::io(out))?;
        let name = real.file_name().unwrap_or(OsStr::new("run"));
        Ok(Self { out: out.into(), work: folder.join(name), _lock: lock })
    }

    /// Removes the files of an unfinished run.
    pub fn restart(&self) -> Result<()> {
        removed(&self.work)
    }

    /// Replaces the earlier run by the new one, which is complete.
    pub fn finish(self) -> Result<()> {
        renamed(&self.work, &self.out.join(FOLDER).join(FINISHED))?;
        settle(&self.out)
    }
}

/// Completes the replacement of the run in `out`, if the new one was complete when its process
/// ended.
pub fn complete(out: &Path) -> Result<()> {
    let folder = out.join(FOLDER);
    if folder.join(FINISHED).exists() {
        let _lock = FolderLock::acquire(&folder)?;
        settle(out)?;
    }
    Ok(())
}

/// Replaces the run in `out` by the complete new one, starting wherever that was interrupted. The
/// caller holds the lock.
fn settle(out: &Path) -> Result<()> {
    let folder = out.join(FOLDER);
    let finished = folder.join(FINISHED);
    let kept = || {
        format!(
            "the new run is complete in {}: the next gsplit run to {} puts it in its place",
            folder.display(),
            out.display()
        )
    };
    // Until the new record is moved, a record in `out` is the earlier run's.
    if finished.join(RECORD).exists() {
        remove_earlier(out).and_then(|()| move_in(&finished, out)).with_context(kept)?;
        renamed(&finished.join(RECORD), &out.join(RECORD))?;
    }
    removed(&folder)
}

/// Removes everything that the run in `out` made, its record last.
fn remove_earlier(out: &Path) -> Result<()> {
    let Some(record) = Record::read(out)? else { return Ok(()) };
    let checkpoint = out.join("checkpoint");
    let is_own = |name: &String| {
        name.starts_with("epoch-") || name.starts_with('.') || ["best", "lock"].contains(&&**name)
    };
    let epochs = names(&checkpoint).unwrap_or_default().into_iter().filter(is_own);
    let parts = names(out)?.into_iter().filter(|name| record.made(name) && name != "checkpoint");
    let parts = parts.map(|name| out.join(name)).chain([out.join(RECORD)]);
    for part in epochs.map(|name| checkpoint.join(name)).chain(parts) {
        removed(&part)?;
    }
    // The folder stays if it has files of the user.
    let _ = fs::remove_dir(checkpoint);
    Ok(())
}

/// Moves the contents of `from` into `to`, except a record; the contents of folders that exist there
/// are moved into these.
fn move_in(from: &Path, to: &Path) -> Result<()> {
    for name in names(from)?.into_iter().filter(|name| name != RECORD) {
        let (new, target) = (from.join(&name), to.join(&name));
        match (new.is_dir() && target.is_dir(), fs::symlink_metadata(&target).is_ok()) {
            (true, _) => move_in(&new, &target)?,
            (false, true) => bail!("{}: is in the way of the new run: move it", target.display()),
            (false, false) => renamed(&new, &target)?,
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let paths = entries(folder).map_err(gsplit_store::Error::io(folder))?;
    Ok(paths
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect())
}

/// Renames `from` to `to`; if `from` is missing, that was already done.
fn renamed(from: &Path, to: &Path) -> Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound || from.exists() => {
            Err(gsplit_store::Error::io(to)(error).into())
        }
        _ => Ok(()),
    }
}

fn removed(path: &Path) -> Result<()> {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    match if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) } {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(gsplit_store::Error::io(path)(error).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A folder of an earlier run, with files of the user.
    fn earlier(out: &Path) {
        fs::create_dir_all(out.join("checkpoint/epoch-00002")).unwrap();
        fs::create_dir_all(out.join("dataset")).unwrap();
        for (name, text) in [
            ("dataset/dataset.json", "old"),
            ("checkpoint/epoch-00002/checkpoint.json", "old"),
            ("checkpoint/notes.txt", "mine"),
            ("predictions.parquet", "old"),
            ("report.html", "old"),
            ("thesis.tex", "mine"),
            ("embeddings.parquet", "mine"),
            (
                RECORD,
                r#"{"begun":{},"convert":[],"train":[],"infer": ["--out=o/predictions.parquet"], "report": ["o"]}"#,
            ),
        ] {
            fs::write(out.join(name), text).unwrap();
        }
    }

    fn new_run(work: &Path) {
        fs::create_dir_all(work.join("checkpoint/epoch-00001")).unwrap();
        fs::create_dir_all(work.join("dataset")).unwrap();
        for name in [
            "dataset/dataset.json",
            "checkpoint/epoch-00001/checkpoint.json",
            "predictions.parquet",
            RECORD,
        ] {
            fs::write(work.join(name), "{}").unwrap();
        }
    }

    fn check(out: &Path) {
        let text = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_default();
        for name in [
            "dataset/dataset.json",
            "checkpoint/epoch-00001/checkpoint.json",
            "predictions.parquet",
            RECORD,
        ] {
            assert_eq!(text(name), "{}", "{name}");
        }
        for name in ["checkpoint/notes.txt", "thesis.tex", "embeddings.parquet"] {
            assert_eq!(text(name), "mine", "{name}");
        }
        assert!(!out.join("checkpoint/epoch-00002").exists() && !out.join("report.html").exists());
        assert!(!out.join(FOLDER).exists());
    }

    #[test]
    fn a_new_run_replaces_what_the_earlier_made_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("nightly");
        earlier(&out);
        let fresh = Fresh::begin(&out).unwrap();
        assert!(fresh.work.ends_with(".fresh/nightly"));
        assert!(Fresh::begin(&out).is_err(), "one run at a time");
        new_run(&fresh.work);
        assert_eq!(fs::read_to_string(out.join("predictions.parquet")).unwrap(), "old");
        fresh.finish().unwrap();
        check(&out);
        complete(&out).unwrap();
        check(&out);
    }

    #[test]
    fn a_replacement_that_was_killed_anywhere_is_completed() {
        // Number of parts of the earlier run already removed, and of parts of the new run already
        // moved in.
        for (gone, moved) in [(1, 0), (3, 0), (5, 0), (5, 1), (5, 3), (5, 4)] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("nightly");
            earlier(&out);
            let place = |name: &str| out.join(FOLDER).join(name);
            new_run(&place("finished"));
            let old =
                ["checkpoint/epoch-00002", "dataset", "predictions.parquet", "report.html", RECORD];
            old[..gone].iter().for_each(|part| removed(&out.join(part)).unwrap());
            let new = ["dataset", "checkpoint/epoch-00001", "predictions.parquet", RECORD];
            for part in &new[..moved] {
                renamed(&place("finished").join(part), &out.join(part)).unwrap();
            }
            complete(&out).unwrap();
            check(&out);
        }
    }

    #[test]
    fn what_gsplit_did_not_make_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("nightly");
        earlier(&out);
        let fresh = Fresh::begin(&out).unwrap();
        new_run(&fresh.work);
        fs::write(fresh.work.join("thesis.tex"), "of the new run").unwrap();
        let told = format!("{:#}", fresh.finish().unwrap_err());
        assert!(told.contains("thesis.tex: is in the way of the new run: move it"), "{told}");
        fs::remove_file(out.join("thesis.tex")).unwrap();
        complete(&out).unwrap();
        assert_eq!(fs::read_to_string(out.join("thesis.tex")).unwrap(), "of the new run");
    }
}
