//! The graph: compressed sparse columns, mapped.

use std::path::Path;

use rayon::prelude::*;

use crate::{Column, Error, Result};

/// In-neighbours of every vertex: those of `v` are `indices[indptr[v]..indptr[v + 1]]`, ascending.
///
/// Opening proves that `indptr` starts at 0, never falls and ends at the number of edges. That every index is below the
/// number of vertices is proved by [`Topology::check_indices`], which reads all of them and so is left to `verify`.
#[derive(Clone, Debug)]
pub struct Topology {
    indptr: Column<u64>,
    indices: Column<u32>,
}

impl Topology {
    /// Maps `indptr.npy` and `indices.npy` in `folder`.
    pub fn open(folder: &Path) -> Result<Self> {
        let indptr = Column::<u64>::open(folder.join("indptr.npy"))?;
        let indices = Column::<u32>::open(folder.join("indices.npy"))?;
        check_indptr(&indptr, indices.len() as u64).map_err(|problem| Error::corrupt(indptr.path(), problem))?;
        Ok(Self { indptr, indices })
    }

    /// `n + 1` offsets into [`Topology::indices`].
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
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
        &self.indices[self.indptr[v] as usize..self.indptr[v + 1] as usize]
    }

    /// Fails unless every index names a vertex and each vertex's indices ascend.
    pub fn check_indices(&self) -> Result<()> {
        let n = self.num_vertices() as u32;
        let bad = (0..n).into_par_iter().find_first(|&v| {
            let list = self.in_neighbours(v);
            list.iter().any(|&u| u >= n) || list.windows(2).any(|pair| pair[0] > pair[1])
        });
        match bad {
            None => Ok(()),
            Some(v) => Err(Error::corrupt(
                self.indices.path(),
                format!("the in-neighbours of vertex {v} do not ascend or are not below {n}"),
            )),
        }
    }
}

/// Says what is wrong with `indptr` as offsets into `num_edges` edges.
pub(crate) fn check_indptr(indptr: &[u64], num_edges: u64) -> Result<(), String> {
    let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
        return Err("expected at least one offset".into());
    };
    if indptr.len() - 1 > u32::MAX as usize {
        return Err(format!("{} vertices; ids are 32-bit, so at most {} are supported", indptr.len() - 1, u32::MAX));
    }
    if first != 0 || last != num_edges {
        return Err(format!("expected offsets from 0 to {num_edges}, found {first} to {last}"));
    }
    match indptr.par_windows(2).position_first(|pair| pair[0] > pair[1]) {
        None => Ok(()),
        Some(v) => Err(format!("the offset falls after vertex {v}")),
    }
}
