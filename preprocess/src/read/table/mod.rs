//! Tables of edges and of vertices: Parquet, Arrow IPC, and CSV with a header line; a file, or a
//! folder of parts as Spark, DuckDB and Dask write it.
//!
//! ```text
//! parts    which files, and their format (folders: columns that folder names give)
//! frames   Parquet and Arrow files by groups of rows      ─┐
//! sheet    text: styles and types (contents), cells (cut) ┴─▶ rows: a table of any format by columns (cells, numbers)
//! choice   which columns of a table of edges are ids, and which are values (ends, header)     ──▶ source: EdgeSource
//! nodes    the same for a table of vertices: ids, features, labels, splits, columns
//!          labels (classes, or numbers to learn)      splits (words, or flags)
//!          roles (which column is what, by names and statistics; ids, left_out) ──▶ recipe (how it becomes numbers)
//!          ──▶ features (the numbers)
//! keyed    several tables of vertices, whose keys make the edges (keys)
//! ```
//!
//! A row is an edge. Ids are integers, or strings that are hashed with XXH3-64. Of Parquet's and
//! Arrow's types, floats become f32 and doubles f64; integers and booleans become i64; lists of one
//! length become wide columns; dates become days. Strings that are not ids are left out, with a note.
//!
//! In memory are the footers of all parts, and for each thread one piece: at most 2^17 rows of the
//! columns that are read, or 1 MiB of text. A compressed Arrow batch is decoded as a whole.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gsplit_store::{LeftOut, Progress};

use crate::edges::{EdgeBatch, EdgeSource, Piece};
use crate::read::options::{Answer, ReadOptions, Schema};
use crate::read::raw::{Ids, Raw};
use crate::read::schema::Decided;
use crate::read::text::{name_of, some};
use crate::{Error, Result};

mod cells;
pub mod choice;
mod contents;
mod cut;
mod ends;
mod features;
mod folders;
mod frames;
mod giveaway;
mod header;
mod ids;
mod ipc;
pub mod keyed;
mod keys;
mod labels;
mod left_out;
mod nodes;
mod numbers;
mod parquet;
mod parts;
mod plain;
mod recipe;
mod roles;
mod rows;
mod sheet;
mod source;
mod splits;
mod statistics;

pub use nodes::nodes;
pub use parts::{TableFormat, by_name, is_document};
pub use statistics::Moments;

use choice::{Choice, Field, IdKind, choose};
use rows::Table;
use sheet::Sheet;
use source::TableSource;

/// Opens the table of edges at `path`, a file or a folder of parts; or a folder of two tables,
/// `edges` and, where there is one, `nodes`, each a file or a folder; or `NAME_edges.csv` and
/// `NAME_nodes.csv`. The table of vertices is for the caller to attach, and `--nodes` wins over it.
/// Files whose content and name do not show their format are `unnamed`.
pub fn open(
    path: &Path,
    unnamed: Option<TableFormat>,
    options: &ReadOptions,
    progress: &dyn Progress,
    decisions: &mut Vec<String>,
) -> Result<Raw> {
    let open_edges = |path: &Path, decisions: &mut Vec<String>| {
        Table::of(path, unnamed, options.text(), options, progress, decisions)
            .and_then(|table| edges(table, options, decisions))
            .map_err(|error| error.at(path))
    };
    let Some(edges) = member(path, &["edges"])? else { return open_edges(path, decisions) };
    let raw = open_edges(&edges, decisions)?;
    let nodes = member(path, &["nodes", "target"])?.filter(|_| options.nodes.is_none());
    let is_other = |entry: &&PathBuf| {
        **entry != edges
            && Some(*entry) != nodes.as_ref()
            && !name_of(entry).starts_with(['.', '_'])
    };
    let entries = gsplit_store::entries(path).map_err(Error::io(path))?;
    let others: Vec<String> = entries.iter().filter(is_other).map(|entry| name_of(entry)).collect();
    if !others.is_empty() {
        decisions.push(format!(
            "note: {}: not read: {}. --nodes names a table of vertices",
            path.display(),
            some(&others)
        ));
    }
    Ok(Raw { nodes, ..raw })
}

/// The table in the folder at `path` with one of these `names`: `edges`, or `edges.parquet`,
/// `edges.csv.gz` and the like, or `NAME_edges.csv`.
fn member(path: &Path, names: &[&str]) -> Result<Option<PathBuf>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let mut found = gsplit_store::entries(path).map_err(Error::io(path))?;
    found.retain(|entry| {
        let file = name_of(entry);
        let (stem, ending) = file.split_once('.').unwrap_or((&file, ""));
        let is_named = |name: &&str| {
            let is_table = stem == *name && (entry.is_dir() || file.contains('.'));
            is_table
                || stem.strip_suffix(name).is_some_and(|stem| stem.ends_with('_'))
                    && by_name(entry).is_some()
        };
        ending != "json" && names.iter().any(is_named)
    });
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => {
            let problem = format!(
                "holds {count} tables `{}`: expected one; name its path",
                names.join("` or `")
            );
            Err(Error::input(path, problem))
        }
    }
}

/// The graph of the edges in `table`.
fn edges(table: Table, options: &ReadOptions, decisions: &mut Vec<String>) -> Result<Raw> {
    let schema = &options.schema;
    let fields = with_ids_of(&table, schema.id_type);
    ask_for_splits(&table, schema)?;
    let (is_unnamed, examples) = (table.is_unnamed(), |at: usize| table.examples(at));
    let choice = choose(&table.path, &fields, is_unnamed, schema, &examples);
    let choice = choice.map_err(|error| match error {
        Error::Graph(problem) if problem.contains("integers or strings") => {
            Error::Graph(problem + &table.sheet().and_then(Sheet::fraction).unwrap_or_default())
        }
        error => error,
    })?;
    let chosen = match is_unnamed {
        true => lines_unnamed(&fields, &choice),
        false => lines_named(&fields, &choice, schema),
    };
    decisions.extend(chosen.into_iter().chain(table.readings()).map(|text| table.with_path(&text)));
    let ids = ids_of(&table, choice.kind, options)?;
    let (decided, files) = (decided(&table, &fields, &choice, schema), table.files());
    let source = TableSource::new(table, &choice.ids, &choice);
    if !is_unnamed {
        ask_for_meaning(&fields, &choice, &source, schema)?;
    }
    Ok(Raw { decided, ..Raw::of(source, ids, files) })
}

/// How the text of a table is cut and its cells are written.
fn decided_cells(table: &Table) -> Schema {
    let Some(sheet) = table.sheet() else { return Schema::default() };
    // No value of the key takes a comment for the header.
    let is_comment = sheet.header.as_ref().is_some_and(|header| header.text.starts_with(b"#"));
    let header = if sheet.header.is_some() { Answer::Yes } else { Answer::No };
    Schema {
        header: (!is_comment).then_some(header),
        delimiter: Some(sheet.delimiter),
        decimal: sheet.decimal(),
        date_order: sheet.date_order(),
        ..Schema::default()
    }
}

/// The decisions on a table of edges, read by the keys that are `given`.
fn decided(table: &Table, fields: &[Field], choice: &Choice, given: &Schema) -> Decided {
    let name = |at: usize| fields[at].name.clone();
    let [source, target] = choice.ids;
    let mut values: Vec<_> = choice.values.iter().copied().zip(&choice.columns).collect();
    values.truncate(values.len() - usize::from(given.edge_weights.is_some()));
    let kept = values.iter().map(|&(at, column)| match choice::edge_column(&fields[at]) {
        _ if table.is_unnamed() => column.name.clone(),
        Some(own) if own.name == column.name => name(at),
        _ => format!("{}={}", name(at), column.name),
    });
    let used = [&choice.ids[..], &choice.values].concat();
    let free = (0..fields.len()).filter(|at| !used.contains(at) && !fields[*at].is_index());
    let why = |at: usize| match &fields[at] {
        field if field.is_empty => "it is empty in every row",
        field if field.value.is_none() => "it does not hold numbers",
        _ => "edge-columns does not name it",
    };
    Decided {
        schema: Schema {
            id_type: Some(choice.kind),
            source_column: Some(name(source)),
            target_column: Some(name(target)),
            edge_columns: Some(choice::or_none(kept.collect())),
            bipartite: given.bipartite.or(Some(Answer::No)),
            ..decided_cells(table)
        },
        left_out: free.map(|at| LeftOut { column: name(at), why: why(at).into() }).collect(),
        open: Vec::new(),
    }
}

/// The columns with ids of the type requested by the user. The index that pandas writes can be
/// nothing. Columns of numbers with a few strings hold numbers: reading them refuses the first
/// string with its line.
fn with_ids_of(table: &Table, id_type: Option<IdKind>) -> Vec<Field> {
    let mut fields = table.fields.clone();
    for (at, field) in fields.iter_mut().enumerate() {
        if field.is_index() {
            (field.id, field.value) = (None, None);
        }
        if at >= table.num_own() {
            field.id = None;
        } else if let Some(sheet) = table.sheet()
            && let Some(numbers) = sheet.numbers_with_strays(at)
        {
            field.value = Some((numbers, 1));
            field.id = if sheet.are_mostly_whole(at) { Some(IdKind::Number) } else { field.id };
        }
        field.id = field.id.map(|id| id_type.unwrap_or(id));
    }
    fields
}

/// Asks about folders that are called by the splits, e.g. `split=train`.
fn ask_for_splits(table: &Table, schema: &Schema) -> Result<()> {
    let of_folders = (0..table.fields.len()).filter_map(|at| table.folder(at));
    for folder in of_folders.filter(|_| schema.one_table != Some(Answer::Yes)) {
        let names: HashSet<&str> = folder.values().filter(|name| splits::is_named(name)).collect();
        if names.len() >= 2 {
            return Err(Error::Graph(format!(
                "its folders name splits in `{}`: pass --schema one-table=yes to make one graph of \
                 all edges, which the model is then trained on, or name the folder of those for \
                 training",
                folder.field.name
            )));
        }
    }
    Ok(())
}

/// Ids of tables have gaps, unless they are to be kept.
fn ids_of(table: &Table, kind: IdKind, options: &ReadOptions) -> Result<Ids> {
    match (kind, options.keep_ids) {
        (IdKind::Text, true) => {
            let problem = "the ids are strings, which --keep-ids cannot keep: they become numbers, and nodes/original_id keeps the strings";
            Err(Error::Option(table.with_path(problem)))
        }
        (_, true) => Ok(Ids::Dense(None)),
        (_, false) => Ok(Ids::Sparse),
    }
}

/// Asks whether ids are of two kinds, where the names of their columns have different nouns; and
/// whether the rows are edges, where they may be vertices with their classes.
fn ask_for_meaning(
    fields: &[Field],
    choice: &Choice,
    source: &TableSource,
    schema: &Schema,
) -> Result<()> {
    /// Number of rows from which on their values are significant.
    const FEW_ROWS: usize = 8;
    let names = choice.ids.map(|at| fields[at].name.as_str());
    let may_be_two_kinds = schema.bipartite.is_none() && ends::are_two_kinds(names[0], names[1]);
    if choice.are_named && !may_be_two_kinds {
        return Ok(());
    }
    // Strays further below are refused where all rows are read.
    let (mut piece, mut batch) = (Piece::default(), EdgeBatch::default());
    if source.next(&mut piece)? && source.parse(&mut piece, &mut batch).is_err() {
        batch = EdgeBatch::default();
    }
    source.rewind()?;
    let [sources, targets] =
        [&batch.sources, &batch.targets].map(|ids| ids.iter().collect::<HashSet<&u64>>());
    let is_once = sources.len() == batch.sources.len();
    if !choice.are_named && is_once && sources.len() >= FEW_ROWS.max(4 * targets.len()) {
        let [one, other] = names;
        return Err(Error::Graph(format!(
            "`{one}` has another value in each row, and `{other}` only {}: are these vertices and \
             their classes? They come with --nodes. If they are edges, pass --source-column {one} \
             --target-column {other}",
            targets.len()
        )));
    }
    // Equal strings are one vertex, and so are equal numbers; only some pairs of kinds share them.
    if may_be_two_kinds && (choice.kind == IdKind::Number || !sources.is_disjoint(&targets)) {
        let [one, other] = names;
        return Err(Error::Graph(format!(
            "`{one}` and `{other}` name two kinds of vertices, whose ids may be the same: pass \
             --bipartite to keep them apart, or --bipartite=no if they are of one kind"
        )));
    }
    Ok(())
}

/// Lines on which columns are the edges, and which were left out because of their values.
fn lines_named(fields: &[Field], choice: &Choice, schema: &Schema) -> Vec<String> {
    let [source, target] = choice.ids.map(|at| &fields[at].name);
    let mut said = vec![format!("edges from `{source}` to `{target}`")];
    said.extend(choice::unused_index(fields, None));
    if schema.edge_columns.is_none() {
        said.extend(choice::unused(fields, &choice.ids, ""));
    }
    said
}

/// Like [`lines_named`], for a list without a header.
fn lines_unnamed(fields: &[Field], choice: &Choice) -> Vec<String> {
    let [source, target] = choice.ids.map(|at| &fields[at].name);
    let mut said = vec![format!("no header; edges from column {source} to column {target}")];
    if fields.len() > 2 + choice.values.len() {
        said.push(
            "note: more than two columns; the others are ignored: name them with --edge-columns \
             to keep them"
                .into(),
        );
    }
    said
}

#[cfg(test)]
mod tests;
