//! One pass over the vertices, each placed for good when it is met.
//!
//! Returns a part for each vertex; none is empty.
//! A vertex meets the parts of those of its neighbours that are placed already: its in-neighbours, which lie beside it in
//! the topology, and its out-neighbours as they were seen. A placed vertex votes for its part with each in-neighbour that
//! is still to come; of the votes only the leading part is kept, with its lead (Boyer and Moore's majority vote), so that
//! memory stays proportional to the vertices. Where every edge is stored in both directions the in-neighbours are all
//! neighbours, and nobody votes.
//! A part has room for a vertex while it carries at most (1 + ε) times the mean, in every weight. A rule ([`ldg`],
//! [`fennel`]) scores the parts that have room; ties go to the lighter part. Where none has room the vertex goes where
//! the load gets least, so that with one weight no part ends above max((1 + ε) · mean, mean + heaviest vertex).
//! Cost: O(m + n log k) time, sequential, the edges read in the order of the vertices; 12 bytes a vertex and the weights
//! beside the mapped topology (a random order: 20 more while it is drawn).

mod fennel;
mod ldg;

use std::collections::BTreeSet;

use gsplit_kernels::{Stream, StreamKey, permute};
use gsplit_store::{Progress, Topology, Unit, out_degrees};

pub(crate) use fennel::Fennel;
pub(crate) use ldg::Ldg;

use crate::loads::Loads;
use crate::options::Order;
use crate::repair::fill_empty_parts;
use crate::{Problem, VertexWeights};

/// No part: part numbers end before.
const UNPLACED: u16 = u16::MAX;
/// Vertices between two reports of progress.
const VERTICES_PER_REPORT: usize = 1 << 14;

/// A part that has room for a vertex.
pub(crate) struct Candidate {
    /// Weight of the vertex's edges to the part.
    tie: f64,
    /// Load of the part over the mean, without the vertex, in the constraint where that is largest.
    fullness: f64,
    /// Weight of the vertex over the mean load of a part, in the constraint where that is largest.
    weight: f64,
}

/// Edges of the graph, with their weights.
pub(crate) struct WeightedEdges<'a> {
    topology: &'a Topology,
    counts: Option<&'a [u32]>,
    /// Whether every vertex has as many in- as out-edges: then each edge is taken to be stored in both directions.
    both_ways: bool,
}

impl<'a> WeightedEdges<'a> {
    fn of(problem: &Problem<'a>) -> Self {
        let topology = problem.topology;
        let in_degrees = topology.indptr().windows(2).map(|pair| pair[1] - pair[0]);
        let both_ways =
            in_degrees.eq(out_degrees(topology.num_vertices(), topology.indices()).into_iter().map(u64::from));
        Self { topology, counts: problem.edge_counts, both_ways }
    }

    /// The in-neighbours of `v` but itself, each with what its edge weighs: 1, and its count.
    fn in_edges(&self, v: u32) -> impl Iterator<Item = (u32, u64)> {
        let start = self.topology.indptr()[v as usize] as usize;
        let edges = (start..).zip(self.topology.in_neighbours(v)).filter(move |&(_, &u)| u != v);
        edges.map(|(e, &u)| (u, 1 + self.counts.map_or(0, |counts| u64::from(counts[e]))))
    }

    /// Weight of all edges, an edge in both directions counted once.
    fn total(&self) -> f64 {
        let n = self.topology.num_vertices() as u32;
        let total: u64 = (0..n).map(|v| self.in_edges(v).map(|(_, weight)| weight).sum::<u64>()).sum();
        total as f64 / if self.both_ways { 2.0 } else { 1.0 }
    }
}

/// Streams the vertices; each goes to the part that `score` likes best.
pub(crate) fn stream(
    name: &str,
    problem: &Problem<'_>,
    edges: &WeightedEdges<'_>,
    order: Order,
    score: impl Fn(&Candidate) -> f64,
    progress: &dyn Progress,
) -> Vec<u16> {
    let n = problem.topology.num_vertices();
    let stage = progress.stage(name, Some(n as u64), Unit::Items("vertices"));
    let mut state = Streaming::new(problem, edges);
    let random = match order {
        Order::Natural => None,
        Order::Random => Some(permute(n as u32, &StreamKey::new(problem.seed, Stream::Assign))),
    };
    for i in 0..n {
        let v = random.as_ref().map_or(i as u32, |order| order[i]);
        state.collect_ties(v, edges);
        let part = state.choose(v, &score);
        state.place(v, part, edges);
        if i % VERTICES_PER_REPORT == VERTICES_PER_REPORT - 1 {
            stage.advance(VERTICES_PER_REPORT as u64);
        }
    }
    fill_empty_parts(&mut state.assignment, &problem.weights, problem.parts);
    state.assignment
}

/// State of the stream between two vertices.
struct Streaming<'a> {
    weights: &'a VertexWeights,
    limit: f64,
    assignment: Vec<u16>,
    loads: Loads,
    queues: Queues,
    votes: Option<Votes>,
    /// Weights of the edges of the vertex at hand to each part, and the parts for which that is not 0.
    ties: Vec<u64>,
    tied: Vec<u16>,
}

impl<'a> Streaming<'a> {
    fn new(problem: &'a Problem<'_>, edges: &WeightedEdges<'_>) -> Self {
        let n = problem.topology.num_vertices();
        let loads = Loads::empty(problem.parts, &problem.weights);
        Self {
            weights: &problem.weights,
            limit: 1.0 + problem.epsilon,
            assignment: vec![UNPLACED; n],
            queues: Queues::of(&loads),
            loads,
            votes: (!edges.both_ways).then(|| Votes::new(n)),
            ties: vec![0; problem.parts as usize],
            tied: Vec::new(),
        }
    }

    fn collect_ties(&mut self, v: u32, edges: &WeightedEdges<'_>) {
        self.tied.drain(..).for_each(|part| self.ties[part as usize] = 0);
        let vote = self.votes.as_ref().map(|votes| votes.of(v));
        let placed = edges.in_edges(v).map(|(u, weight)| (self.assignment[u as usize], weight));
        for (part, weight) in placed.chain(vote).filter(|&(part, weight)| part != UNPLACED && weight > 0) {
            let tie = &mut self.ties[part as usize];
            if *tie == 0 {
                self.tied.push(part);
            }
            *tie += weight;
        }
    }

    fn choose(&self, v: u32, score: &impl Fn(&Candidate) -> f64) -> u16 {
        let weight = self.weights.of(v);
        let portion = self.loads.portion(weight);
        let lightest = match portion > 0.0 || !self.tied.is_empty() {
            true => self.queues.lightest(),
            false => return self.queues.smallest(),
        };
        let has_room = |part: u16| self.loads.fullness_with(part, weight) <= self.limit;
        let candidates = self.tied.iter().copied().chain([lightest]).filter(|&part| has_room(part));
        let rank = |part: u16| {
            let fullness = self.loads.fullness(part);
            let tie = self.ties[part as usize] as f64;
            (-score(&Candidate { tie, fullness, weight: portion }), fullness, self.loads.sizes()[part as usize], part)
        };
        let best = candidates
            .map(rank)
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then_with(|| (a.2, a.3).cmp(&(b.2, b.3))));
        best.map_or_else(|| self.least_overloaded(weight), |best| best.3)
    }

    /// The part that ends lightest with `weight` more.
    fn least_overloaded(&self, weight: &[u32]) -> u16 {
        let with = |part: &u16| self.loads.fullness_with(*part, weight);
        (0..self.loads.num_parts() as u16).min_by(|a, b| with(a).total_cmp(&with(b))).unwrap_or(0)
    }

    fn place(&mut self, v: u32, part: u16, edges: &WeightedEdges<'_>) {
        self.assignment[v as usize] = part;
        self.queues.remove(&self.loads, part);
        self.loads.add(part, self.weights.of(v));
        self.queues.insert(&self.loads, part);
        if let Some(votes) = &mut self.votes {
            for (u, weight) in edges.in_edges(v) {
                if self.assignment[u as usize] == UNPLACED {
                    votes.cast(u, part, weight);
                }
            }
        }
    }
}

/// The parts by load and by number of vertices.
struct Queues {
    by_load: BTreeSet<(u64, u64, u16)>,
    by_size: BTreeSet<(u64, u16)>,
}

impl Queues {
    fn of(loads: &Loads) -> Self {
        let mut queues = Self { by_load: BTreeSet::new(), by_size: BTreeSet::new() };
        (0..loads.num_parts() as u16).for_each(|part| queues.insert(loads, part));
        queues
    }

    fn insert(&mut self, loads: &Loads, part: u16) {
        let size = loads.sizes()[part as usize];
        // The bits of floats that are not negative order as the floats do.
        self.by_load.insert((loads.fullness(part).to_bits(), size, part));
        self.by_size.insert((size, part));
    }

    fn remove(&mut self, loads: &Loads, part: u16) {
        let size = loads.sizes()[part as usize];
        self.by_load.remove(&(loads.fullness(part).to_bits(), size, part));
        self.by_size.remove(&(size, part));
    }

    fn lightest(&self) -> u16 {
        self.by_load.first().map_or(0, |first| first.2)
    }

    fn smallest(&self) -> u16 {
        self.by_size.first().map_or(0, |first| first.1)
    }
}

/// For each vertex that is to come, the part that leads among its placed out-neighbours, and by how much.
struct Votes {
    leaders: Vec<u16>,
    leads: Vec<u32>,
}

impl Votes {
    fn new(n: usize) -> Self {
        Self { leaders: vec![UNPLACED; n], leads: vec![0; n] }
    }

    fn of(&self, v: u32) -> (u16, u64) {
        (self.leaders[v as usize], u64::from(self.leads[v as usize]))
    }

    fn cast(&mut self, v: u32, part: u16, weight: u64) {
        let (leader, lead) = (&mut self.leaders[v as usize], &mut self.leads[v as usize]);
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        if *leader == part {
            *lead = lead.saturating_add(weight);
        } else if *lead >= weight {
            *lead -= weight;
        } else {
            (*leader, *lead) = (part, weight - *lead);
        }
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::NoProgress;

    use super::*;
    use crate::tests::{Fixture, communities};

    #[test]
    fn votes_keep_the_leader() {
        let mut votes = Votes::new(2);
        assert_eq!(votes.of(0), (UNPLACED, 0));
        for (part, weight) in [(3, 2), (5, 1), (3, 1), (4, 5), (4, u64::MAX)] {
            votes.cast(0, part, weight);
        }
        assert_eq!(votes.of(0), (4, u64::from(u32::MAX)));
        votes.cast(1, 7, 2);
        votes.cast(1, 8, 2);
        assert_eq!(votes.of(1), (7, 0));
    }

    #[test]
    fn votes_stand_in_for_edges_that_point_the_other_way() {
        // Every edge points to the smaller number: the out-neighbours of a vertex are placed before it, its in-neighbours
        // never, so that all it knows is the vote.
        let graph = communities(4, 100);
        let dataset = graph.dataset();
        let topology = dataset.topology();
        let mut edges: Vec<(u32, u32)> =
            (0..400).flat_map(|v| topology.in_neighbours(v).iter().map(move |&u| (u.max(v), u.min(v)))).collect();
        edges.sort_unstable();
        edges.dedup();
        let both: Vec<(u32, u32)> = edges.iter().flat_map(|&(u, v)| [(u, v), (v, u)]).collect();
        let cut_of = |edges: &[(u32, u32)], expect_both_ways: bool| {
            let graph = Fixture::new("communities", 400, edges);
            let dataset = graph.dataset();
            let problem = Problem::of(dataset.topology(), 4);
            let seen = WeightedEdges::of(&problem);
            assert_eq!(seen.both_ways, expect_both_ways);
            assert_eq!(seen.total(), edges.len() as f64 / if expect_both_ways { 2.0 } else { 1.0 });
            let assignment = stream("test", &problem, &seen, Order::Natural, ldg::score(0.03), &NoProgress);
            edges.iter().filter(|&&(u, v)| assignment[u as usize] != assignment[v as usize]).count()
        };
        let (directed, undirected) = (cut_of(&edges, false), cut_of(&both, true) / 2);
        let random = edges.len() * 3 / 4;
        assert!(undirected < random * 2 / 3, "{undirected}, at random {random}");
        assert!(directed < random * 4 / 5, "{directed}, with both directions {undirected}, at random {random}");
    }
}
