//! Ids that were strings: an uncompressed Arrow IPC file with one `LargeUtf8` column, read in
//! place.
//!
//! Batches may have any length, so that a file of any size is written with a few megabytes in
//! memory. A name is found by a binary search for its batch; its place and its UTF-8 are checked
//! when it is read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::LargeStringArray;
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};

use crate::arrow::{ArrowFile, ArrowWriter};
use crate::{Error, FileRecord, Result};

/// Name of the column.
const COLUMN: &str = "original_id";
/// Maximum number of names per batch.
const NAMES_PER_BATCH: usize = 1 << 16;
/// Maximum number of bytes per batch.
const BYTES_PER_BATCH: usize = 1 << 20;

/// Streams names into a new file.
#[derive(Debug)]
pub struct NamesWriter {
    writer: ArrowWriter,
    offsets: Vec<i64>,
    text: Vec<u8>,
    names: u64,
}

impl NamesWriter {
    /// Creates the file at `path`, folders included.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let schema = Schema::new(vec![Field::new(COLUMN, DataType::LargeUtf8, false)]);
        let writer = ArrowWriter::create(path.as_ref(), schema)?;
        Ok(Self { writer, offsets: vec![0], text: Vec::new(), names: 0 })
    }

    /// Appends the name of the next vertex.
    pub fn push(&mut self, name: &str) -> Result<()> {
        self.text.extend_from_slice(name.as_bytes());
        self.offsets.push(self.text.len() as i64);
        self.names += 1;
        if self.offsets.len() > NAMES_PER_BATCH || self.text.len() >= BYTES_PER_BATCH {
            self.flush_batch()?;
        }
        Ok(())
    }

    /// Names pushed so far.
    pub fn len(&self) -> u64 {
        self.names
    }

    /// Whether nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.names == 0
    }

    fn flush_batch(&mut self) -> Result<()> {
        if self.offsets.len() == 1 {
            return Ok(());
        }
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let text = Buffer::from_vec(std::mem::take(&mut self.text));
        self.writer.write(|| {
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
            Ok(vec![Arc::new(LargeStringArray::try_new(offsets, text, None)?)])
        })
    }

    /// Writes the footer and fsyncs. Returns the number of names and the file's record.
    pub fn finish(mut self) -> Result<(u64, FileRecord)> {
        self.flush_batch()?;
        Ok((self.names, self.writer.finish()?))
    }
}

/// Names of all vertices, mapped.
#[derive(Clone, Debug)]
pub struct Names {
    path: PathBuf,
    /// Number of the first name of each batch, and the number of all.
    starts: Vec<usize>,
    /// Offsets and text of each batch.
    batches: Vec<(Buffer, Buffer)>,
}

impl Names {
    /// Maps the file at `path` and checks its structure; no name is read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let names = ArrowFile::open(path)?.and_then(|file| Self::from_file(path, file));
        names.map_err(|problem| Error::corrupt(path, problem))
    }

    fn from_file(path: &Path, file: ArrowFile) -> Result<Self, String> {
        let types: Vec<&DataType> =
            file.schema.fields().iter().map(|field| field.data_type()).collect();
        if types != [&DataType::LargeUtf8] {
            return Err(format!("expected one LargeUtf8 column, found {}", file.schema));
        }
        let mut names = Self { path: path.to_path_buf(), starts: vec![0], batches: Vec::new() };
        let mut total = 0usize;
        for (i, batch) in file.batches.into_iter().enumerate() {
            // Three buffers: the validity, the offsets, the text.
            let [_, offsets, text] = <[Buffer; 3]>::try_from(batch.buffers).map_err(|found| {
                format!("record batch {i} has {} buffers, expected 3", found.len())
            })?;
            let enough =
                batch.rows.checked_add(1).and_then(|offsets| offsets.checked_mul(size_of::<i64>()));
            // Arrow leaves the offsets of an empty batch out.
            if batch.rows > 0 && enough.is_none_or(|bytes| bytes > offsets.len()) {
                return Err(format!("record batch {i} promises more names than it has"));
            }
            total = total.checked_add(batch.rows).ok_or("more names than fit")?;
            names.starts.push(total);
            names.batches.push((offsets, text));
        }
        Ok(names)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of vertex `v`. Fails when the file is damaged there, or has no such vertex.
    pub fn get(&self, v: u32) -> Result<&str> {
        let damaged =
            || Error::corrupt(&self.path, format!("the name of vertex {v} is missing or not text"));
        let v = v as usize;
        let batch =
            self.starts.partition_point(|&start| start <= v).checked_sub(1).ok_or_else(damaged)?;
        let (offsets, text) = self.batches.get(batch).ok_or_else(damaged)?;
        let at = (v - self.starts[batch]) * size_of::<i64>();
        let offset = |at: usize| {
            let bytes = offsets.get(at..at + size_of::<i64>())?.try_into().ok()?;
            usize::try_from(i64::from_le_bytes(bytes)).ok()
        };
        let place = offset(at).zip(offset(at + size_of::<i64>())).ok_or_else(damaged)?;
        let name = text.get(place.0..place.1).ok_or_else(damaged)?;
        std::str::from_utf8(name).map_err(|_| damaged())
    }

    /// All names, in the order of the vertices.
    pub fn iter(&self) -> impl Iterator<Item = Result<&str>> {
        (0..self.len()).map(|v| self.get(v as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, names: &[&str]) -> FileRecord {
        let mut writer = NamesWriter::create(path).unwrap();
        for name in names {
            writer.push(name).unwrap();
        }
        let (written, record) = writer.finish().unwrap();
        assert_eq!(written as usize, names.len());
        record
    }

    #[test]
    fn names_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.arrow");
        let long = "y".repeat(3 << 20);
        let many: Vec<String> = (0..NAMES_PER_BATCH + 9).map(|i| format!("id {i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for names in [&[][..], &["only"], &["", "ä", "", "a\nb\"c\0d"], &["x", &long, "z"], &many]
        {
            let record = write(&path, names);
            assert_eq!(crate::checksum_file(&path).unwrap(), (record.bytes, record.checksum));
            let found = Names::open(&path).unwrap();
            assert_eq!(found.len(), names.len());
            assert!(found.iter().zip(names).all(|(found, expected)| found.unwrap() == *expected));
            assert!(found.get(names.len() as u32).is_err());
        }
    }

    #[test]
    fn flipped_bits_never_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.arrow");
        write(&path, &["one", "two", "drei"]);
        let good = std::fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let file = ArrowFile::decode(&Buffer::from_slice_ref(&bad));
            if let Ok(names) = file.and_then(|file| Names::from_file(&path, file)) {
                assert!(names.len() < 1 << 20);
                assert!(names.iter().flatten().all(|name| name.len() < good.len()));
            }
        }
        for cut in [0, 9, good.len() / 2, good.len() - 1] {
            std::fs::write(&path, &good[..cut]).unwrap();
            assert!(Names::open(&path).unwrap_err().to_string().contains("ids.arrow"));
        }
    }
}
