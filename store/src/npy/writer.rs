//! Streaming arrays into new `.npy` files, whose lengths need not be known before the last element.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Element, HEADER_BYTES, NpyHeader, element_type};
use crate::checksum::{CHUNK, Hasher};
use crate::{Error, FileRecord, Result};

/// Streams a column whose type is known when the program runs into a new `.npy` file.
#[derive(Debug)]
pub struct ColumnWriter {
    path: PathBuf,
    out: BufWriter<File>,
    hasher: Hasher,
    /// The first chunk, header included: it is digested last.
    head: Vec<u8>,
    descr: &'static str,
    element_bytes: u64,
    data_bytes: u64,
    /// Elements of a row, for two dimensions.
    width: Option<u64>,
}

impl ColumnWriter {
    /// Creates the file at `path`, folders included, for elements of type `descr` (a type of
    /// [`Element`]), `width` per row. A width of 1 gives one dimension.
    pub fn create(path: impl AsRef<Path>, descr: &'static str, width: usize) -> Result<Self> {
        let path = path.as_ref();
        if element_type(descr).is_none() || width == 0 {
            let expected = "expected at least one little-endian number, e.g. <f4";
            let problem =
                format!("{}: rows of {width} values of type {descr}: {expected}", path.display());
            return Err(Error::Invalid(problem));
        }
        Self::with_shape(path, descr, (width > 1).then_some(width as u64))
    }

    fn with_shape(path: &Path, descr: &'static str, width: Option<u64>) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let file = File::create(path).map_err(Error::io(path))?;
        let mut out = BufWriter::with_capacity(CHUNK, file);
        let head = vec![0; HEADER_BYTES];
        out.write_all(&head).map_err(Error::io(path))?;
        let mut hasher = Hasher::new();
        hasher.update(&head);
        let element_bytes = element_type(descr).map_or(1, |(_, bytes)| bytes as u64);
        Ok(Self {
            path: path.to_path_buf(),
            out,
            hasher,
            head,
            descr,
            element_bytes,
            data_bytes: 0,
            width,
        })
    }

    /// Appends whole elements, row after row, little-endian.
    pub fn push(&mut self, little_endian_bytes: &[u8]) -> Result<()> {
        if !(little_endian_bytes.len() as u64).is_multiple_of(self.element_bytes) {
            let (path, found) = (self.path.display(), little_endian_bytes.len());
            return Err(Error::Invalid(format!(
                "{path}: {found} bytes are not whole elements of {}",
                self.descr
            )));
        }
        self.out.write_all(little_endian_bytes).map_err(Error::io(&self.path))?;
        self.hasher.update(little_endian_bytes);
        let head = little_endian_bytes.len().min(CHUNK - self.head.len());
        self.head.extend_from_slice(&little_endian_bytes[..head]);
        self.data_bytes += little_endian_bytes.len() as u64;
        Ok(())
    }

    fn elements(&self) -> u64 {
        self.data_bytes / self.element_bytes
    }

    /// NumPy's name of the elements' type.
    pub fn descr(&self) -> &'static str {
        self.descr
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width.unwrap_or(1) as usize
    }

    /// Whole rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.elements() / self.width.unwrap_or(1)
    }

    /// Writes the header, flushes and fsyncs; fails if the elements are not whole rows.
    pub fn finish(mut self) -> Result<FileRecord> {
        let elements = self.elements();
        let shape = match self.width {
            None => vec![elements],
            Some(width) if elements.is_multiple_of(width) => vec![elements / width, width],
            Some(width) => {
                let path = self.path.display();
                return Err(Error::Invalid(format!(
                    "{path}: {elements} elements are not whole rows of {width}"
                )));
            }
        };
        let header = NpyHeader { descr: self.descr.into(), fortran_order: false, shape }.to_bytes();
        self.head[..HEADER_BYTES].copy_from_slice(&header);
        self.hasher.replace_first(&self.head);
        let written = self.out.flush().and_then(|()| {
            let file = self.out.get_ref();
            file.write_all_at(&header, 0)?;
            file.sync_all()
        });
        written.map_err(Error::io(&self.path))?;
        let bytes = HEADER_BYTES as u64 + self.data_bytes;
        Ok(FileRecord { bytes, checksum: self.hasher.finish() })
    }
}

/// Streams an array of `T` into a new `.npy` file.
#[derive(Debug)]
pub struct NpyWriter<T> {
    column: ColumnWriter,
    element: PhantomData<T>,
}

impl<T: Element> NpyWriter<T> {
    /// Creates the file at `path`, folders included, for one dimension.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self {
            column: ColumnWriter::with_shape(path.as_ref(), T::DESCR, None)?,
            element: PhantomData,
        })
    }

    /// Creates the file at `path`, folders included, for rows of `width` elements, at least one.
    pub fn create_rows(path: impl AsRef<Path>, width: u64) -> Result<Self> {
        let column = ColumnWriter::with_shape(path.as_ref(), T::DESCR, Some(width.max(1)))?;
        Ok(Self { column, element: PhantomData })
    }

    /// Appends `values`.
    pub fn push(&mut self, values: &[T]) -> Result<()> {
        self.column.push(bytemuck::cast_slice(values))
    }

    /// Elements pushed so far.
    pub fn len(&self) -> u64 {
        self.column.elements()
    }

    /// Whether nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the header, flushes and fsyncs; fails if the elements are not whole rows.
    pub fn finish(self) -> Result<FileRecord> {
        self.column.finish()
    }
}

/// Writes `values` as one `.npy` file.
pub fn write_npy<T: Element>(path: impl AsRef<Path>, values: &[T]) -> Result<FileRecord> {
    let mut writer = NpyWriter::create(path)?;
    writer.push(values)?;
    writer.finish()
}
