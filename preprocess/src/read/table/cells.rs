//! Cells of tables of any format, Arrow arrays as such cells, and cells as ids and numbers.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, OffsetSizeTrait, PrimitiveArray, downcast_integer_array,
};
use arrow_schema::DataType;
use half::f16;
use xxhash_rust::xxh3::xxh3_64;

use super::choice::{Field, IdKind};
use crate::edges::ValueType;
use crate::read::text::field::{leading_unsigned, shown};
use crate::read::text::na::MissingValues;
use crate::read::text::value::{self, exact_id, is_missing};

/// A number of a typed column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Number of a type that has negative numbers.
    Signed(i64),
    /// Number of a type without negative numbers; 0 or 1 of a boolean.
    Unsigned(u64),
    /// Number of single or half precision.
    Single(f32),
    /// Number of double precision.
    Double(f64),
}

macro_rules! numbers {
    ($($kind:ident: $($type:ty),*;)*) => { $($(impl From<$type> for Number {
        fn from(number: $type) -> Self {
            Self::$kind(number.into())
        }
    })*)* };
}
numbers! {
    Signed: i8, i16, i32, i64;
    Unsigned: bool, u8, u16, u32, u64;
    Single: f16, f32;
    Double: f64;
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signed(number) => number.fmt(f),
            Self::Unsigned(number) => number.fmt(f),
            Self::Single(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
        }
    }
}

impl Number {
    /// The nearest double.
    #[inline]
    pub fn f64(self) -> f64 {
        match self {
            Self::Signed(number) => number as f64,
            Self::Unsigned(number) => number as f64,
            Self::Single(number) => number.into(),
            Self::Double(number) => number,
        }
    }

    /// The nearest float.
    pub fn f32(self) -> f32 {
        match self {
            Self::Signed(number) => number as f32,
            Self::Unsigned(number) => number as f32,
            Self::Single(number) => number,
            Self::Double(number) => number as f32,
        }
    }

    /// The number, of an integer type.
    #[inline]
    pub fn whole(self) -> Option<i128> {
        match self {
            Self::Signed(number) => Some(number.into()),
            Self::Unsigned(number) => Some(number.into()),
            Self::Single(_) | Self::Double(_) => None,
        }
    }
}

/// One cell of a table.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// Null, or a value that `--schema na` names.
    Missing,
    /// A number of a typed column.
    Number(Number),
    /// A string.
    Text(&'a str),
    /// A cell of a text file in plain notation, without blanks around it; empty if `--schema na` names it.
    Written(&'a [u8]),
    /// Items of this array: the place of the first, and their number.
    List(&'a ArrayRef, usize, usize),
}

impl Cell<'_> {
    /// The cell as a number, a string, or a missing value. A written cell is missing if it is one
    /// of the words that pandas writes.
    #[inline]
    pub fn scalar(self) -> Result<Self, String> {
        match self {
            Self::Text("") => Ok(Self::Missing),
            Self::Written(cell) if is_missing(cell) => Ok(Self::Missing),
            Self::Written(cell) => match std::str::from_utf8(cell) {
                Ok(text) => Ok(Self::Text(text)),
                Err(_) => Err(format!("{}: expected UTF-8", shown(cell))),
            },
            Self::List(..) => Err("is a list: expected numbers or strings".into()),
            cell => Ok(cell),
        }
    }

    /// Whether it is null or NaN, of a typed column.
    pub fn is_missing(self) -> bool {
        match self {
            Self::Number(number) => number.f64().is_nan(),
            cell => matches!(cell, Self::Missing),
        }
    }
}

type CellOfRow<'a> = Box<dyn Fn(usize) -> Cell<'a> + 'a>;

/// The cells of a column of text, in plain notation.
#[derive(Clone, Copy)]
pub struct WrittenCells<'a> {
    /// The text that was read, and the text of cells that are written otherwise there.
    pub texts: [&'a [u8]; 2],
    /// The start of each cell in the two texts, one after the other, and its bytes.
    pub places: &'a [(u32, u32)],
}

impl<'a> WrittenCells<'a> {
    /// The text from the start of the cell in `row`, and the bytes of the cell.
    #[inline]
    fn text_from(&self, row: usize) -> (&'a [u8], usize) {
        let ((start, length), [first, second]) = (self.places[row], self.texts);
        let start = start as usize;
        let text = match start.checked_sub(first.len()) {
            None => &first[start..],
            Some(start) => &second[start..],
        };
        (text, length as usize)
    }

    /// The cell in `row`.
    #[inline]
    fn get(&self, row: usize) -> &'a [u8] {
        let (text, length) = self.text_from(row);
        &text[..length]
    }

    /// All cells.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.places.len()).map(move |row| self.get(row))
    }

    /// The number in `row`, if it is unsigned and has neither many digits nor zeros before them.
    #[inline]
    pub fn short_number(&self, row: usize) -> Option<u64> {
        let (text, length) = self.text_from(row);
        let (number, digits) = leading_unsigned(text)?;
        (digits == length && (length == 1 || text[0] != b'0')).then_some(number)
    }
}

/// The cells of a column.
pub enum Cells<'a> {
    /// Cells of a text file.
    Written(WrittenCells<'a>),
    /// 64-bit integers without nulls, which are read without a call for each cell.
    Integers(&'a [i64]),
    /// Doubles without nulls, which are read in the same way.
    Doubles(&'a [f64]),
    /// A cell that every row has.
    Same(Cell<'a>),
    /// All other types, with a function that returns the cell in a row.
    Others(CellOfRow<'a>),
}

impl<'a> Cells<'a> {
    /// The cell in `row`.
    #[inline]
    pub fn get(&self, row: usize) -> Cell<'a> {
        match self {
            Self::Written(cells) => Cell::Written(cells.get(row)),
            Self::Integers(numbers) => Cell::Number(Number::Signed(numbers[row])),
            Self::Doubles(numbers) => Cell::Number(Number::Double(numbers[row])),
            Self::Same(cell) => *cell,
            Self::Others(cell) => cell(row),
        }
    }

    /// Calls `take` with every one of the `rows` and its cell, until it fails: then the row and the
    /// problem are returned. The type is looked up once.
    #[inline(always)]
    pub fn each(
        &self,
        rows: usize,
        mut take: impl FnMut(usize, Cell<'a>) -> Result<(), String>,
    ) -> Result<(), (usize, String)> {
        let mut each =
            move |row: usize, cell: Cell<'a>| take(row, cell).map_err(|problem| (row, problem));
        match self {
            Self::Written(cells) => {
                (0..rows).try_for_each(|row| each(row, Cell::Written(cells.get(row))))
            }
            Self::Integers(numbers) => (0..)
                .zip(*numbers)
                .try_for_each(|(row, &number)| each(row, Cell::Number(Number::Signed(number)))),
            Self::Doubles(numbers) => (0..)
                .zip(*numbers)
                .try_for_each(|(row, &number)| each(row, Cell::Number(Number::Double(number)))),
            Self::Same(_) | Self::Others(_) => {
                (0..rows).try_for_each(|row| each(row, self.get(row)))
            }
        }
    }

    /// The cells, where the values that the user takes for `missing` are.
    pub fn without(self, missing: &'a MissingValues) -> Self {
        if missing.is_empty() {
            return self;
        }
        Self::Others(Box::new(move |row| match self.get(row) {
            Cell::Text(text) if missing.has(text.trim().as_bytes()) => Cell::Missing,
            Cell::Number(number) if missing.has_number(number.f64()) => Cell::Missing,
            cell => cell,
        }))
    }
}

/// The cells of `array`, whose type is looked up once.
pub fn cells<'a>(array: &'a dyn Array) -> Result<Cells<'a>, String> {
    fn numbers<T: ArrowPrimitiveType<Native: Into<Number>>>(
        array: &PrimitiveArray<T>,
    ) -> CellOfRow<'_> {
        let numbers = array.values();
        Box::new(|row| Cell::Number(numbers[row].into()))
    }
    fn lists<O: OffsetSizeTrait>(array: &dyn Array) -> CellOfRow<'_> {
        let list = array.as_list::<O>();
        let item = |row: usize| list.value_offsets()[row].as_usize();
        Box::new(move |row| Cell::List(list.values(), item(row), item(row + 1) - item(row)))
    }
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    match array.data_type() {
        DataType::Int64 if nulls.is_none() => {
            return Ok(Cells::Integers(array.as_primitive::<Int64Type>().values()));
        }
        DataType::Float64 if nulls.is_none() => {
            return Ok(Cells::Doubles(array.as_primitive::<Float64Type>().values()));
        }
        _ => {}
    }
    let cells: CellOfRow<'a> = downcast_integer_array!(
        array => { numbers(array) }
        DataType::Float16 => numbers(array.as_primitive::<Float16Type>()),
        DataType::Float32 => numbers(array.as_primitive::<Float32Type>()),
        DataType::Float64 => numbers(array.as_primitive::<Float64Type>()),
        DataType::Boolean => {
            let flags = array.as_boolean();
            Box::new(|row| Cell::Number(flags.value(row).into()))
        }
        DataType::Utf8 => {
            let texts = array.as_string::<i32>();
            Box::new(|row| Cell::Text(texts.value(row)))
        }
        DataType::LargeUtf8 => {
            let texts = array.as_string::<i64>();
            Box::new(|row| Cell::Text(texts.value(row)))
        }
        DataType::Utf8View => {
            let texts = array.as_string_view();
            Box::new(|row| Cell::Text(texts.value(row)))
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let (keys, values) = (cells(dictionary.keys())?, cells(dictionary.values())?);
            let key = move |row| match keys.get(row) {
                Cell::Number(key) => key.whole().map_or(usize::MAX, |key| key as usize),
                _ => usize::MAX,
            };
            let is_known = |row| array.is_null(row) || key(row) < dictionary.values().len();
            if !(0..array.len()).all(is_known) {
                return Err("has a key beyond its dictionary: damaged".into());
            }
            Box::new(move |row| values.get(key(row)))
        }
        DataType::List(_) => lists::<i32>(array),
        DataType::LargeList(_) => lists::<i64>(array),
        DataType::FixedSizeList(_, _) => {
            let list = array.as_fixed_size_list();
            let width = list.value_length() as usize;
            Box::new(move |row| Cell::List(list.values(), row * width, width))
        }
        DataType::Null => Box::new(|_| Cell::Missing),
        other => return Err(format!("is of type {other}: expected numbers or strings")),
    );
    Ok(Cells::Others(match nulls {
        Some(nulls) => {
            Box::new(move |row| if nulls.is_null(row) { Cell::Missing } else { cells(row) })
        }
        None => cells,
    }))
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

/// Type of the items of a list, and its width where the type fixes it.
pub fn list_of(column: &DataType) -> Option<(&DataType, Option<usize>)> {
    match column {
        DataType::FixedSizeList(item, width) => {
            Some((item.data_type(), usize::try_from(*width).ok()))
        }
        DataType::List(item) | DataType::LargeList(item) => Some((item.data_type(), None)),
        _ => None,
    }
}

/// The field that a column of type `column` makes for edges; `width` is that of lists.
pub fn field(name: &str, column: &DataType, width: Option<usize>) -> Field {
    let text = |value: &DataType| {
        matches!(value, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
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

/// The id in `cell`: a number, or the hash of a string, which `name` takes.
#[inline]
pub fn id_with(cell: Cell<'_>, kind: IdKind, mut name: impl FnMut(&str) -> u64) -> Option<u64> {
    match (cell, kind) {
        (Cell::Number(Number::Signed(number)), IdKind::Number) => u64::try_from(number).ok(),
        (Cell::Number(number), IdKind::Number) => match number.whole() {
            Some(whole) => u64::try_from(whole).ok(),
            None => exact_id(number.f64()),
        },
        (Cell::Text(text), IdKind::Number) => value::id(text.as_bytes()),
        (Cell::Written(cell), IdKind::Number) => value::id(cell),
        (Cell::Number(number), IdKind::Text) => match number.whole() {
            Some(whole) => Some(name(&whole.to_string())),
            None => Some(name(&exact_id(number.f64())?.to_string())),
        },
        (Cell::Text(text), IdKind::Text) => Some(name(text)),
        (Cell::Written(cell), IdKind::Text) if !cell.is_empty() => {
            std::str::from_utf8(cell).ok().map(name)
        }
        _ => None,
    }
}

/// The id in `cell`.
pub fn id_of(cell: Cell<'_>, kind: IdKind) -> Option<u64> {
    id_with(cell, kind, |text| xxh3_64(text.as_bytes()))
}

/// The problem with a `cell` that holds no id.
pub fn no_id(cell: Cell<'_>, kind: IdKind) -> String {
    match cell {
        Cell::Missing | Cell::Written(b"") => "is empty: expected an id in every row".into(),
        Cell::Written(cell) if kind == IdKind::Text => format!("{}: expected UTF-8", shown(cell)),
        Cell::Written(cell) if cell.starts_with(b"-") => {
            format!("{}: expected ids from 0", shown(cell))
        }
        Cell::Written(cell) => format!(
            "{}: expected a whole number below 2^64, as in other rows: fix or remove the line, or \
             pass --schema id-type=text if ids are strings",
            shown(cell)
        ),
        Cell::Number(number) if number.whole().is_some() => {
            format!("is {number}: expected ids from 0")
        }
        Cell::Number(number) => format!("is {number}: expected a whole number from 0 to 2^53"),
        Cell::Text(text) => format!(
            "is {}: expected a whole number below 2^64, for --schema id-type=number or as in \
                 the first file",
            shown(text.as_bytes())
        ),
        Cell::List(..) => "is a list: expected an id".into(),
    }
}
