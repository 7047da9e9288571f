//! METIS's `.graph` text (METIS 5.1 manual, section 4.1.1): the undirected simple graph.
//!
//! Returns: vertex v + 1's line lists every vertex that an edge joins it with, in either direction,
//! ascending, counted from 1; self-loops are dropped and each neighbour is listed once. Where the
//! edges have a column `weight`, format 001: the weight of {u, v} is the sum over all edges u→v and
//! v→u, halved where both directions are there (an undirected graph stores both), times a
//! [factor](scale), and at least 1. A factor other than 1 is in a comment on the first line. A
//! missing weight counts as 1, as in `partition --weights own`. If vertices have weights of their
//! own, they begin the line (format 010 or 011). Idea: a line merges v's in-neighbours, which are
//! stored, with its out-neighbours, which are not. Out-neighbours are gathered for a range of
//! vertices at a time, by a scan of the whole graph; ranges are as long as `--buffer` allows. Cost:
//! a scan of the indices for each range (two with weights), and a first one that counts; in memory
//! 8 bytes per vertex, and for a range 8 bytes per vertex and 4 bytes per edge (12 with weights),
//! at least for one vertex; also a few lines of text.

use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gsplit_store::{Progress, Unit, VERTEX_WEIGHT, VertexLoads};
use rayon::prelude::*;

use super::Written;
use super::edges::{for_each_edge, pieces};
use super::output::{SyncedFile, Target};
use super::source::{Part, Source, WEIGHT, Weights};
use super::text::{push_int, write_pieces};
use crate::memory::Memory;
use crate::{Error, Result};

mod scale;

use scale::{LARGEST, PairWeights, whole};

/// Bytes of the first line, blanks included: two 20-digit counts and the format fit.
const HEADER: usize = 64;
/// Edges that are scanned, or formatted, at once by a thread.
const CHUNK: usize = 1 << 17;
/// Bytes for the out-neighbours of a range by default.
const MEMORY: u64 = 1 << 30;

/// Writes the file. `memory` is for the out-neighbours of a range.
pub(super) fn write(
    source: &Source<'_>,
    target: &mut Target,
    memory: Option<Memory>,
    progress: &dyn Progress,
) -> Result<Written> {
    let topology = source.topology();
    let (n, m) = (topology.num_vertices(), topology.num_edges());
    let (weights, loads) = (source.weights()?, loads(source)?);
    let (starts, odd) = out_starts(source, weights.as_ref(), progress)?;
    let entry = if weights.is_some() { 12 } else { 4 };
    let ranges = cut(&starts, memory.map_or(MEMORY, Memory::total) / entry);
    let factor = weights
        .as_ref()
        .map(|weights| scale(source, &starts, &ranges, weights, progress))
        .transpose()?;

    let mut sink = SyncedFile::create(target.file())?;
    let scaled = factor
        .filter(|&factor| factor != 1.0)
        .map(|factor| format!("edge weights are multiplied by {factor}"));
    let comment = scaled.as_ref().map_or(String::new(), |scaled| format!("% {scaled}\n"));
    sink.push(comment.as_bytes())?;
    sink.push(&[b' '; HEADER])?;
    let neighbours = AtomicU64::new(0);
    let stage = progress.stage("writing neighbours", Some(n as u64), Unit::Items("vertices"));
    for range in ranges {
        let out = OutLists::gather(source, &starts, range.clone(), weights.as_ref());
        let chunks = cut_lines(source, &starts, range);
        write_pieces(&mut sink, chunks.into_iter(), false, &*stage, |vertices, text| {
            let mut line = Vec::new();
            for v in vertices {
                out.line(source, v, weights.as_ref(), &mut line);
                neighbours.fetch_add(line.len() as u64, Relaxed);
                loads.iter().for_each(|load| push_number(text, load.values[v]));
                for &(u, weight) in &line {
                    push_number(text, u64::from(u) + 1);
                    if let Some(factor) = factor {
                        push_number(text, whole(weight, factor));
                    }
                }
                end_line(text);
            }
            Ok(())
        })?;
    }
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
    say(source, m as u64, edges, &odd, scaled, progress);
    let named = &source.dataset().manifest().vertex_weights;
    let mut holds: Vec<Part> = weights.iter().map(|_| Part::EdgeColumn(WEIGHT.into())).collect();
    holds.extend(named.iter().cloned().map(Part::NodeColumn));
    holds.extend(
        (named.is_empty() && !loads.is_empty()).then(|| Part::NodeColumn(VERTEX_WEIGHT.into())),
    );
    holds.extend(source.part_from_one());
    Ok(Written { num_edges: edges, holds })
}

fn say(
    source: &Source<'_>,
    m: u64,
    edges: u64,
    odd: &OddEdges,
    scaled: Option<String>,
    progress: &dyn Progress,
) {
    let name = source.one_line_name();
    let loops = match odd.self_loops {
        0 => String::new(),
        loops => format!("; {} dropped", number_of(loops, "self-loop is", "self-loops are")),
    };
    progress.note(&format!(
        "note: METIS graphs are undirected: the {m} edges of {name} are {edges} pairs of \
         vertices{loops}"
    ));
    if let Some(scaled) = scaled {
        progress.note(&format!(
            "note: METIS takes whole numbers with a sum below 2^31: {scaled} and rounded"
        ));
    }
    if odd.zero > 0 {
        progress.note(&format!(
            "note: {} 0, which METIS does not take: a pair of vertices without another weight gets \
             1, the smallest",
            number_of(odd.zero, "edge weight is", "edge weights are")
        ));
    }
    if odd.missing > 0 {
        progress.note(&format!(
            "note: {} missing and counted as 1, as in partition --weights own",
            number_of(odd.missing, "edge weight is", "edge weights are")
        ));
    }
}

/// `count` with `one`, or `many`.
fn number_of(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Numbers of edges that METIS has no place for.
#[derive(Clone, Copy, Debug, Default)]
struct OddEdges {
    self_loops: u64,
    /// Edges between two vertices whose weight is 0, missing, or negative or infinite.
    zero: u64,
    missing: u64,
    refused: u64,
}

impl OddEdges {
    fn add(mut self, other: Self) -> Self {
        self.self_loops += other.self_loops;
        self.zero += other.zero;
        self.missing += other.missing;
        self.refused += other.refused;
        self
    }

    fn look(&mut self, weight: f64) {
        match weight {
            0.0 => self.zero += 1,
            weight if weight.is_nan() => self.missing += 1,
            weight if weight < 0.0 || weight.is_infinite() => self.refused += 1,
            _ => {}
        }
    }

    fn check(self) -> Result<Self> {
        match self.refused {
            0 => Ok(self),
            refused => Err(Error::Graph(format!(
                "{} negative or infinite, and METIS takes whole numbers from 1: convert the graph \
                 with other weights, or without the edge \
                 column `{WEIGHT}`",
                number_of(refused, "edge weight is", "edge weights are")
            ))),
        }
    }
}

/// The factor by which weights become whole numbers.
fn scale(
    source: &Source<'_>,
    starts: &[u64],
    ranges: &[Range<usize>],
    weights: &Weights<'_>,
    progress: &dyn Progress,
) -> Result<f64> {
    let n = source.topology().num_vertices() as u64;
    let stage = progress.stage("adding up weights", Some(n), Unit::Items("vertices"));
    let mut all = PairWeights::default();
    for range in ranges {
        let out = OutLists::gather(source, starts, range.clone(), Some(weights));
        let chunks = cut_lines(source, starts, range.clone());
        let found = chunks.into_par_iter().map(|vertices| {
            let (mut found, mut line) = (PairWeights::default(), Vec::new());
            for v in vertices {
                out.line(source, v, Some(weights), &mut line);
                line.iter()
                    .filter(|(u, _)| (*u as usize) < v)
                    .for_each(|&(_, weight)| found.add(weight));
            }
            found
        });
        // In their order, since sums of floats depend on it.
        found.collect::<Vec<_>>().iter().for_each(|found| all.merge(found));
        stage.advance(range.len() as u64);
    }
    Ok(all.factor())
}

/// Offsets, `n + 1` of them, of each vertex's out-neighbours when they are sorted by vertex; and
/// the edges that METIS has no place for.
///
/// # Errors
/// [`Error::Graph`] where a weight is negative or infinite.
fn out_starts(
    source: &Source<'_>,
    weights: Option<&Weights<'_>>,
    progress: &dyn Progress,
) -> Result<(Vec<u64>, OddEdges)> {
    let (n, m) = (source.topology().num_vertices(), source.topology().num_edges());
    let stage = progress.stage("counting out-edges", Some(m as u64), Unit::Items("edges"));
    let counts: Vec<AtomicU64> = (0..=n).map(|_| AtomicU64::new(0)).collect();
    let all: Vec<Range<usize>> = pieces(m, CHUNK).collect();
    let odd = all.into_par_iter().map(|range| {
        source.check(range.clone())?;
        let mut odd = OddEdges::default();
        for_each_edge(source.topology(), range.clone(), |e, u, v| {
            counts[u as usize + 1].fetch_add(1, Relaxed);
            match weights {
                _ if u == v => odd.self_loops += 1,
                Some(weights) => odd.look(weights.get(e)),
                None => {}
            }
        });
        stage.advance(range.len() as u64);
        Ok::<_, Error>(odd)
    });
    let odd = odd.try_reduce(OddEdges::default, |a, b| Ok(a.add(b)))?.check()?;
    let mut total = 0;
    let starts = counts.into_iter().map(|count| {
        total += count.into_inner();
        total
    });
    Ok((starts.collect(), odd))
}

/// Ranges of vertices with at most `limit` out-edges each, or of one vertex.
fn cut(starts: &[u64], limit: u64) -> Vec<Range<usize>> {
    let (n, mut from) = (starts.len() - 1, 0);
    let mut ranges = Vec::new();
    while from < n {
        let end = starts[from].saturating_add(limit);
        let to = (starts.partition_point(|&start| start <= end) - 1).clamp(from + 1, n);
        ranges.push(from..to);
        from = to;
    }
    ranges
}

/// `range` in runs with at most about [`CHUNK`] neighbours.
fn cut_lines(source: &Source<'_>, starts: &[u64], range: Range<usize>) -> Vec<Range<usize>> {
    let indptr = source.topology().indptr();
    let before = |v: usize| indptr[v] + starts[v] + v as u64;
    let (mut chunks, mut from) = (Vec::new(), range.start);
    for v in range.clone() {
        if v > from && before(v + 1) - before(from) > CHUNK as u64 {
            chunks.push(from..v);
            from = v;
        }
    }
    chunks.push(from..range.end);
    chunks
}

/// The out-neighbours of a range of vertices.
struct OutLists<'a> {
    first: usize,
    starts: &'a [u64],
    targets: Vec<u32>,
    /// The edge of each target; empty without weights.
    edges: Vec<u64>,
}

impl<'a> OutLists<'a> {
    fn gather(
        source: &Source<'_>,
        starts: &'a [u64],
        range: Range<usize>,
        weights: Option<&Weights<'_>>,
    ) -> Self {
        let starts = &starts[range.start..=range.end];
        let total = (starts[range.len()] - starts[0]) as usize;
        let next: Vec<AtomicU64> =
            starts[..range.len()].iter().map(|&at| AtomicU64::new(at - starts[0])).collect();
        let targets: Vec<AtomicU32> = (0..total).map(|_| AtomicU32::new(0)).collect();
        let edges: Vec<AtomicU64> =
            (0..weights.map_or(0, |_| total)).map(|_| AtomicU64::new(0)).collect();
        let topology = source.topology();
        let all: Vec<Range<usize>> = pieces(topology.num_edges(), CHUNK).collect();
        all.into_par_iter().for_each(|piece| {
            for_each_edge(topology, piece, |e, u, v| {
                if range.contains(&(u as usize)) {
                    let at = next[u as usize - range.start].fetch_add(1, Relaxed) as usize;
                    targets[at].store(v, Relaxed);
                    if let Some(edge) = edges.get(at) {
                        edge.store(e as u64, Relaxed);
                    }
                }
            });
        });
        let targets = targets.into_iter().map(AtomicU32::into_inner).collect();
        let edges = edges.into_iter().map(AtomicU64::into_inner).collect();
        Self { first: range.start, starts, targets, edges }
    }

    /// Puts the neighbours of `v` into `line`, ascending, with their weights (1 without).
    fn line(
        &self,
        source: &Source<'_>,
        v: usize,
        weights: Option<&Weights<'_>>,
        line: &mut Vec<(u32, f64)>,
    ) {
        let topology = source.topology();
        let (starts, first) = (self.starts, self.starts[0]);
        let out = (starts[v - self.first] - first) as usize
            ..(starts[v - self.first + 1] - first) as usize;
        let inside = topology.indptr()[v] as usize..topology.indptr()[v + 1] as usize;
        let mut ends: Vec<(u32, u64)> = Vec::with_capacity(out.len() + inside.len());
        let own = inside.clone();
        ends.extend(inside.map(|e| (topology.indices()[e], e as u64)));
        ends.extend(out.map(|i| (self.targets[i], self.edges.get(i).copied().unwrap_or(0))));
        ends.retain(|&(u, _)| u as usize != v);
        // By edge within a neighbour, so that a sum of floats is the same from both ends.
        ends.sort_unstable();
        line.clear();
        for group in ends.chunk_by(|a, b| a.0 == b.0) {
            let weight = weights.map_or(1.0, |weights| {
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

/// Ends a line of numbers.
fn end_line(text: &mut Vec<u8>) {
    text.pop_if(|byte| *byte == b' ');
    text.push(b'\n');
}
