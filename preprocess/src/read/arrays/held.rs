//! Edges and columns that a reader holds in memory, since their format has them in another order than a dataset.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gsplit_store::Progress;

use crate::Result;
use crate::edges::{EDGES_PER_PIECE, EdgeBatch, EdgeSource, Estimate, Piece};
use crate::read::raw::Column;

/// Bytes of rows made at a time, about.
const BYTES_PER_TAKE: usize = 1 << 18;

/// Pairs of vertices, or vertices.
pub struct Listed {
    pub sources: Vec<u64>,
    /// None of them where there are vertices only.
    pub targets: Vec<u64>,
    next: Mutex<usize>,
}

impl Listed {
    /// These pairs, or these vertices.
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

/// A matrix by its rows: the columns and values of the entries that are not zero, or all values.
pub struct Matrix {
    path: PathBuf,
    name: &'static str,
    width: usize,
    /// Ends of each row's entries, behind a zero.
    ends: Vec<usize>,
    /// Empty where all values are there.
    places: Vec<u32>,
    values: Vec<f32>,
}

/// A row, a column and a value.
pub type Entry = (u32, u32, f32);

impl Matrix {
    /// The matrix `name` in the file at `path`, of `rows` rows of `width` values, and its entries in any order. Of several in one
    /// place the sum counts.
    pub fn sparse((path, name): (&Path, &'static str), rows: usize, width: usize, entries: &[Entry]) -> Self {
        let mut ends = vec![0; rows + 1];
        entries.iter().for_each(|&(row, ..)| ends[row as usize + 1] += 1);
        (0..rows).for_each(|row| ends[row + 1] += ends[row]);
        let mut next = ends.clone();
        let (mut places, mut values) = (vec![0; entries.len()], vec![0.0; entries.len()]);
        for &(row, column, value) in entries {
            let at = &mut next[row as usize];
            (places[*at], values[*at]) = (column, value);
            *at += 1;
        }
        Self { path: path.to_path_buf(), name, width, ends, places, values }
    }

    /// The matrix `name` in the file at `path`, whose `values` lie column by column.
    pub fn dense((path, name): (&Path, &'static str), rows: usize, width: usize, by_column: &[f32]) -> Self {
        let mut values = vec![0.0; by_column.len()];
        for (column, of_column) in by_column.chunks_exact(rows.max(1)).enumerate() {
            of_column.iter().enumerate().for_each(|(row, &value)| values[row * width + column] = value);
        }
        let ends = (0..=rows).map(|row| row * width).collect();
        Self { path: path.to_path_buf(), name, width, ends, places: Vec::new(), values }
    }

    /// The columns and values of row `row` that are not zero, in a sparse matrix.
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let range = self.ends[row]..self.ends[row + 1];
        (self.places.get(range.clone()).unwrap_or(&[]), &self.values[range])
    }
}

impl Column for Matrix {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &str {
        self.name
    }

    fn descr(&self) -> &'static str {
        "<f4"
    }

    fn width(&self) -> usize {
        self.width
    }

    fn num_rows(&self) -> Option<u64> {
        Some(self.ends.len() as u64 - 1)
    }

    fn read(&self, _progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if self.places.is_empty() && !self.values.is_empty() {
            let step = self.width * (BYTES_PER_TAKE / (4 * self.width)).max(1);
            return self.values.chunks(step).try_for_each(|rows| take(bytemuck::cast_slice(rows)));
        }
        let mut cells = vec![0f32; self.width];
        (0..self.ends.len() - 1).try_for_each(|row| {
            let (places, values) = self.row(row);
            places.iter().zip(values).for_each(|(&place, &value)| cells[place as usize] += value);
            take(bytemuck::cast_slice(&cells))?;
            places.iter().for_each(|&place| cells[place as usize] = 0.0);
            Ok(())
        })
    }
}
