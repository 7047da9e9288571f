//! Options of a partition.

use gsplit_store::{Dataset, PartitionConfig, PartitionMap};
use serde::Serialize;

use crate::{Error, Quality, Result};

/// Maximum number of parts: parts are stored as 16-bit numbers.
pub(crate) const MAX_PARTS: u32 = 65_535;
/// Least fraction of the whole that a part may be asked to carry.
const LEAST_TARGET: f64 = 1e-9;

/// Partitioner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Multilevel k-way partitioning, built in: as few and light edges between balanced parts,
    /// faster and in less memory
    Multilevel,
    /// Multilevel k-way partitioning with the METIS library: few and light edges between balanced
    /// parts
    Metis,
    /// Every vertex into a random part, parts of equal size: the baseline to beat
    Random,
    /// The hash of the vertex id chooses its part: needs no memory and no graph, sizes vary
    Hash,
    /// Contiguous ranges of vertices that weigh the same: as good as the order of the ids
    Range,
}

impl Method {
    /// Whether the loads of the vertices decide anything.
    pub(crate) fn weighs(self) -> bool {
        !matches!(self, Self::Random | Self::Hash)
    }
}

/// Weights of vertices, which are balanced, and of cut edges, by the names of GSplit's section 6.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
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
    /// Vertices and edges weigh what came with the graph: in a METIS file, or in columns that
    /// convert's --schema vertex-weights and --schema edge-weights name. Columns of vertices are balanced each by
    /// itself
    Own,
}

impl Weights {
    /// Whether pre-sample counters are needed.
    pub fn need_presample(self) -> bool {
        matches!(self, Self::Presampled | Self::Vertex)
    }
}

/// Pre-sample counter that is the load of a vertex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Appearances of the vertex at any layer, as in the paper
    Appear,
    /// Sampled in-edges of the vertex, as in the paper's code
    #[default]
    Work,
}

/// Something that parts can have too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Vertices
    Vertices,
    /// In-edges
    Edges,
    /// Training vertices
    Targets,
    /// Pre-sampled work: sampled in-edges
    Work,
    /// Pre-sampled appearances at any layer
    Appear,
    /// Weights of vertices that came with the graph, each column by itself
    Own,
}

/// Options of [`partition`](crate::partition()).
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct PartitionOptions {
    /// Number of parts, one for each rank that will train
    // An import, and a partition to refine, say themselves how many: 0 until they were read.
    #[cfg_attr(feature = "cli", arg(
        long,
        value_name = "K",
        required = false,
        required_unless_present_any = ["import", "refine", "targets"],
        default_value_ifs([
            ("import", clap::builder::ArgPredicate::IsPresent, "0"),
            ("targets", clap::builder::ArgPredicate::IsPresent, "0"),
            ("refine", clap::builder::ArgPredicate::IsPresent, "0"),
        ]),
        hide_default_value = true
    ))]
    pub parts: u32,
    /// Target weight of each part, e.g. 2,1,1 for one of half and two of a quarter: numbers above 0
    /// in proportion, as many as there are parts; --parts may be left out [default: parts of equal
    /// weight]
    #[cfg_attr(
        feature = "cli",
        arg(long, value_delimiter = ',', value_name = "T,...", allow_negative_numbers = true)
    )]
    pub targets: Vec<f64>,
    /// Number of servers, with K / N parts each: part p is on server p / (K / N). The cut between
    /// servers is minimised first, then the cut between the parts of each server (multilevel only)
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 1, value_name = "N"))]
    pub servers: u32,
    /// Partitioner to use
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = Method::Multilevel))]
    pub partitioner: Method,
    /// How much work goes into a small cut [default: default] (multilevel only)
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub quality: Option<Quality>,
    /// Improve the partition that is stored under KEY, which stays, instead of beginning anew: its
    /// cut does not grow where it is balanced, with --servers the cut between servers. --parts may
    /// be left out (multilevel only)
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY", value_parser = gsplit_store::artifact_key))]
    pub refine: Option<String>,
    /// Weights to balance, and the cost of cutting an edge [default: presampled; range: unit]
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub weights: Option<Weights>,
    /// Pre-sample counter that is a vertex's load, for --weights presampled and vertex
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub load: Load,
    /// Quantities that the parts share evenly, one or several at once, instead of what --weights
    /// balances. --weights (presampled, unit or own) then only says what cutting an edge costs
    #[cfg_attr(
        feature = "cli",
        arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,...")
    )]
    pub balance: Vec<Quantity>,
    /// Allowed imbalance: the heaviest part weighs at most 1 + EPSILON times the mean, or times its
    /// target (not for random, hash and range)
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.03))]
    pub epsilon: f64,
    /// Seed of all random choices
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,
    /// Ask METIS for parts in one piece each: the graph has to be connected. Balance comes first,
    /// and the report counts `pieces`
    #[cfg_attr(feature = "cli", arg(long))]
    pub contiguous: bool,
    /// Bytes that the process may hold besides mapped files, for multilevel and metis; if `None`,
    /// four fifths of the free memory more.
    #[cfg_attr(feature = "cli", arg(skip))]
    #[serde(skip)]
    pub memory: Option<u64>,
}

impl PartitionOptions {
    /// Fails on values that make no sense whatever the graph.
    pub fn check(&self) -> Result<()> {
        check_cut("--", self.parts, self.epsilon)?;
        self.check_targets()?;
        let (parts, servers) = (self.parts, self.servers);
        if servers == 0 || !parts.is_multiple_of(servers) {
            return Err(Error::Option(format!(
                "--servers {servers}: expected a number that divides --parts {parts}: servers hold \
                 equally many parts"
            )));
        }
        self.check_weights()?;
        let name = value_name(self.partitioner);
        let is_not = |only: Method| self.partitioner != only;
        let bounded = matches!(self.partitioner, Method::Multilevel | Method::Metis);
        for (given, option, wrong) in [
            (self.contiguous, "--contiguous", is_not(Method::Metis)),
            (self.quality.is_some(), "--quality", is_not(Method::Multilevel)),
            (self.refine.is_some(), "--refine", is_not(Method::Multilevel)),
            (self.servers > 1, "--servers", is_not(Method::Multilevel)),
            (self.memory.is_some(), "--memory", !bounded),
        ] {
            if given && wrong {
                return Err(Error::Option(format!(
                    "{option}: --partitioner {name} has no such option; leave it out"
                )));
            }
        }
        Ok(())
    }

    fn check_targets(&self) -> Result<()> {
        let (parts, sum) = (self.parts, self.targets.iter().sum::<f64>());
        let fits = |&target: &f64| target > 0.0 && sum.is_finite() && target / sum >= LEAST_TARGET;
        let is_complete = [0, parts as usize].contains(&self.targets.len());
        match is_complete && self.targets.iter().all(fits) {
            true => Ok(()),
            false => Err(Error::Option(format!(
                "--targets: expected a number above 0 for each of {parts} parts, e.g. 2,1,1, none \
                 less than {LEAST_TARGET} of their sum"
            ))),
        }
    }

    /// Target of each part over their mean; `None` where all are to be equal.
    pub(crate) fn targets_over_mean(&self) -> Option<Vec<f64>> {
        let sum: f64 = self.targets.iter().sum();
        let over_mean = |target: &f64| target * self.targets.len() as f64 / sum;
        (!self.targets.is_empty()).then(|| self.targets.iter().map(over_mean).collect())
    }

    fn check_weights(&self) -> Result<()> {
        let (name, names_all) = (value_name(self.partitioner), !self.balance.is_empty());
        if !self.partitioner.weighs() && (self.weights.is_some() || names_all) {
            let given = if names_all { "--balance" } else { "--weights" };
            return Err(Error::Option(format!(
                "{given}: --partitioner {name} weighs nothing; leave {given} out"
            )));
        }
        let balances = matches!(self.weights, Some(Weights::Vertex | Weights::Degree));
        if names_all && (balances || self.load != Load::default()) {
            return Err(Error::Option(
                "--balance says what is balanced: leave --load out, and choose --weights \
                 presampled, unit or own"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Takes the number of parts, where it was left out, from the targets, or from the partition of
    /// `dataset` that is to be refined. Fails if that is not there.
    pub fn take_parts(&mut self, dataset: &Dataset) -> Result<()> {
        if self.parts == 0 {
            self.parts = self.targets.len() as u32;
        }
        if let (Some(key), 0) = (&self.refine, self.parts) {
            self.parts = PartitionMap::open(dataset, key)?.num_parts() as u32;
        }
        Ok(())
    }

    /// Weights to balance and cut by where no `--balance` says otherwise: [`Weights::Unit`] for the
    /// partitioners that know no weights.
    pub fn weights(&self) -> Weights {
        match self.partitioner {
            Method::Multilevel | Method::Metis => self.weights.unwrap_or(Weights::Presampled),
            Method::Range => self.weights.unwrap_or(Weights::Unit),
            Method::Random | Method::Hash => Weights::Unit,
        }
    }

    /// Quantities that the parts share evenly, in a fixed order.
    pub fn quantities(&self) -> Vec<Quantity> {
        if !self.balance.is_empty() {
            let mut named = self.balance.clone();
            named.sort_unstable();
            named.dedup();
            return named;
        }
        match (self.weights(), self.load) {
            (Weights::Presampled | Weights::Vertex, Load::Work) => vec![Quantity::Work],
            (Weights::Presampled | Weights::Vertex, Load::Appear) => vec![Quantity::Appear],
            (Weights::Degree, _) => vec![Quantity::Edges, Quantity::Targets],
            (Weights::Unit, _) => vec![Quantity::Vertices],
            (Weights::Own, _) => vec![Quantity::Own],
        }
    }

    /// Whether pre-sample counters are needed.
    pub fn need_presample(&self) -> bool {
        let counted = |quantity: &Quantity| matches!(quantity, Quantity::Work | Quantity::Appear);
        self.weights() == Weights::Presampled || self.quantities().iter().any(counted)
    }

    /// [`PartitionOptions::weights`] in words, e.g. `presampled`; with the load if it is not the
    /// default, and with the quantities of `--balance`, e.g. `unit-edges-targets`.
    pub fn weights_name(&self) -> String {
        let weights = self.weights();
        let mut names = vec![value_name(weights)];
        if !self.balance.is_empty() {
            names.extend(self.quantities().into_iter().map(value_name));
        } else if weights.need_presample() && self.load != Load::default() {
            names.push(value_name(self.load));
        }
        names.join("-")
    }

    /// The partitioner in words, e.g. `metis`; with its own options if they are not the default,
    /// e.g. `metis_contiguous`.
    fn partitioner_name(&self) -> String {
        let mut name = value_name(self.partitioner);
        if self.contiguous {
            name = format!("{name}_contiguous");
        }
        if let Some(quality) = self.quality.filter(|&quality| quality != Quality::Default) {
            name = format!("{name}_{}", value_name(quality));
        }
        if let Some(refined) = &self.refine {
            name = format!("{name}_from_{refined}");
        }
        name
    }

    /// The key under which the result is stored unless the user names one, e.g.
    /// `multilevel-presampled-k4` or `random-k4_s1`; `k2x4` are four parts on each of two servers.
    pub fn default_key(&self) -> String {
        let mut key = self.partitioner_name();
        if self.partitioner.weighs() {
            key = format!("{key}-{}", self.weights_name());
        }
        key = match self.servers {
            1 => format!("{key}-k{}", self.parts),
            servers => format!("{key}-k{servers}x{}", self.parts / servers.max(1)),
        };
        if !self.targets.is_empty() {
            let targets: Vec<String> = self.targets.iter().map(f64::to_string).collect();
            key = format!("{key}_t{}", targets.join("-"));
        }
        match self.seed {
            0 => key,
            seed => format!("{key}_s{seed}"),
        }
    }

    /// The form that is stored with the result. Fails where `dataset` has no partition to refine.
    pub fn config(&self, dataset: &Dataset) -> Result<PartitionConfig> {
        let refined =
            self.refine.as_deref().map(|key| PartitionMap::open(dataset, key)).transpose()?;
        Ok(PartitionConfig {
            parts: self.parts,
            servers: self.servers,
            targets: (!self.targets.is_empty()).then(|| self.targets.clone()),
            partitioner: self.partitioner_name(),
            weights: self.weights_name(),
            epsilon: self.epsilon,
            seed: self.seed,
            source: refined.map(|map| format!("{} {}", map.key(), map.checksum())),
        })
    }
}

/// Fails on a number of parts or an imbalance that makes no sense; `dashes` are before the names.
pub(crate) fn check_cut(dashes: &str, parts: u32, epsilon: f64) -> Result<()> {
    if parts == 0 || parts > MAX_PARTS {
        return Err(Error::Option(format!("{dashes}parts {parts}: expected 1 to {MAX_PARTS}")));
    }
    if !(epsilon > 0.0 && epsilon <= 1.0) {
        let expected = "expected a number above 0 and at most 1, e.g. 0.03 for 3 % above the mean";
        return Err(Error::Option(format!("{dashes}epsilon {epsilon}: {expected}")));
    }
    Ok(())
}

/// The name of a choice on the command line.
pub(crate) fn value_name(value: impl Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|name| name.as_str().map(str::to_string))
        .unwrap_or_default()
}
