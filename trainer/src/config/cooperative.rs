//! Server-wise mini-batches that are made once (GraNNDis).

use gsplit_kernels::Fanout;
use gsplit_store::text::option_from_text;
use serde::{Deserialize, Serialize};

use super::{Config, Device};

/// How mini-batches are made under `--parallelism cooperative`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct CooperativeConfig {
    /// With cooperative, the number of mini-batches per epoch; 1 is full-graph training. They are
    /// made once, with all in-edges: --fanouts and --batch-size do not apply [default: 1]
    #[cfg_attr(feature = "cli", arg(long, value_name = "R"))]
    pub batches_per_epoch: Option<usize>,
    /// With cooperative and several servers (--groups), the number of hops beyond its own vertices
    /// that a server reads; the number of layers reads all [default: 1]
    #[cfg_attr(feature = "cli", arg(long, value_name = "HOPS"))]
    pub expansion_hops: Option<usize>,
    /// In-neighbours drawn for each vertex on a hop beyond a server's own vertices; `all` takes
    /// every one. Edges within a server are never left out [default: 15]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FANOUT"))]
    #[serde(deserialize_with = "option_from_text")]
    pub expansion_fanout: Option<Fanout>,
}

impl CooperativeConfig {
    /// Number of mini-batches per epoch.
    pub fn batches(&self) -> usize {
        self.batches_per_epoch.unwrap_or(1)
    }

    /// Number of hops beyond a server's own vertices (GraNNDis, section 4.3: 1).
    pub fn hops(&self) -> usize {
        self.expansion_hops.unwrap_or(1)
    }

    /// Number of in-neighbours drawn on each of these hops (GraNNDis, section 4.3: 15).
    pub fn fanout(&self) -> Fanout {
        self.expansion_fanout.unwrap_or(Fanout::Take(15))
    }

    /// Returns these settings for the number of `servers`, with the defaults filled in.
    pub(super) fn effective(&self, servers: usize) -> Self {
        let beyond = servers > 1;
        Self {
            batches_per_epoch: Some(self.batches()),
            expansion_hops: beyond.then(|| self.hops()),
            expansion_fanout: beyond.then(|| self.fanout()),
        }
    }
}

impl Config {
    /// Returns the problem with these options, or with a run whose mini-batches are made once, if
    /// any.
    pub(super) fn cooperative_problem(&self) -> Option<String> {
        let CooperativeConfig { batches_per_epoch, expansion_hops, expansion_fanout } =
            &self.system.cooperative;
        let parallelism = self.system.parallelism;
        if !parallelism.cooperates() {
            return None;
        }
        let expands = expansion_hops.is_some() || expansion_fanout.is_some();
        let problem = if *batches_per_epoch == Some(0) {
            "--batches-per-epoch 0: expected 1 or more".to_string()
        } else if expands && self.system.groups == 1 {
            "--expansion-hops, --expansion-fanout: there is nothing beyond one server: leave them \
             out, or give --groups"
                .into()
        } else if self.system.device == Device::Cuda {
            "mini-batches that are made once are for CPUs only: choose --device cpu".into()
        } else if self.data.task.is_link() {
            "mini-batches that are made once are of vertices: leave --task link out, or choose \
             another parallelism"
                .into()
        } else if self.data.draw_by.is_some() {
            "all in-edges within a server are taken, none are drawn: leave --draw-by out".into()
        } else if self.data.edge_weights.is_some() {
            "--edge-weights are not read for mini-batches that are made once: leave it out".into()
        } else {
            return None;
        };
        Some(format!("--parallelism {parallelism}: {problem}"))
    }
}
