//! Feature rows by how often they are loaded.
//!
//! Returns: vertices, hottest first, and the name of the ranking. Idea: a presample of the dataset has counted the
//! mini-batches that load each row (GNNLab, Yang et al., EuroSys 2022; GSplit ranks its caches so too). Of several
//! presamples the one that is named is used, else the one that was drawn most as this run draws. Without one, and where links are
//! learnt, whose mini-batches no presample draws, a row is ranked by its vertex's out-degree (PaGraph). Equally hot
//! rows come in the order of their numbers.
//! Cost: a selection, and a sort of the selected rows; a pass over the edges without a presample.

use std::cmp::Reverse;

use gsplit_store::{Dataset, Presample, Progress, choose, hottest_rows, out_degrees};

use crate::Result;
use crate::config::TrainConfig;
use crate::job::Job;

/// The `count` hottest rows, all of them if there are no more, and what they are ranked by.
///
/// # Errors
/// What the file system says.
pub fn hottest(job: &Job<'_>, count: usize, progress: &dyn Progress) -> Result<(Vec<u32>, String)> {
    Ok(match presample_like(job.dataset, job.config, job.options.presample.as_deref(), progress)? {
        Some(presample) => (hottest_rows(presample.input(), count), format!("presample {}", presample.key())),
        None => {
            let degrees = out_degrees(job.graph.num_vertices(), job.graph.indices);
            (hottest_rows(&degrees, count), "the number of edges that lead from them".to_string())
        }
    })
}

/// The presample that is `named`; else the one that was drawn as `config` draws, or comes nearest, among those of its task: of the same
/// fanouts, batch size and seed, and the most epochs. One that cannot be used is told.
///
/// # Errors
/// What keeps the one that is `named` from being used.
pub fn presample_like(
    dataset: &Dataset,
    config: &TrainConfig,
    named: Option<&str>,
    progress: &dyn Progress,
) -> Result<Option<Presample>> {
    if let Some(key) = named {
        return Ok(Some(Presample::open(dataset, key)?));
    }
    let open = |dataset: &Dataset, key: &str| {
        Presample::open(dataset, key).inspect_err(|error| {
            progress.note(&format!("warning: rows are ranked without presample {key}: {error}"));
        })
    };
    // What a group loads rows for is its share.
    let (fanouts, batch_size) = (config.fanouts.to_string(), (config.batch_size / config.groups) as u64);
    let rank = |presample: &Presample| {
        let drawn = &presample.meta().config;
        let is_of_task = drawn.negatives.is_some() == config.task.is_link();
        let alike = (drawn.draw_by == config.draw_by, drawn.fanouts == fanouts, drawn.batch_size == batch_size);
        let counted = (drawn.seed == config.seed, drawn.epochs);
        is_of_task.then(|| (alike, counted, Reverse(presample.key().to_string())))
    };
    // One that is damaged was named above.
    Ok(choose(dataset, "presample", None, open, rank).unwrap_or_default())
}
