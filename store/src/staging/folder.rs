//! A folder by its handle: no operation in it follows a link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, fstat, fsync, mkdirat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use serde::{Deserialize, Serialize};

use crate::open::names_in;
use crate::{Error, Result};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Identity of a file, as long as it is not written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Identity {
    pub device: u64,
    pub inode: u64,
    pub bytes: i64,
    /// Seconds since 1970.
    pub changed: String,
}

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    handle: OwnedFd,
    /// For messages, and for callers that write files in it.
    path: PathBuf,
}

impl Folder {
    /// Opens the folder at `path`, which may lead through links: it is the user's own choice.
    pub fn open(path: &Path) -> Result<Self> {
        let handle = openat(CWD, path, FOLDER, Mode::empty()).map_err(failed(path))?;
        Ok(Self { handle, path: path.to_path_buf() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the subfolder `name`. `None` if it does not exist; a link or a file of that name is an
    /// error.
    pub fn below(&self, name: &OsStr) -> Result<Option<Self>> {
        let path = self.path.join(name);
        match openat(&self.handle, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(handle) => Ok(Some(Self { handle, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let found = if self.kind(name)? == Some(FileType::Symlink) {
                    "a link"
                } else {
                    "no folder"
                };
                Err(Error::Foreign { path, found })
            }
            Err(error) => Err(failed(&path)(error)),
        }
    }

    /// Makes the subfolder `name` if nothing is there; returns whether it did.
    pub fn make(&self, name: &OsStr) -> Result<bool> {
        match call(|| mkdirat(&self.handle, name, Mode::from_raw_mode(0o777))) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(failed(&self.path.join(name))(error)),
        }
    }

    /// User id of its owner.
    pub fn owner(&self) -> Result<u32> {
        Ok(fstat(&self.handle).map_err(failed(&self.path))?.st_uid)
    }

    /// User id of the owner of `name` in it; `None` if it does not exist.
    pub fn owner_of(&self, name: &OsStr) -> Result<Option<u32>> {
        Ok(self.look(name)?.map(|found| found.st_uid))
    }

    fn look(&self, name: &OsStr) -> Result<Option<Stat>> {
        match statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(&self.path.join(name))(error)),
        }
    }

    /// Opens the file `name` in it for reading, or with `make` for reading and writing, creating it
    /// if needed. `None` if it does not exist; anything but a plain file is an error.
    pub fn file(&self, name: &str, make: bool) -> Result<Option<File>> {
        let path = self.path.join(name);
        // Do not wait if a pipe has that name.
        let how = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let how = how | if make { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDONLY };
        let file = match openat(&self.handle, name, how, Mode::from_raw_mode(0o666)) {
            Ok(handle) => File::from(handle),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(Error::Foreign { path, found: "a link" }),
            Err(Errno::NXIO | Errno::ISDIR) => {
                return Err(Error::Foreign { path, found: "no plain file" });
            }
            Err(error) => return Err(failed(&path)(error)),
        };
        match file.metadata().map_err(Error::io(&path))?.is_file() {
            true => Ok(Some(file)),
            false => Err(Error::Foreign { path, found: "no plain file" }),
        }
    }

    /// Type of the file `name` in it; `None` if it does not exist.
    pub fn kind(&self, name: &OsStr) -> Result<Option<FileType>> {
        Ok(self.look(name)?.map(|found| FileType::from_raw_mode(found.st_mode)))
    }

    /// Identity of the file `name` in it, which does not depend on the name; `None` if it does not
    /// exist.
    pub fn identity(&self, name: &OsStr) -> Result<Option<Identity>> {
        Ok(self.look(name)?.map(|found| Identity {
            device: found.st_dev,
            inode: found.st_ino,
            bytes: found.st_size,
            changed: format!("{}.{:09}", found.st_mtime, found.st_mtime_nsec),
        }))
    }

    /// The names of its entries.
    pub fn names(&self) -> Result<Vec<OsString>> {
        names_in(&self.handle).map_err(Error::io(&self.path))
    }

    /// Removes every entry except the ones to keep. Links are removed, their targets are not.
    pub fn clear(&self, keep: impl Fn(&OsStr) -> bool) -> Result<()> {
        self.names()?.iter().filter(|name| !keep(name)).try_for_each(|name| self.remove(name))
    }

    /// Removes `name` in it, with everything below.
    pub fn remove(&self, name: &OsStr) -> Result<()> {
        let how = match self.kind(name)? {
            Some(FileType::Directory) => {
                if let Some(below) = self.below(name)? {
                    below.clear(|_| false)?;
                }
                AtFlags::REMOVEDIR
            }
            _ => AtFlags::empty(),
        };
        match call(|| unlinkat(&self.handle, name, how)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(&self.path.join(name))(error)),
        }
    }

    /// Removes the subfolder `name` if it is empty; returns whether it did.
    pub fn remove_empty(&self, name: &OsStr) -> bool {
        call(|| unlinkat(&self.handle, name, AtFlags::REMOVEDIR)).is_ok()
    }

    /// Renames `name` in it to `other` in `target`, which must not exist.
    pub fn rename(&self, name: &OsStr, target: &Folder, other: &OsStr) -> Result<()> {
        let renamed = match self.renamed(name, target, other, RenameFlags::NOREPLACE) {
            // The file system has no such renaming; a plain rename of a folder can replace only an
            // empty one.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                call(|| renameat(&self.handle, name, &target.handle, other))
            }
            renamed => renamed,
        };
        let path = target.path.join(other);
        renamed.map_err(|error| match error {
            Errno::EXIST | Errno::NOTEMPTY => Error::Exists(path),
            error => failed(&path)(error),
        })
    }

    fn renamed(
        &self,
        name: &OsStr,
        target: &Folder,
        other: &OsStr,
        how: RenameFlags,
    ) -> Result<(), Errno> {
        #[cfg(test)]
        super::tests::faults::has_flags()?;
        call(|| renameat_with(&self.handle, name, &target.handle, other, how))
    }

    /// Swaps `name` in it and `other` in `target` in one step. False if the file system cannot.
    pub fn exchange(&self, name: &OsStr, target: &Folder, other: &OsStr) -> Result<bool> {
        match self.renamed(name, target, other, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(failed(&target.path.join(other))(error)),
        }
    }

    /// Flushes its entries to disk.
    pub fn sync(&self) -> Result<()> {
        call(|| fsync(&self.handle)).map_err(failed(&self.path))
    }
}

/// Makes a system call that changes something; tests let each of them fail.
fn call<T>(make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    #[cfg(test)]
    super::tests::faults::next()?;
    make()
}

fn failed(path: &Path) -> impl Fn(Errno) -> Error {
    move |error| Error::Io { path: path.to_path_buf(), cause: error.into() }
}

/// Whether `error` says that a folder is gone.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { cause, .. } if cause.kind() == ErrorKind::NotFound)
}
