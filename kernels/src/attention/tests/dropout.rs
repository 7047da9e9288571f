//! Dropout of weights: its result on average, rates that leave nothing, targets of very many
//! weights, and errors.

use super::device::on_device;
use super::{Form::Static, KEY, plain, vertices};
use crate::edges::HostEdges;
use crate::philox::StreamKey;
use crate::spmm::tests::values;
use crate::{Attention, DeviceEdges, DynamicRows, Gpu, GpuError, KernelError, MAX_DROPOUT_DIM};

/// Three targets: without edges, with two, with two parallel ones.
fn few() -> HostEdges {
    HostEdges::new(vec![0, 0, 2, 4], vec![3, 4, 1, 1], 5).unwrap()
}

fn over<'a>(edges: &'a HostEdges, dropout: Option<(&'a [u32], f32, StreamKey)>) -> Attention<'a> {
    Attention { self_loops: true, dropout, ..plain(edges, 2, 3) }
}

fn inputs() -> [Vec<f32>; 3] {
    [values(1, 5 * 6), values(2, 5 * 2), values(3, 3 * 2)]
}

#[test]
fn on_average_nothing_changes_and_parallel_edges_are_dropped_apart() {
    const SEEDS: u64 = 4000;
    let (edges, inputs, vertices) = (few(), inputs(), vertices(3));
    let (expected, plain) = Static.forward(&over(&edges, None), &inputs);
    let mut sums = vec![0f64; expected.len()];
    let mut apart = 0;
    for seed in 0..SEEDS {
        let key = StreamKey { seed, ..KEY };
        let (out, weights) = Static.forward(&over(&edges, Some((&vertices, 0.6, key))), &inputs);
        assert!(weights.iter().zip(&plain).all(|(weight, plain)| weight.abs() == *plain));
        sums.iter_mut().zip(&out).for_each(|(sum, &value)| *sum += f64::from(value));
        // The first head of the third target's edges; four edges with their loops come before them.
        apart += u32::from(weights[2 * 5] < 0.0) & u32::from(weights[2 * 6] > 0.0);
    }
    for (sum, expected) in sums.iter().zip(&expected) {
        // Rows are below 1/2, weights below 1: the standard deviation of a mean is below 0.5 ·
        // sqrt(1.5 / 4000).
        let mean = sum / SEEDS as f64;
        assert!((mean - f64::from(*expected)).abs() < 0.04, "{mean}, without dropout {expected}");
    }
    let portion = f64::from(apart) / SEEDS as f64;
    assert!(
        (portion - 0.24).abs() < 0.03,
        "{portion} of the seeds drop the first of two parallel edges alone"
    );
}

#[test]
fn where_all_is_dropped_rows_and_gradients_are_zero() {
    let (edges, inputs, vertices) = (few(), inputs(), vertices(3));
    let key = (0..u64::MAX).map(|seed| StreamKey { seed, ..KEY }).find(|&key| {
        Static
            .forward(&over(&edges, Some((&vertices, 0.95, key))), &inputs)
            .1
            .iter()
            .all(|&weight| weight < 0.0)
    });
    let op = over(&edges, Some((&vertices, 0.95, key.unwrap())));
    let (out, weights) = Static.forward(&op, &inputs);
    assert!(out.iter().all(|&value| value == 0.0));
    let of = Static.backward(&op, &inputs, &weights, &values(4, out.len()));
    assert!(of.iter().flatten().all(|&value| value == 0.0));
}

#[test]
fn a_target_of_more_shares_than_a_sequence_has_goes_on() {
    let edges = MAX_DROPOUT_DIM as u32 / 8 + 100;
    let host = HostEdges::new(vec![0, edges, edges + 2], vec![0; edges as usize + 2], 1).unwrap();
    let ids = vertices(2);
    let op = Attention { dropout: Some((&ids, 0.5, KEY)), ..plain(&host, 8, 1) };
    let inputs = [values(1, 8), values(2, 8), values(3, 16)];
    let (_, weights) = Static.forward(&op, &inputs);
    let mut expected = vec![1f32; edges as usize * 8];
    crate::dropout::RowMask::new(0.5, 0, &KEY).unwrap().negate(ids[0], &mut expected);
    let signs = |weights: &[f32]| {
        weights.iter().map(|weight| weight.is_sign_negative()).collect::<Vec<_>>()
    };
    assert!(signs(&weights[..expected.len()]) == signs(&expected));

    let gpu = Gpu::under_test(1);
    let (on_gpu, ids) = (DeviceEdges::upload(&gpu, &host).unwrap(), gpu.upload(&ids).unwrap());
    let [rows, from_source, from_target] = inputs.map(|values| gpu.upload(&values).unwrap());
    let (mut out, mut found) = (gpu.alloc(16).unwrap(), gpu.alloc(weights.len()).unwrap());
    let scores = [from_source.slice(), from_target.slice()];
    let device = on_device(&op, &on_gpu, &ids);
    device
        .forward(&gpu, rows.slice(), scores, &mut out.slice_mut(), &mut found.slice_mut())
        .unwrap();
    assert!(signs(&found.to_vec().unwrap()) == signs(&weights));
}

#[test]
fn a_rate_or_vertices_that_do_not_fit_are_refused() {
    let (edges, inputs, vertices) = (few(), inputs(), vertices(3));
    let gpu = Gpu::under_test(0);
    let (edges_on_gpu, ids) =
        (DeviceEdges::upload(&gpu, &edges).unwrap(), gpu.upload(&vertices).unwrap());
    let on_gpu = inputs.each_ref().map(|values| gpu.upload(values).unwrap());
    let [rows, from_source, from_target] = &inputs;
    for (vertices, rate) in
        [(&vertices[..], 1.0), (&vertices, -0.1), (&vertices, f32::NAN), (&vertices[..2], 0.5)]
    {
        let op = over(&edges, Some((vertices, rate, KEY)));
        let refused = |error: &KernelError| match error {
            KernelError::DropoutRate { .. } => vertices.len() == 3,
            KernelError::Length { expected, got, .. } => (*expected, *got) == (3, vertices.len()),
            _ => false,
        };
        let (mut out, mut weights) = (vec![f32::NAN; 18], vec![f32::NAN; op.num_weights()]);
        let error =
            op.forward(rows, [from_source, from_target], &mut out, &mut weights).unwrap_err();
        assert!(refused(&error), "{error}");
        let dynamic = DynamicRows { sources: rows, targets: &rows[..18], vector: &rows[..6] };
        let error = op.forward_dynamic(dynamic, &mut out, &mut weights).unwrap_err();
        assert!(refused(&error), "{error}");

        let mut device = on_device(&op, &edges_on_gpu, &ids);
        device.dropout = Some((ids.slice().part(0, vertices.len()).unwrap(), rate, KEY));
        let [rows, from_source, from_target] = on_gpu.each_ref().map(|values| values.slice());
        let (mut out, mut weights) = (gpu.alloc(18).unwrap(), gpu.alloc(op.num_weights()).unwrap());
        let scores = [from_source, from_target];
        match device.forward(&gpu, rows, scores, &mut out.slice_mut(), &mut weights.slice_mut()) {
            Err(GpuError::Input(error)) => assert!(refused(&error), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}
