//! The epilogue of a product on a GPU.
//!
//! Returns: the host's bits, rounded to bf16 or f16 if the finished rows are of that type. Only
//! column sums are taken in another order than the host's. Input: matrices of matching sizes on the
//! device. Cost: one read and one write of the rows, in groups of eight values where rows are
//! 16-bit and a multiple of eight wide; backwards two reads and one write; with dropout one Philox
//! call per eight values.

use crate::columns::ColumnSums;
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, arguments};
use crate::dropout::RowMask;
use crate::error::{check_len, count_rows};
use crate::gather::{DeviceRow, row_kernel, values_at_once};
use crate::philox::StreamKey;

use super::Activation;

pub(crate) static MODULE: Module = Module { name: "activation", source: include_str!("cuda.cu") };

/// Columns whose masks one group of threads makes, and threads of such a group, as in `cuda.cu`.
const GROUP: (usize, usize) = (128, 16);

/// Steps after a product on a GPU: like [`Epilogue`](super::Epilogue).
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceEpilogue<'a> {
    /// Added to every row.
    pub bias: Option<DeviceSlice<'a, f32>>,
    /// Applied last.
    pub activation: Activation,
    /// Vertices of the rows, and rate and key of their [dropout](crate::dropout_mask).
    pub dropout: Option<(DeviceSlice<'a, u32>, f32, StreamKey)>,
}

impl DeviceEpilogue<'_> {
    /// Changes `rows` (any number × `dim`) in place.
    pub fn apply(
        &self,
        gpu: &Gpu,
        rows: &mut DeviceSliceMut<'_, f32>,
        dim: usize,
    ) -> Result<(), GpuError> {
        if self.bias.is_none() && self.dropout.is_none() && self.activation == Activation::Identity
        {
            return Ok(count_rows("rows of the product", dim, rows.len()).map(drop)?);
        }
        // Each value is read and written by one thread.
        let (address, len) = (rows.address(), rows.len());
        self.launch::<f32>(gpu, [address, address], len, dim)
    }

    /// Fills `out`, of the same size, with the result of [`DeviceEpilogue::apply`] on `rows`,
    /// rounded to its type.
    pub fn apply_to<O: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, f32>,
        dim: usize,
        out: &mut DeviceSliceMut<'_, O>,
    ) -> Result<(), GpuError> {
        check_len("finished rows", rows.len(), out.len())?;
        self.launch::<O>(gpu, [rows.address(), out.address()], rows.len(), dim)
    }

    /// Applies it to `len` values at the first address, and writes as many values of type `O` at
    /// the second.
    fn launch<O: DeviceRow>(
        &self,
        gpu: &Gpu,
        [from, to]: [u64; 2],
        len: usize,
        dim: usize,
    ) -> Result<(), GpuError> {
        let count = count_rows("rows of the product", dim, len)?;
        if let Some(bias) = self.bias {
            check_len("bias", dim, bias.len())?;
        }
        let bias = self.bias.map_or(0, |bias| bias.address());
        let part = values_at_once(
            &[dim],
            &[(to, size_of::<O>())],
            &[(from, size_of::<f32>()), (bias, size_of::<f32>())],
        );
        let (columns, part_word, activation) = (dim as u32, part as u32, self.activation as u32);
        if let (Some((ids, rate, key)), 1..) = (self.dropout, dim) {
            check_len("vertices of the rows", count, ids.len())?;
            let (threshold, keep) = RowMask::new(rate, dim, &key)?.threshold_and_factor();
            let of = arguments![
                from, count, columns, bias, activation, ids, threshold, keep, &key, to, part_word
            ];
            let kernel = row_kernel!(MODULE, "epilogue_dropout", O);
            return gpu.run(kernel, threads_of_masks(count, dim), &of);
        }
        let of = arguments![from, len, columns, bias, activation, to, part_word];
        gpu.run(row_kernel!(MODULE, "epilogue_apply", O), len / part, &of)
    }

    /// Fills `out` with the gradient of the product, given `rows`, the output of
    /// [`DeviceEpilogue::apply`], and their `gradient`. All have the same size, any number × `dim`.
    pub fn backward<O: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, O>,
        gradient: DeviceSlice<'_, O>,
        dim: usize,
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let kernels = [
            row_kernel!(MODULE, "epilogue_backward", O),
            row_kernel!(MODULE, "epilogue_dropout_backward", O),
        ];
        self.launch_backward(gpu, kernels, [rows, gradient], dim, out)
    }

    /// Like [`DeviceEpilogue::backward`], with the gradient of the product rounded to the type of
    /// the rows.
    pub fn backward_to<O: DeviceRow>(
        &self,
        gpu: &Gpu,
        rows: DeviceSlice<'_, O>,
        gradient: DeviceSlice<'_, O>,
        dim: usize,
        out: &mut DeviceSliceMut<'_, O>,
    ) -> Result<(), GpuError> {
        let kernels = [
            row_kernel!(MODULE, "epilogue_backward_rounded", O),
            row_kernel!(MODULE, "epilogue_dropout_backward_rounded", O),
        ];
        self.launch_backward(gpu, kernels, [rows, gradient], dim, out)
    }

    /// Runs the first kernel, or with dropout the second.
    fn launch_backward<O: DeviceRow, G: DeviceRow>(
        &self,
        gpu: &Gpu,
        [plain, dropped]: [Kernel; 2],
        [rows, gradient]: [DeviceSlice<'_, O>; 2],
        dim: usize,
        out: &mut DeviceSliceMut<'_, G>,
    ) -> Result<(), GpuError> {
        let count = count_rows("rows of the product", dim, rows.len())?;
        check_len("gradient of the rows", rows.len(), gradient.len())?;
        check_len("gradient of the product", rows.len(), out.len())?;
        let activation = self.activation as u32;
        let [of_rows, given] = [rows, gradient].map(|matrix| (matrix.address(), size_of::<O>()));
        let part = |columns| {
            values_at_once(&[columns], &[of_rows, given], &[(out.address(), size_of::<G>())])
        };
        if let (Some((ids, rate, key)), 1.., Activation::Identity | Activation::Elu) =
            (self.dropout, dim, self.activation)
        {
            check_len("vertices of the rows", count, ids.len())?;
            let (threshold, keep) = RowMask::new(rate, dim, &key)?.threshold_and_factor();
            let rows = arguments![rows, gradient, count, dim as u32, activation];
            let rest = arguments![ids, threshold, keep, &key, &*out, part(dim) as u32];
            return gpu.run(dropped, threads_of_masks(count, dim), &[&rows[..], &rest].concat());
        }
        let keep = self.dropout.map_or(1.0, |(_, rate, _)| 1.0 / (1.0 - rate));
        let part = part(rows.len());
        let of = arguments![rows, gradient, rows.len(), activation, keep, &*out, part as u32];
        gpu.run(plain, rows.len() / part, &of)
    }
}

/// Number of threads that make the masks of `rows` rows of `dim` values.
fn threads_of_masks(rows: usize, dim: usize) -> usize {
    rows * dim.div_ceil(GROUP.0) * GROUP.1
}

/// Fills `out` with the sum of the rows of `values`, which have the same width, in f32.
pub fn column_sums_on_device<T: DeviceRow>(
    gpu: &Gpu,
    values: DeviceSlice<'_, T>,
    out: &mut DeviceSliceMut<'_, f32>,
) -> Result<(), GpuError> {
    let dim = out.len();
    let rows = count_rows("rows to sum", dim, values.len())?;
    ColumnSums { rows, dim }.of(gpu, values, out)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::super::Epilogue;
    use super::*;
    use crate::error::KernelError;
    use crate::philox::Stream;
    use crate::spmm::tests::{Rounded, assert_close, bits, rounded, values, wide, widened};

    const KEY: StreamKey =
        StreamKey { seed: 5 << 33, epoch: 1, step: 2, stream: Stream::Dropout, layer: 3 };

    #[test]
    fn rows_and_gradients_have_the_bits_of_the_host() {
        for (order, (rows, dim)) in
            [(0, 3), (1, 1), (30, 7), (50, 64), (3, 0), (9, 300), (5, 129)].into_iter().enumerate()
        {
            let gpu = Gpu::under_test(order as u32 % 4);
            let bias = values(2, dim);
            let mut product: Vec<f32> = values(1, rows * dim).iter().map(|x| 6.0 * x).collect();
            product.chunks_mut(dim.max(1)).step_by(3).for_each(|row| row.fill(0.0));
            let ids: Vec<u32> = (0..rows as u32).map(|row| row * 7 % 31).collect();
            let (device_bias, device_ids) = (gpu.upload(&bias).unwrap(), gpu.upload(&ids).unwrap());
            for activation in [Activation::Identity, Activation::Relu, Activation::Elu] {
                for (with_bias, rate) in
                    [(false, None), (true, None), (true, Some(0.5)), (false, Some(0.2))]
                {
                    let name = format!(
                        "{rows} rows of {dim}, {activation:?}, bias {with_bias}, dropout {rate:?}"
                    );
                    let dropout = rate.map(|rate| (&ids[..], rate, KEY));
                    let host =
                        Epilogue { bias: with_bias.then_some(&bias[..]), activation, dropout };
                    let dropout = rate.map(|rate| (device_ids.slice(), rate, KEY));
                    let bias = with_bias.then_some(device_bias.slice());
                    let device = DeviceEpilogue { bias, activation, dropout };
                    let mut expected = product.clone();
                    host.apply(&mut expected, dim).unwrap();
                    let mut found = gpu.upload(&product).unwrap();
                    device.apply(&gpu, &mut found.slice_mut(), dim).unwrap();
                    assert_eq!(found.to_vec().unwrap(), expected, "{name}");

                    let gradient = values(3, expected.len());
                    let mut of_product = vec![f32::NAN; expected.len()];
                    host.backward(&expected, &gradient, dim, &mut of_product).unwrap();
                    let gradient = gpu.upload(&gradient).unwrap();
                    let mut out = gpu.alloc(expected.len()).unwrap();
                    device
                        .backward(&gpu, found.slice(), gradient.slice(), dim, &mut out.slice_mut())
                        .unwrap();
                    assert_eq!(out.to_vec().unwrap(), of_product, "gradient, {name}");
                }
            }
        }
    }

    #[test]
    fn rounded_rows_are_those_of_f32_rounded() {
        rounded_rows::<bf16>();
        rounded_rows::<f16>();
    }

    fn rounded_rows<T: Rounded>() {
        for (order, (rows, dim)) in
            [(1, 1), (30, 7), (50, 64), (3, 0), (5, 129)].into_iter().enumerate()
        {
            let gpu = Gpu::under_test(order as u32 % 4);
            let mut product: Vec<f32> = values(1, rows * dim).iter().map(|x| 6.0 * x).collect();
            // Values that these types cannot represent: too large, too small, not a number.
            let odd =
                [f32::MAX, f32::MIN, 3.0e-41, -3.0e-41, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
            product.iter_mut().step_by(5).zip(odd).for_each(|(value, odd)| *value = odd);
            let ids: Vec<u32> = (0..rows as u32).collect();
            let (given, ids) = (gpu.upload(&product).unwrap(), gpu.upload(&ids).unwrap());
            let bias = gpu.upload(&values(2, dim)).unwrap();
            for activation in [Activation::Identity, Activation::Relu, Activation::Elu] {
                for rate in [None, Some(0.5)] {
                    let dropout = rate.map(|rate| (ids.slice(), rate, KEY));
                    let bias = rate.is_some().then_some(bias.slice());
                    let device = DeviceEpilogue { bias, activation, dropout };
                    let (mut wide, mut found) =
                        (gpu.alloc(product.len()).unwrap(), gpu.alloc(product.len()).unwrap());
                    device
                        .apply_to::<f32>(&gpu, given.slice(), dim, &mut wide.slice_mut())
                        .unwrap();
                    device.apply_to::<T>(&gpu, given.slice(), dim, &mut found.slice_mut()).unwrap();
                    let expected = bits(&rounded::<T>(&wide.to_vec().unwrap()));
                    assert_eq!(
                        bits::<T>(&found.to_vec().unwrap()),
                        expected,
                        "{rows} rows of {dim}, {activation:?}"
                    );

                    let gradient: Vec<T> = rounded(&values(3, product.len()));
                    let held = gpu.upload(&widened::<T>(&found.to_vec().unwrap())).unwrap();
                    let wide_gradient = gpu.upload(&widened(&gradient)).unwrap();
                    let gradient = gpu.upload(&gradient).unwrap();
                    let [mut out, mut expected] = [0, 1].map(|_| gpu.alloc(product.len()).unwrap());
                    device
                        .backward(&gpu, found.slice(), gradient.slice(), dim, &mut out.slice_mut())
                        .unwrap();
                    device
                        .backward(
                            &gpu,
                            held.slice(),
                            wide_gradient.slice(),
                            dim,
                            &mut expected.slice_mut(),
                        )
                        .unwrap();
                    let (out, expected) = (out.to_vec().unwrap(), expected.to_vec().unwrap());
                    assert_eq!(bits::<f32>(&out), bits::<f32>(&expected), "gradient");
                    let mut narrow = gpu.alloc::<T>(product.len()).unwrap();
                    device
                        .backward_to(
                            &gpu,
                            found.slice(),
                            gradient.slice(),
                            dim,
                            &mut narrow.slice_mut(),
                        )
                        .unwrap();
                    let narrow = narrow.to_vec().unwrap();
                    assert_eq!(
                        bits::<T>(&narrow),
                        bits(&rounded::<T>(&expected)),
                        "rounded gradient"
                    );
                }
            }
        }
    }

    /// Rows of every width, from widths where wide loads can start to widths that need single
    /// loads: the same bits.
    #[test]
    fn rows_have_the_same_bits_whatever_a_load_takes() {
        rows_from_anywhere::<f32>();
        rows_from_anywhere::<bf16>();
        rows_from_anywhere::<f16>();
    }

    fn rows_from_anywhere<T: Rounded>() {
        let (gpu, rows) = (Gpu::under_test(3), 3);
        let ids = gpu.upload(&[5u32, 1, 9]).unwrap();
        for (dim, rate) in
            (1..=33).chain([136, 140, 260]).flat_map(|dim| [(dim, None), (dim, Some(0.4))])
        {
            let (product, gradient, bias) =
                (values(1, rows * dim), values(3, rows * dim), values(2, dim));
            let of_values = |start: usize| {
                let padded = |values: &[f32]| [&vec![0.0; start], values].concat();
                let [product, bias] =
                    [&product, &bias].map(|values| gpu.upload(&padded(values)).unwrap());
                let given = gpu.upload(&rounded::<T>(&padded(&gradient))).unwrap();
                let (end, dropout) =
                    (start + rows * dim, rate.map(|rate| (ids.slice(), rate, KEY)));
                let bias = Some(bias.slice().part(start, start + dim).unwrap());
                let device = DeviceEpilogue { bias, activation: Activation::Elu, dropout };
                let [mut out, mut rounded_back] = [0, 1].map(|_| gpu.zeros::<T>(end).unwrap());
                let mut back = gpu.zeros(end).unwrap();
                let from = product.slice().part(start, end).unwrap();
                device
                    .apply_to(&gpu, from, dim, &mut out.slice_mut().part(start, end).unwrap())
                    .unwrap();
                let [finished, given] =
                    [&out, &given].map(|values| values.slice().part(start, end).unwrap());
                device
                    .backward(
                        &gpu,
                        finished,
                        given,
                        dim,
                        &mut back.slice_mut().part(start, end).unwrap(),
                    )
                    .unwrap();
                let to = &mut rounded_back.slice_mut().part(start, end).unwrap();
                device.backward_to(&gpu, finished, given, dim, to).unwrap();
                let [out, rounded_back] =
                    [out, rounded_back].map(|out| bits(&out.to_vec().unwrap()[start..]));
                [out, rounded_back, bits(&back.to_vec().unwrap()[start..])]
            };
            let expected = of_values(1);
            for start in [0, 4, 8] {
                assert_eq!(
                    of_values(start),
                    expected,
                    "{dim} columns from {start}, dropout {rate:?}"
                );
            }
        }
    }

    #[test]
    fn masks_are_drawn_while_rows_are_read_16_bytes_at_a_time() {
        let (gpu, ids) = (Gpu::emulated(0), [3u32; 2]);
        let (product, ids) = (gpu.upload(&values(1, 2 * 256)).unwrap(), gpu.upload(&ids).unwrap());
        let (mut out, mut back) =
            (gpu.alloc::<bf16>(2 * 256).unwrap(), gpu.alloc::<bf16>(2 * 256).unwrap());
        let device = DeviceEpilogue {
            bias: None,
            activation: Activation::Elu,
            dropout: Some((ids.slice(), 0.5, KEY)),
        };
        Gpu::accesses();
        device.apply_to(&gpu, product.slice(), 256, &mut out.slice_mut()).unwrap();
        // Eight values: 32 bytes of f32 and 16 of bf16, and the vertex.
        assert_eq!(Gpu::accesses()[0], 64 * (3 + 1));
        device.backward_to(&gpu, out.slice(), out.slice(), 256, &mut back.slice_mut()).unwrap();
        assert_eq!(Gpu::accesses()[0], 64 * (3 + 1));
    }

    #[test]
    fn sums_of_columns_are_those_of_the_host() {
        for (order, (rows, dim)) in
            [(0, 4), (1, 1), (20_000, 1), (5000, 3), (2048, 40), (7, 0), (600, 300)]
                .into_iter()
                .enumerate()
        {
            let matrix = values(1, rows * dim);
            let mut expected = vec![0f64; dim];
            wide(&matrix).iter().enumerate().for_each(|(at, value)| expected[at % dim] += value);
            let gpu = Gpu::under_test(order as u32 % 4);
            let mut out = gpu.alloc(dim).unwrap();
            column_sums_on_device(&gpu, gpu.upload(&matrix).unwrap().slice(), &mut out.slice_mut())
                .unwrap();
            assert_close(&out.to_vec().unwrap(), &expected, &format!("{rows} rows of {dim}"));
            let narrow: Vec<bf16> = rounded(&matrix);
            let widened = gpu.upload(&widened(&narrow)).unwrap();
            column_sums_on_device(&gpu, widened.slice(), &mut out.slice_mut()).unwrap();
            let expected = out.to_vec().unwrap();
            column_sums_on_device(&gpu, gpu.upload(&narrow).unwrap().slice(), &mut out.slice_mut())
                .unwrap();
            assert_eq!(out.to_vec().unwrap(), expected, "{rows} rows of {dim}, bf16");
        }
    }

    #[test]
    fn wrong_sizes_are_refused() {
        fn length(result: Result<(), GpuError>) -> bool {
            matches!(result, Err(GpuError::Input(KernelError::Length { .. })))
        }
        let gpu = Gpu::under_test(0);
        let (mut rows, few) = (gpu.zeros(4).unwrap(), gpu.zeros(3).unwrap());
        let ids = gpu.zeros::<u32>(1).unwrap();
        let plain = DeviceEpilogue { activation: Activation::Relu, ..DeviceEpilogue::default() };
        assert!(length(plain.apply(&gpu, &mut rows.slice_mut(), 3)));
        let biased = DeviceEpilogue { bias: Some(few.slice()), ..plain };
        assert!(length(biased.apply(&gpu, &mut rows.slice_mut(), 2)));
        let dropping = |rate| DeviceEpilogue { dropout: Some((ids.slice(), rate, KEY)), ..plain };
        assert!(length(dropping(0.5).apply(&gpu, &mut rows.slice_mut(), 2)));
        let refused = dropping(1.0).apply(&gpu, &mut rows.slice_mut(), 4);
        assert!(matches!(refused, Err(GpuError::Input(KernelError::DropoutRate { .. }))));
        let mut out = gpu.zeros(4).unwrap();
        assert!(length(plain.backward(&gpu, few.slice(), rows.slice(), 1, &mut out.slice_mut())));
        assert!(length(column_sums_on_device(&gpu, few.slice(), &mut out.slice_mut())));
    }
}
