//! Roles of the columns of a table of vertices: ids, labels, splits, features, or left out.
//!
//! Names and options decide first ([`of`]); the rest is decided by the values seen in a survey
//! ([`Roles::decide`]), or by asking. The columns of splits are decided in [`splits`]. The
//! rest is one file, because each role depends on which columns the others leave.

use std::collections::HashMap;

use gsplit_store::{FeatureEncoding, FeatureRecipe, LeftOut};

use super::choice::{self, Field, IdKind, NONE, matches};
use super::left_out::why_left_out;
use super::recipe;
use super::rows::Table;
use super::splits;
use super::statistics::{ColumnStatistics, Surveyed};
use crate::read::options::{Categories, Encode};
use crate::read::text::field::shown;
use crate::read::text::{na, name_of};
use crate::{Error, Result};

const ID_NAMES: [&str; 8] =
    ["id", "nodeid", "nid", "vertex", "vertexid", "node", "name", "originalid"];
/// Names of labels.
pub const LABEL_NAMES: [&str; 6] = ["label", "labels", "class", "target", "mltarget", "y"];
/// Most values of a column of strings that may be the label; each is in two rows on average.
const FEW: usize = 256;
/// Candidates for the label that are named.
const SHOWN: usize = 12;

/// Roles of the columns, by their places.
#[derive(Debug, Default)]
pub struct Roles {
    /// Ids; found by [`super::ids::find_ids`] where no name says which.
    pub id: Option<usize>,
    /// Columns that name rows.
    pub keys: Vec<usize>,
    /// Labels: one column, or one of zeros and ones for each class.
    pub labels: Vec<usize>,
    /// Flags of the three splits.
    pub masks: [Option<usize>; 3],
    /// Columns that are called by a split, and the split; flags of it if their values are.
    pub flags: Vec<(usize, usize)>,
    /// Names of the splits.
    pub split: Option<usize>,
    /// Features.
    pub features: Features,
    /// Columns that might have had one of these roles but do not, and the reason as a clause.
    pub left_out: Vec<(usize, String)>,
    /// Columns among them that are left out for their values or names: `--feature-columns` takes
    /// them.
    judged: Vec<usize>,
    /// Columns among them that `--schema encode=COLUMN=none` names: they are not kept as columns either.
    pub dropped: Vec<usize>,
    /// Whether the ids were found by their values.
    guessed: bool,
    /// Whether the label is to be found by the values.
    asks_label: bool,
    /// Whether the user named the features.
    are_chosen: bool,
    /// Whether the split is the one that the user named.
    pub split_is_named: bool,
}

/// Columns of features in ascending order, with the encoding if they have a fixed one.
pub type Features = Vec<(usize, Option<Categories>)>;

/// Whether a column holds strings.
pub fn is_text(field: &Field) -> bool {
    field.id == Some(IdKind::Text) && field.value.is_none()
}

/// Whether a column has a name of ids.
pub fn is_id(field: &Field) -> bool {
    let plain = choice::plain(&field.name);
    ID_NAMES.contains(&plain.as_str()) || plain.ends_with("id")
}

/// Determines the roles by the options and the names; `trained` is a recipe that names the features
/// and the label.
pub fn of(on: &Surveyed<'_>) -> Result<Roles> {
    let trained = on.trained;
    let plain: Vec<String> = on.fields.iter().map(|field| choice::plain(&field.name)).collect();
    let find = |names: &[&str], suits: &dyn Fn(usize) -> bool| {
        names
            .iter()
            .find_map(|name| (0..on.fields.len()).find(|&at| plain[at] == *name && suits(at)))
    };
    let is_keyed = on.keys.is_some();
    let id = on.schema.id_column.as_ref();
    let id = id.map(|name| choice::named(on.fields, name, "--id-column")).transpose()?;
    let in_recipe = |name: &String| on.fields.iter().position(|field| field.name == *name);
    let id = id.or_else(|| in_recipe(&trained?.id).filter(|&at| on.fields[at].id.is_some()));
    // A column that is named as the label holds the ids of no vertex.
    let label_names = || on.schema.label_column.iter().flatten();
    let is_label =
        |at: usize| label_names().any(|name| on.fields[at].name.eq_ignore_ascii_case(name));
    let can_be_id = |at: usize| !is_keyed && on.fields[at].id.is_some() && !is_label(at);
    let id = id.or_else(|| find(&ID_NAMES, &can_be_id));
    if !is_keyed && on.fields.iter().all(|field| field.id.is_none()) {
        return Err(on.lacks("expected a column of ids, integers or strings"));
    }
    let labels = match trained.filter(|_| on.schema.label_column.is_none()) {
        // New vertices may have no label, or not yet.
        Some(trained) => {
            let found: Option<Vec<usize>> = trained.label.iter().map(in_recipe).collect();
            let are_empty = |found: &Vec<usize>| found.iter().all(|&at| on.fields[at].is_empty);
            Some(found.filter(|found| !are_empty(found)).unwrap_or_default())
        }
        None => labels(on, &plain, id)?,
    };
    let has_values = |name: &String| in_recipe(name).is_some_and(|at| !on.fields[at].is_empty);
    let has_all = |names: &[String]| !names.is_empty() && names.iter().all(has_values);
    let kept = trained.map(|trained| &trained.splits[..]).filter(|names| has_all(names));
    let said = on.schema.split_column.as_deref().or(kept);
    let (split, masks) = match said {
        Some(names) => splits::columns_named(on, &plain, names)?,
        None => (None, splits::MASK_NAMES.map(|names| find(names, &|at| !on.fields[at].list))),
    };
    let is_other = |at: &usize| id == Some(*at) || labels.iter().flatten().any(|label| label == at);
    let masks = masks.map(|mask| mask.filter(|at| !is_other(at)));
    let mut roles = Roles {
        id,
        keys: on.keys.unwrap_or_default().to_vec(),
        asks_label: labels.is_none(),
        labels: labels.unwrap_or_default(),
        masks,
        split,
        split_is_named: on.schema.split_column.is_some(),
        are_chosen: on.schema.feature_columns.is_some() || trained.is_some(),
        ..Roles::default()
    };
    roles.leave_out_weights(on)?;
    roles.leave_out_encoded(on)?;
    if said != Some(&[NONE.to_string()]) {
        roles.find_splits(on, &plain);
    }
    roles.features = match trained {
        Some(trained) => features_of(&recipe::by(on, trained)?),
        None => features(on, &roles)?,
    };
    Ok(roles)
}

/// The labels, by the option or by a name; empty if the option says so. `None` if the values have
/// to decide.
fn labels(on: &Surveyed<'_>, plain: &[String], id: Option<usize>) -> Result<Option<Vec<usize>>> {
    let can = |at: &usize| on.fields[*at].value.is_some() || is_text(&on.fields[*at]);
    let Some(patterns) = on.schema.label_column.as_deref() else {
        let has_x = plain.iter().zip(on.fields).any(|(plain, field)| plain == "x" && !field.list);
        let suits = |at: &usize| Some(*at) != id && can(at) && !(has_x && plain[*at] == "y");
        let known = |at: &usize| LABEL_NAMES.contains(&plain[*at].as_str());
        let found: Vec<usize> = (0..on.fields.len()).filter(known).filter(suits).collect();
        return match found[..] {
            [] => Ok(None),
            [_] => Ok(Some(found)),
            _ => Err(which_label(on, &found)?),
        };
    };
    if patterns == [NONE] {
        return Ok(Some(Vec::new()));
    }
    let mut found: Vec<usize> = Vec::new();
    for pattern in patterns {
        let like = |at: &usize| Some(*at) != id && matches(pattern, &on.fields[*at].name);
        let named: Vec<usize> = match (0..on.fields.len()).filter(like).collect::<Vec<_>>() {
            none if none.is_empty() => vec![choice::named(on.fields, pattern, "--label-column")?],
            some => some,
        };
        if let Some(at) = named.iter().find(|at| !can(at)) {
            return Err(choice::unlike(&on.fields[*at], "numbers or strings, for --label-column"));
        }
        found.extend(named);
    }
    if let Some(id) = id.filter(|id| found.contains(id)) {
        return Err(Error::Graph(format!(
            "column `{}` holds the ids: name another with --label-column, or none",
            on.fields[id].name
        )));
    }
    found.sort_unstable();
    found.dedup();
    if let Some(at) = found.iter().find(|&&at| found.len() > 1 && on.fields[at].value.is_none()) {
        return Err(Error::Graph(format!(
            "--label-column: `{}` holds strings: several columns hold 0 and 1 each",
            on.fields[*at].name
        )));
    }
    Ok(Some(found))
}

/// Question for the label among the columns at `candidates`.
fn which_label(on: &Surveyed<'_>, candidates: &[usize]) -> Result<Error> {
    let shown =
        |&at: &usize| Ok(format!("`{}` has {}", on.fields[at].name, on.table.examples(at)?));
    let mut found = candidates.iter().take(SHOWN).map(shown).collect::<Result<Vec<_>>>()?;
    let more = candidates.len().saturating_sub(SHOWN);
    found.extend((more > 0).then(|| format!("and {more} more")));
    Ok(Error::Graph(format!(
        "which column is the label? {}: pass --label-column COLUMN, or --label-column none",
        found.join("; ")
    )))
}

/// The features that a recipe names.
fn features_of(found: &[(usize, FeatureRecipe)]) -> Features {
    let how = |recipe: &FeatureRecipe| match recipe.encoding {
        FeatureEncoding::Code { .. } => Some(Categories::Code),
        FeatureEncoding::OneHot { .. } => Some(Categories::OneHot),
        FeatureEncoding::Number { .. } | FeatureEncoding::List { .. } => None,
    };
    found.iter().map(|(at, recipe)| (*at, how(recipe))).collect()
}

fn features(on: &Surveyed<'_>, roles: &Roles) -> Result<Features> {
    let taken = roles.taken();
    let free: Vec<usize> = (0..on.fields.len())
        .filter(|at| !taken.contains(at) && !on.fields[*at].is_index())
        .collect();
    let mut encoded: HashMap<usize, Categories> = HashMap::new();
    let is_auto = !on.schema.encode.iter().flatten().any(|encode| *encode == Encode::Never);
    for encode in on.schema.encode.iter().flatten() {
        let &Encode::Column { ref pattern, how } = encode else { continue };
        let can = |at: &&usize| {
            let field = &on.fields[**at];
            matches(pattern, &field.name)
                && !field.list
                && (field.id.is_some() || field.value.is_some())
        };
        let found: Vec<usize> = free.iter().filter(can).copied().collect();
        if found.is_empty() {
            return Err(on.lacks(&format!(
                "has no column `{pattern}` of strings or numbers for --schema encode, except ids, \
                 labels and splits"
            )));
        }
        encoded.extend(found.into_iter().map(|at| (at, how)));
    }
    let usable = |at: usize| {
        on.fields[at].value.is_some()
            || encoded.contains_key(&at)
            || (is_auto && is_text(&on.fields[at]) && !on.fields[at].list)
    };
    let with_encoding = |at: usize| (at, encoded.get(&at).copied());
    let Some(patterns) =
        on.schema.feature_columns.as_deref().filter(|patterns| *patterns != [NONE])
    else {
        let wanted = |&at: &usize| match on.schema.feature_columns {
            None => usable(at),
            Some(_) => encoded.contains_key(&at),
        };
        return Ok(free.into_iter().filter(wanted).map(with_encoding).collect());
    };
    let mut chosen: Vec<usize> = encoded.keys().copied().collect();
    for pattern in patterns {
        let named: Vec<usize> =
            free.iter().copied().filter(|&at| matches(pattern, &on.fields[at].name)).collect();
        let found: Vec<usize> = named.iter().copied().filter(|&at| usable(at)).collect();
        if found.is_empty() {
            let problem = match named.first() {
                Some(&at) if on.fields[at].is_empty => {
                    return Err(choice::unlike(&on.fields[at], "numbers, for --feature-columns"));
                }
                Some(&at) => format!(
                    "--feature-columns: column `{0}` does not hold numbers: pass --schema \
                     encode={0}=onehot or {0}=code",
                    on.fields[at].name
                ),
                None => format!(
                    "has no column `{pattern}` for --feature-columns, except ids, labels and \
                     splits. There are {}",
                    choice::names(on.fields)
                ),
            };
            return Err(Error::Graph(problem));
        }
        chosen.extend(found);
    }
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen.into_iter().map(with_encoding).collect())
}

impl Roles {
    /// Columns that are ids, labels and splits.
    pub fn taken(&self) -> Vec<usize> {
        let others = self.labels.iter().copied().chain(self.left_out.iter().map(|&(at, _)| at));
        let others = self.keys.iter().copied().chain(others);
        [self.id, self.split].into_iter().chain(self.masks).flatten().chain(others).collect()
    }

    /// The columns whose values become classes, numbers or categories.
    pub fn classes_and_categories(&self) -> Vec<usize> {
        [self.labels.clone(), self.feature_places()].concat()
    }

    fn feature_places(&self) -> Vec<usize> {
        self.features.iter().map(|&(at, _)| at).collect()
    }

    /// Keeps the weights of vertices from being features.
    fn leave_out_weights(&mut self, on: &Surveyed<'_>) -> Result<()> {
        for name in on.schema.vertex_weights.iter().flatten() {
            let at = choice::named(on.fields, name, "--schema vertex-weights")?;
            choice::check_numbers(&on.fields[at], "--schema vertex-weights")?;
            if self.taken().contains(&at) {
                return Err(Error::Graph(format!(
                    "--schema vertex-weights: `{name}` is an id, a label, a split or named twice: \
                     expected another column"
                )));
            }
            self.left_out.push((at, "it is a weight of vertices".into()));
        }
        Ok(())
    }

    /// Leaves out the columns that `--schema encode=COLUMN=none` names.
    fn leave_out_encoded(&mut self, on: &Surveyed<'_>) -> Result<()> {
        for encode in on.schema.encode.iter().flatten() {
            let Encode::LeftOut { pattern } = encode else { continue };
            let taken = self.taken();
            let like = |at: &usize| matches(pattern, &on.fields[*at].name) && !taken.contains(at);
            let found: Vec<usize> = (0..on.fields.len()).filter(like).collect();
            if found.is_empty() {
                return Err(on.lacks(&format!(
                    "has no column `{pattern}` for --schema encode, except ids, labels and splits"
                )));
            }
            self.dropped.extend(&found);
            let why = format!("--schema encode={pattern}=none leaves it out");
            self.left_out.extend(found.into_iter().map(|at| (at, why.clone())));
        }
        Ok(())
    }

    /// Makes the column at `id` the ids.
    pub fn take_id(&mut self, id: usize) {
        self.guessed = self.id != Some(id);
        self.id = Some(id);
        self.drop_feature(id);
    }

    pub fn drop_feature(&mut self, dropped: usize) {
        self.features.retain(|&(at, _)| at != dropped);
    }

    /// The columns to survey before they are read, in ascending order; and whether their categories
    /// are needed.
    pub fn to_survey(&self, table: &Table) -> Vec<(usize, bool)> {
        let fields = &table.fields[..];
        let mut all: Vec<(usize, bool)> = Vec::new();
        all.extend(self.labels.iter().filter(|&&at| !fields[at].list).map(|&at| (at, true)));
        all.extend(self.split.map(|at| (at, true)));
        all.extend(self.masks.iter().flatten().map(|&at| (at, false)));
        let scalars = self.features.iter().filter(|(at, _)| !fields[*at].list);
        all.extend(scalars.map(|&(at, how)| (at, how.is_some())));
        if self.asks_label {
            let features = self.feature_places();
            // Types that are neither numbers nor strings have no values to look at.
            let has_values = |at: usize| fields[at].value.is_some() || fields[at].id.is_some();
            let taken = self.taken();
            let free = |at: &usize| {
                !features.contains(at)
                    && !taken.contains(at)
                    && !fields[*at].list
                    && has_values(*at)
            };
            all.extend((0..fields.len()).filter(free).map(|at| (at, false)));
        }
        let is_left_out = |at| self.left_out.iter().any(|&(out, _)| out == at);
        let kept =
            self.columns(fields).into_iter().filter(|&at| table.may_lack(at) || is_left_out(at));
        for at in self.flags.iter().map(|&(at, _)| at).chain(kept) {
            if all.iter().all(|&(other, _)| other != at) {
                all.push((at, false));
            }
        }
        all.sort_unstable();
        all
    }

    /// Decides the roles that names left open, by the statistics `seen`.
    pub fn decide(&mut self, on: &Surveyed<'_>) -> Result<()> {
        self.decide_splits(on)?;
        if self.asks_label {
            self.find_label(on)?;
        } else if on.trained.is_none() && on.schema.label_column.is_none() {
            self.check_label(on)?;
        }
        for at in self.labels.clone() {
            self.drop_feature(at);
        }
        self.check_strays(on)?;
        if self.are_chosen {
            return Ok(());
        }
        let open = self.features.iter().filter(|(_, how)| how.is_none()).map(|&(at, _)| at);
        let labels: Vec<&str> = self.labels.iter().map(|&at| on.fields[at].name.as_str()).collect();
        let reason =
            |at: usize| Some((at, why_left_out(&on.fields[at], on.seen.get(&at)?, &labels)?));
        let out: Vec<(usize, String)> = open.filter_map(reason).collect();
        out.iter().for_each(|&(at, _)| self.drop_feature(at));
        self.judged.extend(out.iter().map(|&(at, _)| at));
        self.left_out.extend(out);
        Ok(())
    }

    /// Refuses cells that are not numbers in a column of numbers or dates, and times that are
    /// unknown. The remedy covers all columns that may still be left out.
    fn check_strays(&self, on: &Surveyed<'_>) -> Result<()> {
        let Some(sheet) = on.table.sheet() else { return Ok(()) };
        let open = || self.features.iter().filter(|(_, how)| how.is_none()).map(|&(at, _)| at);
        let strays = |at: usize| sheet.strays(at);
        let others = |at: usize| {
            let name = &on.fields[at].name;
            format!(
                "or pass --schema encode={name}=onehot for categories, or --schema \
                 encode={name}=none to leave it out"
            )
        };
        if let Some((at, stray)) = open().find_map(|at| Some((at, strays(at).first()?))) {
            // A comma separates words, and a column is before an equals sign.
            let words = open().flat_map(strays).map(|(_, cell)| String::from_utf8_lossy(cell));
            let mut words: Vec<_> = words.filter(|word| !word.contains([',', '='])).collect();
            words.sort_unstable();
            words.dedup();
            let fill = if on.schema.fill.is_none() { " --schema fill=mean" } else { "" };
            let given = on.schema.na.iter().flatten().map(String::as_str);
            let remedy = match words.is_empty() {
                true => "fix it".to_string(),
                false => {
                    let words = na::remedy(given.chain(words.iter().map(|word| &**word)));
                    format!("pass {words}{fill} if it means that a value is missing, or fix it")
                }
            };
            let expected = match on.options.recipe {
                None => format!("as in most rows: {remedy}, {}", others(at)),
                Some(_) => "as in the table of the recipe: fix it, or leave the cell empty".into(),
            };
            return Err(sheet.wrong(
                at,
                stray,
                &format!("expected a number or a date, {expected}"),
            ));
        }
        for at in open().filter(|&at| is_text(&on.fields[at])) {
            if let Some(text) = sheet.unknown_time(at) {
                let problem = "its time or time zone is unknown: write it like 2020-01-31 \
                               10:00+01:00";
                return Err(sheet.wrong(at, text, &format!("{problem}, {}", others(at))));
            }
        }
        Ok(())
    }

    /// Refuses a label, found by its name, that is the same in every row.
    fn check_label(&self, on: &Surveyed<'_>) -> Result<()> {
        let [at] = self.labels[..] else { return Ok(()) };
        let Some(value) = on.seen.get(&at).filter(|seen| !seen.many && seen.keys.len() == 1) else {
            return Ok(());
        };
        let value: Vec<&String> = value.keys.keys().collect();
        let problem = format!(
            "column `{}` holds {} and no other value, so it cannot be the label: pass \
             --label-column COLUMN, or none",
            on.fields[at].name,
            shown(value[0].as_bytes())
        );
        Err(on.lacks(&problem))
    }

    /// Chooses the label by the values in a table named after its label: its only column of few
    /// strings. Asks where there are candidates in another.
    fn find_label(&mut self, on: &Surveyed<'_>) -> Result<()> {
        // The tables of MUSAE have such names.
        let is_target =
            name_of(&on.table.path).split('.').next().is_some_and(|stem| stem.ends_with("target"));
        let taken = self.taken();
        let seen = |at: &usize| on.seen.get(at).filter(|_| !taken.contains(at));
        let is_few = |seen: &ColumnStatistics| {
            (2..=FEW).contains(&seen.keys.len())
                && 2 * seen.keys.len() as u64 <= seen.values
                && !seen.many
        };
        let binary = |at: &usize| seen(at).is_some_and(ColumnStatistics::is_binary);
        let strings = |at: &usize| is_text(&on.fields[*at]) && seen(at).is_some_and(is_few);
        let all: Vec<usize> = (0..on.fields.len()).filter(|at| binary(at) || strings(at)).collect();
        let few: Vec<usize> = all.iter().copied().filter(strings).collect();
        match (&few[..], &all[..]) {
            ([at], _) | (_, [at]) if is_target => self.labels = vec![*at],
            (_, []) => {}
            _ => {
                let is_number = |at: &usize| {
                    let is_open = |seen: &ColumnStatistics| {
                        why_left_out(&on.fields[*at], seen, &[]).is_none()
                    };
                    on.fields[*at].value.is_some() && !binary(at) && seen(at).is_some_and(is_open)
                };
                let numbers =
                    (0..on.fields.len()).filter(|at| !on.fields[*at].list && is_number(at));
                return Err(which_label(
                    on,
                    &all.iter().copied().chain(numbers).collect::<Vec<_>>(),
                )?);
            }
        }
        Ok(())
    }

    /// Columns of numbers without another role.
    pub fn columns(&self, fields: &[Field]) -> Vec<usize> {
        let splits = [self.id, self.split].into_iter().chain(self.masks).flatten();
        let others = self.labels.iter().chain(&self.dropped).chain(&self.keys).copied();
        let used: Vec<usize> = splits.chain(others).chain(self.feature_places()).collect();
        let free = |at: &usize| {
            fields[*at].value.is_some() && !fields[*at].is_index() && !used.contains(at)
        };
        (0..fields.len()).filter(free).collect()
    }

    /// Columns that are not features, by name, and why.
    pub fn left_out(&self, fields: &[Field]) -> Vec<LeftOut> {
        let used = [self.taken(), self.feature_places()].concat();
        let told = self.left_out.iter().map(|(at, why)| (*at, why.clone()));
        let others = (0..fields.len()).filter(|at| !used.contains(at) && !fields[*at].is_index());
        let why = |at: usize| {
            let why = match &fields[at] {
                field if field.value.is_some() => "it is kept as a column",
                field if field.is_empty => "it is empty in every row",
                _ => "it does not hold numbers",
            };
            (at, why.to_string())
        };
        let mut all: Vec<(usize, String)> = told.chain(others.map(why)).collect();
        all.sort();
        all.into_iter().map(|(at, why)| LeftOut { column: fields[at].name.clone(), why }).collect()
    }

    /// A line on the roles of the columns, and lines on the columns that are left out.
    pub fn said(&self, on: &Surveyed<'_>, labels: Option<String>) -> Vec<String> {
        let name = |at: usize| format!("`{}`", on.fields[at].name);
        let mut said = Vec::new();
        let how = if self.guessed { ", which holds those of the edges" } else { "" };
        said.extend(self.id.map(|at| format!("ids from {}{how}", name(at))));
        let used: Vec<Field> =
            self.feature_places().into_iter().map(|at| on.fields[at].clone()).collect();
        if !used.is_empty() {
            let (count, s) = (used.len(), if used.len() == 1 { "" } else { "s" });
            said.push(format!("features from {count} column{s}, {}", choice::names(&used)));
        }
        let used: Vec<Field> = self.labels.iter().map(|&at| on.fields[at].clone()).collect();
        said.extend(labels.map(|what| format!("labels from {}{what}", choice::names(&used))));
        let splits: Vec<String> =
            self.split_names(on.fields).iter().map(|name| format!("`{name}`")).collect();
        said.extend((!splits.is_empty()).then(|| format!("splits from {}", splits.join(", "))));
        let mut said = vec![said.join("; ")];
        said.extend(choice::unused_index(on.fields, self.id));
        said.extend(self.left_out.iter().map(|(at, why)| {
            let remedy =
                if self.judged.contains(at) { ". Use it with --feature-columns" } else { "" };
            format!("{} is not used for training: {why}{remedy}", name(*at))
        }));
        let used = [self.taken(), self.feature_places()].concat();
        let encode = if self.are_chosen {
            ""
        } else {
            " (--schema encode=COLUMN=onehot makes features of strings)"
        };
        said.extend(choice::unused(on.fields, &used, encode));
        said
    }
}
