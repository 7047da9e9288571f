//! Joins new vertices to the graph of a dataset, so that a model can predict for them.
//!
//! Returns: a dataset in which the new rows have the neighbours that they have in the joined graph.
//! Input: a table of new vertices, a table of their edges (or none), and the older dataset (or
//! none), all by one recipe. Idea: ids of the tables are matched with the original ids of the
//! dataset. A row of the last of L layers depends on vertices up to L edges away and, where rows
//! are weighed by the degrees of both ends, on the in-edges of these vertices. So vertices up to L +
//! 1 edges before a new one are copied from the dataset, with the in-edges of the vertices up to L.
//! The later stages see the copied part as the first part of the tables ([`Raw`]), so ids are
//! compacted, edges merged and rows ordered as if the old table continued with the new one. Cost:
//! the ids of the dataset in memory (8 to 25 bytes per vertex), one byte for each of its vertices,
//! and 32 bytes per new edge; the copied rows and edges are written once more. No other part of the
//! dataset is read.

use std::collections::HashSet;
use std::path::Path;

use gsplit_store::{Dataset, DatasetWriter, Names, Progress};

use super::input::Input;
use super::{ConvertOptions, by_all_rows, plan, write};
use crate::csc::IdMap;
use crate::edges::{EdgeBatch, EdgeColumn, ValueType, for_each_batch};
use crate::read::listed::{Chained, Listed};
use crate::read::raw::{Column, Raw};
use crate::read::text::field::counted;
use crate::{Error, Result};
use sources::{JoinedColumn, StoredEdges};
use tables::{NewEdges, check_old, ids_of};

mod sources;
mod tables;

/// New vertices. Their table is [`ReadOptions::nodes`](crate::read::options::ReadOptions::nodes).
pub struct NewRows<'a> {
    /// Table of the edges among the new vertices, and between new vertices and vertices of `older`.
    pub edges: Option<&'a Path>,
    /// Edge columns that the model reads.
    pub edge_columns: &'a [String],
    /// The graph that they are joined to.
    pub older: Option<Older<'a>>,
}

/// A graph to which new vertices are joined.
#[derive(Clone, Copy)]
pub struct Older<'a> {
    /// The dataset.
    pub dataset: &'a Dataset,
    /// Layers of the model that reads the joined graph; `None` where it reads all of it.
    pub layers: Option<usize>,
}

/// Converts `new` into a dataset at `out`, by the recipe named in `options`. Returns it with the
/// vertices of the table, ascending. Fails for an id that neither the table nor the dataset has and
/// for a row whose id both have, unless the options say what to do.
pub fn join(
    new: &NewRows<'_>,
    out: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<(Dataset, Vec<u32>)> {
    by_all_rows(options, progress, |options, progress| {
        let input = Input::of_rows(new, options, progress)?;
        let mut provenance = input.provenance(&input.options)?;
        plan::of(&input, out, &input.options)?.check(|_| false)?;
        let mut writer = DatasetWriter::begin(out, false)?;
        write(&input, &input.options, &mut writer, &mut provenance, progress)?;
        let vertices = new_vertices(&input.raw, &IdMap::of(&writer)?)?;
        Ok((writer.finish(provenance)?, vertices))
    })
}

/// The vertices of the rows of the new table, ascending.
fn new_vertices(raw: &Raw, ids: &IdMap) -> Result<Vec<u32>> {
    let (mut row, mut vertices) = (0u64, Vec::new());
    if let Some(table) = &raw.node_ids {
        for_each_batch(table.as_ref(), |batch| {
            let is_new =
                batch.sources.iter().zip(row..).filter(|(_, row)| *row >= raw.rows_taken_over);
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
    /// Joins `raw`, whose edges are in the file at `edges`, to the dataset with these edge columns.
    /// Adds the reverse of each edge if `symmetrise`.
    pub fn join(
        self,
        raw: Raw,
        edges: &Path,
        edge_columns: &[String],
        options: &ConvertOptions,
        symmetrise: bool,
        progress: &dyn Progress,
    ) -> Result<Raw> {
        let Some(table) = raw.node_ids else { return Ok(raw) };
        let name = self.dataset.path().display();
        let manifest = self.dataset.manifest();
        let width = raw.features.as_ref().map_or(0, |features| features.width());
        if manifest.features.as_ref().is_none_or(|features| features.dim as usize != width) {
            return Err(Error::Option(format!(
                "--with {name}: expected features of {width} values, as those of the recipe"
            )));
        }
        if self.dataset.kinds()?.are_two() || manifest.shard.is_some() {
            let problem =
                "is a shard, or has vertices of two kinds: expected a whole graph of one kind";
            return Err(Error::Option(format!("--with {name}: {problem}")));
        }
        self.dataset.topology().check_indices()?;
        let ids = IdMap::stored(self.dataset)?;
        let new = ids_of(table.as_ref())?;
        let path = raw.files.last().map_or(Path::new(""), |path| path.as_path());
        check_old(&new, &ids, table.as_ref(), path, self.dataset, options)?;
        let columns = self.columns(edge_columns, edges, raw.edges.columns())?;
        let mut among = NewEdges::read(raw.edges.as_ref(), &columns, symmetrise, progress)?;
        among.check_ends(&new, &ids, edges, self.dataset, options, raw.edges.as_ref(), progress)?;
        let reached = self.reached(&new, &ids, &among)?;
        let kept: Vec<u32> =
            (0..).zip(&reached.distance).filter(|(_, far)| **far != FAR).map(|(v, _)| v).collect();
        let among = among.into_wanted(|target| match ids.find(target) {
            Some(v) => reached.is_expanded(v),
            None => reached.others.contains(&target),
        });
        let expanded: Vec<u32> = kept.iter().copied().filter(|&v| reached.is_expanded(v)).collect();
        let old_ids = kept.iter().map(|&v| ids.id_of(v)).collect::<Result<Vec<u64>>>()?;
        let names = self.dataset.original_names()?;
        let name_of = |names: Names| {
            kept.iter().map(|&v| Ok(names.get(v)?.to_string())).collect::<Result<Vec<_>>>()
        };
        let names = names.map(name_of).transpose()?;
        let ends = (kept.clone(), old_ids.clone());
        let stored = StoredEdges::open(self.dataset, expanded, ends, columns.clone())?;
        progress.decide(&format!(
            "joined to {name}: the model reads {} of its {} vertices, and {}, for {}",
            kept.len(),
            self.dataset.num_vertices(),
            counted(stored.count(), "edge"),
            counted(new.len() as u64, "new row")
        ));
        let rows = kept.len() as u64;
        let features = (self.dataset.features()?, kept);
        let joined = |features, column: Option<Box<dyn Column>>| -> Option<Box<dyn Column>> {
            Some(Box::new(JoinedColumn { rows, features, column: column? }))
        };
        let among = Listed::new(among, columns, names.is_some());
        let names = old_ids.iter().copied().zip(names.into_iter().flatten()).collect();
        let old_ids = EdgeBatch { sources: old_ids, names, ..EdgeBatch::default() };
        let old_ids = Listed::new(old_ids, Vec::new(), table.has_string_ids());
        Ok(Raw {
            features: joined(Some(features), raw.features),
            labels: joined(None, raw.labels),
            edges: Chained::boxed(stored.count(), [Box::new(stored), Box::new(among)]),
            node_ids: Some(Chained::boxed(rows, [Box::new(old_ids), table])),
            rows_taken_over: rows,
            ..raw
        })
    }

    /// The edge columns of the joined graph: the columns that the model reads, in a type that holds
    /// the values of both tables.
    fn columns(
        self,
        names: &[String],
        edges: &Path,
        of_new: &[EdgeColumn],
    ) -> Result<Vec<EdgeColumn>> {
        let column = |name: &String| {
            let old = self.dataset.edge_column(name)?;
            let value = match old.descr() {
                "<f4" => ValueType::F32,
                "<i8" => ValueType::I64,
                _ => ValueType::F64,
            };
            let Some(new) =
                of_new.iter().find(|column| column.name == *name && column.width == old.width())
            else {
                let problem =
                    format!("has no column `{name}` of numbers, by which the model weighs edges");
                return Err(Error::input(edges, problem));
            };
            let value = if new.value == value { value } else { ValueType::F64 };
            Ok(EdgeColumn { name: name.clone(), value, width: new.width })
        };
        names.iter().map(column).collect()
    }

    /// The vertices from which a new vertex can be reached along the edges.
    fn reached(self, new: &[u64], ids: &IdMap, among: &NewEdges) -> Result<Reached> {
        let most = self
            .layers
            .map_or(FAR - 1, |layers| u8::try_from(layers + 1).unwrap_or(FAR - 1).min(FAR - 1));
        let all = if self.layers.is_none() { 0 } else { FAR };
        let mut reached = Reached {
            distance: vec![all; self.dataset.num_vertices()],
            others: HashSet::new(),
            most,
        };
        let by_target = among.by_target();
        let topology = self.dataset.topology();
        let (mut front, mut next): (Vec<u64>, Vec<u64>) = (new.to_vec(), Vec::new());
        for &id in &front {
            if let Some(v) = ids.find(id) {
                reached.distance[v as usize] = 0;
            }
        }
        reached.others.extend(front.iter().filter(|&&id| ids.find(id).is_none()));
        for far in 1..=most {
            for &id in &front {
                let from = by_target.partition_point(|&(target, _)| target < id);
                for &(_, source) in
                    by_target[from..].iter().take_while(|&&(target, _)| target == id)
                {
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

/// Distance of a vertex that is out of reach.
const FAR: u8 = u8::MAX;

/// Vertices within reach of the new ones.
struct Reached {
    /// For each vertex of the dataset, the number of edges to the nearest new vertex.
    distance: Vec<u8>,
    /// Ids that the dataset does not have.
    others: HashSet<u64>,
    /// Largest distance.
    most: u8,
}

impl Reached {
    /// Records that `v` is at most `far` away. Returns whether it is reached for the first time.
    fn reach(&mut self, v: u32, far: u8) -> bool {
        let distance = &mut self.distance[v as usize];
        let is_first = *distance == FAR;
        *distance = far.min(*distance);
        is_first
    }

    /// Whether the in-edges of `v` are needed.
    fn is_expanded(&self, v: u32) -> bool {
        self.distance[v as usize] < self.most
    }
}
