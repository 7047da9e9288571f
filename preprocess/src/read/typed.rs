//! A raw graph of several types of vertices: the edges of all relations, as one list.
//!
//! The targets of the list are rows: a vertex has one for each relation into its type
//! ([`gsplit_store::GraphTypes`]), so the CSC build groups in-edges by relation without knowing of
//! them. Sources are vertices. `--symmetrise` adds the reverses of a relation between two types as
//! a relation of its own, called `rev_NAME`; the reverses of a relation within one type are edges
//! of that relation.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use gsplit_store::{GraphTypes, Progress, Relation, RowsOfType, Split, VertexType};

use super::raw::{Column, Ids, Raw, describe_column, numbers};
use crate::edges::{BuildOptions, EdgeBatch, EdgeSource, Ending, Estimate, Piece, Seen};
use crate::{Error, Result};

/// A type of vertices in the input. Its vertices count from 0.
#[derive(Default)]
pub struct RawType {
    /// Its name.
    pub name: String,
    /// Number of vertices.
    pub count: u64,
    /// Feature rows.
    pub features: Option<Box<dyn Column>>,
    /// Labels.
    pub labels: Option<Box<dyn Column>>,
    /// Further numbers of every vertex.
    pub columns: Vec<Box<dyn Column>>,
    /// Training, validation and test vertices, and the file or folder that lists them.
    pub splits: Option<(PathBuf, [Vec<u64>; 3])>,
}

/// A relation in the input. Ids of its edges count the vertices of their types from 0.
pub struct RawRelation {
    /// Its types and its name.
    pub relation: Relation,
    /// The relation of the reverses of its edges, which are added.
    pub reverse: Option<Relation>,
    /// The edges, without values.
    pub edges: Box<dyn EdgeSource>,
    /// The file, for messages.
    pub path: PathBuf,
}

impl RawRelation {
    /// The `edges` of `relation`, read from `path`; if it `adds_reverses`, also their reverses: in
    /// a relation of their own, or in the same one if it is within one type.
    pub fn of(
        relation: Relation,
        edges: impl EdgeSource + 'static,
        path: PathBuf,
        adds_reverses: bool,
    ) -> Self {
        let reverse = adds_reverses.then(|| match relation.source == relation.target {
            true => relation.clone(),
            false => reverse(&relation),
        });
        Self { relation, reverse, edges: Box::new(edges), path }
    }
}

/// Types of vertices, and the feature rows of each.
pub struct RawTypes {
    /// Types and relations, with the relations of reverses.
    pub types: GraphTypes,
    /// In the order of the types.
    pub features: Vec<Option<Box<dyn Column>>>,
    /// Number of vertices of types without labels.
    pub without_labels: u64,
}

/// The graph of these types and relations, read from `files`. `path` names it in messages.
pub fn of(
    path: &Path,
    types: Vec<RawType>,
    relations: Vec<RawRelation>,
    options: BuildOptions,
    files: Vec<PathBuf>,
) -> Result<Raw> {
    let (mut vertices, mut features, mut columns) = (Vec::new(), Vec::new(), Vec::new());
    let (mut labels, mut splits) = (None::<Box<dyn Column>>, None::<[Vec<u64>; 3]>);
    let num_vertices = types.iter().map(|of| of.count).fold(0, u64::saturating_add);
    let check_size = |of: &str, size: u64| match size > u32::MAX.into() {
        true => Err(Error::input(path, format!("{size} {of}: expected up to {}", u32::MAX))),
        false => Ok(()),
    };
    check_size("vertices", num_vertices)?;
    let (mut first, mut without_labels) = (0, num_vertices);
    for of in types {
        let RawType { name, count, .. } = of;
        let range = first..first + count;
        first = range.end;
        let among = |column, is_label| -> Box<dyn Column> {
            Box::new(OfType { column, vertices: range.clone(), num_vertices, is_label })
        };
        if let Some(column) = of.labels {
            without_labels = num_vertices - count;
            let column = among(column, true);
            if let Some(other) = &labels {
                let other = other.path().display();
                let problem = format!("labels of two types, next to {other}: keep one of them");
                return Err(Error::input(column.path(), problem));
            }
            labels = Some(column);
        }
        columns.extend(of.columns.into_iter().map(|column| among(column, false)));
        if let Some((path, lists)) = of.splits {
            check_splits(&path, &name, count, &lists)?;
            for (all, list) in splits.get_or_insert_default().iter_mut().zip(lists) {
                all.extend(list.into_iter().map(|vertex| range.start + vertex));
            }
        }
        vertices.push(VertexType { name, count, features: None });
        features.push(of.features);
    }
    columns.sort_by(|a, b| a.name().cmp(b.name()));
    if let Some([a, b]) = columns.windows(2).find(|of| of[0].name() == of[1].name()) {
        let problem = format!("a column of the same name as {}: rename one", b.path().display());
        return Err(Error::input(a.path(), problem));
    }
    let forth = relations.iter().map(|raw| &raw.relation);
    let mut all: Vec<Relation> = forth.cloned().collect();
    let is_own = |raw: &&RawRelation| raw.reverse.as_ref() != Some(&raw.relation);
    all.extend(relations.iter().filter(is_own).filter_map(|raw| raw.reverse.clone()));
    // The in-neighbours of a vertex then ascend, as far as relations have other sources.
    all.sort_by_key(|relation| vertices.iter().position(|of| of.name == relation.source));
    let types = GraphTypes { vertices, relations: all };
    types.check().map_err(|problem| Error::input(path, problem))?;
    check_size("rows, one for each vertex and relation into its type", types.num_rows())?;
    let rows = types.rows();
    let parts = relations.into_iter().map(|raw| {
        let [sources, targets] = [&raw.relation.source, &raw.relation.target]
            .map(|end| rows[types.position(end).unwrap_or_default()].vertices.clone());
        let is_within = raw.relation.source == raw.relation.target;
        let back = raw.reverse.as_ref().map(|reverse| rows_of(&types, &rows, reverse));
        let is_mixed = raw.reverse.as_ref() == Some(&raw.relation);
        RelationEdges {
            forth: rows_of(&types, &rows, &raw.relation),
            back,
            sources,
            targets,
            is_mixed,
            drops_loops: is_within && options.drop_self_loops,
            edges: raw.edges,
            path: raw.path,
            relation: raw.relation,
            seen: AtomicU64::new(0),
            changed: Default::default(),
        }
    });
    let edges = TypedEdges { parts: parts.collect(), current: AtomicUsize::new(0) };
    let ids = Ids::Rows { vertices: types.num_vertices(), rows: types.num_rows() };
    let types = Some(RawTypes { types, features, without_labels });
    Ok(Raw { types, labels, columns, splits, ..Raw::of(edges, ids, files) })
}

/// Fails unless the `lists` in the file or folder `path` name vertices of a type, each one once.
fn check_splits(path: &Path, name: &str, count: u64, lists: &[Vec<u64>; 3]) -> Result<()> {
    let lists = Split::ALL.iter().zip(lists);
    let mut all: Vec<_> =
        lists.flat_map(|(split, list)| list.iter().map(|&vertex| (vertex, split.name()))).collect();
    if let Some((vertex, split)) = all.iter().find(|(vertex, _)| *vertex >= count) {
        let problem = format!("the {split} split names {name} {vertex}, there are {count} from 0");
        return Err(Error::input(path, problem));
    }
    all.sort_unstable();
    if let Some([(vertex, a), (_, b)]) = all.windows(2).find(|of| of[0].0 == of[1].0) {
        let problem = format!("{name} {vertex} is in the {a} split and in {b}: list it once");
        return Err(Error::input(path, problem));
    }
    Ok(())
}

/// The relation of the reverses of the edges of `relation`, which is between two types.
pub fn reverse(relation: &Relation) -> Relation {
    Relation {
        source: relation.target.clone(),
        name: format!("rev_{}", relation.name),
        target: relation.source.clone(),
    }
}

/// The rows of `relation`, of `types` with these `rows`.
fn rows_of(types: &GraphTypes, rows: &[RowsOfType], relation: &Relation) -> RowStride {
    let at = types.position(&relation.target).unwrap_or_default();
    let place = types.into_type(at).iter().position(|&at| types.relations[at] == *relation);
    RowStride { first: rows[at].first + place.unwrap_or_default() as u64, step: rows[at].relations }
}

/// Rows of one relation: the rows of two consecutive vertices are `step` apart.
struct RowStride {
    first: u64,
    step: u64,
}

/// The edges of a relation.
struct RelationEdges {
    relation: Relation,
    edges: Box<dyn EdgeSource>,
    path: PathBuf,
    sources: Range<u64>,
    targets: Range<u64>,
    forth: RowStride,
    /// The rows of the reverses, if they are added.
    back: Option<RowStride>,
    /// Whether these are the same rows.
    is_mixed: bool,
    drops_loops: bool,
    /// Edges read so far.
    seen: AtomicU64,
    /// Reverses added and self-loops dropped so far.
    changed: [AtomicU64; 2],
}

impl RelationEdges {
    /// Replaces the ids of the relation in `batch` by vertices and rows of the graph.
    fn place(&self, batch: &mut EdgeBatch) -> Result<()> {
        let (sources, targets) =
            (std::mem::take(&mut batch.sources), std::mem::take(&mut batch.targets));
        self.seen.fetch_add(sources.len() as u64, Relaxed);
        let mut changed = [0; 2];
        for (source, target) in sources.into_iter().zip(targets) {
            for (id, of, name) in [
                (source, &self.sources, &self.relation.source),
                (target, &self.targets, &self.relation.target),
            ] {
                let count = of.end - of.start;
                if id >= count {
                    let relation = &self.relation;
                    let problem = format!(
                        "relation {relation}: an edge names {name} {id}, there are {count} \
                         vertices of this type, from 0"
                    );
                    return Err(Error::input(&self.path, problem));
                }
            }
            let is_loop = self.relation.source == self.relation.target && source == target;
            if is_loop && self.drops_loops {
                changed[1] += 1;
                continue;
            }
            batch.push(self.sources.start + source, self.forth.first + target * self.forth.step);
            if let Some(back) = self.back.as_ref().filter(|_| !(is_loop && self.is_mixed)) {
                batch.push(self.targets.start + target, back.first + source * back.step);
                changed[0] += 1;
            }
        }
        let counts = self.changed.iter().zip(changed);
        counts.for_each(|(count, more)| _ = count.fetch_add(more, Relaxed));
        Ok(())
    }
}

/// The edges of all relations, one relation after the other.
struct TypedEdges {
    parts: Vec<RelationEdges>,
    current: AtomicUsize,
}

impl EdgeSource for TypedEdges {
    fn rewind(&self) -> Result<()> {
        self.current.store(0, Relaxed);
        self.parts.iter().try_for_each(|part| {
            part.changed.iter().chain([&part.seen]).for_each(|count| count.store(0, Relaxed));
            part.edges.rewind()
        })
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        while let Some(part) = self.parts.get(self.current.load(Relaxed)) {
            if part.edges.next(piece)? {
                piece.part = self.current.load(Relaxed);
                return Ok(true);
            }
            self.current.fetch_add(1, Relaxed);
        }
        Ok(false)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let part = &self.parts[piece.part];
        part.edges.parse(piece, batch)?;
        part.place(batch)
    }

    fn finish(&self, _: &Seen) -> Result<Ending> {
        let mut all = Ending::default();
        for part in &self.parts {
            let edges = part.seen.load(Relaxed);
            let mut ending = part.edges.finish(&Seen { edges, ..Seen::default() })?;
            part.place(&mut ending.first)?;
            all.first.sources.extend(ending.first.sources);
            all.first.targets.extend(ending.first.targets);
            all.decisions.extend(ending.decisions);
        }
        Ok(all)
    }

    fn added_and_dropped(&self) -> [u64; 2] {
        [0, 1].map(|at| self.parts.iter().map(|part| part.changed[at].load(Relaxed)).sum())
    }

    fn estimate(&self) -> Result<Estimate> {
        let mut all = Estimate::default();
        for part in &self.parts {
            let of = part.edges.estimate()?;
            all.edges += of.edges * (1 + u64::from(part.back.is_some()));
            all.bytes += of.bytes;
            all.vertices = part.sources.end.max(part.targets.end).max(all.vertices);
        }
        Ok(all)
    }

    fn bytes_done(&self) -> u64 {
        self.parts.iter().map(|part| part.edges.bytes_done()).sum()
    }
}

/// A column of the vertices of one type among all: others have no value.
struct OfType {
    column: Box<dyn Column>,
    /// The vertices of the type.
    vertices: Range<u64>,
    /// Number of all vertices.
    num_vertices: u64,
    /// Whether the numbers are labels: doubles, since NaN marks vertices without one.
    is_label: bool,
}

impl Column for OfType {
    describe_column!(self:
        self.column.path(),
        self.column.name(),
        if self.is_label { "<f8" } else { self.column.descr() },
        self.column.width(),
        Some(self.num_vertices)
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        const AT_A_TIME: u64 = 1 << 12;
        let missing = self.missing_row()?;
        let without = |count: u64, take: &mut dyn FnMut(&[u8]) -> Result<()>| {
            (0..count)
                .step_by(AT_A_TIME as usize)
                .try_for_each(|from| take(&missing.repeat(AT_A_TIME.min(count - from) as usize)))
        };
        without(self.vertices.start, take)?;
        self.column.read(progress, &mut |bytes| match self.is_label {
            false => take(bytes),
            true => {
                let doubles = numbers(self.column.descr(), bytes).flat_map(f64::to_le_bytes);
                take(&doubles.collect::<Vec<u8>>())
            }
        })?;
        without(self.num_vertices - self.vertices.end, take)
    }

    fn error(&self, row: u64, column: usize, problem: &str) -> Error {
        self.column.error(row.saturating_sub(self.vertices.start), column, problem)
    }
}
