//! Linear Deterministic Greedy (Stanton and Kliot, "Streaming Graph Partitioning for Large Distributed Graphs", KDD 2012).
//!
//! A vertex goes to the part with the largest (edges to the part) · (1 - load / capacity); without a neighbour that is
//! placed, to the lightest part. Capacity is (1 + ε) times the mean load.

use gsplit_store::Progress;

use super::{Candidate, WeightedEdges, stream};
use crate::options::Order;
use crate::{Partitioner, Problem, Result};

/// LDG over the vertices in an order.
pub(crate) struct Ldg {
    pub order: Order,
}

impl Partitioner for Ldg {
    fn assign(&self, problem: &Problem<'_>, progress: &dyn Progress) -> Result<Vec<u16>> {
        let edges = WeightedEdges::of(problem);
        Ok(stream("ldg", problem, &edges, self.order, score(problem.epsilon), progress))
    }
}

/// Score of a part.
pub(super) fn score(epsilon: f64) -> impl Fn(&Candidate) -> f64 {
    move |part| part.tie * (1.0 - part.fullness / (1.0 + epsilon))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_count_in_proportion_to_the_room_left() {
        let score = score(0.0);
        let worth = |tie, fullness| score(&Candidate { tie, fullness, weight: 0.01 });
        assert_eq!(worth(4.0, 0.5), 2.0);
        assert_eq!(worth(3.0, 1.0), 0.0);
        assert!(worth(2.0, 0.1) > worth(3.0, 0.5));
    }
}
