//! Adjacency graphs of Ligra (Shun & Blelloch, PPoPP 2013; also of GBBS and PBBS), plain or compressed.
//!
//! ```text
//! AdjacencyGraph           or WeightedAdjacencyGraph
//! N                        numbers between blanks and line ends
//! M
//! OFFSET ...               N times: where the list of each vertex starts
//! TARGET ...               M times, from 0: the edge from the vertex of the list
//! WEIGHT ...               M times, of a weighted graph: the edge column `weight`, whole numbers
//! ```
//! Offsets, targets and weights lie far apart, so up to three streams read the file side by side: the first counts the lists
//! off, the others follow. They are read by one thread; in memory are their pieces alone.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::TextStream;
use super::field::{shown, unsigned};
use super::value::integer;
use crate::edges::{
    EDGES_PER_PIECE, EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, WEIGHT, row_bytes,
};
use crate::read::options::WantedColumns;
use crate::read::raw::{Ids, Raw};
use crate::{Error, Result};

const WEIGHTED: &[u8] = b"WeightedAdjacencyGraph";
const UNWEIGHTED: &[u8] = b"AdjacencyGraph";
/// Bytes of a number at least: a digit and a blank.
const MIN_NUMBER_BYTES: u64 = 2;

/// Whether the file starts with one of the two words.
pub fn recognises(_path: &Path, head: &[u8]) -> bool {
    matches!(head.split(u8::is_ascii_whitespace).next(), Some(WEIGHTED | UNWEIGHTED))
}

/// Opens the file at `path`.
pub fn open(path: &Path, wanted: WantedColumns<'_>) -> Result<Raw> {
    let mut words = Words::open(path)?;
    let is_weighted = match words.next()? {
        Some(WEIGHTED) => true,
        Some(UNWEIGHTED) => false,
        _ => return Err(words.error("expected the word AdjacencyGraph or WeightedAdjacencyGraph")),
    };
    let num_vertices = words.number("the number of vertices")?;
    let num_edges = words.number("the number of edges")?;
    let numbers = num_edges.checked_mul(1 + u64::from(is_weighted)).and_then(|m| m.checked_add(num_vertices));
    let bytes = words.stream.len();
    if numbers.is_none_or(|numbers| numbers > words.stream.text_len().saturating_mul(16) / MIN_NUMBER_BYTES) {
        let problem =
            format!("promises {num_vertices} vertices and {num_edges} edges in {bytes} bytes: truncated or damaged");
        return Err(words.error(&problem));
    }
    let weight = EdgeColumn { name: WEIGHT.into(), value: ValueType::I64, width: 1 };
    let is_kept = is_weighted && wanted.keeps(WEIGHT);
    let columns: Vec<EdgeColumn> = is_kept.then_some(weight).into_iter().collect();
    wanted.check(path, &columns)?;
    let lists = LigraLists {
        path: path.to_path_buf(),
        is_weighted,
        num_vertices,
        num_edges,
        columns,
        bytes,
        walk: Mutex::new(None),
        bytes_done: AtomicU64::new(0),
    };
    Ok(Raw::of(lists, Ids::Dense(Some(num_vertices)), vec![path.to_path_buf()]))
}

/// The words of a text, one after the other.
struct Words {
    path: PathBuf,
    stream: TextStream,
    piece: Piece,
    at: usize,
    /// Line of the last word.
    line: u64,
}

impl Words {
    fn open(path: &Path) -> Result<Self> {
        let stream = TextStream::open(path)?;
        Ok(Self { path: path.to_path_buf(), stream, piece: Piece::default(), at: 0, line: 1 })
    }

    /// The next word, `None` at the end.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            match self.piece.bytes.get(self.at) {
                Some(b'\n') => (self.at, self.line) = (self.at + 1, self.line + 1),
                Some(byte) if byte.is_ascii_whitespace() => self.at += 1,
                Some(_) => break,
                None => {
                    self.at = 0;
                    if !self.stream.next(&mut self.piece)? {
                        return Ok(None);
                    }
                }
            }
        }
        let rest = &self.piece.bytes[self.at..];
        let word = &rest[..rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len())];
        self.at += word.len();
        Ok(Some(word))
    }

    /// The next number, which is `what`.
    fn number(&mut self, what: &str) -> Result<u64> {
        self.parsed(what, unsigned)
    }

    fn parsed<T>(&mut self, what: &str, parse: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
        let problem = match self.next()? {
            Some(word) => match parse(word) {
                Some(number) => return Ok(number),
                None => format!("expected {what}, found {}", shown(word)),
            },
            None => format!("expected {what}, found the end of the file: truncated, download it again"),
        };
        Err(self.error(&problem))
    }

    /// Passes over `count` words.
    fn skip(mut self, count: u64) -> Result<Self> {
        (0..count).try_for_each(|_| self.parsed("a number", |_| Some(())))?;
        Ok(self)
    }

    fn error(&self, problem: &str) -> Error {
        Error::line(&self.path, self.line, problem)
    }
}

/// The lists as edges.
struct LigraLists {
    path: PathBuf,
    is_weighted: bool,
    num_vertices: u64,
    num_edges: u64,
    columns: Vec<EdgeColumn>,
    bytes: u64,
    walk: Mutex<Option<Walk>>,
    bytes_done: AtomicU64,
}

/// Words before the offsets.
const HEADER_WORDS: u64 = 3;

/// Progress of the streams.
struct Walk {
    offsets: Words,
    targets: Words,
    weights: Option<Words>,
    /// Number of the next edge.
    edge: u64,
    /// The vertex of the current list.
    vertex: u64,
    /// End of that list.
    end: u64,
}

impl LigraLists {
    fn walk(&self) -> MutexGuard<'_, Option<Walk>> {
        self.walk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Result<Walk> {
        let after = |words: u64| Words::open(&self.path)?.skip(words);
        let mut offsets = after(HEADER_WORDS)?;
        let before_targets = HEADER_WORDS + self.num_vertices;
        let weights = (!self.columns.is_empty()).then(|| after(before_targets + self.num_edges)).transpose()?;
        if self.num_vertices == 0 && self.num_edges > 0 {
            return Err(offsets.error(&format!("{} edges without vertices: damaged", self.num_edges)));
        }
        if self.num_vertices > 0 && offsets.number("the offset of vertex 0")? != 0 {
            return Err(offsets.error("expected the offset 0 of vertex 0"));
        }
        let end = self.end(&mut offsets, 0, 0)?;
        Ok(Walk { offsets, targets: after(before_targets)?, weights, edge: 0, vertex: 0, end })
    }

    /// End of the list of `vertex`, which starts at `start`.
    fn end(&self, offsets: &mut Words, vertex: u64, start: u64) -> Result<u64> {
        if vertex + 1 >= self.num_vertices {
            return Ok(self.num_edges);
        }
        let end = offsets.number("an offset")?;
        if end < start || end > self.num_edges {
            let problem = format!("offset {end} of vertex {}: expected {start} to {}", vertex + 1, self.num_edges);
            return Err(offsets.error(&problem));
        }
        Ok(end)
    }

    /// Moves to the list of the next edge, or behind the last one.
    fn advance(&self, walk: &mut Walk) -> Result<()> {
        while walk.edge >= walk.end && walk.vertex + 1 < self.num_vertices {
            walk.vertex += 1;
            walk.end = self.end(&mut walk.offsets, walk.vertex, walk.end)?;
        }
        Ok(())
    }

    /// Appends source, target and weight of the next edge.
    fn edge(&self, walk: &mut Walk, bytes: &mut Vec<u8>) -> Result<()> {
        self.advance(walk)?;
        let target = walk.targets.number("a vertex")?;
        if target >= self.num_vertices {
            return Err(walk.targets.error(&format!("vertex {target}: expected ids below {}", self.num_vertices)));
        }
        bytes.extend(walk.vertex.to_le_bytes());
        bytes.extend(target.to_le_bytes());
        if let Some(weights) = &mut walk.weights {
            let what = "a whole number of 64 bits as weight (--edge-columns none leaves weights out)";
            bytes.extend(weights.parsed(what, integer)?.to_le_bytes());
        }
        walk.edge += 1;
        Ok(())
    }

    /// Checks what is behind the last edge.
    fn check_end(&self, walk: Walk) -> Result<()> {
        let mut last = match (walk.weights, self.is_weighted) {
            (Some(weights), _) => weights,
            (None, true) => walk.targets.skip(self.num_edges)?,
            (None, false) => walk.targets,
        };
        match last.next()?.is_some() {
            true => {
                Err(last.error("expected the end of the file, found more numbers than the counts promise: damaged"))
            }
            false => Ok(()),
        }
    }
}

impl EdgeSource for LigraLists {
    fn rewind(&self) -> Result<()> {
        *self.walk() = Some(self.start()?);
        self.bytes_done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut shared = self.walk();
        let Some(walk) = shared.as_mut() else { return Ok(false) };
        piece.bytes.clear();
        piece.start = walk.edge;
        piece.end = (walk.edge + EDGES_PER_PIECE as u64).min(self.num_edges);
        while walk.edge < piece.end {
            self.edge(walk, &mut piece.bytes)?;
        }
        let last = walk.weights.as_ref().unwrap_or(&walk.targets);
        self.bytes_done.store(last.stream.bytes_done(), Relaxed);
        if piece.start == piece.end {
            self.advance(walk)?;
            shared.take().map_or(Ok(()), |walk| self.check_end(walk))?;
            return Ok(false);
        }
        Ok(true)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let values = row_bytes(&self.columns);
        for edge in piece.bytes.chunks_exact(16 + values) {
            let [source, target] = [0, 1].map(|at| u64::from_le_bytes(edge.as_chunks().0[at]));
            batch.push(source, target);
            batch.values.extend(&edge[16..]);
        }
        Ok(())
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        Ok(Ending { num_vertices: Some(self.num_vertices), ..Ending::default() })
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate { edges: self.num_edges, vertices: self.num_vertices, bytes: self.bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::golden::{Part::*, *};

    fn read(content: &str) -> Result<Raw> {
        let path = tempfile::tempdir().unwrap().keep().join("x.adj");
        std::fs::write(&path, content).unwrap();
        open(&path, WantedColumns::default())
    }

    #[test]
    fn golden_inputs() {
        for (name, weighted) in [("ligra/plain.adj", false), ("ligra/weighted.adj", true)] {
            let path = data(name);
            assert!(recognises(&path, &std::fs::read(&path).unwrap()));
            let raw = open(&path, WantedColumns::default()).unwrap();
            check(&raw, &[Vertices]);
            let (edges, values) = read_edges(&*raw.edges).unwrap();
            assert!(edges.is_sorted());
            // The weight of an edge is 10 times its source, and its target.
            let weights: Vec<i64> = edges.iter().map(|&(u, v)| (10 * u + v) as i64).collect();
            assert_eq!(values, if weighted { i64s(&weights) } else { vec![] });
        }
        assert!(!recognises(Path::new("x"), b"AdjacencyGraphs\n"));
    }

    #[test]
    fn lists_without_edges_and_numbers_in_any_lines() {
        for (content, expected) in [
            ("AdjacencyGraph\r\n4\r\n2\r\n0 0 2 2\r\n3\r\n0", &[(1, 3), (1, 0)][..]),
            ("AdjacencyGraph 1 1 0 0", &[(0, 0)]),
            ("AdjacencyGraph\n3\n0\n0\n0\n0\n", &[]),
        ] {
            assert_eq!(read_edges(&*read(content).unwrap().edges).unwrap().0, expected, "{content:?}");
        }
    }

    #[test]
    fn bad_numbers() {
        for (content, part) in [
            ("AdjacencyGraph\n", "expected the number of vertices, found the end of the file"),
            ("Adjacency\n1 1\n", "expected the word AdjacencyGraph"),
            ("AdjacencyGraph\n2\nx\n", "line 3: expected the number of edges, found `x`"),
            ("AdjacencyGraph\n2\n1\n0\n1\n", "expected a vertex, found the end of the file: truncated"),
            ("AdjacencyGraph\n2\n1\n0\n1\n1\n1\n", "line 7: expected the end of the file"),
            ("AdjacencyGraph\n2\n1\n1\n1\n1\n", "line 4: expected the offset 0 of vertex 0"),
            ("AdjacencyGraph\n2\n1\n0\n2\n1\n", "line 5: offset 2 of vertex 1: expected 0 to 1"),
            ("AdjacencyGraph\n3\n2\n0\n2\n1\n1\n0\n", "line 6: offset 1 of vertex 2: expected 2 to 2"),
            ("AdjacencyGraph\n2\n1\n0\n1\n2\n", "line 6: vertex 2: expected ids below 2"),
            ("AdjacencyGraph\n2\n1\n0\n1\n-1\n", "expected a vertex, found `-1`"),
            ("AdjacencyGraph\n0\n1\n0\n", "1 edges without vertices"),
            ("AdjacencyGraph\n18446744073709551615\n18446744073709551615\n0\n", "in 59 bytes: truncated"),
            ("AdjacencyGraph\n99999999\n1\n0\n", "promises 99999999 vertices and 1 edges in 28 bytes"),
            ("WeightedAdjacencyGraph\n2\n1\n0\n1\n1\n", "expected a whole number of 64 bits as weight"),
            ("WeightedAdjacencyGraph\n2\n1\n0\n1\n1\n0.5\n", "found `0.5`"),
        ] {
            let message = problem(read(content));
            assert!(message.contains("x.adj, line ") && message.contains(part), "{content:?}: {message}");
        }
    }

    #[test]
    fn lists_longer_than_a_piece() {
        let n = EDGES_PER_PIECE + 5;
        let offsets: String = (0..n).map(|v| format!("{}\n", if v < 2 { 0 } else { v })).collect();
        let targets: String = (0..n).rev().map(|v| format!("{v}\n")).collect();
        let raw = read(&format!("AdjacencyGraph\n{n}\n{n}\n{offsets}{targets}")).unwrap();
        let expected = (0..n as u64).map(|edge| (edge.max(1), n as u64 - 1 - edge)).collect::<Vec<_>>();
        assert!(read_edges(&*raw.edges).unwrap().0 == expected);
    }
}
