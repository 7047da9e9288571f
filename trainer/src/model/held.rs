//! Predicts the peak memory of a mini-batch's matrices in training by replaying the engine's
//! allocations in a model of its pool.
//!
//! A layer is a chain of operators. Forward allocates the result of each; backward goes from the
//! last to the first, and each allocates the gradient of its input, then frees its own gradient and
//! saved values. This yields the peak, and the free memory at the peak: a pool keeps free pieces up
//! to a third above its peak, and uses a piece only for matrices that fill at least half of it.
//!
//! The model is for the host, where operators work on [`Pool`]'s pieces. On GPUs torch and the
//! driver have their own pools, and only the peak counts. Not counted: vectors of one value per
//! row, gradients of parameters, and the memory of the loss.

use super::Order;
use crate::autograd::Pool;
use crate::config::ModelKind;

/// Sizes of a layer's input and output, summed over all ranks that share the memory.
#[derive(Clone, Copy, Debug)]
pub struct HeldLayer {
    /// Number of rows that it makes.
    pub vertices: f64,
    /// Number of edges.
    pub edges: f64,
    /// Number of rows that it reads.
    pub read: f64,
    /// Number of these rows that other ranks send.
    pub received: f64,
    /// Widths of its input and output rows.
    pub widths: [f64; 2],
    /// Number of rows that the layer above receives, for which it leaves room behind its own.
    pub received_above: f64,
    /// Whether it aggregates first.
    pub order: Order,
    /// Number of attention heads.
    pub heads: f64,
}

/// A mini-batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// From the seeds down.
    pub layers: Vec<HeldLayer>,
    /// Kind of the layers.
    pub kind: ModelKind,
    /// Number of ranks that share this memory.
    pub ranks: usize,
    /// Whether the bottom layer is computed by columns, each rank's columns for all ranks.
    pub sliced: bool,
    /// Whether the next mini-batch's feature rows are read during this one.
    pub ahead: bool,
}

/// An operator; sizes are numbers of values.
#[derive(Clone, Copy, Debug)]
struct Operator {
    /// Size of its result, if it is kept.
    result_size: f64,
    /// Size of other values saved for backward.
    saved_size: f64,
    /// True if the result is kept until this operator's backward; otherwise it is freed after the
    /// next operator's.
    keeps_result: bool,
    /// Whether it has parameters.
    has_parameters: bool,
    /// Size of the gradient of its input.
    gradient: f64,
    /// Size of the temporary values of its backward.
    aside: f64,
}

impl Operator {
    /// A product of matrices, including bias and activation.
    fn product(result_size: f64, gradient: f64) -> Self {
        Self {
            result_size,
            saved_size: 0.0,
            keeps_result: true,
            has_parameters: true,
            gradient,
            aside: 0.0,
        }
    }

    /// A sum over edges.
    fn aggregation(result_size: f64, gradient: f64) -> Self {
        Self {
            result_size,
            saved_size: 0.0,
            keeps_result: false,
            has_parameters: false,
            gradient,
            aside: 0.0,
        }
    }
}

/// The operators of a layer of this `kind`, first to last. A sum that torch computes and frees at
/// once is left out.
fn operators(kind: ModelKind, layer: &HeldLayer) -> Vec<Operator> {
    let HeldLayer {
        vertices,
        edges,
        read,
        widths: [input, made],
        received_above,
        order,
        heads,
        ..
    } = *layer;
    let (rows, all) = (|values: f64| vertices * values, |values: f64| read * values);
    let result = (vertices + received_above) * made;
    let (product, aggregation) = (Operator::product, Operator::aggregation);
    let finish = product(result, rows(made));
    let attention = || {
        // One for each edge and each vertex itself; and two scores per vertex.
        let coefficients = heads * (edges + 2.0 * vertices + read);
        Operator { saved_size: coefficients, aside: coefficients, ..aggregation(0.0, all(made)) }
    };
    match (kind, order) {
        (ModelKind::Gat, Order::AggregateFirst) => {
            let sums = heads * rows(input);
            let attention = Operator {
                result_size: sums,
                keeps_result: true,
                has_parameters: true,
                gradient: all(input),
                ..attention()
            };
            vec![attention, product(result, sums)]
        }
        (ModelKind::Gat, Order::TransformFirst) => {
            vec![product(all(made), all(input)), attention(), finish]
        }
        (ModelKind::Gatv2, _) => {
            let attention = Operator { gradient: all(made) + rows(made), ..attention() };
            vec![product(all(made) + rows(made), all(input)), attention, finish]
        }
        (ModelKind::SagePool, _) => vec![
            product(all(input), all(input)),
            Operator { saved_size: rows(input), ..aggregation(rows(input), all(input)) },
            product(2.0 * rows(made), 2.0 * rows(input)),
            finish,
        ],
        (ModelKind::Gin, Order::AggregateFirst) => vec![
            aggregation(2.0 * rows(input), all(input)),
            // torch multiplies and adds both halves, and pads their gradients.
            Operator {
                has_parameters: true,
                aside: 6.0 * rows(input),
                ..aggregation(rows(input), 2.0 * rows(input))
            },
            product(rows(made), rows(input)),
            product(result, rows(made)),
        ],
        (ModelKind::Gin, Order::TransformFirst) => vec![
            product(all(made), all(input)),
            aggregation(2.0 * rows(made), all(made)),
            product(rows(made), 2.0 * rows(made)),
            product(result, rows(made)),
        ],
        (ModelKind::Sage, Order::AggregateFirst) => {
            vec![aggregation(2.0 * rows(input), all(input)), product(result, 2.0 * rows(input))]
        }
        (ModelKind::Sage, Order::TransformFirst) => {
            vec![product(rows(made) + all(made), all(input)), aggregation(0.0, all(made)), finish]
        }
        (ModelKind::Sgc, _) if input == made => {
            vec![Operator { keeps_result: true, ..aggregation(result, all(input)) }]
        }
        (ModelKind::Gcn | ModelKind::Sgc | ModelKind::Resgcn, Order::AggregateFirst) => {
            vec![aggregation(rows(input), all(input)), product(result, rows(input))]
        }
        (ModelKind::Gcn | ModelKind::Sgc | ModelKind::Resgcn, Order::TransformFirst) => {
            vec![product(all(made), all(input)), aggregation(0.0, all(made)), finish]
        }
    }
}

/// An operator that was run, the pieces of its result, and the pieces of its saved values.
type TapedOperator = (Operator, Vec<usize>, Vec<usize>);

/// The matrices of all ranks, which allocate the same sizes at the same time.
#[derive(Default)]
struct HeldValues {
    pool: Pool<()>,
    ranks: usize,
    /// Peak size of the pool, including free pieces.
    most: usize,
}

impl HeldValues {
    /// Allocates `values` values, split over all ranks, in one piece per rank.
    fn make(&mut self, values: f64) -> Vec<usize> {
        let each = (values / self.ranks as f64).ceil() as usize;
        let pieces = (0..self.ranks).map(|_| self.pool.take_or_make(each)).collect();
        self.most = self.most.max(self.pool.kept());
        pieces
    }

    /// Allocates and frees the send buffer for the rows that a layer reads of other ranks.
    fn send(&mut self, layer: &HeldLayer) {
        let sent = self.make(layer.received * layer.widths[0]);
        self.drop(sent);
    }

    fn drop(&mut self, pieces: Vec<usize>) {
        for piece in pieces.into_iter().filter(|&piece| piece > 0) {
            self.pool.give_back(piece, ());
        }
    }
}

/// Number of values in the ranks' mailboxes: the largest message of each pair of ranks, for two
/// collectives in turn.
pub fn mailed(batch: &Batch) -> f64 {
    let rows = batch.layers.iter().map(|layer| layer.received * layer.widths[0]);
    let columns = batch
        .layers
        .last()
        .filter(|_| batch.sliced)
        .map(|bottom| batch.ranks as f64 * partial(batch, bottom));
    2.0 * rows.chain(columns).fold(0.0, f64::max)
}

/// Peak number of values of the matrices of `batch`, and the peak including the pool's free pieces.
pub fn values(batch: &Batch) -> [usize; 2] {
    let mut held = HeldValues { ranks: batch.ranks, ..HeldValues::default() };
    let features = batch.layers.last().map_or(0.0, |layer| layer.read * layer.widths[0]);
    let read = held.make(features);
    // Forward, from the bottom up: allocate each operator's result and saved values.
    let mut tape: Vec<Vec<TapedOperator>> = Vec::new();
    for (from_bottom, layer) in batch.layers.iter().rev().enumerate() {
        held.send(layer);
        let operators = match batch.sliced && from_bottom == 0 {
            true => by_columns(batch, layer),
            false => operators(batch.kind, layer),
        };
        let taped = |operator: Operator| {
            (operator, held.make(operator.result_size), held.make(operator.saved_size))
        };
        tape.push(operators.into_iter().map(taped).collect());
    }
    let ahead = if batch.ahead { held.make(features) } else { Vec::new() };
    // Backward, from the seeds down. A layer's result and its gradient are kept until the layer is
    // done.
    let top = batch.layers.first().map_or(0.0, |layer| layer.vertices * layer.widths[1]);
    let mut given = held.make(top);
    while let Some(mut layer) = tape.pop() {
        let (mut of_layer, mut gradient) = (Vec::new(), Vec::new());
        while let Some((operator, returned, kept)) = layer.pop() {
            if batch.sliced && tape.is_empty() && layer.len() == 1 {
                // The layer itself is done: its products by columns follow.
                held.drop(std::mem::take(&mut of_layer));
                held.drop(std::mem::take(&mut given));
            }
            // Features have no gradient, nor do values computed from them without a parameter.
            let wanted = !tape.is_empty() || layer.iter().any(|(below, ..)| below.has_parameters);
            let [of_read, aside] = [operator.gradient, operator.aside]
                .map(|values| held.make(if wanted { values } else { 0.0 }));
            held.drop(aside);
            if let Some((_, returned, _)) =
                layer.last_mut().filter(|(below, ..)| !below.keeps_result)
            {
                held.drop(std::mem::take(returned));
            }
            held.drop(kept);
            held.drop(std::mem::replace(&mut gradient, of_read));
            if of_layer.is_empty() { of_layer = returned } else { held.drop(returned) }
        }
        held.drop(of_layer);
        held.drop(std::mem::replace(&mut given, gradient));
        if !tape.is_empty() {
            held.send(&batch.layers[batch.layers.len() - 1 - tape.len()]);
        }
    }
    held.drop(read);
    held.drop(ahead);
    [held.pool.most(), held.most]
}

/// Operators of a bottom layer computed by columns: each rank computes a part of every rank's sums,
/// and adds up its own.
fn by_columns(batch: &Batch, layer: &HeldLayer) -> Vec<Operator> {
    let HeldLayer { vertices, widths: [_, made], received_above, .. } = *layer;
    let (ranks, partial) = (batch.ranks as f64, partial(batch, layer));
    let mut operators = operators(batch.kind, layer);
    let rest = match batch.kind {
        ModelKind::Gat | ModelKind::Gatv2 => operators.split_off(1),
        ModelKind::Gin => vec![operators.pop()].into_iter().flatten().collect(),
        _ => vec![Operator::product((vertices + received_above) * made, vertices * made)],
    };
    let own = match batch.kind {
        ModelKind::Gat | ModelKind::Gatv2 => 0.0,
        _ => operators.first().map_or(0.0, |operator| operator.result_size),
    };
    let parts = Operator { saved_size: own, ..Operator::product(ranks * partial, 0.0) };
    // A copy of the gradient is sent to each rank, and one is received from each.
    let sums = Operator { aside: ranks * partial, ..Operator::product(partial, ranks * partial) };
    [parts, sums].into_iter().chain(rest).collect()
}

/// Number of values that a rank sums up by its columns, for the rows of all ranks' bottom layers.
fn partial(batch: &Batch, layer: &HeldLayer) -> f64 {
    let HeldLayer { vertices, read, widths: [_, made], .. } = *layer;
    match batch.kind {
        ModelKind::Gat => read * made,
        ModelKind::Gatv2 => (read + vertices) * made,
        _ => vertices * made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_moment_is_in_the_middle_of_backward() {
        let layer = |vertices, read| HeldLayer {
            vertices,
            edges: 2.0 * read,
            read,
            received: 0.0,
            widths: [16.0, 16.0],
            received_above: 0.0,
            order: Order::AggregateFirst,
            heads: 1.0,
        };
        let layers = vec![layer(1024.0, 4096.0), layer(4096.0, 8192.0)];
        let one = Batch { layers, kind: ModelKind::Sage, ranks: 1, sliced: false, ahead: false };
        let row = 16 * 1024;
        // Features; rows next to sums and the results computed from them, of the bottom layer.
        let below = [8, 8, 4].map(|rows| rows * row).iter().sum::<usize>();
        // Top layer: its result, its gradient, the gradient of rows next to sums, and that of the
        // rows that it read.
        let above = [1, 1, 2, 4].map(|rows| rows * row).iter().sum::<usize>();
        assert_eq!(
            values(&one),
            [below + above, below + above + 2 * row],
            "rows next to sums above are free again"
        );
        let ahead = Batch { ahead: true, ..one.clone() };
        assert_eq!(values(&ahead)[0], below + above + 8 * row);
        let two = Batch { ranks: 2, ..one.clone() };
        assert!(values(&two)[0] <= values(&one)[0], "of halves");
        assert_eq!(mailed(&one), 0.0);
        let sliced = Batch { ranks: 2, sliced: true, ..one };
        assert_eq!(mailed(&sliced), 2.0 * 2.0 * 4096.0 * 16.0, "a rank's sums of both, twice");
    }
}
