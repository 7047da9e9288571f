//! Loading a mini-batch: its edges to where they are computed with, and the feature rows of its bottom local frontier, each
//! once.
//!
//! Where no other rank needs them, there is nothing to do on the host: the bottom layer reads them where they are stored.
//! Only a mini-batch that is prepared ahead of time takes them along all the same, while another is computed, and one whose
//! rows are not used as they are stored.

use std::sync::Arc;

use gsplit_kernels::CacheHits;
use gsplit_store::FeatureTable;
use tch::Tensor;

use super::{Input, Sampled, SampledLayer};
use crate::operator::Edges;
use crate::source::FeatureSource;
use crate::{Exchange, Result};

/// A sampled mini-batch with its input rows.
pub struct Loaded<'a> {
    /// What to compute.
    pub sampled: Sampled,
    /// The edges of its layers, in their order, where they are computed with.
    pub edges: Vec<Arc<Edges>>,
    /// One feature row for each vertex of [`Sampled::input`], f32 `[input, width]`, where they are to be exchanged, came ahead of
    /// time, are on a GPU, or are not those that are stored.
    pub input_rows: Option<Tensor>,
    /// How many of the input rows were in caches.
    pub hits: CacheHits,
    /// Where the others are.
    pub features: &'a FeatureTable,
}

/// Reads the input rows of `sampled`, widens them to f32 and makes `input` of them, unless the bottom layer reads them itself;
/// with `ahead` always.
pub fn load<'a>(source: &FeatureSource<'a>, sampled: Sampled, input: &Input, ahead: bool) -> Result<Loaded<'a>> {
    let stays = source.is_read_in_place()
        && !ahead
        && input.is_plain()
        && sampled.layers.last().is_some_and(|layer| layer.exchange == Exchange::Identity);
    let input_rows = match stays {
        true => None,
        false => Some(source.rows(&sampled.input, input)?),
    };
    // The host reads rows that are changed.
    let hits = if input.is_plain() { source.hits(&sampled.input) } else { CacheHits::default() };
    let edges = |layer: &SampledLayer| {
        let (indptr, local) = (layer.indptr.clone(), layer.local.clone());
        Ok(Arc::new(Edges::new(source.place(), indptr, local, layer.mixed.len())?))
    };
    let edges = sampled.layers.iter().map(edges).collect::<Result<_>>()?;
    Ok(Loaded { sampled, edges, input_rows, hits, features: source.table() })
}

#[cfg(test)]
mod tests {
    use gsplit_store::{FeatureDtype, FeatureTable, FeatureWriter};
    use half::{bf16, f16};

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
