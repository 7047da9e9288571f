//! Options of reading, and the types of the values in a [`Schema`].

use std::path::PathBuf;
use std::str::FromStr;

use gsplit_store::{LabelShape, Recipe};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use super::schema::Schema;
use super::table::choice::IdKind;
use super::text::line::Delimiter;
pub use super::text::style::{DateOrder, Decimal};
use crate::edges::BuildOptions;
use crate::memory::Memory;
use crate::{Error, Result};

/// Options of how the input is read.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct ReadOptions {
    /// Meaning of the columns, and notation of the cells.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(serialize_with = "Schema::serialize_set")]
    pub schema: Schema,
    /// Keep vertex ids as they are: gaps become vertices without edges
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_ids: bool,
    /// Data of the vertices: a table (CSV, Parquet or Arrow, or a folder of its parts) with an id
    /// column; or arrays in a folder or an .npz archive (feat.npy, label.npy, train.npy, valid.npy,
    /// test.npy) whose row v is vertex v: the v-th smallest id, or id v with --keep-ids
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATH"))]
    pub nodes: Option<PathBuf>,
    /// Whether all rows of a text table of edges are read before its types are decided.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub scans: bool,
    /// Dataset or checkpoint whose recipe the table of vertices is converted by: the same columns,
    /// categories and scales
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe: Option<PathBuf>,
    /// Memory limit, e.g. 4GiB, 512MiB or 50%; data that does not fit is kept on disk next to the
    /// output. The result does not depend on it [default: half of the machine's]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    #[serde(skip)]
    pub memory: Option<Memory>,
    /// Whether splits are drawn at random: the splits of the table are then ignored.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub draws_splits: bool,
    /// Options of edges, for readers of several types of vertices, which follow them themselves.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub edges: BuildOptions,
    /// Shape of the labels, if the record of an export has it.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub label_shape: Option<LabelShape>,
}

/// Kind of the label of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelKind {
    /// One of several classes.
    Class,
    /// A number.
    Number,
}

/// Scale of numbers that become features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Less the mean, over the standard deviation.
    Standard,
    /// Less the least, over the range.
    Minmax,
    /// Unchanged.
    None,
}

/// Treatment of strings that differ only in case or blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseRule {
    /// They are one.
    Fold,
    /// They are several.
    Keep,
}

/// Treatment of categories that a recipe does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unseen {
    /// An error.
    Refuse,
    /// A category of its own, different from all in the recipe.
    Other,
}

/// The row that counts if a vertex has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// The first.
    First,
    /// The last.
    Last,
}

/// Treatment of vertices without a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingRows {
    /// A row of missing values.
    Fill,
    /// Their edges are dropped, and so are they.
    Drop,
}

/// Answer to a question that an input leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is so.
    Yes,
    /// It is not.
    No,
}

/// Options of how text is cut into rows and fields.
#[derive(Clone, Copy, Default)]
pub struct TextOptions {
    /// Whether the first row names the columns.
    pub header: Option<Answer>,
    /// Mark between fields.
    pub delimiter: Option<Delimiter>,
    /// Mark before the fraction of numbers.
    pub decimal: Option<Decimal>,
    /// Type of ids.
    pub id_type: Option<IdKind>,
    /// Whether the ends of edges, or their weight, are columns that an option names.
    pub names_columns: bool,
    /// Order of day and month in dates.
    pub date_order: Option<DateOrder>,
    /// A table of vertices: without a header it is refused.
    pub must_have_header: bool,
    /// Whether all files of a folder are one table, whatever their names.
    pub one_table: bool,
    /// Whether the types of columns are decided by all rows, and not by the first.
    pub scans: bool,
}

impl TextOptions {
    /// Whether an option is given that only tables support.
    pub fn are_given(self) -> bool {
        self.header.is_some()
            || self.delimiter.is_some()
            || self.names_columns
            || self.id_type == Some(IdKind::Text)
    }
}

impl From<Schema> for ReadOptions {
    fn from(schema: Schema) -> Self {
        Self { schema, ..Self::default() }
    }
}

impl ReadOptions {
    /// The budget.
    pub fn budget(&self) -> Memory {
        self.memory.unwrap_or_default()
    }

    /// The part for text that is a table.
    pub fn text(&self) -> TextOptions {
        let schema = &self.schema;
        let columns = [&schema.source_column, &schema.target_column, &schema.edge_weights];
        TextOptions {
            header: schema.header,
            delimiter: schema.delimiter,
            decimal: schema.decimal,
            id_type: schema.id_type,
            names_columns: columns.iter().any(|column| column.is_some()),
            date_order: schema.date_order,
            must_have_header: false,
            one_table: schema.one_table == Some(Answer::Yes),
            scans: self.scans,
        }
    }

    /// Fails where two options exclude each other.
    pub fn check(&self) -> Result<()> {
        let (schema, by_recipe) = (&self.schema, self.recipe.is_some());
        let excluded = [
            ("feature-columns", "--recipe", schema.feature_columns.is_some() && by_recipe),
            ("encode", "--recipe", schema.encode.is_some() && by_recipe),
            ("scale", "--recipe", schema.scale.is_some() && by_recipe),
            ("bipartite", "--keep-ids", schema.bipartite == Some(Answer::Yes) && self.keep_ids),
        ];
        if let Some((key, option, _)) = excluded.into_iter().find(|(.., both)| *both) {
            let key = Schema::option(key);
            return Err(Error::Option(format!("{key} and {option} exclude each other")));
        }
        match schema.unseen {
            Some(_) if !by_recipe => {
                let problem = "--schema unseen is for a table that is read by a --recipe";
                Err(Error::Option(problem.into()))
            }
            _ => Ok(()),
        }
    }

    /// Whether strings that differ only in case or blanks are one, by the schema or by the recipe
    /// of an earlier table.
    pub fn folds_case(&self, trained: Option<&Recipe>) -> bool {
        self.schema.case == Some(CaseRule::Fold)
            || trained.is_some_and(|trained| trained.folds_case)
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

/// How categories become features.
#[derive(Clone, Debug, PartialEq)]
pub enum Encode {
    /// Columns without a rule of their own are encoded according to their values.
    Auto,
    /// Columns without a rule of their own are left out.
    Never,
    /// A column by name.
    Column {
        /// Its name; `*` matches any text and `?` any character.
        pattern: String,
        /// How.
        how: Categories,
    },
    /// A column that is left out.
    LeftOut {
        /// Its name, as of [`Encode::Column`].
        pattern: String,
    },
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
        match (parts, text) {
            (Some((column, how)), _) if !column.is_empty() => {
                Ok(Self::Column { pattern: column.into(), how })
            }
            (None, text) if text.len() > 5 && text.ends_with("=none") => {
                Ok(Self::LeftOut { pattern: text[..text.len() - 5].into() })
            }
            (None, "auto") => Ok(Self::Auto),
            (None, "none") => Ok(Self::Never),
            _ => Err(format!(
                "`{text}`: expected COLUMN=onehot, COLUMN=code, COLUMN=none, auto or none"
            )),
        }
    }
}

impl Serialize for Encode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Never => serializer.serialize_str("none"),
            Self::LeftOut { pattern } => serializer.collect_str(&format_args!("{pattern}=none")),
            Self::Column { pattern, how } => {
                let how = if *how == Categories::Code { "code" } else { "onehot" };
                serializer.collect_str(&format_args!("{pattern}={how}"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Encode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Replacement of a missing number.
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

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
