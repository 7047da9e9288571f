//! Edges in the order of the input: the interface between the readers of raw formats and the CSC
//! build.
//!
//! An [`EdgeSource`] is read piece by piece. Handing out the next piece is sequential (it inflates,
//! or cuts text at line ends); turning a piece into edges is done by any thread, several pieces at
//! a time. So no format needs more memory than a few pieces for each thread, and a reader has no
//! threads of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Result;

/// Approximate number of edges of a piece: enough to outweigh handing it out, few enough to stay in
/// a core's cache.
pub const EDGES_PER_PIECE: usize = 1 << 16;
/// Approximate number of bytes of text of a piece.
pub const TEXT_PER_PIECE: usize = 1 << 20;

/// A part of the input under way, with buffers that are used again for the next one.
#[derive(Debug, Default)]
pub struct Piece {
    /// Start, in units of the reader: a line, an edge, a row group.
    pub start: u64,
    /// End, in the same units, or another number that the reader needs for the piece.
    pub end: u64,
    /// Bytes that were read in sequence, if any.
    pub bytes: Vec<u8>,
    /// Place of the source that it is of, among several that are read one after the other.
    pub part: usize,
}

/// Options of what happens to the edges on the way.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize, PartialEq)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct BuildOptions {
    /// Add the reverse of every edge, then merge duplicates [default: for tables of edges and
    /// vertices in which hardly any edge has its reverse]
    #[cfg_attr(feature = "cli", arg(long))]
    pub symmetrise: bool,
    /// Leave out edges from a vertex to itself
    #[cfg_attr(feature = "cli", arg(long))]
    pub drop_self_loops: bool,
    /// Keep edges that occur several times, instead of merging them into the first
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_duplicates: bool,
    /// Whether the weights of merged edges are added up, instead of keeping the first one's: with
    /// `--schema edge-weights`.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub sum_weights: bool,
}

/// Edges in the order of the input, by the ids of the input.
#[derive(Debug, Default, PartialEq)]
pub struct EdgeBatch {
    /// Source of each.
    pub sources: Vec<u64>,
    /// Target of each: this vertex aggregates from the source.
    pub targets: Vec<u64>,
    /// Values of each in the columns of [`EdgeSource::columns`]: edge after edge, little-endian,
    /// [`row_bytes`] each.
    pub values: Vec<u8>,
    /// Strings behind the ids, where the ids are hashes of strings
    /// ([`EdgeSource::has_string_ids`]), in any order.
    pub names: Vec<(u64, String)>,
}

impl EdgeBatch {
    /// Makes it empty; the buffers stay.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
        self.values.clear();
        self.names.clear();
    }

    /// Appends an edge without values.
    pub fn push(&mut self, source: u64, target: u64) {
        self.sources.push(source);
        self.targets.push(target);
    }

    /// Keeps only the edges, from source to target, for which `keeps` returns true, with their
    /// values of `bytes` each. Returns how many are dropped.
    pub fn retain(&mut self, bytes: usize, keeps: impl Fn(u64, u64) -> bool) -> u64 {
        let mut kept = 0;
        for edge in 0..self.len() {
            if keeps(self.sources[edge], self.targets[edge]) {
                self.sources[kept] = self.sources[edge];
                self.targets[kept] = self.targets[edge];
                self.values.copy_within(edge * bytes..(edge + 1) * bytes, kept * bytes);
                kept += 1;
            }
        }
        let dropped = self.len() - kept;
        self.sources.truncate(kept);
        self.targets.truncate(kept);
        self.values.truncate(kept * bytes);
        dropped as u64
    }

    /// Number of edges.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

/// Type of an edge's value as it is stored and handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueType {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Signed 64-bit.
    I64,
}

impl ValueType {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

/// A column of values that come with the edges.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EdgeColumn {
    /// `weight`, `feat` or the name it has in the input.
    pub name: String,
    /// Type of its values.
    pub value: ValueType,
    /// Values per edge: 1, or the width of edge features.
    pub width: usize,
}

/// Name that every reader gives the column of edge weights.
pub const WEIGHT: &str = "weight";

impl EdgeColumn {
    /// The column `name` of a list or table, whose values keep the type `value`; weights become
    /// f32.
    pub fn of(name: String, value: ValueType, width: usize) -> Self {
        Self { value: if name == WEIGHT { ValueType::F32 } else { value }, name, width }
    }
}

/// Bytes of one edge's values in all `columns`.
pub fn row_bytes(columns: &[EdgeColumn]) -> usize {
    columns.iter().map(|column| column.value.bytes() * column.width).sum()
}

/// Counts of the edges when all pieces are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of edges.
    pub edges: u64,
    /// Largest id, `None` without edges.
    pub largest: Option<u64>,
    /// Number of distinct ids, where ids are compacted and so counted.
    pub distinct: Option<u64>,
    /// Whether 0 may be an id.
    pub has_zero: bool,
}

/// Estimate of the edges before they are read. Sizes may be off; they are for plans, never for
/// trust.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Approximate number of edges.
    pub edges: u64,
    /// Approximate largest id, plus one.
    pub vertices: u64,
    /// Bytes to read.
    pub bytes: u64,
}

/// Decisions that are taken when all edges are read.
#[derive(Debug, Default, PartialEq)]
pub struct Ending {
    /// Edges that only now turn out to be edges: they precede all others.
    pub first: EdgeBatch,
    /// The number of vertices, when the input states it.
    pub num_vertices: Option<u64>,
    /// All numbers from 1 to this one are ids, when the input states it.
    pub last_id: Option<u64>,
    /// How the input was understood, for the user.
    pub decisions: Vec<String>,
}

/// A list of edges somewhere on disk.
///
/// The engine calls [`rewind`](Self::rewind), then [`next`](Self::next) under a lock of its own
/// until it returns false, each time followed by [`parse`](Self::parse) of the same piece by the
/// same thread, without the lock; then [`finish`](Self::finish). All of it may happen again.
pub trait EdgeSource: Send + Sync {
    /// Starts from the beginning.
    fn rewind(&self) -> Result<()>;

    /// Makes `piece` the next piece of the input and returns true, or returns false at the end.
    /// Should be cheap, or do only sequential work. Its previous bytes belong to a finished piece.
    fn next(&self, piece: &mut Piece) -> Result<bool>;

    /// Appends the edges of `piece` to `batch`, which is empty, in the input's order. Errors name
    /// file and line or position.
    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()>;

    /// Checks the counts that the input claims against `seen`.
    fn finish(&self, seen: &Seen) -> Result<Ending> {
        let _ = seen;
        Ok(Ending::default())
    }

    /// The columns of values that come with every edge.
    fn columns(&self) -> &[EdgeColumn] {
        &[]
    }

    /// Whether ids are XXH3-64 hashes of the strings in [`EdgeBatch::names`].
    fn has_string_ids(&self) -> bool {
        false
    }

    /// Whether sources and targets are vertices of two kinds, of which the ids of targets have the
    /// highest bit.
    fn has_two_kinds(&self) -> bool {
        false
    }

    /// The reverses that were added to the edges of the input, and the self-loops that were left
    /// out of them, where [`parse`](Self::parse) does so itself.
    fn added_and_dropped(&self) -> [u64; 2] {
        [0; 2]
    }

    /// The place of item `number`, from 0, as messages name it.
    fn place(&self, number: u64) -> String {
        format!("row {number}")
    }

    /// Estimates from sizes and headers, or a sample.
    fn estimate(&self) -> Result<Estimate>;

    /// Bytes of the input before the end of the pieces handed out so far, for progress: at most
    /// [`Estimate::bytes`].
    fn bytes_done(&self) -> u64;
}

/// Implements methods of [`EdgeSource`] by the methods of the same names of a field.
macro_rules! pass_on {
    ($field:ident: $($method:ident),*) => { $($crate::edges::pass_on!(@$method $field);)* };
    (@rewind $field:ident) => {
        fn rewind(&self) -> $crate::Result<()> {
            self.$field.rewind()
        }
    };
    (@next $field:ident) => {
        fn next(&self, piece: &mut $crate::edges::Piece) -> $crate::Result<bool> {
            self.$field.next(piece)
        }
    };
    (@columns $field:ident) => {
        fn columns(&self) -> &[$crate::edges::EdgeColumn] {
            self.$field.columns()
        }
    };
    (@has_string_ids $field:ident) => {
        fn has_string_ids(&self) -> bool {
            self.$field.has_string_ids()
        }
    };
    (@estimate $field:ident) => {
        fn estimate(&self) -> $crate::Result<$crate::edges::Estimate> {
            self.$field.estimate()
        }
    };
    (@bytes_done $field:ident) => {
        fn bytes_done(&self) -> u64 {
            self.$field.bytes_done()
        }
    };
}
pub(crate) use pass_on;

/// Locks `mutex`, whatever happened to other threads.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands every batch of `source` to `take`, in the order of the input, on this thread.
pub fn for_each_batch(
    source: &dyn EdgeSource,
    mut take: impl FnMut(&EdgeBatch) -> Result<()>,
) -> Result<()> {
    let (mut piece, mut batch) = (Piece::default(), EdgeBatch::default());
    source.rewind()?;
    while source.next(&mut piece)? {
        batch.clear();
        source.parse(&mut piece, &mut batch)?;
        take(&batch)?;
    }
    Ok(())
}
