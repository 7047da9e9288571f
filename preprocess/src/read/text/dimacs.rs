//! DIMACS graphs in text, plain or compressed: from the challenge on shortest paths (Demetrescu,
//! Goldberg & Johnson, 2006), and from the challenge on colouring and cliques (Johnson & Trick,
//! 1993).
//!
//! ```text
//! c COMMENT                anywhere
//! p sp N M                 shortest paths: vertices from 1, arcs
//! a U V WEIGHT             M times: the edge u -> v
//! p edge N M               colouring (or p col): vertices from 1, edges
//! e U V                    M times: the edges u -> v and v -> u
//! n, d, v, x ...           numbers of vertices in a file of colouring: skipped
//! ```
//! Weights are whole numbers and become the edge column `weight`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::field::{counted, shown, unsigned};
use super::value::integer;
use super::{TextPieces, TextStream, header_line, lines, words};
use crate::edges::{
    EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, WEIGHT, pass_on,
};
use crate::read::options::Schema;
use crate::read::raw::{Ids, Raw};
use crate::{Error, Result};

/// Bytes of an edge's line at least: `e 1 1` and its end.
const MIN_LINE_BYTES: u64 = 6;

/// Whether the first line of the file that is not a comment is a header.
pub fn recognises(_path: &Path, head: &[u8]) -> bool {
    let mut lines =
        head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !is_comment(line));
    lines.next().is_some_and(|line| DimacsHeader::parse(line, 0).is_ok())
}

/// Opens the file at `path`, whose header is not to be trusted where it is to be ignored.
pub fn open(path: &Path, schema: &Schema, ignore_header: bool) -> Result<Raw> {
    let header = DimacsHeader::read(path)?;
    let weight = EdgeColumn { name: WEIGHT.into(), value: ValueType::I64, width: 1 };
    let is_kept = header.is_directed && schema.keeps(WEIGHT);
    let columns: Vec<EdgeColumn> = is_kept.then_some(weight).into_iter().collect();
    schema.check_edge_columns(path, &columns)?;
    let arcs = Arcs {
        path: path.to_path_buf(),
        header,
        columns,
        ignore_header,
        text: TextPieces::of(path),
        arcs: AtomicU64::new(0),
    };
    Ok(Raw::of(arcs, Ids::FromOne(header.num_vertices), vec![path.to_path_buf()]))
}

/// The line `p KIND N M`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct DimacsHeader {
    /// Arcs with weights, or else edges without direction.
    is_directed: bool,
    num_vertices: u64,
    /// Number of lines of edges.
    num_lines: u64,
    line: u64,
}

impl DimacsHeader {
    fn read(path: &Path) -> Result<Self> {
        let (number, line) = header_line(path, is_comment, "p sp VERTICES ARCS")?;
        Self::parse(&line, number).map_err(|problem| Error::line(path, number, problem))
    }

    fn parse(text: &[u8], line: u64) -> Result<Self, String> {
        let fields: Vec<&[u8]> = words(text).collect();
        let header = match fields[..] {
            [b"p", kind @ (b"sp" | b"edge" | b"edges" | b"col"), n, m] => {
                unsigned(n).zip(unsigned(m)).map(|counts| (kind == b"sp", counts))
            }
            _ => None,
        };
        let expected = || {
            format!(
                "expected `p sp VERTICES ARCS` or `p edge VERTICES EDGES`, found {}",
                shown(text)
            )
        };
        let (is_directed, (num_vertices, num_lines)) = header.ok_or_else(expected)?;
        Ok(Self { is_directed, num_vertices, num_lines, line })
    }
}

/// Whether a line is a comment or empty.
fn is_comment(line: &[u8]) -> bool {
    matches!(line, [] | [b'c'] | [b'c', b' ' | b'\t', ..])
}

/// The lines as edges.
struct Arcs {
    path: PathBuf,
    header: DimacsHeader,
    columns: Vec<EdgeColumn>,
    ignore_header: bool,
    text: TextPieces,
    /// Lines of edges parsed so far.
    arcs: AtomicU64,
}

impl Arcs {
    /// Appends the edges of one line, and says whether it has any.
    fn arc(&self, line: &[u8], batch: &mut EdgeBatch) -> Result<bool, String> {
        let fields: Vec<&[u8]> = words(line).take(5).collect();
        let n = self.header.num_vertices;
        let id = |word| match unsigned(word) {
            Some(id @ 1..) if id <= n => Ok(id),
            _ => Err(format!("expected a vertex from 1 to {n}, found {}", shown(word))),
        };
        match (&fields[..], self.header.is_directed) {
            ([b"a", u, v, weight], true) => {
                batch.push(id(u)?, id(v)?);
                if !self.columns.is_empty() {
                    let expected = || {
                        let found = shown(weight);
                        format!(
                            "expected a whole number of 64 bits, found {found}; --edge-columns \
                             none leaves weights out"
                        )
                    };
                    batch.values.extend(integer(weight).ok_or_else(expected)?.to_le_bytes());
                }
                Ok(true)
            }
            ([b"e", u, v], false) => {
                let (u, v) = (id(u)?, id(v)?);
                batch.push(u, v);
                if u != v {
                    batch.push(v, u);
                }
                Ok(true)
            }
            ([b"n" | b"d" | b"v" | b"x", ..], false) => Ok(false),
            (_, true) => Err(format!("expected `a FROM TO WEIGHT`, found {}", shown(line))),
            (_, false) => Err(format!("expected `e FROM TO`, found {}", shown(line))),
        }
    }
}

impl EdgeSource for Arcs {
    pass_on!(text: next, bytes_done);

    fn rewind(&self) -> Result<()> {
        self.arcs.store(0, Relaxed);
        self.text.rewind()
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let mut arcs = 0;
        for (number, line) in lines(piece) {
            let line = line.trim_ascii();
            if number > self.header.line && !is_comment(line) {
                let is_arc = self
                    .arc(line, batch)
                    .map_err(|problem| Error::line(&self.path, number, problem))?;
                arcs += u64::from(is_arc);
            }
        }
        self.arcs.fetch_add(arcs, Relaxed);
        Ok(())
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        let (promised, found) = (self.header.num_lines, self.arcs.load(Relaxed));
        if promised != found && !self.ignore_header {
            let problem = format!(
                "promises {}, {found} follow: truncated or damaged, download it again or pass \
                 --schema ignore-header=yes",
                counted(promised, "edge")
            );
            return Err(Error::line(&self.path, self.header.line, problem));
        }
        Ok(Ending { num_vertices: Some(self.header.num_vertices), ..Ending::default() })
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        let text = TextStream::open(&self.path)?;
        let lines = self.header.num_lines.min(text.text_len() / MIN_LINE_BYTES);
        let edges = if self.header.is_directed { lines } else { 2 * lines };
        Ok(Estimate { edges, vertices: self.header.num_vertices, bytes: text.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::golden::{self, Part::*, *};

    fn read(content: &str, ignore_header: bool) -> Result<Raw> {
        let folder = tempfile::tempdir().unwrap().keep();
        let path = folder.join("x.gr");
        std::fs::write(&path, content).unwrap();
        open(&path, &Schema::default(), ignore_header)
    }

    #[test]
    fn golden_input() {
        let path = data("dimacs/arcs.gr");
        assert!(
            recognises(&path, &std::fs::read(&path).unwrap())
                && !recognises(&path, b"c x\na 1 2 3\n")
        );
        let raw = open(&path, &Schema::default(), false).unwrap();
        check(&raw, &[Vertices]);
        let weights: Vec<i64> = (0..10).collect();
        assert_eq!(read_edges(&*raw.edges).unwrap().1, golden::i64s(&weights));
    }

    #[test]
    fn edges_of_colouring_have_both_directions() {
        let raw = read("c x\r\n\r\np edge 3 2\r\nn 1 7\r\ne 1 2\r\ne 3 3\r\n", false).unwrap();
        let (edges, values) = read_edges(&*raw.edges).unwrap();
        assert_eq!(
            (edges, values.len(), raw.ids),
            (vec![(1, 2), (2, 1), (3, 3)], 0, Ids::FromOne(3))
        );
    }

    #[test]
    fn bad_lines() {
        for (content, part) in [
            ("c x\n", "found the end of the file"),
            ("p sp 3\n", "line 1: expected `p sp VERTICES ARCS`"),
            ("p max 3 1\na 1 2 3\n", "line 1: expected `p sp VERTICES ARCS`"),
            ("p sp 3 2\na 1 2 3\n", "line 1: promises 2 edges, 1 follow"),
            (
                "p sp 3 18446744073709551615\na 1 2 3\n",
                "line 1: promises 18446744073709551615 edges, 1 follow",
            ),
            ("p sp 3 1\na 1 2 3\na 1 3 3\n", "line 1: promises 1 edge, 2 follow"),
            ("p sp 3 1\nc x\na 0 2 3\n", "line 3: expected a vertex from 1 to 3, found `0`"),
            ("p sp 3 1\na 1 4 3\n", "line 2: expected a vertex from 1 to 3, found `4`"),
            ("p sp 3 1\na 1 -1 3\n", "found `-1`"),
            ("p sp 3 1\na 1 2\n", "line 2: expected `a FROM TO WEIGHT`, found `a 1 2`"),
            ("p sp 3 1\na 1 2 3 4\n", "expected `a FROM TO WEIGHT`"),
            ("p sp 3 1\na 1 2 0.5\n", "expected a whole number of 64 bits, found `0.5`"),
            ("p sp 3 1\ne 1 2\n", "expected `a FROM TO WEIGHT`"),
            ("p col 3 1\na 1 2 1\n", "line 2: expected `e FROM TO`"),
        ] {
            let message = problem(read(content, false));
            assert!(message.contains("x.gr") && message.contains(part), "{content:?}: {message}");
        }
        let raw = read("p sp 3 2\na 1 2 3\n", true).unwrap();
        assert_eq!(read_edges(&*raw.edges).unwrap().0, [(1, 2)]);
    }
}
