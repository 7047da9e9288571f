//! Memory that matrices take in training: those of a mini-batch, in the order in which the engine makes and drops them, laid into a pool
//! like its own.
//!
//! A layer is a chain of operators. Forward makes what each returns; backward goes from the last to the first, and each makes the gradient
//! of what it read, then drops what it was given and what it kept. So the largest moment is found, and what lies free beside it: a pool
//! keeps free pieces up to a third above its largest moment, and gives a piece only to what fills half of it.
//!
//! Counted for the host, where operators work on [`Pool`]'s pieces. On GPUs torch and the driver have pools of their own; there the
//! largest moment alone counts. Not counted: vectors of a value a row, gradients of parameters, and what the loss takes.

use super::Order;
use crate::autograd::Pool;
use crate::config::ModelKind;

/// Size of what a layer reads and makes, over all ranks that share the memory.
#[derive(Clone, Copy, Debug)]
pub struct HeldLayer {
    /// Rows that it makes.
    pub vertices: f64,
    /// Edges.
    pub edges: f64,
    /// Rows that it reads.
    pub read: f64,
    /// Rows among these that other ranks send.
    pub received: f64,
    /// Values of a row that it reads and of one that it makes.
    pub widths: [f64; 2],
    /// Rows that the layer above receives: there is room for them behind those that it makes.
    pub room: f64,
    /// Whether it aggregates first.
    pub order: Order,
    /// Its attention heads.
    pub heads: f64,
}

/// A mini-batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// From the seeds down.
    pub layers: Vec<HeldLayer>,
    /// Kind of the layers.
    pub kind: ModelKind,
    /// Ranks in this memory.
    pub ranks: usize,
    /// Whether the bottom layer is computed by columns, each for all ranks.
    pub sliced: bool,
    /// Whether the next mini-batch's feature rows are read meanwhile.
    pub ahead: bool,
}

/// An operator: numbers of values.
#[derive(Clone, Copy, Debug)]
struct Operator {
    /// Values that it returns, if they are kept.
    returns: f64,
    /// Values that it keeps beside those.
    keeps: f64,
    /// Whether what it returns stays until its own backward; else it goes once the next one's is done.
    stays: bool,
    /// Whether it has parameters.
    learns: bool,
    /// The gradient of what it reads.
    gradient: f64,
    /// Values that its backward takes beside that.
    aside: f64,
}

impl Operator {
    /// A product of matrices, bias and activation with it.
    fn product(returns: f64, gradient: f64) -> Self {
        Self { returns, keeps: 0.0, stays: true, learns: true, gradient, aside: 0.0 }
    }

    /// A sum over edges.
    fn aggregation(returns: f64, gradient: f64) -> Self {
        Self { returns, keeps: 0.0, stays: false, learns: false, gradient, aside: 0.0 }
    }
}

/// The operators of a layer of this `kind`, first to last. A sum that torch adds and drops at once is none.
fn operators(kind: ModelKind, layer: &HeldLayer) -> Vec<Operator> {
    let HeldLayer { vertices, edges, read, widths: [input, made], room, order, heads, .. } = *layer;
    let (rows, all) = (|values: f64| vertices * values, |values: f64| read * values);
    let result = (vertices + room) * made;
    let (product, aggregation) = (Operator::product, Operator::aggregation);
    let finish = product(result, rows(made));
    let attention = || {
        // One for each edge and each vertex itself; and two scores.
        let coefficients = heads * (edges + 2.0 * vertices + read);
        Operator { keeps: coefficients, aside: coefficients, ..aggregation(0.0, all(made)) }
    };
    match (kind, order) {
        (ModelKind::Gat, Order::AggregateFirst) => {
            let sums = heads * rows(input);
            let attention = Operator { returns: sums, stays: true, learns: true, gradient: all(input), ..attention() };
            vec![attention, product(result, sums)]
        }
        (ModelKind::Gat, Order::TransformFirst) => vec![product(all(made), all(input)), attention(), finish],
        (ModelKind::Gatv2, _) => {
            let attention = Operator { gradient: all(made) + rows(made), ..attention() };
            vec![product(all(made) + rows(made), all(input)), attention, finish]
        }
        (ModelKind::SagePool, _) => vec![
            product(all(input), all(input)),
            Operator { keeps: rows(input), ..aggregation(rows(input), all(input)) },
            product(2.0 * rows(made), 2.0 * rows(input)),
            finish,
        ],
        (ModelKind::Gin, Order::AggregateFirst) => vec![
            aggregation(2.0 * rows(input), all(input)),
            // torch multiplies and adds up both halves, and pads their gradients.
            Operator { learns: true, aside: 6.0 * rows(input), ..aggregation(rows(input), 2.0 * rows(input)) },
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
            vec![Operator { stays: true, ..aggregation(result, all(input)) }]
        }
        (ModelKind::Gcn | ModelKind::Sgc | ModelKind::Resgcn, Order::AggregateFirst) => {
            vec![aggregation(rows(input), all(input)), product(result, rows(input))]
        }
        (ModelKind::Gcn | ModelKind::Sgc | ModelKind::Resgcn, Order::TransformFirst) => {
            vec![product(all(made), all(input)), aggregation(0.0, all(made)), finish]
        }
    }
}

/// An operator that was run, the pieces of what it returned and of what it keeps.
type TapedOperator = (Operator, Vec<usize>, Vec<usize>);

/// The matrices of all ranks, which do the same at the same time.
#[derive(Default)]
struct HeldValues {
    pool: Pool<usize>,
    ranks: usize,
    /// The most that lay in the pool, free pieces included.
    most: usize,
}

impl HeldValues {
    /// So many values over all ranks, in a piece each.
    fn make(&mut self, values: f64) -> Vec<usize> {
        let each = (values / self.ranks as f64).ceil() as usize;
        let pieces = (0..self.ranks).map(|_| self.pool.take_or_make(each)).collect();
        self.most = self.most.max(self.pool.kept());
        pieces
    }

    /// The rows that a layer reads of other ranks, laid together for a moment.
    fn send(&mut self, layer: &HeldLayer) {
        let sent = self.make(layer.received * layer.widths[0]);
        self.drop(sent);
    }

    fn drop(&mut self, pieces: Vec<usize>) {
        pieces.into_iter().filter(|&piece| piece > 0).for_each(|piece| drop(self.pool.give_back(piece)));
    }
}

/// Values that the ranks' mailboxes keep: of each pair of ranks the largest message, for two collectives in turn.
pub fn mailed(batch: &Batch) -> f64 {
    let rows = batch.layers.iter().map(|layer| layer.received * layer.widths[0]);
    let columns =
        batch.layers.last().filter(|_| batch.sliced).map(|bottom| batch.ranks as f64 * partial(batch, bottom));
    2.0 * rows.chain(columns).fold(0.0, f64::max)
}

/// The most values that the matrices of `batch` take at once, and the most that the pool then keeps.
pub fn values(batch: &Batch) -> [usize; 2] {
    let mut held = HeldValues { ranks: batch.ranks, ..HeldValues::default() };
    let features = batch.layers.last().map_or(0.0, |layer| layer.read * layer.widths[0]);
    let read = held.make(features);
    // Forward, from the bottom up: what each operator returns, and what it keeps.
    let mut tape: Vec<Vec<TapedOperator>> = Vec::new();
    for (from_bottom, layer) in batch.layers.iter().rev().enumerate() {
        held.send(layer);
        let operators = match batch.sliced && from_bottom == 0 {
            true => by_columns(batch, layer),
            false => operators(batch.kind, layer),
        };
        let taped = |operator: Operator| (operator, held.make(operator.returns), held.make(operator.keeps));
        tape.push(operators.into_iter().map(taped).collect());
    }
    let ahead = if batch.ahead { held.make(features) } else { Vec::new() };
    // Backward, from the seeds down. What a layer returned and was given stays until it is done.
    let top = batch.layers.first().map_or(0.0, |layer| layer.vertices * layer.widths[1]);
    let mut given = held.make(top);
    while let Some(mut layer) = tape.pop() {
        let (mut of_layer, mut gradient) = (Vec::new(), Vec::new());
        while let Some((operator, returned, kept)) = layer.pop() {
            if batch.sliced && tape.is_empty() && layer.len() == 1 {
                // The layer itself is done: its columns follow.
                held.drop(std::mem::take(&mut of_layer));
                held.drop(std::mem::take(&mut given));
            }
            // Features have no gradient, nor what is made of them without a parameter.
            let wanted = !tape.is_empty() || layer.iter().any(|(below, ..)| below.learns);
            let [of_read, aside] =
                [operator.gradient, operator.aside].map(|values| held.make(if wanted { values } else { 0.0 }));
            held.drop(aside);
            if let Some((_, returned, _)) = layer.last_mut().filter(|(below, ..)| !below.stays) {
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

/// The bottom layer that is computed by columns: a rank has a part of the sums of every rank's rows, and adds up those of its own.
fn by_columns(batch: &Batch, layer: &HeldLayer) -> Vec<Operator> {
    let HeldLayer { vertices, widths: [_, made], room, .. } = *layer;
    let (ranks, partial) = (batch.ranks as f64, partial(batch, layer));
    let mut operators = operators(batch.kind, layer);
    let rest = match batch.kind {
        ModelKind::Gat | ModelKind::Gatv2 => operators.split_off(1),
        ModelKind::Gin => vec![operators.pop()].into_iter().flatten().collect(),
        _ => vec![Operator::product((vertices + room) * made, vertices * made)],
    };
    let own = match batch.kind {
        ModelKind::Gat | ModelKind::Gatv2 => 0.0,
        _ => operators.first().map_or(0.0, |operator| operator.returns),
    };
    let parts = Operator { keeps: own, ..Operator::product(ranks * partial, 0.0) };
    // A gradient is copied for each rank to be sent, and received from each.
    let sums = Operator { aside: ranks * partial, ..Operator::product(partial, ranks * partial) };
    [parts, sums].into_iter().chain(rest).collect()
}

/// Values that a rank sums up by its columns, of the rows of all ranks' bottom layers.
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
            room: 0.0,
            order: Order::AggregateFirst,
            heads: 1.0,
        };
        let layers = vec![layer(1024.0, 4096.0), layer(4096.0, 8192.0)];
        let one = Batch { layers, kind: ModelKind::Sage, ranks: 1, sliced: false, ahead: false };
        let row = 16 * 1024;
        // Features; rows beside sums, and what is made of them, of the bottom layer.
        let below = [8, 8, 4].map(|rows| rows * row).iter().sum::<usize>();
        // Above: what it made, its gradient, that of rows beside sums, and that of the rows that it read.
        let above = [1, 1, 2, 4].map(|rows| rows * row).iter().sum::<usize>();
        assert_eq!(values(&one), [below + above, below + above + 2 * row], "rows beside sums above are free again");
        let ahead = Batch { ahead: true, ..one.clone() };
        assert_eq!(values(&ahead)[0], below + above + 8 * row);
        let two = Batch { ranks: 2, ..one.clone() };
        assert!(values(&two)[0] <= values(&one)[0], "of halves");
        assert_eq!(mailed(&one), 0.0);
        let sliced = Batch { ranks: 2, sliced: true, ..one };
        assert_eq!(mailed(&sliced), 2.0 * 2.0 * 4096.0 * 16.0, "a rank's sums of both, twice");
    }
}
