//! Roles of the columns of a table of vertices: ids, labels, splits, features.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use gsplit_store::Progress;
use xxhash_rust::xxh3::xxh3_64;

use super::choice::{self, Field, IdKind, NONE, matches};
use super::features::ColumnStatistics;
use super::rows::{Cell, Table};
use crate::edges::{EdgeBatch, EdgeSource, Piece, ValueType};
use crate::read::options::{Categories, Fill, NodeTableOptions};
use crate::read::text::value;
use crate::{Error, Result};

const ID_NAMES: [&str; 8] = ["id", "nodeid", "nid", "vertex", "vertexid", "node", "name", "originalid"];
const FEATURE_NAMES: [&str; 7] = ["feat", "feats", "features", "feature", "x", "embedding", "emb"];
const LABEL_NAMES: [&str; 6] = ["label", "labels", "class", "target", "mltarget", "y"];
/// Names of the flags of each split.
const MASK_NAMES: [&[&str]; 3] = [&["trainmask"], &["valmask", "validmask", "validationmask"], &["testmask"]];
/// Most values of a column of strings that is taken for the label though nothing says so; each stands in two rows on average.
const FEW: usize = 256;
/// Ids of edges that the ids of vertices are told by.
const SAMPLE: usize = 256;

/// Roles of the columns, by their places.
#[derive(Debug)]
pub struct Roles {
    /// Ids; found by [`find_ids`] where no name says which.
    pub id: Option<usize>,
    /// Labels.
    pub label: Option<usize>,
    /// Flags of the three splits.
    pub masks: [Option<usize>; 3],
    /// Names of the splits.
    pub split: Option<usize>,
    /// Features.
    pub features: Features,
    /// Columns of strings, one of which may hold the labels.
    candidates: Vec<usize>,
    /// Whether the ids were found by their values.
    guessed: bool,
}

/// Columns of features.
#[derive(Debug, PartialEq)]
pub enum Features {
    /// None of them.
    None,
    /// One column of lists.
    List(usize),
    /// Columns in ascending order, with what becomes of those that are categories.
    Scalars(Vec<(usize, Option<Categories>)>),
}

/// Tells by the options and the names.
pub fn of(path: &Path, fields: &[Field], options: &NodeTableOptions) -> Result<Roles> {
    let plain: Vec<String> = fields.iter().map(|field| choice::plain(&field.name)).collect();
    let find = |names: &[&str], suits: &dyn Fn(usize) -> bool| {
        names.iter().find_map(|name| (0..fields.len()).find(|&at| plain[at] == *name && suits(at)))
    };
    let is_text = |at: usize| fields[at].id == Some(IdKind::Text) && fields[at].value.is_none();
    let id = choice::named(path, fields, options.id_column.as_deref(), "--id-column")?;
    let id = id.or_else(|| find(&ID_NAMES, &|at| fields[at].id.is_some()));
    if fields.iter().all(|field| field.id.is_none()) {
        let problem = "expected a column of ids, integers or strings";
        return Err(Error::input(path, format!("{problem}. There are {}", choice::names(fields))));
    }
    let wanted = options.label_column.as_deref();
    let label = match wanted {
        Some(NONE) => None,
        Some(name) => {
            let at = choice::named(path, fields, Some(name), "--label-column")?;
            if let Some(at) = at.filter(|&at| fields[at].value.is_none() && !is_text(at)) {
                let problem = format!("column `{}`: expected numbers or strings, for --label-column", fields[at].name);
                return Err(Error::input(path, problem));
            }
            at
        }
        None => find(&LABEL_NAMES, &|at| Some(at) != id && (fields[at].value.is_some() || is_text(at))),
    };
    let split = match options.split_column.as_deref() {
        Some(name) => {
            let at = choice::named(path, fields, Some(name), "--split-column")?;
            if let Some(at) = at.filter(|&at| !is_text(at)) {
                let name = &fields[at].name;
                let problem =
                    format!("column `{name}`: expected the strings train, valid and test, for --split-column");
                return Err(Error::input(path, problem));
            }
            at
        }
        None => None,
    };
    let masks = match split {
        Some(_) => [None; 3],
        None => MASK_NAMES.map(|names| find(names, &|at| fields[at].value == Some((ValueType::I64, 1)))),
    };
    let named = find(&["split"], &|at| Some(at) != id && Some(at) != label && is_text(at));
    let split = split.or(named.filter(|_| masks == [None; 3]));
    let mut roles = Roles { id, label, masks, split, features: Features::None, candidates: Vec::new(), guessed: false };
    roles.features = features(path, fields, &plain, &roles, options)?;
    if roles.label.is_none() && wanted.is_none() {
        let features = roles.feature_places();
        let free = |at: &usize| !roles.taken().contains(at) && !features.contains(at) && Some(*at) != named;
        roles.candidates = (0..fields.len()).filter(|&at| is_text(at)).filter(free).collect();
    }
    Ok(roles)
}

fn features(
    path: &Path,
    fields: &[Field],
    plain: &[String],
    roles: &Roles,
    options: &NodeTableOptions,
) -> Result<Features> {
    let taken = roles.taken();
    let free: Vec<usize> = (0..fields.len()).filter(|at| !taken.contains(at) && !fields[*at].is_index()).collect();
    let mut encoded: HashMap<usize, Categories> = HashMap::new();
    for (pattern, how) in options.encode.iter().flatten().map(|encode| (&encode.column, encode.how)) {
        let can = |at: &&usize| {
            let field = &fields[**at];
            matches(pattern, &field.name) && !field.list && (field.id.is_some() || field.value.is_some())
        };
        let found: Vec<usize> = free.iter().filter(can).copied().collect();
        if found.is_empty() {
            let problem =
                format!("has no column `{pattern}` of strings or numbers for --encode, beside ids, labels and splits");
            return Err(Error::input(path, format!("{problem}. There are {}", choice::names(fields))));
        }
        encoded.extend(found.into_iter().map(|at| (at, how)));
    }
    let usable = |at: usize| fields[at].value.is_some() || encoded.contains_key(&at);
    let scalars = |places: Vec<usize>| {
        let columns: Vec<_> = places.into_iter().map(|at| (at, encoded.get(&at).copied())).collect();
        if columns.is_empty() { Features::None } else { Features::Scalars(columns) }
    };
    let Some(patterns) = options.feature_columns.as_deref().filter(|patterns| *patterns != [NONE]) else {
        let list = free.iter().copied().find(|&at| fields[at].list && FEATURE_NAMES.contains(&plain[at].as_str()));
        let wanted = |&at: &usize| match options.feature_columns {
            None => usable(at) && !fields[at].list,
            Some(_) => encoded.contains_key(&at),
        };
        return match list.filter(|_| encoded.is_empty() && options.feature_columns.is_none()) {
            Some(at) => Ok(Features::List(at)),
            None => Ok(scalars(free.into_iter().filter(wanted).collect())),
        };
    };
    let mut chosen: Vec<usize> = encoded.keys().copied().collect();
    for pattern in patterns {
        let named: Vec<usize> = free.iter().copied().filter(|&at| matches(pattern, &fields[at].name)).collect();
        let found: Vec<usize> = named.iter().copied().filter(|&at| usable(at)).collect();
        if found.is_empty() {
            let problem = match named.first() {
                Some(&at) => format!(
                    "--feature-columns: column `{0}` holds no numbers: pass --encode {0}=onehot or {0}=code",
                    fields[at].name
                ),
                None => format!(
                    "has no column `{pattern}` for --feature-columns, beside ids, labels and splits. There are {}",
                    choice::names(fields)
                ),
            };
            return Err(Error::input(path, problem));
        }
        chosen.extend(found);
    }
    chosen.sort_unstable();
    chosen.dedup();
    match chosen[..] {
        [at] if fields[at].list => Ok(Features::List(at)),
        _ => match chosen.iter().find(|at| fields[**at].list) {
            Some(&at) => {
                let problem = format!(
                    "--feature-columns: `{}` holds lists: expected it alone, or columns of numbers",
                    fields[at].name
                );
                Err(Error::input(path, problem))
            }
            None => Ok(scalars(chosen)),
        },
    }
}

impl Roles {
    /// Columns that are ids, labels and splits.
    fn taken(&self) -> Vec<usize> {
        [self.id, self.label, self.split].into_iter().chain(self.masks).flatten().collect()
    }

    fn feature_places(&self) -> Vec<usize> {
        match &self.features {
            Features::None => Vec::new(),
            Features::List(at) => vec![*at],
            Features::Scalars(columns) => columns.iter().map(|&(at, _)| at).collect(),
        }
    }

    /// Takes the column at `id` for the ids.
    pub fn take_id(&mut self, id: usize) {
        self.guessed = self.id != Some(id);
        self.id = Some(id);
        self.candidates.retain(|&at| at != id);
        if let Features::Scalars(columns) = &mut self.features {
            columns.retain(|&(at, _)| at != id);
            if columns.is_empty() {
                self.features = Features::None;
            }
        }
    }

    /// The columns to look at before they are read, in ascending order; and whether their mean is asked for.
    pub fn to_survey(&self, fields: &[Field], options: &NodeTableOptions) -> Vec<(usize, bool)> {
        let mean = options.fill == Some(Fill::Mean);
        let mut all: Vec<(usize, bool)> = self.candidates.iter().map(|&at| (at, false)).collect();
        all.extend(self.label.filter(|&at| !fields[at].list).map(|at| (at, false)));
        if let Features::Scalars(columns) = &self.features {
            let looked_at = columns.iter().filter(|(_, how)| how.is_some() || mean);
            all.extend(looked_at.map(|&(at, how)| (at, how.is_none())));
        }
        all.sort_unstable();
        all
    }

    /// Takes the only column of strings with few values for the labels, where no name says which are.
    pub fn guess_label(&mut self, seen: &HashMap<usize, ColumnStatistics>) {
        let is_few = |seen: &ColumnStatistics| {
            (2..=FEW).contains(&seen.keys.len()) && 2 * seen.keys.len() as u64 <= seen.values && !seen.many
        };
        let few = |at: &&usize| seen.get(*at).is_some_and(is_few);
        let few: Vec<usize> = self.candidates.iter().filter(few).copied().collect();
        if let [at] = few[..] {
            self.label = Some(at);
        }
    }

    /// Numbers that are nothing else.
    pub fn columns(&self, fields: &[Field]) -> Vec<usize> {
        let used = [self.taken(), self.feature_places()].concat();
        let free = |at: &usize| fields[*at].value.is_some() && !fields[*at].is_index() && !used.contains(at);
        (0..fields.len()).filter(free).collect()
    }

    /// Tells the user what the columns are, in one line, and which are left out.
    pub fn say(&self, path: &Path, fields: &[Field], classes: Option<&[String]>, progress: &dyn Progress) {
        let name = |at: usize| format!("`{}`", fields[at].name);
        let mut said = Vec::new();
        let how = if self.guessed { ", which holds those of the edges" } else { "" };
        said.extend(self.id.map(|at| format!("ids from {}{how}", name(at))));
        match &self.features {
            Features::None => {}
            Features::List(at) => said.push(format!("features from {}", name(*at))),
            Features::Scalars(columns) => {
                let used: Vec<Field> = columns.iter().map(|&(at, _)| fields[at].clone()).collect();
                let (count, s) = (used.len(), if used.len() == 1 { "" } else { "s" });
                said.push(format!("features from {count} column{s}, {}", choice::names(&used)));
            }
        }
        let classes = classes.map(|names| format!(" ({} classes by name)", names.len())).unwrap_or_default();
        said.extend(self.label.map(|at| format!("labels from {}{classes}", name(at))));
        let splits: Vec<String> = self.masks.into_iter().chain([self.split]).flatten().map(name).collect();
        said.extend((!splits.is_empty()).then(|| format!("splits from {}", splits.join(", "))));
        progress.decide(&format!("{}: {}", path.display(), said.join("; ")));
        let used = [self.taken(), self.feature_places()].concat();
        choice::note_index(path, fields, self.id, progress);
        let why = "which hold no numbers (--encode COLUMN=onehot makes features of strings)";
        super::note_left_out(path, &choice::left_out(fields, &used), why, progress);
    }
}

/// The column that holds the ids of the first `edges`, each in one row: that of a known name if it does, or if no other does.
pub fn find_ids(
    path: &Path,
    table: &Table,
    fields: &[Field],
    roles: &Roles,
    edges: &dyn EdgeSource,
    progress: &dyn Progress,
) -> Result<usize> {
    let kind = if edges.has_string_ids() { IdKind::Text } else { IdKind::Number };
    let used = roles.taken();
    let sample = sample(edges)?;
    let wanted: HashSet<u64> = sample.iter().copied().collect();
    let find = |found: &mut Vec<(usize, u64)>, slot: usize, cell: Cell<'_>| {
        let id = match (cell, kind) {
            (Cell::Number(_, _, Some(number)), IdKind::Number) => u64::try_from(number).ok(),
            (Cell::Number(_, number, None), IdKind::Number) => value::exact_id(number),
            (Cell::Text(text), IdKind::Number) => value::id(text.as_bytes()),
            (Cell::Text(text), IdKind::Text) => Some(xxh3_64(text.as_bytes())),
            _ => None,
        };
        found.extend(id.filter(|id| wanted.contains(id)).map(|id| (slot, id)));
        Ok(())
    };
    let first_of = |columns: Vec<usize>| -> Result<Option<usize>> {
        let mut rows: HashMap<(usize, u64), u64> = HashMap::new();
        table.for_rows(&columns, progress, find, &mut |found: Vec<(usize, u64)>| {
            found.into_iter().for_each(|key| *rows.entry(key).or_default() += 1);
            Ok(())
        })?;
        let holds = |slot: usize| sample.iter().all(|&id| rows.get(&(slot, id)) == Some(&1));
        // The index that pandas writes counts rows: it is the last guess.
        let holding =
            (0..columns.len()).filter(|&slot| holds(slot)).min_by_key(|&slot| fields[columns[slot]].is_index());
        // Some ids may have no row, or several: then most of them tell the column.
        let found = |slot: usize| sample.iter().filter(|&&id| rows.contains_key(&(slot, id))).count();
        let most = || (0..columns.len()).max_by_key(|&slot| (found(slot), Reverse(slot)));
        let most = || most().filter(|&slot| 2 * found(slot) > sample.len());
        Ok(holding.or_else(most).map(|slot| columns[slot]))
    };
    let suits = |at: &usize| fields[*at].id == Some(kind);
    if let Some(id) = roles.id.filter(suits)
        && first_of(vec![id])?.is_some()
    {
        return Ok(id);
    }
    let others = (0..fields.len()).filter(|at| suits(at) && !used.contains(at)).collect();
    let problem = || {
        let kind = if kind == IdKind::Text { "strings" } else { "integers" };
        format!(
            "no column holds most ids of the edges, which are {kind}: pass --id-column. There are {}",
            choice::names(fields)
        )
    };
    first_of(others)?.or(roles.id).ok_or_else(|| Error::input(path, problem()))
}

/// Some ids of the first edges.
fn sample(edges: &dyn EdgeSource) -> Result<Vec<u64>> {
    let (mut piece, mut batch) = (Piece::default(), EdgeBatch::default());
    edges.rewind()?;
    while batch.sources.is_empty() && edges.next(&mut piece)? {
        edges.parse(&mut piece, &mut batch)?;
    }
    edges.rewind()?;
    let mut ids: Vec<u64> = batch.sources.iter().zip(&batch.targets).flat_map(|(&u, &v)| [u, v]).take(SAMPLE).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
