//! Statistics of the columns of a table, from one pass over their values: they distinguish numbers
//! from categories, labels and identifiers, and scale numbers. All are counted in that pass, which
//! is why they are in one file, with the table that they describe ([`Surveyed`]).
//!
//! In memory are the categories of columns of strings, at most [`MOST_CODES`] each, and 4 KiB per
//! column of whole numbers; with `--schema on-duplicate` also the rows of vertices that have several.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use gsplit_store::{Progress, Recipe};
use xxhash_rust::xxh3::xxh3_64;

use super::cells::{Cell, Number, id_of};
use super::choice::{Field, IdKind, names};
use super::rows::{Table, TableRows};
use crate::edges::{EdgeSource, for_each_batch};
use crate::memory::Memory;
use crate::read::options::{OnDuplicate, ReadOptions, Schema};
use crate::read::text::field::{double, real};
use crate::read::text::value::{flag, integer};
use crate::{Error, Result};

/// Most categories of a column.
pub const MOST_CODES: usize = 1 << 16;

/// Statistics of a column.
#[derive(Clone, Debug, Default)]
pub struct ColumnStatistics {
    /// The distinct values and how often each is there; of numbers, in their shortest form. Empty
    /// where they were not asked for.
    pub keys: BTreeMap<String, u64>,
    /// Whether there are more than [`MOST_CODES`].
    pub many: bool,
    /// Values that are not missing.
    pub values: u64,
    /// Values that are missing.
    pub missing: u64,
    /// Statistics of the numbers that an f32 can be.
    pub numbers: Moments,
    /// The smallest finite number and, negated, the largest.
    ends: [End; 2],
    /// Whether some number is not whole.
    pub is_fractional: bool,
    /// Whether some number is written with zeros before it, as codes are.
    pub is_padded: bool,
    /// Estimate of the distinct whole numbers.
    sketch: DistinctCount,
}

impl ColumnStatistics {
    /// The categories in their order: of numbers if all of them are numbers, else of strings.
    pub fn categories(&self) -> Vec<String> {
        let mut all: Vec<String> = self.keys.keys().cloned().collect();
        let numbers: Option<Vec<f64>> = all.iter().map(|key| real(key.as_bytes())).collect();
        if let Some(numbers) = numbers {
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]).then(a.cmp(&b)));
            all = order.into_iter().map(|at| std::mem::take(&mut all[at])).collect();
        }
        all
    }

    /// The `most` categories that are there most often, in their order.
    pub fn frequent(&self, most: usize) -> Vec<String> {
        let mut counts: Vec<(&String, u64)> =
            self.keys.iter().map(|(key, &count)| (key, count)).collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        counts.truncate(most);
        let mut kept = self.categories();
        kept.retain(|key| counts.iter().any(|(frequent, _)| *frequent == key));
        kept
    }

    /// Whether all values are zeros and ones, and both occur.
    pub fn is_binary(&self) -> bool {
        self.are_flags() && (self.numbers.least, self.numbers.most) == (0.0, 1.0)
    }

    /// Whether all values are zeros or ones, or their words.
    pub fn are_flags(&self) -> bool {
        let Moments { count, least, most, .. } = self.numbers;
        let are_words =
            || !self.keys.is_empty() && self.keys.keys().all(|key| flag(key.as_bytes()).is_some());
        match count == self.values {
            true => !self.is_fractional && (count == 0 || (least >= 0.0 && most <= 1.0)),
            false => are_words(),
        }
    }

    /// Spellings of one string that differ only in case or blanks, where there are several.
    pub fn alike(&self) -> Option<Vec<&str>> {
        let mut spellings: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for key in self.keys.keys() {
            spellings.entry(folded(key)).or_default().push(key);
        }
        spellings.into_values().find(|spellings| spellings.len() > 1)
    }

    /// Merges strings that differ only in case or blanks: spelled as one of `known`, or else as in
    /// most rows.
    pub fn fold(&mut self, known: &[String]) {
        let mut spellings: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        for (key, count) in std::mem::take(&mut self.keys) {
            spellings.entry(folded(&key)).or_default().push((key, count));
        }
        for (plain, keys) in spellings {
            let known = known.iter().find(|known| folded(known) == plain).cloned();
            let total = keys.iter().map(|(_, count)| count).sum();
            let most = keys.iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
            let most = most.map(|(key, _)| key.split_whitespace().collect::<Vec<_>>().join(" "));
            self.keys.extend(known.or(most).map(|key| (key, total)));
        }
    }

    /// A number that looks like a missing value, and its frequency: the smallest or the largest, in
    /// every hundredth row or more, and further from the next number than that is from the other
    /// end; or the only negative one.
    pub fn sentinel(&self) -> Option<(f64, u64)> {
        const LEAST_ROWS: u64 = 3;
        let [low, high] = &self.ends;
        let is_frequent =
            |end: &End| end.rows >= LEAST_ROWS && 100 * end.rows >= self.numbers.count;
        let has = |distinct: f64| self.is_fractional || self.distinct() > distinct + 0.5;
        let is_far = |end: &&End, other: &End| {
            is_frequent(end)
                && end.next - end.number > -other.number - end.next
                && -other.number > end.next
                && has(3.0)
        };
        let is_only_negative = low.number < 0.0
            && low.number.fract() == 0.0
            && low.next >= 0.0
            && low.next.is_finite();
        let found = Some(low)
            .filter(|low| is_far(low, high) || (is_only_negative && is_frequent(low) && has(10.0)));
        let found = found.map(|low| (low.number, low.rows));
        found.or(Some(high).filter(|high| is_far(high, low)).map(|high| (-high.number, high.rows)))
    }

    /// The numbers between which all others than `sentinel` are.
    pub fn others(&self, sentinel: f64) -> (f64, f64) {
        let [low, high] = self.ends;
        match low.number == sentinel {
            true => (low.next, -high.number),
            false => (low.number, -high.next),
        }
    }

    /// Number of distinct whole numbers, within 5 % or so.
    pub fn distinct(&self) -> f64 {
        self.sketch.estimate()
    }

    fn look(&mut self, cell: Cell<'_>, is_number: bool, with_keys: bool) {
        if cell.is_missing() {
            self.missing += 1;
            return;
        }
        self.values += 1;
        let number =
            if is_number { as_f64(cell).filter(|&number| is_moderate(number)) } else { None };
        if let Some(number) = number {
            self.numbers.add(number);
            self.ends
                .iter_mut()
                .zip([number, -number])
                .for_each(|(end, number)| end.add(number, 1, f64::INFINITY));
            match number.fract() == 0.0 {
                true => self.sketch.add(number),
                false => self.is_fractional = true,
            }
            self.is_padded |= matches!(cell, Cell::Text(text) if text.len() > 1 && text.starts_with('0') && !text.contains('.'));
        }
        if with_keys && !self.many {
            let key = key(cell, is_number);
            match self.keys.get_mut(key.as_ref()) {
                Some(count) => *count += 1,
                None => {
                    self.keys.insert(key.into_owned(), 1);
                    self.many = self.keys.len() > MOST_CODES;
                }
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.ends
            .iter_mut()
            .zip(other.ends)
            .for_each(|(end, other)| end.add(other.number, other.rows, other.next));
        for (key, count) in other.keys {
            *self.keys.entry(key).or_default() += count;
        }
        self.values += other.values;
        self.missing += other.missing;
        self.many |= other.many || self.keys.len() > MOST_CODES;
        self.numbers.merge(&other.numbers);
        self.is_fractional |= other.is_fractional;
        self.is_padded |= other.is_padded;
        self.sketch.merge(&other.sketch);
        if self.many {
            self.keys.clear();
        }
    }
}

/// Moments of numbers, added with the formulas of Chan, Golub and LeVeque (1983), the third with
/// Pébay's (2008).
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    /// How many there are.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Sums of the squares and of the cubes of their distances from the mean.
    squares: f64,
    cubes: f64,
    /// Least of them.
    pub least: f64,
    /// Largest.
    pub most: f64,
}

impl Moments {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        self.merge(&Self {
            count: 1,
            mean: number,
            squares: 0.0,
            cubes: 0.0,
            least: number,
            most: number,
        });
    }

    /// Adds the numbers of `other`.
    pub fn merge(&mut self, other: &Self) {
        match (self.count, other.count) {
            (_, 0) => {}
            (0, _) => *self = *other,
            (here, there) => {
                let (all, off) = ((here + there) as f64, other.mean - self.mean);
                let (a, b) = (here as f64, there as f64);
                self.cubes += other.cubes
                    + off.powi(3) * a * b * (a - b) / (all * all)
                    + 3.0 * off * (a * other.squares - b * self.squares) / all;
                self.squares += other.squares + off * off * a * b / all;
                self.mean += off * there as f64 / all;
                self.count += there;
                (self.least, self.most) = (self.least.min(other.least), self.most.max(other.most));
            }
        }
    }

    /// Standard deviation of all of them; 1 where they do not differ.
    pub fn deviation(&self) -> f64 {
        or_one((self.squares / self.count.max(1) as f64).sqrt())
    }

    /// Skewness of all of them: positive where a few are far above the others.
    pub fn skewness(&self) -> f64 {
        let variance = self.squares / self.count.max(1) as f64;
        if variance > 0.0 { self.cubes / self.count as f64 / variance.powf(1.5) } else { 0.0 }
    }

    /// The largest minus the smallest; 1 if they do not differ.
    pub fn range(&self) -> f64 {
        or_one(self.most - self.least)
    }
}

/// The least of some numbers.
#[derive(Clone, Copy, Debug)]
struct End {
    number: f64,
    /// Rows that have it.
    rows: u64,
    /// The least of the others.
    next: f64,
}

impl Default for End {
    fn default() -> Self {
        Self { number: f64::INFINITY, rows: 0, next: f64::INFINITY }
    }
}

impl End {
    /// Adds `rows` that have `number`, and others of which `next` is the least.
    fn add(&mut self, number: f64, rows: u64, next: f64) {
        // No difference between 0 and -0.
        let number = number + 0.0;
        match number.total_cmp(&self.number) {
            Ordering::Less => *self = Self { number, rows, next: next.min(self.number) },
            Ordering::Equal => (self.rows, self.next) = (self.rows + rows, self.next.min(next)),
            Ordering::Greater => self.next = self.next.min(number),
        }
    }
}

/// `text` in lower case, with one blank for several and none around it.
pub fn folded(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn or_one(scale: f64) -> f64 {
    if scale > 0.0 && scale.is_finite() { scale } else { 1.0 }
}

/// Estimate of the number of distinct values (HyperLogLog: Flajolet et al., 2007), in 4096
/// registers.
#[derive(Clone, Debug, Default)]
struct DistinctCount(Vec<u8>);

impl DistinctCount {
    const BITS: u32 = 12;

    fn add(&mut self, number: f64) {
        self.0.resize(1 << Self::BITS, 0);
        let hash = xxh3_64(&number.to_bits().to_le_bytes());
        let register = &mut self.0[(hash >> (64 - Self::BITS)) as usize];
        *register =
            (*register).max((hash << Self::BITS).leading_zeros().min(64 - Self::BITS) as u8 + 1);
    }

    fn merge(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(here, &there)| *here = (*here).max(there));
    }

    fn estimate(&self) -> f64 {
        let registers = self.0.len() as f64;
        if self.0.is_empty() {
            return 0.0;
        }
        let sum: f64 = self.0.iter().map(|&zeros| 0.5f64.powi(i32::from(zeros))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let empty = self.0.iter().filter(|&&zeros| zeros == 0).count() as f64;
        if raw <= 2.5 * registers && empty > 0.0 {
            registers * (registers / empty).ln()
        } else {
            raw
        }
    }
}

/// A table of vertices with the options of the user and the statistics of its values.
pub struct Surveyed<'a> {
    /// The table.
    pub table: &'a Table,
    /// Its columns.
    pub fields: &'a [Field],
    /// Options of the user.
    pub options: &'a ReadOptions,
    /// Keys that the user gave.
    pub schema: &'a Schema,
    /// The recipe of an earlier table that this one is to be read by.
    pub trained: Option<&'a Recipe>,
    /// Whether strings that differ only in case or blanks are one.
    pub folds: bool,
    /// Statistics of the columns that were surveyed, by their places.
    pub seen: HashMap<usize, ColumnStatistics>,
    /// Columns that name rows, of a table whose rows are the vertices in their order.
    pub keys: Option<&'a [usize]>,
    /// Takes the progress of passes over the table.
    pub progress: &'a dyn Progress,
}

impl<'a> Surveyed<'a> {
    /// The `table`, without statistics.
    pub fn of(
        table: &'a Table,
        options: &'a ReadOptions,
        trained: Option<&'a Recipe>,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            table,
            fields: &table.fields,
            options,
            schema: &options.schema,
            trained,
            folds: options.folds_case(trained),
            seen: HashMap::new(),
            keys: None,
            progress,
        }
    }

    /// The error for a missing column, with the names of the others.
    pub fn lacks(&self, problem: &str) -> Error {
        Error::Graph(format!("{problem}. There are {}", names(self.fields)))
    }
}

/// Surveys every value of `columns`, which ascend, and the categories of columns of strings and of
/// columns whose flag is set. Only one row counts among rows that are `repeated`.
pub fn survey(
    table: &Table,
    columns: &[(usize, bool)],
    repeated: Option<&RepeatedRows>,
    progress: &dyn Progress,
) -> Result<HashMap<usize, ColumnStatistics>> {
    if columns.is_empty() {
        return Ok(HashMap::new());
    }
    let all = vec![ColumnStatistics::default(); columns.len()];
    let look = |seen: &mut ColumnStatistics, slot: usize, cell: Cell<'_>| {
        let (at, with_keys) = columns[slot];
        let is_number = table.fields[at].value.is_some();
        seen.look(cell, is_number, with_keys || !is_number);
    };
    let places: Vec<usize> = columns.iter().map(|&(at, _)| at).collect();
    let mut read: Vec<usize> =
        places.iter().copied().chain(repeated.map(|repeated| repeated.id)).collect();
    read.sort_unstable();
    read.dedup();
    let slot_of = |at: usize| read.partition_point(|&other| other < at);
    let survey = |rows: &TableRows<'_, '_>| {
        let mut found = SurveyedRows { seen: all.clone(), repeated: Vec::new() };
        // The place of each row among the repeated ones.
        let mut kept = vec![None; if repeated.is_some() { rows.len } else { 0 }];
        if let Some(repeated) = repeated {
            rows.each_scalar(slot_of(repeated.id), |row, cell| {
                let id = id_of(cell, repeated.kind).filter(|id| repeated.ids.contains(id));
                kept[row] = id.map(|_| found.repeated.len());
                found.repeated.extend(id.map(|id| (id, Vec::new())));
                Ok(())
            })?;
        }
        for (slot, &at) in places.iter().enumerate() {
            rows.each_scalar(slot_of(at), |row, cell| {
                match kept.get(row).copied().flatten() {
                    Some(kept) => found.repeated[kept].1.push(KeptCell::of(cell)),
                    None => look(&mut found.seen[slot], slot, cell),
                }
                Ok(())
            })?;
        }
        Ok(found)
    };
    // In the order of the ids: sums of floats depend on it.
    let mut kept: BTreeMap<u64, Vec<KeptCell>> = BTreeMap::new();
    let mut seen = all.clone();
    table.for_rows(&read, progress, survey, &mut |rows: SurveyedRows| {
        seen.iter_mut().zip(rows.seen).for_each(|(all, seen)| all.merge(seen));
        for (id, row) in rows.repeated {
            match repeated.map(|repeated| repeated.keep) {
                Some(OnDuplicate::Last) => drop(kept.insert(id, row)),
                _ => drop(kept.entry(id).or_insert(row)),
            }
        }
        Ok(())
    })?;
    for row in kept.values() {
        for (slot, cell) in row.iter().enumerate() {
            look(&mut seen[slot], slot, cell.cell());
        }
    }
    Ok(places.into_iter().zip(seen).collect())
}

/// Vertices with several rows, of which one counts.
pub struct RepeatedRows {
    /// Place of the column of ids.
    id: usize,
    kind: IdKind,
    ids: HashSet<u64>,
    keep: OnDuplicate,
}

impl RepeatedRows {
    /// The vertices that `source` lists several times, by the column of ids at `id`. In memory are
    /// all ids meanwhile, 16 bytes each.
    pub fn of(
        table: &Table,
        source: &dyn EdgeSource,
        id: usize,
        keep: OnDuplicate,
        memory: Memory,
    ) -> Result<Self> {
        let (mut seen, mut ids) = (HashSet::new(), HashSet::new());
        for_each_batch(source, |batch| {
            memory.check(&table.path, "its ids", 16 * (seen.len() + batch.sources.len()) as u64)?;
            ids.extend(batch.sources.iter().filter(|&&id| !seen.insert(id)));
            Ok(())
        })?;
        let kind = if source.has_string_ids() { IdKind::Text } else { IdKind::Number };
        Ok(Self { id, kind, ids, keep })
    }
}

/// Rows that were surveyed, and those of vertices that have several.
struct SurveyedRows {
    seen: Vec<ColumnStatistics>,
    repeated: Vec<(u64, Vec<KeptCell>)>,
}

/// A cell that outlives its piece.
enum KeptCell {
    Missing,
    Number(Number),
    Text(String),
}

impl KeptCell {
    fn of(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Number(number) => Self::Number(number),
            Cell::Text(text) => Self::Text(text.to_string()),
            _ => Self::Missing,
        }
    }

    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Missing => Cell::Missing,
            Self::Number(number) => Cell::Number(*number),
            Self::Text(text) => Cell::Text(text),
        }
    }
}

/// The number in a cell, flags among them.
pub fn as_f64(cell: Cell<'_>) -> Option<f64> {
    match cell {
        Cell::Number(number) => Some(number.f64()),
        Cell::Text(text) => {
            double(text.as_bytes()).or_else(|| flag(text.as_bytes()).map(f64::from))
        }
        _ => None,
    }
}

/// Whether a number is at most the largest f32. A larger one is refused as a feature; in the mean
/// it would leave nothing of the others.
pub fn is_moderate(number: f64) -> bool {
    number.abs() <= f32::MAX.into()
}

/// The category of a cell: the string, or the shortest form of a number.
pub fn key(cell: Cell<'_>, is_number: bool) -> Cow<'_, str> {
    let of_number = |number: f64| match number as i64 {
        whole if whole as f64 == number => whole.to_string(),
        _ => number.to_string(),
    };
    match cell {
        Cell::Number(number) if number.whole().is_some() => number.to_string().into(),
        Cell::Number(number) => of_number(number.f64()).into(),
        Cell::Text(text) if !is_number => text.into(),
        Cell::Text(text) => match integer(text.as_bytes()) {
            Some(number) => number.to_string().into(),
            None => as_f64(cell).map_or(text.into(), |number| of_number(number).into()),
        },
        _ => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_in_any_order() {
        let numbers: Vec<f64> =
            (0..10_000).map(|number| f64::from(number % 5000) * 0.5 - 100.0).collect();
        let mut seen = [ColumnStatistics::default(), ColumnStatistics::default()];
        for (at, &number) in numbers.iter().enumerate() {
            seen[at % 2].look(Cell::Number(number.into()), true, false);
        }
        let [mut all, other] = seen;
        all.merge(other);
        let mean = numbers.iter().sum::<f64>() / 1e4;
        let deviation =
            (numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
        assert!(
            (all.numbers.mean - mean).abs() < 1e-9
                && (all.numbers.deviation() - deviation).abs() < 1e-9
        );
        assert_eq!(
            (all.numbers.least, all.numbers.range(), all.is_fractional),
            (-100.0, 2499.5, true)
        );
        // Every second is whole.
        assert!((all.distinct() / 2500.0 - 1.0).abs() < 0.06, "{}", all.distinct());
        assert_eq!(Moments::default().deviation(), 1.0);
        assert!(all.numbers.skewness().abs() < 1e-6);
        let mut skewed = Moments::default();
        [0.0, 0.0, 0.0, 0.0, 10.0].into_iter().for_each(|number| skewed.add(number));
        assert!((skewed.skewness() - 1.5).abs() < 1e-9, "{}", skewed.skewness());
    }

    fn seen(cells: &[&str], is_number: bool) -> ColumnStatistics {
        let mut seen = [ColumnStatistics::default(), ColumnStatistics::default()];
        for (at, cell) in cells.iter().enumerate() {
            seen[at % 2].look(Cell::Text(cell), is_number, true);
        }
        let [mut all, other] = seen;
        all.merge(other);
        all
    }

    #[test]
    fn numbers_that_stand_for_missing_values_are_told_by_their_place_and_frequency() {
        let sentinel = |odd: &str, times: usize, others: std::ops::Range<i32>| {
            let others = others.map(|number| number.to_string());
            let cells: Vec<String> =
                std::iter::repeat_n(odd.to_string(), times).chain(others).collect();
            seen(&cells.iter().map(String::as_str).collect::<Vec<_>>(), true).sentinel()
        };
        assert_eq!(sentinel("-9999", 50, 0..200), Some((-9999.0, 50)));
        assert_eq!(sentinel("999", 5, 18..90), Some((999.0, 5)));
        assert_eq!(sentinel("1e20", 5, 18..90), Some((1e20, 5)));
        assert_eq!(sentinel("-1", 20, 0..200), Some((-1.0, 20)), "the only negative number");
        for (odd, times, others) in [
            ("-9999", 1, 0..200),
            ("0", 80, 1..90),
            ("-1", 5, -30..90),
            ("9", 5, 1..6),
            ("100", 50, 0..1),
            ("-1", 50, 0..2),
        ] {
            assert_eq!(
                sentinel(odd, times, others.clone()),
                None,
                "{odd} {times} times beside {others:?}"
            );
        }
        assert_eq!(seen(&["5", "5", "5"], true).sentinel(), None);
    }

    #[test]
    fn spellings_of_one_string_are_found() {
        let mut yes = seen(&["Yes", "no", "YES", "Yes", "No ", "n  o"], false);
        assert_eq!(yes.alike(), Some(vec!["No ", "no"]));
        yes.fold(&[]);
        assert_eq!(yes.categories(), ["No", "Yes", "n o"]);
        yes.fold(&["YES".to_string()]);
        assert_eq!(yes.keys.get("YES"), Some(&3));
        assert_eq!(seen(&["a", "b"], false).alike(), None);
    }
}
