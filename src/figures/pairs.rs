//! Figures of the two ends of edges: reciprocity and homophily.
//!
//! Returns: counts and shares. Input: a topology whose indices are checked, and a class or -1 for each vertex. An edge
//! from a vertex to itself counts as a self-loop and in no other figure.
//! Source: reciprocity as in Newman, Forrest and Balthrop (2002); edge homophily as in Zhu et al., Beyond homophily in
//! graph neural networks (NeurIPS 2020). Cost: a binary search per edge.

use gsplit_store::{Stage, Topology};
use serde::Serialize;

use super::sum_over;

/// Figures of the edges as pairs of vertices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pairs {
    /// Edges from a vertex to itself.
    pub self_loops: u64,
    /// Share of the edges, without self-loops, whose reverse is an edge too; `None` without such edges.
    pub reciprocal_share: Option<f64>,
    /// How alike neighbours are; `None` unless vertices have at most one class each and an edge joins two labelled vertices.
    pub homophily: Option<Homophily>,
}

/// How alike neighbours are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Homophily {
    /// Edges between two labelled vertices.
    pub labelled_edges: u64,
    /// Share of these edges that join vertices of the same class.
    pub share: f64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    loops: u64,
    others: u64,
    reciprocal: u64,
    labelled: u64,
    alike: u64,
}

impl Pairs {
    /// Computes the figures of the edges of `topology` between vertices with the classes `labels`.
    pub fn of(topology: &Topology, labels: Option<&[i32]>, stage: &dyn Stage) -> Self {
        let class = |v: u32| labels.map_or(-1, |labels| labels[v as usize]);
        let count = |v: u32, counts: &mut Counts| {
            let own = class(v);
            for &u in topology.in_neighbours(v) {
                if u == v {
                    counts.loops += 1;
                    continue;
                }
                let others = class(u);
                counts.others += 1;
                counts.reciprocal += u64::from(topology.in_neighbours(u).binary_search(&v).is_ok());
                counts.labelled += u64::from(own >= 0 && others >= 0);
                counts.alike += u64::from(own >= 0 && others == own);
            }
        };
        let counts = sum_over(topology, stage, count, Counts::add);
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let alike = share(counts.alike, counts.labelled);
        Self {
            self_loops: counts.loops,
            reciprocal_share: share(counts.reciprocal, counts.others),
            homophily: alike.map(|share| Homophily { labelled_edges: counts.labelled, share }),
        }
    }
}

impl Counts {
    fn add(self, other: Self) -> Self {
        Self {
            loops: self.loops + other.loops,
            others: self.others + other.others,
            reciprocal: self.reciprocal + other.reciprocal,
            labelled: self.labelled + other.labelled,
            alike: self.alike + other.alike,
        }
    }
}
