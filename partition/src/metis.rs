//! METIS (Karypis and Kumar, "Multilevel k-way partitioning scheme for irregular graphs", 1998),
//! made safe.
//!
//! Returns a part for each row of an [`Adjacency`], and leaves it to [`repair`](crate::repair) to
//! keep the promises that METIS only aims at: no empty part, balance within ε. Input: 2 to
//! `num_rows - 1` parts. What METIS does not check or survive is settled here: weights are positive
//! and their sums stay below 2^30; no vertex weighs more than a whole part, or its recursive
//! bisection runs out of vertices and says so on standard output; the cut it reports must be the
//! one recomputed from its answer. Cost: near linear; about 10 to 15 times the memory of the graph,
//! see [`peak_bytes`]. Why not the best of several tries (METIS's NCUTS): four cut 1 to 10 % less,
//! in three times the time; and they are compared before the repair.
//!
//! While it runs METIS uses SIGTERM and SIGABRT for its own errors: it raises them itself, leaves
//! its work by a jump, and returns early. On a valid graph it raises SIGTERM only in checks of its
//! own consistency (after a line on standard error), so an unknown failure is taken for a SIGTERM
//! from outside: [`Error::Interrupted`]. A program that may be terminated should keep SIGTERM
//! blocked on every thread and wait for it on one of its own, as gsplit's binaries do: a jump out
//! of malloc leaves malloc locked for good.

use std::sync::{Mutex, PoisonError};

use gsplit_kernels::{Stream, StreamKey};
use gsplit_store::{Progress, Topology};
use metis::option::{Contig, Seed};
use metis::{Graph, Idx};
use rayon::prelude::*;

use crate::adjacency::MAX_ARCS;
use crate::report::EdgeTotals;
use crate::{Adjacency, Error, Layout, Result, VertexWeights};
use gsplit_store::memory::shown;

/// Bound of the sum of the vertex weights of a constraint.
const MAX_TOTAL: u64 = 1 << 30;
/// Mean weight that vertices are scaled to when the sum allows: fine enough that rounding up to 1
/// distorts nothing.
const MEAN_WEIGHT: u64 = 1000;
/// METIS's least tolerance; anything tighter is left to the repair.
const LEAST_TOLERANCE: f32 = 1.001;

/// METIS draws from the C library's one generator and replaces signal handlers while it runs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The part of each row, below `parts`; with `contiguous` METIS keeps each part in one piece.
pub(crate) fn kway(
    graph: &Adjacency,
    weights: &VertexWeights,
    layout: Layout<'_>,
    epsilon: f64,
    seed: u64,
    contiguous: bool,
) -> Result<Vec<u16>> {
    let parts = layout.parts();
    let failed = |error: metis::Error| match error {
        metis::Error::Memory => Error::Metis(
            "not enough memory for this graph; use --partitioner multilevel, or a larger machine"
                .into(),
        ),
        metis::Error::Input => Error::Metis("refused the graph; please report this".into()),
        _ => Error::Interrupted,
    };
    let constraints = weights.constraints();
    let vwgt = (!weights.is_unit()).then(|| scaled(weights, graph.vertices(), layout));
    let tpwgts = layout.targets().map(|targets| {
        let fraction = |target: &f64| (target / f64::from(parts)) as f32;
        targets.iter().flat_map(|target| vec![fraction(target); constraints]).collect::<Vec<f32>>()
    });
    let ubvec = vec![(1.0 + epsilon as f32).max(LEAST_TOLERANCE); constraints];
    let mut part = vec![0; graph.num_rows()];
    let mut call = Graph::new(constraints as Idx, parts as Idx, graph.indptr(), graph.indices())
        .map_err(|error| Error::Metis(error.to_string()))?
        .set_ubvec(&ubvec)
        .set_option(Seed(metis_seed(seed)))
        .set_option(Contig(contiguous));
    if let Some(vwgt) = &vwgt {
        call = call.set_vwgt(vwgt);
    }
    if let Some(tpwgts) = &tpwgts {
        call = call.set_tpwgts(tpwgts);
    }
    if let Some(adjwgt) = graph.weights() {
        call = call.set_adjwgt(adjwgt);
    }
    let reported = {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        call.part_kway(&mut part).map_err(failed)?
    };
    let part: Vec<u16> = part.into_par_iter().map(|part| part as u16).collect();
    let (cut, reported) = (graph.cut(&part), reported as u64);
    if cut != reported || part.par_iter().any(|&part| u32::from(part) >= parts) {
        let problem =
            format!("reported a cut of {reported}, its partition has {cut}; use another --seed");
        return Err(Error::Metis(problem));
    }
    Ok(part)
}

/// Weights of the rows as METIS takes them, interleaved: proportional, at least 1, at most the
/// smallest part's share.
fn scaled(weights: &VertexWeights, vertices: &[u32], layout: Layout<'_>) -> Vec<Idx> {
    let smallest = layout.targets().unwrap_or_default().iter().copied().fold(1.0, f64::min);
    let rows = vertices.len() as u64;
    let budget = (MAX_TOTAL - rows).min(MEAN_WEIGHT * rows);
    let column = |c: usize| {
        let total: u64 = vertices.par_iter().map(|&v| u64::from(weights.of(v)[c])).sum();
        let scale = budget as f64 / total.max(1) as f64;
        let scaled = |&v: &u32| ((f64::from(weights.of(v)[c]) * scale).round() as u64).max(1);
        let column: Vec<u64> = vertices.par_iter().map(scaled).collect();
        let share = ((share(&column, u64::from(layout.parts())) as f64 * smallest) as u64).max(1);
        column.into_par_iter().map(|weight| weight.min(share) as Idx).collect::<Vec<_>>()
    };
    let mut columns: Vec<Vec<Idx>> = (0..weights.constraints()).map(column).collect();
    match columns.len() {
        1 => columns.remove(0),
        _ => (0..vertices.len())
            .flat_map(|row| columns.iter().map(move |column| column[row]))
            .collect(),
    }
}

/// A part's share of the total once every weight above the share is cut down to it: a heavier
/// vertex fills a part by itself, and the other parts share the rest.
fn share(weights: &[u64], parts: u64) -> u64 {
    let (mut rest, mut parts) = (weights.par_iter().sum::<u64>(), parts);
    if weights.par_iter().all(|&weight| weight <= rest / parts) {
        return rest / parts;
    }
    let mut heaviest = weights.to_vec();
    heaviest.par_sort_unstable_by(|a, b| b.cmp(a));
    for weight in heaviest {
        if parts == 1 || weight <= rest / parts {
            break;
        }
        (rest, parts) = (rest - weight, parts - 1);
    }
    (rest / parts).max(1)
}

/// Most memory that symmetrising and METIS hold at once, in bytes, mapped files not counted: what
/// graphs without locality take, which coarsen slowly; others stay below.
///
/// | graph | vertices | arcs | measured (k = 8; unit, 2 constraints, pre-sampled) | this bound |
/// | --- | --- | --- | --- | --- |
/// | com-DBLP | 317 080 | 2 099 732 | 78, 86, 78 MB | 170 MB |
/// | ogbn-arxiv | 169 343 | 2 315 598 | 111, 113, 109 MB | 170 MB |
/// | R-MAT | 500 000 | 14 797 902 | 973, 977, 957 MB | 1027 MB |
/// | planted communities | 1 000 000 | 19 958 538 | 1416, 1304, 1410 MB | 1417 MB |
fn peak_bytes(vertices: u64, arcs: u64) -> u64 {
    100 * vertices + 66 * arcs
}

/// Fails on graphs of more arcs than METIS takes, before memory is spent on them. Notes that METIS
/// may need more memory than there is, where that is so; fails instead where that is the rest of a
/// `budget` that was asked for.
pub(crate) fn check_size(
    topology: &Topology,
    available: u64,
    budget: Option<u64>,
    progress: &dyn Progress,
) -> Result<()> {
    let (vertices, m) = (topology.num_vertices(), topology.num_edges() as u64);
    let peak = |arcs: u64| peak_bytes(vertices as u64, arcs);
    // Every edge is two arcs at most. Counting them takes time, so that is done where it matters.
    if 2 * m <= MAX_ARCS && peak(2 * m) <= available {
        return Ok(());
    }
    let arcs = count_arcs(topology);
    if arcs > MAX_ARCS {
        return Err(Error::TooLarge { vertices, arcs });
    }
    let need = peak(arcs);
    if need > available {
        let need = shown(need);
        let problem = format!("METIS may need up to {need}, {} are available", shown(available));
        if budget.is_some() {
            return Err(Error::Option(format!(
                "--memory: {problem}: pass a larger one, or --partitioner multilevel"
            )));
        }
        progress
            .note(&format!("warning: {problem}; --partitioner multilevel needs a fraction of it"));
    }
    Ok(())
}

/// Arcs of the symmetrised graph: twice the number of adjacent pairs.
pub(crate) fn count_arcs(topology: &Topology) -> u64 {
    2 * EdgeTotals::count(topology, &vec![0; topology.num_vertices()], None).pairs
}

/// A seed as METIS takes it: 31 bits, and not 0, which the C library takes for 1.
fn metis_seed(seed: u64) -> Idx {
    let [word, ..] = StreamKey::new(seed, Stream::Assign).block(0, 0);
    ((word >> 1).max(1)) as Idx
}

#[cfg(test)]
mod tests {
    use super::*;
    use gsplit_store::Notes;

    use crate::tests::{communities, graphs};

    #[test]
    fn weights_keep_their_proportions_and_stay_in_range() {
        let heavy = vec![0, 1, 3, u32::MAX / 2, u32::MAX];
        let weights = VertexWeights::new(5, &[heavy, vec![1, 1, 0, 0, 0]]);
        let scaled = scaled(&weights, &[0, 1, 2, 3, 4], 2.into());
        // Both constraints share 5000. The heaviest vertex of the first fills a part by itself, so
        // it weighs the remaining share.
        let column = |c: usize| scaled.iter().skip(c).step_by(2).copied().collect::<Vec<_>>();
        assert_eq!(column(0), [1, 1, 1, 1667, 1670]);
        assert_eq!(column(1), [2500, 2500, 1, 1, 1]);
    }

    #[test]
    fn heavy_vertices_are_cut_down_to_a_share_of_what_they_leave() {
        assert_eq!(share(&[1, 1, 1, 1], 2), 2);
        assert_eq!(share(&[1000, 1, 1, 1, 1], 2), 4);
        assert_eq!(share(&[1000, 500, 3, 3], 3), 6);
        assert_eq!(share(&[9, 9], 2), 9);
        assert_eq!(share(&[1, 1], 5), 1);
    }

    #[test]
    fn too_little_memory_is_told_beforehand() {
        let graph = communities(4, 100);
        let dataset = graph.dataset();
        let topology = dataset.topology();
        let need = peak_bytes(400, count_arcs(topology));
        let notes = |available| {
            let notes = Notes::default();
            check_size(topology, available, None, &notes).unwrap();
            notes.lines()
        };
        assert_eq!(notes(need), [""; 0]);
        let notes = notes(need - 1);
        assert!(notes.len() == 1 && notes[0].contains("--partitioner multilevel"), "{notes:?}");
        let line =
            check_size(topology, need - 1, Some(need), &Notes::default()).unwrap_err().to_string();
        assert!(line.starts_with("--memory: METIS may need up to"), "{line}");
    }

    #[test]
    fn seeds_are_used_and_repeatable() {
        let seeds: std::collections::BTreeSet<Idx> = (0..100).map(metis_seed).collect();
        assert_eq!(seeds.len(), 100);
        let graph = graphs().into_iter().find(|graph| graph.name == "communities").unwrap();
        let dataset = graph.dataset();
        let adjacency = Adjacency::build(dataset.topology(), None).unwrap();
        let weights = VertexWeights::unit(dataset.num_vertices());
        let run = |seed| kway(&adjacency, &weights, 5.into(), 0.03, seed, false).unwrap();
        assert_eq!(run(1), run(1));
        assert!((2..6).any(|seed| run(seed) != run(1)));
    }
}
