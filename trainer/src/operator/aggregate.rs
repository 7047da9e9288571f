//! Aggregation over a layer's edges, as nodes of torch's graph.

use std::sync::Arc;

use gsplit_kernels::{
    Aggregation, DeviceAggregation, DeviceEdges, DeviceSlice, Reduce, aggregate_max as maxima,
    aggregate_max_backward, aggregate_max_backward_on_device, aggregate_max_on_device,
};
use tch::{Kind, Tensor};

use super::{Edges, Rows, filled, filled_of, mismatch, shape, widened, with_row};
use crate::autograd::{attach, device_values, values};
use crate::{Error, Result};

/// For each target the sum or mean of its sources' rows, f32 `[targets, width]`, from `rows`,
/// `[sources, width]`; with `concat_self`, preceded by its own row: `[targets, 2 · width]`.
/// `weights`, `[edges]`, are factors of the edges' rows, in addition to the edges' own
/// ([`Edges::with_factors`]).
///
/// A host aggregates stored rows in place if hardly any is read twice; otherwise it gathers them
/// first, since reading a row again is cheaper if rows are close together. A GPU aggregates rows
/// that it keeps in place.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if the shapes do not match the edges.
pub fn aggregate<'a>(
    edges: &Arc<Edges>,
    reduce: Reduce,
    rows: impl Into<Rows<'a>>,
    weights: Option<&Tensor>,
    concat_self: bool,
) -> Result<Tensor> {
    aggregate_as(edges, Aggregating { reduce, concat_self, to: Kind::Float }, rows.into(), weights)
}

/// Like [`aggregate`], for use as a factor of [`linear`](super::linear): on a GPU that computes in
/// bf16 or f16 the result has that type, to which the product would round the rows anyway.
///
/// # Errors
/// Errors of [`aggregate`].
pub fn aggregate_for_product<'a>(
    edges: &Arc<Edges>,
    reduce: Reduce,
    rows: impl Into<Rows<'a>>,
    weights: Option<&Tensor>,
    concat_self: bool,
) -> Result<Tensor> {
    let to = edges.place().row_kind();
    aggregate_as(edges, Aggregating { reduce, concat_self, to }, rows.into(), weights)
}

fn aggregate_as(
    edges: &Arc<Edges>,
    how: Aggregating,
    stored: Rows<'_>,
    weights: Option<&Tensor>,
) -> Result<Tensor> {
    let (_, dim) = stored.shape()?;
    let own = own_factors(edges)?;
    let w = match (weights, &own) {
        (Some(weights), Some(own)) => Some(weights.f_mul(own)?.detach()),
        (Some(weights), None) => Some(weights.detach().contiguous()),
        (None, own) => own.as_ref().map(Tensor::shallow_clone),
    };
    let in_place = match stored {
        Rows::Hidden(_) | Rows::AfterRelu(..) => false,
        Rows::Stored { features, .. } => features.read_by().is_none() && read_about_once(edges),
        Rows::Kept(kept) => kept.kind() == how.to,
    };
    if in_place && !weights.is_some_and(Tensor::requires_grad) {
        return how.forward(edges, stored, w.as_ref());
    }
    let rows = stored.held()?;
    let x = rows.detach().contiguous();
    let output = how.forward(edges, Rows::Hidden(&x), w.as_ref())?;
    let inputs: Vec<&Tensor> = [&rows].into_iter().chain(weights).collect();
    let relu = match stored {
        Rows::AfterRelu(_, above) if edges.on_device().is_some() => Some(above.take()),
        _ => None,
    };
    // Rows are needed for the gradient of the weights, and for the gradient of ReLU.
    let trains_weights = weights.is_some_and(Tensor::requires_grad);
    let x = (relu.is_some() || trains_weights).then_some(&x);
    let saved: Vec<&Tensor> = x.into_iter().chain(&w).collect();
    let is_weighted = w.is_some();
    let (edges, kind) = (edges.clone(), rows.kind());
    attach(&inputs, &saved, output, move |gradient| {
        let given = gradient.output.contiguous();
        let weights = gradient.saved.last().filter(|_| is_weighted);
        let relu = gradient.saved.first().zip(relu);
        let needed = |input: usize| gradient.needed.get(input) == Some(&true);
        let of_rows = || how.rows_backward(&edges, weights, &given, relu, dim, kind);
        let mut gradients = vec![needed(0).then(of_rows).transpose()?];
        if gradient.needed.len() > 1 {
            let of_weights = || {
                let [x, w] = gradient.saved()?;
                let of_products =
                    how.weights_backward(&edges, w, &widened(x)?, &widened(&given)?)?;
                Ok::<_, Error>(match own_factors(&edges)? {
                    Some(own) => of_products.f_mul(&own)?,
                    None => of_products,
                })
            };
            gradients.push(needed(1).then(of_weights).transpose()?);
        }
        Ok(gradients)
    })
}

/// The edges' own factors, at the place of the rows, f32 `[edges]`.
fn own_factors(edges: &Edges) -> Result<Option<Tensor>> {
    edges.factors().map(|factors| edges.place().upload(factors)).transpose()
}

/// Reduction of the rows of a target's sources.
#[derive(Clone, Copy)]
struct Aggregating {
    reduce: Reduce,
    concat_self: bool,
    /// Type of the result: f32, or on a GPU the type of rows.
    to: Kind,
}

impl Aggregating {
    fn on_host<'a>(
        self,
        edges: &'a gsplit_kernels::HostEdges,
        weights: Option<&'a [f32]>,
    ) -> Aggregation<'a> {
        Aggregation { edges, reduce: self.reduce, weights, concat_self: self.concat_self }
    }

    fn on_device<'a>(
        self,
        edges: &'a DeviceEdges,
        weights: Option<DeviceSlice<'a, f32>>,
    ) -> DeviceAggregation<'a> {
        DeviceAggregation { edges, reduce: self.reduce, weights, concat_self: self.concat_self }
    }

    fn forward(self, edges: &Edges, rows: Rows<'_>, weights: Option<&Tensor>) -> Result<Tensor> {
        let (_, dim) = rows.shape()?;
        let Some((gpu, device, on_gpu)) = edges.on_device() else {
            let op = self.on_host(edges.on_host()?, weights.map(values).transpose()?);
            return filled(&[edges.num_targets(), op.out_dim(dim)], |out| rows.aggregate(&op, out));
        };
        let op = self
            .on_device(on_gpu, weights.map(|weights| device_values(device, weights)).transpose()?);
        if let Rows::Kept(kept) = rows {
            return kept.aggregate(&op);
        }
        let rows = rows.held()?;
        let shape = [edges.num_targets(), op.out_dim(dim)];
        with_row!(rows.kind(), |T| with_row!(self.to, |O| filled_of::<O>(device, &shape, |out| {
            Ok(op.forward(gpu, device_values::<T>(device, &rows)?, dim, out)?)
        })))
    }

    /// The gradient of rows of `dim` values, of type `kind`. With `relu`, the rows that ReLU
    /// returned and the factor of the values that dropout kept, it is the gradient of ReLU's input.
    fn rows_backward(
        self,
        edges: &Edges,
        weights: Option<&Tensor>,
        given: &Tensor,
        relu: Option<(&Tensor, f32)>,
        dim: usize,
        kind: Kind,
    ) -> Result<Tensor> {
        let shape = [edges.num_sources(), dim];
        let Some((gpu, device, on_gpu)) = edges.on_device() else {
            let op = self.on_host(edges.on_host()?, weights.map(values).transpose()?);
            return filled(&shape, |out| Ok(op.backward(values(given)?, dim, out)?));
        };
        let op = self
            .on_device(on_gpu, weights.map(|weights| device_values(device, weights)).transpose()?);
        with_row!(given.kind(), |T| with_row!(kind, |O| filled_of::<O>(device, &shape, |out| {
            let given = device_values::<T>(device, given)?;
            let relu = relu
                .map(|(rows, keep)| Ok::<_, Error>((device_values::<O>(device, rows)?, keep)))
                .transpose()?;
            Ok(op.backward(gpu, given, relu, dim, out)?)
        })))
    }

    fn weights_backward(
        self,
        edges: &Edges,
        weights: &Tensor,
        rows: &Tensor,
        given: &Tensor,
    ) -> Result<Tensor> {
        let (_, dim) = shape("rows to aggregate", rows)?;
        let Some((gpu, device, on_gpu)) = edges.on_device() else {
            let op = self.on_host(edges.on_host()?, Some(values(weights)?));
            let fill = |out: &mut [f32]| {
                Ok(op.weights_backward(values(rows)?, values(given)?, dim, out)?)
            };
            return filled(&[edges.num_edges()], fill);
        };
        let op = self.on_device(on_gpu, Some(device_values(device, weights)?));
        let [rows, given] = [device_values(device, rows)?, device_values(device, given)?];
        filled_of::<f32>(device, &[edges.num_edges()], |out| {
            Ok(op.weights_backward(gpu, rows, given, dim, out)?)
        })
    }
}

/// Whether aggregating rows in place is cheaper than gathering them first. With rows of 400 bytes
/// out of 1.2 GB and 1.7 edges per row it took 44 to 50 ms, while gathering and aggregating took 31.
fn read_about_once(edges: &Edges) -> bool {
    edges.num_edges() + edges.num_targets() <= edges.num_sources() + edges.num_sources() / 4
}

/// For each target the maximum of each column over its sources' rows, zeros without edges:
/// `[targets, width]` from `[sources, width]`, of the same type.
///
/// # Errors
/// [`Error::Kernel`](crate::Error::Kernel) if the shape does not match the edges;
/// [`Error::Option`](crate::Error::Option) if the edges have factors, which a maximum cannot use.
pub fn aggregate_max(edges: &Arc<Edges>, rows: &Tensor) -> Result<Tensor> {
    if edges.factors().is_some() {
        let problem = "a maximum over neighbours cannot use edge factors: leave out --edge-weights and --draw locality";
        return Err(Error::Option(problem.into()));
    }
    let x = rows.detach().contiguous();
    let (_, dim) = shape("rows to aggregate", &x)?;
    let (of_targets, of_sources) = ([edges.num_targets(), dim], [edges.num_sources(), dim]);
    let edges = edges.clone();
    let Some((gpu, device, on_gpu)) = edges.on_device() else {
        let mut picked = vec![0u32; edges.num_targets() * dim];
        let output = filled(&of_targets, |out| {
            Ok(maxima(edges.on_host()?, values(&x)?, dim, out, &mut picked)?)
        })?;
        return attach(&[rows], &[], output, move |gradient| {
            let given = gradient.output.contiguous();
            let fill = |out: &mut [f32]| {
                Ok(aggregate_max_backward(edges.on_host()?, &picked, values(&given)?, dim, out)?)
            };
            Ok(vec![Some(filled(&of_sources, fill)?)])
        });
    };
    let mut picked = gpu.alloc(edges.num_targets() * dim)?;
    let output = with_row!(x.kind(), |T| filled_of::<T>(device, &of_targets, |out| {
        let x = device_values::<T>(device, &x)?;
        Ok(aggregate_max_on_device(gpu, on_gpu, x, dim, out, &mut picked.slice_mut())?)
    }))?;
    let edges = edges.clone();
    attach(&[rows], &[], output, move |gradient| {
        let given = gradient.output.contiguous();
        let (gpu, device, on_gpu) =
            edges.on_device().ok_or_else(|| mismatch("edges that left their GPU".into()))?;
        let of_rows = with_row!(given.kind(), |T| filled_of::<T>(device, &of_sources, |out| {
            let given = device_values::<T>(device, &given)?;
            Ok(aggregate_max_backward_on_device(gpu, on_gpu, picked.slice(), given, dim, out)?)
        }))?;
        Ok(vec![Some(of_rows)])
    })
}
