//! Input of the bottom layer: stored feature rows, normalised, and with dropout during training.
//!
//! Rows are transformed when they are used, so one dataset serves every recipe. Dropout is drawn by
//! vertex: a row is the same on every rank that reads it, however it got there. Plain rows need not
//! be copied: if there is nothing to do, a layer may read them directly from storage.

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{
    DeviceEpilogue, DeviceSlice, DeviceSliceMut, Epilogue, Gpu, Stream, StreamKey,
    divide_by_row_sums, divide_by_row_sums_on_device,
};
use gsplit_store::{FeatureTable, RowsRead};

use crate::Result;
use crate::config::{FeatureNorm, ModelConfig};
use crate::operator::gather_features;

/// Transformation of feature rows before the model reads them.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    normalise: FeatureNorm,
    dropout: Option<(f32, StreamKey)>,
}

impl Input {
    /// Leaves rows as they are stored.
    pub const PLAIN: Self = Self { normalise: FeatureNorm::None, dropout: None };

    /// The transformation for a model that is not being trained.
    pub fn new(config: &ModelConfig) -> Self {
        Self { normalise: config.normalise_features, dropout: None }
    }

    /// The transformation for the mini-batch `step` of training.
    pub fn training(config: &ModelConfig, step: Step) -> Self {
        // The numbers from 0 up belong to the hidden layers.
        let key = step.key(Stream::Dropout, u8::MAX);
        let dropout = (config.input_dropout > 0.0).then_some((config.input_dropout as f32, key));
        Self { dropout, ..Self::new(config) }
    }

    /// Whether rows stay as they are stored.
    pub fn is_plain(&self) -> bool {
        self.normalise == FeatureNorm::None && self.dropout.is_none()
    }

    /// Writes the rows of `vertices`, one after the other, to `out` as f32; returns where they were
    /// read from.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if `out` has the wrong size, or rows are too wide
    /// for dropout.
    pub fn read(
        &self,
        features: &FeatureTable,
        vertices: &[u32],
        out: &mut [f32],
    ) -> Result<RowsRead> {
        let reads = gather_features(features, vertices, out)?;
        let dim = features.dim();
        match self.normalise {
            FeatureNorm::None => {}
            FeatureNorm::Row => divide_by_row_sums(out, dim)?,
        }
        let dropout = self.dropout.map(|(probability, key)| (vertices, probability, key));
        Epilogue { dropout, ..Epilogue::default() }.apply(out, dim)?;
        Ok(reads)
    }

    /// Transforms `rows`, the stored rows of `vertices`, in place to the result of [`Input::read`],
    /// to the bit, on the stream of `gpu`. The host does not wait.
    ///
    /// # Errors
    /// Errors of [`Input::read`]; errors of the GPU.
    pub fn apply_on_gpu(
        &self,
        gpu: &Gpu,
        vertices: DeviceSlice<'_, u32>,
        rows: &mut DeviceSliceMut<'_, f32>,
        dim: usize,
    ) -> Result<()> {
        match self.normalise {
            FeatureNorm::None => {}
            FeatureNorm::Row => divide_by_row_sums_on_device(gpu, rows, dim)?,
        }
        let dropout = self.dropout.map(|(probability, key)| (vertices, probability, key));
        Ok(DeviceEpilogue { dropout, ..DeviceEpilogue::default() }.apply(gpu, rows, dim)?)
    }
}

#[cfg(test)]
mod tests {
    use gsplit_kernels::dropout_mask;
    use gsplit_store::{FeatureDtype, FeatureWriter};

    use super::*;
    use crate::config::{ModelKind, Parallelism};
    use crate::tests::quick_config;

    const STEP: Step = Step { seed: 1, epoch: 2, step: 3 };

    #[test]
    fn oracle_rows_are_normalised_then_dropped_by_vertex() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feat.arrow");
        // A bag of words, a row of zeros, and a row with both signs.
        let rows = [[1.0f32, 0.0, 1.0, 1.0, 1.0], [0.0; 5], [-3.0, 1.0, 0.0, 4.0, 0.0]];
        let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, 5).unwrap();
        writer.push_rows(rows.as_flattened()).unwrap();
        writer.finish().unwrap();
        let table = FeatureTable::open(&path).unwrap();
        let read = |input: Input, vertices: &[u32]| {
            let mut out = vec![f32::NAN; 5 * vertices.len()];
            input.read(&table, vertices, &mut out).unwrap();
            out
        };
        let mut config = quick_config(ModelKind::Sage, Parallelism::Single, 1).model;
        assert!(Input::training(&config, STEP).is_plain());
        config.normalise_features = FeatureNorm::Row;
        config.input_dropout = 0.5;
        let plain = read(Input::new(&config), &[2, 1, 0]);
        assert_eq!(
            plain,
            [[-0.375, 0.125, 0.0, 0.5, 0.0], [0.0; 5], [0.25, 0.0, 0.25, 0.25, 0.25]].concat()
        );

        let training = Input::training(&config, STEP);
        let key = STEP.key(Stream::Dropout, u8::MAX);
        let mut mask = [0f32; 15];
        dropout_mask(&[2, 1, 0], 5, 0.5, &key, &mut mask).unwrap();
        let expected: Vec<f32> =
            plain.iter().zip(&mask).map(|(value, factor)| value * factor).collect();
        assert_eq!(read(training, &[2, 1, 0]), expected);
        assert_eq!(read(training, &[0, 0]), [&expected[10..], &expected[10..]].concat());
        for input in [Input::new(&config), training] {
            let gpu = gsplit_gpu_sim::under_test(1);
            let stored: Vec<f32> = [rows[2], rows[1], rows[0]].concat();
            let (vertices, mut on_gpu) =
                (gpu.upload(&[2u32, 1, 0]).unwrap(), gpu.upload(&stored).unwrap());
            input.apply_on_gpu(&gpu, vertices.slice(), &mut on_gpu.slice_mut(), 5).unwrap();
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(on_gpu.to_vec().unwrap()), bits(read(input, &[2, 1, 0])));
        }
        assert!(mask.contains(&0.0) && mask.contains(&2.0));
    }
}
