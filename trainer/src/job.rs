//! Everything the ranks of a run share, opened and checked before the first mini-batch.

use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_kernels::Graph;
use gsplit_store::{Column, Dataset, FeatureTable, PartitionMap, Split};

use crate::batch::Ownership;
use crate::config::{Parallelism, TrainConfig};
use crate::metric::Metric;
use crate::task::{Labels, Shape};
use crate::{Error, Result};

/// The artifacts of a run, mapped once.
pub struct Artifacts {
    partition: Option<PartitionMap>,
}

/// A run's inputs, as every rank sees them.
pub struct Job<'a> {
    /// What to do.
    pub config: &'a TrainConfig,
    /// In-neighbours.
    pub graph: Graph<'a>,
    /// Feature rows.
    pub features: FeatureTable,
    /// Classes of the vertices.
    pub labels: Labels,
    /// Number of classes.
    pub classes: usize,
    /// How the valid and test splits are scored.
    pub metric: Metric,
    /// Seeds.
    pub train: Column<u32>,
    /// Vertices of the valid split, if there is one.
    pub valid: Option<Column<u32>>,
    /// Vertices of the test split, if there is one.
    pub test: Option<Column<u32>>,
    /// Who owns which vertex.
    pub ownership: Ownership<'a>,
    /// Becomes true when the run is to stop.
    pub stop: Option<&'static AtomicBool>,
}

impl Artifacts {
    /// Finds and opens the partition map that `config` needs.
    pub fn open(dataset: &Dataset, config: &TrainConfig) -> Result<Self> {
        let partition = match config.parallelism {
            Parallelism::Split => Some(find_partition(dataset, config)?),
            _ => None,
        };
        Ok(Self { partition })
    }

    /// The partition map in use.
    pub fn partition(&self) -> Option<&PartitionMap> {
        self.partition.as_ref()
    }
}

impl<'a> Job<'a> {
    /// Opens what training needs and checks that it fits together.
    pub fn new(
        dataset: &'a Dataset,
        artifacts: &'a Artifacts,
        config: &'a TrainConfig,
        stop: Option<&'static AtomicBool>,
    ) -> Result<Self> {
        let problem = |problem: String| Error::Data { path: dataset.path().to_path_buf(), problem };
        let topology = dataset.topology();
        topology.check_indices()?;
        let (features, labels) = (dataset.features()?, Labels::open(dataset)?);
        let metric = config.task.metric.unwrap_or_else(|| Metric::of(&labels));
        metric.check(&labels)?;
        let train = dataset.split(Split::Train)?;
        if train.is_empty() {
            return Err(problem("the train split is empty: convert it with another split".into()));
        }
        if !train.iter().any(|&v| labels.is_labelled(v)) {
            return Err(problem("no vertex of the train split has a label: convert it with another split".into()));
        }
        let optional = |split: Split| match dataset.manifest().splits().contains(&split) {
            true => dataset.split(split).map(Some),
            false => Ok(None),
        };
        Ok(Self {
            config,
            graph: Graph::new(topology.indptr(), topology.indices())?,
            features,
            classes: labels.classes(),
            metric,
            labels,
            train,
            valid: optional(Split::Valid)?,
            test: optional(Split::Test)?,
            stop,
            ownership: config.parallelism.ownership(artifacts.partition.as_ref().map(PartitionMap::assignment)),
        })
    }
}

impl Job<'_> {
    /// What the model reads and returns.
    pub fn shape(&self) -> Shape {
        Shape { features: self.features.dim(), outputs: self.classes, several: self.labels.several() }
    }

    /// Fails once the caller has asked to stop.
    pub fn check_stop(&self) -> Result<()> {
        match self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

/// The partition that was named, or the only one with as many parts as there are ranks.
fn find_partition(dataset: &Dataset, config: &TrainConfig) -> Result<PartitionMap> {
    let ranks = config.num_ranks();
    if let Some(key) = &config.partition {
        let map = PartitionMap::open(dataset, key)?;
        return match map.num_parts() == ranks {
            true => Ok(map),
            false => Err(Error::Option(format!(
                "--partition {key} has {} parts, --ranks is {ranks}: split needs one part a rank",
                map.num_parts()
            ))),
        };
    }
    let (mut fitting, mut unfit, mut refused) = (Vec::new(), Vec::new(), None);
    for key in dataset.keys("partition")? {
        match PartitionMap::open(dataset, &key) {
            Ok(map) if map.num_parts() == ranks => fitting.push(map),
            Ok(map) => unfit.push(format!("{key} into {}", map.num_parts())),
            Err(error) => refused = Some(error),
        }
    }
    if fitting.len() > 1 {
        let keys: Vec<&str> = fitting.iter().map(PartitionMap::key).collect();
        let keys = keys.join(", ");
        return Err(Error::Option(format!(
            "several partitions have {ranks} parts: choose with --partition among {keys}"
        )));
    }
    match (fitting.pop(), refused) {
        (Some(map), _) => Ok(map),
        (None, Some(error)) => Err(error.into()),
        (None, None) => {
            let there = if unfit.is_empty() { "none".to_string() } else { unfit.join(", ") };
            let problem = format!(
                "has no partition into {ranks} parts (there are: {there}): run `gsplit partition --parts {ranks}`"
            );
            Err(Error::Data { path: dataset.path().to_path_buf(), problem })
        }
    }
}
