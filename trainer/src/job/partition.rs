//! Choice of a run's partition map.

use gsplit_store::{
    Dataset, PartitionMap, Presample, PresampleConfig, ShardInfo, choose, shell_path,
};

use crate::config::Config;
use crate::{Error, Result};

/// Returns the partition that was named, that a shard was cut by, or the best one with the right
/// number of parts: preferably cut by mini-batches like the ones of `config`, else by mini-batches
/// of another kind, else by none; then one for the right number of servers.
pub(crate) fn find(dataset: &Dataset, config: &Config) -> Result<PartitionMap> {
    let (parts, groups) = (config.num_parts(), config.system.groups);
    // If the map has a part for every rank of all groups, each of its servers is a group.
    let servers = if parts > config.ranks_of_group() { groups } else { 1 };
    let fits = |map: &PartitionMap| {
        map.num_parts() == parts && (servers == 1 || map.num_servers() == servers)
    };
    let of_shard = dataset.shard().and_then(ShardInfo::partition).map(|(key, _)| key);
    let named = config.system.partition.as_deref().or(of_shard);
    let mut unfit = Vec::new();
    let rank = |map: &PartitionMap| {
        if !fits(map) {
            unfit.push(format!("{} into {}", map.key(), map.num_parts()));
            return None;
        }
        let is_alike = cut_by(dataset, map).map(|drawn| is_of(&drawn, config));
        Some((is_alike, map.num_servers() == servers))
    };
    let map = choose(dataset, "partition", named, PartitionMap::open, rank)?;
    if let (Some(key), Some(map)) = (named, map.as_ref().filter(|map| !fits(map))) {
        let (found, on) = (map.num_parts(), map.num_servers());
        let needs = match servers {
            1 => format!(
                "{parts} ranks of a group need one each: pass --ranks {}, or another --partition",
                found * groups
            ),
            _ => format!("on {on} servers: {groups} groups need {parts}, on {groups} servers"),
        };
        return Err(Error::Option(format!("--partition {key} has {found} parts, {needs}")));
    }
    map.ok_or_else(|| {
        let others = if unfit.is_empty() { "none".to_string() } else { unfit.join(", ") };
        let path = dataset.path();
        let (on, servers) = match servers {
            1 => (String::new(), String::new()),
            _ => (format!(" on {servers} servers"), format!(" --servers {servers}")),
        };
        let command = format!("gsplit partition {} --parts {parts}{servers}", shell_path(path));
        let problem = format!(
            "has no partition into {parts} parts{on} (there are: {others}): run `{command}`"
        );
        Error::Data { path: path.to_path_buf(), problem }
    })
}

/// The mini-batches that `map` was cut by, if their presample still exists.
fn cut_by(dataset: &Dataset, map: &PartitionMap) -> Option<PresampleConfig> {
    let meta = map.meta();
    let by = matches!(meta.config.weights.as_str(), "presampled" | "vertex");
    let (key, checksum) = meta.made_from.presample.as_ref().filter(|_| by)?;
    let presample = Presample::open(dataset, key).ok()?;
    (presample.checksum() == checksum).then(|| presample.meta().config.clone())
}

/// True if presampled mini-batches are like the mini-batches of `config`.
fn is_of(drawn: &PresampleConfig, config: &Config) -> bool {
    drawn.fanouts == config.data.fanouts.to_string()
        && drawn.batch_size == config.data.batch_size as u64
        && drawn.draw_by == config.data.draw_by
        && drawn.negatives
            == config.data.task.is_link().then_some(config.data.task.negatives as u32)
}

/// Notes on `map` before a run: its key if no option named it, and a warning if it was cut by
/// mini-batches of another kind.
pub(crate) fn notes(dataset: &Dataset, map: &PartitionMap, config: &Config) -> Vec<String> {
    let key = map.key();
    let chosen = (config.system.partition.is_none()
        && dataset.keys("partition").is_ok_and(|keys| keys.len() > 1))
    .then(|| format!("note: partition {key}; --partition names another"));
    let unlike = cut_by(dataset, map).filter(|drawn| !is_of(drawn, config)).map(|drawn| {
        format!(
            "note: partition {key} was cut by mini-batches of {} {} and fanouts {}, which are not \
             this run's",
            drawn.batch_size,
            if drawn.negatives.is_some() { "edges" } else { "seeds" },
            drawn.fanouts,
        )
    });
    chosen.into_iter().chain(unlike).collect()
}
