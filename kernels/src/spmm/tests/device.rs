//! Every aggregation on a GPU against the one on the host: the same bits, if no row is summed in
//! pieces.

use half::{bf16, f16};

use super::{Rounded, assert_close, bits, cases, edges, kinds, rounded, values, wide, widened};
use crate::gather::ScaledRow;
use crate::{
    Aggregation, DeviceAggregation, DeviceEdges, DeviceRows, DeviceTable, Gpu, GpuError, HostEdges,
    KernelError, Reduce, aggregate_max, aggregate_max_backward, aggregate_max_backward_on_device,
    aggregate_max_on_device, gather_on_device,
};

/// [`cases`], a source of many edges, and rows wider than a warp whose width is not a multiple of
/// it.
fn device_cases() -> Vec<(String, HostEdges, usize)> {
    let mut cases = cases();
    for dim in [3, 47, 64, 300] {
        cases.push((format!("a busy source, width {dim}"), edges(77, 700, 50, 2, 600), dim));
    }
    cases
}

/// Asserts the same bits if `exactly`, else equality up to rounding.
pub fn assert_same(found: &[f32], expected: &[f32], exactly: bool, what: &str) {
    match exactly {
        true => assert!(found == expected, "{what}: other bits"),
        false => assert_close(found, &wide(expected), what),
    }
}

/// Whether no row has more edges than a piece.
pub fn no_pieces(indptr: &[u32]) -> bool {
    indptr.windows(2).all(|pair| pair[1] - pair[0] <= 512)
}

#[test]
fn sums_and_gradients_are_those_of_the_host() {
    for (case, (name, edges, dim)) in device_cases().into_iter().enumerate() {
        let gpu = Gpu::under_test(case as u32 % 4);
        let on_device = DeviceEdges::upload(&gpu, &edges).unwrap();
        let (rows, weights) = (values(1, edges.num_sources() * dim), values(2, edges.num_edges()));
        let (device_rows, device_weights) =
            (gpu.upload(&rows).unwrap(), gpu.upload(&weights).unwrap());
        let (by_target, by_source) =
            (no_pieces(edges.indptr()), no_pieces(&edges.by_source().indptr));
        // A different third of the kinds for each case.
        for (reduce, weighted, concat_self) in kinds().into_iter().skip(case % 3).step_by(3) {
            if concat_self && edges.num_targets() > edges.num_sources() {
                continue;
            }
            let name = format!("{name}, {reduce:?}, weighted {weighted}, beside own {concat_self}");
            let given = weighted.then_some(&weights[..]);
            let host = Aggregation { edges: &edges, reduce, weights: given, concat_self };
            let given = weighted.then_some(device_weights.slice());
            let device =
                DeviceAggregation { edges: &on_device, reduce, weights: given, concat_self };
            let mut expected = vec![f32::NAN; edges.num_targets() * host.out_dim(dim)];
            host.forward(|s| &rows[s as usize * dim..][..dim], dim, &mut expected).unwrap();
            let mut found = gpu.alloc(expected.len()).unwrap();
            device.forward(&gpu, device_rows.slice(), dim, &mut found.slice_mut()).unwrap();
            assert_same(&found.to_vec().unwrap(), &expected, by_target, &name);

            let gradient = values(3, expected.len());
            let device_gradient = gpu.upload(&gradient).unwrap();
            let mut expected = vec![f32::NAN; rows.len()];
            host.backward(&gradient, dim, &mut expected).unwrap();
            let mut found = gpu.alloc(expected.len()).unwrap();
            device
                .backward(&gpu, device_gradient.slice(), None, dim, &mut found.slice_mut())
                .unwrap();
            assert_same(
                &found.to_vec().unwrap(),
                &expected,
                by_source,
                &format!("gradient, {name}"),
            );

            let mut expected = vec![f32::NAN; edges.num_edges()];
            host.weights_backward(&rows, &gradient, dim, &mut expected).unwrap();
            let mut found = gpu.alloc(expected.len()).unwrap();
            let (r, g) = (device_rows.slice(), device_gradient.slice());
            device.weights_backward(&gpu, r, g, dim, &mut found.slice_mut()).unwrap();
            assert_same(
                &found.to_vec().unwrap(),
                &expected,
                false,
                &format!("weights' gradient, {name}"),
            );
        }
    }
}

/// Sums of rows of bf16 and f16 have the bits of the sums of the same rows in f32, rounded once if
/// the output is rounded.
#[test]
fn sums_of_rounded_rows_are_those_of_f32_rounded() {
    sums_of_rounded_rows::<bf16>(0, 4);
    sums_of_rounded_rows::<f16>(1, 4);
}

#[test]
#[ignore = "takes long: make test-all"]
fn sums_of_rounded_rows_of_every_case_are_those_of_f32_rounded() {
    sums_of_rounded_rows::<bf16>(0, 1);
    sums_of_rounded_rows::<f16>(0, 1);
}

fn sums_of_rounded_rows<T: Rounded>(first: usize, step: usize) {
    for (case, (name, edges, dim)) in
        device_cases().into_iter().enumerate().skip(first).step_by(step)
    {
        let gpu = Gpu::under_test(case as u32 % 4);
        let on_device = DeviceEdges::upload(&gpu, &edges).unwrap();
        let mut rows: Vec<T> = rounded(&values(1, edges.num_sources() * dim));
        // Sums that overflow, a number that only f32 can represent, infinities of both signs and
        // NaN.
        for (place, odd) in
            [(3, f32::MAX), (11, -f32::MAX), (19, 1e-40), (31, f32::INFINITY), (47, f32::NAN)]
        {
            rows.iter_mut().skip(place).step_by(97).for_each(|value| *value = T::round(odd));
        }
        let weights = gpu.upload(&values(2, edges.num_edges())).unwrap();
        let (wide, narrow) = (gpu.upload(&widened(&rows)).unwrap(), gpu.upload(&rows).unwrap());
        for (reduce, weighted, concat_self) in kinds().into_iter().skip(case % 3).step_by(3) {
            if concat_self && edges.num_targets() > edges.num_sources() {
                continue;
            }
            let name = format!("{name}, {reduce:?}, weighted {weighted}, beside own {concat_self}");
            let weights = weighted.then_some(weights.slice());
            let op = DeviceAggregation { edges: &on_device, reduce, weights, concat_self };
            let len = edges.num_targets() * op.out_dim(dim);
            let mut of_wide = gpu.alloc::<f32>(len).unwrap();
            op.forward(&gpu, wide.slice(), dim, &mut of_wide.slice_mut()).unwrap();
            let expected = bits(&rounded::<T>(&of_wide.to_vec().unwrap()));
            let (mut to_f32, mut to_half) =
                (gpu.alloc::<f32>(len).unwrap(), gpu.alloc::<T>(len).unwrap());
            op.forward(&gpu, narrow.slice(), dim, &mut to_f32.slice_mut()).unwrap();
            assert_eq!(bits(&rounded::<T>(&to_f32.to_vec().unwrap())), expected, "{name}");
            op.forward(&gpu, narrow.slice(), dim, &mut to_half.slice_mut()).unwrap();
            assert_eq!(bits(&to_half.to_vec().unwrap()), expected, "rounded, {name}");
            op.forward(&gpu, wide.slice(), dim, &mut to_half.slice_mut()).unwrap();
            assert_eq!(bits(&to_half.to_vec().unwrap()), expected, "from f32, rounded, {name}");

            let gradient: Vec<T> = rounded(&values(3, len));
            let (wide, narrow) =
                (gpu.upload(&widened(&gradient)).unwrap(), gpu.upload(&gradient).unwrap());
            let (mut of_wide, mut to_f32) =
                (gpu.alloc::<f32>(rows.len()).unwrap(), gpu.alloc::<f32>(rows.len()).unwrap());
            op.backward(&gpu, wide.slice(), None, dim, &mut of_wide.slice_mut()).unwrap();
            op.backward(&gpu, narrow.slice(), None, dim, &mut to_f32.slice_mut()).unwrap();
            assert_eq!(to_f32.to_vec().unwrap(), of_wide.to_vec().unwrap(), "gradient, {name}");
            let expected = bits(&rounded::<T>(&of_wide.to_vec().unwrap()));
            let mut to_half = gpu.alloc::<T>(rows.len()).unwrap();
            op.backward(&gpu, narrow.slice(), None, dim, &mut to_half.slice_mut()).unwrap();
            assert_eq!(bits(&to_half.to_vec().unwrap()), expected, "gradient of rounded, {name}");
            op.backward(&gpu, wide.slice(), None, dim, &mut to_half.slice_mut()).unwrap();
            assert_eq!(bits(&to_half.to_vec().unwrap()), expected, "gradient, rounded, {name}");

            // Some of ReLU's output rows are 0, and dropout has doubled the others.
            let made: Vec<T> = rounded(
                &values(4, rows.len()).iter().map(|value| value.max(0.0)).collect::<Vec<_>>(),
            );
            let relu = |(made, &of_wide): (&T, &f32)| {
                T::round(if made.widen() > 0.0 { 2.0 * of_wide } else { 0.0 })
            };
            let expected: Vec<T> = made.iter().zip(&of_wide.to_vec().unwrap()).map(relu).collect();
            let (given, made) = (narrow.slice(), gpu.upload(&made).unwrap());
            let relu = Some((made.slice(), 2.0));
            op.backward(&gpu, given, relu, dim, &mut to_half.slice_mut()).unwrap();
            assert_eq!(
                bits(&to_half.to_vec().unwrap()),
                bits(&expected),
                "gradient through ReLU, {name}"
            );
        }
    }
}

/// Rows of every width, from widths where wide loads can start to widths that need single loads:
/// the same bits.
#[test]
fn sums_have_the_same_bits_whatever_a_load_takes() {
    sums_from_anywhere::<f32, bf16>();
    sums_from_anywhere::<bf16, bf16>();
    sums_from_anywhere::<f16, f32>();
}

fn sums_from_anywhere<T: Rounded, O: Rounded>() {
    let (gpu, edges) = (Gpu::under_test(1), edges(7, 9, 12, 11, 0));
    let on_device = DeviceEdges::upload(&gpu, &edges).unwrap();
    let weights = gpu.upload(&values(2, edges.num_edges())).unwrap();
    for dim in 1..=33 {
        let (reduce, concat_self) = (Reduce::Mean, dim % 3 == 0);
        let weights = (dim % 2 == 0).then_some(weights.slice());
        let op = DeviceAggregation { edges: &on_device, reduce, weights, concat_self };
        let len = edges.num_targets() * op.out_dim(dim);
        let (rows, given) = (values(1, edges.num_sources() * dim), values(3, len));
        let of_values = |start: usize| {
            let place = |values: &[f32]| {
                gpu.upload(&rounded::<T>(&[&vec![0.0; start], values].concat())).unwrap()
            };
            let (held, held_gradient) = (place(&rows), place(&given));
            let (mut out, mut back) =
                (gpu.zeros::<O>(start + len).unwrap(), gpu.zeros::<O>(start + rows.len()).unwrap());
            let rows_there = held.slice().part(start, held.len()).unwrap();
            op.forward(
                &gpu,
                rows_there,
                dim,
                &mut out.slice_mut().part(start, start + len).unwrap(),
            )
            .unwrap();
            let given_there = held_gradient.slice().part(start, held_gradient.len()).unwrap();
            let to = &mut back.slice_mut().part(start, start + rows.len()).unwrap();
            op.backward(&gpu, given_there, None, dim, to).unwrap();
            [out, back].map(|out| bits(&out.to_vec().unwrap()[start..]))
        };
        let expected = of_values(1);
        [0, 4, 8]
            .into_iter()
            .for_each(|start| assert_eq!(of_values(start), expected, "{dim} columns from {start}"));
    }
}

/// Half of the loads and stores that 8 bytes at a time would take. (The host's compiler splits
/// loads of four values, so only loads of eight are counted.)
#[test]
fn rows_of_16_bit_values_are_read_16_bytes_at_a_time() {
    let edges =
        HostEdges::new((0..=20).map(|target| target * 6).collect(), (0..120).collect(), 120)
            .unwrap();
    let (gpu, dim) = (Gpu::emulated(0), 64);
    let on_device = DeviceEdges::upload(&gpu, &edges).unwrap();
    let op = DeviceAggregation {
        edges: &on_device,
        reduce: Reduce::Mean,
        weights: None,
        concat_self: false,
    };
    let rows = gpu.upload(&rounded::<bf16>(&values(1, 120 * dim))).unwrap();
    let mut out = gpu.alloc::<bf16>(20 * dim).unwrap();
    Gpu::accesses();
    op.forward(&gpu, rows.slice(), dim, &mut out.slice_mut()).unwrap();
    // For eight columns of a target: start and end of its edges, the position and the values of
    // each of six edges, and the sum.
    assert_eq!(Gpu::accesses()[0], 20 * 8 * (2 + 6 * 2 + 1));
}

#[test]
fn maxima_and_gradients_are_those_of_the_host() {
    for (case, (name, edges, dim)) in device_cases().into_iter().enumerate() {
        let gpu = Gpu::under_test(case as u32 % 4);
        let on_device = DeviceEdges::upload(&gpu, &edges).unwrap();
        let mut rows = values(1, edges.num_sources() * dim);
        // Equals, infinities and NaNs.
        rows.iter_mut().for_each(|value| *value = (*value * 20.0).round());
        rows.iter_mut().step_by(53).for_each(|value| *value = f32::NEG_INFINITY);
        rows.iter_mut().skip(7).step_by(431).for_each(|value| *value = f32::NAN);
        let len = edges.num_targets() * dim;
        let (mut expected, mut expected_picks) = (vec![f32::NAN; len], vec![0; len]);
        aggregate_max(&edges, &rows, dim, &mut expected, &mut expected_picks).unwrap();
        let (mut found, mut picks) = (gpu.alloc(len).unwrap(), gpu.alloc(len).unwrap());
        let device_rows = gpu.upload(&rows).unwrap();
        let outs = (&mut found.slice_mut(), &mut picks.slice_mut());
        aggregate_max_on_device(&gpu, &on_device, device_rows.slice(), dim, outs.0, outs.1)
            .unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(picks.to_vec().unwrap(), expected_picks, "{name}");
        assert_eq!(bits(&found.to_vec().unwrap()), bits(&expected), "{name}");

        let gradient = values(3, len);
        let mut expected = vec![f32::NAN; rows.len()];
        aggregate_max_backward(&edges, &expected_picks, &gradient, dim, &mut expected).unwrap();
        let mut found = gpu.alloc(expected.len()).unwrap();
        let gradient = gpu.upload(&gradient).unwrap();
        let out = &mut found.slice_mut();
        aggregate_max_backward_on_device(
            &gpu,
            &on_device,
            picks.slice(),
            gradient.slice(),
            dim,
            out,
        )
        .unwrap();
        let exactly = no_pieces(&edges.by_source().indptr);
        assert_same(&found.to_vec().unwrap(), &expected, exactly, &format!("gradient, {name}"));
        rounded_maxima::<bf16>(&gpu, &on_device, &rows, dim, &name);
        rounded_maxima::<f16>(&gpu, &on_device, &rows, dim, &name);
    }
}

/// Compares maxima of rows that are kept as `T` with maxima of the same rows in f32, and their
/// gradients, rounded once.
fn rounded_maxima<T: Rounded>(
    gpu: &Gpu,
    edges: &DeviceEdges,
    rows: &[f32],
    dim: usize,
    name: &str,
) {
    let len = edges.num_targets() * dim;
    let narrow: Vec<T> = rounded(rows);
    let (wide, narrow) = (gpu.upload(&widened(&narrow)).unwrap(), gpu.upload(&narrow).unwrap());
    let [mut wide_picks, mut picks] = [0, 1].map(|_| gpu.alloc(len).unwrap());
    let (mut expected, mut found) = (gpu.alloc(len).unwrap(), gpu.alloc(len).unwrap());
    let outs = (&mut expected.slice_mut(), &mut wide_picks.slice_mut());
    aggregate_max_on_device(gpu, edges, wide.slice(), dim, outs.0, outs.1).unwrap();
    aggregate_max_on_device(
        gpu,
        edges,
        narrow.slice(),
        dim,
        &mut found.slice_mut(),
        &mut picks.slice_mut(),
    )
    .unwrap();
    assert_eq!(
        bits(&widened::<T>(&found.to_vec().unwrap())),
        bits::<f32>(&expected.to_vec().unwrap()),
        "{name}"
    );
    assert_eq!(picks.to_vec().unwrap(), wide_picks.to_vec().unwrap(), "{name}");

    let gradient: Vec<T> = rounded(&values(3, len));
    let (wide, narrow) = (gpu.upload(&widened(&gradient)).unwrap(), gpu.upload(&gradient).unwrap());
    let (mut expected, mut found) =
        (gpu.alloc(rows.len()).unwrap(), gpu.alloc(rows.len()).unwrap());
    let picks = picks.slice();
    aggregate_max_backward_on_device(
        gpu,
        edges,
        picks,
        wide.slice(),
        dim,
        &mut expected.slice_mut(),
    )
    .unwrap();
    aggregate_max_backward_on_device(
        gpu,
        edges,
        picks,
        narrow.slice(),
        dim,
        &mut found.slice_mut(),
    )
    .unwrap();
    let expected = rounded::<T>(&expected.to_vec().unwrap());
    assert_eq!(bits::<T>(&found.to_vec().unwrap()), bits(&expected), "gradient, {name}");
}

#[test]
fn stored_rows_are_aggregated_where_they_lie() {
    let edges = edges(4, 30, 50, 6, 0);
    for dim in [19, 20] {
        let gpu = Gpu::under_test(dim as u32 % 4);
        let on_device = DeviceEdges::upload(&gpu, &edges).unwrap();
        let host =
            Aggregation { edges: &edges, reduce: Reduce::Mean, weights: None, concat_self: true };
        let device = DeviceAggregation {
            edges: &on_device,
            reduce: Reduce::Mean,
            weights: None,
            concat_self: true,
        };
        let numbers: Vec<f32> = values(5, 200 * dim).iter().map(|value| value * 250.0).collect();
        // Row s of the layer is vertex 3s + 1 of the table.
        let at = |source: u32| (3 * source as usize + 1) * dim;
        let positions: Vec<u32> = (0..50).map(|source| 3 * source + 1).collect();
        let positions = gpu.upload(&positions).unwrap();
        let mut expected = vec![f32::NAN; 30 * 2 * dim];
        let mut out = gpu.alloc::<f32>(expected.len()).unwrap();

        macro_rules! check {
            ($values:expr, $scales:expr, $row:expr) => {{
                let (table, scales): (_, Option<&Vec<f32>>) =
                    (gpu.upload(&$values).unwrap(), $scales);
                let scales = scales.map(|scales| gpu.upload(scales).unwrap());
                let scales = scales.as_ref().map(|scales| scales.slice());
                let rows = DeviceRows::At(
                    DeviceTable { values: table.slice(), scales, dim },
                    positions.slice(),
                );
                device.forward(&gpu, rows, dim, &mut out.slice_mut()).unwrap();
                host.forward($row, dim, &mut expected).unwrap();
                assert_eq!(out.to_vec().unwrap(), expected, "width {dim}");
                // Rounded, the sums equal the sums of gathered rows.
                let mut gathered = gpu.alloc::<bf16>(50 * dim).unwrap();
                let to = &mut gathered.slice_mut();
                gather_on_device(&gpu, table.slice(), scales, positions.slice(), dim, to).unwrap();
                let mut sums = [0, 1].map(|_| gpu.alloc::<bf16>(expected.len()).unwrap());
                device.forward(&gpu, rows, dim, &mut sums[0].slice_mut()).unwrap();
                device.forward(&gpu, gathered.slice(), dim, &mut sums[1].slice_mut()).unwrap();
                let [found, rounded] = sums.map(|sums| bits::<bf16>(&sums.to_vec().unwrap()));
                assert_eq!(found, rounded, "width {dim}");
            }};
        }
        check!(numbers, None, |s: u32| &numbers[at(s)..][..dim]);
        let halves: Vec<f16> = numbers.iter().map(|&number| f16::from_f32(number)).collect();
        check!(halves, None, |s: u32| &halves[at(s)..][..dim]);
        let brains: Vec<bf16> = numbers.iter().map(|&number| bf16::from_f32(number)).collect();
        check!(brains, None, |s: u32| &brains[at(s)..][..dim]);
        let bytes: Vec<i8> = numbers.iter().map(|&number| number as i8).collect();
        let scales: Vec<f32> = values(6, 200);
        let row = |s: u32| ScaledRow {
            scale: scales[3 * s as usize + 1],
            values: &bytes[at(s)..][..dim],
        };
        check!(bytes, Some(&scales), row);
    }
}

#[test]
fn rows_that_are_not_there_are_nans_and_wrong_sizes_are_refused() {
    let gpu = Gpu::under_test(3);
    let buffer = |len: usize| gpu.upload(&vec![1f32; len]).unwrap();
    let (indptr, sources) = (gpu.upload(&[0u32, 1, 2]).unwrap(), gpu.upload(&[0u32, 9]).unwrap());
    let edges = DeviceEdges::new(indptr, sources, 1).unwrap();
    let op =
        DeviceAggregation { edges: &edges, reduce: Reduce::Sum, weights: None, concat_self: false };
    let (rows, mut out) = (buffer(2), buffer(4));
    op.forward(&gpu, rows.slice(), 2, &mut out.slice_mut()).unwrap();
    let found = out.to_vec().unwrap();
    assert!(found[..2] == [1.0, 1.0] && found[2..].iter().all(|value| value.is_nan()), "{found:?}");
    let mut gradient = buffer(2);
    op.backward(&gpu, out.slice(), None, 2, &mut gradient.slice_mut()).unwrap();
    assert_eq!(gradient.to_vec().unwrap(), [1.0, 1.0]);

    fn length(result: Result<(), GpuError>) -> bool {
        matches!(result, Err(GpuError::Input(KernelError::Length { .. })))
    }
    assert!(length(op.forward(&gpu, rows.slice(), 2, &mut buffer(3).slice_mut())));
    assert!(length(op.forward(&gpu, buffer(3).slice(), 2, &mut out.slice_mut())));
    assert!(length(op.backward(&gpu, buffer(3).slice(), None, 2, &mut gradient.slice_mut())));
    assert!(length(op.backward(&gpu, out.slice(), None, 2, &mut buffer(3).slice_mut())));
    assert!(length(op.weights_backward(
        &gpu,
        rows.slice(),
        out.slice(),
        2,
        &mut buffer(3).slice_mut()
    )));
    let (few, own) = (buffer(1), DeviceAggregation { concat_self: true, ..op });
    let weighted = DeviceAggregation { weights: Some(few.slice()), ..op };
    assert!(length(weighted.forward(&gpu, rows.slice(), 2, &mut out.slice_mut())));
    let refused = own.forward(&gpu, rows.slice(), 2, &mut buffer(8).slice_mut());
    assert_eq!(refused, Err(KernelError::RowOutOfRange { position: 1, rows: 1 }.into()));
    let mut picked = gpu.zeros::<u32>(4).unwrap();
    assert!(length(aggregate_max_on_device(
        &gpu,
        &edges,
        buffer(3).slice(),
        2,
        &mut out.slice_mut(),
        &mut picked.slice_mut()
    )));
}
