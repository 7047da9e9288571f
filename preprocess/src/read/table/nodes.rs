//! Tables of vertices: the id of every row, and its features, labels, splits and other numbers.
//!
//! * ids: the column that `--id-column` names; else `id`, `node_id`, `nid`, `vertex`, `name` ... if
//!   it holds the ids of the first edges, each once; else the one that does
//! * labels: the columns that `--label-column` names; else `label`, `class`, `target` or `y`; else
//!   zeros and ones called `churned`, `fraud` ...; else the user is asked, where a column may be
//!   the label. Class numbers from 0 (nothing or -1 for unlabelled), a list of zeros and ones,
//!   strings and other numbers, which become the places of their classes in ascending order; or
//!   numbers to learn
//! * splits: strings `train`, `valid`, `test` in a column of any name, or flags in `train_mask`,
//!   `val_mask`, `test_mask`, or in `train`, `valid`, `test`; a single one of the latter is asked
//!   about
//! * features: what `--feature-columns` and the key `encode` name; else all other numbers, scaled,
//!   lists of numbers, and categories, one-hot, except identifiers
//! * all other numbers: columns
//!
//! Rows stay in the file's order. A first pass over all columns but lists gathers their statistics;
//! then each column is a pass over the table that reads no other column (text has to be read
//! whole), and so are all features together. In memory are the ids of the splits, categories, and
//! else a few thousand rows.

use std::path::{Path, PathBuf};

use gsplit_store::{EdgeRecipe, FeatureEncoding, FeatureRecipe, Progress, Recipe};

use super::choice::{self, IdKind};
use super::features::{Encoded, EncodedColumn, TableColumn};
use super::giveaway;
use super::ids::find_ids;
use super::labels::{TableLabels, labels};
use super::parts::TableFormat;
use super::recipe;
use super::roles::{self, Roles};
use super::rows::Table;
use super::sheet::Sheet;
use super::source::TableSource;
use super::splits::splits;
use super::statistics::{RepeatedRows, Surveyed, survey};
use crate::edges::{EdgeSource, ValueType};
use crate::read::options::{
    CaseRule, Categories, Encode, LabelKind, ReadOptions, Scale, Schema, TextOptions, Unseen,
};
use crate::read::raw::{Column, Raw};
use crate::read::scaled::Scaled;
use crate::read::schema::Decided;
use crate::read::text::field::{real, shown};
use crate::read::text::na;
use crate::{Error, Result};

/// Skewness of a label from which on its largest numbers dominate the loss.
const SKEWED: f64 = 2.0;

/// Contents of a table of vertices.
pub struct NodeTable {
    /// The id of every row: batches have sources only. `None`: row v is vertex v.
    pub ids: Option<Box<dyn EdgeSource>>,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels.
    pub labels: TableLabels,
    /// Columns, and what becomes of each.
    pub recipe: Recipe,
    /// Further numbers.
    pub columns: Vec<Box<dyn Column>>,
    /// Training, validation and test vertices, by their ids.
    pub splits: Option<[Vec<u64>; 3]>,
    /// The files that are read.
    pub files: Vec<PathBuf>,
    /// The decisions on its columns and cells.
    pub decided: Decided,
}

impl NodeTable {
    /// Whether its ids are strings.
    pub fn has_string_ids(&self) -> bool {
        self.ids.as_ref().is_some_and(|ids| ids.has_string_ids())
    }

    /// Adds the columns of the table to `raw`. Fails if the ids of one are integers and of the
    /// other strings.
    pub fn attach(self, raw: &mut Raw) -> Result<()> {
        if self.has_string_ids() != raw.edges.has_string_ids() {
            let kind = |strings| if strings { "strings" } else { "integers" };
            let (of, edges) = (kind(self.has_string_ids()), kind(raw.edges.has_string_ids()));
            let path = self.files.first().cloned().unwrap_or_default();
            let problem =
                format!("ids are {of}, the ids of the edges {edges}: pass --schema id-type=text");
            return Err(Error::input(path, problem));
        }
        if raw.features.is_some() || raw.labels.is_some() || !raw.columns.is_empty() {
            // Its rows are in the order of the ids, these in one of their own.
            let problem = "--nodes: the input has features, labels or columns of its own: leave --nodes out, or add to them";
            return Err(Error::Option(problem.into()));
        }
        raw.node_ids = self.ids;
        raw.features = self.features;
        raw.labels = self.labels.column;
        raw.class_names = self.labels.class_names;
        raw.label_shape = self.labels.shape;
        raw.recipe = Some(self.recipe);
        raw.columns = self.columns;
        raw.splits = self.splits.or(raw.splits.take());
        raw.files.extend(self.files);
        raw.decided = std::mem::take(&mut raw.decided).with_nodes(self.decided);
        Ok(())
    }
}

/// Opens the table of vertices at `path`, a file or a folder of parts, for a graph of these
/// `edges`, or of none.
pub fn nodes(
    path: &Path,
    edges: Option<&dyn EdgeSource>,
    options: &ReadOptions,
    progress: &dyn Progress,
    decisions: &mut Vec<String>,
) -> Result<NodeTable> {
    let trained = options.recipe.as_deref().map(Recipe::read).transpose()?;
    // Any other file is a table in text, whatever its name.
    let unnamed = path.is_file().then_some(TableFormat::Csv);
    let text = options.text();
    let text = TextOptions { header: None, must_have_header: true, scans: true, ..text };
    let mut table = Table::of(path, unnamed, text, options, progress, decisions)?;
    table.take_as_strings(trained.iter().flat_map(recipe::strings));
    told(Surveyed::of(&table, options, trained.as_ref(), progress), edges, decisions)
}

/// The vertices of a table whose rows are the vertices, in their order. The columns at `keys` name
/// rows, of this table and of others, and nothing else.
pub fn keyed_rows(
    table: &Table,
    keys: &[usize],
    options: &ReadOptions,
    progress: &dyn Progress,
    decisions: &mut Vec<String>,
) -> Result<NodeTable> {
    let on = Surveyed { keys: Some(keys), ..Surveyed::of(table, options, None, progress) };
    told(on, None, decisions)
}

/// The vertices of the table, with the decisions on them among `decisions`.
fn told(
    on: Surveyed<'_>,
    edges: Option<&dyn EdgeSource>,
    decisions: &mut Vec<String>,
) -> Result<NodeTable> {
    let table = on.table;
    let (nodes, said) = vertices(on, edges).map_err(|error| error.at(&table.path))?;
    decisions.extend(said.iter().map(|text| table.with_path(text)));
    Ok(nodes)
}

/// The vertices of the table, and lines on the decisions on them.
fn vertices(
    mut on: Surveyed<'_>,
    edges: Option<&dyn EdgeSource>,
) -> Result<(NodeTable, Vec<String>)> {
    let Surveyed { table, fields, options, schema, trained, progress, .. } = on;
    if table.is_empty() {
        let problem = "has columns and no rows: expected a row for each vertex";
        return Err(Error::Graph(problem.into()));
    }
    let na = schema.na.as_deref().unwrap_or_default();
    check_na(&on, na, edges)?;
    let mut roles = roles::of(&on)?;
    let id = match on.keys {
        Some(_) => None,
        None => Some(find_ids(&on, &roles, edges)?),
    };
    id.iter().for_each(|(id, _)| roles.take_id(*id));
    let repeated = schema.on_duplicate.zip(id).map(|(keep, (id, kind))| {
        let ids = TableSource::ids(table, id, kind);
        RepeatedRows::of(table, &ids, id, keep, options.budget())
    });
    let repeated = repeated.transpose()?;
    on.seen = survey(table, &roles.to_survey(table), repeated.as_ref(), progress)?;
    roles.decide(&on)?;
    if on.folds {
        let known = trained.map_or(&[][..], |trained| &trained.classes);
        let is_label = |at: &usize| roles.labels.contains(at);
        let texts = on.seen.iter_mut().filter(|(at, _)| roles::is_text(&fields[**at]));
        texts.for_each(|(at, seen)| seen.fold(if is_label(at) { known } else { &[] }));
    } else if schema.case.is_none() && trained.is_none() {
        ask_for_case(&on, &roles)?;
    }
    let splits = splits(&on, &roles, id)?;
    let labels = labels(&on, &roles)?;
    let recipes = recipe::of(&on, &roles.features)?;
    let unseen = trained.map(|_| schema.unseen.unwrap_or(Unseen::Refuse));
    let features: Option<Box<dyn Column>> = match &roles.features[..] {
        [] => None,
        // A list by itself keeps its type.
        [(at, _)] if fields[*at].list => {
            let rows = Box::new(TableColumn::new(table, *at, "feat", false));
            Some(Scaled::of(rows, schema.scale.unwrap_or(Scale::None), schema.fill, progress)?)
        }
        _ => {
            let encode = |(at, recipe): &(usize, FeatureRecipe)| {
                Encoded::feature(*at, &fields[*at], recipe, unseen).folding(on.folds)
            };
            let columns = recipes.iter().map(encode).collect();
            Some(Box::new(EncodedColumn::new(table, "feat", columns)))
        }
    };
    let columns = roles.columns(fields);
    let columns: Vec<_> =
        columns.into_iter().map(|at| (at, choice::file_name(&fields[at].name))).collect();
    choice::check_distinct(columns.iter().map(|(_, name)| name.as_str()))?;
    // Whole numbers have no way to say that one is missing: of a column that nobody asked for they
    // become doubles.
    let lacks = |at: &usize| on.seen.get(at).is_some_and(|seen| seen.missing > 0);
    let is_whole = |at: usize| fields[at].value == Some((ValueType::I64, 1));
    let column = |(at, name): &(usize, String)| -> Box<dyn Column> {
        Box::new(match is_whole(*at) && lacks(at) {
            true => TableColumn::doubles(table, *at, name),
            false => TableColumn::new(table, *at, name, false),
        })
    };
    let mut said = roles.said(&on, labels.words());
    said.extend(roles.blank_flags(&on));
    said.extend(labels.notes.iter().cloned());
    if trained.is_none() {
        said.extend(lists(&on, &roles)?);
        said.extend(sentinels(&on, &roles, &labels));
        said.extend(giveaways(&on, &roles, &labels)?);
    }
    said.extend(recipes.iter().filter_map(|(_, feature)| combined(feature)));
    said.extend(table.readings());
    let decided = match trained {
        // The recipe decides.
        Some(_) => Decided::default(),
        None => decided(&on, &roles, &labels, &recipes, id.map(|(_, kind)| kind)),
    };
    // Columns that the table lacks stay as in the recipe: the next table may have them.
    let trained = trained.filter(|_| schema.label_column.is_none()).cloned().unwrap_or_default();
    let or_trained =
        |names: Vec<String>, trained: Vec<String>| if names.is_empty() { trained } else { names };
    let dates = table.sheet().and_then(Sheet::date_order).or(schema.date_order);
    let recipe = Recipe {
        id: id.map(|(id, _)| fields[id].name.clone()).unwrap_or_default(),
        label: or_trained(
            roles.labels.iter().map(|&at| fields[at].name.clone()).collect(),
            trained.label,
        ),
        classes: or_trained(labels.class_names.clone().unwrap_or_default(), trained.classes),
        label_shape: labels.shape.or(trained.label_shape),
        unlabelled: labels.unlabelled.clone().or(trained.unlabelled),
        dates: dates.map(|order| order.name().into()),
        na: na.to_vec(),
        folds_case: on.folds,
        splits: or_trained(roles.split_names(fields), trained.splits),
        features: recipes.into_iter().map(|(_, recipe)| recipe).collect(),
        left_out: roles.left_out(fields),
        edges: EdgeRecipe::default(),
    };
    let nodes = NodeTable {
        ids: id.map(|(id, kind)| Box::new(TableSource::ids(table, id, kind)) as _),
        features,
        labels,
        recipe,
        columns: columns.iter().map(column).collect(),
        splits,
        files: table.files(),
        decided,
    };
    Ok((nodes, said))
}

/// The decisions on a table of vertices whose ids, if it has any, are of `kind`.
fn decided(
    on: &Surveyed<'_>,
    roles: &Roles,
    labels: &TableLabels,
    features: &[(usize, FeatureRecipe)],
    kind: Option<IdKind>,
) -> Decided {
    let name = |at: &usize| on.fields[*at].name.clone();
    let label = match roles.labels[..] {
        [at] if on.seen.contains_key(&at) => Some(labels.are_numbers()),
        _ => None,
    };
    let encode = features.iter().filter_map(|(at, recipe)| {
        let how = match recipe.encoding {
            FeatureEncoding::Code { .. } => Categories::Code,
            FeatureEncoding::OneHot { other: false, .. } => Categories::OneHot,
            _ => return None,
        };
        Some(Encode::Column { pattern: name(at), how })
    });
    let dropped = roles.dropped.iter().map(|at| Encode::LeftOut { pattern: name(at) });
    let encode: Vec<Encode> = encode.chain(dropped).collect();
    let is_list = matches!(features, [(at, _)] if on.fields[*at].list);
    let usual = if is_list { Scale::None } else { Scale::Standard };
    let mut texts = roles.classes_and_categories().into_iter();
    let case = if on.folds { CaseRule::Fold } else { CaseRule::Keep };
    let label_kind = |is_number| if is_number { LabelKind::Number } else { LabelKind::Class };
    let unlabelled = || labels.unlabelled.clone().unwrap_or_else(|| choice::NONE.into());
    let splits = || choice::or_none(roles.split_names(on.fields));
    let schema = Schema {
        id_type: kind,
        id_column: roles.id.as_ref().map(name),
        label_column: Some(choice::or_none(roles.labels.iter().map(name).collect())),
        label_kind: label.map(label_kind),
        unlabelled: label.filter(|is_number| !is_number).map(|_| unlabelled()),
        split_column: (!on.options.draws_splits).then(splits),
        feature_columns: Some(choice::or_none(features.iter().map(|(at, _)| name(at)).collect())),
        encode: Some(encode).filter(|encode| !encode.is_empty()),
        case: texts.any(|at| roles::is_text(&on.fields[at])).then_some(case),
        scale: (!features.is_empty()).then(|| on.schema.scale.unwrap_or(usual)),
        ..super::decided_cells(on.table)
    };
    let schema = Schema { header: None, ..schema };
    Decided { schema, left_out: roles.left_out(on.fields), open: Vec::new() }
}

/// Refuses a missing value of a column that neither the table nor its edges have.
fn check_na(on: &Surveyed<'_>, na: &[String], edges: Option<&dyn EdgeSource>) -> Result<()> {
    let has = |column: &str| {
        on.fields.iter().any(|field| field.name == column)
            || edges.is_none_or(|edges| edges.columns().iter().any(|edge| edge.name == column))
    };
    match na.iter().filter_map(|word| word.split_once('=')).find(|(column, _)| !has(column)) {
        Some((column, word)) => {
            Err(on.lacks(&format!("--schema na={column}={word}: there is no column `{column}`")))
        }
        None => Ok(()),
    }
}

/// Asks whether strings that differ only in case or blanks are one class or category.
fn ask_for_case(on: &Surveyed<'_>, roles: &Roles) -> Result<()> {
    let alike = |at: usize| {
        let spellings = on.seen.get(&at).filter(|_| roles::is_text(&on.fields[at]))?.alike()?;
        let spellings: Vec<String> =
            spellings.into_iter().take(4).map(|text| shown(text.as_bytes())).collect();
        Some(format!("column `{}` has {}", on.fields[at].name, spellings.join(" and ")))
    };
    let found: Vec<String> =
        roles.classes_and_categories().into_iter().filter_map(alike).take(4).collect();
    match found.is_empty() {
        true => Ok(()),
        false => Err(Error::Graph(format!(
            "{}, which differ only in case or blanks: pass --schema case=fold to take such \
                 strings for one, or --schema case=keep for several",
            found.join(", ")
        ))),
    }
}

/// Notes on strings that are lists of numbers.
fn lists(on: &Surveyed<'_>, roles: &Roles) -> Result<Vec<String>> {
    let is_open = |at: &usize| roles.id != Some(*at) && !roles.labels.contains(at);
    let texts = (0..on.fields.len()).filter(|&at| roles::is_text(&on.fields[at]));
    let mut notes = Vec::new();
    for at in texts.filter(is_open) {
        let examples = on.table.examples(at)?;
        let list = examples.split('`').nth(1).unwrap_or_default();
        let mut parts: Vec<&str> = list.split([',', ' ', ';']).collect();
        // The last number of a long list is cut.
        parts.retain(|part| !part.is_empty() && !part.ends_with("..."));
        let are_numbers = parts.iter().all(|part| real::<f64>(part.as_bytes()).is_some());
        if are_numbers && parts.len() > 1 {
            notes.push(format!(
                "note: `{}` holds lists of numbers in text, e.g. `{list}`, which are not read as \
                 numbers: write a column for each number, or Parquet with a column of lists",
                on.fields[at].name
            ));
        }
    }
    Ok(notes)
}

/// Notes on numbers that look like missing values, and on a label whose largest numbers dominate.
fn sentinels(on: &Surveyed<'_>, roles: &Roles, labels: &TableLabels) -> Vec<String> {
    let mut notes = Vec::new();
    let labels = roles.labels.iter().filter(|_| labels.are_numbers()).copied();
    let numbers =
        roles.classes_and_categories().into_iter().filter(|at| !roles.labels.contains(at));
    for at in numbers.chain(labels.clone()).filter(|&at| on.fields[at].value.is_some()) {
        let Some(seen) = on.seen.get(&at) else { continue };
        if let Some((number, rows)) = seen.sentinel() {
            let (name, (least, most), all) =
                (&on.fields[at].name, seen.others(number), seen.numbers.count);
            let given = on.schema.na.iter().flatten().map(String::as_str);
            let word = format!("{name}={number}");
            let fill = if on.schema.fill.is_none() && !roles.labels.contains(&at) {
                " --schema fill=mean"
            } else {
                ""
            };
            notes.push(format!(
                "note: column `{name}` is {number} in {rows} of {all} rows, and from {least} to \
                 {most} in the others: if {number} means that the value is missing, pass {}{fill}",
                na::remedy(given.chain([word.as_str()]))
            ));
        }
    }
    for at in labels {
        let Some(numbers) = on.seen.get(&at).map(|seen| &seen.numbers) else { continue };
        if numbers.least > 0.0 && numbers.skewness() > SKEWED {
            notes.push(format!(
                "note: the label `{}` is skewed: its mean is {:.4}, its largest number {}. A few \
                 large numbers dominate the loss: consider a column of its logarithm as the label",
                on.fields[at].name, numbers.mean, numbers.most
            ));
        }
    }
    notes
}

/// Notes on columns that give the label away.
fn giveaways(on: &Surveyed<'_>, roles: &Roles, labels: &TableLabels) -> Result<Vec<String>> {
    let label = match roles.labels[..] {
        [label] if !on.fields[label].list => label,
        _ => return Ok(Vec::new()),
    };
    let columns = roles.features.iter().map(|&(at, _)| at);
    let columns: Vec<usize> = columns.filter(|&at| !on.fields[at].list).collect();
    let label_of = giveaway::Label {
        at: label,
        is_class: !labels.are_numbers(),
        unlabelled: labels.unlabelled.as_deref(),
    };
    let note = |(at, how): (usize, String)| {
        let name = &on.fields[at].name;
        format!(
            "note: column `{name}` gives the label `{}` away: {how}. If new vertices do not have \
             it, leave it out with --schema encode={name}=none",
            on.fields[label].name
        )
    };
    let found = giveaway::find(on.table, label_of, &columns, on.progress)?;
    Ok(found.into_iter().map(note).collect())
}

/// A line on a column whose less frequent categories are combined.
fn combined(feature: &FeatureRecipe) -> Option<String> {
    let FeatureEncoding::OneHot { categories, other: true } = &feature.encoding else {
        return None;
    };
    let (column, most) = (&feature.column, categories.len());
    Some(format!(
        "`{column}` is one-hot by its {most} most frequent values, the rest is one more (--schema \
         encode={column}=onehot, or code, has them all)"
    ))
}
