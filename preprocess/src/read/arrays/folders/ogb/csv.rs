//! OGB's CSV layout: tables without a header line, one edge or vertex per row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use super::{find, find_optional};
use crate::edges::{EdgeBatch, EdgeSource, Ending, Estimate, Piece, Seen};
use crate::read::raw::{Column, Ids, Raw, check_size};
use crate::read::text::field::{leading_unsigned, real, shown, unsigned, vertex};
use crate::read::text::{TextPieces, TextStream, first_line, lines, name_of, read_pieces};
use crate::{Error, Result};

/// The tables of a graph.
pub struct CsvFiles {
    num_nodes: PathBuf,
    num_edges: PathBuf,
    edges: PathBuf,
    labels: Option<PathBuf>,
    features: Option<PathBuf>,
}

impl CsvFiles {
    /// Finds the tables in the folder `raw`.
    pub fn find(raw: &Path) -> Result<Self> {
        Ok(Self {
            num_nodes: find(raw, "num-node-list")?,
            num_edges: find(raw, "num-edge-list")?,
            edges: find(raw, "edge")?,
            labels: find_optional(raw, "node-label"),
            features: find_optional(raw, "node-feat"),
        })
    }

    /// Paths of the tables that exist.
    fn all(&self) -> Vec<PathBuf> {
        let tables = [
            Some(&self.num_nodes),
            Some(&self.num_edges),
            Some(&self.edges),
            self.labels.as_ref(),
            self.features.as_ref(),
        ];
        tables.into_iter().flatten().cloned().collect()
    }

    /// Reads the counts, and opens the other tables.
    pub fn open(&self, progress: &dyn Progress) -> Result<Raw> {
        let num_vertices = count(&self.num_nodes, "vertices", u32::MAX.into(), progress)?;
        let num_edges = count(&self.num_edges, "edges", u64::MAX, progress)?;
        check_size(&self.num_nodes, num_vertices as usize, num_edges)?;
        let edges = CsvEdges::new(self, num_vertices, num_edges)?;
        let column = |path: &PathBuf, kind| -> Result<Box<dyn Column>> {
            Ok(Box::new(CsvColumn::open(path, kind, num_vertices)?))
        };
        Ok(Raw {
            features: self.features.as_ref().map(|path| column(path, NumberKind::Features)).transpose()?,
            labels: self.labels.as_ref().map(|path| column(path, NumberKind::Labels)).transpose()?,
            facts: BTreeMap::new(),
            ..Raw::of(edges, Ids::Dense(Some(num_vertices)), self.all())
        })
    }
}

/// The only count in a table of counts, which has one row per graph.
fn count(path: &Path, what: &str, at_most: u64, progress: &dyn Progress) -> Result<u64> {
    let mut counts = Vec::new();
    let parse = |piece: &Piece| -> Result<Vec<u64>> {
        let number = |(line, text): (u64, &[u8])| {
            let number = unsigned(text).filter(|&number| number <= at_most);
            let problem = || format!("expected a number of {what} up to {at_most}, found {}", shown(text));
            number.ok_or_else(|| Error::line(path, line, problem()))
        };
        let rows = lines(piece).map(|(line, text)| (line, text.trim_ascii())).filter(|(_, text)| !text.is_empty());
        rows.map(number).collect()
    };
    read_pieces(path, progress, parse, |found| {
        counts.extend(found);
        match counts.len() {
            0 | 1 => Ok(()),
            _ => Err(Error::input(path, "expected one graph, found the counts of several")),
        }
    })?;
    counts.first().copied().ok_or_else(|| Error::input(path, "expected one graph, found no count"))
}

/// The table of edges: lines `source,target`.
struct CsvEdges {
    path: PathBuf,
    /// The file with the number of edges.
    num_edges_path: PathBuf,
    num_vertices: u64,
    num_edges: u64,
    bytes: u64,
    text: TextPieces,
}

impl CsvEdges {
    fn new(files: &CsvFiles, num_vertices: u64, num_edges: u64) -> Result<Self> {
        Ok(Self {
            path: files.edges.clone(),
            num_edges_path: files.num_edges.clone(),
            num_vertices,
            num_edges,
            bytes: TextStream::open(&files.edges)?.len(),
            text: TextPieces::of(&files.edges),
        })
    }

    /// Appends the edge of one line. `line` computes the line number, and is called only for an error.
    fn edge(&self, line: impl Fn() -> u64, text: &[u8], batch: &mut EdgeBatch) -> Result<()> {
        let mut fields = text.split(|&byte| byte == b',');
        let (Some(source), Some(target), None) = (fields.next(), fields.next(), fields.next()) else {
            return Err(Error::line(&self.path, line(), format!("expected two vertex ids, found {}", shown(text))));
        };
        let id = |field: &[u8]| match unsigned(field.trim_ascii()).filter(|&id| id < self.num_vertices) {
            Some(id) => Ok(id as u32),
            None => vertex(&self.path, line(), field.trim_ascii(), self.num_vertices as usize),
        };
        batch.push(id(source)?.into(), id(target)?.into());
        Ok(())
    }

    /// The edge at byte `at`, if its line is two ids separated by a comma, and the start of the next line.
    fn plain_edge(&self, text: &[u8], at: usize) -> Option<(u64, u64, usize)> {
        let (source, digits) = leading_unsigned(&text[at..])?;
        let at = at + digits;
        if text.get(at) != Some(&b',') {
            return None;
        }
        let (target, digits) = leading_unsigned(&text[at + 1..])?;
        let end = at + 1 + digits;
        let next = match text.get(end..)? {
            [b'\n', ..] => end + 1,
            [b'\r', b'\n', ..] => end + 2,
            _ => return None,
        };
        (source.max(target) < self.num_vertices).then_some((source, target, next))
    }
}

impl EdgeSource for CsvEdges {
    fn rewind(&self) -> Result<()> {
        self.text.rewind()
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        self.text.next(piece)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let (text, mut at) = (&piece.bytes[..], 0);
        while at < text.len() {
            if let Some((source, target, end)) = self.plain_edge(text, at) {
                batch.push(source, target);
                at = end;
                continue;
            }
            let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |end| at + end);
            let line = text[at..end].trim_ascii();
            if !line.is_empty() {
                self.edge(|| piece.start + memchr::memchr_iter(b'\n', &text[..at]).count() as u64, line, batch)?;
            }
            at = end + 1;
        }
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        if seen.edges == self.num_edges {
            return Ok(Ending::default());
        }
        let problem = format!(
            "promises {} edges, {} has {}: one of them is truncated or damaged, download both again",
            self.num_edges,
            name_of(&self.path),
            seen.edges
        );
        Err(Error::line(&self.num_edges_path, 1, problem))
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate { edges: self.num_edges, vertices: self.num_vertices, bytes: self.bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.text.bytes_done()
    }
}

/// Kind of numbers in a table of vertices.
#[derive(Clone, Copy, PartialEq)]
enum NumberKind {
    /// Empty lines are skipped.
    Features,
    /// Empty lines are vertices without a label.
    Labels,
}

/// A table of vertices: numbers separated by commas, equally many in every line.
struct CsvColumn {
    path: PathBuf,
    kind: NumberKind,
    width: usize,
    num_vertices: u64,
}

impl CsvColumn {
    /// Determines the width from the first line.
    fn open(path: &Path, kind: NumberKind, num_vertices: u64) -> Result<Self> {
        let first = first_line(path)?;
        if kind == NumberKind::Features && first.as_deref().is_none_or(|line| line.trim_ascii().is_empty()) {
            return Err(Error::line(path, 1, "expected a row of features, found nothing"));
        }
        let width = first.map_or(1, |line| line.split(|&byte| byte == b',').count());
        Ok(Self { path: path.to_path_buf(), kind, width, num_vertices })
    }

    fn parse_row(&self, text: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
        let what = if self.kind == NumberKind::Features { "features" } else { "labels" };
        let mut found = 0;
        for field in text.split(|&byte| byte == b',') {
            found += 1;
            let field = field.trim_ascii();
            match self.kind {
                NumberKind::Features => {
                    let value: f32 = real(field).ok_or_else(|| format!("expected a number, found {}", shown(field)))?;
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
                NumberKind::Labels => {
                    let unquoted = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\""));
                    let field = unquoted.unwrap_or(field);
                    let value: Option<f64> = if field.is_empty() { Some(f64::NAN) } else { real(field) };
                    let value = value.ok_or_else(|| {
                        format!(
                            "label {}: expected a class number from 0, or NaN or nothing for unlabelled",
                            shown(field)
                        )
                    })?;
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
        match found == self.width {
            true => Ok(()),
            false => Err(format!("expected {} {what} as in the first row, found {found}", self.width)),
        }
    }
}

impl Column for CsvColumn {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &str {
        match self.kind {
            NumberKind::Features => "feature rows",
            NumberKind::Labels => "labels",
        }
    }

    fn descr(&self) -> &'static str {
        match self.kind {
            NumberKind::Features => "<f4",
            NumberKind::Labels => "<f8",
        }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn num_rows(&self) -> Option<u64> {
        None
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut found = 0u64;
        let parse = |piece: &Piece| {
            let (mut bytes, mut rows) = (Vec::new(), Vec::new());
            for (line, text) in lines(piece) {
                let text = text.trim_ascii();
                if text.is_empty() && self.kind == NumberKind::Features {
                    continue;
                }
                self.parse_row(text, &mut bytes).map_err(|problem| Error::line(&self.path, line, problem))?;
                rows.push(line);
            }
            Ok((bytes, rows))
        };
        read_pieces(&self.path, progress, parse, |(bytes, rows)| {
            if let Some(&line) = rows.get((self.num_vertices - found).try_into().unwrap_or(usize::MAX)) {
                let (name, n) = (self.name(), self.num_vertices);
                return Err(Error::line(
                    &self.path,
                    line,
                    format!("more {name} than the {n} vertices of num-node-list"),
                ));
            }
            found += rows.len() as u64;
            take(&bytes)
        })?;
        match found == self.num_vertices {
            true => Ok(()),
            false => Err(Error::input(
                &self.path,
                format!(
                    "{found} {} for the {} vertices of num-node-list: the file is truncated or damaged, download it again",
                    self.name(),
                    self.num_vertices
                ),
            )),
        }
    }

    fn error(&self, row: u64, _column: usize, problem: &str) -> Error {
        // Each line is a row, except empty lines in between.
        Error::line(&self.path, row + 1, problem)
    }
}
