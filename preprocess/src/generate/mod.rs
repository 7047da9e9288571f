//! Graphs made up by a seed, of any size.
//!
//! Every edge, label and feature row is drawn from its own Philox sequence, so a dataset depends on its options only, not on
//! the number of threads. Vertex ids are a random permutation of the generator's own numbering: ranges of ids mean nothing.

pub mod community;
pub mod rmat;

use std::collections::BTreeMap;
use std::path::Path;

use gsplit_kernels::{Stream, StreamKey, permute};
use gsplit_store::staging::Staging;
use gsplit_store::{Dataset, DatasetWriter, FeatureDtype, Progress, Provenance, Split, Unit, check_target};
use rayon::prelude::*;
use serde::Serialize;

use crate::convert::RandomSplit;
use crate::csc::{BuildOptions, Built, build_csc};
use crate::embed::{GeneratedFeatures, with_room, zeroed};
use crate::{Error, Result};

/// Edges that a thread draws at a time.
const EDGES_PER_TASK: usize = 1 << 14;

/// What random numbers of the stream [`Stream::Generate`] are for; the key's step.
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

/// What every generated graph is made with.
#[derive(Clone, Debug, PartialEq, Serialize, clap::Args)]
pub struct GraphOptions {
    /// Number of vertices
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub vertices: u32,
    /// Number of edges drawn: stored once in each direction, less self-loops and duplicates
    #[arg(long, value_name = "M")]
    pub edges: u64,
    /// Seed of all draws
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Store edges in the direction in which they are drawn only
    #[arg(long)]
    pub directed: bool,
    /// Keep edges from a vertex to itself
    #[arg(long)]
    pub keep_self_loops: bool,
    /// Keep edges that are drawn several times, instead of merging them into one
    #[arg(long)]
    pub keep_duplicates: bool,
    /// Features made up from the graph, in place of any that the generator has: random:D or fastrp:D (a structural
    /// embedding) of D values a row
    #[arg(long, value_name = "KIND:D")]
    pub features: Option<GeneratedFeatures>,
    /// Type of the stored feature values: f32, f16 or bf16
    #[arg(long, value_name = "TYPE", default_value_t = FeatureDtype::F32)]
    pub feature_dtype: FeatureDtype,
}

/// A kind of graph with all its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Generator {
    /// R-MAT: skewed degrees, no labels.
    Rmat(rmat::Options),
    /// Degree-corrected planted partition: communities as labels, features that need the neighbours.
    Community(community::Options),
}

impl Generator {
    fn graph(&self) -> &GraphOptions {
        match self {
            Self::Rmat(options) => &options.graph,
            Self::Community(options) => &options.graph,
        }
    }

    fn random_split(&self) -> RandomSplit {
        match self {
            Self::Rmat(options) => options.random_split,
            Self::Community(options) => options.random_split,
        }
    }

    fn check(&self) -> Result<()> {
        if self.graph().vertices == 0 {
            return Err(Error::Option("--vertices: expected at least 1, got 0".into()));
        }
        match self {
            Self::Rmat(_) => Ok(()),
            Self::Community(options) => options.check(),
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

/// Generates the dataset at `out`. Returns it, and whether a finished one with the same options was there and is reused;
/// any other thing there is refused, unless `force`, which replaces a dataset.
///
/// Memory: 16 bytes an edge drawn and 24 a vertex, more for features of [`GeneratedFeatures::FastRp`].
pub fn generate(generator: &Generator, out: &Path, force: bool, progress: &dyn Progress) -> Result<(Dataset, bool)> {
    generator.check()?;
    let (command, options) = generator.describe();
    let options = options.map_err(|error| Error::Option(format!("options cannot be recorded: {error}")))?;
    if !force && let Some(dataset) = finished(out, command, &options)? {
        return Ok((dataset, true));
    }
    // What stands in the way of writing is better known before the work is done.
    check_target(out, force)?;
    drop(Staging::begin(out, force)?);
    let graph = generator.graph();
    with_room::<[u32; 6]>(graph.vertices as usize, "--vertices")?;
    let order = permute(graph.vertices, &Purpose::Order.key(graph.seed));
    let (built, community) = match generator {
        Generator::Rmat(options) => (build(graph, &order, rmat::Rmat::new(options), progress)?, None),
        Generator::Community(options) => {
            let planted = community::Planted::new(options);
            let communities = planted.communities(&order);
            (build(graph, &order, planted, progress)?, Some((options, communities)))
        }
    };
    let mut writer = DatasetWriter::create(out, force, &built.indptr, &built.indices)?;
    if let Some((options, communities)) = &community {
        writer.add_labels(&options.labels(communities))?;
    }
    match (&graph.features, &community) {
        (Some(features), _) => {
            let mut rows = writer.feature_writer(graph.feature_dtype, features.dim())?;
            features.generate_rows(&built.indptr, &built.indices, graph.seed, &mut rows, progress)?;
            writer.add_features(rows, graph.feature_dtype, Some(features.to_string()))?;
        }
        (None, Some((options, communities))) => {
            let mut rows = writer.feature_writer(graph.feature_dtype, options.feature_dim as usize)?;
            options.write_features(communities, &mut rows, progress)?;
            writer.add_features(rows, graph.feature_dtype, Some(format!("community:{}", options.feature_dim)))?;
        }
        (None, None) => {}
    }
    let splits = generator.random_split().draw(order.len(), None, graph.seed);
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
    let tool_version = env!("CARGO_PKG_VERSION").to_string();
    let command = command.to_string();
    Ok((writer.finish(Provenance { tool_version, command, options, sources: Vec::new(), facts })?, false))
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

/// Draws all edges of `model` and builds the graph; position `p` becomes vertex `order[p]`.
fn build(graph: &GraphOptions, order: &[u32], model: impl Model, progress: &dyn Progress) -> Result<Built> {
    let mut sources = zeroed::<u32>(graph.edges as usize, "--edges")?;
    let mut targets = zeroed::<u32>(graph.edges as usize, "--edges")?;
    let stage = progress.stage("drawing edges", Some(graph.edges), Unit::Items("edges"));
    let tasks = sources.par_chunks_mut(EDGES_PER_TASK).zip(targets.par_chunks_mut(EDGES_PER_TASK));
    tasks.enumerate().for_each(|(task, (sources, targets))| {
        for (i, (source, target)) in sources.iter_mut().zip(targets.iter_mut()).enumerate() {
            let (from, to) = model.edge((task * EDGES_PER_TASK + i) as u64);
            (*source, *target) = (order[from as usize], order[to as usize]);
        }
        stage.advance(sources.len() as u64);
    });
    drop(stage);
    let options = BuildOptions {
        symmetrise: !graph.directed,
        drop_self_loops: !graph.keep_self_loops,
        keep_duplicates: graph.keep_duplicates,
    };
    build_csc(order.len(), sources, targets, options, progress)
}

#[cfg(test)]
mod tests;
