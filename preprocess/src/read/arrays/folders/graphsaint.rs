//! GraphSAINT's folders (Zeng et al., ICLR 2020), e.g. of Flickr, Reddit, Yelp and Amazon.
//!
//! ```text
//! DIR/adj_full.npz    adjacency matrix (n, n) of scipy.sparse.save_npz: entry (u, v) is an edge u -> v
//! DIR/feats.npy       (n, d) floats, where there are any
//! DIR/class_map.json  {"VERTEX": CLASS, ...}, or {"VERTEX": [0, 1, ...], ...} for several labels a vertex
//! DIR/role.json       {"tr": [VERTEX, ...], "va": [...], "te": [...]}
//! ```
//! The matrix's values are not read: they are ones. `adj_train.npz` is not read: it holds the edges
//! of `adj_full` between training vertices. A vertex without an entry in `class_map.json` is
//! unlabelled.
//!
//! `class_map.json` lists vertices in any order, so its column is assembled in memory when it is
//! read: 4 bytes per vertex, or 2 bytes for each label.

use std::fmt;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use gsplit_store::{Progress, Unit, open_file};
use half::f16;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use crate::edges::EdgeSource;
use crate::memory::Memory;
use crate::read::arrays::catalog::agreed_rows;
use crate::read::arrays::npz::{Npz, scipy_edges};
use crate::read::arrays::numbers::{Numbers, NumbersColumn};
use crate::read::options::Schema;
use crate::read::raw::{Column, Ids, Raw, describe_column};
use crate::read::text::field::shown;
use crate::{Error, Result};

/// Maximum number of labels per vertex.
const MAX_LABELS: usize = 1 << 16;
/// Rows handed over at a time.
const ROWS: usize = 1 << 12;

/// Whether `path` is a folder with `adj_full.npz`.
pub fn recognises(path: &Path, _head: &[u8]) -> bool {
    path.join("adj_full.npz").is_file()
}

/// Opens the folder at `path`, which cannot have edge columns.
pub fn open(path: &Path, schema: &Schema, memory: Memory) -> Result<Raw> {
    let adjacency = path.join("adj_full.npz");
    let edges = scipy_edges(&mut Npz::open(&adjacency)?, &adjacency)?;
    schema.check_edge_columns(path, edges.columns())?;
    // A coordinate matrix would claim a number of vertices that no array confirms.
    let Some(num_vertices) = edges.num_vertices().filter(|_| edges.is_compressed()) else {
        return Err(Error::input(adjacency, "expected a matrix as csr: save matrix.tocsr()"));
    };
    let mut raw = Raw::of(edges, Ids::Dense(Some(num_vertices)), vec![adjacency.clone()]);
    let features = path.join("feats.npy");
    if features.exists() {
        let column = NumbersColumn::new(Numbers::open(&features)?, "features")?;
        agreed_rows(Some((&adjacency, num_vertices)), [&column])?;
        raw.features = Some(Box::new(column));
        raw.files.push(features);
    }
    let classes = path.join("class_map.json");
    if classes.exists() {
        raw.labels = Some(Box::new(ClassMap::open(&classes, num_vertices, memory)?));
        raw.files.push(classes);
    }
    let role = path.join("role.json");
    if role.exists() {
        raw.splits = Some(read_role(&role)?);
        raw.files.push(role);
    }
    Ok(raw)
}

#[derive(Deserialize)]
struct RoleFile {
    tr: Vec<u64>,
    va: Vec<u64>,
    te: Vec<u64>,
}

fn read_role(path: &Path) -> Result<[Vec<u64>; 3]> {
    let file = BufReader::new(open_file(path).map_err(Error::io(path))?);
    let role: RoleFile = serde_json::from_reader(file).map_err(|error| json_error(path, &error))?;
    Ok([role.tr, role.va, role.te])
}

fn json_error(path: &Path, error: &serde_json::Error) -> Error {
    match error.io_error_kind() {
        Some(kind) => Error::io(path)(kind.into()),
        None => Error::input(path, format!("{error}: expected JSON in GraphSAINT's form")),
    }
}

/// `class_map.json` as a column.
struct ClassMap {
    path: PathBuf,
    num_vertices: u64,
    /// Number of labels per vertex; `None` for one class each.
    labels: Option<usize>,
    budget: Memory,
}

impl ClassMap {
    /// Determines the form from the first entry.
    fn open(path: &Path, num_vertices: u64, budget: Memory) -> Result<Self> {
        let mut head = Vec::new();
        let file = open_file(path).map_err(Error::io(path))?;
        file.take(4 * MAX_LABELS as u64).read_to_end(&mut head).map_err(Error::io(path))?;
        let value = head
            .iter()
            .position(|&byte| byte == b':')
            .map_or(&[][..], |at| head[at + 1..].trim_ascii_start());
        let count = |list: &[u8]| -> Result<usize> {
            let end = list.iter().position(|&byte| byte == b']').ok_or_else(|| {
                Error::input(path, format!("expected at most {MAX_LABELS} labels per vertex"))
            })?;
            Ok(list[..end].iter().filter(|&&byte| byte == b',').count() + 1)
        };
        let labels = value.strip_prefix(b"[").map(count).transpose()?;
        Ok(Self { path: path.to_path_buf(), num_vertices, labels, budget })
    }

    /// Bytes of a row: a class of 4 bytes, or 2 bytes for each label.
    fn row_bytes(&self) -> usize {
        self.labels.map_or(4, |labels| 2 * labels)
    }
}

impl Column for ClassMap {
    describe_column!(self:
        &self.path,
        "labels",
        if self.labels.is_some() { "<f2" } else { "<i4" },
        self.labels.unwrap_or(1),
        Some(self.num_vertices)
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let file = open_file(&self.path).map_err(Error::io(&self.path))?;
        let stage = progress.stage(
            "reading class_map.json",
            file.metadata().ok().map(|data| data.len()),
            Unit::Bytes,
        );
        let held = self.num_vertices.saturating_mul(self.row_bytes() as u64);
        self.budget.check(&self.path, format!("labels of {} vertices", self.num_vertices), held)?;
        // A vertex without an entry is unlabelled: class -1, or NaN for each label.
        let mut rows = vec![0xff; held as usize];
        let mut json =
            serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 18, file));
        let filled =
            json.deserialize_map(Filler { map: self, rows: &mut rows }).and_then(|()| json.end());
        drop(stage);
        filled.map_err(|error| json_error(&self.path, &error))?;
        rows.chunks(ROWS * self.row_bytes()).try_for_each(take)
    }
}

/// Fills the rows while the map is parsed.
struct Filler<'a> {
    map: &'a ClassMap,
    rows: &'a mut [u8],
}

impl<'de> Visitor<'de> for Filler<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from vertices to classes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let n = self.map.num_vertices;
        while let Some(key) = map.next_key::<String>()? {
            let wrong = |expected: String| {
                let vertex = shown(key.as_bytes());
                A::Error::custom(format!("vertex {vertex}: expected {expected}"))
            };
            let vertex = key.parse().ok().filter(|&vertex: &u64| vertex < n);
            let vertex = vertex.ok_or_else(|| wrong(format!("ids below {n}")))?;
            let row =
                &mut self.rows[vertex as usize * self.map.row_bytes()..][..self.map.row_bytes()];
            match self.map.labels {
                None => {
                    let class = map.next_value::<f64>()?;
                    if f64::from(class as i32) != class || !(-1.0..2_147_483_647.0).contains(&class)
                    {
                        return Err(wrong(format!("a class from 0, found {class}")));
                    }
                    row.copy_from_slice(&(class as i32).to_le_bytes());
                }
                Some(width) => {
                    let labels = map.next_value::<Vec<f64>>()?;
                    if labels.len() != width
                        || labels.iter().any(|&label| label != 0.0 && label != 1.0)
                    {
                        return Err(wrong(format!("{width} zeros and ones")));
                    }
                    let labels =
                        labels.into_iter().flat_map(|label| f16::from_f64(label).to_le_bytes());
                    row.iter_mut().zip(labels).for_each(|(to, byte)| *to = byte);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::golden::*;

    fn read(path: &Path) -> Result<Raw> {
        open(path, &Schema::default(), Memory::default())
    }

    #[test]
    fn bad_json() {
        let table: &[(&str, &str, &[&str])] = &[
            ("class_map.json", "{\"6\": 0}", &["vertex `6`: expected ids below 6", "line 1"]),
            ("class_map.json", "{\"x\": 0}", &["vertex `x`"]),
            ("class_map.json", "{\"1\": 0.5}", &["vertex `1`: expected a class from 0, found 0.5"]),
            ("class_map.json", "{\"1\": -7}", &["found -7"]),
            ("class_map.json", "{\"1\": 3000000000}", &["found 3000000000"]),
            ("class_map.json", "{\"1\": \"cat\"}", &["invalid type", "expected JSON"]),
            (
                "class_map.json",
                "{\"1\": [0, 1], \"2\": [0]}",
                &["vertex `2`: expected 2 zeros and ones"],
            ),
            (
                "class_map.json",
                "{\"1\": [0, 1], \"2\": [0, 1, 1]}",
                &["vertex `2`: expected 2 zeros and ones"],
            ),
            ("class_map.json", "{\"1\": [0, 2]}", &["vertex `1`: expected 2 zeros and ones"]),
            ("class_map.json", "{\"1\": [0, 1], \"2\": 1}", &["invalid type"]),
            ("class_map.json", "{\"1\": 0", &["EOF"]),
            ("class_map.json", "[1]", &["a map from vertices to classes"]),
            ("role.json", "{\"tr\": [0], \"va\": [1]}", &["missing field `te`"]),
            ("role.json", "{\"tr\": [0], \"va\": [-1], \"te\": []}", &["-1"]),
            ("feats.npy", "", &["feats.npy"]),
            ("adj_full.npz", "PK", &["adj_full.npz"]),
        ];
        for (name, text, parts) in table {
            let folder = copy("graphsaint");
            std::fs::write(folder.path().join(name), text).unwrap();
            refused(read(folder.path()), text, &[&[*name], *parts].concat());
        }
    }

    #[test]
    fn a_vertex_without_an_entry_has_no_label() {
        let folder = copy("graphsaint");
        let text = "{\"1\": [0, 1], \"2\": [1, 1]}";
        std::fs::write(folder.path().join("class_map.json"), text).unwrap();
        let labels = numbers(&*read(folder.path()).unwrap().labels.unwrap());
        assert!(labels[..2].iter().all(|label| label.is_nan()), "{labels:?}");
        assert_eq!(labels[2..6], [0.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn real_flickr() {
        let Some(path) = real("flickr_graphsaint") else { return };
        let raw = read(&path).unwrap();
        assert_eq!(raw.ids, Ids::Dense(Some(89_250)));
        assert_eq!(read_edges(&*raw.edges).unwrap().0.len(), 899_756);
        assert_eq!(raw.splits.unwrap().map(|split| split.len()), [44_625, 22_312, 22_313]);
        let labels = numbers(&*raw.labels.unwrap());
        assert_eq!((labels.len(), labels.iter().copied().fold(0.0, f64::max)), (89_250, 6.0));
        assert_eq!(labels[..4], [2.0, 6.0, 4.0, 2.0]);
    }
}
