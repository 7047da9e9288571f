//! What a reader makes of its input: everything found and checked that is small, everything large still where it lies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gsplit_store::Progress;
use serde::{Serialize, Serializer};

use super::arrays::folders::ogb::RawLinks;
use crate::edges::{EdgeColumn, EdgeSource};
use crate::memory::Memory;
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
    /// Names of the classes, where the labels are places among them.
    pub class_names: Option<Vec<String>>,
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
            class_names: None,
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

/// Refuses a number of vertices that only a damaged count or id explains, before memory and disk are taken for it.
pub fn check_size(path: &Path, num_vertices: usize, num_edges: u64) -> Result<()> {
    plausible(num_vertices as u64, num_edges).map_err(|problem| Error::input(path, problem))
}

/// What is wrong with so many vertices, if `borne_out` edges or ids are all that there are.
pub fn plausible(num_vertices: u64, borne_out: u64) -> Result<(), String> {
    const ALWAYS_FINE: u64 = 1 << 26;
    if num_vertices <= ALWAYS_FINE || num_vertices / 64 <= borne_out {
        return Ok(());
    }
    Err(format!(
        "{num_vertices} vertices and only {borne_out} edges: expected an edge for every 64 vertices; check the counts and ids"
    ))
}

/// Whether the edge column `name` is wanted: without `--edge-columns` all are.
pub fn keeps(options: &ReadOptions, name: &str) -> bool {
    options.edge_columns.as_ref().is_none_or(|names| names.iter().any(|wanted| wanted == name))
}

/// Fails where `--edge-columns` names what is not among `columns`.
pub fn check_wanted(path: &Path, options: &ReadOptions, columns: &[EdgeColumn]) -> Result<()> {
    let has = |name: &String| columns.iter().any(|column| column.name == *name);
    match options.edge_columns.iter().flatten().find(|&name| !has(name)) {
        Some(name) => {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let found = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            let problem =
                format!("--edge-columns {name}: {} has no such column of edges, found {found}", path.display());
            Err(Error::Option(problem))
        }
        None => Ok(()),
    }
}

/// Options of how the input is read; formats say which of them they look at.
#[derive(Clone, Debug, Default, serde::Serialize, clap::Args)]
#[serde(default)]
pub struct ReadOptions {
    /// Which of several splits: its name below DIR/split of an OGB folder, or the number of a mask from 0 in arrays
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
    /// The table of vertices' column of ids [default: id, node_id, ... or the one that holds the ids of the edges]
    #[arg(long, value_name = "COLUMN")]
    pub id_column: Option<String>,
    /// The table of vertices' column of classes, numbers or strings, or none [default: label, class, target or y, else the
    /// only column of strings with few values]
    #[arg(long, value_name = "COLUMN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_column: Option<String>,
    /// The table of vertices' column that holds train, valid, test or nothing [default: split]
    #[arg(long, value_name = "COLUMN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_column: Option<String>,
    /// The table of vertices' columns that become features, as 'f*,age', or none [default: a list called feat, features, x
    /// ..., else all numbers that are not ids, labels or splits]
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_columns: Option<Vec<String>>,
    /// Columns of categories that become features too: city=onehot has a number for each of its values, city=code one number
    /// in all, the place among its values in order
    #[arg(long, value_name = "COLUMN=onehot|code,...", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encode: Option<Vec<Encode>>,
    /// What stands for a missing number among features: a number, or mean. Missing categories become -1, or zeros where they
    /// are one-hot [default: refused]
    #[arg(long, value_name = "NUMBER|mean", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// Most memory to take, as 4GiB, 512MiB or 50%; what does not fit waits on disk beside the output. The result does not
    /// depend on it [default: half of the machine's]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip)]
    pub memory: Option<Memory>,
}

impl ReadOptions {
    /// The budget.
    pub fn budget(&self) -> Memory {
        self.memory.unwrap_or_default()
    }

    /// The first option given that only a table of vertices obeys.
    pub fn for_node_table(&self) -> Option<&'static str> {
        let given = [
            ("--id-column", self.id_column.is_some()),
            ("--label-column", self.label_column.is_some()),
            ("--split-column", self.split_column.is_some()),
            ("--feature-columns", self.feature_columns.is_some()),
            ("--encode", self.encode.is_some()),
            ("--fill", self.fill.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// How categories become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Categories {
    /// One number: the place among the values in order.
    Code,
    /// A number for each value, one of which is 1.
    OneHot,
}

/// A column of categories, and how it becomes features.
#[derive(Clone, Debug, PartialEq)]
pub struct Encode {
    /// Its name; `*` and `?` stand for any text and any character.
    pub column: String,
    /// How.
    pub how: Categories,
}

impl FromStr for Encode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let how = |how| match how {
            "code" => Some(Categories::Code),
            "onehot" => Some(Categories::OneHot),
            _ => None,
        };
        let parts = text.rsplit_once('=').and_then(|(column, name)| Some((column, how(name)?)));
        match parts {
            Some((column, how)) if !column.is_empty() => Ok(Self { column: column.into(), how }),
            _ => Err(format!("`{text}`: expected COLUMN=onehot or COLUMN=code")),
        }
    }
}

impl Serialize for Encode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let how = if self.how == Categories::Code { "code" } else { "onehot" };
        serializer.collect_str(&format_args!("{}={how}", self.column))
    }
}

/// What stands for a missing number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Always the same.
    Value(f32),
    /// The mean of its column.
    Mean,
}

impl FromStr for Fill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f32>() {
            _ if text == "mean" => Ok(Self::Mean),
            Ok(value) if value.is_finite() => Ok(Self::Value(value)),
            _ => Err(format!("`{text}`: expected a finite number, or mean")),
        }
    }
}

impl Serialize for Fill {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => serializer.collect_str(value),
            Self::Mean => serializer.serialize_str("mean"),
        }
    }
}
