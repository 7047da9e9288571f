//! Weakly connected components.
//!
//! Returns: the number of components and the size of the largest. Input: a topology whose indices are checked. Idea: a
//! forest ([`Forest`]) whose trees are joined by all edges. Cost: nearly O(n + m), parallel; 8 bytes per vertex.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use gsplit_kernels::Forest;
use gsplit_store::{Stage, Topology};
use rayon::prelude::*;
use serde::Serialize;

use super::sum_over;

/// Components of a graph, ignoring the direction of edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Components {
    /// Number of components; a vertex without edges is a component.
    pub number: u64,
    /// Vertices of the largest component.
    pub largest: u64,
}

impl Components {
    /// Counts the components of `topology`.
    pub fn of(topology: &Topology, stage: &dyn Stage) -> Self {
        let forest = Forest::new(topology.num_vertices());
        let join = |v, _: &mut ()| topology.in_neighbours(v).iter().for_each(|&u| forest.join(u, v));
        sum_over(topology, stage, join, |_, _| ());
        let sizes: Vec<AtomicU32> = (0..topology.num_vertices()).into_par_iter().map(|_| AtomicU32::new(0)).collect();
        (0..sizes.len() as u32).into_par_iter().for_each(|v| {
            sizes[forest.root(v) as usize].fetch_add(1, Relaxed);
        });
        let roots = sizes.into_par_iter().map(|size| u64::from(size.into_inner())).filter(|&size| size > 0);
        let add = |a: Self, b: Self| Self { number: a.number + b.number, largest: a.largest.max(b.largest) };
        roots.map(|size| Self { number: 1, largest: size }).reduce(Self::default, add)
    }
}
