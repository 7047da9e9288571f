//! Read-only memory maps: the only unsafe code of the workspace's data side.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::Mmap;

use crate::{Error, Result, open_file};

/// Files that are mapped now, and their lengths when they were.
static MAPS: Mutex<Vec<(PathBuf, u64)>> = Mutex::new(Vec::new());

fn maps() -> MutexGuard<'static, Vec<(PathBuf, u64)>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says which mapped file has lost pages, for who was told so by SIGBUS: reading a page that a file has no more, or that the
/// disk does not give.
pub(crate) fn lost_pages() -> String {
    let now = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    match maps().iter().find(|(path, bytes)| now(path) < *bytes) {
        Some((path, bytes)) => {
            let (path, now) = (path.display(), now(path));
            format!("{path}: was cut from {bytes} to {now} bytes while it was read: make it again, then run this again")
        }
        None => {
            "a mapped file could not be read, or shared memory is full (SIGBUS): check the disks and /dev/shm".into()
        }
    }
}

/// A file mapped into memory for reading; derefs to its bytes. An empty file gives an empty slice.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Option<Mmap>,
}

impl MappedFile {
    /// Maps the whole file at `path`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of(path, &open_file(path).map_err(Error::io(path))?)
    }

    /// Maps the whole of `file`, which may have no name any more; `path` is for messages.
    pub fn of(path: &Path, file: &File) -> Result<Self> {
        let metadata = file.metadata().map_err(Error::io(path))?;
        if metadata.len() == 0 {
            return Ok(Self { path: path.to_path_buf(), map: None });
        }
        // SAFETY: the map is read-only and private to this value. Artifacts are written beside their final path and
        // renamed, never modified in place, so the bytes stay what they were for as long as the map lives; a process
        // that truncates a mapped artifact by hand breaks this contract, as with every memory-mapped format.
        let map = unsafe { Mmap::map(file) }.map_err(Error::io(path))?;
        maps().push((path.to_path_buf(), map.len() as u64));
        Ok(Self { path: path.to_path_buf(), map: Some(map) })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let Some(map) = &self.map else { return };
        let (mut maps, own) = (maps(), (self.path.as_path(), map.len() as u64));
        if let Some(at) = maps.iter().rposition(|(path, bytes)| (path.as_path(), *bytes) == own) {
            maps.swap_remove(at);
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
