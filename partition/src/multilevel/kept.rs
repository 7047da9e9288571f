//! Arrays that are written once, in order, and read from then on: in memory, or in a file where
//! they do not fit.
//!
//! The file has no name, so nothing is left of it however the process ends. It is in the dataset's
//! folder: a folder for temporary files is often in memory. The system caches as much of it as
//! there is room for, as for the mapped graph.

use std::fs::File;
use std::io::Write;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use bytemuck::{AnyBitPattern, NoUninit, cast_slice};
use gsplit_store::MappedFile;

use crate::Result;

/// An array that is being written.
pub(super) enum Keeper<T> {
    Memory(Vec<T>),
    File(PathBuf, File),
}

/// An array to read.
pub(super) enum Kept<T> {
    Memory(Vec<T>),
    File(MappedFile, PhantomData<T>),
}

impl<T: NoUninit + AnyBitPattern> Keeper<T> {
    /// An empty array: in memory, or in a file in `folder` if that is given.
    pub fn new(folder: Option<&Path>) -> Result<Self> {
        Ok(match folder {
            None => Self::Memory(Vec::new()),
            Some(folder) => Self::File(
                folder.to_path_buf(),
                tempfile::tempfile_in(folder).map_err(gsplit_store::Error::io(folder))?,
            ),
        })
    }

    /// Appends `values`.
    pub fn push(&mut self, values: &[T]) -> Result<()> {
        match self {
            Self::Memory(kept) => kept.extend_from_slice(values),
            Self::File(folder, file) => {
                file.write_all(cast_slice(values))
                    .map_err(gsplit_store::Error::io(folder.as_path()))?;
            }
        }
        Ok(())
    }

    /// The array.
    pub fn finish(self) -> Result<Kept<T>> {
        Ok(match self {
            Self::Memory(mut kept) => {
                kept.shrink_to_fit();
                Kept::Memory(kept)
            }
            Self::File(folder, file) => Kept::File(MappedFile::of(&folder, &file)?, PhantomData),
        })
    }
}

impl<T: AnyBitPattern> Deref for Kept<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Memory(kept) => kept,
            // A map begins at a page, so its elements are aligned; none is of nothing.
            Self::File(map, _) if map.is_empty() => &[],
            Self::File(map, _) => cast_slice(map),
        }
    }
}
