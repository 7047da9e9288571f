//! Ranks feature rows by how often they are loaded.
//!
//! Returns: vertices, hottest first, and the name of the ranking. Idea: a presample of the dataset
//! has counted the mini-batches that load each row (GNNLab, Yang et al., EuroSys 2022; GSplit also
//! ranks its caches this way). Of several presamples the named one is used, or else the one drawn
//! most like this run. Without one, and for link prediction, whose mini-batches no presample draws,
//! a row is ranked by its vertex's out-degree (PaGraph). Equally hot rows come in the order of
//! their numbers. Cost: a selection, and a sort of the selected rows; without a presample a pass
//! over the edges.

use std::cmp::Reverse;

use gsplit_store::{Dataset, Presample, Progress, choose, hottest_rows, out_degrees};

use crate::Result;
use crate::config::Config;
use crate::job::Job;

/// The `count` hottest rows, or all if there are no more, and the name of their ranking.
pub fn hottest(job: &Job<'_>, count: usize, progress: &dyn Progress) -> Result<(Vec<u32>, String)> {
    Ok(
        match presample_like(
            job.dataset,
            job.config,
            job.config.system.presample.as_deref(),
            progress,
        )? {
            Some(presample) => {
                (hottest_rows(presample.input(), count), format!("presample {}", presample.key()))
            }
            None => {
                let degrees = out_degrees(job.graph.num_vertices(), job.graph.indices);
                (
                    hottest_rows(&degrees, count),
                    "the number of edges that lead from them".to_string(),
                )
            }
        },
    )
}

/// The presample that is `named`; otherwise the one for this task drawn most like `config`: with
/// the same fanouts, batch size and seed, and the most epochs. A note is printed for a presample
/// that cannot be used.
pub fn presample_like(
    dataset: &Dataset,
    config: &Config,
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
    // A group loads rows for its share of the batch.
    let (fanouts, batch_size) =
        (config.data.fanouts.to_string(), (config.data.batch_size / config.system.groups) as u64);
    let rank = |presample: &Presample| {
        let drawn = &presample.meta().config;
        let is_of_task = drawn.negatives.is_some() == config.data.task.is_link();
        let alike = (
            drawn.draw_by == config.data.draw_by,
            drawn.fanouts == fanouts,
            drawn.batch_size == batch_size,
        );
        let counted = (drawn.seed == config.run.seed, drawn.epochs);
        is_of_task.then(|| (alike, counted, Reverse(presample.key().to_string())))
    };
    // A damaged presample was reported above.
    Ok(choose(dataset, "presample", None, open, rank).unwrap_or_default())
}
