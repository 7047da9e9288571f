//! Both norms on a GPU against those on the host.

use super::{SHAPES, inputs};
use crate::spmm::tests::device::assert_same;
use crate::spmm::tests::values;
use crate::{
    ColumnNorm, DeviceColumnNorm, DeviceMoments, Gpu, GpuError, KernelError, column_moments, column_moments_on_device,
    layer_norm, layer_norm_backward, layer_norm_backward_on_device, layer_norm_on_device,
};

const EPSILON: f32 = 1e-5;

/// Also rows that fill warps, several times.
fn shapes() -> impl Iterator<Item = (usize, usize)> {
    SHAPES.into_iter().chain([(3, 300), (0, 4), (4, 0), (700, 6)])
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

#[test]
fn layer_norm_is_that_of_the_host() {
    for (case, (count, dim)) in shapes().enumerate() {
        let (gpu, name) = (Gpu::under_test(case as u32 % 4), format!("{count} rows of {dim}"));
        let [rows, scale, shift] = inputs(count, dim);
        let (mut out, mut moments) = (vec![f32::NAN; rows.len()], vec![f32::NAN; 2 * count]);
        if dim == 0 {
            moments.clear();
        }
        layer_norm(&rows, [&scale, &shift], EPSILON, &mut moments, &mut out).unwrap();
        let [r, a, b] = [&rows, &scale, &shift].map(|values| gpu.upload(values).unwrap());
        let (mut found, mut found_moments) = (gpu.alloc(out.len()).unwrap(), gpu.alloc(moments.len()).unwrap());
        let outs = (&mut found_moments.slice_mut(), &mut found.slice_mut());
        layer_norm_on_device(&gpu, r.slice(), [a.slice(), b.slice()], EPSILON, outs.0, outs.1).unwrap();
        assert_same(&found_moments.to_vec().unwrap(), &moments, false, &format!("moments, {name}"));
        assert_same(&found.to_vec().unwrap(), &out, false, &name);

        let gradient = values(4, rows.len());
        let mut of_rows = vec![f32::NAN; rows.len()];
        let of_others = layer_norm_backward(&rows, &scale, &moments, &gradient, &mut of_rows).unwrap();
        let (m, g) = (gpu.upload(&moments).unwrap(), gpu.upload(&gradient).unwrap());
        let out = &mut found.slice_mut();
        let found_others =
            layer_norm_backward_on_device(&gpu, r.slice(), a.slice(), m.slice(), g.slice(), out).unwrap();
        if dim > 1 {
            assert_same(&found.to_vec().unwrap(), &of_rows, false, &format!("gradient, {name}"));
        } else {
            assert!(found.to_vec().unwrap().iter().all(|value| value.abs() < 1e-3), "a single value is its mean");
        }
        for (found, expected) in found_others.iter().zip(&of_others) {
            assert_same(&found.to_vec().unwrap(), expected, false, &format!("gradients of columns, {name}"));
        }
    }
}

#[test]
fn batch_norm_is_that_of_the_host() {
    for (case, (count, dim)) in shapes().enumerate() {
        for weighted in [false, true] {
            let gpu = Gpu::under_test(case as u32 % 4);
            let name = format!("{count} rows of {dim}, weighted {weighted}");
            let [rows, scale, shift] = inputs(count, dim);
            let count = if dim == 0 { 0 } else { count };
            let weights: Vec<f32> = (0..count).map(|r| [1.0, 0.5, 0.25][r % 3]).collect();
            let device_weights = gpu.upload(&weights).unwrap();
            let given = weighted.then_some(&weights[..]);
            let device_given = weighted.then_some(device_weights.slice());
            let [r, a, b] = [&rows, &scale, &shift].map(|values| gpu.upload(values).unwrap());
            let sums = column_moments(&rows, given, dim).unwrap();
            let found = column_moments_on_device(&gpu, r.slice(), device_given, dim).unwrap().to_vec().unwrap();
            assert_eq!(found.len(), sums.len());
            for (found, expected) in found.iter().zip(&sums) {
                assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{name}: {found}, {expected}");
            }

            let given = gpu.upload(&sums).unwrap();
            let moments = DeviceMoments::new(&gpu, given, f64::from(EPSILON)).unwrap();
            let total = sums[0].max(1.0);
            let means: Vec<f64> = sums[1..=dim].iter().map(|sum| sum / total).collect();
            let variances = sums[1 + dim..].iter().zip(&means).map(|(sum, mean)| (sum / total - mean * mean).max(0.0));
            let unbiased = if sums[0] > 1.0 { sums[0] / (sums[0] - 1.0) } else { 1.0 };
            let variances: Vec<f64> = variances.collect();
            let inverse = |variance: &f64| (1.0 / (variance + f64::from(EPSILON)).sqrt()) as f32;
            let expected = [narrow(&means), narrow(&variances.iter().map(|v| v * unbiased).collect::<Vec<_>>())];
            assert_eq!(moments.statistics().map(|values| values.to_vec(&gpu).unwrap()), expected, "{name}");
            assert_eq!(moments.norm().mean.to_vec(&gpu).unwrap(), expected[0], "{name}");
            let inverses: Vec<f32> = variances.iter().map(inverse).collect();
            assert_eq!(moments.norm().inverse.to_vec(&gpu).unwrap(), inverses, "{name}");
            assert_eq!(moments.num_rows(&gpu).unwrap(), sums[0]);
            let mut divided = gpu.upload(&sums).unwrap();
            moments.divide(&gpu, &mut divided.slice_mut()).unwrap();
            assert_eq!(divided.to_vec().unwrap(), sums.iter().map(|sum| sum / total).collect::<Vec<_>>());
            let given = weighted.then_some(&weights[..]);

            let [mean, inverse] = [values(5, dim), values(6, dim)];
            let host = ColumnNorm { mean: &mean, inverse: &inverse };
            let [m, i] = [&mean, &inverse].map(|values| gpu.upload(values).unwrap());
            let device = DeviceColumnNorm { mean: m.slice(), inverse: i.slice() };
            let mut out = vec![f32::NAN; rows.len()];
            host.forward(&rows, [&scale, &shift], &mut out).unwrap();
            let mut found = gpu.alloc(rows.len()).unwrap();
            device.forward(&gpu, r.slice(), [a.slice(), b.slice()], &mut found.slice_mut()).unwrap();
            assert_eq!(found.to_vec().unwrap(), out, "{name}");

            let gradient = values(4, rows.len());
            let g = gpu.upload(&gradient).unwrap();
            let of_columns = host.backward(&rows, &scale, &gradient, &mut out).unwrap();
            let found_columns = device.backward(&gpu, r.slice(), a.slice(), g.slice(), &mut found.slice_mut()).unwrap();
            assert_eq!(found.to_vec().unwrap(), out, "gradient, {name}");
            for (found, expected) in found_columns.iter().zip(&of_columns) {
                assert_same(&found.to_vec().unwrap(), expected, false, &format!("gradients of columns, {name}"));
            }
            let products = host.products(&rows, &gradient).unwrap();
            let found_products = device.products(&gpu, r.slice(), g.slice()).unwrap().to_vec().unwrap();
            assert_same(&narrow(&found_products), &narrow(&products), false, &format!("products, {name}"));
            host.correct(&rows, given, &products, &mut out).unwrap();
            let products = gpu.upload(&products).unwrap();
            device.correct(&gpu, r.slice(), device_given, products.slice(), &mut found.slice_mut()).unwrap();
            assert_eq!(found.to_vec().unwrap(), out, "corrected, {name}");
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    fn length<T>(result: Result<T, GpuError>) -> bool {
        matches!(result, Err(GpuError::Input(KernelError::Length { .. })))
    }
    let gpu = Gpu::under_test(1);
    let buffers: Vec<_> = (0..5).map(|len| gpu.zeros::<f32>(len).unwrap()).collect();
    let slice = |len: usize| buffers[len].slice();
    let (mut two, mut four) = (gpu.zeros(2).unwrap(), gpu.zeros(4).unwrap());
    let (two, four) = (&mut two.slice_mut(), &mut four.slice_mut());
    assert!(length(layer_norm_on_device(&gpu, slice(3), [slice(2); 2], EPSILON, two, four)));
    assert!(length(layer_norm_on_device(&gpu, slice(4), [slice(2), slice(1)], EPSILON, two, four)));
    assert!(length(layer_norm_on_device(&gpu, slice(4), [slice(2); 2], EPSILON, two, four)), "two rows, four moments");
    assert!(length(layer_norm_backward_on_device(&gpu, slice(4), slice(2), slice(4), slice(2), four)));
    assert!(length(column_moments_on_device(&gpu, slice(3), None, 2)));
    assert!(length(DeviceMoments::new(&gpu, gpu.zeros(4).unwrap(), 1e-5)));
    assert!(length(column_moments_on_device(&gpu, slice(4), Some(slice(1)), 2)));
    let norm = DeviceColumnNorm { mean: slice(2), inverse: slice(2) };
    assert!(length(norm.forward(&gpu, slice(3), [slice(2); 2], four)));
    assert!(length(norm.backward(&gpu, slice(4), slice(1), slice(4), four)));
    let means = gpu.zeros::<f64>(3).unwrap();
    assert!(length(norm.correct(&gpu, slice(4), None, means.slice(), four)));
    assert!(length(DeviceColumnNorm { inverse: slice(1), ..norm }.products(&gpu, slice(4), slice(4))));
}
