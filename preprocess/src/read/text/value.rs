//! Values in text: the type of a column, by its cells, and the bytes of each value.
//!
//! Whole numbers are i64 and others f64, so a value is stored as it is written, or refused. The
//! exception is the column `weight`, which is f32 (see [`EdgeColumn::of`]): a weight is rounded to
//! the nearest f32.

use super::field::{double, real, shown, unsigned};
use crate::edges::ValueType;

/// Words for missing values, in addition to empty cells.
const MISSING: [&[u8]; 10] =
    [b"NA", b"N/A", b"n/a", b"<NA>", b"null", b"NULL", b"None", b"NaN", b"nan", b"?"];

/// Contents of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellKind {
    /// No cells so far.
    Empty,
    /// Only cells without a value.
    Missing,
    /// `true` and `false`.
    Flag,
    /// Whole numbers.
    Integer,
    /// Whole numbers, some written with a point or missing, as pandas leaves them after a merge.
    Whole,
    /// Numbers.
    Float,
    /// Whole numbers, some longer than 64 bits.
    Long,
    /// Anything.
    Text,
}

impl CellKind {
    /// Type that keeps such values; `None` if they are not numbers.
    pub fn value(self) -> Option<ValueType> {
        match self {
            Self::Integer | Self::Flag => Some(ValueType::I64),
            Self::Whole | Self::Float | Self::Long => Some(ValueType::F64),
            Self::Empty | Self::Missing | Self::Text => None,
        }
    }
}

/// The kinds of the cells of a column, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellKinds(u8);

impl CellKinds {
    /// Adds `cell`. Returns its own kind.
    pub fn add(&mut self, cell: &[u8]) -> CellKind {
        let kind = kind_of(cell);
        self.0 |= 1 << kind as u8;
        kind
    }

    /// Adds the cells of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The kind of the cells that are not of `kind`.
    pub fn without(self, kind: CellKind) -> CellKind {
        Self(self.0 & !(1 << kind as u8)).kind()
    }

    /// The kind that all cells have in common.
    pub fn kind(self) -> CellKind {
        use CellKind::*;
        let has = |kind: CellKind| self.0 & 1 << kind as u8 != 0;
        match () {
            () if has(Text) => Text,
            () if has(Flag) && [Integer, Whole, Float, Long].into_iter().any(has) => Text,
            () if has(Long) => Long,
            // Integers and flags cannot represent a missing value.
            () if has(Float) || (has(Flag) && has(Missing)) => Float,
            () if has(Whole) || (has(Integer) && has(Missing)) => Whole,
            () => [Integer, Flag, Missing].into_iter().find(|&kind| has(kind)).unwrap_or(Empty),
        }
    }
}

/// The kind of all `cells`.
pub fn kind_of_all<'c>(cells: impl Iterator<Item = &'c [u8]>) -> CellKind {
    let mut kinds = CellKinds::default();
    for cell in cells {
        kinds.add(cell);
    }
    kinds.kind()
}

fn kind_of(cell: &[u8]) -> CellKind {
    /// Digits that are exact as an integer and as a float.
    const FEW_DIGITS: usize = 15;
    let is_zero = |&byte: &u8| byte == b'0';
    // Most cells are short numbers.
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    if (1..=FEW_DIGITS).contains(&digits.len()) {
        let point = digits.iter().position(|byte| !byte.is_ascii_digit());
        match point.map(|at| (&digits[..at], digits[at], &digits[at + 1..])) {
            None => return CellKind::Integer,
            Some(([_, ..], b'.', fraction)) if fraction.iter().all(u8::is_ascii_digit) => {
                return if fraction.iter().all(is_zero) {
                    CellKind::Whole
                } else {
                    CellKind::Float
                };
            }
            Some(_) => {}
        }
    }
    match cell {
        cell if is_missing(cell) => CellKind::Missing,
        cell if flag(cell).is_some() => CellKind::Flag,
        cell if whole(cell).is_some() => CellKind::Integer,
        cell if real::<f64>(cell).is_some_and(is_whole) => CellKind::Whole,
        cell if cell.iter().all(u8::is_ascii_digit) => CellKind::Long,
        cell if real::<f64>(cell).is_some() => CellKind::Float,
        _ => CellKind::Text,
    }
}

/// Whether a cell is a missing value.
pub fn is_missing(cell: &[u8]) -> bool {
    cell.is_empty() || MISSING.contains(&cell)
}

/// Whether a cell is one of the spellings of true and false.
pub fn flag(cell: &[u8]) -> Option<bool> {
    match cell {
        b"true" | b"True" | b"TRUE" => Some(true),
        b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// Whether a cell begins like a number, valid or not.
pub fn is_number(cell: &[u8]) -> bool {
    let digits = cell.strip_prefix(b"-").or_else(|| cell.strip_prefix(b"+")).unwrap_or(cell);
    digits.first().is_some_and(u8::is_ascii_digit)
}

/// A signed whole number.
pub fn integer(cell: &[u8]) -> Option<i64> {
    i64::try_from(whole(cell)?).ok()
}

/// A whole number of at most 64 bits plus its sign.
fn whole(cell: &[u8]) -> Option<i128> {
    match cell.split_first() {
        Some((b'-', digits)) => unsigned(digits).map(|number| -i128::from(number)),
        Some((b'+', digits)) => unsigned(digits).map(i128::from),
        _ => unsigned(cell).map(i128::from),
    }
}

/// An unsigned whole number, which may be written as a float that holds it exactly: `7.0`.
pub fn id(cell: &[u8]) -> Option<u64> {
    unsigned(cell).or_else(|| exact_id(real::<f64>(cell)?))
}

/// The whole number from 0 that equals a float, if every whole number up to it is exact as a float.
pub fn exact_id(number: f64) -> Option<u64> {
    (is_whole(number) && number >= 0.0).then_some(number as u64)
}

fn is_whole(number: f64) -> bool {
    const EXACT: f64 = (1u64 << 53) as f64;
    number.fract() == 0.0 && number.abs() <= EXACT
}

/// Writes the number in `cell` as `value`, little-endian. An empty cell is NaN among floats, and an
/// error among integers. Fails if `value` cannot hold the number; fractions that every float type
/// rounds are accepted.
pub fn write_number(cell: &[u8], value: ValueType, out: &mut [u8]) -> Result<(), String> {
    let wrong = |expected: &str| {
        let has_comma = cell.contains(&b',')
            && cell.iter().all(|byte| byte.is_ascii_digit() || b"+-.,".contains(byte));
        let remedy = if has_comma {
            "; pass --schema decimal=point or --schema decimal=comma for what a comma is"
        } else {
            ""
        };
        format!("{}: expected {expected}{remedy}", shown(cell))
    };
    let truth = |cell| flag(cell).map(u8::from);
    // Digits that become infinity exceed the type.
    let fits = |is_finite: bool| is_finite || !cell.iter().any(u8::is_ascii_digit);
    match value {
        ValueType::I64 => {
            let number = integer(cell).or_else(|| truth(cell).map(i64::from));
            let number = number
                .ok_or_else(|| wrong("a whole number from -2^63 to 2^63-1, as in other rows"))?;
            out.copy_from_slice(&number.to_le_bytes());
        }
        ValueType::F32 | ValueType::F64 if is_missing(cell) => write_float(f64::NAN, value, out),
        ValueType::F32 | ValueType::F64 => {
            let as_f32 = value == ValueType::F32;
            let number = if as_f32 { real::<f32>(cell).map(f64::from) } else { double(cell) };
            let number = number.or_else(|| truth(cell).map(f64::from));
            let number = number.ok_or_else(|| wrong("a number, as in other rows"))?;
            if !fits(!number.is_infinite()) {
                let most =
                    if as_f32 { "3.4e38, the largest f32" } else { "1.8e308, the largest f64" };
                return Err(wrong(&format!("a number of at most {most}")));
            }
            if !as_f32 && whole(cell).is_some_and(|whole| number as i128 != whole) {
                return Err(wrong(INEXACT));
            }
            write_float(number, value, out);
        }
    }
    Ok(())
}

fn write_float(number: f64, value: ValueType, out: &mut [u8]) {
    match value {
        ValueType::F32 => out.copy_from_slice(&(number as f32).to_le_bytes()),
        _ => out.copy_from_slice(&number.to_le_bytes()),
    }
}

/// Expectation that a whole number beyond 2^53 breaks in a column of floats.
pub const INEXACT: &str = "a number that an f64 holds exactly, since others of the column have a fraction or are missing: fill \
                           these with whole numbers, or leave the column out";
