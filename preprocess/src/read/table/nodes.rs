//! Tables of vertices: the id of every row, and features, labels, splits and further numbers beside it.
//!
//! * ids: the column that `--id-column` names; else `id`, `node_id`, `nid`, `vertex`, `name` ...; else the first that can be
//! * features: a list column `feat`, `features`, `x` or `embedding`
//! * labels: `label`, `y` or `target`, a number (nothing for unlabelled) or a list of zeros and ones
//! * splits: strings `train`, `valid`, `test` in a column `split`, or flags in `train_mask`, `val_mask`, `test_mask`
//! * all other numbers: columns
//!
//! Rows stay in the file's order. Each column is a pass over the table that reads no other column (text has to be read
//! whole). In memory are the ids of the splits, and else a few thousand rows of one column.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gsplit_store::Progress;
use xxhash_rust::xxh3::xxh3_64;

use super::choice::{self, Choice, Field, IdKind};
use super::column::{FrameColumn, TextColumn};
use super::columnar::{self, Columnar};
use super::csv::Text;
use super::frames::{self, Frames};
use super::parts::{self, Format};
use super::sheet::Sheet;
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Piece, ValueType};
use crate::read::raw::{Column, Raw, ReadOptions};
use crate::{Error, Result};

/// What a table of vertices holds.
pub struct NodeTable {
    /// The id of every row: batches have sources only.
    pub ids: Box<dyn EdgeSource>,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels.
    pub labels: Option<Box<dyn Column>>,
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
        raw.columns = self.columns;
        raw.splits = self.splits.or(raw.splits.take());
        raw.files.extend(self.files);
        Ok(())
    }
}

const ID_NAMES: [&str; 8] = ["id", "nodeid", "nid", "vertex", "vertexid", "node", "name", "originalid"];
const FEATURE_NAMES: [&str; 7] = ["feat", "feats", "features", "feature", "x", "embedding", "emb"];
const LABEL_NAMES: [&str; 4] = ["label", "labels", "y", "target"];
/// Names of the flags of each split.
const MASK_NAMES: [&[&str]; 3] = [&["trainmask"], &["valmask", "validmask", "validationmask"], &["testmask"]];
/// Strings of each split, and those of no split.
const SPLIT_NAMES: [&[&str]; 3] =
    [&["train", "training"], &["valid", "val", "validation", "dev"], &["test", "testing"]];
const NO_SPLIT: [&str; 5] = ["", "none", "None", "unlabeled", "unlabelled"];

/// Opens the table of vertices at `path`, a file or a folder of parts.
pub fn nodes(path: &Path, options: &ReadOptions, progress: &dyn Progress) -> Result<NodeTable> {
    let (files, format) = parts::parts(path, None)?;
    let bytes = super::total_bytes(&files)?;
    let table = match format {
        Format::Csv => Table::Text(Sheet::open(path, &files)?),
        _ => Table::Frames(frames::open(&files, format)?, bytes),
    };
    let fields = table.fields()?;
    let plan = plan(path, &fields, options)?;
    let kind = choice::id_kind(path, &fields[plan.id])?;
    let source = |ids: &[usize], kind, masks: &[usize]| table.source(&fields, ids, kind, masks);
    let splits = match (&plan.masks, plan.split) {
        ([None, None, None], None) => None,
        ([None, None, None], Some(split)) => {
            let names = table.source_of_names(split)?;
            Some(splits_by_name(path, source(&[plan.id], kind, &[])?.as_ref(), names.as_ref())?)
        }
        (masks, _) => {
            let flags: Vec<usize> = masks.iter().flatten().copied().collect();
            Some(splits_by_flag(source(&[plan.id], kind, &flags)?.as_ref(), masks)?)
        }
    };
    let columns: Vec<_> = plan.columns.iter().map(|&at| (at, choice::file_name(&fields[at].name))).collect();
    choice::check_distinct(path, columns.iter().map(|(_, name)| name.as_str()))?;
    say_plan(path, &fields, &plan, progress);
    Ok(NodeTable {
        ids: source(&[plan.id], kind, &[])?,
        features: plan.features.map(|at| table.column(&fields, at, "feat", false)),
        labels: plan.labels.map(|at| table.column(&fields, at, "label", true)),
        columns: columns.iter().map(|(at, name)| table.column(&fields, *at, name, false)).collect(),
        splits,
        files,
    })
}

/// The table, opened.
enum Table {
    Frames(Vec<Arc<dyn Frames>>, u64),
    Text(Sheet),
}

impl Table {
    fn fields(&self) -> Result<Vec<Field>> {
        match self {
            Self::Frames(parts, _) => columnar::fields(parts),
            Self::Text(sheet) => Ok(sheet.fields()),
        }
    }

    /// Ids, and the numbers at `values` as integers.
    fn source(&self, fields: &[Field], ids: &[usize], kind: IdKind, values: &[usize]) -> Result<Box<dyn EdgeSource>> {
        let column = |&at: &usize| EdgeColumn { name: fields[at].name.clone(), value: ValueType::I64, width: 1 };
        let columns = values.iter().map(column).collect();
        let choice = Choice { ids: [0; 2], kind, values: values.to_vec(), columns };
        Ok(match self {
            Self::Frames(parts, bytes) => Box::new(Columnar::new(parts, ids, &choice, *bytes)?),
            Self::Text(sheet) => Box::new(Text::new(sheet.clone(), ids, &choice)),
        })
    }

    /// The strings of a column, which may be missing, as hashes.
    fn source_of_names(&self, at: usize) -> Result<Box<dyn EdgeSource>> {
        let choice = Choice { ids: [0; 2], kind: IdKind::Text, values: vec![], columns: vec![] };
        Ok(match self {
            Self::Frames(parts, bytes) => Box::new(Columnar::new(parts, &[at], &choice, *bytes)?.with_nulls()),
            Self::Text(sheet) => Box::new(Text::new(sheet.clone(), &[at], &choice).with_nulls()),
        })
    }

    fn column(&self, fields: &[Field], at: usize, name: &str, label: bool) -> Box<dyn Column> {
        let (value, width) = fields[at].value.unwrap_or((ValueType::F32, 1));
        match self {
            Self::Frames(parts, _) => Box::new(FrameColumn::new(parts.clone(), at, name, width, label)),
            Self::Text(sheet) => Box::new(TextColumn::new(sheet.clone(), at, name, value, label)),
        }
    }
}

/// Which columns are what, by their places.
#[derive(Debug)]
struct Plan {
    id: usize,
    features: Option<usize>,
    labels: Option<usize>,
    masks: [Option<usize>; 3],
    split: Option<usize>,
    columns: Vec<usize>,
}

fn plan(path: &Path, fields: &[Field], options: &ReadOptions) -> Result<Plan> {
    let plain: Vec<String> = fields.iter().map(|field| choice::plain(&field.name)).collect();
    let find = |names: &[&str], suits: &dyn Fn(&Field) -> bool| {
        names.iter().find_map(|name| (0..fields.len()).find(|&at| plain[at] == *name && suits(&fields[at])))
    };
    let can_be_id = |field: &Field| field.id.is_some();
    let id = choice::named(path, fields, options.id_column.as_deref(), "--id-column")?;
    let id = id.or_else(|| find(&ID_NAMES, &can_be_id)).or_else(|| fields.iter().position(can_be_id));
    let none = || {
        Error::input(
            path,
            format!("expected a column of ids, integers or strings. There are {}", choice::names(fields)),
        )
    };
    let id = id.ok_or_else(none)?;
    let features = find(&FEATURE_NAMES, &|field| field.list);
    let labels = find(&LABEL_NAMES, &|field| field.value.is_some()).filter(|&at| at != id);
    let masks = MASK_NAMES.map(|names| find(names, &|field| field.value == Some((ValueType::I64, 1))));
    let split = find(&["split"], &|field| field.id == Some(IdKind::Text)).filter(|&at| at != id);
    let taken: Vec<usize> = [Some(id), features, labels].into_iter().chain(masks).flatten().collect();
    let columns = (0..fields.len()).filter(|at| fields[*at].value.is_some() && !taken.contains(at)).collect();
    Ok(Plan { id, features, labels, masks, split, columns })
}

fn say_plan(path: &Path, fields: &[Field], plan: &Plan, progress: &dyn Progress) {
    let name = |at: usize| format!("`{}`", fields[at].name);
    let mut said = vec![format!("ids from {}", name(plan.id))];
    said.extend(plan.features.map(|at| format!("features from {}", name(at))));
    said.extend(plan.labels.map(|at| format!("labels from {}", name(at))));
    let splits: Vec<String> = plan.masks.into_iter().flatten().map(name).collect();
    match (splits.is_empty(), plan.split) {
        (false, _) => said.push(format!("splits from {}", splits.join(", "))),
        (true, Some(split)) => said.push(format!("splits from {}", name(split))),
        (true, None) => {}
    }
    progress.note(&format!("{}: {}", path.display(), said.join(", ")));
    let used: Vec<usize> = [Some(plan.id), plan.split].into_iter().flatten().collect();
    super::note_left_out(path, &choice::left_out(fields, &used), "which hold no numbers", progress);
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

fn splits_by_flag(source: &dyn EdgeSource, masks: &[Option<usize>; 3]) -> Result<[Vec<u64>; 3]> {
    let splits: Vec<usize> = (0..3).filter(|&split| masks[split].is_some()).collect();
    let mut found: [Vec<u64>; 3] = Default::default();
    each_piece(source, None, &mut |batch, _| {
        for (&id, flags) in batch.sources.iter().zip(batch.values.chunks_exact(8 * splits.len())) {
            for (&split, flag) in splits.iter().zip(flags.chunks_exact(8)) {
                if flag.iter().any(|&byte| byte != 0) {
                    found[split].push(id);
                }
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn splits_by_name(path: &Path, ids: &dyn EdgeSource, names: &dyn EdgeSource) -> Result<[Vec<u64>; 3]> {
    let hash = |name: &&str| xxh3_64(name.as_bytes());
    let hashes = SPLIT_NAMES.map(|names| names.iter().map(hash).collect::<Vec<u64>>());
    let none = NO_SPLIT.map(|name| hash(&name));
    let (mut found, mut row): ([Vec<u64>; 3], u64) = Default::default();
    each_piece(ids, Some(names), &mut |ids, names| {
        for (&id, name) in ids.sources.iter().zip(&names.sources) {
            match hashes.iter().position(|hashes| hashes.contains(name)) {
                Some(split) => found[split].push(id),
                None if none.contains(name) => {}
                None => {
                    let text = names.names.iter().find(|(hash, _)| hash == name).map_or("", |(_, text)| text.as_str());
                    let shown = crate::read::field::shown(text.as_bytes());
                    let problem = format!("{shown}: expected train, valid, val, test or nothing");
                    return Err(columnar::at_row(path, row, "split", &problem));
                }
            }
            row += 1;
        }
        Ok(())
    })?;
    Ok(found)
}
