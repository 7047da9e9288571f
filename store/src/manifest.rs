//! Content of `dataset.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::npy::element_type;
use crate::{
    Error, FeatureDtype, Files, GraphTypes, LabelShape, LinkInfo, Narrowing, Recipe, Result,
    ShardInfo, SourceFile,
};

/// Set of vertices that a metric or a training run looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Seeds of training.
    Train,
    /// Looked at while training, to choose.
    Valid,
    /// Looked at last.
    Test,
}

impl Split {
    /// All three.
    pub const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

    /// Its name on disk and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }

    pub(crate) fn file(self) -> String {
        format!("splits/{}.npy", self.name())
    }
}

/// Separates the name of structural features from the share of links left out when they were made,
/// e.g. `fastrp:64 without links 0.15`.
pub const WITHOUT_LINKS: &str = " without links ";

/// Node column of the weights of vertices, as a METIS file has them.
pub const VERTEX_WEIGHT: &str = "vertex_weight";

/// Edge column of the weights of edges.
pub const EDGE_WEIGHT: &str = "weight";

/// Node column of the kind of every vertex, where the sources (0) and the targets (1) of all edges
/// are of two.
pub const KIND: &str = "kind";

/// How a dataset came to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of gsplit.
    pub tool_version: String,
    /// The subcommand, e.g. `generate rmat`.
    pub command: String,
    /// All of its options, defaults included.
    pub options: serde_json::Value,
    /// The raw files read.
    pub sources: Vec<SourceFile>,
    /// Counts made on the way: duplicates merged, self-loops dropped ...
    pub facts: BTreeMap<String, u64>,
    /// How the input was understood where it could have been understood otherwise: which columns
    /// are the ends of an edge ...
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<String>,
    /// Decisions on the columns and cells of the input: the keys and values of the schema that
    /// `gsplit schema` prints.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub schema: serde_json::Map<String, serde_json::Value>,
}

/// Content of `dataset.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetManifest {
    /// The directory's name when it was made.
    pub name: String,
    /// `n`.
    pub num_vertices: u64,
    /// `m`.
    pub num_edges: u64,
    /// Types of vertices and relations, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<GraphTypes>,
    /// Values of a feature row and how they are stored, when all vertices have features alike.
    pub features: Option<FeatureInfo>,
    /// Number of classes, when there are labels.
    pub num_classes: Option<u32>,
    /// Names of the classes in the input, where it does not number them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_names: Option<Vec<String>>,
    /// Whether a vertex can have several classes: `nodes/label.npy` is then a bit matrix.
    pub multi_label: bool,
    /// Whether a vertex has a number instead of a class: `nodes/label.npy` then holds numbers, in
    /// the unit of the input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numeric_label: bool,
    /// Columns of the table that the vertices come from, and how each was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// Node columns beyond features, labels and original ids: `nodes/<name>.npy`.
    pub columns: Columns,
    /// Edge columns, aligned with the topology's indices: `edges/<name>.npy`.
    pub edge_columns: Columns,
    /// Node columns that are weights of the vertices, to be balanced over parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vertex_weights: Vec<String>,
    /// Whether the raw input's ids were strings: `nodes/original_id.arrow` holds them.
    pub string_ids: bool,
    /// The raw input's id of vertex 0, where its ids count the vertices without a gap: 1 for Matrix
    /// Market, METIS and DIMACS.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_id: u64,
    /// The split of links, when the graph came with one: `links/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkInfo>,
    /// The shard of another dataset that it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardInfo>,
    /// Every file with its length and digest.
    pub files: Files,
    /// How it was made.
    pub provenance: Provenance,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Columns by name.
pub type Columns = BTreeMap<String, ColumnInfo>;

/// The shape of a column in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnInfo {
    /// NumPy's name of the elements' type, e.g. `<f4`.
    pub descr: String,
    /// Number of elements per row.
    pub width: u64,
}

/// The feature column in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureInfo {
    /// Number of values per row.
    pub dim: u32,
    /// Stored type.
    pub dtype: FeatureDtype,
    /// How they were generated, e.g. `fastrp:128`; `None` if they came with the graph.
    pub generated: Option<String>,
    /// Loss by storing them in fewer bits than f32; `None` for f32.
    pub narrowing: Option<Narrowing>,
    /// Names of the values of a row, where they are from columns of a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
}

impl DatasetManifest {
    /// The shape of the labels, if there are labels.
    pub fn label_shape(&self) -> Option<LabelShape> {
        match self.num_classes {
            Some(classes) if self.multi_label => Some(LabelShape::Classes(classes)),
            Some(classes) => Some(LabelShape::Class(classes)),
            None => self.numeric_label.then_some(LabelShape::Number),
        }
    }

    /// The splits that there are.
    pub fn splits(&self) -> Vec<Split> {
        Split::ALL.into_iter().filter(|split| self.files.contains_key(&split.file())).collect()
    }
}

impl Document for DatasetManifest {
    const FORMAT: &'static str = "gsplit-dataset";
    const VERSION: u32 = 2;
}

/// Owner of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Nodes,
    Edges,
}

impl Axis {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Nodes => "node column",
            Self::Edges => "edge column",
        }
    }

    pub(crate) fn file(self, name: &str) -> String {
        match self {
            Self::Nodes => format!("nodes/{name}.npy"),
            Self::Edges => format!("edges/{name}.npy"),
        }
    }

    /// Fails unless a column of this kind may have the name `name` and the type `descr`.
    pub(crate) fn check(self, name: &str, descr: &str) -> Result<()> {
        let words = self.words();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            let expected = "expected letters, digits, `-` and `_`";
            return Err(Error::Invalid(format!("{words}s cannot be called `{name}`: {expected}")));
        }
        if self == Self::Nodes && ["feat", "label", "original_id"].contains(&name) {
            let problem =
                "that is the name of the features, labels or original ids: choose another";
            return Err(Error::Invalid(format!("{words}s cannot be called `{name}`: {problem}")));
        }
        let (fits, expected) = match self {
            Self::Nodes => {
                (element_type(descr).is_some(), "little-endian integers or floats, as <i8 or <f4")
            }
            Self::Edges => (["<f4", "<f8", "<i8"].contains(&descr), "<f4, <f8 or <i8"),
        };
        match fits {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "{words} `{name}` of type {descr}: expected {expected}"
            ))),
        }
    }
}
