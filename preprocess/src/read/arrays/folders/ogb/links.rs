//! Splits of links: pairs of vertices for training, validation and test, and negative pairs, which
//! are not links.
//!
//! A folder `split/NAME` of an OGB dataset for link prediction holds them, in one of these forms:
//!
//! ```text
//! {train,valid,test}.pt          torch.save of a dict of arrays (NumPy's or torch's), read by [`crate::read::arrays::pickle`]
//! split_dict.pt                  one such file, a dict of the three
//! {train,valid,test}.npz         archives with the same names
//! ```
//!
//! | name | shape | content | datasets |
//! | --- | --- | --- | --- |
//! | `edge` | `[m, 2]` | pairs (source, target) | ogbl-collab, -ppa, -ddi, -vessel |
//! | `edge_neg` | `[k, 2]` | negatives of all pairs of the split | the same |
//! | `source_node`, `target_node` | `[m]` | pairs | ogbl-citation2 |
//! | `target_node_neg` | `[m, w]` | negatives of pair i: targets for its source | ogbl-citation2 |
//!
//! `raw/edge.csv.gz` of these datasets has only the edges of train, each once: OGB adds their
//! reverses for collab, ppa and ddi (`--symmetrise`). Other entries of the dicts (`year`, `weight`,
//! train's `edge_neg`) are left out, with a note. Knowledge graphs (`head`, `relation`, `tail`:
//! ogbl-wikikg2, -biokg) are refused.
//!
//! OGB's metric for a dataset is chosen by the form of the negatives and the name of the split.

use std::path::{Path, PathBuf};

use gsplit_store::{LinkFile, LinkInfo, LinkNegatives, Progress, Split};

use crate::read::arrays::npz::Npz;
use crate::read::arrays::numbers::Numbers;
use crate::read::arrays::pickle::{Item, Pickled};
use crate::read::text::{name_of, some};
use crate::{Error, Result};

/// Numbers of an array that are read at a time.
const AT_A_TIME: u64 = 1 << 16;

/// A file of the dataset's split, and the rows that it will hold.
pub type LinkList = (LinkFile, IdRows);

/// A split of links, opened.
pub struct RawLinks {
    /// Summary of the split.
    pub info: LinkInfo,
    /// Its files.
    pub lists: Vec<LinkList>,
    /// All files that are read.
    pub files: Vec<PathBuf>,
}

/// Rows of ids that have not been read from the input yet: row i consists of row i of each part,
/// side by side.
pub struct IdRows(Vec<ArrayColumns>);

/// Columns of an array.
pub struct ArrayColumns {
    numbers: Numbers,
    first: u64,
    width: usize,
    rows: u64,
}

impl RawLinks {
    /// Opens the split in `folder`, if it is a split of links.
    pub fn open(folder: &Path, progress: &dyn Progress) -> Result<Option<Self>> {
        let mut files = match Split::ALL.map(|split| file(folder, split.name())) {
            [None, None, None] => return Ok(None),
            [Some(train), Some(valid), Some(test)] => vec![train, valid, test],
            _ => {
                return Err(Error::input(
                    folder,
                    "expected train, valid and test in it: download it again",
                ));
            }
        };
        let mut lists = Vec::new();
        let mut forms = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        for (split, path) in Split::ALL.into_iter().zip(&files) {
            let (form, of_split) = link_lists(path, split, &mut left_out)?;
            forms.extend(form.filter(|_| split != Split::Train).map(|form| (form, path)));
            lists.extend(of_split);
        }
        if !left_out.is_empty() {
            left_out.sort();
            left_out.dedup();
            let names = some(&left_out);
            progress.note(&format!(
                "note: {}: {names}: left out, only pairs of vertices are read",
                folder.display()
            ));
        }
        let negatives = match forms[..] {
            [] => None,
            [(form, _), (other, _)] if form == other => Some(form),
            [(_, path), ..] => {
                return Err(Error::input(
                    path,
                    "valid and test have negatives of different forms, or one has no negatives",
                ));
            }
        };
        files.dedup();
        Ok(Some(Self { info: info(folder, negatives), lists, files }))
    }
}

/// Summary of the split: OGB's metric follows from the form of the negatives and the name of the
/// folder.
fn info(folder: &Path, negatives: Option<LinkNegatives>) -> LinkInfo {
    let metric = match (negatives, name_of(folder).as_str()) {
        (Some(LinkNegatives::Pairs), "throughput") => "hits@100",
        (Some(LinkNegatives::Pairs), "target") => "hits@20",
        (Some(LinkNegatives::Pairs), "spatial") => "roc-auc",
        (Some(LinkNegatives::Pairs), _) => "hits@50",
        _ => "mrr",
    };
    LinkInfo { negatives, metric: metric.into() }
}

/// The file in `folder` with the links of the split called `name`.
fn file(folder: &Path, name: &str) -> Option<PathBuf> {
    let files = [format!("{name}.pt"), "split_dict.pt".into(), format!("{name}.npz")];
    files.into_iter().map(|file| folder.join(file)).find(|path| path.exists())
}

/// Names of the arrays that are read.
const ARRAYS: [&str; 5] = ["edge", "edge_neg", "source_node", "target_node", "target_node_neg"];

/// The names in the file at `path` that belong to `split`, with the arrays that are read.
fn arrays(path: &Path, split: Split) -> Result<Vec<(String, Option<Numbers>)>> {
    if path.extension().is_some_and(|extension| extension == "npz") {
        let mut archive = Npz::open(path)?;
        let names = archive.arrays();
        let read = |name: String| {
            let numbers = if ARRAYS.contains(&&*name) { archive.numbers(&name)? } else { None };
            Ok((name, numbers))
        };
        return names.into_iter().map(read).collect();
    }
    let file = Pickled::open(path)?;
    let dict = if name_of(path) == "split_dict.pt" {
        file.root().get(split.name())
    } else {
        Some(file.root())
    };
    let found = dict.map_or("nothing", |dict| dict.what());
    let entries = dict.and_then(|dict| dict.entries()).ok_or_else(|| {
        let expected = "expected a dict with edge, or source_node and target_node";
        Error::input(path, format!("{found}: {expected}"))
    })?;
    let read = |(name, item): (&str, Item<'_>)| {
        let numbers = if ARRAYS.contains(&name) { item.numbers(name)? } else { None };
        Ok((name.to_string(), numbers))
    };
    entries.into_iter().map(read).collect()
}

/// The pairs of `split` in the file at `path`, and its negatives with their form. Names of unused
/// arrays are added to `left_out`.
fn link_lists(
    path: &Path,
    split: Split,
    left_out: &mut Vec<String>,
) -> Result<(Option<LinkNegatives>, Vec<LinkList>)> {
    let arrays = arrays(path, split)?;
    let has = |name: &str| arrays.iter().any(|(known, _)| known == name);
    let problem = |problem: String| Error::input(path, problem);
    if has("relation") || (has("head") && has("tail")) {
        return Err(problem(
            "a knowledge graph (head, relation, tail): gsplit reads links of one kind, e.g. \
             ogbl-collab or ogbl-citation2"
                .into(),
        ));
    }
    let used: &[&str] = match (has("edge"), has("source_node") && has("target_node")) {
        (true, _) => &["edge", "edge_neg"],
        (_, true) => &["source_node", "target_node", "target_node_neg"],
        _ => {
            let names: Vec<String> = arrays.iter().map(|(name, _)| name.clone()).collect();
            let found = some(&names).escape_debug().to_string();
            let expected = "expected edge, or source_node and target_node";
            return Err(problem(format!("a split of {found}: {expected}")));
        }
    };
    let keeps =
        |name: &str| used.contains(&name) && !(split == Split::Train && name.ends_with("_neg"));
    left_out.extend(
        arrays
            .iter()
            .filter(|(name, _)| !keeps(name))
            .map(|(name, _)| name.escape_debug().to_string()),
    );
    let parts = |name: &str, width: Option<u64>| -> Result<Vec<ArrayColumns>> {
        match arrays.iter().find(|(known, _)| known == name) {
            Some((_, Some(numbers))) => ArrayColumns::all(numbers.clone(), width),
            Some((_, None)) => Err(problem(format!("{name}: expected an array"))),
            None => Ok(Vec::new()),
        }
    };
    let mut positive = Vec::new();
    let (form, negative) = match used {
        ["edge", ..] => {
            positive.extend(parts("edge", Some(2))?);
            (LinkNegatives::Pairs, parts("edge_neg", Some(2))?)
        }
        _ => {
            positive.extend(parts("source_node", Some(1))?);
            positive.extend(parts("target_node", Some(1))?);
            (LinkNegatives::Targets, parts("target_node_neg", None)?)
        }
    };
    let rows = positive.iter().map(|part| part.rows);
    let unequal = rows.clone().max() != rows.min();
    let of_pairs = positive.first().map_or(0, |part| part.rows);
    if unequal
        || (form == LinkNegatives::Targets && negative.iter().any(|part| part.rows != of_pairs))
    {
        return Err(Error::input(path, format!("{}: arrays of unequal lengths", split.name())));
    }
    let mut lists = vec![(LinkFile { split, negative: false }, IdRows(positive))];
    let form = (!negative.is_empty()).then_some(form);
    if form.is_some() && split != Split::Train {
        lists.push((LinkFile { split, negative: true }, IdRows(negative)));
    }
    Ok((form, lists))
}

impl ArrayColumns {
    /// The `width` columns of `numbers`: as one part, or as a part per column if the array is
    /// stored column by column.
    fn all(numbers: Numbers, width: Option<u64>) -> Result<Vec<Self>> {
        const MOST_COLUMNS: u64 = 16;
        let (rows, found) = match *numbers.shape() {
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => (0, 0),
        };
        let expected = width.map_or("two dimensions".to_string(), |width| format!("[m, {width}]"));
        if found == 0 || width.is_some_and(|width| width != found) {
            return Err(numbers.error(format!("shape {:?}: expected {expected}", numbers.shape())));
        }
        if numbers.column_major() && found <= MOST_COLUMNS {
            let column = |at| Self { numbers: numbers.clone(), first: at * rows, width: 1, rows };
            return Ok((0..found).map(column).collect());
        }
        let (rows, width) = numbers.rows()?;
        Ok(vec![Self { numbers, first: 0, width, rows }])
    }
}

impl IdRows {
    /// Number of ids per row.
    pub fn width(&self) -> usize {
        self.0.iter().map(|part| part.width).sum()
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        self.0.first().map_or(Path::new(""), |part| part.numbers.path())
    }

    /// Passes all rows in order to `take`, several whole rows at a time.
    pub fn read(&self, take: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<()> {
        let (parts, width) = (&self.0, self.width());
        let rows = parts.first().map_or(0, |part| part.rows);
        let mut readers =
            parts.iter().map(|part| part.numbers.reader(part.first)).collect::<Result<Vec<_>>>()?;
        let (mut row, mut bytes, mut ids, mut side_by_side) =
            (0, Vec::new(), Vec::new(), Vec::new());
        while row < rows {
            let now = (AT_A_TIME / width as u64).max(1).min(rows - row);
            side_by_side.clear();
            side_by_side.resize(now as usize * width, 0);
            let mut column = 0;
            for (part, reader) in parts.iter().zip(&mut readers) {
                bytes.clear();
                ids.clear();
                part.numbers.read_next(&mut **reader, now * part.width as u64, &mut bytes)?;
                part.numbers.dtype().ids(&bytes, &mut ids).map_err(|(at, problem)| {
                    let row = row + at / part.width as u64;
                    part.numbers.error(format!("row {row}: {problem}"))
                })?;
                for (to, from) in
                    side_by_side.chunks_exact_mut(width).zip(ids.chunks_exact(part.width))
                {
                    to[column..column + part.width].copy_from_slice(from);
                }
                column += part.width;
            }
            take(&side_by_side)?;
            row += now;
        }
        Ok(())
    }
}
