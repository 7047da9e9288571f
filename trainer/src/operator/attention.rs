//! Graph attention as a node of torch's graph.

use std::sync::Arc;

use gsplit_kernels::{
    Attention, AttentionGradient, DeviceAttention, DeviceAttentionGradient, DeviceBuffer,
    DeviceEdges, DeviceSlice, Gpu, head_products, head_products_backward,
    head_products_backward_on_device, head_products_on_device,
};
use tch::{Kind, Tensor};

use super::finish::column_sums;
use super::{
    Dropout, Edges, Finish, Row, filled, filled_of, filled_with_room, mismatch, shape, with_row,
};
use crate::autograd::{Buffer, attach, device_values, device_values_mut, values};
use crate::{Error, Result};

/// Slope of LeakyReLU below zero.
const NEGATIVE_SLOPE: f32 = 0.2;

/// For each target and head `finish`(Σ weight · row + `bias`) over the target itself and its
/// sources, f32 `[targets, heads · width]`, from `rows`, `[sources, heads · width]`, which may be
/// of the type in which a GPU keeps rows. Weights are the softmax over a target's edges of
/// LeakyReLU₀.₂(`by_source` · row of the source + `by_target` · row of the target), both `[heads,
/// width]`. `dropout`, whose first vertices are the targets, zeroes some of the weights and scales
/// up the others. On the host, weights are proportional to the edges' factors, and rows may be
/// `[sources, width]`: then all heads read the same rows.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if the shapes do not match each other,
/// [`Error::Kernel`](crate::Error::Kernel) if they, or the dropout, do not match the edges.
pub fn attention(
    edges: &Arc<Edges>,
    rows: &Tensor,
    by_source: &Tensor,
    by_target: &Tensor,
    bias: Option<&Tensor>,
    dropout: Option<Dropout>,
    finish: Finish,
) -> Result<Tensor> {
    let ((_, dim), (heads, head_dim)) =
        (shape("rows", rows)?, shape("attention by source", by_source)?);
    let shares_rows = heads > 1 && head_dim == dim && edges.on_device().is_none();
    if !(heads * head_dim == dim || shares_rows) || by_target.size() != by_source.size() {
        let sizes = [by_source.size(), by_target.size()];
        return Err(mismatch(format!(
            "attention by source and target of shapes {sizes:?} for rows of width {dim}"
        )));
    }
    let inputs = ([rows, by_source, by_target], bias);
    let form = Form { heads, head_dim, shares_rows, dropout, relations: None };
    match edges.on_device() {
        None => on_host(edges, inputs, form, finish),
        Some((gpu, device, on_gpu)) => {
            with_row!(rows.kind(), |T| on_device::<T>(
                edges, gpu, device, on_gpu, inputs, form, finish
            ))
        }
    }
}

/// For each target, the row of a relation, and head Σ weight · row over its sources, f32
/// `[targets, heads · width]`, from `rows`, `[sources, width]`, on the host. Weights are the
/// softmax over the edges of a target of LeakyReLU₀.₂(s + t), where s is the value of `from_source`
/// for the source and the relation, and t that of `from_target`. `from_source` is `[sources,
/// relations · heads]`, `from_target` `[targets, heads]`, and `of_targets` the relation of each
/// target. The first values of `dropout` are the ids of the rows.
///
/// # Errors
/// Like [`attention`].
pub fn relational_attention(
    edges: &Arc<Edges>,
    rows: &Tensor,
    [from_source, from_target]: [&Tensor; 2],
    of_targets: Vec<u32>,
    dropout: Option<Dropout>,
) -> Result<Tensor> {
    let (_, head_dim) = shape("rows", rows)?;
    let (_, heads) = shape("scores of the targets", from_target)?;
    let (_, of_source) = shape("scores of the sources", from_source)?;
    let relations = Some((of_targets, of_source.checked_div(heads).unwrap_or(0)));
    let form = Form { heads, head_dim, shares_rows: heads > 1, dropout, relations };
    let inputs = [rows, from_source, from_target];
    let [z, by_source, by_target] = inputs.map(|tensor| tensor.detach().contiguous());
    let op = form.over(edges)?;
    let mut weights = Buffer::new(op.num_weights())?;
    let output = filled(&[edges.num_targets(), form.dim()], |out| {
        let scores = [values(&by_source)?, values(&by_target)?];
        Ok(op.forward(values(&z)?, scores, out, weights.as_mut_slice())?)
    })?;
    let weights = weights.into_tensor(&[op.num_weights() as i64])?;
    let edges = edges.clone();
    attach(&inputs, &[&z, &by_source, &by_target, &weights], output, move |gradient| {
        let [z, by_source, by_target, weights] = gradient.saved()?;
        let (op, given) = (form.over(&edges)?, gradient.output.contiguous());
        let mut scratch = Buffer::new(op.num_weights())?;
        let mut of_source = Buffer::new(by_source.numel())?;
        let mut of_target = Buffer::new(by_target.numel())?;
        let of_rows = filled(&[edges.num_sources(), head_dim], |rows| {
            let out = AttentionGradient {
                rows,
                from_source: of_source.as_mut_slice(),
                from_target: of_target.as_mut_slice(),
            };
            let scores = [values(by_source)?, values(by_target)?];
            let (z, weights, given) = (values(z)?, values(weights)?, values(&given)?);
            Ok(op.backward(z, scores, weights, given, scratch.as_mut_slice(), out)?)
        })?;
        let of_scores = [(of_source, by_source), (of_target, by_target)];
        let of_scores = of_scores.map(|(buffer, like)| buffer.into_tensor(&like.size()));
        let [of_source, of_target] = of_scores;
        Ok([of_rows, of_source?, of_target?].map(Some).into())
    })
}

/// Rows, attention vectors by source and by target; and the bias.
type AttentionInputs<'a> = ([&'a Tensor; 3], Option<&'a Tensor>);

fn on_host(
    edges: &Arc<Edges>,
    (inputs, bias): AttentionInputs<'_>,
    form: Form,
    finish: Finish,
) -> Result<Tensor> {
    let [z, a_source, a_target] = inputs.map(|tensor| tensor.detach().contiguous());
    let b = bias.map(|bias| bias.detach().contiguous());
    let (op, targets, dim) = (form.over(edges)?, edges.num_targets(), form.dim());
    let (row_dim, heads, head_dim) = (op.row_dim(), form.heads, form.head_dim);
    // Row t is target t's own; if there are too few rows, the operator reports it.
    let own = |values: &'_ [f32]| values.len().min(targets * row_dim);
    let scores = |a: &Tensor, rows: &[f32]| {
        filled(&[rows.len().checked_div(row_dim).unwrap_or(0), heads], |out| {
            Ok(head_products(rows, values(a)?, head_dim, out)?)
        })
    };
    let from_source = scores(&a_source, values(&z)?)?;
    let from_target = scores(&a_target, &values(&z)?[..own(values(&z)?)])?;
    let mut weights = Buffer::new(op.num_weights())?;
    let output = filled_with_room([targets, dim], finish.room, |out| {
        let scores = [values(&from_source)?, values(&from_target)?];
        op.forward(values(&z)?, scores, out, weights.as_mut_slice())?;
        Ok(finish.epilogue(b.as_ref().map(values).transpose()?)?.apply(out, dim)?)
    })?;
    let weights = weights.into_tensor(&[op.num_weights() as i64])?;
    let result = output.shallow_clone();
    let saved = [&z, &a_source, &a_target, &from_source, &from_target, &weights, &result];
    let (edges, with_bias) = (edges.clone(), bias.is_some());
    let inputs: Vec<&Tensor> = inputs.into_iter().chain(bias).collect();
    attach(&inputs, &saved, output, move |gradient| {
        let [z, a_source, a_target, from_source, from_target, weights, y] = gradient.saved()?;
        let given = finish.backward(edges.place(), y, &gradient.output)?;
        let of_bias = with_bias.then(|| column_sums(edges.place(), &given)).transpose()?;
        let (z, op) = (values(z)?, form.over(&edges)?);
        let mut of_source = Buffer::new(from_source.numel())?;
        let mut of_target = Buffer::new(from_target.numel())?;
        let mut scratch = Buffer::new(op.num_weights())?;
        let of_rows = filled(&[edges.num_sources(), row_dim], |rows| {
            let out = AttentionGradient {
                rows: &mut *rows,
                from_source: of_source.as_mut_slice(),
                from_target: of_target.as_mut_slice(),
            };
            let scores = [values(from_source)?, values(from_target)?];
            op.backward(z, scores, values(weights)?, values(&given)?, scratch.as_mut_slice(), out)?;
            // Scores depend on the rows too.
            op.add_scores_backward(of_source.as_slice(), values(a_source)?, rows)?;
            op.add_scores_backward(of_target.as_slice(), values(a_target)?, rows)?;
            Ok(())
        })?;
        let of_attention = |rows: &[f32], gradient: &Buffer| {
            filled(&[heads, head_dim], |out| {
                Ok(head_products_backward(rows, gradient.as_slice(), head_dim, out)?)
            })
        };
        let by_source = of_attention(z, &of_source)?;
        let by_target = of_attention(&z[..edges.num_targets() * row_dim], &of_target)?;
        Ok([of_rows, by_source, by_target].into_iter().chain(of_bias).map(Some).collect())
    })
}

/// Like [`on_host`], for rows of `T`, whose gradients are of the same type.
fn on_device<T: Row>(
    edges: &Arc<Edges>,
    gpu: &Gpu,
    device: tch::Device,
    on_gpu: &DeviceEdges,
    (inputs, bias): AttentionInputs<'_>,
    form: Form,
    finish: Finish,
) -> Result<Tensor> {
    let [z, a_source, a_target] = inputs.map(|tensor| tensor.detach().contiguous());
    let (op, targets, dim) =
        (form.over_on_gpu(edges, gpu, on_gpu)?, on_gpu.num_targets(), form.dim());
    let Form { heads, head_dim, .. } = form;
    let rows = device_values::<T>(device, &z)?;
    let scores = |a: &Tensor, rows: DeviceSlice<'_, T>| {
        filled_of::<f32>(device, &[rows.len().checked_div(dim).unwrap_or(0), heads], |out| {
            Ok(head_products_on_device(gpu, rows, device_values(device, a)?, head_dim, out)?)
        })
    };
    let from_source = scores(&a_source, rows)?;
    let from_target = scores(&a_target, rows.part(0, rows.len().min(targets * dim))?)?;
    let mut weights = Tensor::f_empty([op.num_weights() as i64], (Kind::Float, device))?;
    let pre_activation = filled_of::<f32>(device, &[targets, dim], |out| {
        let scores = [device_values(device, &from_source)?, device_values(device, &from_target)?];
        Ok(op.forward(gpu, rows, scores, out, &mut device_values_mut(device, &mut weights)?)?)
    })?;
    let output = finish.apply(edges.place(), pre_activation, bias)?;
    let result = output.shallow_clone();
    let saved = [&z, &a_source, &a_target, &from_source, &from_target, &weights, &result];
    let (edges, with_bias) = (edges.clone(), bias.is_some());
    let inputs: Vec<&Tensor> = inputs.into_iter().chain(bias).collect();
    attach(&inputs, &saved, output, move |gradient| {
        let [z, a_source, a_target, from_source, from_target, weights, y] = gradient.saved()?;
        let given = finish.backward(edges.place(), y, &gradient.output)?;
        let of_bias = with_bias.then(|| column_sums(edges.place(), &given)).transpose()?;
        let (gpu, device, on_gpu) =
            edges.on_device().ok_or_else(|| mismatch("edges that left their GPU".into()))?;
        let op = form.over_on_gpu(&edges, gpu, on_gpu)?;
        let values = |tensor| device_values(device, tensor);
        let rows = device_values::<T>(device, z)?;
        let mut of_source = gpu.alloc(from_source.numel())?;
        let mut of_target = gpu.alloc(from_target.numel())?;
        let of_rows = filled_of::<T>(device, &[edges.num_sources(), dim], |of_rows| {
            let out = DeviceAttentionGradient {
                rows: of_rows.reborrow(),
                from_source: of_source.slice_mut(),
                from_target: of_target.slice_mut(),
            };
            let scores = [values(from_source)?, values(from_target)?];
            // Scores depend on the rows too.
            let vectors = Some([values(a_source)?, values(a_target)?]);
            Ok(op.backward(gpu, rows, vectors, scores, values(weights)?, values(&given)?, out)?)
        })?;
        let of_attention = |rows: DeviceSlice<'_, T>, gradient: &DeviceBuffer<f32>| {
            filled_of::<f32>(device, &[heads, head_dim], |out| {
                Ok(head_products_backward_on_device(gpu, rows, gradient.slice(), head_dim, out)?)
            })
        };
        let by_source = of_attention(rows, &of_source)?;
        let by_target = of_attention(rows.part(0, edges.num_targets() * dim)?, &of_target)?;
        Ok([of_rows, by_source, by_target].into_iter().chain(of_bias).map(Some).collect())
    })
}

/// Parameters of attention, apart from its edges.
pub(super) struct Form {
    pub heads: usize,
    pub head_dim: usize,
    /// Whether all heads read the same rows.
    pub shares_rows: bool,
    /// Dropout of the attention weights; its vertices start with the targets.
    pub dropout: Option<Dropout>,
    /// The relation of each target, and the number of relations; without them, targets attend to
    /// themselves too.
    pub relations: Option<(Vec<u32>, usize)>,
}

impl Form {
    /// Width of a target's row.
    pub fn dim(&self) -> usize {
        self.heads * self.head_dim
    }

    pub fn over<'a>(&'a self, edges: &'a Edges) -> Result<Attention<'a>> {
        let dropout = match &self.dropout {
            Some(Dropout { ids, probability, key }) => {
                let vertices = ids.on_host()?;
                Some((vertices.get(..edges.num_targets()).unwrap_or(vertices), *probability, *key))
            }
            None => None,
        };
        let Self { heads, head_dim, shares_rows, .. } = *self;
        let relations =
            self.relations.as_ref().map(|(of_targets, count)| (&of_targets[..], *count));
        let (edges, factors) = (edges.on_host()?, edges.factors());
        Ok(Attention {
            edges,
            heads,
            head_dim,
            shares_rows,
            slope: NEGATIVE_SLOPE,
            self_loops: relations.is_none(),
            dropout,
            factors,
            relations,
        })
    }

    pub fn over_on_gpu<'a>(
        &'a self,
        edges: &Edges,
        gpu: &Gpu,
        on_gpu: &'a DeviceEdges,
    ) -> Result<DeviceAttention<'a>> {
        if edges.factors().is_some() {
            return Err(Error::Option("attention with edge factors is for --device cpu".into()));
        }
        let dropout = match &self.dropout {
            Some(Dropout { ids, probability, key }) => {
                let vertices = ids.on_gpu(gpu)?;
                Some((
                    vertices.part(0, on_gpu.num_targets().min(vertices.len()))?,
                    *probability,
                    *key,
                ))
            }
            None => None,
        };
        let Self { heads, head_dim, .. } = *self;
        Ok(DeviceAttention {
            edges: on_gpu,
            heads,
            head_dim,
            slope: NEGATIVE_SLOPE,
            self_loops: true,
            dropout,
        })
    }
}
