//! Detects the format of a path.
//!
//! The formats are tried in this order, the most specific first; the first that recognises the path
//! counts.
//!
//! | format | a folder | a file |
//! | --- | --- | --- |
//! | `tables` | `schema.toml` with tables | the same, called `.toml` |
//! | `ogb` | `raw/edge.csv[.gz]`, `raw/num-node-list.csv[.gz]` or `raw/data.npz` | |
//! | `relations` | `[processed/]SOURCE___NAME___TARGET/edge_index.npy`, or with `__` | |
//! | `graphsaint` | `adj_full.npz` | |
//! | `npy` | edges in `.npy` or `.pt` files of known names | magic `\x93NUMPY` |
//! | `npz` | | a zip called `.npz` |
//! | `pt` | | a zip or a pickle called `.pt` or `.pth` |
//! | `parquet` | only `.parquet` files, or folders of them, and hidden or `_` ones | magic `PAR1` |
//! | `arrow` | the same with `.arrow`, `.arrows`, `.feather` or `.ipc` | magic `ARROW1`, or so called |
//! | `mtx` | | `%%MatrixMarket`, or `%MatrixMarket`, at the start |
//! | `webgraph` | `.graph` next to `.properties` of BVGraph | `.graph` next to `.properties` of BVGraph, either of them |
//! | `metis` | | called `.graph` or `.metis`, a header of METIS in the first line of numbers |
//! | `dimacs` | | first line that is not a comment: `p sp N M` or `p edge N M` |
//! | `csv` | the same with `.csv` or `.tsv`, or a `*_edges.csv` among other files | text in rows of as many fields, or called `.csv` or `.tsv`; or `--schema header` or `--schema delimiter` is given |
//! | `adjlist` | | text of integers in lines of unequal length, each beginning with another |
//! | `snap` | | text whose first line of data is two or more integers |
//!
//! The last three are recognised by `text::sketch`, which refuses other text that looks alike.
//! Documents of other programs are refused before (`is_document`): some of their lines would pass
//! for a table.
//!
//! Text may be gzip, zstd, bzip2 or xz; its head is inflated to look at it, and `.gz`, `.zst`,
//! `.bz2` and `.xz` behind a name do not count.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use super::arrays::folders::{graphsaint, ogb, planetoid, relations};
use super::arrays::{npy, npz, pt, webgraph};
use super::options::TextOptions;
use super::table;
use super::text::sketch::{Shape, Sketch};
use super::text::{self, TextStream, dimacs, metis, mtx, name_of, some, uncompressed};
use crate::{Error, Result};
use gsplit_store::open_file;

/// Maximum depth of nested folders that are searched.
const MAX_DEPTH: usize = 64;
/// Number of bytes at the start of a file that are checked.
const HEAD_BYTES: usize = 1 << 16;

macro_rules! formats {
    ($($format:ident $name:literal $what:literal;)*) => {
        /// A raw format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
        #[serde(rename_all = "lowercase")]
        pub enum Format { $(
            #[doc = $what]
            #[cfg_attr(feature = "cli", value(name = $name))]
            $format,
        )* }

        impl Format {
            /// All formats, in the order in which they are asked.
            pub const ALL: &[Self] = &[$(Self::$format),*];

            /// Name on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$format => $name),* }
            }

            /// Description in a few words.
            pub fn what(self) -> &'static str {
                match self { $(Self::$format => $what),* }
            }
        }
    };
}
formats! {
    Tables "tables" "tables with keys, as a schema says";
    Ogb "ogb" "OGB's raw folder, CSV or binary";
    Relations "relations" "arrays by type and relation, as MAG240M's and IGB's";
    Graphsaint "graphsaint" "GraphSAINT's folder";
    Planetoid "planetoid" "Planetoid's folder of pickles";
    Npy "npy" "NumPy arrays, a file or a folder";
    Npz "npz" "NumPy or SciPy archive";
    Pt "pt" "tensors of torch, or a Data of PyG";
    Parquet "parquet" "Parquet table of edges";
    Arrow "arrow" "Arrow table of edges";
    Mtx "mtx" "Matrix Market coordinate file";
    Webgraph "webgraph" "WebGraph's BVGraph";
    Dimacs "dimacs" "DIMACS graph file";
    Metis "metis" "METIS graph file";
    Csv "csv" "table of edges in text, e.g. CSV or TSV";
    Adjlist "adjlist" "adjacency list";
    Snap "snap" "edge list as of SNAP";
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().copied().find(|format| format.name() == text);
        found.ok_or_else(|| format!("`{text}`: expected one of {}", names()))
    }
}

/// The format of the file or folder at `path`; `text` says how text is cut. Fails if no format is
/// recognised.
pub fn detect(path: &Path, text: TextOptions) -> Result<Format> {
    let looked = Looked::at(path, text)?;
    if is_document(&looked.head) {
        return Err(not_read(path));
    }
    // Numbers in binary files may look like UTF-16.
    if !looked.head.contains(&0) {
        text::check_encoding(path, &looked.head)?;
    }
    if let Some(format) = Format::ALL.iter().copied().find(|format| looked.is(path, *format)) {
        return Ok(format);
    }
    text::check_encoding(path, &looked.head)?;
    if let Err(question) = looked.shape {
        return Err(Error::input(path, question));
    }
    let problem = match looked.head.is_empty() {
        true if path.is_dir() => "a folder without files of a known format",
        true => "an empty file",
        false => return Err(not_read(path)),
    };
    Err(Error::input(
        path,
        format!("{problem}: see docs/formats.md, or name the format with --format"),
    ))
}

/// The refusal of a file or folder in a format without a reader.
pub fn not_read(path: &Path) -> Error {
    let problem = "not a format that gsplit reads: see docs/formats.md, name the format with \
                   --format, or load it in Python and pass it to gsplit.convert";
    Error::input(path, problem)
}

/// Graphs that are not read but whose files would pass for others: the ends of the names of a file
/// that may be taken for the graph and of one next to it, and the problem.
const UNREAD: [[&str; 3]; 4] = [
    [
        "_A.txt",
        "_graph_indicator.txt",
        "many small graphs in one file (TUDataset): gsplit reads one graph; to take all for one, \
         pass the file _A.txt and --format snap",
    ],
    [
        "adjM.npz",
        "node_types.npy",
        "vertices of several types (node_types.npy): pass a HeteroData of PyG to gsplit.convert in \
         Python; to take all for one type, pass adjM.npz and --format npz",
    ],
    [
        "link.dat",
        "node.dat",
        "vertices and edges of several types (HGB): pass a HeteroData of PyG to gsplit.convert in \
         Python; to take all for one type, pass link.dat and --format snap",
    ],
    [
        "_hr.npy",
        "train_hrt.npy",
        "a knowledge graph (head, relation, tail): gsplit reads edges of one type",
    ],
];

/// Refuses a path that would pass for another graph: by the files next to it or in it, and by
/// folders of OGB above it and in it.
pub fn check_kin(path: &Path) -> Result<()> {
    let full = path.canonicalize().map_err(Error::io(path))?;
    let folders = match (full.is_dir(), full.parent()) {
        (false, Some(parent)) => vec![parent.to_path_buf()],
        _ => vec![full.clone(), full.join("raw"), full.join("processed")],
    };
    for folder in &folders {
        // Most inputs have no such folder.
        let entries = gsplit_store::entries(folder).unwrap_or_default();
        let has = |end: &str| entries.iter().any(|entry| name_of(entry).ends_with(end));
        let is_graph =
            |end: &str| if full.is_dir() { has(end) } else { name_of(&full).ends_with(end) };
        let found = UNREAD.iter().find(|[graph, other, _]| is_graph(graph) && has(other));
        if let Some([.., problem]) = found {
            return Err(Error::input(path, *problem));
        }
    }
    if !full.is_dir() || ogb::recognises(path) {
        return Ok(());
    }
    if let Some(above) =
        full.parent().filter(|above| full.ends_with("raw") && ogb::recognises(above))
    {
        let problem = format!("a part of OGB's folder: pass {}", above.display());
        return Err(Error::input(path, problem));
    }
    let entries = gsplit_store::entries(path).map_err(Error::io(path))?;
    let sets: Vec<String> = entries
        .iter()
        .filter(|entry| ogb::recognises(entry))
        .map(|entry| entry.display().to_string())
        .collect();
    if !sets.is_empty() && entries.len() > 1 {
        let problem = format!("holds folders of OGB: pass one of them, {}", some(&sets));
        return Err(Error::input(path, problem));
    }
    Ok(())
}

/// Whether `head` is the start of a text document in a format without a reader: XML, JSON, Pajek,
/// GML, Turtle, or Ligra.
fn is_document(head: &[u8]) -> bool {
    const STARTS: &str = "<?xml <graphml <gexf <rdf:rdf @prefix adjacencygraph weightedadjacencygraph {\" [{ [[ [\" graph[ creator\" \
        version\" *vertices *network";
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let packed = head
        .iter()
        .take(4096)
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(u8::to_ascii_lowercase);
    let packed: Vec<u8> = packed.take(32).collect();
    STARTS.split(' ').any(|start| packed.starts_with(start.as_bytes()))
}

/// First look at a path, without reading much.
struct Looked {
    /// First bytes of a file, inflated where it is compressed text.
    head: Vec<u8>,
    /// The path in lower case, without the endings of compression.
    name: String,
    /// Lower-case names of a folder's files, without hidden and `_` ones and without the endings of
    /// compression.
    files: Vec<String>,
    /// Kind of a file of text, `None` for no text; or the question to put.
    shape: Result<Option<Shape>, String>,
}

impl Looked {
    fn at(path: &Path, text: TextOptions) -> Result<Self> {
        let mut looked =
            Self { head: Vec::new(), name: plain_name(path), files: Vec::new(), shape: Ok(None) };
        if std::fs::metadata(path).map_err(Error::io(path))?.is_dir() {
            looked.files = files_of_table(path)?;
            return Ok(looked);
        }
        let file = open_file(path).map_err(Error::io(path))?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut looked.head).map_err(Error::io(path))?;
        if text::is_compressed(&looked.head) {
            looked.head = TextStream::open(path)?.head(HEAD_BYTES)?;
        }
        looked.shape = looked.shape_of_text(text);
        Ok(looked)
    }

    fn shape_of_text(&self, text: TextOptions) -> Result<Option<Shape>, String> {
        if self.head.contains(&0) {
            return Ok(None);
        }
        // The last line may be cut.
        let end = memchr::memrchr(b'\n', &self.head)
            .filter(|_| self.head.len() == HEAD_BYTES)
            .unwrap_or(self.head.len());
        match text.are_given() {
            true => Ok((!self.head.is_empty()).then_some(Shape::Table)),
            false => {
                Sketch::of(&self.head[..end], None).shape(self.called(table::TableFormat::Csv))
            }
        }
    }

    fn is(&self, path: &Path, format: Format) -> bool {
        let head = &self.head[..];
        match format {
            Format::Tables => table::keyed::recognises(path),
            Format::Ogb => ogb::recognises(path),
            Format::Relations => relations::recognises(path),
            Format::Graphsaint => graphsaint::recognises(path, head),
            Format::Planetoid => planetoid::recognises(path, head),
            Format::Npy => npy::recognises(path, head),
            Format::Npz => npz::recognises(path, head),
            Format::Pt => pt::recognises(path, head),
            Format::Parquet => head.starts_with(b"PAR1") || self.only(table::TableFormat::Parquet),
            Format::Arrow => {
                let arrow = table::TableFormat::Arrow;
                head.starts_with(b"ARROW1") || self.called(arrow) || self.only(arrow)
            }
            Format::Mtx => mtx::recognises(path, head),
            Format::Webgraph => webgraph::recognises(path, head),
            Format::Dimacs => dimacs::recognises(path, head),
            Format::Metis => metis::recognises(path, head),
            Format::Csv => {
                let edges = |name: &String| name.ends_with("_edges.csv");
                let csv = table::TableFormat::Csv;
                self.shape == Ok(Some(Shape::Table))
                    || self.only(csv)
                    || self.files.iter().any(edges)
            }
            Format::Adjlist => self.shape == Ok(Some(Shape::AdjacencyList)),
            Format::Snap => self.shape == Ok(Some(Shape::EdgeList)),
        }
    }

    /// Whether it is a file with an extension of this table format.
    fn called(&self, format: table::TableFormat) -> bool {
        !self.head.is_empty() && table::by_name(Path::new(&self.name)) == Some(format)
    }

    /// Whether it is a folder of only such tables, or of folders the first of which holds such a
    /// table.
    fn only(&self, format: table::TableFormat) -> bool {
        !self.files.is_empty()
            && self.files.iter().all(|name| table::by_name(Path::new(name)) == Some(format))
    }
}

/// Lower-case names of the files in `folder`. If it contains only folders, of the files in the
/// first that has any, for tables with parts like `year=2020/part-0.parquet`. Hidden and `_` files
/// are ignored.
fn files_of_table(folder: &Path) -> Result<Vec<String>> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in gsplit_store::entries(folder).map_err(Error::io(folder))? {
        match text::name_of(&entry).starts_with(['.', '_']) {
            true => {}
            false if entry.is_dir() => folders.push(entry),
            false if table::is_document(&entry) => {}
            false => files.push(plain_name(&entry)),
        }
    }
    folders.sort();
    match folders.first() {
        // Links may be circular.
        Some(first) if files.is_empty() && first.components().count() < MAX_DEPTH => {
            files_of_table(first)
        }
        _ => Ok(files),
    }
}

fn plain_name(path: &Path) -> String {
    uncompressed(&path.to_string_lossy().to_lowercase()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::golden::real;

    fn detect_by_itself(path: &Path) -> Result<Format> {
        detect(path, TextOptions::default())
    }

    #[test]
    fn names_round_trip() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>(), Ok(*format));
            #[cfg(feature = "cli")]
            assert_eq!(<Format as clap::ValueEnum>::from_str(format.name(), false), Ok(*format));
            assert_eq!(serde_json::to_value(format).unwrap(), format.name());
        }
        assert!("x".parse::<Format>().unwrap_err().contains("expected one of tables, ogb,"));
    }

    #[test]
    fn files_by_content_and_name() {
        let folder = tempfile::tempdir().unwrap();
        let table: &[(&str, &[u8], Option<Format>)] = &[
            ("a.csv", b"src,dst\n1,2\n", Some(Format::Csv)),
            ("b.csv", b"1,2\n", Some(Format::Snap)),
            ("c.tsv", b"\xef\xbb\xbffrom\tto\tweight\n", Some(Format::Csv)),
            ("d.csv", b"# src,dst\n1,2\n", Some(Format::Snap)),
            ("e.txt", b"# x\n\n1 2 0.5\n", Some(Format::Snap)),
            ("f.txt", b"src dst\n1 2\n", Some(Format::Csv)),
            ("g.txt", b"1\n2\n", None),
            ("h", b"PAR1....", Some(Format::Parquet)),
            ("i", b"ARROW1\0\0", Some(Format::Arrow)),
            ("j.mtx", b"%%MatrixMarket matrix array real general\n", Some(Format::Mtx)),
            ("k.graph", b"% x\n3 2 11\n", Some(Format::Metis)),
            ("l.npz", b"PK\x03\x04", Some(Format::Npz)),
            ("m.zip", b"PK\x03\x04", None),
            ("n.feather", b"x", Some(Format::Arrow)),
            ("o", b"", None),
            ("p.bin", &[0; 100], None),
        ];
        for (name, content, expected) in table {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            match (detect_by_itself(&path), expected) {
                (Ok(found), Some(format)) => assert_eq!(found, *format, "{name}"),
                (Err(error), None) => {
                    assert!(error.to_string().contains("docs/formats.md"), "{error}")
                }
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
        assert!(
            detect_by_itself(&folder.path().join("gone"))
                .unwrap_err()
                .to_string()
                .contains("check the path")
        );
        assert!(
            detect_by_itself(folder.path()).unwrap_err().to_string().contains("a folder without")
        );
        assert!(
            detect_by_itself(&folder.path().join("o"))
                .unwrap_err()
                .to_string()
                .contains("an empty file")
        );
        for (name, file, format) in [
            ("parts", "part-0.snappy.parquet", Format::Parquet),
            ("csvs", "part-0.csv.gz", Format::Csv),
        ] {
            let parts = folder.path().join(name);
            std::fs::create_dir(&parts).unwrap();
            std::fs::write(parts.join("_SUCCESS"), "").unwrap();
            std::fs::write(parts.join(file), "x").unwrap();
            assert_eq!(detect_by_itself(&parts).unwrap(), format);
        }
    }

    #[test]
    fn real_inputs() {
        for (name, format) in [
            ("flickr_graphsaint", Format::Graphsaint),
            ("planetoid-cora", Format::Planetoid),
            ("heterophilous-npz/tolokers.npz", Format::Npz),
            ("metis-graphs/4elt.graph", Format::Metis),
            ("mtx/bayer10.mtx", Format::Mtx),
            ("bv-cnr-2000-java", Format::Webgraph),
            ("bv-cnr-2000-java/cnr-2000.graph", Format::Webgraph),
            ("bv-cnr-2000-java/cnr-2000.properties", Format::Webgraph),
        ] {
            if let Some(path) = real(name) {
                assert_eq!(detect_by_itself(&path).unwrap(), format, "{name}");
            }
        }
    }
}
