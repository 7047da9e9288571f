//! What a reader makes of its input: everything found and checked that is small, everything large still where it lies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use super::links::RawLinks;
use crate::edges::EdgeSource;
use crate::{Error, Result};

/// A raw graph, opened.
pub struct Raw {
    /// The edges.
    pub edges: Box<dyn EdgeSource>,
    /// What the ids of the input are.
    pub ids: Ids,
    /// The id of every row of the node columns, where a table lists its vertices in an order of its own. Its batches have
    /// sources only. `None`: row v is vertex v, or the v-th smallest id where ids are compacted.
    pub node_ids: Option<Box<dyn EdgeSource>>,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels: one number a vertex (a class, negative or NaN for unlabelled), or a row of zeros and ones (multi-label).
    pub labels: Option<Box<dyn Column>>,
    /// Further numbers of every vertex.
    pub columns: Vec<Box<dyn Column>>,
    /// Training, validation and test vertices, by the ids of the input.
    pub splits: Option<[Vec<u64>; 3]>,
    /// A split of links.
    pub links: Option<RawLinks>,
    /// Every file that is read.
    pub files: Vec<PathBuf>,
    /// What was counted so far.
    pub facts: BTreeMap<String, u64>,
}

/// What the ids of the input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The vertices themselves, from 0. The number of vertices where the input states it; else it is the largest id and
    /// one.
    Dense(Option<u64>),
    /// Any numbers, or hashes of strings: compacted, numbers in ascending order and strings in theirs.
    Sparse,
}

impl Raw {
    /// A graph with nothing but edges.
    pub fn of(edges: impl EdgeSource + 'static, ids: Ids, files: Vec<PathBuf>) -> Self {
        Self {
            edges: Box::new(edges),
            ids,
            node_ids: None,
            features: None,
            labels: None,
            columns: Vec::new(),
            splits: None,
            links: None,
            files,
            facts: BTreeMap::new(),
        }
    }
}

/// Numbers of every vertex that still lie in the input: a row for each, of one or more numbers of one type.
pub trait Column: Send + Sync {
    /// The file, for messages.
    fn path(&self) -> &Path;

    /// Its name in the input: becomes the name of a node column.
    fn name(&self) -> &str;

    /// NumPy's name of the type, as `<f4`: a little-endian integer or float of 1, 2, 4 or 8 bytes.
    fn descr(&self) -> &'static str;

    /// Numbers of a row.
    fn width(&self) -> usize;

    /// Number of rows, where it is known before they are read.
    fn num_rows(&self) -> Option<u64>;

    /// Hands over all rows from the first to the last, some whole rows at a time, little-endian. Fails when the input is
    /// truncated or has a row of another width.
    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// A problem with number `column` of row `row`; readers of text name the line.
    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        let column = if self.width() == 1 { String::new() } else { format!(", column {column}") };
        Error::input(self.path(), format!("{}, row {row}{column}: {problem}", self.name()))
    }
}

/// Options of how the input is read; formats say which of them they look at.
#[derive(Clone, Debug, Default, serde::Serialize, clap::Args)]
#[serde(default)]
pub struct ReadOptions {
    /// Name of the split below DIR/split, where an OGB folder has several
    #[arg(long, value_name = "NAME", conflicts_with = "random_split")]
    pub split: Option<String>,
    /// Keep vertex ids as they are: gaps become vertices without edges
    #[arg(long)]
    pub keep_ids: bool,
    /// Edge lists: do not check the counts of a header `# Nodes: N Edges: M`, and take a first line `n m` for an edge
    #[arg(long)]
    pub ignore_header: bool,
    /// Tables of edges: the column with the vertex that an edge comes from [default: src, source, from ... or the first]
    #[arg(long, value_name = "COLUMN")]
    pub source_column: Option<String>,
    /// Tables of edges: the column with the vertex that an edge leads to [default: dst, target, to ... or the second]
    #[arg(long, value_name = "COLUMN")]
    pub target_column: Option<String>,
    /// Numeric columns to keep with the edges: names of a table's columns, or new names for the third, fourth ...
    /// column of an edge list, as weight,time. One called `weight` becomes the edge weight [default: those of a
    /// table with a header; none of an edge list]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub edge_columns: Option<Vec<String>>,
    /// What comes with the vertices: a table (CSV, Parquet or Arrow, or a folder of its parts) with an id column; or arrays
    /// in a folder or an .npz archive (feat.npy, label.npy, train.npy, valid.npy, test.npy) whose row v is vertex v: the
    /// v-th smallest id, or id v with --keep-ids
    #[arg(long, value_name = "PATH")]
    pub nodes: Option<PathBuf>,
    /// The table of vertices' column of ids [default: id, node_id, ... or the first]
    #[arg(long, value_name = "COLUMN")]
    pub id_column: Option<String>,
}
