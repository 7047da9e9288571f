//! Sources of the joined graph: the part copied from the dataset, followed by the new tables.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use gsplit_store::{ColumnFile, Dataset, FeatureTable, Progress};

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
    columns: Vec<EdgeColumn>,
    files: Vec<ColumnFile>,
    /// Targets handed out, and edges.
    next: AtomicUsize,
    done: AtomicU64,
}

impl StoredEdges {
    /// The in-edges of `targets` in `dataset`, between vertices of `ends`.
    pub fn open(
        dataset: &Dataset,
        targets: Vec<u32>,
        ends: (Vec<u32>, Vec<u64>),
        columns: Vec<EdgeColumn>,
    ) -> Result<Self> {
        let files = columns
            .iter()
            .map(|column| dataset.edge_column(&column.name))
            .collect::<gsplit_store::Result<_>>()?;
        let (dataset, next, done) = (dataset.clone(), AtomicUsize::new(0), AtomicU64::new(0));
        Ok(Self { dataset, targets, ends, columns, files, next, done })
    }

    /// Number of the edges.
    pub fn count(&self) -> u64 {
        self.targets.iter().map(|&v| self.degree(v)).sum()
    }

    fn degree(&self, v: u32) -> u64 {
        let indptr = self.dataset.topology().indptr();
        indptr[v as usize + 1] - indptr[v as usize]
    }

    fn id(&self, v: u32) -> Result<u64> {
        let at = self.ends.0.binary_search(&v);
        at.map(|at| self.ends.1[at])
            .map_err(|_| Error::Graph("the dataset changed while it was read: run it again".into()))
    }
}

impl EdgeSource for StoredEdges {
    fn rewind(&self) -> Result<()> {
        self.next.store(0, Relaxed);
        self.done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let start = self.next.load(Relaxed);
        let (mut end, mut edges) = (start, 0);
        while end < self.targets.len() && edges < EDGES_PER_PIECE as u64 {
            edges += self.degree(self.targets[end]);
            end += 1;
        }
        (piece.start, piece.end) = (start as u64, end as u64);
        self.next.store(end, Relaxed);
        self.done.fetch_add(edges, Relaxed);
        Ok(end > start)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let topology = self.dataset.topology();
        for &v in &self.targets[piece.start as usize..piece.end as usize] {
            let [start, end] = [v, v + 1].map(|v| topology.indptr()[v as usize] as usize);
            for edge in start..end {
                batch.push(self.id(topology.indices()[edge])?, self.id(v)?);
                for (file, column) in self.files.iter().zip(&self.columns) {
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

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        let edges = self.count();
        Ok(Estimate { edges, vertices: self.ends.0.len() as u64, bytes: edges })
    }

    fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// Rows of a dataset followed by a column of a new table.
pub struct JoinedColumn {
    /// Number of these rows.
    pub rows: u64,
    /// Features of these vertices of the dataset. `None` for labels: the first rows are then
    /// missing values.
    pub features: Option<(FeatureTable, Vec<u32>)>,
    /// The column of the new table.
    pub column: Box<dyn Column>,
}

/// Rows that are handed over at a time.
const ROWS: usize = 1 << 12;

impl JoinedColumn {
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
