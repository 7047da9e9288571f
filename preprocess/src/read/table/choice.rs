//! Chooses the id columns and the value columns of a table of edges.
//!
//! Ids: see [`super::ends`]. Values: the columns named by `--edge-columns`, or else all further
//! numeric columns.

use std::collections::HashMap;
use std::path::Path;

use super::ends::{self, Ends, Question};
use crate::edges::{EdgeColumn, ValueType, WEIGHT};
use crate::read::options::{Fill, Schema};
use crate::{Error, Result};

/// Kind of ids in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// Integers.
    Number,
    /// Strings, hashed.
    Text,
}

/// The word that means no column, for options that name columns.
pub const NONE: &str = "none";

/// The `names` of columns, or the word for none.
pub fn or_none(names: Vec<String>) -> Vec<String> {
    if names.is_empty() { vec![NONE.into()] } else { names }
}

/// Maximum number of columns that a message names.
const SHOWN: usize = 12;

/// A column of a table of any format.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Kind of its ids, if it can hold ids.
    pub id: Option<IdKind>,
    /// Type of its values and how many there are in a row, if these are numbers.
    pub value: Option<(ValueType, usize)>,
    /// Whether a row holds a list of them.
    pub list: bool,
    /// Whether its numbers may have fractions: it holds ids if its name says so.
    pub is_fractional: bool,
    /// Whether no row has a value.
    pub is_empty: bool,
}

impl Field {
    /// Whether it is the index that pandas writes: a first column without a name.
    pub fn is_index(&self) -> bool {
        self.name.is_empty()
            || self.name.starts_with("Unnamed: 0")
            || self.name == "__index_level_0__"
    }
}

/// A line on the index that pandas writes, which is left out unless it is `used`.
pub fn unused_index(fields: &[Field], used: Option<usize>) -> Option<String> {
    let is_unused = |(at, field): &(usize, &Field)| field.is_index() && Some(*at) != used;
    let (_, field) = fields.iter().enumerate().find(is_unused)?;
    let name = if field.name.is_empty() { "without a name" } else { &field.name };
    Some(format!("left out the column {name}: the index that pandas writes"))
}

/// Whether `name` matches `pattern`, in which `*` is any text and `?` any character.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // Position of the last star, and the character that it has reached.
    let (mut at, mut in_name, mut star) = (0, 0, None);
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&c) if c == '?' || c == name[in_name] => (at, in_name) = (at + 1, in_name + 1),
            _ => match &mut star {
                Some((place, reached)) => {
                    *reached += 1;
                    (at, in_name) = (*place + 1, *reached);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&c| c == '*')
}

/// The columns to read, by their positions in the table.
#[derive(Debug, PartialEq)]
pub struct Choice {
    /// Source, and target.
    pub ids: [usize; 2],
    /// Whether options or names say that these are the ids; otherwise no others can be.
    pub are_named: bool,
    /// Kind of the ids.
    pub kind: IdKind,
    /// Positions of the values.
    pub values: Vec<usize>,
    /// Names and types of the values.
    pub columns: Vec<EdgeColumn>,
    /// Value of edges that have none.
    pub fill: Option<f64>,
}

/// Chooses the columns of the table of edges at `path`. `unnamed` columns are called by their
/// numbers. `examples` gives some values of a column, for questions.
pub fn choose(
    path: &Path,
    fields: &[Field],
    unnamed: bool,
    schema: &Schema,
    examples: &dyn Fn(usize) -> Result<String>,
) -> Result<Choice> {
    let find = |name: &Option<String>, option| {
        name.as_ref().map(|name| named(fields, name, option)).transpose()
    };
    let source = find(&schema.source_column, "--source-column")?;
    let target = find(&schema.target_column, "--target-column")?;
    for at in [source, target].into_iter().flatten() {
        id_kind(&fields[at])?;
    }
    let is_open = source.is_none() && target.is_none();
    let convention = ends::first_two(fields).filter(|_| unnamed && is_open);
    let Ends { columns: [source, target], are_named } = match convention {
        Some(columns) => Ends { columns, are_named: true },
        None => match ends::choose(fields, source, target) {
            Ok(ends) => ends,
            Err(Question { text, candidates }) => {
                let shown =
                    |&at: &usize| Ok(format!("`{}` has {}", fields[at].name, examples(at)?));
                let shown = candidates.iter().take(SHOWN).map(shown).collect::<Result<Vec<_>>>()?;
                let between = match text.ends_with('?') {
                    _ if shown.is_empty() => "",
                    true => " ",
                    false => "; ",
                };
                let text = text + between + &shown.join("; ");
                let remedy = "name them with --source-column and --target-column";
                return Err(Error::Graph(format!("{text}: {remedy}")));
            }
        },
    };
    if source == target {
        let name = &fields[source].name;
        return Err(Error::Option(format!(
            "--source-column and --target-column are both `{name}`: expected two"
        )));
    }
    let kinds = [source, target].map(|at| id_kind(&fields[at]));
    let [kind, other] = kinds;
    let (mut kind, other) = (kind?, other?);
    // Ids with too many digits for a number are strings, and so are the ids of the other end.
    let is_long = |at: usize| fields[at].id == Some(IdKind::Text) && fields[at].value.is_some();
    if kind != other && (is_long(source) || is_long(target)) {
        kind = IdKind::Text;
    } else if kind != other {
        let (source, target) = (&fields[source].name, &fields[target].name);
        return Err(Error::Graph(format!(
            "`{source}` and `{target}`: one holds integers, the other strings: pass --schema \
             id-type=text if both are ids"
        )));
    }
    let mut values = match unnamed {
        true => unnamed_values(path, fields, [source, target], schema)?,
        false => values(fields, [source, target], schema)?,
    };
    if let Some(at) = find(&schema.edge_weights, "--schema edge-weights")? {
        if [source, target].contains(&at) {
            return Err(Error::Option(format!(
                "--schema edge-weights: `{}` is an end of the edges: expected another",
                fields[at].name
            )));
        }
        check_numbers(&fields[at], "--schema edge-weights")?;
        values.retain(|&(taken, _)| taken != at);
        values.push((at, WEIGHT.into()));
    }
    let column = |(at, name): &(usize, String)| {
        edge_column(&Field { name: name.clone(), ..fields[*at].clone() })
    };
    let columns: Vec<EdgeColumn> = values.iter().filter_map(column).collect();
    let values = values.into_iter().map(|(at, _)| at).collect();
    check_distinct(columns.iter().map(|column| column.name.as_str()))?;
    let fill = match schema.fill {
        Some(Fill::Value(value)) => Some(value.into()),
        Some(Fill::Mean) | None => None,
    };
    let ids = [source, target];
    Ok(Choice { ids, are_named, kind, values, columns, fill })
}

/// Kind of the ids in `field`; fails if it cannot hold ids.
pub fn id_kind(field: &Field) -> Result<IdKind> {
    field.id.ok_or_else(|| unlike(field, "integers or strings, for ids"))
}

/// An error for a `field` whose values are not as `expected`.
pub fn unlike(field: &Field, expected: &str) -> Error {
    let empty = if field.is_empty { " is empty in every row" } else { "" };
    Error::Graph(format!("column `{}`{empty}: expected {expected}", field.name))
}

/// Refuses two columns of one name, except columns without a name, which nothing reads.
pub fn check_names(names: &[String]) -> Result<(), String> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (at, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        if let Some(first) = places.insert(name, at) {
            return Err(format!(
                "two columns are named `{name}`: columns {} and {}: rename or remove one of them",
                first + 1,
                at + 1
            ));
        }
    }
    Ok(())
}

/// The column that `option` names.
pub fn named(fields: &[Field], name: &str, option: &str) -> Result<usize> {
    if let Some(exact) = fields.iter().position(|field| field.name == name) {
        return Ok(exact);
    }
    let alike: Vec<usize> =
        (0..fields.len()).filter(|&at| fields[at].name.eq_ignore_ascii_case(name)).collect();
    let problem = match alike[..] {
        [found] => return Ok(found),
        [] => format!("has no column `{name}` for {option}. There are {}", names(fields)),
        [one, other, ..] => format!(
            "has `{}` and `{}`: which of them is {option} {name}?",
            fields[one].name, fields[other].name
        ),
    };
    Err(Error::Graph(problem))
}

/// The name in lower case and without punctuation.
pub fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The columns of values, with the names that they get: `--edge-columns amount=weight` renames one.
fn values(fields: &[Field], ids: [usize; 2], schema: &Schema) -> Result<Vec<(usize, String)>> {
    let Some(wanted) = schema.edge_columns() else {
        let numeric = |at: &usize| fields[*at].value.is_some() && !ids.contains(at);
        return Ok((0..fields.len())
            .filter(numeric)
            .map(|at| (at, fields[at].name.clone()))
            .collect());
    };
    let mut values: Vec<(usize, String)> = Vec::new();
    for wanted in wanted {
        let is_name = fields.iter().any(|field| field.name == *wanted);
        let (name, renamed) =
            wanted.split_once('=').filter(|_| !is_name).unwrap_or((wanted, wanted));
        let at = named(fields, name, "--edge-columns")?;
        if ids.contains(&at) || values.iter().any(|(taken, _)| *taken == at) {
            return Err(Error::Option(format!(
                "--edge-columns: `{name}` is taken already: expected further columns"
            )));
        }
        check_numbers(&fields[at], "--edge-columns")?;
        let own = if renamed == name { &fields[at].name } else { renamed };
        values.push((at, own.to_string()));
    }
    Ok(values)
}

/// The columns, other than the ends, that `--edge-columns` gives names to, in their order.
fn unnamed_values(
    path: &Path,
    fields: &[Field],
    ids: [usize; 2],
    schema: &Schema,
) -> Result<Vec<(usize, String)>> {
    let names = schema.edge_columns().unwrap_or_default();
    let others: Vec<usize> = (0..fields.len()).filter(|at| !ids.contains(at)).collect();
    if names.len() > others.len() {
        return Err(Error::Option(format!(
            "--edge-columns names {}, {} has {} beside the ids",
            names.len(),
            path.display(),
            others.len()
        )));
    }
    let values: Vec<(usize, String)> = others.into_iter().zip(names.iter().cloned()).collect();
    values.iter().try_for_each(|&(at, _)| check_numbers(&fields[at], "--edge-columns"))?;
    Ok(values)
}

/// Fails unless `field`, which `option` names, holds numbers.
pub fn check_numbers(field: &Field, option: &str) -> Result<()> {
    match field.value {
        Some(_) => Ok(()),
        None => Err(unlike(field, &format!("numbers, for {option}"))),
    }
}

/// The edge column that the numbers in `field` become: `weight` whatever its case, and then single
/// precision.
pub fn edge_column(field: &Field) -> Option<EdgeColumn> {
    let (value, width) = field.value?;
    let is_weight = field.name.eq_ignore_ascii_case(WEIGHT);
    let name = if is_weight { WEIGHT.into() } else { file_name(&field.name) };
    Some(EdgeColumn::of(name, value, width))
}

/// Replaces characters that have a meaning in paths: a column becomes a file of that name.
pub fn file_name(name: &str) -> String {
    let allowed = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(allowed).collect();
    match name.trim_start_matches('.') {
        "" => "column".into(),
        name => name.into(),
    }
}

/// Lines on the columns that are neither ids nor kept: columns without numbers, with the hint
/// `encode`, and empty ones.
pub fn unused(fields: &[Field], used: &[usize], encode: &str) -> Vec<String> {
    let unused = fields.iter().enumerate();
    let unused = unused
        .filter(|(at, field)| !used.contains(at) && field.value.is_none() && !field.is_index());
    let (empty, others): (Vec<&Field>, Vec<&Field>) =
        unused.map(|(_, field)| field).partition(|field| field.is_empty);
    let why = format!("which hold no numbers{encode}");
    let all = [(others, &*why), (empty, "which are empty in every row")];
    let line = |(fields, why): (Vec<&Field>, &str)| {
        let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
        format!("left out the columns {}, {why}", names.join(", "))
    };
    all.into_iter().filter(|(fields, _)| !fields.is_empty()).map(line).collect()
}

/// Names of columns for messages, the first of them where there are many.
pub fn names(fields: &[Field]) -> String {
    let names: Vec<String> =
        fields.iter().take(SHOWN).map(|field| format!("`{}`", field.name)).collect();
    let more = if fields.len() > SHOWN { ", ..." } else { "" };
    if names.is_empty() { "none".into() } else { format!("{}{more}", names.join(", ")) }
}

/// Refuses two values of one name: both would become the same file.
pub fn check_distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Error::Graph(format!(
                "two columns become `{name}`: rename one of them, or leave one out"
            )));
        }
        seen.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> Vec<Field> {
        let field = |name: &&str| {
            let (name, value) = name.split_once(':').unwrap_or((name, "i"));
            let (id, value) = match value {
                "s" => (Some(IdKind::Text), None),
                "f" => (None, Some((ValueType::F64, 1))),
                "d" => (None, None),
                _ => (Some(IdKind::Number), Some((ValueType::I64, 1))),
            };
            Field {
                name: name.into(),
                id,
                value,
                list: false,
                is_fractional: false,
                is_empty: false,
            }
        };
        names.iter().map(field).collect()
    }

    fn options(source: Option<&str>, target: Option<&str>, columns: Option<&[&str]>) -> Schema {
        Schema {
            source_column: source.map(Into::into),
            target_column: target.map(Into::into),
            edge_columns: columns.map(|names| names.iter().map(|&name| name.into()).collect()),
            ..Schema::default()
        }
    }

    fn chosen(names: &[&str], options: &Schema) -> Result<(Vec<usize>, Vec<usize>)> {
        choose(Path::new("t"), &fields(names), false, options, &|_| Ok("7".into()))
            .map(|choice| (choice.ids.to_vec(), choice.values))
    }

    #[test]
    fn ends_are_found_by_option_by_name_and_by_place() {
        let none = Schema::default();
        assert_eq!(chosen(&["w", "DST", "Src"], &none).unwrap(), (vec![2, 1], vec![0]));
        assert_eq!(
            chosen(&["Target_ID:s", "day:d", "Source-ID:s", "w:f"], &none).unwrap(),
            (vec![2, 0], vec![3])
        );
        assert_eq!(chosen(&["w:f", "a", "b"], &none).unwrap(), (vec![1, 2], vec![0]));
        assert_eq!(chosen(&["src:f", "dst", "u", "v"], &none).unwrap(), (vec![2, 3], vec![0, 1]));
        assert_eq!(
            chosen(&["a", "time:f", "c"], &options(Some("C"), None, None)).unwrap(),
            (vec![2, 0], vec![1])
        );
        assert_eq!(
            chosen(&["a", "from", "to"], &options(None, Some("to"), None)).unwrap(),
            (vec![1, 2], vec![0])
        );
        let both = options(Some("b"), Some("a"), Some(&["d", "c"]));
        assert_eq!(chosen(&["a", "b", "c", "d", "e"], &both).unwrap(), (vec![1, 0], vec![3, 2]));
    }

    #[test]
    fn what_makes_no_edges_is_said() {
        for (names, options, expected) in [
            (&["a", "w:f"][..], options(None, None, None), "expected two columns"),
            (
                &["w:f", "a", "b", "c"],
                options(None, None, None),
                "which columns are the ends of an edge? `a` has 7; `b` has 7; `c` has 7: name",
            ),
            (&["a", "b", "c"], options(Some("c"), None, None), "which columns"),
            (
                &["a", "b"],
                options(Some("x"), None, None),
                "no column `x` for --source-column. There are `a`, `b`",
            ),
            (&["a", "b"], options(Some("a"), Some("a"), None), "both `a`"),
            (
                &["a", "b:f"],
                options(Some("a"), Some("b"), None),
                "`b`: expected integers or strings",
            ),
            (&["a", "b:s"], options(None, None, None), "one holds integers"),
            (&["src", "dst", "c:s"], options(None, None, Some(&["c"])), "`c`: expected numbers"),
            (&["u", "v", "c"], options(None, None, Some(&["u"])), "taken already"),
        ] {
            let message = chosen(names, &options).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn columns_of_values_get_the_names_that_are_given() {
        let columns = |names: &[&str], unnamed, options: &Schema| {
            choose(Path::new("t"), &fields(names), unnamed, options, &|_| Ok("7".into()))
                .map(|choice| {
                    choice.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>()
                })
                .map_err(|error| error.to_string())
        };
        let renamed = options(None, None, Some(&["amount=weight", "Day"]));
        assert_eq!(
            columns(&["src", "dst", "amount:f", "day"], false, &renamed).unwrap(),
            ["weight", "day"]
        );
        let given = options(None, None, Some(&["weight", "t"]));
        assert_eq!(columns(&["1", "2", "3:f", "4"], true, &given).unwrap(), ["weight", "t"]);
        assert!(
            columns(&["1", "2", "3:f"], true, &given).unwrap_err().contains("has 1 beside the ids")
        );
        assert!(columns(&["1", "2", "3:f"], true, &Schema::default()).unwrap().is_empty());
        let question = columns(&["1:s", "2:s", "3:s"], true, &Schema::default()).unwrap_err();
        assert!(
            question.contains("`1` has 7; `2` has 7; `3` has 7: name them with --source-column"),
            "{question}"
        );
    }

    #[test]
    fn names_are_safe_as_files() {
        assert_eq!(file_name("../a b/ü"), "_a_b_ü");
        assert_eq!(file_name("..."), "column");
        let weight = edge_column(&fields(&["Weight:f"])[0]).unwrap();
        assert_eq!((weight.name.as_str(), weight.value), ("weight", ValueType::F32));
    }
}
