//! Artifacts appear whole or not at all, and have one writer at a time.
//!
//! An artifact NAME is written in a hidden sibling, `.NAME.partial`:
//!
//! ```text
//! .NAME.partial/
//!   lock           held by the writer; its content is the writer's process id, for messages
//!   dataset/       what becomes NAME (`artifact/` where it is no dataset)
//!   journal.json   which stages are finished, where they can be resumed ([`crate::DatasetWriter::resume`])
//!   scratch/       files of the writer's own
//! ```
//!
//! Its files are written and fsynced there, then one rename makes it visible; replacing an older artifact is one atomic
//! exchange of the two directories. The lock goes with its process, so what a killed one leaves behind is taken over by the
//! next: resumed if its journal allows, else removed. On a file system that cannot exchange, the older artifact steps aside
//! as `.NAME.old` for a moment; a run killed right then is mended by the next one.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::journal::Journal;
use crate::{Error, Result};
use lock::{LockedFolder, clear, remove_bare};
use tree::{sync, sync_tree};

mod lock;
pub(crate) mod tree;

/// What becomes a dataset.
pub(crate) const DATASET: &str = "dataset";

/// Staging directories of this process, for [`remove_all`]. Held while an artifact becomes visible, so that an interrupt
/// comes before that or after, never between.
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Open {
    root: PathBuf,
    keep: bool,
}

/// A directory under construction. Dropped without a commit, it is removed, unless it is worth keeping for the next run.
#[derive(Debug)]
pub struct Staging {
    target: PathBuf,
    folder: LockedFolder,
    content: PathBuf,
    replace: bool,
}

impl Staging {
    /// Starts the artifact that will stand at `target`. Refuses when something stands there, unless `replace`, and when
    /// another is writing it. What an earlier run left unfinished is removed.
    pub fn begin(target: impl Into<PathBuf>, replace: bool) -> Result<Self> {
        let staging = Self::open(target, replace, "artifact")?;
        staging.restart()?;
        Ok(staging)
    }

    /// Locks the place where the artifact at `target` is written, and leaves what is there: [`Staging::restart`] must
    /// follow, or a check of what was left. `content` names the folder that becomes the artifact.
    pub(crate) fn open(target: impl Into<PathBuf>, replace: bool, content: &str) -> Result<Self> {
        let target = target.into();
        let root = partial(&target)?;
        let parent = parent_of(&target);
        if !replace && target.exists() {
            return Err(Error::Exists(target));
        }
        fs::create_dir_all(&parent).map_err(Error::io(&parent))?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = LockedFolder::acquire(&root, &target)?;
        let staging = Self { content: root.join(content), target, folder, replace };
        open.push(Open { root, keep: true });
        drop(open);
        mend(&staging.target)?;
        if !replace && staging.target.exists() {
            return Err(Error::Exists(staging.target.clone()));
        }
        Ok(staging)
    }

    /// Removes what an earlier run left, and starts with nothing.
    pub(crate) fn restart(&self) -> Result<()> {
        self.keep(false);
        self.folder.clear()?;
        fs::create_dir(&self.content).map_err(Error::io(&self.content))
    }

    /// Whether to keep what is there when this is dropped, or interrupted, before the commit.
    pub(crate) fn keep(&self, keep: bool) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in open.iter_mut().filter(|entry| entry.root == self.folder.root()) {
            entry.keep = keep;
        }
    }

    /// Where to write: `name` may have folders, separated by `/`.
    pub fn path(&self, name: &str) -> PathBuf {
        drop(OPEN.lock().unwrap_or_else(PoisonError::into_inner)); // waits for the exit after `remove_all`
        self.content.join(name)
    }

    /// The folder around what becomes the artifact.
    pub(crate) fn root(&self) -> &Path {
        self.folder.root()
    }

    /// Makes the artifact visible at its final path, which it returns. Whoever writes without locks may have been there
    /// first: without `replace` its artifact stays and this one is refused.
    pub fn commit(self) -> Result<PathBuf> {
        sync_tree(&self.content)?;
        let target = self.target.clone();
        {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner); // no interrupt from here on
            if self.replace && target.exists() {
                exchange(&self.content, &target)?;
            } else {
                fs::rename(&self.content, &target).map_err(|cause| match cause.kind() {
                    ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists => Error::Exists(target.clone()),
                    _ => Error::io(&target)(cause),
                })?;
            }
            for entry in open.iter_mut().filter(|entry| entry.root == self.folder.root()) {
                entry.keep = false;
            }
        }
        sync(&parent_of(&target))?;
        Ok(target) // drop removes the rest, and with it the replaced artifact
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let root = self.folder.root();
        let keep = open.iter().any(|entry| entry.root == root && entry.keep);
        // Best effort: what cannot be removed now is removed by the next run.
        if !keep {
            let _ = clear(root);
        }
        remove_bare(root);
        open.retain(|entry| entry.root != root);
    }
}

/// Removes whatever this process has under construction, but for what has finished stages to resume: an interrupted
/// program's last act before it exits. Returns the folders that are kept. From here on nothing can be begun or made
/// visible: whoever tries waits for the exit.
pub fn remove_all() -> Vec<PathBuf> {
    const ATTEMPTS: usize = 20;
    const PAUSE: Duration = Duration::from_millis(10);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (kept, removed): (Vec<Open>, Vec<Open>) = open.drain(..).partition(|entry| entry.keep);
    for Open { root, .. } in removed {
        for _ in 0..ATTEMPTS {
            // A file that is created at this moment keeps its directory, or brings it back.
            let _ = clear(&root);
            thread::sleep(PAUSE);
            if remove_bare(&root) {
                // A writer that was about to make a folder in it brings it back once more.
                thread::sleep(PAUSE);
                if !root.exists() {
                    break;
                }
            }
        }
    }
    std::mem::forget(open);
    // What was only just locked has nothing in it yet that is worth keeping.
    kept.into_iter().map(|entry| entry.root).filter(|root| !remove_bare(root)).collect()
}

/// Removes what a run that was killed right after its commit left beside the artifact at `target`: for whoever finds that
/// artifact finished and has nothing to write. Finished stages of another one, and what is being written, stay. Best effort.
pub fn tidy(target: &Path) {
    let Ok(root) = partial(target) else { return };
    if !root.exists() {
        return;
    }
    let Ok(folder) = LockedFolder::acquire(&root, target) else { return };
    if !Journal::is_unfinished(&root, &root.join(DATASET)) {
        let _ = folder.clear();
    }
    remove_bare(&root);
}

/// Where the artifact at `target` is written.
fn partial(target: &Path) -> Result<PathBuf> {
    let name = target
        .file_name()
        .ok_or_else(|| Error::Invalid(format!("{}: expected a path that ends in a name", target.display())))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".partial");
    Ok(parent_of(target).join(hidden))
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Swaps two directories in one step; on file systems that cannot, in two renames.
fn exchange(temporary: &Path, target: &Path) -> Result<()> {
    match renameat_with(CWD, temporary, CWD, target, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let old = set_aside(target);
            fs::rename(target, &old).map_err(Error::io(target))?;
            fs::rename(temporary, target).map_err(Error::io(target))?;
            fs::remove_dir_all(&old).map_err(Error::io(&old))
        }
        Err(error) => Err(Error::io(target)(error.into())),
    }
}

/// Where the artifact at `target` stands while another takes its place.
fn set_aside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    parent_of(target).join(format!(".{name}.old"))
}

/// Undoes, or finishes, an exchange that was killed half-way.
fn mend(target: &Path) -> Result<()> {
    let old = set_aside(target);
    match (old.exists(), target.exists()) {
        (false, _) => Ok(()),
        (true, false) => fs::rename(&old, target).map_err(Error::io(target)),
        (true, true) => fs::remove_dir_all(&old).map_err(Error::io(&old)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> String {
        fs::read_to_string(path.join("x")).unwrap()
    }

    #[test]
    fn old_state_until_commit_then_new() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("artifact");
        for (round, replace) in [(0, false), (1, true)] {
            let staging = Staging::begin(&target, replace).unwrap();
            fs::write(staging.path("x"), round.to_string()).unwrap();
            assert_eq!(target.exists(), round > 0);
            staging.commit().unwrap();
            assert_eq!(read(&target), round.to_string());
        }
        assert!(matches!(Staging::begin(&target, false), Err(Error::Exists(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn who_comes_second_is_refused_and_half_exchanges_are_mended() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("artifact");
        let staging = Staging::begin(&target, false).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("x"), "another process").unwrap();
        assert!(matches!(staging.commit(), Err(Error::Exists(_))));
        assert_eq!(read(&target), "another process");

        fs::rename(&target, set_aside(&target)).unwrap();
        assert!(matches!(Staging::begin(&target, false), Err(Error::Exists(_))));
        assert_eq!(read(&target), "another process");
        fs::create_dir(set_aside(&target)).unwrap();
        Staging::begin(&target, true).unwrap().commit().unwrap();
        assert!(!set_aside(&target).exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn dropped_and_abandoned_work_disappears() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("artifact");
        drop(Staging::begin(&target, false).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let abandoned = folder.path().join(".artifact.partial/artifact");
        fs::create_dir_all(&abandoned).unwrap();
        fs::write(abandoned.join("stale"), "").unwrap();
        fs::write(folder.path().join(".artifact.partial/lock"), "1").unwrap();
        Staging::begin(&target, false).unwrap().commit().unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_second_writer_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("artifact");
        let first = Staging::begin(&target, false).unwrap();
        fs::write(first.path("x"), "first").unwrap();
        for replace in [false, true] {
            let line = Staging::begin(&target, replace).unwrap_err().to_string();
            let own = std::process::id();
            let expected = format!("artifact: another gsplit is writing it (process {own}): wait for it, or stop it");
            assert!(line.ends_with(&expected), "{line}");
        }
        assert_eq!(read(&first.commit().unwrap()), "first");
        Staging::begin(&target, true).unwrap();
    }

    #[test]
    fn tidying_leaves_who_is_writing_alone() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("artifact");
        let staging = Staging::begin(&target, false).unwrap();
        fs::write(staging.path("x"), "whole").unwrap();
        tidy(&target);
        assert_eq!(read(&staging.commit().unwrap()), "whole");
        fs::create_dir_all(folder.path().join(".artifact.partial/artifact")).unwrap();
        fs::write(folder.path().join(".artifact.partial/lock"), "1").unwrap();
        tidy(&target);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn many_threads_want_one_target() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("artifact");
        let writer = || {
            let mut commits = 0;
            while commits < 20 {
                match Staging::begin(&target, true) {
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
}
