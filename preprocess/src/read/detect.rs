//! Detects the format of a path.
//!
//! Asked in this order, the most particular first; the first that says yes counts.
//!
//! | format | a folder | a file |
//! | --- | --- | --- |
//! | `ogb` | `raw/edge.csv[.gz]`, `raw/num-node-list.csv[.gz]` or `raw/data.npz` | |
//! | `igb` | `[processed/]paper__cites__paper/edge_index.npy` | |
//! | `mag240m` | `[processed/]paper___cites___paper/edge_index.npy` | |
//! | `graphsaint` | `adj_full.npz` | |
//! | `graphbolt` | `metadata.yaml` | called `metadata.yaml` |
//! | `npy` | edges in `.npy` or `.pt` files of known names | magic `\x93NUMPY` |
//! | `npz` | | a zip called `.npz` |
//! | `pt` | | a zip or a pickle called `.pt` or `.pth` |
//! | `mat` | | a header of MATLAB, or called `.mat` |
//! | `parquet` | only `.parquet` files, or folders of them, and hidden or `_` ones | magic `PAR1` |
//! | `arrow` | the same with `.arrow`, `.arrows`, `.feather` or `.ipc` | magic `ARROW1`, or so called |
//! | `mtx` | | `%%MatrixMarket` at the start |
//! | `webgraph` | `.graph` beside `.properties` of BVGraph | `.graph` beside `.properties` of BVGraph, either of them or their common name |
//! | `metis` | | called `.graph` or `.metis`, a header of METIS in the first line of numbers |
//! | `csv` | the same with `.csv` or `.tsv`, or a `*_edges.csv` among other files | called `.csv` or `.tsv`, with names in the first line |
//! | `snap` | | text whose first line of data is two or more integers |
//!
//! Text may be gzip, zstd or bzip2; its head is inflated to look at it, and `.gz`, `.zst` and `.bz2` behind a name do not
//! count.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use super::arrays::folders::{graphbolt, graphsaint, igb, mag240m, ogb, planetoid};
use super::arrays::{mat, npy, npz, pt, webgraph};
use super::table;
use super::text::{self, TextStream, metis, mtx};
use crate::edges::Piece;
use crate::read::text::field::unsigned;
use crate::{Error, Result};
use gsplit_store::open_file;

/// Folders below one another that are looked into, from the root on.
const MAX_DEPTH: usize = 64;
/// Bytes at the start of a file that are looked at.
const HEAD_BYTES: usize = 1 << 16;

macro_rules! formats {
    ($($format:ident $name:literal $what:literal;)*) => {
        /// A raw format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
        #[serde(rename_all = "lowercase")]
        pub enum Format { $(
            #[doc = $what]
            #[value(name = $name)]
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
    Ogb "ogb" "OGB's raw folder, CSV or binary";
    Igb "igb" "IGB's homogeneous folder";
    Mag240m "mag240m" "MAG240M's papers and citations";
    Graphsaint "graphsaint" "GraphSAINT's folder";
    Planetoid "planetoid" "Planetoid's folder of pickles";
    Graphbolt "graphbolt" "GraphBolt's raw dataset with metadata.yaml";
    Npy "npy" "NumPy arrays, a file or a folder";
    Npz "npz" "NumPy or SciPy archive";
    Pt "pt" "tensors of torch, or a Data of PyG";
    Mat "mat" "MATLAB file with an adjacency matrix";
    Parquet "parquet" "Parquet table of edges";
    Arrow "arrow" "Arrow table of edges";
    Mtx "mtx" "Matrix Market coordinate file";
    Webgraph "webgraph" "WebGraph's BVGraph";
    Metis "metis" "METIS graph file";
    Csv "csv" "table of edges with a header, CSV or TSV";
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

/// The format of what is at `path`; an error that says what was looked for where none is known.
pub fn detect(path: &Path) -> Result<Format> {
    let looked = Looked::at(path)?;
    if let Some(format) = Format::ALL.iter().copied().find(|format| looked.is(path, *format)) {
        return Ok(format);
    }
    let names = Format::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    let problem = match looked.head.is_empty() {
        true if path.is_dir() => "a folder without files of a known format".to_string(),
        true => "an empty file".to_string(),
        false if has_header(&looked.head) => {
            "line 1 holds names: if they name the columns of a table, pass --format csv; else start the line with #"
                .to_string()
        }
        false => {
            "neither a known binary file, nor text whose first line is two ids or the names of columns".to_string()
        }
    };
    Err(Error::input(path, format!("{problem}: name the format with --format, one of {names}")))
}

/// First look at a path, without reading much.
struct Looked {
    /// First bytes of a file, inflated where it is compressed text.
    head: Vec<u8>,
    /// The path in lower case, without the endings of compression.
    name: String,
    /// Lower-case names of a folder's files, without hidden and `_` ones and without the endings of compression.
    files: Vec<String>,
}

impl Looked {
    fn at(path: &Path) -> Result<Self> {
        let mut looked = Self { head: Vec::new(), name: plain_name(path), files: Vec::new() };
        let metadata = match std::fs::metadata(path) {
            // BVGraph is known by a name that is no file's.
            Err(_) if webgraph::recognises(path, &[]) => return Ok(looked),
            other => other.map_err(Error::io(path))?,
        };
        if metadata.is_dir() {
            looked.files = files_of_table(path)?;
            return Ok(looked);
        }
        let file = open_file(path).map_err(Error::io(path))?;
        file.take(HEAD_BYTES as u64).read_to_end(&mut looked.head).map_err(Error::io(path))?;
        if is_compressed(&looked.head) {
            let mut piece = Piece::default();
            TextStream::open(path)?.next(&mut piece)?;
            piece.bytes.truncate(HEAD_BYTES);
            looked.head = piece.bytes;
        }
        Ok(looked)
    }

    fn is(&self, path: &Path, format: Format) -> bool {
        let head = &self.head[..];
        match format {
            Format::Ogb => {
                // The counts too, so that a folder whose edges are missing is told so.
                let files = ["edge.csv.gz", "edge.csv", "data.npz", "num-node-list.csv.gz", "num-node-list.csv"];
                let mut files = files.iter().chain(&ogb::HETEROGENEOUS);
                files.any(|file| path.join("raw").join(file).is_file())
            }
            Format::Igb => igb::recognises(path, head),
            Format::Mag240m => mag240m::recognises(path, head),
            Format::Graphsaint => graphsaint::recognises(path, head),
            Format::Planetoid => planetoid::recognises(path, head),
            Format::Graphbolt => graphbolt::recognises(path, head),
            Format::Npy => npy::recognises(path, head),
            Format::Npz => npz::recognises(path, head),
            Format::Pt => pt::recognises(path, head),
            Format::Mat => mat::recognises(path, head),
            Format::Parquet => head.starts_with(b"PAR1") || self.only(table::TableFormat::Parquet),
            Format::Arrow => {
                let arrow = table::TableFormat::Arrow;
                head.starts_with(b"ARROW1") || self.called(arrow) || self.only(arrow)
            }
            Format::Mtx => mtx::recognises(path, head),
            Format::Webgraph => webgraph::recognises(path, head),
            Format::Metis => metis::recognises(path, head),
            Format::Csv => {
                let edges = |name: &String| name.ends_with("_edges.csv");
                let csv = table::TableFormat::Csv;
                (self.called(csv) && has_header(head)) || self.only(csv) || self.files.iter().any(edges)
            }
            Format::Snap => first_data_line(head).is_some_and(|line| numbers_first(line) >= 2),
        }
    }

    /// Whether it is a file whose name is that of such a table.
    fn called(&self, format: table::TableFormat) -> bool {
        !self.head.is_empty() && table::by_name(Path::new(&self.name)) == Some(format)
    }

    /// Whether it is a folder of nothing but such tables, or of folders the first of which holds such a table.
    fn only(&self, format: table::TableFormat) -> bool {
        !self.files.is_empty() && self.files.iter().all(|name| table::by_name(Path::new(name)) == Some(format))
    }
}

/// Lower-case names of the files in `folder`, or, where it holds folders alone, of those in the first that has any: tables
/// lie in parts as `year=2020/part-0.parquet`. Hidden and `_` ones do not count.
fn files_of_table(folder: &Path) -> Result<Vec<String>> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?.path();
        match text::name_of(&entry).starts_with(['.', '_']) {
            true => {}
            false if entry.is_dir() => folders.push(entry),
            // Documents about the table are none of its parts.
            false if entry.extension().is_some_and(|extension| extension == "json") => {}
            false => files.push(plain_name(&entry)),
        }
    }
    folders.sort();
    match folders.first() {
        // Links may lead in circles.
        Some(first) if files.is_empty() && first.components().count() < MAX_DEPTH => files_of_table(first),
        _ => Ok(files),
    }
}

fn plain_name(path: &Path) -> String {
    let name = path.to_string_lossy().to_lowercase();
    [".gz", ".zst", ".bz2"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_string()
}

/// Whether `head` starts as gzip, zstd or bzip2 does.
fn is_compressed(head: &[u8]) -> bool {
    head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || head.starts_with(b"BZh")
}

/// Whether the first line is names: two or more fields, none of which is a number; or as pandas writes a table with its
/// index, whose name is empty.
fn has_header(head: &[u8]) -> bool {
    let line = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).split(|&byte| byte == b'\n').next().unwrap_or(&[]);
    let separator = if line.contains(&b'\t') { b'\t' } else { b',' };
    let fields: Vec<&[u8]> = line.split(|&byte| byte == separator).map(<[u8]>::trim_ascii).collect();
    let is_name = |field: &&[u8]| {
        let text = std::str::from_utf8(field);
        text.is_ok_and(|text| !text.is_empty() && text.trim_matches('"').parse::<f64>().is_err())
    };
    match fields[..] {
        [] | [_] => false,
        [b"", _, _, ..] => true,
        _ => !line.starts_with(b"#") && fields.iter().all(is_name),
    }
}

/// The first line that is neither empty nor a comment.
fn first_data_line(head: &[u8]) -> Option<&[u8]> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines.find(|line| !line.is_empty() && !line.starts_with(b"#") && !line.starts_with(b"%"))
}

/// How many fields from the first on are ids.
fn numbers_first(line: &[u8]) -> usize {
    let separates = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b';');
    line.split(separates).filter(|field| !field.is_empty()).take_while(|field| unsigned(field).is_some()).count()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::read::golden::{data, real};

    #[test]
    fn names_round_trip() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>(), Ok(*format));
            assert_eq!(<Format as ValueEnum>::from_str(format.name(), false), Ok(*format));
            assert_eq!(serde_json::to_value(format).unwrap(), format.name());
        }
        assert!("x".parse::<Format>().unwrap_err().contains("expected one of ogb, igb,"));
    }

    #[test]
    fn every_golden_input() {
        let table: &[(&str, Format)] = &[
            ("ogb-csv", Format::Ogb),
            ("ogb-npz", Format::Ogb),
            ("igb", Format::Igb),
            ("igb-raw", Format::Igb),
            ("mag240m", Format::Mag240m),
            ("graphsaint", Format::Graphsaint),
            ("graphbolt", Format::Graphbolt),
            ("graphbolt/metadata.yaml", Format::Graphbolt),
            ("npy", Format::Npy),
            ("npy-csc", Format::Npy),
            ("npy/edge_index.npy", Format::Npy),
            ("npz/graph.npz", Format::Npz),
            ("mtx/general.mtx", Format::Mtx),
            ("metis/plain.graph", Format::Metis),
            ("snap/edges.txt", Format::Snap),
            ("snap/gaps.txt.gz", Format::Snap),
        ];
        for (name, format) in table {
            assert_eq!(detect(&data(name)).unwrap(), *format, "{name}");
        }
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
            ("f.txt", b"src dst\n1 2\n", None),
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
            match (detect(&path), expected) {
                (Ok(found), Some(format)) => assert_eq!(found, *format, "{name}"),
                (Err(error), None) => assert!(error.to_string().contains("--format, one of ogb"), "{error}"),
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
        assert!(detect(&folder.path().join("gone")).unwrap_err().to_string().contains("check the path"));
        assert!(detect(folder.path()).unwrap_err().to_string().contains("a folder without"));
        for (name, file, format) in
            [("parts", "part-0.snappy.parquet", Format::Parquet), ("csvs", "part-0.csv.gz", Format::Csv)]
        {
            let parts = folder.path().join(name);
            std::fs::create_dir(&parts).unwrap();
            std::fs::write(parts.join("_SUCCESS"), "").unwrap();
            std::fs::write(parts.join(file), "x").unwrap();
            assert_eq!(detect(&parts).unwrap(), format);
        }
    }

    #[test]
    fn real_inputs() {
        for (name, format) in [
            ("ogbn_arxiv", Format::Ogb),
            ("ogb-binary-amazon-computers", Format::Ogb),
            ("flickr_graphsaint", Format::Graphsaint),
            ("planetoid-cora", Format::Planetoid),
            ("heterophilous-npz/tolokers.npz", Format::Npz),
            ("metis-graphs/4elt.graph", Format::Metis),
            ("mtx/bayer10.mtx", Format::Mtx),
            ("bv-cnr-2000-java", Format::Webgraph),
            ("bv-cnr-2000-java/cnr-2000.graph", Format::Webgraph),
            ("bv-cnr-2000-java/cnr-2000.properties", Format::Webgraph),
            ("com-dblp/dblp.csv.gz", Format::Snap),
            ("wiki-Vote/wiki-Vote.txt", Format::Snap),
            ("soc-Slashdot0902/soc-Slashdot0902.txt.gz", Format::Snap),
            ("p2p-Gnutella31/p2p-Gnutella31.txt", Format::Snap),
        ] {
            if let Some(path) = real(name) {
                assert_eq!(detect(&path).unwrap(), format, "{name}");
            }
        }
    }
}
