//! Parts on several servers: cut for the servers first, then within each.
//!
//! Returns a part for each vertex; part p is on server p / (parts per server). Idea: the scheme
//! runs first only for the servers, and then once more for all parts, with clusters and moves that
//! stay on their server, as a V-cycle's stay in their part. So the second run reads the same finest
//! graph, and no server's part of it is copied; only the coarsest graph is taken apart, to cut each
//! server's own. Each run may use the square root of 1 + ε, so that a server above its target does
//! not keep its parts from 1 + ε. Cost: twice that of one server. Why not one run for all parts,
//! and then servers made of the parts that belong together: of com-DBLP and ogbn-arxiv in eight
//! parts the best two servers have a cut between them that is 9 to 16 % larger (unit and
//! pre-sampled weights), and the cut in all is within 6 % either way.

use rayon::prelude::*;

use super::contract::segment_log2;
use super::cycles::Cycles;
use super::graph::{Coarse, Graph, Segment};
use super::initial::members;
use crate::loads::Loads;
use crate::repair::balance;
use crate::scramble::scramble;
use crate::{Layout, Problem, VertexWeights};

/// The part of each vertex by `cycles`; there are two servers at least, and two parts on each.
pub(super) fn assign<G: Graph>(problem: &Problem<'_>, graph: &G, cycles: &Cycles<'_>) -> Vec<u16> {
    let (weights, layout) = (&problem.weights, cycles.layout);
    let epsilon = each_run(problem.epsilon);
    let targets: Option<Vec<f64>> = layout
        .targets()
        .map(|_| (0..layout.servers() as u16).map(|server| layout.server_target(server)).collect());
    let across = Layout::new(layout.servers(), 1).with_targets(targets.as_deref());
    let outer = Cycles { layout: across, epsilon, ..*cycles };
    let start: Option<Vec<u16>> =
        problem.start.map(|parts| parts.par_iter().map(|&part| layout.server_of(part)).collect());
    let mut servers = outer.partition(graph, weights, start.as_deref(), None);
    balance(&mut servers, graph, weights, across, epsilon);

    let inner = Cycles { seed: scramble(!problem.seed), ..*cycles };
    let start = problem.start.map(|parts| settle(graph, weights, layout, parts, &servers));
    inner.partition(graph, weights, start.as_deref(), Some(&servers))
}

/// The ε of each of two runs that together may use `epsilon`.
fn each_run(epsilon: f64) -> f64 {
    (1.0 + epsilon).sqrt() - 1.0
}

/// `parts`, but that a vertex whose server has changed takes that part of its new one which it is
/// tied to most.
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
        let rank = |part: &u16| {
            (
                ties[(part - range.start) as usize],
                std::cmp::Reverse(loads.fullness(*part).to_bits()),
            )
        };
        let Some(new) = range.clone().max_by_key(rank) else { continue };
        loads.move_weight(old, new, weights.of(v));
        parts[v as usize] = new;
    }
    parts
}

/// The best of several cuts of each server's part of the coarsest graph, to `layout`, refined to
/// `epsilon`.
pub(super) fn initial_within<G: Graph>(
    cycles: &Cycles<'_>,
    graph: &G,
    weights: &VertexWeights,
    servers: &[u16],
    layout: Layout,
    epsilon: f64,
) -> Vec<u16> {
    let members = members(servers, layout.servers());
    let mut parts = vec![0; servers.len()];
    for server in (0..layout.servers() as u16).filter(|&server| !members.of(server).is_empty()) {
        let (subgraph, weights) = members.part(graph, weights, servers, server);
        let alone = Cycles {
            layout: cycles.layout.bundles(1).alone(server),
            epsilon: each_run(cycles.epsilon),
            seed: scramble(cycles.seed.wrapping_add(u64::from(server))),
            ..*cycles
        };
        let of_server = alone.layout.bundles(layout.per_server());
        let found = alone.best_initial(&subgraph, &weights, of_server, epsilon.min(alone.epsilon));
        let first = layout.parts_of(server).start;
        members
            .of(server)
            .iter()
            .zip(found)
            .for_each(|(&v, part)| parts[v as usize] = first + part);
    }
    parts
}

/// The subgraph of the `members` of `server`, which are numbered by `local`.
pub(super) fn subgraph_of<G: Graph>(
    graph: &G,
    servers: &[u16],
    server: u16,
    members: &[u32],
    local: &[u32],
) -> Coarse {
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
