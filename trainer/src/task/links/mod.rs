//! Link prediction: predicts which pairs of vertices are edges.
//!
//! A mini-batch is a number of training edges u → v, and for each of them some pairs u → v' with v'
//! drawn from all vertices of v's kind. If sources and targets are of two kinds, only the direction
//! of an edge to the target is learnt and held out: its candidates are targets, like items of a
//! recommender. A pair is scored from the two rows that the model returns
//! ([`PairScorer`](crate::model::PairScorer)); the loss is binary cross entropy, the mean over the
//! pairs of the global mini-batch. The edges of the mini-batch, and their reverses, are not sampled
//! for it: a model that sees the edge it is to predict learns to copy it.
//!
//! Held-out edges are in no training neighbourhood. They come from the dataset's own split, with
//! its negatives, if there is one. Otherwise they are not stored, but a function of the pair of
//! vertices and of `--edge-seed` ([`LinkSplit`]). They are ranked among negatives that are the same
//! in every epoch.

mod batch;
mod notes;

pub use batch::LinkBatch;
pub use gsplit_sample::links::{LinkSplit, is_known};
pub use notes::notes;
