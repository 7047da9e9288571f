//! One Arrow IPC file: Feather version 2, or a stream. It is mapped; its record batches are located
//! at once, and decoded when they are needed.
//!
//! Uncompressed columns are read from the mapped file. A compressed batch is decoded as a whole, so
//! it has to fit in memory; the last two that are read in ranges are kept. Dictionaries are in
//! memory as long as the file is open.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary, read_footer_length};
use arrow_ipc::{Message, MessageHeader, root_as_footer, root_as_message};
use arrow_schema::{ArrowError, SchemaRef};
use gsplit_store::MappedFile;

use super::frames::{Frames, Take, damaged, guard};
use crate::edges::lock;
use crate::memory::Memory;
use crate::{Error, Result};

/// Rows handed over at a time.
const ROWS_PER_BATCH: u64 = 1 << 14;
/// Record batches that stay decoded.
const KEPT: usize = 2;
/// A compressed buffer may claim at most this many times its length, and at most this many bytes.
const MOST_COMPRESSED: u64 = 1 << 16;
const LARGEST_BUFFER: u64 = 1 << 35;

/// An Arrow file.
pub struct IpcFile {
    path: PathBuf,
    map: Buffer,
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
    batches: Vec<MessagePlace>,
    rows: Vec<u64>,
    budget: Memory,
    recent: Mutex<VecDeque<Recent>>,
}

/// Position of a message in the file: its metadata, and its buffers.
#[derive(Clone, Debug)]
struct MessagePlace {
    metadata: Range<usize>,
    body: Range<usize>,
}

/// A decoded batch, or the reason why it cannot be decoded.
struct Recent {
    group: usize,
    columns: Vec<usize>,
    batch: Arc<OnceLock<Result<RecordBatch, String>>>,
}

impl IpcFile {
    /// Maps the file at `path` and finds its record batches.
    pub fn open(path: &Path, budget: Memory) -> Result<Self> {
        let map = Buffer::from(bytes::Bytes::from_owner(MappedFile::open(path)?));
        guard(path, || {
            let messages = if map.starts_with(b"ARROW1") {
                messages_of_file(&map)
            } else {
                messages_of_stream(&map)
            };
            messages
                .and_then(|messages| Self::index(path, map, messages, budget))
                .map_err(|problem| damaged(path, problem))
        })
    }

    fn index(
        path: &Path,
        map: Buffer,
        (schema, places): (SchemaRef, Vec<MessagePlace>),
        budget: Memory,
    ) -> Result<Self, String> {
        let mut file = Self {
            path: path.to_path_buf(),
            map,
            schema,
            dictionaries: HashMap::new(),
            batches: Vec::new(),
            rows: Vec::new(),
            budget,
            recent: Mutex::default(),
        };
        for place in places {
            let message = message_at(&file.map, &place)?;
            if let Some(batch) = message.header_as_record_batch() {
                check_buffers(&file.map[place.body.clone()], batch)?;
                file.rows.push(
                    u64::try_from(batch.length()).map_err(|_| "a batch of fewer than 0 rows")?,
                );
                file.batches.push(place);
            } else if let Some(batch) = message.header_as_dictionary_batch() {
                let replaced = file.dictionaries.contains_key(&batch.id()) && !batch.isDelta();
                if replaced {
                    return Err("a dictionary is replaced on the way: write it as a file with one dictionary".into());
                }
                let claim = check_buffers(
                    &file.map[place.body.clone()],
                    batch.data().ok_or("a dictionary without values")?,
                )?;
                budget
                    .refusal(claim)
                    .map_or(Ok(()), |problem| Err(format!("an inflated dictionary {problem}")))?;
                let body = file.map.slice_with_length(place.body.start, place.body.len());
                read_dictionary(
                    &body,
                    batch,
                    &file.schema,
                    &mut file.dictionaries,
                    &message.version(),
                )
                .map_err(|error| error.to_string())?;
            }
        }
        Ok(file)
    }

    fn decode(&self, group: usize, columns: &[usize]) -> Result<RecordBatch, String> {
        let place = &self.batches[group];
        let message = message_at(&self.map, place)?;
        let batch = message.header_as_record_batch().ok_or("no record batch")?;
        let claim = check_buffers(&self.map[place.body.clone()], batch)?;
        self.budget
            .refusal(claim)
            .map_or(Ok(()), |problem| Err(format!("inflated record batch {group} {problem}")))?;
        let body = self.map.slice_with_length(place.body.start, place.body.len());
        let version = message.version();
        let decode = || -> Result<RecordBatch, ArrowError> {
            RecordBatchDecoder::try_new(
                &body,
                batch,
                self.schema.clone(),
                &self.dictionaries,
                &version,
            )?
            .with_projection(Some(columns))
            .read_record_batch()
        };
        decode().map_err(|error| error.to_string())
    }

    /// The place of a batch among the recent ones, decoded or not.
    fn recent(
        &self,
        group: usize,
        columns: &[usize],
    ) -> Arc<OnceLock<Result<RecordBatch, String>>> {
        let mut recent = lock(&self.recent);
        if let Some(found) =
            recent.iter().find(|entry| entry.group == group && entry.columns == columns)
        {
            return found.batch.clone();
        }
        if recent.len() == KEPT {
            recent.pop_front();
        }
        let batch = Arc::new(OnceLock::new());
        recent.push_back(Recent { group, columns: columns.to_vec(), batch: batch.clone() });
        batch
    }
}

impl Frames for IpcFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn groups(&self) -> &[u64] {
        &self.rows
    }

    fn read(
        &self,
        group: usize,
        rows: Range<u64>,
        columns: &[usize],
        take: Take<'_>,
    ) -> Result<()> {
        let decode = || {
            guard(&self.path, || {
                self.decode(group, columns).map_err(|problem| damaged(&self.path, problem))
            })
        };
        let whole = rows == (0..self.rows[group]);
        let batch = if whole {
            decode()?
        } else {
            let recent = self.recent(group, columns);
            let batch = recent.get_or_init(|| decode().map_err(|error| error.to_string()));
            batch.clone().map_err(|problem| Error::input(&self.path, problem))?
        };
        if batch.num_rows() as u64 != self.rows[group] {
            return Err(damaged(&self.path, format!("record batch {group} lacks rows")));
        }
        let mut start = rows.start;
        while start < rows.end {
            let length = (rows.end - start).min(ROWS_PER_BATCH);
            take(start, &batch.slice(start as usize, length as usize))?;
            start += length;
        }
        Ok(())
    }

    fn largest(&self, _column: usize) -> Option<u64> {
        None
    }
}

fn message_at<'a>(map: &'a Buffer, place: &MessagePlace) -> Result<Message<'a>, String> {
    let metadata = &map[place.metadata.clone()];
    // A continuation marker, which old files lack, and a length come first.
    let skipped = if metadata.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let metadata = metadata.get(skipped..).ok_or("a message is cut off")?;
    root_as_message(metadata).map_err(|error| format!("damaged message: {error}"))
}

/// Checks that the buffers of a batch are in its `body`, and do not claim to be larger than they
/// can be: the decoder trusts both. Returns the claimed total size of the compressed buffers after
/// decompression.
fn check_buffers(body: &[u8], batch: arrow_ipc::RecordBatch) -> Result<u64, String> {
    let mut claims = 0u64;
    for buffer in batch.buffers().iter().flatten() {
        let (Ok(start), Ok(length)) =
            (usize::try_from(buffer.offset()), usize::try_from(buffer.length()))
        else {
            return Err("a buffer of fewer than 0 bytes".into());
        };
        let end = start
            .checked_add(length)
            .filter(|&end| end <= body.len())
            .ok_or("a buffer outside of its batch")?;
        let Some(claim) =
            body[start..end].first_chunk::<8>().filter(|_| batch.compression().is_some())
        else {
            continue;
        };
        let claim = i64::from_le_bytes(*claim);
        let most = (length as u64).saturating_mul(MOST_COMPRESSED).min(LARGEST_BUFFER);
        if claim < -1 || claim > most as i64 {
            return Err(format!("a compressed buffer of {length} bytes claims to become {claim}"));
        }
        claims = claims.saturating_add(claim.max(0) as u64);
    }
    Ok(claims)
}

/// The schema of an Arrow file, and the positions of its messages according to its footer:
/// dictionaries first.
fn messages_of_file(map: &Buffer) -> Result<(SchemaRef, Vec<MessagePlace>), String> {
    let short = || "too short, or its end is cut off".to_string();
    let trailer_at = map.len().checked_sub(10).ok_or_else(short)?;
    let trailer = map[trailer_at..].try_into().map_err(|_| short())?;
    let length = read_footer_length(trailer).map_err(|error| error.to_string())?;
    let footer_at = trailer_at.checked_sub(length).ok_or_else(short)?;
    let footer = root_as_footer(&map[footer_at..trailer_at])
        .map_err(|error| format!("damaged footer: {error}"))?;
    let schema =
        try_fb_to_schema(footer.schema().ok_or("no schema")?).map_err(|error| error.to_string())?;
    let place = |block: &arrow_ipc::Block| {
        let start = usize::try_from(block.offset()).ok()?;
        let body = start.checked_add(usize::try_from(block.metaDataLength()).ok()?)?;
        let end = body
            .checked_add(usize::try_from(block.bodyLength()).ok()?)
            .filter(|&end| end <= map.len())?;
        Some(MessagePlace { metadata: start..body, body: body..end })
    };
    let blocks = footer
        .dictionaries()
        .into_iter()
        .flatten()
        .chain(footer.recordBatches().into_iter().flatten());
    let places = blocks.map(place).collect::<Option<_>>().ok_or("a batch outside of the file")?;
    Ok((Arc::new(schema), places))
}

/// The schema of a stream, and the positions of its other messages.
fn messages_of_stream(map: &Buffer) -> Result<(SchemaRef, Vec<MessagePlace>), String> {
    let (mut at, mut schema, mut places) = (0, None, Vec::new());
    let number = |at: usize| {
        map.get(at..at.checked_add(4)?)
            .and_then(|bytes| bytes.try_into().ok())
            .map(i32::from_le_bytes)
    };
    loop {
        if at >= map.len() {
            return Err("the stream has no end mark: it is cut off".into());
        }
        let cut = || format!("the message at byte {at} is cut off");
        let metadata = match number(at).ok_or_else(cut)? {
            -1 => number(at + 4).ok_or_else(cut)?,
            _ => return Err(format!("expected a message at byte {at}")),
        };
        if metadata == 0 {
            break;
        }
        let body = usize::try_from(metadata)
            .ok()
            .and_then(|length| (at + 8).checked_add(length))
            .ok_or_else(cut)?;
        let mut place = MessagePlace { metadata: at..body.min(map.len()), body: body..body };
        let message = message_at(map, &place)?;
        let end =
            usize::try_from(message.bodyLength()).ok().and_then(|length| body.checked_add(length));
        let end = end.filter(|&end| end <= map.len()).ok_or_else(cut)?;
        place.body.end = end;
        match (message.header_type(), message.header_as_schema()) {
            (MessageHeader::Schema, Some(found)) => {
                schema = Some(try_fb_to_schema(found).map_err(|error| error.to_string())?);
            }
            _ => places.push(place),
        }
        at = end;
    }
    Ok((Arc::new(schema.ok_or("a stream without a schema")?), places))
}
