//! What a user chooses about a partition.

use clap::ValueEnum;
use serde::Serialize;

use crate::{Error, Quality, Result};

/// Most parts a partition can have: parts are stored as 16-bit numbers.
const MAX_PARTS: u32 = 65_535;

/// Who partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Multilevel k-way partitioning, built in: as few and light edges between balanced parts, faster and in less memory
    Multilevel,
    /// Multilevel k-way partitioning with the METIS library: few and light edges between balanced parts
    Metis,
    /// Every vertex into a random part, parts of equal size: the baseline to beat
    Random,
    /// The hash of the vertex id chooses its part: needs no memory and no graph, sizes vary
    Hash,
}

impl Method {
    /// Whether it looks at weights, and balances them.
    pub(crate) fn weighs(self) -> bool {
        matches!(self, Self::Multilevel | Self::Metis)
    }
}

/// What is balanced and cut, by the names of GSplit's section 6.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// GSplit: vertices and edges weigh what pre-sampling counted
    Presampled,
    /// Node: vertices weigh what pre-sampling counted, edges weigh 1
    Vertex,
    /// Edge: balances in-edges and training vertices, edges weigh 1
    Degree,
    /// Vertices and edges weigh 1
    Unit,
}

impl Weights {
    /// Whether pre-sample counters are needed.
    pub fn need_presample(self) -> bool {
        matches!(self, Self::Presampled | Self::Vertex)
    }
}

/// Which pre-sample counter is the load of a vertex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Appearances of the vertex at any layer, as in the paper
    Appear,
    /// Sampled in-edges of the vertex, as in the paper's code
    #[default]
    Work,
}

/// Options of [`partition`](crate::partition()).
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct PartitionOptions {
    /// Number of parts, one for each rank that will train
    #[arg(long, value_name = "K")]
    pub parts: u32,
    /// Who partitions
    #[arg(long, value_enum, default_value_t = Method::Multilevel)]
    pub partitioner: Method,
    /// How much work goes into a small cut [default: default] (multilevel only)
    #[arg(long, value_enum)]
    pub quality: Option<Quality>,
    /// What is balanced and cut [default: presampled] (multilevel and METIS)
    #[arg(long, value_enum)]
    pub weights: Option<Weights>,
    /// Which pre-sample counter is a vertex's load, for --weights presampled and vertex
    #[arg(long, value_enum, default_value_t)]
    pub load: Load,
    /// Allowed imbalance: the heaviest part weighs at most 1 + EPSILON times the mean (multilevel and METIS)
    #[arg(long, default_value_t = 0.03)]
    pub epsilon: f64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl PartitionOptions {
    /// Fails on values that make no sense whatever the graph.
    pub fn check(&self) -> Result<()> {
        if self.parts == 0 || self.parts > MAX_PARTS {
            return Err(Error::Option(format!("--parts {}: expected 1 to {MAX_PARTS}", self.parts)));
        }
        if !(self.epsilon > 0.0 && self.epsilon <= 1.0) {
            let problem = "expected a number above 0 and at most 1, as 0.03 for parts at most 3 % above the mean";
            return Err(Error::Option(format!("--epsilon {}: {problem}", self.epsilon)));
        }
        let name = value_name(self.partitioner);
        if !self.partitioner.weighs() && self.weights.is_some() {
            return Err(Error::Option(format!("--weights: --partitioner {name} weighs nothing; leave --weights out")));
        }
        if self.partitioner != Method::Multilevel && self.quality.is_some() {
            return Err(Error::Option(format!("--quality: --partitioner {name} has no such choice; leave it out")));
        }
        Ok(())
    }

    /// What is balanced: [`Weights::Unit`] for the partitioners that know no weights.
    pub fn weights(&self) -> Weights {
        match self.partitioner.weighs() {
            true => self.weights.unwrap_or(Weights::Presampled),
            false => Weights::Unit,
        }
    }

    /// [`PartitionOptions::weights`] in words, as `presampled`; with the load where it is not the default.
    pub fn weights_name(&self) -> String {
        let weights = self.weights();
        match weights.need_presample() && self.load != Load::default() {
            true => format!("{}-{}", value_name(weights), value_name(self.load)),
            false => value_name(weights),
        }
    }

    /// The key under which the result is stored unless the user names one, as `metis-presampled-k4` or `random-k4_s1`.
    pub fn default_key(&self) -> String {
        let mut key = value_name(self.partitioner);
        if let Some(quality) = self.quality.filter(|&quality| quality != Quality::Default) {
            key = format!("{key}-{}", value_name(quality));
        }
        if self.partitioner.weighs() {
            key = format!("{key}-{}", self.weights_name());
        }
        key = format!("{key}-k{}", self.parts);
        match self.seed {
            0 => key,
            seed => format!("{key}_s{seed}"),
        }
    }

    /// The form that is stored with the result.
    pub fn config(&self) -> gsplit_store::PartitionConfig {
        gsplit_store::PartitionConfig {
            parts: self.parts,
            partitioner: value_name(self.partitioner),
            quality: self.quality.filter(|&quality| quality != Quality::Default).map(value_name),
            weights: self.weights_name(),
            epsilon: self.epsilon,
            seed: self.seed,
        }
    }
}

/// The name of a choice on the command line.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
