//! Options of reading: all that a user may give, and the part of them that each reader is handed.
//! The file is long because each option has its type, its default and its parser here and nowhere
//! else.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use gsplit_store::{LabelShape, Recipe};
use serde::{Serialize, Serializer};

use super::table::choice::{IdKind, NONE};
use super::text::line::Delimiter;
pub use super::text::style::{DateOrder, Decimal};
use crate::edges::EdgeColumn;
use crate::memory::Memory;
use crate::{Error, Result};

/// Options of how the input is read. Each reader gets only the options that it supports.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct ReadOptions {
    /// Split to take, where there are several: its name below DIR/split of an OGB folder, the name
    /// of MAG240M's test split, or the number of a mask from 0 in arrays
    #[cfg_attr(
        feature = "cli",
        arg(long = "split-name", value_name = "NAME", conflicts_with = "random_split")
    )]
    pub split: Option<String>,
    /// Keep vertex ids as they are: gaps become vertices without edges
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_ids: bool,
    /// Edge lists, METIS and Matrix Market files: do not check the counts of a header, and read a
    /// bare first line `n m` of an edge list as an edge
    #[cfg_attr(feature = "cli", arg(long))]
    pub ignore_header: bool,
    /// Text tables of edges: whether the first line names the columns [default: detected, or asked]
    #[cfg_attr(feature = "cli", arg(long, value_name = "yes|no", hide_possible_values = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Answer>,
    /// Keep sources and targets apart, as vertices of two kinds: user 1 is not item 1. =no if the
    /// column names suggest two kinds, but they are of one kind [default: no, or asked]
    #[cfg_attr(feature = "cli", arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true, default_missing_value = "yes"))]
    #[cfg_attr(feature = "cli", arg(hide_possible_values = true, conflicts_with = "keep_ids"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bipartite: Option<Answer>,
    /// Tables in a folder: all files below it are parts of one table, whatever their names
    /// [default: asked where they have different words]
    #[cfg_attr(feature = "cli", arg(long))]
    pub one_table: bool,
    /// Text tables of edges: field separator: tab, blank, ::, or one character, e.g. , or ; or |
    /// [default: detected]
    #[cfg_attr(feature = "cli", arg(long, value_name = "MARK"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<Delimiter>,
    /// Text tables: decimal mark of numbers, where a comma may also separate thousands [default:
    /// detected, or asked]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "point|comma", hide_possible_values = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decimal: Option<Decimal>,
    /// Tables: type of the ids. text keeps them as they are written, number takes 007 for 7
    /// [default: numbers where the first rows have them, or asked]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "text|number", hide_possible_values = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_type: Option<IdKind>,
    /// Text tables: the order of day, month and year in dates, if days up to 12 may be months
    /// [default: detected, or asked]
    #[cfg_attr(feature = "cli", arg(long, value_name = "dmy|mdy", hide_possible_values = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date_order: Option<DateOrder>,
    /// Tables of edges: the column with the vertex that an edge comes from; without a header its
    /// number from 1 [default: found by names that belong together, as src and dst, user_a and
    /// user_b, or asked]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    pub source_column: Option<String>,
    /// Tables of edges: the column with the vertex that an edge leads to [default: as for
    /// --source-column]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    pub target_column: Option<String>,
    /// Numeric columns to keep with the edges: names of a table's columns, or new names for the
    /// third, fourth ... column of an edge list, e.g. weight,time. A column called `weight` becomes
    /// the edge weight; amount=weight keeps the column amount as such; none keeps none [default:
    /// all of a table with a header; none of an edge list]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME,...", value_delimiter = ','))]
    pub edge_columns: Option<Vec<String>>,
    /// Tables of edges: the column with the weight of an edge, a number from 0, for partition
    /// --weights own and train. It is kept as `weight`; weights of merged edges are added up
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_weights: Option<String>,
    /// Data of the vertices: a table (CSV, Parquet or Arrow, or a folder of its parts) with an id
    /// column; or arrays in a folder or an .npz archive (feat.npy, label.npy, train.npy, valid.npy,
    /// test.npy) whose row v is vertex v: the v-th smallest id, or id v with --keep-ids
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATH"))]
    pub nodes: Option<PathBuf>,
    /// Options of the table of vertices.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(flatten)]
    pub node_table: NodeTableOptions,
    /// Whether all rows of a text table of edges are read before its types are decided.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub scans: bool,
    /// Memory limit, e.g. 4GiB, 512MiB or 50%; data that does not fit is kept on disk next to the
    /// output. The result does not depend on it [default: half of the machine's]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    #[serde(skip)]
    pub memory: Option<Memory>,
}

/// Options of a table of vertices.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct NodeTableOptions {
    /// The table of vertices' column of ids [default: id, node_id, ... or the one that holds the
    /// ids of the edges]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    pub id_column: Option<String>,
    /// Label column of the table of vertices, with classes or numbers, or none. Several columns,
    /// e.g. 'likes_*', hold 0 and 1: a class each, of which a vertex can have any [default: label,
    /// class, target or y, or churned, fraud and the like, or asked]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN,...", value_delimiter = ','))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_column: Option<Vec<String>>,
    /// Kind of the label: class, or number, for train --task regression [default: number if some
    /// have a fraction; otherwise class, or asked]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "class|number", hide_possible_values = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_kind: Option<LabelKind>,
    /// Value of the label column that means no label; none if each value is a class, even -1
    /// [default: -1 together with class numbers from 0, or asked]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "VALUE|none", allow_negative_numbers = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlabelled: Option<String>,
    /// The table of vertices' column that holds train, valid, test or nothing; or columns of 0 and
    /// 1 called by the splits, as train,valid,test; or none [default: the column that holds these
    /// words, else train_mask, train and the like, or asked]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN,...", value_delimiter = ','))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_column: Option<Vec<String>>,
    /// Columns of the table of vertices, or arrays, that are vertex weights, for partition
    /// --weights own: whole numbers from 0. Weights of a METIS file are kept without it
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN,...", value_delimiter = ','))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vertex_weights: Option<Vec<String>>,
    /// Columns of the table of vertices that become features, e.g. 'f*,age', or none [default: all
    /// numbers, lists of numbers and categories that are not ids, labels, splits or identifiers]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN,...", value_delimiter = ','))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_columns: Option<Vec<String>>,
    /// How columns become features: city=onehot has a number for each category, city=code one
    /// number in all, the place among the categories in order, and city=none leaves the column out;
    /// none leaves out all categories that are not named [default: auto, one-hot; of more than 64
    /// the most frequent and other]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "auto|none|COLUMN=onehot|code|none,...", value_delimiter = ',')
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encode: Option<Vec<Encode>>,
    /// Number to take for a missing one among features and in the columns of a table of edges; or
    /// mean, for features, which get a further feature that is 1 where the value is missing.
    /// Missing categories become -1, or zeros where they are one-hot [default: refused]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "NUMBER|mean", allow_negative_numbers = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// Words for missing values, besides nothing, ?, NA, N/A, NaN, null and None: '#N/A,-', or a
    /// number, such as -9999; COLUMN=WORD is for one column. --fill says how missing values are
    /// replaced
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "WORD,...", value_delimiter = ',', allow_hyphen_values = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub na: Option<Vec<String>>,
    /// Strings that differ only in case or blanks, such as Yes and YES, as classes and as
    /// categories: fold takes them for one, spelled as most rows do; keep for several [default:
    /// asked]
    #[cfg_attr(feature = "cli", arg(long, value_name = "fold|keep", hide_possible_values = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseRule>,
    /// Scale of numbers that become features: standard (mean 0, deviation 1), minmax (0 to 1) or
    /// none [default: standard for the columns of a table, none for lists and arrays]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "standard|minmax|none", hide_possible_values = true)
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// Dataset or checkpoint whose recipe the table of vertices is converted by: the same columns,
    /// categories and scales
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR", conflicts_with_all = ["feature_columns", "encode", "scale"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe: Option<PathBuf>,
    /// Categories that the recipe does not have: refuse them, or take them for other, none of those
    /// it has [default: refuse]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "refuse|other", hide_possible_values = true, requires = "recipe")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unseen>,
    /// Row to take of a vertex that the table of vertices lists several times: first or last
    /// [default: refused]
    #[cfg_attr(feature = "cli", arg(long, value_name = "first|last", hide_possible_values = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_duplicate: Option<OnDuplicate>,
    /// Vertices of the edges that the table of vertices does not list: fill gives them a row of
    /// missing values, drop leaves out their edges [default: refused]
    #[cfg_attr(feature = "cli", arg(long, value_name = "fill|drop", hide_possible_values = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_rows: Option<MissingRows>,
    /// Whether splits are drawn at random: the splits of the table are then ignored.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub draws_splits: bool,
    /// Shape of the labels, if the record of an export has it.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub label_shape: Option<LabelShape>,
}

/// Kind of the label of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum LabelKind {
    /// One of several classes.
    Class,
    /// A number.
    Number,
}

/// Scale of numbers that become features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum CaseRule {
    /// They are one.
    Fold,
    /// They are several.
    Keep,
}

/// Treatment of categories that a recipe does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Unseen {
    /// An error.
    Refuse,
    /// A category of its own, different from all in the recipe.
    Other,
}

/// The row that counts if a vertex has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// The first.
    First,
    /// The last.
    Last,
}

/// Treatment of vertices without a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum MissingRows {
    /// A row of missing values.
    Fill,
    /// Their edges are dropped, and so are they.
    Drop,
}

/// Options of an edge list.
#[derive(Default)]
pub struct EdgeListOptions<'a> {
    /// Ids stay as they are.
    pub keep_ids: bool,
    /// The header is not checked, and a bare first line is an edge.
    pub ignore_header: bool,
    /// Names of the columns behind the two ids.
    pub columns: &'a [String],
    /// Whether sources and targets are of two kinds.
    pub bipartite: Option<Answer>,
}

/// Answer to a question that an input leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// Options of a table of edges.
pub struct EdgeTableOptions<'a> {
    /// How text is cut.
    pub text: TextOptions,
    /// Name of the column of sources.
    pub source_column: Option<&'a str>,
    /// Name of the column of targets.
    pub target_column: Option<&'a str>,
    /// Names of the columns to keep.
    pub edge_columns: Option<&'a [String]>,
    /// Name of the column of weights.
    pub edge_weights: Option<&'a str>,
    /// Ids stay as they are.
    pub keep_ids: bool,
    /// Whether sources and targets are of two kinds.
    pub bipartite: Option<Answer>,
    /// Number for a missing one in a column.
    pub fill: Option<f64>,
    /// Words for missing values.
    pub na: &'a [String],
    /// Options of the table of vertices in the same folder. `None`: `--nodes` names another, which
    /// the caller reads.
    pub nodes: Option<&'a NodeTableOptions>,
    /// The budget.
    pub memory: Memory,
}

/// Options of arrays that are known by their names.
#[derive(Default)]
pub struct ArrayOptions<'a> {
    /// Edge columns to keep.
    pub columns: WantedColumns<'a>,
    /// The number of a mask, from 0.
    pub split: Option<&'a str>,
}

/// Names of the edge columns to keep; without a list all are.
#[derive(Clone, Copy, Default)]
pub struct WantedColumns<'a>(Option<&'a [String]>);

impl WantedColumns<'_> {
    /// Whether the edge column `name` is kept.
    pub fn keeps(self, name: &str) -> bool {
        self.0.is_none_or(|names| names.iter().any(|wanted| wanted == name))
    }

    /// Fails where a name is not among `columns`.
    pub fn check(self, path: &Path, columns: &[EdgeColumn]) -> Result<()> {
        let has = |name: &String| columns.iter().any(|column| column.name == *name);
        match self.0.into_iter().flatten().find(|&name| !has(name)) {
            Some(name) => {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                let found = if names.is_empty() { "none".to_string() } else { names.join(", ") };
                let problem = format!(
                    "--edge-columns {name}: {} has no such column of edges, found {found}",
                    path.display()
                );
                Err(Error::Option(problem))
            }
            None => Ok(()),
        }
    }
}

impl ReadOptions {
    /// The budget.
    pub fn budget(&self) -> Memory {
        self.memory.unwrap_or_default()
    }

    /// The named edge columns; empty if the word is `none`.
    fn edge_columns(&self) -> Option<&[String]> {
        self.edge_columns.as_deref().map(|names| if names == [NONE] { &[] } else { names })
    }

    /// The part for an edge list.
    pub fn edge_list(&self) -> EdgeListOptions<'_> {
        EdgeListOptions {
            keep_ids: self.keep_ids,
            ignore_header: self.ignore_header,
            bipartite: self.bipartite,
            columns: self.edge_columns().unwrap_or_default(),
        }
    }

    /// The part for a table of edges.
    pub fn edge_table(&self) -> EdgeTableOptions<'_> {
        EdgeTableOptions {
            text: self.text(),
            source_column: self.source_column.as_deref(),
            target_column: self.target_column.as_deref(),
            edge_columns: self.edge_columns(),
            edge_weights: self.edge_weights.as_deref(),
            keep_ids: self.keep_ids,
            bipartite: self.bipartite,
            fill: match self.node_table.fill {
                Some(Fill::Value(value)) => Some(value.into()),
                Some(Fill::Mean) | None => None,
            },
            na: self.node_table.na.as_deref().unwrap_or_default(),
            nodes: if self.nodes.is_none() { Some(&self.node_table) } else { None },
            memory: self.budget(),
        }
    }

    /// The part for text that is a table.
    pub fn text(&self) -> TextOptions {
        let columns = [&self.source_column, &self.target_column, &self.edge_weights];
        TextOptions {
            header: self.header,
            delimiter: self.delimiter,
            decimal: self.decimal,
            id_type: self.id_type,
            names_columns: columns.iter().any(|column| column.is_some()),
            date_order: self.date_order,
            must_have_header: false,
            one_table: self.one_table,
            scans: self.scans,
        }
    }

    /// The part for arrays by name.
    pub fn arrays(&self) -> ArrayOptions<'_> {
        ArrayOptions { columns: self.columns(), split: self.split.as_deref() }
    }

    /// The part for inputs whose edge columns have fixed names.
    pub fn columns(&self) -> WantedColumns<'_> {
        WantedColumns(self.edge_columns())
    }
}

impl NodeTableOptions {
    /// The first option given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--id-column", self.id_column.is_some()),
            ("--label-column", self.label_column.is_some()),
            ("--unlabelled", self.unlabelled.is_some()),
            ("--split-column", self.split_column.is_some()),
            ("--feature-columns", self.feature_columns.is_some()),
            ("--encode", self.encode.is_some()),
            ("--case", self.case.is_some()),
            ("--recipe", self.recipe.is_some()),
            ("--on-duplicate", self.on_duplicate.is_some()),
            ("--missing-rows", self.missing_rows.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// Whether strings that differ only in case or blanks are one, by the option or by the recipe
    /// of an earlier table.
    pub fn folds_case(&self, trained: Option<&Recipe>) -> bool {
        self.case == Some(CaseRule::Fold) || trained.is_some_and(|trained| trained.folds_case)
    }

    /// The options for a graph that has other features: numbers stay columns, unless an option
    /// makes them features.
    pub fn beside_features(&self) -> Self {
        let mut options = self.clone();
        if options.feature_columns.is_none() && options.encode.is_none() {
            options.feature_columns = Some(vec!["none".into()]);
        }
        options
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
