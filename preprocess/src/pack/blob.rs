//! Any other file: its bytes in pieces.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{LargeBinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use gsplit_store::{FileRecord, MappedFile};

use super::copy::Output;
use super::groups::{self, MAX_GROUPS, Source, Table};
use crate::{Error, Result};

/// Bytes of a row.
const BYTES_PER_ROW: usize = 1 << 20;

/// Writes the file `from` as a Parquet file.
pub fn pack(from: &Path, path: &Path, level: i32) -> Result<FileRecord> {
    const ROWS_PER_GROUP: usize = 4;
    let map = MappedFile::open(from)?;
    let rows_per_group = ROWS_PER_GROUP.max(map.len() / BYTES_PER_ROW / MAX_GROUPS as usize + 1);
    let per_group = rows_per_group * BYTES_PER_ROW;
    let schema = Arc::new(Schema::new(vec![Field::new("bytes", DataType::LargeBinary, false)]));
    let group = |group: usize| {
        let bytes = &map[group * per_group..map.len().min((group + 1) * per_group)];
        let rows = LargeBinaryArray::from_iter_values(bytes.chunks(BYTES_PER_ROW));
        RecordBatch::try_new(schema.clone(), vec![Arc::new(rows)])
            .map_err(|error| Error::input(from, error.to_string()))
    };
    let facts = vec![("gsplit.form", "blob".into())];
    let groups = map.len().div_ceil(per_group);
    groups::write(path, &Source { schema: schema.clone(), facts, groups, group: &group }, level)
}

/// Writes the file that was packed at `packed`.
pub fn unpack(packed: &Path, target: &Path) -> Result<FileRecord> {
    let table = Table::open(packed)?;
    let mut out = Output::create(target)?;
    let decode = |batches: &mut dyn Iterator<Item = Result<RecordBatch>>| {
        let mut bytes = Vec::new();
        for batch in batches {
            let batch = batch?;
            let rows = batch.columns().first().and_then(|column| column.as_binary_opt::<i64>());
            rows.into_iter().flatten().flatten().for_each(|row| bytes.extend_from_slice(row));
        }
        Ok(bytes)
    };
    table.each_group(packed, decode, |_, bytes: Vec<u8>| out.write(&bytes))?;
    out.finish()
}
