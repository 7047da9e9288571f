//! Artifacts appear whole or not at all.
//!
//! A [`Staging`] directory is a hidden sibling of the artifact's final path. Its files are written and fsynced there,
//! then one rename makes it visible; replacing an older artifact is one atomic exchange of the two directories. What a
//! killed process leaves behind is a hidden directory that carries its process id; the next run removes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::{Error, Result};

/// Staging directories of this process, for [`remove_all`].
static OPEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A directory under construction; removed on drop unless committed.
#[derive(Debug)]
pub struct Staging {
    target: PathBuf,
    temporary: PathBuf,
}

impl Staging {
    /// Starts the artifact that will stand at `target`. Refuses when something stands there, unless `replace`.
    pub fn begin(target: impl Into<PathBuf>, replace: bool) -> Result<Self> {
        let target = target.into();
        if !replace && target.exists() {
            return Err(Error::Exists(target));
        }
        let name = target
            .file_name()
            .ok_or_else(|| Error::Invalid(format!("{}: expected a path that ends in a name", target.display())))?;
        let parent = parent_of(&target);
        fs::create_dir_all(&parent).map_err(Error::io(&parent))?;
        let prefix = format!(".{}.partial-", name.to_string_lossy());
        remove_abandoned(&parent, &prefix);
        let temporary = parent.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&temporary).map_err(Error::io(&temporary))?;
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(temporary.clone());
        Ok(Self { target, temporary })
    }

    /// Where to write: `name` may have folders, separated by `/`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.temporary.join(name)
    }

    /// Makes the artifact visible at its final path, which it returns.
    pub fn commit(self) -> Result<PathBuf> {
        sync_tree(&self.temporary)?;
        let target = self.target.clone();
        if target.exists() {
            exchange(&self.temporary, &target)?;
        } else {
            fs::rename(&self.temporary, &target).map_err(Error::io(&target))?;
        }
        sync_directory(&parent_of(&target))?;
        Ok(target) // drop removes the temporary, which by now is gone or holds the replaced artifact
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Best effort: what cannot be removed now is removed by the next run.
        let _ = fs::remove_dir_all(&self.temporary);
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| path != &self.temporary);
    }
}

/// Removes whatever this process has under construction: for an interrupted program's last act.
pub fn remove_all() {
    for path in OPEN.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let _ = fs::remove_dir_all(path);
    }
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
            let old = temporary.with_extension("old");
            fs::rename(target, &old).map_err(Error::io(target))?;
            fs::rename(temporary, target).map_err(Error::io(target))?;
            fs::remove_dir_all(&old).map_err(Error::io(&old))
        }
        Err(error) => Err(Error::io(target)(error.into())),
    }
}

/// Removes staging directories whose process is gone.
fn remove_abandoned(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else { continue };
        let own = owner == std::process::id().to_string();
        let alive = Path::new("/proc").join(owner).exists();
        if !owner.is_empty() && owner.bytes().all(|digit| digit.is_ascii_digit()) && (own || !alive) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Flushes the directory entries below `path` to disk; the files' contents were fsynced by their writers.
fn sync_tree(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).map_err(Error::io(path))? {
        let entry = entry.map_err(Error::io(path))?;
        if entry.file_type().map_err(Error::io(path))?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync_directory(path)
}

fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(Error::io(path))
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
    fn dropped_and_abandoned_work_disappears() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("artifact");
        drop(Staging::begin(&target, false).unwrap());
        let abandoned = folder.path().join(".artifact.partial-4194305"); // above the largest process id
        let other = folder.path().join(".artifact.partial-notes");
        fs::create_dir(&abandoned).unwrap();
        fs::create_dir(&other).unwrap();
        Staging::begin(&target, false).unwrap().commit().unwrap();
        assert!(!abandoned.exists() && other.exists() && target.exists());
    }
}
