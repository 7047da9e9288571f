//! Attention on a GPU against that on the host.

use half::{bf16, f16};

use super::{for_each_case, vertices};
use crate::spmm::tests::device::assert_same;
use crate::spmm::tests::{Rounded, bits, rounded, values, widened};
use crate::{
    Attention, AttentionGradient, DeviceAttention, DeviceAttentionGradient, DeviceBuffer, DeviceDynamicGradient,
    DeviceDynamicRows, DeviceEdges, DynamicGradient, DynamicRows, Gpu, GpuError, KernelError, head_products,
    head_products_backward, head_products_backward_on_device, head_products_on_device,
};

/// `op` on a GPU, where `vertices` are those of the targets.
pub(super) fn on_device<'a>(
    op: &Attention<'_>,
    edges: &'a DeviceEdges,
    vertices: &'a DeviceBuffer<u32>,
) -> DeviceAttention<'a> {
    let Attention { heads, head_dim, slope, self_loops, dropout, .. } = *op;
    let dropout = dropout.map(|(_, rate, key)| (vertices.slice(), rate, key));
    DeviceAttention { edges, heads, head_dim, slope, self_loops, dropout }
}

/// The same weights, and the same dropped, to the bit.
fn assert_same_weights(found: &[f32], expected: &[f32], name: &str) {
    assert_same(found, expected, false, &format!("weights, {name}"));
    let dropped = |weights: &[f32]| weights.iter().map(|weight| weight.is_sign_negative()).collect::<Vec<_>>();
    assert_eq!(dropped(found), dropped(expected), "dropped, {name}");
}

fn gpu_of(name: &str) -> Gpu {
    Gpu::under_test(name.len() as u32 % 4)
}

fn filled(len: usize) -> Vec<f32> {
    vec![f32::NAN; len]
}

#[test]
fn attention_and_its_gradients_are_those_of_the_host() {
    for_each_case(&[false], |name, host, [rows, from_source, from_target]| {
        let gpu = gpu_of(name);
        let edges = DeviceEdges::upload(&gpu, host.edges).unwrap();
        let vertices = gpu.upload(&vertices(host.edges.num_targets())).unwrap();
        let device = on_device(host, &edges, &vertices);
        assert_eq!((device.dim(), device.num_weights()), (host.dim(), host.num_weights()));
        let (len, num_weights) = (host.edges.num_targets() * host.dim(), host.num_weights());
        let (mut out, mut weights) = (filled(len), filled(num_weights));
        host.forward(&rows, [&from_source, &from_target], &mut out, &mut weights).unwrap();
        let [r, s, t] = [&rows, &from_source, &from_target].map(|values| gpu.upload(values).unwrap());
        let scores = [s.slice(), t.slice()];
        let (mut found, mut found_weights) = (gpu.alloc(len).unwrap(), gpu.alloc(num_weights).unwrap());
        device.forward(&gpu, r.slice(), scores, &mut found.slice_mut(), &mut found_weights.slice_mut()).unwrap();
        assert_same_weights(&found_weights.to_vec().unwrap(), &weights, name);
        assert_same(&found.to_vec().unwrap(), &out, false, name);

        let gradient = values(9, len);
        let mut of = [rows.len(), from_source.len(), from_target.len()].map(filled);
        let [of_rows, of_source, of_target] = &mut of;
        let into = AttentionGradient { rows: of_rows, from_source: of_source, from_target: of_target };
        let mut scratch = filled(num_weights);
        host.backward(&rows, [&from_source, &from_target], &weights, &gradient, &mut scratch, into).unwrap();
        // The scores as products of the rows with vectors, whose gradient counts then too.
        let vectors = [11, 12].map(|seed| values(seed, host.dim()));
        let mut with_scores = of[0].clone();
        host.add_scores_backward(&of[1], &vectors[0], &mut with_scores).unwrap();
        host.add_scores_backward(&of[2], &vectors[1], &mut with_scores).unwrap();
        let on_gpu = vectors.map(|vector| gpu.upload(&vector).unwrap());
        let vectors = on_gpu.each_ref().map(|vector| vector.slice());
        let (gradient, weights) = (gpu.upload(&gradient).unwrap(), gpu.upload(&weights).unwrap());
        for (vectors, of_rows) in [(None, &of[0]), (Some(vectors), &with_scores)] {
            let mut found =
                [rows.len(), from_source.len(), from_target.len()].map(|len| gpu.alloc::<f32>(len).unwrap());
            let into = gradients(&mut found);
            device.backward(&gpu, (r.slice(), vectors), scores, weights.slice(), gradient.slice(), into).unwrap();
            for (which, (found, expected)) in found.iter().zip([of_rows, &of[1], &of[2]]).enumerate() {
                assert_same(&found.to_vec().unwrap(), expected, false, &format!("gradient {which}, {name}"));
            }
        }
    });
}

fn gradients(found: &mut [DeviceBuffer<f32>; 3]) -> DeviceAttentionGradient<'_, f32> {
    let [rows, from_source, from_target] = found.each_mut().map(|buffer| buffer.slice_mut());
    DeviceAttentionGradient { rows, from_source, from_target }
}

/// Attention over rows that are kept as `T`: that over the same rows in f32, with the gradients of rows rounded once. Every `step`th case
/// from the `first`.
fn rounded_rows<T: Rounded>(first: usize, step: usize) {
    let mut cases = 0..;
    for_each_case(&[false], |name, host, [rows, from_source, from_target]| {
        if cases.next().is_some_and(|case: usize| case % step != first) {
            return;
        }
        let gpu = gpu_of(name);
        let edges = DeviceEdges::upload(&gpu, host.edges).unwrap();
        let vertices = gpu.upload(&vertices(host.edges.num_targets())).unwrap();
        let device = on_device(host, &edges, &vertices);
        let (len, num_weights) = (host.edges.num_targets() * host.dim(), host.num_weights());
        let narrow: Vec<T> = rounded(&rows);
        let (wide, narrow) = (gpu.upload(&widened(&narrow)).unwrap(), gpu.upload(&narrow).unwrap());
        let [s, t, g] = [&from_source, &from_target, &values(9, len)].map(|values| gpu.upload(values).unwrap());
        let (v, w) = (gpu.upload(&values(11, host.dim())).unwrap(), gpu.upload(&values(12, host.dim())).unwrap());
        let (scores, vectors) = ([s.slice(), t.slice()], Some([v.slice(), w.slice()]));
        let [mut out, mut expected] = [0, 1].map(|_| gpu.alloc::<f32>(len).unwrap());
        let mut weights = gpu.alloc(num_weights).unwrap();
        device.forward(&gpu, wide.slice(), scores, &mut expected.slice_mut(), &mut weights.slice_mut()).unwrap();
        device.forward(&gpu, narrow.slice(), scores, &mut out.slice_mut(), &mut weights.slice_mut()).unwrap();
        assert_eq!(out.to_vec().unwrap(), expected.to_vec().unwrap(), "{name}");

        let mut expected = [rows.len(), from_source.len(), from_target.len()].map(|len| gpu.alloc::<f32>(len).unwrap());
        let into = gradients(&mut expected);
        device.backward(&gpu, (wide.slice(), vectors), scores, weights.slice(), g.slice(), into).unwrap();
        let mut of_rows = gpu.alloc::<T>(rows.len()).unwrap();
        let [mut of_source, mut of_target] = [from_source.len(), from_target.len()].map(|len| gpu.alloc(len).unwrap());
        let into = DeviceAttentionGradient {
            rows: of_rows.slice_mut(),
            from_source: of_source.slice_mut(),
            from_target: of_target.slice_mut(),
        };
        device.backward(&gpu, (narrow.slice(), vectors), scores, weights.slice(), g.slice(), into).unwrap();
        let of_wide: Vec<T> = rounded(&expected[0].to_vec().unwrap());
        assert_eq!(bits::<T>(&of_rows.to_vec().unwrap()), bits(&of_wide), "gradient, {name}");
        assert_eq!(of_source.to_vec().unwrap(), expected[1].to_vec().unwrap(), "{name}");
        assert_eq!(of_target.to_vec().unwrap(), expected[2].to_vec().unwrap(), "{name}");

        let targets = values(7, len);
        let targets: Vec<T> = rounded(&targets);
        let (wide_targets, targets) = (gpu.upload(&widened(&targets)).unwrap(), gpu.upload(&targets).unwrap());
        let wide = DeviceDynamicRows { sources: wide.slice(), targets: wide_targets.slice(), vector: v.slice() };
        let narrow = DeviceDynamicRows { sources: narrow.slice(), targets: targets.slice(), vector: v.slice() };
        let [mut out, mut expected] = [0, 1].map(|_| gpu.alloc::<f32>(len).unwrap());
        device.forward_dynamic(&gpu, wide, &mut expected.slice_mut(), &mut weights.slice_mut()).unwrap();
        device.forward_dynamic(&gpu, narrow, &mut out.slice_mut(), &mut weights.slice_mut()).unwrap();
        assert_eq!(out.to_vec().unwrap(), expected.to_vec().unwrap(), "dynamic, {name}");
        let mut expected = [rows.len(), len, len].map(|len| gpu.alloc::<f32>(len).unwrap());
        let [sources, targets, vector] = expected.each_mut().map(|buffer| buffer.slice_mut());
        let into = DeviceDynamicGradient { sources, targets, vector };
        device.backward_dynamic(&gpu, wide, weights.slice(), g.slice(), into).unwrap();
        let [mut of_sources, mut of_targets] = [rows.len(), len].map(|len| gpu.alloc::<T>(len).unwrap());
        let mut of_vector = gpu.alloc::<f32>(len).unwrap();
        let into = DeviceDynamicGradient {
            sources: of_sources.slice_mut(),
            targets: of_targets.slice_mut(),
            vector: of_vector.slice_mut(),
        };
        device.backward_dynamic(&gpu, narrow, weights.slice(), g.slice(), into).unwrap();
        for (which, found) in [&of_sources, &of_targets].into_iter().enumerate() {
            let expected: Vec<T> = rounded(&expected[which].to_vec().unwrap());
            assert_eq!(bits::<T>(&found.to_vec().unwrap()), bits(&expected), "dynamic gradient {which}, {name}");
        }
        assert_eq!(
            of_vector.to_vec().unwrap(),
            expected[2].to_vec().unwrap(),
            "dynamic gradient of the vector, {name}"
        );
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
fn dynamic_attention_and_its_gradients_are_those_of_the_host() {
    for_each_case(&[false], |name, host, [sources, ..]| {
        let gpu = gpu_of(name);
        let edges = DeviceEdges::upload(&gpu, host.edges).unwrap();
        let vertices = gpu.upload(&vertices(host.edges.num_targets())).unwrap();
        let device = on_device(host, &edges, &vertices);
        let (len, num_weights) = (host.edges.num_targets() * host.dim(), host.num_weights());
        let targets = values(7, len);
        let vector: Vec<f32> = values(8, host.dim()).iter().map(|value| 4.0 * value).collect();
        let rows = DynamicRows { sources: &sources, targets: &targets, vector: &vector };
        let (mut out, mut weights) = (filled(len), filled(num_weights));
        host.forward_dynamic(rows, &mut out, &mut weights).unwrap();
        let [s, t, v] = [&sources, &targets, &vector].map(|values| gpu.upload(values).unwrap());
        let device_rows = DeviceDynamicRows { sources: s.slice(), targets: t.slice(), vector: v.slice() };
        let (mut found, mut found_weights) = (gpu.alloc(len).unwrap(), gpu.alloc(num_weights).unwrap());
        device.forward_dynamic(&gpu, device_rows, &mut found.slice_mut(), &mut found_weights.slice_mut()).unwrap();
        assert_same_weights(&found_weights.to_vec().unwrap(), &weights, name);
        assert_same(&found.to_vec().unwrap(), &out, false, name);

        let gradient = values(9, len);
        let mut of = [sources.len(), len, len].map(filled);
        let [of_sources, of_targets, of_vector] = &mut of;
        let into = DynamicGradient { sources: of_sources, targets: of_targets, vector: of_vector };
        host.backward_dynamic(rows, &weights, &gradient, &mut filled(num_weights), into).unwrap();
        let mut found = [sources.len(), len, len].map(|len| gpu.alloc::<f32>(len).unwrap());
        let [of_sources, of_targets, of_vector] = &mut found;
        let into = DeviceDynamicGradient {
            sources: of_sources.slice_mut(),
            targets: of_targets.slice_mut(),
            vector: of_vector.slice_mut(),
        };
        let gradient = gpu.upload(&gradient).unwrap();
        let weights = gpu.upload(&weights).unwrap();
        device.backward_dynamic(&gpu, device_rows, weights.slice(), gradient.slice(), into).unwrap();
        for (which, (found, expected)) in found.iter().zip(&of).enumerate() {
            assert_same(&found.to_vec().unwrap(), expected, false, &format!("gradient {which}, {name}"));
        }
    });
}

#[test]
fn products_of_heads_are_those_of_the_host() {
    for (case, (rows, heads, head_dim)) in
        [(0, 2, 3), (1, 1, 1), (600, 3, 5), (70, 4, 64), (9, 1, 47)].into_iter().enumerate()
    {
        let gpu = Gpu::under_test(case as u32);
        let name = format!("{rows} rows, {heads} heads of {head_dim}");
        let dim = heads * head_dim;
        let (matrix, vector, gradient) = (values(1, rows * dim), values(2, dim), values(3, rows * heads));
        let [m, v, g] = [&matrix, &vector, &gradient].map(|values| gpu.upload(values).unwrap());
        let mut expected = filled(rows * heads);
        head_products(&matrix, &vector, head_dim, &mut expected).unwrap();
        let mut found = gpu.alloc(rows * heads).unwrap();
        head_products_on_device(&gpu, m.slice(), v.slice(), head_dim, &mut found.slice_mut()).unwrap();
        assert_same(&found.to_vec().unwrap(), &expected, false, &name);

        let mut expected = filled(dim);
        head_products_backward(&matrix, &gradient, head_dim, &mut expected).unwrap();
        let mut found = gpu.alloc(dim).unwrap();
        head_products_backward_on_device(&gpu, m.slice(), g.slice(), head_dim, &mut found.slice_mut()).unwrap();
        assert_same(&found.to_vec().unwrap(), &expected, false, &name);
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let gpu = Gpu::under_test(0);
    let edges = DeviceEdges::new(gpu.upload(&[0u32, 0, 1]).unwrap(), gpu.upload(&[0u32]).unwrap(), 1).unwrap();
    let op = DeviceAttention { edges: &edges, heads: 1, head_dim: 2, slope: 0.2, self_loops: false, dropout: None };
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
    assert!(length(op.forward_dynamic(&gpu, DeviceDynamicRows { vector: slice(1), ..rows }, out, weights)));
    let (mut a, mut b, mut c) = (gpu.zeros(2).unwrap(), gpu.zeros(4).unwrap(), gpu.zeros(4).unwrap());
    let into = DeviceDynamicGradient { sources: a.slice_mut(), targets: b.slice_mut(), vector: c.slice_mut() };
    assert!(length(op.backward_dynamic(&gpu, rows, slice(1), slice(3), into)));
}
