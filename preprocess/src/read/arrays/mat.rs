//! A graph in a MATLAB file, as sets of graphs for GNNs come: an adjacency matrix, features and labels.
//!
//! | what | names, in any case | what it is |
//! | --- | --- | --- |
//! | edges | `network`, `net`, `adj`, `adjacency`, `adj_matrix`, `A`, `W`, `graph`; else the only square sparse matrix | entry (u, v) is an edge u -> v; sparse values become the edge column `weight` unless all are one |
//! | features | `attributes`, `attrb`, `attr`, `features`, `feature`, `feat`, `fea`, `X` | a row for each vertex, sparse or not |
//! | labels | `label`, `labels`, `gnd`, `group`, `class`, `Y` | a number for each vertex, or a row of zeros and ones |
//! | splits | `train_mask`, `val_mask`, `test_mask`, and the other names of masks | as in [`catalog`] |
//!
//! A field of a struct has the name of the field: `Problem.A` of SuiteSparse. MATLAB counts from 1: labels without a 0 are numbered in
//! ascending order, and the numbers become the names of the classes. Rows with at most one 1 are a class each. What is not read is said.
//!
//! Edges of a sparse matrix are streamed. Features and labels lie column by column in the file, and are held in memory: 4 bytes a
//! number, and up to 24 while they are read.

mod variables;

use std::collections::BTreeMap;
use std::path::Path;

use gsplit_store::Progress;

use super::catalog::{self, Catalog};
use super::edges::{ArrayEdges, all_ones};
use super::held::{Classes, Entry, Listed, Matrix};
use super::numbers::Numbers;
use super::sparse::floats;
use crate::memory::Memory;
use crate::read::options::ArrayOptions;
use crate::read::raw::{Column, Ids, Raw};
use crate::{Error, Result};
use variables::{Content, Variable, is_matlab, variables};

const NETWORKS: [&str; 8] = ["network", "net", "adj", "adjacency", "adj_matrix", "a", "w", "graph"];
const FEATURES: [&str; 8] = ["attributes", "attrb", "attr", "features", "feature", "feat", "fea", "x"];
const LABELS: [&str; 6] = ["label", "labels", "gnd", "group", "class", "y"];
/// Bound of the whole numbers that f32 tells from each other.
const EXACT: f32 = 16_777_216.0;
/// Most columns of features.
const MAX_WIDTH: u64 = 1 << 24;

/// Whether `path` is a file of MATLAB.
pub fn recognises(path: &Path, head: &[u8]) -> bool {
    let named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("mat"));
    is_matlab(head) || (named && !head.is_empty())
}

/// Opens the file at `path`.
pub fn open(path: &Path, options: &ArrayOptions<'_>, progress: &dyn Progress) -> Result<Raw> {
    let budget = options.memory;
    let mut all = Variables { path, left: variables(path)? };
    let network = all.network()?;
    let n = network.shape[0];
    let mut raw = match network.content {
        Content::Sparse(arrays) => {
            let [rows, ends, values] = *arrays;
            let mut edges = ArrayEdges::compressed(ends, rows, false)?;
            if options.columns.keeps("weight") && !all_ones(&values)? {
                edges = edges.with_values("weight", values)?;
            }
            Raw::of(edges, Ids::Dense(Some(n)), vec![path.to_path_buf()])
        }
        _ => {
            let (entries, name) = (entries(&network, budget)?, &network.name);
            if entries.iter().any(|&(.., value)| value != 1.0) {
                progress.note(&format!(
                    "note: {}: the weights in {name} are not read; write it as a sparse matrix, sparse({name})",
                    path.display()
                ));
            }
            let ends = |end: fn(&Entry) -> u32| entries.iter().map(|entry| u64::from(end(entry))).collect();
            let edges = Listed::new(ends(|entry| entry.0), ends(|entry| entry.1));
            Raw::of(edges, Ids::Dense(Some(n)), vec![path.to_path_buf()])
        }
    };
    options.columns.check(path, raw.edges.columns())?;
    // Ends of rows, classes and their names.
    budget.check(path, format!("what is held of {n} vertices"), 48 * n)?;
    if let Some(features) = all.take(&FEATURES) {
        raw.features = Some(Box::new(matrix(path, &features, n, budget)?));
    }
    if let Some(labels) = all.take(&LABELS) {
        (raw.labels, raw.class_names) = classes(path, &labels, n, budget, progress)?;
    }
    raw.splits = all.masks(n, options, progress)?;
    let left: Vec<&str> = all
        .left
        .iter()
        .filter(|left| !matches!(left.content, Content::Other("a struct")))
        .map(|left| &*left.name)
        .collect();
    if !left.is_empty() {
        progress.note(&format!("note: {}: not read: {}", path.display(), left.join(", ")));
    }
    Ok(raw)
}

/// Variables that are not read yet.
struct Variables<'a> {
    path: &'a Path,
    left: Vec<Variable>,
}

/// The name of a variable, or of a field, in lower case.
fn plain(variable: &Variable) -> String {
    variable.name.rsplit('.').next().unwrap_or_default().to_lowercase()
}

/// Description for messages.
fn described(variable: &Variable) -> String {
    let shape = variable.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
    let what = match &variable.content {
        Content::Dense(_) => "numbers",
        Content::Sparse(_) => "sparse",
        Content::Other(what) => what,
    };
    format!("{} ({shape}, {what})", variable.name)
}

impl Variables<'_> {
    /// The first matrix that has one of the `names`.
    fn take(&mut self, names: &[&str]) -> Option<Variable> {
        let fits =
            |variable: &Variable, name: &str| plain(variable) == name && !matches!(variable.content, Content::Other(_));
        let at = names.iter().find_map(|name| self.left.iter().position(|variable| fits(variable, name)))?;
        Some(self.left.remove(at))
    }

    /// The adjacency matrix.
    fn network(&mut self) -> Result<Variable> {
        let is_square =
            |variable: &Variable| matches!(variable.shape[..], [rows, columns] if rows == columns && rows > 1);
        let named = |name: &&str| {
            let fits = |found: &Variable| {
                plain(found) == **name && is_square(found) && !matches!(found.content, Content::Other(_))
            };
            self.left.iter().position(fits)
        };
        let is_sparse = |found: &Variable| is_square(found) && matches!(found.content, Content::Sparse(_));
        let squares = self.left.iter().filter(|found| is_sparse(found)).count();
        let only = || self.left.iter().position(is_sparse).filter(|_| squares == 1);
        match NETWORKS.iter().find_map(named).or_else(only) {
            Some(at) => Ok(self.left.remove(at)),
            None => {
                let found = self.left.iter().map(described).collect::<Vec<_>>().join(", ");
                let problem = "expected a square adjacency matrix called network, adj or A, or one alone that is square and sparse";
                Err(Error::input(
                    self.path,
                    format!("{problem}; found {}", if found.is_empty() { "nothing" } else { &found }),
                ))
            }
        }
    }

    /// The splits that masks make.
    fn masks(&mut self, n: u64, options: &ArrayOptions<'_>, progress: &dyn Progress) -> Result<Option<[Vec<u64>; 3]>> {
        let mut masks = BTreeMap::new();
        let (found, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.left)
            .into_iter()
            .partition(|found| catalog::is_mask(&plain(found)) && matches!(found.content, Content::Dense(_)));
        self.left = left;
        for variable in found {
            let name = plain(&variable);
            if let Content::Dense(numbers) = variable.content {
                masks.insert(name, numbers);
            }
        }
        Catalog::Named(self.path.to_path_buf(), masks).splits(Some(n), 0, options.split, options.memory, progress)
    }
}

fn integers(numbers: &Numbers, budget: Memory) -> Result<Vec<u64>> {
    numbers.check(budget, 16)?;
    let (mut bytes, mut ids) = (Vec::new(), Vec::new());
    numbers.read_next(&mut *numbers.reader(0)?, numbers.len(), &mut bytes)?;
    let decoded = numbers.dtype().ids(&bytes, &mut ids);
    decoded.map_err(|(at, problem)| numbers.error(format!("entry {at}: {problem}")))?;
    Ok(ids)
}

/// The entries of a matrix that are not zero, column by column.
fn entries(variable: &Variable, budget: Memory) -> Result<Vec<Entry>> {
    let rows = variable.shape.first().copied().unwrap_or(0);
    match &variable.content {
        Content::Dense(numbers) => {
            numbers.check(budget, 20 + 2 * size_of::<Entry>() as u64)?;
            let cells = floats(numbers, budget)?.into_iter().enumerate().filter(|&(_, value)| value != 0.0);
            let rows = rows.max(1) as usize;
            Ok(cells.map(|(at, value)| ((at % rows) as u32, (at / rows) as u32, value)).collect())
        }
        Content::Sparse(arrays) => {
            let [places, ends, values] = &**arrays;
            values.check(budget, 36 + size_of::<Entry>() as u64)?;
            let (bounds, places, values) =
                (integers(ends, budget)?, integers(places, budget)?, floats(values, budget)?);
            let mut all = Vec::with_capacity(values.len());
            for (column, bound) in bounds.windows(2).enumerate() {
                let range = bound[0] as usize..bound[1] as usize;
                let of_column = places.get(range.clone()).zip(values.get(range));
                let damaged = || ends.error(format!("column {column}: entries {bound:?} of {}: damaged", places.len()));
                let (places, values) = of_column.ok_or_else(damaged)?;
                for (&row, &value) in places.iter().zip(values) {
                    if row >= rows {
                        return Err(
                            ends.error(format!("column {column}: row {row}, expected rows below {rows}: damaged"))
                        );
                    }
                    all.push((row as u32, column as u32, value));
                }
            }
            Ok(all)
        }
        Content::Other(_) => Ok(Vec::new()),
    }
}

/// `variable` as a row for each of `n` vertices.
fn matrix(path: &Path, variable: &Variable, n: u64, budget: Memory) -> Result<Matrix> {
    let (rows, width) = match variable.shape[..] {
        [rows, width] if rows == n && (1..=MAX_WIDTH).contains(&width) => (rows as usize, width as usize),
        _ => {
            let found = described(variable);
            return Err(Error::input(
                path,
                format!("{found}: expected a row for each of {n} vertices, of 1 to {MAX_WIDTH} numbers"),
            ));
        }
    };
    match &variable.content {
        Content::Dense(numbers) => {
            numbers.check(budget, 24)?;
            Ok(Matrix::dense((path, "features"), rows, width, &floats(numbers, budget)?))
        }
        _ => Ok(Matrix::sparse((path, "features"), rows, width, &entries(variable, budget)?)),
    }
}

/// A column of labels, and the names of the classes where the file numbers them otherwise.
type LabelColumn = (Option<Box<dyn Column>>, Option<Vec<String>>);

fn classes(path: &Path, variable: &Variable, n: u64, budget: Memory, progress: &dyn Progress) -> Result<LabelColumn> {
    let mut cells = entries(variable, budget)?;
    let mut shape = variable.shape.clone();
    if shape[..] == [1, n] {
        shape.reverse();
        cells.iter_mut().for_each(|cell| *cell = (cell.1, cell.0, cell.2));
    }
    let shaped = Variable { name: variable.name.clone(), shape, content: Content::Other("labels") };
    let &[rows, width] = &shaped.shape[..] else { return matrix(path, &shaped, n, budget).map(|_| (None, None)) };
    if rows != n {
        return matrix(path, &shaped, n, budget).map(|_| (None, None));
    }
    let path = path.to_path_buf();
    let name = &variable.name;
    if width > 1 {
        let mut of_row = vec![-1i64; n as usize];
        let mut single = true;
        for &(row, class, value) in &cells {
            let old = std::mem::replace(&mut of_row[row as usize], class.into());
            single &= value == 1.0 && old < 0;
        }
        if single {
            progress.note(&format!("note: {}: {name} has at most one 1 in a row, which is the class", path.display()));
            return Ok((Some(Box::new(Classes { path, labels: of_row })), None));
        }
        return Ok((Some(Box::new(Matrix::sparse((&path, "labels"), n as usize, width as usize, &cells))), None));
    }
    let mut labels = vec![0i64; n as usize];
    for &(row, _, value) in &cells {
        let whole = value as i64;
        if !value.is_nan() && (whole as f32 != value || value.abs() >= EXACT) {
            return Err(Error::input(
                &path,
                format!("{name}, row {}: {value}, expected whole numbers of classes below {EXACT}", row + 1),
            ));
        }
        labels[row as usize] = if value.is_nan() || whole < 0 { -1 } else { whole };
    }
    let mut numbers: Vec<i64> = labels.iter().copied().filter(|&label| label >= 0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.is_empty() || numbers[0] == 0 {
        return Ok((Some(Box::new(Classes { path, labels })), None));
    }
    let place = |label: &mut i64| *label = numbers.binary_search(label).map_or(-1, |at| at as i64);
    labels.iter_mut().for_each(place);
    let (first, last, most) = (numbers[0], numbers[numbers.len() - 1], numbers.len() - 1);
    progress.note(&format!(
        "note: {}: {name} counts from {first} to {last}; classes are numbered 0 to {most}, and keep these numbers as names",
        path.display()
    ));
    let names = numbers.iter().map(i64::to_string).collect();
    Ok((Some(Box::new(Classes { path, labels })), Some(names)))
}

#[cfg(test)]
mod tests;
