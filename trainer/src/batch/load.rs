//! Loading the feature rows of a mini-batch's bottom local frontier, each once.

use gsplit_kernels::gather_rows;
use gsplit_store::{FeatureDtype, FeatureTable};
use half::{bf16, f16};

use super::Sampled;
use crate::Result;

/// A sampled mini-batch with its input rows.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What to compute.
    pub sampled: Sampled,
    /// One feature row for each vertex of [`Sampled::input`], as f32.
    pub input_rows: Vec<f32>,
    /// Values of a row.
    pub dim: usize,
}

/// Reads the input rows of `sampled` where they lie and widens them to f32.
pub fn load(features: &FeatureTable, sampled: Sampled) -> Result<Loaded> {
    let input_rows = gather_features(features, &sampled.input)?;
    Ok(Loaded { sampled, input_rows, dim: features.dim() })
}

/// The rows of `vertices`, one after the other.
pub(crate) fn gather_features(features: &FeatureTable, vertices: &[u32]) -> Result<Vec<f32>> {
    let dim = features.dim();
    let mut rows = vec![0f32; vertices.len() * dim];
    match features.dtype() {
        FeatureDtype::F32 => gather_rows(|v| features.row::<f32>(v), vertices, dim, &mut rows),
        FeatureDtype::F16 => gather_rows(|v| features.row::<f16>(v), vertices, dim, &mut rows),
        FeatureDtype::Bf16 => gather_rows(|v| features.row::<bf16>(v), vertices, dim, &mut rows),
    }?;
    Ok(rows)
}
