//! Result of a reader: small parts have been read and checked, large ones stay in the input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::{LabelShape, Progress, Recipe};

use super::arrays::folders::ogb::RawLinks;
use super::bipartite::TwoKinds;
use super::schema::Decided;
use super::text::field::counted;
use super::typed::RawTypes;
use crate::edges::EdgeSource;
use crate::{Error, Result};

/// A raw graph, opened.
pub struct Raw {
    /// The edges.
    pub edges: Box<dyn EdgeSource>,
    /// Kind of the input's ids.
    pub ids: Ids,
    /// Types of the vertices, where there are several: the targets of edges are then rows.
    pub types: Option<RawTypes>,
    /// The id of every row of the node columns, where a table lists its vertices in an order of its
    /// own. Its batches have sources only. `None`: row v is vertex v, or the v-th smallest id where
    /// ids are compacted.
    pub node_ids: Option<Box<dyn EdgeSource>>,
    /// Vertices without edges, where the list of edges names them: batches have sources only.
    pub alone: Option<Box<dyn EdgeSource>>,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels: one number a vertex (a class, negative or NaN for unlabelled), or a row of zeros and
    /// ones (multi-label), NaN for a missing one.
    pub labels: Option<Box<dyn Column>>,
    /// Names of the classes, where the labels are places among them.
    pub class_names: Option<Vec<String>>,
    /// Shape of the labels, where an option, a recipe or the record of an export says it. Numbers
    /// to learn are NaN for unlabelled.
    pub label_shape: Option<LabelShape>,
    /// Columns of the table of vertices, and what becomes of them.
    pub recipe: Option<Recipe>,
    /// Rows at the start of the node columns that are taken over from a dataset, and not read from
    /// a table.
    pub rows_taken_over: u64,
    /// Further numbers of every vertex.
    pub columns: Vec<Box<dyn Column>>,
    /// Names of those columns that weigh vertices.
    pub vertex_weights: Vec<String>,
    /// Training, validation and test vertices, by the ids of the input.
    pub splits: Option<[Vec<u64>; 3]>,
    /// A split of links.
    pub links: Option<RawLinks>,
    /// Whether edges without a direction are listed once each, without their reverses.
    pub lists_once: bool,
    /// The table of vertices in the folder of the edges, to be attached.
    pub nodes: Option<PathBuf>,
    /// Every file that is read.
    pub files: Vec<PathBuf>,
    /// Counts so far.
    pub facts: BTreeMap<String, u64>,
    /// Decisions on the columns and cells of tables.
    pub decided: Decided,
}

/// Kind of an input's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The vertices themselves, from 0. The number of vertices where the input states it; else it
    /// is the largest id and one.
    Dense(Option<u64>),
    /// Numbers from 1 to this number of vertices: vertex v has the id v + 1.
    FromOne(u64),
    /// Vertices of several types from 0, as sources, and rows from 0, as targets.
    Rows {
        /// Number of vertices.
        vertices: u64,
        /// Number of rows.
        rows: u64,
    },
    /// Any numbers, or hashes of strings: compacted, numbers in ascending order and strings in
    /// theirs.
    Sparse,
}

impl Ids {
    /// The id of vertex 0, where ids are not compacted.
    pub fn first(self) -> u64 {
        u64::from(matches!(self, Self::FromOne(_)))
    }

    /// The number of vertices, where the input states it; of rows, where there are several types.
    pub fn num_vertices(self) -> Option<u64> {
        match self {
            Self::Rows { rows, .. } => Some(rows),
            Self::Dense(n) => n,
            Self::FromOne(n) => Some(n),
            Self::Sparse => None,
        }
    }
}

impl Raw {
    /// A graph with nothing but edges.
    pub fn of(edges: impl EdgeSource + 'static, ids: Ids, files: Vec<PathBuf>) -> Self {
        Self {
            edges: Box::new(edges),
            ids,
            types: None,
            node_ids: None,
            alone: None,
            features: None,
            labels: None,
            class_names: None,
            label_shape: None,
            recipe: None,
            rows_taken_over: 0,
            columns: Vec::new(),
            vertex_weights: Vec::new(),
            splits: None,
            links: None,
            lists_once: false,
            nodes: None,
            files,
            facts: BTreeMap::new(),
            decided: Decided::default(),
        }
    }

    /// The table of vertices among the files: the last.
    pub fn table(&self) -> &Path {
        self.files.last().map_or(Path::new(""), |path| path.as_path())
    }

    /// Keeps sources and targets apart, as vertices of two kinds. Fails where the input has more
    /// than edges: rows of which kind would it be?
    pub fn in_two_kinds(self, path: &Path) -> Result<Self> {
        let has_rows = self.features.is_some() || self.labels.is_some() || !self.columns.is_empty();
        if has_rows
            || self.types.is_some()
            || self.splits.is_some()
            || self.node_ids.is_some()
            || self.links.is_some()
            || self.nodes.is_some()
        {
            let problem =
                "has data of its vertices, which are then of one kind: leave --bipartite out";
            return Err(Error::Option(format!("{} {problem}", path.display())));
        }
        Ok(Self { edges: Box::new(TwoKinds::of(self.edges)), ids: Ids::Sparse, ..self })
    }
}

/// Numbers of every vertex that stay in the input: a row for each vertex, of one or more numbers of
/// one type.
pub trait Column: Send + Sync {
    /// The file, for messages.
    fn path(&self) -> &Path;

    /// Its name in the input: becomes the name of a node column.
    fn name(&self) -> &str;

    /// NumPy's name of the type, e.g. `<f4`: a little-endian integer or float of 1, 2, 4 or 8
    /// bytes.
    fn descr(&self) -> &'static str;

    /// Numbers of a row.
    fn width(&self) -> usize;

    /// Number of rows, where it is known before they are read.
    fn num_rows(&self) -> Option<u64>;

    /// Hands over all rows from the first to the last, some whole rows at a time, little-endian.
    /// Fails when the input is truncated or has a row of another width.
    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;

    /// The row of a vertex that has none: NaN among floats (0 among features, which have to be
    /// finite), -1 for a class, otherwise 0. Fails if no value is defined for missing ones.
    fn missing_row(&self) -> Result<Vec<u8>> {
        let value = match (self.name(), self.descr()) {
            ("label", "<i8") => (-1i64).to_le_bytes().to_vec(),
            ("feat", descr) => vec![0; element_bytes(descr)],
            (_, "<f2") => half::f16::NAN.to_le_bytes().to_vec(),
            (_, "<f4") => f32::NAN.to_le_bytes().to_vec(),
            (_, "<f8") => f64::NAN.to_le_bytes().to_vec(),
            (_, descr) => vec![0; element_bytes(descr)],
        };
        Ok(value.repeat(self.width()))
    }

    /// A problem with number `column` of row `row`; readers of text name the line.
    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        let column = if self.width() == 1 { String::new() } else { format!(", column {column}") };
        Error::input(self.path(), format!("{}, row {row}{column}: {problem}", self.name()))
    }
}

/// Implements the methods of [`Column`] that describe it: its file, name, type, width and number of
/// rows.
macro_rules! describe_column {
    ($self:ident: $path:expr, $name:expr, $descr:expr, $width:expr, $rows:expr) => {
        fn path(&$self) -> &std::path::Path {
            $path
        }

        fn name(&$self) -> &str {
            $name
        }

        fn descr(&$self) -> &'static str {
            $descr
        }

        fn width(&$self) -> usize {
            $width
        }

        fn num_rows(&$self) -> Option<u64> {
            $rows
        }
    };
}
pub(crate) use describe_column;

/// Bytes of a number of NumPy's type `descr`.
pub fn element_bytes(descr: &str) -> usize {
    descr.get(2..).and_then(|digits| digits.parse().ok()).unwrap_or(1)
}

/// Decodes `bytes` of type `descr` to `f64`.
pub fn numbers<'a>(descr: &str, bytes: &'a [u8]) -> Box<dyn Iterator<Item = f64> + 'a> {
    macro_rules! decode {
        ($type:ty) => {
            Box::new(bytes.as_chunks().0.iter().map(|&chunk| <$type>::from_le_bytes(chunk) as f64))
        };
    }
    match descr {
        "|i1" => decode!(i8),
        "|u1" | "|b1" => decode!(u8),
        "<i2" => decode!(i16),
        "<u2" => decode!(u16),
        "<i4" => decode!(i32),
        "<u4" => decode!(u32),
        "<i8" => decode!(i64),
        "<u8" => decode!(u64),
        "<f2" => Box::new(
            bytes.as_chunks().0.iter().map(|&chunk| half::f16::from_le_bytes(chunk).to_f64()),
        ),
        "<f4" => decode!(f32),
        _ => decode!(f64),
    }
}

/// Refuses a number of vertices that only a damaged count or id explains, before memory and disk
/// are taken for it.
pub fn check_size(path: &Path, num_vertices: usize, num_edges: u64) -> Result<()> {
    plausible(num_vertices as u64, num_edges).map_err(|problem| Error::input(path, problem))
}

/// Fails if `num_vertices` is implausible for an input with only `borne_out` edges or ids.
pub fn plausible(num_vertices: u64, borne_out: u64) -> Result<(), String> {
    const ALWAYS_FINE: u64 = 1 << 26;
    if num_vertices <= ALWAYS_FINE || num_vertices / 64 <= borne_out {
        return Ok(());
    }
    Err(format!(
        "{num_vertices} vertices and only {}: expected an edge for every 64 vertices; check the \
         counts and ids",
        counted(borne_out, "edge")
    ))
}
