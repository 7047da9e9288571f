//! Quality of predictions, as computed by OGB's evaluators and scikit-learn.
//!
//! A [`Scorer`] takes the rows of vertices one after the other and keeps only what its metric
//! needs: counts for accuracy and F1, all scores for ROC-AUC (8 bytes per vertex and class).

mod counts;
mod kind;
pub(crate) mod labels;
mod rank;
mod roc_auc;
mod scorer;
mod scores;

#[cfg(test)]
pub(crate) use counts::ClassCounts;
pub use kind::Metric;
pub use rank::{SharedNegatives, rank_of_positive};
pub use roc_auc::roc_auc;
pub use scorer::Scorer;
pub(crate) use scorer::largest;
pub use scores::{Evaluation, Scores, unscored};
