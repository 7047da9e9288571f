//! Chunks of a layer's vertices, each with a bounded number of edges. Workers take the next chunk
//! when they are free, and chunks are passed to the callback in the order of their vertices.
//!
//! The bounds of chunks depend only on the graph and the memory limit, so each row is computed in
//! the same chunk by any number of workers. A worker that takes a chunk also gets the output slot
//! for its rows.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use gsplit_kernels::{Graph, lock};
use gsplit_store::Stage;
use tch::Tensor;

use super::hidden::{Cell, Slot, Slots};
use crate::Result;
use crate::autograd::values;
use crate::error::check_stop;
use crate::operator::{Place, on_host};

/// Maximum number of edges of a chunk, unless a single vertex has more.
const CHUNK_EDGES: u64 = 1 << 18;
/// Maximum number of vertices of a chunk.
const CHUNK_VERTICES: usize = 1 << 14;
/// Interval at which a worker that waits for its turn checks whether another worker has failed.
const LOOK: Duration = Duration::from_millis(50);

/// Rows of one chunk.
pub struct Chunk<'a> {
    /// Layer of the model, counted from the one that reads features.
    pub layer: usize,
    /// Vertices, ascending.
    pub vertices: &'a [u32],
    /// One row per vertex.
    pub rows: &'a [f32],
}

impl<'a> Chunk<'a> {
    /// Returns only these `columns` of its rows.
    pub fn columns(&self, columns: Range<usize>) -> Cow<'a, [f32]> {
        let width = self.rows.len() / self.vertices.len().max(1);
        match columns == (0..width) {
            true => self.rows.into(),
            false => self
                .rows
                .chunks_exact(width.max(1))
                .flat_map(|row| &row[columns.clone()])
                .copied()
                .collect(),
        }
    }
}

/// Callback that receives chunks, one at a time and in the order of their vertices, on any worker's
/// thread.
pub type Visit<'v> = dyn FnMut(Chunk<'_>) -> Result<()> + Send + 'v;

/// Bounds of the chunks of a layer.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// In-neighbours.
    pub graph: Graph<'a>,
    /// The vertices to compute, ascending; all when `None`.
    pub wanted: Option<&'a [u32]>,
    /// Maximum number of rows that a chunk reads with all in-edges, i.e. edges plus vertices,
    /// unless a single vertex has more.
    pub most: u64,
}

impl Bounds<'_> {
    /// Number of vertices to compute.
    pub fn count(&self) -> usize {
        self.wanted.map_or(self.graph.num_vertices(), <[u32]>::len)
    }

    /// The vertex at position `at`.
    pub fn vertex(&self, at: usize) -> u32 {
        self.wanted.map_or(at as u32, |wanted| wanted[at])
    }

    /// The positions of the chunk that begins at `start`; empty past the last.
    pub fn chunk_at(&self, start: usize) -> Range<usize> {
        let (mut edges, mut end) = (0, start);
        while end < self.count() && end - start < CHUNK_VERTICES {
            edges += self.graph.degree(self.vertex(end));
            let rows = edges + (end + 1 - start) as u64;
            if end > start && (edges > CHUNK_EDGES || rows > self.most) {
                break;
            }
            end += 1;
        }
        start..end
    }
}

/// The chunks of a layer.
pub struct Chunks<'t, T> {
    bounds: Bounds<'t>,
    left: Mutex<Left<'t, T>>,
    turn: Mutex<Turn<'t>>,
    passed: Condvar,
}

/// Chunks that no worker has taken yet.
struct Left<'t, T> {
    number: usize,
    start: usize,
    /// Slots for the rows and their width, if the rows are kept.
    slots: Option<(Slots<'t, T>, usize)>,
}

/// The number of the chunk that is shown next, and the callback.
struct Turn<'t> {
    number: usize,
    visit: Option<&'t mut Visit<'t>>,
}

/// A chunk that a worker has taken.
struct Claim<'t, T> {
    /// Its position in the order of chunks.
    number: usize,
    /// Its vertices.
    vertices: Vec<u32>,
    /// Slot for its rows, if they are kept.
    slot: Option<Slot<'t, T>>,
}

impl<'t, T: Cell> Chunks<'t, T> {
    /// Divides `bounds` into chunks, with `slots` for their rows and the rows' width, and the
    /// callback `visit`.
    pub fn new(
        bounds: Bounds<'t>,
        slots: Option<(Slots<'t, T>, usize)>,
        visit: Option<&'t mut Visit<'t>>,
    ) -> Self {
        Self {
            bounds,
            left: Mutex::new(Left { number: 0, start: 0, slots }),
            turn: Mutex::new(Turn { number: 0, visit }),
            passed: Condvar::new(),
        }
    }

    /// Takes the next chunk; `None` past the last.
    fn claim(&self) -> Result<Option<Claim<'t, T>>> {
        let mut left = lock(&self.left);
        let range = self.bounds.chunk_at(left.start);
        if range.is_empty() {
            return Ok(None);
        }
        let number = left.number;
        (left.number, left.start) = (number + 1, range.end);
        let slot = left
            .slots
            .as_mut()
            .map(|(slots, width)| slots.take(range.len() * *width))
            .transpose()?;
        drop(left);
        Ok(Some(Claim { number, vertices: range.map(|at| self.bounds.vertex(at)).collect(), slot }))
    }

    /// Lets a worker compute the rows of chunk after chunk of `layer`, at `place`, until none is
    /// left or another worker has `failed`. `stage` counts their vertices.
    pub fn work(
        &self,
        layer: usize,
        place: &Place,
        failed: &AtomicBool,
        stop: Option<&'static AtomicBool>,
        stage: &dyn Stage,
        mut compute: impl FnMut(&[u32]) -> Result<Tensor>,
    ) -> Result<()> {
        while !failed.load(Ordering::Relaxed) {
            check_stop(stop)?;
            let Some(Claim { number, vertices, slot }) = self.claim()? else { break };
            let rows = compute(&vertices)?;
            if let Some(slot) = slot {
                slot.write(place, &rows)?;
            }
            let is_shown = lock(&self.turn).visit.is_some();
            if is_shown {
                let rows = on_host(&rows)?;
                self.show(
                    number,
                    Chunk { layer, vertices: &vertices, rows: values(&rows)? },
                    failed,
                )?;
            }
            stage.advance(vertices.len() as u64);
        }
        Ok(())
    }

    /// Passes chunk `number` to the callback after all chunks before it; does nothing once another
    /// worker has `failed`.
    fn show(&self, number: usize, chunk: Chunk<'_>, failed: &AtomicBool) -> Result<()> {
        let mut turn = lock(&self.turn);
        while turn.number != number {
            if failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            turn = self.passed.wait_timeout(turn, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        turn.visit.as_mut().map_or(Ok(()), |visit| visit(chunk))?;
        turn.number += 1;
        self.passed.notify_all();
        Ok(())
    }
}
