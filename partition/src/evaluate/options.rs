//! Options: the mini-batches that a partition is measured on.

use std::fmt;

use gsplit_kernels::schedule::Fanouts;
use gsplit_store::Presample;
use serde::Serialize;

use crate::{Error, Result};

/// Most mini-batches of one evaluation: their counts are kept until the end.
const MAX_BATCHES: u32 = 100_000;

/// Options of a user; those left out come from the presample.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct Options {
    /// Mini-batches to measure on
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().batches, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_BATCHES))))]
    pub batches: u32,
    /// In-neighbours sampled for a vertex at each layer, from the seeds downwards [default: the
    /// presample's]
    #[cfg_attr(feature = "cli", arg(long, value_name = "F1,F2,.."))]
    pub fanouts: Option<Fanouts>,
    /// Seeds of a mini-batch [default: the presample's]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..)))]
    pub batch_size: Option<u64>,
    /// Seed of the mini-batches and of the random partition; training with it begins with the same
    /// mini-batches [default: one more than the presample's]
    #[cfg_attr(feature = "cli", arg(long))]
    pub seed: Option<u64>,
    /// Draw in-neighbours with probabilities that grow with this edge column [default: the
    /// presample's, or all alike]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    pub draw_by: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { batches: 200, fanouts: None, batch_size: None, seed: None, draw_by: None }
    }
}

/// The mini-batches to measure on: the first ones that training with this seed draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Fanout of each layer, from the seeds downwards.
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch; the last one of an epoch may have fewer.
    pub batch_size: u64,
    /// Number of mini-batches.
    pub batches: u32,
    /// Seed of all draws. They are of other epochs than a presample's, so even under its seed they
    /// are fresh.
    pub seed: u64,
    /// The edge column in-edges are drawn by; `None` where all are alike.
    pub draw_by: Option<String>,
}

impl Options {
    /// The options completed from `presample`.
    ///
    /// Fails if there is no presample and fanouts or batch size are left out, and if the
    /// presample's are damaged.
    pub fn setting(&self, presample: Option<&Presample>) -> Result<Setting> {
        let config = presample.map(|presample| &presample.meta().config);
        let missing = |option: &str| {
            let remedy = "pass --fanouts and --batch-size, or name a presample with --presample";
            Error::Option(format!("{option}: no presample says what it is; {remedy}"))
        };
        let fanouts = match (&self.fanouts, config) {
            (Some(fanouts), _) => fanouts.clone(),
            (None, Some(config)) => config.fanouts.parse()?,
            (None, None) => return Err(missing("--fanouts")),
        };
        if let Some(presample) =
            presample.filter(|presample| presample.meta().config.negatives.is_some())
        {
            let key = presample.key();
            return Err(Error::Option(format!(
                "--presample {key}: is of edges, and mini-batches of vertices are measured: name \
                 another presample"
            )));
        }
        let batch_size = self.batch_size.or(config.map(|config| config.batch_size));
        let setting = Setting {
            fanouts,
            batch_size: batch_size.ok_or_else(|| missing("--batch-size"))?,
            batches: self.batches,
            seed: self
                .seed
                .unwrap_or_else(|| config.map_or(0, |config| config.seed).wrapping_add(1)),
            draw_by: self
                .draw_by
                .clone()
                .or_else(|| config.and_then(|config| config.draw_by.clone())),
        };
        setting.check()?;
        Ok(setting)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fanouts, batch_size, batches, seed, draw_by } = self;
        write!(f, "{batches} mini-batches of {batch_size} seeds, fanouts {fanouts}, seed {seed}")?;
        draw_by.as_ref().map_or(Ok(()), |column| write!(f, ", drawn by {column}"))
    }
}

impl Setting {
    /// Fails on values that make no sense whatever the graph.
    pub(super) fn check(&self) -> Result<()> {
        if self.batch_size == 0 {
            return Err(Error::Option("--batch-size: expected at least 1, got 0".into()));
        }
        if self.batches == 0 || self.batches > MAX_BATCHES {
            return Err(Error::Option(format!(
                "--batches {}: expected 1 to {MAX_BATCHES}",
                self.batches
            )));
        }
        Ok(())
    }

    /// Whether `presample` sampled mini-batches of this kind, so that its expectations apply.
    pub fn is_of(&self, presample: &Presample) -> bool {
        let config = &presample.meta().config;
        let (fanouts, draw_by) = (self.fanouts.to_string(), &self.draw_by);
        (&config.fanouts, config.batch_size, &config.draw_by)
            == (&fanouts, self.batch_size, draw_by)
    }
}
