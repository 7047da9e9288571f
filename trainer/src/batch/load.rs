//! Loading the feature rows of a mini-batch's bottom local frontier, each once.

use gsplit_kernels::{ScaledRow, gather_rows};
use gsplit_store::{FeatureDtype, FeatureTable};
use half::{bf16, f16};

use super::Sampled;
use crate::Result;
use crate::autograd::Buffer;

/// A sampled mini-batch with its input rows.
pub struct Loaded {
    /// What to compute.
    pub sampled: Sampled,
    /// One feature row for each vertex of [`Sampled::input`], as f32.
    pub input_rows: Buffer,
    /// Values of a row.
    pub dim: usize,
}

/// Reads the input rows of `sampled` where they lie and widens them to f32.
pub fn load(features: &FeatureTable, sampled: Sampled) -> Result<Loaded> {
    let input_rows = gather_features(features, &sampled.input)?;
    Ok(Loaded { sampled, input_rows, dim: features.dim() })
}

/// The rows of `vertices`, one after the other.
pub(crate) fn gather_features(features: &FeatureTable, vertices: &[u32]) -> Result<Buffer> {
    let dim = features.dim();
    let mut buffer = Buffer::new(vertices.len() * dim)?;
    let rows = buffer.as_mut_slice();
    match features.dtype() {
        FeatureDtype::F32 => gather_rows(|v| features.row::<f32>(v), vertices, dim, rows),
        FeatureDtype::F16 => gather_rows(|v| features.row::<f16>(v), vertices, dim, rows),
        FeatureDtype::Bf16 => gather_rows(|v| features.row::<bf16>(v), vertices, dim, rows),
        FeatureDtype::I8 => {
            let row = |v| ScaledRow { scale: features.scale(v), values: features.row(v) };
            gather_rows(row, vertices, dim, rows)
        }
    }?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use gsplit_store::FeatureWriter;

    use super::*;

    #[test]
    fn rows_arrive_as_they_were_stored_in_every_dtype() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feat.arrow");
        let (rows, dim) = (17_000u32, 3);
        let value = |v: u32, c: u32| ((v * 31 + c * 17) % 255) as f32 - 127.0;
        let values: Vec<f32> = (0..rows).flat_map(|v| (0..dim).map(move |c| value(v, c) * (v % 5) as f32)).collect();
        let vertices = [16_999, 0, 16_384, 16_383, 5, 7, 0];
        for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::I8] {
            let mut writer = FeatureWriter::create(&path, dtype, dim as usize).unwrap();
            writer.push_rows(&values).unwrap();
            writer.finish().unwrap();
            let table = FeatureTable::open(&path).unwrap();
            let found = gather_features(&table, &vertices).unwrap();
            for (&v, found) in vertices.iter().zip(found.as_slice().chunks(dim as usize)) {
                let given = &values[v as usize * dim as usize..][..dim as usize];
                let stored: Vec<f32> = match dtype {
                    FeatureDtype::F32 => given.to_vec(),
                    FeatureDtype::F16 => given.iter().map(|&value| f16::from_f32(value).to_f32()).collect(),
                    FeatureDtype::Bf16 => given.iter().map(|&value| bf16::from_f32(value).to_f32()).collect(),
                    FeatureDtype::I8 => {
                        let scale = given.iter().fold(0f32, |largest, value| largest.max(value.abs())) / 127.0;
                        let step = |value: f32| if scale == 0.0 { 0.0 } else { (value / scale).round_ties_even() };
                        given.iter().map(|&value| scale * step(value)).collect()
                    }
                };
                assert_eq!(found, stored, "{dtype}, vertex {v}");
            }
        }
    }
}
