//! The task, and the samples of a mini-batch.

use gsplit_kernels::schedule::Fanouts;
use gsplit_store::text::from_text;
use serde::{Deserialize, Serialize};

use super::{DrawConfig, TaskConfig};

/// The task, and the samples of a mini-batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// The task
    #[cfg_attr(feature = "cli", command(flatten))]
    pub task: TaskConfig,
    /// In-neighbours sampled for each vertex, from the seeds' layer downwards; `all` takes every
    /// one. Relations may have their own: `10+cites=5,10`
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().fanouts))]
    #[serde(deserialize_with = "from_text")]
    pub fanouts: Fanouts,
    /// Draw in-neighbours with probabilities that grow with this edge column, e.g. `weight`,
    /// without replacement; edges with 0 are left out of the graph. Sums are corrected for it.
    /// Always drawn on the host, also for GPUs [default: all with the same probability]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    pub draw_by: Option<String>,
    /// Options of the drawing of in-neighbours
    #[cfg_attr(feature = "cli", command(flatten))]
    pub draw: DrawConfig,
    /// Multiply each in-neighbour's row by this edge column where rows are summed, in evaluation
    /// and `infer` too: for sage, gcn, resgcn, sgc and gin. Means divide by the number of edges;
    /// the degrees of gcn, resgcn and sgc are sums of the weights over the whole graph
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    pub edge_weights: Option<String>,
    /// Seeds of a mini-batch, over all ranks together
    #[cfg_attr(feature = "cli", arg(long, default_value_t = Self::default().batch_size))]
    pub batch_size: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            task: TaskConfig::default(),
            fanouts: Fanouts::default(),
            draw_by: None,
            draw: DrawConfig::default(),
            edge_weights: None,
            batch_size: 1024,
        }
    }
}
