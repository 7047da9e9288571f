//! One writer at a time: an advisory lock on a file, which the kernel releases however its process ends.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Name of the lock file.
const LOCK: &str = "lock";

/// A locked folder. Others may read in it, and are refused when they want to write.
#[derive(Debug)]
pub(super) struct LockedFolder {
    root: PathBuf,
    _file: File,
}

impl LockedFolder {
    /// Locks `root`, which is made if need be, for writing the artifact at `target`. Refuses at once when another has it.
    pub(super) fn acquire(root: &Path, target: &Path) -> Result<Self> {
        const ATTEMPTS: usize = 100;
        let path = root.join(LOCK);
        for _ in 0..ATTEMPTS {
            match fs::create_dir(root) {
                Err(cause) if cause.kind() != ErrorKind::AlreadyExists => return Err(Error::io(root)(cause)),
                _ => {}
            }
            let mut file = match File::options().read(true).write(true).create(true).truncate(false).open(&path) {
                // Its last owner has removed the folder just now.
                Err(cause) if cause.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(Error::io(&path))?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Busy { path: target.to_path_buf(), process: owner(&mut file) });
                }
                Err(TryLockError::Error(cause)) => return Err(Error::io(&path)(cause)),
            }
            // The last owner may have removed the file between the opening and the locking: then another may lock a new one.
            let own = file.metadata().map_err(Error::io(&path))?.ino();
            if fs::metadata(&path).is_ok_and(|found| found.ino() == own) {
                let named = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                return match named {
                    Ok(()) => Ok(Self { root: root.to_path_buf(), _file: file }),
                    Err(cause) => {
                        // A full disk; nothing is begun, unless an earlier run has left something.
                        remove_bare(root);
                        Err(Error::io(&path)(cause))
                    }
                };
            }
        }
        Err(Error::Busy { path: target.to_path_buf(), process: None })
    }

    /// The folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Removes everything in the folder but the lock.
    pub(super) fn clear(&self) -> Result<()> {
        clear(&self.root)
    }
}

/// Removes everything below `root` but the lock.
pub(super) fn clear(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root).map_err(Error::io(root))? {
        let entry = entry.map_err(Error::io(root))?;
        let path = entry.path();
        let removed = match entry.file_type().map_err(Error::io(&path))?.is_dir() {
            true => fs::remove_dir_all(&path),
            false if entry.file_name() == LOCK => Ok(()),
            false => fs::remove_file(&path),
        };
        removed.map_err(Error::io(&path))?;
    }
    Ok(())
}

/// Removes `root` if nothing but the lock is in it; says whether it is gone. Only its owner may call this.
pub(super) fn remove_bare(root: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(root) else { return !root.exists() };
    if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != LOCK)) {
        return false;
    }
    // Who locks a new file from here on finds its folder kept.
    let _ = fs::remove_file(root.join(LOCK));
    fs::remove_dir(root).is_ok()
}

/// The process that wrote its number into the lock file.
fn owner(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.take(20).read_to_string(&mut text)).ok()?;
    text.parse().ok()
}
