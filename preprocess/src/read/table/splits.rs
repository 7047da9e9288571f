//! Splits of a table of vertices: a column of the words train, valid and test, or a column of flags
//! for each split. [`Roles`] finds these columns here, and [`splits`] reads them.

use std::collections::HashMap;

use super::cells::{Cell, id_of, no_id};
use super::choice::{self, Field, IdKind, NONE, matches};
use super::roles::{Roles, is_text};
use super::rows::TableRows;
use super::statistics::{ColumnStatistics, Surveyed, as_f64};
use crate::read::options::OnDuplicate;
use crate::read::text::field::shown;
use crate::read::text::value::is_missing;
use crate::{Error, Result};

/// Words for each split, and words for no split, in lower case.
const SPLIT_WORDS: [&[&str]; 3] =
    [&["train", "training"], &["valid", "val", "validation", "dev"], &["test", "testing"]];
const NO_SPLIT: [&str; 4] = ["", "none", "unlabeled", "unlabelled"];

/// Names of the flags of each split.
pub const MASK_NAMES: [&[&str]; 3] =
    [&["trainmask"], &["valmask", "validmask", "validationmask"], &["testmask"]];
/// Names that the flags of each split may have, and other columns too.
const FLAG_NAMES: [&[&str]; 3] = [
    &["train", "istrain", "intrain", "training"],
    &["valid", "val", "validation", "isvalid", "isval", "isvalidation", "dev"],
    &["test", "istest", "intest", "testing"],
];
/// Names of a column that says which split a vertex is of.
const SPLIT_NAMES: [&str; 5] = ["split", "fold", "set", "subset", "mask"];

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

/// The columns that `--split-column` names: one of words, or flags of several splits.
pub fn columns_named(
    on: &Surveyed<'_>,
    plain: &[String],
    names: &[String],
) -> Result<(Option<usize>, [Option<usize>; 3])> {
    let mut masks = [None; 3];
    if names == [NONE] {
        return Ok((None, masks));
    }
    for name in names {
        let at = choice::named(on.fields, name, "--split-column")?;
        if names.len() == 1 && is_text(&on.fields[at]) {
            return Ok((Some(at), masks));
        }
        let is_called = |names: &&[&str]| names.contains(&plain[at].as_str());
        let of_split =
            (0..3).find(|&split| is_called(&MASK_NAMES[split]) || is_called(&FLAG_NAMES[split]));
        match of_split.filter(|&split| masks[split].is_none() && !on.fields[at].list) {
            Some(split) => masks[split] = Some(at),
            None => {
                return Err(Error::Graph(format!(
                    "column `{name}`: expected the strings train, valid and test, or a column of 0 \
                     and 1 for each split, called train, valid or test, for --split-column"
                )));
            }
        }
    }
    Ok((None, masks))
}

impl Roles {
    fn has_splits(&self) -> bool {
        self.split.is_some() || self.masks != [None; 3]
    }

    /// Finds the column of the splits by its name, if no option and no flags give them. A column of
    /// such a name with other values is not a feature either.
    pub fn find_splits(&mut self, on: &Surveyed<'_>, plain: &[String]) {
        let is_chosen = |at: usize| {
            on.schema
                .feature_columns
                .iter()
                .flatten()
                .any(|pattern| matches(pattern, &on.fields[at].name))
        };
        for name in SPLIT_NAMES {
            let Some(at) = (0..on.fields.len()).find(|&at| plain[at] == name) else { continue };
            if self.taken().contains(&at) || is_chosen(at) {
                continue;
            }
            match is_text(&on.fields[at]) && !self.has_splits() {
                true => self.split = Some(at),
                false => self.left_out.push((at, "its name looks like a split".into())),
            }
        }
        for (split, names) in FLAG_NAMES.iter().enumerate() {
            let is_flag = |at: &usize| {
                let in_recipe =
                    on.trained.is_none_or(|trained| trained.splits.contains(&on.fields[*at].name));
                let has_values = on.fields[*at].value.is_some() || is_text(&on.fields[*at]);
                names.contains(&plain[*at].as_str())
                    && has_values
                    && !on.fields[*at].list
                    && in_recipe
            };
            let free = |at: &usize| !self.taken().contains(at) && !is_chosen(*at);
            let found: Vec<usize> = (0..on.fields.len()).filter(is_flag).filter(free).collect();
            self.flags.extend(found.into_iter().map(|at| (at, split)));
        }
    }

    /// Decides whether columns named like a split are splits, by the statistics `seen`.
    pub fn decide_splits(&mut self, on: &Surveyed<'_>) -> Result<()> {
        self.find_by_values(on)?;
        if let Some(at) = self.split
            && !self.split_is_named
            && choice::plain(&on.fields[at].name) != SPLIT_NAMES[0]
            && on
                .seen
                .get(&at)
                .is_some_and(|seen| seen.many || !seen.keys.keys().all(|name| is_split(name)))
        {
            self.split = None;
            self.left_out.push((
                at,
                "its name looks like a split, and it holds other words than train, valid and test"
                    .into(),
            ));
        }
        self.ask_for_numbers(on)?;
        self.decide_flags(on)?;
        if on.options.draws_splits {
            self.drop_splits();
        }
        Ok(())
    }

    /// Finds a column of strings that name splits, whatever its own name is.
    fn find_by_values(&mut self, on: &Surveyed<'_>) -> Result<()> {
        if self.has_splits() || self.split_is_named || on.trained.is_some() {
            return Ok(());
        }
        let taken = self.taken();
        let holds_splits = |at: &usize| {
            let seen = on.seen.get(at).filter(|seen| is_text(&on.fields[*at]) && !seen.many);
            let names = seen.map(|seen| seen.keys.keys()).into_iter().flatten();
            !taken.contains(at)
                && names.clone().all(|name| is_split(name))
                && names.filter(|name| is_named(name)).count() >= 2
        };
        let found: Vec<usize> = (0..on.fields.len()).filter(holds_splits).collect();
        match found[..] {
            [] => {}
            [at] => {
                self.drop_feature(at);
                self.split = Some(at);
            }
            _ => {
                let found: Vec<Field> = found.iter().map(|&at| on.fields[at].clone()).collect();
                return Err(Error::Graph(format!(
                    "{} hold the names of splits: pass --split-column COLUMN, or none",
                    choice::names(&found)
                )));
            }
        }
        Ok(())
    }

    /// Asks about a column that is called like a split and holds two or three whole numbers: which
    /// of them is training is not known.
    fn ask_for_numbers(&self, on: &Surveyed<'_>) -> Result<()> {
        if self.has_splits() || on.options.draws_splits || on.options.recipe.is_some() {
            return Ok(());
        }
        for &(at, _) in &self.left_out {
            let Some(seen) = on
                .seen
                .get(&at)
                .filter(|_| SPLIT_NAMES.contains(&choice::plain(&on.fields[at].name).as_str()))
            else {
                continue;
            };
            let (numbers, name) = (&seen.numbers, &on.fields[at].name);
            if numbers.count > 0
                && !seen.is_fractional
                && numbers.least >= 0.0
                && (1.0..=2.0).contains(&(numbers.most - numbers.least))
            {
                return Err(Error::Graph(format!(
                    "column `{name}` holds the numbers {} to {}, and its name looks like a split: \
                     write train, valid and test in it, or pass --random-split 0.6,0.2,0.2 to draw \
                     splits, or --split-column none if it is a feature",
                    numbers.least, numbers.most
                )));
            }
        }
        Ok(())
    }

    /// Takes columns of flags named like the splits, if there are several; the user is asked about
    /// a single one.
    fn decide_flags(&mut self, on: &Surveyed<'_>) -> Result<()> {
        let are_flags =
            |at: usize| on.seen.get(&at).is_some_and(|seen| seen.are_flags() && seen.values > 0);
        let is_wrong = |at: &&usize| !on.seen.get(at).is_some_and(ColumnStatistics::are_flags);
        if let Some(&at) = self.masks.iter().flatten().find(is_wrong) {
            return Err(Error::Graph(format!(
                "column `{}`: expected 0 and 1, or true and false, for a split: fix it, or pass \
                 --split-column none if it is not a split",
                on.fields[at].name
            )));
        }
        let has_splits = self.has_splits();
        let flags: Vec<(usize, usize)> =
            std::mem::take(&mut self.flags).into_iter().filter(|&(at, _)| are_flags(at)).collect();
        let splits = (0..3).filter(|split| flags.iter().any(|(_, of)| of == split)).count();
        match flags[..] {
            [(at, _), ..] if splits == 1 && !has_splits && on.options.recipe.is_none() => {
                let name = &on.fields[at].name;
                return Err(Error::Graph(format!(
                    "column `{name}` holds 0 and 1, and its name looks like a split: pass \
                     --split-column {name} if it is one, or --split-column none if it is a feature"
                )));
            }
            _ => {}
        }
        for (at, split) in flags {
            self.drop_feature(at);
            match has_splits || self.masks[split].is_some() {
                true => self.left_out.push((at, "its name looks like a split".into())),
                false => self.masks[split] = Some(at),
            }
        }
        Ok(())
    }

    /// Leaves out the splits of the table, where others are drawn.
    fn drop_splits(&mut self) {
        let splits: Vec<usize> = self.masks.iter().copied().chain([self.split]).flatten().collect();
        (self.masks, self.split) = ([None; 3], None);
        self.left_out.extend(splits.into_iter().map(|at| {
            (at, "it has the splits of the table, and --random-split draws others".to_string())
        }));
    }

    /// Names of the columns of the splits.
    pub fn split_names(&self, fields: &[Field]) -> Vec<String> {
        self.masks
            .into_iter()
            .chain([self.split])
            .flatten()
            .map(|at| fields[at].name.clone())
            .collect()
    }

    /// Lines on flags without a value.
    pub fn blank_flags(&self, on: &Surveyed<'_>) -> impl Iterator<Item = String> {
        self.masks.into_iter().flatten().filter_map(|at| {
            let missing = on.seen.get(&at).map(|seen| seen.missing).filter(|&rows| rows > 0)?;
            let name = &on.fields[at].name;
            Some(format!(
                "splits: {missing} rows of `{name}` have no value: they are not in that split"
            ))
        })
    }
}

/// The vertices of each split by their ids, under collection within the budget.
struct SplitIds<'a> {
    on: &'a Surveyed<'a>,
    ids: [Vec<u64>; 3],
    /// Splits of every vertex so far, a bit each, where one may have several rows.
    seen: HashMap<u64, u8>,
}

impl SplitIds<'_> {
    /// Fails if `more` ids do not fit in memory with the splits, which double as they grow.
    fn check(&self, more: usize) -> Result<()> {
        let full = self.ids.iter().filter(|split| split.capacity() - split.len() < more);
        let bytes: u64 = full.map(|split| 16 * (split.len() + more) as u64).sum();
        let repeats = self.on.schema.on_duplicate.is_some();
        let seen = if repeats { 32 * (self.seen.len() + more) as u64 } else { 0 };
        self.on.options.budget().check(&self.on.table.path, "its splits", bytes + seen)
    }

    /// Adds a row of `id`, whose splits are the bits of `splits`.
    fn add(&mut self, id: u64, splits: u8) {
        match self.on.schema.on_duplicate {
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

/// Rows under collection: the id of each, if it has one,, and a bit for each of its splits.
type SplitRows = Vec<(u64, u8)>;

/// The vertices of each split, by the columns that the roles name: by the ids in the column of `id`,
/// or by the numbers of the rows.
pub fn splits(
    on: &Surveyed<'_>,
    roles: &Roles,
    id: Option<(usize, IdKind)>,
) -> Result<Option<[Vec<u64>; 3]>> {
    let mut columns: Vec<usize> = roles.masks.into_iter().flatten().chain(roles.split).collect();
    if columns.is_empty() {
        return Ok(None);
    }
    columns.extend(id.map(|(at, _)| at));
    columns.sort_unstable();
    columns.dedup();
    let names = || roles.split_names(on.fields).join("`, `");
    let read = |rows: &TableRows<'_, '_>| {
        let mut found: SplitRows = vec![(0, 0); rows.len];
        for (slot, &at) in columns.iter().enumerate() {
            if let Some((_, kind)) = id.filter(|(id, _)| at == *id) {
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
    let mut ids = SplitIds { on, ids: Default::default(), seen: HashMap::new() };
    let mut row = 0;
    on.table.for_rows(&columns, on.progress, read, &mut |rows: SplitRows| {
        ids.check(rows.len())?;
        for (of_column, splits) in rows {
            ids.add(if id.is_some() { of_column } else { row }, splits);
            row += 1;
        }
        Ok(())
    })?;
    Ok(Some(ids.finish()))
}
