//! Matrix Market coordinate files (Boisvert et al., NIST), plain or compressed.
//!
//! ```text
//! %%MatrixMarket matrix coordinate FIELD SYMMETRY      FIELD pattern | real | double | integer
//! % comments and empty lines                           SYMMETRY general | symmetric | skew-symmetric
//! ROWS COLUMNS ENTRIES
//! I J [VALUE]                                          ENTRIES times, from 1, in any order
//! ```
//! Entry (i, j) of the square matrix is the edge i -> j: ids count from 1. A symmetric file holds one triangle: an entry off the
//! diagonal is the edge in the other direction as well, with the same value, or the negated one of a skew-symmetric matrix.
//! Values become the edge column `weight`, double precision, or 64-bit integers of an `integer` file. The vertices are the
//! rows; of a matrix of two kinds of vertices, rows and columns. Dense (`array`) and complex matrices are refused, and others that are
//! not square.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::field::{real, shown, unsigned};
use super::value::integer;
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType};
use crate::read::options::WantedColumns;
use crate::read::raw::{Ids, Raw};
use crate::read::text::{TextPieces, TextStream, lines};
use crate::{Error, Result};

const BANNER: &[u8] = b"%%MatrixMarket";
/// Bytes of a line at least: `1 1` and its end.
const MIN_LINE_BYTES: u64 = 4;

/// Whether the file starts with the banner of Matrix Market.
pub fn recognises(_path: &Path, head: &[u8]) -> bool {
    head.len() >= BANNER.len() && head[..BANNER.len()].eq_ignore_ascii_case(BANNER)
}

/// Opens the file at `path`. Rows and columns may be of `two_kinds`, and then differ in number.
pub fn open(path: &Path, wanted: WantedColumns<'_>, two_kinds: bool) -> Result<Raw> {
    let header = MatrixHeader::read(path)?;
    let [rows, columns] = header.sides;
    if rows != columns && !two_kinds {
        let problem = format!(
            "a matrix of {rows} rows and {columns} columns: expected a square one, of a graph's edges; if rows and columns are two kinds of \
             vertices, pass --bipartite"
        );
        return Err(Error::line(path, header.line, problem));
    }
    let value = header.value.map(|value| EdgeColumn { name: "weight".into(), value, width: 1 });
    let columns: Vec<EdgeColumn> = value.into_iter().filter(|column| wanted.keeps(&column.name)).collect();
    wanted.check(path, &columns)?;
    let num_vertices = rows.max(header.sides[1]);
    let entries = MatrixEntries {
        path: path.to_path_buf(),
        header,
        columns,
        text: TextPieces::of(path),
        entries: AtomicU64::new(0),
    };
    Ok(Raw::of(entries, Ids::FromOne(num_vertices), vec![path.to_path_buf()]))
}

/// Lines before the entries.
#[derive(Clone, Copy, Debug)]
struct MatrixHeader {
    /// Type of the entries' values, `None` for a pattern.
    value: Option<ValueType>,
    symmetry: Symmetry,
    /// Numbers of rows and of columns.
    sides: [u64; 2],
    num_entries: u64,
    /// The line with the three numbers.
    line: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Symmetry {
    General,
    Symmetric,
    Skew,
}

impl MatrixHeader {
    fn read(path: &Path) -> Result<Self> {
        let mut text = TextStream::open(path)?;
        let mut piece = Piece::default();
        let mut banner = None;
        while text.next(&mut piece)? {
            for (number, line) in lines(&piece) {
                let line = line.trim_ascii();
                match banner {
                    None => banner = Some(Self::banner(line).map_err(|problem| Error::line(path, number, problem))?),
                    Some(_) if line.is_empty() || line.starts_with(b"%") => {}
                    Some((value, symmetry)) => {
                        let (sides, num_entries) =
                            Self::sizes(line).map_err(|problem| Error::line(path, number, problem))?;
                        return Ok(Self { value, symmetry, sides, num_entries, line: number });
                    }
                }
            }
        }
        Err(Error::input(path, "expected %%MatrixMarket and a line `ROWS COLUMNS ENTRIES`, found the end of the file"))
    }

    fn banner(line: &[u8]) -> Result<(Option<ValueType>, Symmetry), String> {
        let lower = line.to_ascii_lowercase();
        let words: Vec<&[u8]> = lower.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let expected =
            "expected %%MatrixMarket matrix coordinate pattern|real|integer general|symmetric|skew-symmetric";
        let [b"%%matrixmarket", b"matrix", b"coordinate", field, symmetry] = words[..] else {
            return Err(format!("{}: {expected}", shown(line)));
        };
        let value = match field {
            b"pattern" => None,
            b"real" | b"double" => Some(ValueType::F64),
            b"integer" => Some(ValueType::I64),
            other => return Err(format!("a matrix of {} numbers: {expected}", shown(other))),
        };
        let symmetry = match symmetry {
            b"general" => Symmetry::General,
            b"symmetric" => Symmetry::Symmetric,
            b"skew-symmetric" => Symmetry::Skew,
            other => return Err(format!("a {} matrix: {expected}", shown(other))),
        };
        Ok((value, symmetry))
    }

    fn sizes(line: &[u8]) -> Result<([u64; 2], u64), String> {
        let numbers: Option<Vec<u64>> = fields(line).map(unsigned).collect();
        match numbers.as_deref() {
            Some(&[rows, columns, entries]) => Ok(([rows, columns], entries)),
            _ => Err(format!("expected `ROWS COLUMNS ENTRIES`, found {}", shown(line))),
        }
    }
}

/// Fields between blanks.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty())
}

/// The entries as edges.
struct MatrixEntries {
    path: PathBuf,
    header: MatrixHeader,
    columns: Vec<EdgeColumn>,
    text: TextPieces,
    /// Entries parsed so far.
    entries: AtomicU64,
}

impl MatrixEntries {
    fn num_vertices(&self) -> u64 {
        self.header.sides[0].max(self.header.sides[1])
    }

    /// Appends the edges of one line.
    fn entry(&self, line: &[u8], batch: &mut EdgeBatch) -> Result<(), String> {
        let mut fields = fields(line);
        let mut id = |n: u64| {
            let field = fields.next().ok_or_else(|| format!("expected a row and a column, found {}", shown(line)))?;
            match unsigned(field) {
                Some(id @ 1..) if id <= n => Ok(id),
                _ => Err(format!("expected a row or column from 1 to {n}, found {}", shown(field))),
            }
        };
        let [rows, columns] = self.header.sides;
        let (source, target) = (id(rows)?, id(columns)?);
        let mirrored = self.header.symmetry != Symmetry::General && source != target;
        if self.header.symmetry == Symmetry::Skew && source == target {
            return Err("an entry on the diagonal: a skew-symmetric matrix has none".into());
        }
        batch.push(source, target);
        if mirrored {
            batch.push(target, source);
        }
        let Some(value) = self.header.value else {
            return if fields.next().is_none() { Ok(()) } else { Err("a value in a pattern matrix: damaged?".into()) };
        };
        let field = fields.next().ok_or("expected a value behind row and column")?;
        if self.columns.is_empty() {
            return Ok(());
        }
        let not_a_number = || format!("expected a number, found {}", shown(field));
        let sign = if self.header.symmetry == Symmetry::Skew { -1 } else { 1 };
        let both: [[u8; 8]; 2] = match value {
            ValueType::I64 => {
                let number = integer(field).filter(|number| number.checked_mul(sign).is_some());
                let number = number.ok_or_else(|| {
                    format!(
                        "expected a whole number of 64 bits with its sign, found {}; --edge-columns none leaves the values out",
                        shown(field)
                    )
                })?;
                [number.to_le_bytes(), (number * sign).to_le_bytes()]
            }
            _ => {
                let number: f64 = real(field).ok_or_else(not_a_number)?;
                [number.to_le_bytes(), (number * sign as f64).to_le_bytes()]
            }
        };
        if fields.next().is_some() {
            return Err(format!("expected a row, a column and a value, found {}", shown(line)));
        }
        batch.values.extend(both[..1 + usize::from(mirrored)].as_flattened());
        Ok(())
    }
}

impl EdgeSource for MatrixEntries {
    fn rewind(&self) -> Result<()> {
        self.entries.store(0, Relaxed);
        self.text.rewind()
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        self.text.next(piece)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let mut entries = 0;
        for (number, line) in lines(piece) {
            let line = line.trim_ascii();
            if number > self.header.line && !line.is_empty() && !line.starts_with(b"%") {
                self.entry(line, batch).map_err(|problem| Error::line(&self.path, number, problem))?;
                entries += 1;
            }
        }
        self.entries.fetch_add(entries, Relaxed);
        Ok(())
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        let (promised, found) = (self.header.num_entries, self.entries.load(Relaxed));
        if promised != found {
            let entries = if promised == 1 { "entry" } else { "entries" };
            let problem =
                format!("promises {promised} {entries}, {found} follow: truncated or damaged, download it again");
            return Err(Error::line(&self.path, self.header.line, problem));
        }
        Ok(Ending { num_vertices: Some(self.num_vertices()), ..Ending::default() })
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        let bytes = std::fs::metadata(&self.path).map_err(Error::io(&self.path))?.len();
        // A compressed file may hold about five times as much as its length.
        let most = bytes.saturating_mul(5) / MIN_LINE_BYTES;
        let entries = self.header.num_entries.min(most);
        let edges = if self.header.symmetry == Symmetry::General { entries } else { 2 * entries };
        Ok(Estimate { edges, vertices: self.num_vertices(), bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.text.bytes_done()
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::read::golden::{self, Part::*, *};
    use crate::read::options::ReadOptions;

    fn read(path: &Path) -> Result<Raw> {
        open(path, WantedColumns::default(), false)
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
        assert_eq!((edges, f64s(&values)), (from_one(&EDGES), (0..10).map(|edge| f64::from(edge) / 2.0).collect()));
        let raw = read(&data("mtx/symmetric.mtx")).unwrap();
        let expected = from_one(&[(1, 0), (0, 1), (2, 0), (0, 2), (2, 2), (5, 4), (4, 5)]);
        assert_eq!((read_edges(&*raw.edges).unwrap().0, raw.edges.columns().len()), (expected, 0));
    }

    #[test]
    fn signs_integers_and_chosen_columns() {
        let (_folder, path) =
            text("%%matrixmarket MATRIX Coordinate integer skew-symmetric\r\n3 3 2\r\n2 1 5\r\n3 1 -7\r\n");
        let (edges, values) = read_edges(&*read(&path).unwrap().edges).unwrap();
        assert_eq!((edges, values), (vec![(2, 1), (1, 2), (3, 1), (1, 3)], i64s(&[5, -5, -7, 7])));
        let none = ReadOptions { edge_columns: Some(vec![]), ..Default::default() };
        let raw = open(&path, none.columns(), false).unwrap();
        assert_eq!((raw.edges.columns().len(), read_edges(&*raw.edges).unwrap().1.len()), (0, 0));
    }

    #[test]
    fn bad_lines() {
        let general = "%%MatrixMarket matrix coordinate real general\n";
        let skew = "%%MatrixMarket matrix coordinate real skew-symmetric\n";
        let pattern = "%%MatrixMarket matrix coordinate pattern general\n";
        let table: &[(String, &[&str])] = &[
            (
                "%%MatrixMarket matrix array real general\n1 1\n1\n".into(),
                &["line 1", "expected %%MatrixMarket matrix coordinate"],
            ),
            ("%%MatrixMarket matrix coordinate complex general\n".into(), &["line 1", "`complex` numbers"]),
            ("%%MatrixMarket matrix coordinate real hermitian\n".into(), &["a `hermitian` matrix"]),
            (format!("{general}% x\n"), &["found the end of the file"]),
            ("".into(), &["found the end of the file"]),
            (format!("{general}% x\n3 4 1\n"), &["line 3", "3 rows and 4 columns", "square"]),
            (format!("{general}3 3\n"), &["line 2", "expected `ROWS COLUMNS ENTRIES`"]),
            (format!("{general}3 3 2\n1 1 1\n"), &["line 2", "promises 2 entries, 1 follow"]),
            (format!("{general}3 3 1\n1 1 1\n1 2 1\n"), &["line 2", "promises 1 entry, 2 follow"]),
            (format!("{general}3 3 1\n\n0 1 1\n"), &["line 4", "from 1 to 3, found `0`"]),
            (format!("{general}3 3 1\n4 1 1\n"), &["line 3", "from 1 to 3, found `4`"]),
            (format!("{general}3 3 1\n1 -1 1\n"), &["found `-1`"]),
            (format!("{general}3 3 1\n1 1\n"), &["line 3", "expected a value"]),
            (format!("{general}3 3 1\n1 1 x\n"), &["expected a number, found `x`"]),
            (format!("{general}3 3 1\n1 1 1 1\n"), &["expected a row, a column and a value"]),
            (format!("{general}3 3 1\n1\n"), &["expected a row and a column"]),
            (format!("{skew}3 3 1\n1 1 1\n"), &["diagonal"]),
            (format!("{pattern}3 3 1\n1 1 1\n"), &["a value in a pattern matrix"]),
            (format!("{pattern}3 3 1152921504606846976\n1 1\n"), &["promises 1152921504606846976 entries, 1 follow"]),
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
