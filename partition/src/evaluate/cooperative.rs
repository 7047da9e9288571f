//! What cooperative mini-batches take (`--parallelism cooperative`, GraNNDis).
//!
//! Returns: work of a mini-batch. Input: a partition map, whose servers are those of the run. Idea: a server reads what its seeds
//! reach ([`Expansion`]), and its ranks share that by the map. A layer computes what the layers above need, and takes all edges among
//! what is read. Once a layer reads no more than it computes, those below do the same.
//! Cost: a pass over the edges of what a server reads for each layer until then, for every 64 ranks of a server; 8 bytes a vertex, and
//! the edges.

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
    /// Of them, the first ones that are counted.
    pub counted: usize,
    /// Layers of the model.
    pub layers: usize,
    /// Hops beyond a server.
    pub hops: usize,
    /// In-neighbours of a vertex on each.
    pub fanout: Fanout,
    /// Seed of the run.
    pub seed: u64,
}

/// Counts what all ranks do, one for each part of `map`.
///
/// # Errors
/// On a damaged topology.
pub fn cooperative(dataset: &Dataset, map: &PartitionMap, made: Cooperative) -> Result<Work> {
    let (topology, train) = (dataset.topology(), dataset.split(Split::Train)?);
    let graph = Graph::new(topology.indptr(), topology.indices())?;
    let layout = Layout::new(map.num_parts() as u32, map.num_servers() as u32);
    let order = epoch_seeds(&train, made.seed, 0)?;
    let ranks = layout.per_server() as u16;
    let owners: Vec<u16> = map.assignment().par_iter().map(|part| part % ranks).collect();
    let count = |batch: usize| -> Result<Counts> {
        let items = &order[train.len() * batch / made.batches..train.len() * (batch + 1) / made.batches];
        let mut counts = Counts { layers: vec![LayerCounts::default(); made.layers], ..Counts::default() };
        for server in 0..layout.servers() as u16 {
            let parts = layout.parts_of(server);
            let server = Expansion {
                parts: map.assignment(),
                own: parts.start.into()..parts.end.into(),
                layers: made.layers,
                hops: made.hops.min(made.layers) as u8,
                fanout: made.fanout,
            };
            let seeds: Vec<u32> = items.iter().copied().filter(|&v| server.owns(v)).collect();
            let (indptr, indices) = server.reach(graph, &seeds, &Expansion::key(made.seed, batch)).edges(graph);
            add_server(&mut counts, Graph::new(&indptr, &indices)?, seeds, &owners, ranks);
        }
        Ok(counts)
    };
    let counts = (0..made.counted.min(made.batches)).map(count).collect::<Result<Vec<Counts>>>()?;
    Ok(Work::of(counts.iter(), layout.parts()))
}

/// Adds what the ranks of a server do that reads `graph` for `seeds`.
fn add_server(counts: &mut Counts, graph: Graph<'_>, seeds: Vec<u32>, owners: &[u16], ranks: u16) {
    let sources = |v: u32| {
        let edges = graph.in_edges(v);
        &graph.indices[edges.start as usize..edges.end as usize]
    };
    let mut edges = vec![0u64; ranks.into()];
    let mut frontier = seeds;
    let mut same: Option<(LayerCounts, Vec<u64>)> = None;
    for sums in &mut counts.layers {
        let (layer, of_rank) = same.take().unwrap_or_else(|| {
            let mut of_rank = vec![0u64; ranks.into()];
            frontier.iter().for_each(|&v| of_rank[owners[v as usize] as usize] += sources(v).len() as u64);
            let (computed, exchanged) = (frontier.len(), add_below(&mut frontier, &sources, owners, ranks));
            let layer = LayerCounts { vertices: computed as u64, edges: of_rank.iter().sum(), exchanged, abroad: 0 };
            (layer, of_rank)
        });
        sums.vertices += layer.vertices;
        sums.edges += layer.edges;
        sums.exchanged += layer.exchanged;
        edges.iter_mut().zip(&of_rank).for_each(|(sum, edges)| *sum += edges);
        same = (layer.vertices == frontier.len() as u64).then_some((layer, of_rank));
    }
    let mut rows = vec![0u64; ranks.into()];
    frontier.iter().for_each(|&v| rows[owners[v as usize] as usize] += 1);
    counts.rows += frontier.len() as u64;
    counts.most_rows = counts.most_rows.max(rows.into_iter().max().unwrap_or(0));
    counts.most_edges = counts.most_edges.max(edges.into_iter().max().unwrap_or(0));
}

/// Adds the sources of `frontier` to it. Returns the rows that ranks read from others.
fn add_below<'a>(frontier: &mut Vec<u32>, sources: &impl Fn(u32) -> &'a [u32], owners: &[u16], ranks: u16) -> u64 {
    let mut exchanged = 0;
    let mut readers = vec![0u64; owners.len()];
    let computed = frontier.len();
    let mut is_there = vec![false; owners.len()];
    frontier.iter().for_each(|&v| is_there[v as usize] = true);
    for first in (0..ranks).step_by(64) {
        readers.fill(0);
        for &v in &frontier[..computed] {
            let Some(bit) = owners[v as usize].checked_sub(first).filter(|&bit| bit < 64) else { continue };
            sources(v).iter().for_each(|&u| readers[u as usize] |= 1 << bit);
        }
        for (u, &readers) in (0..).zip(&readers) {
            let own = owners[u as usize].checked_sub(first).filter(|&bit| bit < 64).map_or(0, |bit| 1u64 << bit);
            exchanged += u64::from((readers & !own).count_ones());
            if readers != 0 && !is_there[u as usize] {
                is_there[u as usize] = true;
                frontier.push(u);
            }
        }
    }
    exchanged
}
