//! `gsplit partition`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use gsplit_partition::{
    Error, ImportOptions, Imported, PartitionOptions, Partitioned, assess, partition,
};
use gsplit_preprocess::memory::Memory;
use gsplit_store::staging::{self, Staging};
use gsplit_store::{
    Dataset, MadeFrom, PartitionConfig, PartitionMap, PartitionReport, Pieces, Presample, Progress,
    artifact_key, choose, shell_path,
};
use serde_json::json;

use crate::ui::{self, Ui};

/// Cut the graph into parts, one for each rank that will train
///
/// With the weights of a presample (gsplit presample) the parts share the expected work of training
/// evenly, and the expected number of sampled edges between parts is small. Stores the part of
/// every vertex, the order in which each part's vertices deserve a cache slot, and a report, which
/// is also printed.
///
/// If a presample is named or is the only one, the report uses it, whatever the partitioner
/// balanced, so that partitions can be compared. --import takes over a partition that another tool
/// made.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit presample products --fanouts 15,10,5
  gsplit partition products --parts 4
  gsplit partition products --parts 4 --weights degree
  gsplit partition products --parts 4 --balance vertices,targets,work --quality high
  gsplit partition products --parts 8 --servers 2
  gsplit partition products --targets 2,1,1
  gsplit partition papers --parts 4 --memory 12GiB
  gsplit partition mesh --parts 8 --weights own
  gsplit partition calls --parts 4 --weights own --balance own,vertices
  gsplit partition products --refine multilevel-presampled-k4
  gsplit partition products --parts 4 --partitioner metis --seed 8
  gsplit partition products --import products.graph.part.4")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    #[command(flatten)]
    options: PartitionOptions,
    #[command(flatten)]
    import: ImportOptions,
    /// Presample to use [default: the only one]
    #[arg(long, value_name = "KEY", value_parser = artifact_key)]
    presample: Option<String>,
    /// Name to store the partition under [default: made of the options, e.g.
    /// multilevel-presampled-k4, and of the presample if the partition of that name was made with
    /// another]
    #[arg(long, value_parser = artifact_key)]
    key: Option<String>,
    /// Memory limit of the process, without mapped files: 8GiB, 50% of the machine's. Work that
    /// needs more is refused, or is done in less memory, with arrays in a file and sampled coarse
    /// graphs: the cut may then be larger (multilevel and metis only) [default: the free memory
    /// less a fifth]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Memory>,
    /// Partition again if a partition of that name exists
    #[arg(long)]
    force: bool,
}

impl Args {
    /// The key of the partition in `dataset` (if there is one already) when it is made with
    /// `presample`.
    pub fn key(&self, dataset: Option<&Dataset>, presample: &str) -> String {
        let by_options = self.options.default_key();
        self.key.clone().unwrap_or_else(|| match dataset {
            Some(dataset) => free_key(dataset, by_options, Some(presample)),
            None => by_options,
        })
    }
}

/// Runs the subcommand.
pub fn run(mut args: Args, ui: &Ui) -> Result<()> {
    let started = Instant::now();
    let dataset = Dataset::open(&args.dataset)?;
    args.options.memory = args.memory.map(Memory::total);
    if args.import.import.is_none() {
        args.options.take_parts(&dataset)?;
        args.options.check()?;
    }
    // Only an import may leave the number of parts to be inferred.
    let parts = Some(args.options.parts).filter(|&parts| parts > 0);
    let imported = args.import.read(&dataset, parts)?;
    let presample = choose_presample(&args, &dataset, ui)?;
    let (default_key, config) = match &imported {
        Some(imported) => (imported.default_key(), imported.config()),
        None => (args.options.default_key(), args.options.config(&dataset)?),
    };
    let key = args
        .key
        .clone()
        .unwrap_or_else(|| free_key(&dataset, default_key, presample.as_ref().map(Presample::key)));
    let reused = match args.force {
        true => None,
        false => reuse(&dataset, presample.as_ref(), &key, &config, imported.as_ref())?,
    };
    let (map, seconds) = match reused {
        Some(map) => {
            staging::tidy(&PartitionMap::target(&dataset, &key));
            (map, None)
        }
        None => {
            // Fail on an unwritable output before the expensive work.
            drop(Staging::begin(PartitionMap::target(&dataset, &key), args.force)?);
            let made = make(&args, &dataset, presample.as_ref(), imported, ui)?;
            let map = PartitionMap::save(
                &dataset,
                &key,
                presample.as_ref(),
                config,
                made.report,
                &made.assignment,
                &made.cache_order,
                args.force,
            )?;
            (map, Some(made.seconds))
        }
    };

    ui.json(&as_json(&dataset, &map, seconds, started, ui)?);
    let meta = map.meta();
    let (config, report) = (&meta.config, &meta.report);
    let how = match seconds {
        Some(seconds) => format!("{seconds:.2} s, {:.2} s in all", started.elapsed().as_secs_f64()),
        None => "already there, made with the same options".into(),
    };
    ui.say(format_args!(
        "{}: {} parts{} by {}, weights {} ({how})",
        args.dataset.display(),
        config.parts,
        on_servers(config.servers),
        config.partitioner,
        config.weights
    ));
    print_report(report, meta.made_from.presample.is_some(), ui);
    ui.say(format_args!("  key {key}, in {}", PartitionMap::folder(&dataset, &key).display()));
    Ok(())
}

/// Makes the requested partition, or takes over the imported one.
fn make(
    args: &Args,
    dataset: &Dataset,
    presample: Option<&Presample>,
    imported: Option<Imported>,
    ui: &Ui,
) -> Result<Partitioned> {
    let made = match imported {
        Some(Imported { assignment, parts, .. }) => {
            assess(dataset, presample, assignment, parts, ui)
        }
        None => partition(dataset, presample, &args.options, ui),
    };
    made.map_err(|error| match error {
        Error::Interrupted => ui::interrupted(),
        error => error.into(),
    })
}

/// The report, with facts about the run.
fn as_json(
    dataset: &Dataset,
    map: &PartitionMap,
    seconds: Option<f64>,
    started: Instant,
    ui: &Ui,
) -> Result<serde_json::Value> {
    let meta = map.meta();
    let run = json!({
        "key": map.key(),
        "path": PartitionMap::folder(dataset, map.key()).display().to_string(),
        "presample": meta.made_from.presample.as_ref().map(|(key, _)| key),
        "seconds": seconds,
        "total_seconds": started.elapsed().as_secs_f64(),
        "peak_rss_mb": ui::peak_rss_mb(),
        "stages": ui.stage_times(),
        "reused": seconds.is_none(),
    });
    let mut all = serde_json::Map::new();
    for part in [serde_json::to_value(&meta.config)?, serde_json::to_value(&meta.report)?, run] {
        all.extend(part.as_object().cloned().unwrap_or_default());
    }
    Ok(all.into())
}

/// The presample that is named, or the only one; `None` if there is none and none is needed.
fn choose_presample(args: &Args, dataset: &Dataset, ui: &Ui) -> Result<Option<Presample>> {
    let needed = args.import.import.is_none() && args.options.need_presample();
    let without = (!needed).then_some("the report does without a presample");
    let chosen = named_or_best(dataset, args.presample.as_deref(), |_| Some(()), without, ui)?;
    if needed && chosen.is_none() {
        anyhow::bail!(
            "weights {}: {} has no presample; run `gsplit presample {}` first, or choose --weights \
             degree, unit or own",
            args.options.weights_name(),
            args.dataset.display(),
            shell_path(&args.dataset)
        );
    }
    Ok(chosen)
}

/// The presample that is `named`, else the one that `rank` ranks highest; a note names it if there
/// are others. If several share that rank, or it is damaged, a note says that `without` applies
/// instead, if it is given; else that is an error.
pub fn named_or_best<R: Ord>(
    dataset: &Dataset,
    named: Option<&str>,
    rank: impl FnMut(&Presample) -> Option<R>,
    without: Option<&str>,
    ui: &Ui,
) -> Result<Option<Presample>> {
    match (choose(dataset, "presample", named, Presample::open, rank), without) {
        (Err(error), Some(without)) if named.is_none() => {
            ui.note(&format!("note: {without}: {error}"));
            Ok(None)
        }
        (chosen, _) => {
            let chosen = chosen?;
            if let Some(presample) = chosen.as_ref().filter(|_| named.is_none())
                && dataset.keys("presample")?.len() > 1
            {
                ui.note(&format!("note: presample {}; --presample names another", presample.key()));
            }
            Ok(chosen)
        }
    }
}

/// The key of a partition by its options, followed by the key of `presample` if the map of that
/// name was made with another.
pub fn free_key(dataset: &Dataset, by_options: String, presample: Option<&str>) -> String {
    let there = PartitionMap::open(dataset, &by_options).ok();
    let with = there.as_ref().and_then(|map| map.meta().made_from.presample.as_ref());
    match (with, presample) {
        (Some((other, _)), Some(presample)) if other != presample => {
            format!("{by_options}-{presample}")
        }
        _ => by_options,
    }
}

/// The partition under `key`, or one in the cache, if it was made with the same inputs.
fn reuse(
    dataset: &Dataset,
    presample: Option<&Presample>,
    key: &str,
    config: &PartitionConfig,
    imported: Option<&Imported>,
) -> Result<Option<PartitionMap>> {
    let made_from = MadeFrom::with(dataset, presample);
    let found = PartitionMap::reusable(dataset, key, config, &made_from)?;
    match (&found, imported) {
        (Some(map), Some(imported)) if imported.assignment != map.assignment() => {
            let (path, difference) =
                (PartitionMap::folder(dataset, key), "the imported file has changed".into());
            Err(gsplit_store::Error::Differs { path, difference }.into())
        }
        _ => Ok(found),
    }
}

/// ` on 2 servers` for two; empty for one.
pub fn on_servers(servers: u32) -> String {
    if servers > 1 { format!(" on {servers} servers") } else { String::new() }
}

fn print_report(report: &PartitionReport, presampled: bool, ui: &Ui) {
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let row = |name: &str, value: String| ui.say(format_args!("  {name:<22} {value}"));
    let (smallest, largest) = (report.part_sizes.iter().min(), report.part_sizes.iter().max());
    row("vertices of a part", format!("{} to {}", smallest.unwrap_or(&0), largest.unwrap_or(&0)));
    row("imbalance", format!("{:.3} in the weights that were balanced", report.imbalance));
    if let Some(of_target) = &report.of_target {
        const SHOWN: usize = 16;
        let shown: Vec<String> =
            of_target.iter().take(SHOWN).map(|over| format!("{over:.3}")).collect();
        let more = if of_target.len() > SHOWN { ", ..." } else { "" };
        row("part / target", format!("{}{more}", shown.join(", ")));
    }
    let pairs = report.adjacent_pairs;
    row(
        "cut",
        format!("{} of {pairs} adjacent pairs ({:.1} %)", report.cut, share(report.cut, pairs)),
    );
    let (unit, cross) = match presampled {
        true => ("pre-sampled edges", "expected cross edges"),
        false => ("edges", "cross edges"),
    };
    if let Some(pieces) = report.pieces {
        let Pieces { parts, graph } = pieces;
        row(
            "connected pieces",
            format!("{parts} of {} parts, {graph} of the graph", report.part_sizes.len()),
        );
    }
    row("weighted cut", format!("{} of {} {unit}", report.weighted_cut, report.total_weight));
    let of_batch = |edges: Option<f64>| {
        edges.map_or(String::new(), |edges| format!(", {edges:.0} a mini-batch"))
    };
    let batch = of_batch(report.expected_cross_edges);
    row(cross, format!("{:.1} %{batch}", 100.0 * report.expected_cross_share));
    if let Some(between) = &report.between_servers {
        let of_cut = share(between.cut, report.cut);
        let of_pairs = share(between.cut, pairs);
        row(
            "cut between servers",
            format!(
                "{} of the {} ({of_cut:.1} %; {of_pairs:.1} % of all)",
                between.cut, report.cut
            ),
        );
        let batch = of_batch(between.expected_cross_edges);
        let weighted = between.weighted_cut;
        row(
            "  weighted",
            format!("{weighted} {unit} ({:.1} %{batch})", 100.0 * between.expected_cross_share),
        );
    }
    if let Some(own) = &report.own_weights {
        let columns: Vec<String> =
            own.vertices.iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
        if !columns.is_empty() {
            row("own heaviest / mean", columns.join(", "));
        }
        if let (Some(cut), Some(total)) = (own.cut, own.total) {
            row(
                "own weight of the cut",
                format!("{cut} of {total} ({:.1} %)", 100.0 * cut / total.max(f64::MIN_POSITIVE)),
            );
        }
    }
    let balance = &report.balance;
    let columns = [
        ("vertices", Some(balance.vertices)),
        ("in-edges", Some(balance.edges)),
        ("targets", balance.targets),
        ("expected work", balance.work),
    ];
    let columns =
        columns.iter().filter_map(|(name, value)| value.map(|value| format!("{name} {value:.3}")));
    row("heaviest / mean", columns.collect::<Vec<_>>().join(", "));
}
