//! The graph: compressed sparse columns, mapped.

use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;

use crate::{Column, Error, FileRecord, GraphTypes, NpyWriter, Result, RowsOfType};

/// In-neighbours of every vertex: `v` has `indices[indptr[v]..indptr[v + 1]]`, ascending.
///
/// Opening proves that `indptr` starts at 0, never falls and ends at the number of edges. That
/// every index is below the number of vertices is proved by [`Topology::check_indices`], which
/// reads all of them and so is left to `verify`.
///
/// With several types of vertices, the in-neighbours ascend within each [row](Topology::rows).
#[derive(Clone, Debug)]
pub struct Topology {
    indptr: Column<u64>,
    indices: Column<u32>,
    rows: Option<Box<Rows>>,
    /// Arrays for draws, if the graph is larger than memory.
    scattered: OnceLock<Scattered>,
}

/// Rows of vertices of several types.
#[derive(Clone, Debug)]
struct Rows {
    offsets: Column<u64>,
    types: Vec<RowsOfType>,
}

/// A copy of `indptr`, which every draw reads (the system evicts mapped pages when others are
/// read), and a mapping of `indices` separate from the one used by passes over all edges.
#[derive(Clone, Debug)]
struct Scattered {
    indptr: Vec<u64>,
    rows: Option<Vec<u64>>,
    indices: Column<u32>,
}

impl Topology {
    /// Maps `indptr.npy` and `indices.npy` in `folder`.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::of(
            Column::open(folder.join("indptr.npy"))?,
            Column::open(folder.join("indices.npy"))?,
        )
    }

    fn of(indptr: Column<u64>, indices: Column<u32>) -> Result<Self> {
        check_indptr(&indptr, indices.len() as u64)
            .map_err(|problem| Error::corrupt(indptr.path(), problem))?;
        Ok(Self { indptr, indices, rows: None, scattered: OnceLock::new() })
    }

    /// The graph with the rows of its `types`, mapped from `rows.npy` in `folder`.
    pub(crate) fn with_rows(self, folder: &Path, types: &GraphTypes) -> Result<Self> {
        let offsets = Column::<u64>::open(folder.join("rows.npy"))?;
        let corrupt = |problem| Error::corrupt(offsets.path(), problem);
        check_indptr(&offsets, self.num_edges() as u64).map_err(corrupt)?;
        if offsets.len() as u64 != types.num_rows() + 1 {
            let expected = types.num_rows() + 1;
            let found = offsets.len();
            return Err(corrupt(format!("expected {expected} offsets, found {found}")));
        }
        let mut starts = self.indptr.iter();
        types.for_each_first_row(|row| match starts.next() {
            Some(start) if *start == offsets[row as usize] => Ok(()),
            _ => Err(corrupt(format!("row {row} does not begin where indptr.npy says"))),
        })?;
        Ok(Self { rows: Some(Box::new(Rows { offsets, types: types.rows() })), ..self })
    }

    /// A graph in memory: a copy of `indptr` and `indices`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if these are not as the type promises; [`Error::Io`] if there is not
    /// enough memory.
    pub fn in_memory(indptr: &[u64], indices: &[u32]) -> Result<Self> {
        let graph =
            Self::of(Column::in_memory("indptr", indptr)?, Column::in_memory("indices", indices)?)?;
        graph.check_indices()?;
        Ok(graph)
    }

    /// A graph in memory of `num_vertices` vertices and an edge from each of `sources` to the one
    /// of `targets` at its place.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lists have different lengths or name other vertices; [`Error::Io`]
    /// if there is not enough memory.
    pub fn of_edges(num_vertices: usize, sources: &[u32], targets: &[u32]) -> Result<Self> {
        if sources.len() != targets.len() {
            return Err(Error::Invalid(format!(
                "{} sources for {} targets",
                sources.len(),
                targets.len()
            )));
        }
        if let Some(v) =
            sources.par_iter().chain(targets).find_any(|&&v| v as usize >= num_vertices)
        {
            return Err(Error::Invalid(format!(
                "an edge of vertex {v}, the graph has {num_vertices} vertices"
            )));
        }
        let mut indptr = vec![0u64; num_vertices + 1];
        targets.iter().for_each(|&target| indptr[target as usize + 1] += 1);
        (0..num_vertices).for_each(|v| indptr[v + 1] += indptr[v]);
        let (mut next, mut indices) = (indptr.clone(), vec![0; sources.len()]);
        for (&source, &target) in sources.iter().zip(targets) {
            let at = &mut next[target as usize];
            indices[*at as usize] = source;
            *at += 1;
        }
        let (mut rows, mut rest) = (Vec::with_capacity(num_vertices), &mut indices[..]);
        for pair in indptr.windows(2) {
            rows.push(rest.split_off_mut(..(pair[1] - pair[0]) as usize).unwrap_or_default());
        }
        rows.into_par_iter().for_each(<[u32]>::sort_unstable);
        Self::in_memory(&indptr, &indices)
    }

    /// `n + 1` offsets into [`Topology::indices`].
    pub fn indptr(&self) -> &[u64] {
        self.scattered.get().map_or(&self.indptr, |scattered| &scattered.indptr)
    }

    /// First edge of each row, and the number of edges at the end, where vertices have several
    /// types ([`GraphTypes`]).
    pub fn rows(&self) -> Option<&[u64]> {
        match self.scattered.get() {
            Some(scattered) => scattered.rows.as_deref(),
            None => self.rows.as_ref().map(|rows| &rows.offsets[..]),
        }
    }

    /// A mapping of [`indices`](Self::indices) for draws, where the graph takes more than half of
    /// `memory` bytes, so that a part of it may have to be read again and again.
    /// [`indptr`](Self::indptr) is then copied to memory.
    pub fn indices_beyond(&self, memory: u64) -> Result<Option<&[u32]>> {
        let rows = self.rows.as_ref().map_or(0, |rows| size_of_val(&rows.offsets[..]));
        let offsets = size_of_val(&self.indptr[..]) + rows;
        if (offsets + size_of_val(&self.indices[..])) as u64 <= memory / 2 {
            return Ok(None);
        }
        if self.scattered.get().is_none() {
            let indices = Column::open(self.indices.path())?;
            // Another thread may have set the same already.
            let rows = self.rows.as_ref().map(|rows| rows.offsets.to_vec());
            let _ = self.scattered.set(Scattered { indptr: self.indptr.to_vec(), rows, indices });
        }
        Ok(self.scattered.get().map(|scattered| &scattered.indices[..]))
    }

    /// One source vertex per edge.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Number of vertices.
    pub fn num_vertices(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// In-neighbours of `v`.
    pub fn in_neighbours(&self, v: u32) -> &[u32] {
        let v = v as usize;
        let indptr = self.indptr();
        &self.indices[indptr[v] as usize..indptr[v + 1] as usize]
    }

    /// Whether there is an edge from `u` to `v`.
    pub fn has_edge(&self, u: u32, v: u32) -> bool {
        let mut types = self.rows.iter().flat_map(|rows| &rows.types);
        let of = types.find(|of| of.vertices.contains(&v.into()));
        let Some((rows, of)) = self.rows().zip(of) else {
            return self.in_neighbours(v).binary_search(&u).is_ok();
        };
        let first = of.row(v.into());
        rows[first as usize..=(first + of.relations) as usize]
            .windows(2)
            .any(|ends| self.indices[ends[0] as usize..ends[1] as usize].binary_search(&u).is_ok())
    }

    /// Fails unless every index names a vertex and the indices of each vertex, or row, ascend.
    pub fn check_indices(&self) -> Result<()> {
        let n = self.num_vertices() as u32;
        let offsets = self.rows().unwrap_or_else(|| self.indptr());
        let bad = offsets.par_windows(2).position_first(|ends| {
            let list = &self.indices[ends[0] as usize..ends[1] as usize];
            list.iter().any(|&u| u >= n) || list.windows(2).any(|pair| pair[0] > pair[1])
        });
        match bad {
            None => Ok(()),
            Some(at) => {
                let of = if self.rows.is_some() { "row" } else { "vertex" };
                let problem =
                    format!("the in-neighbours of {of} {at} do not ascend or are not below {n}");
                Err(Error::corrupt(self.indices.path(), problem))
            }
        }
    }
}

/// Streams a graph into `indptr.npy` and `indices.npy`, vertex after vertex.
pub struct TopologyWriter {
    indptr: NpyWriter<u64>,
    indices: NpyWriter<u32>,
    /// Offsets of the vertices being pushed.
    offsets: Vec<u64>,
}

impl TopologyWriter {
    /// Creates the files in `folder`, which is made if need be.
    pub fn create(folder: &Path) -> Result<Self> {
        let mut indptr = NpyWriter::create(folder.join("indptr.npy"))?;
        indptr.push(&[0])?;
        Ok(Self {
            indptr,
            indices: NpyWriter::create(folder.join("indices.npy"))?,
            offsets: Vec::new(),
        })
    }

    /// Appends the next vertices by their degrees, and all their in-neighbours, ascending for each
    /// of them.
    pub fn push(&mut self, degrees: &[u64], indices: &[u32]) -> Result<()> {
        let mut end = self.indices.len();
        self.offsets.clear();
        self.offsets.extend(degrees.iter().map(|degree| {
            end += degree;
            end
        }));
        self.indices.push(indices)?;
        if end != self.indices.len() {
            let found = indices.len();
            return Err(Error::Invalid(format!(
                "{found} in-neighbours, expected as many as the degrees add up to"
            )));
        }
        self.indptr.push(&self.offsets)
    }

    /// Vertices pushed so far.
    pub fn num_vertices(&self) -> u64 {
        self.indptr.len() - 1
    }

    /// Edges pushed so far.
    pub fn num_edges(&self) -> u64 {
        self.indices.len()
    }

    /// Closes and fsyncs both files; returns the records of `indptr.npy` and `indices.npy`.
    pub fn finish(self) -> Result<(FileRecord, FileRecord)> {
        Ok((self.indptr.finish()?, self.indices.finish()?))
    }
}

/// Describes why `indptr` are not valid offsets into `num_edges` edges.
pub(crate) fn check_indptr(indptr: &[u64], num_edges: u64) -> Result<(), String> {
    let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
        return Err("expected at least one offset".into());
    };
    if indptr.len() - 1 > u32::MAX as usize {
        return Err(format!(
            "{} vertices; ids are 32-bit, so at most {} are supported",
            indptr.len() - 1,
            u32::MAX
        ));
    }
    if first != 0 || last != num_edges {
        return Err(format!("expected offsets from 0 to {num_edges}, found {first} to {last}"));
    }
    match indptr.par_windows(2).position_first(|pair| pair[0] > pair[1]) {
        None => Ok(()),
        Some(v) => Err(format!("the offset falls after vertex {v}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_beyond_memory_has_its_offsets_in_memory_and_edges_for_draws() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = TopologyWriter::create(folder.path()).unwrap();
        writer.push(&[2, 0, 1], &[1, 2, 0]).unwrap();
        writer.finish().unwrap();
        let topology = Topology::open(folder.path()).unwrap();
        let mapped = topology.indptr().as_ptr();
        // 4 offsets and 3 edges are 44 bytes.
        assert!(topology.indices_beyond(88).unwrap().is_none());
        assert_eq!(topology.indptr().as_ptr(), mapped);
        for _ in 0..2 {
            let drawn = topology.indices_beyond(87).unwrap().unwrap();
            assert_eq!((drawn, topology.indices()), (&[1, 2, 0][..], &[1, 2, 0][..]));
            assert_ne!(drawn.as_ptr(), topology.indices().as_ptr());
        }
        assert_ne!(topology.indptr().as_ptr(), mapped);
        assert_eq!(
            (topology.indptr(), topology.in_neighbours(0)),
            (&[0, 2, 2, 3][..], &[1, 2][..])
        );
    }
}
