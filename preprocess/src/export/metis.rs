//! METIS's `.graph` text (METIS 5.1 manual, section 4.1.1): the undirected simple graph.
//!
//! Returns: vertex v + 1's line lists every vertex that an edge joins it with, in either direction,
//! ascending, counted from 1; self-loops are dropped and each neighbour is listed once. Where the
//! edges have a column `weight`, format 001: the weight of {u, v} is the sum over all edges u→v and
//! v→u, halved where both directions are there (an undirected graph stores both), times a
//! [factor](scale), and at least 1. A factor other than 1 is in a comment on the first line. A
//! missing weight counts as 1, as in `partition --weights own`. If vertices have weights of their
//! own, they begin the line (format 010 or 011). Idea: a line merges v's in-neighbours, which are
//! stored, with its out-neighbours, which are gathered before. Cost: two scans of the indices, and
//! one more of the lines with weights; in memory 16 bytes per vertex and 4 bytes per edge (12 with
//! weights), less than METIS needs to read the file.

use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gsplit_store::{Progress, Topology, Unit, VERTEX_WEIGHT, VertexLoads};
use rayon::prelude::*;

use super::Written;
use super::edges::{for_each_edge, pieces};
use super::output::{SyncedFile, Target};
use super::source::{Part, Source, WEIGHT, Weights};
use super::text::{push_int, write_lines};
use crate::embed::check_memory;
use crate::read::text::field::counted;
use crate::{Error, Result};

mod scale;

use scale::{LARGEST, PairWeights, whole};

/// Bytes of the first line, blanks included: two 20-digit counts and the format fit.
const HEADER: usize = 64;
/// Edges that are scanned, or formatted, at once by a thread.
const CHUNK: usize = 1 << 17;

/// Writes the file.
pub(super) fn write(
    source: &Source<'_>,
    target: &mut Target,
    progress: &dyn Progress,
) -> Result<Written> {
    let (n, m) = (source.topology().num_vertices(), source.topology().num_edges());
    let (weights, loads) = (source.weights()?, loads(source)?);
    let lists = NeighbourLists::gather(source, weights.as_ref(), progress)?;
    let runs = lists.runs();
    let factor = weights.as_ref().map(|_| lists.factor(&runs, progress));

    let mut sink = SyncedFile::create(target.file())?;
    let scaled = factor
        .filter(|&factor| factor != 1.0)
        .map(|factor| format!("edge weights are multiplied by {factor}"));
    let comment = scaled.as_ref().map_or(String::new(), |scaled| format!("% {scaled}\n"));
    sink.push(comment.as_bytes())?;
    sink.push(&[b' '; HEADER])?;
    let neighbours = AtomicU64::new(0);
    let stage = progress.stage("writing neighbours", Some(n as u64), Unit::Items("vertices"));
    write_lines(&mut sink, runs.into_iter(), false, &*stage, |vertices, text| {
        let mut line = Vec::new();
        for v in vertices {
            lists.line(v, &mut line);
            neighbours.fetch_add(line.len() as u64, Relaxed);
            loads.iter().for_each(|load| push_number(text, load.values[v]));
            for &(u, weight) in &line {
                push_number(text, u64::from(u) + 1);
                if let Some(factor) = factor {
                    push_number(text, whole(weight, factor));
                }
            }
            text.pop_if(|byte| *byte == b' ');
            text.push(b'\n');
        }
        Ok(())
    })?;
    let edges = neighbours.into_inner() / 2;
    let mut file = sink.finish()?;
    let header = match (loads.len(), weights.is_some()) {
        (0, false) => format!("{n} {edges}"),
        (0, true) => format!("{n} {edges} 001"),
        (each, weighted) => format!("{n} {edges} 01{} {each}", u8::from(weighted)),
    };
    let header = format!("{header:width$}\n", width = HEADER - 1);
    let written = file
        .seek(SeekFrom::Start(comment.len() as u64))
        .and_then(|_| file.write_all(header.as_bytes()));
    written.and_then(|()| file.sync_all()).map_err(Error::io(target.out()))?;
    let loops = match lists.loops {
        0 => String::new(),
        loops => format!("; {} dropped", counted(loops, "self-loop")),
    };
    progress.note(&format!(
        "note: METIS graphs are undirected: the {m} edges of {} are {edges} pairs of \
         vertices{loops}",
        source.one_line_name()
    ));
    if let Some(scaled) = scaled {
        progress.note(&format!(
            "note: METIS takes whole numbers with a sum below 2^31: {scaled} and rounded"
        ));
    }
    if lists.odd > 0 {
        progress.note(&format!(
            "note: {} of 0 or missing: METIS takes numbers from 1, so a pair of vertices of weight 0 \
             gets 1; missing ones count as 1, as in partition --weights own",
            counted(lists.odd, "edge weight")
        ));
    }
    let named = &source.dataset().manifest().vertex_weights;
    let mut holds: Vec<Part> = weights.iter().map(|_| Part::EdgeColumn(WEIGHT.into())).collect();
    holds.extend(named.iter().cloned().map(Part::NodeColumn));
    holds.extend(
        (named.is_empty() && !loads.is_empty()).then(|| Part::NodeColumn(VERTEX_WEIGHT.into())),
    );
    holds.extend(source.part_from_one());
    Ok(Written { num_edges: edges, holds })
}

/// The neighbours of all vertices.
struct NeighbourLists<'a> {
    topology: &'a Topology,
    weights: Option<&'a Weights<'a>>,
    /// Start of each vertex's out-neighbours in `targets`, and their end.
    starts: Vec<u64>,
    targets: Vec<u32>,
    /// The edge of each target; empty without weights.
    edges: Vec<u64>,
    loops: u64,
    /// Edges between two vertices whose weight is 0 or missing.
    odd: u64,
}

impl<'a> NeighbourLists<'a> {
    /// Gathers the out-neighbours. Fails where a weight is negative or infinite.
    fn gather(
        source: &'a Source<'_>,
        weights: Option<&'a Weights<'a>>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let topology = source.topology();
        let (n, m) = (topology.num_vertices(), topology.num_edges());
        let with_weights = if weights.is_some() { m } else { 0 };
        check_memory("--format metis", (16 * n + 4 * m + 8 * with_weights) as u64)?;
        let stage = progress.stage("gathering out-edges", Some(2 * m as u64), Unit::Items("edges"));
        let next: Vec<AtomicU64> = (0..=n).map(|_| AtomicU64::new(0)).collect();
        let (loops, odd) = (AtomicU64::new(0), AtomicU64::new(0));
        let all: Vec<Range<usize>> = pieces(m, CHUNK).collect();
        all.par_iter().try_for_each(|range| {
            source.check(range.clone())?;
            let mut refused = None;
            for_each_edge(topology, range.clone(), |e, u, v| {
                next[u as usize].fetch_add(1, Relaxed);
                match weights.map_or(1.0, |weights| weights.get(e)) {
                    _ if u == v => drop(loops.fetch_add(1, Relaxed)),
                    weight if weight == 0.0 || weight.is_nan() => drop(odd.fetch_add(1, Relaxed)),
                    weight if weight < 0.0 || weight.is_infinite() => refused = Some(weight),
                    _ => {}
                }
            });
            stage.advance(range.len() as u64);
            refused.map_or(Ok(()), |weight| {
                Err(Error::Graph(format!(
                    "an edge has the weight {weight}, and METIS takes whole numbers from 1: convert \
                     the graph with other weights, or without the edge column `{WEIGHT}`"
                )))
            })
        })?;
        let mut total = 0;
        let starts = next.iter().map(|next| {
            let count = next.swap(total, Relaxed);
            total += count;
            total - count
        });
        let starts = starts.collect();
        let targets: Vec<AtomicU32> = (0..m).map(|_| AtomicU32::new(0)).collect();
        let edges: Vec<AtomicU64> = (0..with_weights).map(|_| AtomicU64::new(0)).collect();
        all.into_par_iter().for_each(|range| {
            for_each_edge(topology, range.clone(), |e, u, v| {
                let at = next[u as usize].fetch_add(1, Relaxed) as usize;
                targets[at].store(v, Relaxed);
                if let Some(edge) = edges.get(at) {
                    edge.store(e as u64, Relaxed);
                }
            });
            stage.advance(range.len() as u64);
        });
        Ok(Self {
            topology,
            weights,
            starts,
            targets: targets.into_iter().map(AtomicU32::into_inner).collect(),
            edges: edges.into_iter().map(AtomicU64::into_inner).collect(),
            loops: loops.into_inner(),
            odd: odd.into_inner(),
        })
    }

    /// The vertices in runs with at most about [`CHUNK`] neighbours.
    fn runs(&self) -> Vec<Range<usize>> {
        let before = |v: usize| self.topology.indptr()[v] + self.starts[v] + v as u64;
        let (mut runs, mut from, n) = (Vec::new(), 0, self.topology.num_vertices());
        for v in 0..n {
            if v > from && before(v + 1) - before(from) > CHUNK as u64 {
                runs.push(from..v);
                from = v;
            }
        }
        runs.push(from..n);
        runs
    }

    /// The factor by which weights become whole numbers.
    fn factor(&self, runs: &[Range<usize>], progress: &dyn Progress) -> f64 {
        let n = self.topology.num_vertices() as u64;
        let stage = progress.stage("adding up weights", Some(n), Unit::Items("vertices"));
        let found = runs.par_iter().map(|vertices| {
            let (mut found, mut line) = (PairWeights::default(), Vec::new());
            for v in vertices.clone() {
                self.line(v, &mut line);
                line.iter()
                    .filter(|(u, _)| (*u as usize) < v)
                    .for_each(|&(_, weight)| found.add(weight));
            }
            stage.advance(vertices.len() as u64);
            found
        });
        // In their order, since sums of floats depend on it.
        let mut all = PairWeights::default();
        found.collect::<Vec<_>>().iter().for_each(|found| all.merge(found));
        all.factor()
    }

    /// Puts the neighbours of `v` into `line`, ascending, with their weights (1 without).
    fn line(&self, v: usize, line: &mut Vec<(u32, f64)>) {
        let range = |starts: &[u64]| starts[v] as usize..starts[v + 1] as usize;
        let (own, out) = (range(self.topology.indptr()), range(&self.starts));
        let mut ends: Vec<(u32, u64)> = Vec::with_capacity(out.len() + own.len());
        ends.extend(own.clone().map(|e| (self.topology.indices()[e], e as u64)));
        ends.extend(out.map(|i| (self.targets[i], self.edges.get(i).copied().unwrap_or(0))));
        ends.retain(|&(u, _)| u as usize != v);
        // By edge within a neighbour, so that a sum of floats is the same from both ends.
        ends.sort_unstable();
        line.clear();
        for group in ends.chunk_by(|a, b| a.0 == b.0) {
            let weight = self.weights.map_or(1.0, |weights| {
                let weight = |&(_, e): &(u32, u64)| {
                    Some(weights.get(e as usize)).filter(|weight| !weight.is_nan())
                };
                let sum: f64 = group.iter().map(|edge| weight(edge).unwrap_or(1.0)).sum();
                let ours = group.iter().filter(|&&(_, e)| own.contains(&(e as usize))).count();
                if ours > 0 && ours < group.len() { sum / 2.0 } else { sum }
            });
            line.push((group[0].0, weight));
        }
    }
}

/// The weights of the vertices, as METIS takes them.
fn loads(source: &Source<'_>) -> Result<Vec<VertexLoads>> {
    let loads = source.dataset().vertex_weights()?;
    for VertexLoads { name, values } in &loads {
        if let Some(v) = values.iter().position(|&weight| f64::from(weight) > LARGEST) {
            let problem =
                format!("vertex {v} has {name} {}, METIS takes 0 to {LARGEST}", values[v]);
            return Err(Error::input(source.dataset().path(), problem));
        }
    }
    Ok(loads)
}

/// Appends `number` and a blank.
fn push_number(text: &mut Vec<u8>, number: impl Into<u64>) {
    push_int(text, number.into());
    text.push(b' ');
}
