//! Task of a model: the labels or links, the loss of a mini-batch and its gradient.
//!
//! The loss is one more boundary between layers: it takes the rows that the last layer returned,
//! and returns its value and the gradient of those rows.

pub mod links;
mod nodes;
mod weights;

pub use links::{LinkBatch, LinkSplit, is_known};
pub use nodes::{NodeTargets, NodeTask};
pub(crate) use weights::ALL_UNLABELLED;

use gsplit_kernels::Communicator;
use gsplit_store::{GraphTypes, Links};
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::Result;
use crate::metric::Metric;
use crate::metric::labels::Labels;
use crate::model::{DropoutKey, Model};

/// Task that is learnt.
pub enum Task<'a> {
    /// Classes or numbers of vertices.
    Nodes(Box<NodeTask>),
    /// Links.
    Links(&'a LinkSplit),
}

impl Task<'_> {
    /// The labels, unless the task is link prediction.
    pub fn labels(&self) -> Option<&Labels> {
        match self {
            Self::Nodes(task) => Some(&task.labels),
            Self::Links(_) => None,
        }
    }

    /// The metric `asked` for, or else the default of the labels or links.
    pub fn metric(&self, asked: Option<Metric>) -> Result<Metric> {
        match self {
            Self::Nodes(task) => {
                let metric = asked.unwrap_or_else(|| Metric::of(&task.labels));
                metric.check(&task.labels).map(|()| metric)
            }
            Self::Links(links) => Metric::of_links(asked, links.links().map(Links::info)),
        }
    }
}

/// Targets of a mini-batch.
pub enum Targets<'a> {
    /// The labels of its seeds.
    Nodes(NodeTargets<'a>),
    /// Whether pairs of vertices are edges.
    Links(Box<LinkBatch>),
}

impl Targets<'_> {
    /// Weight of this global mini-batch in the mean loss of an epoch: that of its labelled seeds,
    /// or the number of its pairs.
    pub fn weight(&self) -> f64 {
        match self {
            Self::Nodes(targets) => targets.weight,
            Self::Links(batch) => batch.num_pairs() as f64,
        }
    }

    /// The loss of `seeds`, for which the last layer of `model` returned `rows`, f32 `[seeds,
    /// outputs]`, and the gradient of `scale` times the loss. Collective.
    pub fn loss(
        &self,
        model: &Model,
        rows: &Tensor,
        seeds: &[u32],
        dropout: DropoutKey,
        scale: f32,
        comm: &dyn Communicator,
    ) -> Result<Loss> {
        match self {
            Self::Nodes(targets) => targets.loss(model.place(), rows, seeds, scale),
            Self::Links(batch) => batch.loss(model, rows, dropout, scale, comm),
        }
    }
}

/// Loss of a mini-batch on this rank, and its score.
#[derive(Debug, Default)]
pub struct Loss {
    /// f64 `[2]`, at the place of the rows or on the host; `None` means that both are 0. First this
    /// rank's part of the global mini-batch's mean loss; the parts add up to it. Then the number of
    /// right decisions: a class per labelled seed; yes or no for each of its classes if it can have
    /// several, and for each pair of vertices; 0 for numbers. Reading them waits for them.
    pub numbers: Option<Tensor>,
    /// Number of decisions.
    pub counted: u64,
    /// Gradient of the scaled loss with respect to the rows; `None` if this rank has no seeds.
    pub gradient: Option<Tensor>,
}

/// Shape of a model's input and output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Width of the feature rows.
    pub features: usize,
    /// Width of the last layer's rows.
    pub outputs: usize,
    /// Whether the outputs are a yes or no for each class, instead of one choice among them.
    pub several: bool,
    /// Types of vertices and relations, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<GraphTypes>,
}
