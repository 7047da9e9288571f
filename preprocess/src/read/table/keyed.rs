//! Tables with keys: a row is a vertex of its table's type, and a foreign key is an edge.
//!
//! ```toml
//! [tables.drivers]                      # the type of its rows
//! file = "drivers.csv"                  # next to the schema; a file, or a folder of parts
//! key = "driverId"                      # names a row; only other tables need it
//! [tables.results]
//! file = "results.csv"
//! foreign = { driverId = "drivers" }    # results/driverId/drivers, drivers/rev_driverId/results
//! [tables.follows]
//! file = "follows.csv"
//! foreign = { who = "drivers", whom = "drivers" }
//! edges = ["who", "whom"]               # a row is an edge drivers/follows/drivers
//! [task]                                # vertices of the type `task`, with labels and splits
//! file = "dnf.csv"
//! foreign = { driverId = "drivers" }    # only the relation drivers/driverId/task
//! label-column = "did_not_finish"
//! ```
//! Other keys are listed in [`Schema`]. Only the task has a label and splits by default,
//! and missing numbers become the mean of their column. The rows of a task are new questions about
//! rows of other tables, so no edge leads from them.
//!
//! In memory are the keys, 4 to 16 bytes each, and a row number for every foreign key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_store::{Progress, Relation};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::choice::{NONE, file_name};
use super::keys::{ForeignKey, KeyRows, NO_ROW, NamedRows, rows_named};
use super::nodes::keyed_rows;
use super::parts::TableFormat;
use super::rows::Table;
use crate::edges::{EdgeBatch, EdgeSource, Estimate, Piece};
use crate::read::options::{Fill, MissingRows, ReadOptions, Schema, TextOptions};
use crate::read::raw::{Column, Raw, describe_column};
use crate::read::text::some;
use crate::read::typed::{self, RawRelation, RawType};
use crate::{Error, Result};

/// Name of the type of the rows of the task.
const TASK: &str = "task";
/// Keys of a schema that a table with keys cannot have, and keys that cannot be for all tables.
const NOT_OF_ONE: &str = "source-column target-column edge-columns edge-weights bipartite id-column \
                          ignore-header vertex-weights on-duplicate unseen split-name";
const NOT_OF_ALL: &str = "label-column label-kind unlabelled split-column feature-columns encode \
                          header delimiter decimal date-order id-type one-table";

/// The schema of several tables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaOfTables {
    tables: BTreeMap<String, KeyedTable>,
    task: Option<KeyedTable>,
}

/// A table, as the schema describes it.
#[derive(Deserialize)]
struct KeyedTable {
    #[serde(skip)]
    name: String,
    file: PathBuf,
    key: Option<String>,
    /// Columns, and the tables that they name rows of.
    #[serde(default)]
    foreign: BTreeMap<String, String>,
    /// Columns with the ends of its edges.
    edges: Option<[String; 2]>,
    /// Keys of a [`Schema`].
    #[serde(flatten)]
    rest: Map<String, Value>,
    #[serde(skip)]
    schema: Schema,
}

impl KeyedTable {
    /// Completes the table called `name`, of the schema in `folder`.
    fn complete(&mut self, folder: &Path, name: String) -> Result<(), String> {
        let is_task = name == TASK;
        if let Some(ends) = &self.edges
            && (is_task
                || self.key.is_some()
                || !ends.iter().all(|end| self.foreign.contains_key(end)))
        {
            return Err("edges: expected two columns that `foreign` has, and no key".into());
        }
        let schema = Schema::of(&self.rest).map_err(|(_, problem)| {
            problem.replace("a key of the schema", "file, key, foreign, edges or a key of a schema")
        })?;
        if let Some(key) = first_of(&schema, NOT_OF_ONE) {
            return Err(format!("{key} has no effect on a table with keys: remove it"));
        }
        let none = (!is_task).then(|| vec![NONE.to_string()]);
        let (label_column, split_column) = (none.clone(), none);
        let fill = Some(Fill::Mean);
        self.schema =
            schema.over(&Schema { label_column, split_column, fill, ..Schema::default() });
        (self.file, self.name) = (folder.join(&self.file), name);
        Ok(())
    }
}

/// The first of `keys` that `schema` has.
fn first_of<'a>(schema: &Schema, keys: &'a str) -> Option<&'a str> {
    let given = schema.to_map();
    keys.split_whitespace().find(|key| given.contains_key(*key))
}

/// The schema at `path`, or in the folder at `path`.
fn schema_at(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("schema.toml") } else { path.to_path_buf() }
}

/// Whether `path` is a schema of tables, or a folder with one.
pub fn recognises(path: &Path) -> bool {
    let schema = schema_at(path);
    schema.extension().is_some_and(|end| end == "toml")
        && gsplit_store::read_text(&schema).is_ok_and(|text| text.contains("[tables"))
}

/// The tables of the schema at `path`, the task last.
fn tables(path: &Path) -> Result<Vec<KeyedTable>> {
    let (_, SchemaOfTables { mut tables, task }) = Schema::parse_file(path)?;
    if tables.contains_key(TASK) {
        let problem = "a table is called `task`, as the rows of [task] are: call it otherwise";
        return Err(Error::input(path, problem));
    }
    tables.extend(task.map(|task| (TASK.into(), task)));
    let is_last = |(name, _): &(String, KeyedTable)| name == TASK;
    let mut all: Vec<(String, KeyedTable)> = tables.into_iter().collect();
    all.sort_by_key(is_last);
    let wrong = |name: &str, problem: String| {
        let section = if name == TASK { "[task]".into() } else { format!("[tables.{name}]") };
        Error::input(path, format!("{section}: {problem}"))
    };
    let folder = path.parent().unwrap_or(path);
    let complete = |(name, mut table): (String, KeyedTable)| {
        let done = table.complete(folder, name.clone());
        done.map(|()| table).map_err(|problem| wrong(&name, problem))
    };
    let all = all.into_iter().map(complete).collect::<Result<Vec<KeyedTable>>>()?;
    for table in &all {
        for (column, other) in &table.foreign {
            let has_rows = |of: &&KeyedTable| of.name == *other && of.edges.is_none();
            match all.iter().find(has_rows).filter(|of| of.name != TASK) {
                Some(of) if of.key.is_some() => {}
                Some(_) => {
                    let problem = format!("foreign: [tables.{other}] has no key: add one");
                    return Err(wrong(&table.name, problem));
                }
                None => {
                    let known: Vec<String> = all.iter().map(|of| of.name.clone()).collect();
                    let problem = format!(
                        "foreign: `{column}` names rows of `{other}`: expected one of the tables, \
                         {}",
                        some(&known)
                    );
                    return Err(wrong(&table.name, problem));
                }
            }
        }
    }
    let is_named =
        |name: &String| all.iter().any(|of| of.foreign.values().any(|other| other == name));
    let is_alone = |table: &&KeyedTable| table.foreign.is_empty() && !is_named(&table.name);
    match all.iter().find(is_alone) {
        None => Ok(all),
        Some(table) => {
            let problem = "no foreign key leads to these rows or from them: add one, or leave the \
                           table out";
            Err(wrong(&table.name, problem.into()))
        }
    }
}

/// Opens the tables of the schema at `path`, or in the folder at `path`.
pub fn open(
    path: &Path,
    options: &ReadOptions,
    with_splits: bool,
    progress: &dyn Progress,
    decisions: &mut Vec<String>,
) -> Result<Raw> {
    let schema = schema_at(path);
    let refusal = |keys, why: &str| {
        let key = first_of(&options.schema, keys)?;
        Some(Error::Option(format!("{}: there are several tables: {why}", Schema::option(key))))
    };
    let why = format!("write it under one of them in {}", schema.display());
    let refusal = refusal(NOT_OF_ALL, &why).or(refusal(NOT_OF_ONE, "leave it out"));
    refusal.map_or(Ok(()), Err)?;
    let described = tables(&schema)?;
    let (memory, mut opened) = (options.budget(), Vec::new());
    for of in &described {
        // A key on the command line wins over the file, as it does for one table.
        let options = ReadOptions { schema: options.schema.over(&of.schema), ..options.clone() };
        let unnamed = of.file.is_file().then_some(TableFormat::Csv);
        let text = options.text();
        let text = TextOptions { header: None, must_have_header: true, scans: true, ..text };
        let table = Table::of(&of.file, unnamed, text, &options, progress, decisions)
            .map_err(|error| error.at(&of.file))?;
        if table.is_empty() {
            return Err(table.error("has columns and no rows: expected a row for each vertex"));
        }
        let read =
            |key: &String| KeyRows::of(&table, key, options.schema.id_type, memory, progress);
        let keys = of.key.as_ref().map(read).transpose()?;
        opened.push((of, table, options, keys));
    }
    let (mut raw_types, mut relations) = (Vec::new(), Vec::new());
    let (mut class_names, mut label_shape, mut files) = (None, None, vec![schema.clone()]);
    for (of, table, options, keys) in &opened {
        let foreign = of.foreign.iter().filter_map(|(column, name)| {
            let (_, other, _, keys) = opened.iter().find(|(of, ..)| of.name == *name)?;
            Some(ForeignKey { column, other, keys: keys.as_ref()? })
        });
        let foreign: Vec<ForeignKey<'_>> = foreign.collect();
        let drops = options.schema.missing_rows == Some(MissingRows::Drop);
        let how = (options.schema.id_type, drops);
        let (count, named) = rows_named(table, &foreign, how, memory, progress)?;
        decisions.extend(of.foreign.iter().zip(&named).filter_map(|((column, name), rows)| {
            let [empty, dangling] = rows.without;
            (empty + dangling > 0).then(|| {
                let path = table.path.display();
                format!(
                    "note: {path}: `{column}` makes no edge where it is empty ({empty}), or not a \
                     key of {name} ({dangling})"
                )
            })
        }));
        let places: Vec<usize> =
            keys.iter().map(|keys| keys.at).chain(named.iter().map(|of| of.at)).collect();
        let ends: Vec<&String> = of.foreign.values().collect();
        let edges_of = |ends: [Option<Vec<u32>>; 2]| KeyEdges { ends, count, next: 0.into() };
        let relation = |source: &str, name: &str, target: &str| Relation {
            source: source.into(),
            name: file_name(name),
            target: target.into(),
        };
        files.extend(table.files());
        if let Some(columns) = &of.edges {
            let slot = |column: &String| of.foreign.keys().position(|of| of == column);
            let slots = columns.each_ref().map(|column| slot(column).unwrap_or_default());
            let relation = relation(ends[slots[0]], &of.name, ends[slots[1]]);
            let rows = slots.map(|slot| Some(named[slot].rows.clone()));
            let path = table.path.clone();
            decisions.push(format!("{}: edges {relation}, without values", path.display()));
            relations.push(RawRelation::of(
                relation,
                edges_of(rows),
                path,
                options.edges.symmetrise,
            ));
            continue;
        }
        for (NamedRows { rows, .. }, (column, end)) in named.into_iter().zip(&of.foreign) {
            let path = table.path.clone();
            let (forth, reverse, ends) = match of.name == TASK {
                true => (relation(end, column, TASK), None, [Some(rows), None]),
                false => {
                    let forth = relation(&of.name, column, end);
                    let reverse = typed::reverse(&forth);
                    (forth, Some(reverse), [None, Some(rows)])
                }
            };
            let edges = Box::new(edges_of(ends));
            relations.push(RawRelation { relation: forth, reverse, edges, path });
        }
        let nodes = keyed_rows(table, &places, options, progress, decisions)?;
        let is_open = options.schema.label_column.is_none() && nodes.labels.column.is_none();
        if of.name == TASK && is_open {
            let problem = "no column looks like a label: add label-column = \"NAME\" under [task]";
            return Err(table.error(problem));
        }
        if let (Some(_), true) = (&nodes.labels.column, class_names.is_none()) {
            (class_names, label_shape) = (nodes.labels.class_names, nodes.labels.shape);
        }
        let splits = nodes.splits.filter(|_| with_splits);
        raw_types.push(RawType {
            name: of.name.clone(),
            count,
            // Learnt numbers of a row know nothing of new rows.
            features: nodes.features.or(Some(Box::new(Ones { path: table.path.clone(), count }))),
            labels: nodes.labels.column,
            columns: Vec::new(),
            splits: splits.map(|splits| (table.path.clone(), splits)),
        });
    }
    let raw = typed::of(path, raw_types, relations, options.edges, files)?;
    Ok(Raw { class_names, label_shape, ..raw })
}

/// Edges of the rows of a table.
struct KeyEdges {
    /// Source and target of each: the row that the row names, or [`NO_ROW`]; or the row itself.
    ends: [Option<Vec<u32>>; 2],
    count: u64,
    next: AtomicU64,
}

impl EdgeSource for KeyEdges {
    fn rewind(&self) -> Result<()> {
        self.next.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        const AT_A_TIME: u64 = 1 << 16;
        let start = self.next.load(Relaxed);
        (piece.start, piece.end) = (start, self.count.min(start + AT_A_TIME));
        self.next.store(piece.end, Relaxed);
        Ok(start < self.count)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        for row in piece.start..piece.end {
            let end =
                |rows: &Option<Vec<u32>>| rows.as_ref().map_or(row as u32, |of| of[row as usize]);
            let [source, target] = self.ends.each_ref().map(end);
            if source != NO_ROW && target != NO_ROW {
                batch.push(source.into(), target.into());
            }
        }
        Ok(())
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate { edges: self.count, vertices: self.count, bytes: 4 * self.count })
    }

    fn bytes_done(&self) -> u64 {
        4 * self.next.load(Relaxed)
    }
}

/// The features of the `count` rows of a table whose columns give none.
struct Ones {
    path: PathBuf,
    count: u64,
}

impl Column for Ones {
    describe_column!(self: &self.path, "feat", "<f4", 1, Some(self.count));

    fn read(&self, _: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        const AT_A_TIME: u64 = 1 << 14;
        let ones = 1f32.to_le_bytes().repeat(AT_A_TIME as usize);
        let mut starts = (0..self.count).step_by(AT_A_TIME as usize);
        starts.try_for_each(|row| take(&ones[..4 * AT_A_TIME.min(self.count - row) as usize]))
    }
}
