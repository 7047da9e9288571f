//! Softmax over segments on a GPU, with the scores and the dropout of attention or without.
//!
//! Returns the host's results, up to rounding: the lanes of a warp share a segment's rows; a block
//! shares a segment of more than 512 rows. Cost: three passes over the values, which are in the
//! nearest cache after the first if segments are short; the host does not wait.

use crate::cuda::{
    Argument, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Module, Shape, arguments, pair,
};
use crate::dropout::RowMask;
use crate::edges::DeviceSegments;
use crate::error::check_len;
use crate::philox::StreamKey;

pub(crate) static MODULE: Module = Module { name: "segment", source: include_str!("cuda.cu") };

/// Threads of a block that has one segment, as in `cuda.cu`.
const BIG_BLOCK: u32 = 512;

/// Terms of attention scores, before LeakyReLU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreParts<'a> {
    pub sources: DeviceSlice<'a, u32>,
    pub num_sources: usize,
    pub from_source: DeviceSlice<'a, f32>,
    pub from_target: DeviceSlice<'a, f32>,
    pub slope: f32,
}

impl ScoreParts<'_> {
    fn words(&self) -> [u64; 8] {
        let rows = [self.from_source.address(), self.from_target.address()];
        let slope = u64::from(self.slope.to_bits());
        [self.sources.address(), rows[0], rows[1], self.num_sources as u64, slope, 0, 0, 0]
    }
}

/// Softmax over segments of rows of `columns` values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentSoftmax<'a> {
    pub segments: &'a DeviceSegments,
    pub columns: usize,
    /// Whether each segment has an additional row, before its others.
    pub own: bool,
    /// If given, the values are computed from these instead of being read.
    pub scores: Option<ScoreParts<'a>>,
    /// Vertices of the segments, rate and key of dropout: a dropped value gets a minus sign.
    pub dropout: Option<(DeviceSlice<'a, u32>, f32, StreamKey)>,
}

impl SegmentSoftmax<'_> {
    pub(crate) fn forward(
        &self,
        gpu: &Gpu,
        values: &DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let Some((vertices, rate, key)) = self.dropout else {
            return self.launch(gpu, "segment_softmax", &arguments![values]);
        };
        check_len("vertices of the targets", self.segments.count(), vertices.len())?;
        let (threshold, _) = RowMask::new(rate, 0, &key)?.threshold_and_factor();
        self.launch(gpu, "segment_softmax_dropout", &arguments![values, vertices, threshold, &key])
    }

    /// Factor of the attention weights that dropout keeps.
    pub(crate) fn keep(&self) -> f32 {
        self.dropout.map_or(1.0, |(_, rate, _)| 1.0 / (1.0 - rate))
    }

    /// Turns the gradient of the weights after dropout into that of the softmax's input; with
    /// scores, `totals` gets each segment's sum.
    pub(crate) fn backward(
        &self,
        gpu: &Gpu,
        weights: DeviceSlice<'_, f32>,
        gradient: &DeviceSliceMut<'_, f32>,
        totals: Option<&DeviceSliceMut<'_, f32>>,
    ) -> Result<(), GpuError> {
        let totals = totals.map_or(0, |totals| totals.address());
        self.launch(
            gpu,
            "segment_softmax_backward",
            &arguments![weights, self.keep(), gradient, totals],
        )
    }

    fn launch(&self, gpu: &Gpu, name: &'static str, rest: &[Argument]) -> Result<(), GpuError> {
        let Self { segments, columns, own, scores, .. } = *self;
        if columns == 0 {
            return Ok(());
        }
        let pieces = segments.pieces(gpu)?;
        let lists = pieces.map_or([0; 2], |found| {
            [&found.counts, &found.heavy].map(|list| list.slice().address())
        });
        let scores = scores.map_or([0; 8], |scores| scores.words());
        let run = |heavy: bool, shape: Shape| {
            let widths = pair(columns, own.into());
            let count = segments.count() as u64;
            let words =
                [segments.slice().address(), count, lists[0], lists[1], widths, heavy.into(), 0, 0];
            gpu.launch(MODULE.kernel(name), shape, &[&arguments![words, scores][..], rest].concat())
        };
        run(false, Shape::per_item(32 * segments.count()))?;
        match pieces {
            Some(_) => run(
                true,
                Shape { blocks: segments.most_heavy() as u32, threads: BIG_BLOCK, shared: 0 },
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_any_size_give_weights() {
        let gpu = Gpu::under_test(2);
        let segments = DeviceSegments::new(gpu.upload(&[0u32, 3, 4]).unwrap(), 4).unwrap();
        let mut values = gpu.upload(&[1000.0f32, 999.0, -1000.0, 88.0]).unwrap();
        let softmax = SegmentSoftmax {
            segments: &segments,
            columns: 1,
            own: false,
            scores: None,
            dropout: None,
        };
        softmax.forward(&gpu, &values.slice_mut()).unwrap();
        let values = values.to_vec().unwrap();
        assert!((values[0] - 0.731_058_6).abs() < 1e-6 && values[2] == 0.0 && values[3] == 1.0);
    }
}
