//! Work of cooperative mini-batches (`--parallelism cooperative`, GraNNDis).
//!
//! Returns: work of a mini-batch. Input: a partition map, and the groups of its parts: each of its
//! servers is one (GraNNDis), or all parts are one (full-graph training that is split over all
//! servers). Idea: a group reads everything that its seeds reach ([`Expansion`]), and the map
//! divides this between its ranks. A layer computes the vertices that the layers above need, and
//! takes all edges between the vertices that are read. Once a layer reads no more than it computes,
//! the layers below do the same. Cost: for each mini-batch, one pass per layer until then over the
//! edges of the vertices that a group reads, for every 64 ranks of a group; some ten bytes per
//! vertex.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_kernels::schedule::epoch_seeds;
use gsplit_kernels::{Expansion, Fanout, Graph};
use gsplit_store::{Dataset, PartitionMap, Split};
use rayon::prelude::*;

use super::Work;
use super::volume::{Counts, LayerCounts};
use crate::{Layout, Result};

/// How mini-batches are made.
#[derive(Clone, Copy, Debug)]
pub struct Cooperative {
    /// Mini-batches of an epoch, at least 1.
    pub batches: usize,
    /// Groups of parts: 1, or as many as the map has servers.
    pub groups: usize,
    /// Layers of the model.
    pub layers: usize,
    /// Hops beyond a group.
    pub hops: usize,
    /// In-neighbours of a vertex on each.
    pub fanout: Fanout,
    /// Seed of the run.
    pub seed: u64,
}

/// Counts what all ranks do, one for each part of `map`.
pub fn cooperative(dataset: &Dataset, map: &PartitionMap, made: Cooperative) -> Result<Work> {
    let (topology, train) = (dataset.topology(), dataset.split(Split::Train)?);
    let graph = Graph::new(topology.indptr(), topology.indices())?;
    let (parts, groups) = (map.num_parts() as u32, made.groups as u32);
    let order = epoch_seeds(&train, made.seed, 0)?;
    let groups_of = Layout::new(parts, groups);
    let within = Layout::new(groups_of.per_server(), map.num_servers() as u32 / groups);
    let owners: Vec<u16> =
        map.assignment().par_iter().map(|part| part % within.parts() as u16).collect();
    let count = |batch: usize| -> Result<Counts> {
        let items =
            &order[train.len() * batch / made.batches..train.len() * (batch + 1) / made.batches];
        let mut counts =
            Counts { layers: vec![LayerCounts::default(); made.layers], ..Counts::default() };
        for group in 0..made.groups as u16 {
            let parts = groups_of.parts_of(group);
            let group = Expansion {
                parts: map.assignment(),
                own: parts.start.into()..parts.end.into(),
                layers: made.layers,
                hops: made.hops.min(made.layers) as u8,
                fanout: made.fanout,
            };
            let seeds: Vec<u32> = items.iter().copied().filter(|&v| group.owns(v)).collect();
            // Nothing is outside the only group.
            let beyond = made.groups > 1;
            let reach =
                beyond.then(|| group.reach(graph, &seeds, &Expansion::key(made.seed, batch)));
            let reads = |v: u32| reach.as_ref().is_none_or(|reach| reach.reads(v));
            add_group(&mut counts, (graph, &reads), seeds, &owners, within);
        }
        Ok(counts)
    };
    let counts = (0..made.batches).map(count).collect::<Result<Vec<Counts>>>()?;
    Ok(Work::of(counts.iter(), parts))
}

/// A graph, and which of its vertices a group reads.
type Read<'a> = (Graph<'a>, &'a (dyn Fn(u32) -> bool + Sync));

/// The in-neighbours of `v` that are read.
fn sources<'a>((graph, reads): Read<'a>, v: u32) -> impl Iterator<Item = u32> + 'a {
    let edges = graph.in_edges(v);
    graph.indices[edges.start as usize..edges.end as usize]
        .iter()
        .copied()
        .filter(move |&u| reads(u))
}

/// Adds the work of the ranks of a group that read the rows `read` for `seeds`.
fn add_group(counts: &mut Counts, read: Read<'_>, seeds: Vec<u32>, owners: &[u16], layout: Layout) {
    let ranks = layout.parts() as usize;
    let mut edges = vec![0u64; ranks];
    let mut frontier = seeds;
    let mut same: Option<(LayerCounts, Vec<u64>)> = None;
    for sums in &mut counts.layers {
        let (layer, of_rank) = same.take().unwrap_or_else(|| {
            let edges_of =
                |&v: &u32| (owners[v as usize] as usize, sources(read, v).count() as u64);
            let mut of_rank = vec![0u64; ranks];
            let edges: Vec<(usize, u64)> = frontier.par_iter().map(edges_of).collect();
            edges.into_iter().for_each(|(rank, edges)| of_rank[rank] += edges);
            let vertices = frontier.len() as u64;
            let [exchanged, abroad] = add_below(&mut frontier, read, owners, layout);
            let layer = LayerCounts { vertices, edges: of_rank.iter().sum(), exchanged, abroad };
            (layer, of_rank)
        });
        sums.vertices += layer.vertices;
        sums.edges += layer.edges;
        sums.exchanged += layer.exchanged;
        sums.abroad += layer.abroad;
        edges.iter_mut().zip(&of_rank).for_each(|(sum, edges)| *sum += edges);
        same = (layer.vertices == frontier.len() as u64).then_some((layer, of_rank));
    }
    let mut rows = vec![0u64; ranks];
    frontier.iter().for_each(|&v| rows[owners[v as usize] as usize] += 1);
    counts.rows += frontier.len() as u64;
    counts.most_rows = counts.most_rows.max(rows.into_iter().max().unwrap_or(0));
    counts.most_edges = counts.most_edges.max(edges.into_iter().max().unwrap_or(0));
}

/// Adds the sources of `frontier` to it. Returns the rows that ranks read from others, and how many
/// of these are on other servers.
fn add_below(frontier: &mut Vec<u32>, read: Read<'_>, owners: &[u16], layout: Layout) -> [u64; 2] {
    let (mut exchanged, mut abroad) = (0, 0);
    let mut readers: Vec<AtomicU64> = (0..owners.len()).map(|_| AtomicU64::new(0)).collect();
    let computed = frontier.len();
    let mut is_there = vec![false; owners.len()];
    frontier.iter().for_each(|&v| is_there[v as usize] = true);
    for first in (0..layout.parts() as u16).step_by(64) {
        let bit_of = |rank: u16| {
            rank.checked_sub(first).filter(|&bit| bit < 64).map_or(0, |bit| 1u64 << bit)
        };
        let server_of = |rank: u16| layout.siblings(rank).fold(0, |bits, rank| bits | bit_of(rank));
        let servers: Vec<u64> = (0..layout.parts() as u16).map(server_of).collect();
        readers.par_iter_mut().for_each(|readers| *readers.get_mut() = 0);
        frontier[..computed].par_iter().for_each(|&v| {
            let reader = bit_of(owners[v as usize]);
            for u in sources(read, v).filter(|_| reader != 0) {
                let readers = &readers[u as usize];
                // Most sources are read several times.
                if readers.load(Relaxed) & reader == 0 {
                    readers.fetch_or(reader, Relaxed);
                }
            }
        });
        let counts = readers.par_iter().zip(owners).map(|(readers, &owner)| {
            let readers = readers.load(Relaxed);
            [bit_of(owner), servers[owner as usize]]
                .map(|near| u64::from((readers & !near).count_ones()))
        });
        let sums = counts.reduce(|| [0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        exchanged += sums[0];
        abroad += sums[1];
        let is_new = |&u: &u32| readers[u as usize].load(Relaxed) != 0 && !is_there[u as usize];
        let new: Vec<u32> = (0..owners.len() as u32).into_par_iter().filter(is_new).collect();
        new.iter().for_each(|&u| is_there[u as usize] = true);
        frontier.extend(new);
    }
    [exchanged, abroad]
}
