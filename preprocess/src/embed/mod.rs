//! Features for graphs that come without any: random numbers, or an embedding of the graph's
//! structure.

mod fastrp;

use std::fmt;
use std::str::FromStr;

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::memory::Memory;
use gsplit_store::{FeatureWriter, Progress, Unit};
use rayon::prelude::*;
use serde::{Serialize, Serializer};

use crate::memory::shown;
use crate::{Error, Result};

/// Widest row that is generated.
pub const MAX_DIM: u32 = 1 << 16;

/// Rows that are made at a time, by all threads together.
const ROWS_PER_CHUNK: usize = 1 << 14;

/// Features generated from the graph. Parses and prints as e.g. `random:64` or `fastrp:128`, with
/// the number of values per row, 1 to [`MAX_DIM`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratedFeatures {
    /// Independent standard normals: they carry nothing but the vertex's identity.
    Random {
        /// Values of a row.
        dim: u32,
    },
    /// FastRP, a structural embedding by very sparse random projection: vertices with similar
    /// surroundings get similar rows.
    FastRp {
        /// Values of a row.
        dim: u32,
    },
}

impl GeneratedFeatures {
    /// Values of a row.
    pub fn dim(self) -> usize {
        match self {
            Self::Random { dim } | Self::FastRp { dim } => dim as usize,
        }
    }

    /// Writes one row for every vertex of the graph in CSC form. The rows depend on the graph and
    /// `seed` only. `fastrp` holds two tables of all rows in single precision at its peak, 8 bytes
    /// a value.
    pub fn generate_rows(
        &self,
        indptr: &[u64],
        indices: &[u32],
        seed: u64,
        writer: &mut FeatureWriter,
        progress: &dyn Progress,
    ) -> Result<()> {
        match self {
            Self::Random { .. } => {
                let key = StreamKey::new(seed, Stream::Projection);
                write_rows(writer, indptr.len() - 1, progress, |v, row| fill_normal(&key, v, row))
            }
            Self::FastRp { .. } => fastrp::generate_rows(indptr, indices, seed, writer, progress),
        }
    }
}

/// Fills `values` with the first standard normals of `item` under `key`.
pub(crate) fn fill_normal(key: &StreamKey, item: u32, values: &mut [f32]) {
    let mut draws = Draws::new(key, item);
    for pair in values.chunks_mut(2) {
        let (first, second) = draws.normal_pair();
        pair[0] = first;
        if let Some(slot) = pair.get_mut(1) {
            *slot = second;
        }
    }
}

/// Writes the rows of vertices `0..n` in order; `fill` makes each from its vertex, in parallel.
pub(crate) fn write_rows(
    writer: &mut FeatureWriter,
    n: usize,
    progress: &dyn Progress,
    fill: impl Fn(u32, &mut [f32]) + Sync,
) -> Result<()> {
    let stage = progress.stage("writing features", Some(n as u64), Unit::Items("rows"));
    let dim = writer.dim();
    let mut rows = Vec::new();
    for start in (0..n).step_by(ROWS_PER_CHUNK) {
        let count = ROWS_PER_CHUNK.min(n - start);
        rows.resize(count * dim, 0.0);
        rows.par_chunks_mut(dim).enumerate().for_each(|(i, row)| fill((start + i) as u32, row));
        writer.push_rows(&rows)?;
        stage.advance(count as u64);
    }
    Ok(())
}

/// Refuses `what` if it takes more memory than this machine has.
pub(crate) fn check_memory(what: &str, bytes: u64) -> Result<()> {
    match bytes <= Memory::of_this_machine().total() {
        true => Ok(()),
        false => Err(Error::Option(format!(
            "{what}: takes {} of memory, which this machine does not have",
            shown(bytes)
        ))),
    }
}

impl FromStr for GeneratedFeatures {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let expected =
                format!("expected random:D or fastrp:D with D from 1 to {MAX_DIM}, as fastrp:128");
            Error::Option(format!("generated features: {expected}, got `{text}`"))
        };
        let (kind, dim) = text.split_once(':').ok_or_else(wrong)?;
        let dim = dim.parse().ok().filter(|dim| (1..=MAX_DIM).contains(dim)).ok_or_else(wrong)?;
        match kind {
            "random" => Ok(Self::Random { dim }),
            "fastrp" => Ok(Self::FastRp { dim }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for GeneratedFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { dim } => write!(f, "random:{dim}"),
            Self::FastRp { dim } => write!(f, "fastrp:{dim}"),
        }
    }
}

impl Serialize for GeneratedFeatures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
