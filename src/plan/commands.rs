//! Commands that run a plan with artifacts of the dataset itself instead of its cache.

use gsplit_store::{
    Dataset, PartitionConfig, PartitionMap, Presample, PresampleConfig, bare_key, shell_path,
};

use super::found::Ranked;
use crate::compare::own_key;

/// The commands that train like `plan`, in order: they store its presample and its map in the
/// dataset, then train.
pub fn commands(
    plan: &Ranked<'_>,
    presample: Option<&Presample>,
    dataset: &Dataset,
) -> anyhow::Result<Vec<String>> {
    let path = shell_path(dataset.path());
    let is_tried = |key: &&str| bare_key(key) != *key;
    let mut options = plan.options();
    let mut commands = Vec::new();
    let map = plan.candidate.partition.as_deref().filter(is_tried);
    let ranks_rows = options.contains("--presample ");
    if let Some(presample) =
        presample.filter(|presample| is_tried(&presample.key()) && (ranks_rows || map.is_some()))
    {
        let key = bare_key(presample.key());
        options = options.replace(presample.key(), key);
        commands.push(format!(
            "gsplit presample {path}{} --key {key}",
            drawn(&presample.meta().config)
        ));
    }
    if let Some(name) = map {
        let (found, key) = (
            PartitionMap::open(dataset, name)?,
            own_key(name, |key| PartitionMap::folder(dataset, key)),
        );
        options = options.replace(name, &key);
        let meta = found.meta();
        let with = meta
            .made_from
            .presample
            .as_ref()
            .map_or(String::new(), |(key, _)| format!(" --presample {key}"));
        commands.push(format!("gsplit partition {path}{}{with} --key {key}", cut(&meta.config)));
    }
    commands.push(format!("gsplit train {path} {options}"));
    Ok(commands)
}

/// The options of `gsplit presample` for `config`.
fn drawn(config: &PresampleConfig) -> String {
    let PresampleConfig { fanouts, batch_size, epochs, seed, .. } = config;
    format!(" --fanouts {fanouts} --batch-size {batch_size} --epochs {epochs}{}", seeded(*seed))
}

/// The options of `gsplit partition` for `config`.
fn cut(config: &PartitionConfig) -> String {
    let PartitionConfig { parts, servers, partitioner, weights, seed, .. } = config;
    let servers = if *servers > 1 { format!(" --servers {servers}") } else { String::new() };
    let by = match partitioner.as_str() {
        "random" => " --partitioner random".to_string(),
        partitioner => format!(" --partitioner {partitioner} --weights {weights}"),
    };
    format!(" --parts {parts}{servers}{by}{}", seeded(*seed))
}

fn seeded(seed: u64) -> String {
    if seed == 0 { String::new() } else { format!(" --seed {seed}") }
}
