//! Fennel (Tsourakakis, Gkantsidis, Radunovic and Vojnovic, "FENNEL: Streaming Graph Partitioning for Massive Scale
//! Graphs", WSDM 2014).
//!
//! A vertex goes to the part with the largest (edges to the part) - (c(load with the vertex) - c(load without it)), where
//! c(x) = α x^γ prices the load x, counted in vertices. With the paper's γ = 3/2 and α = √k m / n^(3/2) and a load of
//! f · n/k vertices, c = m/k · f^(3/2): only the load f over the mean is needed, so any vertex weight will do. Weighted
//! edges count as that many edges. The paper takes the derivative of c for its difference and lets a part grow to 1.1
//! times the mean; here the difference is exact, and a part has room up to (1 + ε) times the mean.

use gsplit_store::Progress;

use super::{Candidate, WeightedEdges, stream};
use crate::options::Order;
use crate::{Partitioner, Problem, Result};

/// Fennel over the vertices in an order.
pub(crate) struct Fennel {
    pub order: Order,
}

impl Partitioner for Fennel {
    fn assign(&self, problem: &Problem<'_>, progress: &dyn Progress) -> Result<Vec<u16>> {
        let edges = WeightedEdges::of(problem);
        let score = score(edges.total() / f64::from(problem.parts));
        Ok(stream("fennel", problem, &edges, self.order, score, progress))
    }
}

/// Score of a part where `edges_per_part` is the weight of all edges over the number of parts.
fn score(edges_per_part: f64) -> impl Fn(&Candidate) -> f64 {
    let price = |fullness: f64| fullness * fullness.sqrt();
    move |part| part.tie - edges_per_part * (price(part.fullness + part.weight) - price(part.fullness))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracle_the_price_is_the_papers() {
        // 1000 vertices of weight 1, 5000 edges, 4 parts; a part of x vertices, one more comes.
        let (n, m, k) = (1000.0, 5000.0, 4.0f64);
        let alpha = k.sqrt() * m / f64::powf(n, 1.5);
        let cost = |x: f64| alpha * x.powf(1.5);
        let score = score(m / k);
        for x in [0.0, 1.0, 100.0, 250.0, 257.0] {
            for tie in [0.0, 3.0] {
                let found = score(&Candidate { tie, fullness: x / (n / k), weight: 1.0 / (n / k) });
                let expected = tie - (cost(x + 1.0) - cost(x));
                assert!((found - expected).abs() < 1e-9, "{x} {tie}: {found} {expected}");
            }
        }
    }
}
