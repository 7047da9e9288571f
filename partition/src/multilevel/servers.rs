//! Parts on several servers: cut for the servers first, then within each.
//!
//! Returns a part for each vertex; part p lies on server p / (parts of a server).
//! Idea: the scheme runs for the servers alone, and then once more for all parts, with clusters and moves that stay on
//! their server, as a V-cycle's stay in their part. So the second run reads the same finest graph, and no server's part of
//! it is copied; only the coarsest graph is taken apart, to cut each server's own. Each run may use the square
//! root of 1 + ε, so that what a server has too much of does not keep its parts from 1 + ε.
//! Cost: twice that of one server.
//! Why not one run for all parts, and then servers made of the parts that belong together: of com-DBLP and ogbn-arxiv in
//! eight parts the best two servers have a cut between them that is 9 to 16 % larger (unit and pre-sampled weights), and the
//! cut in all is within 6 % either way.

use gsplit_store::Progress;
use rayon::prelude::*;

use super::contract::segment_log2;
use super::cycles::{Cycles, Effort};
use super::graph::{Coarse, Graph, Segment};
use crate::loads::Loads;
use crate::repair::balance;
use crate::scramble::scramble;
use crate::{Layout, Problem, VertexWeights};

/// The part of each vertex; there are two servers at least, and two parts on each.
pub(super) fn assign<G: Graph>(problem: &Problem<'_>, graph: &G, max_arcs: u64, progress: &dyn Progress) -> Vec<u16> {
    let (weights, layout) = (&problem.weights, problem.layout());
    let effort = Effort::of(problem.quality);
    let epsilon = each_run(problem.epsilon);
    let targets: Option<Vec<f64>> =
        layout.targets().map(|_| (0..layout.servers() as u16).map(|server| layout.server_target(server)).collect());
    let across = Layout::new(layout.servers(), 1).with_targets(targets.as_deref());
    let outer = Cycles { layout: across, epsilon, seed: problem.seed, effort, max_arcs, progress };
    let start: Option<Vec<u16>> =
        problem.start.map(|parts| parts.par_iter().map(|&part| layout.server_of(part)).collect());
    let mut servers = outer.partition(graph, weights, start.as_deref());
    balance(&mut servers, graph, weights, across, epsilon);

    let inner = Cycles { layout, epsilon: problem.epsilon, seed: scramble(!problem.seed), effort, max_arcs, progress };
    match problem.start {
        None => inner.partition_within(graph, weights, &servers),
        Some(parts) => inner.partition(graph, weights, Some(&settle(graph, weights, layout, parts, &servers))),
    }
}

/// The ε of each of two runs that together may use `epsilon`.
fn each_run(epsilon: f64) -> f64 {
    (1.0 + epsilon).sqrt() - 1.0
}

/// `parts`, but that a vertex whose server has changed takes that part of its new one which it is tied to most.
fn settle<G: Graph>(
    graph: &G,
    weights: &VertexWeights,
    layout: Layout<'_>,
    parts: &[u16],
    servers: &[u16],
) -> Vec<u16> {
    let mut parts = parts.to_vec();
    let mut loads = Loads::of(layout, weights, &parts);
    for (v, &server) in (0u32..).zip(servers) {
        let old = parts[v as usize];
        if layout.server_of(old) == server {
            continue;
        }
        let range = layout.parts_of(server);
        let mut ties = vec![0u64; range.len()];
        graph.for_each(v, |u, weight| {
            if let Some(at) = parts[u as usize].checked_sub(range.start) {
                ties.get_mut(at as usize).into_iter().for_each(|tie| *tie += u64::from(weight));
            }
        });
        let rank =
            |part: &u16| (ties[(part - range.start) as usize], std::cmp::Reverse(loads.fullness(*part).to_bits()));
        let Some(new) = range.clone().max_by_key(rank) else { continue };
        loads.move_weight(old, new, weights.of(v));
        parts[v as usize] = new;
    }
    parts
}

/// The best of several cuts of each server's part of the coarsest graph, refined to `epsilon`.
pub(super) fn initial_within<G: Graph>(
    cycles: &Cycles<'_>,
    graph: &G,
    weights: &VertexWeights,
    servers: &[u16],
    epsilon: f64,
) -> Vec<u16> {
    let layout = cycles.layout;
    let mut members = vec![Vec::new(); layout.servers() as usize];
    let mut local = Vec::with_capacity(servers.len());
    for (v, &server) in (0u32..).zip(servers) {
        let members: &mut Vec<u32> = &mut members[server as usize];
        local.push(members.len() as u32);
        members.push(v);
    }
    let mut parts = vec![0; servers.len()];
    for (server, members) in (0u16..).zip(&members).filter(|(_, members)| !members.is_empty()) {
        let subgraph = subgraph_of(graph, servers, server, members, &local);
        let values = members.iter().flat_map(|&v| weights.of(v).iter().copied()).collect();
        let weights = VertexWeights::interleaved(weights.constraints(), values);
        let (range, mean) = (layout.parts_of(server), layout.server_target(server));
        let targets: Option<Vec<f64>> =
            layout.targets().map(|_| range.clone().map(|part| layout.target(part) / mean).collect());
        let alone = Cycles {
            layout: Layout::new(layout.per_server(), 1).with_targets(targets.as_deref()),
            epsilon: each_run(cycles.epsilon),
            seed: scramble(cycles.seed.wrapping_add(u64::from(server))),
            ..*cycles
        };
        let found = alone.best_initial(&subgraph, &weights, epsilon.min(alone.epsilon));
        let first = range.start;
        members.iter().zip(found).for_each(|(&v, part)| parts[v as usize] = first + part);
    }
    parts
}

/// The subgraph of the `members` of `server`, which are numbered by `local`.
pub(super) fn subgraph_of<G: Graph>(graph: &G, servers: &[u16], server: u16, members: &[u32], local: &[u32]) -> Coarse {
    let rows_log2 = segment_log2(members.len());
    let segments = members.par_chunks(1 << rows_log2).map(|members| {
        let mut segment = Segment::default();
        for &v in members {
            graph.for_each(v, |u, weight| {
                if servers[u as usize] == server {
                    segment.arcs.push((local[u as usize], weight));
                }
            });
            segment.ends.push(segment.arcs.len() as u32);
        }
        segment
    });
    Coarse::new(rows_log2, segments.collect())
}
