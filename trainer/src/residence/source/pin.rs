//! The feature rows of all ranks of this process: pinned where GPUs read them, with what GPUs keep of them.

use gsplit_store::{FeatureTable, Progress};

use super::{FeatureSource, PinnedRows};
use crate::job::options::RunOptions;
use crate::operator::Place;
use crate::residence::cache::Caches;
use crate::{Error, Result};

/// Pins `table` so that GPUs read it themselves, if ranks compute on GPUs and the driver can pin it, with what `caches` has of it for the
/// ranks of this process. Collective where ranks are processes that read each other's caches.
///
/// # Errors
/// [`Error::Option`] where rows are to be kept of a table that GPUs do not read; errors of the driver then.
pub fn pin<'a>(
    table: &'a FeatureTable,
    caches: Option<&'a Caches>,
    places: &[Place],
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Option<PinnedRows<'a>>> {
    let pinned = match places[0].gpu().map(|gpu| PinnedRows::new(table, gpu)) {
        Some(Err(error)) if caches.is_none() => {
            progress.note(&format!("the host gathers the feature rows for the GPUs, which cannot read them: {error}"));
            None
        }
        pinned => pinned.transpose()?.flatten(),
    };
    match (pinned, caches) {
        (Some(mut pinned), Some(caches)) => {
            let here = options.ranks_here(places.len());
            let ranks: Vec<_> = here.filter_map(|rank| Some((rank, places[rank].gpu()?))).collect();
            match (&options.process, &ranks[..]) {
                (Some(process), &[here]) if caches.are_shared() => pinned.share(caches, here, process.comms().all())?,
                _ => pinned.fill(caches, &ranks)?,
            }
            Ok(Some(pinned))
        }
        (None, Some(_)) if places[0].gpu().is_some() => {
            let flag = if options.cache.is_some() { "--cache" } else { "--placement" };
            Err(Error::Option(format!(
                "{flag}: the feature rows are read from their file: pass --load-features memory, or leave it out"
            )))
        }
        // Of the host's caches rows are counted alone.
        (pinned, _) => Ok(pinned),
    }
}

/// The rows of `table`, which `pinned` is, for each rank of this process.
///
/// # Errors
/// As [`FeatureSource::pinned`].
pub fn sources<'a>(
    table: &'a FeatureTable,
    pinned: Option<&'a PinnedRows<'_>>,
    places: &[Place],
    options: &RunOptions,
) -> Result<Vec<FeatureSource<'a>>> {
    let source = |rank: usize| match pinned {
        Some(pinned) => FeatureSource::pinned(table, &places[rank], pinned, rank).map_err(|error| error.of_rank(rank)),
        None => Ok(FeatureSource::new(table, &places[rank])),
    };
    options.ranks_here(places.len()).map(source).collect()
}
