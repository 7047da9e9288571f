//! Quality of a partition, computed only from the topology, the assignment and the counters.
//!
//! Returns cut, weighted cut, balance, connected pieces and the expected share of cross edges. By
//! GSplit's section 4, the pre-sampled counts of the edges between parts over the number of
//! mini-batches are the expected cross edges of a mini-batch. Input: one part below `parts` for
//! each vertex. Pairs are counted at their first mention: {u, v} in the in-neighbours of the larger
//! end, or of the smaller when the larger has no such edge. Cost: O(m log d), parallel, O(k) memory
//! a thread.

use gsplit_store::{Balance, Dataset, PartitionReport, Pieces, Presample, ServerCut, Topology};
use rayon::prelude::*;

use crate::loads::Loads;
use crate::symmetric::is_symmetric;
use crate::weights::targets;
use crate::{Layout, Result, VertexWeights, pieces};

/// Vertices that one task handles together.
const VERTICES_PER_TASK: usize = 1 << 14;

/// Judges `assignment`. `weights` are the balanced weights of the partitioner; `presample` gives
/// the expectations for training.
pub(crate) fn report(
    dataset: &Dataset,
    assignment: &[u16],
    layout: Layout<'_>,
    weights: &VertexWeights,
    presample: Option<&Presample>,
) -> Result<PartitionReport> {
    let topology = dataset.topology();
    let counts = presample.map(Presample::edge);
    let edges = EdgeTotals::count(topology, assignment, counts);
    let servers = |part: &u16| layout.server_of(*part);
    let between_servers = (layout.servers() > 1).then(|| {
        EdgeTotals::count(
            topology,
            &assignment.par_iter().map(servers).collect::<Vec<u16>>(),
            counts,
        )
    });
    let loads = Loads::of(layout, weights, assignment);
    let balance_of =
        |weight: &(dyn Fn(usize) -> u64 + Sync)| max_over_target(assignment, layout, weight);
    let in_degree = |v: usize| topology.indptr()[v + 1] - topology.indptr()[v];
    let balance = Balance {
        vertices: balance_of(&|_| 1),
        edges: balance_of(&in_degree),
        targets: targets(dataset)?.map(|marks| balance_of(&|v| u64::from(marks[v]))),
        work: presample.map(|presample| balance_of(&|v| u64::from(presample.work()[v]))),
    };
    let batches = |presample: &Presample| presample.meta().num_batches.max(1) as f64;
    let share = |edges: EdgeTotals| edges.cross as f64 / edges.total.max(1) as f64;
    let a_batch =
        |edges: EdgeTotals| presample.map(|presample| edges.cross as f64 / batches(presample));
    Ok(PartitionReport {
        part_sizes: loads.sizes().to_vec(),
        cut: edges.cut,
        adjacent_pairs: edges.pairs,
        weighted_cut: edges.cross,
        total_weight: edges.total,
        imbalance: loads.imbalance(),
        balance,
        expected_cross_share: share(edges),
        expected_cross_edges: a_batch(edges),
        between_servers: between_servers.map(|edges| ServerCut {
            cut: edges.cut,
            weighted_cut: edges.cross,
            expected_cross_share: share(edges),
            expected_cross_edges: a_batch(edges),
        }),
        pieces: (topology.num_edges() <= MOST_EDGES).then(|| Pieces {
            parts: pieces::of_topology(topology, |v, u| {
                assignment[u as usize] == assignment[v as usize]
            }),
            graph: pieces::of_topology(topology, |_, _| true),
        }),
        own_weights: None,
        of_target: layout
            .targets()
            .map(|_| (0..layout.parts() as u16).map(|part| loads.fullness(part)).collect()),
    })
}

/// Maximum number of edges of a graph whose pieces are counted.
const MOST_EDGES: usize = 200_000_000;

/// Sums over edges, each weighing its count (1 without counts), and over adjacent pairs.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct EdgeTotals {
    pub cut: u64,
    pub pairs: u64,
    pub cross: u64,
    pub total: u64,
}

impl EdgeTotals {
    pub fn count(topology: &Topology, assignment: &[u16], counts: Option<&[u32]>) -> Self {
        let both_ways = is_symmetric(topology);
        let of_vertex = |v: u32| {
            let start = topology.indptr()[v as usize] as usize;
            let mut totals = Self::default();
            let mut previous = None;
            for (e, &u) in (start..).zip(topology.in_neighbours(v)) {
                let count = counts.map_or(1, |counts| u64::from(counts[e]));
                let cross = assignment[u as usize] != assignment[v as usize];
                totals.total += count;
                totals.cross += if cross { count } else { 0 };
                let mentioned =
                    previous == Some(u) || u > v && (both_ways || topology.has_edge(v, u));
                if u != v && !mentioned {
                    totals.pairs += 1;
                    totals.cut += u64::from(cross);
                }
                previous = Some(u);
            }
            totals
        };
        let vertices = (0..topology.num_vertices() as u32).into_par_iter().with_min_len(1024);
        vertices.map(of_vertex).reduce(Self::default, |a, b| Self {
            cut: a.cut + b.cut,
            pairs: a.pairs + b.pairs,
            cross: a.cross + b.cross,
            total: a.total + b.total,
        })
    }
}

/// The largest load of a part over its target, the mean unless there are targets, when vertex `v`
/// weighs `weight(v)`; 1 when nothing weighs anything.
pub(crate) fn max_over_target(
    assignment: &[u16],
    layout: Layout<'_>,
    weight: &(dyn Fn(usize) -> u64 + Sync),
) -> f64 {
    let parts = layout.parts();
    let part_loads = |(task, part_of): (usize, &[u16])| {
        let mut loads = vec![0u64; parts as usize];
        for (v, &part) in (task * VERTICES_PER_TASK..).zip(part_of) {
            loads[part as usize] += weight(v);
        }
        loads
    };
    let add = |mut a: Vec<u64>, b: Vec<u64>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    let loads =
        assignment.par_chunks(VERTICES_PER_TASK).enumerate().map(part_loads).reduce_with(add);
    let loads = loads.unwrap_or_default();
    let total = loads.iter().sum::<u64>();
    let over_target = |(part, &load): (u16, &u64)| {
        load as f64 * f64::from(parts) / total as f64 / layout.target(part)
    };
    if total == 0 { 1.0 } else { (0..).zip(&loads).map(over_target).fold(0.0, f64::max) }
}
