//! Tables of vertices: the id of every row, and features, labels, splits and further numbers beside it.
//!
//! * ids: the column that `--id-column` names; else `id`, `node_id`, `nid`, `vertex`, `name` ... if it holds the ids of the first
//!   edges, each once; else the one that does
//! * labels: the column that `--label-column` names; else `label`, `class`, `target` or `y`; else the only column of strings
//!   with few values. Class numbers from 0 (nothing or -1 for unlabelled), a list of zeros and ones, or strings and other
//!   numbers, which become the places of their classes in ascending order
//! * splits: strings `train`, `valid`, `test` in a column `split`, or flags in `train_mask`, `val_mask`, `test_mask`
//! * features: what `--feature-columns` and `--encode` name; else a list column `feat`, `features`, `x` or `embedding`; else
//!   all other numbers
//! * all numbers that are none of these: columns
//!
//! Rows stay in the file's order. Each column is a pass over the table that reads no other column (text has to be read
//! whole), and so are all features together. In memory are the ids of the splits, categories, and else a few thousand rows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gsplit_store::Progress;
use xxhash_rust::xxh3::xxh3_64;

use super::choice::{self, Field};
use super::features::{ColumnStatistics, Encoded, EncodedColumn, Encoding, MOST_CODES, MOST_ONE_HOT, survey};
use super::frames;
use super::parts::{self, TableFormat};
use super::roles::{self, Features, Roles};
use super::rows::Table;
use super::sheet::Sheet;
use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::memory::Memory;
use crate::read::options::{Categories, Fill, NodeTableOptions, OnDuplicate, TextOptions};
use crate::read::raw::{Column, Raw};
use crate::{Error, Result};

/// Contents of a table of vertices.
pub struct NodeTable {
    /// The id of every row: batches have sources only.
    pub ids: Box<dyn EdgeSource>,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels.
    pub labels: Option<Box<dyn Column>>,
    /// Names of the classes, where the labels are not their numbers.
    pub class_names: Option<Vec<String>>,
    /// Further numbers.
    pub columns: Vec<Box<dyn Column>>,
    /// Training, validation and test vertices, by their ids.
    pub splits: Option<[Vec<u64>; 3]>,
    /// The files that are read.
    pub files: Vec<PathBuf>,
}

impl NodeTable {
    /// Adds what the table holds to the edges of `raw`. Fails when the ids of one are integers and of the other strings.
    pub fn attach(self, raw: &mut Raw) -> Result<()> {
        if self.ids.has_string_ids() != raw.edges.has_string_ids() {
            let kind = |strings| if strings { "strings" } else { "integers" };
            let (of, edges) = (kind(self.ids.has_string_ids()), kind(raw.edges.has_string_ids()));
            let path = self.files.first().cloned().unwrap_or_default();
            return Err(Error::input(path, format!("ids are {of}, those of the edges {edges}: expected the same")));
        }
        if raw.features.is_some() || raw.labels.is_some() || !raw.columns.is_empty() {
            // Its rows are in the order of the ids, these in one of their own.
            let problem =
                "--nodes: the input has features, labels or columns of its own: leave --nodes out, or add to them";
            return Err(Error::Option(problem.into()));
        }
        raw.node_ids = Some(self.ids);
        raw.features = self.features;
        raw.labels = self.labels;
        raw.class_names = self.class_names;
        raw.columns = self.columns;
        raw.splits = self.splits.or(raw.splits.take());
        raw.files.extend(self.files);
        Ok(())
    }
}

/// Strings of each split, and those of no split.
const SPLIT_NAMES: [&[&str]; 3] =
    [&["train", "training"], &["valid", "val", "validation", "dev"], &["test", "testing"]];
const NO_SPLIT: [&str; 5] = ["", "none", "None", "unlabeled", "unlabelled"];

/// Opens the table of vertices at `path`, a file or a folder of parts, for a graph of these `edges`.
pub fn nodes(
    path: &Path,
    edges: &dyn EdgeSource,
    options: &NodeTableOptions,
    text: TextOptions,
    memory: Memory,
    progress: &dyn Progress,
) -> Result<NodeTable> {
    let (files, format) = parts::parts(path, None)?;
    let bytes = super::total_bytes(&files)?;
    let table = match format {
        TableFormat::Csv => {
            Table::Text(Sheet::open(path, &files, TextOptions { header: None, must_have_header: true, ..text })?)
        }
        _ => Table::Frames(frames::open(&files, format, memory)?, bytes),
    };
    let fields = table.fields()?;
    let mut roles = roles::of(path, &fields, options)?;
    let id = match roles.id {
        Some(id) if options.id_column.is_some() => id,
        _ => roles::find_ids(path, &table, &fields, &roles, edges, progress)?,
    };
    roles.take_id(id);
    let kind = choice::id_kind(path, &fields[id])?;
    let source = |ids: &[usize], kind, masks: &[usize]| table.source(&fields, ids, kind, masks);
    let split_ids = SplitIds::new(path, memory, options.on_duplicate);
    let splits = match (&roles.masks, roles.split) {
        ([None, None, None], None) => None,
        (_, Some(split)) => {
            let names = table.source_of_names(split)?;
            Some(splits_by_name(split_ids, &fields[split].name, source(&[id], kind, &[])?.as_ref(), names.as_ref())?)
        }
        (masks, None) => {
            let flags: Vec<usize> = masks.iter().flatten().copied().collect();
            Some(splits_by_flag(split_ids, source(&[id], kind, &flags)?.as_ref(), masks)?)
        }
    };
    let seen = survey(&table, &fields, &roles.to_survey(&fields, options), progress)?;
    roles.guess_label(&seen);
    let (labels, class_names) = labels(path, &table, &fields, &roles, &seen, options.fill)?;
    let features: Option<Box<dyn Column>> = match &roles.features {
        Features::None => None,
        Features::List(at) => Some(table.column(&fields, *at, "feat", false)),
        Features::Scalars(columns) => {
            let encode = |&(at, how)| encoded(path, &fields, at, how, options.fill, seen.get(&at));
            let columns = columns.iter().map(encode).collect::<Result<Vec<_>>>()?;
            Some(Box::new(EncodedColumn::new(&table, path, "feat", columns)))
        }
    };
    let columns = roles.columns(&fields);
    let columns: Vec<_> = columns.into_iter().map(|at| (at, choice::file_name(&fields[at].name))).collect();
    choice::check_distinct(path, columns.iter().map(|(_, name)| name.as_str()))?;
    roles.say(path, &fields, class_names.as_deref(), progress);
    super::note_dates(path, &table.dates(), progress);
    Ok(NodeTable {
        ids: source(&[id], kind, &[])?,
        features,
        labels,
        class_names,
        columns: columns.iter().map(|(at, name)| table.column(&fields, *at, name, false)).collect(),
        splits,
        files,
    })
}

/// The column of the labels, and the names of the classes where it holds something else than their numbers.
#[expect(clippy::type_complexity, reason = "a column and the names that belong to it")]
fn labels(
    path: &Path,
    table: &Table,
    fields: &[Field],
    roles: &Roles,
    seen: &HashMap<usize, ColumnStatistics>,
    fill: Option<Fill>,
) -> Result<(Option<Box<dyn Column>>, Option<Vec<String>>)> {
    let Some(at) = roles.label else { return Ok((None, None)) };
    let as_numbers = || Ok((Some(table.column(fields, at, "label", true)), None));
    let Some(seen) = seen.get(&at) else { return as_numbers() };
    let (field, mut names) = (&fields[at], seen.categories());
    if field.value.is_some() {
        // Text becomes numbers in the order of numbers, so the last is the largest.
        names.retain(|name| name != "-1");
        let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
        let first_and_last = numbers.as_ref().and_then(|all| Some((*all.first()?, *all.last()?)));
        match first_and_last {
            Some((0.., last)) if last < 2 * names.len() as i64 => return as_numbers(),
            Some(_) if !seen.many => {}
            // Fractions, or nothing: refused where they are read, with their row.
            _ => return as_numbers(),
        }
    } else if seen.many {
        let problem = format!(
            "column `{}` has more than {MOST_CODES} different strings: expected those of a class; pass --label-column",
            field.name
        );
        return Err(Error::input(path, problem));
    }
    let places = Encoding::Class(Encoding::places(names.clone()));
    let column = Encoded::new(at, field, places, fill, None);
    Ok((Some(Box::new(EncodedColumn::new(table, path, "label", vec![column]))), Some(names)))
}

/// Encodes the feature column at `at`.
fn encoded(
    path: &Path,
    fields: &[Field],
    at: usize,
    how: Option<Categories>,
    fill: Option<Fill>,
    seen: Option<&ColumnStatistics>,
) -> Result<Encoded> {
    let field = &fields[at];
    let places = |most: usize, remedy: &str| {
        let seen = seen.filter(|seen| !seen.many && seen.keys.len() <= most);
        let places = seen.map(|seen| Encoding::places(seen.categories()));
        let many = format!("--encode: column `{}` has more than {most} different values: {remedy}", field.name);
        places.ok_or_else(|| Error::input(path, many))
    };
    let encoding = match how {
        None => Encoding::Number,
        Some(Categories::Code) => Encoding::Code(places(MOST_CODES, "leave it out")?),
        Some(Categories::OneHot) => Encoding::OneHot(places(MOST_ONE_HOT, "encode it as code, or leave it out")?),
    };
    Ok(Encoded::new(at, field, encoding, fill, seen))
}

/// Calls `take` with every piece of `source`, and of `beside`, whose pieces are of the same rows.
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

/// The vertices of each split by their ids, under collection within the budget.
struct SplitIds<'a> {
    path: &'a Path,
    budget: Memory,
    on_duplicate: Option<OnDuplicate>,
    ids: [Vec<u64>; 3],
    /// Splits of every vertex so far, a bit each, where one may have several rows.
    seen: HashMap<u64, u8>,
}

impl<'a> SplitIds<'a> {
    fn new(path: &'a Path, budget: Memory, on_duplicate: Option<OnDuplicate>) -> Self {
        Self { path, budget, on_duplicate, ids: Default::default(), seen: HashMap::new() }
    }

    /// Fails where `more` ids do not fit beside those of the splits, which double as they grow.
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

fn splits_by_flag(mut ids: SplitIds<'_>, source: &dyn EdgeSource, masks: &[Option<usize>; 3]) -> Result<[Vec<u64>; 3]> {
    let splits: Vec<usize> = (0..3).filter(|&split| masks[split].is_some()).collect();
    each_piece(source, None, &mut |batch, _| {
        ids.check(batch.len())?;
        for (&id, flags) in batch.sources.iter().zip(batch.values.chunks_exact(8 * splits.len())) {
            let is_set = |flag: &[u8]| flag.iter().any(|&byte| byte != 0);
            let set = splits.iter().zip(flags.chunks_exact(8)).filter(|(_, flag)| is_set(flag));
            ids.add(id, set.fold(0, |all, (split, _)| all | 1 << split));
        }
        Ok(())
    })?;
    Ok(ids.finish())
}

fn splits_by_name(
    mut splits: SplitIds<'_>,
    column: &str,
    ids_of_rows: &dyn EdgeSource,
    names: &dyn EdgeSource,
) -> Result<[Vec<u64>; 3]> {
    let hash = |name: &&str| xxh3_64(name.as_bytes());
    let hashes = SPLIT_NAMES.map(|names| names.iter().map(hash).collect::<Vec<u64>>());
    let none = NO_SPLIT.map(|name| hash(&name));
    let mut row = 0;
    each_piece(ids_of_rows, Some(names), &mut |ids, names| {
        splits.check(ids.len())?;
        for (&id, name) in ids.sources.iter().zip(&names.sources) {
            match hashes.iter().position(|hashes| hashes.contains(name)) {
                Some(split) => splits.add(id, 1 << split),
                None if none.contains(name) => splits.add(id, 0),
                None => {
                    let text = names.names.iter().find(|(hash, _)| hash == name).map_or("", |(_, text)| text.as_str());
                    let shown = crate::read::text::field::shown(text.as_bytes());
                    let problem = format!("{shown}: expected train, valid, val, test or nothing");
                    let place = ids_of_rows.place(row);
                    return Err(Error::input(splits.path, format!("{place}, column `{column}`: {problem}")));
                }
            }
            row += 1;
        }
        Ok(())
    })?;
    Ok(splits.finish())
}
