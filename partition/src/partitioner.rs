//! The interface of partitioners, and the one place that turns a [`Method`] into one.

use std::path::Path;

use gsplit_store::{Progress, Topology, Unit};

use crate::baseline::{Hash, Random};
use crate::loads::Loads;
use crate::multilevel::{Multilevel, Quality};
use crate::range::Range;
use crate::repair::{balance, fill_empty_parts};
use crate::spread::spread;
use crate::{
    Adjacency, Error, Layout, Method, PartitionOptions, Result, VertexWeights, metis, pieces,
};
use gsplit_store::memory::{Memory, resident};

/// A graph to be cut into parts.
pub(crate) struct Problem<'a> {
    /// The graph.
    pub topology: &'a Topology,
    /// Weights of the vertices, which the parts share evenly.
    pub weights: VertexWeights,
    /// Cost of cutting each edge, one count per edge of the topology; `None` when every adjacent
    /// pair costs 1.
    pub edge_counts: Option<&'a [u32]>,
    /// Number of parts: at least 2, at most as many as there are vertices.
    pub parts: u32,
    /// Number of servers, with the same number of parts on each; vertices are cut between servers
    /// first.
    pub servers: u32,
    /// Target of each part over their mean; `None` where all are to be equal.
    pub targets: Option<Vec<f64>>,
    /// Allowed imbalance.
    pub epsilon: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// How much work goes into a small cut.
    pub quality: Quality,
    /// Bytes that the process may hold besides mapped files; if `None`, four fifths of the free
    /// memory more.
    pub memory: Option<u64>,
    /// Folder for arrays that do not fit.
    pub folder: &'a Path,
    /// Parts to improve, one below `parts` for each vertex.
    pub start: Option<&'a [u16]>,
}

impl Problem<'_> {
    /// Parts, servers and targets.
    pub fn layout(&self) -> Layout<'_> {
        Layout::new(self.parts, self.servers).with_targets(self.targets.as_deref())
    }
}

impl<'a> Problem<'a> {
    /// A problem of `parts` parts on one server, where vertices and edges weigh 1.
    pub fn of(topology: &'a Topology, parts: u32) -> Self {
        Self {
            topology,
            weights: VertexWeights::unit(topology.num_vertices()),
            edge_counts: None,
            parts,
            servers: 1,
            targets: None,
            epsilon: 0.03,
            seed: 0,
            quality: Quality::Default,
            memory: None,
            folder: Path::new(""),
            start: None,
        }
    }
}

/// Cuts graphs into parts.
pub(crate) trait Partitioner {
    /// The part of every vertex, below `problem.parts`; no part is empty. The same problem gets the
    /// same answer, for any number of threads.
    fn assign(&self, problem: &Problem<'_>, progress: &dyn Progress) -> Result<Vec<u16>>;
}

impl PartitionOptions {
    /// The partitioner that is asked for.
    pub(crate) fn implementation(&self) -> Box<dyn Partitioner> {
        match self.partitioner {
            Method::Multilevel => Box::new(Multilevel),
            Method::Metis => Box::new(Metis { contiguous: self.contiguous }),
            Method::Random => Box::new(Random),
            Method::Hash => Box::new(Hash),
            Method::Range => Box::new(Range),
        }
    }
}

/// METIS on the vertices that have neighbours, the others spread, then what METIS only aimed at
/// made true.
struct Metis {
    /// Whether each part should be connected.
    contiguous: bool,
}

impl Partitioner for Metis {
    fn assign(&self, problem: &Problem<'_>, progress: &dyn Progress) -> Result<Vec<u16>> {
        let free = Memory::of_this_machine().available();
        let left = problem.memory.map_or(free, |budget| budget.saturating_sub(resident()));
        metis::check_size(problem.topology, left, problem.memory, progress)?;
        let stage = progress.stage("symmetrise", None, Unit::Items("edges"));
        let graph = Adjacency::build(problem.topology, problem.edge_counts)?;
        stage.advance(problem.topology.num_edges() as u64);
        drop(stage);
        if self.contiguous {
            let pieces = pieces::of_topology(problem.topology, |_, _| true);
            if pieces > 1 {
                let problem =
                    format!("--contiguous: the graph is not connected, it has {pieces} components");
                return Err(Error::Option(format!("{problem}; leave --contiguous out")));
            }
        }

        let stage = progress.stage("metis", None, Unit::Items("vertices"));
        let (Problem { weights, parts, epsilon, seed, .. }, layout) = (problem, problem.layout());
        let mut assignment = vec![0; problem.topology.num_vertices()];
        let mut loads = Loads::empty(layout, weights);
        let mut left = vec![true; assignment.len()];
        // METIS needs more vertices than parts.
        if graph.num_rows() > *parts as usize {
            let found = metis::kway(&graph, weights, layout, *epsilon, *seed, self.contiguous)?;
            for (&v, part) in graph.vertices().iter().zip(found) {
                assignment[v as usize] = part;
                loads.add(part, weights.of(v));
                left[v as usize] = false;
            }
        }
        let mut left: Vec<u32> =
            (0..assignment.len() as u32).filter(|&v| left[v as usize]).collect();
        spread(&mut left, weights, &mut loads, &mut assignment);
        fill_empty_parts(&mut assignment, weights, layout);
        balance(&mut assignment, &graph, weights, layout, *epsilon);
        stage.advance(graph.num_rows() as u64);
        Ok(assignment)
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::NoProgress;

    use super::*;
    use crate::tests::Fixture;

    #[test]
    fn contiguous_parts_lie_in_one_piece_each() {
        let side = 30;
        let pairs = (0..side * side).flat_map(|v| {
            [(v % side > 0).then(|| (v, v - 1)), (v >= side && v % 7 > 2).then(|| (v, v - side))]
                .into_iter()
                .flatten()
        });
        let dataset = Fixture::new("streets", side * side, &pairs.collect::<Vec<_>>()).dataset();
        let pieces = |contiguous, seed| {
            let problem = Problem { seed, ..Problem::of(dataset.topology(), 20) };
            let made = Metis { contiguous }.assign(&problem, &NoProgress).unwrap();
            pieces::of_topology(problem.topology, |v, u| made[v as usize] == made[u as usize])
        };
        let [asked, free] = [true, false]
            .map(|contiguous| (0..20).map(|seed| pieces(contiguous, seed)).sum::<u64>());
        println!("pieces of 20 times 20 parts: {asked}, without the option {free}");
        assert!(asked == 400 && free > 400, "{asked} {free}");
    }
}
