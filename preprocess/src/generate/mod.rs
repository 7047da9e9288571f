//! Graphs made up by a seed, of any size.
//!
//! Every edge, label and feature row is drawn from its own Philox sequence, so a dataset depends on
//! its options only, not on the number of threads. Vertex ids are a random permutation of the
//! generator's own numbering: ranges of ids mean nothing.

pub mod community;
pub mod rmat;
pub mod typed;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_kernels::{Stream, StreamKey, permute};
use gsplit_store::{
    Dataset, DatasetWriter, FeatureDtype, Progress, Provenance, Split, dataset_target, staging,
};
use serde::Serialize;

use crate::convert::RandomSplit;
use crate::csc::{self, Build, BuildOptions, EDGE_BYTES};
use crate::edges::{EDGES_PER_PIECE, EdgeBatch, EdgeSource, Estimate, Piece};
use crate::embed::{GeneratedFeatures, check_memory};
use crate::memory::{self, Memory};
use crate::read::raw::Ids;
use crate::{Error, Result, disk};

/// Purpose of random numbers of the stream [`Stream::Generate`]: the key's step.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Purpose {
    Edges = 0,
    Order = 1,
    Centroids = 2,
    Noise = 3,
    Labels = 4,
}

impl Purpose {
    fn key(self, seed: u64) -> StreamKey {
        StreamKey { step: self as u32, ..StreamKey::new(seed, Stream::Generate) }
    }
}

/// Options of every generated graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct GraphOptions {
    /// Number of vertices
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..)))]
    pub vertices: u32,
    /// Number of edges drawn: stored once in each direction, less self-loops and duplicates
    #[cfg_attr(feature = "cli", arg(long, value_name = "M"))]
    pub edges: u64,
    /// Seed of all draws
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,
    /// Store edges in the direction in which they are drawn only
    #[cfg_attr(feature = "cli", arg(long))]
    pub directed: bool,
    /// Keep edges from a vertex to itself
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_self_loops: bool,
    /// Keep edges that are drawn several times, instead of merging them into one
    #[cfg_attr(feature = "cli", arg(long))]
    pub keep_duplicates: bool,
    /// Features made up from the graph, in place of any that the generator has: random:D or
    /// fastrp:D (a structural embedding) of D values a row
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND:D"))]
    pub features: Option<GeneratedFeatures>,
    /// Type of the stored feature values: f32, f16, bf16, or i8 (bytes with a scale for each row)
    #[cfg_attr(feature = "cli", arg(long, value_name = "TYPE", default_value_t = FeatureDtype::F32))]
    pub feature_dtype: FeatureDtype,
    /// Memory limit for the edges, e.g. 4GiB or 50%; data that does not fit is kept on disk next to
    /// the output. The result does not depend on it [default: half of the machine's]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    #[serde(skip)]
    pub memory: Option<Memory>,
}

/// A kind of graph with all its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Generator {
    /// R-MAT: skewed degrees, no labels.
    Rmat(rmat::RmatOptions),
    /// Degree-corrected planted partition: communities as labels, features that need the
    /// neighbours.
    Community(community::CommunityOptions),
}

impl Generator {
    /// The options that both kinds have, and the options of communities.
    fn parts(&self) -> (&GraphOptions, RandomSplit, Option<&community::CommunityOptions>) {
        match self {
            Self::Rmat(options) => (&options.graph, options.random_split, None),
            Self::Community(options) => (&options.graph, options.random_split, Some(options)),
        }
    }

    /// The subcommand and its options, as they are recorded.
    fn describe(&self) -> (&'static str, serde_json::Result<serde_json::Value>) {
        match self {
            Self::Rmat(options) => ("generate rmat", serde_json::to_value(options)),
            Self::Community(options) => ("generate community", serde_json::to_value(options)),
        }
    }
}

/// Generates the dataset at `out`. Returns it, and whether a finished one with the same options was
/// there and is reused; any other thing there is refused, unless `force`, which replaces a dataset.
///
/// Memory: 12 bytes per vertex in addition to the budget of the edges, more for features of
/// [`GeneratedFeatures::FastRp`].
pub fn generate(
    generator: &Generator,
    out: &Path,
    force: bool,
    progress: &dyn Progress,
) -> Result<(Dataset, bool)> {
    let (graph, random_split, community) = generator.parts();
    if graph.vertices == 0 {
        return Err(Error::Option("--vertices: expected at least 1, got 0".into()));
    }
    community.map_or(Ok(()), community::CommunityOptions::check)?;
    let (command, options) = generator.describe();
    let options =
        options.map_err(|error| Error::Option(format!("options cannot be recorded: {error}")))?;
    if !force && let Some(dataset) = finished(out, command, &options)? {
        staging::tidy(&dataset_target(out));
        return Ok((dataset, true));
    }
    check_memory("--vertices", 12 * u64::from(graph.vertices))?;
    let own_features = community.map_or(0, |options| u64::from(options.feature_dim));
    check_room(graph, own_features, out)?;
    // Fail on an unwritable output, or another writer, before the expensive work.
    let mut writer = DatasetWriter::begin(out, force)?;
    let order = permute(graph.vertices, &Purpose::Order.key(graph.seed));
    let (built, community) = match generator {
        Generator::Rmat(options) => {
            (build(graph, &order, rmat::Rmat::new(options), &mut writer, progress)?, None)
        }
        Generator::Community(options) => {
            let planted = community::Planted::new(options);
            let communities = planted.communities(&order);
            (build(graph, &order, planted, &mut writer, progress)?, Some((options, communities)))
        }
    };
    if let Some((options, communities)) = &community {
        writer.add_labels(&options.labels(communities))?;
    }
    match (&graph.features, &community) {
        (Some(features), _) => {
            let mut rows = writer.feature_writer(graph.feature_dtype, features.dim())?;
            let topology = writer.topology()?;
            let (indptr, indices) = (topology.indptr(), topology.indices());
            features.generate_rows(indptr, indices, graph.seed, &mut rows, progress)?;
            writer.add_features(rows, Some(features.to_string()))?;
        }
        (None, Some((options, communities))) => {
            let mut rows =
                writer.feature_writer(graph.feature_dtype, options.feature_dim as usize)?;
            options.write_features(communities, &mut rows, progress)?;
            writer.add_features(rows, Some(format!("community:{}", options.feature_dim)))?;
        }
        (None, None) => {}
    }
    let splits = random_split.draw(order.len(), None, graph.seed);
    for (split, vertices) in Split::ALL.into_iter().zip(splits) {
        if !vertices.is_empty() {
            writer.add_split(split, vertices)?;
        }
    }
    let facts = BTreeMap::from([
        ("edges_drawn".to_string(), graph.edges),
        ("self_loops_dropped".to_string(), built.self_loops_dropped),
        ("duplicates_merged".to_string(), built.duplicates_merged),
    ]);
    let provenance = Provenance {
        tool_version: env!("CARGO_PKG_VERSION").into(),
        command: command.into(),
        options,
        sources: Vec::new(),
        facts,
        decisions: Vec::new(),
        schema: Default::default(),
    };
    Ok((writer.finish(provenance)?, false))
}

/// Fails when the disk cannot hold the dataset, and the edges that wait where they exceed the
/// memory. The graph has rows of `own_features` values where none are asked for.
fn check_room(graph: &GraphOptions, own_features: u64, out: &Path) -> Result<()> {
    let n = u64::from(graph.vertices);
    let drawn = graph.edges.saturating_mul(if graph.directed { 1 } else { 2 });
    let kept = if graph.keep_duplicates { drawn } else { drawn.min(n * n) };
    let waiting =
        drawn.saturating_mul(EDGE_BYTES).saturating_sub(graph.memory.unwrap_or_default().total());
    let dim = graph.features.map_or(own_features, |features| features.dim() as u64);
    let rows = n.saturating_mul(dim * graph.feature_dtype.bytes() as u64 + 8);
    let needed = waiting.saturating_add(kept.saturating_mul(4)).saturating_add(rows);
    let (disk, free) = disk::room(out)?;
    if needed <= free {
        return Ok(());
    }
    let (needed, free) = (memory::shown(needed), memory::shown(free));
    let problem = format!(
        "--vertices {n} and --edges {} take up to {needed} here, {free} are free: ask for fewer, \
         free some space or write elsewhere",
        graph.edges
    );
    Err(Error::input(disk, problem))
}

/// The dataset at `out` if there is one that the same command with the same options made.
fn finished(out: &Path, command: &str, options: &serde_json::Value) -> Result<Option<Dataset>> {
    if !out.join("dataset.json").exists() {
        return Ok(None);
    }
    let dataset = Dataset::open(out)?;
    let made = &dataset.manifest().provenance;
    let same = made.command == command && made.options == *options;
    Ok(same.then_some(dataset))
}

/// A random graph model whose edges can be drawn in any order.
trait Model: Sync {
    /// Edge number `i`, as two positions below the number of vertices.
    fn edge(&self, i: u64) -> (u32, u32);
}

/// Key and item of edge `i`.
fn edge_key(seed: u64, i: u64) -> (StreamKey, u32) {
    (StreamKey { epoch: (i >> 32) as u32, ..Purpose::Edges.key(seed) }, i as u32)
}

/// Edges that are drawn by their numbers.
struct DrawnEdges<D> {
    /// Returns the source and the target of the edge of a number.
    draw: D,
    vertices: u64,
    edges: u64,
    /// Edges handed out.
    next: AtomicU64,
}

impl<D: Fn(u64) -> (u64, u64) + Send + Sync> EdgeSource for DrawnEdges<D> {
    fn rewind(&self) -> Result<()> {
        self.next.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        piece.start = self.next.load(Relaxed);
        piece.end = self.edges.min(piece.start + EDGES_PER_PIECE as u64);
        self.next.store(piece.end, Relaxed);
        Ok(piece.start < piece.end)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        for (source, target) in (piece.start..piece.end).map(&self.draw) {
            batch.push(source, target);
        }
        Ok(())
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate { edges: self.edges, vertices: self.vertices, bytes: self.edges })
    }

    fn bytes_done(&self) -> u64 {
        self.next.load(Relaxed)
    }
}

/// Draws all edges of `model` and builds the graph; position `p` becomes vertex `order[p]`.
fn build(
    graph: &GraphOptions,
    order: &[u32],
    model: impl Model + Send,
    writer: &mut DatasetWriter,
    progress: &dyn Progress,
) -> Result<csc::Built> {
    let options = BuildOptions {
        symmetrise: !graph.directed,
        drop_self_loops: !graph.keep_self_loops,
        keep_duplicates: graph.keep_duplicates,
        sum_weights: false,
    };
    let build = Build {
        source: &DrawnEdges {
            draw: |i| {
                let (from, to) = model.edge(i);
                (order[from as usize].into(), order[to as usize].into())
            },
            vertices: order.len() as u64,
            edges: graph.edges,
            next: AtomicU64::new(0),
        },
        ids: Ids::Dense(Some(order.len() as u64)),
        types: None,
        node_ids: None,
        options,
        are_costs: false,
        memory: graph.memory.unwrap_or_default(),
        scratch: writer.scratch().join("edges"),
    };
    let built = build.run(writer, progress)?;
    build.clean_up()?;
    Ok(built)
}

#[cfg(test)]
mod tests;
