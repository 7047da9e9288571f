//! Edges between listed vertices, for graphs whose other vertices are dropped; and an empty list of edges.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Result;
use crate::read::text::field::counted;

use crate::edges::{
    EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, for_each_batch, row_bytes,
};

/// A list without any edge, whose ids are strings or numbers.
pub struct NoEdges {
    has_string_ids: bool,
    columns: Vec<EdgeColumn>,
}

impl NoEdges {
    /// A list without edges that has these columns of weights.
    pub fn new(has_string_ids: bool, columns: &[String]) -> Self {
        let column = |name: &String| EdgeColumn { name: name.clone(), value: ValueType::F32, width: 1 };
        Self { has_string_ids, columns: columns.iter().map(column).collect() }
    }
}

impl EdgeSource for NoEdges {
    fn rewind(&self) -> Result<()> {
        Ok(())
    }

    fn next(&self, _piece: &mut Piece) -> Result<bool> {
        Ok(false)
    }

    fn parse(&self, _piece: &mut Piece, _batch: &mut EdgeBatch) -> Result<()> {
        Ok(())
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.has_string_ids
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate::default())
    }

    fn bytes_done(&self) -> u64 {
        0
    }
}

/// The edges of a graph between vertices that a table lists. In memory are their ids, about 16 bytes each.
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
    fn rewind(&self) -> Result<()> {
        self.dropped.store(0, Relaxed);
        self.edges.rewind()
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        self.edges.next(piece)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        self.edges.parse(piece, batch)?;
        self.dropped.fetch_add(self.keep(batch), Relaxed);
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        let dropped = self.dropped.load(Relaxed);
        // Headers count all edges, and all vertices.
        let mut ending = self.edges.finish(&Seen { edges: seen.edges + dropped, distinct: None, ..*seen })?;
        let dropped = dropped + self.keep(&mut ending.first);
        if dropped > 0 {
            ending
                .decisions
                .push(format!("{} dropped, at vertices without a row in the table", counted(dropped, "edge")));
        }
        Ok(Ending { num_vertices: None, ..ending })
    }

    fn columns(&self) -> &[EdgeColumn] {
        self.edges.columns()
    }

    fn has_string_ids(&self) -> bool {
        self.edges.has_string_ids()
    }

    fn estimate(&self) -> Result<Estimate> {
        self.edges.estimate()
    }

    fn bytes_done(&self) -> u64 {
        self.edges.bytes_done()
    }
}
