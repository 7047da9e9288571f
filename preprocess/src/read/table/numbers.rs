//! Cells as numbers of the type in which a column is stored.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, downcast_integer_array};
use arrow_schema::DataType;
use half::f16;

use super::cells::{Cell, Number, cells, descr};
use crate::edges::ValueType;
use crate::read::text::field::shown;
use crate::read::text::value::{INEXACT, is_missing, write_number};

/// Type in which the numbers of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StoredType {
    /// A type of the values of edges.
    Value(ValueType),
    /// Another type of numbers, by NumPy's name.
    Other(&'static str),
}

impl StoredType {
    /// The type with NumPy's name `descr`.
    pub fn of(descr: &'static str) -> Self {
        match descr {
            "<f4" => Self::Value(ValueType::F32),
            "<f8" => Self::Value(ValueType::F64),
            "<i8" => Self::Value(ValueType::I64),
            other => Self::Other(other),
        }
    }

    /// NumPy's name.
    pub fn descr(self) -> &'static str {
        match self {
            Self::Value(ValueType::F32) => "<f4",
            Self::Value(ValueType::F64) => "<f8",
            Self::Value(ValueType::I64) => "<i8",
            Self::Other(descr) => descr,
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::Value(value) => value.bytes(),
            Self::Other(descr) => crate::read::raw::element_bytes(descr),
        }
    }
}

/// A column of numbers: how its cells are written.
#[derive(Clone, Copy, Debug)]
pub struct NumberCells {
    /// Their type.
    pub stored: StoredType,
    /// Value of cells that have none. Without it these are NaN among floats, and an error among
    /// integers.
    pub fill: Option<f64>,
    /// Whether whole numbers may be rounded to floats, as weights are.
    pub rounds: bool,
}

impl NumberCells {
    /// Writes the number in `cell`, or the numbers of its list, to `out`, which has the bytes of a
    /// row.
    #[inline]
    pub fn write(&self, cell: Cell<'_>, out: &mut [u8]) -> Result<(), String> {
        let size = self.stored.bytes();
        match cell {
            Cell::List(items, first, count) => self.write_list(items, first, count, out),
            Cell::Missing => {
                out.chunks_exact_mut(size).try_for_each(|out| self.write_one(cell, out))
            }
            cell if out.len() == size => self.write_one(cell, out),
            _ => {
                Err(format!("holds one number: expected {}, as in the first row", out.len() / size))
            }
        }
    }

    fn write_list(
        &self,
        items: &ArrayRef,
        first: usize,
        count: usize,
        out: &mut [u8],
    ) -> Result<(), String> {
        let size = self.stored.bytes();
        if count * size != out.len() {
            return Err(format!(
                "holds {count} numbers: expected {}, as in the first row",
                out.len() / size
            ));
        }
        if let Some(bytes) =
            bytes_of(items).filter(|_| descr(items.data_type()) == Some(self.stored.descr()))
        {
            out.copy_from_slice(&bytes[first * size..][..out.len()]);
            return Ok(());
        }
        let cells = cells(items)?;
        out.chunks_exact_mut(size)
            .zip(first..)
            .try_for_each(|(out, item)| self.write_one(cells.get(item), out))
    }

    #[inline]
    fn write_one(&self, cell: Cell<'_>, out: &mut [u8]) -> Result<(), String> {
        let is_filled = |cell: &[u8]| self.fill.is_some() && is_missing(cell);
        match (cell, self.stored) {
            (Cell::Written(cell), StoredType::Value(value)) if !is_filled(cell) => {
                write_number(cell, value, out)
            }
            (Cell::Missing | Cell::Written(_), _) => self.write_missing(out),
            (Cell::Number(number), StoredType::Value(ValueType::F32))
                if !self.rounds && number.whole().is_some() =>
            {
                Err(format!("is {number}: expected a float, as in the first file"))
            }
            (Cell::Number(number), StoredType::Value(value)) => write(number, value, out),
            (Cell::Number(number), StoredType::Other(descr)) => write_other(number, descr, out)
                .ok_or_else(|| {
                    format!(
                        "is {number}: expected a number that NumPy's type {descr} holds, as in the \
                         first file"
                    )
                }),
            (Cell::Text(text), _) => {
                Err(format!("is {}: expected a number", shown(text.as_bytes())))
            }
            (Cell::List(..), _) => Err("holds lists of lists: expected numbers".into()),
        }
    }

    fn write_missing(&self, out: &mut [u8]) -> Result<(), String> {
        match (self.fill, self.stored) {
            (Some(fill), StoredType::Value(ValueType::I64)) if fill.fract() != 0.0 => {
                Err(format!("--schema fill={fill}: the column holds whole numbers, expected one"))
            }
            (Some(fill), StoredType::Value(ValueType::I64)) => {
                write((fill as i64).into(), ValueType::I64, out)
            }
            (Some(fill), StoredType::Value(value)) => write(fill.into(), value, out),
            (None, StoredType::Value(value @ (ValueType::F32 | ValueType::F64))) => {
                write(f64::NAN.into(), value, out)
            }
            (None, StoredType::Other("<f2")) => {
                out.copy_from_slice(&f16::NAN.to_le_bytes());
                Ok(())
            }
            (None, _) | (_, StoredType::Other(_)) => {
                Err("is null: expected an integer; pass --schema fill=NUMBER, or leave the column \
                     out"
                .into())
            }
        }
    }
}

/// The bytes of an array of numbers that are all there.
fn bytes_of(array: &ArrayRef) -> Option<&[u8]> {
    if array.null_count() > 0 {
        return None;
    }
    let array: &dyn Array = array.as_ref();
    downcast_integer_array!(
        array => { Some(array.values().inner().as_slice()) }
        DataType::Float16 => Some(array.as_primitive::<Float16Type>().values().inner().as_slice()),
        DataType::Float32 => Some(array.as_primitive::<Float32Type>().values().inner().as_slice()),
        DataType::Float64 => Some(array.as_primitive::<Float64Type>().values().inner().as_slice()),
        _ => None,
    )
}

/// Fails if `value` cannot hold the number. Fractions that every float type rounds are accepted.
#[inline]
fn write(number: Number, value: ValueType, out: &mut [u8]) -> Result<(), String> {
    match value {
        ValueType::F32 if number.f32().is_infinite() && number.f64().is_finite() => {
            return Err(format!(
                "is {:e}: expected a number of at most 3.4e38, the largest f32",
                number.f64()
            ));
        }
        ValueType::F32 => out.copy_from_slice(&number.f32().to_le_bytes()),
        ValueType::F64 if number.whole().is_some_and(|whole| number.f64() as i128 != whole) => {
            return Err(format!("is {number}: expected {INEXACT}"));
        }
        ValueType::F64 => out.copy_from_slice(&number.f64().to_le_bytes()),
        ValueType::I64 => {
            let whole = number.whole().and_then(|whole| i64::try_from(whole).ok());
            let whole =
                whole.ok_or_else(|| format!("is {number}: expected a signed 64-bit integer"))?;
            out.copy_from_slice(&whole.to_le_bytes());
        }
    }
    Ok(())
}

/// Writes the number as NumPy's type `descr`, if that holds it exactly.
fn write_other(number: Number, descr: &str, out: &mut [u8]) -> Option<()> {
    macro_rules! put {
        ($type:ty) => {
            out.copy_from_slice(&<$type>::try_from(number.whole()?).ok()?.to_le_bytes())
        };
    }
    match descr {
        "|u1" => put!(u8),
        "<u2" => put!(u16),
        "<u4" => put!(u32),
        "<u8" => put!(u64),
        "|i1" => put!(i8),
        "<i2" => put!(i16),
        "<i4" => put!(i32),
        _ => {
            let half = f16::from_f64(number.f64());
            let is_exact =
                number.whole().is_none() && (half.to_f64() == number.f64() || half.is_nan());
            out.copy_from_slice(&is_exact.then_some(half)?.to_le_bytes());
        }
    }
    Some(())
}
