//! Detects columns that give the label away: each of their values has one class, or their numbers
//! separate the classes, or they are filled for one class only. For labels that are numbers:
//! columns in a straight line with the label.
//!
//! Such a column is often a code of the label, or known only after it. At most one value per five
//! rows may occur, each with one class, so that chance produces no such column. The rows are read
//! until no column is left: most columns are refuted by the first few.

use std::collections::HashMap;

use gsplit_store::Progress;
use xxhash_rust::xxh3::xxh3_64;

use super::cells::Cell;
use super::rows::{Table, TableRows};
use super::statistics::{as_f64, folded, key};
use crate::{Error, Result};

/// Minimum number of labelled rows for values to count.
const MANY_ROWS: u64 = 30;
/// Minimum number of rows of the second class.
const FEW_ROWS: u64 = 3;
/// Minimum number of rows per value, if each value has one class.
const ROWS_PER_VALUE: u64 = 5;
/// Maximum number of classes.
const MOST_CLASSES: usize = 256;
/// Maximum number of values of a column, if each has one class.
const MOST_VALUES: usize = 1 << 12;
/// Correlation with a numeric label from which on a column gives it away.
const CORRELATION: f64 = 0.9999;

/// A cell in the form that is compared.
#[derive(Clone, Copy)]
enum Compared {
    Missing,
    Number(f64),
    /// Hash of a string.
    Text(u64),
}

/// The label of a table.
pub struct Label<'a> {
    /// Place of its column.
    pub at: usize,
    /// Whether it is a class, or else a number.
    pub is_class: bool,
    /// Value that means unlabelled.
    pub unlabelled: Option<&'a str>,
}

/// The columns among `columns` that give away `label`, and how.
pub fn find(
    table: &Table,
    label: Label<'_>,
    columns: &[usize],
    progress: &dyn Progress,
) -> Result<Vec<(usize, String)>> {
    let mut places: Vec<usize> = columns.iter().copied().chain([label.at]).collect();
    places.sort_unstable();
    let width = places.len();
    let of_label = places.partition_point(|&at| at < label.at);
    let compared = |slot: usize, cell: Cell<'_>| {
        let holds_numbers = table.fields[places[slot]].value.is_some();
        let key = || folded(&key(cell, holds_numbers));
        let is_unlabelled =
            slot == of_label && label.unlabelled.is_some_and(|none| folded(none) == key());
        match cell {
            cell if cell.is_missing() || is_unlabelled => Compared::Missing,
            _ => match as_f64(cell)
                .filter(|_| holds_numbers && (slot != of_label || !label.is_class))
            {
                Some(number) => Compared::Number(number),
                None => Compared::Text(xxh3_64(key().as_bytes())),
            },
        }
    };
    let look = |rows: &TableRows<'_, '_>| {
        let mut found = vec![Compared::Missing; rows.len * width];
        for slot in 0..width {
            rows.each_scalar(slot, |row, cell| {
                found[row * width + slot] = compared(slot, cell);
                Ok(())
            })?;
        }
        Ok(found)
    };
    let mut found = vec![Evidence::default(); width];
    let mut take = |rows: Vec<Compared>| {
        for row in rows.chunks_exact(width) {
            let others = (0..width).filter(|&slot| slot != of_label);
            others.for_each(|slot| found[slot].add(row[slot], row[of_label]));
        }
        let is_open =
            |(slot, found): (usize, &Evidence)| slot != of_label && found.how(false).is_some();
        // Stop reading: the rest does not matter.
        if found.iter().enumerate().any(is_open) {
            Ok(())
        } else {
            Err(Error::Graph("no column gives the label away".into()))
        }
    };
    match table.for_rows(&places, progress, look, &mut take) {
        Err(Error::Graph(_)) => return Ok(Vec::new()),
        read => read?,
    }
    let found = places.into_iter().zip(&found).filter(|&(at, _)| at != label.at);
    Ok(found.filter_map(|(at, found)| Some((at, found.how(true)?))).collect())
}

/// Rows of a class, by the values of a column.
#[derive(Clone, Copy)]
struct ClassRows {
    missing: u64,
    /// Rows with a number or a string.
    values: u64,
    least: f64,
    most: f64,
}

/// Facts about the values of a column and the label.
#[derive(Clone, Default)]
struct Evidence {
    /// Class of each value; none where a value has several, or there are too many.
    classes: HashMap<u64, u64>,
    is_mixed: bool,
    is_text: bool,
    rows: HashMap<u64, ClassRows>,
    line: Correlation,
}

impl Evidence {
    fn add(&mut self, value: Compared, label: Compared) {
        let class = match (value, label) {
            (_, Compared::Missing) => return,
            (Compared::Number(x), Compared::Number(y)) => return self.line.add(x, y),
            (_, Compared::Number(_)) => return,
            (_, Compared::Text(class)) => class,
        };
        let none =
            ClassRows { missing: 0, values: 0, least: f64::INFINITY, most: f64::NEG_INFINITY };
        let rows = self.rows.entry(class).or_insert(none);
        let value = match value {
            Compared::Missing => return rows.missing += 1,
            Compared::Number(number) => {
                (rows.least, rows.most) = (rows.least.min(number), rows.most.max(number));
                number.to_bits()
            }
            Compared::Text(hash) => {
                self.is_text = true;
                hash
            }
        };
        rows.values += 1;
        if !self.is_mixed {
            let known = *self.classes.entry(value).or_insert(class);
            self.is_mixed = known != class || self.classes.len() > MOST_VALUES;
        }
    }

    /// How the column gives the label away; before the `end` also if it still may.
    fn how(&self, end: bool) -> Option<String> {
        let rows: Vec<ClassRows> = self.rows.values().copied().collect();
        let values: u64 = rows.iter().map(|rows| rows.values).sum();
        let all: u64 = rows.iter().map(|rows| rows.values + rows.missing).sum();
        if self.line.rows > 0.0 {
            let is_many = !end || self.line.rows >= MANY_ROWS as f64;
            return (is_many && self.line.correlation() > CORRELATION)
                .then(|| "it is in a straight line with it".into());
        }
        let second = |count: fn(&ClassRows) -> u64| {
            let mut counts: Vec<u64> = rows.iter().map(count).collect();
            counts.sort_unstable();
            counts.iter().rev().nth(1).copied().unwrap_or(0)
        };
        let is_enough = !end || (values >= MANY_ROWS && second(|rows| rows.values) >= FEW_ROWS);
        if rows.len() > MOST_CLASSES {
            return None;
        }
        if is_enough
            && !self.is_mixed
            && (!end || ROWS_PER_VALUE * self.classes.len() as u64 <= values)
        {
            return Some("each of its values has one class".into());
        }
        if is_enough && !self.is_text && are_apart(&rows) {
            return Some("its numbers separate the classes".into());
        }
        let is_one = |rows: &ClassRows| rows.missing == 0 || rows.values == 0;
        let counts = [values, all - values];
        let is_filled = rows.len() <= 2 && rows.iter().all(is_one) && (!end || all >= MANY_ROWS);
        (is_filled && (!end || counts.iter().all(|&count| count >= FEW_ROWS)))
            .then(|| "it has a value where the label is of one class only".into())
    }
}

/// Whether the ranges of numbers of all classes are disjoint.
fn are_apart(rows: &[ClassRows]) -> bool {
    let mut ranges: Vec<(f64, f64)> =
        rows.iter().filter(|rows| rows.values > 0).map(|rows| (rows.least, rows.most)).collect();
    ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
    ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// Moments of pairs of numbers, as Welford adds them up.
#[derive(Clone, Copy, Default)]
struct Correlation {
    rows: f64,
    means: [f64; 2],
    squares: [f64; 2],
    products: f64,
}

impl Correlation {
    fn add(&mut self, x: f64, y: f64) {
        self.rows += 1.0;
        let off = [x - self.means[0], y - self.means[1]];
        self.means = [self.means[0] + off[0] / self.rows, self.means[1] + off[1] / self.rows];
        self.squares[0] += off[0] * (x - self.means[0]);
        self.squares[1] += off[1] * (y - self.means[1]);
        self.products += off[0] * (y - self.means[1]);
    }

    /// Absolute correlation; 1 of fewer than three rows.
    fn correlation(&self) -> f64 {
        let scale = (self.squares[0] * self.squares[1]).sqrt();
        if self.rows < 3.0 {
            1.0
        } else if scale > 0.0 {
            (self.products / scale).abs()
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(rows: impl Iterator<Item = (Compared, Compared)>) -> Option<String> {
        let mut found = Evidence::default();
        rows.for_each(|(value, label)| found.add(value, label));
        found.how(true)
    }

    #[test]
    fn columns_that_give_the_label_away_are_told_from_others() {
        use Compared::{Missing, Number, Text};
        let class = |row: u64| Text(row % 3 % 2);
        let rows = |count: u64, value: fn(u64) -> Compared| {
            move || how((0..count).map(|row| (value(row), class(row))))
        };
        for (found, expected) in [
            (rows(400, |row| Text(100 + row % 3 % 2))(), Some("each of its values has one class")),
            (rows(400, |row| Number((row % 6) as f64))(), Some("each of its values has one class")),
            (
                rows(400, |row| Number((row % 3 % 2) as f64 * 500.0 + row as f64))(),
                Some("separate the classes"),
            ),
            (
                rows(400, |row| if row % 3 % 2 == 1 { Number(row as f64) } else { Missing })(),
                Some("one class only"),
            ),
            (
                rows(400, |row| if row % 7 == 0 { Missing } else { Text(row % 3) })(),
                Some("each of its values"),
            ),
            (rows(20, |row| Text(row % 3 % 2))(), None),
            (rows(400, Text)(), None),
            (rows(400, |row| Text(row % 5))(), None),
            (rows(400, |row| Number(row as f64))(), None),
            (rows(400, |row| if row % 5 == 0 { Number(1.0) } else { Missing })(), None),
            (rows(400, |_| Text(1))(), None),
            (
                how((0..400).map(|row| (Number(3.0 * row as f64), Number(7.0 - row as f64)))),
                Some("in a straight line"),
            ),
            (how((0..400u32).map(|row| (Number(row.into()), Number(row.pow(2).into())))), None),
            (how((0..400u32).map(|row| (Text(row.into()), Number(row.into())))), None),
        ] {
            let is_right = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_right, "{found:?}, expected {expected:?}");
        }
    }
}
