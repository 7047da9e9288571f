//! The built-in multilevel partitioner.
//!
//! Returns a part for each vertex; [`repair`](crate::repair) then keeps the promises. Input: any
//! topology that has passed `check_indices`, and perhaps a count for each edge. Idea: clusters of
//! vertices that belong together are contracted, again and again, until the graph is small; that
//! one is cut by recursive bisection, several times, the best is kept; then the parts are carried
//! back up, and refined on every level (Hendrickson and Leland, 1995; with clusters instead of
//! matchings as in KaHIP and KaMinPar). Where there are many parts the coarsest graph is cut into
//! 16 bundles of them, and each bundle separately once a level has the vertices for it (Gottesbüren
//! et al., "Deep multilevel graph partitioning", 2021). With quality `high` every level is refined
//! by Jet too, and the whole is repeated with clusters that respect the parts (V-cycles; Walshaw,
//! 2004). Parts on several servers take two runs, the second with clusters that respect the
//! servers. The finest graph is read from the mapped topology. Cost: O(m) per round of clustering
//! or refinement, parallel; about 25 bytes per vertex, one per arc with counts, 4 per edge without
//! an edge the other way, and the coarser graphs; less if that does not fit ([`Room`]). The same
//! seed gives the same parts, for any number of threads, where there is room.

mod arc_weights;
mod cluster;
mod contract;
mod cycles;
mod fm;
mod graph;
mod in_order;
mod initial;
mod jet;
mod kept;
mod label_weights;
mod one_way;
mod pieces;
mod refine;
mod room;
mod servers;
#[cfg(test)]
mod tests;
mod undirected;

use gsplit_store::Progress;

use crate::repair::{balance, fill_empty_parts};
use crate::{Partitioner, Problem, Result};
use cycles::{Cycles, Effort, are_small, is_thin};
use room::Room;
use undirected::Undirected;

/// How much work goes into a small cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Quality {
    /// Few rounds and one initial cut
    Fast,
    /// Several initial cuts, rounds until little moves
    #[default]
    Default,
    /// Also V-cycles, and refinement by Jet, and by Fiduccia-Mattheyses on larger graphs: a smaller
    /// cut in four to six times the time
    High,
}

/// Label propagation clustering, recursive bisection of the coarsest graph, refinement by label
/// propagation and by FM.
pub(crate) struct Multilevel;

impl Partitioner for Multilevel {
    fn assign(&self, problem: &Problem<'_>, progress: &dyn Progress) -> Result<Vec<u16>> {
        let room = Room::of(problem, progress)?;
        let graph =
            Undirected::new(problem.topology, problem.edge_counts, room.at_work, room.folder)?;
        let layout = match problem.layout() {
            // With one part per server, the cut between parts is the cut between servers.
            layout if layout.per_server() == 1 => layout.on_one_server(),
            layout => layout,
        };
        let Problem { seed, epsilon, weights, .. } = problem;
        let cycles = Cycles {
            layout,
            epsilon: *epsilon,
            seed: *seed,
            effort: Effort::of(problem.quality),
            max_arcs: room.max_arcs,
            thin: is_thin(&graph),
            small_parts: are_small(&graph, layout.parts()),
            progress,
        };
        let mut assignment = match layout.servers() {
            1 => cycles.partition(&graph, weights, problem.start, None),
            _ => servers::assign(problem, &graph, &cycles),
        };
        fill_empty_parts(&mut assignment, weights, layout);
        balance(&mut assignment, &graph, weights, layout, *epsilon);
        Ok(assignment)
    }
}
