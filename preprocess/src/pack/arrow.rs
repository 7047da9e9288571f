//! Arrow files as Parquet columns and a frame.
//!
//! How an Arrow file is laid out depends on who wrote it, so nothing of the layout is made again: the buffers of values become
//! columns, and the frame keeps all bytes before, between and behind them. The frame has a row for each buffer, with the
//! bytes before it, and a last one with the bytes behind. Strings have two buffers, offsets that start at 0, and text.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, LargeBinaryArray, LargeStringArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::{root_as_footer, root_as_message};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use gsplit_store::{FileRecord, MappedFile};

use super::array::{append_bytes, array};
use super::copy::Output;
use super::groups::{self, MAX_GROUPS, Source, Table, width};
use crate::{Error, Result};

/// Bytes of a record batch, at most; larger ones are packed as bytes.
const MAX_BATCH_BYTES: usize = 1 << 28;
/// Bytes of a frame, at most.
const MAX_FRAME_BYTES: usize = 1 << 27;

/// An Arrow file that becomes columns.
pub struct ArrowFile {
    path: PathBuf,
    map: MappedFile,
    schema: SchemaRef,
    batches: Vec<Batch>,
}

/// Where the buffers of a record batch lie: one of each column, or two of strings.
struct Batch {
    rows: usize,
    buffers: Vec<(usize, usize)>,
}

impl ArrowFile {
    /// Maps the file at `path`; `None` when it holds other than numbers, lists of one length and strings, or nulls, or is
    /// compressed.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let map = MappedFile::open(path)?;
        let Some((schema, batches)) = layout(&map) else { return Ok(None) };
        let file = Self { path: path.into(), map, schema, batches };
        let used: usize = file.batches.iter().flat_map(|batch| &batch.buffers).map(|(_, length)| length).sum();
        let fits = file.map.len() - used <= MAX_FRAME_BYTES && file.batches.len() as u64 <= MAX_GROUPS;
        let checked = if file.has_strings() { file.batches.len() } else { file.batches.len().min(1) };
        let sound = (0..checked).all(|batch| file.batch(batch).is_ok());
        Ok((fits && sound).then_some(file))
    }

    fn has_strings(&self) -> bool {
        self.schema.fields().iter().any(|field| *field.data_type() == DataType::LargeUtf8)
    }

    fn batch(&self, at: usize) -> Result<RecordBatch> {
        let batch = &self.batches[at];
        let mut buffers = batch.buffers.iter().map(|&(start, length)| &self.map[start..start + length]);
        let columns: Option<Vec<ArrayRef>> = self
            .schema
            .fields()
            .iter()
            .map(|field| match field.data_type() {
                DataType::LargeUtf8 => strings(buffers.next()?, buffers.next()?),
                column => array(column, buffers.next()?, batch.rows),
            })
            .collect();
        let made = columns.and_then(|columns| RecordBatch::try_new(self.schema.clone(), columns).ok());
        made.ok_or_else(|| Error::input(&self.path, format!("record batch {at} cannot become columns")))
    }

    /// Writes its columns as a Parquet file.
    pub fn pack(&self, path: &Path, level: i32) -> Result<FileRecord> {
        let facts = vec![("gsplit.form", "arrow".into())];
        let group = |group: usize| self.batch(group);
        let groups = self.batches.len();
        groups::write(path, &Source { schema: self.schema.clone(), facts, groups, group: &group }, level)
    }

    /// Writes its frame as a Parquet file.
    pub fn pack_frame(&self, path: &Path, level: i32) -> Result<FileRecord> {
        let schema = Arc::new(Schema::new(vec![Field::new("bytes", DataType::LargeBinary, false)]));
        let (mut rows, mut at) = (Vec::new(), 0);
        for &(start, length) in self.batches.iter().flat_map(|batch| &batch.buffers) {
            rows.push(&self.map[at..start]);
            at = start + length;
        }
        rows.push(&self.map[at..]);
        let group = |_: usize| {
            let rows = LargeBinaryArray::from_iter_values(&rows);
            RecordBatch::try_new(schema.clone(), vec![Arc::new(rows)])
                .map_err(|error| Error::input(&self.path, error.to_string()))
        };
        let facts = vec![("gsplit.form", "frame".into())];
        groups::write(path, &Source { schema: schema.clone(), facts, groups: 1, group: &group }, level)
    }
}

/// Strings of their buffers, when the offsets start at 0 and the text is no longer than they say.
fn strings(offsets: &[u8], text: &[u8]) -> Option<ArrayRef> {
    let offsets = ScalarBuffer::<i64>::new(Buffer::from_slice_ref(offsets), 0, offsets.len() / 8);
    let ascending = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    let whole = offsets.first() == Some(&0) && offsets.last() == Some(&i64::try_from(text.len()).ok()?);
    if !ascending || !whole {
        return None;
    }
    let text = Buffer::from_slice_ref(text);
    Some(Arc::new(LargeStringArray::try_new(OffsetBuffer::new(offsets), text, None).ok()?))
}

/// Schema of an Arrow file and where its buffers lie, in the order of the file. `None` for what cannot become columns.
fn layout(map: &[u8]) -> Option<(SchemaRef, Vec<Batch>)> {
    let trailer = map.len().checked_sub(10)?;
    let length = read_footer_length(map[trailer..].try_into().ok()?).ok()?;
    let footer = root_as_footer(map.get(trailer.checked_sub(length)?..trailer)?).ok()?;
    let schema = try_fb_to_schema(footer.schema()?).ok()?;
    if footer.dictionaries().is_some_and(|dictionaries| !dictionaries.is_empty()) || schema.fields().is_empty() {
        return None;
    }
    let (mut batches, mut at) = (Vec::new(), 0);
    for block in footer.recordBatches().into_iter().flatten() {
        let start = usize::try_from(block.offset()).ok()?;
        let body = start.checked_add(usize::try_from(block.metaDataLength()).ok()?)?;
        let end = body.checked_add(usize::try_from(block.bodyLength()).ok()?).filter(|&end| end <= map.len())?;
        let message = root_as_message(map.get(start.checked_add(8)?..body)?).ok()?;
        let batch = message.header_as_record_batch()?;
        let nulls = batch.nodes()?.iter().any(|node| node.null_count() != 0);
        if batch.compression().is_some() || nulls || end - body > MAX_BATCH_BYTES {
            return None;
        }
        let rows = usize::try_from(batch.length()).ok().filter(|&rows| rows > 0)?;
        let stated: Vec<(usize, usize)> = batch
            .buffers()?
            .iter()
            .map(|buffer| {
                let start = body.checked_add(usize::try_from(buffer.offset()).ok()?)?;
                let length = usize::try_from(buffer.length()).ok()?;
                start.checked_add(length).filter(|&stop| stop <= end).map(|_| (start, length))
            })
            .collect::<Option<_>>()?;
        let buffers = value_buffers(&schema, rows, &stated, map)?;
        for &(start, length) in &buffers {
            if start < at {
                return None;
            }
            at = start + length;
        }
        batches.push(Batch { rows, buffers });
    }
    Some((Arc::new(schema), batches))
}

/// The buffers that hold values, cut to what `rows` need, of those that a batch states.
fn value_buffers(schema: &Schema, rows: usize, stated: &[(usize, usize)], map: &[u8]) -> Option<Vec<(usize, usize)>> {
    let mut stated = stated.iter().copied();
    let mut buffers = Vec::new();
    let cut = |(start, length): (usize, usize), used: usize| (used <= length).then_some((start, used));
    for field in schema.fields() {
        let column = field.data_type();
        stated.next()?; // validity
        match column {
            DataType::LargeUtf8 => {
                let offsets = cut(stated.next()?, rows.checked_add(1)?.checked_mul(8)?)?;
                let text = stated.next()?;
                let last = offsets.0 + rows * 8;
                let used = i64::from_le_bytes(map.get(last..last + 8)?.try_into().ok()?);
                buffers.extend([offsets, cut(text, usize::try_from(used).ok()?)?]);
            }
            DataType::FixedSizeList(item, 1..) => {
                stated.next()?; // validity of the items
                let bytes = item.data_type().primitive_width()?.checked_mul(width(column))?;
                buffers.push(cut(stated.next()?, rows.checked_mul(bytes)?)?);
            }
            column if column.is_numeric() => {
                let bytes = column.primitive_width()?;
                buffers.push(cut(stated.next()?, rows.checked_mul(bytes)?)?);
            }
            _ => return None,
        }
    }
    stated.next().is_none().then_some(buffers)
}

/// Writes the Arrow file whose columns were packed at `packed`, and whose frame at `frame`.
pub fn unpack(packed: &Path, frame: &Path, target: &Path) -> Result<FileRecord> {
    let frame = read_frame(frame)?;
    let mut gaps = frame.iter();
    let table = Table::open(packed)?;
    let mut out = Output::create(target)?;
    let missing = || Error::input(packed, "its frame has too few rows: pack it again");
    table.each_group(packed, decode, |_, buffers| {
        for buffer in buffers {
            out.write(gaps.next().ok_or_else(missing)?)?;
            out.write(&buffer)?;
        }
        Ok(())
    })?;
    for gap in gaps {
        out.write(gap)?;
    }
    out.finish()
}

fn read_frame(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut frame = Vec::new();
    let decode = |batches: &mut dyn Iterator<Item = Result<RecordBatch>>| {
        let mut rows = Vec::new();
        for batch in batches {
            let batch = batch?;
            let column = batch.columns().first().and_then(|column| column.as_binary_opt::<i64>());
            rows.extend(column.into_iter().flatten().flatten().map(<[u8]>::to_vec));
        }
        Ok(rows)
    };
    Table::open(path)?.each_group(path, decode, |_, rows: Vec<Vec<u8>>| {
        frame.extend(rows);
        Ok(())
    })?;
    Ok(frame)
}

/// The buffers of a row group, as they lay in the Arrow file.
fn decode(batches: &mut dyn Iterator<Item = Result<RecordBatch>>) -> Result<Vec<Vec<u8>>> {
    let mut buffers: Vec<Vec<u8>> = Vec::new();
    for batch in batches {
        let batch = batch?;
        let mut place = 0;
        for column in batch.columns() {
            let strings = column.as_string_opt::<i64>();
            let needed = place + if strings.is_some() { 2 } else { 1 };
            while buffers.len() < needed {
                // Offsets start with a 0.
                buffers.push(if strings.is_some() && buffers.len() == place { vec![0; 8] } else { Vec::new() });
            }
            match strings {
                Some(strings) => {
                    for text in strings.iter().flatten() {
                        buffers[place + 1].extend_from_slice(text.as_bytes());
                        let end = buffers[place + 1].len() as i64;
                        buffers[place].extend_from_slice(&end.to_le_bytes());
                    }
                }
                None => append_bytes(Some(column), &mut buffers[place]),
            }
            place = needed;
        }
    }
    Ok(buffers)
}
