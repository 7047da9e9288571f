//! Read-only memory maps: the only unsafe code of the workspace's data side.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::{Error, Result};

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
        Self::of(path, &File::open(path).map_err(Error::io(path))?)
    }

    /// Maps the whole of `file`, which may have no name any more; `path` is for messages.
    pub fn of(path: &Path, file: &File) -> Result<Self> {
        let metadata = file.metadata().map_err(Error::io(path))?;
        if !metadata.is_file() {
            return Err(Error::corrupt(path, "expected a plain file"));
        }
        if metadata.len() == 0 {
            return Ok(Self { path: path.to_path_buf(), map: None });
        }
        // SAFETY: the map is read-only and private to this value. Artifacts are written beside their final path and
        // renamed, never modified in place, so the bytes stay what they were for as long as the map lives; a process
        // that truncates a mapped artifact by hand breaks this contract, as with every memory-mapped format.
        let map = unsafe { Mmap::map(file) }.map_err(Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), map: Some(map) })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
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
