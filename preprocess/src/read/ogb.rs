//! The folder that OGB unpacks: its files in the CSV or the binary layout, and its splits.
//!
//! ```text
//! DIR/raw/{num-node-list,num-edge-list,edge}.csv.gz             always, in the CSV layout
//! DIR/raw/{node-feat,node-label}.csv.gz                         where the graph has them
//! DIR/raw/data.npz, DIR/raw/node-label.npz                      the binary layout
//! DIR/split/NAME/{train,valid,test}.csv.gz
//! ```
//! Unpacked `.csv` files serve as well. Anything else in the folder is ignored.

use std::path::{Path, PathBuf};

use gsplit_store::Progress;
use serde::Serialize;

use super::{Raw, ogb_csv, ogb_npz, splits};
use crate::{Error, Result};

/// A folder that OGB unpacked, and which of its splits to take.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct OgbSource {
    /// The folder with raw/ and split/, as dataset/ogbn_products
    pub dir: PathBuf,
    /// Name of the split below DIR/split, where there are several
    #[arg(long, value_name = "NAME", conflicts_with = "random_split")]
    pub split: Option<String>,
}

/// The files of one OGB graph.
pub struct Layout {
    graph: Graph,
    /// Training, validation and test vertices.
    pub splits: Option<[PathBuf; 3]>,
}

enum Graph {
    Csv(ogb_csv::Files),
    Npz(ogb_npz::Files),
}

impl Layout {
    /// Finds the files; their splits too, unless they are not wanted.
    pub fn find(source: &OgbSource, with_splits: bool) -> Result<Self> {
        std::fs::metadata(&source.dir).map_err(Error::io(&source.dir))?;
        let raw = source.dir.join("raw");
        let graph = if raw.join("data.npz").exists() {
            Graph::Npz(ogb_npz::Files::find(&raw))
        } else if candidates(&raw, "edge").iter().any(|path| path.exists()) {
            Graph::Csv(ogb_csv::Files::find(&raw)?)
        } else {
            let problem =
                "expected raw/edge.csv.gz or raw/data.npz in it: name the folder that OGB unpacks, as ogbn_arxiv";
            return Err(Error::input(&source.dir, problem));
        };
        let splits = match with_splits {
            true => splits::choose(&source.dir.join("split"), source.split.as_deref())?,
            false => None,
        };
        Ok(Self { graph, splits: splits.map(|folder| splits::files(&folder)).transpose()? })
    }

    /// Every file that is read.
    pub fn files(&self) -> Vec<&Path> {
        let mut files = match &self.graph {
            Graph::Csv(files) => files.all(),
            Graph::Npz(files) => files.all(),
        };
        files.extend(self.splits.iter().flatten().map(PathBuf::as_path));
        files
    }

    /// Reads everything but the feature rows.
    pub fn read(&self, progress: &dyn Progress) -> Result<Raw> {
        let splits = |n| self.splits.as_ref().map(|files| splits::read(files, n, progress)).transpose();
        match &self.graph {
            Graph::Csv(files) => files.read(splits, progress),
            Graph::Npz(files) => files.read(splits, progress),
        }
    }
}

/// Where the table called `stem` may lie.
fn candidates(folder: &Path, stem: &str) -> [PathBuf; 2] {
    ["csv.gz", "csv"].map(|extension| folder.join(format!("{stem}.{extension}")))
}

/// The table called `stem`, gzip or plain, if there is one.
pub fn find_optional(folder: &Path, stem: &str) -> Option<PathBuf> {
    candidates(folder, stem).into_iter().find(|path| path.exists())
}

/// The table called `stem`; an error when there is none.
pub fn find(folder: &Path, stem: &str) -> Result<PathBuf> {
    let [usual, _] = candidates(folder, stem);
    let missing = || Error::io(usual)(std::io::Error::from(std::io::ErrorKind::NotFound));
    find_optional(folder, stem).ok_or_else(missing)
}
