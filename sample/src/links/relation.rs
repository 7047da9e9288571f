//! The relation that links are of, in a graph with several types of vertices.

use std::ops::Range;

use gsplit_kernels::{Graph, RowLayout};
use gsplit_store::Kinds;
use rayon::prelude::*;

/// A relation whose edges are learnt, and the relations that would reveal them.
#[derive(Clone, Debug)]
pub struct LinkRelation {
    /// Layout of the rows of the graph.
    pub(super) layout: RowLayout,
    /// Place of the relation in [`RowLayout::relations`].
    pub(super) relation: usize,
    /// Relations whose edges are reverses of its edges: itself if it joins vertices of one type.
    pub(super) reverses: Vec<usize>,
    /// Types of its sources and targets.
    pub(super) kinds: Kinds,
}

/// Use of a row of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowUse {
    /// Its edges are learnt.
    Learnt,
    /// Its edges are reverses of edges that are learnt.
    Reverse,
    /// Its edges are of other relations.
    Other,
}

impl LinkRelation {
    /// The relation of `graph` with this place in the layout of its rows, from `sources` to
    /// `targets`. The relations `back` lead from the type of the targets to that of the sources;
    /// one is a reverse if each of its edges is the reverse of an edge. Cost: a search for each
    /// edge of `back`.
    pub fn new(
        graph: &Graph<'_>,
        layout: &RowLayout,
        relation: usize,
        [sources, targets]: [Range<u32>; 2],
        back: &[usize],
    ) -> Self {
        let kinds = Kinds::between(sources.clone(), targets);
        let mut of = Self { layout: layout.clone(), relation, reverses: Vec::new(), kinds };
        let is_reverse = |&&other: &&usize| {
            let reverses_all = |v: u32| {
                let row = of.row(v, other).map_or(&[][..], |row| in_row(graph, row));
                row.iter().all(|&u| of.is_edge(graph, v, u))
            };
            sources.clone().into_par_iter().all(reverses_all)
        };
        let mut reverses: Vec<usize> = back.iter().filter(is_reverse).copied().collect();
        if !kinds.are_two() {
            reverses.push(relation);
        }
        of.reverses = reverses;
        of
    }

    /// Row of `v` for a relation, if that leads to the type of `v`.
    pub(super) fn row(&self, v: u32, relation: usize) -> Option<usize> {
        self.layout.row(v, relation).map(|row| row as usize)
    }

    /// Vertex and use of a row.
    pub(super) fn use_of(&self, row: usize) -> (u32, RowUse) {
        let (v, relation) = self.layout.vertex_of(row as u32);
        let used = match relation {
            _ if relation == self.relation => RowUse::Learnt,
            _ if self.reverses.contains(&relation) => RowUse::Reverse,
            _ => RowUse::Other,
        };
        (v, used)
    }

    /// Types of the sources and targets.
    pub fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// Whether `v` equals `u` or is joined to it in `graph` by an edge in either direction.
    pub fn is_known(&self, graph: &Graph<'_>, u: u32, v: u32) -> bool {
        u == v || self.is_edge(graph, u, v) || self.is_edge(graph, v, u)
    }

    /// Whether `graph` has the edge `source` → `target` of the relation.
    fn is_edge(&self, graph: &Graph<'_>, source: u32, target: u32) -> bool {
        let row = self.row(target, self.relation);
        row.is_some_and(|row| in_row(graph, row).binary_search(&source).is_ok())
    }
}

/// Sources of the edges of a row, or of a vertex in a graph with one type of vertices.
pub(super) fn in_row<'a>(graph: &Graph<'a>, row: usize) -> &'a [u32] {
    let offsets = graph.offsets();
    &graph.indices[offsets[row] as usize..offsets[row + 1] as usize]
}
