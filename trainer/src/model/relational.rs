//! Layers with weights for each relation, for a vertex v of type T and the relations r into it.
//!
//! * R-SAGE: h'(v) = W_T h(v) + Σ_r W_r mean of h(u) over the sampled in-edges u → v of relation r +
//!   b_T. With GraphSAGE's weights for v itself this is R-GCN with the normalisation 1 / |N_r(v)|
//!   (Schlichtkrull et al., ESWC 2018, equation 2), except that each type has its own W_T.
//! * R-GAT: h'(v) = W_T h(v) + Σ_r Σ_u softmax(score_r(u → v)) W_r h(u) + b_T, the softmax over the
//!   sampled in-edges of one relation, with the scores of GAT for each head ([`gat`](super::gat)).
//!   It is PyG's `HeteroConv` of `GATConv`s without self-loops, with a linear layer beside it.
//!
//! The sums of a vertex are adjacent rows, one for each relation, so the sums of a type are a matrix
//! `[vertices, relations · width]`, and all its relations are one product after the sums.

use gsplit_store::GraphTypes;
use tch::Tensor;

use super::parameters::Named;
use super::{Layer, LayerEdges};
use crate::Result;
use crate::operator::{
    Activation, Dropout, Finish, Place, Reduce, Rows, aggregate, finished, linear, put,
    relational_attention, taken,
};

/// R-SAGE.
pub struct Relational {
    types: Vec<OfType>,
    out: usize,
}

/// R-GAT.
pub struct RelationalAttention {
    types: Vec<OfType>,
    /// By source and by target, `[heads, out / heads]`, for each weight of `types`.
    vectors: Vec<Vec<[Tensor; 2]>>,
    out: usize,
    heads: usize,
    attention_dropout: f32,
}

/// Weights of a type of targets.
struct OfType {
    weight_self: Tensor,
    /// For each relation into the type, in the order of its rows.
    weights: Vec<Tensor>,
    bias: Tensor,
}

/// Weights of each type for a layer from rows of `input` values to rows of `out`.
fn weights(
    named: &mut Named<'_>,
    types: &GraphTypes,
    [input, out]: [usize; 2],
    mut of_relation: impl FnMut(&mut Named<'_>, usize, &str),
) -> Vec<OfType> {
    let mut of_type = |at: usize, name: &str| {
        let weight_self = named.glorot(&format!("{name}.weight_self"), [input, out]);
        let mut weights = Vec::new();
        for relation in types.into_type(at) {
            let path = types.relations[relation].to_string();
            weights.push(named.glorot(&format!("{path}.weight"), [input, out]));
            of_relation(named, at, &path);
        }
        OfType { weight_self, weights, bias: named.bias(&format!("{name}.bias"), out) }
    };
    types.vertices.iter().enumerate().map(|(at, of)| of_type(at, &of.name)).collect()
}

/// The rows of a frontier, by type.
struct Frontier {
    /// Positions in the frontier, type after type.
    order: Vec<u32>,
    /// The rows of each type.
    own: Vec<Tensor>,
}

impl Frontier {
    fn new(edges: &LayerEdges<'_>, input: Rows<'_>) -> Result<Self> {
        let positions = edges.by_type()?;
        let order = positions.concat();
        let own = input.first(order.len())?;
        let own = if order.is_sorted() { own } else { taken(&own, &order)? };
        let counts: Vec<i64> = positions.iter().map(|of| of.len() as i64).collect();
        Ok(Self { order, own: own.f_split_with_sizes(counts, 0)? })
    }

    /// The rows of the layer, if `product` returns the product of the sums of a type with its
    /// weights, given these sums, `[vertices of the type, relations, width]`.
    fn rows(
        &self,
        place: &Place,
        types: &[OfType],
        sums: &Tensor,
        finish: Finish,
        product: impl Fn(&[Tensor], &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (mut parts, mut first) = (Vec::new(), 0);
        for (of, own) in types.iter().zip(&self.own) {
            let (count, relations) = (own.size()[0], of.weights.len() as i64);
            if count == 0 {
                continue;
            }
            let bias = Some(&of.bias);
            let mut rows = linear(place, own, &of.weight_self, bias, Finish::default())?;
            if relations > 0 {
                let sums = sums.f_narrow(0, first, count * relations)?;
                let sums = sums.f_view([count, relations, sums.size()[1]])?;
                rows = rows.f_add(&product(&of.weights, &sums)?)?;
            }
            first += count * relations;
            parts.push(rows);
        }
        let rows = match &parts[..] {
            [rows] if self.order.is_sorted() => rows.shallow_clone(),
            parts => put(parts, &self.order)?,
        };
        finished(place, &rows, finish)
    }
}

impl Relational {
    /// Creates a layer from rows of `input` values to rows of `out`.
    pub fn new(named: &mut Named<'_>, types: &GraphTypes, input: usize, out: usize) -> Self {
        Self { types: weights(named, types, [input, out], |_, _, _| {}), out }
    }
}

impl Layer for Relational {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let (place, frontier) = (edges.place(), Frontier::new(edges, input)?);
        let means = aggregate(&edges.edges, Reduce::Mean, input, None, false)?;
        frontier.rows(place, &self.types, &means, finish, |weights, means| {
            let means = means.f_flatten(1, 2)?;
            linear(place, &means, &Tensor::f_cat(weights, 0)?, None, Finish::default())
        })
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}

impl RelationalAttention {
    /// Creates a layer from rows of `input` values to rows of `out`, the concatenation of `heads`
    /// heads of `out / heads` values, which drops a fraction `attention_dropout` of the attention
    /// weights.
    pub fn new(
        named: &mut Named<'_>,
        types: &GraphTypes,
        input: usize,
        out: usize,
        heads: usize,
        attention_dropout: f32,
    ) -> Self {
        let mut vectors: Vec<Vec<[Tensor; 2]>> =
            types.vertices.iter().map(|_| Vec::new()).collect();
        let types = weights(named, types, [input, out], |named, at, path| {
            let vector =
                |end: &str| named.glorot(&format!("{path}.attention_{end}"), [heads, out / heads]);
            vectors[at].push(["source", "target"].map(vector));
        });
        Self { types, vectors, out, heads, attention_dropout }
    }

    /// The vectors that give the scores of rows before the product: W_r a for each relation and
    /// head, by source for all relations and by target for those into each type, `[input, relations
    /// · heads]`.
    fn vectors_of_rows(&self) -> Result<(Tensor, Vec<Option<Tensor>>)> {
        let (mut by_source, mut by_target) = (Vec::new(), Vec::new());
        for (of, vectors) in self.types.iter().zip(&self.vectors) {
            let mut of_type = Vec::new();
            for (weight, [source, target]) in of.weights.iter().zip(vectors) {
                let weight = weight.f_view([-1, self.heads as i64, source.size()[1]])?;
                let of_rows = |vector: &Tensor| {
                    weight.f_mul(vector)?.f_sum_dim_intlist(-1, false, tch::Kind::Float)
                };
                by_source.push(of_rows(source)?);
                of_type.push(of_rows(target)?);
            }
            by_target.push((!of_type.is_empty()).then(|| Tensor::f_cat(&of_type, 1)).transpose()?);
        }
        Ok((Tensor::f_cat(&by_source, 1)?, by_target))
    }
}

impl Layer for RelationalAttention {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let (place, frontier) = (edges.place(), Frontier::new(edges, input)?);
        let (heads, rows) = (self.heads as i64, input.held()?);
        let product =
            |rows: &Tensor, weight: &Tensor| linear(place, rows, weight, None, Finish::default());
        let (by_source, by_target) = self.vectors_of_rows()?;
        let from_source = product(&rows, &by_source)?;
        let mut from_target = Vec::new();
        for (own, by_target) in frontier.own.iter().zip(&by_target) {
            let scores = by_target.as_ref().map(|by_target| product(own, by_target)).transpose()?;
            from_target.extend(scores.map(|scores| scores.f_view([-1, heads])).transpose()?);
        }
        let from_target = Tensor::f_cat(&from_target, 0)?;
        let [ids, relations] = edges.relations()?;
        let dropout = edges.attention_dropout(self.attention_dropout);
        let dropout = dropout.map(|dropout| Dropout { ids: ids.as_slice().into(), ..dropout });
        let scores = [&from_source, &from_target];
        let sums = relational_attention(&edges.edges, &rows, scores, relations, dropout)?;
        frontier.rows(place, &self.types, &sums, finish, |weights, sums| {
            // The sums of a vertex are relation · head · value: heads come first in the product.
            let (count, relations) = (sums.size()[0], weights.len() as i64);
            let sums = sums.f_view([count, relations, heads, -1])?;
            let sums = sums.f_permute([2, 0, 1, 3])?.f_flatten(2, 3)?;
            let weight = Tensor::f_stack(weights, 0)?.f_flatten(0, 1)?;
            let weight = weight.f_view([weight.size()[0], heads, -1])?.f_permute([1, 0, 2])?;
            let rows = sums.f_bmm(&weight)?.f_permute([1, 0, 2])?;
            Ok(rows.f_reshape([count, self.out as i64])?)
        })
    }

    fn out_dim(&self) -> usize {
        self.out
    }

    fn activation(&self) -> Activation {
        Activation::Elu
    }
}
