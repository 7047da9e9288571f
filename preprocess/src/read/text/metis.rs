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

use gsplit_store::{Progress, Unit, VERTEX_WEIGHT};

use super::field::{counted, shown, unsigned};
use crate::edges::{
    EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, pass_on,
};
use crate::read::options::Schema;
use crate::read::raw::{Column, Ids, Raw, describe_column};
use crate::read::text::{
    TextPieces, header_line, lines, name_of, parse_pieces, uncompressed, words,
};
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
pub fn open(path: &Path, schema: &Schema, ignore_header: bool) -> Result<Raw> {
    let header = MetisHeader::read(path)?;
    let weight = EdgeColumn { name: "weight".into(), value: ValueType::I64, width: 1 };
    let columns: Vec<EdgeColumn> = header
        .edge_weights
        .then_some(weight)
        .into_iter()
        .filter(|column| schema.keeps(&column.name))
        .collect();
    schema.check_edge_columns(path, &columns)?;
    let lines = || VertexLines {
        path: path.to_path_buf(),
        header,
        text: TextPieces::of(path),
        vertex: AtomicU64::new(0),
    };
    let lists =
        AdjacencyLists { lines: lines(), columns, ignore_header, balance: AtomicU64::new(0) };
    let mut raw = Raw::of(lists, Ids::FromOne(header.num_vertices), vec![path.to_path_buf()]);
    let sizes = usize::from(header.vertex_sizes);
    for (name, skip, width) in
        [("vertex_size", 0, sizes), (VERTEX_WEIGHT, sizes, header.vertex_weights)]
    {
        if width > 0 {
            raw.columns.push(Box::new(VertexNumbers { lines: lines(), name, skip, width }));
        }
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
        let form = "VERTICES EDGES [FORMAT [WEIGHTS]]";
        let (number, line) = header_line(path, is_comment, form)?;
        Self::parse(&line, number).map_err(|problem| Error::line(path, number, problem))
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

    fn too_few(&self) -> String {
        format!("expected {} numbers of the vertex", self.prefix())
    }
}

/// The number in `field`, called `name` in messages.
fn whole(name: &str, field: &[u8]) -> Result<i64, String> {
    let number = unsigned(field).and_then(|number| i64::try_from(number).ok());
    number.ok_or_else(|| format!("expected {name} from 0 to 2^63-1, found {}", shown(field)))
}

fn is_comment(line: &[u8]) -> bool {
    line.starts_with(b"%")
}

/// The lines of the vertices.
struct VertexLines {
    path: PathBuf,
    header: MetisHeader,
    text: TextPieces,
    /// The vertex of the next line, once the header is passed.
    vertex: AtomicU64,
}

impl VertexLines {
    fn rewind(&self) -> Result<()> {
        self.vertex.store(0, Relaxed);
        self.text.rewind()
    }

    /// Whether a line is that of a vertex.
    fn counts(&self, (number, line): &(u64, &[u8])) -> bool {
        *number > self.header.line && !is_comment(line)
    }

    /// The next piece, whose end becomes the vertex of its first line.
    fn next(&self, piece: &mut Piece) -> Result<bool> {
        if !self.text.next(piece)? {
            let (n, found) = (self.header.num_vertices, self.vertex.load(Relaxed));
            // An empty last line, without neighbours, may have no end.
            let last = u64::from(self.header.prefix() == 0);
            let problem =
                format!("promises {n} vertices, lines of {found} follow: truncated or damaged");
            return match found + last < n {
                true => Err(Error::line(&self.path, self.header.line, problem)),
                false => Ok(false),
            };
        }
        let count = match memchr::memchr(b'%', &piece.bytes) {
            None if piece.start > self.header.line => {
                let ends = memchr::memchr_iter(b'\n', &piece.bytes).count() as u64;
                ends + u64::from(!piece.bytes.ends_with(b"\n"))
            }
            _ => lines(piece).filter(|line| self.counts(line)).count() as u64,
        };
        piece.end = self.vertex.fetch_add(count, Relaxed);
        Ok(true)
    }

    /// Calls `take` with the number of each vertex in `piece` and its line. Fails at a line too many
    /// that is not empty.
    fn for_each(
        &self,
        piece: &Piece,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> Result<()> {
        let n = self.header.num_vertices;
        let lines = lines(piece).filter(|line| self.counts(line));
        for (vertex, (number, line)) in (piece.end..).zip(lines) {
            let taken = match vertex < n {
                true => take(vertex, line),
                false if line.trim_ascii().is_empty() => Ok(()),
                false => Err(format!("more lines than the {n} vertices: one of them is damaged")),
            };
            taken.map_err(|problem| Error::line(&self.path, number, problem))?;
        }
        Ok(())
    }
}

/// The lists of neighbours as edges.
struct AdjacencyLists {
    lines: VertexLines,
    columns: Vec<EdgeColumn>,
    ignore_header: bool,
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
        let header = &self.lines.header;
        let n = header.num_vertices;
        let mut fields = words(line);
        if fields.by_ref().take(header.prefix()).count() < header.prefix() {
            return Err(header.too_few());
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
            if header.edge_weights {
                let weight = fields.next().ok_or("expected a weight behind the last neighbour")?;
                let weight = whole("a weight", weight)?;
                if !self.columns.is_empty() {
                    batch.values.extend(weight.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

impl EdgeSource for AdjacencyLists {
    pass_on!(lines: next);

    fn rewind(&self) -> Result<()> {
        self.balance.store(0, Relaxed);
        self.lines.rewind()
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        self.lines.for_each(piece, |vertex, line| self.list(vertex, line, batch))?;
        self.balance(batch);
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        let VertexLines { path, header, .. } = &self.lines;
        let (m, found) = (header.num_edges, seen.edges);
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
            let remedy = "truncated or damaged; or pass --schema ignore-header=yes to take entries \
                          for directed edges, with --symmetrise to add their reverses";
            return Err(Error::line(path, header.line, format!("{problem}: {remedy}")));
        }
        let path = path.display();
        let note =
            |problem| format!("note: {path}: {problem}: entries are taken for directed edges");
        let decisions = problem.map(note).into_iter().collect();
        Ok(Ending { num_vertices: Some(header.num_vertices), decisions, ..Ending::default() })
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        let VertexLines { path, header, .. } = &self.lines;
        let bytes = std::fs::metadata(path).map_err(Error::io(path))?.len();
        // A neighbour takes two bytes at least; compressed ones perhaps a fifth of it.
        let edges = (2 * header.num_edges).min(bytes.saturating_mul(3));
        Ok(Estimate { edges, vertices: header.num_vertices, bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.lines.text.bytes_done()
    }
}

/// Sizes or weights of the vertices.
struct VertexNumbers {
    lines: VertexLines,
    name: &'static str,
    /// Numbers before them in a line.
    skip: usize,
    width: usize,
}

impl Column for VertexNumbers {
    describe_column!(self:
        &self.lines.path,
        self.name,
        "<i8",
        self.width,
        Some(self.lines.header.num_vertices)
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let VertexLines { path, header, .. } = &self.lines;
        self.lines.rewind()?;
        let stage = progress.stage(&format!("reading {}", name_of(path)), None, Unit::Bytes);
        let next = |piece: &mut Piece| {
            let more = self.lines.next(piece)?;
            stage.advance(piece.bytes.len() as u64);
            Ok(more)
        };
        let parse = |piece: &Piece| {
            let mut rows: Vec<u8> = Vec::new();
            self.lines.for_each(piece, |_, line| {
                let before = rows.len();
                for field in words(line).skip(self.skip).take(self.width) {
                    rows.extend(whole(self.name, field)?.to_le_bytes());
                }
                match rows.len() - before < 8 * self.width {
                    true => Err(header.too_few()),
                    false => Ok(()),
                }
            })?;
            Ok(rows)
        };
        parse_pieces(next, parse, |rows| take(&rows))
    }
}

#[cfg(test)]
mod tests;
