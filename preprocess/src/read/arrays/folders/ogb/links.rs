//! Splits of links: pairs of vertices for training, validation and test, and negative pairs, which are not links.
//!
//! A folder `split/NAME` of an OGB dataset for link prediction holds them, in one of these forms:
//!
//! ```text
//! {train,valid,test}.pt          torch.save of a dict of arrays (NumPy's or torch's), read by [`crate::read::arrays::pickle`]
//! split_dict.pt                  one such file, a dict of the three
//! {train,valid,test}.npz         archives with the same names
//! {train,valid,test}.csv[.gz]    lines `source,target`, and {valid,test}_negative.csv[.gz] with the negatives
//! ```
//!
//! | name | shape | content | datasets |
//! | --- | --- | --- | --- |
//! | `edge` | `[m, 2]` | pairs (source, target) | ogbl-collab, -ppa, -ddi, -vessel |
//! | `edge_neg` | `[k, 2]` | negatives of all pairs of the split | the same |
//! | `source_node`, `target_node` | `[m]` | pairs | ogbl-citation2 |
//! | `target_node_neg` | `[m, w]` | negatives of pair i: targets for its source | ogbl-citation2 |
//!
//! A line of negatives with two ids is a pair; with more, a row of targets. `raw/edge.csv.gz` of these datasets has only the edges of
//! train, each once: OGB adds their reverses for collab, ppa and ddi (`--symmetrise`). Other entries of the dicts (`year`, `weight`,
//! train's `edge_neg`) are left out, with a note. Knowledge graphs (`head`, `relation`, `tail`: ogbl-wikikg2, -biokg) are refused.
//!
//! OGB's metric for a dataset is chosen by the form of the negatives and the name of the split.

use std::path::{Path, PathBuf};

use gsplit_store::{LinkFile, LinkInfo, LinkNegatives, Progress, Split};

use super::find_optional;
use crate::edges::Piece;
use crate::memory::Memory;
use crate::read::arrays::npz::Npz;
use crate::read::arrays::numbers::Numbers;
use crate::read::arrays::pickle::Pickled;
use crate::read::text::field::{shown, unsigned};
use crate::read::text::{first_line, lines, name_of, read_pieces, some};
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

/// Rows of ids that have not been read from the input yet.
pub enum IdRows {
    /// Column parts, side by side: row i consists of row i of each part.
    Arrays(Vec<ArrayColumns>),
    /// Lines of ids.
    Text {
        /// The table.
        path: PathBuf,
        /// Ids per line.
        width: usize,
    },
}

/// Columns of an array.
pub struct ArrayColumns {
    numbers: Numbers,
    first: u64,
    width: usize,
    rows: u64,
}

/// Container of a split's arrays, by name.
enum ArrayContainer {
    Pickle(Pickled, Option<&'static str>),
    Archive(PathBuf, Npz),
}

impl RawLinks {
    /// Opens the split in `folder`, if it is a split of links.
    pub fn open(folder: &Path, budget: Memory, progress: &dyn Progress) -> Result<Option<Self>> {
        let found = Split::ALL.map(|split| files(folder, split.name()));
        let [Some(_), Some(_), Some(_)] = found else {
            // If one of them is missing, the others identify a split of links only if they have other formats than splits of vertices.
            let links = found.iter().flatten().any(|path| !is_text(path));
            return match links {
                true => Err(Error::input(folder, "expected train, valid and test in it: download it again")),
                false => Ok(None),
            };
        };
        let files: Vec<PathBuf> = found.into_iter().flatten().collect();
        if files.iter().all(|path| is_text(path)) {
            return Self::of_text(folder, files);
        }
        let mut lists = Vec::new();
        let mut forms = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        for (split, path) in Split::ALL.into_iter().zip(&files) {
            let mut table = ArrayContainer::open(path, split, budget)?;
            let (form, of_split) = table.lists(split, &mut left_out)?;
            forms.extend(form.filter(|_| split != Split::Train).map(|form| (form, path)));
            lists.extend(of_split);
        }
        if !left_out.is_empty() {
            left_out.dedup();
            let names = some(&left_out);
            progress.note(&format!("note: {}: {names}: left out, only pairs of vertices are read", folder.display()));
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
        let mut files = files;
        files.dedup();
        Ok(Some(Self { info: info(folder, negatives), lists, files }))
    }

    /// Opens the split in text tables, if their lines are pairs.
    fn of_text(folder: &Path, mut files: Vec<PathBuf>) -> Result<Option<Self>> {
        let width = |path: &Path| -> Result<usize> {
            Ok(first_line(path)?.map_or(0, |line| line.split(|&byte| byte == b',').count()))
        };
        if width(&files[0])? != 2 {
            return Ok(None);
        }
        let text = |path: &Path, width| IdRows::Text { path: path.to_path_buf(), width };
        let positive = |(split, path): (Split, &PathBuf)| (LinkFile { split, negative: false }, text(path, 2));
        let mut lists: Vec<_> = Split::ALL.into_iter().zip(&files).map(positive).collect();
        let named = [Split::Valid, Split::Test]
            .map(|split| (split, find_optional(folder, &format!("{}_negative", split.name()))));
        let negatives = match named {
            [(_, None), (_, None)] => None,
            [(_, Some(valid)), (_, Some(test))] => {
                let widths = [width(&valid)?, width(&test)?];
                for (split, (path, width)) in
                    [Split::Valid, Split::Test].into_iter().zip([valid, test].into_iter().zip(widths))
                {
                    lists.push((LinkFile { split, negative: true }, text(&path, width.max(1))));
                    files.push(path);
                }
                let form = |width| if width == 2 { LinkNegatives::Pairs } else { LinkNegatives::Targets };
                if form(widths[0]) != form(widths[1]) {
                    let problem = "valid and test have negatives of different forms: expected pairs in both, or rows";
                    return Err(Error::input(folder, problem));
                }
                Some(form(widths[0]))
            }
            [(_, None), _] | [_, (_, None)] => {
                let problem =
                    "expected negatives of valid and test (valid_negative.csv.gz, test_negative.csv.gz), or of none";
                return Err(Error::input(folder, problem));
            }
        };
        Ok(Some(Self { info: info(folder, negatives), lists, files }))
    }
}

/// Summary of the split: OGB's metric follows from the form of the negatives and the name of the folder.
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

/// The file in `folder` with the split called `name`.
fn files(folder: &Path, name: &str) -> Option<PathBuf> {
    let arrays = [format!("{name}.pt"), "split_dict.pt".into(), format!("{name}.npz")];
    let mut arrays = arrays.into_iter().map(|file| folder.join(file));
    arrays.find(|path| path.exists()).or_else(|| find_optional(folder, name))
}

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "csv" || extension == "gz")
}

impl ArrayContainer {
    fn open(path: &Path, split: Split, budget: Memory) -> Result<Self> {
        if path.extension().is_some_and(|extension| extension == "npz") {
            return Ok(Self::Archive(path.to_path_buf(), Npz::open(path)?));
        }
        let whole = name_of(path) == "split_dict.pt";
        Ok(Self::Pickle(Pickled::open(path, budget)?, whole.then_some(split.name())))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Pickle(file, _) => file.path(),
            Self::Archive(path, _) => path,
        }
    }

    /// Names of the arrays.
    fn names(&self) -> Result<Vec<String>> {
        match self {
            Self::Archive(_, archive) => Ok(archive.arrays()),
            Self::Pickle(file, part) => {
                let dict = part.map_or(Some(file.root()), |part| file.root().get(part));
                let found = dict.map_or("nothing", |dict| dict.what());
                let entries = dict.and_then(|dict| dict.entries()).ok_or_else(|| {
                    let problem = format!(
                        "{found}: expected a dict with edge, or source_node and target_node; splits of vertices are read from \
                         {{train,valid,test}}.csv.gz"
                    );
                    Error::input(file.path(), problem)
                })?;
                Ok(entries.into_iter().map(|(key, _)| key.to_string()).collect())
            }
        }
    }

    fn numbers(&mut self, name: &str) -> Result<Option<Numbers>> {
        match self {
            Self::Archive(_, archive) => archive.numbers(name),
            Self::Pickle(file, part) => {
                let dict = part.map_or(Some(file.root()), |part| file.root().get(part));
                let Some(item) = dict.and_then(|dict| dict.get(name)) else { return Ok(None) };
                let found = item.what();
                let none = || Error::input(file.path(), format!("{name}: {found}, expected an array"));
                item.numbers(name)?.ok_or_else(none).map(Some)
            }
        }
    }

    /// The pairs of `split`, and its negatives with their form. Names of unused arrays are added to `left_out`.
    fn lists(&mut self, split: Split, left_out: &mut Vec<String>) -> Result<(Option<LinkNegatives>, Vec<LinkList>)> {
        let names = self.names()?;
        let has = |name: &str| names.iter().any(|known| known == name);
        let problem = |problem: String| Error::input(self.path(), problem);
        if has("relation") || (has("head") && has("tail")) {
            return Err(problem(
                "a knowledge graph (head, relation, tail): gsplit reads links of one kind, e.g. ogbl-collab or ogbl-citation2"
                    .into(),
            ));
        }
        let used: &[&str] = match (has("edge"), has("source_node") && has("target_node")) {
            (true, _) => &["edge", "edge_neg"],
            (_, true) => &["source_node", "target_node", "target_node_neg"],
            _ => {
                let found = some(&names).escape_debug().to_string();
                let expected = "expected edge, or source_node and target_node";
                return Err(problem(format!("a split of {found}: {expected}")));
            }
        };
        let keeps = |name: &str| used.contains(&name) && !(split == Split::Train && name.ends_with("_neg"));
        left_out.extend(names.iter().filter(|name| !keeps(name)).map(|name| name.escape_debug().to_string()));
        let mut parts = |name: &str, width: Option<u64>| -> Result<Vec<ArrayColumns>> {
            match self.numbers(name)? {
                Some(numbers) => ArrayColumns::all(numbers, width),
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
        if unequal || (form == LinkNegatives::Targets && negative.iter().any(|part| part.rows != of_pairs)) {
            return Err(Error::input(self.path(), format!("{}: arrays of unequal lengths", split.name())));
        }
        let mut lists = vec![(LinkFile { split, negative: false }, IdRows::Arrays(positive))];
        let form = (!negative.is_empty()).then_some(form);
        if form.is_some() && split != Split::Train {
            lists.push((LinkFile { split, negative: true }, IdRows::Arrays(negative)));
        }
        Ok((form, lists))
    }
}

impl ArrayColumns {
    /// The `width` columns of `numbers`: as one part, or as a part per column if the array is stored column by column.
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
        match self {
            Self::Arrays(parts) => parts.iter().map(|part| part.width).sum(),
            Self::Text { width, .. } => *width,
        }
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        match self {
            Self::Arrays(parts) => parts.first().map_or(Path::new(""), |part| part.numbers.path()),
            Self::Text { path, .. } => path,
        }
    }

    /// Passes all rows in order to `take`, several whole rows at a time.
    pub fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<()> {
        match self {
            Self::Arrays(parts) => read_arrays(parts, take),
            Self::Text { path, width } => {
                let parse = |piece: &Piece| {
                    let mut ids = Vec::new();
                    for (line, text) in lines(piece).map(|(line, text)| (line, text.trim_ascii())) {
                        let before = ids.len();
                        for field in text.split(|&byte| byte == b',').filter(|_| !text.is_empty()) {
                            let id = unsigned(field.trim_ascii());
                            let problem =
                                || Error::line(path, line, format!("expected a vertex id, found {}", shown(field)));
                            ids.push(id.ok_or_else(problem)?);
                        }
                        let found = ids.len() - before;
                        if found != *width && found > 0 {
                            let problem = format!("expected {width} ids as in the first line, found {found}");
                            return Err(Error::line(path, line, problem));
                        }
                    }
                    Ok(ids)
                };
                read_pieces(path, progress, parse, |ids| take(&ids))
            }
        }
    }
}

fn read_arrays(parts: &[ArrayColumns], take: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<()> {
    let mut readers = parts.iter().map(|part| part.numbers.reader(part.first)).collect::<Result<Vec<_>>>()?;
    let (rows, width) = (parts.first().map_or(0, |part| part.rows), parts.iter().map(|part| part.width).sum::<usize>());
    let (mut row, mut bytes, mut ids, mut side_by_side) = (0, Vec::new(), Vec::new(), Vec::new());
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
            for (to, from) in side_by_side.chunks_exact_mut(width).zip(ids.chunks_exact(part.width)) {
                to[column..column + part.width].copy_from_slice(from);
            }
            column += part.width;
        }
        take(&side_by_side)?;
        row += now;
    }
    Ok(())
}
