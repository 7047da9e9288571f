//! `gsplit shard`.

use std::path::PathBuf;
use std::time::Instant;

use clap::ArgGroup;
use gsplit_store::{
    Dataset, PartitionMap, Provenance, ShardInfo, artifact_key, finished_shards, write_shards,
};
use serde_json::json;

use crate::outputs::Outputs;
use crate::ui::{self, Ui, bytes};

/// Cut a dataset into one dataset for each host that will train
///
/// With --partition each has the whole graph, its splits and the partition, but feature rows and
/// labels only of the host's own parts: `gsplit train --parallelism split` trains on them, with a
/// process for each part. With --columns each has all labels, but only the host's columns of every
/// feature row: `gsplit train --parallelism push-pull` trains on them, with a process for each
/// rank. Losses equal the losses of the whole dataset. Copy DIR/host-0 to the host of the first
/// ranks, host-1 to the next. Commands that need whole rows of all vertices refuse a shard.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  gsplit partition products --parts 4
  gsplit shard products --partition multilevel-presampled-k4 --out shards
  gsplit shard products --partition multilevel-presampled-k4 --hosts 2 --out shards
  gsplit shard products --columns --hosts 2 --out shards")]
#[command(group(ArgGroup::new("by").required(true).args(["partition", "columns"])))]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
    /// The partition that assigns vertices to hosts
    #[arg(long, value_name = "KEY", value_parser = artifact_key)]
    partition: Option<String>,
    /// Cut feature rows by columns, with equally many for each host
    #[arg(long, requires = "hosts")]
    columns: bool,
    /// Folder for the shards, which are named host-0, host-1 ...
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
    /// Number of hosts, which divides the number of parts or ranks: each has consecutive parts,
    /// like ranks on hosts [default with --partition: its servers, if it was made for several, else
    /// one for each part]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    hosts: Option<u32>,
    /// Replace the shards in --out, and the artifacts derived from them
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut outputs = Outputs::new(args.force).reads("DATASET", &args.dataset);
    outputs.folder("--out", &args.out)?;
    let dataset = Dataset::open(&args.dataset)?;
    let map = args.partition.as_deref().map(|key| PartitionMap::open(&dataset, key)).transpose()?;
    let parts = map.as_ref().map(|map| map.num_parts() as u32);
    let of_map = |map: &PartitionMap| if map.num_servers() > 1 { map.num_servers() } else { map.num_parts() } as u32;
    let hosts = args.hosts.or(map.as_ref().map(of_map)).unwrap_or(1);
    if let (Some(key), Some(parts)) =
        (&args.partition, parts.filter(|parts| !parts.is_multiple_of(hosts)))
    {
        return Err(ui::usage(format!(
            "--hosts {hosts}: partition {key} has {parts} parts, and each host takes as many: give \
             a number that divides {parts}"
        )));
    }
    (0..hosts)
        .try_for_each(|host| outputs.artifact("--out", &args.out.join(format!("host-{host}"))))?;
    let provenance = Provenance {
        tool_version: env!("CARGO_PKG_VERSION").into(),
        command: "shard".into(),
        options: match &args.partition {
            Some(key) => json!({ "partition": key, "hosts": hosts }),
            None => json!({ "columns": true, "hosts": hosts }),
        },
        sources: Vec::new(),
        facts: Default::default(),
        decisions: Vec::new(),
        schema: Default::default(),
    };
    let map = map.as_ref();
    let found = if args.force { None } else { finished_shards(&dataset, map, hosts, &args.out)? };
    let reused = found.is_some();
    let shards = match found {
        Some(shards) => shards,
        None => write_shards(&dataset, map, hosts, &args.out, args.force, &provenance, ui)?,
    };
    let seconds = started.elapsed().as_secs_f64();
    let mut listed = Vec::new();
    for shard in &shards {
        let path = shard.path().display();
        let rows = shard.owned().map_or(shard.num_vertices(), <[u32]>::len);
        let total: u64 = shard.manifest().files.values().map(|record| record.bytes).sum();
        let columns = shard.shard().and_then(ShardInfo::columns);
        ui.say(match &columns {
            Some((held, dim)) => {
                format!("{path}: {} of {dim} columns of all rows, {}", held.len(), bytes(total))
            }
            None => format!(
                "{path}: rows of {rows} of {} vertices, {}",
                shard.num_vertices(),
                bytes(total)
            ),
        });
        let columns = columns.map(|(held, _)| [held.start, held.end]);
        listed.push(
            json!({ "path": path.to_string(), "rows": rows, "columns": columns, "bytes": total }),
        );
    }
    let of_each =
        parts.map_or(String::new(), |parts| format!("parts of each host: {}; ", parts / hosts));
    ui.say(match reused {
        false => format!("{of_each}written in {seconds:.1} s"),
        true => format!("{of_each}already there, made the same way"),
    });
    ui.json(&json!({
        "origin": dataset.fingerprint(), "partition": args.partition, "parts": parts, "hosts": hosts, "shards": listed,
        "reused": reused, "seconds": seconds,
    }));
    Ok(())
}
