//! Whether an aggregation or the product with its weight comes first: (A X) W = A (X W), also where A are attention weights.
//!
//! Cost, from the shapes alone: a product counts its operations, an aggregation the values it reads, one for each edge and
//! column. Backwards both are done again, and once more a product for the gradient of its input, but for features:
//! they have no gradient, and aggregated first they need no backward aggregation either.

use crate::operator::Rows;
use crate::{ModelKind, Result};

/// Step that comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Rows of the input's width are aggregated.
    AggregateFirst,
    /// Rows of the output's width are aggregated.
    TransformFirst,
}

/// Multiplications and additions that take as long as one value takes to come from memory: about 200 GFLOP/s against 5
/// billion values.
const OPERATIONS_PER_VALUE: f64 = 40.0;

/// The cheaper order from `mixed` to rows of `out` values, for these counts of targets, sources and edges, and a layer with one product, or
/// with another for its own row (`own_product`), whose place in the order does not change.
pub fn cheaper(counts: [usize; 3], mixed: Rows<'_>, out: usize, own_product: bool) -> Result<Order> {
    let ([targets, sources, edges], (_, width)) = (counts, mixed.shape()?);
    let own_rows = if own_product { targets } else { 0 };
    Ok(order_of([targets, own_rows, sources, edges], [width, out], mixed.requires_grad()))
}

/// The cheaper order for so many targets, own rows that a product of their own takes, sources and edges, from rows of `input` values to
/// rows of `output`.
pub(super) fn order_of(
    [targets, own_rows, sources, edges]: [usize; 4],
    [input, output]: [usize; 2],
    input_needs_gradient: bool,
) -> Order {
    let product = |rows: usize| 2.0 * rows as f64 * input as f64 * output as f64 / OPERATIONS_PER_VALUE;
    let aggregation = |width: usize| edges as f64 * width as f64;
    let products = if input_needs_gradient { 3.0 } else { 2.0 };
    let aggregations = if input_needs_gradient { 2.0 } else { 1.0 };
    let aggregate_first = aggregations * aggregation(input) + products * (product(own_rows) + product(targets));
    let transform_first = 2.0 * aggregation(output) + products * (product(own_rows) + product(sources));
    if transform_first < aggregate_first { Order::TransformFirst } else { Order::AggregateFirst }
}

/// The cheaper order of attention with so many heads, for so many targets, sources and edges, from rows of `input` values to rows of
/// `output` on the host. (On a GPU products are cheap beside the rows that edges read.)
///
/// Aggregated first, each head sums rows of the input's width. Backwards reads a row for each edge once more for the weights, and once
/// for the gradient of the rows.
pub(super) fn attention_order_of(
    [targets, sources, edges]: [usize; 3],
    heads: usize,
    [input, output]: [usize; 2],
    input_needs_gradient: bool,
) -> Order {
    let product = |rows: usize| 2.0 * rows as f64 * input as f64 * output as f64 / OPERATIONS_PER_VALUE;
    let sums = |width: usize| (edges + targets) as f64 * width as f64;
    let times = if input_needs_gradient { 3.0 } else { 2.0 };
    let aggregate_first = times * sums(heads * input) + 3.0 * product(targets);
    let transform_first = 3.0 * sums(output) + times * product(sources);
    if transform_first < aggregate_first { Order::TransformFirst } else { Order::AggregateFirst }
}

/// The order in which a layer of this `kind` with so many attention heads computes, for so many targets, sources and edges. Attention
/// may have to project rows first (`projects`): on a GPU, and by columns.
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
        // A sampled layer has several times more sources than targets, a full one as many.
        let (sampled, full) = ([1_000, 1_000, 9_000, 10_000], [1_000, 1_000, 1_000, 50_000]);
        assert_eq!(order_of(sampled, [256, 256], true), Order::AggregateFirst);
        assert_eq!(order_of(sampled, [100, 256], false), Order::AggregateFirst);
        assert_eq!(order_of(full, [256, 256], true), Order::AggregateFirst);
        assert_eq!(order_of(full, [256, 47], true), Order::TransformFirst);
        assert_eq!(order_of(full, [1433, 16], false), Order::TransformFirst);
        assert_eq!(order_of([5, 5, 5, 0], [1433, 16], false), Order::AggregateFirst);
    }
}
