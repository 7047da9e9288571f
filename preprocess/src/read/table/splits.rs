//! Splits of a table of vertices: a column of the words train, valid and test, or a column of flags for each split.

use std::collections::HashMap;
use std::path::Path;

use super::choice::Field;
use super::roles::Roles;
use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::memory::Memory;
use crate::read::options::OnDuplicate;
use crate::read::text::field::shown;
use crate::read::text::value::is_missing;
use crate::{Error, Result};

/// Words for each split, and words for no split, in lower case.
const SPLIT_WORDS: [&[&str]; 3] =
    [&["train", "training"], &["valid", "val", "validation", "dev"], &["test", "testing"]];
const NO_SPLIT: [&str; 4] = ["", "none", "unlabeled", "unlabelled"];

/// Calls `take` with every piece of `source`, together with the piece of `beside` that has the same rows.
fn each_piece(
    source: &dyn EdgeSource,
    beside: Option<&dyn EdgeSource>,
    take: &mut dyn FnMut(&EdgeBatch, &EdgeBatch) -> Result<()>,
) -> Result<()> {
    let (mut piece, mut batch, mut other) = (Piece::default(), EdgeBatch::default(), EdgeBatch::default());
    while source.next(&mut piece)? {
        batch.clear();
        source.parse(&mut piece, &mut batch)?;
        other.clear();
        if let Some(beside) = beside {
            beside.next(&mut piece)?;
            beside.parse(&mut piece, &mut other)?;
        }
        take(&batch, &other)?;
    }
    Ok(())
}

/// The splits that a word in any case names, as bits; 0 for words that mean no split. `None` for other words.
fn split_of(word: &str) -> Option<u8> {
    let lower = word.trim().to_lowercase();
    let split = SPLIT_WORDS.iter().position(|words| words.contains(&lower.as_str()));
    let is_none = || NO_SPLIT.contains(&lower.as_str()) || is_missing(word.as_bytes());
    split.map(|split| 1 << split).or_else(|| is_none().then_some(0))
}

/// Whether `name` is that of a split, or says that there is none.
pub fn is_split(name: &str) -> bool {
    split_of(name).is_some()
}

/// The vertices of each split by their ids, under collection within the budget.
pub struct SplitIds<'a> {
    path: &'a Path,
    budget: Memory,
    on_duplicate: Option<OnDuplicate>,
    ids: [Vec<u64>; 3],
    /// Splits of every vertex so far, a bit each, where one may have several rows.
    seen: HashMap<u64, u8>,
}

impl<'a> SplitIds<'a> {
    /// No vertex so far; `budget` is for their ids.
    pub fn new(path: &'a Path, budget: Memory, on_duplicate: Option<OnDuplicate>) -> Self {
        Self { path, budget, on_duplicate, ids: Default::default(), seen: HashMap::new() }
    }

    /// Fails if `more` ids do not fit in memory with the splits, which double as they grow.
    fn check(&self, more: usize) -> Result<()> {
        let full = self.ids.iter().filter(|split| split.capacity() - split.len() < more);
        let bytes: u64 = full.map(|split| 16 * (split.len() + more) as u64).sum();
        let seen = if self.on_duplicate.is_some() { 32 * (self.seen.len() + more) as u64 } else { 0 };
        self.budget.check(self.path, "its splits", bytes + seen)
    }

    /// Adds a row of `id`, whose splits are the bits of `splits`.
    fn add(&mut self, id: u64, splits: u8) {
        match self.on_duplicate {
            Some(OnDuplicate::First) => drop(self.seen.entry(id).or_insert(splits)),
            Some(OnDuplicate::Last) => drop(self.seen.insert(id, splits)),
            None => (0..3).filter(|split| splits >> split & 1 == 1).for_each(|split| self.ids[split].push(id)),
        }
    }

    fn finish(mut self) -> [Vec<u64>; 3] {
        for (id, splits) in std::mem::take(&mut self.seen) {
            (0..3).filter(|split| splits >> split & 1 == 1).for_each(|split| self.ids[split].push(id));
        }
        self.ids
    }
}

/// Splits from the columns of flags among the roles, for the ids of `source`.
pub fn splits_by_flag(
    mut ids: SplitIds<'_>,
    fields: &[Field],
    roles: &Roles,
    source: &dyn EdgeSource,
) -> Result<[Vec<u64>; 3]> {
    let splits: Vec<usize> = (0..3).filter(|&split| roles.masks[split].is_some()).collect();
    let mut row = 0;
    each_piece(source, None, &mut |batch, _| {
        ids.check(batch.len())?;
        for (&id, flags) in batch.sources.iter().zip(batch.values.chunks_exact(8 * splits.len())) {
            let flags = flags.as_chunks().0.iter().map(|&flag| f64::from_le_bytes(flag) == 1.0);
            let set =
                splits.iter().zip(flags).filter(|(_, is_set)| *is_set).fold(0u8, |all, (split, _)| all | 1 << split);
            if set.count_ones() > 1 {
                let names = roles.split_names(fields).join("`, `");
                let problem = format!(
                    "{}: several of `{names}` are set, and splits must not overlap: fix it, or pass --split-column none if they are not \
                     splits",
                    source.place(row)
                );
                return Err(Error::input(ids.path, problem));
            }
            ids.add(id, set);
            row += 1;
        }
        Ok(())
    })?;
    Ok(ids.finish())
}

/// Splits by the words in `column`, of the rows whose ids the other source has.
pub fn splits_by_name(
    mut splits: SplitIds<'_>,
    column: &str,
    ids_of_rows: &dyn EdgeSource,
    names: &dyn EdgeSource,
) -> Result<[Vec<u64>; 3]> {
    let mut row = 0;
    each_piece(ids_of_rows, Some(names), &mut |ids, names| {
        splits.check(ids.len())?;
        let words: HashMap<u64, &str> = names.names.iter().map(|(hash, word)| (*hash, word.as_str())).collect();
        let found: HashMap<u64, Option<u8>> = words.iter().map(|(&hash, word)| (hash, split_of(word))).collect();
        for (&id, name) in ids.sources.iter().zip(&names.sources) {
            let Some(split) = found.get(name).copied().flatten() else {
                let word = shown(words.get(name).copied().unwrap_or_default().as_bytes());
                let place = ids_of_rows.place(row);
                let problem =
                    format!("{place}, column `{column}`: {word}: expected train, valid, val, test or nothing");
                return Err(Error::input(splits.path, problem));
            };
            splits.add(id, split);
            row += 1;
        }
        Ok(())
    })?;
    Ok(splits.finish())
}
