//! Parquet files by row groups: encoded and decoded by all threads, written and read in order.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, SchemaDescriptor};
use rayon::prelude::*;

use gsplit_store::{FileRecord, open_file};

use super::copy;
use crate::read::table::{damaged, guard};
use crate::{Error, Result};

/// Values of a row group, about.
pub const VALUES_PER_GROUP: u64 = 1 << 20;
/// Row groups of a file, at most; the format numbers them with 15 bits.
pub const MAX_GROUPS: u64 = 1 << 14;
/// Rows that encodings are tried on, in values.
const SAMPLE: usize = 1 << 16;

/// A table to write: its schema, facts about it, and its row groups on demand.
pub struct Source<'a> {
    /// Columns.
    pub schema: SchemaRef,
    /// Key-value metadata of the file.
    pub facts: Vec<(&'a str, String)>,
    /// Number of row groups.
    pub groups: usize,
    /// Makes a row group.
    pub group: &'a (dyn Fn(usize) -> Result<RecordBatch> + Sync),
}

/// Writes `source` to a new file at `path`.
pub fn write(path: &Path, source: &Source, level: i32) -> Result<FileRecord> {
    let wrong = |error| parquet_error(path, error);
    let descriptor = ArrowSchemaConverter::new().convert(&source.schema).map_err(wrong)?;
    let encodings = choose(path, source, &descriptor, level)?;
    let facts = source.facts.iter().map(|(key, value)| KeyValue::new(key.to_string(), value.clone())).collect();
    let properties = properties(path, &descriptor, &encodings, level, Some(facts), &source.schema)?;
    let out = copy::create(path)?;
    let mut writer =
        SerializedFileWriter::new(out, descriptor.root_schema_ptr(), Arc::new(properties)).map_err(wrong)?;
    let factory = ArrowRowGroupWriterFactory::new(&writer, source.schema.clone());
    let wave = rayon::current_num_threads().max(1);
    for first in (0..source.groups).step_by(wave) {
        let last = source.groups.min(first + wave);
        let encoded: Vec<Result<Vec<ArrowColumnChunk>>> = (first..last)
            .into_par_iter()
            .map(|group| {
                let batch = (source.group)(group)?;
                encode(&factory, group, &batch).map_err(wrong)
            })
            .collect();
        for chunks in encoded {
            let mut group = writer.next_row_group().map_err(wrong)?;
            for chunk in chunks? {
                chunk.append_to_row_group(&mut group).map_err(wrong)?;
            }
            group.close().map_err(wrong)?;
        }
    }
    copy::finish(path, writer.into_inner().map_err(wrong)?)
}

fn encode(
    factory: &ArrowRowGroupWriterFactory,
    group: usize,
    batch: &RecordBatch,
) -> Result<Vec<ArrowColumnChunk>, ParquetError> {
    let mut writers = factory.create_column_writers(group)?.into_iter();
    let mut chunks = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        for leaf in compute_leaves(field, column)? {
            let mut writer = writers.next().ok_or_else(|| ParquetError::General("a column without a writer".into()))?;
            writer.write(&leaf)?;
            chunks.push(writer.close()?);
        }
    }
    Ok(chunks)
}

/// How a column is encoded; `None` is a dictionary, as far as it goes.
type Choice = Option<Encoding>;

fn properties(
    path: &Path,
    descriptor: &SchemaDescriptor,
    encodings: &[Choice],
    level: i32,
    facts: Option<Vec<KeyValue>>,
    schema: &Schema,
) -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(level).map_err(|error| parquet_error(path, error))?;
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(facts)
        .set_created_by(concat!("gsplit ", env!("CARGO_PKG_VERSION")).into());
    for (column, encoding) in descriptor.columns().iter().zip(encodings) {
        let path: ColumnPath = column.path().clone();
        builder = builder.set_column_dictionary_enabled(path.clone(), encoding.is_none());
        if let Some(encoding) = encoding {
            builder = builder.set_column_encoding(path, *encoding);
        }
    }
    let mut properties = builder.build();
    add_encoded_arrow_schema_to_metadata(schema, &mut properties);
    Ok(properties)
}

/// The encoding of every column that makes a sample from the middle smallest.
fn choose(path: &Path, source: &Source, descriptor: &SchemaDescriptor, level: i32) -> Result<Vec<Choice>> {
    let plain = vec![Some(Encoding::PLAIN); descriptor.num_columns()];
    if source.groups == 0 {
        return Ok(plain);
    }
    let batch = (source.group)(source.groups / 2)?;
    let width = batch.columns().iter().map(|column| width(column.data_type())).max().unwrap_or(1);
    let sample = batch.slice(0, batch.num_rows().min(SAMPLE / width + 1));
    let wrong = |error| parquet_error(path, error);
    let mut best: Vec<(i64, Choice)> = vec![(i64::MAX, Some(Encoding::PLAIN)); plain.len()];
    use Encoding as E;
    let all =
        [Some(E::PLAIN), None, Some(E::DELTA_BINARY_PACKED), Some(E::BYTE_STREAM_SPLIT), Some(E::DELTA_BYTE_ARRAY)];
    for candidate in all {
        let encodings: Vec<Choice> = descriptor
            .columns()
            .iter()
            .map(|column| if suits(candidate, column.physical_type()) { candidate } else { Some(E::PLAIN) })
            .collect();
        let properties = properties(path, descriptor, &encodings, level, None, &source.schema)?;
        let writer = SerializedFileWriter::new(Vec::new(), descriptor.root_schema_ptr(), Arc::new(properties));
        let factory = ArrowRowGroupWriterFactory::new(&writer.map_err(wrong)?, source.schema.clone());
        let chunks = encode(&factory, 0, &sample).map_err(wrong)?;
        for ((best, chunk), encoding) in best.iter_mut().zip(&chunks).zip(encodings) {
            let bytes = chunk.close().metadata.compressed_size();
            if bytes < best.0 {
                *best = (bytes, encoding);
            }
        }
    }
    Ok(best.into_iter().map(|(_, encoding)| encoding).collect())
}

fn suits(candidate: Choice, physical: parquet::basic::Type) -> bool {
    use parquet::basic::Type as T;
    match candidate {
        Some(Encoding::DELTA_BINARY_PACKED) => matches!(physical, T::INT32 | T::INT64),
        Some(Encoding::BYTE_STREAM_SPLIT) => {
            matches!(physical, T::INT32 | T::INT64 | T::FLOAT | T::DOUBLE | T::FIXED_LEN_BYTE_ARRAY)
        }
        Some(Encoding::DELTA_BYTE_ARRAY) => physical == T::BYTE_ARRAY,
        _ => true,
    }
}

/// Values in a row of a column.
pub fn width(column: &DataType) -> usize {
    match column {
        DataType::FixedSizeList(_, width) => (*width).max(1) as usize,
        _ => 1,
    }
}

/// A packed table, opened.
pub struct Table {
    file: Arc<File>,
    metadata: ArrowReaderMetadata,
}

impl Table {
    /// Reads the footer of the file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = open_file(path).map_err(Error::io(path))?;
        let load = || ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
        let metadata = guard(path, || load().map_err(|error| parquet_error(path, error)))?;
        Ok(Self { file: Arc::new(file), metadata })
    }

    /// A fact that was written with it.
    pub fn fact(&self, key: &str) -> Option<&str> {
        let facts = self.metadata.metadata().file_metadata().key_value_metadata()?;
        facts.iter().find(|fact| fact.key == key)?.value.as_deref()
    }

    /// Decodes every row group to `T` by `decode`, all threads at once, and hands the results over in order.
    pub fn each_group<T: Send>(
        &self,
        path: &Path,
        decode: impl Fn(&mut dyn Iterator<Item = Result<RecordBatch>>) -> Result<T> + Sync,
        mut take: impl FnMut(usize, T) -> Result<()>,
    ) -> Result<()> {
        let wave = rayon::current_num_threads().max(1);
        let groups = self.metadata.metadata().num_row_groups();
        for first in (0..groups).step_by(wave) {
            let last = groups.min(first + wave);
            let decode = |group| guard(path, || decode(&mut self.group(path, group)?));
            let decoded: Vec<Result<T>> = (first..last).into_par_iter().map(decode).collect();
            for (group, decoded) in (first..last).zip(decoded) {
                take(group, decoded?)?;
            }
        }
        Ok(())
    }

    fn group(&self, path: &Path, group: usize) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
        const ROWS_PER_BATCH: usize = 1 << 14;
        let shared = crate::read::table::Shared::new(path, self.file.clone())?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(shared, self.metadata.clone());
        let reader = builder.with_row_groups(vec![group]).with_batch_size(ROWS_PER_BATCH).build();
        let path = path.to_path_buf();
        let reader = reader.map_err(|error| parquet_error(&path, error))?;
        Ok(reader.map(move |batch| batch.map_err(|error| damaged(&path, error))))
    }
}

/// An error of the format's library, as the file's.
pub fn parquet_error(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(cause) => Error::io(path)(*cause),
            Err(cause) => damaged(path, cause),
        },
        error => damaged(path, error),
    }
}
