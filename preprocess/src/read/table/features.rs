//! Columns of a table as the dataset has them: several side by side as feature rows or labels,
//! their numbers scaled and their categories as codes or one-hot, by a recipe; or one column as it
//! is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use gsplit_store::{FeatureEncoding, FeatureRecipe, Progress, Unit};

use super::cells::{Cell, descr, list_of};
use super::choice::Field;
use super::numbers::{NumberCells, StoredType};
use super::rows::{Table, TableCursor, TableRows};
use super::statistics::{as_f64, folded, is_moderate, key};
use crate::edges::{Piece, ValueType};
use crate::read::options::Unseen;
use crate::read::raw::{Column, describe_column};
use crate::read::text::field::shown;
use crate::{Error, Result};

/// Approximate number of bytes handed over at a time.
const BYTES_PER_TAKE: usize = 1 << 18;

/// Expected kind of number, for messages.
const FINITE: &str = "expected a finite 32-bit number";

/// Encoding of a column's cells.
#[derive(Clone, Debug)]
pub enum Encoding {
    /// The number itself, minus the first value and divided by the second.
    Number(f64, f64),
    /// The place of its category.
    Code(HashMap<String, u32>),
    /// 1 at the category's place, otherwise 0, with a number per place. If `other`, the last place
    /// is for all other categories.
    OneHot {
        /// Places of the categories.
        places: HashMap<String, u32>,
        /// Whether the last place is for other categories.
        other: bool,
    },
    /// The numbers of a list of this length.
    List(usize),
    /// The place of its category; -1 for an empty cell.
    Class {
        /// Places of the categories.
        places: HashMap<String, u32>,
        /// Value that means unlabelled.
        unlabelled: Option<String>,
    },
}

impl Encoding {
    /// Maps each of `categories` to its place.
    pub fn places(categories: Vec<String>) -> HashMap<String, u32> {
        categories.into_iter().zip(0..).collect()
    }

    fn width(&self) -> usize {
        match self {
            Self::OneHot { places, other } => places.len() + usize::from(*other),
            Self::List(width) => *width,
            _ => 1,
        }
    }
}

/// Treatment of a value that is missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IfMissing {
    /// It is an error with this remedy.
    Refuse(&'static str),
    /// This number replaces it, in the unit of the column; -1 for a category.
    Take(f32),
}

/// One column, and its conversion.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Its place in the table.
    pub at: usize,
    /// Its name there.
    pub name: String,
    /// Whether it holds numbers.
    pub is_number: bool,
    /// Encoding of its cells.
    pub encoding: Encoding,
    /// Treatment of missing values.
    pub missing: IfMissing,
    /// Whether another number marks the missing values.
    pub indicator: bool,
    /// Whether a category without a place becomes a missing one; else it is an error.
    pub takes_unseen: bool,
    /// Whether categories that differ only in case or blanks are one.
    pub folds: bool,
}

impl Encoded {
    /// The column at `at` with `encoding`; missing values are unlabelled, which is the number
    /// `unlabelled`.
    pub fn label(at: usize, field: &Field, encoding: Encoding, unlabelled: f32) -> Self {
        Self {
            at,
            name: field.name.clone(),
            is_number: field.value.is_some(),
            encoding,
            missing: IfMissing::Take(unlabelled),
            indicator: false,
            takes_unseen: false,
            folds: false,
        }
    }

    /// The column at `at` converted by `recipe`; it does not hold lists. `unseen` is given if the
    /// recipe is another table's, for categories that it does not have.
    pub fn feature(
        at: usize,
        field: &Field,
        recipe: &FeatureRecipe,
        unseen: Option<Unseen>,
    ) -> Self {
        let places = |categories: &[String]| Encoding::places(categories.to_vec());
        let encoding = match &recipe.encoding {
            FeatureEncoding::Number { shift, scale } => Encoding::Number(*shift, *scale),
            FeatureEncoding::Code { categories } => Encoding::Code(places(categories)),
            FeatureEncoding::OneHot { categories, other } => {
                Encoding::OneHot { places: places(categories), other: *other }
            }
            FeatureEncoding::List { width } => Encoding::List(*width as usize),
        };
        let remedy = match unseen {
            Some(_) => "pass --schema fill=NUMBER",
            None if field.list => {
                "pass --schema fill=NUMBER, or leave the column out with --feature-columns"
            }
            None => {
                "pass --schema fill=NUMBER or --schema fill=mean, or leave the column out with \
                 --feature-columns"
            }
        };
        let missing = recipe.fill.map_or(IfMissing::Refuse(remedy), IfMissing::Take);
        let (indicator, takes_unseen) = (recipe.indicator, unseen == Some(Unseen::Other));
        let (name, is_number) = (field.name.clone(), field.value.is_some());
        Self { at, name, is_number, encoding, missing, indicator, takes_unseen, folds: false }
    }

    /// If it `folds`, treats categories that differ only in case or blanks as one.
    pub fn folding(mut self, folds: bool) -> Self {
        self.folds = folds && !self.is_number;
        if let (
            true,
            Encoding::Code(places)
            | Encoding::OneHot { places, .. }
            | Encoding::Class { places, .. },
        ) = (self.folds, &mut self.encoding)
        {
            *places = places.drain().map(|(category, place)| (folded(&category), place)).collect();
        }
        self
    }

    fn width(&self) -> usize {
        self.encoding.width() + usize::from(self.indicator)
    }

    /// Number of codes of a cell.
    fn num_codes(&self) -> usize {
        if let Encoding::List(width) = self.encoding { width } else { 1 }
    }

    /// Writes the codes of a cell: the numbers of a list, or one for any other.
    #[inline]
    fn write(&self, cell: Cell<'_>, codes: &mut [f32]) -> Result<(), String> {
        match (&self.encoding, cell) {
            (Encoding::List(_), Cell::List(..)) => {
                let stored = StoredType::Value(ValueType::F32);
                let numbers = NumberCells { stored, fill: None, rounds: true };
                numbers.write(cell, bytemuck::cast_slice_mut(codes))
            }
            (Encoding::List(_), Cell::Missing) => {
                codes.fill(self.code(cell)?);
                Ok(())
            }
            (Encoding::List(_), _) => Err("expected a list, as in the first row".into()),
            _ => {
                codes[0] = self.code(cell.scalar()?)?;
                Ok(())
            }
        }
    }

    /// The scaled number of a cell, or the place of its category; NaN for a missing value.
    fn code(&self, cell: Cell<'_>) -> Result<f32, String> {
        let missing = || match self.missing {
            IfMissing::Take(_) => Ok(f32::NAN),
            IfMissing::Refuse(remedy) => Err(format!("has no value: {remedy}")),
        };
        let places = match (&self.encoding, cell) {
            (_, Cell::Missing) => return missing(),
            (Encoding::Number(..), cell) if cell.is_missing() => return missing(),
            (Encoding::Number(..) | Encoding::List(_), _) => return self.number(cell),
            (
                Encoding::Code(places)
                | Encoding::OneHot { places, .. }
                | Encoding::Class { places, .. },
                _,
            ) => places,
        };
        let key = key(cell, self.is_number);
        let known = if self.folds { Cow::Owned(folded(&key)) } else { key.clone() };
        let is_unlabelled =
            |unlabelled: &String| *unlabelled == key || (self.folds && folded(unlabelled) == known);
        match (places.get(known.as_ref()), &self.encoding) {
            (Some(&place), _) => Ok(place as f32),
            (None, Encoding::Class { unlabelled: Some(unlabelled), .. })
                if is_unlabelled(unlabelled) =>
            {
                Ok(f32::NAN)
            }
            (None, Encoding::Class { .. }) if !self.takes_unseen => {
                Err(format!("{}: was not there a moment ago: run it again", shown(key.as_bytes())))
            }
            (None, Encoding::OneHot { places, other: true }) => Ok(places.len() as f32),
            (None, _) if self.takes_unseen => Ok(f32::NAN),
            (None, _) => Err(format!(
                "{}: not a category that training saw: pass --schema unseen=other to take it for \
                 none of them",
                shown(key.as_bytes())
            )),
        }
    }

    fn number(&self, cell: Cell<'_>) -> Result<f32, String> {
        let found = |cell| match cell {
            Cell::Text(text) => shown(text.as_bytes()),
            Cell::Number(number) => format!("is {}", number.f64()),
            _ => "nothing".into(),
        };
        let number = as_f64(cell).ok_or_else(|| {
            format!("{}: expected a number or a date, as in other rows", found(cell))
        })?;
        let scaled =
            Some(self.scaled(number)).filter(|scaled| scaled.is_finite() && is_moderate(number));
        scaled.ok_or_else(|| format!("{}: {FINITE}", found(cell)))
    }

    fn scaled(&self, number: f64) -> f32 {
        match self.encoding {
            Encoding::Number(shift, scale) => ((number - shift) / scale) as f32,
            _ => number as f32,
        }
    }

    /// Appends the numbers of a cell with these codes.
    fn append(&self, codes: &[f32], out: &mut Vec<u8>) {
        codes.iter().for_each(|&code| self.append_one(code, out));
    }

    fn append_one(&self, code: f32, out: &mut Vec<u8>) {
        let value = match (code.is_nan(), self.missing) {
            (true, IfMissing::Take(fill)) => self.scaled(f64::from(fill)),
            _ => code,
        };
        match &self.encoding {
            Encoding::OneHot { .. } => {
                let start = out.len();
                out.resize(start + 4 * self.encoding.width(), 0);
                if !code.is_nan() {
                    out[start + 4 * code as usize..][..4].copy_from_slice(&1f32.to_le_bytes());
                }
            }
            Encoding::Code(_) | Encoding::Class { .. } if code.is_nan() => {
                out.extend((-1f32).to_le_bytes())
            }
            _ => out.extend(value.to_le_bytes()),
        }
        if self.indicator {
            out.extend(f32::from(u8::from(code.is_nan())).to_le_bytes());
        }
    }
}

/// Several columns of a table, side by side as one row of `f32` per vertex.
pub struct EncodedColumn {
    table: Table,
    name: &'static str,
    /// In the order of the row.
    columns: Vec<Encoded>,
    /// Their places in the table, ascending, and for each of them its place among `columns`.
    places: Vec<usize>,
    slots: Vec<usize>,
    /// Positions of the codes of each of `places` among the codes of a row.
    codes: Vec<Range<usize>>,
    width: usize,
}

impl EncodedColumn {
    /// `columns` of `table`, in the order of the row.
    pub fn new(table: &Table, name: &'static str, columns: Vec<Encoded>) -> Self {
        let width = columns.iter().map(Encoded::width).sum();
        let mut slots: Vec<usize> = (0..columns.len()).collect();
        slots.sort_by_key(|&slot| columns[slot].at);
        let places = slots.iter().map(|&slot| columns[slot].at).collect();
        let mut end = 0;
        let codes = slots.iter().map(|&slot| {
            let start = end;
            end += columns[slot].num_codes();
            start..end
        });
        let codes = codes.collect();
        Self { table: table.clone(), name, columns, places, slots, codes, width }
    }
}

impl Column for EncodedColumn {
    describe_column!(self: &self.table.path, self.name, "<f4", self.width, self.table.num_rows());

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let width = self.codes.last().map_or(0, |codes| codes.end);
        let codes_of = |rows: &TableRows<'_, '_>| {
            let mut codes = vec![0.0; rows.len * width];
            for (slot, &column) in self.slots.iter().enumerate() {
                let Range { start, end } = self.codes[slot];
                rows.each(slot, |row, cell| {
                    self.columns[column].write(cell, &mut codes[row * width..][start..end])
                })?;
            }
            Ok(codes)
        };
        let mut slot_of = vec![0; self.slots.len()];
        self.slots.iter().enumerate().for_each(|(slot, &column)| slot_of[column] = slot);
        let mut out = Vec::new();
        // Codes are small; rows of one-hot columns are made when they are handed over.
        self.table.for_rows(&self.places, progress, codes_of, &mut |codes: Vec<f32>| {
            for row in codes.chunks_exact(width) {
                for (column, &slot) in self.columns.iter().zip(&slot_of) {
                    column.append(&row[self.codes[slot].clone()], &mut out);
                }
                if out.len() >= BYTES_PER_TAKE {
                    take(&out)?;
                    out.clear();
                }
            }
            Ok(())
        })?;
        if out.is_empty() { Ok(()) } else { take(&out) }
    }

    fn missing_row(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for column in &self.columns {
            let code = column.code(Cell::Missing).map_err(|problem| {
                Error::input(
                    self.path(),
                    format!("--schema missing-rows=fill: column `{}`: {problem}", column.name),
                )
            })?;
            (0..column.num_codes()).for_each(|_| column.append_one(code, &mut out));
        }
        Ok(out)
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        let mut before = 0;
        let found = self.columns.iter().find(|encoded| {
            before += encoded.width();
            column < before
        });
        let name = found.map_or(self.name, |found| &found.name);
        Error::input(self.path(), format!("{}, column `{name}`: {problem}", self.table.place(row)))
    }
}

/// A column of numbers.
pub struct TableColumn {
    table: Table,
    at: usize,
    name: String,
    width: usize,
    numbers: NumberCells,
}

impl TableColumn {
    /// Column `at` of `table` in its own type. A label of one class is a 64-bit integer, -1 where
    /// it is missing; one of several is a list of floats, NaN where they are missing.
    pub fn new(table: &Table, at: usize, name: &str, is_label: bool) -> Self {
        let field = &table.fields[at];
        let (value, width) = field.value.unwrap_or((ValueType::F32, 1));
        let own =
            table.data_type(at).and_then(|own| descr(list_of(own).map_or(own, |(item, _)| item)));
        let is_class = is_label && !field.list && value == ValueType::I64;
        let is_set = is_label && field.list;
        let stored = match own.filter(|_| !is_class) {
            _ if is_set => StoredType::Value(ValueType::F32),
            own => own.map_or(StoredType::Value(value), StoredType::of),
        };
        let numbers = NumberCells { stored, fill: is_class.then_some(-1.0), rounds: is_set };
        Self { table: table.clone(), at, name: name.into(), width, numbers }
    }

    /// Column `at` of `table`, one number per row, as doubles.
    pub fn doubles(table: &Table, at: usize, name: &str) -> Self {
        let numbers =
            NumberCells { stored: StoredType::Value(ValueType::F64), fill: None, rounds: false };
        Self { width: 1, numbers, ..Self::new(table, at, name, false) }
    }
}

impl Column for TableColumn {
    describe_column!(self:
        self.table.first_file(),
        &self.name,
        self.numbers.stored.descr(),
        self.width,
        self.table.num_rows()
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let stage =
            progress.stage(&format!("reading {}", self.name), Some(self.table.bytes), Unit::Bytes);
        let row_bytes = self.width * self.numbers.stored.bytes();
        let (mut cursor, mut piece, mut out) =
            (TableCursor::default(), Piece::default(), Vec::new());
        loop {
            let before = cursor.done;
            if !self.table.next(&mut cursor, &mut piece)? {
                return Ok(());
            }
            self.table.read(&piece, &[self.at], &mut |rows| {
                out.clear();
                out.resize(rows.len * row_bytes, 0);
                rows.each(0, |row, cell| {
                    self.numbers.write(cell, &mut out[row * row_bytes..][..row_bytes])
                })?;
                take(&out)
            })?;
            stage.advance(cursor.done - before);
        }
    }
}
