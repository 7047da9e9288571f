//! Runs on hosts that hold only their part of a dataset (`gsplit shard`), and a check that ranks
//! train on the same one.
//!
//! On a shard cut by a partition a rank may only load the feature rows and labels of its own
//! vertices. So a map has to assign each row to a rank, it has to be the one that the shard was cut
//! by, and the shard has to be the one of this rank's host. On a shard cut by columns a rank
//! computes only with its columns of every row.

use gsplit_kernels::{Communicator, all_gather_v};
use gsplit_store::{Dataset, PartitionMap, ShardInfo, columns_of};

use crate::config::{Config, RowPlacement};
use crate::job::hooks::Hooks;
use crate::{Error, Result};

/// Fails if `dataset` is a shard without the rows that the ranks of this process load and score by
/// `config`, with the partition `map`.
pub fn check(
    dataset: &Dataset,
    config: &Config,
    map: Option<&PartitionMap>,
    hooks: &Hooks,
) -> Result<()> {
    let Some(shard) = dataset.shard() else { return Ok(()) };
    let refuse = |problem: String| {
        Err(Error::Data {
            path: dataset.path().to_path_buf(),
            problem: format!("is {shard}: {problem}"),
        })
    };
    let (parallelism, origin) = (config.system.parallelism, dataset.name());
    let Some((key, assignment)) = shard.partition() else {
        return check_columns(dataset, shard, config, hooks).map_or(Ok(()), refuse);
    };
    let Some(map) = map.filter(|_| config.split_layers() > 0 && !parallelism.cooperates()) else {
        return refuse(format!(
            "--parallelism {parallelism} loads rows of other hosts: pass --parallelism split \
             without --split-layers 0, or train on the whole `{origin}`"
        ));
    };
    if map.assignment_checksum() != Some(assignment) {
        let other = map.key();
        return refuse(format!(
            "partition {other} gives its vertices to other ranks: pass --partition {key}"
        ));
    }
    let (parts, held) = (map.num_parts(), shard.parts(map.num_parts()));
    for rank in hooks.ranks_here(config.num_ranks()) {
        let part = rank % parts;
        if !held.contains(&part) {
            let host = part * shard.hosts as usize / parts;
            return refuse(format!(
                "rank {rank} has part {part}: give that rank the shard of host {host}, or a \
                 process of its own"
            ));
        }
    }
    if config.system.placement.as_ref().is_some_and(|placement| *placement != RowPlacement::Host)
        || config.system.cache.is_some()
    {
        return refuse(
            "the host gathers its rows, GPUs keep none: pass --placement host, and no --cache"
                .into(),
        );
    }
    if config.data.task.is_link() && config.run.eval_every > 0 {
        return refuse(format!(
            "scores of links need the rows of all: pass --eval-every 0, or train on the whole \
             `{origin}`"
        ));
    }
    Ok(())
}

/// Problem of a run on a `shard` that was cut by columns, if there is one.
fn check_columns(
    dataset: &Dataset,
    shard: &ShardInfo,
    config: &Config,
    hooks: &Hooks,
) -> Option<String> {
    let (held, dim) = shard.columns()?;
    let (parallelism, origin, ranks) =
        (config.system.parallelism, dataset.name(), config.num_ranks());
    if !parallelism.slices_columns() {
        return Some(format!(
            "--parallelism {parallelism} reads whole rows: pass --parallelism push-pull, or train \
             on the whole `{origin}`"
        ));
    }
    for rank in hooks.ranks_here(ranks) {
        let needs = columns_of(dim, rank, ranks);
        if !needs.is_empty() && (needs.start < held.start || needs.end > held.end) {
            let host = rank * shard.hosts as usize / ranks;
            return Some(format!(
                "rank {rank} of {ranks} has columns from {} on: give that rank the shard of host \
                 {host}, or a process of its own",
                needs.start
            ));
        }
    }
    (config.run.eval_every > 0).then(|| {
        format!(
            "scores need whole rows: pass --eval-every 0 and score the checkpoint with infer on \
             the whole `{origin}`, or train on that"
        )
    })
}

/// Fails on all ranks if one of `comm` trains on other data, or with another partition, than the
/// first. Collective.
pub fn agree(dataset: &Dataset, map: Option<&PartitionMap>, comm: &dyn Communicator) -> Result<()> {
    let assignment = map.and_then(PartitionMap::assignment_checksum).map(ToString::to_string);
    let own = format!("{} {}", dataset.fingerprint(), assignment.unwrap_or_default());
    let all = all_gather_v(comm, own.as_bytes())?;
    let Some(other) = all.iter().position(|one| *one != all[0]) else { return Ok(()) };
    let problem = format!(
        "rank {other} trains on other data than rank 0, or by another partition: give all ranks \
         one dataset, or its shards, cut by one \
         partition"
    );
    Err(Error::Data { path: dataset.path().to_path_buf(), problem })
}
