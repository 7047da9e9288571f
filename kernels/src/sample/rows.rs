//! Rows of in-edges in a graph of several types of vertices.
//!
//! A vertex has one row for each relation into its type, and a sampler draws for rows where a graph
//! of one type draws for vertices. Vertices of a type have consecutive ids, and so have their rows:
//! vertex v of a type with R relations has the rows `first_row + (v - first) * R` and the R - 1
//! that follow. A row is found by arithmetic, without a table.

use std::ops::Range;

use super::SampledCsc;
use crate::error::KernelError;

/// Shape of the rows of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowLayout {
    /// In the order of their vertices.
    types: Vec<TypeRows>,
    /// `SOURCE/NAME/TARGET` of the relations into the first type, in the order of the rows of its
    /// vertices, then of those into the next type.
    relations: Vec<String>,
    num_rows: u64,
}

/// Rows of the vertices of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeRows {
    /// The vertices of the type.
    pub vertices: Range<u32>,
    /// Row of the first vertex.
    pub first_row: u32,
    /// Number of rows of each vertex: the relations into the type.
    pub relations: u32,
    /// Place of the first of them in [`RowLayout::relations`].
    first_relation: u32,
}

impl RowLayout {
    /// The layout of types with these numbers of vertices and with these relations into them, as
    /// `SOURCE/NAME/TARGET`.
    ///
    /// # Errors
    /// [`KernelError::Topology`] if there are more vertices, or more rows, than `u32` counts.
    pub fn new(types: impl IntoIterator<Item = (u64, Vec<String>)>) -> Result<Self, KernelError> {
        let (mut layout, mut first) = (Self::default(), 0u64);
        for (count, names) in types {
            let relations = names.len() as u64;
            let (end, first_row) = (first.saturating_add(count), layout.num_rows);
            layout.num_rows = first_row.saturating_add(count.saturating_mul(relations));
            let most = end.max(layout.num_rows);
            if most > u32::MAX.into() {
                let got = format!("{most} vertices or rows");
                return Err(KernelError::Topology { expected: "at most 2^32 - 1 of both", got });
            }
            layout.types.push(TypeRows {
                vertices: first as u32..end as u32,
                first_row: first_row as u32,
                relations: relations as u32,
                first_relation: layout.relations.len() as u32,
            });
            layout.relations.extend(names);
            first = end;
        }
        Ok(layout)
    }

    /// The types, in the order of their vertices.
    pub fn types(&self) -> &[TypeRows] {
        &self.types
    }

    /// `SOURCE/NAME/TARGET` of the relations, type after type, in the order of the rows of a
    /// vertex.
    pub fn relations(&self) -> &[String] {
        &self.relations
    }

    /// Place of the relation of `row` among the [`relations`](Self::relations).
    ///
    /// # Panics
    /// If `row` is not a row of the graph.
    pub fn relation_of(&self, row: u32) -> usize {
        self.vertex_of(row).1
    }

    /// The vertex of `row`, and the place of its relation among the
    /// [`relations`](Self::relations).
    ///
    /// # Panics
    /// If `row` is not a row of the graph.
    pub fn vertex_of(&self, row: u32) -> (u32, usize) {
        let of = &self.types[self.types.partition_point(|of| of.first_row <= row) - 1];
        let (v, relation) =
            ((row - of.first_row) / of.relations, (row - of.first_row) % of.relations);
        (of.vertices.start + v, (of.first_relation + relation) as usize)
    }

    /// The row of `v` for the relation at a place among the [`relations`](Self::relations), if it
    /// leads to the type of `v`.
    pub fn row(&self, v: u32, relation: usize) -> Option<u32> {
        let of = &self.types[self.type_of(v)?];
        let relation = (relation as u32).checked_sub(of.first_relation)?;
        let first = of.first_row + (v - of.vertices.start) * of.relations;
        (relation < of.relations).then_some(first + relation)
    }

    /// The first row of each vertex, and the number of rows at the end.
    pub fn first_rows(&self) -> impl Iterator<Item = usize> {
        let of_type = |of: &TypeRows| {
            let (first, relations) = (of.first_row as usize, of.relations as usize);
            (0..of.vertices.len()).map(move |v| first + v * relations)
        };
        self.types.iter().flat_map(of_type).chain([self.num_rows()])
    }

    /// Number of rows of all vertices.
    pub fn num_rows(&self) -> usize {
        self.num_rows as usize
    }

    /// Place of the type of `v` among the types, if `v` is a vertex.
    pub fn type_of(&self, v: u32) -> Option<usize> {
        let after = self.types.partition_point(|of| of.vertices.end <= v);
        (after < self.types.len()).then_some(after)
    }

    /// Positions in `frontier` of the vertices of each type, ascending.
    ///
    /// # Errors
    /// [`KernelError::VertexOutOfRange`].
    pub fn positions(&self, frontier: &[u32]) -> Result<Vec<Vec<u32>>, KernelError> {
        let mut positions = vec![Vec::new(); self.types.len()];
        for (at, &vertex) in frontier.iter().enumerate() {
            let num_vertices = self.types.last().map_or(0, |of| of.vertices.end as usize);
            let of = self.type_of(vertex);
            let of = of.ok_or(KernelError::VertexOutOfRange { vertex, num_vertices })?;
            positions[of].push(at as u32);
        }
        Ok(positions)
    }

    /// The sum of the values of the rows of each vertex.
    pub fn sums(&self, of_rows: &[u32]) -> Vec<u32> {
        let mut sums = Vec::new();
        for of in &self.types {
            let rows = &of_rows[of.first_row as usize..];
            let relations = of.relations as usize;
            sums.extend((0..of.vertices.len()).map(|v| {
                rows[v * relations..][..relations]
                    .iter()
                    .fold(0u32, |sum, &n| sum.saturating_add(n))
            }));
        }
        sums
    }

    /// The edges `sampled` of the rows of `frontier`, by its vertices in their order.
    ///
    /// # Errors
    /// [`KernelError::VertexOutOfRange`].
    pub fn by_vertex(
        &self,
        frontier: &[u32],
        sampled: &SampledCsc,
    ) -> Result<SampledCsc, KernelError> {
        let (mut row, mut edges) = (0, vec![0..0; frontier.len()]);
        for (of, positions) in self.types.iter().zip(self.positions(frontier)?) {
            for at in positions {
                let end = row + of.relations as usize;
                edges[at as usize] = sampled.indptr[row] as usize..sampled.indptr[end] as usize;
                row = end;
            }
        }
        let mut merged = SampledCsc { indptr: vec![0], ..SampledCsc::default() };
        for of_vertex in edges {
            merged.local.extend_from_slice(&sampled.local[of_vertex.clone()]);
            merged.edges.extend(sampled.edges.get(of_vertex.clone()).into_iter().flatten());
            merged.factors.extend(sampled.factors.get(of_vertex).into_iter().flatten());
            merged.indptr.push(merged.local.len() as u32);
        }
        Ok(merged)
    }

    /// Replaces `rows` by the rows of the vertices of `frontier`, type after type: the rows of a
    /// type are a matrix of a line of rows for each vertex, in the order of the frontier.
    ///
    /// # Errors
    /// [`KernelError::VertexOutOfRange`].
    pub fn rows_of(&self, frontier: &[u32], rows: &mut Vec<u32>) -> Result<(), KernelError> {
        rows.clear();
        for (of, positions) in self.types.iter().zip(self.positions(frontier)?) {
            for at in positions {
                let first =
                    of.first_row + (frontier[at as usize] - of.vertices.start) * of.relations;
                rows.extend(first..first + of.relations);
            }
        }
        Ok(())
    }
}
