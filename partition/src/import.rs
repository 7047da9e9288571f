//! Partitions that other tools made.
//!
//! Returns the part of each vertex of a dataset, and how many parts there are; none is empty.
//! Input: METIS's `graph.part.K` (text, one part a line, vertices in order), or a `.npy` array of
//! integers of one dimension, one part a row: gsplit's own `assignment.npy`, DGL's and PyG's node
//! maps, `numpy.save` of what any tool returned. Rows follow the dataset's vertices, or the ids of
//! the raw input ([`ImportOptions::by_original_id`]); what the raw input had and the dataset has
//! not is passed over. Every number is checked; a file that is wrong is refused with its line (from
//! 1) or row (from 0). Cost: O(rows), 2 bytes a row.

use std::path::{Path, PathBuf};

use gsplit_store::{ColumnFile, Dataset, MappedFile, PartitionConfig};

use crate::options::MAX_PARTS;
use crate::{Error, Result};

/// Bytes of a wrong line that a message shows.
const LONGEST_SHOWN: usize = 40;
/// First bytes of a `.npy` file.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// A partition to take over instead of making one.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct ImportOptions {
    /// Take over a partition that another tool made: METIS's graph.part.K (one part a line) or a
    /// .npy array of integers (assignment.npy, DGL's or PyG's parts). Its order is that of the
    /// dataset's vertices. --parts may be left out
    #[cfg_attr(feature = "cli", arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["targets", "servers", "partitioner", "weights", "load", "balance", "epsilon", "seed", "quality", "refine"]
    ))]
    pub import: Option<PathBuf>,
    /// Line or row i of the imported file is the part of the vertex whose id in the raw input was
    /// i, counted from 0
    #[cfg_attr(feature = "cli", arg(long, requires = "import"))]
    pub by_original_id: bool,
}

/// A partition that another tool made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Name of the file.
    file: String,
    /// The part of each vertex.
    pub assignment: Vec<u16>,
    /// Number of parts.
    pub parts: u32,
}

impl ImportOptions {
    /// Reads the file, if one is named. It must hold `parts` parts; `None` accepts any number.
    ///
    /// Fails on anything but one part for each vertex of `dataset`, every part with a vertex.
    pub fn read(&self, dataset: &Dataset, parts: Option<u32>) -> Result<Option<Imported>> {
        let Some(path) = &self.import else { return Ok(None) };
        if let Some(parts) = parts.filter(|&parts| parts > MAX_PARTS) {
            return Err(Error::Option(format!("--parts {parts}: expected 1 to {MAX_PARTS}")));
        }
        let wrong = |problem: String| Error::Import { path: path.clone(), problem };
        let rows = read_rows(path, parts.unwrap_or(MAX_PARTS))?;
        let assignment = match self.by_original_id {
            true => by_original_id(path, &rows, dataset)?,
            false => in_order(path, rows, dataset)?,
        };
        let parts = match (parts, assignment.iter().max()) {
            (Some(parts), _) => parts,
            (None, Some(&last)) => u32::from(last) + 1,
            (None, None) => {
                return Err(wrong("the dataset has no vertices to give parts to".into()));
            }
        };
        let mut sizes = vec![0u64; parts as usize];
        assignment.iter().for_each(|&part| sizes[part as usize] += 1);
        if let Some(empty) = sizes.iter().position(|&size| size == 0) {
            let expected = "expected parts from 0 without a gap, a vertex in each";
            return Err(wrong(format!("part {empty} of {parts} has no vertex; {expected}")));
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Some(Imported { file, assignment, parts }))
    }
}

impl Imported {
    /// The key under which it is stored unless the user names one, e.g. `import-k4`.
    pub fn default_key(&self) -> String {
        format!("import-k{}", self.parts)
    }

    /// The form that is stored with the result. Nothing was asked of the balance: the ε is the one
    /// that always holds.
    pub fn config(&self) -> PartitionConfig {
        PartitionConfig {
            parts: self.parts,
            servers: 1,
            targets: None,
            partitioner: "import".into(),
            weights: "unit".into(),
            epsilon: f64::from(self.parts - 1),
            seed: 0,
            source: Some(self.file.clone()),
        }
    }
}

/// The parts in a file, one a row, each below `parts`.
fn read_rows(path: &Path, parts: u32) -> Result<Vec<u16>> {
    let file = MappedFile::open(path)?;
    match file.starts_with(NPY_MAGIC) {
        true => read_npy(path, parts),
        false => read_text(path, &file, parts),
    }
}

fn read_text(path: &Path, text: &[u8], parts: u32) -> Result<Vec<u16>> {
    let part = |(number, line): (usize, &[u8])| {
        let line = line.trim_ascii();
        let part = std::str::from_utf8(line).ok().and_then(|line| line.parse::<u16>().ok());
        part.filter(|&part| u32::from(part) < parts).ok_or_else(|| {
            let (last, shown) = (parts - 1, line[..line.len().min(LONGEST_SHOWN)].escape_ascii());
            let problem = format!(
                "line {number}: expected one part, a number from 0 to {last}, found `{shown}`"
            );
            Error::Import { path: path.into(), problem }
        })
    };
    // There may be lines of nothing at the end.
    (1..).zip(text.trim_ascii_end().split(|&byte| byte == b'\n')).map(part).collect()
}

fn read_npy(path: &Path, parts: u32) -> Result<Vec<u16>> {
    let wrong = |problem: String| Error::Import { path: path.into(), problem };
    // The file is not an artifact, so do not mention `gsplit verify`.
    let file = ColumnFile::open(path).map_err(|error| match error {
        gsplit_store::Error::Corrupt { problem, .. } => wrong(problem),
        error => error.into(),
    })?;
    if file.width() != 1 || file.descr().contains('f') {
        let (width, descr) = (file.width(), file.descr());
        return Err(wrong(format!(
            "expected an integer a row, found rows of {width} elements {descr}"
        )));
    }
    let part = |row: usize| {
        let value = file.number(row).unwrap_or(f64::NAN);
        let problem = || wrong(format!("row {row}: part {value}, expected 0 to {}", parts - 1));
        (0.0..f64::from(parts)).contains(&value).then_some(value as u16).ok_or_else(problem)
    };
    (0..file.rows()).map(part).collect()
}

/// One row for each vertex.
fn in_order(path: &Path, rows: Vec<u16>, dataset: &Dataset) -> Result<Vec<u16>> {
    let (n, found) = (dataset.num_vertices(), rows.len());
    if found == n {
        return Ok(rows);
    }
    let renumbered = dataset.manifest().files.contains_key("nodes/original_id.npy");
    let remedy = if renumbered {
        "; where it follows the ids of the raw input, pass --by-original-id"
    } else {
        ""
    };
    let problem =
        format!("{found} rows, expected one for each of the {n} vertices of the dataset{remedy}");
    Err(Error::Import { path: path.into(), problem })
}

/// The row of each vertex's original id.
fn by_original_id(path: &Path, rows: &[u16], dataset: &Dataset) -> Result<Vec<u16>> {
    let Some(ids) = dataset.listed_ids()? else {
        let why = match dataset.manifest().string_ids {
            true => {
                "the ids of the raw input were strings; bring the parts into the order of the \
                 dataset's vertices"
            }
            false => "vertices are in the order of the raw input's ids already; leave it out",
        };
        return Err(Error::Option(format!("--by-original-id: {why}")));
    };
    let part = |(v, &id): (usize, &u64)| {
        let part = usize::try_from(id).ok().and_then(|id| rows.get(id).copied());
        part.ok_or_else(|| {
            let found = format!("{} rows, vertex {v} had the id {id} in the raw input", rows.len());
            Error::Import {
                path: path.into(),
                problem: format!("{found}: expected one for each id from 0"),
            }
        })
    };
    ids.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gsplit_store::{NoProgress, Provenance, write_npy};

    use super::*;
    use crate::assess;
    use crate::tests::Fixture;

    fn import(bytes: &[u8], n: u32, parts: Option<u32>, by_original_id: bool) -> Result<Imported> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.part");
        fs::write(&path, bytes).unwrap();
        let dataset = Fixture::new("edge", n, &[(0, 1)]).dataset();
        ImportOptions { import: Some(path), by_original_id }
            .read(&dataset, parts)
            .map(Option::unwrap)
    }

    #[test]
    fn text_and_every_integer_type_give_the_same_parts() {
        let expected =
            Imported { file: "graph.part".into(), assignment: vec![0, 2, 1, 2], parts: 3 };
        for text in
            ["0\n2\n1\n2\n", "0\n2\n1\n2", " 0\r\n2 \r\n\t1\r\n2\r\n\r\n\n", "00\n02\n01\n02\n"]
        {
            assert_eq!(import(text.as_bytes(), 4, None, false).unwrap(), expected, "{text:?}");
            assert_eq!(import(text.as_bytes(), 4, Some(3), false).unwrap(), expected, "{text:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        macro_rules! same {
            ($($integer:ty),*) => {$(
                write_npy(&path, &[0 as $integer, 2, 1, 2]).unwrap();
                assert_eq!(import(&fs::read(&path).unwrap(), 4, None, false).unwrap(), expected);
            )*};
        }
        same!(i8, i16, i32, i64, u8, u16, u32, u64);
        assert_eq!(
            (expected.default_key().as_str(), expected.config().epsilon),
            ("import-k3", 2.0)
        );
        assert_eq!(expected.config().source.as_deref(), Some("graph.part"));
    }

    #[test]
    fn what_is_imported_is_reported_as_any_partition() {
        let graph = Fixture::new("path", 4, &[(0, 1), (1, 2), (2, 3)]);
        let dataset = graph.dataset();
        let made = assess(&dataset, None, vec![0, 0, 1, 1], 2, &NoProgress).unwrap();
        assert_eq!(
            (made.report.cut, made.report.adjacent_pairs, made.report.imbalance),
            (1, 3, 1.0)
        );
        assert_eq!((made.cache_order, made.assignment), (vec![0, 1, 2, 3], vec![0, 0, 1, 1]));
    }

    #[test]
    fn bad_files_are_one_clear_line() {
        let cases: [(&[u8], Option<u32>, &str); 14] = [
            (b"", None, "line 1: expected one part, a number from 0 to 65534, found ``"),
            (b"0\n1\n1\n", None, "3 rows, expected one for each of the 4"),
            (b"0\n1\n1\n0\n0\n", None, "5 rows, expected one for each of the 4"),
            (b"0\n1\n\n0\n", None, "line 3: expected one part, a number from 0 to 65534, found ``"),
            (
                b"0\n1\n-1\n0\n",
                None,
                "line 3: expected one part, a number from 0 to 65534, found `-1`",
            ),
            (b"0 1\n1\n", None, "line 1: expected one part, a number from 0 to 65534, found `0 1`"),
            (b"0\n1.0\n", None, "line 2: expected one part, a number from 0 to 65534, found `1.0`"),
            (
                b"0\n\xff",
                None,
                "line 2: expected one part, a number from 0 to 65534, found `\\xff`",
            ),
            (
                b"0\n1\n70000\n1\n",
                None,
                "line 3: expected one part, a number from 0 to 65534, found `70000`",
            ),
            (
                b"0\n1\n99999999999999999999\n1\n",
                None,
                "line 3: expected one part, a number from 0 to 65534, found `99999",
            ),
            (
                b"0\n1\n2\n1\n",
                Some(2),
                "line 3: expected one part, a number from 0 to 1, found `2`",
            ),
            (
                b"1\n2\n1\n2\n",
                None,
                "part 0 of 3 has no vertex; expected parts from 0 without a gap",
            ),
            (b"0\n1\n0\n1\n", Some(3), "part 2 of 3 has no vertex"),
            (b"0\n1\n0\n1\n", Some(70_000), "--parts 70000: expected 1 to 65535"),
        ];
        for (bytes, parts, expected) in cases {
            let message = import(bytes, 4, parts, false).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
        let missing = ImportOptions { import: Some("no/such".into()), by_original_id: false };
        let dataset = Fixture::new("edge", 4, &[(0, 1)]).dataset();
        assert!(missing.read(&dataset, None).unwrap_err().to_string().starts_with("no/such: "));
    }

    #[test]
    fn bad_arrays_are_one_clear_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let message = |parts| {
            let bytes = fs::read(&path).unwrap();
            import(&bytes, 4, parts, false).unwrap_err().to_string()
        };
        write_npy(&path, &[0i64, 1, -1, 0]).unwrap();
        assert!(
            message(None).ends_with("row 2: part -1, expected 0 to 65534"),
            "{}",
            message(None)
        );
        write_npy(&path, &[0u64, 1, u64::MAX, 0]).unwrap();
        assert!(
            message(None).contains("row 2: part 18446744073709552000, expected"),
            "{}",
            message(None)
        );
        write_npy(&path, &[0u16, 1, 2, 3]).unwrap();
        assert!(
            message(Some(3)).ends_with("row 3: part 3, expected 0 to 2"),
            "{}",
            message(Some(3))
        );
        write_npy(&path, &[0.0f32, 1.0, 2.0, 3.0]).unwrap();
        assert!(
            message(None).contains("expected an integer a row, found rows of 1 elements <f4"),
            "{}",
            message(None)
        );
        write_npy(&path, &[0u8, 1]).unwrap();
        assert!(
            message(None).contains("2 rows, expected one for each of the 4"),
            "{}",
            message(None)
        );
        fs::write(&path, b"\x93NUMPY\x01\x00").unwrap();
        assert!(
            message(None).contains("the file is too short") && !message(None).contains("verify")
        );
    }

    #[test]
    fn lines_by_the_ids_of_the_raw_input() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("ds"), folder.path().join("graph.part.2"));
        let mut writer =
            gsplit_store::DatasetWriter::create(&path, true, &[0, 1, 1, 1], &[1]).unwrap();
        writer.add_original_ids(&[5, 1, 3]).unwrap();
        let dataset = writer.finish(Provenance::default()).unwrap();
        let read = |text: &str| {
            fs::write(&file, text).unwrap();
            ImportOptions { import: Some(file.clone()), by_original_id: true }
                .read(&dataset, None)
                .map(Option::unwrap)
        };
        assert_eq!(read("9\n0\n9\n1\n9\n0\n9\n").unwrap().assignment, [0, 0, 1]);
        let message = read("0\n1\n0\n").unwrap_err().to_string();
        assert!(message.contains("3 rows, vertex 0 had the id 5 in the raw input"), "{message}");
        fs::write(&file, "0\n1\n").unwrap();
        let message = ImportOptions { import: Some(file.clone()), by_original_id: false }
            .read(&dataset, None)
            .unwrap_err();
        assert!(message.to_string().ends_with("pass --by-original-id"), "{message}");
        let message = import(b"0\n1\n", 2, None, true).unwrap_err().to_string();
        assert!(message.contains("--by-original-id: vertices are in the order"), "{message}");
    }
}
