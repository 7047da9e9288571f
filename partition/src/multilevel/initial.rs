//! The first parts: METIS on the coarsest graph, several times, the best of it.

use rayon::prelude::*;

use super::graph::Graph;
use crate::loads::Loads;
use crate::spread::spread;
use crate::{Adjacency, Result, VertexWeights, metis};

/// One try: a part for each vertex. Vertices without a neighbour are spread.
pub(super) fn initial<G: Graph>(
    graph: &G,
    rows: &Adjacency,
    weights: &VertexWeights,
    parts: u32,
    epsilon: f64,
    seed: u64,
) -> Result<Vec<u16>> {
    let mut assignment = vec![0; graph.num_vertices()];
    let mut left = vec![true; assignment.len()];
    let mut loads = Loads::empty(parts, weights);
    // METIS needs more vertices than parts.
    if rows.num_rows() > parts as usize {
        let found = metis::kway(rows, weights, parts, epsilon, seed)?;
        for (&v, part) in rows.vertices().iter().zip(found) {
            assignment[v as usize] = part;
            loads.add(part, weights.of(v));
            left[v as usize] = false;
        }
    }
    let mut left: Vec<u32> = (0..assignment.len() as u32).filter(|&v| left[v as usize]).collect();
    spread(&mut left, weights, &mut loads, &mut assignment);
    Ok(assignment)
}

/// Sum of the weights of the pairs in different parts.
pub(super) fn cut<G: Graph>(graph: &G, parts: &[u16]) -> u64 {
    let of_vertex = |v: u32| {
        let mut sum = 0;
        graph.for_each(v, |u, weight| {
            sum += if parts[u as usize] == parts[v as usize] { 0 } else { u64::from(weight) };
        });
        sum
    };
    (0..parts.len() as u32).into_par_iter().with_min_len(1024).map(of_vertex).sum::<u64>() / 2
}
