//! `gsplit shard`.

use std::path::PathBuf;
use std::time::Instant;

use gsplit_store::{Dataset, PartitionMap, Provenance, artifact_key, write_shards};
use serde_json::json;

use gsplit::outputs::Outputs;
use gsplit::ui::{self, Ui, bytes};

/// Cut a dataset into one dataset for each host that will train
///
/// Each has the whole graph, its splits and the partition, and the feature rows and labels of the host's own parts alone. `gsplit
/// train --parallelism split` trains on them, a process for each part, with the losses of the whole dataset: copy DIR/host-0 to the
/// host of the first ranks, host-1 to that of the next. What needs the rows of all vertices refuses a shard.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit partition products --parts 4
  gsplit shard products --partition multilevel-presampled-k4 --out shards
  gsplit shard products --partition multilevel-presampled-k4 --hosts 2 --out shards")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    /// The partition that says which vertices a host owns
    #[arg(long, value_name = "KEY", value_parser = artifact_key)]
    partition: String,
    /// Folder for the shards, which are called host-0, host-1 ...
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Number of hosts, which divides the number of parts: each has parts that follow each other, as ranks do on hosts
    /// [default: the partition's servers, where it was made for several, else one for each part]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    hosts: Option<u32>,
    /// Replace the shards in --out, with what was derived from them
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut outputs = Outputs::new(args.force).reads("DATASET", &args.dataset);
    outputs.folder("--out", &args.out)?;
    let dataset = Dataset::open(&args.dataset)?;
    let map = PartitionMap::open(&dataset, &args.partition)?;
    let (parts, servers) = (map.num_parts() as u32, map.num_servers() as u32);
    let hosts = args.hosts.unwrap_or(if servers > 1 { servers } else { parts });
    if !parts.is_multiple_of(hosts) {
        let key = &args.partition;
        return Err(ui::usage(format!(
            "--hosts {hosts}: partition {key} has {parts} parts, and each host takes as many: give a number that divides {parts}"
        )));
    }
    (0..hosts).try_for_each(|host| outputs.artifact("--out", &args.out.join(format!("host-{host}"))))?;
    let provenance = Provenance {
        tool_version: env!("CARGO_PKG_VERSION").into(),
        command: "shard".into(),
        options: json!({ "partition": args.partition, "hosts": hosts }),
        sources: Vec::new(),
        facts: Default::default(),
    };
    let shards = write_shards((&dataset, &map), hosts, &args.out, args.force, &provenance, ui)?;
    let seconds = started.elapsed().as_secs_f64();
    let mut listed = Vec::new();
    for shard in &shards {
        let path = shard.path().display();
        let rows = shard.owned().map_or(0, <[u32]>::len);
        let total: u64 = shard.manifest().files.values().map(|record| record.bytes).sum();
        ui.say(format_args!("{path}: rows of {rows} of {} vertices, {}", shard.num_vertices(), bytes(total)));
        listed.push(json!({ "path": path.to_string(), "rows": rows, "bytes": total }));
    }
    ui.say(format_args!("parts of each host: {}; written in {seconds:.1} s", parts / hosts));
    ui.json(&json!({
        "origin": dataset.fingerprint(), "partition": args.partition, "parts": parts, "hosts": hosts, "shards": listed,
        "seconds": seconds,
    }));
    Ok(())
}
