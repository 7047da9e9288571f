//! Predicted seconds of an epoch by phase as a picture: a bar a candidate, stacked.

use gsplit::chart::Series;

use super::cost::Phase;
use super::found::Ranked;
use crate::compare::stacked;

/// Stands in the first line of every picture.
pub const MAKER: &str = "gsplit plan";

const PHASES: [(&str, Phase); 4] =
    [("sample", Phase::Sample), ("load", Phase::Load), ("compute", Phase::Compute), ("exchange", Phase::Exchange)];

/// Draws `ranked`, under `title`.
pub fn chart(ranked: &[Ranked<'_>], title: &str) -> String {
    let series = |(i, (name, phase)): (usize, &(&str, Phase))| {
        Series::new(name, i, ranked.iter().map(|row| row.cost.of(*phase) * row.candidate.steps as f64))
    };
    let groups = ranked.iter().map(Ranked::name).collect();
    let line = "predicted seconds of an epoch by phase; phases may go on at the same time";
    stacked(MAKER, [title, line], groups, PHASES.iter().enumerate().map(series).collect())
}
