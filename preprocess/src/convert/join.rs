//! New vertices, joined to the graph of a dataset: what a model is to predict for.
//!
//! Returns: a dataset in which the new rows have the neighbours that they have in the joined graph.
//! Input: a table of new vertices, a table of their edges (or none), and the older dataset (or none), all by one recipe.
//! Idea: ids of the tables are matched with the original ids of the dataset. A row of the last of L layers depends on
//! vertices that are up to L edges away, and, where rows are weighed by the degrees of both ends, on the in-edges of
//! those. So vertices up to L + 1 edges before a new one are taken over from the dataset, with the in-edges of those up
//! to L. To the readers behind, what is taken over is the first part of the tables ([`Raw`]), so that ids are compacted,
//! edges merged and rows ordered as they would be of old and new tables one below the other.
//! Cost: the ids of the dataset in memory (8 to 25 bytes a vertex), a byte for each of its vertices, and 32 bytes for each
//! new edge; the rows and edges that are taken over are written once more. No other part of the dataset is read.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_store::{ColumnFile, Dataset, DatasetWriter, FeatureTable, OriginalIds, Progress};

use super::input::Input;
use super::{ConvertOptions, Decisions, plan, write};
use crate::csc::IdMap;
use crate::edges::{
    EDGES_PER_PIECE, EdgeBatch, EdgeColumn, EdgeSource, Estimate, Piece, Seen, ValueType, for_each_batch,
};
use crate::export::f32_rows;
use crate::read::options::MissingRows;
use crate::read::raw::{Column, Raw, numbers};
use crate::read::text::field::counted;
use crate::{Error, Result};

/// New vertices. The table is [`ReadOptions::nodes`](crate::read::options::ReadOptions::nodes).
pub struct NewRows<'a> {
    /// Table of their edges, among one another and with those of `older`.
    pub edges: Option<&'a Path>,
    /// The graph that they are joined to.
    pub older: Option<Older<'a>>,
}

/// A graph that new vertices are joined to.
#[derive(Clone, Copy)]
pub struct Older<'a> {
    /// The dataset.
    pub dataset: &'a Dataset,
    /// Layers of the model that reads the joined graph; `None` where it reads all of it.
    pub layers: Option<usize>,
    /// Edge columns that the model reads.
    pub edge_columns: &'a [&'a str],
}

/// Converts `new` into a dataset at `out`, by the recipe that `options` name. Returns it with the vertices of the table, ascending.
///
/// # Errors
/// As [`convert`](super::convert); [`Error::Input`] for an id that neither the table nor the dataset has, and for a row whose id both have,
/// unless the options say what to do.
pub fn join(
    new: &NewRows<'_>,
    out: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<(Dataset, Vec<u32>)> {
    let progress = &Decisions { shown: progress, lines: Mutex::default() };
    let input = Input::of_rows(new, options, progress)?;
    let mut provenance = input.provenance(&input.options)?;
    plan::of(&input, out, &input.options)?.check(|_| false)?;
    let mut writer = DatasetWriter::begin(out, false)?;
    write(&input, &input.options, &mut writer, &mut provenance, progress)?;
    let vertices = new_vertices(&input.raw, &IdMap::of(&writer)?)?;
    Ok((writer.finish(provenance)?, vertices))
}

/// The vertices of the rows of the new table, ascending.
fn new_vertices(raw: &Raw, ids: &IdMap) -> Result<Vec<u32>> {
    let (mut row, mut vertices) = (0u64, Vec::new());
    if let Some(table) = &raw.node_ids {
        for_each_batch(table.as_ref(), |batch| {
            let is_new = batch.sources.iter().zip(row..).filter(|(_, row)| *row >= raw.rows_taken_over);
            vertices.extend(is_new.filter_map(|(&id, _)| ids.find(id)));
            row += batch.len() as u64;
            Ok(())
        })?;
    }
    vertices.sort_unstable();
    vertices.dedup();
    Ok(vertices)
}

impl Older<'_> {
    /// `raw`, whose edges are in the file at `edges`, joined to the dataset. Reverses of its edges are added if `symmetrise`.
    pub fn join(
        self,
        raw: Raw,
        edges: &Path,
        options: &ConvertOptions,
        symmetrise: bool,
        progress: &dyn Progress,
    ) -> Result<Raw> {
        let Some(table) = raw.node_ids else { return Ok(raw) };
        let name = self.dataset.path().display();
        let manifest = self.dataset.manifest();
        let width = raw.features.as_ref().map_or(0, |features| features.width());
        if manifest.features.as_ref().is_none_or(|features| features.dim as usize != width) {
            let problem = format!("--with {name}: expected features of {width} values, as those of the recipe");
            return Err(Error::Option(problem));
        }
        if self.dataset.kinds()?.are_two() || manifest.shard.is_some() {
            let problem = "is a shard, or has vertices of two kinds: expected a whole graph of one kind";
            return Err(Error::Option(format!("--with {name}: {problem}")));
        }
        let ids = IdMap::stored(self.dataset)?;
        let new = Listed::of(table.as_ref())?;
        new.check_old(&ids, table.as_ref(), raw.files.last(), (self.dataset, options))?;
        let columns = self.columns(edges, raw.edges.columns())?;
        let mut among = NewEdges::read(raw.edges.as_ref(), &columns, symmetrise, progress)?;
        among.check_ends(&new, &ids, edges, (self.dataset, options), raw.edges.as_ref(), progress)?;
        let reached = self.reached(&new, &ids, &among)?;
        let kept: Vec<u32> = (0..).zip(&reached.distance).filter(|(_, far)| **far != FAR).map(|(v, _)| v).collect();
        among.keep(|target| match ids.find(target) {
            Some(v) => reached.is_expanded(v),
            None => reached.others.contains(&target),
        });
        let expanded: Vec<u32> = kept.iter().copied().filter(|&v| reached.is_expanded(v)).collect();
        let (old_ids, names) = self.ids_of(&kept)?;
        let of_edges = JoinedEdges {
            has_string_ids: names.is_some(),
            stored: StoredEdges::open(self.dataset, expanded, (kept.clone(), old_ids.clone()), &columns)?,
            among,
            columns,
            next: Mutex::default(),
            done: AtomicU64::new(0),
        };
        progress.decide(&format!(
            "joined to {name}: the model reads {} of its {} vertices, and {}, for {}",
            kept.len(),
            self.dataset.num_vertices(),
            counted(of_edges.stored.count, "edge"),
            counted(new.ids.len() as u64, "new row")
        ));
        let rows = kept.len() as u64;
        let features = self.dataset.features()?;
        let before = |before: Before, column: Box<dyn Column>| -> Box<dyn Column> {
            Box::new(JoinedColumn { rows, before, column })
        };
        Ok(Raw {
            features: raw.features.map(|column| before(Before::Features(features, kept), column)),
            labels: raw.labels.map(|column| before(Before::Nothing, column)),
            edges: Box::new(of_edges),
            node_ids: Some(Box::new(JoinedIds { old: (old_ids, names), new, table, next: Mutex::default() })),
            rows_taken_over: rows,
            ..raw
        })
    }

    /// The edge columns of the joined graph: those that the model reads, in a type that holds the values of both.
    fn columns(self, edges: &Path, of_new: &[EdgeColumn]) -> Result<Vec<EdgeColumn>> {
        let column = |&name: &&str| {
            let old = self.dataset.edge_column(name)?;
            let value = match old.descr() {
                "<f4" => ValueType::F32,
                "<i8" => ValueType::I64,
                _ => ValueType::F64,
            };
            let Some(new) = of_new.iter().find(|column| column.name == name && column.width == old.width()) else {
                let problem = format!("has no column `{name}` of numbers, by which the model weighs edges");
                return Err(Error::input(edges, problem));
            };
            let value = if new.value == value { value } else { ValueType::F64 };
            Ok(EdgeColumn { name: name.into(), value, width: new.width })
        };
        self.edge_columns.iter().map(column).collect()
    }

    /// The original ids of the vertices `kept`, and their strings where they are hashes.
    fn ids_of(self, kept: &[u32]) -> Result<(Vec<u64>, Option<Vec<String>>)> {
        let names = self.dataset.original_names()?;
        let names = names.map(|names| kept.iter().map(|&v| Ok(names.get(v)?.to_string())).collect::<Result<Vec<_>>>());
        let names = names.transpose()?;
        let ids = match &names {
            Some(names) => names.iter().map(|name| xxhash_rust::xxh3::xxh3_64(name.as_bytes())).collect(),
            None => {
                let ids = self.dataset.original_ids()?;
                let id = |&v: &u32| ids.as_ref().map_or(u64::from(v), |ids: &OriginalIds| ids.get(v as usize));
                kept.iter().map(id).collect()
            }
        };
        Ok((ids, names))
    }

    /// The vertices within reach of the new ones, against the direction of the edges.
    fn reached(self, new: &Listed, ids: &IdMap, among: &NewEdges) -> Result<Reached> {
        let most = self.layers.map_or(FAR - 1, |layers| u8::try_from(layers + 1).unwrap_or(FAR - 1).min(FAR - 1));
        let all = if self.layers.is_none() { 0 } else { FAR };
        let mut reached = Reached { distance: vec![all; self.dataset.num_vertices()], others: HashSet::new(), most };
        let by_target = among.by_target();
        let topology = self.dataset.topology();
        let (mut front, mut next): (Vec<u64>, Vec<u64>) = (new.ids.clone(), Vec::new());
        for &id in &front {
            if let Some(v) = ids.find(id) {
                reached.distance[v as usize] = 0;
            }
        }
        reached.others.extend(front.iter().filter(|&&id| ids.find(id).is_none()));
        for far in 1..=most {
            for &id in &front {
                let from = by_target.partition_point(|&(target, _)| target < id);
                for &(_, source) in by_target[from..].iter().take_while(|&&(target, _)| target == id) {
                    let is_first = match ids.find(source) {
                        Some(v) => reached.reach(v, far),
                        None => reached.others.insert(source),
                    };
                    next.extend(is_first.then_some(source));
                }
                // Only vertices of the dataset have in-edges there.
                if let Some(v) = ids.find(id) {
                    let [start, end] = [v, v + 1].map(|v| topology.indptr()[v as usize] as usize);
                    for &u in &topology.indices()[start..end] {
                        if reached.reach(u, far) {
                            next.push(ids.id_of(u)?);
                        }
                    }
                }
            }
            front.clear();
            std::mem::swap(&mut front, &mut next);
        }
        Ok(reached)
    }
}

/// Distance of a vertex that is not within reach.
const FAR: u8 = u8::MAX;

/// Vertices within reach of the new ones.
struct Reached {
    /// Edges to a new one, of each vertex of the dataset.
    distance: Vec<u8>,
    /// Ids that the dataset does not have.
    others: HashSet<u64>,
    /// Largest distance.
    most: u8,
}

impl Reached {
    /// Marks `v` as `far` away; says whether it is reached for the first time.
    fn reach(&mut self, v: u32, far: u8) -> bool {
        let distance = &mut self.distance[v as usize];
        let is_first = *distance == FAR;
        *distance = far.min(*distance);
        is_first
    }

    /// Whether the in-edges of `v` are wanted.
    fn is_expanded(&self, v: u32) -> bool {
        self.distance[v as usize] < self.most
    }
}

/// The ids of a table, row by row.
struct Listed {
    ids: Vec<u64>,
    names: Vec<(u64, String)>,
}

impl Listed {
    fn of(table: &dyn EdgeSource) -> Result<Self> {
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for_each_batch(table, |batch| {
            ids.extend_from_slice(&batch.sources);
            names.extend_from_slice(&batch.names);
            Ok(())
        })?;
        Ok(Self { ids, names })
    }

    /// Refuses rows of vertices that the dataset has, unless the options say which row counts.
    fn check_old(
        &self,
        old: &IdMap,
        table: &dyn EdgeSource,
        path: Option<&std::path::PathBuf>,
        (dataset, options): (&Dataset, &ConvertOptions),
    ) -> Result<()> {
        if options.read.node_table.on_duplicate.is_some() {
            return Ok(());
        }
        let mut both = self.ids.iter().zip(0u64..).filter_map(|(&id, row)| Some((old.find(id)?, row)));
        let Some((v, row)) = both.next() else { return Ok(()) };
        let (more, name) = (1 + both.count() as u64, dataset.path().display());
        let problem = format!(
            "{} for vertices that {name} has too, e.g. {}, vertex {}: pass --on-duplicate last to take the rows of the table, or first for \
             those of the dataset",
            counted(more, "row"),
            table.place(row),
            old.original(v)
        );
        Err(Error::input(path.map_or(Path::new(""), |path| path.as_path()), problem))
    }
}

/// The edges of the new table, in its order, each followed by its reverse where reverses are added.
#[derive(Default)]
struct NewEdges {
    ends: Vec<(u64, u64)>,
    values: Vec<u8>,
    names: HashMap<u64, String>,
    row_bytes: usize,
}

impl NewEdges {
    fn read(
        source: &dyn EdgeSource,
        columns: &[EdgeColumn],
        symmetrise: bool,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut edges = Self { row_bytes: crate::edges::row_bytes(columns), ..Self::default() };
        let places = Places::of(source.columns(), columns);
        let mut take = |batch: &EdgeBatch| {
            edges.names.extend(batch.names.iter().cloned());
            let rows = batch.values.chunks_exact(places.row_bytes.max(1)).map(Some).chain(std::iter::repeat(None));
            for ((&source, &target), row) in batch.sources.iter().zip(&batch.targets).zip(rows) {
                let again = symmetrise && source != target;
                for ends in [(source, target), (target, source)].into_iter().take(1 + usize::from(again)) {
                    edges.ends.push(ends);
                    places.convert(row.unwrap_or_default(), &mut edges.values);
                }
            }
            Ok(())
        };
        let (mut seen, mut ids) = (Seen::default(), HashSet::new());
        for_each_batch(source, |batch| {
            seen.edges += batch.len() as u64;
            ids.extend(batch.sources.iter().chain(&batch.targets));
            take(batch)
        })?;
        seen.largest = ids.iter().max().copied();
        seen.distinct = Some(ids.len() as u64);
        seen.has_zero = ids.contains(&0);
        let ending = source.finish(&seen)?;
        take(&ending.first)?;
        ending.decisions.iter().for_each(|line| progress.decide(line));
        Ok(edges)
    }

    /// Refuses ends that neither the table nor the dataset has, unless the options say what becomes of them.
    fn check_ends(
        &mut self,
        new: &Listed,
        old: &IdMap,
        path: &Path,
        (dataset, options): (&Dataset, &ConvertOptions),
        source: &dyn EdgeSource,
        progress: &dyn Progress,
    ) -> Result<()> {
        let listed: HashSet<u64> = new.ids.iter().copied().collect();
        let is_known = |id: u64| listed.contains(&id) || old.find(id).is_some();
        match options.read.node_table.missing_rows {
            Some(MissingRows::Fill) => {}
            Some(MissingRows::Drop) => {
                let before = self.ends.len();
                self.keep_edges(|(source, target)| is_known(source) && is_known(target));
                let dropped = (before - self.ends.len()) as u64;
                if dropped > 0 {
                    progress.decide(&format!("{} dropped, at vertices without a row", counted(dropped, "edge")));
                }
            }
            None => {
                let unknown = |&(source, target): &(u64, u64)| [source, target].into_iter().find(|&id| !is_known(id));
                if let Some(id) = self.ends.iter().find_map(unknown) {
                    let name = self.names.get(&id).map_or(id.to_string(), |name| format!("`{name}`"));
                    let mut row = None;
                    let mut before = 0;
                    for_each_batch(source, |batch| {
                        let at = batch.sources.iter().zip(&batch.targets).position(|(&u, &v)| u == id || v == id);
                        row = row.or(at.map(|at| before + at as u64));
                        before += batch.len() as u64;
                        Ok(())
                    })?;
                    let place = row.map_or(String::new(), |row| format!("{}: ", source.place(row)));
                    let problem = format!(
                        "{place}vertex {name} is neither in the table of new vertices nor in {}: add its row, or pass --missing-rows drop to \
                         leave out such edges, or fill for a row of missing values",
                        dataset.path().display()
                    );
                    return Err(Error::input(path, problem));
                }
            }
        }
        Ok(())
    }

    /// Keeps the edges to targets that `wants`.
    fn keep(&mut self, wants: impl Fn(u64) -> bool) {
        self.keep_edges(|(_, target)| wants(target));
    }

    fn keep_edges(&mut self, keeps: impl Fn((u64, u64)) -> bool) {
        let (bytes, mut kept) = (self.row_bytes, 0);
        for edge in 0..self.ends.len() {
            if keeps(self.ends[edge]) {
                self.ends[kept] = self.ends[edge];
                self.values.copy_within(edge * bytes..(edge + 1) * bytes, kept * bytes);
                kept += 1;
            }
        }
        self.ends.truncate(kept);
        self.values.truncate(kept * bytes);
    }

    /// Targets with their sources, ascending.
    fn by_target(&self) -> Vec<(u64, u64)> {
        let mut ends: Vec<(u64, u64)> = self.ends.iter().map(|&(source, target)| (target, source)).collect();
        ends.sort_unstable();
        ends
    }
}

/// Places of the wanted columns in the rows of a source.
struct Places {
    row_bytes: usize,
    /// First byte and type there, and the wanted type, of each number.
    numbers: Vec<(usize, ValueType, ValueType)>,
}

impl Places {
    fn of(found: &[EdgeColumn], wanted: &[EdgeColumn]) -> Self {
        let mut numbers = Vec::new();
        for wanted in wanted {
            let mut at = 0;
            for column in found {
                if column.name == wanted.name {
                    let bytes = column.value.bytes();
                    numbers.extend((0..wanted.width).map(|number| (at + number * bytes, column.value, wanted.value)));
                }
                at += column.value.bytes() * column.width;
            }
        }
        Self { row_bytes: crate::edges::row_bytes(found), numbers }
    }

    fn convert(&self, row: &[u8], out: &mut Vec<u8>) {
        for &(at, from, to) in &self.numbers {
            let bytes = &row[at..at + from.bytes()];
            match from == to {
                true => out.extend_from_slice(bytes),
                // The wider type.
                false => out.extend(numbers(descr(from), bytes).next().unwrap_or(f64::NAN).to_le_bytes()),
            }
        }
    }
}

/// NumPy's name of a type.
fn descr(value: ValueType) -> &'static str {
    match value {
        ValueType::F32 => "<f4",
        ValueType::F64 => "<f8",
        ValueType::I64 => "<i8",
    }
}

/// In-edges of some vertices of a dataset.
struct StoredEdges {
    dataset: Dataset,
    /// The vertices, ascending.
    targets: Vec<u32>,
    /// Vertices at the ends of the edges, ascending, and their ids.
    ends: (Vec<u32>, Vec<u64>),
    files: Vec<ColumnFile>,
    /// Number of the edges.
    count: u64,
}

impl StoredEdges {
    fn open(dataset: &Dataset, targets: Vec<u32>, ends: (Vec<u32>, Vec<u64>), columns: &[EdgeColumn]) -> Result<Self> {
        let files =
            columns.iter().map(|column| dataset.edge_column(&column.name)).collect::<gsplit_store::Result<_>>()?;
        dataset.topology().check_indices()?;
        let count = targets.iter().map(|&v| degree(dataset, v)).sum();
        Ok(Self { dataset: dataset.clone(), targets, ends, files, count })
    }

    fn id(&self, v: u32) -> Result<u64> {
        let at = self.ends.0.binary_search(&v);
        at.map(|at| self.ends.1[at])
            .map_err(|_| Error::Graph("the dataset changed while it was read: run it again".into()))
    }

    /// Appends the in-edges of the targets `range`, counted among all.
    fn parse(&self, range: std::ops::Range<usize>, columns: &[EdgeColumn], batch: &mut EdgeBatch) -> Result<()> {
        let topology = self.dataset.topology();
        for &v in &self.targets[range] {
            let [start, end] = [v, v + 1].map(|v| topology.indptr()[v as usize] as usize);
            for edge in start..end {
                batch.push(self.id(topology.indices()[edge])?, self.id(v)?);
                for (file, column) in self.files.iter().zip(columns) {
                    let bytes = file.bytes().len() / file.rows().max(1);
                    let row = &file.bytes()[edge * bytes..(edge + 1) * bytes];
                    match file.descr() == descr(column.value) {
                        true => batch.values.extend_from_slice(row),
                        false => {
                            numbers(file.descr(), row).for_each(|number| batch.values.extend(number.to_le_bytes()))
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn degree(dataset: &Dataset, v: u32) -> u64 {
    let indptr = dataset.topology().indptr();
    indptr[v as usize + 1] - indptr[v as usize]
}

/// Edges of a dataset, then those of a new table.
struct JoinedEdges {
    has_string_ids: bool,
    stored: StoredEdges,
    among: NewEdges,
    columns: Vec<EdgeColumn>,
    /// Place behind the pieces handed out: among the targets of the former, then the edges of the latter.
    next: Mutex<u64>,
    done: AtomicU64,
}

impl JoinedEdges {
    fn len(&self) -> u64 {
        (self.stored.targets.len() + self.among.ends.len()) as u64
    }
}

impl EdgeSource for JoinedEdges {
    fn rewind(&self) -> Result<()> {
        *crate::csc::lock(&self.next) = 0;
        self.done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut next = crate::csc::lock(&self.next);
        let of_stored = self.stored.targets.len() as u64;
        piece.start = *next;
        let mut edges = 0;
        while *next < self.len() && edges < EDGES_PER_PIECE as u64 && (*next != of_stored || piece.start == of_stored) {
            edges += self.stored.targets.get(*next as usize).map_or(1, |&v| degree(&self.stored.dataset, v));
            *next += 1;
        }
        piece.end = *next;
        self.done.fetch_add(edges, Relaxed);
        Ok(piece.end > piece.start)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let (of_stored, range) = (self.stored.targets.len(), piece.start as usize..piece.end as usize);
        if range.start < of_stored {
            return self.stored.parse(range, &self.columns, batch);
        }
        let range = range.start - of_stored..range.end - of_stored;
        let bytes = self.among.row_bytes;
        batch.values.extend_from_slice(&self.among.values[range.start * bytes..range.end * bytes]);
        for &(source, target) in &self.among.ends[range] {
            batch.push(source, target);
            // Those of rows come with the rows.
            let names = [source, target].map(|id| self.among.names.get(&id).map(|name| (id, name.clone())));
            batch.names.extend(names.into_iter().flatten());
        }
        Ok(())
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.has_string_ids
    }

    fn estimate(&self) -> Result<Estimate> {
        let edges = self.stored.count + self.among.ends.len() as u64;
        Ok(Estimate { edges, vertices: self.stored.ends.0.len() as u64, bytes: edges })
    }

    fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}

/// Ids of a dataset's rows, then those of a new table.
struct JoinedIds {
    old: (Vec<u64>, Option<Vec<String>>),
    new: Listed,
    table: Box<dyn EdgeSource>,
    next: Mutex<bool>,
}

impl EdgeSource for JoinedIds {
    fn rewind(&self) -> Result<()> {
        *crate::csc::lock(&self.next) = false;
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        piece.start = 0;
        Ok(!std::mem::replace(&mut *crate::csc::lock(&self.next), true))
    }

    fn parse(&self, _piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        batch.sources.extend(self.old.0.iter().chain(&self.new.ids));
        let old = self.old.1.iter().flatten().zip(&self.old.0).map(|(name, &id)| (id, name.clone()));
        batch.names.extend(old.chain(self.new.names.iter().cloned()));
        Ok(())
    }

    fn has_string_ids(&self) -> bool {
        self.table.has_string_ids()
    }

    fn place(&self, number: u64) -> String {
        self.table.place(number.saturating_sub(self.old.0.len() as u64))
    }

    fn estimate(&self) -> Result<Estimate> {
        self.table.estimate()
    }

    fn bytes_done(&self) -> u64 {
        self.table.bytes_done()
    }
}

/// Rows that come before those of a column.
enum Before {
    /// Features of these vertices.
    Features(FeatureTable, Vec<u32>),
    /// Missing values.
    Nothing,
}

/// A column of a new table behind rows of a dataset.
struct JoinedColumn {
    rows: u64,
    before: Before,
    column: Box<dyn Column>,
}

/// Rows that are handed over at once.
const ROWS: usize = 1 << 12;

impl JoinedColumn {
    /// `bytes` of the column in the type of the joined one.
    fn converted<'b>(&self, bytes: &'b [u8], room: &'b mut Vec<u8>) -> &'b [u8] {
        if self.descr() == self.column.descr() {
            return bytes;
        }
        room.clear();
        room.extend(numbers(self.column.descr(), bytes).flat_map(|number| (number as f32).to_le_bytes()));
        room
    }
}

impl Column for JoinedColumn {
    fn path(&self) -> &Path {
        self.column.path()
    }

    fn name(&self) -> &str {
        self.column.name()
    }

    fn descr(&self) -> &'static str {
        match self.before {
            Before::Features(..) => "<f4",
            Before::Nothing => self.column.descr(),
        }
    }

    fn width(&self) -> usize {
        self.column.width()
    }

    fn num_rows(&self) -> Option<u64> {
        self.column.num_rows().map(|rows| rows + self.rows)
    }

    fn read(&self, progress: &dyn Progress, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match &self.before {
            Before::Features(table, kept) => {
                for some in kept.chunks(ROWS) {
                    let rows = f32_rows(table, some.iter().copied());
                    take(bytemuck::cast_slice(&rows))?;
                }
            }
            Before::Nothing => {
                let row = self.missing_row()?;
                for start in (0..self.rows).step_by(ROWS) {
                    take(&row.repeat(ROWS.min((self.rows - start) as usize)))?;
                }
            }
        }
        let mut room = Vec::new();
        self.column.read(progress, &mut |bytes| take(self.converted(bytes, &mut room)))
    }

    fn missing_row(&self) -> Result<Vec<u8>> {
        let row = self.column.missing_row()?;
        Ok(self.converted(&row, &mut Vec::new()).to_vec())
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        self.column.error(row.saturating_sub(self.rows), column, problem)
    }
}
