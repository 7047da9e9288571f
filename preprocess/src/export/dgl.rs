//! The chunked graph of DGL's distributed partitioning pipeline (DGL user guide, 7.1; `tools/dispatch_data.py`).
//!
//! ```text
//! metadata.json                      node_type ["_N"], edge_type ["_N:_E:_N"], sizes of the chunks, and their files
//! edges/_N:_E:_N-<i>.txt             `source target` lines
//! nodes/<name>-<i>.npy               feat, label, train_mask, val_mask, test_mask and the node columns
//! edge_data/<name>-<i>.npy           the edge columns
//! partition/_N.txt                   the part of each vertex, one a line (--partition)
//! partition/partition_meta.json      as dispatch_data.py checks it: version, num_parts, algo_name
//! ```
//!
//! Chunk i holds the i-th of equally long runs of vertices and of edges. All paths are relative to metadata.json. Edges are
//! text, which every version of the pipeline and its ParMETIS tools read.

use std::ops::Range;

use gsplit_store::{ColumnFile, ColumnWriter, PartitionMap, Progress, Unit};
use serde_json::{Map, Value, json};

use super::arrays::{mask_name, write_features, write_labels, write_mask};
use super::edges::for_each_edge;
use super::output::{SyncedFile, Target};
use super::source::Source;
use super::text::{CHUNK, push_int, write_lines, write_pieces};
use super::{ExportOptions, Written};
use crate::Result;

const NODES: &str = "_N";
const EDGES: &str = "_N:_E:_N";
/// Bytes of a column that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Writes the folder.
pub(super) fn write(
    source: &Source<'_>,
    target: &mut Target,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<Written> {
    let dataset = source.dataset();
    let partition = options.partition.as_deref().map(|key| PartitionMap::open(dataset, key)).transpose()?;
    let parts = partition.as_ref().map(PartitionMap::num_parts);
    let chunks = options.chunks.map_or_else(|| parts.unwrap_or(1), |chunks| chunks as usize);
    let (n, m) = (source.topology().num_vertices(), source.topology().num_edges());
    // The pipeline's reader of text fails on an empty file.
    let chunks = chunks.min(n.min(m).max(1));
    let (nodes, edges) = (cut(n, chunks), cut(m, chunks));
    let edge_files = write_edges(source, target, &edges, progress)?;
    let mut holds = Vec::new();
    let node_data = write_node_data(source, target, &nodes, &mut holds, progress)?;
    let edge_data = write_edge_data(source, target, &edges, &mut holds)?;
    let sizes = |ranges: &[Range<usize>]| ranges.iter().map(ExactSizeIterator::len).collect::<Vec<_>>();
    let metadata = json!({
        "graph_name": dataset.name(),
        "node_type": [NODES],
        "num_nodes_per_chunk": [sizes(&nodes)],
        "edge_type": [EDGES],
        "num_edges_per_chunk": [sizes(&edges)],
        "edges": { EDGES: { "format": { "name": "csv", "delimiter": " " }, "data": edge_files } },
        "node_data": if node_data.is_empty() { json!({}) } else { json!({ NODES: node_data }) },
        "edge_data": if edge_data.is_empty() { json!({}) } else { json!({ EDGES: edge_data }) },
    });
    target.write("metadata.json", &format!("{metadata:#}\n"))?;
    if let Some(partition) = &partition {
        write_partition(partition, target, progress)?;
    }
    Ok(Written { num_edges: m as u64, holds })
}

/// `0..total` in `chunks` runs; the first ones are longer by one where it does not come out even.
fn cut(total: usize, chunks: usize) -> Vec<Range<usize>> {
    let (size, longer) = (total / chunks, total % chunks);
    let start = |i: usize| i * size + i.min(longer);
    (0..chunks).map(|i| start(i)..start(i + 1)).collect()
}

fn write_edges(
    source: &Source<'_>,
    target: &Target,
    chunks: &[Range<usize>],
    progress: &dyn Progress,
) -> Result<Vec<String>> {
    let topology = source.topology();
    let stage = progress.stage("writing the edges", Some(topology.num_edges() as u64), Unit::Items("edges"));
    let mut names = Vec::new();
    for (i, chunk) in chunks.iter().enumerate() {
        let name = format!("edges/{EDGES}-{i}.txt");
        let mut sink = SyncedFile::create(target.path(&name)?)?;
        let pieces = chunk.clone().step_by(CHUNK).map(|start| start..chunk.end.min(start + CHUNK));
        write_pieces(&mut sink, pieces, false, &*stage, |range, text| {
            source.check(range.clone())?;
            for_each_edge(topology, range, |_, u, v| {
                push_int(text, u);
                text.push(b' ');
                push_int(text, v);
                text.push(b'\n');
            });
            Ok(())
        })?;
        sink.finish()?;
        names.push(name);
    }
    Ok(names)
}

/// Calls `write` with the path and the run of each chunk of the array `name`; returns its entry in the metadata.
fn in_chunks(
    target: &Target,
    folder: &str,
    name: &str,
    chunks: &[Range<usize>],
    mut write: impl FnMut(&std::path::Path, Range<usize>) -> Result<()>,
) -> Result<Value> {
    let mut data = Vec::new();
    for (i, chunk) in chunks.iter().enumerate() {
        let file = format!("{folder}/{name}-{i}.npy");
        write(&target.path(&file)?, chunk.clone())?;
        data.push(file);
    }
    Ok(json!({ "format": { "name": "numpy" }, "data": data }))
}

fn write_node_data(
    source: &Source<'_>,
    target: &Target,
    chunks: &[Range<usize>],
    holds: &mut Vec<String>,
    progress: &dyn Progress,
) -> Result<Map<String, Value>> {
    let mut entries = Map::new();
    if source.features.is_some() {
        let rows = source.topology().num_vertices() as u64;
        let stage = progress.stage("writing features", Some(rows), Unit::Items("rows"));
        let write = |path: &std::path::Path, range| write_features(source, path, range, &*stage);
        entries.insert("feat".into(), in_chunks(target, "nodes", "feat", chunks, write)?);
        holds.push(source.feature_part());
    }
    if let Some(labels) = &source.labels {
        let write = |path: &std::path::Path, range: Range<usize>| write_labels(labels, path, range.map(|v| v as u32));
        entries.insert("label".into(), in_chunks(target, "nodes", "label", chunks, write)?);
        holds.push(source.label_part());
    }
    for (split, vertices) in &source.splits {
        let write = |path: &std::path::Path, range| write_mask(vertices, path, range);
        let name = mask_name(*split);
        entries.insert(name.into(), in_chunks(target, "nodes", name, chunks, write)?);
        holds.push(source.split_part(*split));
    }
    for (name, column) in &source.node_columns {
        let entry = in_chunks(target, "nodes", name, chunks, |path, range| write_rows(column, path, range))?;
        entries.insert(name.clone(), entry);
        holds.push(source.node_part(name));
    }
    Ok(entries)
}

fn write_edge_data(
    source: &Source<'_>,
    target: &Target,
    chunks: &[Range<usize>],
    holds: &mut Vec<String>,
) -> Result<Map<String, Value>> {
    let mut entries = Map::new();
    for (name, column) in &source.edge_columns {
        let entry = in_chunks(target, "edge_data", name, chunks, |path, range| write_rows(column, path, range))?;
        entries.insert(name.clone(), entry);
        holds.push(source.edge_part(name));
    }
    Ok(entries)
}

fn write_rows(column: &ColumnFile, path: &std::path::Path, range: Range<usize>) -> Result<()> {
    let row_bytes = column.bytes().len() / column.rows().max(1);
    let mut out = ColumnWriter::create(path, column.descr(), column.width())?;
    let rows = (PIECE_BYTES / row_bytes.max(1)).max(1);
    for start in range.clone().step_by(rows) {
        out.push(&column.bytes()[start * row_bytes..range.end.min(start + rows) * row_bytes])?;
    }
    out.finish()?;
    Ok(())
}

fn write_partition(partition: &PartitionMap, target: &Target, progress: &dyn Progress) -> Result<()> {
    let assignment = partition.assignment();
    let stage = progress.stage("writing the parts", Some(assignment.len() as u64), Unit::Items("vertices"));
    let mut sink = SyncedFile::create(target.path(&format!("partition/{NODES}.txt"))?)?;
    write_lines(&mut sink, assignment.len(), false, &*stage, |range, text| {
        for &part in &assignment[range] {
            push_int(text, part);
            text.push(b'\n');
        }
        Ok(())
    })?;
    sink.finish()?;
    // The pipeline knows these two names only, and does nothing with them.
    let algorithm = if partition.meta().config.partitioner == "random" { "random" } else { "metis" };
    let meta = json!({ "version": "1.0.0", "num_parts": partition.num_parts(), "algo_name": algorithm });
    target.write("partition/partition_meta.json", &format!("{meta:#}\n"))
}
