//! Chunks of a layer's vertices. Each has a bounded number of edges. Workers take the next chunk when they are free,
//! and chunks are shown in the order of their vertices.
//!
//! The ends of chunks depend on the graph and the room alone, so each row is computed in the same chunk by any number
//! of workers. A worker that takes a chunk also gets the room for its rows.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gsplit_kernels::Graph;

use super::hidden::{Cell, Slot, Slots};
use crate::Result;

/// Edges of a chunk, unless a single vertex has more.
const CHUNK_EDGES: u64 = 1 << 18;
/// Vertices of a chunk.
const CHUNK_VERTICES: usize = 1 << 14;
/// How often a worker whose turn has not come looks whether it still may come.
const LOOK: Duration = Duration::from_millis(50);

/// Rows of one chunk.
pub struct Chunk<'a> {
    /// Layer, counted from the features upwards.
    pub layer: usize,
    /// Vertices, ascending.
    pub vertices: &'a [u32],
    /// One row for each.
    pub rows: &'a [f32],
}

impl<'a> Chunk<'a> {
    /// These columns of its rows.
    pub fn columns(&self, columns: Range<usize>) -> Cow<'a, [f32]> {
        let width = self.rows.len() / self.vertices.len().max(1);
        match columns == (0..width) {
            true => self.rows.into(),
            false => self.rows.chunks_exact(width.max(1)).flat_map(|row| &row[columns.clone()]).copied().collect(),
        }
    }
}

/// Callback that is shown chunks, one at a time and in the order of their vertices, on any worker's thread.
pub type Visit<'v> = dyn FnMut(Chunk<'_>) -> Result<()> + Send + 'v;

/// Bounds of the chunks of a layer.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// In-neighbours.
    pub graph: Graph<'a>,
    /// The vertices, ascending; all when `None`.
    pub wanted: Option<&'a [u32]>,
    /// Most of a chunk.
    pub limit: Limit,
}

/// Most that a chunk may be.
#[derive(Clone, Copy)]
pub enum Limit {
    /// Rows that it reads with all in-edges, edges and vertices together, unless a single vertex has more.
    Rows(u64),
    /// Vertices, whatever their edges.
    Vertices(usize),
}

impl Bounds<'_> {
    /// Number of vertices.
    pub fn count(&self) -> usize {
        self.wanted.map_or(self.graph.num_vertices(), <[u32]>::len)
    }

    /// The vertex at place `at`.
    pub fn vertex(&self, at: usize) -> u32 {
        self.wanted.map_or(at as u32, |wanted| wanted[at])
    }

    /// The places of the chunk that begins at `start`; empty behind the last.
    pub fn chunk_at(&self, start: usize) -> Range<usize> {
        let most = match self.limit {
            Limit::Vertices(most) => return start..(start + most.max(1)).min(self.count()),
            Limit::Rows(most) => most,
        };
        let (mut edges, mut end) = (0, start);
        while end < self.count() && end - start < CHUNK_VERTICES {
            edges += self.graph.degree(self.vertex(end));
            let rows = edges + (end + 1 - start) as u64;
            if end > start && (edges > CHUNK_EDGES || rows > most) {
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

/// Chunks that nobody has taken yet.
struct Left<'t, T> {
    number: usize,
    start: usize,
    /// Room for the rows, and their width, where they are kept.
    slots: Option<(Slots<'t, T>, usize)>,
}

/// The chunk that is shown next, and the callback.
struct Turn<'t> {
    number: usize,
    visit: Option<&'t mut Visit<'t>>,
}

/// A chunk that a worker has taken.
pub struct Claim<'t, T> {
    /// How many were before it.
    pub number: usize,
    /// Its vertices.
    pub vertices: Vec<u32>,
    /// Room for its rows, where they are kept.
    pub slot: Option<Slot<'t, T>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'t, T: Cell> Chunks<'t, T> {
    /// The chunks of `bounds`, whose rows go to `slots`, of the width given, and are shown to `visit`.
    pub fn new(bounds: Bounds<'t>, slots: Option<(Slots<'t, T>, usize)>, visit: Option<&'t mut Visit<'t>>) -> Self {
        Self {
            bounds,
            left: Mutex::new(Left { number: 0, start: 0, slots }),
            turn: Mutex::new(Turn { number: 0, visit }),
            passed: Condvar::new(),
        }
    }

    /// The next chunk; `None` behind the last.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) where there is not room for the rows.
    pub fn claim(&self) -> Result<Option<Claim<'t, T>>> {
        let mut left = lock(&self.left);
        let range = self.bounds.chunk_at(left.start);
        if range.is_empty() {
            return Ok(None);
        }
        let number = left.number;
        (left.number, left.start) = (number + 1, range.end);
        let slot = left.slots.as_mut().map(|(slots, width)| slots.take(range.len() * *width)).transpose()?;
        drop(left);
        Ok(Some(Claim { number, vertices: range.map(|at| self.bounds.vertex(at)).collect(), slot }))
    }

    /// Whether chunks are shown to somebody.
    pub fn are_shown(&self) -> bool {
        lock(&self.turn).visit.is_some()
    }

    /// Shows the chunk of that number, once those before it were; does nothing once another worker has `failed`.
    ///
    /// # Errors
    /// Errors of the callback that is shown it.
    pub fn show(&self, number: usize, chunk: Chunk<'_>, failed: &AtomicBool) -> Result<()> {
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
