//! The second stage: labels, other columns and splits of the vertices, and the split of links.

use std::collections::BTreeSet;
use std::path::Path;

use gsplit_store::{DatasetWriter, LabelShape, Progress, Split};

use super::ConvertOptions;
use super::rows::RowOrder;
use crate::csc::IdMap;
use crate::read::options::Unseen;
use crate::read::raw::{Column, Raw, numbers};
use crate::read::text::field::{class, counted};
use crate::{Error, Result};

/// Name of the stage in the journal.
pub const STAGE: &str = "nodes";

/// Writes the node columns and the splits.
pub fn write(
    raw: &Raw,
    options: &ConvertOptions,
    writer: &mut DatasetWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let (n, scratch) = (writer.num_vertices(), writer.scratch());
    let order = RowOrder::of(raw, writer, &options.read.schema)?;
    order.say(progress);
    let rows = OrderedRows {
        order: &order,
        n,
        without: raw.types.as_ref().map_or(raw.rows_taken_over, |types| types.without_labels),
        scratch: &scratch,
        progress,
    };
    // The class of each vertex where it has one, and 0 for others that are labelled; else -1.
    let (mut classes, mut labelled) = (None, None);
    // Vertices for inference need neither labels nor splits.
    let is_new = options.read.recipe.is_some();
    match &raw.labels {
        Some(column) if raw.label_shape == Some(LabelShape::Number) => {
            labelled = Some(write_numbers(column.as_ref(), &rows, writer)?);
        }
        Some(column)
            if column.width() == 1 && !matches!(raw.label_shape, Some(LabelShape::Classes(_))) =>
        {
            let takes_unseen = options.read.schema.unseen == Some(Unseen::Other);
            let labels = class_of_each(column.as_ref(), raw.label_shape, takes_unseen, &rows)?;
            // Vertices for inference need not include every class.
            if !is_new {
                note_empty_classes(&labels, raw.class_names.as_deref(), progress);
            }
            classes = Some(labels);
        }
        Some(column) => match one_hot(column.as_ref(), raw.label_shape, &rows)? {
            Some(labels) => {
                if raw.label_shape.is_none() {
                    progress.decide("labels: each row contains a single 1: one class per vertex");
                }
                classes = Some(labels);
            }
            None => labelled = Some(write_multi_labels(column.as_ref(), raw, &rows, writer)?),
        },
        None => {}
    }
    if let Some(labels) = &classes {
        let mut out = writer.label_writer()?;
        out.push(labels)?;
        let unlabelled = labels.iter().filter(|&&label| label < 0).count() as u64;
        note_unlabelled(unlabelled, &rows, writer);
        let names = raw.class_names.as_ref().map_or(0, |names| names.len() as u32);
        let count = match raw.label_shape {
            Some(LabelShape::Class(count)) => count,
            _ => names.max((out.largest() + 1) as u32),
        };
        writer.add_label_column(out, count)?;
    }
    if let Some(recipe) = &raw.recipe {
        writer.set_recipe(recipe);
    }
    if let Some(names) = &raw.class_names {
        writer.name_classes(names)?;
    }
    for column in &raw.columns {
        let mut out = writer.node_column_writer(column.name(), column.descr(), column.width())?;
        rows.read(column.as_ref(), &mut |bytes| Ok(out.push(bytes)?))?;
        writer.add_node_column(column.name(), out)?;
    }
    writer.set_vertex_weights(&raw.vertex_weights)?;
    let has_labels = raw.labels.is_some();
    let drawn =
        options.random_split.filter(|split| !split.is_auto || (raw.splits.is_none() && has_labels));
    if drawn.is_some_and(|split| split.is_auto) {
        let of_each = if classes.is_some() { " of each class" } else { "" };
        progress.decide(&format!(
            "splits: the input has none: drawn at random, 0.6 of the labelled vertices{of_each} to \
             train, 0.2 valid, 0.2 test"
        ));
    }
    let splits = match (&drawn, &raw.splits) {
        (Some(split), _) => {
            let labelled = classes.as_deref().or(labelled.as_deref());
            Some(split.draw(n as usize, labelled, options.seed))
        }
        (None, Some(splits)) => {
            let found = vertices(splits, &IdMap::of(writer)?, n);
            // Splits come with the vertices, where these are from elsewhere.
            Some(found.map_err(|error| match &options.read.nodes {
                Some(path) => error.at(path),
                None => error,
            })?)
        }
        (None, None) => None,
    };
    match splits {
        Some(splits) => {
            for (split, vertices) in Split::ALL.into_iter().zip(splits) {
                writer.add_split(split, vertices)?;
            }
        }
        None if raw.links.is_some() => {
            progress.note(
                "note: splits are of links, for train --task link; presample needs \
                           splits of vertices: pass --random-split",
            );
        }
        None => {}
    }
    super::links::write(raw, writer)
}

/// Reads rows of columns in the order of the vertices.
struct OrderedRows<'a> {
    order: &'a RowOrder,
    n: u64,
    /// Number of vertices copied from a dataset or of types without labels.
    without: u64,
    scratch: &'a Path,
    progress: &'a dyn Progress,
}

impl OrderedRows<'_> {
    fn read(&self, column: &dyn Column, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.order.read(column, self.n, self.scratch, self.progress, take)
    }

    /// Calls `take` with every number of `column` and its place in the row. A problem gets the row.
    fn for_each(
        &self,
        column: &dyn Column,
        mut take: impl FnMut(usize, f64) -> Result<(), String>,
    ) -> Result<()> {
        let (mut row, mut at) = (0, 0);
        self.read(column, &mut |bytes| {
            for number in numbers(column.descr(), bytes) {
                take(at, number).map_err(|problem| column.error(row, at, &problem))?;
                at += 1;
                if at == column.width() {
                    (row, at) = (row + 1, 0);
                }
            }
            Ok(())
        })
    }
}

/// The class of each vertex, -1 if unlabelled: 4 bytes per vertex. A class that `shape` does not
/// have is refused, or counts as unlabelled if `takes_unseen`.
fn class_of_each(
    column: &dyn Column,
    shape: Option<LabelShape>,
    takes_unseen: bool,
    rows: &OrderedRows<'_>,
) -> Result<Vec<i32>> {
    let (mut labels, mut unseen): (Vec<i32>, u64) = (Vec::new(), 0);
    rows.for_each(column, |_, number| {
        let class = class(number, rows.n as usize)?;
        let is_unseen = matches!(shape, Some(LabelShape::Class(classes)) if i64::from(class) >= i64::from(classes));
        if is_unseen && !takes_unseen {
            return Err(format!(
                "{class} is not a class of the recipe: pass --schema unseen=other to count it as \
                 unlabelled, or leave the column out of the table"
            ));
        }
        unseen += u64::from(is_unseen);
        labels.push(if is_unseen { -1 } else { class });
        Ok(())
    })?;
    if unseen > 0 {
        let path = column.path().display();
        rows.progress.decide(&format!(
            "note: {path}: {unseen} rows are of classes that the recipe does not have: they count \
             as unlabelled"
        ));
    }
    Ok(labels)
}

/// Reports the number of vertices without a label.
fn note_unlabelled(unlabelled: u64, rows: &OrderedRows<'_>, writer: &mut DatasetWriter) {
    let (unlabelled, n) = (unlabelled.saturating_sub(rows.without), rows.n - rows.without);
    writer.facts_mut().insert("unlabelled".into(), unlabelled);
    if unlabelled > 0 {
        rows.progress.decide(&format!("labels: {unlabelled} of {n} vertices are unlabelled"));
    }
}

/// Notes classes below the largest that no vertex has: a model still gets an output for each.
fn note_empty_classes(labels: &[i32], names: Option<&[String]>, progress: &dyn Progress) {
    let there: BTreeSet<usize> =
        labels.iter().filter_map(|&label| usize::try_from(label).ok()).collect();
    let count = names.map_or(0, <[String]>::len).max(there.last().map_or(0, |last| last + 1));
    let empty = count - there.len();
    if empty > 0 {
        let first =
            there.iter().enumerate().position(|(at, &class)| at != class).unwrap_or(there.len());
        let name = names
            .and_then(|names| names.get(first))
            .map_or(first.to_string(), |name| format!("`{name}`"));
        let have = if empty == 1 { "has" } else { "have" };
        progress.note(&format!(
            "note: labels: {empty} of {count} classes {have} no vertex, e.g. class {name}: gaps in \
             class numbers make outputs that are never trained"
        ));
    }
}

/// Writes one number per vertex as its label. Returns 0 for each vertex that has a number and -1
/// for the others: 8 bytes per vertex.
fn write_numbers(
    column: &dyn Column,
    rows: &OrderedRows<'_>,
    writer: &mut DatasetWriter,
) -> Result<Vec<i32>> {
    if column.width() > 1 {
        return Err(column.error(
            0,
            0,
            "--schema label-kind=number: expected one number per vertex",
        ));
    }
    let mut labels: Vec<f32> = Vec::new();
    rows.for_each(column, |_, number| {
        labels.push(number as f32);
        match number.is_infinite() || (number as f32).is_infinite() {
            true => Err(format!("label {number}: expected a finite 32-bit number")),
            false => Ok(()),
        }
    })?;
    let unlabelled = labels.iter().filter(|label| label.is_nan()).count() as u64;
    note_unlabelled(unlabelled, rows, writer);
    writer.add_numeric_labels(&labels)?;
    Ok(labels.iter().map(|label| if label.is_nan() { -1 } else { 0 }).collect())
}

/// The class of each vertex, if every row of `column` is all zeros except a single one. If `shape`
/// says that a vertex has one class, a missing value is a zero, and a row of zeros is unlabelled.
/// `None`: the rows are sets of classes.
fn one_hot(
    column: &dyn Column,
    shape: Option<LabelShape>,
    rows: &OrderedRows<'_>,
) -> Result<Option<Vec<i32>>> {
    let width = column.width();
    let is_class = match shape {
        Some(LabelShape::Class(classes)) => {
            expect_width(column, classes)?;
            true
        }
        Some(_) => return Ok(None),
        None => false,
    };
    let (mut labels, mut class, mut is_one_hot) = (Vec::new(), None, true);
    let read = rows.for_each(column, |at, number| {
        let is_zero = number == 0.0 || (is_class && number.is_nan());
        is_one_hot &= is_zero || (number == 1.0 && class.is_none());
        class = if number == 1.0 { Some(at as i32) } else { class };
        if at + 1 == width {
            is_one_hot &= is_class || class.is_some();
            labels.push(class.take().unwrap_or(-1));
        }
        // Stop reading: the rest does not matter.
        match is_one_hot {
            true => Ok(()),
            false => {
                Err(format!("label {number}: expected a single 1 among zeros, as in the recipe"))
            }
        }
    });
    // If the rows are sets of classes, their writer reports any other error.
    if is_one_hot || is_class { read.map(|()| Some(labels)) } else { Ok(None) }
}

/// Refuses rows whose width is not the number of `classes` of the recipe.
fn expect_width(column: &dyn Column, classes: u32) -> Result<()> {
    if column.width() == classes as usize {
        return Ok(());
    }
    let problem = format!(
        "{} values for each vertex: expected {classes}, one for each class of the recipe",
        column.width()
    );
    Err(Error::input(column.path(), format!("{}: {problem}", column.name())))
}

/// Writes a set of classes per vertex: bit c of its row. NaN is a cell without a value. Returns 0
/// for each vertex that has a value for some class and -1 for the others: 4 bytes per vertex.
fn write_multi_labels(
    column: &dyn Column,
    raw: &Raw,
    rows: &OrderedRows<'_>,
    writer: &mut DatasetWriter,
) -> Result<Vec<i32>> {
    let width = column.width();
    if let Some(LabelShape::Classes(classes)) = raw.label_shape {
        expect_width(column, classes)?;
    }
    let classes = u32::try_from(width).map_err(|_| column.error(0, 0, "too many classes"))?;
    let mut out = writer.multi_label_writer(classes)?;
    let [mut packed, mut known] = [(); 2].map(|()| vec![0u8; width.div_ceil(8)]);
    let (mut row, mut at, mut without) = (0u64, 0, 0u64);
    let (mut labelled, mut missing) = (Vec::new(), vec![0u64; width]);
    rows.read(column, &mut |bytes| {
        for number in numbers(column.descr(), bytes) {
            let bit = 1 << (at % 8);
            match number {
                0.0 | 1.0 => {
                    known[at / 8] |= bit;
                    packed[at / 8] |= if number == 1.0 { bit } else { 0 };
                }
                number if number.is_nan() => missing[at] += 1,
                other => {
                    let problem =
                        format!("label {other}: expected 0 or 1 for each of the {width} classes");
                    return Err(column.error(row, at, &problem));
                }
            }
            at += 1;
            if at == width {
                let num_known: u32 = known.iter().map(|bits| bits.count_ones()).sum();
                match num_known == classes {
                    true => out.push(&packed)?,
                    false => out.push_known(&packed, &known)?,
                }
                labelled.push(if num_known > 0 { 0 } else { -1 });
                without += u64::from(num_known > 0 && packed.iter().all(|&bits| bits == 0));
                packed.fill(0);
                known.fill(0);
                (at, row) = (0, row + 1);
            }
        }
        Ok(())
    })?;
    let n = rows.n - rows.without;
    if without > 0 {
        rows.progress.decide(&format!("labels: {without} of {n} vertices have no class"));
    }
    if missing.iter().any(|&cells| cells > 0) {
        let unlabelled = labelled.iter().filter(|&&label| label < 0).count() as u64;
        note_unlabelled(unlabelled, rows, writer);
        note_missing(&missing, raw, rows, writer);
    }
    writer.add_multi_labels(out)?;
    Ok(labelled)
}

/// Reports the number of cells without a value; `missing` counts them by class.
fn note_missing(missing: &[u64], raw: &Raw, rows: &OrderedRows<'_>, writer: &mut DatasetWriter) {
    writer.facts_mut().insert("label_cells_missing".into(), missing.iter().sum());
    // The others have no value for any class.
    let of_rows: Vec<u64> =
        missing.iter().map(|cells| cells.saturating_sub(rows.without)).collect();
    let Some(first) = of_rows.iter().position(|&cells| cells > 0) else { return };
    let name = raw.class_names.as_ref().map_or(first.to_string(), |names| names[first].clone());
    rows.progress.decide(&format!(
        "labels: {} without a value, in {} of {} classes, e.g. `{name}`: left out of the loss and \
         the scores",
        counted(of_rows.iter().sum(), "cell"),
        of_rows.iter().filter(|&&cells| cells > 0).count(),
        of_rows.len()
    ));
}

/// The vertices of the splits, which are given by ids of the input. Splits may not overlap.
fn vertices(splits: &[Vec<u64>; 3], ids: &IdMap, n: u64) -> Result<[Vec<u32>; 3]> {
    let mut owner: Vec<Option<Split>> = vec![None; n as usize];
    let mut found: [Vec<u32>; 3] = Default::default();
    for ((split, listed), vertices) in Split::ALL.into_iter().zip(splits).zip(&mut found) {
        for &id in listed {
            let vertex = ids.find(id);
            let name = split.name();
            let vertex = vertex.ok_or_else(|| {
                Error::Graph(format!(
                    "the {name} split names {}, which is not a vertex",
                    ids.unknown(id)
                ))
            })?;
            match owner[vertex as usize].replace(split) {
                None => vertices.push(vertex),
                Some(other) => {
                    let other = other.name();
                    let id = ids.original(vertex);
                    let problem = match other == name {
                        true => {
                            format!("the {name} split lists vertex {id} twice: expected each once")
                        }
                        false => format!(
                            "vertex {id} is in the {other} split and in {name}: splits must not \
                             overlap"
                        ),
                    };
                    return Err(Error::Graph(problem));
                }
            }
        }
    }
    Ok(found)
}
