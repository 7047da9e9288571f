//! OGB's folders of graphs of several types: ogbn-mag, ogbl-biokg.
//!
//! ```text
//! DIR/raw/num-node-dict.csv.gz                 names of the types, then their counts
//! DIR/raw/triplet-type-list.csv.gz             a relation in each line: source,name,target
//! DIR/raw/relations/SOURCE___NAME___TARGET/edge.csv.gz, num-edge-list.csv.gz
//! DIR/raw/node-feat/TYPE/node-feat.csv.gz, node_year.csv.gz ...     where a type has them
//! DIR/raw/node-label/TYPE/node-label.csv.gz
//! DIR/split/NAME/TYPE/{train,valid,test}.csv.gz
//! ```

use std::path::{Path, PathBuf};

use gsplit_store::{Progress, Relation};

use super::csv::{CsvColumn, NumberKind, count};
use super::{find, find_optional, short_name, splits};
use crate::read::options::ReadOptions;
use crate::read::raw::Raw;
use crate::read::text::{TextStream, listed_numbers, name_of, snap, some};
use crate::read::typed::{self, RawRelation, RawType};
use crate::{Error, Result};

/// Bytes of a list of types or relations that are read at most.
const MOST: usize = 1 << 20;

/// Opens the graph in the folder `dir`, with its splits if `with_splits`.
pub fn open(
    dir: &Path,
    options: &ReadOptions,
    with_splits: bool,
    progress: &dyn Progress,
) -> Result<Raw> {
    options.schema.check_edge_columns(dir, &[])?;
    let raw = dir.join("raw");
    let [counts, triplets] = ["num-node-dict", "triplet-type-list"].map(|stem| find(&raw, stem));
    let (counts, triplets) = (counts?, triplets?);
    let mut files = vec![counts.clone(), triplets.clone()];
    let mut types = Vec::new();
    let [names, numbers] = &rows(&counts)?[..] else {
        let problem = "expected a line of types of vertices and a line of their counts";
        return Err(Error::input(&counts, problem));
    };
    for (at, name) in names.iter().enumerate() {
        let number = numbers.get(at).and_then(|number| number.parse().ok());
        let Some(count) = number.filter(|&count: &u64| count <= u32::MAX.into()) else {
            let problem = format!("type `{name}`: expected the number of its vertices below it");
            return Err(Error::line(&counts, 2, problem));
        };
        types.push(RawType { name: name.clone(), count, ..RawType::default() });
    }
    for of in &mut types {
        let mut column = |path: &Path, kind| -> Result<CsvColumn> {
            files.push(path.to_path_buf());
            CsvColumn::open(path, kind, of.count)
        };
        if let Some(path) = find_optional(&raw.join("node-label").join(&of.name), "node-label") {
            of.labels = Some(Box::new(column(&path, NumberKind::Labels)?));
        }
        let folder = raw.join("node-feat").join(&of.name);
        let mut paths = match folder.is_dir() {
            true => gsplit_store::entries(&folder).map_err(Error::io(&folder))?,
            false => Vec::new(),
        };
        paths.sort();
        for path in paths {
            let name = name_of(&path);
            let stem = name.strip_suffix(".gz").unwrap_or(&name).strip_suffix(".csv");
            match stem.and_then(|stem| short_name(stem, "node")) {
                Some("feat") => {
                    of.features = Some(Box::new(column(&path, NumberKind::Features)?));
                }
                Some(name) => {
                    let column = column(&path, NumberKind::Column)?;
                    of.columns.push(Box::new(column.named(name)));
                }
                None => {}
            }
        }
    }
    let (mut relations, mut left_out) = (Vec::new(), Vec::new());
    for (line, row) in rows(&triplets)?.into_iter().enumerate() {
        let [source, name, target] = &row[..] else {
            let problem = "expected a relation: SOURCE,NAME,TARGET";
            return Err(Error::line(&triplets, line as u64 + 1, problem));
        };
        let folder = raw.join("relations").join(row.join("___"));
        let (path, number) = (find(&folder, "edge")?, find(&folder, "num-edge-list")?);
        let edges = snap::open_counted(&path, count(&number, u64::MAX, progress)?, &[])?;
        let tables = gsplit_store::entries(&folder).map_err(Error::io(&folder))?;
        let others = tables.into_iter().filter(|table| *table != path && *table != number);
        left_out.extend(others.map(|table| table.display().to_string()));
        files.extend([path.clone(), number]);
        let [source, name, target] = [source, name, target].map(String::clone);
        let relation = Relation { source, name, target };
        relations.push(RawRelation::of(relation, edges, path, options.edges.symmetrise));
    }
    if !left_out.is_empty() {
        left_out.sort();
        progress.note(&format!("note: numbers of edges are not read: {}", some(&left_out)));
    }
    let split = options.schema.split_name.as_deref();
    let folder = splits::choose(&dir.join("split"), split);
    let folder = if with_splits { folder? } else { None };
    if let Some(links) =
        folder.as_ref().map(|folder| folder.join("train.pt")).filter(|of| of.exists())
    {
        let problem = "a split of the links of a graph of several types, which gsplit does not \
                       read yet: pass --random-split to convert the graph without it";
        return Err(Error::input(&links, problem));
    }
    for of in &mut types {
        let Some(folder) =
            folder.as_ref().map(|folder| folder.join(&of.name)).filter(|of| of.is_dir())
        else {
            continue;
        };
        let found = splits::files(&folder)?;
        let mut lists = <[Vec<u64>; 3]>::default();
        for (list, file) in lists.iter_mut().zip(&found) {
            *list = listed_numbers(file, u32::MAX.into(), progress)?;
        }
        of.splits = Some((folder, lists));
        files.extend::<Vec<PathBuf>>(found.into());
    }
    typed::of(dir, types, relations, options.edges, files)
}

/// The cells of the lines of a short table.
fn rows(path: &Path) -> Result<Vec<Vec<String>>> {
    let text = TextStream::open(path)?.head(MOST)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.map(|line| line.split(',').map(|cell| cell.trim().to_string()).collect()).collect())
}
