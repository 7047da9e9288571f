//! Edges and columns held in memory by a reader, because their format orders them differently from a dataset.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gsplit_store::Progress;

use crate::Result;
use crate::edges::{EDGES_PER_PIECE, EdgeBatch, EdgeSource, Estimate, Piece};
use crate::read::raw::Column;

/// Pairs of vertices, or only vertices.
pub struct Listed {
    pub sources: Vec<u64>,
    /// Empty if there are only vertices.
    pub targets: Vec<u64>,
    next: Mutex<usize>,
}

impl Listed {
    /// Creates a list of pairs, or of vertices if `targets` is empty.
    pub fn new(sources: Vec<u64>, targets: Vec<u64>) -> Self {
        Self { sources, targets, next: Mutex::new(0) }
    }
}

impl EdgeSource for Listed {
    fn rewind(&self) -> Result<()> {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = *next;
        *next = self.sources.len().min(start + EDGES_PER_PIECE);
        (piece.start, piece.end) = (start as u64, *next as u64);
        Ok(start < *next)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let range = piece.start as usize..piece.end as usize;
        batch.sources.extend(&self.sources[range.clone()]);
        batch.targets.extend(self.targets.get(range).unwrap_or(&[]));
        Ok(())
    }

    fn estimate(&self) -> Result<Estimate> {
        let largest = self.sources.iter().chain(&self.targets).max();
        let vertices = largest.map_or(0, |&largest| largest + 1);
        Ok(Estimate { edges: self.sources.len() as u64, vertices, bytes: 16 * self.sources.len() as u64 })
    }

    fn bytes_done(&self) -> u64 {
        16 * *self.next.lock().unwrap_or_else(PoisonError::into_inner) as u64
    }
}

/// The class of every row.
pub struct Classes {
    pub path: PathBuf,
    pub labels: Vec<i64>,
}

impl Column for Classes {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &str {
        "labels"
    }

    fn descr(&self) -> &'static str {
        "<i8"
    }

    fn width(&self) -> usize {
        1
    }

    fn num_rows(&self) -> Option<u64> {
        Some(self.labels.len() as u64)
    }

    fn read(&self, _progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        take(bytemuck::cast_slice(&self.labels))
    }
}
