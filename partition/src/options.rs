//! What a user chooses about a partition.

use clap::ValueEnum;
use serde::Serialize;

use crate::{Error, Result};

/// Most parts a partition can have: parts are stored as 16-bit numbers.
const MAX_PARTS: u32 = 65_535;

/// Who partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Multilevel k-way partitioning with the METIS library: few and light edges between balanced parts
    Metis,
    /// Every vertex into a random part, parts of equal size: the baseline to beat
    Random,
    /// The hash of the vertex id chooses its part: needs no memory and no graph, sizes vary
    Hash,
}

/// What METIS balances and cuts, by the names of GSplit's section 6.3.
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
    #[arg(long, value_enum, default_value_t = Method::Metis)]
    pub partitioner: Method,
    /// What METIS balances and cuts [default: presampled]
    #[arg(long, value_enum)]
    pub weights: Option<Weights>,
    /// Which pre-sample counter is a vertex's load, for --weights presampled and vertex
    #[arg(long, value_enum, default_value_t)]
    pub load: Load,
    /// Allowed imbalance: the heaviest part weighs at most 1 + EPSILON times the mean (METIS only)
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
        if self.partitioner != Method::Metis && self.weights.is_some() {
            let name = value_name(self.partitioner);
            return Err(Error::Option(format!("--weights: --partitioner {name} weighs nothing; leave --weights out")));
        }
        Ok(())
    }

    /// What is balanced: [`Weights::Unit`] for the partitioners that know no weights.
    pub fn weights(&self) -> Weights {
        match self.partitioner {
            Method::Metis => self.weights.unwrap_or(Weights::Presampled),
            Method::Random | Method::Hash => Weights::Unit,
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
        if self.partitioner == Method::Metis {
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
            weights: self.weights_name(),
            epsilon: self.epsilon,
            seed: self.seed,
        }
    }
}

/// The name of a choice on the command line.
fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}
