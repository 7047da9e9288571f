//! Artifacts that systems need before they can train: a presample with the run's settings, and
//! partition maps made with it.
//!
//! An existing artifact is found whatever its name. The others are made and stored in the dataset's
//! cache (`tried/`), where the next comparison finds them.

use std::path::PathBuf;

use anyhow::Result;
use gsplit_kernels::Gpu;
use gsplit_partition::{PartitionOptions, partition};
use gsplit_preprocess::presample::{Options, presample};
use gsplit_store::{Dataset, MadeFrom, PartitionMap, Presample, Progress, bare_key, tried};

use gsplit::ui::Ui;

/// The presample of `dataset` with `options`; made if it does not exist.
pub fn presampled(
    dataset: &Dataset,
    options: &Options,
    gpu: Option<&Gpu>,
    ui: &Ui,
) -> Result<Presample> {
    let wanted = options.config();
    if let Some(found) =
        opened(dataset, "presample", Presample::open)?.find(|found| found.meta().config == wanted)
    {
        return Ok(found);
    }
    // The presample of that name is damaged, or is of other splits.
    let key = tried(&options.default_key());
    let made = presample(dataset, options, Some(&key), true, gpu, ui)?;
    ui.note(&format!("made presample {}", made.presample.key()));
    Ok(made.presample)
}

/// The map of `dataset` with `options` and `presample`; made if it does not exist. Without a
/// presample, any map with these options is taken, whichever presample it was made with.
pub fn partitioned(
    dataset: &Dataset,
    options: &PartitionOptions,
    presample: Option<&Presample>,
    ui: &Ui,
) -> Result<PartitionMap> {
    let config = options.config(dataset)?;
    let made_from = MadeFrom::with(dataset, presample);
    let is_same = |found: &PartitionMap| {
        found.meta().config == config
            && (presample.is_none() || found.meta().made_from == made_from)
    };
    if let Some(found) = opened(dataset, "partition", PartitionMap::open)?.find(is_same) {
        return Ok(found);
    }
    let made = partition(dataset, presample, options, ui)?;
    let key = new_key(dataset, &options.default_key(), presample);
    let map = PartitionMap::save(
        dataset,
        &key,
        presample,
        config,
        made.report,
        &made.assignment,
        &made.cache_order,
        false,
    )?;
    ui.note(&format!("made partition {key}"));
    Ok(map)
}

/// A name in the cache for a map, made of its options and, if taken there or in the dataset, the
/// key of `presample`.
fn new_key(dataset: &Dataset, by_options: &str, presample: Option<&Presample>) -> String {
    let with = presample.map(|presample| format!("{by_options}-{}", bare_key(presample.key())));
    let is_free = |key: &String| {
        !PartitionMap::folder(dataset, key).exists()
            && !PartitionMap::folder(dataset, &tried(key)).exists()
    };
    let names = [Some(by_options.to_string()), with].into_iter().flatten();
    tried(&names.chain(numbered(by_options)).find(is_free).unwrap_or_default())
}

/// Further names: `key` with a number.
fn numbered(key: &str) -> impl Iterator<Item = String> {
    (2..).map(move |number: u32| format!("{key}-{number}"))
}

/// The key that the cached artifact `name` would have in the dataset itself, where `folder` gives
/// the folder of a key.
pub fn own_key(name: &str, folder: impl Fn(&str) -> PathBuf) -> String {
    let bare = bare_key(name);
    let is_free = |key: &String| !folder(key).exists();
    [bare.to_string()].into_iter().chain(numbered(bare)).find(is_free).unwrap_or_default()
}

/// The artifacts of `kind` that can be used.
fn opened<A>(
    dataset: &Dataset,
    kind: &str,
    open: impl Fn(&Dataset, &str) -> gsplit_store::Result<A>,
) -> Result<impl Iterator<Item = A>> {
    let keys = dataset.keys(kind)?.into_iter().chain(dataset.tried(kind)?);
    Ok(keys.filter_map(move |key| open(dataset, &key).ok()))
}
