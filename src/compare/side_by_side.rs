//! Systems side by side: what each computes, loads, sends, waits for and takes, of one epoch.

use anyhow::anyhow;
use gsplit_kernels::Route;
use gsplit_store::{Dataset, Progress};
use gsplit_trainer::{CooperativeConfig, EpochReport, TrainConfig};
use serde_json::{Value, json};

use super::run::{RunResult, train};
use super::setting::{Chosen, Prepared, Setting, WithMap};
use crate::system::System;
use gsplit::ui::{Ui, usage};

/// Losses of the same mini-batches differ by rounding alone, no more than this part of them.
const ROUNDING: f64 = 1e-3;

/// How systems are run.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct SideBySide {
    #[command(flatten)]
    pub setting: Setting,
    /// GraNNDis's mini-batches
    #[command(flatten)]
    pub cooperative: CooperativeConfig,
    /// Runs of each system, in turns, of which that with the median of seconds counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Epochs of each run, of which the last one counts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    epochs: u32,
}

/// A table.
pub struct Comparison {
    pub rows: Vec<SystemRow>,
    pub left_out: Vec<(System, String)>,
}

/// A line of it.
pub struct SystemRow {
    pub system: System,
    /// Whether its loss is that of the first that trains on the same mini-batches; nothing to say where it trains on others.
    equal: Option<bool>,
    map: Option<String>,
    /// The epoch that counts, and the seconds of those of the other rounds.
    pub epoch: EpochReport,
    round_seconds: Vec<f64>,
    /// Seconds of [`System::Gsplit`], if it ran.
    gsplit_seconds: Option<f64>,
    cache: Value,
    peak_rss_mb: Option<f64>,
}

/// A system and its runs.
struct Entry {
    system: System,
    config: TrainConfig,
    runs: Vec<(EpochReport, RunResult)>,
}

impl SideBySide {
    /// The systems to run, and those that cannot be.
    pub fn choose(&self) -> anyhow::Result<Chosen> {
        let (runs, left_out) = self.setting.choose(|system| self.config(system))?;
        if self.cooperative != CooperativeConfig::default() && runs.iter().all(|system| system.draws()) {
            return Err(usage(
                "--batches-per-epoch, --expansion-hops and --expansion-fanout are GraNNDis's, which does not run here",
            ));
        }
        Ok((runs, left_out))
    }

    fn config(&self, system: System) -> TrainConfig {
        let mut config = self.setting.config(system, self.epochs);
        if !system.draws() {
            config.cooperative = self.cooperative.clone();
        }
        config
    }

    /// Runs all on `dataset`. What fails is left out, unless all do.
    pub fn measure(&self, dataset: &Dataset, ui: &Ui) -> anyhow::Result<Comparison> {
        let (systems, mut left_out) = self.choose()?;
        let entry = |(system, map): WithMap| {
            let partition = map.map(|map| map.key().to_string());
            Entry { system, config: TrainConfig { partition, ..self.config(system) }, runs: Vec::new() }
        };
        let Prepared { systems, presample } = self.setting.prepare(dataset, &systems, ui)?;
        let mut entries: Vec<Entry> = systems.into_iter().map(entry).collect();
        for round in 1..=self.rounds {
            let mut kept = Vec::new();
            for mut entry in entries {
                match self.run(&mut entry, presample.as_deref(), dataset, ui) {
                    Err(error) if error.to_string().starts_with("interrupted: ") => return Err(error),
                    Err(error) => left_out.push((entry.system, format!("{error:#}"))),
                    Ok(seconds) => {
                        let round =
                            if self.rounds > 1 { format!("round {round} of {}: ", self.rounds) } else { String::new() };
                        ui.note(&format!("{round}{}: {seconds:.3} s an epoch", entry.system.name()));
                        kept.push(entry);
                    }
                }
            }
            entries = kept;
        }
        match (entries.is_empty(), left_out.last()) {
            (true, Some((system, why))) => Err(anyhow!("no system ran here: {}: {why}", system.name())),
            _ => Ok(Comparison { rows: rows(entries), left_out }),
        }
    }

    /// Runs `entry` once more; the seconds of its last epoch.
    fn run(&self, entry: &mut Entry, presample: Option<&str>, dataset: &Dataset, ui: &Ui) -> anyhow::Result<f64> {
        let run = train(dataset, &entry.config, &self.setting.around(entry.system, presample), ui)?;
        let epoch = run.epochs.last().cloned();
        let epoch = epoch.ok_or_else(|| anyhow!("system {}: no epoch was finished", entry.system.name()))?;
        let seconds = epoch.seconds;
        entry.runs.push((epoch, run));
        Ok(seconds)
    }
}

/// A line for each of `entries`.
fn rows(entries: Vec<Entry>) -> Vec<SystemRow> {
    let mut rows: Vec<SystemRow> = Vec::new();
    for Entry { system, config, mut runs } in entries {
        let round_seconds = runs.iter().map(|(epoch, _)| epoch.seconds).collect();
        runs.sort_by(|(a, _), (b, _)| a.seconds.total_cmp(&b.seconds));
        let (epoch, run) = runs.swap_remove((runs.len() - 1) / 2);
        let first = rows.iter().find(|row| row.system.draws()).map_or(epoch.loss, |row| row.epoch.loss);
        let equal = system.draws().then(|| is_equal(epoch.loss, first));
        let RunResult { cache, peak_rss_mb, .. } = run;
        let (map, gsplit_seconds) = (config.partition, None);
        rows.push(SystemRow { system, equal, map, epoch, round_seconds, gsplit_seconds, cache, peak_rss_mb });
    }
    let gsplit_seconds = rows.iter().find(|row| row.system == System::Gsplit).map(|row| row.epoch.seconds);
    rows.iter_mut().for_each(|row| row.gsplit_seconds = gsplit_seconds);
    rows
}

/// Whether `loss` is `first` up to rounding.
fn is_equal(loss: f64, first: f64) -> bool {
    (loss - first).abs() <= ROUNDING * first.abs()
}

impl SystemRow {
    /// Its seconds in those of GSplit.
    fn times_gsplit(&self) -> Option<f64> {
        self.gsplit_seconds.map(|gsplit| self.epoch.seconds / gsplit)
    }

    /// For people.
    pub fn line(&self) -> String {
        let EpochReport { loss, work, timings: t, seconds, .. } = &self.epoch;
        let loss_is = self.equal.map_or("not comparable", |equal| if equal { "equal" } else { "DIFFERS" });
        let sent = Route::ALL.map(|route| format!("{:>9.1}", work.sent.by(route) as f64 / 1e6)).join(" ");
        format!(
            "{:<9} {loss:>8.5} {loss_is:<14} {:>12} {:>11} {sent} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>8.3} {seconds:>8.3} {:>8} {:>8}",
            self.system.name(),
            work.edges,
            work.rows_loaded,
            t.sample_s,
            t.load_s,
            t.compute_s,
            t.exchange_s,
            t.wait_s,
            self.times_gsplit().map_or("-".to_string(), |times| format!("{times:.2}x")),
            self.peak_rss_mb.map_or("-".to_string(), |mb| format!("{mb:.0}")),
        )
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let EpochReport { loss, work, timings, seconds, .. } = &self.epoch;
        let choices = self.system.choices();
        let [memory, peer, host, network] = Route::ALL.map(|route| work.sent.by(route));
        json!({
            "system": self.system.name(),
            "parallelism": choices.parallelism,
            "split_layers": choices.split_layers,
            "partition": self.map,
            "loss": loss,
            "loss_is_equal": self.equal,
            "cache": self.cache,
            "seconds": seconds,
            "round_seconds": self.round_seconds,
            "times_gsplit": self.times_gsplit(),
            "timings": timings,
            "work": work,
            "bytes": { "memory": memory, "peer": peer, "host": host, "network": network },
            "peak_rss_mb": self.peak_rss_mb,
        })
    }
}

/// Heads of the columns.
pub fn header() -> String {
    format!(
        "{:<9} {:>8} {:<14} {:>12} {:>11} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "system",
        "loss",
        "",
        "edges",
        "rows loaded",
        "MB memory",
        "MB peer",
        "MB host",
        "MB net",
        "sample",
        "load",
        "compute",
        "exchange",
        "wait",
        "seconds",
        "/ GSplit",
        "peak MB"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_equal_up_to_rounding_alone() {
        for (loss, equal) in [(2.0, true), (2.0019, true), (1.9981, true), (2.0021, false), (f64::NAN, false)] {
            assert_eq!(is_equal(loss, 2.0), equal, "{loss}");
        }
    }
}
