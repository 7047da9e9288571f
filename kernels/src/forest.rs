//! Connected components, found by a forest whose trees any number of threads join.
//!
//! Every vertex points to a lower one of its tree or to itself. An edge joins the trees of its ends
//! by hooking the higher root under the lower one, with a compare-and-swap that fails where the
//! root has been hooked meanwhile; a search halves the path that it walks. In the end roots are the
//! lowest vertices of their components, whatever order the threads took. Source: Anderson and Woll,
//! "Wait-free parallel algorithms for the union-find problem", 1991. Cost: nearly O(n + m), 4 bytes
//! a vertex.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

/// Pointer of each vertex to a lower one of its component, or to itself.
#[derive(Debug)]
pub struct Forest(Vec<AtomicU32>);

impl Forest {
    /// A tree for each of `n` vertices.
    pub fn new(n: usize) -> Self {
        Self((0..n as u32).into_par_iter().map(AtomicU32::new).collect())
    }

    /// The root of the tree of `v`, at some time during the call.
    pub fn root(&self, mut v: u32) -> u32 {
        loop {
            let parent = self.0[v as usize].load(Relaxed);
            let above = self.0[parent as usize].load(Relaxed);
            if parent == above {
                return parent;
            }
            // Any vertex above is right, and so is the last one written.
            self.0[v as usize].store(above, Relaxed);
            v = above;
        }
    }

    /// Joins the trees of `u` and `v`.
    pub fn join(&self, u: u32, v: u32) {
        loop {
            let (u, v) = (self.root(u), self.root(v));
            let (low, high) = (u.min(v), u.max(v));
            if low == high
                || self.0[high as usize].compare_exchange(high, low, Relaxed, Relaxed).is_ok()
            {
                return;
            }
        }
    }

    /// The root of every vertex, once all trees are joined.
    pub fn roots(&self) -> Vec<u32> {
        (0..self.0.len() as u32).into_par_iter().with_min_len(4096).map(|v| self.root(v)).collect()
    }
}
