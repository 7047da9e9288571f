//! Matrix Market coordinate files (Boisvert et al., NIST), plain or compressed.
//!
//! ```text
//! %%MatrixMarket matrix coordinate FIELD SYMMETRY      FIELD pattern | real | double | integer
//! % comments and empty lines                           SYMMETRY general | symmetric
//! ROWS COLUMNS ENTRIES
//! I J [VALUE]                                          ENTRIES times, from 1, in any order
//! ```
//! Entry (i, j) of the square matrix is the edge i -> j: ids count from 1. A symmetric file holds
//! one triangle: an entry off the diagonal is the edge in the other direction as well, with the
//! same value. Values become the edge column `weight`, double precision, or 64-bit integers of an
//! `integer` file. The vertices are the rows; of a matrix of two kinds of vertices, rows and
//! columns. Dense (`array`), complex and skew-symmetric matrices are refused, and others that are
//! not square.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::field::{real, shown, unsigned};
use super::value::integer;
use super::{TextPieces, TextStream, first_line, header_line, lines, words};
use crate::edges::{
    EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, WEIGHT, pass_on,
};
use crate::read::options::Schema;
use crate::read::raw::{Ids, Raw};
use crate::{Error, Result};

const BANNER: &[u8] = b"MatrixMarket";
/// Bytes of a line at least: `1 1` and its end.
const MIN_LINE_BYTES: u64 = 4;

/// Whether the file starts with the banner of Matrix Market. Some files of the Network Repository
/// have one percent sign before it.
pub fn recognises(_path: &Path, head: &[u8]) -> bool {
    let head = head.strip_prefix(b"%").map_or(head, |head| head.strip_prefix(b"%").unwrap_or(head));
    head.get(..BANNER.len()).is_some_and(|start| start.eq_ignore_ascii_case(BANNER))
}

/// Opens the file at `path`. Rows and columns may be of `two_kinds`, and then differ in number.
pub fn open(path: &Path, schema: &Schema, two_kinds: bool, ignore_header: bool) -> Result<Raw> {
    let first = first_line(path)?.unwrap_or_default();
    let banner = banner(first.trim_ascii()).map_err(|problem| Error::line(path, 1, problem))?;
    let (header, line) = header_line(path, is_comment, "ROWS COLUMNS ENTRIES")?;
    let numbers: Vec<Option<u64>> = words(&line).map(unsigned).collect();
    let [Some(rows), Some(columns), Some(promised)] = numbers[..] else {
        return Err(Error::line(
            path,
            header,
            format!("expected `ROWS COLUMNS ENTRIES`, found {}", shown(&line)),
        ));
    };
    if rows != columns && !two_kinds {
        let problem = format!(
            "a matrix of {rows} rows and {columns} columns: expected a square one, of a graph's \
             edges; if rows and columns are two kinds of vertices, pass --bipartite"
        );
        return Err(Error::line(path, header, problem));
    }
    let value = banner.value.map(|value| EdgeColumn { name: WEIGHT.into(), value, width: 1 });
    let kept: Vec<EdgeColumn> =
        value.into_iter().filter(|column| schema.keeps(&column.name)).collect();
    schema.check_edge_columns(path, &kept)?;
    let entries = MatrixEntries {
        path: path.to_path_buf(),
        banner,
        header,
        sides: [rows, columns],
        promised,
        ignore_header,
        columns: kept,
        text: TextPieces::of(path),
        found: AtomicU64::new(0),
    };
    Ok(Raw::of(entries, Ids::FromOne(rows.max(columns)), vec![path.to_path_buf()]))
}

/// Content of the first line.
struct Banner {
    /// Type of the entries' values, `None` for a pattern.
    value: Option<ValueType>,
    is_symmetric: bool,
}

fn banner(line: &[u8]) -> Result<Banner, String> {
    let lower = line.to_ascii_lowercase();
    let words: Vec<&[u8]> = words(&lower).collect();
    let found = match words[..] {
        [b"%%matrixmarket" | b"%matrixmarket", b"matrix", b"coordinate", field, symmetry] => {
            Some((field, symmetry))
        }
        _ => None,
    };
    let value = match found {
        Some((b"pattern", _)) => Some(None),
        Some((b"real" | b"double", _)) => Some(Some(ValueType::F64)),
        Some((b"integer", _)) => Some(Some(ValueType::I64)),
        _ => None,
    };
    match (value, found) {
        (Some(value), Some((_, symmetry @ (b"general" | b"symmetric")))) => {
            Ok(Banner { value, is_symmetric: symmetry == b"symmetric" })
        }
        _ => {
            let expected =
                "expected %%MatrixMarket matrix coordinate pattern|real|integer general|symmetric";
            Err(format!("{}: {expected}", shown(line)))
        }
    }
}

/// Whether a line is a comment or empty.
fn is_comment(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"%")
}

/// The entries as edges.
struct MatrixEntries {
    path: PathBuf,
    banner: Banner,
    /// The line with the three numbers.
    header: u64,
    /// Numbers of rows and of columns.
    sides: [u64; 2],
    /// Number of entries, by the header.
    promised: u64,
    ignore_header: bool,
    columns: Vec<EdgeColumn>,
    text: TextPieces,
    /// Entries parsed so far.
    found: AtomicU64,
}

impl MatrixEntries {
    fn num_vertices(&self) -> u64 {
        self.sides[0].max(self.sides[1])
    }

    /// Appends the edges of one line.
    fn entry(&self, line: &[u8], batch: &mut EdgeBatch) -> Result<(), String> {
        let mut words = words(line);
        let mut id = |n: u64| match words.next().and_then(unsigned) {
            Some(id @ 1..) if id <= n => Ok(id),
            _ => Err(format!("expected a row or column from 1 to {n}, found {}", shown(line))),
        };
        let (source, target) = (id(self.sides[0])?, id(self.sides[1])?);
        let value = words.next();
        if value.is_some() != self.banner.value.is_some() || words.next().is_some() {
            let value = if self.banner.value.is_some() {
                "a row, a column and a value"
            } else {
                "a row and a column"
            };
            return Err(format!("expected {value}, found {}", shown(line)));
        }
        let bytes = match (self.banner.value, value) {
            (Some(kind), Some(value)) if !self.columns.is_empty() => {
                let bytes = match kind {
                    ValueType::I64 => integer(value).map(i64::to_le_bytes),
                    _ => real(value).map(f64::to_le_bytes),
                };
                let kind = if kind == ValueType::I64 {
                    "a whole number of 64 bits with its sign"
                } else {
                    "a number"
                };
                let expected = || {
                    format!(
                        "expected {kind}, found {}; --edge-columns none leaves the values out",
                        shown(value)
                    )
                };
                Some(bytes.ok_or_else(expected)?)
            }
            _ => None,
        };
        batch.push(source, target);
        batch.values.extend(bytes.iter().flatten());
        if self.banner.is_symmetric && source != target {
            batch.push(target, source);
            batch.values.extend(bytes.iter().flatten());
        }
        Ok(())
    }
}

impl EdgeSource for MatrixEntries {
    pass_on!(text: next, bytes_done);

    fn rewind(&self) -> Result<()> {
        self.found.store(0, Relaxed);
        self.text.rewind()
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let mut found = 0;
        for (number, line) in lines(piece).map(|(number, line)| (number, line.trim_ascii())) {
            if number > self.header && !is_comment(line) {
                self.entry(line, batch)
                    .map_err(|problem| Error::line(&self.path, number, problem))?;
                found += 1;
            }
        }
        self.found.fetch_add(found, Relaxed);
        Ok(())
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        let (promised, found) = (self.promised, self.found.load(Relaxed));
        if promised != found && !self.ignore_header {
            let remedy = "truncated or damaged, download it again or pass --schema \
                          ignore-header=yes";
            let problem = format!("promises {promised} lines of edges, {found} follow: {remedy}");
            return Err(Error::line(&self.path, self.header, problem));
        }
        Ok(Ending { num_vertices: Some(self.num_vertices()), ..Ending::default() })
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        let text = TextStream::open(&self.path)?;
        let lines = self.promised.min(text.text_len() / MIN_LINE_BYTES);
        let edges = if self.banner.is_symmetric { 2 * lines } else { lines };
        Ok(Estimate { edges, vertices: self.num_vertices(), bytes: text.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::golden::{self, Part::*, *};

    fn read(path: &Path) -> Result<Raw> {
        open(path, &Schema::default(), false, false)
    }

    fn text(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.mtx");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn golden_inputs() {
        let path = data("mtx/general.mtx");
        assert!(recognises(&path, &std::fs::read(&path).unwrap()) && !recognises(&path, b"% x"));
        let raw = read(&path).unwrap();
        check(&raw, &[Vertices]);
        let (edges, values) = read_edges(&*raw.edges).unwrap();
        assert_eq!(
            (edges, f64s(&values)),
            (from_one(&EDGES), (0..10).map(|edge| f64::from(edge) / 2.0).collect())
        );
        let raw = read(&data("mtx/symmetric.mtx")).unwrap();
        let expected = from_one(&[(1, 0), (0, 1), (2, 0), (0, 2), (2, 2), (5, 4), (4, 5)]);
        assert_eq!((read_edges(&*raw.edges).unwrap().0, raw.edges.columns().len()), (expected, 0));
    }

    #[test]
    fn signs_integers_and_chosen_columns() {
        let (_folder, path) = text(
            "%%matrixmarket MATRIX Coordinate integer symmetric\r\n3 3 2\r\n2 1 5\r\n3 1 -7\r\n",
        );
        let (edges, values) = read_edges(&*read(&path).unwrap().edges).unwrap();
        assert_eq!((edges, values), (vec![(2, 1), (1, 2), (3, 1), (1, 3)], i64s(&[5, 5, -7, -7])));
        let none = Schema { edge_columns: Some(vec![]), ..Default::default() };
        let raw = open(&path, &none, false, false).unwrap();
        assert_eq!((raw.edges.columns().len(), read_edges(&*raw.edges).unwrap().1.len()), (0, 0));
    }

    #[test]
    fn bad_lines() {
        let general = "%%MatrixMarket matrix coordinate real general\n";
        let pattern = "%%MatrixMarket matrix coordinate pattern general\n";
        let table: &[(String, &[&str])] = &[
            (
                "%%MatrixMarket matrix array real general\n1 1\n1\n".into(),
                &["line 1", "expected %%MatrixMarket matrix coordinate"],
            ),
            (
                "%%MatrixMarket matrix coordinate complex general\n".into(),
                &["line 1", "expected %%MatrixMarket matrix coordinate"],
            ),
            (
                "%%MatrixMarket matrix coordinate real hermitian\n".into(),
                &["expected %%MatrixMarket matrix coordinate"],
            ),
            (format!("{general}% x\n"), &["found the end of the file"]),
            ("".into(), &["line 1", "expected %%MatrixMarket"]),
            (format!("{general}% x\n3 4 1\n"), &["line 3", "3 rows and 4 columns", "square"]),
            (format!("{general}3 3\n"), &["line 2", "expected `ROWS COLUMNS ENTRIES`"]),
            (
                format!("{general}3 3 2\n1 1 1\n"),
                &["line 2", "promises 2 lines of edges, 1 follow"],
            ),
            (
                format!("{general}3 3 1\n1 1 1\n1 2 1\n"),
                &["line 2", "promises 1 lines of edges, 2 follow"],
            ),
            (format!("{general}3 3 1\n\n0 1 1\n"), &["line 4", "from 1 to 3, found `0 1 1`"]),
            (format!("{general}3 3 1\n4 1 1\n"), &["line 3", "from 1 to 3, found `4 1 1`"]),
            (format!("{general}3 3 1\n1 -1 1\n"), &["found `1 -1 1`"]),
            (format!("{general}3 3 1\n1 1\n"), &["line 3", "expected a row, a column and a value"]),
            (format!("{general}3 3 1\n1 1 x\n"), &["expected a number, found `x`"]),
            (format!("{general}3 3 1\n1 1 1 1\n"), &["expected a row, a column and a value"]),
            (format!("{general}3 3 1\n1\n"), &["expected a row or column"]),
            (format!("{pattern}3 3 1\n1 1 1\n"), &["expected a row and a column, found"]),
            (
                format!("{pattern}3 3 1152921504606846976\n1 1\n"),
                &["promises 1152921504606846976 lines of edges, 1 follow"],
            ),
        ];
        for (content, parts) in table {
            let (_folder, path) = text(content);
            refused(read(&path), content, &[&["x.mtx"], *parts].concat());
        }
    }

    #[test]
    fn real_matrices() {
        if let Some(path) = golden::real("mtx/bayer10.mtx") {
            let raw = read(&path).unwrap();
            let (edges, values) = read_edges(&*raw.edges).unwrap();
            assert_eq!((edges.len(), raw.ids), (94_926, Ids::FromOne(13_436)));
            assert_eq!((edges[0], f64s(&values)[0]), ((101, 1), -564.2036607119013));
        }
        if let Some(path) = golden::real("mtx/bcspwr10.mtx") {
            let edges = read_edges(&*read(&path).unwrap().edges).unwrap().0;
            let loops = edges.iter().filter(|(u, v)| u == v).count();
            assert_eq!((edges.len() - loops) / 2 + loops, 13_571);
        }
    }
}
