//! Artifacts that systems need before they can train: a presample as the run will draw, partition maps made with it, and placements.
//!
//! One that is there already is found whatever its name. The others are made, stored as `gsplit presample` and `gsplit partition` do,
//! and found the next time.

use anyhow::Result;
use gsplit_kernels::Gpu;
use gsplit_partition::placement::{Demand, PlaceOptions, expected_loads, place};
use gsplit_partition::{Error, PartitionOptions, partition};
use gsplit_preprocess::presample::{Options, presample};
use gsplit_store::{CachedRows, Dataset, MadeFrom, PartitionMap, Placement, Presample, Progress};

use gsplit::partition::free_key;
use gsplit::ui::{Ui, usage};

/// The presample of `dataset` with `options`, made if there is none.
pub fn presampled(dataset: &Dataset, options: &Options, gpu: Option<&Gpu>, ui: &Ui) -> Result<Presample> {
    let wanted = options.config();
    if let Some(found) = opened(dataset, "presample", Presample::open)?.find(|found| found.meta().config == wanted) {
        return Ok(found);
    }
    let made = presample(dataset, options, None, false, gpu, ui).map_err(|error| match error {
        gsplit_preprocess::Error::Option(problem) => usage(problem),
        error => error.into(),
    })?;
    ui.note(&format!("made presample {}", made.presample.key()));
    Ok(made.presample)
}

/// The map of `dataset` with `options` and `presample`, made if there is none; without a presample, one of these options whatever it was
/// made with.
pub fn partitioned(
    dataset: &Dataset,
    options: &PartitionOptions,
    presample: Option<&Presample>,
    ui: &Ui,
) -> Result<PartitionMap> {
    let config = options.config(dataset).map_err(explain)?;
    let mut made_from = MadeFrom::dataset(dataset);
    made_from.presample = presample.map(|presample| (presample.key().to_string(), presample.checksum().clone()));
    let is_same = |found: &PartitionMap| {
        found.meta().config == config && (presample.is_none() || found.meta().made_from == made_from)
    };
    if let Some(found) = opened(dataset, "partition", PartitionMap::open)?.find(is_same) {
        return Ok(found);
    }
    let made = partition(dataset, presample, options, ui).map_err(explain)?;
    let key = free_key(dataset, options.default_key(), presample);
    let (assignment, order) = (&made.assignment, &made.cache_order);
    let map = PartitionMap::save(dataset, &key, presample, config, made.report, assignment, order, false)?;
    ui.note(&format!("made partition {key}"));
    Ok(map)
}

/// The rows of each device, one for each part of `map`, where a row takes `row_bytes`; and the key under which they are found if they
/// are `stored`.
pub fn placed(
    dataset: &Dataset,
    options: &PlaceOptions,
    (map, presample): (&PartitionMap, &Presample),
    (row_bytes, stored): (u64, bool),
    ui: &Ui,
) -> Result<(String, CachedRows)> {
    let demand = Demand::new(dataset, presample, map, options.parallelism).map_err(explain)?;
    let cache_bytes = options.cache.bytes(row_bytes * dataset.num_vertices() as u64).max(row_bytes);
    let config = options.config(map.num_parts(), cache_bytes, row_bytes);
    let rows = place(&demand, options.placement, (cache_bytes / row_bytes) as usize, config.alpha);
    let key = options.default_key(map.key());
    let made_from = Placement::made_from(dataset, presample, map);
    let is_same = |found: &Placement| found.meta().config == config && found.meta().made_from == made_from;
    if !stored {
        return Ok((key, rows));
    }
    if let Some(there) = opened(dataset, "placement", Placement::open)?.find(is_same) {
        return Ok((there.key().to_string(), rows));
    }
    let expected = expected_loads(&demand, &rows, config.alpha)?;
    Placement::save(dataset, &key, made_from, config, expected, &rows, false)?;
    ui.note(&format!("made placement {key}"));
    Ok((key, rows))
}

/// The artifacts of `kind` that can be used.
fn opened<A>(
    dataset: &Dataset,
    kind: &str,
    open: impl Fn(&Dataset, &str) -> gsplit_store::Result<A>,
) -> Result<impl Iterator<Item = A>> {
    Ok(dataset.keys(kind)?.into_iter().filter_map(move |key| open(dataset, &key).ok()))
}

fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Option(problem) => usage(problem),
        error => error.into(),
    }
}
