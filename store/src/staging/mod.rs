//! Artifacts appear whole or not at all, and have one writer at a time.
//!
//! An artifact NAME is written in a hidden sibling, `.NAME.partial`:
//!
//! ```text
//! .NAME.partial/
//!   lock           held by the writer; says that gsplit made the folder
//!   dataset/       becomes NAME (`artifact` if it is not a dataset: a folder, or a file)
//!   journal.json   which stages are finished, where they can be resumed ([`crate::DatasetWriter::resume`])
//!   scratch/       files of the writer's own
//!   replaced       the older artifact while NAME takes its place, where that takes two steps
//!   together.json  the artifact that this one becomes visible with ([`commit_all`])
//! ```
//!
//! Its files are written and fsynced there, then one rename makes it visible; replacing an older
//! artifact is one atomic exchange of the two. The lock ends with its process, so the next run
//! takes over the folder of a killed one: resumes it if its journal allows, otherwise removes it.
//! On a file system that cannot exchange, and if several artifacts become visible together, the
//! older artifact is moved to `.NAME.partial/replaced` first. If a later step fails, it is moved
//! back. If that fails too, or the run is killed, it stays there until the next run restores it: a
//! staging folder that holds the only copy of an older artifact is never cleared.
//!
//! **Nothing of the user's is touched.** A folder is cleared or taken over only where its lock file
//! says that gsplit made it, and an artifact is replaced only where it holds the document that
//! makes it one ([`Mark`]); anything else of those names is refused. All of this is done relative
//! to the handles of open folders and follows no link: a dataset from elsewhere cannot lead gsplit
//! out of itself. The path to a dataset, or to a target elsewhere, may go through links: the user
//! named it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, XattrFlags, setxattr};

use crate::{Checksum, Result};
use folder::Identity;
use lock::LockedFolder;

mod folder;
mod lock;
mod private;
mod target;
#[cfg(test)]
mod tests;
mod together;
pub(crate) mod tree;

pub use lock::FolderLock;
pub use private::PrivateFolder;
pub use target::{Mark, Target, artifact_around, make_folder};
pub use together::{commit_all, recover};

/// Name, in the staging folder, of a dataset under construction.
pub(crate) const DATASET: &str = "dataset";

/// Name, in the staging folder, of any other artifact under construction.
const ARTIFACT: &str = "artifact";

const CONTENTS: [&str; 2] = [DATASET, ARTIFACT];

/// Name of the older artifact while it is moved aside.
const REPLACED: &str = "replaced";

/// Staging directories of this process, for [`remove_all`]. Held while an artifact becomes visible,
/// so that an interrupt comes before that or after, never between.
static OPEN: Mutex<Vec<Arc<LockedFolder>>> = Mutex::new(Vec::new());

/// Keeps interrupts from removing anything while the guard lives. After [`remove_all`] it waits for
/// the exit.
fn open_folders() -> MutexGuard<'static, Vec<Arc<LockedFolder>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An artifact under construction, a folder or a file. Dropped without a commit, it is removed,
/// unless it is worth keeping for the next run.
#[derive(Debug)]
pub struct Staging {
    target: Target,
    folder: Arc<LockedFolder>,
    content: &'static str,
    replace: bool,
}

impl Staging {
    /// Starts the artifact at `target`. Fails if something exists there, unless `replace` is set
    /// and gsplit made it, or if another process is writing it. Unfinished files of an earlier run
    /// are removed.
    pub fn begin(target: Target, replace: bool) -> Result<Self> {
        let staging = Self::open(target, replace, ARTIFACT)?;
        staging.restart()?;
        Ok(staging)
    }

    /// Locks the place where the artifact at `target` is written, and keeps its content: the caller
    /// must then call [`Staging::restart`] or check the content. `content` names the folder that
    /// becomes the artifact.
    pub(crate) fn open(target: Target, replace: bool, content: &'static str) -> Result<Self> {
        target.check(replace)?;
        let staging = Self::lock(target, replace, content)?;
        together::settle(&[&staging], None)?;
        staging.target.check_in(&staging.folder.parent, replace)?;
        Ok(staging)
    }

    /// Locks the place where the artifact at `target` is written.
    fn lock(target: Target, replace: bool, content: &'static str) -> Result<Self> {
        let mut open = open_folders();
        let folder = Arc::new(LockedFolder::acquire(&target)?);
        open.push(folder.clone());
        drop(open);
        Ok(Self { target, folder, content, replace })
    }

    /// Removes the files of an earlier run, and starts with nothing.
    pub(crate) fn restart(&self) -> Result<()> {
        // An interrupt comes before all of this, when nothing but the lock is there, or after it.
        let _open = open_folders();
        self.keep(false);
        self.folder.clear()?;
        if self.target.is_folder() {
            self.folder.folder.make(OsStr::new(self.content))?;
        }
        Ok(())
    }

    /// Removes everything from an earlier run except these files and folders, if they have that
    /// type.
    pub(crate) fn retain(&self, files: &[&str], folders: &[&str]) -> Result<()> {
        let folder = &self.folder.folder;
        for name in folder.names()? {
            let wanted = match folder.kind(&name)? {
                Some(FileType::RegularFile) => {
                    name == lock::LOCK || files.iter().any(|file| name == *file)
                }
                Some(FileType::Directory) => folders.iter().any(|folder| name == *folder),
                _ => false,
            };
            if !wanted {
                folder.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Sets whether to keep the content if this is dropped, or interrupted, before the commit.
    pub(crate) fn keep(&self, keep: bool) {
        self.folder.keep(keep);
    }

    /// Path for writing the file `name` of a folder: it may have folders, separated by `/`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.file().join(name)
    }

    /// Path for writing an artifact that is a file.
    pub fn file(&self) -> PathBuf {
        drop(open_folders());
        self.root().join(self.content)
    }

    /// The staging folder, which holds the artifact under construction.
    pub(crate) fn root(&self) -> &Path {
        self.folder.folder.path()
    }

    /// Records how the artifact, a file that is finished, is made, for [`Target::is_made_by`]. A
    /// file system without extended attributes does not keep it.
    pub fn record(&self, made_by: &Checksum) -> Result<()> {
        let content = self.hidden()?;
        let value = content.map(|content| target::made(made_by, &content)).unwrap_or_default();
        let _ = setxattr(self.file(), target::MADE_BY, value.as_bytes(), XattrFlags::empty());
        Ok(())
    }

    /// Makes the artifact visible at its final path, and returns that path. A writer without locks
    /// may have been first: without `replace` its artifact stays and this one is refused.
    pub fn commit(self) -> Result<PathBuf> {
        let path = self.target.path().to_path_buf();
        commit_all(vec![self])?;
        Ok(path)
    }

    /// Identity of the entry at the final path; `None` if it does not exist.
    fn shown(&self) -> Result<Option<Identity>> {
        self.folder.parent.identity(self.target.name()?)
    }

    /// Identity of the artifact under construction; `None` if it does not exist, or is visible
    /// already.
    fn hidden(&self) -> Result<Option<Identity>> {
        self.folder.folder.identity(OsStr::new(self.content))
    }

    /// Path of the older artifact while it is moved aside.
    fn aside(&self) -> PathBuf {
        self.root().join(REPLACED)
    }

    fn appear(&self) -> Result<()> {
        let (folder, parent) = (&self.folder.folder, &self.folder.parent);
        let (content, name) = (OsStr::new(self.content), self.target.name()?);
        if self.target.check_in(parent, self.replace)? {
            if folder.exchange(content, parent, name)? {
                return Ok(());
            }
            self.step_aside()?;
        }
        folder.rename(content, parent, name)
    }

    /// Moves the older artifact, if there is one, to [`REPLACED`].
    fn step_aside(&self) -> Result<()> {
        let (folder, parent) = (&self.folder.folder, &self.folder.parent);
        match self.target.check_in(parent, self.replace)? {
            true => parent.rename(self.target.name()?, folder, OsStr::new(REPLACED)),
            false => Ok(()),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let mut open = open_folders();
        // Best effort: the next run removes the files that cannot be removed now.
        if !self.folder.is_kept() {
            let _ = self.folder.clear();
        }
        self.folder.remove_bare();
        open.retain(|folder| !Arc::ptr_eq(folder, &self.folder));
    }
}

/// Removes everything this process has under construction, except what the next run needs: finished
/// stages to resume, and older artifacts to restore. An interrupted program calls it last, before
/// it exits. Returns the folders that are kept. From here on nothing can be begun or made visible:
/// callers that try wait for the exit.
pub fn remove_all() -> Vec<PathBuf> {
    const ATTEMPTS: usize = 20;
    const PAUSE: Duration = Duration::from_millis(10);
    let mut open = open_folders();
    let (kept, removed): (Vec<_>, Vec<_>) = open.drain(..).partition(|folder| folder.is_kept());
    for folder in removed {
        for _ in 0..ATTEMPTS {
            // A file that is created at this moment keeps its directory, or brings it back.
            let _ = folder.clear();
            thread::sleep(PAUSE);
            if folder.remove_bare() {
                // A writer that was about to make a folder in it brings it back once more.
                thread::sleep(PAUSE);
                if !folder.remove_returned() {
                    break;
                }
            }
        }
    }
    std::mem::forget(open);
    // A folder that was only just locked has no content worth keeping.
    let kept = kept.into_iter().filter(|folder| !folder.remove_bare());
    kept.map(|folder| folder.folder.path().to_path_buf()).collect()
}

/// Removes the leftovers next to the artifact at `target` of a run killed right after its commit:
/// for callers that find the artifact finished and write nothing. Finished stages of another
/// artifact, and files being written, stay. Best effort.
pub fn tidy(target: &Target) {
    let _ = recover(std::slice::from_ref(target));
}
