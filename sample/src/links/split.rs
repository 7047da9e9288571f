//! Edges to learn from, and edges held out to be predicted.
//!
//! Returns: the graph without the held-out edges, the edges to train on, and the held-out pairs.
//! Input: a graph with ascending neighbour lists; directed, or symmetric with both directions of
//! every edge. Idea: the use of an edge is drawn by Philox from the unordered pair of its ends.
//! Both directions of an edge are thus held out together, and nothing has to be stored: the same
//! seed and shares give the same split of the same graph for any order of the vertices in memory
//! and any number of threads or ranks. Self-loops are neither held out nor trained on. An edge
//! stored in both directions counts once, from its lower to its higher end. Cost: one pass over the
//! edges; 4 bytes per edge and 8 per vertex in memory, and 4 bytes per training edge.
//!
//! A dataset with its own split of links ([`gsplit_store::Links`]) keeps it: the pairs of train are
//! learned, in their order and as often as they are listed, on the graph as stored (OGB's graphs
//! already lack the edges of valid and test). Cost: one search per pair, and 4 bytes per training
//! pair.
//!
//! In a graph with several types of vertices the links are of one relation ([`LinkRelation`]).
//! Where all edges of another relation are reverses of its edges, the reverses of held-out links are
//! left out too. All other edges stay.

use gsplit_kernels::schedule::link_draw;
use gsplit_kernels::{Graph, KernelError};
use gsplit_store::{Kinds, Links, Split, Topology};
use rayon::prelude::*;

use super::relation::{LinkRelation, RowUse, in_row};
use crate::SampleError;

/// Bytes of an id and of an index.
const ID: usize = size_of::<u32>();
const INDEX: usize = size_of::<u64>();
/// Vertices of a parallel task.
const VERTICES: usize = 1 << 12;

/// Options that choose the held-out edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldOut {
    /// Share of the edges that are held out for valid, from 0.
    pub valid: f64,
    /// Share of the edges that are held out for test; both together are below 1.
    pub test: f64,
    /// Seed of the choice.
    pub seed: u64,
}

/// A graph split by its edges.
pub struct LinkSplit {
    kept: Kept,
    /// Training edges, as positions in the training graph's indices.
    pub train: Vec<u32>,
    /// Held-out (source, target) pairs.
    pub valid: Vec<(u32, u32)>,
    /// Held-out (source, target) pairs of the test split.
    pub test: Vec<(u32, u32)>,
    /// The dataset's own split, if it is the one in use.
    given: Option<Links>,
    /// Kinds of the vertices: negatives of a link are of the same kind as its target.
    kinds: Kinds,
    /// The relation of the links, in a graph with several types of vertices.
    relation: Option<LinkRelation>,
}

/// The training graph.
enum Kept {
    /// The whole graph.
    Whole(Topology),
    /// Without held-out edges. `offsets` are the first edges of rows; without types, of vertices,
    /// and `indptr` is empty.
    Part { indptr: Vec<u64>, offsets: Vec<u64>, indices: Vec<u32>, held_out: HeldOut },
}

/// Use of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EdgeUse {
    Train,
    Valid,
    Test,
}

/// The part of the split that a run of vertices, or of rows, contributes.
#[derive(Default)]
struct SplitPart {
    degrees: Vec<u32>,
    indices: Vec<u32>,
    /// Positions in `indices`.
    train: Vec<u32>,
    valid: Vec<(u32, u32)>,
    test: Vec<(u32, u32)>,
}

impl LinkSplit {
    /// Splits the edges of `graph`, or of a `relation` of it.
    ///
    /// # Errors
    /// [`SampleError::Links`] if no training edges are left, or more than 32 bits can count.
    pub fn new(
        graph: &Graph<'_>,
        held_out: HeldOut,
        relation: Option<LinkRelation>,
    ) -> Result<Self, SampleError> {
        let (n, of) = (graph.num_rows(), relation.as_ref());
        let runs: Vec<usize> = (0..n).step_by(VERTICES).collect();
        // Reserve room for all edges: pages that are never written take no memory.
        let edges = graph.num_edges();
        let (mut offsets, mut indices) = (Vec::with_capacity(n + 1), Vec::with_capacity(edges));
        let (mut train, mut valid, mut test) = (Vec::with_capacity(edges), Vec::new(), Vec::new());
        offsets.push(0);
        let mut end = 0;
        // Process a few runs at a time, so that their pieces stay small compared with the whole.
        for runs in runs.chunks(2 * rayon::current_num_threads()) {
            let pieces = runs
                .par_iter()
                .map(|&from| piece(graph, held_out, of, from..(from + VERTICES).min(n)));
            for piece in pieces.collect::<Vec<SplitPart>>() {
                check_count(indices.len() + piece.indices.len())?;
                let before = indices.len() as u32;
                for degree in piece.degrees {
                    end += u64::from(degree);
                    offsets.push(end);
                }
                indices.extend(piece.indices);
                train.extend(piece.train.into_iter().map(|position| before + position));
                valid.extend(piece.valid);
                test.extend(piece.test);
            }
        }
        indices.shrink_to_fit();
        train.shrink_to_fit();
        if train.is_empty() {
            let problem = "no edge is left to train on: hold out fewer for valid and test, or choose a larger graph";
            return Err(SampleError::Links(problem.into()));
        }
        let first = |row: usize| offsets[row];
        let indptr = of.map_or(Vec::new(), |of| of.layout.first_rows().map(first).collect());
        let kinds = of.map_or_else(|| Kinds::one(n), |of| of.kinds);
        let kept = Kept::Part { indptr, offsets, indices, held_out };
        Ok(Self { kept, train, valid, test, given: None, kinds, relation })
    }

    /// Number of bytes that [`LinkSplit::new`] would take. Cost: one pass over the edges.
    pub fn num_bytes(graph: &Graph<'_>, held_out: HeldOut, relation: Option<&LinkRelation>) -> u64 {
        let rows = graph.num_rows();
        let of_run = |from: usize| {
            let piece = piece(graph, held_out, relation, from..(from + VERTICES).min(rows));
            let ids = piece.indices.len()
                + piece.train.len()
                + 2 * (piece.valid.len() + piece.test.len());
            (ID * ids + INDEX * piece.degrees.len()) as u64
        };
        let runs: Vec<usize> = (0..rows).step_by(VERTICES).collect();
        let indptr = relation.map_or(0, |_| graph.num_vertices() + 1);
        runs.into_par_iter().map(of_run).sum::<u64>() + (INDEX * (1 + indptr)) as u64
    }

    /// Size in bytes of the copy of the graph without the held-out edges, if there is one.
    pub fn copied_bytes(&self) -> u64 {
        match &self.kept {
            Kept::Whole(_) => 0,
            Kept::Part { indptr, offsets, indices, .. } => {
                (INDEX * (indptr.len() + offsets.len()) + ID * indices.len()) as u64
            }
        }
    }

    /// Uses the split `links` that came with the graph of `topology`.
    ///
    /// # Errors
    /// [`SampleError::Links`] if the graph has more edges than 32 bits can count, or a pair of
    /// train is not an edge in either direction.
    pub fn given(links: Links, topology: &Topology) -> Result<Self, SampleError> {
        check_count(topology.num_edges())?;
        let pairs =
            |split| links.pairs(split).iter().map(|&[source, target]| (source, target)).collect();
        let (valid, test) = (pairs(Split::Valid), pairs(Split::Test));
        let (kept, kinds) = (Kept::Whole(topology.clone()), Kinds::one(topology.num_vertices()));
        let (given, relation) = (None, None);
        let mut split = Self { kept, train: Vec::new(), valid, test, given, kinds, relation };
        let train =
            links.pairs(Split::Train).par_iter().filter(|[source, target]| source != target);
        let position = |&[source, target]: &[u32; 2]| {
            let found = split.positions_between(source, target).next();
            found.map(|position| position as u32).ok_or_else(|| {
                let problem = format!(
                    "the train split has the link {source} → {target}, which is not an \
                             edge of the graph"
                );
                SampleError::Links(format!("{problem}: convert both again"))
            })
        };
        let train = train.map(position).collect::<Result<Vec<u32>, SampleError>>()?;
        if train.is_empty() {
            return Err(SampleError::Links(
                "the train split has no links: convert it again".into(),
            ));
        }
        (split.train, split.given) = (train, Some(links));
        Ok(split)
    }

    /// Sets the kinds of the vertices.
    pub fn of_kinds(self, kinds: Kinds) -> Self {
        Self { kinds, ..self }
    }

    /// Kinds of the vertices.
    pub fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// The dataset's own split, if it is the one in use.
    pub fn links(&self) -> Option<&Links> {
        self.given.as_ref()
    }

    fn lists(&self) -> (&[u64], &[u32]) {
        match &self.kept {
            Kept::Whole(topology) => (topology.indptr(), topology.indices()),
            Kept::Part { indptr, offsets, indices, .. } if indptr.is_empty() => (offsets, indices),
            Kept::Part { indptr, indices, .. } => (indptr, indices),
        }
    }

    /// The graph without the held-out edges.
    pub fn graph(&self) -> Result<Graph<'_>, KernelError> {
        let (indptr, indices) = self.lists();
        let graph = Graph::new(indptr, indices)?;
        match (&self.kept, &self.relation) {
            (Kept::Part { offsets, .. }, Some(of)) => graph.with_rows(offsets, &of.layout),
            _ => Ok(graph),
        }
    }

    /// The position in `whole`, the unsplit graph, of each of its edges; `None` if the graphs are
    /// the same, or vertices have several types. Cost: one pass over the edges.
    pub fn positions_in(&self, whole: &Graph<'_>) -> Option<Vec<u64>> {
        let (Kept::Part { held_out, .. }, None) = (&self.kept, &self.relation) else { return None };
        let held_out = *held_out;
        let of_vertex = |v: u32| {
            let edges = whole.in_edges(v).zip(in_neighbours(whole, v));
            edges
                .filter(move |&(_, &u)| use_of(held_out, u, v) == EdgeUse::Train)
                .map(|(edge, _)| edge)
        };
        Some((0..whole.num_vertices() as u32).into_par_iter().flat_map_iter(of_vertex).collect())
    }

    /// Source and target of the edge at position `edge`.
    pub fn ends(&self, edge: u32) -> (u32, u32) {
        let (indptr, indices) = self.lists();
        let target = indptr.partition_point(|&start| start <= u64::from(edge)) - 1;
        (indices[edge as usize], target as u32)
    }

    /// Positions of the edges `source` → `target`, and of their reverses.
    pub fn positions_between(&self, source: u32, target: u32) -> impl Iterator<Item = u64> {
        let (lists, of) = (self.lists(), self.relation.as_ref());
        let offsets = match &self.kept {
            Kept::Part { offsets, .. } => &offsets[..],
            Kept::Whole(_) => lists.0,
        };
        let forth = of.map_or(Some(target as usize), |of| of.row(target, of.relation));
        let back = of.map_or_else(
            || vec![source as usize],
            |of| of.reverses.iter().filter_map(|&reverse| of.row(source, reverse)).collect(),
        );
        let rows = forth.into_iter().map(move |row| (row, source));
        let rows = rows.chain(back.into_iter().map(move |row| (row, target)));
        rows.flat_map(move |(row, source)| {
            let (start, end) = (offsets[row], offsets[row + 1]);
            let list = &lists.1[start as usize..end as usize];
            let from = list.partition_point(|&u| u < source) as u64;
            start + from..start + list.partition_point(|&u| u <= source) as u64
        })
    }

    /// Number of training edges into `target`.
    pub fn degree(&self, target: u32) -> usize {
        let (indptr, _) = self.lists();
        match (&self.kept, &self.relation) {
            (Kept::Part { offsets, .. }, Some(of)) => of
                .row(target, of.relation)
                .map_or(0, |row| (offsets[row + 1] - offsets[row]) as usize),
            _ => (indptr[target as usize + 1] - indptr[target as usize]) as usize,
        }
    }

    /// Whether `v` equals `u` or is joined to it in `whole`, the unsplit graph, by an edge of the
    /// relation in either direction.
    pub fn is_known(&self, whole: &Graph<'_>, u: u32, v: u32) -> bool {
        match &self.relation {
            None => is_known(whole, u, v),
            Some(of) => of.is_known(whole, u, v),
        }
    }
}

/// Fails if there are more edges than 32-bit positions.
fn check_count(edges: usize) -> Result<(), SampleError> {
    match u32::try_from(edges) {
        Ok(_) => Ok(()),
        Err(_) => {
            let problem = format!("{edges} training edges, at most {} are supported", u32::MAX);
            Err(SampleError::Links(problem))
        }
    }
}

/// Whether `v` equals `u` or is joined to it in `graph` by an edge in either direction.
pub fn is_known(graph: &Graph<'_>, u: u32, v: u32) -> bool {
    let either = |a, b| in_neighbours(graph, a).binary_search(&b).is_ok();
    u == v || either(v, u) || either(u, v)
}

/// The in-neighbours of `v`.
fn in_neighbours<'a>(graph: &Graph<'a>, v: u32) -> &'a [u32] {
    let range = graph.in_edges(v);
    &graph.indices[range.start as usize..range.end as usize]
}

/// Whether the edge between `u` and `v`, in either direction, is for training, valid or test.
fn use_of(held_out: HeldOut, u: u32, v: u32) -> EdgeUse {
    let drawn = link_draw(held_out.seed, u, v);
    match drawn {
        _ if u == v => EdgeUse::Train,
        drawn if drawn < held_out.valid => EdgeUse::Valid,
        drawn if drawn < held_out.valid + held_out.test => EdgeUse::Test,
        _ => EdgeUse::Train,
    }
}

fn piece(
    graph: &Graph<'_>,
    held_out: HeldOut,
    relation: Option<&LinkRelation>,
    rows: std::ops::Range<usize>,
) -> SplitPart {
    let mut piece = SplitPart::default();
    // Where edges may be stored in both directions, the lower end of two is the source.
    let is_symmetric = relation.is_none_or(|of| of.reverses.contains(&of.relation));
    for row in rows {
        let before = piece.indices.len();
        let (v, used) = relation.map_or((row as u32, RowUse::Learnt), |of| of.use_of(row));
        for &u in in_row(graph, row) {
            let drawn = if used == RowUse::Other { EdgeUse::Train } else { use_of(held_out, u, v) };
            let back = || {
                let row = relation.map_or(Some(u as usize), |of| of.row(u, of.relation));
                row.is_some_and(|row| in_row(graph, row).binary_search(&v).is_ok())
            };
            let stands = used == RowUse::Learnt && (u < v || (u > v && !(is_symmetric && back())));
            let pairs = match drawn {
                EdgeUse::Train => {
                    if stands {
                        piece.train.push(piece.indices.len() as u32);
                    }
                    piece.indices.push(u);
                    continue;
                }
                EdgeUse::Valid => &mut piece.valid,
                EdgeUse::Test => &mut piece.test,
            };
            if stands && pairs.last() != Some(&(u, v)) {
                pairs.push((u, v));
            }
        }
        piece.degrees.push((piece.indices.len() - before) as u32);
    }
    piece
}
