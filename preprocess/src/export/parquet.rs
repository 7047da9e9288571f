//! Parquet tables: one of edges, one of nodes, each a folder of parts, compressed with zstd.
//!
//! ```text
//! edges/part-00000.parquet   src, dst int64 (with --original-ids the input's numbers or strings), and the edge columns
//! nodes/part-00000.parquet   id int64, original_id where ids were changed, label int32 (null = unlabelled; several classes
//!                            a vertex: a list of 0, 1 and null), label_name where classes have names, split (train, valid, test or null), feat, and the node columns
//! ```
//!
//! Rows are in the dataset's order. Features are widened to float32 lists; every vertex has a row
//! of nodes, so isolated ones are kept. A part holds at most [`EDGES_PER_PART`] edges or about
//! [`PART_BYTES`] of nodes; each thread writes one part at a time and holds one row group of it.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, FixedSizeListArray, Float32Array, Int8Array, Int32Array,
    Int64Array, PrimitiveArray, RecordBatch, StringArray,
};
use arrow_schema::{ArrowError, Field, Schema};
use gsplit_store::{ColumnFile, Element, Error as StoreError, Progress, Stage, Unit};
use half::f16;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;

use super::edges::{for_each_edge, pieces};
use super::output::Target;
use super::source::{Labels, Original, Part, Source, column_rows, f32_rows};
use super::{ExportOptions, Written};
use crate::{Error, Result};

/// Edges of a part.
const EDGES_PER_PART: usize = 1 << 24;
/// About the bytes of a part of nodes, before compression.
const PART_BYTES: usize = 1 << 28;
/// About the bytes of a row group, before compression.
const GROUP_BYTES: usize = 1 << 25;
/// About the bytes that are handed to the writer at once.
const BATCH_BYTES: usize = 1 << 22;
/// About the bytes of a row beyond its lists.
const ROW_BYTES: usize = 64;

/// Column of the names of classes.
const LABEL_NAME: &str = "label_name";

/// Named columns of some rows.
type Columns = Vec<(String, ArrayRef)>;

/// Writes the folder.
pub(super) fn write(
    source: &Source<'_>,
    target: &mut Target,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<Written> {
    let topology = source.topology();
    let (n, m) = (topology.num_vertices(), topology.num_edges());
    let original = if options.original_ids { Some(source.wanted_original()?) } else { None };
    let edge_bytes =
        ROW_BYTES + source.edge_columns.iter().map(|(_, column)| row_bytes(column)).sum::<usize>();
    let stage = progress.stage("writing edges", Some(m as u64), Unit::Items("edges"));
    let rows = |range: Range<usize>| edge_rows(source, original.as_ref(), range);
    write_table(target, "edges", m, EDGES_PER_PART, edge_bytes, &["src", "dst"], &*stage, rows)?;
    drop(stage);

    let dim = source.features.as_ref().map_or(0, |table| 4 * table.dim());
    let columns: usize = source.node_columns.iter().map(|(_, column)| row_bytes(column)).sum();
    let classes = match &source.labels {
        Some(Labels::Multi(labels)) => labels.num_classes() as usize,
        _ => 0,
    };
    let node_bytes = ROW_BYTES + dim + columns + classes;
    let stage = progress.stage("writing nodes", Some(n as u64), Unit::Items("nodes"));
    let per_part = (PART_BYTES / node_bytes).max(1);
    write_table(target, "nodes", n, per_part, node_bytes, &["id"], &*stage, |range| {
        node_rows(source, original.is_some(), range)
    })?;
    let mut holds = source.parts();
    holds.retain(|part| !matches!(part, Part::Links));
    Ok(Written { num_edges: m as u64, holds })
}

fn row_bytes(column: &ColumnFile) -> usize {
    column.bytes().len() / column.rows().max(1)
}

/// Writes a table of `total` rows by parts; `rows` makes the columns of a range. One part at least
/// is written, so that the columns of an empty table are known too.
fn write_table(
    target: &Target,
    name: &str,
    total: usize,
    rows_per_part: usize,
    row_bytes: usize,
    ids: &[&str],
    stage: &dyn Stage,
    rows: impl Fn(Range<usize>) -> Result<Columns> + Sync,
) -> Result<()> {
    let mut parts: Vec<Range<usize>> = pieces(total, rows_per_part).collect();
    if parts.is_empty() {
        parts.push(0..0);
    }
    let parts = parts.into_iter().enumerate();
    let parts =
        parts.map(|(i, part)| Ok((target.path(&format!("{name}/part-{i:05}.parquet"))?, part)));
    let batch = (BATCH_BYTES / row_bytes).max(1);
    parts.collect::<Result<Vec<(PathBuf, Range<usize>)>>>()?.into_par_iter().try_for_each(
        |(path, part)| {
            let first = rows(part.start..part.start)?;
            let mut writer = open(&path, &first, (GROUP_BYTES / row_bytes).max(1), ids)?;
            for start in part.clone().step_by(batch) {
                let range = start..part.end.min(start + batch);
                let count = range.len() as u64;
                let batch =
                    record_batch(&rows(range)?).map_err(|error| failed(&path, error.into()))?;
                writer.write(&batch).map_err(|error| failed(&path, error))?;
                stage.advance(count);
            }
            let file = writer.into_inner().map_err(|error| failed(&path, error))?;
            file.sync_all().map_err(Error::io(&path))
        },
    )
}

/// A part's writer. Ids, which mostly ascend, are stored as differences.
fn open(path: &Path, columns: &Columns, group: usize, ids: &[&str]) -> Result<ArrowWriter<File>> {
    let schema = record_batch(columns).map_err(|error| failed(path, error.into()))?.schema();
    let level = ZstdLevel::try_new(3).map_err(|error| failed(path, error))?;
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(group));
    for &id in ids
        .iter()
        .filter(|&&id| schema.field_with_name(id).is_ok_and(|field| field.data_type().is_integer()))
    {
        let column = ColumnPath::from(id);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    let file = File::create(path).map_err(Error::io(path))?;
    ArrowWriter::try_new(file, schema, Some(properties.build()))
        .map_err(|error| failed(path, error))
}

fn record_batch(columns: &Columns) -> Result<RecordBatch, ArrowError> {
    let nullable = |name: &str| matches!(name, "label" | LABEL_NAME | "split");
    let fields = columns
        .iter()
        .map(|(name, array)| Field::new(name, array.data_type().clone(), nullable(name)));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.iter().map(|(_, array)| array.clone()).collect())
}

fn failed(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(cause) => Error::io(path)(*cause),
            Err(other) => Error::input(path, other.to_string()),
        },
        other => Error::input(path, other.to_string()),
    }
}

fn edge_rows(
    source: &Source<'_>,
    original: Option<&Original>,
    range: Range<usize>,
) -> Result<Columns> {
    source.check(range.clone())?;
    let (mut sources, mut targets) =
        (Vec::with_capacity(range.len()), Vec::with_capacity(range.len()));
    for_each_edge(source.topology(), range.clone(), |_, u, v| {
        sources.push(u);
        targets.push(v);
    });
    let mut columns = Columns::new();
    for (name, ends) in [("src", sources), ("dst", targets)] {
        let ids = match original {
            None => Arc::new(Int64Array::from_iter_values(ends.iter().map(|&v| i64::from(v)))),
            Some(original) => original_ids(source, original, ends.into_iter())?,
        };
        columns.push((name.into(), ids));
    }
    for (name, column) in &source.edge_columns {
        columns.push((free_name(name, &["src", "dst"]), column_array(column, range.clone())?));
    }
    Ok(columns)
}

fn node_rows(source: &Source<'_>, by_original: bool, range: Range<usize>) -> Result<Columns> {
    let vertices = range.start as u32..range.end as u32;
    let ids = Int64Array::from_iter_values(vertices.clone().map(i64::from));
    let mut columns: Columns = match &source.original {
        // The ids of the table match the ids of its edges.
        Some(original) if by_original => {
            vec![("id".into(), original_ids(source, original, vertices.clone())?)]
        }
        Some(original) => {
            vec![
                ("id".into(), Arc::new(ids)),
                ("original_id".into(), original_ids(source, original, vertices.clone())?),
            ]
        }
        None => vec![("id".into(), Arc::new(ids))],
    };
    match &source.labels {
        None => {}
        Some(Labels::Single(labels)) => {
            let labels = &labels[range.clone()];
            let classes = labels.iter().map(|&label| (label >= 0).then_some(label));
            columns.push(("label".into(), Arc::new(Int32Array::from_iter(classes))));
            if let Some(names) = source.class_names() {
                let names = labels.iter().map(|&label| names.get(usize::try_from(label).ok()?));
                columns.push((LABEL_NAME.into(), Arc::new(StringArray::from_iter(names))));
            }
        }
        Some(Labels::Number(numbers)) => {
            let numbers =
                numbers[range.clone()].iter().map(|&number| (!number.is_nan()).then_some(number));
            columns.push(("label".into(), Arc::new(Float32Array::from_iter(numbers))));
        }
        Some(Labels::Multi(labels)) => {
            let cells = vertices.clone().flat_map(|v| labels.cells(v));
            let bits = Arc::new(Int8Array::from_iter(cells.map(|cell| cell.map(i8::from))));
            let lists = list(bits, labels.num_classes() as usize, labels.lacks_cells())?;
            columns.push(("label".into(), lists));
        }
    }
    if !source.splits.is_empty() {
        let splits = source.splits_of(range.clone());
        let names =
            splits.into_iter().map(|split| split.map(|which| source.splits[which].0.name()));
        columns.push(("split".into(), Arc::new(StringArray::from_iter(names))));
    }
    if let Some(table) = &source.features {
        let rows = f32_rows(table, vertices.clone());
        columns
            .push(("feat".into(), list(Arc::new(Float32Array::from(rows)), table.dim(), false)?));
    }
    for (name, column) in &source.node_columns {
        columns.push((
            free_name(name, &["id", LABEL_NAME, "split"]),
            column_array(column, range.clone())?,
        ));
    }
    Ok(columns)
}

/// A column's name, with `_` added where the table has a column of that name.
fn free_name(name: &str, taken: &[&str]) -> String {
    if taken.contains(&name) { format!("{name}_") } else { name.to_string() }
}

fn original_ids(
    source: &Source<'_>,
    original: &Original,
    vertices: impl Iterator<Item = u32>,
) -> Result<ArrayRef> {
    Ok(match original {
        Original::Names(names) => {
            let names =
                vertices.map(|v| names.get(v)).collect::<gsplit_store::Result<Vec<&str>>>()?;
            Arc::new(StringArray::from(names))
        }
        Original::Numbers(ids) => {
            let signed = |v: u32| {
                let id = ids.get(v as usize);
                i64::try_from(id).map_err(|_| {
                    let path = source.dataset().path().join("nodes/original_id.npy");
                    let problem =
                        format!("vertex {v} has the original id {id}, tables hold ids below 2^63");
                    Error::from(StoreError::Corrupt { path, problem })
                })
            };
            Arc::new(Int64Array::from(vertices.map(signed).collect::<Result<Vec<i64>>>()?))
        }
    })
}

/// `values` as lists of `width`.
fn list(values: ArrayRef, width: usize, is_nullable: bool) -> Result<ArrayRef> {
    let problem =
        || Error::Graph(format!("rows of {width} values: Parquet lists hold fewer than 2^31"));
    let item = Arc::new(Field::new("item", values.data_type().clone(), is_nullable));
    let width = i32::try_from(width).map_err(|_| problem())?;
    Ok(Arc::new(FixedSizeListArray::try_new(item, width, values, None).map_err(|_| problem())?))
}

/// Rows `range` of a column, as lists where it is wide. Half precision is widened: few readers know
/// it.
fn column_array(column: &ColumnFile, range: Range<usize>) -> Result<ArrayRef> {
    fn primitive<T: ArrowPrimitiveType>(
        column: &ColumnFile,
        range: Range<usize>,
    ) -> Result<ArrayRef>
    where
        T::Native: Element,
    {
        let values = column_rows::<T::Native>(column, range)?.iter().copied();
        Ok(Arc::new(PrimitiveArray::<T>::from_iter_values(values)))
    }
    let values = match column.descr() {
        "|i1" => primitive::<Int8Type>(column, range),
        "<i2" => primitive::<Int16Type>(column, range),
        "<i4" => primitive::<Int32Type>(column, range),
        "<i8" => primitive::<Int64Type>(column, range),
        "|u1" => primitive::<UInt8Type>(column, range),
        "<u2" => primitive::<UInt16Type>(column, range),
        "<u4" => primitive::<UInt32Type>(column, range),
        "<u8" => primitive::<UInt64Type>(column, range),
        "<f4" => primitive::<Float32Type>(column, range),
        "<f8" => primitive::<Float64Type>(column, range),
        _ => {
            let row = 2 * column.width();
            let bytes = column.bytes()[range.start * row..range.end * row].chunks_exact(2);
            let values = bytes.map(|pair| f16::from_le_bytes([pair[0], pair[1]]).to_f32());
            Ok(Arc::new(Float32Array::from_iter_values(values)) as ArrayRef)
        }
    }?;
    if column.dimensions() == 1 { Ok(values) } else { list(values, column.width(), false) }
}
