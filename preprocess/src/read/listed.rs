//! Edges held in memory, and the edges between listed vertices, for graphs whose other vertices are
//! dropped.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::Result;
use crate::edges::{
    EDGES_PER_PIECE, EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType,
    for_each_batch, pass_on, row_bytes,
};
use crate::read::text::field::counted;

/// Pairs of vertices, or only vertices.
pub struct Listed {
    /// Sources of the edges, or the vertices.
    pub sources: Vec<u64>,
    /// Empty if there are only vertices.
    pub targets: Vec<u64>,
    columns: Vec<EdgeColumn>,
    has_string_ids: bool,
    next: AtomicUsize,
}

impl Listed {
    /// Creates a list of pairs, or of vertices if `targets` is empty.
    pub fn new(sources: Vec<u64>, targets: Vec<u64>) -> Self {
        Self {
            sources,
            targets,
            columns: Vec::new(),
            has_string_ids: false,
            next: AtomicUsize::new(0),
        }
    }

    /// Creates an empty list, whose ids are strings or numbers, with these columns of weights.
    pub fn none(has_string_ids: bool, columns: &[String]) -> Self {
        let column =
            |name: &String| EdgeColumn { name: name.clone(), value: ValueType::F32, width: 1 };
        let columns = columns.iter().map(column).collect();
        Self { columns, has_string_ids, ..Self::new(Vec::new(), Vec::new()) }
    }
}

impl EdgeSource for Listed {
    fn rewind(&self) -> Result<()> {
        self.next.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let start = self.next.load(Relaxed);
        let end = self.sources.len().min(start + EDGES_PER_PIECE);
        self.next.store(end, Relaxed);
        (piece.start, piece.end) = (start as u64, end as u64);
        Ok(start < end)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let range = piece.start as usize..piece.end as usize;
        batch.sources.extend(&self.sources[range.clone()]);
        batch.targets.extend(self.targets.get(range).unwrap_or(&[]));
        Ok(())
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.has_string_ids
    }

    fn estimate(&self) -> Result<Estimate> {
        let largest = self.sources.iter().chain(&self.targets).max();
        let vertices = largest.map_or(0, |&largest| largest + 1);
        Ok(Estimate {
            edges: self.sources.len() as u64,
            vertices,
            bytes: 16 * self.sources.len() as u64,
        })
    }

    fn bytes_done(&self) -> u64 {
        16 * self.next.load(Relaxed) as u64
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
    ///
    /// # Errors
    /// Errors of reading the table.
    pub fn of(edges: Box<dyn EdgeSource>, table: &dyn EdgeSource) -> Result<Self> {
        let mut ids = HashSet::new();
        for_each_batch(table, |batch| {
            ids.extend(&batch.sources);
            Ok(())
        })?;
        Ok(Self { edges, ids, dropped: AtomicU64::new(0) })
    }

    fn keeps(&self, source: u64, target: u64) -> bool {
        self.ids.contains(&source) && self.ids.contains(&target)
    }

    /// Removes the edges that are not kept from `batch`. Returns their number.
    fn keep(&self, batch: &mut EdgeBatch) -> u64 {
        let (bytes, mut kept) = (row_bytes(self.columns()), 0);
        for edge in 0..batch.len() {
            if self.keeps(batch.sources[edge], batch.targets[edge]) {
                batch.sources[kept] = batch.sources[edge];
                batch.targets[kept] = batch.targets[edge];
                batch.values.copy_within(edge * bytes..(edge + 1) * bytes, kept * bytes);
                kept += 1;
            }
        }
        let dropped = batch.len() - kept;
        batch.sources.truncate(kept);
        batch.targets.truncate(kept);
        batch.values.truncate(kept * bytes);
        batch.names.retain(|(id, _)| self.ids.contains(id));
        dropped as u64
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
