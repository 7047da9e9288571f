//! METIS graph files (Karypis & Kumar, METIS manual 5.1, section 4.1.1), plain or compressed.
//!
//! ```text
//! % comment lines anywhere
//! N M [FMT [NCON]]                        vertices, undirected edges, contents of the lines, weights per vertex
//! [SIZE] [WEIGHT ...] {NEIGHBOUR [WEIGHT]} ...     one line per vertex, N times; neighbours from 1; a line may be empty
//! ```
//! FMT is up to three digits: the last, 1 with edge weights; the second, 1 with NCON vertex weights
//! (one, if NCON is not given); the first, 1 with a vertex size. All are integers.
//!
//! Every undirected edge is in the lines of both ends, so it is read as two directed edges: line u
//! and neighbour v are u -> v, and the entries of all lines must be 2 M. An edge in only one line
//! is refused: each pair of ends has a hash, which is added for the entry of the smaller end and
//! subtracted for the larger, and the sum must be 0. Edge weights become the edge column `weight`,
//! vertex weights the node column `vertex_weight` (of NCON numbers), sizes `vertex_size`.
//!
//! The vertex of a line depends on the comments before it, so lines are counted while pieces are
//! handed out: the end of a piece is the vertex of its first line.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use gsplit_store::{Progress, Unit, VERTEX_WEIGHT};

use super::field::{counted, shown, unsigned};
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType};
use crate::read::options::WantedColumns;
use crate::read::raw::{Column, Ids, Raw, describe_column};
use crate::read::text::{TextStream, first_line_of_data, lines, name_of, uncompressed, words};
use crate::{Error, Result};

/// Maximum number of weights per vertex.
const MAX_WEIGHTS: u64 = 1 << 10;

/// Whether the file is called `.graph` or `.metis` and its first line of numbers is a header of
/// METIS.
pub fn recognises(path: &Path, head: &[u8]) -> bool {
    let named = path.to_string_lossy();
    let named = uncompressed(&named);
    let first =
        head.split(|&byte| byte == b'\n').find(|line| !line.starts_with(b"%")).unwrap_or(&[]);
    (named.ends_with(".graph") || named.ends_with(".metis")) && MetisHeader::parse(first, 0).is_ok()
}

/// Opens the file at `path`, whose header is not to be trusted where it is to be ignored.
pub fn open(path: &Path, wanted: WantedColumns<'_>, ignore_header: bool) -> Result<Raw> {
    let header = MetisHeader::read(path)?;
    let weight = EdgeColumn { name: "weight".into(), value: ValueType::I64, width: 1 };
    let columns: Vec<EdgeColumn> = header
        .edge_weights
        .then_some(weight)
        .into_iter()
        .filter(|column| wanted.keeps(&column.name))
        .collect();
    wanted.check(path, &columns)?;
    let lists = AdjacencyLists {
        path: path.to_path_buf(),
        header,
        columns,
        ignore_header,
        walk: Mutex::new(None),
        bytes_done: AtomicU64::new(0),
        balance: AtomicU64::new(0),
    };
    let mut raw = Raw::of(lists, Ids::FromOne(header.num_vertices), vec![path.to_path_buf()]);
    let column =
        |name, skip, width| VertexNumbers { path: path.to_path_buf(), header, name, skip, width };
    if header.vertex_sizes {
        raw.columns.push(Box::new(column("vertex_size", 0, 1)));
    }
    if header.vertex_weights > 0 {
        raw.columns.push(Box::new(column(
            VERTEX_WEIGHT,
            usize::from(header.vertex_sizes),
            header.vertex_weights,
        )));
    }
    Ok(raw)
}

/// The first line that is not a comment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MetisHeader {
    num_vertices: u64,
    num_edges: u64,
    vertex_sizes: bool,
    vertex_weights: usize,
    edge_weights: bool,
    line: u64,
}

impl MetisHeader {
    fn read(path: &Path) -> Result<Self> {
        match first_line_of_data(path, is_comment)? {
            Some((number, line)) => {
                Self::parse(&line, number).map_err(|problem| Error::line(path, number, problem))
            }
            None => Err(Error::input(
                path,
                "expected a line `VERTICES EDGES [FORMAT [WEIGHTS]]`, found the end of the file",
            )),
        }
    }

    fn parse(text: &[u8], line: u64) -> Result<Self, String> {
        let expected =
            "expected `VERTICES EDGES [FORMAT [WEIGHTS]]`, FORMAT of up to three digits 0 or 1";
        let problem = || format!("{expected}, found {}", shown(text.trim_ascii()));
        let words: Vec<&[u8]> = words(text).collect();
        let (n, m, format, weights) = match words[..] {
            [n, m] => (n, m, &b""[..], None),
            [n, m, format] => (n, m, format, None),
            [n, m, format, weights] => (n, m, format, Some(weights)),
            _ => return Err(problem()),
        };
        if format.len() > 3 || format.iter().any(|digit| !matches!(digit, b'0' | b'1')) {
            return Err(problem());
        }
        let digit = |place: usize| format.len() > place && format[format.len() - 1 - place] == b'1';
        let weights = match weights.map(unsigned) {
            None => u64::from(digit(1)),
            Some(Some(count)) if count <= MAX_WEIGHTS && (count > 0 || !digit(1)) => {
                count * u64::from(digit(1))
            }
            Some(_) => return Err(format!("{}, with 1 to {MAX_WEIGHTS} weights", problem())),
        };
        Ok(Self {
            num_vertices: unsigned(n).ok_or_else(problem)?,
            num_edges: unsigned(m).filter(|&m| m < 1 << 62).ok_or_else(problem)?,
            vertex_sizes: digit(2),
            vertex_weights: weights as usize,
            edge_weights: digit(0),
            line,
        })
    }

    /// Numbers before the neighbours in every line.
    fn prefix(&self) -> usize {
        usize::from(self.vertex_sizes) + self.vertex_weights
    }
}

fn is_comment(line: &[u8]) -> bool {
    line.starts_with(b"%")
}

/// A walk over the lines, which knows the vertex of each.
struct LineWalk {
    text: TextStream,
    /// The vertex of the next line, once the header is passed.
    vertex: u64,
}

impl LineWalk {
    fn start(path: &Path) -> Result<Self> {
        Ok(Self { text: TextStream::open(path)?, vertex: 0 })
    }

    /// The next piece, and the vertex of its first line.
    fn next(&mut self, piece: &mut Piece, header: &MetisHeader) -> Result<Option<u64>> {
        if !self.text.next(piece)? {
            return Ok(None);
        }
        let first = self.vertex;
        let counts = |(number, line): &(u64, &[u8])| *number > header.line && !is_comment(line);
        self.vertex += match memchr::memchr(b'%', &piece.bytes) {
            None if piece.start > header.line => {
                let ends = memchr::memchr_iter(b'\n', &piece.bytes).count() as u64;
                ends + u64::from(!piece.bytes.ends_with(b"\n"))
            }
            _ => lines(piece).filter(counts).count() as u64,
        };
        Ok(Some(first))
    }
}

/// The lines of vertices in `piece`, the first being that of `vertex`. Fails at a line too many
/// that is not empty.
fn vertex_lines<'a>(
    path: &'a Path,
    header: &'a MetisHeader,
    piece: &'a Piece,
    mut vertex: u64,
) -> impl Iterator<Item = Result<(u64, u64, &'a [u8])>> {
    let lines = lines(piece).filter(|(number, line)| *number > header.line && !is_comment(line));
    lines.filter_map(move |(number, line)| {
        vertex += 1;
        match vertex <= header.num_vertices {
            true => Some(Ok((number, vertex - 1, line))),
            false if line.trim_ascii().is_empty() => None,
            false => {
                let problem = format!(
                    "more lines than the {} vertices: one of them is damaged",
                    header.num_vertices
                );
                Some(Err(Error::line(path, number, problem)))
            }
        }
    })
}

/// The lists of neighbours as edges.
struct AdjacencyLists {
    path: PathBuf,
    header: MetisHeader,
    columns: Vec<EdgeColumn>,
    ignore_header: bool,
    walk: Mutex<Option<LineWalk>>,
    bytes_done: AtomicU64,
    /// Sum of the hashes of all entries, 0 where each edge is listed at both ends.
    balance: AtomicU64,
}

/// Hash of a pair of ends.
fn pair_hash(smaller: u64, larger: u64) -> u64 {
    let mixed =
        (smaller.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ larger).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb)
}

impl AdjacencyLists {
    /// Adds the hashes of the entries in `batch`; the hash of an entry that names a smaller vertex
    /// is negative.
    fn balance(&self, batch: &EdgeBatch) {
        let hash = |(&u, &v): (&u64, &u64)| match u.cmp(&v) {
            Ordering::Less => pair_hash(u, v),
            Ordering::Equal => 0,
            Ordering::Greater => pair_hash(v, u).wrapping_neg(),
        };
        let sum = batch.sources.iter().zip(&batch.targets).map(hash).fold(0, u64::wrapping_add);
        self.balance.fetch_add(sum, Relaxed);
    }

    fn list(&self, vertex: u64, line: &[u8], batch: &mut EdgeBatch) -> Result<(), String> {
        let n = self.header.num_vertices;
        let mut fields = words(line);
        for at in 0..self.header.prefix() {
            let field = fields.next().ok_or_else(|| {
                format!("expected {} numbers of the vertex", self.header.prefix())
            })?;
            let problem = || {
                format!(
                    "number {} of the vertex: expected a whole number from 0, found {}",
                    at + 1,
                    shown(field)
                )
            };
            unsigned(field).ok_or_else(problem)?;
        }
        while let Some(field) = fields.next() {
            match unsigned(field) {
                Some(neighbour @ 1..) if neighbour <= n => batch.push(vertex + 1, neighbour),
                _ => {
                    return Err(format!(
                        "expected a neighbour from 1 to {n}, found {}",
                        shown(field)
                    ));
                }
            }
            if self.header.edge_weights {
                let weight = fields.next().ok_or("expected a weight behind the last neighbour")?;
                let weight =
                    unsigned(weight).and_then(|weight| i64::try_from(weight).ok()).ok_or_else(
                        || format!("expected a weight from 0 to 2^63-1, found {}", shown(weight)),
                    )?;
                if !self.columns.is_empty() {
                    batch.values.extend(weight.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

impl EdgeSource for AdjacencyLists {
    fn rewind(&self) -> Result<()> {
        *self.walk.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(LineWalk::start(&self.path)?);
        self.bytes_done.store(0, Relaxed);
        self.balance.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        let walk = match &mut *walk {
            Some(walk) => walk,
            none => none.insert(LineWalk::start(&self.path)?),
        };
        let vertex = walk.next(piece, &self.header)?;
        self.bytes_done.store(walk.text.bytes_done(), Relaxed);
        if let Some(vertex) = vertex {
            piece.end = vertex;
        } else if walk.vertex < self.header.num_vertices {
            let (n, found) = (self.header.num_vertices, walk.vertex);
            let problem =
                format!("promises {n} vertices, lines of {found} follow: truncated or damaged");
            return Err(Error::line(&self.path, self.header.line, problem));
        }
        Ok(vertex.is_some())
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        for line in vertex_lines(&self.path, &self.header, piece, piece.end) {
            let (number, vertex, line) = line?;
            self.list(vertex, line, batch)
                .map_err(|problem| Error::line(&self.path, number, problem))?;
        }
        self.balance(batch);
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        let (m, found) = (self.header.num_edges, seen.edges);
        let problem = if found != 2 * m {
            Some(format!(
                "promises {}, each listed at both ends; {found} neighbours follow",
                counted(m, "edge")
            ))
        } else if self.balance.load(Relaxed) != 0 {
            Some("edges are listed at only one end, METIS lists each at both".to_string())
        } else {
            None
        };
        if let Some(problem) = problem.as_ref().filter(|_| !self.ignore_header) {
            let remedy = "truncated or damaged; or pass --ignore-header to take entries for directed edges, with --symmetrise to add \
                          their reverses";
            return Err(Error::line(&self.path, self.header.line, format!("{problem}: {remedy}")));
        }
        let note = |problem| {
            format!(
                "note: {}: {problem}: entries are taken for directed edges",
                self.path.display()
            )
        };
        let decisions = problem.map(note).into_iter().collect();
        Ok(Ending { num_vertices: Some(self.header.num_vertices), decisions, ..Ending::default() })
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        let bytes = std::fs::metadata(&self.path).map_err(Error::io(&self.path))?.len();
        // A neighbour takes two bytes at least; compressed ones perhaps a fifth of it.
        let edges = (2 * self.header.num_edges).min(bytes.saturating_mul(3));
        Ok(Estimate { edges, vertices: self.header.num_vertices, bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Relaxed)
    }
}

/// Sizes or weights of the vertices.
struct VertexNumbers {
    path: PathBuf,
    header: MetisHeader,
    name: &'static str,
    /// Numbers before them in a line.
    skip: usize,
    width: usize,
}

impl Column for VertexNumbers {
    describe_column!(self:
        &self.path,
        self.name,
        "<i8",
        self.width,
        Some(self.header.num_vertices)
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut walk = LineWalk::start(&self.path)?;
        let stage = progress.stage(
            &format!("reading {}", name_of(&self.path)),
            Some(walk.text.len()),
            Unit::Bytes,
        );
        let (mut piece, mut rows, mut done) = (Piece::default(), Vec::new(), 0);
        while let Some(vertex) = walk.next(&mut piece, &self.header)? {
            rows.clear();
            for line in vertex_lines(&self.path, &self.header, &piece, vertex) {
                let (number, _, line) = line?;
                let before = rows.len();
                for field in words(line).skip(self.skip).take(self.width) {
                    let value = unsigned(field)
                        .and_then(|value| i64::try_from(value).ok())
                        .ok_or_else(|| {
                            let problem = format!(
                                "{}: expected a whole number from 0, found {}",
                                self.name,
                                shown(field)
                            );
                            Error::line(&self.path, number, problem)
                        })?;
                    rows.extend(value.to_le_bytes());
                }
                if rows.len() - before < 8 * self.width {
                    let problem =
                        format!("expected {} numbers of the vertex", self.header.prefix());
                    return Err(Error::line(&self.path, number, problem));
                }
            }
            if !rows.is_empty() {
                take(&rows)?;
            }
            stage.advance(walk.text.bytes_done() - done);
            done = walk.text.bytes_done();
        }
        if walk.vertex < self.header.num_vertices {
            let problem = format!(
                "{} lines for {} vertices: truncated",
                walk.vertex, self.header.num_vertices
            );
            return Err(Error::line(&self.path, self.header.line, problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
