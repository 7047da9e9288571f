//! The schema of an input: all decisions on what its columns mean and how its cells are written.
//!
//! ```text
//! --schema FILE ─▶ --schema KEY=VALUE ─▶ options such as --label-column ─▶ Schema, where later ones win
//! ```
//! Keys that are not given are decided by the reader of the input. `gsplit schema` prints all of
//! them as they were decided, in the notation that [`Schema::read`] reads.

use std::path::Path;

use gsplit_store::LeftOut;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::options::{
    Answer, CaseRule, Encode, Fill, LabelKind, MissingRows, OnDuplicate, Scale, Unseen,
};
use super::table::choice::{IdKind, NONE};
use super::text::line::Delimiter;
use super::text::style::{DateOrder, Decimal};
use crate::edges::EdgeColumn;
use crate::{Error, Result};

/// Decisions on the columns and cells of an input. The reader decides each key that is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Schema {
    /// Text tables of edges: whether the first line names the columns.
    pub header: Option<Answer>,
    /// Text tables: mark between fields.
    pub delimiter: Option<Delimiter>,
    /// Text tables: mark before the fraction of numbers.
    pub decimal: Option<Decimal>,
    /// Text tables: order of day and month in dates.
    pub date_order: Option<DateOrder>,
    /// Type of the ids.
    pub id_type: Option<IdKind>,
    /// Edge lists, METIS and Matrix Market files: whether the counts of a header are not checked,
    /// and a bare first line `n m` of an edge list is an edge.
    pub ignore_header: Option<Answer>,
    /// Tables in a folder: whether all files are parts of one table, whatever their names.
    pub one_table: Option<Answer>,
    /// Name of the split to take, where there are several.
    pub split_name: Option<String>,
    /// Tables of edges: column of the sources.
    pub source_column: Option<String>,
    /// Tables of edges: column of the targets.
    pub target_column: Option<String>,
    /// Numeric columns to keep with the edges, or `none`.
    pub edge_columns: Option<Vec<String>>,
    /// Tables of edges: column with the weights of the edges.
    pub edge_weights: Option<String>,
    /// Whether sources and targets are vertices of two kinds.
    pub bipartite: Option<Answer>,
    /// Table of vertices: column of the ids.
    pub id_column: Option<String>,
    /// Table of vertices: column of the label, or several with a class each, or `none`.
    pub label_column: Option<Vec<String>>,
    /// Kind of the label.
    pub label_kind: Option<LabelKind>,
    /// Value of the label that means no label, or `none`.
    pub unlabelled: Option<String>,
    /// Table of vertices: column or columns of the splits, or `none`.
    pub split_column: Option<Vec<String>>,
    /// Columns of the table of vertices, or arrays, that are vertex weights.
    pub vertex_weights: Option<Vec<String>>,
    /// Table of vertices: columns that become features, or `none`.
    pub feature_columns: Option<Vec<String>>,
    /// Table of vertices: how columns become features.
    pub encode: Option<Vec<Encode>>,
    /// Number that replaces a missing one.
    pub fill: Option<Fill>,
    /// Words for missing values.
    pub na: Option<Vec<String>>,
    /// Treatment of strings that differ only in case or blanks.
    pub case: Option<CaseRule>,
    /// Scale of numbers that become features.
    pub scale: Option<Scale>,
    /// Treatment of categories that the recipe does not have.
    pub unseen: Option<Unseen>,
    /// Row to take of a vertex that has several.
    pub on_duplicate: Option<OnDuplicate>,
    /// Treatment of vertices without a row.
    pub missing_rows: Option<MissingRows>,
}

/// Decisions of the readers on the tables of an input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// The keys that were decided.
    pub schema: Schema,
    /// Columns that are not used, and the reasons.
    pub left_out: Vec<LeftOut>,
    /// Keys that one value cannot decide, since the tables differ.
    pub open: Vec<&'static str>,
}

impl Decided {
    /// The decisions on a table of edges and on the table of its vertices. Keys that both have are
    /// left open where a value for both would read one of them differently.
    pub fn with_nodes(self, nodes: Self) -> Self {
        let (edges, rows) = (&self.schema, &nodes.schema);
        // Without a mark a point is the one before fractions.
        let decimal = |schema: &Schema| schema.decimal.unwrap_or(Decimal::Point);
        let marks = edges.delimiter.zip(rows.delimiter);
        let orders = edges.date_order.zip(rows.date_order);
        let differ = [
            ("delimiter", marks.is_some_and(|(one, other)| one != other)),
            ("decimal", marks.is_some() && decimal(edges) != decimal(rows)),
            ("date-order", orders.is_some_and(|(one, other)| one != other)),
        ];
        let open: Vec<&'static str> =
            differ.into_iter().filter(|(_, differ)| *differ).map(|(key, _)| key).collect();
        let mut map = edges.over(rows).to_map();
        map.retain(|key, _| !open.contains(&key.as_str()));
        let schema = serde_json::from_value(Value::Object(map)).unwrap_or_default();
        Self { schema, left_out: [self.left_out, nodes.left_out].concat(), open }
    }

    /// The schema as TOML, with a comment for each unused column and each open key.
    pub fn to_toml(&self) -> String {
        let open =
            self.open.iter().map(|key| format!("# {key}: detected, since the tables differ"));
        let left_out = self.left_out.iter();
        let left_out =
            left_out.map(|column| format!("# left out: {}: {}", column.column, column.why));
        let comments = open.chain(left_out).map(|line| line.replace('\n', " ") + "\n");
        self.schema.to_toml() + &comments.collect::<String>()
    }
}

/// All keys, in the order in which they are printed.
const KEYS: &str = "header delimiter decimal date-order id-type ignore-header one-table split-name \
                    source-column target-column edge-columns edge-weights bipartite id-column \
                    label-column label-kind unlabelled split-column vertex-weights \
                    feature-columns encode fill na case scale unseen on-duplicate missing-rows";
/// Keys whose values are lists.
const LISTS: &str =
    "edge-columns label-column split-column vertex-weights feature-columns encode na";
/// Keys that are options of the command line too.
const OPTIONS: &str = "source-column target-column edge-columns bipartite id-column label-column \
                       split-column feature-columns";

/// Whether `key` is one of `keys`.
fn is_among(keys: &str, key: &str) -> bool {
    keys.split(' ').any(|other| other == key)
}

impl Schema {
    /// Reads the TOML file at `path`: its text and its content.
    pub fn parse_file<T: DeserializeOwned>(path: &Path) -> Result<(String, T)> {
        let text = gsplit_store::read_text(path).map_err(Error::io(path))?;
        let content = toml::from_str(&text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = 1 + text.get(..start).unwrap_or(&text).matches('\n').count() as u64;
            Error::line(path, line, error.message().replace('\n', ", "))
        })?;
        Ok((text, content))
    }

    /// Reads the TOML file at `path`, of one table.
    pub fn read(path: &Path) -> Result<Self> {
        let (text, content) = Self::parse_file::<Map<String, Value>>(path)?;
        if content.contains_key("tables") {
            let problem = "describes several tables: pass it as the input, without --schema";
            return Err(Error::input(path, problem));
        }
        let schema = Self::of(&content);
        schema.map_err(|(key, problem)| {
            let is_of = |line: &str| line.split('=').next().is_some_and(|word| word.trim() == key);
            match text.lines().position(is_of) {
                Some(at) => Error::line(path, at as u64 + 1, problem),
                None => Error::input(path, problem),
            }
        })
    }

    /// The schema with these keys and values. The error is a key, and the problem with it.
    pub fn of(content: &Map<String, Value>) -> Result<Self, (String, String)> {
        let mut schema = Map::new();
        for (given, value) in content {
            let key = given.replace('_', "-");
            let value = normal(&key, value).and_then(|value| {
                let alone = Map::from_iter([(key.clone(), value.clone())]);
                let checked = serde_json::from_value::<Self>(Value::Object(alone));
                let told =
                    |error: serde_json::Error| error.to_string().replace("unknown variant ", "");
                checked.map(|_| value).map_err(|error| format!("{key}: {}", told(error)))
            });
            let value = value.map_err(|problem| (given.clone(), problem))?;
            if schema.insert(key, value).is_some() {
                return Err((given.clone(), format!("`{given}` is given twice")));
            }
        }
        serde_json::from_value(Value::Object(schema))
            .map_err(|error| ("".into(), error.to_string()))
    }

    /// Parses `KEY=VALUE`, where several values have commas between them or are a TOML array.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
        let array = format!("value = {value}").parse::<toml::Table>();
        let array = array.ok().and_then(|table| serde_json::to_value(table.get("value")?).ok());
        let value = match array {
            Some(array @ Value::Array(_)) => array,
            _ if is_among(LISTS, &key.replace('_', "-")) => {
                value.split(',').map(Value::from).collect()
            }
            _ => Value::from(value),
        };
        Self::of(&Map::from_iter([(key.into(), value)])).map_err(|(_, problem)| problem)
    }

    /// The keys that are set, and their values.
    pub fn to_map(&self) -> Map<String, Value> {
        let mut map = match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        map.retain(|_, value| !value.is_null());
        map
    }

    /// The schema as TOML.
    pub fn to_toml(&self) -> String {
        let map = self.to_map();
        let line = |key: &str| Some(format!("{key} = {}\n", map.get(key)?));
        KEYS.split(' ').filter_map(line).collect()
    }

    /// This schema, with the keys of `base` where it has none.
    pub fn over(&self, base: &Self) -> Self {
        let mut map = base.to_map();
        map.extend(self.to_map());
        serde_json::from_value(Value::Object(map)).unwrap_or_default()
    }

    /// How the command line sets `key`: by an option, or by `--schema`.
    pub fn option(key: &str) -> String {
        if is_among(OPTIONS, key) { format!("--{key}") } else { format!("--schema {key}") }
    }

    /// The first key given that only tables of vertices have.
    pub fn first_of_nodes(&self) -> Option<&'static str> {
        const OF_NODES: &str = "id-column label-column unlabelled split-column feature-columns \
                                encode case on-duplicate missing-rows";
        let given = self.to_map();
        OF_NODES.split(' ').find(|key| given.contains_key(*key))
    }

    /// The schema for a graph that has other features: numbers stay columns, unless a key makes
    /// them features.
    pub fn beside_features(self) -> Self {
        let is_open = self.feature_columns.is_none() && self.encode.is_none();
        let none = is_open.then(|| vec![NONE.into()]);
        Self { feature_columns: self.feature_columns.or(none), ..self }
    }

    /// Whether the edge column `name` is kept; without a list all are.
    pub fn keeps(&self, name: &str) -> bool {
        self.edge_columns().is_none_or(|names| names.iter().any(|wanted| wanted == name))
    }

    /// Fails where a named edge column is not among `columns`.
    pub fn check_edge_columns(&self, path: &Path, columns: &[EdgeColumn]) -> Result<()> {
        let has = |name: &String| columns.iter().any(|column| column.name == *name);
        match self.edge_columns().into_iter().flatten().find(|&name| !has(name)) {
            Some(name) => {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                let found = if names.is_empty() { "none".to_string() } else { names.join(", ") };
                Err(Error::Option(format!(
                    "--edge-columns {name}: {} has no such column of edges, found {found}",
                    path.display()
                )))
            }
            None => Ok(()),
        }
    }

    /// The named edge columns; empty if the word is `none`.
    pub fn edge_columns(&self) -> Option<&[String]> {
        self.edge_columns.as_deref().map(|names| if names == [NONE] { &[] } else { names })
    }

    /// Serializes the keys that are set.
    pub fn serialize_set<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_map().serialize(serializer)
    }
}

/// The value of `key` as a word or a list of words.
fn normal(key: &str, value: &Value) -> Result<Value, String> {
    if !is_among(KEYS, key) {
        let close = KEYS.split(' ').find(|known| strsim::levenshtein(key, known) <= key.len() / 3);
        let remedy = match close {
            Some(known) => format!("did you mean {known}?"),
            None => format!("expected one of {}", KEYS.replace(' ', ", ")),
        };
        return Err(format!("`{key}` is not a key of the schema: {remedy}"));
    }
    let word = |value: &Value| match value {
        Value::String(text) => Ok(Value::from(text.as_str())),
        Value::Bool(answer) => Ok(Value::from(if *answer { "yes" } else { "no" })),
        Value::Number(number) => Ok(Value::from(number.to_string())),
        other => Err(format!("{key}: expected a word, got {other}")),
    };
    match (is_among(LISTS, key), value) {
        (true, Value::Array(items)) => items.iter().map(word).collect(),
        (true, Value::String(text)) if text.contains(',') => {
            Err(format!("{key}: expected an array, such as [\"{}\"]", text.replace(',', "\", \"")))
        }
        (true, value) => Ok(Value::Array(vec![word(value)?])),
        (false, value) => word(value),
    }
}

/// The options of the command line that make a schema.
#[cfg(feature = "cli")]
mod command_line {
    use std::path::Path;
    use std::str::FromStr;

    use clap::{ArgMatches, Args, Command, FromArgMatches};

    use super::{Answer, Schema};

    /// A value of `--schema`.
    #[derive(Clone)]
    pub enum SchemaPart {
        /// From a file.
        File(Schema),
        /// One key.
        Key(Schema),
    }

    impl FromStr for SchemaPart {
        type Err = String;

        fn from_str(text: &str) -> Result<Self, String> {
            let is_key = |word: &str| {
                word.starts_with(|c: char| c.is_ascii_lowercase())
                    && word.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c))
            };
            let has_key = text.split_once('=').is_some_and(|(key, _)| is_key(key));
            match has_key && !Path::new(text).is_file() {
                true => Schema::parse(text).map(Self::Key),
                false => {
                    Schema::read(Path::new(text)).map(Self::File).map_err(|error| error.to_string())
                }
            }
        }
    }

    /// `--schema`, and the keys that have options of their own.
    #[derive(Args)]
    struct SchemaArguments {
        /// Meaning of the columns and notation of the cells: a TOML file that gsplit schema
        /// printed, or KEY=VALUE for one decision; repeatable. Keys that are not options: header,
        /// delimiter, decimal, date-order, id-type, ignore-header, one-table, split-name,
        /// edge-weights, vertex-weights, label-kind, unlabelled, encode, fill, na, case, scale,
        /// unseen, on-duplicate, missing-rows (docs/tables.md)
        #[arg(long, value_name = "FILE|KEY=VALUE")]
        schema: Vec<SchemaPart>,
        /// Keep sources and targets apart, as vertices of two kinds: user 1 is not item 1. =no if
        /// the column names suggest two kinds, but they are of one kind [default: no, or asked]
        #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true)]
        #[arg(default_missing_value = "yes", hide_possible_values = true)]
        bipartite: Option<Answer>,
        /// Tables of edges: the column with the vertex that an edge comes from; without a header
        /// its number from 1 [default: found by names that belong together, as src and dst, user_a
        /// and user_b, or asked]
        #[arg(long, value_name = "COLUMN")]
        source_column: Option<String>,
        /// Tables of edges: the column with the vertex that an edge leads to [default: as for
        /// --source-column]
        #[arg(long, value_name = "COLUMN")]
        target_column: Option<String>,
        /// Numeric columns to keep with the edges: names of a table's columns, or new names for the
        /// third, fourth ... column of an edge list, e.g. weight,time. A column called `weight`
        /// becomes the edge weight; amount=weight keeps the column amount as such; none keeps none
        /// [default: all of a table with a header; none of an edge list]
        #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
        edge_columns: Option<Vec<String>>,
        /// The table of vertices' column of ids [default: id, node_id, ... or the one that holds
        /// the ids of the edges]
        #[arg(long, value_name = "COLUMN")]
        id_column: Option<String>,
        /// Label column of the table of vertices, with classes or numbers, or none. Several
        /// columns, e.g. 'likes_*', hold 0 and 1: a class each, of which a vertex can have any
        /// [default: label, class, target or y, or churned, fraud and the like, or asked]
        #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
        label_column: Option<Vec<String>>,
        /// The table of vertices' column that holds train, valid, test or nothing; or columns of 0
        /// and 1 called by the splits, as train,valid,test; or none [default: the column that holds
        /// these words, else train_mask, train and the like, or asked]
        #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
        split_column: Option<Vec<String>>,
        /// Columns of the table of vertices that become features, e.g. 'f*,age', or none [default:
        /// all numbers, lists of numbers and categories that are not ids, labels, splits or
        /// identifiers]
        #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
        feature_columns: Option<Vec<String>>,
    }

    impl Args for Schema {
        fn augment_args(command: Command) -> Command {
            SchemaArguments::augment_args(command)
        }

        fn augment_args_for_update(command: Command) -> Command {
            SchemaArguments::augment_args_for_update(command)
        }
    }

    impl FromArgMatches for Schema {
        fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
            let given = SchemaArguments::from_arg_matches(matches)?;
            let options = Self {
                bipartite: given.bipartite,
                source_column: given.source_column,
                target_column: given.target_column,
                edge_columns: given.edge_columns,
                id_column: given.id_column,
                label_column: given.label_column,
                split_column: given.split_column,
                feature_columns: given.feature_columns,
                ..Self::default()
            };
            Ok(options.over(&of_parts(&given.schema)))
        }

        fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
            *self = Self::from_arg_matches(matches)?.over(self);
            Ok(())
        }
    }

    /// The schema of all values of `--schema`.
    pub fn of_parts(parts: &[SchemaPart]) -> Schema {
        let files = parts.iter().filter_map(|part| match part {
            SchemaPart::File(schema) => Some(schema),
            SchemaPart::Key(_) => None,
        });
        let keys = parts.iter().filter_map(|part| match part {
            SchemaPart::Key(schema) => Some(schema),
            SchemaPart::File(_) => None,
        });
        files.chain(keys).fold(Schema::default(), |base, part| part.over(&base))
    }
}
#[cfg(feature = "cli")]
pub use command_line::{SchemaPart, of_parts};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_read_back_as_it_is_printed() {
        let text = "header = \"no\"\ndelimiter = \"tab\"\ndecimal = \"comma\"\nid-type = \"text\"\n\
                    edge-columns = [\"a,b\",\"amount=weight\"]\nlabel-kind = \"class\"\n\
                    encode = [\"auto\",\"city=code\",\"plan=none\"]\nfill = \"-1.5\"\n\
                    na = [\"#N/A\",\"-9\"]\nscale = \"minmax\"\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        std::fs::write(&path, text).unwrap();
        let schema = Schema::read(&path).unwrap();
        assert_eq!(schema.to_toml(), text);
        let loose = "id_type = 'text'\nheader = false\ndelimiter = \"\\t\"\ndecimal = ','\n\
                     edge-columns = ['a,b', 'amount=weight']\nlabel-kind = 'class'\nfill = -1.5\n\
                     encode = ['auto', 'city=code', 'plan=none']\nna = ['#N/A', -9]\nscale='minmax'";
        std::fs::write(&path, loose).unwrap();
        assert_eq!(Schema::read(&path).unwrap(), schema);
        let words = [
            "na=#N/A,-9",
            "encode=auto,city=code,plan=none",
            "edge-columns=['a,b','amount=weight']",
        ];
        for word in words {
            let part = Schema::parse(word).unwrap();
            assert_eq!(part.over(&schema), schema, "{word}");
        }
        assert_eq!(Schema::parse("na=-").unwrap().over(&schema).na, Some(vec!["-".to_string()]));
    }

    #[test]
    fn every_field_has_its_key() {
        let fields = serde_json::to_value(Schema::default()).unwrap();
        let fields: Vec<&String> = fields.as_object().unwrap().keys().collect();
        let mut keys: Vec<&str> = KEYS.split(' ').collect();
        keys.sort_unstable();
        assert_eq!(fields, keys);
    }

    #[test]
    fn other_keys_and_values_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        for (text, expected) in [
            ("income-less=3", "`income-less` is not a key of the schema: expected one of header, "),
            ("decimals=comma", "did you mean decimal?"),
            ("xy=3", "`xy` is not a key of the schema: expected one of"),
            ("decimal=colon", "decimal: `colon`, expected one of `.`, `point`"),
            ("date-order=ymd", "expected `dmy` or `mdy`"),
            ("encode=city", "expected COLUMN=onehot, COLUMN=code"),
            ("fill=much", "fill: `much`: expected a finite number, or mean"),
            ("header=perhaps", "expected `yes` or `no`"),
            ("decimal=['comma']", "decimal: expected a word"),
        ] {
            let told = Schema::parse(text).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
        for (text, expected) in [
            ("# cells\ncolour = 3\n", "s.toml, line 2: `colour` is not a key"),
            (
                "\nna = '#N/A,-'\n",
                "s.toml, line 2: na: expected an array, such as [\"#N/A\", \"-\"]",
            ),
            ("fill =\n", "s.toml, line 1: "),
            ("id-type='text'\nid_type='text'\n", "s.toml, line 2: `id_type` is given twice"),
        ] {
            std::fs::write(&path, text).unwrap();
            let told = Schema::read(&path).unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
        }
        assert!(Schema::read(&folder.path().join("absent.toml")).is_err());
    }
}
