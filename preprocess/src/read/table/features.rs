//! Columns of a table as feature rows and as classes: numbers as they are, strings as codes or one-hot.
//!
//! A first pass over the columns that need it finds their categories and means; in memory are the categories, at most
//! [`MOST_CODES`] a column. Categories are in ascending order, of numbers if all of them are numbers, else of strings, so
//! that codes depend on nothing but the set of values.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use super::choice::Field;
use super::rows::{Cell, Table};
use crate::read::options::Fill;
use crate::read::raw::Column;
use crate::read::text::field::{real, shown};
use crate::read::text::value::{flag, integer};
use crate::{Error, Result};

/// Most categories of a column.
pub const MOST_CODES: usize = 1 << 16;
/// Most categories of a column that becomes one-hot.
pub const MOST_ONE_HOT: usize = 1 << 10;
/// Bytes handed over at a time, about.
const BYTES_PER_TAKE: usize = 1 << 18;

/// Expected kind of number, for messages.
const FINITE: &str = "expected a finite 32-bit number";

/// Statistics of a column's values, by one pass over them.
#[derive(Clone, Debug, Default)]
pub struct ColumnStatistics {
    /// The distinct values; of numbers, in their shortest form.
    pub keys: BTreeSet<String>,
    /// Whether there are more than [`MOST_CODES`].
    pub many: bool,
    /// Values that are not missing.
    pub values: u64,
    /// Sum of those that are finite numbers, and how many these are.
    sum: (f64, u64),
}

impl ColumnStatistics {
    /// The categories in their order.
    pub fn categories(&self) -> Vec<String> {
        let mut all: Vec<String> = self.keys.iter().cloned().collect();
        let numbers: Option<Vec<f64>> = all.iter().map(|key| real(key.as_bytes())).collect();
        if let Some(numbers) = numbers {
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]).then(a.cmp(&b)));
            all = order.into_iter().map(|at| std::mem::take(&mut all[at])).collect();
        }
        all
    }

    fn merge(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.values += other.values;
        self.many |= other.many || self.keys.len() > MOST_CODES;
        self.sum = (self.sum.0 + other.sum.0, self.sum.1 + other.sum.1);
        if self.many {
            self.keys.clear();
        }
    }
}

/// Looks at every value of `columns`, which ascend: at the number where `mean` asks for it, else at the category.
pub fn survey(
    table: &Table,
    fields: &[Field],
    columns: &[(usize, bool)],
    progress: &dyn Progress,
) -> Result<HashMap<usize, ColumnStatistics>> {
    let mut all = vec![ColumnStatistics::default(); columns.len()];
    if columns.is_empty() {
        return Ok(HashMap::new());
    }
    let places: Vec<usize> = columns.iter().map(|&(at, _)| at).collect();
    let look = |seen: &mut Vec<ColumnStatistics>, slot: usize, cell: Cell<'_>| {
        seen.resize(columns.len(), ColumnStatistics::default());
        let (seen, (at, mean)) = (&mut seen[slot], columns[slot]);
        if cell == Cell::Missing || seen.many {
            return Ok(());
        }
        seen.values += 1;
        if mean {
            let number = as_f64(cell).filter(|number| number.is_finite());
            seen.sum = number.map_or(seen.sum, |number| (seen.sum.0 + number, seen.sum.1 + 1));
            return Ok(());
        }
        let key = key(cell, fields[at].value.is_some());
        if !seen.keys.contains(key.as_ref()) {
            seen.keys.insert(key.into_owned());
            seen.many = seen.keys.len() > MOST_CODES;
        }
        Ok(())
    };
    table.for_rows(&places, progress, look, &mut |seen: Vec<ColumnStatistics>| {
        all.iter_mut().zip(seen).for_each(|(all, seen)| all.merge(seen));
        Ok(())
    })?;
    Ok(places.into_iter().zip(all).collect())
}

fn as_f64(cell: Cell<'_>) -> Option<f64> {
    match cell {
        Cell::Missing => None,
        Cell::Number(_, number, _) => Some(number),
        Cell::Text(text) => real(text.as_bytes()).or_else(|| flag(text.as_bytes()).map(f64::from)),
    }
}

/// The category of a cell: the string, or the shortest form of a number.
fn key(cell: Cell<'_>, is_number: bool) -> Cow<'_, str> {
    let of_number = |number: f64| match number as i64 {
        whole if whole as f64 == number => whole.to_string(),
        _ => number.to_string(),
    };
    match cell {
        Cell::Missing => "".into(),
        Cell::Number(_, number, None) => of_number(number).into(),
        Cell::Number(_, _, Some(number)) => number.to_string().into(),
        Cell::Text(text) if !is_number => text.into(),
        Cell::Text(text) => match integer(text.as_bytes()) {
            Some(number) => number.to_string().into(),
            None => as_f64(cell).map_or(text.into(), |number| of_number(number).into()),
        },
    }
}

/// Encoding of a column's cells.
#[derive(Clone, Debug)]
pub enum Encoding {
    /// The number itself.
    Number,
    /// The place of its category.
    Code(HashMap<String, u32>),
    /// 1 at that place among as many numbers as there are categories, else 0.
    OneHot(HashMap<String, u32>),
    /// The place of its category; -1 where nothing is.
    Class(HashMap<String, u32>),
}

impl Encoding {
    /// The place of every one of `categories`.
    pub fn places(categories: Vec<String>) -> HashMap<String, u32> {
        categories.into_iter().zip(0..).collect()
    }

    fn width(&self) -> usize {
        match self {
            Self::OneHot(places) => places.len(),
            _ => 1,
        }
    }
}

/// One column, and what becomes of it.
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
    /// Replacement of a missing value, `None` where a missing value is refused.
    pub fill: Option<f32>,
}

impl Encoded {
    /// The column at `at` by `encoding`; `seen` has its mean, where `fill` asks for it.
    pub fn new(
        at: usize,
        field: &Field,
        encoding: Encoding,
        fill: Option<Fill>,
        seen: Option<&ColumnStatistics>,
    ) -> Self {
        let fill = match (&encoding, fill) {
            (Encoding::Class(_), _) => Some(-1.0),
            (_, None) => None,
            // No place at all: a row of zeros where it is one-hot.
            (Encoding::Code(_) | Encoding::OneHot(_), Some(_)) => Some(-1.0),
            (Encoding::Number, Some(Fill::Value(value))) => Some(value),
            (Encoding::Number, Some(Fill::Mean)) => {
                seen.filter(|seen| seen.sum.1 > 0).map(|seen| (seen.sum.0 / seen.sum.1 as f64) as f32)
            }
        };
        Self { at, name: field.name.clone(), is_number: field.value.is_some(), encoding, fill }
    }

    /// The number of a cell, or the place of its category.
    fn code(&self, cell: Cell<'_>) -> Result<f32, String> {
        let missing = || {
            self.fill.ok_or_else(|| {
                "has no value: pass --fill NUMBER or --fill mean, or leave the column out with --feature-columns".into()
            })
        };
        match (&self.encoding, cell) {
            (_, Cell::Missing) => missing(),
            (Encoding::Number, Cell::Number(number, _, _)) if number.is_nan() => missing(),
            (Encoding::Number, Cell::Number(number, wide, _)) => {
                Some(number).filter(|number| number.is_finite()).ok_or_else(|| format!("is {wide}: {FINITE}"))
            }
            (Encoding::Number, Cell::Text(text)) => {
                let bytes = text.as_bytes();
                let number = real::<f32>(bytes).or_else(|| flag(bytes).map(f32::from));
                let number =
                    number.ok_or_else(|| format!("{}: expected a number, as in the first rows", shown(bytes)))?;
                Some(number).filter(|number| number.is_finite()).ok_or_else(|| format!("{}: {FINITE}", shown(bytes)))
            }
            (Encoding::Code(places) | Encoding::OneHot(places) | Encoding::Class(places), cell) => {
                let key = key(cell, self.is_number);
                match places.get(key.as_ref()) {
                    Some(&place) => Ok(place as f32),
                    // Of numbers -1 is the word for unlabelled.
                    None if matches!(self.encoding, Encoding::Class(_)) && self.is_number && key == "-1" => Ok(-1.0),
                    None => Err(format!("{}: was not there a moment ago: run it again", shown(key.as_bytes()))),
                }
            }
        }
    }
}

/// Several columns of a table beside one another, as one row of `f32` a vertex.
pub struct EncodedColumn {
    table: Table,
    path: PathBuf,
    name: &'static str,
    columns: Vec<Encoded>,
    width: usize,
}

impl EncodedColumn {
    /// `columns` of the table at `path`, in ascending order.
    pub fn new(table: &Table, path: &Path, name: &'static str, columns: Vec<Encoded>) -> Self {
        let width = columns.iter().map(|column| column.encoding.width()).sum();
        Self { table: table.clone(), path: path.to_path_buf(), name, columns, width }
    }

    /// Appends a row of codes as it is stored.
    fn append(&self, codes: &[f32], out: &mut Vec<u8>) {
        for (column, &code) in self.columns.iter().zip(codes) {
            match column.encoding {
                Encoding::OneHot(_) => {
                    let start = out.len();
                    out.resize(start + 4 * column.encoding.width(), 0);
                    if code >= 0.0 {
                        out[start + 4 * code as usize..][..4].copy_from_slice(&1f32.to_le_bytes());
                    }
                }
                _ => out.extend(code.to_le_bytes()),
            }
        }
    }
}

impl Column for EncodedColumn {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &str {
        self.name
    }

    fn descr(&self) -> &'static str {
        "<f4"
    }

    fn width(&self) -> usize {
        self.width
    }

    fn num_rows(&self) -> Option<u64> {
        self.table.num_rows()
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let places: Vec<usize> = self.columns.iter().map(|column| column.at).collect();
        let push = |codes: &mut Vec<f32>, slot: usize, cell: Cell<'_>| {
            codes.push(self.columns[slot].code(cell)?);
            Ok(())
        };
        let mut out = Vec::new();
        // Codes are small; rows of one-hot columns are made when they are handed over.
        self.table.for_rows(&places, progress, push, &mut |codes: Vec<f32>| {
            for row in codes.chunks_exact(self.columns.len()) {
                self.append(row, &mut out);
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
        let code = |column: &Encoded| {
            let missing = column.code(Cell::Missing);
            missing.map_err(|problem| {
                Error::input(&self.path, format!("--missing-rows fill: column `{}`: {problem}", column.name))
            })
        };
        let (codes, mut out) = (self.columns.iter().map(code).collect::<Result<Vec<f32>>>()?, Vec::new());
        self.append(&codes, &mut out);
        Ok(out)
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        let mut before = 0;
        let found = self.columns.iter().find(|encoded| {
            before += encoded.encoding.width();
            column < before
        });
        let name = found.map_or(self.name, |found| &found.name);
        Error::input(&self.path, format!("{}, column `{name}`: {problem}", self.table.place(row)))
    }
}
