//! Partition maps: the part of every vertex, and the order in which each part's vertices deserve a
//! cache slot.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::artifact::{self, Artifact, artifact};
use crate::document;
use crate::staging::Staging;
use crate::{Checksum, Column, Dataset, Error, Files, MadeFrom, Presample, Result, write_npy};

/// The options that a partition was made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionConfig {
    /// Number of parts.
    pub parts: u32,
    /// Number of servers, with the same number of parts on each: part p on server p / (parts /
    /// servers). Left out if it is 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub servers: u32,
    /// Target of each part, in proportion; left out where all are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<f64>>,
    /// The algorithm, e.g. `metis`.
    pub partitioner: String,
    /// Weights that the algorithm balances and cuts, e.g. `presampled`.
    pub weights: String,
    /// Allowed imbalance: the heaviest part weighs at most 1 + ε times the mean, or times its
    /// target.
    pub epsilon: f64,
    /// Seed of the algorithm.
    pub seed: u64,
    /// Further origin besides the graph: the name of an imported file, or the key and the checksum
    /// of the partition that was refined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

fn one() -> u32 {
    1
}

fn is_one(servers: &u32) -> bool {
    *servers == 1
}

/// Largest part over the mean of all parts, or over its target, for each thing a part can have too
/// much of. 1 is perfect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balance {
    /// Vertices.
    pub vertices: f64,
    /// In-edges.
    pub edges: f64,
    /// Vertices of the training split.
    pub targets: Option<f64>,
    /// Pre-sampled work: sampled in-edges.
    pub work: Option<f64>,
}

/// Cut between parts on different servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerCut {
    /// Pairs of adjacent vertices on different servers.
    pub cut: u64,
    /// Pre-sampled edge counts between servers; the plain number of edges where no presample was
    /// used.
    pub weighted_cut: u64,
    /// Expected fraction of a mini-batch's sampled edges that join two servers.
    pub expected_cross_share: f64,
    /// Expected number of such edges in a mini-batch, where a presample was used.
    pub expected_cross_edges: Option<f64>,
}

/// Connected pieces, directions ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pieces {
    /// Pieces of all parts together: each part is in one piece where they are as many as the parts.
    pub parts: u64,
    /// Pieces of the graph.
    pub graph: u64,
}

/// A partition in the weights that came with the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnWeightsReport {
    /// Heaviest part over the mean, or over its target, for each column of weights of vertices.
    pub vertices: BTreeMap<String, f64>,
    /// Weight of the pairs of adjacent vertices in different parts, where edges have weights. A
    /// pair weighs what its edges weigh together; half of it where every edge is stored in both
    /// directions, with one weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<f64>,
    /// Weight of all pairs of adjacent vertices, where edges have weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Columns that the partitioner neither balanced nor cut by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<String>,
}

/// Quality of a partition. The same input gives the same report: times and memory are printed, not
/// stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionReport {
    /// Vertices of each part.
    pub part_sizes: Vec<u64>,
    /// Pairs of adjacent vertices in different parts (self-loops and directions ignored).
    pub cut: u64,
    /// Pairs of adjacent vertices.
    pub adjacent_pairs: u64,
    /// Pre-sampled edge counts between parts; the plain number of edges where no presample was
    /// used.
    pub weighted_cut: u64,
    /// Pre-sampled edge counts in all, self-loops included.
    pub total_weight: u64,
    /// Heaviest part over the mean, or over its target, by the vertex weights that the partitioner
    /// balanced (the worst of several).
    pub imbalance: f64,
    /// Load of each part over its target, by those weights, the worst of several; where parts have
    /// targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_target: Option<Vec<f64>>,
    /// Balance of what matters.
    pub balance: Balance,
    /// Expected fraction of a mini-batch's sampled edges that join two parts.
    pub expected_cross_share: f64,
    /// Expected number of such edges in a mini-batch, where a presample was used.
    pub expected_cross_edges: Option<f64>,
    /// The part of the cut between servers, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_servers: Option<ServerCut>,
    /// Connected pieces, where the graph is small enough to count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<Pieces>,
    /// Quality in the weights that came with the graph, where it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_weights: Option<OwnWeightsReport>,
}

/// Content of `partition.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionMeta {
    /// The graph, and the presample where one was used.
    pub made_from: MadeFrom,
    /// The options that were asked for.
    pub config: PartitionConfig,
    /// The resulting quality.
    pub report: PartitionReport,
    /// `assignment.npy` and `cache_order.npy`.
    pub files: Files,
    /// Version of gsplit.
    pub tool_version: String,
}

artifact!(PartitionMeta, PartitionMap, PartitionConfig, "partition", "partition");

/// A stored partition of a dataset, mapped.
#[derive(Clone, Debug)]
pub struct PartitionMap {
    key: String,
    meta: PartitionMeta,
    checksum: Checksum,
    assignment: Column<u16>,
    cache_order: Column<u32>,
}

impl PartitionMap {
    /// Stores a partition under `key`: `assignment` holds the part of each vertex; `cache_order`
    /// holds the vertices of part 0 by falling benefit of caching them, then the vertices of part
    /// 1, and so on. Refuses an existing key, unless `replace`.
    pub fn save(
        dataset: &Dataset,
        key: &str,
        presample: Option<&Presample>,
        config: PartitionConfig,
        report: PartitionReport,
        assignment: &[u16],
        cache_order: &[u32],
        replace: bool,
    ) -> Result<Self> {
        let staging = Staging::begin(Self::target(dataset, key), replace)?;
        let mut files = Files::new();
        files.insert(
            "assignment.npy".into(),
            write_npy(staging.path("assignment.npy"), assignment)?,
        );
        files.insert(
            "cache_order.npy".into(),
            write_npy(staging.path("cache_order.npy"), cache_order)?,
        );
        let made_from = MadeFrom::with(dataset, presample);
        let tool_version = env!("CARGO_PKG_VERSION").to_string();
        let meta = PartitionMeta { made_from, config, report, files, tool_version };
        document::write(&staging.path(PartitionMeta::FILE), &meta)?;
        staging.commit()?;
        Self::open(&dataset.unchecked(), key)
    }

    /// Opens the partition `key` of `dataset`; one of another graph is refused.
    pub fn open(dataset: &Dataset, key: &str) -> Result<Self> {
        let (meta, checksum) = artifact::open::<PartitionMeta>(dataset, key)?;
        let folder = Self::folder(dataset, key);
        let map = Self {
            key: key.to_string(),
            assignment: Column::open(folder.join("assignment.npy"))?,
            cache_order: Column::open(folder.join("cache_order.npy"))?,
            meta,
            checksum,
        };
        map.check(dataset.num_vertices())?;
        Ok(map)
    }

    /// Checks that every vertex has a part, every part has a vertex, and the sizes match the
    /// report.
    fn check(&self, n: usize) -> Result<()> {
        let (parts, servers) = (self.num_parts(), self.meta.config.servers as usize);
        let corrupt = |problem: String| Err(Error::corrupt(self.assignment.path(), problem));
        if servers == 0 || !parts.is_multiple_of(servers) {
            return corrupt(format!(
                "{parts} parts on {servers} servers, expected the same number on each"
            ));
        }
        let lengths = (self.assignment.len(), self.cache_order.len());
        if lengths != (n, n) {
            return corrupt(format!(
                "expected {n} parts and {n} vertices in cache order, found {lengths:?}"
            ));
        }
        let mut sizes = vec![0u64; parts];
        for &part in self.assignment.iter() {
            match sizes.get_mut(part as usize) {
                Some(size) => *size += 1,
                None => return corrupt(format!("part {part}, expected parts below {parts}")),
            }
        }
        if sizes.contains(&0) {
            return corrupt(format!("parts of sizes {sizes:?}: one is empty"));
        }
        if sizes != self.meta.report.part_sizes {
            return corrupt(format!(
                "parts of sizes {sizes:?}, the report says {:?}",
                self.meta.report.part_sizes
            ));
        }
        Ok(())
    }

    /// Number of parts.
    pub fn num_parts(&self) -> usize {
        self.meta.config.parts as usize
    }

    /// Number of servers, with the same number of parts on each.
    pub fn num_servers(&self) -> usize {
        self.meta.config.servers as usize
    }

    /// The server of `part`.
    pub fn server_of(&self, part: u16) -> u16 {
        part / (self.num_parts() / self.num_servers()).max(1) as u16
    }

    /// The part of each vertex.
    pub fn assignment(&self) -> &[u16] {
        &self.assignment
    }

    /// Fails unless each part's cache order holds only vertices of that part, each once. Not
    /// checked on opening.
    pub fn check_cache_order(&self) -> Result<()> {
        let mut seen = vec![false; self.assignment.len()];
        for part in 0..self.num_parts() {
            let mut fresh = |v: u32| {
                seen.get_mut(v as usize).is_some_and(|seen| !std::mem::replace(seen, true))
            };
            let mut is_own =
                |v: &u32| fresh(*v) && usize::from(self.assignment[*v as usize]) == part;
            if let Some(v) = self.cache_order(part).iter().copied().find(|v| !is_own(v)) {
                let problem = format!("cache order of part {part}: vertex {v} is not its own");
                return Err(Error::corrupt(self.cache_order.path(), problem));
            }
        }
        Ok(())
    }

    /// The vertices of `part` by falling benefit of caching them. Panics if the part does not
    /// exist.
    pub fn cache_order(&self, part: usize) -> &[u32] {
        let sizes = &self.meta.report.part_sizes;
        let start: u64 = sizes[..part].iter().sum();
        &self.cache_order[start as usize..(start + sizes[part]) as usize]
    }
}
