//! `gsplit place`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use gsplit_partition::placement::{
    CurvePoint, Demand, PlaceOptions, PlacementRule, cache_sizes, curve, expected_loads, place,
    row_bytes,
};
use gsplit_store::staging::{self, Staging};
use gsplit_store::{
    Dataset, PartitionMap, Placement, PlacementConfig, Presample, RowLoads, artifact_key, choose,
    shell_path,
};
use serde_json::{Value, json};

use crate::inspect::words::percent;
use crate::ui::{self, Ui, bytes};

/// Decide which feature rows each device caches, and predict the savings
///
/// For caches from a thousandth of the feature rows to all of them, prints the expected shares of
/// the row loads that are served from the loading device's own cache, from a peer's and from host
/// memory, for several placements side by side; and for caches of --cache bytes, the traffic of a
/// mini-batch. Stores the rows of each device, one device for each part.
///
/// Placements: partitioned (each part's hottest rows on its own device), replicated (the hottest
/// rows on every device), peer (the hottest rows, one copy each), optimised (lowest cost when
/// reading a row costs 0 from the own cache, alpha from a peer and 1 from the host) and song-jiang
/// (their Algorithm 1 as published, --parallelism data only).
///
/// The prediction assumes that training uses the presample's fanouts and batch size.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit place products --partition multilevel-presampled-k4 --cache 4GiB
  gsplit place products --cache 20% --host-bandwidth 25GB --peer-bandwidth 250GB
  gsplit place products --cache 1GiB --parallelism data --alpha 0.1 --json")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    /// The partition, whose parts are the devices [default: the only one]
    #[arg(long, value_name = "KEY", value_parser = artifact_key)]
    partition: Option<String>,
    /// Presample to use [default: the partition's, or the only one]
    #[arg(long, value_name = "KEY", value_parser = artifact_key)]
    presample: Option<String>,
    #[command(flatten)]
    options: PlaceOptions,
    /// Name to store the placement under [default: made of the options, e.g.
    /// optimised-split-4GiB-multilevel-presampled-k4]
    #[arg(long, value_parser = artifact_key)]
    key: Option<String>,
    /// Place again if a placement of that name exists
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> Result<()> {
    let started = Instant::now();
    args.options.check()?;
    let dataset = Dataset::open(&args.dataset)?;
    dataset.expect_one_type("place")?;
    let row_bytes = row_bytes(&dataset)?;
    let map = choose_partition(&args, &dataset)?;
    let presample = choose_presample(&args, &dataset, &map)?;
    let cache_bytes =
        args.options.cache.bytes(row_bytes.saturating_mul(dataset.num_vertices() as u64));
    if cache_bytes < row_bytes {
        let cache = args.options.cache;
        return Err(ui::usage(format!(
            "--cache {cache}: a feature row takes {row_bytes} bytes; give it room for one"
        )));
    }
    let config = args.options.config(map.num_parts(), cache_bytes, row_bytes);
    let made_from = Placement::made_from(&dataset, &presample, &map);
    let key = args.key.clone().unwrap_or_else(|| args.options.default_key(map.key()));
    let reused = match args.force {
        true => None,
        false => Placement::reusable(&dataset, &key, &config, &made_from)?,
    };
    if reused.is_none() {
        // Fail on an unwritable output before the expensive work.
        drop(Staging::begin(Placement::target(&dataset, &key), args.force)?);
    }

    let demand = Demand::new(&dataset, &presample, &map, args.options.parallelism)?;
    let capacity =
        usize::try_from(cache_bytes / row_bytes).unwrap_or(usize::MAX).min(dataset.num_vertices());
    let rules = PlacementRule::of(args.options.parallelism);
    let points =
        curve(&demand, rules, &cache_sizes(dataset.num_vertices(), capacity), config.alpha);
    let was_there = reused.is_some();
    let placement = match reused {
        Some(placement) => {
            staging::tidy(&Placement::target(&dataset, &key));
            placement
        }
        None => {
            let rows = place(&demand, args.options.placement, capacity, config.alpha);
            let expected = expected_loads(&demand, &rows, config.alpha)?;
            Placement::save(&dataset, &key, made_from, config, expected, &rows, args.force)?
        }
    };
    let shown = Shown { placement: &placement, demand: &demand, rules, points: &points, capacity };
    ui.json(&shown.as_json(&dataset, was_there, started));
    shown.say(&dataset, was_there, started, ui);
    Ok(())
}

/// The partition that is named, or the only one.
fn choose_partition(args: &Args, dataset: &Dataset) -> Result<PartitionMap> {
    let map =
        choose(dataset, "partition", args.partition.as_deref(), PartitionMap::open, |_| Some(()))?;
    map.with_context(|| {
        format!(
            "{} has no partition; run `gsplit partition {} --parts K` first, a part for each \
             device",
            args.dataset.display(),
            shell_path(&args.dataset)
        )
    })
}

/// The presample that is named, or the partition's, or the only one.
fn choose_presample(args: &Args, dataset: &Dataset, map: &PartitionMap) -> Result<Presample> {
    let keys = dataset.keys("presample")?;
    let of_map = map
        .meta()
        .made_from
        .presample
        .as_ref()
        .map(|(key, _)| key)
        .filter(|key| keys.contains(key));
    let named = args.presample.as_ref().or(of_map).map(String::as_str);
    choose(dataset, "presample", named, Presample::open, |_| Some(()))?.with_context(|| {
        format!(
            "{} has no presample, which tells how often a row is loaded; run `gsplit presample {}` \
             first",
            args.dataset.display(),
            shell_path(&args.dataset)
        )
    })
}

/// A placement with everything that is shown about it.
struct Shown<'a> {
    placement: &'a Placement,
    demand: &'a Demand<'a>,
    rules: &'static [PlacementRule],
    points: &'a [CurvePoint],
    /// The requested number of rows per device.
    capacity: usize,
}

impl Shown<'_> {
    fn config(&self) -> &PlacementConfig {
        &self.placement.meta().config
    }

    fn as_json(&self, dataset: &Dataset, reused: bool, started: Instant) -> Value {
        let (meta, config) = (self.placement.meta(), self.config());
        let key_of = |artifact: &Option<(String, _)>| artifact.as_ref().map(|(key, _)| key.clone());
        let points = self.points.iter().map(|point| {
            let placements = self.rules.iter().zip(&point.loads);
            let placements: serde_json::Map<_, _> =
                placements.map(|(rule, loads)| (rule.name(), self.loads_json(loads))).collect();
            json!({
                "rows_per_device": point.rows,
                "bytes_per_device": point.rows as u64 * config.row_bytes,
                "asked": point.rows == self.capacity,
                "placements": placements,
            })
        });
        json!({
            "key": self.placement.key(),
            "path": Placement::folder(dataset, self.placement.key()).display().to_string(),
            "partition": key_of(&meta.made_from.partition),
            "presample": key_of(&meta.made_from.presample),
            "config": config,
            "report": meta.report,
            "rows": self.demand.num_rows(),
            "loads_per_batch": self.demand.loads_per_batch(),
            "curve": points.collect::<Vec<_>>(),
            "reused": reused,
            "seconds": started.elapsed().as_secs_f64(),
            "peak_rss_mb": ui::peak_rss_mb(),
        })
    }

    fn loads_json(&self, loads: &RowLoads) -> Value {
        let row_bytes = self.config().row_bytes as f64;
        json!({
            "local": loads.local,
            "peer": loads.peer,
            "host": loads.host,
            "hit_rate": shares(loads)[0] + shares(loads)[1],
            "host_bytes": loads.host * row_bytes,
            "peer_bytes": loads.peer * row_bytes,
            "cost": self.cost(loads),
            "milliseconds": self.milliseconds(loads),
        })
    }

    /// Cost in units of loading a row from the host.
    fn cost(&self, loads: &RowLoads) -> f64 {
        // No row is read from peers that cost more than the host.
        loads.host + self.config().alpha.min(1.0) * loads.peer
    }

    /// Mean time that a device spends reading per mini-batch, if the bandwidths are known.
    fn milliseconds(&self, loads: &RowLoads) -> Option<f64> {
        let config = self.config();
        let (host, peer) = config.host_bandwidth.zip(config.peer_bandwidth)?;
        let seconds = |rows: f64, bandwidth: u64| rows * config.row_bytes as f64 / bandwidth as f64;
        Some(
            1e3 * (seconds(loads.host, host) + seconds(loads.peer, peer))
                / f64::from(config.devices),
        )
    }

    fn say(&self, dataset: &Dataset, reused: bool, started: Instant, ui: &Ui) {
        let config = self.config();
        let all_bytes = self.demand.num_rows() as u64 * config.row_bytes;
        ui.say(format_args!(
            "{}: {} rows of {} bytes, {} in all; {:.0} row loads a mini-batch, {} parallelism on \
             {} devices",
            dataset.path().display(),
            self.demand.num_rows(),
            config.row_bytes,
            bytes(all_bytes),
            self.demand.loads_per_batch(),
            config.parallelism,
            config.devices
        ));
        self.say_curve(ui);
        self.say_asked(ui);
        let how = match reused {
            true => "already there, made with the same options".to_string(),
            false => format!("{:.2} s", started.elapsed().as_secs_f64()),
        };
        let report = &self.placement.meta().report;
        let (least, most) = (
            report.own_rows.iter().min().unwrap_or(&0),
            report.own_rows.iter().max().unwrap_or(&0),
        );
        ui.say(format_args!(
            "stored {} ({how}): {} rows on every device, {least} to {most} besides on one",
            config.placement, report.shared_rows
        ));
        let path = Placement::folder(dataset, self.placement.key());
        ui.say(format_args!("  key {}, in {}", self.placement.key(), path.display()));
    }

    fn say_curve(&self, ui: &Ui) {
        ui.say("% of the row loads served by the own cache / by peers / by the host");
        let rows = self.points.iter().map(|point| {
            let mark = if point.rows == self.capacity { '>' } else { ' ' };
            let size = bytes(point.rows as u64 * self.config().row_bytes);
            let cells = point.loads.iter().map(|loads| {
                let [local, peer, host] = shares(loads).map(|share| 100.0 * share);
                format!("{local:.0}/{peer:.0}/{host:.0}")
            });
            [format!("{mark} {size}"), point.rows.to_string()].into_iter().chain(cells).collect()
        });
        let names: Vec<String> = self.rules.iter().map(|rule| rule.name()).collect();
        ui.columns(&format!("  cache, rows, {}", names.join(", ")), rows);
    }

    /// Prints the traffic of a mini-batch with caches of the requested size.
    fn say_asked(&self, ui: &Ui) {
        let config = self.config();
        let Some(point) = self.points.iter().find(|point| point.rows == self.capacity) else {
            return;
        };
        ui.say(format_args!(
            "a mini-batch with {} a device, alpha {}; cost in rows read from the host",
            bytes(config.cache_bytes),
            config.alpha
        ));
        let rows = self.rules.iter().zip(&point.loads).map(|(rule, loads)| {
            let [local, peer, _] = shares(loads);
            let [host, peers] =
                [loads.host, loads.peer].map(|rows| bytes((rows * config.row_bytes as f64) as u64));
            let (hits, cost) = (percent(local + peer), format!("{:.0}", self.cost(loads)));
            let mut cells = vec![format!("  {}", rule.name()), hits, host, peers, cost];
            cells.extend(self.milliseconds(loads).map(|time| format!("{time:.3}")));
            cells
        });
        let time = if config.host_bandwidth.is_some() { ", ms a device" } else { "" };
        let heads = "  placement, hit rate, host-device, device-device, cost";
        ui.columns(&format!("{heads}{time}"), rows);
    }
}

/// Shares of the loads: own cache, peers, host. Without any loads, all count as local.
fn shares(loads: &RowLoads) -> [f64; 3] {
    let all = loads.local + loads.peer + loads.host;
    if all > 0.0 {
        [loads.local, loads.peer, loads.host].map(|part| part / all)
    } else {
        [1.0, 0.0, 0.0]
    }
}
