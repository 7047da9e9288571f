//! Recipe of a dataset: the columns of the table that its vertices come from, and how each was
//! used.
//!
//! A checkpoint keeps the recipe of the dataset that it was trained on. New tables are converted by
//! it (`gsplit convert --recipe`, `gsplit infer --nodes`), so that each number of a feature row has
//! the same meaning as in training.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::document::{self, Document};
use crate::{DatasetManifest, Error, Result};

/// Name of the category for all values without a category of their own.
pub const OTHER: &str = "other";

/// Columns of a table of vertices, by their use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Column of the ids.
    pub id: String,
    /// Columns of the label: one, or one for each class where a vertex can have several; none
    /// without labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub label: Vec<String>,
    /// Names of the classes in their order, where the dataset has names for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Shape of the labels, which a new table need not show: it may lack a class, or have whole
    /// numbers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_shape: Option<LabelShape>,
    /// Value of the label column that means unlabelled, in addition to an empty field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlabelled: Option<String>,
    /// Order of day and month in dates, dmy or mdy, if the table has dates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dates: Option<String>,
    /// Words for missing values: `WORD`, or `COLUMN=WORD` for one column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub na: Vec<String>,
    /// Whether strings that differ only in case or blanks are one class or category.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub folds_case: bool,
    /// Columns that give the split of a vertex.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<String>,
    /// Features, in the order of the feature row.
    pub features: Vec<FeatureRecipe>,
    /// Columns that are not features, and the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Treatment of the edges.
    pub edges: EdgeRecipe,
}

/// Shape of the labels of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum LabelShape {
    /// A vertex has one of this number of classes.
    Class(u32),
    /// A vertex has any of this number of classes.
    Classes(u32),
    /// A vertex has a number to learn.
    Number,
}

/// One column of features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureRecipe {
    /// Its name.
    pub column: String,
    /// How its values become numbers of the feature row.
    pub encoding: FeatureEncoding,
    /// Number that replaces a missing one, in the unit of the column; -1 for a category. `None`: a
    /// missing value is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<f32>,
    /// Whether a further number at the end is 1 if the value is missing, else 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub indicator: bool,
}

/// Encoding of the values of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum FeatureEncoding {
    /// The number less `shift`, over `scale`.
    Number {
        /// Mean, or least value.
        shift: f64,
        /// Standard deviation, or range.
        scale: f64,
    },
    /// The place of the category among these.
    Code {
        /// The categories.
        categories: Vec<String>,
    },
    /// 1 at the place of the category among these, else 0.
    OneHot {
        /// The categories.
        categories: Vec<String>,
        /// Whether a further place is for all other categories.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        other: bool,
    },
    /// A list of `width` numbers, unchanged.
    List {
        /// Length of the list.
        width: u32,
    },
}

/// A column that is not a feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Its name.
    pub column: String,
    /// Why it was left out.
    pub why: String,
}

/// Treatment of the edges, by the options of `gsplit convert`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeRecipe {
    /// Column of a table that was named as the source of an edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_column: Option<String>,
    /// Column of a table that was named as the target of an edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_column: Option<String>,
    /// Column of a table that was named as the weight of an edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_weights: Option<String>,
    /// The reverse of every edge was added.
    pub symmetrise: bool,
    /// Edges from a vertex to itself were left out.
    pub drop_self_loops: bool,
    /// Edges that occur several times were kept.
    pub keep_duplicates: bool,
    /// Weights of merged edges were added up.
    pub sum_weights: bool,
}

impl EdgeRecipe {
    /// Describes the first treatment that differs from training.
    pub fn difference(&self, trained: &Self) -> Option<String> {
        let flags = |edges: &Self| {
            [
                ("--symmetrise", edges.symmetrise),
                ("--drop-self-loops", edges.drop_self_loops),
                ("--keep-duplicates", edges.keep_duplicates),
                ("--schema edge-weights", edges.sum_weights),
            ]
        };
        let ((flag, here), _) =
            flags(self).into_iter().zip(flags(trained)).find(|(here, there)| here != there)?;
        let (with, without) = (format!("with {flag}"), format!("without {flag}"));
        let (here, there) = if here { (with, without) } else { (without, with) };
        Some(format!("its edges were converted {here}, the training edges {there}"))
    }
}

impl FeatureRecipe {
    /// Names of its numbers in the feature row.
    pub fn names(&self) -> Vec<String> {
        let column = &self.column;
        let mut names = match &self.encoding {
            FeatureEncoding::Number { .. } | FeatureEncoding::Code { .. } => vec![column.clone()],
            FeatureEncoding::OneHot { categories, other } => {
                let other = other.then_some(OTHER);
                let categories = categories.iter().map(String::as_str).chain(other);
                categories.map(|category| format!("{column}={category}")).collect()
            }
            FeatureEncoding::List { width } => {
                (0..*width).map(|at| format!("{column}[{at}]")).collect()
            }
        };
        names.extend(self.indicator.then(|| format!("{column} missing")));
        names
    }
}

/// The part of `checkpoint.json` that is read here; the trainer reads the rest.
#[derive(Serialize, Deserialize)]
struct OfCheckpoint {
    recipe: Option<Recipe>,
}

impl Document for OfCheckpoint {
    const FORMAT: &'static str = document::CHECKPOINT;
    const VERSION: u32 = document::CHECKPOINT_VERSION;
}

impl Recipe {
    /// Names of the numbers of a feature row, in their order.
    pub fn feature_names(&self) -> Vec<String> {
        self.features.iter().flat_map(FeatureRecipe::names).collect()
    }

    /// The recipe of the dataset in the folder `path`, or of its checkpoints: all checkpoints of a
    /// run have the same recipe.
    ///
    /// # Errors
    /// [`Error::Missing`] if neither exists, or it was not made from a table; [`Error::Corrupt`].
    pub fn read(path: &Path) -> Result<Self> {
        let missing = |what: &str, remedy: &str| Error::Missing {
            path: path.into(),
            what: what.into(),
            remedy: remedy.into(),
        };
        let (dataset, checkpoint) = (path.join("dataset.json"), newest_checkpoint(path));
        let recipe = match (dataset.is_file(), checkpoint) {
            (true, _) => document::read::<DatasetManifest>(&dataset)?.0.recipe,
            (false, Some(checkpoint)) => document::read::<OfCheckpoint>(&checkpoint)?.0.recipe,
            (false, None) => {
                return Err(missing("dataset or checkpoint", "name the folder of one"));
            }
        };
        recipe.ok_or_else(|| {
            missing(
                "recipe",
                "only datasets made from a table of vertices (convert --nodes TABLE) have one",
            )
        })
    }

    /// Describes how the feature rows differ from those of `trained`; `None` if they have the same
    /// meaning.
    pub fn difference(&self, trained: &Self) -> Option<String> {
        let lacks = |recipe: &Self, of: &Self| {
            let columns = of.features.iter().map(|feature| &feature.column);
            columns
                .into_iter()
                .find(|column| recipe.features.iter().all(|feature| feature.column != **column))
                .cloned()
        };
        if let Some(column) = lacks(self, trained) {
            return Some(format!(
                "the model was trained with the column `{column}`, which is not a feature here"
            ));
        }
        if let Some(column) = lacks(trained, self) {
            return Some(format!(
                "the column `{column}` is a feature here, but was not in training"
            ));
        }
        let meaning = |feature: &FeatureRecipe| {
            (feature.column.clone(), feature.encoding.clone(), feature.indicator)
        };
        let mut pairs = self.features.iter().zip(&trained.features);
        let (here, there) = pairs.find(|(here, there)| meaning(here) != meaning(there))?;
        let (here, there) = (&here.column, &there.column);
        Some(match here == there {
            true => format!(
                "column `{here}` has other categories, or another scale or encoding, than in \
                 training"
            ),
            false => format!(
                "the columns are in another order: `{here}` is in the place of `{there}` in \
                 training"
            ),
        })
    }
}

/// The document of the checkpoint in `folder`, of the last in it, or of the last in the folder
/// `checkpoint` that `gsplit run` makes.
fn newest_checkpoint(folder: &Path) -> Option<PathBuf> {
    let epochs = |folder: &Path| {
        let paths = crate::entries(folder).unwrap_or_default().into_iter();
        paths
            .filter(|path| {
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"epoch-"))
            })
            .max()
    };
    let places = [Some(folder.to_path_buf()), epochs(folder), epochs(&folder.join("checkpoint"))];
    places
        .into_iter()
        .flatten()
        .map(|place| place.join("checkpoint.json"))
        .find(|document| document.is_file())
}
