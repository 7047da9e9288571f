//! Features for graphs that come without any: random numbers, or an embedding of the graph's
//! structure.

mod fastrp;

use std::fmt;
use std::str::FromStr;

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::memory::Memory;
use gsplit_store::{FeatureWriter, Progress, Unit, attempt};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Widest row that is generated.
pub const MAX_DIM: u32 = 1 << 16;

/// Rows that are made at a time, by all threads together.
const ROWS_PER_CHUNK: usize = 1 << 14;

/// Features generated from the graph. Parses and prints as e.g. `random:64` or `fastrp:128`, with
/// the number of values per row, 1 to [`MAX_DIM`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
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

/// An empty vector with room for `len` values, or an error if the system refuses the memory.
pub(crate) fn with_room<T>(len: usize, what: &str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let mib = len as f64 * size_of::<T>() as f64 / f64::from(1 << 20);
    let refused = || {
        Error::Option(format!(
            "{what}: the system refuses {mib:.0} MiB of memory: ask for a smaller size"
        ))
    };
    // A system that promises more than it has would refuse only when the pages are touched.
    let fits = len
        .checked_mul(size_of::<T>())
        .is_some_and(|bytes| bytes as u64 <= Memory::of_this_machine().total());
    match fits && attempt(|| values.try_reserve_exact(len)).is_ok() {
        true => Ok(values),
        false => Err(refused()),
    }
}

/// `len` zeros, or an error as for [`with_room`].
pub(crate) fn zeroed<T: Copy + Default>(len: usize, what: &str) -> Result<Vec<T>> {
    let mut values = with_room(len, what)?;
    values.resize(len, T::default());
    Ok(values)
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

impl TryFrom<String> for GeneratedFeatures {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<GeneratedFeatures> for String {
    fn from(features: GeneratedFeatures) -> Self {
        features.to_string()
    }
}

#[cfg(test)]
mod tests;
