//! Pre-sample counters: how often training touches each vertex and edge (GSplit, section 4).

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::artifact::{self, Artifact, artifact};
use crate::document;
use crate::staging::Staging;
use crate::{Checksum, Column, Dataset, Error, Files, MadeFrom, Result, write_npy};

/// Content of `presample.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresampleMeta {
    /// The graph and training split it was made from.
    pub made_from: MadeFrom,
    /// Fanouts, batch size, epochs and seed.
    pub config: PresampleConfig,
    /// Mini-batches that were sampled: the counters divided by this are expectations per
    /// mini-batch.
    pub num_batches: u64,
    /// The counters' files.
    pub files: Files,
    /// Version of gsplit.
    pub tool_version: String,
}

/// How the pre-sampling was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresampleConfig {
    /// Fanout of each layer from the seeds downwards, e.g. `15,10,5`.
    pub fanouts: String,
    /// Seeds of a mini-batch.
    pub batch_size: u64,
    /// Passes over the training split.
    pub epochs: u32,
    /// Seed of all draws.
    pub seed: u64,
    /// The edge column in-edges were drawn by; `None` where all were alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw_by: Option<String>,
    /// Number of negative pairs drawn for each edge of a mini-batch; `None` if mini-batches are of
    /// vertices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negatives: Option<u32>,
}

artifact!(PresampleMeta, Presample, PresampleConfig, "presample", "presample");

/// The four counters, in memory. They count different things and are never mixed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Per vertex: mini-batches in which its feature row is loaded. Ranks caches.
    pub input: Vec<u32>,
    /// Per vertex: appearances at any layer (GSplit's vertex weight).
    pub appear: Vec<u32>,
    /// Per vertex: sampled in-edges charged to it, the load in edges.
    pub work: Vec<u32>,
    /// Per edge of the topology: times sampled (GSplit's edge weight).
    pub edge: Vec<u32>,
}

/// A stored pre-sampling of a dataset, mapped.
#[derive(Clone, Debug)]
pub struct Presample {
    key: String,
    meta: PresampleMeta,
    checksum: Checksum,
    input: Column<u32>,
    appear: Column<u32>,
    work: Column<u32>,
    edge: Column<u32>,
}

impl Presample {
    /// Stores `counters` under `key`. Refuses an existing key, unless `replace`.
    pub fn save(
        dataset: &Dataset,
        key: &str,
        config: PresampleConfig,
        num_batches: u64,
        counters: &Counters,
        replace: bool,
    ) -> Result<Self> {
        let staging = Staging::begin(Self::target(dataset, key), replace)?;
        let mut files = Files::new();
        let columns = [
            ("input.npy", &counters.input),
            ("appear.npy", &counters.appear),
            ("work.npy", &counters.work),
            ("edge.npy", &counters.edge),
        ];
        for (name, values) in columns {
            files.insert(name.into(), write_npy(staging.path(name), values)?);
        }
        let tool_version = env!("CARGO_PKG_VERSION").to_string();
        let meta = PresampleMeta {
            made_from: MadeFrom::dataset(dataset),
            config,
            num_batches,
            files,
            tool_version,
        };
        document::write(&staging.path(PresampleMeta::FILE), &meta)?;
        staging.commit()?;
        Self::open(&dataset.unchecked(), key)
    }

    /// Opens the pre-sampling `key` of `dataset`; one of another graph or training split is
    /// refused.
    pub fn open(dataset: &Dataset, key: &str) -> Result<Self> {
        let (meta, checksum) = artifact::open::<PresampleMeta>(dataset, key)?;
        let folder = Self::folder(dataset, key);
        let (n, m) = (dataset.num_vertices(), dataset.topology().num_edges());
        Ok(Self {
            key: key.to_string(),
            meta,
            checksum,
            input: open_counter(&folder, "input.npy", n)?,
            appear: open_counter(&folder, "appear.npy", n)?,
            work: open_counter(&folder, "work.npy", n)?,
            edge: open_counter(&folder, "edge.npy", m)?,
        })
    }

    /// [`Counters::input`].
    pub fn input(&self) -> &[u32] {
        &self.input
    }

    /// [`Counters::appear`].
    pub fn appear(&self) -> &[u32] {
        &self.appear
    }

    /// [`Counters::work`].
    pub fn work(&self) -> &[u32] {
        &self.work
    }

    /// [`Counters::edge`].
    pub fn edge(&self) -> &[u32] {
        &self.edge
    }
}

fn open_counter(folder: &Path, name: &str, expected: usize) -> Result<Column<u32>> {
    let path = folder.join(name);
    let column = Column::open(&path)?;
    if column.len() != expected {
        return Err(Error::corrupt(
            path,
            format!("expected {expected} counters, found {}", column.len()),
        ));
    }
    Ok(column)
}
