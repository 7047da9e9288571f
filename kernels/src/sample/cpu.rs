//! The sampler on the host, in parallel over the frontier.
//!
//! Returns: [`SampledEdges`] in frontier order. Input: a valid graph, a frontier of its vertices (repeats allowed).
//! Idea: pass 1 counts what each vertex keeps, which gives every vertex its place in an output of exactly the right
//! size; pass 2 fills these places chunk by chunk. Floyd's algorithm needs one draw a pick, whatever the degree.
//! Source: Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987.
//! Cost: O(edges kept) expected work, plus a scan of the picks so far for each pick up to fanout 64 and a hash table
//! above.

use rayon::prelude::*;

use super::{Fanout, Graph, SampledEdges};
use crate::error::KernelError;
use crate::philox::{Draws, StreamKey};
use crate::table::Table;

/// Frontier vertices in one parallel task.
const CHUNK: usize = 256;
/// Below this, scanning the picks beats any set.
const SCAN_UP_TO: usize = 64;

/// Draws in-edges for every vertex of `frontier`.
///
/// `key` holds seed, epoch, step and layer, its stream is normally [`Stream::Sample`](crate::Stream::Sample). The
/// result of a vertex depends on the key, the vertex, the fanout and the graph only.
///
/// # Errors
/// [`KernelError::Fanout`], [`KernelError::VertexOutOfRange`], and [`KernelError::TooManyEdges`] beyond `u32::MAX`
/// edges.
pub fn sample_layer(
    graph: &Graph<'_>,
    frontier: &[u32],
    fanout: Fanout,
    key: &StreamKey,
) -> Result<SampledEdges, KernelError> {
    sample_in_chunks(graph, frontier, fanout, key, CHUNK)
}

/// Sources of the given edges: `indices[e]` for each `e`, in parallel.
///
/// # Panics
/// If an edge is not one of the graph's.
pub fn neighbours(graph: &Graph<'_>, edges: &[u64]) -> Vec<u32> {
    edges.par_iter().with_min_len(4096).map(|&e| graph.indices[e as usize]).collect()
}

fn sample_in_chunks(
    graph: &Graph<'_>,
    frontier: &[u32],
    fanout: Fanout,
    key: &StreamKey,
    chunk: usize,
) -> Result<SampledEdges, KernelError> {
    fanout.check()?;
    let indptr = count(graph, frontier, fanout)?;
    let mut edges = vec![0; indptr[frontier.len()] as usize];

    let mut tasks = Vec::with_capacity(frontier.len().div_ceil(chunk));
    let mut rest = edges.as_mut_slice();
    for (i, vertices) in frontier.chunks(chunk).enumerate() {
        let counts = &indptr[i * chunk..i * chunk + vertices.len() + 1];
        let (out, tail) = rest.split_at_mut((counts[vertices.len()] - counts[0]) as usize);
        tasks.push((vertices, counts, out));
        rest = tail;
    }
    tasks.into_par_iter().for_each_init(Table::default, |seen, (vertices, counts, mut out)| {
        for (&v, ends) in vertices.iter().zip(counts.windows(2)) {
            let (picks, tail) = out.split_at_mut((ends[1] - ends[0]) as usize);
            pick(graph, v, key, seen, picks);
            out = tail;
        }
    });
    Ok(SampledEdges { indptr, edges })
}

/// Pass 1: `indptr` of the result.
fn count(graph: &Graph<'_>, frontier: &[u32], fanout: Fanout) -> Result<Vec<u32>, KernelError> {
    let num_vertices = graph.num_vertices();
    let mut indptr = vec![0u32; frontier.len() + 1];
    indptr[1..].par_iter_mut().zip(frontier).with_min_len(1024).try_for_each(|(kept, &v)| {
        if v as usize >= num_vertices {
            return Err(KernelError::VertexOutOfRange { vertex: v, num_vertices });
        }
        // The whole degree must fit: it bounds the draws.
        let degree = graph.degree(v);
        u32::try_from(degree).map_err(|_| KernelError::TooManyEdges { edges: degree })?;
        *kept = fanout.kept(degree) as u32;
        Ok(())
    })?;
    let total: u64 = indptr.iter().map(|&kept| u64::from(kept)).sum();
    if total > u64::from(u32::MAX) {
        return Err(KernelError::TooManyEdges { edges: total });
    }
    let mut sum = 0;
    for slot in &mut indptr {
        sum += *slot;
        *slot = sum;
    }
    Ok(indptr)
}

/// Pass 2 for one vertex: fills `picks` with in-edges of `v`, ascending. `seen` is scratch.
#[inline]
fn pick(graph: &Graph<'_>, v: u32, key: &StreamKey, seen: &mut Table, picks: &mut [u64]) {
    let edges = graph.in_edges(v);
    let degree = (edges.end - edges.start) as u32;
    if picks.len() == degree as usize {
        picks.iter_mut().zip(edges).for_each(|(pick, edge)| *pick = edge);
        return;
    }
    let mut draws = Draws::new(key, v);
    let candidates = degree - picks.len() as u32..degree;
    if picks.len() <= SCAN_UP_TO {
        for (i, last) in candidates.enumerate() {
            let edge = edges.start + u64::from(draws.below(last + 1));
            picks[i] = if picks[..i].contains(&edge) { edges.start + u64::from(last) } else { edge };
        }
    } else {
        seen.clear();
        for (i, last) in candidates.enumerate() {
            let mut drawn = draws.below(last + 1);
            if seen.get_or_insert(drawn, i as u32) != i as u32 {
                drawn = last;
                seen.get_or_insert(last, i as u32);
            }
            picks[i] = edges.start + u64::from(drawn);
        }
    }
    picks.sort_unstable();
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
