//! Feature rows by how often they are loaded.
//!
//! Returns: vertices, hottest first, and the name of the ranking. Idea: a presample of the dataset has counted the
//! mini-batches that load each row (GNNLab, Yang et al., EuroSys 2022; GSplit ranks its caches so too). Of several
//! presamples the one that was drawn as this run draws is used, else the first. Without one, and where links are
//! learnt, whose mini-batches no presample draws, a row is ranked by its vertex's out-degree (PaGraph). Equally hot
//! rows come in the order of their numbers.
//! Cost: a selection, and a sort of the selected rows; a pass over the edges without a presample.

use gsplit_store::{Dataset, Presample, Progress, hottest_rows, out_degrees};

use crate::Result;
use crate::config::{TaskKind, TrainConfig};
use crate::job::Job;

/// The `count` hottest rows, all of them if there are no more, and what they are ranked by.
///
/// # Errors
/// Errors of the file system.
pub fn hottest(dataset: &Dataset, job: &Job<'_>, count: usize, progress: &dyn Progress) -> Result<(Vec<u32>, String)> {
    Ok(match presample_like(dataset, job.config, progress)? {
        Some(presample) => (hottest_rows(presample.input(), count), format!("presample {}", presample.key())),
        None => {
            let degrees = out_degrees(job.graph.num_vertices(), job.graph.indices);
            (hottest_rows(&degrees, count), "the number of edges that lead from them".to_string())
        }
    })
}

/// The presample that was drawn as `config` draws, or the one that comes nearest, among those of its task.
/// One that cannot be used is named.
pub fn presample_like(dataset: &Dataset, config: &TrainConfig, progress: &dyn Progress) -> Result<Option<Presample>> {
    let open = |key: String| match Presample::open(dataset, &key) {
        Ok(presample) => Some(presample),
        Err(error) => {
            progress.note(&format!("warning: rows are ranked without presample {key}: {error}"));
            None
        }
    };
    // What a group loads rows for is its share.
    let (fanouts, batch_size) = (config.fanouts.to_string(), (config.batch_size / config.groups) as u64);
    let unlike = |presample: &Presample| {
        let drawn = &presample.meta().config;
        (drawn.draw_by != config.draw_by, drawn.fanouts != fanouts, drawn.batch_size != batch_size)
    };
    let of_task =
        |presample: &Presample| presample.meta().config.negatives.is_some() == (config.task.kind == TaskKind::Link);
    Ok(dataset.keys("presample")?.into_iter().filter_map(open).filter(of_task).min_by_key(unlike))
}
