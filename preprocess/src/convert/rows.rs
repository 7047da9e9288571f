//! Rows of a node column, in the order of the vertices.
//!
//! A column whose rows are already in that order is streamed directly. If a table lists its
//! vertices in another order, each row is first written to its place in a scratch file, which is
//! then read from the start.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gsplit_store::{DatasetWriter, Progress};

use crate::csc::IdMap;
use crate::edges::for_each_batch;
use crate::read::options::{OnDuplicate, Schema};
use crate::read::raw::{Column, Raw, element_bytes};
use crate::read::text::field::counted;
use crate::{Error, Result};

/// Bytes read back at a time.
const AT_A_TIME: usize = 1 << 20;

/// The vertex of every row of the node columns.
pub enum RowOrder {
    /// Row v is vertex v.
    Vertices,
    /// Row i is vertex `vertices[i]`, or is left out.
    Table {
        /// Vertex of each row; [`LEFT_OUT`] for rows that another row of the same vertex replaces.
        vertices: Vec<u32>,
        /// Vertices without a row, ascending.
        missing: Vec<u32>,
        /// Number of rows whose vertex has another row.
        repeated: u64,
    },
}

/// Marks a row that does not count.
const LEFT_OUT: u32 = u32::MAX;

impl RowOrder {
    /// The order of `raw`'s rows among the vertices of `dataset`, whose graph is written. Takes 4
    /// bytes per vertex if a table has its own order, and an [`IdMap`] while it is computed.
    pub fn of(raw: &Raw, dataset: &DatasetWriter, schema: &Schema) -> Result<Self> {
        let Some(table) = &raw.node_ids else { return Ok(Self::Vertices) };
        let (ids, num_vertices) = (IdMap::of(dataset)?, dataset.num_vertices());
        let path = raw.table();
        let mut vertices: Vec<u32> = Vec::new();
        for_each_batch(table.as_ref(), |batch| {
            for &id in &batch.sources {
                vertices.push(ids.find(id).ok_or_else(|| {
                    let place = table.place(vertices.len() as u64);
                    Error::input(
                        path,
                        format!("{place}: {} is not a vertex of the graph", ids.unknown(id)),
                    )
                })?);
            }
            Ok(())
        })?;
        let mut row_of = vec![None; num_vertices as usize];
        let (mut repeated, mut first_repeated) = (0u64, None);
        for row in 0..vertices.len() {
            let vertex = vertices[row];
            let Some(before) = row_of[vertex as usize] else {
                row_of[vertex as usize] = Some(row as u32);
                continue;
            };
            repeated += 1;
            first_repeated = first_repeated.or(Some((vertex, before, row)));
            match schema.on_duplicate {
                Some(OnDuplicate::Last) => {
                    vertices[before as usize] = LEFT_OUT;
                    row_of[vertex as usize] = Some(row as u32);
                }
                _ => vertices[row] = LEFT_OUT,
            }
        }
        if let (Some((vertex, before, row)), None) = (first_repeated, schema.on_duplicate) {
            let id = ids.original(vertex);
            let such = if repeated == 1 { "" } else { "for example " };
            let problem = format!(
                "{}: {such}{id} is on {} and again on {}: pass --schema on-duplicate=first, or \
                 last",
                counted(repeated, "duplicate id"),
                table.place(u64::from(before)),
                table.place(row as u64)
            );
            return Err(Error::input(path, problem));
        }
        let missing: Vec<u32> =
            (0..num_vertices as u32).filter(|&vertex| row_of[vertex as usize].is_none()).collect();
        if let (Some(&vertex), None) = (missing.first(), schema.missing_rows) {
            let (table, id) = (path.to_path_buf(), ids.original(vertex));
            return Err(Error::NoRow { table, missing: missing.len(), vertices: num_vertices, id });
        }
        let in_order = missing.is_empty()
            && vertices.iter().enumerate().all(|(row, &vertex)| row == vertex as usize);
        Ok(if in_order { Self::Vertices } else { Self::Table { vertices, missing, repeated } })
    }

    /// Reports how many rows are left out, and how many are added.
    pub fn say(&self, progress: &dyn Progress) {
        let Self::Table { vertices, missing, repeated } = self else { return };
        let (rows, missing) = (vertices.len(), missing.len());
        if *repeated > 0 {
            progress.decide(&format!(
                "--schema on-duplicate: {repeated} of {rows} rows are left out: their vertices \
                 have another one"
            ));
        }
        if missing > 0 {
            progress.decide(&format!(
                "--schema missing-rows: {missing} vertices without a row get one of missing values"
            ));
        }
    }

    /// Passes the rows of `column` on in the order of the vertices, several whole rows at a time.
    /// Fails unless each vertex has one.
    pub fn read(
        &self,
        column: &dyn Column,
        num_vertices: u64,
        scratch: &Path,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let row_bytes = row_bytes(column);
        let expected = match self {
            Self::Vertices => num_vertices,
            Self::Table { vertices, .. } => vertices.len() as u64,
        };
        let mut rows = 0u64;
        let mut count = |bytes: &[u8]| -> Result<u64> {
            let first = rows;
            rows += (bytes.len() / row_bytes) as u64;
            match rows > expected {
                true => Err(wrong_rows(column, rows, expected)),
                false => Ok(first),
            }
        };
        match self {
            Self::Vertices => column.read(progress, &mut |bytes| {
                count(bytes)?;
                take(bytes)
            })?,
            Self::Table { vertices, missing, .. } => {
                let path = scratch.join("rows");
                let file =
                    File::options().read(true).write(true).create(true).truncate(true).open(&path);
                let mut file = file.map_err(Error::io(&path))?;
                column.read(progress, &mut |bytes| {
                    let first = count(bytes)? as usize;
                    let vertices = &vertices[first..first + bytes.len() / row_bytes];
                    let mut row = 0;
                    // No vertex follows the one with the largest number.
                    for run in
                        vertices.chunk_by(|a, b| a.checked_add(1) == Some(*b) && *b != LEFT_OUT)
                    {
                        if run[0] == LEFT_OUT {
                            row += run.len();
                            continue;
                        }
                        let at = u64::from(run[0]) * row_bytes as u64;
                        let part = &bytes[row * row_bytes..(row + run.len()) * row_bytes];
                        file.write_all_at(part, at).map_err(Error::io(&path))?;
                        row += run.len();
                    }
                    Ok(())
                })?;
                if !missing.is_empty() {
                    let row = column.missing_row()?;
                    for &vertex in missing {
                        file.write_all_at(&row, u64::from(vertex) * row_bytes as u64)
                            .map_err(Error::io(&path))?;
                    }
                }
                let mut room = vec![0; (AT_A_TIME / row_bytes).max(1) * row_bytes];
                let mut left = num_vertices * row_bytes as u64;
                while left > 0 {
                    let now = left.min(room.len() as u64) as usize;
                    file.read_exact(&mut room[..now]).map_err(Error::io(&path))?;
                    take(&room[..now])?;
                    left -= now as u64;
                }
                std::fs::remove_file(&path).map_err(Error::io(&path))?;
            }
        }
        match rows == expected {
            true => Ok(()),
            false => Err(wrong_rows(column, rows, expected)),
        }
    }
}

fn wrong_rows(column: &dyn Column, found: u64, num_vertices: u64) -> Error {
    let more = if found > num_vertices { "or more " } else { "" };
    let problem = format!(
        "{}: {found} {more}rows for {num_vertices} vertices: expected one each; truncated, or of \
         another graph?",
        column.name()
    );
    Error::input(column.path(), problem)
}

/// Bytes per row.
pub fn row_bytes(column: &dyn Column) -> usize {
    (column.width() * element_bytes(column.descr())).max(1)
}
