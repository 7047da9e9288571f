//! Graph attention (Veličković et al., ICLR 2018), each vertex attending to itself and its sampled in-neighbours:
//! z = W h; score(u → v) = LeakyReLU₀.₂(a_source · z(u) + a_target · z(v)) for each head; h'(v) = Σ softmax(score) z(u) + b.
//! The heads' results are concatenated.

use tch::{Kind, Tensor};

use super::parameters::Named;
use super::{Layer, LayerEdges, aggregate};

/// Slope of LeakyReLU below zero; `tch`'s own is fixed at 0.01.
const NEGATIVE_SLOPE: f64 = 0.2;

/// One graph-attention layer.
pub struct Gat {
    weight: Tensor,
    attention_source: Tensor,
    attention_target: Tensor,
    bias: Tensor,
    heads: i64,
    out: usize,
}

impl Gat {
    /// A layer from rows of `input` values to rows of `out`, the concatenation of `heads` heads of `out / heads` values.
    pub fn new(named: &mut Named<'_>, input: usize, out: usize, heads: usize) -> Self {
        let each = out / heads;
        Self {
            weight: named.glorot("weight", [input, out]),
            attention_source: named.glorot("attention_source", [heads, each]),
            attention_target: named.glorot("attention_target", [heads, each]),
            bias: named.zeros("bias", out),
            heads: heads as i64,
            out,
        }
    }
}

impl Layer for Gat {
    fn forward(&self, edges: &LayerEdges, mixed: &Tensor) -> Tensor {
        let z = mixed.matmul(&self.weight).view([edges.num_mixed, self.heads, -1]);
        let per_head = |a: &Tensor| (&z * a).sum_dim_intlist(-1, false, Kind::Float);
        let from_source = per_head(&self.attention_source);
        let from_target = per_head(&self.attention_target);

        let looped = with_self_loops(edges);
        let score = from_source.index_select(0, &looped.sources) + from_target.index_select(0, &looped.targets);
        let share = softmax_by_target(&score.maximum(&(&score * NEGATIVE_SLOPE)), &looped);
        let heads: Vec<Tensor> = (0..self.heads)
            .map(|head| {
                let rows = z.select(1, head).contiguous();
                aggregate(&rows, &looped.sources, &looped.indptr, Some(&share.select(1, head).contiguous()))
            })
            .collect();
        Tensor::cat(&heads, 1) + &self.bias
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}

/// Edges with one self-loop in front of each frontier row's sampled edges.
struct Looped {
    indptr: Tensor,
    sources: Tensor,
    targets: Tensor,
}

fn with_self_loops(edges: &LayerEdges) -> Looped {
    let options = (Kind::Int64, edges.indptr.device());
    let rows = Tensor::arange(edges.num_frontier, options);
    let indptr = &edges.indptr + Tensor::arange(edges.num_frontier + 1, options);
    let counts = edges.degrees() + 1;
    let targets = Tensor::repeat_interleave_self_tensor(&rows, &counts, 0, None);
    // Edge i of the sample sits behind the self-loops of its target and of every row before it.
    let sampled_target = Tensor::repeat_interleave_self_tensor(&rows, &edges.degrees(), 0, None);
    let place = Tensor::arange(edges.sources.size()[0], options) + sampled_target + 1;
    let sources = targets.index_copy(0, &place, &edges.sources);
    Looped { indptr, sources, targets }
}

/// Softmax of `score`, f32 `[edges, heads]`, over the edges of each target row.
fn softmax_by_target(score: &Tensor, edges: &Looped) -> Tensor {
    // Subtracting the row's largest score changes nothing but the range, so no gradient flows through it.
    let largest = tch::no_grad(|| {
        let score = score.detach();
        Tensor::segment_reduce::<&Tensor, _>(
            &score,
            "max",
            None,
            None,
            Some(&edges.indptr),
            0,
            false,
            f64::NEG_INFINITY,
        )
    });
    let raised = (score - largest.index_select(0, &edges.targets)).exp();
    let total = largest.zeros_like().index_add(0, &edges.targets, &raised);
    raised / total.index_select(0, &edges.targets)
}
