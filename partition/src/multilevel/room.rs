//! Memory of the multilevel scheme: which arrays are in memory or in a file, and how large coarse
//! graphs may be.
//!
//! If everything fits, arrays of the finest level are in memory and coarse graphs have any size.
//! Otherwise the arrays are in a file, which is read in order, and coarse graphs are sampled until
//! they fit; the cut may then be a little larger. Input: the memory that `--memory` leaves, by
//! default four fifths of the free memory. The mapped graph and counters do not count: the system
//! caches as much of them as it can.

use std::path::Path;

use gsplit_store::Progress;
use gsplit_store::memory::{Memory, resident, shown};

use super::Quality;
use super::cycles::default_max_arcs;
use super::jet;
use crate::symmetric::is_symmetric;
use crate::{Error, Problem, Result};

/// Bytes of a vertex, at most at once: weights, labels, loads of clusters, members, parts and
/// coarse vertices of all levels.
const VERTEX: u64 = 36;
/// Bytes of a vertex for each weight that is balanced.
const WEIGHT: u64 = 12;
/// Bytes of an arc of a coarse graph.
const ARC: u64 = 8;
/// Arcs of a vertex, in all coarse graphs together, that make them worth cutting.
const LEAST_ARCS: u64 = 2;

/// Room of one partition.
pub(super) struct Room<'a> {
    /// Bytes for turning edges round.
    pub at_work: u64,
    /// Folder for arrays of the finest level, if they do not fit.
    pub folder: Option<&'a Path>,
    /// Most arcs of all coarse graphs together.
    pub max_arcs: u64,
}

impl<'a> Room<'a> {
    /// The room of `problem`. Fails where the coarse graphs would be too small to be worth it.
    pub fn of(problem: &Problem<'a>, progress: &dyn Progress) -> Result<Self> {
        let (held, free) = (resident(), Memory::of_this_machine().available());
        let budget = problem.memory.unwrap_or(held + free / 5 * 4);
        Self::within(problem, held, budget, progress)
    }

    /// The same for a process that already holds `held` of `budget` bytes.
    fn within(
        problem: &Problem<'a>,
        held: u64,
        budget: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let left = budget.saturating_sub(held);
        let (n, m) = (problem.topology.num_vertices() as u64, problem.topology.num_edges() as u64);
        let one_way = if is_symmetric(problem.topology) { 0 } else { m };
        let counted = problem.edge_counts.map_or(0, |_| m + one_way);
        let jet = if problem.quality == Quality::High { jet::BYTES } else { 0 };
        let of_vertices = n * (VERTEX + WEIGHT * problem.weights.constraints() as u64 + jet);
        let kept = size_of::<u32>() as u64 * one_way + counted;
        let arcs = m + one_way;
        let coarse = ARC * (default_max_arcs(arcs) + 3 * default_max_arcs(0)).min(2 * arcs);
        if of_vertices + kept + coarse <= left {
            return Ok(Self {
                at_work: left - of_vertices - kept,
                folder: None,
                max_arcs: u64::MAX,
            });
        }
        let least = of_vertices + ARC * LEAST_ARCS * n;
        if least > left {
            let (least, budget) = ((held + least).div_ceil(1 << 20), shown(budget));
            return Err(Error::Option(format!(
                "--memory: to partition {n} vertices takes {} besides the graph, and {budget} are \
                 the budget: pass --memory {least}MiB or \
                 more, or --partitioner range, which needs a few bytes a vertex",
                shown(least << 20),
            )));
        }
        let room = left - of_vertices;
        progress.note(&format!(
            "note: arrays of the graph's size lie in a file of {} in the dataset's folder while \
             parts are made, and coarse graphs are sampled to \
             {}: more memory may make the cut smaller",
            shown(kept),
            shown(room.min(coarse)),
        ));
        Ok(Self { at_work: room / 2, folder: Some(problem.folder), max_arcs: room / ARC })
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::Notes;

    use super::*;
    use crate::tests::communities;

    #[test]
    fn what_does_not_fit_goes_to_a_file_and_what_cannot_be_is_refused() {
        let graph = communities(4, 500);
        let dataset = graph.dataset();
        let counts = vec![1; dataset.topology().num_edges()];
        let n = dataset.num_vertices() as u64;
        let problem = Problem {
            edge_counts: Some(&counts),
            folder: dataset.path(),
            ..Problem::of(dataset.topology(), 4)
        };
        let (held, vertices, notes) = (1 << 30, n * (VERTEX + WEIGHT), Notes::default());
        let within = |left: u64| Room::within(&problem, held, held + left, &notes);
        let all = within(1 << 40).unwrap();
        assert!(all.folder.is_none() && all.max_arcs == u64::MAX && notes.lines().is_empty());
        let least = vertices + ARC * LEAST_ARCS * n;
        let few = within(least).unwrap();
        assert_eq!((few.folder, few.max_arcs), (Some(dataset.path()), LEAST_ARCS * n));
        assert!(notes.lines()[0].contains("lie in a file of"), "{:?}", notes.lines());
        let line = within(least - 1).err().unwrap().to_string();
        let enough = (held + least).div_ceil(1 << 20);
        assert!(
            line.starts_with("--memory: ") && line.contains(&format!("pass --memory {enough}MiB")),
            "{line}"
        );
    }
}
