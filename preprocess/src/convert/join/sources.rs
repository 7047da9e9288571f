//! Sources of the joined graph: the part copied from the dataset, followed by the new tables.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_store::{ColumnFile, Dataset, FeatureTable, Progress};

use super::tables::{NewEdges, NewIds};
use crate::csc::lock;
use crate::edges::{EDGES_PER_PIECE, EdgeBatch, EdgeColumn, EdgeSource, Estimate, Piece};
use crate::export::f32_rows;
use crate::read::raw::{Column, describe_column, numbers};
use crate::{Error, Result};

/// In-edges of some vertices of a dataset.
pub struct StoredEdges {
    dataset: Dataset,
    /// The vertices, ascending.
    targets: Vec<u32>,
    /// Vertices at the ends of the edges, ascending, and their ids.
    ends: (Vec<u32>, Vec<u64>),
    files: Vec<ColumnFile>,
    /// Number of the edges.
    count: u64,
}

impl StoredEdges {
    /// The in-edges of `targets` in `dataset`, between vertices of `ends`.
    ///
    /// # Errors
    /// Fails if a column of the dataset cannot be opened.
    pub fn open(
        dataset: &Dataset,
        targets: Vec<u32>,
        ends: (Vec<u32>, Vec<u64>),
        columns: &[EdgeColumn],
    ) -> Result<Self> {
        let files = columns
            .iter()
            .map(|column| dataset.edge_column(&column.name))
            .collect::<gsplit_store::Result<_>>()?;
        let count = targets.iter().map(|&v| degree(dataset, v)).sum();
        Ok(Self { dataset: dataset.clone(), targets, ends, files, count })
    }

    /// Number of the edges.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn id(&self, v: u32) -> Result<u64> {
        let at = self.ends.0.binary_search(&v);
        at.map(|at| self.ends.1[at])
            .map_err(|_| Error::Graph("the dataset changed while it was read: run it again".into()))
    }

    /// Appends the in-edges of the targets with the positions `range`.
    fn parse(
        &self,
        range: Range<usize>,
        columns: &[EdgeColumn],
        batch: &mut EdgeBatch,
    ) -> Result<()> {
        let topology = self.dataset.topology();
        for &v in &self.targets[range] {
            let [start, end] = [v, v + 1].map(|v| topology.indptr()[v as usize] as usize);
            for edge in start..end {
                batch.push(self.id(topology.indices()[edge])?, self.id(v)?);
                for (file, column) in self.files.iter().zip(columns) {
                    let bytes = file.bytes().len() / file.rows().max(1);
                    let row = &file.bytes()[edge * bytes..(edge + 1) * bytes];
                    match file.descr() == column.value.descr() {
                        true => batch.values.extend_from_slice(row),
                        false => numbers(file.descr(), row)
                            .for_each(|number| batch.values.extend(number.to_le_bytes())),
                    }
                }
            }
        }
        Ok(())
    }
}

fn degree(dataset: &Dataset, v: u32) -> u64 {
    let indptr = dataset.topology().indptr();
    indptr[v as usize + 1] - indptr[v as usize]
}

/// Edges of a dataset, followed by the edges of a new table.
pub struct JoinedEdges {
    has_string_ids: bool,
    stored: StoredEdges,
    among: NewEdges,
    columns: Vec<EdgeColumn>,
    /// Position after the pieces handed out: first counts targets of `stored`, then edges of
    /// `among`.
    next: Mutex<u64>,
    done: AtomicU64,
}

impl JoinedEdges {
    /// The edges of `stored`, followed by `among`.
    pub fn new(
        stored: StoredEdges,
        among: NewEdges,
        columns: Vec<EdgeColumn>,
        has_string_ids: bool,
    ) -> Self {
        Self {
            has_string_ids,
            stored,
            among,
            columns,
            next: Mutex::default(),
            done: AtomicU64::new(0),
        }
    }

    fn len(&self) -> u64 {
        (self.stored.targets.len() + self.among.ends.len()) as u64
    }
}

impl EdgeSource for JoinedEdges {
    fn rewind(&self) -> Result<()> {
        *lock(&self.next) = 0;
        self.done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut next = lock(&self.next);
        let of_stored = self.stored.targets.len() as u64;
        piece.start = *next;
        let mut edges = 0;
        while *next < self.len()
            && edges < EDGES_PER_PIECE as u64
            && (*next != of_stored || piece.start == of_stored)
        {
            edges += self
                .stored
                .targets
                .get(*next as usize)
                .map_or(1, |&v| degree(&self.stored.dataset, v));
            *next += 1;
        }
        piece.end = *next;
        self.done.fetch_add(edges, Relaxed);
        Ok(piece.end > piece.start)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let (of_stored, range) =
            (self.stored.targets.len(), piece.start as usize..piece.end as usize);
        if range.start < of_stored {
            return self.stored.parse(range, &self.columns, batch);
        }
        let range = range.start - of_stored..range.end - of_stored;
        let bytes = self.among.row_bytes;
        batch.values.extend_from_slice(&self.among.values[range.start * bytes..range.end * bytes]);
        for &(source, target) in &self.among.ends[range] {
            batch.push(source, target);
            // The names of rows come with the rows.
            let names =
                [source, target].map(|id| self.among.names.get(&id).map(|name| (id, name.clone())));
            batch.names.extend(names.into_iter().flatten());
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
        let edges = self.stored.count + self.among.ends.len() as u64;
        Ok(Estimate { edges, vertices: self.stored.ends.0.len() as u64, bytes: edges })
    }

    fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// Ids of the rows of a dataset, followed by the ids of a new table.
pub struct JoinedIds {
    old: (Vec<u64>, Option<Vec<String>>),
    new: NewIds,
    table: Box<dyn EdgeSource>,
    next: Mutex<bool>,
}

impl JoinedIds {
    /// The ids `old`, with their strings if they are hashes, followed by the ids of `table`, which
    /// are `new`.
    pub fn new(
        old: (Vec<u64>, Option<Vec<String>>),
        new: NewIds,
        table: Box<dyn EdgeSource>,
    ) -> Self {
        Self { old, new, table, next: Mutex::default() }
    }
}

impl EdgeSource for JoinedIds {
    fn rewind(&self) -> Result<()> {
        *lock(&self.next) = false;
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        piece.start = 0;
        Ok(!std::mem::replace(&mut *lock(&self.next), true))
    }

    fn parse(&self, _piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        batch.sources.extend(self.old.0.iter().chain(&self.new.ids));
        let old =
            self.old.1.iter().flatten().zip(&self.old.0).map(|(name, &id)| (id, name.clone()));
        batch.names.extend(old.chain(self.new.names.iter().cloned()));
        Ok(())
    }

    fn has_string_ids(&self) -> bool {
        self.table.has_string_ids()
    }

    fn place(&self, number: u64) -> String {
        self.table.place(number.saturating_sub(self.old.0.len() as u64))
    }

    fn estimate(&self) -> Result<Estimate> {
        self.table.estimate()
    }

    fn bytes_done(&self) -> u64 {
        self.table.bytes_done()
    }
}

/// Rows of a dataset followed by a column of a new table.
pub struct JoinedColumn {
    rows: u64,
    /// Features of these vertices of the dataset. `None` for labels: the first rows are then
    /// missing values.
    features: Option<(FeatureTable, Vec<u32>)>,
    column: Box<dyn Column>,
}

/// Rows that are handed over at a time.
const ROWS: usize = 1 << 12;

impl JoinedColumn {
    /// The features of some vertices, followed by `column`.
    pub fn features(
        features: (FeatureTable, Vec<u32>),
        column: Box<dyn Column>,
    ) -> Box<dyn Column> {
        Box::new(Self { rows: features.1.len() as u64, features: Some(features), column })
    }

    /// Missing labels in `rows` rows, followed by `column`.
    pub fn labels(rows: u64, column: Box<dyn Column>) -> Box<dyn Column> {
        Box::new(Self { rows, features: None, column })
    }

    /// The `bytes` of the new column, converted to the type of the joined column.
    fn converted<'b>(&self, bytes: &'b [u8], room: &'b mut Vec<u8>) -> &'b [u8] {
        if self.descr() == self.column.descr() {
            return bytes;
        }
        room.clear();
        room.extend(
            numbers(self.column.descr(), bytes).flat_map(|number| (number as f32).to_le_bytes()),
        );
        room
    }
}

impl Column for JoinedColumn {
    describe_column!(self:
        self.column.path(),
        self.column.name(),
        if self.features.is_some() { "<f4" } else { self.column.descr() },
        self.column.width(),
        self.column.num_rows().map(|rows| rows + self.rows)
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match &self.features {
            Some((table, kept)) => {
                for some in kept.chunks(ROWS) {
                    let rows = f32_rows(table, some.iter().copied());
                    take(bytemuck::cast_slice(&rows))?;
                }
            }
            None => {
                let row = self.missing_row()?;
                for start in (0..self.rows).step_by(ROWS) {
                    take(&row.repeat(ROWS.min((self.rows - start) as usize)))?;
                }
            }
        }
        let mut room = Vec::new();
        self.column.read(progress, &mut |bytes| take(self.converted(bytes, &mut room)))
    }

    fn missing_row(&self) -> Result<Vec<u8>> {
        let row = self.column.missing_row()?;
        Ok(self.converted(&row, &mut Vec::new()).to_vec())
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        self.column.error(row.saturating_sub(self.rows), column, problem)
    }
}
