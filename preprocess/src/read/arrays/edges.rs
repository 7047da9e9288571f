//! Edges stored in arrays.
//!
//! ```text
//! pairs       (E, 2): source and target of an edge side by side
//! coordinates (2, E), or two arrays (E,): all sources, then all targets
//! compressed  indptr (n + 1,) and indices (E,): entries indptr[u] .. indptr[u + 1] of indices are row u
//! ```
//! Row u of a CSR holds the targets of the edges u -> v; column v of a CSC holds the sources of the
//! edges u -> v. Values of edges are further arrays (E,) or (E, d).
//!
//! The idea: handing out a piece only counts, and parsing it reads its ranges of the files, on any
//! thread. The rows of a compressed piece are read when it is handed out, and so are members of
//! archives, which can only be read in sequence. Cost: every byte is read once (`indptr` by one
//! thread); only the pieces are in memory.

mod rows;

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::numbers::Numbers;
use crate::edges::{
    EDGES_PER_PIECE, EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, lock,
    row_bytes,
};
use crate::read::raw::numbers as decoded;
use crate::{Error, Result};
use rows::{Rows, expand};

/// Maximum number of value bytes per edge.
const MAX_VALUE_BYTES: usize = 1 << 16;

/// Edges in arrays.
pub struct ArrayEdges {
    layout: EdgeLayout,
    /// The arrays of ids, followed by the arrays of values.
    lanes: Vec<Lane>,
    columns: Vec<EdgeColumn>,
    num_edges: u64,
    num_vertices: Option<u64>,
    cursor: Mutex<Cursor>,
    bytes_done: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum EdgeLayout {
    Pairs,
    Coordinates,
    /// CSR if `by_source`, where rows are sources; otherwise CSC, where they are targets.
    Compressed {
        by_source: bool,
    },
}

/// An array with the same count of numbers for every edge.
struct Lane {
    numbers: Numbers,
    /// The number of the first edge.
    first: u64,
    per_edge: usize,
    /// Name of the numbers in messages.
    role: &'static str,
    reader: Mutex<Option<Box<dyn Read + Send>>>,
}

/// Position up to which pieces are handed out.
struct Cursor {
    edge: u64,
    rows: Option<Rows>,
}

impl Lane {
    fn new(numbers: Numbers, first: u64, per_edge: usize, role: &'static str) -> Self {
        Self { numbers, first, per_edge, role, reader: Mutex::new(None) }
    }

    fn bytes(&self, edges: u64) -> u64 {
        edges * (self.per_edge * self.numbers.dtype().bytes()) as u64
    }

    /// Appends the bytes of the next `edges` edges in sequence.
    fn read_next(&self, edges: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let mut reader = lock(&self.reader);
        let reader = match &mut *reader {
            Some(reader) => reader,
            none => none.insert(self.numbers.reader(self.first)?),
        };
        self.numbers.read_next(&mut **reader, edges * self.per_edge as u64, bytes)
    }

    fn read_at(&self, edges: std::ops::Range<u64>, bytes: &mut Vec<u8>) -> Result<()> {
        let count = (edges.end - edges.start) as usize * self.per_edge;
        self.numbers.read_at(self.first + edges.start * self.per_edge as u64, count, bytes)
    }

    /// An error about number `at` of the edges from `first_edge` on.
    fn error(&self, first_edge: u64, at: u64, problem: &str) -> Error {
        let edge = first_edge + at / self.per_edge as u64;
        let role = match (self.role, at % self.per_edge as u64) {
            ("pair", 0) => "source",
            ("pair", _) => "target",
            (role, _) => role,
        };
        self.numbers.error(format!("edge {edge}, {role} {problem}"))
    }
}

impl ArrayEdges {
    /// One array of shape (2, E) or (E, 2), row-major or column-major. (2, 2) is taken as (2, E).
    pub fn index(index: Numbers) -> Result<Self> {
        Self::index_by(index, false)
    }

    /// [`index`](Self::index), where (2, 2) is taken as (E, 2) if `by_edge`.
    pub fn index_by(index: Numbers, by_edge: bool) -> Result<Self> {
        // A column-major (E, 2) has the layout of a row-major (2, E).
        let laid_out = match index.shape() {
            [rows, columns] if index.column_major() => [*columns, *rows],
            [rows, columns] => [*rows, *columns],
            other => return Err(index.error(format!("shape {other:?}: expected (2, E) or (E, 2)"))),
        };
        // For a column-major (2, 2), the stated shape must decide, not the layout.
        let pairs = matches!(laid_out, [2, 2]) && index.column_major() != by_edge;
        match laid_out {
            [2, edges] if !pairs => {
                let targets = Lane::new(index.clone(), edges, 1, "target");
                Self::new(
                    EdgeLayout::Coordinates,
                    vec![Lane::new(index, 0, 1, "source"), targets],
                    edges,
                )
            }
            [edges, 2] => Self::new(EdgeLayout::Pairs, vec![Lane::new(index, 0, 2, "pair")], edges),
            _ => Err(index.error(format!("shape {:?}: expected (2, E) or (E, 2)", index.shape()))),
        }
    }

    /// Two arrays of shape (E,).
    pub fn coordinates(sources: Numbers, targets: Numbers) -> Result<Self> {
        let (edges, others) = (flat(&sources)?, flat(&targets)?);
        if edges != others {
            let problem = format!("{others} targets for {edges} sources: expected one each");
            return Err(targets.error(problem));
        }
        let lanes = vec![Lane::new(sources, 0, 1, "source"), Lane::new(targets, 0, 1, "target")];
        Self::new(EdgeLayout::Coordinates, lanes, edges)
    }

    /// `indptr` of shape (n + 1,) and `indices` of shape (E,). Rows are sources if `by_source`,
    /// otherwise targets.
    pub fn compressed(indptr: Numbers, indices: Numbers, by_source: bool) -> Result<Self> {
        let Some(num_rows) = flat(&indptr)?.checked_sub(1) else {
            return Err(indptr.error("no entries: expected one for every vertex and one more"));
        };
        if !indptr.dtype().is_integer() {
            return Err(indptr.error(format!("type {}: expected integers", indptr.dtype().descr())));
        }
        let edges = flat(&indices)?;
        let role = if by_source { "target" } else { "source" };
        let mut made = Self::new(
            EdgeLayout::Compressed { by_source },
            vec![Lane::new(indices, 0, 1, role)],
            edges,
        )?
        .within(num_rows);
        made.cursor.get_mut().unwrap_or_else(PoisonError::into_inner).rows =
            Some(Rows::new(indptr, num_rows));
        Ok(made)
    }

    fn new(layout: EdgeLayout, lanes: Vec<Lane>, num_edges: u64) -> Result<Self> {
        for lane in &lanes {
            if !lane.numbers.dtype().is_integer() {
                let problem =
                    format!("type {}: expected integer ids", lane.numbers.dtype().descr());
                return Err(lane.numbers.error(format!("{problem}; save it again as int64")));
            }
        }
        let cursor = Mutex::new(Cursor { edge: 0, rows: None });
        let bytes_done = AtomicU64::new(0);
        Ok(Self {
            layout,
            lanes,
            columns: Vec::new(),
            num_edges,
            num_vertices: None,
            cursor,
            bytes_done,
        })
    }

    /// Adds the column `name` of values: an array (E,) or (E, d).
    pub fn with_values(mut self, name: &str, numbers: Numbers) -> Result<Self> {
        let (rows, width) = numbers.rows()?;
        if rows != self.num_edges {
            let problem = format!(
                "{rows} rows for {} edges: expected one each, in their order",
                self.num_edges
            );
            return Err(numbers.error(problem));
        }
        let column =
            EdgeColumn { name: name.to_string(), value: numbers.dtype().value_type(), width };
        self.columns.push(column);
        if row_bytes(&self.columns) > MAX_VALUE_BYTES {
            return Err(numbers.error(format!(
                "more than {MAX_VALUE_BYTES} bytes of values per edge: keep fewer"
            )));
        }
        self.lanes.push(Lane::new(numbers, 0, width, "value"));
        Ok(self)
    }

    /// Requires ids below `num_vertices`.
    pub fn within(mut self, num_vertices: u64) -> Self {
        self.num_vertices = Some(num_vertices);
        self
    }

    /// The number of vertices, if it is known.
    pub fn num_vertices(&self) -> Option<u64> {
        self.num_vertices
    }

    /// The number of edges.
    pub fn num_edges(&self) -> u64 {
        self.num_edges
    }

    /// Whether `indptr` confirms the number of vertices.
    pub fn is_compressed(&self) -> bool {
        matches!(self.layout, EdgeLayout::Compressed { .. })
    }

    /// Edges per piece: fewer if each has many values.
    fn edges_per_piece(&self) -> u64 {
        let most = (16 << 20) / row_bytes(&self.columns).max(1);
        EDGES_PER_PIECE.min(most).max(1) as u64
    }

    /// Fails at the first of the `ids` of `lane`, from edge `first_edge` on, that is not below the
    /// number of vertices.
    fn check_ids(&self, lane: &Lane, first_edge: u64, ids: &[u64]) -> Result<()> {
        let bound = self.num_vertices.unwrap_or(u64::MAX);
        if ids.iter().fold(0, |largest, &id| largest.max(id)) < bound {
            return Ok(());
        }
        match ids.iter().position(|&id| id >= bound) {
            Some(at) => {
                let problem =
                    format!("{}: expected ids below the number of vertices, {bound}", ids[at]);
                Err(lane.error(first_edge, at as u64, &problem))
            }
            None => Ok(()),
        }
    }

    fn values(
        &self,
        first_edge: u64,
        mut bytes: &[u8],
        edges: u64,
        values: &mut Vec<u8>,
    ) -> Result<()> {
        let lanes = &self.lanes[self.lanes.len() - self.columns.len()..];
        let mut each: Vec<Vec<u8>> = Vec::new();
        for lane in lanes {
            let (own, rest) = bytes.split_at(lane.bytes(edges) as usize);
            bytes = rest;
            let mut converted = Vec::new();
            let to = if lanes.len() == 1 { &mut *values } else { &mut converted };
            let done = lane.numbers.dtype().values(own, to);
            done.map_err(|(at, problem)| lane.error(first_edge, at, &problem))?;
            each.push(converted);
        }
        if lanes.len() > 1 {
            let widths: Vec<usize> =
                self.columns.iter().map(|c| c.value.bytes() * c.width).collect();
            for edge in 0..edges as usize {
                for (column, &width) in each.iter().zip(&widths) {
                    values.extend_from_slice(&column[edge * width..(edge + 1) * width]);
                }
            }
        }
        Ok(())
    }
}

/// Length of an array of one dimension (or one column).
fn flat(numbers: &Numbers) -> Result<u64> {
    match numbers.shape() {
        [length] | [length, 1] => Ok(*length),
        shape => Err(numbers.error(format!("shape {shape:?}: expected one dimension"))),
    }
}

impl EdgeSource for ArrayEdges {
    fn rewind(&self) -> Result<()> {
        let mut cursor = lock(&self.cursor);
        cursor.edge = 0;
        if let Some(rows) = &mut cursor.rows {
            *rows = rows.again();
        }
        for lane in &self.lanes {
            *lock(&lane.reader) = None;
        }
        self.bytes_done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut cursor = lock(&self.cursor);
        let (start, most) = (cursor.edge, self.edges_per_piece());
        piece.bytes.clear();
        let mut rows_done = 0;
        let end = match &mut cursor.rows {
            Some(rows) => {
                let before = rows.bytes_done();
                let end = rows.table(start, most, self.num_edges, &mut piece.bytes)?;
                rows_done = rows.bytes_done() - before;
                end
            }
            None => (start + most).min(self.num_edges),
        };
        (piece.start, piece.end) = (start, end);
        cursor.edge = end;
        for lane in self.lanes.iter().filter(|lane| !lane.numbers.is_file()) {
            lane.read_next(end - start, &mut piece.bytes)?;
        }
        let bytes: u64 = self.lanes.iter().map(|lane| lane.bytes(end - start)).sum();
        self.bytes_done.fetch_add(bytes + rows_done, Relaxed);
        Ok(end > start)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let (start, edges) = (piece.start, piece.end - piece.start);
        for lane in self.lanes.iter().filter(|lane| lane.numbers.is_file()) {
            lane.read_at(start..piece.end, &mut piece.bytes)?;
        }
        let mut bytes = &piece.bytes[..];
        let mut table = &[][..];
        if let EdgeLayout::Compressed { .. } = self.layout {
            let count = u64::from_le_bytes(bytes.as_chunks().0[1]) as usize;
            (table, bytes) = bytes.split_at(16 + 8 * count);
        }
        for lane in &self.lanes[..self.lanes.len() - self.columns.len()] {
            let (own, rest) = bytes.split_at(lane.bytes(edges) as usize);
            bytes = rest;
            let mut ids = Vec::new();
            let decoded = lane.numbers.dtype().ids(own, &mut ids);
            decoded.map_err(|(at, problem)| lane.error(start, at, &problem))?;
            self.check_ids(lane, start, &ids)?;
            match lane.role {
                "pair" => {
                    let pairs = ids.as_chunks().0;
                    batch.sources.extend(pairs.iter().map(|&[source, _]| source));
                    batch.targets.extend(pairs.iter().map(|&[_, target]| target));
                }
                "source" => batch.sources.append(&mut ids),
                _ => batch.targets.append(&mut ids),
            }
        }
        if let EdgeLayout::Compressed { by_source } = self.layout {
            let rows = if by_source { &mut batch.sources } else { &mut batch.targets };
            expand(table, start, rows);
        }
        self.values(start, bytes, edges, &mut batch.values)
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        Ok(Ending { num_vertices: self.num_vertices, ..Ending::default() })
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        let cursor = lock(&self.cursor);
        let rows = cursor.rows.as_ref().map_or(0, |rows| rows.bytes());
        let bytes = self.lanes.iter().map(|lane| lane.bytes(self.num_edges)).sum::<u64>() + rows;
        Ok(Estimate { edges: self.num_edges, vertices: self.num_vertices.unwrap_or(0), bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Relaxed)
    }
}

/// Whether every number is one, as in a sparse matrix of unweighted edges.
pub fn all_ones(numbers: &Numbers) -> Result<bool> {
    let mut are_ones = true;
    numbers.for_steps(|_, bytes| {
        are_ones &= decoded(numbers.dtype().descr(), bytes).all(|value| value == 1.0);
        Ok(())
    })?;
    Ok(are_ones)
}
