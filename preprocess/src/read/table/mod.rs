//! Tables of edges and of vertices: Parquet, Arrow IPC, and CSV with a header line; a file, or a folder of parts as Spark,
//! DuckDB and Dask write it.
//!
//! ```text
//! parts    which files, and their format
//! choice   which columns are ids, and which are values
//! frames   Parquet and Arrow files by groups of rows ──▶ columnar (ids and values, piece by piece) ──▶ EdgeSource
//! csv      text by lines                                                                           ──▶ EdgeSource
//! nodes    the same for a table of vertices: ids, features, labels, splits, columns
//!          labels (classes, or numbers to learn)      splits (words, or flags)
//!          multi_hot (lists of features in JSON)
//!          roles (which column is what, by names and statistics; ids, left_out) ──▶ recipe (how it becomes numbers)
//!          ──▶ rows (cell by cell) ──▶ features (the numbers)
//! exchanged    whether the tables of edges and of vertices are, where a conversion failed
//! ```
//!
//! A row is an edge. Ids are integers, or strings that are hashed with XXH3-64. Of Parquet's and Arrow's types, floats
//! become f32 and doubles f64; integers and booleans become i64; lists of one length become wide columns. Strings, dates and
//! the like are left out, with a note.
//!
//! In memory are the footers of all parts, and for each thread one piece: at most 2^17 rows of the columns that are read, or
//! 1 MiB of text. A compressed Arrow batch is decoded as a whole.

use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use crate::read::bipartite::are_two_kinds;
use crate::read::options::EdgeTableOptions;
use crate::read::raw::{Ids, Raw};
use crate::{Error, Result};

mod cells;
pub mod choice;
mod column;
mod columnar;
mod csv;
mod ends;
mod exchanged;
mod features;
mod frames;
mod giveaway;
mod header;
mod ids;
mod ipc;
mod labels;
mod left_out;
mod multi_hot;
mod nodes;
mod parquet;
mod parts;
mod plain;
mod recipe;
mod roles;
mod rows;
mod sheet;
mod splits;
mod statistics;

pub use exchanged::exchanged;
pub use nodes::nodes;
pub use parts::{TableFormat, by_name, is_document};
pub use statistics::Moments;

use choice::{Choice, Field, IdKind, choose};
use columnar::Columnar;
use csv::Text;
use multi_hot::MultiHot;
use sheet::Sheet;

/// Opens the table of edges at `path`, a file or a folder of parts; or a folder of two tables, `edges` and, where there is
/// one, `nodes`, each a file or a folder; or `NAME_edges.csv`, `NAME_target.csv` and `NAME_features.json` of MUSAE. `--nodes` is for the caller, and wins over the table in the folder.
pub fn open(path: &Path, options: &EdgeTableOptions<'_>, progress: &dyn Progress) -> Result<Raw> {
    open_as(path, None, options, progress)
}

/// Like [`open`]; files whose content and name do not show their format are `unnamed`.
pub fn open_as(
    path: &Path,
    unnamed: Option<TableFormat>,
    options: &EdgeTableOptions<'_>,
    progress: &dyn Progress,
) -> Result<Raw> {
    let Some(edges) = member(path, &["edges"], false)? else { return open_edges(path, unnamed, options, progress) };
    let mut raw = open_edges(&edges, unnamed, options, progress)?;
    let Some(of_nodes) = options.nodes else { return Ok(raw) };
    let lists = member(path, &["features"], true)?;
    let Some(table) = member(path, &["nodes", "target"], false)? else {
        return match lists {
            None => Ok(raw),
            Some(lists) => {
                Err(Error::input(lists, "features without a table of vertices: expected *nodes.* or *target.*"))
            }
        };
    };
    let of_nodes = if lists.is_some() { of_nodes.beside_features() } else { of_nodes.clone() };
    nodes(&table, Some(raw.edges.as_ref()), &of_nodes, options.text, options.memory, progress)?.attach(&mut raw)?;
    if let (Some(lists), Some(ids)) = (lists, &raw.node_ids) {
        if raw.features.is_some() {
            let problem = "--feature-columns and --encode: the features are those of";
            return Err(Error::Option(format!("{problem} {}: leave both out, or move it away", lists.display())));
        }
        raw.features = Some(Box::new(MultiHot::open(&lists, ids.as_ref())?));
        // Features are not columns of this table.
        raw.recipe = None;
        // The table stays the last: messages on rows name it.
        raw.files.insert(0, lists);
    }
    Ok(raw)
}

/// The table in the folder at `path` with one of these `names`: `edges`, or `edges.parquet`, `edges.csv.gz` and the like, or
/// `NAME_edges.csv`; or else, `as_json`, the document `NAME_edges.json`.
fn member(path: &Path, names: &[&str], as_json: bool) -> Result<Option<PathBuf>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for entry in gsplit_store::entries(path).map_err(Error::io(path))? {
        let file = entry.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        let (stem, ending) = file.split_once('.').unwrap_or((&file, ""));
        let named = names.iter().any(|name| {
            let table = stem == *name && (entry.is_dir() || file.contains('.'));
            let prefixed = stem.strip_suffix(name).is_some_and(|stem| stem.ends_with('_')) && by_name(&entry).is_some();
            if as_json { stem.ends_with(name) && ending == "json" } else { ending != "json" && (table || prefixed) }
        });
        if named {
            found.push(entry);
        }
    }
    found.sort();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => {
            let problem = format!("holds {count} tables `{}`: expected one; name its path", names.join("` or `"));
            Err(Error::input(path, problem))
        }
    }
}

fn open_edges(
    path: &Path,
    unnamed: Option<TableFormat>,
    options: &EdgeTableOptions<'_>,
    progress: &dyn Progress,
) -> Result<Raw> {
    let (files, format) = parts::parts(path, unnamed, progress)?;
    note_left_out(path, &parts::folder_columns(path, &files), "which folder names hold", progress);
    if format == TableFormat::Csv {
        let sheet = Sheet::open(path, &files, options.text, options.na, progress)?;
        let mut fields = without_index(sheet.fields());
        // The line of a stray among ids is found where it is read.
        sheet.mostly_numbers().for_each(|at| fields[at].id = Some(IdKind::Number));
        let fields = with_ids_of(fields, options.text.id_type);
        check_named(&fields, &sheet, options)?;
        let choice = choose(path, &fields, sheet.header.is_none(), options);
        let choice = choice.map_err(|error| with_fraction(error, &sheet))?;
        if sheet.header.is_some() && options.edge_columns.is_none() {
            let is_free =
                |at: &usize| !choice.ids.contains(at) && !choice.values.contains(at) && !fields[*at].is_index();
            (0..fields.len()).filter(is_free).try_for_each(|at| sheet.check_stray(at))?;
        }
        ask_for_kinds(path, &fields, &choice, options)?;
        match sheet.header {
            Some(_) => say_choice(path, &fields, &choice, options, progress),
            None => say_unnamed(path, &fields, &choice, progress),
        }
        note_readings(path, &sheet.readings(), progress);
        let ids = ids_of(path, choice.kind, options)?;
        return Ok(Raw::of(Text::new(sheet, &choice.ids, &choice), ids, files));
    }
    let parts = frames::open(path, &files, format, options.memory, options.na, progress)?;
    let fields = with_ids_of(without_index(columnar::fields(&parts)?), options.text.id_type);
    note_readings(path, &plain::readings(&parts), progress);
    let choice = choose(path, &fields, false, options)?;
    ask_for_kinds(path, &fields, &choice, options)?;
    say_choice(path, &fields, &choice, options, progress);
    let ids = ids_of(path, choice.kind, options)?;
    let bytes = total_bytes(&files)?;
    Ok(Raw::of(Columnar::new(&parts, &choice.ids, &choice, bytes)?, ids, files))
}

/// The columns, where the index that pandas writes can be nothing.
fn without_index(mut fields: Vec<Field>) -> Vec<Field> {
    fields.iter_mut().filter(|field| field.is_index()).for_each(|field| (field.id, field.value) = (None, None));
    fields
}

/// The columns with ids of the type requested by the user.
fn with_ids_of(mut fields: Vec<Field>, id_type: Option<IdKind>) -> Vec<Field> {
    fields.iter_mut().filter(|field| field.id.is_some()).for_each(|field| field.id = id_type.or(field.id));
    fields
}

/// Refuses a stray string among the numbers of a column that the options name.
fn check_named(fields: &[Field], sheet: &Sheet, options: &EdgeTableOptions<'_>) -> Result<()> {
    let names = options.edge_columns.into_iter().flatten().map(String::as_str).chain(options.edge_weights);
    let names = names.map(|name| name.split_once('=').map_or(name, |(name, _)| name));
    let mut places = names.filter_map(|name| fields.iter().position(|field| field.name.eq_ignore_ascii_case(name)));
    places.try_for_each(|at| sheet.check_stray(at))
}

/// Adds the fraction that keeps a column from being an end to the question for the ends of an edge.
fn with_fraction(error: Error, sheet: &Sheet) -> Error {
    match error {
        Error::Input { path, line, problem } if problem.contains("integers or strings") => {
            let problem = problem + &sheet.fraction().unwrap_or_default();
            Error::Input { path, line, problem }
        }
        error => error,
    }
}

/// Ids of tables have gaps, unless they are to be kept.
fn ids_of(path: &Path, kind: IdKind, options: &EdgeTableOptions<'_>) -> Result<Ids> {
    match (kind, options.keep_ids) {
        (IdKind::Text, true) => {
            let problem = "the ids are strings, which --keep-ids cannot keep: they become numbers, and nodes/original_id keeps the strings";
            Err(Error::Option(format!("{}: {problem}", path.display())))
        }
        (_, true) => Ok(Ids::Dense(None)),
        (_, false) => Ok(Ids::Sparse),
    }
}

/// Asks whether ids are of two kinds, where the names of their columns say so and the numbers do not.
fn ask_for_kinds(path: &Path, fields: &[Field], choice: &Choice, options: &EdgeTableOptions<'_>) -> Result<()> {
    let [source, target] = choice.ids.map(|at| fields[at].name.as_str());
    match choice.kind == IdKind::Number && options.bipartite.is_none() && are_two_kinds(source, target) {
        false => Ok(()),
        true => {
            let problem = format!(
                "`{source}` and `{target}` name two kinds of vertices, whose numbers may be the same: pass --bipartite to keep them apart, \
                 or --bipartite=no if they are of one kind"
            );
            Err(Error::input(path, problem))
        }
    }
}

/// Reports which columns are the edges, and which were left out because of their values.
fn say_choice(path: &Path, fields: &[Field], choice: &Choice, options: &EdgeTableOptions<'_>, progress: &dyn Progress) {
    let [source, target] = choice.ids.map(|at| &fields[at].name);
    progress.decide(&format!("{}: edges from `{source}` to `{target}`", path.display()));
    choice::note_index(path, fields, None, progress);
    if options.edge_columns.is_none() {
        choice::note_left_out(path, fields, &choice.ids, "", progress);
    }
}

/// Like [`say_choice`], for a list without a header.
fn say_unnamed(path: &Path, fields: &[Field], choice: &Choice, progress: &dyn Progress) {
    let [source, target] = choice.ids.map(|at| &fields[at].name);
    progress.decide(&format!("{}: no header; edges from column {source} to column {target}", path.display()));
    if fields.len() > 2 + choice.values.len() {
        progress.decide(&format!(
            "note: {}: more than two columns; the others are ignored: name them with --edge-columns to keep them",
            path.display()
        ));
    }
}

/// Reports columns whose cells are not plain numbers.
fn note_readings(path: &Path, readings: &[(&'static str, Vec<String>)], progress: &dyn Progress) {
    for (reading, columns) in readings.iter().filter(|(_, columns)| !columns.is_empty()) {
        progress.decide(&format!("{}: {reading}: {}", path.display(), columns.join(", ")));
    }
}

fn note_left_out(path: &Path, columns: &[String], why: &str, progress: &dyn Progress) {
    if !columns.is_empty() {
        progress.decide(&format!("{}: left out the columns {}, {why}", path.display(), columns.join(", ")));
    }
}

/// Bytes of all `files`.
fn total_bytes(files: &[PathBuf]) -> Result<u64> {
    let length = |path: &PathBuf| Ok(std::fs::metadata(path).map_err(Error::io(path))?.len());
    files.iter().map(length).sum()
}

#[cfg(test)]
mod tests;
