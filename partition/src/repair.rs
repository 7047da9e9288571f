//! Making a partition keep its promises: no empty part, balance within ε.
//!
//! Input: an assignment, the vertex weights, and the symmetrised graph (to lose little by what is moved).
//! Empty parts: each takes a vertex of the fullest part that has two, the one that divides its load best.
//! Parts on several servers: a vertex leaves its server only where its server alone cannot keep the promise.
//! Balance: the excess of a partition is what its parts carry above (1 + ε) times their target, over all parts and
//! constraints. Vertices of overloaded parts are moved while that lowers the excess, those first that cost the least cut
//! per weight, each to the neighbouring part that gains most. With one constraint and equal targets it ends
//! with every part at most max((1 + ε) · mean, mean + heaviest vertex): a part above that can always hand a vertex to the lightest.
//! With several, or with targets of which some are small, it may end earlier; the report shows that.
//! Cost: O(n) when there is nothing to do, else O(arcs of the overloaded parts) a round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use crate::loads::Loads;
use crate::{Layout, VertexWeights};

/// A graph, as far as repairing needs it.
pub(crate) trait Neighbours: Sync {
    /// Visits the neighbours of `v` with the weight of their pairs.
    fn each_neighbour(&self, v: u32, visit: &mut dyn FnMut(u32, u64));
}

/// Gives every empty part a vertex. There are at least as many vertices as parts.
pub(crate) fn fill_empty_parts<'a>(assignment: &mut [u16], weights: &VertexWeights, parts: impl Into<Layout<'a>>) {
    let layout = parts.into();
    let mut loads = Loads::of(layout, weights, assignment);
    let all = 0..layout.parts() as u16;
    let empty: Vec<u16> = all.clone().filter(|&part| loads.sizes()[part as usize] == 0).collect();
    if empty.is_empty() {
        return;
    }
    let mut members = vec![Vec::new(); layout.parts() as usize];
    (0..).zip(&*assignment).for_each(|(v, &part)| members[part as usize].push(v));
    let rank = |loads: &Loads, part: u16| (loads.fullness(part).to_bits(), Reverse(part));
    let mut donors = vec![BinaryHeap::new(); layout.servers() as usize];
    all.for_each(|part| donors[layout.server_of(part) as usize].push(rank(&loads, part)));
    for part in empty {
        let Some(donor) = take_donor(&mut donors, layout.server_of(part), &loads) else { return };
        let half = loads.fullness(donor) * loads.target(donor) / 2.0;
        let distance = |&v: &u32| (loads.portion(weights.of(v)) - half).abs();
        let candidates = members[donor as usize].iter().enumerate();
        let Some((at, &v)) = candidates.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b))) else { return };
        members[donor as usize].swap_remove(at);
        members[part as usize].push(v);
        loads.remove(donor, weights.of(v));
        loads.add(part, weights.of(v));
        assignment[v as usize] = part;
        [donor, part].into_iter().for_each(|part| donors[layout.server_of(part) as usize].push(rank(&loads, part)));
    }
}

/// Fullness and part.
type Rank = (u64, Reverse<u16>);

/// The fullest part of `server` that has two vertices, else that of any server. `donors` are the parts of each server.
fn take_donor(donors: &mut [BinaryHeap<Rank>], server: u16, loads: &Loads) -> Option<u16> {
    // A part of one vertex gets no second one before it is asked for its only one.
    for heap in &mut *donors {
        while heap.peek().is_some_and(|&(_, Reverse(part))| loads.sizes()[part as usize] < 2) {
            heap.pop();
        }
    }
    let own = donors[server as usize].peek().map(|_| server as usize);
    let any = || (0..donors.len()).max_by_key(|&server| donors[server].peek().copied());
    let from = own.or_else(any)?;
    donors[from].pop().map(|(_, Reverse(part))| part)
}

/// Lowers the excess over (1 + ε) as far as single moves can. Leaves no part empty that was not. Vertices leave their
/// server where moves within servers lower the excess no further.
pub(crate) fn balance<'a>(
    assignment: &mut [u16],
    graph: &dyn Neighbours,
    weights: &VertexWeights,
    parts: impl Into<Layout<'a>>,
    epsilon: f64,
) {
    let layout = parts.into();
    loop {
        balance_within_servers(assignment, graph, weights, layout, epsilon);
        if layout.servers() == 1 {
            break;
        }
        let mut loads = Loads::of(layout, weights, assignment);
        let limit = 1.0 + epsilon;
        if loads.imbalance() <= limit || !relieve(assignment, graph, weights, &mut loads, limit, Reach::All) {
            break;
        }
    }
}

/// As [`balance`], but that every vertex stays on its server, whatever that leaves.
pub(crate) fn balance_within_servers<'a>(
    assignment: &mut [u16],
    graph: &dyn Neighbours,
    weights: &VertexWeights,
    parts: impl Into<Layout<'a>>,
    epsilon: f64,
) {
    let mut loads = Loads::of(parts, weights, assignment);
    let limit = 1.0 + epsilon;
    // Ends because every move lowers the excess.
    while loads.imbalance() > limit && relieve(assignment, graph, weights, &mut loads, limit, Reach::Server) {}
}

/// Goals that a move may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// To a part of the same server.
    Server,
    /// Anywhere, to the servers first that the vertex is tied to most.
    All,
}

/// One round: ranks the vertices of overloaded parts once and moves them in that order. Tells whether any moved.
fn relieve(
    assignment: &mut [u16],
    graph: &dyn Neighbours,
    weights: &VertexWeights,
    loads: &mut Loads,
    limit: f64,
    reach: Reach,
) -> bool {
    let candidate = |v: u32| {
        let (part, share) = (assignment[v as usize], loads.portion(weights.of(v)));
        if loads.fullness(part) <= limit || share == 0.0 {
            return None;
        }
        let near = ties(graph, assignment, v);
        let (near, own) = match reach {
            Reach::Server => (siblings_of(near, loads, part), part),
            Reach::All => (by_server(near, loads.layout()), loads.layout().server_of(part)),
        };
        let (inside, outside) = (tie_to(&near, own), near.iter().filter(|tie| tie.0 != own).map(|tie| tie.1).max());
        Some(((inside - outside.unwrap_or(0)) as f64 / share, v))
    };
    let mut order: Vec<(f64, u32)> = (0..assignment.len() as u32).into_par_iter().filter_map(candidate).collect();
    order.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));

    let mut moved = false;
    for (_, v) in order {
        let (from, weight) = (assignment[v as usize], weights.of(v));
        if loads.fullness(from) <= limit || loads.sizes()[from as usize] == 1 {
            continue;
        }
        let near = ties(graph, assignment, v);
        let (near, all) = match reach {
            Reach::Server => (siblings_of(near, loads, from), loads.siblings(from)),
            Reach::All => (near, 0..loads.num_parts() as u16),
        };
        let lightest = all.min_by(|&a, &b| loads.lack_of_room(a).total_cmp(&loads.lack_of_room(b)));
        let relieves = |&to: &u16| to != from && loads.relief(from, to, weight, limit) > 1e-12;
        if let Some(to) = in_order(near, loads.layout(), reach).into_iter().chain(lightest).find(relieves) {
            loads.remove(from, weight);
            loads.add(to, weight);
            assignment[v as usize] = to;
            moved = true;
        }
    }
    moved
}

/// The ties to parts of the server of `part`.
fn siblings_of(mut ties: Vec<(u16, i64)>, loads: &Loads, part: u16) -> Vec<(u16, i64)> {
    let siblings = loads.siblings(part);
    ties.retain(|tie| siblings.contains(&tie.0));
    ties
}

/// The ties to servers, of ties to parts in ascending order.
fn by_server(mut ties: Vec<(u16, i64)>, layout: Layout) -> Vec<(u16, i64)> {
    ties.iter_mut().for_each(|tie| tie.0 = layout.server_of(tie.0));
    merge(&mut ties);
    ties
}

/// The parts of `ties`, strongest first; where they may lead anywhere, those of the strongest server first.
fn in_order(mut ties: Vec<(u16, i64)>, layout: Layout, reach: Reach) -> Vec<u16> {
    match reach {
        Reach::Server => ties.sort_unstable_by_key(|&(part, tie)| (Reverse(tie), part)),
        Reach::All => {
            let servers = by_server(ties.clone(), layout);
            let to_server = |part| tie_to(&servers, layout.server_of(part));
            ties.sort_unstable_by_key(|&(part, tie)| (Reverse(to_server(part)), Reverse(tie), part));
        }
    }
    ties.into_iter().map(|tie| tie.0).collect()
}

/// The parts of the neighbours of `v`, each with the weight of the pairs that lead there.
fn ties(graph: &dyn Neighbours, assignment: &[u16], v: u32) -> Vec<(u16, i64)> {
    let mut ties: Vec<(u16, i64)> = Vec::new();
    graph.each_neighbour(v, &mut |u, weight| ties.push((assignment[u as usize], weight as i64)));
    ties.sort_unstable();
    merge(&mut ties);
    ties
}

/// Sums the ties to one part, or server, which lie side by side.
fn merge(ties: &mut Vec<(u16, i64)>) {
    ties.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
}

fn tie_to(ties: &[(u16, i64)], part: u16) -> i64 {
    ties.iter().find(|tie| tie.0 == part).map_or(0, |tie| tie.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Adjacency;
    use crate::tests::{communities, draws, random_graph};

    #[test]
    fn any_assignment_becomes_balanced_or_as_good_as_the_heaviest_vertex_allows() {
        for seed in 0..200 {
            let graph = random_graph(seed);
            let dataset = graph.dataset();
            let mut draws = draws(1000 + seed);
            let n = dataset.num_vertices();
            let parts = 2 + draws.below(n as u32 / 2);
            let skew = 1 + draws.below(20);
            let column: Vec<u32> = (0..n).map(|_| draws.below(1 << draws.clone().below(skew))).collect();
            let weights = VertexWeights::new(n, &[column]);
            let adjacency = Adjacency::build(dataset.topology(), None).unwrap();
            let mut assignment: Vec<u16> = (0..n).map(|_| draws.below(2) as u16).collect();
            fill_empty_parts(&mut assignment, &weights, parts);
            balance(&mut assignment, &adjacency, &weights, parts, 0.03);

            let loads = Loads::of(parts, &weights, &assignment);
            let heaviest = (0..n as u32).map(|v| loads.portion(weights.of(v))).fold(0.0, f64::max);
            assert!(loads.imbalance() <= f64::max(1.03, 1.0 + heaviest) + 1e-9, "seed {seed}: {loads:?}");
            assert!(loads.sizes().iter().all(|&size| size > 0), "seed {seed}: {loads:?}");
        }
    }

    #[test]
    fn any_assignment_to_servers_is_balanced_and_leaves_servers_only_where_it_must() {
        for seed in 0..200 {
            let graph = random_graph(seed);
            let dataset = graph.dataset();
            let mut draws = draws(2000 + seed);
            let n = dataset.num_vertices();
            let servers = 2 + draws.below((n as u32 - 1).min(2));
            let layout = Layout::new(servers * (1 + draws.below((n as u32 / servers / 2).max(1))), servers);
            let column: Vec<u32> = (0..n).map(|_| 1 + draws.below(9)).collect();
            let weights = VertexWeights::new(n, &[column]);
            let adjacency = Adjacency::build(dataset.topology(), None).unwrap();
            let heaviest = |loads: &Loads| (0..n as u32).map(|v| loads.portion(weights.of(v))).fold(0.0, f64::max);

            let mut assignment: Vec<u16> = (0..n).map(|_| draws.below(layout.parts()) as u16).collect();
            fill_empty_parts(&mut assignment, &weights, layout);
            let before = assignment.clone();
            balance_within_servers(&mut assignment, &adjacency, &weights, layout, 0.03);
            let same = before.iter().zip(&assignment).all(|(&a, &b)| layout.server_of(a) == layout.server_of(b));
            assert!(same, "seed {seed}");
            balance(&mut assignment, &adjacency, &weights, layout, 0.03);
            let loads = Loads::of(layout, &weights, &assignment);
            let promised = f64::max(1.03, 1.0 + heaviest(&loads)) + 1e-9;
            assert!(loads.imbalance() <= promised, "seed {seed}: {loads:?}");
            assert!(loads.sizes().iter().all(|&size| size > 0), "seed {seed}: {loads:?}");
        }
    }

    #[test]
    fn empty_parts_take_from_their_own_server_while_it_has_vertices() {
        let weights = VertexWeights::new(7, &[vec![1, 1, 1, 9, 9, 9, 9]]);
        let mut assignment = [0, 0, 0, 2, 2, 2, 2];
        fill_empty_parts(&mut assignment, &weights, Layout::new(4, 2));
        assert_eq!(assignment[..3].iter().filter(|&&part| part == 1).count(), 1);
        assert_eq!(assignment[3..].iter().filter(|&&part| part == 3).count(), 1);
        // The first server has too few for its parts.
        let mut assignment = [0, 3, 3, 3, 4, 4, 5];
        fill_empty_parts(&mut assignment, &weights, Layout::new(6, 2));
        assert_eq!(Loads::of(6, &weights, &assignment).sizes(), [1, 1, 1, 2, 1, 1]);
    }

    #[test]
    fn what_is_moved_is_what_costs_least() {
        // Part 1 lacks ten vertices of its two communities; at least four must move for 206 to 194.
        let graph = communities(4, 100);
        let dataset = graph.dataset();
        let adjacency = Adjacency::build(dataset.topology(), None).unwrap();
        let weights = VertexWeights::new(400, &[vec![1; 400], (0..400).map(|v| v % 2).collect()]);
        let before: Vec<u16> = (0..400).map(|v| u16::from(v >= 210)).collect();
        let mut after = before.clone();
        balance(&mut after, &adjacency, &weights, 2, 0.03);
        assert!(Loads::of(2, &weights, &after).imbalance() <= 1.03);
        let moved: Vec<usize> = (0..400).filter(|&v| before[v] != after[v]).collect();
        assert!(moved.iter().all(|v| (200..210).contains(v)), "{moved:?}");
        assert!(moved.len() >= 4, "{moved:?}");
    }
}
