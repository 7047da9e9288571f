//! Uncompressed Arrow IPC files: writes them batch by batch, and finds their buffers in place.
//!
//! Reading returns the schema and the rows and buffers of every record batch, all proved to be
//! inside the file. Offsets and lengths are checked before anything is sliced, because arrow's own
//! decoder trusts the ones in a damaged file. No value is read. Cost: one step per record batch.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{Block, MetadataVersion, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, Schema};

use crate::checksum::HashingWriter;
use crate::{Error, FileRecord, MappedFile, Result};

/// One record batch. Buffers are in the format's order: a validity buffer before the values of each
/// column.
pub(crate) struct Batch {
    pub(crate) rows: usize,
    pub(crate) buffers: Vec<Buffer>,
}

/// Schema and record batches of a mapped file.
pub(crate) struct ArrowFile {
    pub(crate) schema: Schema,
    pub(crate) batches: Vec<Batch>,
}

impl ArrowFile {
    /// Maps the file at `path` and walks its footer to the record batches. The error is one clause
    /// without the path.
    pub(crate) fn open(path: &Path) -> Result<Result<Self, String>> {
        let file = Buffer::from(bytes::Bytes::from_owner(MappedFile::open(path)?));
        Ok(Self::decode(&file))
    }

    /// [`ArrowFile::open`] of a file that is in memory.
    pub(crate) fn decode(file: &Buffer) -> Result<Self, String> {
        let short = || "too short, or not an Arrow file".to_string();
        let trailer_at = file.len().checked_sub(10).ok_or_else(short)?;
        let trailer = file[trailer_at..].try_into().map_err(|_| short())?;
        let footer_length = read_footer_length(trailer).map_err(|error| error.to_string())?;
        let footer_at = trailer_at.checked_sub(footer_length).ok_or_else(short)?;
        // The error has a further line for every table around the place; keep only the first.
        let damaged =
            |error: String| format!("damaged footer: {}", error.lines().next().unwrap_or_default());
        let footer = root_as_footer(&file[footer_at..trailer_at])
            .map_err(|error| damaged(error.to_string()))?;
        let schema = footer.schema().ok_or("footer without a schema")?;
        let schema = try_fb_to_schema(schema).map_err(|error| error.to_string())?;
        let mut batches = Vec::new();
        for block in footer.recordBatches().iter().flatten() {
            let batch = batch_at(file, block)
                .ok_or_else(|| format!("record batch {} is damaged", batches.len()))?;
            batches.push(batch);
        }
        Ok(Self { schema, batches })
    }
}

/// The record batch that `block` points to in `file`; `None` if it points outside the file, is
/// compressed, has nulls or is not aligned.
fn batch_at(file: &Buffer, block: &Block) -> Option<Batch> {
    let place = [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()];
    let [start, metadata, body] = place.map(usize::try_from);
    let (start, metadata, body) = (start.ok()?, metadata.ok()?, body.ok()?);
    let body_start = start.checked_add(metadata)?;
    if body_start.checked_add(body)? > file.len() {
        return None;
    }
    // The metadata opens with a continuation marker and its length, 4 bytes each.
    let message = root_as_message(file.get(start.checked_add(8)?..body_start)?).ok()?;
    let batch = message.header_as_record_batch()?;
    if batch.compression().is_some() || batch.nodes()?.iter().any(|node| node.null_count() != 0) {
        return None;
    }
    let rows = usize::try_from(batch.length()).ok()?;
    let slice = |offset: i64, length: i64| {
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        let at = body_start.checked_add(offset)?;
        let inside = offset.checked_add(length)? <= body;
        let aligned = (file.as_ptr() as usize).wrapping_add(at).is_multiple_of(8);
        (inside && aligned).then(|| file.slice_with_length(at, length))
    };
    let buffers = batch.buffers()?.iter().map(|buffer| slice(buffer.offset(), buffer.length()));
    Some(Batch { rows, buffers: buffers.collect::<Option<_>>()? })
}

/// Streams record batches into a new file.
pub(crate) struct ArrowWriter {
    path: PathBuf,
    schema: Arc<Schema>,
    writer: FileWriter<HashingWriter<BufWriter<File>>>,
}

impl std::fmt::Debug for ArrowWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrowWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ArrowWriter {
    /// Creates the file at `path`, folders included.
    pub(crate) fn create(path: &Path, schema: Schema) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let file = File::create(path).map_err(Error::io(path))?;
        let out = HashingWriter::new(BufWriter::with_capacity(1 << 20, file));
        let writer = IpcWriteOptions::try_new(64, false, MetadataVersion::V5)
            .and_then(|options| FileWriter::try_new_with_options(out, &schema, options))
            .map_err(|error| arrow_error(path, error))?;
        Ok(Self { path: path.to_path_buf(), schema: Arc::new(schema), writer })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a batch of the columns that `columns` returns.
    pub(crate) fn write(
        &mut self,
        columns: impl FnOnce() -> Result<Vec<ArrayRef>, ArrowError>,
    ) -> Result<()> {
        let batch =
            columns().and_then(|columns| RecordBatch::try_new(self.schema.clone(), columns));
        batch
            .and_then(|batch| self.writer.write(&batch))
            .map_err(|error| arrow_error(&self.path, error))
    }

    /// Writes the footer and fsyncs.
    pub(crate) fn finish(self) -> Result<FileRecord> {
        let out = self.writer.into_inner().map_err(|error| arrow_error(&self.path, error))?;
        let (mut buffer, bytes, checksum) = out.finish();
        buffer.flush().and_then(|()| buffer.get_ref().sync_all()).map_err(Error::io(&self.path))?;
        Ok(FileRecord { bytes, checksum })
    }
}

/// Converts an error of arrow's writer, adding the path it concerns.
fn arrow_error(path: &Path, error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => Error::io(path)(source),
        other => Error::corrupt(path, other.to_string()),
    }
}
