//! Task of a model: the labels or links, the loss of a mini-batch and its gradient.
//!
//! The loss is one more boundary between layers: it is given the rows that the last layer returned, and returns its value
//! with the gradient of those rows.

pub mod links;
mod nodes;
mod weights;

pub use links::{LinkBatch, LinkSplit, is_known};
pub use nodes::{NodeTargets, NodeTask};

use gsplit_kernels::Communicator;
use gsplit_store::Links;
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
    /// The labels, unless links are learnt.
    pub fn labels(&self) -> Option<&Labels> {
        match self {
            Self::Nodes(task) => Some(&task.labels),
            Self::Links(_) => None,
        }
    }

    /// The metric that is `asked` for, else the one that the labels or links call for.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if it is not defined for them.
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
    /// Weight of the mean loss of the global mini-batch in an epoch's: that of its labelled seeds, or the number of its pairs.
    pub fn weight(&self) -> f64 {
        match self {
            Self::Nodes(targets) => targets.weight,
            Self::Links(batch) => batch.num_pairs() as f64,
        }
    }

    /// The loss of `seeds`, for which the last layer of `model` returned `rows`, f32 `[seeds, outputs]`, with the gradients of `scale`
    /// times the loss. Collective.
    pub fn loss(
        &self,
        model: &Model,
        rows: &Tensor,
        seeds: &[u32],
        (dropout, scale): (DropoutKey, f32),
        comm: &dyn Communicator,
    ) -> Result<Loss> {
        match self {
            Self::Nodes(targets) => targets.loss(model.place(), rows, seeds, scale),
            Self::Links(batch) => batch.loss(model, rows, (dropout, scale), comm),
        }
    }
}

/// Loss of a mini-batch on this rank, and its score.
#[derive(Debug, Default)]
pub struct Loss {
    /// f64 `[2]`, where the rows are or on the host; both are 0 if it is `None`. This rank's part of the global mini-batch's mean
    /// loss: the parts add up to it. Then the decisions that were right: a class for each labelled seed; yes or no for each of its
    /// classes where it can have several, and for each pair of vertices; 0 of numbers. To read them is to wait for them.
    pub numbers: Option<Tensor>,
    /// Decisions.
    pub counted: u64,
    /// Gradient of the rows, of the scaled loss; `None` where this rank has no seeds.
    pub gradient: Option<Tensor>,
}

/// Shape of a model's input and output, whatever lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Width of the feature rows.
    pub features: usize,
    /// Width of the last layer's rows.
    pub outputs: usize,
    /// Whether these are a yes or no for each class, instead of one choice among them.
    pub several: bool,
}
