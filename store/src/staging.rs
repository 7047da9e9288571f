//! Artifacts appear whole or not at all.
//!
//! A [`Staging`] directory is a hidden sibling of the artifact's final path. Its files are written and fsynced there,
//! then one rename makes it visible; replacing an older artifact is one atomic exchange of the two directories. What a
//! killed process leaves behind is a hidden directory that carries its process id; the next run removes it. On a file
//! system that cannot exchange, the older artifact steps aside as `.NAME.old` for a moment; a run killed right then is
//! mended by the next one.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::{Error, Result};

/// Staging directories of this process, for [`remove_all`]. Held while an artifact becomes visible, so that an interrupt
/// comes before that or after, never between.
static OPEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A directory under construction; removed on drop unless committed.
#[derive(Debug)]
pub struct Staging {
    target: PathBuf,
    temporary: PathBuf,
    replace: bool,
}

impl Staging {
    /// Starts the artifact that will stand at `target`. Refuses when something stands there, unless `replace`.
    pub fn begin(target: impl Into<PathBuf>, replace: bool) -> Result<Self> {
        let target = target.into();
        mend(&target)?;
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
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        fs::create_dir(&temporary).map_err(Error::io(&temporary))?;
        open.push(temporary.clone());
        Ok(Self { target, temporary, replace })
    }

    /// Where to write: `name` may have folders, separated by `/`.
    pub fn path(&self, name: &str) -> PathBuf {
        drop(OPEN.lock().unwrap_or_else(PoisonError::into_inner)); // waits for the exit after `remove_all`
        self.temporary.join(name)
    }

    /// Makes the artifact visible at its final path, which it returns. Another process may have been there first: without
    /// `replace` its artifact stays and this one is refused.
    pub fn commit(self) -> Result<PathBuf> {
        sync_tree(&self.temporary)?;
        let target = self.target.clone();
        {
            let _no_interrupt = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            if self.replace && target.exists() {
                exchange(&self.temporary, &target)?;
            } else {
                fs::rename(&self.temporary, &target).map_err(|cause| match cause.kind() {
                    ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists => Error::Exists(target.clone()),
                    _ => Error::io(&target)(cause),
                })?;
            }
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

/// Removes whatever this process has under construction: an interrupted program's last act before it exits. From here on
/// nothing can be begun or made visible: whoever tries waits for the exit.
pub fn remove_all() {
    const ATTEMPTS: usize = 20;
    const PAUSE: Duration = Duration::from_millis(10);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    for path in open.drain(..) {
        for _ in 0..ATTEMPTS {
            // A file that is created at this moment keeps its directory, or brings it back.
            let _ = fs::remove_dir_all(&path);
            thread::sleep(PAUSE);
            if !path.exists() {
                break;
            }
        }
    }
    std::mem::forget(open);
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
