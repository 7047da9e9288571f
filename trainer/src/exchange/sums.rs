//! Partial sums in place of rows: what an owner sends is added up before it crosses.
//!
//! A layer that sums its sources' rows, weighted or not, needs of another rank's rows only one sum for each of its targets. So a rank
//! asks each owner either for the distinct source rows, or for one sum a target: for each target with sources there, these
//! sources. The owner's P is then a small CSR matrix over its local frontier, and what it sends is `P · rows`. Here the target has one
//! edge from the received sum in place of its edges from the rows that are in it. All is linear in the rows, so results are equal
//! up to the order of sums, also for layers that multiply by a matrix before they aggregate.
//!
//! Returns: what [`Exchange::shuffle`] returns, and the layer's edges in their new form. Input: a layer whose targets are all of this
//! rank. Each pair of ranks has rows or sums, chosen by who asks, layer by layer. Where the weight of an edge u → v is a product of
//! a part of u and one of v, P has that of u ([`Sums::by_degree`]) and the edge from the sum that of v. Factors of edges are in P; the
//! edge from a sum has 1. The mean divides by the number of edges that were drawn, which is returned too.
//! Cost: two passes over the layer's edges; 4 bytes for each edge that is summed (8 with factors), and for each sum, where asking for
//! rows takes 4 for each distinct source.
//!
//! Why not a minimum vertex cover for each pair, which sends the fewest rows: it needs a maximum matching for each pair of ranks,
//! layer and mini-batch, and sends only 2 to 17 % less than the better of the two (simulated: four ranks, ogbn-arxiv and R-MAT).

use std::iter::repeat_n;
use std::sync::{Arc, OnceLock};

use gsplit_kernels::{
    Aggregation, Communicator, Fanout, Graph, HostEdges, Reduce, SampledCsc, Split, all_to_all_v, split_by_owner,
};

use super::{Counts, Exchange, Index, Product, Shuffle, Shuffled, own_and_others};
use crate::Result;
use crate::config::Sums;

/// Stands for the vertex of a row that is a sum: no graph has a vertex of this number.
pub const NO_VERTEX: u32 = u32::MAX;

/// P where some of its rows are sums: for each row that is sent, the rows of the local frontier that are in it.
#[derive(Debug)]
pub(super) struct PartialSums {
    edges: HostEdges,
    weights: Option<Vec<f32>>,
}

impl PartialSums {
    fn product(&self) -> Aggregation<'_> {
        Aggregation { edges: &self.edges, reduce: Reduce::Sum, weights: self.weights.as_deref(), beside_own: false }
    }

    /// `sent` becomes P times `own`, the rows of the local frontier.
    pub(super) fn forward(&self, own: &[f32], dim: usize, sent: &mut [f32]) -> Result<()> {
        Ok(self.product().forward(|row| &own[row as usize * dim..][..dim], dim, sent)?)
    }

    /// Adds Pᵀ times `received`, the gradients of what was sent, to `own`.
    pub(super) fn backward(&self, received: &[f32], dim: usize, own: &mut [f32]) -> Result<()> {
        Ok(self.product().backward_onto(received, dim, own)?)
    }
}

impl Exchange {
    /// As [`Exchange::shuffle`] of the mixed frontier `mixed`, where rows or partial sums of them cross, for the layer with the edges
    /// `layer`, numbered in `mixed`. These become the edges that are left, numbered for the shuffle's `source`, which has the
    /// sums behind `mixed`. Returns the numbers of edges that the targets had, too, where any pair of this rank has sums.
    ///
    /// Collective.
    pub fn shuffle_sums(
        comm: &dyn Communicator,
        (mixed, layer): (&[u32], &mut SampledCsc),
        owner: impl Fn(u32) -> usize + Sync,
        (sums, graph, fanout): (Sums, Graph<'_>, Fanout),
    ) -> Result<(Shuffled, Option<Arc<[u32]>>)> {
        let me = comm.rank();
        let split = split_by_owner(mixed, comm.size(), owner)?;
        let crossing = Crossing::count(&split, me, layer);
        let needed = split.order.len() - split.counts[me];
        let summed = crossing.summed(sums);
        let degrees = || layer.indptr.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let drawn = summed.contains(&true).then(degrees);
        let wanted = crossing.want(&split, &summed, mixed, layer);

        let counts: Vec<[u64; 2]> =
            (0..comm.size()).map(|rank| [wanted.rows[rank], wanted.edges[rank]].map(|n| n as u64)).collect();
        let ones = vec![1; comm.size()];
        let asked = all_to_all_v(comm, &counts, &ones, &ones)?;
        let asked: Vec<[usize; 2]> = asked.iter().map(|counts| counts.map(|count| count as usize)).collect();
        let weighted = graph.has_factors(fanout);
        let sent: Vec<usize> = wanted.words.iter().map(Vec::len).collect();
        let received: Vec<usize> = asked.iter().map(|&[rows, edges]| num_words(rows, edges, weighted)).collect();
        let words: Vec<u32> = all_to_all_v(comm, &wanted.words.concat(), &sent, &received)?;
        let asked = Asked::read(&words, &asked, sums.by_degree.then_some(graph), weighted);

        let (own, _) = own_and_others(&split, me);
        let index = Index::new(mixed, &own, &wanted.received, &asked.vertices);
        let Index { frontier, read, mut source, asked: positions } = index;
        let rows = frontier.len();
        source.extend((0..wanted.received.len()).map(|at| (rows + at) as u32));
        let product = match asked.sums {
            false => Product::Gather(positions.into()),
            true => {
                let edges = HostEdges::new(asked.indptr, positions, rows)?;
                Product::Sums(Box::new(PartialSums { edges, weights: asked.weights }))
            }
        };
        let (send, receive) = (Counts(asked.rows), Counts(wanted.rows));
        let shuffle = Shuffle { rows, send, receive, needed, product, onto: OnceLock::new(), order: None };
        let exchange = Self::Shuffle(Box::new(shuffle));
        Ok((Shuffled { frontier: frontier.into(), read: read.into(), source: source.into(), exchange }, drawn))
    }
}

/// What a message that asks for `rows` rows of P with `edges` edges has: the edges' sources and, unless each row has one edge, before
/// them the number of edges of each row, and behind them the bits of their factors where edges have some.
fn num_words(rows: usize, edges: usize, weighted: bool) -> usize {
    match rows == edges {
        true => edges,
        false => rows + edges * if weighted { 2 } else { 1 },
    }
}

/// The edges from each other rank's vertices to this rank's targets.
struct Crossing {
    /// Owner of each vertex of the mixed frontier.
    owners: Vec<u32>,
    /// Of each owner: distinct sources, targets that have some, and edges between them. None of this rank.
    sources: Vec<usize>,
    targets: Vec<usize>,
    edges: Vec<usize>,
}

/// What this rank asks of the others, by owner.
struct Wanted {
    /// Rows of P.
    rows: Vec<usize>,
    /// Edges of P.
    edges: Vec<usize>,
    /// The message to each.
    words: Vec<Vec<u32>>,
    /// For each row that will be received its position in the mixed frontier, [`NO_VERTEX`] of a sum.
    received: Vec<u32>,
}

impl Crossing {
    fn count(split: &Split, me: usize, layer: &SampledCsc) -> Self {
        let mut owners = vec![0u32; split.order.len()];
        for (rank, part) in (0..).zip(split.parts()) {
            part.iter().for_each(|&position| owners[position as usize] = rank);
        }
        let ranks = split.counts.len();
        let (mut targets, mut edges, mut last) = (vec![0; ranks], vec![0; ranks], vec![usize::MAX; ranks]);
        for_each_edge(layer, |target, position| {
            let owner = owners[position as usize] as usize;
            if owner != me {
                edges[owner] += 1;
                targets[owner] += usize::from(last[owner] != target);
                last[owner] = target;
            }
        });
        Self { owners, sources: Counts::without(split.counts.clone(), me).0, targets, edges }
    }

    /// Whether each owner sends sums. A sum of one row is that row: where all are, distinct rows are never more.
    fn summed(&self, sums: Sums) -> Vec<bool> {
        let summed = |rank: usize| {
            let fewer = self.targets[rank] < self.sources[rank];
            self.targets[rank] < self.edges[rank] && (fewer || !sums.where_fewer)
        };
        (0..self.sources.len()).map(summed).collect()
    }

    /// What to ask for, and `layer` with the edges that are left: behind the positions in `mixed` come those of the rows received.
    fn want(&self, split: &Split, summed: &[bool], mixed: &[u32], layer: &mut SampledCsc) -> Wanted {
        let of = |sums: &[usize], rows: &[usize]| -> Vec<usize> {
            (0..summed.len()).map(|rank| if summed[rank] { sums[rank] } else { rows[rank] }).collect()
        };
        let (rows, edges) = (of(&self.targets, &self.sources), of(&self.edges, &self.sources));
        let mut received = Vec::with_capacity(rows.iter().sum());
        let (mut degrees, mut vertices) = (vec![Vec::new(); rows.len()], vec![Vec::new(); rows.len()]);
        let (mut bits, mut factors) = (vec![Vec::new(); rows.len()], Vec::with_capacity(layer.factors.len()));
        // Where in `local` the sums of each owner are numbered from.
        let mut first = vec![0; rows.len()];
        for (rank, part) in split.parts().enumerate() {
            first[rank] = mixed.len() + received.len();
            match summed[rank] {
                true => received.extend(repeat_n(NO_VERTEX, rows[rank])),
                false if rows[rank] > 0 => {
                    received.extend_from_slice(part);
                    vertices[rank] = part.iter().map(|&position| mixed[position as usize]).collect();
                }
                false => {}
            }
        }
        let (mut indptr, mut local) = (vec![0], Vec::with_capacity(layer.local.len()));
        let mut last = vec![usize::MAX; rows.len()];
        for target in 0..layer.indptr.len() - 1 {
            for edge in layer.indptr[target] as usize..layer.indptr[target + 1] as usize {
                let (position, factor) = (layer.local[edge], layer.factors.get(edge).copied());
                let owner = self.owners[position as usize] as usize;
                if !summed[owner] {
                    local.push(position);
                    factors.extend(factor);
                    continue;
                }
                let of_owner: &mut Vec<u32> = &mut degrees[owner];
                if last[owner] != target {
                    last[owner] = target;
                    local.push((first[owner] + of_owner.len()) as u32);
                    factors.extend(factor.map(|_| 1.0));
                    of_owner.push(0);
                }
                of_owner.last_mut().into_iter().for_each(|degree| *degree += 1);
                vertices[owner].push(mixed[position as usize]);
                bits[owner].extend(factor.map(f32::to_bits));
            }
            indptr.push(local.len() as u32);
        }
        (layer.indptr, layer.local, layer.factors) = (indptr, local, factors);
        let words = degrees.into_iter().zip(vertices).zip(bits);
        let words = words.map(|((degrees, vertices), bits)| [degrees, vertices, bits].concat()).collect();
        Wanted { rows, edges, words, received }
    }
}

/// Calls `visit` with the target and the source of each edge.
fn for_each_edge(layer: &SampledCsc, mut visit: impl FnMut(usize, u32)) {
    for (target, pair) in layer.indptr.windows(2).enumerate() {
        layer.local[pair[0] as usize..pair[1] as usize].iter().for_each(|&source| visit(target, source));
    }
}

/// What the others ask of this rank: P.
struct Asked {
    /// Rows for each rank.
    rows: Vec<usize>,
    /// Where the edges of each row start, and their number.
    indptr: Vec<u32>,
    /// The vertex that each edge comes from.
    vertices: Vec<u32>,
    /// The weight of each edge, where they have some.
    weights: Option<Vec<f32>>,
    /// Whether any row is a sum.
    sums: bool,
}

impl Asked {
    /// From the messages of all ranks and their numbers of rows and edges. Sums have weights where there is a graph to take them from, or
    /// edges have factors.
    fn read(words: &[u32], counts: &[[usize; 2]], by_degree: Option<Graph<'_>>, weighted: bool) -> Self {
        let (mut indptr, mut vertices, mut weights) = (vec![0u32], Vec::new(), Vec::new());
        let (mut rest, mut sums) = (words, false);
        for &[rows, edges] in counts {
            let (message, others) = rest.split_at(num_words(rows, edges, weighted));
            rest = others;
            let (degrees, of) = message.split_at(if rows == edges { 0 } else { rows });
            let (of, bits) = of.split_at(edges);
            let mut end = vertices.len() as u32;
            let mut add = |degree: u32| {
                end += degree;
                indptr.push(end);
            };
            match degrees.is_empty() {
                true => (0..rows).for_each(|_| add(1)),
                false => degrees.iter().for_each(|&degree| add(degree)),
            }
            sums |= !degrees.is_empty();
            vertices.extend_from_slice(of);
            if by_degree.is_some() || weighted {
                let root = |&v: &u32| by_degree.map_or(1.0, |graph| graph.degree_with_loop(v).sqrt().recip());
                let factor = |edge: usize| bits.get(edge).map_or(1.0, |&bits| f32::from_bits(bits));
                let weight = |(edge, v)| if degrees.is_empty() { 1.0 } else { root(v) * factor(edge) };
                weights.extend(of.iter().enumerate().map(weight));
            }
        }
        let rows = counts.iter().map(|&[rows, _]| rows).collect();
        Self { rows, indptr, vertices, weights: Some(weights).filter(|_| by_degree.is_some() || weighted), sums }
    }
}
