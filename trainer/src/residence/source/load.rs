//! Loading a mini-batch: the feature rows of its bottom local frontier, each once, and on the host
//! the rows that other ranks loaded.
//!
//! On the host nothing is copied if no other rank needs the rows: the bottom layer reads them where
//! they are stored. They are copied only for a mini-batch that is prepared ahead, while another is
//! computed, if rows are transformed before use, and if they are read from a file.
//!
//! A GPU that keeps all rows leaves them in place for a layer that sums them. Any other GPU that
//! can read the rows gathers them by the vertices in its memory, transforms them as the model
//! requires, and counts which were in caches. If it has sampled the mini-batch ahead of time, this
//! happens on the sampler's stream, into memory of that stream, which then becomes torch's tensor;
//! so do rows that the host gathers ahead, which are copied on a separate stream. Memory of torch's
//! own cannot be written by another stream than its own without waiting for all of its work.

use gsplit_kernels::{CacheHits, Communicator, DeviceHits, Gpu};
use gsplit_store::{FeatureTable, RowsRead};
use tch::Tensor;

use super::{FeatureSource, Gathered};
use crate::Result;
use crate::model::Input;
use crate::operator::{KeptRows, Place};
use crate::sample::{Sampled, SampledLayer};

/// A sampled mini-batch with its input rows.
pub struct Loaded<'a> {
    /// Layers to compute, and the vertices that are loaded.
    pub sampled: Sampled<'a>,
    /// Feature rows of the bottom layer.
    pub input_rows: InputRows<'a>,
    /// Input rows that were in caches, if there are any.
    pub hits: Option<DeviceHits>,
    /// Input rows that would have been in caches, if ranks on the host count them.
    pub counted: CacheHits,
    /// Input rows that were read from the table's file, and rows found in memory instead.
    pub reads: RowsRead,
    /// Table of the rows that are not in `input_rows`.
    pub features: &'a FeatureTable,
    /// The stream that copies the input rows, if it is not the sampler's.
    pub side: Option<Gpu>,
}

/// Feature rows of a mini-batch, in the type of the place's rows.
#[derive(Default)]
pub enum InputRows<'a> {
    /// The bottom layer reads them where they are stored.
    #[default]
    Stored,
    /// The bottom layer reads them where its GPU keeps them.
    Kept(Box<dyn KeptRows + 'a>),
    /// Rows that the bottom layer reads, `[read, width]`.
    Read(Tensor),
    /// Feature rows by type, not encoded yet ([`FeatureSource::rows_by_type`]).
    ByType(Vec<Tensor>),
    /// Rows of [`Sampled::input`], `[input, width]`, at the place that computes. Not exchanged yet:
    /// rows go over NCCL, which only the computing thread uses.
    Here(Tensor),
    /// Like `Here`, on the GPU that computes, not yet a tensor.
    Gathered(Box<dyn Gathered>),
}

impl InputRows<'_> {
    /// The rows that `bottom` reads, each of `dim` values, as a tensor at `place`; `None` if they
    /// stay where they are. Collective on a GPU if ranks exchange them.
    pub fn take_tensor(
        &mut self,
        place: &Place,
        bottom: &SampledLayer,
        dim: usize,
        comm: &dyn Communicator,
    ) -> Result<Option<Tensor>> {
        if let Self::Stored | Self::Kept(_) | Self::ByType(_) = self {
            return Ok(None);
        }
        let loaded = match (std::mem::take(self), place.gpu()) {
            (Self::Stored | Self::Kept(_) | Self::ByType(_), _) => None,
            (Self::Read(rows), _) => return Ok(Some(rows)),
            (Self::Here(rows), _) => Some(rows),
            (Self::Gathered(rows), Some(_)) => Some(rows.tensor(place.device(), dim)?),
            (Self::Gathered(_), None) => None,
        };
        bottom.exchange.forward_at(place, comm, loaded, dim).map(Some)
    }
}

impl<'a> Loaded<'a> {
    /// Number of feature rows that the mini-batch reads.
    pub fn num_loaded(&self) -> usize {
        match &self.input_rows {
            InputRows::ByType(rows) => rows.iter().map(|rows| rows.size()[0] as usize).sum(),
            _ => self.sampled.input.len(),
        }
    }

    /// The mini-batch `sampled` without its input rows, which stay in `features`.
    pub fn unread(sampled: Sampled<'a>, features: &'a FeatureTable) -> Self {
        let (input_rows, counted, reads) = Default::default();
        Self { sampled, input_rows, hits: None, counted, reads, features, side: None }
    }
}

/// Reads the input rows of `sampled`, in the type of the place's rows, transformed by `input`.
/// Rows of several types of vertices are not exchanged: encoded ones are, later.
/// Skipped if the bottom layer reads them itself: on the host if they are not loaded `ahead`, on a
/// GPU that keeps them if it `sums` them. Collective if ranks exchange them on the host.
pub fn load<'a>(
    source: &'a FeatureSource<'a>,
    sampled: Sampled<'a>,
    input: &Input,
    ahead: bool,
    sums: bool,
    comm: &dyn Communicator,
) -> Result<Loaded<'a>> {
    let exchange = &sampled.bottom().exchange;
    let stays = source.is_read_in_place() && !ahead && input.is_plain() && exchange.is_identity();
    let (features, is_typed) = (source.table(), source.table().is_by_type());
    let Some((computing, rows)) = source.gathering() else {
        let (vertices, mut side) = (sampled.input.on_host()?, None);
        // Discards the reads of an evaluation.
        source.take_reads();
        let counted = source.count(vertices);
        let input_rows = match source.place() {
            _ if is_typed => InputRows::ByType(source.rows_by_type(vertices, input)?),
            _ if stays => InputRows::Stored,
            place @ Place::Host(_) => {
                let rows = source.rows(vertices, input, exchange.rows_received())?;
                InputRows::Read(exchange.forward_at(place, comm, Some(rows), features.dim())?)
            }
            Place::Device(gpu, ..) if ahead => {
                let (rows, stream) = source.rows_brought(gpu, vertices, input)?;
                side = Some(stream);
                InputRows::Gathered(rows)
            }
            Place::Device(..) => InputRows::Here(source.rows(vertices, input, 0)?),
        };
        let reads = source.take_reads();
        return Ok(Loaded {
            input_rows,
            counted,
            reads,
            side,
            ..Loaded::unread(sampled, features)
        });
    };
    let sampling = sampled.on_gpu.as_ref().map(|on_gpu| &on_gpu.gpu);
    let gpu = sampling.unwrap_or(computing);
    let vertices = sampled.input.on_gpu(gpu)?;
    let kept = (sums && input.is_plain() && exchange.is_identity())
        .then(|| rows.kept(gpu, source.place(), vertices));
    let input_rows = match kept.transpose()?.flatten() {
        Some(kept) => InputRows::Kept(kept),
        None if ahead && sampling.is_some() => {
            InputRows::Gathered(rows.ahead(gpu, vertices, input)?)
        }
        None => InputRows::Here(rows.tensor(gpu, source.place().device(), vertices, input)?),
    };
    let hits = rows.hits(gpu, vertices)?;
    Ok(Loaded { input_rows, hits, ..Loaded::unread(sampled, features) })
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
        let values: Vec<f32> =
            (0..rows).flat_map(|v| (0..dim).map(move |c| value(v, c) * (v % 5) as f32)).collect();
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
                    FeatureDtype::F16 => {
                        given.iter().map(|&value| f16::from_f32(value).to_f32()).collect()
                    }
                    FeatureDtype::Bf16 => {
                        given.iter().map(|&value| bf16::from_f32(value).to_f32()).collect()
                    }
                    FeatureDtype::I8 => {
                        let scale =
                            given.iter().fold(0f32, |largest, value| largest.max(value.abs()))
                                / 127.0;
                        let step = |value: f32| {
                            if scale == 0.0 { 0.0 } else { (value / scale).round_ties_even() }
                        };
                        given.iter().map(|&value| scale * step(value)).collect()
                    }
                };
                assert_eq!(found, stored, "{dtype}, vertex {v}");
            }
        }
    }
}
