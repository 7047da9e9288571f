//! The lines of the table: medians over the rounds, of the means over the epochs of each.

use gsplit_trainer::{Device, EpochReport};
use serde_json::{Value, json};

use crate::system::System;

/// A line of the table.
pub(super) struct Row {
    pub system: System,
    placement: String,
    map: Option<String>,
    sample: f64,
    load: f64,
    forward_backward: f64,
    /// Of that, the exchanges.
    exchange: f64,
    pub total: f64,
    edges: f64,
    rows_loaded: f64,
    rows_cached: f64,
    rows_from_peers: f64,
    rows_exchanged: f64,
    cache: Value,
    rounds: Vec<Vec<EpochReport>>,
}

impl Row {
    /// That of `system` with the map of this key on `device`; `cache` is what GPUs kept, `rounds` the epochs that count of each round.
    pub(super) fn new(
        (system, device): (System, Device),
        map: Option<String>,
        cache: Value,
        rounds: Vec<Vec<EpochReport>>,
    ) -> Self {
        let of = |value: fn(&EpochReport) -> f64| median(rounds.iter().map(|epochs| mean(epochs, value)).collect());
        let placement = system.placement(device);
        Self {
            system,
            placement: placement.map_or("-".to_string(), |placement| placement.to_string()),
            map,
            sample: of(|epoch| epoch.timings.sample_s),
            load: of(|epoch| epoch.timings.load_s),
            forward_backward: of(|epoch| epoch.timings.compute_s + epoch.timings.exchange_s),
            exchange: of(|epoch| epoch.timings.exchange_s),
            total: of(|epoch| epoch.seconds),
            edges: of(|epoch| epoch.work.edges as f64),
            rows_loaded: of(|epoch| epoch.work.rows_loaded as f64),
            rows_cached: of(|epoch| epoch.work.rows_cached as f64),
            rows_from_peers: of(|epoch| epoch.work.rows_from_peers as f64),
            rows_exchanged: of(|epoch| epoch.work.rows_exchanged as f64),
            cache,
            rounds,
        }
    }

    /// For people; `gsplit` is the total that others are compared with.
    pub(super) fn line(&self, gsplit: Option<f64>) -> String {
        let against = gsplit.map_or("-".to_string(), |gsplit| format!("{:.2}x", self.total / gsplit));
        let share = |rows: f64| format!("{:.1}", 100.0 * rows / self.rows_loaded.max(1.0));
        format!(
            "{:<7} {:<10} {:<11} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>8} {:>12.0} {:>11.0} {:>6} {:>6} {:>11.0}  {}",
            self.system.name(),
            self.system.sharing(),
            self.placement,
            self.sample,
            self.load,
            self.forward_backward,
            self.total,
            against,
            self.edges,
            self.rows_loaded,
            share(self.rows_cached),
            share(self.rows_from_peers),
            self.rows_exchanged,
            self.map.as_deref().unwrap_or("-"),
        )
    }

    /// For scripts.
    pub(super) fn json(&self, gsplit: Option<f64>) -> Value {
        let rounds = self.rounds.iter().map(|epochs| {
            json!({
                "sample_s": mean(epochs, |epoch| epoch.timings.sample_s),
                "load_s": mean(epochs, |epoch| epoch.timings.load_s),
                "compute_s": mean(epochs, |epoch| epoch.timings.compute_s),
                "exchange_s": mean(epochs, |epoch| epoch.timings.exchange_s),
                "seconds": mean(epochs, |epoch| epoch.seconds),
            })
        });
        json!({
            "system": self.system.name(),
            "parallelism": self.system.choices().parallelism,
            "split_layers": self.system.choices().split_layers,
            "partition": self.map,
            "cache": self.cache,
            "sample_s": self.sample,
            "load_s": self.load,
            "forward_backward_s": self.forward_backward,
            "exchange_s": self.exchange,
            "seconds": self.total,
            "times_gsplit": gsplit.map(|gsplit| self.total / gsplit),
            "edges": self.edges,
            "rows_loaded": self.rows_loaded,
            "rows_cached": self.rows_cached,
            "rows_from_peers": self.rows_from_peers,
            "rows_exchanged": self.rows_exchanged,
            "loss": self.rounds.first().and_then(|epochs| epochs.last()).map(|epoch| epoch.loss),
            "rounds": rounds.collect::<Vec<_>>(),
        })
    }
}

/// What stands above the lines.
pub(super) fn header() -> String {
    format!(
        "{:<7} {:<10} {:<11} {:>8} {:>8} {:>8} {:>8} {:>8} {:>12} {:>11} {:>6} {:>6} {:>11}  {}",
        "system",
        "par.",
        "rows kept",
        "S",
        "L",
        "FB",
        "total",
        "GSplit",
        "edges",
        "rows loaded",
        "own %",
        "peer %",
        "exchanged",
        "map"
    )
}

/// The mean of `value` over `epochs`, of which there are some.
pub(super) fn mean(epochs: &[EpochReport], value: impl Fn(&EpochReport) -> f64) -> f64 {
    epochs.iter().map(value).sum::<f64>() / epochs.len().max(1) as f64
}

/// The middle of `values`, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len() / 2, values.len() % 2) {
        (0, 0) => f64::NAN,
        (half, 0) => (values[half - 1] + values[half]) / 2.0,
        (half, _) => values[half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![7.0]), 7.0);
    }
}
