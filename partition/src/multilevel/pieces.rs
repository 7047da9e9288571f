//! Disconnected pieces of parts: each that fits is moved to a part that it touches.
//!
//! Input as for label propagation; the cut falls with every move, no part grows beyond its
//! capacity, no vertex leaves its server. Idea: a piece has no arc to the rest of its part, so it
//! costs nothing to take it away, and whatever part it goes to gains its arcs. Single moves do not
//! see that where each vertex is tied to its piece. The heaviest piece of a part stays (METIS's
//! EliminateComponents). Cost: O(m), and the arcs of the moved vertices.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::graph::Graph;
use crate::loads::Loads;
use crate::{VertexWeights, pieces};

/// Moves pieces of `parts`, whose loads are `loads`.
pub(super) fn join_pieces<G: Graph>(
    graph: &G,
    weights: &VertexWeights,
    capacities: &[u64],
    parts: &mut [u16],
    mut loads: Loads,
) {
    let state = &*parts;
    let pieces = pieces::pieces(parts.len(), |v, unite| {
        graph.for_each(v, |u, _| {
            if state[u as usize] == state[v as usize] {
                unite(u)
            }
        });
    });
    let mut sizes: Vec<f64> = vec![0.0; parts.len()];
    (0..)
        .zip(&pieces)
        .for_each(|(v, &piece)| sizes[piece as usize] += loads.portion(weights.of(v)));
    let mut heaviest = vec![None; loads.num_parts()];
    let firsts = || (0u32..).zip(&pieces).filter(|&(v, &piece)| v == piece).map(|(v, _)| v);
    for piece in firsts() {
        let most: &mut Option<u32> = &mut heaviest[parts[piece as usize] as usize];
        if most.is_none_or(|most| sizes[piece as usize] > sizes[most as usize]) {
            *most = Some(piece);
        }
    }
    let stays = |piece: u32| heaviest[state[piece as usize] as usize] == Some(piece);
    let mut apart: Vec<(u32, u32)> = (0u32..)
        .zip(&pieces)
        .filter(|&(_, &piece)| !stays(piece))
        .map(|(v, &piece)| (piece, v))
        .collect();
    apart.par_sort_unstable();
    for members in apart.chunk_by(|a, b| a.0 == b.0) {
        let from = parts[members[0].1 as usize];
        let members = || members.iter().map(|&(_, v)| v);
        let (mut ties, mut weight) =
            (BTreeMap::<u16, u64>::new(), vec![0u32; weights.constraints()]);
        for v in members() {
            graph.for_each(v, |u, tie| {
                if pieces[u as usize] != pieces[v as usize] {
                    *ties.entry(parts[u as usize]).or_default() += u64::from(tie);
                }
            });
            weight
                .iter_mut()
                .zip(weights.of(v))
                .for_each(|(sum, &weight)| *sum = sum.saturating_add(weight));
        }
        let siblings = loads.siblings(from);
        let open =
            |part: u16| siblings.contains(&part) && loads.has_room(part, &weight, capacities);
        // Another piece may have come to touch this one in its own part.
        let own = ties.remove(&from).unwrap_or(0);
        let best = ties
            .into_iter()
            .filter(|&(part, tie)| tie > own && open(part))
            .max_by_key(|&(_, tie)| tie);
        if let Some((to, _)) = best {
            for v in members() {
                loads.move_weight(from, to, weights.of(v));
                parts[v as usize] = to;
            }
        }
    }
}
