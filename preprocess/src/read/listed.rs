//! Edges held in memory, one source behind another, and the edges between listed vertices, for
//! graphs whose other vertices are dropped.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::Result;
use crate::edges::{
    EDGES_PER_PIECE, EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType,
    for_each_batch, pass_on, row_bytes,
};
use crate::read::text::field::counted;

/// Pairs of vertices, or only vertices.
pub struct Listed {
    /// The edges, without targets if there are only vertices.
    pub edges: EdgeBatch,
    columns: Vec<EdgeColumn>,
    has_string_ids: bool,
    next: AtomicUsize,
}

impl Listed {
    /// Creates a list of edges with these columns, whose ids are strings or numbers.
    pub fn new(edges: EdgeBatch, columns: Vec<EdgeColumn>, has_string_ids: bool) -> Self {
        Self { edges, columns, has_string_ids, next: AtomicUsize::new(0) }
    }

    /// Creates a list of vertices, whose ids are numbers.
    pub fn vertices(sources: Vec<u64>) -> Self {
        Self::new(EdgeBatch { sources, ..EdgeBatch::default() }, Vec::new(), false)
    }

    /// Creates an empty list, whose ids are strings or numbers, with these columns of weights.
    pub fn none(has_string_ids: bool, columns: &[String]) -> Self {
        let column =
            |name: &String| EdgeColumn { name: name.clone(), value: ValueType::F32, width: 1 };
        Self::new(EdgeBatch::default(), columns.iter().map(column).collect(), has_string_ids)
    }
}

impl EdgeSource for Listed {
    fn rewind(&self) -> Result<()> {
        self.next.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let start = self.next.load(Relaxed);
        let end = self.edges.len().min(start + EDGES_PER_PIECE);
        self.next.store(end, Relaxed);
        (piece.start, piece.end) = (start as u64, end as u64);
        Ok(start < end)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let (range, bytes) = (piece.start as usize..piece.end as usize, row_bytes(&self.columns));
        batch.sources.extend(&self.edges.sources[range.clone()]);
        batch.targets.extend(self.edges.targets.get(range.clone()).unwrap_or(&[]));
        batch.values.extend(&self.edges.values[range.start * bytes..range.end * bytes]);
        if range.start == 0 {
            batch.names.extend_from_slice(&self.edges.names);
        }
        Ok(())
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.has_string_ids
    }

    fn estimate(&self) -> Result<Estimate> {
        let largest = self.edges.sources.iter().chain(&self.edges.targets).max();
        let vertices = largest.map_or(0, |&largest| largest.saturating_add(1));
        let edges = self.edges.len() as u64;
        Ok(Estimate { edges, vertices, bytes: 16 * edges })
    }

    fn bytes_done(&self) -> u64 {
        16 * self.next.load(Relaxed) as u64
    }
}

/// A source followed by another with the same columns.
pub struct Chained {
    parts: [Box<dyn EdgeSource>; 2],
    /// Number of items of the first.
    first: u64,
    in_second: AtomicBool,
}

impl Chained {
    /// The source of the `first` items, followed by the other.
    pub fn boxed(first: u64, parts: [Box<dyn EdgeSource>; 2]) -> Box<dyn EdgeSource> {
        Box::new(Self { parts, first, in_second: AtomicBool::new(false) })
    }
}

impl EdgeSource for Chained {
    fn rewind(&self) -> Result<()> {
        self.in_second.store(false, Relaxed);
        self.parts.iter().try_for_each(|part| part.rewind())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        piece.part = 0;
        if !self.in_second.load(Relaxed) && self.parts[0].next(piece)? {
            return Ok(true);
        }
        self.in_second.store(true, Relaxed);
        piece.part = 1;
        self.parts[1].next(piece)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        self.parts[piece.part].parse(piece, batch)
    }

    fn columns(&self) -> &[EdgeColumn] {
        self.parts[0].columns()
    }

    fn has_string_ids(&self) -> bool {
        self.parts[1].has_string_ids()
    }

    fn place(&self, number: u64) -> String {
        self.parts[1].place(number.saturating_sub(self.first))
    }

    fn estimate(&self) -> Result<Estimate> {
        let [a, b] = [self.parts[0].estimate()?, self.parts[1].estimate()?];
        let vertices = a.vertices.saturating_add(b.vertices);
        Ok(Estimate { edges: a.edges + b.edges, vertices, bytes: a.bytes + b.bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes_done()).sum()
    }
}

/// The edges of a graph between vertices that a table lists. In memory are their ids, about 16
/// bytes each.
pub struct ListedEnds {
    edges: Box<dyn EdgeSource>,
    ids: HashSet<u64>,
    dropped: AtomicU64,
}

impl ListedEnds {
    /// Keeps only the edges of `edges` between vertices of `table`.
    pub fn of(edges: Box<dyn EdgeSource>, table: &dyn EdgeSource) -> Result<Self> {
        let mut ids = HashSet::new();
        for_each_batch(table, |batch| {
            ids.extend(&batch.sources);
            Ok(())
        })?;
        Ok(Self { edges, ids, dropped: AtomicU64::new(0) })
    }

    /// Removes the edges that are not kept from `batch`. Returns their number.
    fn keep(&self, batch: &mut EdgeBatch) -> u64 {
        batch.names.retain(|(id, _)| self.ids.contains(id));
        let is_listed = |id: u64| self.ids.contains(&id);
        batch.retain(row_bytes(self.columns()), |source, target| {
            is_listed(source) && is_listed(target)
        })
    }
}

impl EdgeSource for ListedEnds {
    pass_on!(edges: next, columns, has_string_ids, estimate, bytes_done);

    fn rewind(&self) -> Result<()> {
        self.dropped.store(0, Relaxed);
        self.edges.rewind()
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        self.edges.parse(piece, batch)?;
        self.dropped.fetch_add(self.keep(batch), Relaxed);
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        let dropped = self.dropped.load(Relaxed);
        // Headers count all edges, and all vertices.
        let mut ending =
            self.edges.finish(&Seen { edges: seen.edges + dropped, distinct: None, ..*seen })?;
        let dropped = dropped + self.keep(&mut ending.first);
        if dropped > 0 {
            ending.decisions.push(format!(
                "{} dropped, at vertices without a row in the table",
                counted(dropped, "edge")
            ));
        }
        Ok(Ending { num_vertices: None, ..ending })
    }
}
