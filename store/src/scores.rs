//! Scores of a trained model beside a baseline, and class by class: part of a checkpoint, which `gsplit report` shows.

use serde::{Deserialize, Serialize};

use crate::Split;

/// Scores of the model that predicts the same for every vertex, without reading a feature or an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Its name, as `majority`.
    pub name: String,
    /// Class that it predicts, where vertices have one each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// Score of the valid split.
    pub valid: Option<f64>,
    /// Score of the test split.
    pub test: Option<f64>,
}

/// Scores of one epoch's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelScores {
    /// The best epoch on the valid split, without one the last that was evaluated.
    pub epoch: u32,
    /// Name of the metric of `baseline`.
    pub metric: String,
    /// The baseline, where there is one.
    pub baseline: Option<Baseline>,
    /// The splits class by class, where classes are learnt.
    pub splits: Vec<SplitScores>,
}

/// Scores of a split class by class, as scikit-learn counts them; unlabelled vertices are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitScores {
    /// The split.
    pub split: Split,
    /// Mean of the classes' F1. Where vertices have one class each, classes that are neither predicted nor actual are left out.
    pub macro_f1: f64,
    /// Scores by class.
    pub classes: Vec<ClassScores>,
    /// Wrong predictions by pair of classes, the most frequent first; empty where a vertex can have several classes. Of more than 20
    /// classes these are the most frequent pairs alone.
    pub confused: Vec<Confused>,
}

/// Scores of one class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// Portion of the vertices predicted to have the class that have it; 0 where none is.
    pub precision: f64,
    /// Portion of the vertices that have the class for which it is predicted; 0 where none has.
    pub recall: f64,
    /// Their harmonic mean.
    pub f1: f64,
    /// Vertices that have the class.
    pub support: u64,
    /// Vertices for which it is predicted.
    pub predicted: u64,
    /// Vertices for which it is predicted and that have it.
    pub right: u64,
}

/// Number of vertices of one class that were predicted to have another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confused {
    /// Class that they have.
    pub actual: u32,
    /// Class that was predicted.
    pub predicted: u32,
    /// Number of vertices.
    pub count: u64,
}
