//! Matrix Market coordinate text (Boisvert, Pozo, Remington, NISTIR 5935, 1996): the adjacency
//! matrix.
//!
//! An edge from u to v is the entry in row u + 1 and column v + 1, so that row u lists what u
//! points to. The matrix is `general` and `pattern`; where the edges have a column `weight` it is
//! `real`, or `integer` of whole numbers, and the weight is the entry. An edge that is stored twice
//! is written twice: readers add the entries up.

use gsplit_store::{Progress, Unit};

use super::Written;
use super::edges::{for_each_edge, pieces};
use super::output::{SyncedFile, Target};
use super::source::{Part, Source, WEIGHT, Weights};
use super::text::{LINES, push_float, push_int, write_lines};
use crate::Result;

/// Writes the file.
pub(super) fn write(
    source: &Source<'_>,
    target: &mut Target,
    progress: &dyn Progress,
) -> Result<Written> {
    let topology = source.topology();
    let (n, m) = (topology.num_vertices(), topology.num_edges());
    let weights = source.weights()?;
    let field = match weights {
        None => "pattern",
        Some(Weights::I64(_)) => "integer",
        Some(_) => "real",
    };
    let mut sink = SyncedFile::create(target.file())?;
    let name = source.one_line_name();
    sink.push(format!("%%MatrixMarket matrix coordinate {field} general\n").as_bytes())?;
    sink.push(
        format!("% {name}: row = source, column = target of an edge\n{n} {n} {m}\n").as_bytes(),
    )?;
    let stage = progress.stage("writing the matrix", Some(m as u64), Unit::Items("edges"));
    write_lines(&mut sink, pieces(m, LINES), false, &*stage, |range, text| {
        source.check(range.clone())?;
        for_each_edge(topology, range, |e, u, v| {
            push_int(text, u64::from(u) + 1);
            text.push(b' ');
            push_int(text, u64::from(v) + 1);
            if let Some(weights) = &weights {
                text.push(b' ');
                match weights {
                    Weights::F32(values) => push_float(text, values[e]),
                    Weights::F64(values) => push_float(text, values[e]),
                    Weights::I64(values) => push_int(text, values[e]),
                }
            }
            text.push(b'\n');
        });
        Ok(())
    })?;
    sink.finish()?;
    let mut holds: Vec<Part> = weights.iter().map(|_| Part::EdgeColumn(WEIGHT.into())).collect();
    holds.extend(source.part_from_one());
    Ok(Written { num_edges: m as u64, holds })
}
