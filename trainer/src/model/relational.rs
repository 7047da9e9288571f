//! A layer with weights for each relation: h'(v) = W_T h(v) + Σ_r W_r mean of h(u) over the sampled
//! in-edges u → v of relation r + b_T, for a vertex v of type T and the relations r into it.
//!
//! With GraphSAGE's weights for v itself this is R-GCN with the normalisation 1 / |N_r(v)|
//! (Schlichtkrull et al., ESWC 2018, equation 2), except that each type has its own W_T. The
//! means of a vertex are adjacent rows, one for each relation, so the means of a type are a matrix
//! `[vertices, relations · width]` without a copy, and all its relations are one product.

use gsplit_store::GraphTypes;
use tch::Tensor;

use super::parameters::Named;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{Finish, Reduce, Rows, aggregate, finished, linear, put, taken};

/// One layer.
pub struct Relational {
    types: Vec<OfType>,
    out: usize,
}

/// Weights of a type of targets.
struct OfType {
    weight_self: Tensor,
    /// For each relation into the type, in the order of its rows.
    weights: Vec<Tensor>,
    bias: Tensor,
}

impl Relational {
    /// Creates a layer from rows of `input` values to rows of `out`.
    pub fn new(named: &mut Named<'_>, types: &GraphTypes, input: usize, out: usize) -> Self {
        let mut of_type = |at: usize, name: &str| {
            let weight_self = named.glorot(&format!("{name}.weight_self"), [input, out]);
            let weight = |relation: usize| {
                named.glorot(&format!("{}.weight", types.relations[relation]), [input, out])
            };
            let weights = types.into_type(at).into_iter().map(weight).collect();
            OfType { weight_self, weights, bias: named.bias(&format!("{name}.bias"), out) }
        };
        let types = types.vertices.iter().enumerate();
        Self { types: types.map(|(at, of)| of_type(at, &of.name)).collect(), out }
    }
}

impl Layer for Relational {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let place = edges.place();
        let positions = edges.by_type()?;
        let order = positions.concat();
        let is_sorted = order.is_sorted();
        let own = input.first(order.len())?;
        let own = if is_sorted { own } else { taken(&own, &order)? };
        let means = aggregate(&edges.edges, Reduce::Mean, input, None, false)?;
        let counts = |rows: bool| -> Vec<i64> {
            let of_type = |(of, at): (&OfType, &Vec<u32>)| {
                (at.len() * if rows { of.weights.len() } else { 1 }) as i64
            };
            self.types.iter().zip(&positions).map(of_type).collect()
        };
        let (own, means) =
            (own.f_split_with_sizes(counts(false), 0)?, means.f_split_with_sizes(counts(true), 0)?);
        let mut parts = Vec::new();
        for (of, (own, means)) in self.types.iter().zip(own.iter().zip(&means)) {
            let (count, width) = (own.size()[0], own.size()[1]);
            if count == 0 {
                continue;
            }
            let bias = Some(&of.bias);
            let mut rows = linear(place, own, &of.weight_self, bias, Finish::default())?;
            if !of.weights.is_empty() {
                let means = means.f_reshape([count, of.weights.len() as i64 * width])?;
                let weight = Tensor::f_cat(&of.weights, 0)?;
                rows = rows.f_add(&linear(place, &means, &weight, None, Finish::default())?)?;
            }
            parts.push(rows);
        }
        let rows = match &parts[..] {
            [rows] if is_sorted => rows.shallow_clone(),
            parts => put(parts, &order)?,
        };
        finished(place, &rows, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}
