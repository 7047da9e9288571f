//! Arrow arrays as ids and numbers.
//!
//! Problems come back with the row in the array; the caller knows file and position.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{AnyDictionaryArray, Array, ArrayRef, PrimitiveArray, StringArray, UInt64Array};
use arrow_schema::DataType;
use half::f16;

use super::choice::{Field, IdKind};
use super::rows;
use crate::edges::ValueType;
use crate::read::text::field::shown;
use crate::read::text::names::Names;
use crate::read::text::value::{INEXACT, exact_id, id};

/// A value, or the row that is wrong and the problem.
pub type RowResult<T> = Result<T, (usize, String)>;

/// A number as it is stored in an edge column.
trait Number: Copy {
    fn f32(self) -> f32;
    fn f64(self) -> f64;
    /// The number, of an integer type.
    fn whole(self) -> Option<i128>;

    fn i64(self) -> Option<i64> {
        i64::try_from(self.whole()?).ok()
    }

    fn id(self) -> Option<u64> {
        u64::try_from(self.whole()?).ok()
    }
}

macro_rules! integers {
    ($($type:ty),*) => { $(impl Number for $type {
        fn f32(self) -> f32 { self as f32 }
        fn f64(self) -> f64 { self as f64 }
        fn whole(self) -> Option<i128> { Some(i128::from(self)) }
    })* };
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Number for f32 {
    fn f32(self) -> f32 {
        self
    }
    fn f64(self) -> f64 {
        self.into()
    }
    fn whole(self) -> Option<i128> {
        None
    }
}

impl Number for f64 {
    fn f32(self) -> f32 {
        self as f32
    }
    fn f64(self) -> f64 {
        self
    }
    fn whole(self) -> Option<i128> {
        None
    }
}

impl Number for f16 {
    fn f32(self) -> f32 {
        self.to_f32()
    }
    fn f64(self) -> f64 {
        self.to_f64()
    }
    fn whole(self) -> Option<i128> {
        None
    }
}

/// Evaluates `$body` with `$values` being the array as one of its integer type, or `$other`.
macro_rules! as_integers {
    ($array:expr, $values:ident => $body:expr, $other:expr) => {
        match $array.data_type() {
            DataType::Int8 => {
                let $values = $array.as_primitive::<Int8Type>();
                $body
            }
            DataType::Int16 => {
                let $values = $array.as_primitive::<Int16Type>();
                $body
            }
            DataType::Int32 => {
                let $values = $array.as_primitive::<Int32Type>();
                $body
            }
            DataType::Int64 => {
                let $values = $array.as_primitive::<Int64Type>();
                $body
            }
            DataType::UInt8 => {
                let $values = $array.as_primitive::<UInt8Type>();
                $body
            }
            DataType::UInt16 => {
                let $values = $array.as_primitive::<UInt16Type>();
                $body
            }
            DataType::UInt32 => {
                let $values = $array.as_primitive::<UInt32Type>();
                $body
            }
            DataType::UInt64 => {
                let $values = $array.as_primitive::<UInt64Type>();
                $body
            }
            _ => $other,
        }
    };
}
macro_rules! as_numbers {
    ($array:expr, $values:ident => $body:expr, $other:expr) => {
        match $array.data_type() {
            DataType::Float16 => { let $values = $array.as_primitive::<Float16Type>(); $body }
            DataType::Float32 => { let $values = $array.as_primitive::<Float32Type>(); $body }
            DataType::Float64 => { let $values = $array.as_primitive::<Float64Type>(); $body }
            _ => as_integers!($array, $values => $body, $other),
        }
    };
}

/// NumPy's name of a column's type where it holds numbers; booleans are bytes.
pub fn descr(value: &DataType) -> Option<&'static str> {
    Some(match value {
        DataType::Boolean | DataType::UInt8 => "|u1",
        DataType::UInt16 => "<u2",
        DataType::UInt32 => "<u4",
        DataType::UInt64 => "<u8",
        DataType::Int8 => "|i1",
        DataType::Int16 => "<i2",
        DataType::Int32 => "<i4",
        DataType::Int64 => "<i8",
        DataType::Float16 => "<f2",
        DataType::Float32 => "<f4",
        DataType::Float64 => "<f8",
        _ => return None,
    })
}

fn text(text: &str) -> rows::Cell<'_> {
    if text.is_empty() { rows::Cell::Missing } else { rows::Cell::Text(text) }
}

/// The cell in `row` of a column of numbers or strings.
pub fn cell(array: &dyn Array, row: usize) -> Result<rows::Cell<'_>, String> {
    if array.is_null(row) {
        return Ok(rows::Cell::Missing);
    }
    match array.data_type() {
        DataType::Boolean => {
            let flag = array.as_boolean().value(row);
            Ok(rows::Cell::Number(flag.into(), flag.into(), Some(flag.into())))
        }
        DataType::Utf8 => Ok(text(array.as_string::<i32>().value(row))),
        DataType::LargeUtf8 => Ok(text(array.as_string::<i64>().value(row))),
        DataType::Utf8View => Ok(text(array.as_string_view().value(row))),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let keys = dictionary.keys();
            let key = as_integers!(keys, keys => keys.value(row).id(), None);
            let place = key.and_then(|key| usize::try_from(key).ok()).filter(|&key| key < dictionary.values().len());
            cell(dictionary.values(), place.ok_or("has a key beyond its dictionary: damaged")?)
        }
        _ => as_numbers!(array, numbers => {
            let number = numbers.value(row);
            Ok(rows::Cell::Number(number.f32(), number.f64(), number.i64()))
        }, Err(format!("is of type {}: expected numbers or strings", array.data_type()))),
    }
}

/// Type of the items of a list, and its width where the type fixes it.
pub fn list_of(column: &DataType) -> Option<(&DataType, Option<usize>)> {
    match column {
        DataType::FixedSizeList(item, width) => Some((item.data_type(), usize::try_from(*width).ok())),
        DataType::List(item) | DataType::LargeList(item) => Some((item.data_type(), None)),
        _ => None,
    }
}

/// The field that a column of type `column` makes for edges; `width` is that of lists.
pub fn field(name: &str, column: &DataType, width: Option<usize>) -> Field {
    let text = |value: &DataType| matches!(value, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let id = match column {
        value if text(value) => Some(IdKind::Text),
        DataType::Dictionary(_, value) if text(value) => Some(IdKind::Text),
        DataType::Dictionary(_, value) if value.is_integer() => Some(IdKind::Number),
        value if value.is_integer() || value.is_floating() => Some(IdKind::Number),
        _ => None,
    };
    let number = |value: &DataType| match value {
        DataType::Float16 | DataType::Float32 => Some(ValueType::F32),
        DataType::Float64 => Some(ValueType::F64),
        value => descr(value).map(|_| ValueType::I64),
    };
    let value = match (list_of(column), width) {
        (None, _) => number(column).map(|value| (value, 1)),
        (Some((item, _)), Some(width)) if width > 0 => number(item).map(|value| (value, width)),
        _ => None,
    };
    Field {
        name: name.into(),
        id,
        value,
        list: list_of(column).is_some(),
        is_fractional: column.is_floating(),
        is_empty: *column == DataType::Null,
    }
}

/// Says which row is null.
pub fn check_valid(array: &dyn Array) -> RowResult<()> {
    let nulls = array.logical_nulls();
    match nulls.and_then(|nulls| nulls.iter().position(|valid| !valid)) {
        Some(row) => Err((row, "is null: expected an id in every row".into())),
        None => Ok(()),
    }
}

/// Converts the ids in `array` to `kind`: numbers to text, or text to numbers.
pub fn as_kind(array: &ArrayRef, kind: IdKind) -> RowResult<ArrayRef> {
    let mut texts: Vec<Option<String>> = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        texts.push(match cell(array.as_ref(), row).map_err(|problem| (row, problem))? {
            rows::Cell::Missing => None,
            rows::Cell::Text(text) => Some(text.into()),
            rows::Cell::Number(_, _, Some(number)) => Some(number.to_string()),
            rows::Cell::Number(_, number, None) => {
                let whole = exact_id(number)
                    .ok_or_else(|| (row, format!("is {number}: expected a whole number from 0 to 2^53")))?;
                Some(whole.to_string())
            }
        });
    }
    if kind == IdKind::Text {
        return Ok(Arc::new(StringArray::from(texts)));
    }
    let number = |(row, text): (usize, Option<String>)| match text {
        None => Ok(None),
        Some(text) => match id(text.as_bytes()) {
            Some(number) => Ok(Some(number)),
            None => Err((
                row,
                format!("is {}: expected a whole number below 2^64, for --id-type number", shown(text.as_bytes())),
            )),
        },
    };
    let numbers: RowResult<Vec<Option<u64>>> = texts.into_iter().enumerate().map(number).collect();
    Ok(Arc::new(UInt64Array::from(numbers?)))
}

/// Appends the ids in `array`. `expected` is the kind of ids in the table's first file. A null is the empty string
/// among strings; integers have no nulls, as [`check_valid`] ensures.
pub fn push_ids<'a>(
    array: &'a dyn Array,
    expected: IdKind,
    names: &mut Names<&'a str>,
    ids: &mut Vec<u64>,
) -> RowResult<()> {
    let found = field("", array.data_type(), None).id;
    if found != Some(expected) {
        let expected = if expected == IdKind::Text { "strings" } else { "integers" };
        return Err((0, format!("is of type {}: expected {expected}, as in the first file", array.data_type())));
    }
    match array.data_type() {
        DataType::Dictionary(_, _) => {
            let array = array.as_any_dictionary();
            if array.is_empty() {
                return Ok(());
            }
            return push_dictionary(array, names, ids);
        }
        DataType::Utf8 => ids.extend(array.as_string::<i32>().iter().map(|name| names.id(name.unwrap_or("")))),
        DataType::LargeUtf8 => ids.extend(array.as_string::<i64>().iter().map(|name| names.id(name.unwrap_or("")))),
        DataType::Utf8View => ids.extend(array.as_string_view().iter().map(|name| names.id(name.unwrap_or("")))),
        DataType::Float16 => push_floats(array.as_primitive::<Float16Type>(), ids)?,
        DataType::Float32 => push_floats(array.as_primitive::<Float32Type>(), ids)?,
        DataType::Float64 => push_floats(array.as_primitive::<Float64Type>(), ids)?,
        _ => {
            return as_integers!(array, values => {
                ids.reserve(values.len());
                for (row, &value) in values.values().iter().enumerate() {
                    ids.push(value.id().ok_or_else(|| (row, format!("is {value}: expected ids from 0")))?);
                }
                Ok(())
            }, Ok(()));
        }
    }
    Ok(())
}

/// Appends the ids in floats that hold them exactly.
fn push_floats<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, ids: &mut Vec<u64>) -> RowResult<()>
where
    T::Native: Number,
{
    for (row, value) in array.values().iter().map(|value| value.f64()).enumerate() {
        ids.push(exact_id(value).ok_or_else(|| (row, format!("is {value}: expected a whole number from 0 to 2^53")))?);
    }
    Ok(())
}

/// Appends the values that the keys refer to. Unused values are ignored.
fn push_dictionary<'a>(
    array: &'a dyn AnyDictionaryArray,
    names: &mut Names<&'a str>,
    ids: &mut Vec<u64>,
) -> RowResult<()> {
    let values = array.values().as_ref();
    let numbers = |row: usize, key: usize| -> RowResult<u64> {
        as_integers!(values, values => {
            let value = values.value(key);
            value.id().ok_or_else(|| (row, format!("is {value}: expected ids from 0")))
        }, Err((row, "is no integer".into())))
    };
    let mut known: Vec<Option<u64>> = vec![None; values.len()];
    let keys = if values.is_empty() { vec![0; array.len()] } else { array.normalized_keys() };
    ids.reserve(keys.len());
    for (row, &key) in keys.iter().enumerate() {
        if array.is_null(row) || values.is_null(key) {
            ids.push(names.id(""));
            continue;
        }
        let id = match known[key] {
            Some(id) => id,
            None => match values.data_type() {
                DataType::Utf8 => names.id(values.as_string::<i32>().value(key)),
                DataType::LargeUtf8 => names.id(values.as_string::<i64>().value(key)),
                DataType::Utf8View => names.id(values.as_string_view().value(key)),
                _ => numbers(row, key)?,
            },
        };
        known[key] = Some(id);
        ids.push(id);
    }
    Ok(())
}

/// Writes the numbers of every row of `array` as `value`: `width` of them from byte `at` of each `stride` bytes of
/// `out`, and `fill` for nulls.
pub fn scatter(
    array: &ArrayRef,
    value: ValueType,
    width: usize,
    (at, stride): (usize, usize),
    fill: Option<f64>,
    out: &mut [u8],
) -> RowResult<()> {
    let bytes = width * value.bytes();
    let mut rows = out.chunks_exact_mut(stride.max(1)).map(|row| &mut row[at..at + bytes]);
    each_row(array, width, &mut |row, items, first| {
        let Some(out) = rows.next() else { return Ok(()) };
        convert(items.as_ref(), first, value, fill, out).map_err(|problem| (row, problem))
    })
}

/// Function that takes the rows of an array.
type TakeRow<'a> = dyn FnMut(usize, &ArrayRef, Option<usize>) -> RowResult<()> + 'a;

/// Calls `take` with every row of `array`: its number, the array that holds its `width` items, and where they start in it,
/// `None` where the row is null.
pub fn each_row(array: &ArrayRef, width: usize, take: &mut TakeRow<'_>) -> RowResult<()> {
    let whole = |row: usize, found: usize| match found == width {
        true => Ok(()),
        false => Err((row, format!("holds {found} numbers: expected {width}, as in the first row"))),
    };
    macro_rules! lists {
        ($list:expr) => {{
            let list = $list;
            for (row, ends) in list.value_offsets().windows(2).enumerate() {
                let (start, end) = (ends[0] as usize, ends[1] as usize);
                if list.is_valid(row) {
                    whole(row, end - start)?;
                }
                take(row, list.values(), list.is_valid(row).then_some(start))?;
            }
        }};
    }
    match array.data_type() {
        DataType::FixedSizeList(_, found) => {
            whole(0, *found as usize)?;
            let list = array.as_fixed_size_list();
            for row in 0..list.len() {
                take(row, list.values(), list.is_valid(row).then_some(row * width))?;
            }
        }
        DataType::List(_) => lists!(array.as_list::<i32>()),
        DataType::LargeList(_) => lists!(array.as_list::<i64>()),
        _ => {
            whole(0, 1)?;
            for row in 0..array.len() {
                take(row, array, array.is_valid(row).then_some(row))?;
            }
        }
    }
    Ok(())
}

/// Converts as many items from `first` on as `out` holds. A null becomes `fill`; without `fill` it is NaN among floats,
/// and an error among integers.
fn convert(
    items: &dyn Array,
    first: Option<usize>,
    value: ValueType,
    fill: Option<f64>,
    out: &mut [u8],
) -> Result<(), String> {
    let null =
        || "is null: expected an integer; pass --fill NUMBER, or leave the column out with --edge-columns".to_string();
    let place = |item: usize| first.map(|first| first + item).filter(|&place| items.is_valid(place));
    let other = || format!("is of type {}: expected numbers, as in the first file", items.data_type());
    let items_of = |count: usize| first.filter(|_| items.null_count() == 0).map(|first| first..first + count);
    if let Some(range) = items_of(out.len() / value.bytes()) {
        let out = out.chunks_exact_mut(value.bytes());
        as_numbers!(items, numbers => {
            return numbers.values()[range].iter().zip(out).try_for_each(|(&number, out)| write(number, value, out));
        }, {});
    }
    for (item, out) in out.chunks_exact_mut(value.bytes()).enumerate() {
        let Some(place) = place(item) else {
            if let Some(fill) = fill {
                write_fill(fill, value, out)?;
                continue;
            }
            match value {
                ValueType::F32 => out.copy_from_slice(&f32::NAN.to_le_bytes()),
                ValueType::F64 => out.copy_from_slice(&f64::NAN.to_le_bytes()),
                ValueType::I64 => return Err(null()),
            }
            continue;
        };
        if let Some(flags) = items.as_boolean_opt() {
            write(u8::from(flags.value(place)), value, out)?;
        } else {
            as_numbers!(items, numbers => write(numbers.value(place), value, out)?, return Err(other()));
        }
    }
    Ok(())
}

/// Writes the number that replaces a missing one.
pub fn write_fill(fill: f64, value: ValueType, out: &mut [u8]) -> Result<(), String> {
    match value {
        ValueType::I64 if fill.fract() != 0.0 => {
            Err(format!("--fill {fill}: the column holds whole numbers, expected one"))
        }
        ValueType::I64 => write(fill as i64, value, out),
        _ => write(fill, value, out),
    }
}

/// Fails if `value` cannot hold the number. Fractions that every float type rounds are accepted.
fn write<T: Number + std::fmt::Display>(number: T, value: ValueType, out: &mut [u8]) -> Result<(), String> {
    match value {
        ValueType::F32 if number.f32().is_infinite() && number.f64().is_finite() => {
            return Err(format!("is {:e}: expected a number of at most 3.4e38, the largest f32", number.f64()));
        }
        ValueType::F32 => out.copy_from_slice(&number.f32().to_le_bytes()),
        ValueType::F64 if number.whole().is_some_and(|whole| number.f64() as i128 != whole) => {
            return Err(format!("is {number}: expected {INEXACT}"));
        }
        ValueType::F64 => out.copy_from_slice(&number.f64().to_le_bytes()),
        ValueType::I64 => {
            let number = number.i64().ok_or_else(|| format!("is {number}: expected a signed 64-bit integer"))?;
            out.copy_from_slice(&number.to_le_bytes());
        }
    }
    Ok(())
}

/// Appends the items from `first` on as they are stored, little-endian, `width` of them. Nothing is NaN among floats, and
/// wrong among integers.
pub fn append_raw(items: &dyn Array, first: Option<usize>, width: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let null = || "is null: expected a number; fill it, or write floats".to_string();
    let other = || format!("is of type {}: expected numbers", items.data_type());
    if let Some(first) = first.filter(|_| items.null_count() == 0) {
        as_numbers!(items, numbers => {
            numbers.values()[first..first + width].iter().for_each(|number| out.extend(number.to_le_bytes()));
            return Ok(());
        }, {});
    }
    for item in 0..width {
        let place = first.map(|first| first + item).filter(|&place| items.is_valid(place));
        match (place, items.data_type()) {
            (None, DataType::Float16) => out.extend(f16::NAN.to_le_bytes()),
            (None, DataType::Float32) => out.extend(f32::NAN.to_le_bytes()),
            (None, DataType::Float64) => out.extend(f64::NAN.to_le_bytes()),
            (None, _) => return Err(null()),
            (Some(place), DataType::Boolean) => out.push(u8::from(items.as_boolean().value(place))),
            (Some(place), _) => {
                as_numbers!(items, numbers => out.extend(numbers.value(place).to_le_bytes()), return Err(other()));
            }
        }
    }
    Ok(())
}
