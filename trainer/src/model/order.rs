//! Whether a linear aggregation or the product with its weight comes first: (A X) W = A (X W).
//!
//! Cost, from the shapes alone: a product counts its operations, an aggregation the values it reads, one for each edge and
//! column. Backwards both are done again, and once more a product for the gradient of its input, but for features:
//! they have no gradient, and aggregated first they need no backward aggregation either.

use crate::Result;
use crate::operator::{Edges, Rows};

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

/// The cheaper order from `mixed` to rows of `out` values, for a layer with one product, or with another for its own row
/// (`own_product`), whose place in the order does not change.
pub fn cheaper(edges: &Edges, mixed: Rows<'_>, out: usize, own_product: bool) -> Result<Order> {
    let (sources, width) = mixed.shape()?;
    let own_rows = if own_product { edges.num_targets() } else { 0 };
    let shape = [edges.num_targets(), own_rows, sources, edges.num_edges()];
    Ok(order_of(shape, [width, out], mixed.requires_grad()))
}

/// The cheaper order for so many targets, own rows that a product of their own takes, sources and edges, from rows of `input` values to
/// rows of `output`.
pub fn order_of(
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

#[cfg(test)]
mod tests {
    use super::*;

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
