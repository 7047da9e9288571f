//! Connected pieces of parts.
//!
//! Returns for each vertex the least vertex of its piece: of the vertices of its part that are connected with it within the part. Edges
//! count both ways. Idea: union-find; the greater of two roots is linked to the lesser one, so that any number of threads finds the same
//! (Anderson and Woll, "Wait-free parallel algorithms for the union-find problem", 1991). Cost: O(m) nearly, parallel; 4 bytes a vertex.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 1024;

/// The piece of each of `n` vertices. `visit_same` calls its second argument with every neighbour that lies in the part of the first.
pub(crate) fn pieces(n: usize, visit_same: impl Fn(u32, &mut dyn FnMut(u32)) + Sync) -> Vec<u32> {
    let roots: Vec<AtomicU32> = (0..n as u32).map(AtomicU32::new).collect();
    let vertices = || (0..n as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
    vertices().for_each(|v| visit_same(v, &mut |u| unite(&roots, v, u)));
    vertices().map(|v| find(&roots, v)).collect()
}

/// Number of pieces.
pub(crate) fn count(pieces: &[u32]) -> u64 {
    pieces.par_iter().enumerate().filter(|&(v, &piece)| v == piece as usize).count() as u64
}

fn find(roots: &[AtomicU32], mut v: u32) -> u32 {
    loop {
        let parent = roots[v as usize].load(Relaxed);
        if parent == v {
            return v;
        }
        let above = roots[parent as usize].load(Relaxed);
        // Halves the way for those that come later.
        let _ = roots[v as usize].compare_exchange(parent, above, Relaxed, Relaxed);
        v = above;
    }
}

fn unite(roots: &[AtomicU32], a: u32, b: u32) {
    loop {
        let (a, b) = (find(roots, a), find(roots, b));
        let (least, greatest) = (a.min(b), a.max(b));
        if least == greatest || roots[greatest as usize].compare_exchange(greatest, least, Relaxed, Relaxed).is_ok() {
            return;
        }
    }
}
