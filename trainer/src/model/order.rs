//! Whether an aggregation or the product with its weight comes first: (A X) W = A (X W), also for
//! attention weights A.
//!
//! Cost, from the shapes only: a product counts its operations, an aggregation the values it reads,
//! one per edge and column. Backwards repeats both, and needs another product for the gradient of
//! its input, except for features: they have no gradient, and if they are aggregated first they
//! need no backward aggregation either.

use crate::operator::Rows;
use crate::{ModelKind, Result};

/// The step that comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Rows of the input's width are aggregated.
    AggregateFirst,
    /// Rows of the output's width are aggregated.
    TransformFirst,
}

/// Number of multiplications and additions that take as long as reading one value from memory:
/// about 200 GFLOP/s against 5 billion values per second.
const OPERATIONS_PER_VALUE: f64 = 40.0;

/// The cheaper order from `input` to rows of `out` values, given the counts of targets, sources and
/// edges. With `own_product` the layer has another product for its own rows, which is computed in
/// either order.
pub fn cheaper(
    counts: [usize; 3],
    input: Rows<'_>,
    out: usize,
    own_product: bool,
) -> Result<Order> {
    let ([targets, sources, edges], (_, width)) = (counts, input.shape()?);
    let own_rows = if own_product { targets } else { 0 };
    Ok(order_of([targets, own_rows, sources, edges], [width, out], input.requires_grad()))
}

/// The cheaper order for the given numbers of targets, own rows with their own product, sources and
/// edges, from rows of `input` values to rows of `output`.
pub(super) fn order_of(
    [targets, own_rows, sources, edges]: [usize; 4],
    [input, output]: [usize; 2],
    input_needs_gradient: bool,
) -> Order {
    let product =
        |rows: usize| 2.0 * rows as f64 * input as f64 * output as f64 / OPERATIONS_PER_VALUE;
    let aggregation = |width: usize| edges as f64 * width as f64;
    let products = if input_needs_gradient { 3.0 } else { 2.0 };
    let aggregations = if input_needs_gradient { 2.0 } else { 1.0 };
    let aggregate_first =
        aggregations * aggregation(input) + products * (product(own_rows) + product(targets));
    let transform_first =
        2.0 * aggregation(output) + products * (product(own_rows) + product(sources));
    if transform_first < aggregate_first { Order::TransformFirst } else { Order::AggregateFirst }
}

/// The cheaper order of attention with `heads` heads for the given numbers of targets, sources and
/// edges, from rows of `input` values to rows of `output`, on the host. (On a GPU products are
/// cheap compared with the rows that edges read.)
///
/// Aggregated first, each head sums rows of the input's width. Backwards reads one row per edge
/// again for the weights, and again for the gradient of the rows.
pub(super) fn attention_order_of(
    [targets, sources, edges]: [usize; 3],
    heads: usize,
    [input, output]: [usize; 2],
    input_needs_gradient: bool,
) -> Order {
    let product =
        |rows: usize| 2.0 * rows as f64 * input as f64 * output as f64 / OPERATIONS_PER_VALUE;
    let sums = |width: usize| (edges + targets) as f64 * width as f64;
    let times = if input_needs_gradient { 3.0 } else { 2.0 };
    let aggregate_first = times * sums(heads * input) + 3.0 * product(targets);
    let transform_first = 3.0 * sums(output) + times * product(sources);
    if transform_first < aggregate_first { Order::TransformFirst } else { Order::AggregateFirst }
}

/// The order in which a layer of this `kind` computes, with `heads` attention heads and `counts` of
/// targets, sources and edges. With `projects` attention must project rows first: on a GPU, and by
/// columns.
pub fn order_of_layer(
    kind: ModelKind,
    heads: usize,
    counts: [usize; 3],
    widths: [usize; 2],
    input_needs_gradient: bool,
    projects: bool,
) -> Order {
    let [targets, sources, edges] = counts;
    match kind {
        ModelKind::Gat if projects => Order::TransformFirst,
        ModelKind::Gat => attention_order_of(counts, heads, widths, input_needs_gradient),
        kind => {
            let own = if kind == ModelKind::Sage { targets } else { 0 };
            order_of([targets, own, sources, edges], widths, input_needs_gradient)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_of_few_heads_reads_rows_before_they_are_projected() {
        let (sampled, full) = ([1_000, 5_000, 6_000], [1_000, 1_000, 50_000]);
        assert_eq!(attention_order_of(sampled, 2, [256, 256], true), Order::AggregateFirst);
        assert_eq!(attention_order_of(sampled, 2, [128, 256], false), Order::AggregateFirst);
        assert_eq!(attention_order_of(sampled, 64, [256, 256], true), Order::TransformFirst);
        assert_eq!(attention_order_of(full, 2, [256, 256], true), Order::TransformFirst);
    }

    #[test]
    fn wide_rows_are_narrowed_before_they_are_aggregated() {
        // A sampled layer has several times as many sources as targets, a full one equally many.
        let (sampled, full) = ([1_000, 1_000, 9_000, 10_000], [1_000, 1_000, 1_000, 50_000]);
        assert_eq!(order_of(sampled, [256, 256], true), Order::AggregateFirst);
        assert_eq!(order_of(sampled, [100, 256], false), Order::AggregateFirst);
        assert_eq!(order_of(full, [256, 256], true), Order::AggregateFirst);
        assert_eq!(order_of(full, [256, 47], true), Order::TransformFirst);
        assert_eq!(order_of(full, [1433, 16], false), Order::TransformFirst);
        assert_eq!(order_of([5, 5, 5, 0], [1433, 16], false), Order::AggregateFirst);
    }
}
