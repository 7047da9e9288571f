//! Making a partition keep its promises: no empty part, balance within ε.
//!
//! Input: an assignment, the vertex weights, and the symmetrised graph (so that moves add little to
//! the cut). Empty parts: each takes a vertex of the fullest part that has two, the one that
//! divides its load best. Parts on several servers: a vertex leaves its server only if its server
//! cannot keep the promise by itself. Balance: the excess of a partition is what its parts carry
//! above (1 + ε) times their target, or above the next whole number where that is more, over all
//! parts and constraints. Vertices of overloaded parts are moved while that lowers the excess,
//! always the one that costs the least cut per weight, to the neighbouring part that gains most: so
//! a path gives up its end, and not vertices all along it. With one constraint and equal targets it
//! ends with every part at most max((1 + ε) · mean, mean + heaviest vertex): a part above that can
//! always hand a vertex to the lightest. With several, or with targets of which some are small, it
//! may end earlier; the report shows that. Cost: O(n) when there is nothing to do, else O(arcs of
//! the overloaded parts) a round.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

use rayon::prelude::*;

use crate::loads::Loads;
use crate::{Layout, VertexWeights};

/// A graph, as far as repairing needs it.
pub(crate) trait Neighbours: Sync {
    /// Visits the neighbours of `v` with the weight of their pairs.
    fn each_neighbour(&self, v: u32, visit: &mut dyn FnMut(u32, u64));
}

/// Gives every empty part a vertex. There are at least as many vertices as parts.
pub(crate) fn fill_empty_parts(
    assignment: &mut [u16],
    weights: &VertexWeights,
    layout: Layout<'_>,
) {
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
        let Some((at, &v)) =
            candidates.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)))
        else {
            return;
        };
        members[donor as usize].swap_remove(at);
        members[part as usize].push(v);
        loads.remove(donor, weights.of(v));
        loads.add(part, weights.of(v));
        assignment[v as usize] = part;
        [donor, part]
            .into_iter()
            .for_each(|part| donors[layout.server_of(part) as usize].push(rank(&loads, part)));
    }
}

/// Fullness and part.
type Rank = (u64, Reverse<u16>);

/// The fullest part of `server` that has two vertices, else that of any server. `donors` are the
/// parts of each server.
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

/// Lowers the excess over (1 + ε) as far as single moves can. Leaves no part empty that was not.
/// Vertices leave their server where moves within servers lower the excess no further.
pub(crate) fn balance(
    assignment: &mut [u16],
    graph: &dyn Neighbours,
    weights: &VertexWeights,
    layout: Layout<'_>,
    epsilon: f64,
) {
    loop {
        balance_within_servers(assignment, graph, weights, layout, epsilon);
        if layout.servers() == 1
            || !Relief::of(assignment, graph, weights, layout, epsilon).round(MoveScope::All)
        {
            break;
        }
    }
}

/// Like [`balance`], except that every vertex stays on its server, even if that leaves an
/// imbalance.
pub(crate) fn balance_within_servers(
    assignment: &mut [u16],
    graph: &dyn Neighbours,
    weights: &VertexWeights,
    layout: Layout<'_>,
    epsilon: f64,
) {
    // Ends because every move lowers the excess.
    let mut relief = Relief::of(assignment, graph, weights, layout, epsilon);
    while relief.round(MoveScope::Server) {}
}

/// Goals that a move may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MoveScope {
    /// To a part of the same server.
    Server,
    /// Anywhere, to the servers first that the vertex is tied to most.
    All,
}

/// Relief of overloaded parts.
struct Relief<'a> {
    assignment: &'a mut [u16],
    graph: &'a dyn Neighbours,
    weights: &'a VertexWeights,
    loads: Loads,
    capacities: Vec<u64>,
}

/// Price of a move, in an order of numbers, and its vertex.
type Offer = Reverse<(i64, u32)>;

impl<'a> Relief<'a> {
    fn of(
        assignment: &'a mut [u16],
        graph: &'a dyn Neighbours,
        weights: &'a VertexWeights,
        layout: Layout,
        epsilon: f64,
    ) -> Self {
        let loads = Loads::of(layout, weights, assignment);
        let capacities = loads.capacities(epsilon);
        Self { assignment, graph, weights, loads, capacities }
    }

    fn is_over(&self, part: u16) -> bool {
        self.loads.is_over(part, &self.capacities)
    }

    /// One round: moves vertices of overloaded parts, always the one that costs least. Tells
    /// whether any moved.
    fn round(&mut self, scope: MoveScope) -> bool {
        if !(0..self.loads.num_parts() as u16).any(|part| self.is_over(part)) {
            return false;
        }
        let price = |v: u32| self.price(v, scope).unwrap_or(f64::INFINITY);
        // The least that each vertex may cost, as neighbours of it have moved.
        let mut prices: Vec<f64> =
            (0..self.assignment.len() as u32).into_par_iter().map(price).collect();
        let offers = (0u32..).zip(&prices).filter(|(_, price)| price.is_finite());
        let mut offers: BinaryHeap<Offer> =
            offers.map(|(v, &price)| Reverse((ordered(price), v))).collect();
        let mut lightest = Lightest::of(&self.loads);

        let mut moved = false;
        while let Some(Reverse((offered, v))) = offers.pop() {
            let (from, weight) = (self.assignment[v as usize], self.weights.of(v));
            if self.loads.sizes()[from as usize] == 1 {
                continue;
            }
            let Some(price) = self.price(v, scope) else { continue };
            if ordered(price) > offered {
                prices[v as usize] = price;
                offers.push(Reverse((ordered(price), v)));
                continue;
            }
            let layout = self.loads.layout();
            let near = ties(self.graph, self.assignment, v);
            let (near, servers) = match scope {
                MoveScope::Server => (
                    siblings_of(near, &self.loads, from),
                    layout.server_of(from)..layout.server_of(from) + 1,
                ),
                MoveScope::All => (near, 0..layout.servers() as u16),
            };
            let last = lightest.on(servers);
            let relieves = |&to: &u16| {
                to != from && self.loads.relief(from, to, weight, &self.capacities) > 1e-12
            };
            let Some(to) = in_order(near, layout, scope).into_iter().chain(last).find(relieves)
            else {
                continue;
            };
            lightest.move_weight(&mut self.loads, [from, to], weight);
            self.assignment[v as usize] = to;
            moved = true;
            let (assignment, loads) = (&*self.assignment, &self.loads);
            self.graph.each_neighbour(v, &mut |u, tie| {
                if assignment[u as usize] == from {
                    let price = &mut prices[u as usize];
                    *price -= 2.0 * tie as f64 / loads.portion(self.weights.of(u));
                    if price.is_finite() {
                        offers.push(Reverse((ordered(*price), u)));
                    }
                }
            });
        }
        moved
    }

    /// Cut that a move of `v` costs at least, for its weight, if its part is overloaded and has to
    /// do with it.
    fn price(&self, v: u32, scope: MoveScope) -> Option<f64> {
        let (part, portion) = (self.assignment[v as usize], self.loads.portion(self.weights.of(v)));
        if portion == 0.0 || !self.is_over(part) {
            return None;
        }
        let near = ties(self.graph, self.assignment, v);
        let (near, own) = match scope {
            MoveScope::Server => (siblings_of(near, &self.loads, part), part),
            MoveScope::All => {
                (by_server(near, self.loads.layout()), self.loads.layout().server_of(part))
            }
        };
        let (inside, outside) =
            (tie_to(&near, own), near.iter().filter(|tie| tie.0 != own).map(|tie| tie.1).max());
        Some((inside - outside.unwrap_or(0)) as f64 / portion)
    }
}

/// The parts of each server in the order of their room, the one with most first.
pub(crate) struct Lightest(Vec<BTreeSet<(u64, u16)>>);

impl Lightest {
    /// The order under `loads`.
    pub fn of(loads: &Loads) -> Self {
        let mut lightest = Self(vec![BTreeSet::new(); loads.layout().servers() as usize]);
        (0..loads.num_parts() as u16).for_each(|part| lightest.insert(loads, part));
        lightest
    }

    fn insert(&mut self, loads: &Loads, part: u16) {
        self.0[loads.layout().server_of(part) as usize]
            .insert((loads.lack_of_room(part).to_bits(), part));
    }

    /// The part with most room on any of `servers`.
    pub fn on(&self, servers: Range<u16>) -> Option<u16> {
        servers.filter_map(|server| self.0[server as usize].first()).min().map(|&(_, part)| part)
    }

    /// Moves what weighs `weight` from one part to another in `loads`, whose order this is.
    pub fn move_weight(&mut self, loads: &mut Loads, [from, to]: [u16; 2], weight: &[u32]) {
        for part in [from, to] {
            self.0[loads.layout().server_of(part) as usize]
                .remove(&(loads.lack_of_room(part).to_bits(), part));
        }
        loads.move_weight(from, to, weight);
        [from, to].into_iter().for_each(|part| self.insert(loads, part));
    }
}

/// A number with the same order as `price`.
pub(crate) fn ordered(price: f64) -> i64 {
    let bits = price.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
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

/// The parts of `ties`, strongest first; if vertices may change servers, the parts of the strongest
/// server first.
fn in_order(mut ties: Vec<(u16, i64)>, layout: Layout, scope: MoveScope) -> Vec<u16> {
    match scope {
        MoveScope::Server => ties.sort_unstable_by_key(|&(part, tie)| (Reverse(tie), part)),
        MoveScope::All => {
            let servers = by_server(ties.clone(), layout);
            let to_server = |part| tie_to(&servers, layout.server_of(part));
            ties.sort_unstable_by_key(|&(part, tie)| {
                (Reverse(to_server(part)), Reverse(tie), part)
            });
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

/// Sums adjacent ties to the same part or server.
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
            let column: Vec<u32> =
                (0..n).map(|_| draws.below(1 << draws.clone().below(skew))).collect();
            let weights = VertexWeights::new(n, &[column]);
            let adjacency = Adjacency::build(dataset.topology(), None).unwrap();
            let mut assignment: Vec<u16> = (0..n).map(|_| draws.below(2) as u16).collect();
            fill_empty_parts(&mut assignment, &weights, parts.into());
            balance(&mut assignment, &adjacency, &weights, parts.into(), 0.03);

            let loads = Loads::of(parts.into(), &weights, &assignment);
            let heaviest = (0..n as u32).map(|v| loads.portion(weights.of(v))).fold(0.0, f64::max);
            assert!(
                loads.imbalance() <= f64::max(1.03, 1.0 + heaviest) + 1e-9,
                "seed {seed}: {loads:?}"
            );
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
            let layout =
                Layout::new(servers * (1 + draws.below((n as u32 / servers / 2).max(1))), servers);
            let column: Vec<u32> = (0..n).map(|_| 1 + draws.below(9)).collect();
            let weights = VertexWeights::new(n, &[column]);
            let adjacency = Adjacency::build(dataset.topology(), None).unwrap();
            let heaviest = |loads: &Loads| {
                (0..n as u32).map(|v| loads.portion(weights.of(v))).fold(0.0, f64::max)
            };

            let mut assignment: Vec<u16> =
                (0..n).map(|_| draws.below(layout.parts()) as u16).collect();
            fill_empty_parts(&mut assignment, &weights, layout);
            let before = assignment.clone();
            balance_within_servers(&mut assignment, &adjacency, &weights, layout, 0.03);
            let same = before
                .iter()
                .zip(&assignment)
                .all(|(&a, &b)| layout.server_of(a) == layout.server_of(b));
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
        assert_eq!(Loads::of(6.into(), &weights, &assignment).sizes(), [1, 1, 1, 2, 1, 1]);
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
        balance(&mut after, &adjacency, &weights, 2.into(), 0.03);
        assert!(Loads::of(2.into(), &weights, &after).imbalance() <= 1.03);
        let moved: Vec<usize> = (0..400).filter(|&v| before[v] != after[v]).collect();
        assert!(moved.iter().all(|v| (200..210).contains(v)), "{moved:?}");
        assert!(moved.len() >= 4, "{moved:?}");
    }
}
