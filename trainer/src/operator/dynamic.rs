//! Dynamic graph attention (GATv2) as a node of torch's graph.

use std::sync::Arc;

use gsplit_kernels::{
    DeviceDynamicGradient, DeviceDynamicRows, DeviceEdges, DynamicGradient, DynamicRows, Gpu,
    column_sums as host_column_sums,
};
use tch::{Kind, Tensor};

use super::attention::Form;
use super::finish::column_sums;
use super::{
    Dropout, Edges, Finish, Row, filled, filled_of, filled_with_room, mismatch, shape, with_row,
};
use crate::Result;
use crate::autograd::{Buffer, attach, device_values, device_values_mut, values};

/// For each target and head `finish`(Σ weight · source's row + `bias`) over the target itself and
/// its sources, f32 `[targets, heads · width]`, from `sources`, `[sources, heads · width]`. Weights
/// are the softmax over a target's edges of `vector`, `[heads, width]`, times LeakyReLU₀.₂(source's
/// row + target's row), with `targets` `[targets, heads · width]`. Row `t` of `sources` is target
/// `t`'s own. Rows may be of the type in which a GPU keeps them. For `dropout` see
/// [`attention`](super::attention()).
///
/// # Errors
/// Errors of [`attention`](super::attention()).
pub fn dynamic_attention(
    edges: &Arc<Edges>,
    sources: &Tensor,
    targets: &Tensor,
    vector: &Tensor,
    bias: &Tensor,
    dropout: Option<Dropout>,
    finish: Finish,
) -> Result<Tensor> {
    let ((_, dim), (heads, head_dim)) =
        (shape("rows", sources)?, shape("vector of attention", vector)?);
    if heads * head_dim != dim {
        return Err(mismatch(format!(
            "a vector of attention of shape {:?} for rows of width {dim}",
            vector.size()
        )));
    }
    let form = Form { heads, head_dim, shares_rows: false, dropout, relations: None };
    match edges.on_device() {
        None => on_host(edges, [sources, targets, vector, bias], form, finish),
        Some((gpu, device, on_gpu)) => {
            let kind = if sources.kind() == targets.kind() { sources.kind() } else { Kind::Float };
            let (sources, targets) = (&sources.f_totype(kind)?, &targets.f_totype(kind)?);
            let inputs = [sources, targets, vector, bias];
            with_row!(kind, |T| on_device::<T>(edges, gpu, device, on_gpu, inputs, form, finish))
        }
    }
}

/// [`dynamic_attention`] with the inputs: the sources' rows, the targets', the vector and the bias.
fn on_host(edges: &Arc<Edges>, inputs: [&Tensor; 4], form: Form, finish: Finish) -> Result<Tensor> {
    let [l, r, a, b] = inputs.map(|tensor| tensor.detach().contiguous());
    let (op, dim) = (form.over(edges)?, form.dim());
    let mut weights = Buffer::new(op.num_weights())?;
    let output = filled_with_room([edges.num_targets(), dim], finish.room, |out| {
        let rows = DynamicRows { sources: values(&l)?, targets: values(&r)?, vector: values(&a)? };
        op.forward_dynamic(rows, out, weights.as_mut_slice())?;
        Ok(finish.epilogue(Some(values(&b)?))?.apply(out, dim)?)
    })?;
    let weights = weights.into_tensor(&[op.num_weights() as i64])?;
    let result = output.shallow_clone();
    let edges = edges.clone();
    attach(&inputs, &[&l, &r, &a, &weights, &result], output, move |gradient| {
        let [l, r, a, weights, y] = gradient.saved()?;
        let given = finish.backward(edges.place(), y, &gradient.output)?;
        let of_bias = column_sums(edges.place(), &given)?;
        let op = form.over(&edges)?;
        let mut scratch = Buffer::new(op.num_weights())?;
        let mut of_targets = Buffer::new(edges.num_targets() * dim)?;
        let mut of_vector = Buffer::new(edges.num_targets() * dim)?;
        let of_sources = filled(&[edges.num_sources(), dim], |of_sources| {
            let rows = DynamicRows { sources: values(l)?, targets: values(r)?, vector: values(a)? };
            let out = DynamicGradient {
                sources: of_sources,
                targets: of_targets.as_mut_slice(),
                vector: of_vector.as_mut_slice(),
            };
            Ok(op.backward_dynamic(
                rows,
                values(weights)?,
                values(&given)?,
                scratch.as_mut_slice(),
                out,
            )?)
        })?;
        let of_vector = filled(&[form.heads, form.head_dim], |out| {
            Ok(host_column_sums(of_vector.as_slice(), out)?)
        })?;
        let of_targets = of_targets.into_tensor(&[edges.num_targets() as i64, dim as i64])?;
        Ok([of_sources, of_targets, of_vector, of_bias].map(Some).into())
    })
}

/// Like [`on_host`], for rows of `T`, whose gradients are of the same type.
fn on_device<T: Row>(
    edges: &Arc<Edges>,
    gpu: &Gpu,
    device: tch::Device,
    on_gpu: &DeviceEdges,
    inputs: [&Tensor; 4],
    form: Form,
    finish: Finish,
) -> Result<Tensor> {
    let [l, r, a, b] = inputs.map(|tensor| tensor.detach().contiguous());
    let (op, dim) = (form.over_on_gpu(edges, gpu, on_gpu)?, form.dim());
    let mut weights = Tensor::f_empty([op.num_weights() as i64], (Kind::Float, device))?;
    let pre_activation = filled_of::<f32>(device, &[on_gpu.num_targets(), dim], |out| {
        let rows = rows_on_gpu::<T>(device, [&l, &r, &a])?;
        Ok(op.forward_dynamic(gpu, rows, out, &mut device_values_mut(device, &mut weights)?)?)
    })?;
    let output = finish.apply(edges.place(), pre_activation, Some(&b))?;
    let result = output.shallow_clone();
    let edges = edges.clone();
    attach(&inputs, &[&l, &r, &a, &weights, &result], output, move |gradient| {
        let [l, r, a, weights, y] = gradient.saved()?;
        let given = finish.backward(edges.place(), y, &gradient.output)?;
        let of_bias = column_sums(edges.place(), &given)?;
        let (gpu, device, on_gpu) =
            edges.on_device().ok_or_else(|| mismatch("edges that left their GPU".into()))?;
        let op = form.over_on_gpu(&edges, gpu, on_gpu)?;
        let shape = [on_gpu.num_targets(), dim];
        let mut of_targets = filled_of::<T>(device, &shape, |_| Ok(()))?;
        let mut of_vector = filled_of::<f32>(device, &shape, |_| Ok(()))?;
        let of_sources = filled_of::<T>(device, &[on_gpu.num_sources(), dim], |of_sources| {
            let out = DeviceDynamicGradient {
                sources: of_sources.reborrow(),
                targets: device_values_mut(device, &mut of_targets)?,
                vector: device_values_mut(device, &mut of_vector)?,
            };
            let [weights, given] =
                [device_values(device, weights)?, device_values(device, &given)?];
            let rows = rows_on_gpu::<T>(device, [l, r, a])?;
            Ok(op.backward_dynamic(gpu, rows, weights, given, out)?)
        })?;
        let of_vector = column_sums(edges.place(), &of_vector)?
            .f_view([form.heads as i64, form.head_dim as i64])?;
        Ok([of_sources, of_targets, of_vector, of_bias].map(Some).into())
    })
}

fn rows_on_gpu<T: Row>(
    device: tch::Device,
    rows: [&Tensor; 3],
) -> Result<DeviceDynamicRows<'_, T>> {
    let [sources, targets, vector] = rows;
    Ok(DeviceDynamicRows {
        sources: device_values(device, sources)?,
        targets: device_values(device, targets)?,
        vector: device_values(device, vector)?,
    })
}
