//! Recipe of the features of a table: how each column becomes numbers, by its statistics and the
//! options, or as an earlier table was converted.

use gsplit_store::{FeatureEncoding, FeatureRecipe, LabelShape, Recipe};

use super::cells::Cell;
use super::choice::Field;
use super::statistics::{ColumnStatistics, MOST_CODES, Surveyed, key};
use crate::read::options::{Categories, Fill, Scale};
use crate::{Error, Result};

/// Maximum number of categories of a column that an option makes one-hot.
const MOST_ONE_HOT: usize = 1 << 10;
/// Maximum number of categories of a column that is one-hot by default; only the most frequent are
/// kept.
const MOST_AUTO: usize = 64;
/// Number of deviations between the means of the new and the old table from which on a note is
/// printed.
const FAR: f64 = 5.0;

/// Recipe of `columns`, which are in the order of the feature row, according to their statistics;
/// or that of an earlier table.
pub fn of(
    on: &Surveyed<'_>,
    columns: &[(usize, Option<Categories>)],
) -> Result<Vec<(usize, FeatureRecipe)>> {
    if let Some(trained) = on.trained {
        let recipes = by(on, trained)?;
        note_far(on, &recipes);
        return Ok(recipes);
    }
    let recipe = |&(at, how): &(usize, Option<Categories>)| {
        let nothing = ColumnStatistics::default();
        let (field, seen) = (&on.fields[at], on.seen.get(&at).unwrap_or(&nothing));
        if let (true, Some((_, width))) = (field.list, field.value) {
            let encoding = FeatureEncoding::List { width: width as u32 };
            let fill = match on.schema.fill {
                Some(Fill::Value(value)) => Some(value),
                Some(Fill::Mean) | None => None,
            };
            let column = field.name.clone();
            return Ok((at, FeatureRecipe { column, encoding, fill, indicator: false }));
        }
        let is_number = how.is_none() && field.value.is_some();
        let fill = match (on.schema.fill, is_number) {
            (None, _) => None,
            // No place at all: a row of zeros where it is one-hot.
            (Some(_), false) => Some(-1.0),
            (Some(Fill::Value(value)), true) => Some(value),
            (Some(Fill::Mean), true) => Some(seen.numbers.mean as f32),
        };
        let indicator = is_number && fill.is_some() && seen.missing > 0;
        let encoding = encoding(on, field, how, seen)?;
        Ok((at, FeatureRecipe { column: field.name.clone(), encoding, fill, indicator }))
    };
    columns.iter().map(recipe).collect()
}

fn encoding(
    on: &Surveyed<'_>,
    field: &Field,
    how: Option<Categories>,
    seen: &ColumnStatistics,
) -> Result<FeatureEncoding> {
    let all = |most: usize, remedy: &str| match seen.many || seen.keys.len() > most {
        false => Ok(seen.categories()),
        true => Err(Error::Graph(format!(
            "--schema encode: column `{}` has more than {most} different values: {remedy}",
            field.name
        ))),
    };
    Ok(match how {
        Some(Categories::Code) => {
            FeatureEncoding::Code { categories: all(MOST_CODES, "leave it out")? }
        }
        Some(Categories::OneHot) => {
            let categories = all(MOST_ONE_HOT, "encode it as code, or leave it out")?;
            FeatureEncoding::OneHot { categories, other: false }
        }
        None if field.value.is_none() && seen.keys.len() > MOST_AUTO => {
            FeatureEncoding::OneHot { categories: seen.frequent(MOST_AUTO - 1), other: true }
        }
        None if field.value.is_none() => {
            FeatureEncoding::OneHot { categories: all(MOST_AUTO, "leave it out")?, other: false }
        }
        None => {
            let numbers = &seen.numbers;
            let (shift, scale) = match on.schema.scale.unwrap_or(Scale::Standard) {
                Scale::None => (0.0, 1.0),
                Scale::Minmax => (numbers.least, numbers.range()),
                Scale::Standard => (numbers.mean, numbers.deviation()),
            };
            FeatureEncoding::Number { shift, scale }
        }
    })
}

/// The columns that held strings in the table of the recipe `trained`: in this table they may look
/// like numbers by chance (007 and A1).
pub fn strings(trained: &Recipe) -> impl Iterator<Item = &str> {
    let is_string = |name: &String| *key(Cell::Text(name), true) != **name;
    let features = trained.features.iter().filter(move |feature| match &feature.encoding {
        FeatureEncoding::Code { categories } | FeatureEncoding::OneHot { categories, .. } => {
            categories.iter().any(is_string)
        }
        FeatureEncoding::Number { .. } | FeatureEncoding::List { .. } => false,
    });
    let is_class = matches!(trained.label_shape, Some(LabelShape::Class(_)))
        && trained.classes.iter().any(is_string);
    let label = trained.label.first().filter(|_| is_class);
    features.map(|feature| feature.column.as_str()).chain(label.map(String::as_str))
}

/// The columns that the recipe `trained` names, found among `fields` by their names.
pub fn by(on: &Surveyed<'_>, trained: &Recipe) -> Result<Vec<(usize, FeatureRecipe)>> {
    let find = |feature: &FeatureRecipe| {
        let column = &feature.column;
        let Some(at) = on.fields.iter().position(|field| field.name == *column) else {
            return Err(
                on.lacks(&format!("has no column `{column}`, which is a feature of the recipe"))
            );
        };
        let (field, wrong) = (&on.fields[at], |expected: &str| {
            Error::Graph(format!(
                "column `{column}`: expected {expected}, as in the table of the recipe"
            ))
        });
        match feature.encoding {
            // All values of an empty column are missing.
            FeatureEncoding::Number { .. } if field.is_empty => {}
            FeatureEncoding::Number { .. } if field.value.is_none() || field.list => {
                return Err(wrong("numbers"));
            }
            FeatureEncoding::List { width }
                if field.value.is_none_or(|(_, found)| found != width as usize) =>
            {
                return Err(wrong(&format!("lists of {width} numbers")));
            }
            FeatureEncoding::Code { .. } | FeatureEncoding::OneHot { .. } if field.list => {
                return Err(wrong("categories"));
            }
            _ => {}
        }
        let mut feature = feature.clone();
        match (on.schema.fill, feature.fill) {
            (Some(Fill::Value(value)), None) => feature.fill = Some(value),
            (Some(Fill::Mean), None) => {
                let problem =
                    "--schema fill=mean: the recipe has no means of missing values: pass a number";
                return Err(Error::Option(problem.into()));
            }
            _ => {}
        }
        Ok((at, feature))
    };
    trained.features.iter().map(find).collect()
}

/// Notes the numbers of a new table that are far from the numbers of the recipe's table.
fn note_far(on: &Surveyed<'_>, features: &[(usize, FeatureRecipe)]) {
    for (at, feature) in features {
        let (FeatureEncoding::Number { shift, scale }, Some(seen)) =
            (&feature.encoding, on.seen.get(at))
        else {
            continue;
        };
        let mean = seen.numbers.mean;
        if (*shift, *scale) != (0.0, 1.0)
            && seen.numbers.count > 0
            && ((mean - shift) / scale).abs() > FAR
        {
            on.progress.note(&on.table.with_path(&format!(
                "note: column `{}` has the mean {mean:.6} here, and had about {shift:.6}, give \
                 or take {scale:.6}, in the table of \
                 the recipe: is it the same quantity, in the same unit?",
                feature.column
            )));
        }
    }
}
