//! Dynamic graph attention (GATv2) as a node of torch's graph.

use std::sync::Arc;

use gsplit_kernels::{DynamicGradient, DynamicRows, column_sums as host_column_sums};
use tch::Tensor;

use super::attention::over;
use super::finish::column_sums;
use super::{Edges, Finish, filled, mismatch, shape};
use crate::Result;
use crate::autograd::{Buffer, attach, values};
use crate::place::{all_on_host, on_host};

/// For each target and head `finish`(Σ share · source's row + `bias`) over the target itself and its sources, f32
/// `[targets, heads · width]`, from `sources`, `[sources, heads · width]`. Shares are the softmax over a target's edges of
/// `vector`, `[heads, width]`, times LeakyReLU₀.₂(source's row + target's row), with `targets` `[targets, heads · width]`. Row `t` of
/// `sources` is target `t`'s own.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if the shapes do not fit each other, [`Error::Kernel`](crate::Error::Kernel) if
/// they do not fit the edges.
pub fn dynamic_attention(
    edges: &Arc<Edges>,
    sources: &Tensor,
    targets: &Tensor,
    vector: &Tensor,
    bias: &Tensor,
    finish: Finish,
) -> Result<Tensor> {
    let [l, r, a, b] = all_on_host([sources, targets, vector, bias])?;
    let ((_, dim), (heads, head_dim)) = (shape("rows", &l)?, shape("vector of attention", &a)?);
    if heads * head_dim != dim {
        return Err(mismatch(format!("a vector of attention of shape {:?} for rows of width {dim}", a.size())));
    }
    let op = over(edges, heads, head_dim);
    let mut shares = Buffer::new(op.num_shares())?;
    let output = filled(&[edges.num_targets(), dim], |out| {
        let rows = DynamicRows { sources: values(&l)?, targets: values(&r)?, vector: values(&a)? };
        op.forward_dynamic(rows, out, shares.as_mut_slice())?;
        Ok(finish.epilogue(Some(values(&b)?)).apply(out, dim)?)
    })?;
    let shares = shares.into_tensor(&[op.num_shares() as i64])?;
    let output = edges.place().bring(&output)?;
    let result = output.shallow_clone();
    let edges = edges.clone();
    attach(&[sources, targets, vector, bias], &[&l, &r, &a, &shares, &result], output, move |gradient| {
        let [l, r, a, shares, y] = gradient.saved()?;
        let given = finish.backward(edges.place(), y, &gradient.output)?;
        let of_bias = column_sums(edges.place(), &given)?;
        let given = on_host(&given)?;
        let op = over(&edges, heads, head_dim);
        let mut scratch = Buffer::new(op.num_shares())?;
        let mut of_targets = Buffer::new(edges.num_targets() * dim)?;
        let mut of_vector = Buffer::new(edges.num_targets() * dim)?;
        let of_sources = filled(&[edges.num_sources(), dim], |of_sources| {
            let rows = DynamicRows { sources: values(l)?, targets: values(r)?, vector: values(a)? };
            let out = DynamicGradient {
                sources: of_sources,
                targets: of_targets.as_mut_slice(),
                vector: of_vector.as_mut_slice(),
            };
            Ok(op.backward_dynamic(rows, values(shares)?, values(&given)?, scratch.as_mut_slice(), out)?)
        })?;
        let of_vector = filled(&[heads, head_dim], |out| Ok(host_column_sums(of_vector.as_slice(), out)?))?;
        let of_targets = of_targets.into_tensor(&[edges.num_targets() as i64, dim as i64])?;
        let found = [of_sources, of_targets, of_vector].map(|found| edges.place().bring(&found).map(Some));
        found.into_iter().chain([Ok(Some(of_bias))]).collect()
    })
}
