//! Adjacency lists (networkx `write_adjlist`): one line per vertex, with its id and the ids of its
//! out-neighbours.
//!
//! ```text
//! # comment lines anywhere
//! 1 2 3        1 -> 2, 1 -> 3
//! 2: 3         2 -> 3; a colon may follow the first id
//! 4            a vertex without edges
//! ```
//! Plain or compressed. Ids are unsigned numbers, or strings where one of the first lines has
//! something else. Each edge is as often in the graph as it is listed: undirected graphs whose
//! lists name each edge once need `--symmetrise`.

use std::path::{Path, PathBuf};

use super::field::{shown, unsigned};
use super::line::{Delimiter, fields};
use super::names::TextNames;
use super::sketch::{Sketch, is_comment};
use super::{TextPieces, TextStream, lines};
use crate::edges::{EdgeBatch, EdgeSource, Estimate, Piece, pass_on};
use crate::read::options::ReadOptions;
use crate::read::raw::{Ids, Raw};
use crate::{Error, Result};

/// Opens the adjacency list at `path`.
pub fn open(path: &Path, options: &ReadOptions) -> Result<Raw> {
    if let Some(name) = options.schema.edge_columns().unwrap_or_default().first() {
        return Err(Error::Option(format!(
            "--edge-columns {name}: {} has no columns of edges, found none",
            path.display()
        )));
    }
    let mut piece = Piece::default();
    let mut stream = TextStream::open(path)?;
    stream.next(&mut piece)?;
    let sketch = Sketch::of(&piece.bytes, None);
    let is_id = |cell: &[u8]| unsigned(cell.strip_suffix(b":").unwrap_or(cell)).is_some();
    let strings = sketch.rows.iter().flat_map(|(_, row)| row).any(|cell| !is_id(cell.trim_ascii()));
    if strings && options.keep_ids {
        let problem = "the ids are strings, which --keep-ids cannot keep: leave it out, and nodes/original_id keeps them";
        return Err(Error::Option(format!("{}: {problem}", path.display())));
    }
    let edges: usize = sketch.rows.iter().map(|(_, row)| row.len() - 1).sum();
    let lines = memchr::memchr_iter(b'\n', &piece.bytes).count().max(1) as u64;
    let all_lines = lines * (stream.text_len() / piece.bytes.len().max(1) as u64).max(1);
    let estimate = Estimate {
        edges: all_lines * edges as u64 / sketch.rows.len().max(1) as u64,
        vertices: all_lines,
        bytes: stream.len(),
    };
    let source = |alone| AdjacencyLines {
        path: path.to_path_buf(),
        delimiter: sketch.delimiter,
        strings,
        alone,
        estimate,
        text: TextPieces::of(path),
    };
    let ids = if options.keep_ids { Ids::Dense(None) } else { Ids::Sparse };
    let mut raw = Raw::of(source(false), ids, vec![path.to_path_buf()]);
    raw.alone = Some(Box::new(source(true)));
    Ok(raw)
}

/// The edges of an adjacency list, or its vertices without any.
struct AdjacencyLines {
    path: PathBuf,
    delimiter: Delimiter,
    /// Ids are strings.
    strings: bool,
    /// Vertices without edges, which are sources without a target.
    alone: bool,
    estimate: Estimate,
    text: TextPieces,
}

impl AdjacencyLines {
    fn id(&self, cell: &[u8], names: &mut TextNames) -> Result<u64, String> {
        match self.strings {
            false => unsigned(cell).ok_or_else(|| {
                format!("expected a vertex id, a number from 0 to 2^64-1, found {}", shown(cell))
            }),
            true => {
                let text = std::str::from_utf8(cell)
                    .map_err(|_| format!("{}: expected UTF-8", shown(cell)))?;
                Ok(names.id(text))
            }
        }
    }

    /// Appends the edges of a line, or its vertex if it has none.
    fn line(
        &self,
        line: &[u8],
        names: &mut TextNames,
        batch: &mut EdgeBatch,
    ) -> Result<(), String> {
        let (mut head, mut wrong, mut degree) = (0, None, 0);
        fields(line, self.delimiter, |place, cell| {
            let cell = cell.trim_ascii();
            // A delimiter may end the line.
            if cell.is_empty() && place > 0 {
                return true;
            }
            let cell = if place == 0 { cell.strip_suffix(b":").unwrap_or(cell) } else { cell };
            match (self.id(cell, names), place) {
                (Ok(id), 0) => head = id,
                (Ok(id), _) => {
                    degree += 1;
                    if !self.alone {
                        batch.push(head, id);
                    }
                }
                (Err(problem), _) => wrong = Some(problem),
            }
            wrong.is_none()
        })?;
        if self.alone && degree == 0 {
            batch.sources.push(head);
        }
        wrong.map_or(Ok(()), Err)
    }
}

impl EdgeSource for AdjacencyLines {
    pass_on!(text: rewind, next, bytes_done);

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let mut names = TextNames::default();
        for (number, line) in lines(piece) {
            let text = line.trim_ascii();
            if !text.is_empty() && !is_comment(text) {
                self.line(text, &mut names, batch)
                    .map_err(|problem| Error::line(&self.path, number, problem))?;
            }
        }
        names.append_to(&mut batch.names);
        Ok(())
    }

    fn has_string_ids(&self) -> bool {
        self.strings
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(self.estimate)
    }
}
