//! Labels of a table of vertices: classes by number or by name, sets of classes, or numbers to
//! learn.

use gsplit_store::{LabelShape, Recipe};

use super::cells::Cell;
use super::choice::{Field, NONE};
use super::features::{Encoded, EncodedColumn, Encoding, TableColumn};
use super::roles::Roles;
use super::sheet::Sheet;
use super::statistics::{ColumnStatistics, MOST_CODES, Surveyed, key};
use crate::read::options::{LabelKind, Unseen};
use crate::read::raw::Column;
use crate::read::text::field::{real, shown};
use crate::{Error, Result};

/// Word for unlabelled among class numbers.
const UNLABELLED: &str = "-1";
/// Number of different strings from which on a label may be a name, if most of them have one row.
const MANY_NAMES: usize = 8;
/// Number of different whole numbers from which on a label may be a quantity, if they are at least
/// a tenth of the values.
const MANY_CLASSES: usize = 20;

/// Labels of a table of vertices.
#[derive(Default)]
pub struct TableLabels {
    /// Their column.
    pub column: Option<Box<dyn Column>>,
    /// Names of the classes, where the labels are not their numbers.
    pub class_names: Option<Vec<String>>,
    /// Their shape, where the recipe says it or they are numbers to learn.
    pub shape: Option<LabelShape>,
    /// Value that means unlabelled.
    pub unlabelled: Option<String>,
    /// Lines for the user.
    pub notes: Vec<String>,
}

impl TableLabels {
    /// Whether they are numbers to learn.
    pub fn are_numbers(&self) -> bool {
        self.shape == Some(LabelShape::Number)
    }

    /// Its kind, behind the names of the columns.
    pub fn words(&self) -> Option<String> {
        self.column.as_ref()?;
        Some(match &self.class_names {
            _ if self.are_numbers() => " (numbers to learn)".into(),
            Some(names) => format!(" ({} classes by name)", names.len()),
            None => String::new(),
        })
    }
}

/// The labels, from their columns.
pub fn labels(on: &Surveyed<'_>, roles: &Roles) -> Result<TableLabels> {
    ask_for_commas(on, roles)?;
    let trained = on.trained.filter(|_| on.schema.label_column.is_none());
    let shape = trained.map_or(on.options.label_shape, |trained| trained.label_shape);
    let encoded =
        |columns| Some(Box::new(EncodedColumn::new(on.table, "label", columns)) as Box<dyn Column>);
    let number = |at: usize, missing: f32| {
        Encoded::label(at, &on.fields[at], Encoding::Number(0.0, 1.0), missing)
    };
    let no_classes = |what: &str| {
        let problem = format!("--schema unlabelled is for one column of classes; {what}");
        if on.schema.unlabelled.is_some() { Err(Error::Option(problem)) } else { Ok(()) }
    };
    let at = match roles.labels[..] {
        [] => {
            no_classes("the table has no label")?;
            return Ok(TableLabels::default());
        }
        [at] => at,
        _ => {
            let is_zero = on.schema.unlabelled.as_deref() == Some(NONE);
            if !is_zero {
                no_classes("for several it can only be none, which makes empty cells zeros")?;
            }
            let missing = if is_zero { 0.0 } else { f32::NAN };
            let columns = roles.labels.iter().map(|&at| number(at, missing)).collect();
            return several(on, roles, shape, encoded(columns));
        }
    };
    let as_classes = |unlabelled| {
        let column = Some(Box::new(TableColumn::new(on.table, at, "label", true)) as _);
        Ok(TableLabels { column, shape, unlabelled, ..TableLabels::default() })
    };
    let field = &on.fields[at];
    let Some(seen) = on.seen.get(&at) else {
        no_classes("the label is a list")?;
        let class_names = trained.map(|trained| trained.classes.clone());
        let class_names = class_names.filter(|names| !names.is_empty());
        return Ok(TableLabels { class_names, ..as_classes(None)? });
    };
    let (is_number, kind) = (field.value.is_some(), on.schema.label_kind);
    let numeric = match (kind, shape) {
        (Some(kind), _) => kind == LabelKind::Number,
        (None, Some(shape)) => shape == LabelShape::Number,
        (None, None) => seen.is_fractional,
    };
    let names_of_recipe = trained.is_some_and(|trained| !trained.classes.is_empty());
    if shape.is_some() && kind.is_none() && !is_number && !names_of_recipe {
        return Err(Error::Graph(format!(
            "column `{}`: expected numbers, as in the table of the recipe",
            field.name
        )));
    }
    if numeric && !is_number {
        return Err(Error::Graph(format!(
            "--schema label-kind=number: column `{}` holds strings: expected numbers",
            field.name
        )));
    }
    if numeric {
        no_classes("the label is a number to learn")?;
        let (column, shape) = (encoded(vec![number(at, f32::NAN)]), Some(LabelShape::Number));
        return Ok(TableLabels { column, shape, ..TableLabels::default() });
    }
    let mut names = seen.categories();
    let is_open = trained.is_none() && kind.is_none();
    let shown_count = |count: usize| if seen.many { "many".into() } else { count.to_string() };
    if is_number && is_open {
        let count = names.iter().filter(|name| *name != UNLABELLED).count();
        if seen.many || (count > MANY_CLASSES && 10 * count as u64 > seen.values) {
            let (count, values) = (shown_count(count), seen.values);
            return Err(Error::Graph(format!(
                "column `{}` holds {count} different numbers in {values} rows: pass --schema \
                 label-kind=class, or number for a quantity to learn",
                field.name
            )));
        }
    }
    if !is_number && is_open {
        let is_number = |name: &&String| real::<f64>(name.as_bytes()).is_some();
        let are_most = 2 * names.iter().filter(is_number).count() > names.len();
        let is_stray =
            |name: &&String| !is_number(name) && on.schema.unlabelled.as_ref() != Some(name);
        if let Some(stray) = names.iter().find(is_stray).filter(|_| are_most) {
            let (column, stray) = (&field.name, shown(stray.as_bytes()));
            return Err(Error::Graph(format!(
                "column `{column}` holds numbers for the most part, and {stray}: fix it, pass \
                 --schema unlabelled=VALUE if it stands for no label, \
                 or --schema label-kind=class for classes by name"
            )));
        }
        let alone = seen.keys.values().filter(|&&rows| rows == 1).count();
        if seen.many || (names.len() > MANY_NAMES && 2 * alone > names.len()) {
            let (count, values) = (shown_count(names.len()), seen.values);
            return Err(Error::Graph(format!(
                "column `{}` has {count} different strings in {values} rows: a name and not a \
                 class? Pass another column with \
                 --label-column, or --schema label-kind=class if each is a class",
                field.name
            )));
        }
    }
    let unlabelled = unlabelled(on, field, seen, trained)?;
    names.retain(|name| Some(name) != unlabelled.as_ref());
    let (mut notes, mut are_names) = (Vec::new(), true);
    if let Some(trained) = trained.filter(|trained| !trained.classes.is_empty()) {
        notes.extend(new_classes(on, field, seen, &names, trained)?);
        names.clone_from(&trained.classes);
    } else if shape.is_some() && is_number {
        // Classes by number: the recipe has their count, and each number is checked where it is
        // read.
        return as_classes(unlabelled);
    } else if is_number {
        // Text becomes numbers in the order of numbers, so the last is the largest.
        let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
        let first_and_last = numbers.as_ref().and_then(|all| Some((*all.first()?, *all.last()?)));
        let is_usual = unlabelled.as_ref().is_none_or(|value| value == UNLABELLED);
        are_names = match first_and_last {
            Some((0.., last)) if last < 2 * names.len() as i64 && is_usual => {
                return as_classes(unlabelled);
            }
            Some(_) if trained.is_some() && is_usual => return as_classes(unlabelled),
            Some((0, last)) => last >= names.len() as i64,
            Some(_) if !seen.many => true,
            // Fractions, or empty cells: refused when they are read, with their row.
            _ => return as_classes(unlabelled),
        };
    } else if seen.many {
        return Err(Error::Graph(format!(
            "column `{}` has more than {MOST_CODES} different strings: expected names of classes; \
             pass --label-column",
            field.name
        )));
    }
    let places =
        Encoding::Class { places: Encoding::places(names.clone()), unlabelled: unlabelled.clone() };
    let mut label = Encoded::label(at, field, places, -1.0).folding(on.folds);
    label.takes_unseen = trained.is_some() && on.schema.unseen == Some(Unseen::Other);
    let class_names = are_names.then_some(names);
    Ok(TableLabels { column: encoded(vec![label]), class_names, shape, unlabelled, notes })
}

/// Asks what a comma in the label means, if no other column settles it.
fn ask_for_commas(on: &Surveyed<'_>, roles: &Roles) -> Result<()> {
    let [at] = roles.labels[..] else { return Ok(()) };
    let commas = on.table.sheet().map(Sheet::decimal_commas).unwrap_or_default();
    let is_said = on.schema.label_kind.is_some() || on.schema.decimal.is_some();
    if is_said || on.trained.is_some() || commas != [at] {
        return Ok(());
    }
    let Some(number) =
        on.seen.get(&at).and_then(|seen| seen.keys.keys().find(|name| name.contains('.')))
    else {
        return Ok(());
    };
    let (column, cell) = (&on.fields[at].name, number.replace('.', ","));
    Err(Error::Graph(format!(
        "column `{column}`: `{cell}` may be a number or two classes: pass --schema \
         label-kind=number if it is {number}; several classes of a vertex are columns of 0 and 1, \
         for --label-column"
    )))
}

/// Labels from several columns of zeros and ones, read as `column`.
fn several(
    on: &Surveyed<'_>,
    roles: &Roles,
    shape: Option<LabelShape>,
    column: Option<Box<dyn Column>>,
) -> Result<TableLabels> {
    let is_wrong = |at: &&usize| !on.seen.get(at).is_some_and(ColumnStatistics::are_flags);
    if let Some(&at) = roles.labels.iter().find(is_wrong) {
        return Err(Error::Graph(format!(
            "--label-column: `{}` of several: expected zeros and ones",
            on.fields[at].name
        )));
    }
    let seen = || roles.labels.iter().filter_map(|at| on.seen.get(at));
    let has_zero = seen().any(|seen| seen.numbers.count > 0 && seen.numbers.least == 0.0);
    let lacks = seen().any(|seen| seen.missing > 0);
    if !has_zero && lacks && on.trained.is_none() && on.schema.unlabelled.is_none() {
        let problem = "--label-column: the columns hold ones and empty cells, and no zero: pass \
                       --schema unlabelled=none if an empty cell is a zero, or write the zeros";
        return Err(Error::Graph(problem.into()));
    }
    let class_names = Some(roles.labels.iter().map(|&at| on.fields[at].name.clone()).collect());
    Ok(TableLabels { column, class_names, shape, ..TableLabels::default() })
}

/// The value that means unlabelled: from the option or the recipe; otherwise -1 among class numbers
/// from 0.
fn unlabelled(
    on: &Surveyed<'_>,
    field: &Field,
    seen: &ColumnStatistics,
    trained: Option<&Recipe>,
) -> Result<Option<String>> {
    let (name, is_number) = (&field.name, field.value.is_some());
    match (on.schema.unlabelled.as_deref(), trained) {
        (Some(NONE), _) => return Ok(None),
        (Some(value), _) => {
            let value = key(Cell::Text(value), is_number).into_owned();
            return match seen.keys.contains_key(&value) || trained.is_some() || seen.many {
                true => Ok(Some(value)),
                false => Err(Error::Graph(format!(
                    "--schema unlabelled: column `{name}` has no value {}",
                    shown(value.as_bytes())
                ))),
            };
        }
        (None, Some(trained)) if trained.unlabelled.is_some() => {
            return Ok(trained.unlabelled.clone());
        }
        (None, Some(trained)) if trained.classes.iter().any(|class| class == UNLABELLED) => {
            return Ok(None);
        }
        _ => {}
    }
    let others = || seen.keys.keys().filter(|name| *name != UNLABELLED);
    let Some(count) = seen.keys.get(UNLABELLED).filter(|_| is_number) else {
        return negative(field, seen)
            .filter(|_| trained.is_none() && on.schema.label_kind.is_none())
            .map_or(Ok(None), Err);
    };
    // One of two classes is often called -1, and so is one of several around 0.
    let may_be_class = others().all(|name| name == "0" || name == "1")
        || others().any(|name| name.starts_with('-'));
    if trained.is_none() && may_be_class && others().count() > 0 {
        let found: Vec<&str> = others().take(5).map(String::as_str).collect();
        return Err(Error::Graph(format!(
            "column `{name}` holds -1 in {count} rows, beside {}: pass --schema unlabelled=none if \
             -1 is a class, or --schema unlabelled=-1 if it stands for no label",
            found.join(", ")
        )));
    }
    Ok(Some(UNLABELLED.into()))
}

/// The question for the only negative number among class numbers from 0, which may mean unlabelled.
fn negative(field: &Field, seen: &ColumnStatistics) -> Option<Error> {
    let mut negative =
        seen.keys.iter().filter(|(name, _)| name.starts_with('-') && field.value.is_some());
    let (value, rows) = negative.next().filter(|_| seen.keys.len() > 2)?;
    let most = 2 * seen.keys.len() as u64;
    let are_classes = seen
        .keys
        .keys()
        .filter(|name| *name != value)
        .all(|name| name.parse().is_ok_and(|class: u64| class < most));
    if !are_classes {
        return None;
    }
    let problem = format!(
        "column `{}` holds {value} in {rows} rows, and no other negative number: pass --schema \
         unlabelled={value} if it stands for no label, or --schema unlabelled=none if it is a \
         class",
        field.name
    );
    Some(Error::Graph(problem))
}

/// A line on the classes among `names` that the recipe does not have, where they count as
/// unlabelled.
fn new_classes(
    on: &Surveyed<'_>,
    field: &Field,
    seen: &ColumnStatistics,
    names: &[String],
    trained: &Recipe,
) -> Result<Option<String>> {
    let new: Vec<&String> = names.iter().filter(|name| !trained.classes.contains(name)).collect();
    let Some(first) = new.first() else { return Ok(None) };
    let (column, first) = (&field.name, shown(first.as_bytes()));
    if on.schema.unseen != Some(Unseen::Other) {
        return Err(Error::Graph(format!(
            "column `{column}`: {first} is not a class of the recipe: pass --schema unseen=other \
             to count it as unlabelled, or leave the column out of the table"
        )));
    }
    let rows: u64 = new.iter().filter_map(|&name| seen.keys.get(name)).sum();
    Ok(Some(format!(
        "note: column `{column}`: {rows} rows are of classes that the recipe does not have, as \
         {first}: they count as unlabelled"
    )))
}
