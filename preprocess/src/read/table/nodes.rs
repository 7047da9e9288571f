//! Tables of vertices: the id of every row, and features, labels, splits and further numbers beside it.
//!
//! * ids: the column that `--id-column` names; else `id`, `node_id`, `nid`, `vertex`, `name` ... if it holds the ids of the first
//!   edges, each once; else the one that does
//! * labels: the columns that `--label-column` names; else `label`, `class`, `target` or `y`; else zeros and ones called `churned`,
//!   `fraud` ...; else the user is asked, where a column may be the label. Class numbers from 0 (nothing or -1 for unlabelled), a list
//!   of zeros and ones, strings and other numbers, which become the places of their classes in ascending order; or numbers to learn
//! * splits: strings `train`, `valid`, `test` in a column `split`, or flags in `train_mask`, `val_mask`, `test_mask`
//! * features: what `--feature-columns` and `--encode` name; else a list column `feat`, `features`, `x` or `embedding`; else
//!   all other numbers, scaled, and categories, one-hot, but for identifiers
//! * all numbers that are none of these: columns
//!
//! Rows stay in the file's order. A first pass over all columns but lists gathers their statistics; then each column is a pass over
//! the table that reads no other column (text has to be read whole), and so are all features together. In memory are the ids of the
//! splits, categories, and else a few thousand rows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gsplit_store::{EdgeRecipe, FeatureEncoding, FeatureRecipe, Progress, Recipe};
use xxhash_rust::xxh3::xxh3_64;

use super::choice::{self, Field};
use super::features::{Encoded, EncodedColumn, Encoding};
use super::frames;
use super::ids::find_ids;
use super::parts::{self, TableFormat};
use super::recipe;
use super::roles::{self, Features, Roles};
use super::rows::Table;
use super::sheet::Sheet;
use super::statistics::{ColumnStatistics, MOST_CODES, survey};
use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::memory::Memory;
use crate::read::options::{LabelKind, NodeTableOptions, OnDuplicate, Scale, TextOptions, Unseen};
use crate::read::raw::{Column, Raw};
use crate::read::scaled::Scaled;
use crate::{Error, Result};

/// Contents of a table of vertices.
pub struct NodeTable {
    /// The id of every row: batches have sources only.
    pub ids: Box<dyn EdgeSource>,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels.
    pub labels: TableLabels,
    /// Columns, and what becomes of each.
    pub recipe: Recipe,
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
            return Err(Error::input(path, format!("ids are {of}, those of the edges {edges}: pass --id-type text")));
        }
        if raw.features.is_some() || raw.labels.is_some() || !raw.columns.is_empty() {
            // Its rows are in the order of the ids, these in one of their own.
            let problem =
                "--nodes: the input has features, labels or columns of its own: leave --nodes out, or add to them";
            return Err(Error::Option(problem.into()));
        }
        raw.node_ids = Some(self.ids);
        raw.features = self.features;
        raw.labels = self.labels.column;
        raw.class_names = self.labels.class_names;
        raw.numeric_label = self.labels.are_numbers;
        raw.recipe = Some(self.recipe);
        raw.columns = self.columns;
        raw.splits = self.splits.or(raw.splits.take());
        raw.files.extend(self.files);
        Ok(())
    }
}

/// Labels of a table of vertices.
#[derive(Default)]
pub struct TableLabels {
    /// Their column.
    pub column: Option<Box<dyn Column>>,
    /// Names of the classes, where the labels are not their numbers.
    pub class_names: Option<Vec<String>>,
    /// Whether they are numbers to learn.
    pub are_numbers: bool,
}

impl TableLabels {
    /// Its kind, behind the names of the columns.
    fn words(&self) -> Option<String> {
        self.column.as_ref()?;
        Some(match &self.class_names {
            _ if self.are_numbers => " (numbers to learn)".into(),
            Some(names) => format!(" ({} classes by name)", names.len()),
            None => String::new(),
        })
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
    let trained = options.recipe.as_deref().map(Recipe::read).transpose()?;
    let mut roles = roles::of(path, &fields, options, trained.as_ref())?;
    let id = match roles.id {
        Some(id) if options.id_column.is_some() => id,
        _ => find_ids(path, &table, &fields, &roles, (edges, text.id_type), progress)?,
    };
    roles.take_id(id);
    let kind = text.id_type.map_or_else(|| choice::id_kind(path, &fields[id]), Ok)?;
    let source = |ids: &[usize], kind, masks: &[usize]| table.source(&fields, ids, kind, masks);
    let seen = survey(&table, &fields, &roles.to_survey(&fields), progress)?;
    let decided = roles.decide(path, &fields, &seen, is_target(path));
    decided.map_err(|error| with_missing(error, &fields, &roles, &seen, options))?;
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
    let classes = trained.as_ref().map(|trained| &trained.classes[..]);
    let labels = labels(path, &table, &fields, &roles, &seen, classes, options.label_kind)?;
    let recipes = match (&roles.features, &trained) {
        (_, Some(trained)) => recipe::by(path, &fields, trained, options)?,
        (Features::None, None) => Vec::new(),
        (Features::List(at), None) => vec![(*at, list(&fields[*at]))],
        (Features::Scalars(columns), None) => recipe::of(path, &fields, columns, &seen, options)?,
    };
    if trained.is_some() {
        recipe::note_far(path, &recipes, &seen, progress);
    }
    let takes_unseen = options.unseen == Some(Unseen::Other);
    let features: Option<Box<dyn Column>> = match &roles.features {
        Features::None => None,
        Features::List(at) => {
            let rows = table.column(&fields, *at, "feat", false);
            Some(Scaled::of(rows, options.scale.unwrap_or(Scale::None), progress)?)
        }
        Features::Scalars(_) => {
            let encode =
                |(at, recipe): &(usize, FeatureRecipe)| Encoded::feature(*at, &fields[*at], recipe, takes_unseen);
            Some(Box::new(EncodedColumn::new(&table, path, "feat", recipes.iter().map(encode).collect())))
        }
    };
    let columns = roles.columns(&fields);
    let columns: Vec<_> = columns.into_iter().map(|at| (at, choice::file_name(&fields[at].name))).collect();
    choice::check_distinct(path, columns.iter().map(|(_, name)| name.as_str()))?;
    roles.say(path, &fields, labels.words(), progress);
    say_others(path, &recipes, progress);
    super::note_readings(path, &table.readings(), progress);
    let recipe = Recipe {
        id: fields[id].name.clone(),
        label: roles.labels.iter().map(|&at| fields[at].name.clone()).collect(),
        classes: labels.class_names.clone().unwrap_or_default(),
        splits: roles.split_names(&fields),
        features: recipes.into_iter().map(|(_, recipe)| recipe).collect(),
        left_out: roles.left_out(&fields),
        edges: EdgeRecipe::default(),
    };
    Ok(NodeTable {
        ids: source(&[id], kind, &[])?,
        features,
        labels,
        recipe,
        columns: columns.iter().map(|(at, name)| table.column(&fields, *at, name, false)).collect(),
        splits,
        files,
    })
}

/// Whether the table is called by its label, as MUSAE's are.
fn is_target(path: &Path) -> bool {
    path.file_stem()
        .is_some_and(|stem| stem.to_string_lossy().split('.').next().is_some_and(|stem| stem.ends_with("target")))
}

/// The question for the label, with what else will be asked for: who answers both needs one try.
fn with_missing(
    error: Error,
    fields: &[Field],
    roles: &Roles,
    seen: &HashMap<usize, ColumnStatistics>,
    options: &NodeTableOptions,
) -> Error {
    let Error::Input { path, line, problem } = error else { return error };
    let Features::Scalars(columns) = &roles.features else { return Error::Input { path, line, problem } };
    let lacks = |&&(at, _): &&(usize, Option<_>)| seen.get(&at).is_some_and(|seen| seen.missing > 0);
    let lacking: Vec<Field> = columns.iter().filter(lacks).map(|&(at, _)| fields[at].clone()).collect();
    if lacking.is_empty() || options.fill.is_some() {
        return Error::Input { path, line, problem };
    }
    let problem =
        format!("{problem}; and --fill mean, or a number, for what is missing in {}", choice::names(&lacking));
    Error::Input { path, line, problem }
}

/// Recipe of a column of lists.
fn list(field: &Field) -> FeatureRecipe {
    let width = field.value.map_or(0, |(_, width)| width as u32);
    FeatureRecipe {
        column: field.name.clone(),
        encoding: FeatureEncoding::List { width },
        fill: None,
        indicator: false,
    }
}

/// Tells of columns whose less frequent categories are taken together.
fn say_others(path: &Path, features: &[(usize, FeatureRecipe)], progress: &dyn Progress) {
    for (_, feature) in features {
        if let FeatureEncoding::OneHot { categories, other: true } = &feature.encoding {
            let (path, column, most) = (path.display(), &feature.column, categories.len());
            progress.decide(&format!(
                "{path}: `{column}` is one-hot by its {most} most frequent values, the rest is one more (--encode {column}=onehot, or code, has them all)"
            ));
        }
    }
}

/// Different whole numbers of a label from which on it may be a quantity, if they are a tenth of the values or more.
const MANY_CLASSES: usize = 20;

/// The labels, by the columns that are theirs; `trained` are the names of the classes of a recipe.
fn labels(
    path: &Path,
    table: &Table,
    fields: &[Field],
    roles: &Roles,
    seen: &HashMap<usize, ColumnStatistics>,
    trained: Option<&[String]>,
    kind: Option<LabelKind>,
) -> Result<TableLabels> {
    let encoded = |columns| Some(Box::new(EncodedColumn::new(table, path, "label", columns)) as Box<dyn Column>);
    let number = |at: usize, unlabelled| Encoded::label(at, &fields[at], Encoding::Number(0.0, 1.0), unlabelled);
    let at = match roles.labels[..] {
        [] => return Ok(TableLabels::default()),
        [at] => at,
        _ => {
            let not_binary = |at: &&usize| !seen.get(at).is_some_and(ColumnStatistics::is_binary);
            if let Some(&at) = roles.labels.iter().find(not_binary) {
                let problem = format!("--label-column: `{}` of several: expected zeros and ones", fields[at].name);
                return Err(Error::input(path, problem));
            }
            let names = roles.labels.iter().map(|&at| fields[at].name.clone()).collect();
            let columns = roles.labels.iter().map(|&at| number(at, 0.0)).collect();
            return Ok(TableLabels { column: encoded(columns), class_names: Some(names), are_numbers: false });
        }
    };
    let as_classes =
        || Ok(TableLabels { column: Some(table.column(fields, at, "label", true)), ..TableLabels::default() });
    let field = &fields[at];
    let Some(seen) = seen.get(&at) else { return as_classes() };
    let is_number = field.value.is_some();
    let numeric = match kind {
        Some(kind) => kind == LabelKind::Number,
        None => seen.is_fractional,
    };
    if numeric && !is_number {
        let problem = format!("--label-kind number: column `{}` holds strings: expected numbers", field.name);
        return Err(Error::input(path, problem));
    }
    if numeric {
        return Ok(TableLabels { column: encoded(vec![number(at, f32::NAN)]), class_names: None, are_numbers: true });
    }
    let mut names = seen.categories();
    if let Some(trained) = trained.filter(|trained| !trained.is_empty()) {
        if let Some(new) = names.iter().find(|name| !trained.contains(name) && *name != "-1") {
            let problem = format!(
                "column `{}`: `{new}` is no class of the recipe: leave the column out (--label-column none)",
                field.name
            );
            return Err(Error::input(path, problem));
        }
        names = trained.to_vec();
    } else if is_number {
        // Text becomes numbers in the order of numbers, so the last is the largest.
        names.retain(|name| name != "-1");
        if kind.is_none() && (seen.many || (names.len() > MANY_CLASSES && 10 * names.len() as u64 > seen.values)) {
            let (count, values) = (if seen.many { "many".into() } else { names.len().to_string() }, seen.values);
            let problem = format!(
                "column `{}` holds {count} different numbers in {values} rows: pass --label-kind class, or number for a quantity to learn",
                field.name
            );
            return Err(Error::input(path, problem));
        }
        let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
        let first_and_last = numbers.as_ref().and_then(|all| Some((*all.first()?, *all.last()?)));
        match first_and_last {
            Some((0.., last)) if last < 2 * names.len() as i64 => return as_classes(),
            Some(_) if !seen.many => {}
            // Fractions, or nothing: refused where they are read, with their row.
            _ => return as_classes(),
        }
    } else if seen.many {
        let problem = format!(
            "column `{}` has more than {MOST_CODES} different strings: expected those of a class; pass --label-column",
            field.name
        );
        return Err(Error::input(path, problem));
    }
    let places = Encoding::Class(Encoding::places(names.clone()));
    let column = encoded(vec![Encoded::label(at, field, places, -1.0)]);
    Ok(TableLabels { column, class_names: Some(names), are_numbers: false })
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

/// Whether `name` is that of a split, or says that there is none.
pub fn is_split(name: &str) -> bool {
    SPLIT_NAMES.iter().any(|names| names.contains(&name)) || NO_SPLIT.contains(&name)
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
