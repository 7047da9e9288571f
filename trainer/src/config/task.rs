//! Options of the task: what is learnt, and how it is scored.

use serde::{Deserialize, Serialize};

use crate::metric::Metric;

/// Task that is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// The classes of vertices: one each, or any number each, as the dataset's labels are
    #[default]
    Node,
    /// Whether a pair of vertices is an edge; needs neither labels nor splits
    Link,
}

/// Function that scores a pair of vertices from their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ScorerKind {
    /// Their dot product
    #[default]
    Dot,
    /// A trained perceptron with a hidden layer of --hidden over their elementwise product
    Mlp,
}

/// Options of the task: what is learnt, and how it is scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Task to learn; with link a mini-batch is --batch-size edges, and the model's rows have --hidden values
    #[arg(id = "task", long, value_name = "KIND", value_enum, default_value = "node")]
    pub kind: TaskKind,
    /// Score of the valid and test splits: accuracy, micro-f1, macro-f1 or roc-auc; mrr or hits@K with --task link, and roc-auc
    /// where the dataset has pairs that are no links
    /// [default: roc-auc for two classes, micro-f1 where a vertex can have several, else accuracy; of links that of the
    /// dataset's own split, else mrr]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// Function that scores a pair of vertices, with --task link
    #[arg(long, value_name = "KIND", value_enum, default_value = "dot")]
    #[serde(default)]
    pub scorer: ScorerKind,
    /// Pairs that are drawn as no edges for each edge of a mini-batch, with --task link
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub negatives: usize,
    /// Share of the edges that are held out to score while training, with --task link; this and the next three are for
    /// datasets without a split of links of their own
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub valid_edges: f64,
    /// Share of the edges that are held out to score last, with --task link
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub test_edges: f64,
    /// Seed of the choice of these edges, and of the pairs that they are ranked among
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub edge_seed: u64,
    /// Pairs that each held-out edge is ranked among
    #[arg(long, value_name = "K", default_value_t = 100)]
    pub eval_negatives: usize,
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            kind: TaskKind::Node,
            metric: None,
            scorer: ScorerKind::Dot,
            negatives: 1,
            valid_edges: 0.05,
            test_edges: 0.1,
            edge_seed: 0,
            eval_negatives: 100,
        }
    }
}

impl TaskConfig {
    /// The first option that is set and without effect on a split of links that came with the dataset, with negatives or not.
    pub(crate) fn of_own_split(&self, with_negatives: bool) -> Option<&'static str> {
        let default = Self::default();
        let options = [
            ("--valid-edges", self.valid_edges != default.valid_edges),
            ("--test-edges", self.test_edges != default.test_edges),
            ("--edge-seed", with_negatives && self.edge_seed != default.edge_seed),
            ("--eval-negatives", with_negatives && self.eval_negatives != default.eval_negatives),
        ];
        options.into_iter().find(|(_, set)| *set).map(|(option, _)| option)
    }

    /// The problem with these options, if any.
    pub(super) fn problem(&self) -> Option<String> {
        /// Random words of an evaluation edge, over the times that one is drawn again.
        const MOST_EVAL_NEGATIVES: usize = 10_000;
        const MOST_NEGATIVES: usize = 1_000;
        if let (TaskKind::Link, Some(metric)) = (self.kind, self.metric.filter(|metric| !metric.scores_links())) {
            return Some(format!("--metric {metric}: scores vertices: choose mrr or hits@K for --task link"));
        }
        if let (TaskKind::Node, Some(metric)) = (self.kind, self.metric.filter(|metric| !metric.scores_vertices())) {
            return Some(format!("--metric {metric}: scores links: choose it with --task link"));
        }
        if self.kind == TaskKind::Node && self.scorer != ScorerKind::Dot {
            return Some("--scorer mlp: scores links: choose it with --task link".to_string());
        }
        if self.negatives == 0 || self.negatives > MOST_NEGATIVES {
            return Some(format!("--negatives {}: expected 1 to {MOST_NEGATIVES}", self.negatives));
        }
        if self.eval_negatives == 0 || self.eval_negatives > MOST_EVAL_NEGATIVES {
            return Some(format!("--eval-negatives {}: expected 1 to {MOST_EVAL_NEGATIVES}", self.eval_negatives));
        }
        let shares = [self.valid_edges, self.test_edges];
        if !shares.iter().all(|share| (0.0..1.0).contains(share)) || shares.iter().sum::<f64>() >= 1.0 {
            let [valid, test] = shares;
            return Some(format!(
                "--valid-edges {valid} and --test-edges {test}: expected shares from 0 on, together below 1"
            ));
        }
        None
    }
}
