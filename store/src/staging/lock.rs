//! One writer at a time: an advisory lock on a file, which the kernel releases however its process
//! ends.
//!
//! The file's content says that gsplit made it. A staging folder is cleared only if its lock file
//! says so, and if the folder and the files that decide about it belong to this user: anybody can
//! write that.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{major, minor};

use super::folder::{Folder, is_gone};
use super::target::{Target, make_folder};
use super::together::NOTE;
use crate::journal::JOURNAL;
use crate::{Error, Result};

/// Name of the lock file.
pub(super) const LOCK: &str = "lock";

/// Content of a lock file.
const MARK: &str = "gsplit's lock; the folder around it is gsplit's own\n";

/// Number of tries before a lock that keeps changing hands counts as held.
const ATTEMPTS: usize = 100;

/// A locked staging folder. Others may read it, but are refused when they want to write.
#[derive(Debug)]
pub(super) struct LockedFolder {
    /// The folder around it.
    pub parent: Folder,
    name: OsString,
    pub folder: Folder,
    /// Whether the content outlives its writer.
    keep: AtomicBool,
    _lock: File,
}

impl LockedFolder {
    /// Locks the staging folder of `target`, creating it if needed. Fails at once if another writer
    /// has it, or if it is not one that gsplit made for this user.
    pub fn acquire(target: &Target) -> Result<Self> {
        let (name, parent) = (target.partial()?, target.parent()?);
        for _ in 0..ATTEMPTS {
            let made = parent.make(&name)?;
            let Some(folder) = parent.below(&name)? else { continue };
            if !made && folder.owner()? != rustix::process::geteuid().as_raw() {
                return Err(Error::Foreign {
                    path: folder.path().to_path_buf(),
                    found: "a folder of another user",
                });
            }
            if folder.kind(OsStr::new(LOCK))?.is_none() {
                match folder.names()?.as_slice() {
                    [] => {}
                    // Another writer has just locked it.
                    names if names.iter().any(|name| name == LOCK) => {}
                    _ => return Err(foreign(&folder)),
                }
            }
            let lock = match folder.file(LOCK, true) {
                // Its last owner has just removed the folder.
                Err(error) if is_gone(&error) => continue,
                found => found?,
            };
            let Some(lock) = lock else { continue };
            try_lock(&lock, folder.path(), target.path())?;
            // The last owner may have removed the file between opening and locking: then another
            // writer may lock a new file.
            let own = lock.metadata().map_err(Error::io(folder.path()))?.ino();
            if folder.identity(OsStr::new(LOCK))?.is_some_and(|found| found.inode == own) {
                let locked =
                    Self { parent, name, folder, keep: AtomicBool::new(true), _lock: lock };
                locked.expect_own(&[LOCK, JOURNAL, NOTE])?;
                return locked.claim().map(|()| locked);
            }
        }
        Err(Error::Busy { path: target.path().to_path_buf(), process: None })
    }

    /// Fails if a file among `names` belongs to another user: these files decide how the folder is
    /// treated.
    fn expect_own(&self, names: &[&str]) -> Result<()> {
        let own = self.folder.owner()?;
        for name in names {
            if self.folder.owner_of(OsStr::new(name))?.is_some_and(|owner| owner != own) {
                return Err(Error::Foreign {
                    path: self.folder.path().join(name),
                    found: "a file of another user",
                });
            }
        }
        Ok(())
    }

    /// Writes the mark if the folder is new. Fails if the folder is not gsplit's own.
    fn claim(&self) -> Result<()> {
        if !starts_with_mark(&self._lock) {
            // A writer was killed, or found the disk full, right after it made the file.
            let is_new = self._lock.metadata().is_ok_and(|lock| lock.len() == 0)
                && self.folder.names()?.len() == 1;
            if !is_new {
                return Err(foreign(&self.folder));
            }
        }
        write_mark(&self._lock).map_err(|cause| {
            // The disk is full; nothing was begun, unless an earlier run has left something.
            self.remove_bare();
            Error::io(self.folder.path().join(LOCK))(cause)
        })
    }

    /// Sets whether the content is kept when its writer ends, and returns the previous value;
    /// initially it is kept.
    pub fn keep(&self, keep: bool) -> bool {
        self.keep.swap(keep, Ordering::SeqCst)
    }

    /// Whether the content is kept when its writer ends.
    pub fn is_kept(&self) -> bool {
        self.keep.load(Ordering::SeqCst)
    }

    /// Removes everything in the folder except the lock.
    pub fn clear(&self) -> Result<()> {
        self.folder.clear(|name| name == LOCK)
    }

    /// Removes the folder if it holds only the lock; returns whether it is gone.
    pub fn remove_bare(&self) -> bool {
        match self.folder.names() {
            Ok(names) if names.iter().all(|name| name == LOCK) => {}
            _ => return false,
        }
        // From here on, a process that locks a new file finds its folder kept.
        let _ = self.folder.remove(OsStr::new(LOCK));
        self.parent.remove_empty(&self.name)
    }

    /// Removes files that a writer of this process created again after
    /// [`LockedFolder::remove_bare`]; returns whether there were any.
    pub fn remove_returned(&self) -> bool {
        matches!(self.parent.kind(&self.name), Ok(Some(_)))
            && self.parent.remove(&self.name).is_ok()
    }
}

fn foreign(folder: &Folder) -> Error {
    Error::Foreign {
        path: folder.path().to_path_buf(),
        found: "a folder without gsplit's lock in it",
    }
}

fn starts_with_mark(lock: &File) -> bool {
    let mut start = [0; MARK.len()];
    lock.read_exact_at(&mut start, 0).is_ok() && start == MARK.as_bytes()
}

/// Writes the mark into `lock`, if it is not there.
fn write_mark(lock: &File) -> std::io::Result<()> {
    if starts_with_mark(lock) {
        return Ok(());
    }
    lock.set_len(0)?;
    lock.write_all_at(MARK.as_bytes(), 0)?;
    // Files written next to it must not survive a power loss that the mark does not survive.
    lock.sync_all()
}

/// Takes the lock, or fails naming its holder.
fn try_lock(lock: &File, folder: &Path, target: &Path) -> Result<()> {
    match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Busy { path: target.to_path_buf(), process: owner(lock) })
        }
        Err(TryLockError::Error(cause)) => Err(Error::io(folder.join(LOCK))(cause)),
    }
}

/// The process that holds `lock`, if the system lists it: it does not list those of other
/// containers and hosts.
fn owner(lock: &File) -> Option<u32> {
    let file = lock.metadata().ok()?;
    let place = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    // NUMBER: FLOCK ADVISORY WRITE PROCESS PLACE START END
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut locks = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let held = locks
        .find(|fields| fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str()))?;
    held[4].parse().ok()
}

/// Locks a folder of the user's that stays, e.g. of checkpoints: no other gsplit writes to it while
/// this lives.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "the kernel releases the lock with it")] File);

impl FolderLock {
    /// Makes `folder` where it is missing and locks it by a file `lock` in it.
    ///
    /// # Errors
    /// [`Error::Busy`] if another, in this process or another, has it; [`Error::Foreign`] if it is
    /// a link, or its file `lock` is not gsplit's.
    pub fn acquire(folder: &Path) -> Result<Self> {
        make_folder(folder)?;
        let path = folder.join(LOCK);
        let lock = Folder::open(folder)?.file(LOCK, true)?;
        let lock = lock.ok_or_else(|| Error::io(&path)(std::io::ErrorKind::NotFound.into()))?;
        try_lock(&lock, folder, folder)?;
        if !starts_with_mark(&lock) && lock.metadata().map_err(Error::io(&path))?.len() > 0 {
            return Err(Error::Foreign { path, found: "a file of another program" });
        }
        write_mark(&lock).map_err(Error::io(&path))?;
        Ok(Self(lock))
    }
}
