//! `.npy` files as Parquet columns. The header is kept word for word; values are in the order they lie in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array as _, ArrayRef, ArrowPrimitiveType, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};
use gsplit_store::{FileRecord, MappedFile, NpyHeader};

use super::copy::Output;
use super::groups::{self, MAX_GROUPS, Source, Table, VALUES_PER_GROUP, width};
use crate::{Error, Result};

/// Where the `.npy` header is kept: its bytes in hexadecimal.
const HEADER: &str = "gsplit.npy_header";

/// A `.npy` file that becomes a column.
pub struct Array {
    path: PathBuf,
    map: MappedFile,
    /// Bytes of the header.
    header: usize,
    column: DataType,
    rows: u64,
    row_bytes: usize,
}

impl Array {
    /// Maps the file at `path`; `None` when its content is not what a column can hold, or not all of its content.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let map = MappedFile::open(path)?;
        let mut rest: &[u8] = &map;
        let Ok(header) = NpyHeader::read(&mut rest) else { return Ok(None) };
        let (data, start) = (rest.len() as u64, map.len() - rest.len());
        let Some((value, bytes)) = value_type(&header.descr) else { return Ok(None) };
        if header.num_elements().and_then(|elements| elements.checked_mul(bytes)) != Some(data) {
            return Ok(None);
        }
        let (column, width) = match header.shape[..] {
            [_, width] if !header.fortran_order && (1..1 << 20).contains(&width) => {
                (DataType::FixedSizeList(item(value), width as i32), width)
            }
            _ => (value, 1),
        };
        let row_bytes = width * bytes;
        let rows = data / row_bytes;
        Ok(Some(Self { path: path.into(), map, header: start, column, rows, row_bytes: row_bytes as usize }))
    }

    /// Writes it as a Parquet file.
    pub fn pack(&self, path: &Path, level: i32) -> Result<FileRecord> {
        let name = self.path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let schema = Arc::new(Schema::new(vec![Field::new(name, self.column.clone(), false)]));
        let per_group = (VALUES_PER_GROUP / width(&self.column) as u64).max(self.rows / MAX_GROUPS + 1);
        let group = |group: usize| {
            let start = group as u64 * per_group;
            let rows = per_group.min(self.rows - start) as usize;
            let at = self.header + start as usize * self.row_bytes;
            let array = array(&self.column, &self.map[at..at + rows * self.row_bytes], rows);
            let batch = array.and_then(|array| RecordBatch::try_new(schema.clone(), vec![array]).ok());
            batch.ok_or_else(|| Error::input(&self.path, format!("its {} cannot become a column", self.column)))
        };
        let header = self.map[..self.header].iter().map(|byte| format!("{byte:02x}")).collect();
        let facts = vec![("gsplit.form", "array".into()), (HEADER, header)];
        let groups = self.rows.div_ceil(per_group) as usize;
        groups::write(path, &Source { schema: schema.clone(), facts, groups, group: &group }, level)
    }
}

/// Writes the `.npy` file that was packed at `packed`.
pub fn unpack(packed: &Path, target: &Path) -> Result<FileRecord> {
    let table = Table::open(packed)?;
    let header = table.fact(HEADER).and_then(unhex);
    let header = header.ok_or_else(|| Error::input(packed, format!("has no {HEADER}: pack it again")))?;
    let mut out = Output::create(target)?;
    out.write(&header)?;
    let decode = |batches: &mut dyn Iterator<Item = Result<RecordBatch>>| {
        let mut bytes = Vec::new();
        for batch in batches {
            append_bytes(batch?.columns().first(), &mut bytes);
        }
        Ok(bytes)
    };
    table.each_group(packed, decode, |_, bytes: Vec<u8>| out.write(&bytes))?;
    out.finish()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    Some(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

/// Type and bytes of the values that NumPy calls `descr`.
fn value_type(descr: &str) -> Option<(DataType, u64)> {
    Some(match descr {
        "|i1" => (DataType::Int8, 1),
        "|u1" | "|b1" => (DataType::UInt8, 1),
        "<i2" => (DataType::Int16, 2),
        "<u2" => (DataType::UInt16, 2),
        "<f2" => (DataType::Float16, 2),
        "<i4" => (DataType::Int32, 4),
        "<u4" => (DataType::UInt32, 4),
        "<f4" => (DataType::Float32, 4),
        "<i8" => (DataType::Int64, 8),
        "<u8" => (DataType::UInt64, 8),
        "<f8" => (DataType::Float64, 8),
        _ => return None,
    })
}

/// The item of lists of `value`.
pub fn item(value: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", value, false))
}

/// `rows` values, or lists of values, whose little-endian `bytes` these are; `None` for types that hold something else.
pub fn array(column: &DataType, bytes: &[u8], rows: usize) -> Option<ArrayRef> {
    fn primitive<T: ArrowPrimitiveType>(bytes: &[u8], rows: usize) -> Option<ArrayRef> {
        if bytes.len() != rows.checked_mul(size_of::<T::Native>())? {
            return None;
        }
        // A copy is aligned; the file need not be.
        let values = ScalarBuffer::new(Buffer::from_slice_ref(bytes), 0, rows);
        Some(Arc::new(PrimitiveArray::<T>::new(values, None)))
    }
    match column {
        DataType::Int8 => primitive::<Int8Type>(bytes, rows),
        DataType::UInt8 => primitive::<UInt8Type>(bytes, rows),
        DataType::Int16 => primitive::<Int16Type>(bytes, rows),
        DataType::UInt16 => primitive::<UInt16Type>(bytes, rows),
        DataType::Float16 => primitive::<Float16Type>(bytes, rows),
        DataType::Int32 => primitive::<Int32Type>(bytes, rows),
        DataType::UInt32 => primitive::<UInt32Type>(bytes, rows),
        DataType::Float32 => primitive::<Float32Type>(bytes, rows),
        DataType::Int64 => primitive::<Int64Type>(bytes, rows),
        DataType::UInt64 => primitive::<UInt64Type>(bytes, rows),
        DataType::Float64 => primitive::<Float64Type>(bytes, rows),
        DataType::FixedSizeList(item, width) => {
            let values = array(item.data_type(), bytes, rows.checked_mul(usize::try_from(*width).ok()?)?)?;
            Some(Arc::new(FixedSizeListArray::try_new(item.clone(), *width, values, None).ok()?))
        }
        _ => None,
    }
}

/// Appends the values of `array`, or of its lists, as they are stored.
pub fn append_bytes(array: Option<&ArrayRef>, out: &mut Vec<u8>) {
    let Some(array) = array else { return };
    let data = match array.as_fixed_size_list_opt() {
        Some(list) => list.values().to_data(),
        None => array.to_data(),
    };
    let bytes = data.data_type().primitive_width().unwrap_or(0);
    let buffer = data.buffers().first().map_or(&[][..], |buffer| buffer.as_slice());
    out.extend_from_slice(&buffer[data.offset() * bytes..(data.offset() + data.len()) * bytes]);
}
