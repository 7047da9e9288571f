//! Segment operators on a GPU, and the softmax of attention.
//!
//! Returns what the host does, up to rounding: the lanes of a warp have a segment's rows, a block's those of a segment of more than
//! 512. Cost: three passes over the values, which lie in the nearest cache after the first where segments are short; the
//! host does not wait.

use crate::cuda::{Argument, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, Shape};
use crate::dropout::RowMask;
use crate::edges::DeviceSegments;
use crate::error::KernelError;
use crate::gather::{DeviceRow, DeviceValue};
use crate::philox::StreamKey;
use crate::spmm::sum::{Factors, Over, SumRows, Table};

pub(crate) static MODULE: Module = Module { name: "segment", source: include_str!("cuda.cu") };

/// Threads of a block whose warps have a segment each.
const THREADS: u32 = 256;
/// Threads of a block that has one segment, as in `cuda.cu`.
const BIG_BLOCK: u32 = 512;

/// What scores of attention are made of, before LeakyReLU.
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
    /// Whether each segment has a row more, before its others.
    pub own: bool,
    /// Makes the values, instead of what is there.
    pub scores: Option<ScoreParts<'a>>,
    /// Vertices of the segments, rate and key: what is dropped gets a minus sign.
    pub dropout: Option<(DeviceSlice<'a, u32>, f32, StreamKey)>,
}

impl SegmentSoftmax<'_> {
    pub(crate) fn forward(&self, gpu: &Gpu, values: &DeviceSliceMut<'_, f32>) -> Result<(), GpuError> {
        let Some((vertices, rate, key)) = self.dropout else {
            return self.launch(gpu, "segment_softmax", &[values.into()]);
        };
        KernelError::check_len("vertices of the targets", self.segments.count(), vertices.len())?;
        let (threshold, _) = RowMask::new(rate, 0, &key)?.threshold_and_factor();
        self.launch(gpu, "segment_softmax_dropout", &[values.into(), vertices.into(), threshold.into(), (&key).into()])
    }

    /// What dropout multiplies the shares with that it does not drop.
    pub(crate) fn keep(&self) -> f32 {
        self.dropout.map_or(1.0, |(_, rate, _)| 1.0 / (1.0 - rate))
    }

    /// `gradient` is that of what dropout left of the shares. `totals` gets the sum over each segment, if there are scores.
    pub(crate) fn backward(
        &self,
        gpu: &Gpu,
        shares: DeviceSlice<'_, f32>,
        gradient: &DeviceSliceMut<'_, f32>,
        totals: Option<&DeviceSliceMut<'_, f32>>,
    ) -> Result<(), GpuError> {
        let totals = totals.map_or(0, |totals| totals.address());
        self.launch(
            gpu,
            "segment_softmax_backward",
            &[shares.into(), self.keep().into(), gradient.into(), totals.into()],
        )
    }

    fn launch(&self, gpu: &Gpu, name: &'static str, rest: &[Argument]) -> Result<(), GpuError> {
        let Self { segments, columns, own, scores, .. } = *self;
        if columns == 0 {
            return Ok(());
        }
        let pieces = segments.pieces(gpu)?;
        let lists = pieces.map_or([0; 2], |found| [&found.counts, &found.heavy].map(|list| list.slice().address()));
        let scores = scores.map_or([0; 8], |scores| scores.words());
        let run = |heavy: bool, shape: Shape| {
            let widths = columns as u64 | u64::from(own) << 32;
            let count = segments.count() as u64;
            let words = [segments.slice().address(), count, lists[0], lists[1], widths, heavy.into(), 0, 0];
            gpu.launch(Kernel { module: &MODULE, name }, shape, &[&[words.into(), scores.into()], rest].concat())
        };
        run(false, Shape::per_warp(segments.count(), THREADS))?;
        match pieces {
            Some(_) => run(true, Shape { blocks: segments.most_heavy() as u32, threads: BIG_BLOCK, shared: 0 }),
            None => Ok(()),
        }
    }
}

/// [`segment_softmax`](super::segment_softmax) on a GPU.
///
/// # Errors
/// [`KernelError::Length`]; what the GPU reports.
pub fn segment_softmax_on_device(
    gpu: &Gpu,
    segments: &DeviceSegments,
    dim: usize,
    values: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    KernelError::check_matrix("values of the segments", segments.num_rows(), dim, values.len())?;
    SegmentSoftmax { segments, columns: dim, own: false, scores: None, dropout: None }.forward(gpu, values)
}

/// [`segment_softmax_backward`](super::segment_softmax_backward) on a GPU.
///
/// # Errors
/// [`KernelError::Length`]; what the GPU reports.
pub fn segment_softmax_backward_on_device(
    gpu: &Gpu,
    segments: &DeviceSegments,
    dim: usize,
    shares: DeviceSlice<'_, f32>,
    gradient: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    KernelError::check_matrix("shares of the segments", segments.num_rows(), dim, shares.len())?;
    KernelError::check_matrix("gradient of the shares", segments.num_rows(), dim, gradient.len())?;
    SegmentSoftmax { segments, columns: dim, own: false, scores: None, dropout: None }
        .backward(gpu, shares, gradient, None)
}

/// [`segment_sum`](super::segment_sum) on a GPU: the host's bits for segments of at most 512 rows.
///
/// # Errors
/// [`KernelError::Length`]; what the GPU reports.
pub fn segment_sum_on_device(
    gpu: &Gpu,
    segments: &DeviceSegments,
    dim: usize,
    values: DeviceSlice<'_, f32>,
    out: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    KernelError::check_matrix("values of the segments", segments.num_rows(), dim, values.len())?;
    KernelError::check_matrix("sums of the segments", segments.count(), dim, out.len())?;
    let sum = SumRows {
        over: Over::Targets(segments, None),
        kernel: f32::of(f32::SUM),
        table: Table::matrix(values, segments.num_rows(), dim),
        factors: Factors::default(),
        dim,
    };
    sum.launch(gpu, out, [dim, 0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmm::tests::device::{assert_same, no_pieces};
    use crate::spmm::tests::{cases, values};
    use crate::{segment_softmax, segment_softmax_backward, segment_sum};

    #[test]
    fn shares_sums_and_gradients_are_those_of_the_host() {
        for (case, (name, edges, dim)) in cases().into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            // Columns that fill a warp, that leave lanes over, and more than a warp has.
            let (indptr, dim) = (edges.indptr(), dim.min([1, 3, 8, 40][case % 4]));
            let segments = DeviceSegments::new(gpu.upload(indptr).unwrap(), edges.num_edges()).unwrap();
            let input: Vec<f32> = values(1, edges.num_edges() * dim).iter().map(|value| 8.0 * value).collect();
            let mut expected = input.clone();
            segment_softmax(indptr, dim, &mut expected).unwrap();
            let mut shares = gpu.upload(&input).unwrap();
            segment_softmax_on_device(&gpu, &segments, dim, &mut shares.slice_mut()).unwrap();
            assert_same(&shares.to_vec().unwrap(), &expected, false, &name);

            let upstream = values(2, input.len());
            let mut of_input = upstream.clone();
            segment_softmax_backward(indptr, dim, &expected, &mut of_input).unwrap();
            let shares = gpu.upload(&expected).unwrap();
            let mut found = gpu.upload(&upstream).unwrap();
            let out = &mut found.slice_mut();
            segment_softmax_backward_on_device(&gpu, &segments, dim, shares.slice(), out).unwrap();
            assert_same(&found.to_vec().unwrap(), &of_input, false, &format!("gradient, {name}"));

            let mut sums = vec![f32::NAN; edges.num_targets() * dim];
            segment_sum(indptr, dim, &upstream, &mut sums).unwrap();
            let mut found = gpu.alloc(sums.len()).unwrap();
            let upstream = gpu.upload(&upstream).unwrap();
            segment_sum_on_device(&gpu, &segments, dim, upstream.slice(), &mut found.slice_mut()).unwrap();
            assert_same(&found.to_vec().unwrap(), &sums, no_pieces(indptr), &format!("sums, {name}"));
        }
    }

    #[test]
    fn scores_of_any_size_give_shares_and_wrong_sizes_are_refused() {
        let gpu = Gpu::under_test(2);
        let segments = DeviceSegments::new(gpu.upload(&[0u32, 3, 4]).unwrap(), 4).unwrap();
        let mut values = gpu.upload(&[1000.0f32, 999.0, -1000.0, 88.0]).unwrap();
        segment_softmax_on_device(&gpu, &segments, 1, &mut values.slice_mut()).unwrap();
        let values = values.to_vec().unwrap();
        assert!((values[0] - 0.731_058_6).abs() < 1e-6 && values[2] == 0.0 && values[3] == 1.0);
        fn length(result: Result<(), GpuError>) -> bool {
            matches!(result, Err(GpuError::Input(KernelError::Length { .. })))
        }
        let (mut few, many) = (gpu.zeros(3).unwrap(), gpu.zeros(4).unwrap());
        assert!(length(segment_softmax_on_device(&gpu, &segments, 1, &mut few.slice_mut())));
        let out = &mut few.slice_mut();
        assert!(length(segment_softmax_backward_on_device(&gpu, &segments, 1, many.slice(), out)));
        assert!(length(segment_sum_on_device(&gpu, &segments, 1, many.slice(), out)));
    }
}
