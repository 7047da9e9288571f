//! The rule for edge weights of all formats: a missing weight is kept as NaN and counted, an
//! infinite one is refused. If the user declares them as costs, missing and negative weights are
//! refused too.

use std::ops::Range;

use crate::edges::{EdgeBatch, EdgeColumn, ValueType, WEIGHT, row_bytes};
use crate::{Error, Result};

/// Place of an edge's weight among its values.
pub struct WeightPlace {
    /// Range of the weight's bytes among the columns of an edge.
    bytes: Range<usize>,
    /// Bytes of all columns.
    row: usize,
    /// Number of bytes, and the function that reads one number from them.
    read: (usize, fn(&[u8]) -> f64),
    are_costs: bool,
}

impl WeightPlace {
    /// `None` where edges have no weights, or integers.
    pub fn of(columns: &[EdgeColumn], are_costs: bool) -> Option<Self> {
        let at = columns.iter().position(|column| column.name == WEIGHT)?;
        let read: fn(&[u8]) -> f64 = match columns[at].value {
            ValueType::F32 => |bytes| {
                bytes.first_chunk().map_or(f64::NAN, |&bytes| f32::from_le_bytes(bytes).into())
            },
            ValueType::F64 => {
                |bytes| bytes.first_chunk().map_or(f64::NAN, |&bytes| f64::from_le_bytes(bytes))
            }
            ValueType::I64 => return None,
        };
        let bytes = row_bytes(&columns[..at])..row_bytes(&columns[..=at]);
        Some(Self {
            bytes,
            row: row_bytes(columns),
            read: (columns[at].value.bytes(), read),
            are_costs,
        })
    }

    /// The number of edges of `batch` without a weight. Fails at the first invalid weight.
    pub fn missing(&self, batch: &EdgeBatch) -> Result<u64> {
        let (size, read) = self.read;
        let mut missing = 0;
        for (edge, values) in batch.values.chunks_exact(self.row).enumerate() {
            let weights = || values[self.bytes.clone()].chunks_exact(size).map(read);
            let (wrong, expected): (fn(&f64) -> bool, _) = match self.are_costs {
                true => (
                    |weight| !(0.0..f64::INFINITY).contains(weight),
                    "a finite number from 0, for --schema edge-weights; --schema fill=NUMBER \
                     replaces missing ones",
                ),
                false => (
                    |weight| weight.is_infinite(),
                    "a finite number, or NaN or nothing where there is none; --edge-columns none \
                     leaves the weights out",
                ),
            };
            if let Some(weight) = weights().find(wrong) {
                let [source, target] =
                    [batch.sources[edge], batch.targets[edge]].map(|id| name(batch, id));
                return Err(Error::Graph(format!(
                    "the edge from {source} to {target} has the weight {weight}: expected \
                     {expected}"
                )));
            }
            missing += u64::from(weights().any(f64::is_nan));
        }
        Ok(missing)
    }
}

/// The vertex as the input names it.
fn name(batch: &EdgeBatch, id: u64) -> String {
    match batch.names.iter().find(|(hash, _)| *hash == id) {
        Some((_, name)) => format!("`{}`", name.escape_debug()),
        None => id.to_string(),
    }
}
