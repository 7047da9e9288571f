//! Splits of a table of vertices: a column of the words train, valid and test, or a column of flags
//! for each split.

use std::collections::HashMap;

use gsplit_store::Progress;

use super::cells::{Cell, id_of, no_id};
use super::choice::IdKind;
use super::roles::Roles;
use super::rows::{Table, TableRows};
use super::statistics::as_f64;
use crate::Result;
use crate::memory::Memory;
use crate::read::options::OnDuplicate;
use crate::read::text::field::shown;
use crate::read::text::value::is_missing;

/// Words for each split, and words for no split, in lower case.
const SPLIT_WORDS: [&[&str]; 3] =
    [&["train", "training"], &["valid", "val", "validation", "dev"], &["test", "testing"]];
const NO_SPLIT: [&str; 4] = ["", "none", "unlabeled", "unlabelled"];

/// The splits that a word in any case names, as bits; 0 for words that mean no split.
fn split_of(word: &[u8]) -> Result<u8, String> {
    let lower = String::from_utf8_lossy(word).trim().to_lowercase();
    match SPLIT_WORDS.iter().position(|words| words.contains(&lower.as_str())) {
        Some(split) => Ok(1 << split),
        None if NO_SPLIT.contains(&lower.as_str()) || is_missing(word) => Ok(0),
        None => Err(format!("{}: expected train, valid, val, test or nothing", shown(word))),
    }
}

/// Whether `name` is that of a split, or says that there is none.
pub fn is_split(name: &str) -> bool {
    split_of(name.as_bytes()).is_ok()
}

/// Whether `name` is that of a split.
pub fn is_named(name: &str) -> bool {
    split_of(name.as_bytes()).is_ok_and(|split| split > 0)
}

/// The vertices of each split by their ids, under collection within the budget.
pub struct SplitIds<'a> {
    table: &'a Table,
    budget: Memory,
    on_duplicate: Option<OnDuplicate>,
    ids: [Vec<u64>; 3],
    /// Splits of every vertex so far, a bit each, where one may have several rows.
    seen: HashMap<u64, u8>,
}

impl<'a> SplitIds<'a> {
    /// No vertex so far; `budget` is for their ids.
    pub fn new(table: &'a Table, budget: Memory, on_duplicate: Option<OnDuplicate>) -> Self {
        Self { table, budget, on_duplicate, ids: Default::default(), seen: HashMap::new() }
    }

    /// Fails if `more` ids do not fit in memory with the splits, which double as they grow.
    fn check(&self, more: usize) -> Result<()> {
        let full = self.ids.iter().filter(|split| split.capacity() - split.len() < more);
        let bytes: u64 = full.map(|split| 16 * (split.len() + more) as u64).sum();
        let seen =
            if self.on_duplicate.is_some() { 32 * (self.seen.len() + more) as u64 } else { 0 };
        self.budget.check(&self.table.path, "its splits", bytes + seen)
    }

    /// Adds a row of `id`, whose splits are the bits of `splits`.
    fn add(&mut self, id: u64, splits: u8) {
        match self.on_duplicate {
            Some(OnDuplicate::First) => drop(self.seen.entry(id).or_insert(splits)),
            Some(OnDuplicate::Last) => drop(self.seen.insert(id, splits)),
            None => (0..3)
                .filter(|split| splits >> split & 1 == 1)
                .for_each(|split| self.ids[split].push(id)),
        }
    }

    fn finish(mut self) -> [Vec<u64>; 3] {
        for (id, splits) in std::mem::take(&mut self.seen) {
            (0..3)
                .filter(|split| splits >> split & 1 == 1)
                .for_each(|split| self.ids[split].push(id));
        }
        self.ids
    }
}

/// Rows under collection: the id of each, and a bit for each of its splits.
type SplitRows = Vec<(u64, u8)>;

/// The vertices of each split, by the columns that the roles name and the ids in `id`.
pub fn splits(
    mut ids: SplitIds<'_>,
    table: &Table,
    roles: &Roles,
    (id, kind): (usize, IdKind),
    progress: &dyn Progress,
) -> Result<Option<[Vec<u64>; 3]>> {
    let mut columns: Vec<usize> = roles.masks.into_iter().flatten().chain(roles.split).collect();
    if columns.is_empty() {
        return Ok(None);
    }
    columns.push(id);
    columns.sort_unstable();
    columns.dedup();
    let names = || roles.split_names(&table.fields).join("`, `");
    let read = |rows: &TableRows<'_, '_>| {
        let mut found: SplitRows = vec![(0, 0); rows.len];
        for (slot, &at) in columns.iter().enumerate() {
            if at == id {
                rows.each(slot, |row, cell| {
                    found[row].0 = id_of(cell, kind).ok_or_else(|| no_id(cell, kind))?;
                    Ok(())
                })?;
            }
            if let Some(split) = roles.masks.iter().position(|mask| *mask == Some(at)) {
                rows.each_scalar(slot, |row, cell| {
                    let (is_set, splits) = (as_f64(cell) == Some(1.0), &mut found[row].1);
                    if is_set && *splits > 0 {
                        let remedy = "fix it, or pass --split-column none if they are not splits";
                        return Err(format!(
                            "several of `{}` are set, and splits must not overlap: {remedy}",
                            names()
                        ));
                    }
                    *splits |= u8::from(is_set) << split;
                    Ok(())
                })?;
            } else if roles.split == Some(at) {
                rows.each(slot, |row, cell| {
                    found[row].1 = match cell {
                        Cell::Missing => 0,
                        Cell::Written(word) => split_of(word)?,
                        Cell::Text(word) => split_of(word.as_bytes())?,
                        Cell::Number(_) | Cell::List(..) => {
                            return Err("expected train, valid, val, test or nothing".into());
                        }
                    };
                    Ok(())
                })?;
            }
        }
        Ok(found)
    };
    table.for_rows(&columns, progress, read, &mut |rows: SplitRows| {
        ids.check(rows.len())?;
        rows.into_iter().for_each(|(id, splits)| ids.add(id, splits));
        Ok(())
    })?;
    Ok(Some(ids.finish()))
}
