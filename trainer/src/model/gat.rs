//! Graph attention (Veličković et al., ICLR 2018), each vertex attending to itself and its sampled
//! in-neighbours: z = W h; score(u → v) = LeakyReLU₀.₂(a_source · z(u) + a_target · z(v)) for each
//! head; h'(v) = Σ softmax(score) z(u) + b. The heads' results are concatenated. In training,
//! dropout may take some of the attention weights (section 3.3).
//!
//! Scores and sums are linear in z. So the rows h themselves may be scored, by W a, and summed; the
//! product with W comes after, and has only as many rows as targets, not as sources. The cheaper
//! order is chosen ([`attention_order_of`]).

use std::ops::Range;

use tch::Tensor;

use super::columns::rows_of;
use super::order::{Order, attention_order_of};
use super::parameters::Named;
use super::{ByColumns, Layer, LayerEdges};
use crate::Result;
use crate::operator::{Activation, Edges, Finish, Rows, attention, linear, projected};

/// One graph-attention layer.
pub struct Gat {
    weight: Tensor,
    attention_source: Tensor,
    attention_target: Tensor,
    bias: Tensor,
    out: usize,
    attention_dropout: f32,
}

impl Gat {
    /// Creates a layer from rows of `input` values to rows of `out`, the concatenation of `heads`
    /// heads of `out / heads` values, which drops a fraction `attention_dropout` of the attention
    /// weights.
    pub fn new(
        named: &mut Named<'_>,
        input: usize,
        out: usize,
        heads: usize,
        attention_dropout: f32,
    ) -> Self {
        let each = out / heads;
        Self {
            weight: named.glorot("weight", [input, out]),
            attention_source: named.glorot("attention_source", [heads, each]),
            attention_target: named.glorot("attention_target", [heads, each]),
            bias: named.bias("bias", out),
            out,
            attention_dropout,
        }
    }

    fn order(&self, edges: &LayerEdges<'_>, input: Rows<'_>) -> Result<Order> {
        if edges.edges.on_device().is_some() {
            return Ok(Order::TransformFirst);
        }
        let ((_, width), (heads, _)) = (input.shape()?, self.attention_source.size2()?);
        Ok(attention_order_of(
            edges.counts(),
            heads as usize,
            [width, self.out],
            input.requires_grad(),
        ))
    }

    fn in_order(
        &self,
        order: Order,
        edges: &LayerEdges<'_>,
        rows: &Tensor,
        finish: Finish,
    ) -> Result<Tensor> {
        if order == Order::TransformFirst {
            let z = projected(edges.place(), rows, &self.weight)?;
            return self.complete(edges, &[z], finish);
        }
        let (heads, each) = self.attention_source.size2()?;
        let weight = self.weight.f_view([-1, heads, each])?.f_permute([1, 0, 2])?.f_contiguous()?;
        let of_rows = |a: &Tensor| weight.f_bmm(&a.f_unsqueeze(-1)?)?.f_squeeze_dim(-1);
        let [by_source, by_target] =
            [of_rows(&self.attention_source)?, of_rows(&self.attention_target)?];
        let dropout = edges.attention_dropout(self.attention_dropout);
        let sums = attention(
            &edges.edges,
            rows,
            &by_source,
            &by_target,
            None,
            dropout,
            Finish::default(),
        )?;
        linear(edges.place(), &sums, &weight, Some(&self.bias), finish)
    }
}

impl Layer for Gat {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        self.in_order(self.order(edges, input)?, edges, &input.held()?, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }

    fn activation(&self) -> Activation {
        Activation::Elu
    }

    fn by_columns(&self) -> Option<&dyn ByColumns> {
        Some(self)
    }
}

impl ByColumns for Gat {
    fn shapes(&self, edges: &Edges) -> Vec<[usize; 2]> {
        vec![[edges.num_sources(), self.out]]
    }

    fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Vec<Tensor>> {
        let weight = rows_of(&self.weight, &columns)?;
        Ok(vec![linear(edges.place(), &input.held()?, &weight, None, Finish::default())?])
    }

    fn complete(
        &self,
        edges: &LayerEdges<'_>,
        totals: &[Tensor],
        finish: Finish,
    ) -> Result<Tensor> {
        let dropout = edges.attention_dropout(self.attention_dropout);
        attention(
            &edges.edges,
            &totals[0],
            &self.attention_source,
            &self.attention_target,
            Some(&self.bias),
            dropout,
            finish,
        )
    }
}

#[cfg(test)]
mod tests {
    use gsplit_kernels::{Draws, Graph, SampledCsc, Stream, StreamKey};
    use tch::{Device, Kind};

    use super::*;
    use crate::model::parameters::Parameters;
    use crate::operator::{Engine, Place};

    #[test]
    fn both_orders_give_the_same_rows_and_gradients() {
        let (targets, sources, degree) = (40, 90u32, 5);
        let mut draws = Draws::new(&StreamKey::new(3, Stream::Generate), 0);
        let layer = SampledCsc {
            indptr: (0..=targets).map(|target| target * degree).collect(),
            local: (0..targets * degree).map(|_| draws.below(sources)).collect(),
            ..SampledCsc::default()
        };
        let (indptr, vertices): (Vec<u64>, Vec<u32>) =
            (vec![0; sources as usize + 1], (0..sources).collect());
        let graph = Graph::new(&indptr, &[]).unwrap();
        for (heads, place) in
            [(1, Place::host()), (3, Place::host()), (3, Place::Host(Engine::Torch))]
        {
            let edges = LayerEdges::new(&place, graph, layer.clone(), &vertices).unwrap();
            tch::manual_seed(7);
            let rows = Tensor::randn([i64::from(sources), 20], (Kind::Float, Device::Cpu));
            let upstream = Tensor::randn([i64::from(targets), 12], (Kind::Float, Device::Cpu));
            let run = |order: Order| {
                let mut parameters = Parameters::new(1, &place);
                let gat = Gat::new(&mut parameters.below("layers.0".into()), 20, 12, heads, 0.0);
                let leaf = rows.copy().set_requires_grad(true);
                let finish = Finish { activation: Activation::Elu, ..Finish::default() };
                let made = gat.in_order(order, &edges, &leaf, finish).unwrap();
                (&made * &upstream).sum(Kind::Float).backward();
                let gradients = parameters.iter().map(|(_, parameter)| parameter.grad());
                [made.detach(), leaf.grad()].into_iter().chain(gradients).collect::<Vec<_>>()
            };
            for (which, (one, other)) in
                run(Order::AggregateFirst).iter().zip(run(Order::TransformFirst)).enumerate()
            {
                let [scale, apart] =
                    [&other, &(one - &other)].map(|tensor| tensor.abs().max().double_value(&[]));
                assert!(
                    scale > 0.0 && apart < 1e-5 * scale,
                    "{heads} heads, {which}: {apart} apart of {scale}"
                );
            }
        }
    }
}
