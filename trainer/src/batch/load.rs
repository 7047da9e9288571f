//! Loading the feature rows of a mini-batch's bottom local frontier, each once.
//!
//! Where no other rank needs them, there is nothing to do: the bottom layer reads them where they are stored. Only a
//! mini-batch that is prepared ahead of time takes them along all the same, while another is computed, and one whose rows
//! are not used as they are stored.

use gsplit_store::FeatureTable;

use super::{Input, Sampled};
use crate::autograd::Buffer;
use crate::{Exchange, Result};

/// A sampled mini-batch with its input rows.
pub struct Loaded<'a> {
    /// What to compute.
    pub sampled: Sampled,
    /// One feature row for each vertex of [`Sampled::input`], as f32, where they are to be exchanged, came ahead of time or are not
    /// those that are stored.
    pub input_rows: Option<Buffer>,
    /// Where the others are.
    pub features: &'a FeatureTable,
}

/// Reads the input rows of `sampled`, widens them to f32 and makes `input` of them, unless the bottom layer reads them itself;
/// with `ahead` always.
pub fn load<'a>(features: &'a FeatureTable, sampled: Sampled, input: &Input, ahead: bool) -> Result<Loaded<'a>> {
    let stays =
        !ahead && input.is_plain() && sampled.layers.last().is_some_and(|layer| layer.exchange == Exchange::Identity);
    let input_rows = match stays {
        true => None,
        false => {
            let mut rows = Buffer::new(sampled.input.len() * features.dim())?;
            input.read(features, &sampled.input, rows.as_mut_slice())?;
            Some(rows)
        }
    };
    Ok(Loaded { sampled, input_rows, features })
}

#[cfg(test)]
mod tests {
    use gsplit_store::{FeatureDtype, FeatureWriter};
    use half::{bf16, f16};

    use super::*;
    use crate::operator::gather_features;

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
            let mut found = vec![f32::NAN; vertices.len() * dim as usize];
            gather_features(&table, &vertices, &mut found).unwrap();
            for (&v, found) in vertices.iter().zip(found.chunks(dim as usize)) {
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
