//! Weakly connected components.
//!
//! Returns: how many there are, and the size of the largest. Input: a topology whose indices are checked.
//! Idea: a forest in which every vertex points to a lower one of its component or to itself. Each edge joins the trees of its ends by
//! hooking the higher root under the lower, with a compare-and-swap that fails where the root has been hooked meanwhile; a search halves
//! the path that it walks. In the end roots are the lowest vertices of their components, whatever order the threads took.
//! Source: Anderson and Woll, Wait-free parallel algorithms for the union-find problem, STOC 1991. Cost: nearly O(n + m), 8 bytes a vertex.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use gsplit_store::{Stage, Topology};
use rayon::prelude::*;
use serde::Serialize;

use super::sum_over;

/// Components of a graph whose edges are taken in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Components {
    /// How many; a vertex without edges is one of its own.
    pub number: u64,
    /// Vertices of the largest.
    pub largest: u64,
}

impl Components {
    /// Counts the components of `topology`.
    pub fn of(topology: &Topology, stage: &dyn Stage) -> Self {
        let forest = Forest::new(topology.num_vertices() as u32);
        let join = |v, _: &mut ()| topology.in_neighbours(v).iter().for_each(|&u| forest.join(u, v));
        sum_over(topology, stage, join, |_, _| ());
        let sizes: Vec<AtomicU32> = forest.0.par_iter().map(|_| AtomicU32::new(0)).collect();
        (0..sizes.len() as u32).into_par_iter().for_each(|v| {
            sizes[forest.root(v) as usize].fetch_add(1, Relaxed);
        });
        let roots = sizes.into_par_iter().map(|size| u64::from(size.into_inner())).filter(|&size| size > 0);
        let add = |a: Self, b: Self| Self { number: a.number + b.number, largest: a.largest.max(b.largest) };
        roots.map(|size| Self { number: 1, largest: size }).reduce(Self::default, add)
    }
}

/// Pointer of each vertex to a lower one of its component, or to itself.
struct Forest(Vec<AtomicU32>);

impl Forest {
    fn new(n: u32) -> Self {
        Self((0..n).into_par_iter().map(AtomicU32::new).collect())
    }

    /// The root of the tree of `v`, or what was it a moment ago.
    fn root(&self, mut v: u32) -> u32 {
        loop {
            let parent = self.0[v as usize].load(Relaxed);
            let above = self.0[parent as usize].load(Relaxed);
            if parent == above {
                return parent;
            }
            // Any vertex above will do, the last one written too.
            self.0[v as usize].store(above, Relaxed);
            v = above;
        }
    }

    fn join(&self, u: u32, v: u32) {
        loop {
            let (u, v) = (self.root(u), self.root(v));
            let (low, high) = (u.min(v), u.max(v));
            if low == high || self.0[high as usize].compare_exchange(high, low, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }
}
