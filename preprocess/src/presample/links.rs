//! Mini-batches of edges, as link prediction trains on them.
//!
//! A mini-batch is a number of edges u → v, and for each some pairs u → v' with v' drawn from all
//! vertices of v's kind; its seeds are the ends of all of these, each once, and its own edges, with
//! their reverses, are not sampled. The edges are the dataset's training links, else all edges but
//! self-loops, from sources to targets where these are of two kinds: training holds a few percent
//! of those back, which counts are not about.

use std::ops::Range;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Draws, ExcludedEdges, Graph, Stream, StreamKey, permute, unique};
use gsplit_store::Kinds;

use super::{Batches, Options};
use crate::{Error, Result};

/// The mini-batches of an epoch: of `given` links, or of all edges.
pub(super) fn batches<'a>(
    graph: &'a Graph<'_>,
    given: Option<&'a [[u32; 2]]>,
    kinds: Kinds,
    options: &'a Options,
    epoch: u32,
) -> Result<Batches<'a>> {
    let items = given.map_or(graph.num_edges(), <[_]>::len);
    let length = u32::try_from(items).map_err(|_| {
        Error::Option(format!(
            "--task link: {items} edges, expected at most {}: leave it out",
            u32::MAX
        ))
    })?;
    let (seed, size) = (options.seed, options.batch_of(items));
    let order = permute(length, &StreamKey { epoch, ..StreamKey::new(seed, Stream::Shuffle) });
    let batch = move |(step, from): (u32, usize)| {
        let ends = order[from..items.min(from + size)].iter().map(|&item| {
            (item, given.map_or_else(|| ends(graph, kinds, item), |given| given[item as usize]))
        });
        let ends = ends.filter(|(_, [u, v])| u != v);
        let step = Step { seed, epoch, step };
        let (seeds, excluded) = draw(graph, kinds, options.negatives, ends, step);
        (seeds, Some(excluded))
    };
    Ok(Box::new((0..).zip((0..items).step_by(size)).map(batch)))
}

/// The seeds of a mini-batch of `edges`, each with its number, and the positions that are not
/// sampled.
pub(super) fn draw(
    graph: &Graph<'_>,
    kinds: Kinds,
    negatives: u32,
    edges: impl Iterator<Item = (u32, [u32; 2])>,
    step: Step,
) -> (Vec<u32>, ExcludedEdges) {
    let key = step.key(Stream::Negatives, 0);
    let (mut seeds, mut excluded) = (Vec::new(), Vec::new());
    for (edge, [source, target]) in edges {
        let mut draws = Draws::new(&key, edge);
        seeds.extend([source, target]);
        let others = kinds.of(target);
        seeds.extend((0..negatives).map(|_| others.start + draws.below(others.len() as u32)));
        excluded.extend(positions(graph, source, target).chain(positions(graph, target, source)));
    }
    (unique(&[&seeds]).0, ExcludedEdges::new(excluded))
}

/// Source and target of the edge at a position; of its reverse, where it leads back to a source of
/// two kinds.
fn ends(graph: &Graph<'_>, kinds: Kinds, position: u32) -> [u32; 2] {
    let target = (graph.indptr.partition_point(|&start| start <= u64::from(position)) - 1) as u32;
    let source = graph.indices[position as usize];
    if kinds.targets().contains(&target) { [source, target] } else { [target, source] }
}

/// The positions of the edges source → target, whose lists ascend.
fn positions(graph: &Graph<'_>, source: u32, target: u32) -> Range<u64> {
    let start = graph.indptr[target as usize];
    let list = &graph.indices[start as usize..graph.indptr[target as usize + 1] as usize];
    let first = list.partition_point(|&found| found < source);
    let after = list.partition_point(|&found| found <= source);
    start + first as u64..start + after as u64
}
