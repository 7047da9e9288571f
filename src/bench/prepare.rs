//! What systems need of a dataset before they can train: a presample as the run will draw, and partition maps made with it.
//!
//! What is there already is found whatever its name; what is made is stored as `gsplit presample` and `gsplit partition` do, and
//! found the next time.

use anyhow::Result;
use gsplit_kernels::Gpu;
use gsplit_partition::{Error, PartitionOptions, partition};
use gsplit_preprocess::presample::{Options, presample};
use gsplit_store::{Dataset, MadeFrom, PartitionMap, Presample, Progress};

use gsplit::partition::free_key;
use gsplit::ui::{Ui, usage};

/// The presample of `dataset` with `options`, made if there is none.
pub fn presampled(dataset: &Dataset, options: &Options, gpu: Option<&Gpu>, ui: &Ui) -> Result<Presample> {
    let wanted = options.config();
    for key in dataset.keys("presample")? {
        match Presample::open(dataset, &key) {
            Ok(found) if found.meta().config == wanted => return Ok(found),
            _ => {}
        }
    }
    let made = presample(dataset, options, None, false, gpu, ui).map_err(|error| match error {
        gsplit_preprocess::Error::Option(problem) => usage(problem),
        error => error.into(),
    })?;
    ui.note(&format!("made presample {}", made.presample.key()));
    Ok(made.presample)
}

/// The map of `dataset` with `options` and `presample`, made if there is none.
pub fn partitioned(
    dataset: &Dataset,
    options: &PartitionOptions,
    presample: &Presample,
    ui: &Ui,
) -> Result<PartitionMap> {
    let config = options.config(dataset).map_err(explain)?;
    let mut made_from = MadeFrom::dataset(dataset);
    made_from.presample = Some((presample.key().to_string(), presample.checksum().clone()));
    for key in dataset.keys("partition")? {
        match PartitionMap::open(dataset, &key) {
            Ok(found) if found.meta().config == config && found.meta().made_from == made_from => return Ok(found),
            _ => {}
        }
    }
    let made = partition(dataset, Some(presample), options, ui).map_err(explain)?;
    let key = free_key(dataset, options.default_key(), Some(presample));
    let (assignment, order) = (&made.assignment, &made.cache_order);
    let map = PartitionMap::save(dataset, &key, Some(presample), config, made.report, assignment, order, false)?;
    ui.note(&format!("made partition {key}"));
    Ok(map)
}

fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Option(problem) => usage(problem),
        error => error.into(),
    }
}
