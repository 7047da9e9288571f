//! Columns of Parquet and Arrow files as the rest of the code knows them: integers, floats, booleans and strings.
//!
//! | type in the file | becomes |
//! | --- | --- |
//! | fixed binary (UUIDs, hashes) | strings, in hexadecimal |
//! | decimal without fractions, up to 18 digits | 64-bit integers |
//! | decimal without fractions, longer | strings of digits, so that ids stay exact |
//! | decimal with fractions | doubles |
//! | date, timestamp | doubles: days since 1970-01-01 |
//!
//! Values that `--na` names become nulls.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, Float64Array, Int64Array, PrimitiveArray, RecordBatch, StringArray, make_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::cells;
use super::frames::{Frames, Take, damaged};
use super::rows::Cell;
use super::sheet::DATES;
use crate::Result;
use crate::read::text::na::MissingValues;

/// Milliseconds of a day.
const DAY_MS: f64 = 86_400_000.0;
/// Key in the metadata of a field that held dates.
const DATE: &str = "gsplit.date";
/// Digits that a 64-bit integer always holds.
const MAX_DIGITS: u8 = 18;

/// A file with columns that are converted as they are read.
pub struct PlainColumns {
    file: Arc<dyn Frames>,
    schema: SchemaRef,
    /// Values of every column that become nulls.
    missing: Vec<MissingValues>,
}

/// `file`, whose columns are converted where their types ask for it, and where some of their values are `missing`.
pub fn plain(file: Arc<dyn Frames>, missing: &[String]) -> Arc<dyn Frames> {
    let schema = file.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let missing: Vec<MissingValues> = names.iter().map(|name| MissingValues::of(missing, name, &names)).collect();
    let is_plain = schema.fields().iter().all(|field| converted(field.data_type()).is_none());
    if is_plain && missing.iter().all(MissingValues::is_empty) {
        return file;
    }
    let convert = |(field, missing): (&Arc<Field>, &MissingValues)| match converted(field.data_type()) {
        Some(to) if is_date(field.data_type()) => {
            let mark = HashMap::from([(DATE.to_string(), String::new())]);
            Arc::new(field.as_ref().clone().with_data_type(to).with_metadata(mark))
        }
        Some(to) => Arc::new(field.as_ref().clone().with_data_type(to)),
        None if missing.is_empty() => field.clone(),
        None => Arc::new(field.as_ref().clone().with_nullable(true)),
    };
    let fields: Vec<_> = schema.fields().iter().zip(&missing).map(convert).collect();
    let schema = Arc::new(Schema::new(fields));
    Arc::new(PlainColumns { file, schema, missing })
}

fn is_date(value: &DataType) -> bool {
    matches!(value, DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _))
}

/// Names of the columns that held dates, by the first of `parts`, with how they are read.
pub fn readings(parts: &[Arc<dyn Frames>]) -> Vec<(&'static str, Vec<String>)> {
    let fields = parts.first().into_iter().flat_map(|part| part.schema().fields().iter());
    let dates = fields.filter(|field| field.metadata().contains_key(DATE)).map(|field| field.name().clone());
    vec![(DATES, dates.collect())]
}

/// The type that a column of type `from` is converted to.
fn converted(from: &DataType) -> Option<DataType> {
    match *from {
        DataType::FixedSizeBinary(_) => Some(DataType::Utf8),
        DataType::Decimal128(digits, 0) if digits <= MAX_DIGITS => Some(DataType::Int64),
        DataType::Decimal128(_, 0) => Some(DataType::Utf8),
        DataType::Decimal128(_, _) | DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _) => {
            Some(DataType::Float64)
        }
        _ => None,
    }
}

fn convert(array: &ArrayRef) -> ArrayRef {
    match (array.data_type(), converted(array.data_type())) {
        (DataType::FixedSizeBinary(_), _) => {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let strings = array.as_fixed_size_binary().iter().map(|bytes| bytes.map(hex));
            Arc::new(strings.collect::<StringArray>())
        }
        (DataType::Decimal128(_, _), Some(DataType::Int64)) => {
            let whole = |value: Option<i128>| value.map(|value| value as i64);
            Arc::new(array.as_primitive::<Decimal128Type>().iter().map(whole).collect::<Int64Array>())
        }
        (DataType::Decimal128(_, _), Some(DataType::Utf8)) => {
            let digits = |value: Option<i128>| value.map(|value| value.to_string());
            Arc::new(array.as_primitive::<Decimal128Type>().iter().map(digits).collect::<StringArray>())
        }
        (&DataType::Decimal128(_, scale), Some(_)) => {
            // The digits are parsed, so that the double is the nearest.
            let nearest =
                |value: Option<i128>| value.and_then(|value| format!("{value}e{}", -i32::from(scale)).parse().ok());
            Arc::new(array.as_primitive::<Decimal128Type>().iter().map(nearest).collect::<Float64Array>())
        }
        (DataType::Date32, _) => days(array.as_primitive::<Date32Type>(), 1.0),
        (DataType::Date64, _) => days(array.as_primitive::<Date64Type>(), DAY_MS),
        (DataType::Timestamp(TimeUnit::Second, _), _) => {
            days(array.as_primitive::<TimestampSecondType>(), DAY_MS / 1e3)
        }
        (DataType::Timestamp(TimeUnit::Millisecond, _), _) => {
            days(array.as_primitive::<TimestampMillisecondType>(), DAY_MS)
        }
        (DataType::Timestamp(TimeUnit::Microsecond, _), _) => {
            days(array.as_primitive::<TimestampMicrosecondType>(), DAY_MS * 1e3)
        }
        (DataType::Timestamp(TimeUnit::Nanosecond, _), _) => {
            days(array.as_primitive::<TimestampNanosecondType>(), DAY_MS * 1e6)
        }
        _ => array.clone(),
    }
}

/// Replaces the `missing` numbers and strings of `array` by nulls.
fn without(array: ArrayRef, missing: &MissingValues) -> ArrayRef {
    if missing.is_empty() {
        return array;
    }
    let is_there = |row: usize| match cells::cell(array.as_ref(), row) {
        Ok(Cell::Text(text)) => !missing.has(text.trim().as_bytes()),
        Ok(Cell::Number(_, number, _)) => !missing.has_number(number),
        // Lists, and cells that the caller refuses.
        Ok(Cell::Missing) | Err(_) => array.is_valid(row),
    };
    let there = NullBuffer::new(BooleanBuffer::collect_bool(array.len(), is_there));
    let nulls = NullBuffer::union(array.nulls(), Some(&there));
    array.to_data().into_builder().nulls(nulls).build().map_or(array, make_array)
}

/// Converts times to days of `units` units of `array` each.
fn days<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, units: f64) -> ArrayRef
where
    T::Native: Into<i128>,
{
    let day = |value: T::Native| value.into() as f64 / units;
    Arc::new(array.iter().map(|value| value.map(day)).collect::<Float64Array>())
}

impl Frames for PlainColumns {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn groups(&self) -> &[u64] {
        self.file.groups()
    }

    fn read(&self, group: usize, rows: Range<u64>, columns: &[usize], take: Take<'_>) -> Result<()> {
        let schema = self.schema.project(columns).map_err(|problem| damaged(self.path(), problem))?;
        let schema = Arc::new(schema);
        self.file.read(group, rows, columns, &mut |first, batch| {
            let converted = columns.iter().zip(batch.columns());
            let arrays = converted.map(|(&at, array)| without(convert(array), &self.missing[at])).collect();
            let batch =
                RecordBatch::try_new(schema.clone(), arrays).map_err(|problem| damaged(self.path(), problem))?;
            take(first, &batch)
        })
    }

    fn largest(&self, column: usize) -> Option<u64> {
        let is_converted = converted(self.file.schema().field(column).data_type()).is_some();
        self.file.largest(column).filter(|_| !is_converted)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Date32Array, Decimal128Array, FixedSizeBinaryArray, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn numbers_and_strings_that_are_missing_become_nulls() {
        let words = ["-9999".to_string(), "#N/A".to_string()];
        let missing = MissingValues::of(&words, "x", &["x"]);
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), Some(-9999), None]));
        let expected: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, None]));
        assert_eq!(&without(whole, &missing), &expected);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "#N/A", "-9999"]));
        let expected: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, None]));
        assert_eq!(&without(texts, &missing), &expected);
    }

    #[test]
    fn types_become_plain_ones() {
        let decimals = |values: Vec<Option<i128>>, digits, scale| -> ArrayRef {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(digits, scale).unwrap())
        };
        let binary: ArrayRef =
            Arc::new(FixedSizeBinaryArray::try_from_iter([vec![0u8, 255], vec![16, 1]].into_iter()).unwrap());
        let strings = |values: &[Option<&str>]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
        assert_eq!(&convert(&binary), &strings(&[Some("00ff"), Some("1001")]));
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(-1)]));
        assert_eq!(&convert(&decimals(vec![Some(7), None, Some(-1)], 18, 0)), &whole);
        let long = 8_237_827_382_738_273_827_382;
        assert_eq!(&convert(&decimals(vec![Some(long)], 38, 0)), &strings(&[Some("8237827382738273827382")]));
        let fractions: ArrayRef = Arc::new(Float64Array::from(vec![1.25, -0.1]));
        assert_eq!(&convert(&decimals(vec![Some(125), Some(-10)], 10, 2)), &fractions);
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![Some(18_292), None]));
        assert_eq!(&convert(&dates), &(Arc::new(Float64Array::from(vec![Some(18_292.0), None])) as ArrayRef));
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![129_600_000_000]));
        assert_eq!(&convert(&times), &(Arc::new(Float64Array::from(vec![1.5])) as ArrayRef));
    }
}
