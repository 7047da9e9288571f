//! Systems side by side: the work, bytes, seconds and memory of one epoch.

use anyhow::anyhow;
use gsplit_kernels::Route;
use gsplit_store::{Dataset, PartitionMap, Progress};
use gsplit_trainer::{Config, CooperativeConfig, EpochReport};
use serde_json::{Value, json};

use super::run::{RunResult, train};
use super::setting::{Chosen, Prepared, Setting};
use gsplit::ui::{Ui, usage};
use gsplit_trainer::systems::{self, System};

/// Heads of the columns of a table.
pub const HEADS: &str = "system, loss, , edges, rows loaded, MB memory, MB peer, MB host, MB net, sample, load, compute, exchange, wait, seconds, / GSplit, peak MB";

/// Losses of the same mini-batches differ only by rounding, by at most this fraction.
const ROUNDING: f64 = 1e-3;

/// Options of a comparison of systems.
#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct SideBySide {
    #[command(flatten)]
    pub setting: Setting,
    /// GraNNDis's mini-batches
    #[command(flatten)]
    pub cooperative: CooperativeConfig,
    /// Epochs of each run, of which the last one counts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    epochs: u32,
}

/// A system in the table.
pub struct SystemRow {
    pub system: System,
    /// True if its loss equals the loss of the first row with the same mini-batches; `None` if it
    /// has mini-batches of its own.
    equal: Option<bool>,
    map: Option<String>,
    /// The last epoch.
    epoch: EpochReport,
    /// Its seconds divided by the seconds of [`systems::GSPLIT`], if that system ran.
    times_gsplit: Option<f64>,
    cache: Value,
    peak_rss_mb: Option<f64>,
}

/// Systems that were left out, and why.
type Skipped = Vec<(System, String)>;

impl SideBySide {
    /// The systems to run, and the systems that cannot run here.
    pub fn choose(&self) -> anyhow::Result<Chosen> {
        let (runs, left_out) = self.setting.choose(|system| self.config(system))?;
        if self.cooperative != CooperativeConfig::default()
            && runs.iter().all(|system| system.draws())
        {
            return Err(usage(
                "--batches-per-epoch, --expansion-hops and --expansion-fanout are GraNNDis's, \
                 which does not run here",
            ));
        }
        Ok((runs, left_out))
    }

    fn config(&self, system: System) -> Config {
        let mut config = self.setting.config(system, self.epochs);
        if !system.draws() {
            config.system.cooperative = self.cooperative.clone();
        }
        config
    }

    /// Runs all systems on `dataset`: the rows of the table, and the systems that are left out with
    /// the reason. Leaves out systems that fail; fails if all do.
    pub fn measure(&self, dataset: &Dataset, ui: &Ui) -> anyhow::Result<(Vec<SystemRow>, Skipped)> {
        let (systems, mut left_out) = self.choose()?;
        let Prepared { systems, presample } = self.setting.prepare(dataset, &systems, ui)?;
        let mut rows: Vec<SystemRow> = Vec::new();
        for (system, map) in systems {
            match self.run(system, map.as_ref(), presample.as_deref(), dataset, ui) {
                Err(error) if error.to_string().starts_with("interrupted: ") => return Err(error),
                Err(error) => left_out.push((system, format!("{error:#}"))),
                Ok(row) => {
                    ui.note(&format!("{}: {:.3} s an epoch", system.name, row.epoch.seconds));
                    rows.push(row);
                }
            }
        }
        if let (true, Some((system, why))) = (rows.is_empty(), left_out.last()) {
            return Err(anyhow!("no system ran here: {}: {why}", system.name));
        }
        let first = rows.iter().find(|row| row.system.draws()).map(|row| row.epoch.loss);
        let gsplit =
            rows.iter().find(|row| row.system == systems::GSPLIT).map(|row| row.epoch.seconds);
        for row in &mut rows {
            row.equal =
                first.filter(|_| row.system.draws()).map(|first| is_equal(row.epoch.loss, first));
            row.times_gsplit = gsplit.map(|gsplit| row.epoch.seconds / gsplit);
        }
        Ok((rows, left_out))
    }

    /// Runs `system` with its `map`. The row is not yet compared with others.
    fn run(
        &self,
        system: System,
        map: Option<&PartitionMap>,
        presample: Option<&str>,
        dataset: &Dataset,
        ui: &Ui,
    ) -> anyhow::Result<SystemRow> {
        let map = map.map(|map| map.key().to_string());
        let mut config = self.setting.measured(self.config(system), system, presample);
        config.system.partition = map.clone();
        let RunResult { epochs, cache, peak_rss_mb } = train(dataset, &config, ui)?;
        let epoch = epochs.into_iter().last();
        let epoch =
            epoch.ok_or_else(|| anyhow!("system {}: no epoch was finished", system.name))?;
        Ok(SystemRow { system, equal: None, map, epoch, times_gsplit: None, cache, peak_rss_mb })
    }
}

/// True if `loss` equals `first` up to rounding.
fn is_equal(loss: f64, first: f64) -> bool {
    (loss - first).abs() <= ROUNDING * first.abs()
}

impl SystemRow {
    /// The cells of its row ([`HEADS`]).
    pub fn cells(&self) -> Vec<String> {
        let EpochReport { loss, work, timings: t, seconds, .. } = &self.epoch;
        let equal =
            self.equal.map_or("not comparable", |equal| if equal { "equal" } else { "DIFFERS" });
        let sent = Route::ALL.map(|route| format!("{:.1}", work.sent.by(route) as f64 / 1e6));
        let seconds = [t.sample_s, t.load_s, t.compute_s, t.exchange_s, t.wait_s, *seconds]
            .map(|seconds| format!("{seconds:.3}"));
        let mut cells = vec![self.system.name.to_string(), format!("{loss:.5}"), equal.into()];
        cells.extend([work.edges.to_string(), work.rows_loaded.to_string()]);
        cells.extend(sent.into_iter().chain(seconds));
        cells.push(self.times_gsplit.map_or("-".to_string(), |times| format!("{times:.2}x")));
        cells.push(self.peak_rss_mb.map_or("-".to_string(), |mb| format!("{mb:.0}")));
        cells
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let EpochReport { loss, work, timings, seconds, .. } = &self.epoch;
        let [memory, peer, host, network] = Route::ALL.map(|route| work.sent.by(route));
        json!({
            "system": self.system.name,
            "parallelism": self.system.parallelism,
            "split_layers": self.system.split_layers,
            "partition": self.map,
            "loss": loss,
            "loss_is_equal": self.equal,
            "cache": self.cache,
            "seconds": seconds,
            "times_gsplit": self.times_gsplit,
            "timings": timings,
            "work": work,
            "bytes": { "memory": memory, "peer": peer, "host": host, "network": network },
            "peak_rss_mb": self.peak_rss_mb,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_equal_up_to_rounding_alone() {
        for (loss, equal) in
            [(2.0, true), (2.0019, true), (1.9981, true), (2.0021, false), (f64::NAN, false)]
        {
            assert_eq!(is_equal(loss, 2.0), equal, "{loss}");
        }
    }
}
