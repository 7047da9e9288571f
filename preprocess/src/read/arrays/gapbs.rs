//! Serialized graphs of the GAP Benchmark Suite (Beamer, Asanović & Patterson, 2015): `.sg`, and `.wsg` with weights.
//!
//! ```text
//! u8           1 of a graph with directions, else 0
//! i64 M        entries of all lists: of a graph without directions, each edge counts twice
//! i64 N        vertices
//! i64[N + 1]   offsets of the lists
//! i32[M]       targets of the edges from each vertex; of a weighted graph i32[M, 2], target and weight
//!              with directions, offsets and sources of the edges to each vertex follow in the same way: they are not read
//! ```
//! All is little-endian. The length of the file tells whether there are weights, which become the edge column `weight`.

use std::path::Path;

use super::edges::ArrayEdges;
use super::numbers::{Dtype, Numbers};
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, WEIGHT};
use crate::read::options::WantedColumns;
use crate::read::raw::{Ids, Raw};
use crate::{Error, Result};

const HEADER_BYTES: u64 = 17;

/// Whether the file has the length that its counts promise, or is called `.sg` or `.wsg` and starts as one.
pub fn recognises(path: &Path, head: &[u8]) -> bool {
    let is_named = path.extension().is_some_and(|ending| ending == "sg" || ending == "wsg");
    let starts = head.get(HEADER_BYTES as usize..).is_some_and(|rest| rest.starts_with(&[0; 8]));
    let length = std::fs::metadata(path).map_or(0, |found| found.len());
    let header = SerializedHeader::parse(head).filter(|_| starts);
    header.is_some_and(|header| is_named || header.is_weighted(length).is_some())
}

/// Opens the file at `path`.
pub fn open(path: &Path, wanted: WantedColumns<'_>) -> Result<Raw> {
    let mut head = Vec::new();
    let file = gsplit_store::open_file(path).map_err(Error::io(path))?;
    let length = file.metadata().map_err(Error::io(path))?.len();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, HEADER_BYTES), &mut head).map_err(Error::io(path))?;
    let expected = || Error::input(path, "expected 0 or 1, then the numbers of edges and of vertices: damaged?");
    let header = SerializedHeader::parse(&head).ok_or_else(expected)?;
    let SerializedHeader { num_edges, num_vertices, .. } = header;
    let Some(is_weighted) = header.is_weighted(length) else {
        let [plain, weighted] =
            [4, 8].map(|bytes| header.bytes(bytes).map_or("more".into(), |bytes| bytes.to_string()));
        let problem = format!(
            "promises {num_vertices} vertices and {num_edges} edges, so {plain} bytes, or {weighted} with weights; it has {length}: \
             truncated or damaged, download it again"
        );
        return Err(Error::input(path, problem));
    };
    let offsets = Numbers::at(path, "offsets", Dtype::I8, HEADER_BYTES, num_vertices + 1)?;
    let behind = HEADER_BYTES + 8 * (num_vertices + 1);
    // Both halves of an entry at once, where it has two.
    let dtype = if is_weighted { Dtype::U8 } else { Dtype::I4 };
    let edges = ArrayEdges::compressed(offsets, Numbers::at(path, "targets", dtype, behind, num_edges)?, true)?;
    let (ids, files) = (Ids::Dense(Some(num_vertices)), vec![path.to_path_buf()]);
    if !is_weighted {
        wanted.check(path, &[])?;
        return Ok(Raw::of(edges, ids, files));
    }
    let weight = EdgeColumn { name: WEIGHT.into(), value: ValueType::I64, width: 1 };
    let columns: Vec<EdgeColumn> = wanted.keeps(WEIGHT).then_some(weight).into_iter().collect();
    wanted.check(path, &columns)?;
    let edges = edges.without_bound();
    Ok(Raw::of(WeightedEntries { path: path.to_path_buf(), edges, num_vertices, columns }, ids, files))
}

/// The first bytes.
struct SerializedHeader {
    is_directed: bool,
    num_edges: u64,
    num_vertices: u64,
}

impl SerializedHeader {
    fn parse(head: &[u8]) -> Option<Self> {
        let (is_directed, counts) = head.split_first()?;
        let [num_edges, num_vertices, ..] = counts.as_chunks().0 else { return None };
        let [num_edges, num_vertices] = [num_edges, num_vertices].map(|&count| i64::from_le_bytes(count));
        let (num_edges, num_vertices) = (u64::try_from(num_edges).ok()?, u64::try_from(num_vertices).ok()?);
        (*is_directed <= 1).then_some(Self { is_directed: *is_directed == 1, num_edges, num_vertices })
    }

    /// Bytes of a file with `entry_bytes` an entry.
    fn bytes(&self, entry_bytes: u64) -> Option<u64> {
        let offsets = self.num_vertices.checked_add(1)?.checked_mul(8)?;
        let lists = self.num_edges.checked_mul(entry_bytes)?.checked_add(offsets)?;
        lists.checked_mul(1 + u64::from(self.is_directed))?.checked_add(HEADER_BYTES)
    }

    /// Whether a file of `length` bytes has weights; `None` for another length.
    fn is_weighted(&self, length: u64) -> Option<bool> {
        [(4, false), (8, true)]
            .into_iter()
            .find(|&(bytes, _)| self.bytes(bytes) == Some(length))
            .map(|(_, weighted)| weighted)
    }
}

/// Lists whose entries are a target in the lower half and a weight in the upper one.
struct WeightedEntries {
    path: std::path::PathBuf,
    edges: ArrayEdges,
    num_vertices: u64,
    columns: Vec<EdgeColumn>,
}

impl EdgeSource for WeightedEntries {
    fn rewind(&self) -> Result<()> {
        self.edges.rewind()
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        self.edges.next(piece)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        self.edges.parse(piece, batch)?;
        for (edge, entry) in (piece.start..).zip(&mut batch.targets) {
            let weight = (*entry >> 32) as u32 as i32;
            *entry &= u64::from(u32::MAX);
            if *entry >= self.num_vertices {
                let n = self.num_vertices;
                let problem =
                    format!("targets: edge {edge}, target {entry}: expected ids below the number of vertices, {n}");
                return Err(Error::input(&self.path, problem));
            }
            if !self.columns.is_empty() {
                batch.values.extend(i64::from(weight).to_le_bytes());
            }
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
        Ok(Estimate { vertices: self.num_vertices, ..self.edges.estimate()? })
    }

    fn bytes_done(&self) -> u64 {
        self.edges.bytes_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::golden::{Part::*, *};

    fn read(path: &Path) -> Result<Raw> {
        open(path, WantedColumns::default())
    }

    /// A file called `name` with `bytes`.
    fn file(name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = tempfile::tempdir().unwrap().keep().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn golden_inputs() {
        for (name, weighted) in [("gapbs/plain.sg", false), ("gapbs/weighted.wsg", true)] {
            let path = data(name);
            let bytes = std::fs::read(&path).unwrap();
            assert!(recognises(&path, &bytes) && recognises(&file("x", &bytes), &bytes), "{name}");
            let raw = read(&path).unwrap();
            check(&raw, &[Vertices]);
            let (edges, values) = read_edges(&*raw.edges).unwrap();
            let weights: Vec<i64> = edges.iter().map(|&(u, v)| (10 * u + v) as i64 - 30).collect();
            assert_eq!(values, if weighted { i64s(&weights) } else { vec![] }, "{name}");
        }
    }

    #[test]
    fn damage_is_one_line() {
        for (name, weighted) in [("gapbs/plain.sg", false), ("gapbs/weighted.wsg", true)] {
            let good = std::fs::read(data(name)).unwrap();
            let plain = SerializedHeader::parse(&good).unwrap().bytes(4).unwrap() as usize;
            for length in (0..good.len()).filter(|&length| length != plain) {
                let path = file("x.sg", &good[..length]);
                assert_eq!(recognises(&path, &good[..length]), length >= 25, "{length}");
                assert!(!recognises(&file("x", &good[..length]), &good[..length]), "{length}");
                problem(read(&path));
            }
            let targets = 17 + 8 * 7;
            let table: &[(usize, u64, &str)] = &[
                (0, 2, "expected 0 or 1"),
                (1, u64::MAX, "expected 0 or 1"),
                (1, 11, "promises 6 vertices and 11 edges"),
                (9, 1 << 62, "so more bytes, or more with weights"),
                (17, 1, "offsets: entry 0: expected 0"),
                (25, 11, "offsets: entry 1: 11, expected 0 to 10"),
                (33, 1, "offsets: entry 2: 1, expected 3 to 10"),
                (targets, 6, "targets: edge 0, target 6: expected ids below the number of vertices, 6"),
            ];
            for &(at, number, part) in table {
                let mut bytes = good.clone();
                let length = if at == 0 {
                    1
                } else if at == targets {
                    4
                } else {
                    8
                };
                bytes[at..at + length].copy_from_slice(&number.to_le_bytes()[..length]);
                let message = problem(read(&file("x.sg", &bytes)));
                assert!(message.contains("x.sg: ") && message.contains(part), "{weighted}, {part}: {message}");
            }
        }
    }
}
