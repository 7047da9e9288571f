//! What crosses between ranks.

use serde::{Deserialize, Serialize};

use super::{Device, ModelKind, TrainConfig};
use crate::{Error, Result};

/// What partial sums need of a model.
const SUMMING: &str = "sum its sources' rows: choose sage, gcn, resgcn, sgc or gin, or --exchange auto";

/// What crosses between ranks that split a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ExchangeKind {
    /// Each source row that a rank needs, once
    #[default]
    Rows,
    /// For each target one sum of its source rows that another rank owns
    Sums,
    /// For each pair of ranks and layer what is fewer; rows where the model does not sum them
    Auto,
}

/// Which partial sums cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Between two ranks only where they are fewer than the rows.
    pub where_fewer: bool,
    /// Row u counts 1 / √(d(u) + 1) times in them, with d the in-degree in the graph, as a graph convolution has it.
    pub by_degree: bool,
}

impl TrainConfig {
    /// What is wrong with what crosses between ranks, if anything.
    pub(super) fn exchange_problem(&self) -> Option<String> {
        let exchange = match self.exchange {
            ExchangeKind::Rows => return None,
            ExchangeKind::Sums => "--exchange sums",
            ExchangeKind::Auto => "--exchange auto",
        };
        if !self.parallelism.splits() {
            Some(format!(
                "{exchange} is for --parallelism split or cooperative: under {} leave it out",
                self.parallelism
            ))
        } else if self.device == Device::Cuda {
            Some(format!("{exchange}: ranks on GPUs exchange rows alone: leave it out, or choose --device cpu"))
        } else if self.exchange == ExchangeKind::Sums && !self.model.kind.sums_sources() {
            Some(format!("{exchange}: this --model does not {SUMMING}"))
        } else {
            None
        }
    }

    /// The partial sums that cross between ranks, if any do. Layers of a program's `own` may do anything with their sources' rows.
    ///
    /// # Errors
    /// [`Error::Option`] where sums are asked for that such layers may not allow.
    pub(crate) fn sums(&self, own: bool) -> Result<Option<Sums>> {
        let where_fewer = match self.exchange {
            ExchangeKind::Rows => return Ok(None),
            ExchangeKind::Sums if own => {
                return Err(Error::Option(format!("--exchange sums: own layers may not {SUMMING}")));
            }
            ExchangeKind::Sums => false,
            ExchangeKind::Auto => true,
        };
        let by_degree = matches!(self.model.kind, ModelKind::Gcn | ModelKind::Resgcn | ModelKind::Sgc);
        Ok((!own && self.model.kind.sums_sources()).then_some(Sums { where_fewer, by_degree }))
    }

    /// What there is to say where only rows cross though sums might.
    pub(crate) fn exchange_note(&self, own: bool) -> Option<String> {
        let rows = self.exchange == ExchangeKind::Auto && (own || !self.model.kind.sums_sources());
        rows.then(|| "note: --exchange auto: this model may not sum its sources' rows, so rows alone cross".to_string())
    }
}
