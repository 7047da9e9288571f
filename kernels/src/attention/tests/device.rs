//! Attention on a GPU against that on the host.

use half::{bf16, f16};

use super::Form::{Dynamic, Static};
use super::{Form, for_each_case, vertices};
use crate::spmm::tests::device::assert_same;
use crate::spmm::tests::{Rounded, bits, rounded, values, widened};
use crate::{
    Attention, DeviceAttention, DeviceAttentionGradient, DeviceBuffer, DeviceDynamicGradient,
    DeviceDynamicRows, DeviceEdges, Gpu, GpuError, KernelError, head_products,
    head_products_backward, head_products_backward_on_device, head_products_on_device,
};

/// `op` on a GPU, with the `vertices` of the targets.
pub(super) fn on_device<'a>(
    op: &Attention<'_>,
    edges: &'a DeviceEdges,
    vertices: &'a DeviceBuffer<u32>,
) -> DeviceAttention<'a> {
    let Attention { heads, head_dim, slope, self_loops, dropout, .. } = *op;
    let dropout = dropout.map(|(_, rate, key)| (vertices.slice(), rate, key));
    DeviceAttention { edges, heads, head_dim, slope, self_loops, dropout }
}

/// Compares weights to the bit, and which of them are dropped.
fn assert_same_weights(found: &[f32], expected: &[f32], name: &str) {
    assert_same(found, expected, false, &format!("weights, {name}"));
    let dropped = |weights: &[f32]| {
        weights.iter().map(|weight| weight.is_sign_negative()).collect::<Vec<_>>()
    };
    assert_eq!(dropped(found), dropped(expected), "dropped, {name}");
}

/// Result, weights and gradients by a GPU for rows kept as `T`, in f32. With `vectors` static
/// scores are products of the rows with them, and the gradients of the scores count too.
fn on_gpu<T: Rounded>(
    form: Form,
    host: &Attention<'_>,
    order: usize,
    inputs: &[Vec<f32>; 3],
    vectors: Option<&[Vec<f32>; 2]>,
) -> [Vec<f32>; 5] {
    let gpu = Gpu::under_test(order as u32 % 4);
    let edges = DeviceEdges::upload(&gpu, host.edges).unwrap();
    let vertices = gpu.upload(&vertices(host.edges.num_targets())).unwrap();
    let device = on_device(host, &edges, &vertices);
    assert_eq!((device.dim(), device.num_weights()), (host.dim(), host.num_weights()));
    let len = host.edges.num_targets() * host.dim();
    let gradient = gpu.upload(&values(9, len)).unwrap();
    let rows = gpu.upload(&rounded::<T>(&inputs[0])).unwrap();
    let (mut out, mut weights) =
        (gpu.alloc::<f32>(len).unwrap(), gpu.alloc(host.num_weights()).unwrap());
    let mut of_rows = gpu.alloc::<T>(rows.len()).unwrap();
    let [second, third] = match form {
        Static => {
            let [s, t] = [1, 2].map(|at| gpu.upload(&inputs[at]).unwrap());
            let vectors =
                vectors.map(|vectors| vectors.each_ref().map(|vector| gpu.upload(vector).unwrap()));
            let vectors =
                vectors.as_ref().map(|vectors| vectors.each_ref().map(|vector| vector.slice()));
            let scores = [s.slice(), t.slice()];
            device
                .forward(&gpu, rows.slice(), scores, &mut out.slice_mut(), &mut weights.slice_mut())
                .unwrap();
            let [mut of_source, mut of_target] =
                [s.len(), t.len()].map(|len| gpu.alloc::<f32>(len).unwrap());
            let (from_source, from_target) = (of_source.slice_mut(), of_target.slice_mut());
            let into =
                DeviceAttentionGradient { rows: of_rows.slice_mut(), from_source, from_target };
            device
                .backward(
                    &gpu,
                    rows.slice(),
                    vectors,
                    scores,
                    weights.slice(),
                    gradient.slice(),
                    into,
                )
                .unwrap();
            [of_source, of_target].map(|of| of.to_vec().unwrap())
        }
        Dynamic => {
            let targets = gpu.upload(&rounded::<T>(&inputs[1])).unwrap();
            let vector = gpu.upload(&inputs[2]).unwrap();
            let of = DeviceDynamicRows {
                sources: rows.slice(),
                targets: targets.slice(),
                vector: vector.slice(),
            };
            device
                .forward_dynamic(&gpu, of, &mut out.slice_mut(), &mut weights.slice_mut())
                .unwrap();
            let (mut of_targets, mut of_vector) =
                (gpu.alloc::<T>(len).unwrap(), gpu.alloc::<f32>(len).unwrap());
            let (targets, vector) = (of_targets.slice_mut(), of_vector.slice_mut());
            let into = DeviceDynamicGradient { sources: of_rows.slice_mut(), targets, vector };
            device.backward_dynamic(&gpu, of, weights.slice(), gradient.slice(), into).unwrap();
            [widened::<T>(&of_targets.to_vec().unwrap()), of_vector.to_vec().unwrap()]
        }
    };
    let [out, weights] = [out, weights].map(|found| found.to_vec().unwrap());
    [out, weights, widened::<T>(&of_rows.to_vec().unwrap()), second, third]
}

#[test]
fn attention_and_its_gradients_are_those_of_the_host() {
    compare_with_the_host(Static);
}

#[test]
fn dynamic_attention_and_its_gradients_are_those_of_the_host() {
    compare_with_the_host(Dynamic);
}

fn compare_with_the_host(form: Form) {
    for_each_case(&[false], |name, host| {
        let inputs = form.inputs(host);
        let (out, weights) = form.forward(host, &inputs);
        let mut of = form.backward(host, &inputs, &weights, &values(9, out.len()));
        let vectors = [11, 12].map(|seed| values(seed, host.dim()));
        for vectors in [None, Some(&vectors)].into_iter().take(if form == Static { 2 } else { 1 }) {
            if let Some([of_source, of_target]) = vectors {
                let [rows, from_source, from_target] = &mut of;
                host.add_scores_backward(from_source, of_source, rows).unwrap();
                host.add_scores_backward(from_target, of_target, rows).unwrap();
            }
            let [found, found_weights, gradients @ ..] =
                on_gpu::<f32>(form, host, name.len(), &inputs, vectors);
            assert_same_weights(&found_weights, &weights, name);
            assert_same(&found, &out, false, name);
            for (which, (found, expected)) in gradients.iter().zip(&of).enumerate() {
                assert_same(found, expected, false, &format!("gradient {which}, {name}"));
            }
        }
    });
}

/// Compares attention over rows kept as `T` with attention over the same rows in f32, whose
/// gradients of rows are rounded once. Takes every `step`th case from the `first`.
fn rounded_rows<T: Rounded>(first: usize, step: usize) {
    let mut cases = 0..;
    for_each_case(&[false], |name, host| {
        if cases.next().is_some_and(|case: usize| case % step != first) {
            return;
        }
        for form in [Static, Dynamic] {
            let once = |values: &[f32]| widened(&rounded::<T>(values));
            let [rows, second, third] = form.inputs(host);
            let inputs = [once(&rows), if form == Dynamic { once(&second) } else { second }, third];
            let vectors = [11, 12].map(|seed| values(seed, host.dim()));
            let mut expected = on_gpu::<f32>(form, host, name.len(), &inputs, Some(&vectors));
            expected[2] = once(&expected[2]);
            if form == Dynamic {
                expected[3] = once(&expected[3]);
            }
            let found = on_gpu::<T>(form, host, name.len(), &inputs, Some(&vectors));
            for (which, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(bits::<f32>(found), bits(expected), "{form:?}, {which}, {name}");
            }
        }
    });
}

#[test]
fn attention_over_rounded_rows_is_that_over_the_same_rows() {
    rounded_rows::<bf16>(0, 4);
    rounded_rows::<f16>(1, 4);
}

#[test]
#[ignore = "takes long: make test-all"]
fn attention_over_rounded_rows_of_every_case_is_that_over_the_same_rows() {
    rounded_rows::<bf16>(0, 1);
    rounded_rows::<f16>(0, 1);
}

#[test]
fn products_of_heads_are_those_of_the_host() {
    for (case, (rows, heads, head_dim)) in
        [(0, 2, 3), (1, 1, 1), (600, 3, 5), (70, 4, 64), (9, 1, 47)].into_iter().enumerate()
    {
        let gpu = Gpu::under_test(case as u32);
        let name = format!("{rows} rows, {heads} heads of {head_dim}");
        let dim = heads * head_dim;
        let (matrix, vector, gradient) =
            (values(1, rows * dim), values(2, dim), values(3, rows * heads));
        let [m, v, g] = [&matrix, &vector, &gradient].map(|values| gpu.upload(values).unwrap());
        let mut expected = vec![f32::NAN; rows * heads];
        head_products(&matrix, &vector, head_dim, &mut expected).unwrap();
        let mut found = gpu.alloc(rows * heads).unwrap();
        head_products_on_device(&gpu, m.slice(), v.slice(), head_dim, &mut found.slice_mut())
            .unwrap();
        assert_same(&found.to_vec().unwrap(), &expected, false, &name);

        let mut expected = vec![f32::NAN; dim];
        head_products_backward(&matrix, &gradient, head_dim, &mut expected).unwrap();
        let mut found = gpu.alloc(dim).unwrap();
        head_products_backward_on_device(
            &gpu,
            m.slice(),
            g.slice(),
            head_dim,
            &mut found.slice_mut(),
        )
        .unwrap();
        assert_same(&found.to_vec().unwrap(), &expected, false, &name);
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let gpu = Gpu::under_test(0);
    let edges =
        DeviceEdges::new(gpu.upload(&[0u32, 0, 1]).unwrap(), gpu.upload(&[0u32]).unwrap(), 1)
            .unwrap();
    let op = DeviceAttention {
        edges: &edges,
        heads: 1,
        head_dim: 2,
        slope: 0.2,
        self_loops: false,
        dropout: None,
    };
    let buffers: Vec<_> = (0..5).map(|len| gpu.zeros::<f32>(len).unwrap()).collect();
    let slice = |len: usize| buffers[len].slice();
    let (mut out, mut weights) = (gpu.zeros(4).unwrap(), gpu.zeros(1).unwrap());
    fn length(result: Result<(), GpuError>) -> bool {
        matches!(result, Err(GpuError::Input(KernelError::Length { .. })))
    }
    let (out, weights) = (&mut out.slice_mut(), &mut weights.slice_mut());
    op.forward(&gpu, slice(2), [slice(1), slice(2)], out, weights).unwrap();
    assert!(length(op.forward(&gpu, slice(3), [slice(1), slice(2)], out, weights)));
    assert!(length(op.forward(&gpu, slice(2), [slice(2), slice(2)], out, weights)));
    assert!(length(op.forward(&gpu, slice(2), [slice(1), slice(1)], out, weights)));
    assert!(length(op.forward(&gpu, slice(2), [slice(1), slice(2)], weights, out)));
    let looped = DeviceAttention { self_loops: true, ..op };
    let refused = looped.forward(&gpu, slice(2), [slice(1), slice(2)], out, weights);
    assert_eq!(refused, Err(KernelError::RowOutOfRange { position: 1, rows: 1 }.into()));
    let rows = DeviceDynamicRows { sources: slice(2), targets: slice(4), vector: slice(2) };
    op.forward_dynamic(&gpu, rows, out, weights).unwrap();
    assert!(length(op.forward_dynamic(
        &gpu,
        DeviceDynamicRows { vector: slice(1), ..rows },
        out,
        weights
    )));
    let (mut a, mut b, mut c) =
        (gpu.zeros(2).unwrap(), gpu.zeros(4).unwrap(), gpu.zeros(4).unwrap());
    let into = DeviceDynamicGradient {
        sources: a.slice_mut(),
        targets: b.slice_mut(),
        vector: c.slice_mut(),
    };
    assert!(length(op.backward_dynamic(&gpu, rows, slice(1), slice(3), into)));
}
