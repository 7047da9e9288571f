//! An edge list as SNAP publishes them: `#` comments, then `FROM<tab>TO` lines; gzip where the name
//! ends in `.gz`.
//!
//! The header states the numbers of vertices and edges. A vertex without edges is in no line; with
//! the dataset's own ids, which are 0 to n - 1, the header's count keeps it.

use gsplit_store::{Progress, Unit};

use super::edges::{for_each_edge, pieces};
use super::output::{SyncedFile, Target};
use super::source::{Original, Part, Source};
use super::text::{LINES, compress, push_int, write_lines};
use super::{ExportOptions, Written};
use crate::{Error, Result};

/// Writes the file.
pub(super) fn write(
    source: &Source<'_>,
    target: &mut Target,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<Written> {
    let topology = source.topology();
    let (n, m) = (topology.num_vertices(), topology.num_edges());
    let gzip = target.out().extension().is_some_and(|extension| extension == "gz");
    let original = if options.original_ids { Some(source.wanted_original()?) } else { None };
    let mut sink = SyncedFile::create(target.file())?;
    let name = source.one_line_name();
    let head =
        format!("# Directed graph: {name}\n# Nodes: {n} Edges: {m}\n# FromNodeId\tToNodeId\n");
    sink.push(&if gzip { compress(head.as_bytes())? } else { head.into_bytes() })?;
    let stage = progress.stage("writing the edges", Some(m as u64), Unit::Items("edges"));
    write_lines(&mut sink, pieces(m, LINES), gzip, &*stage, |range, text| {
        source.check(range.clone())?;
        let mut problem = None;
        for_each_edge(topology, range, |_, u, v| {
            for (id, end) in [(u, b'\t'), (v, b'\n')] {
                if let Err(error) = push_id(text, original.as_ref(), id) {
                    problem.get_or_insert(error);
                }
                text.push(end);
            }
        });
        problem.map_or(Ok(()), Err)
    })?;
    sink.finish()?;
    let holds = original.into_iter().map(|_| Part::OriginalIds).collect();
    Ok(Written { num_edges: m as u64, holds })
}

fn push_id(text: &mut Vec<u8>, original: Option<&Original>, v: u32) -> Result<()> {
    match original {
        None => push_int(text, v),
        Some(Original::Numbers(ids)) => push_int(text, ids.get(v as usize)),
        Some(Original::Names(names)) => {
            let name = names.get(v)?;
            if name.is_empty() || name.starts_with('#') || name.contains(char::is_whitespace) {
                let problem =
                    "cannot stand in an edge list: leave --original-ids out, or export as parquet";
                return Err(Error::Graph(format!(
                    "the original id `{}` {problem}",
                    name.escape_debug()
                )));
            }
            text.extend_from_slice(name.as_bytes());
        }
    }
    Ok(())
}
