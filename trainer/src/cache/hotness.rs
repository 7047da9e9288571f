//! Which feature rows are loaded most.
//!
//! Returns: vertices, hottest first, and what says so. Idea: a presample of the dataset has counted in how many mini-batches each
//! row is loaded (GNNLab, Yang et al., EuroSys 2022; GSplit ranks its caches so too); of several the one that was drawn as this
//! run draws counts, else the first. Without one, and where links are learnt, whose mini-batches no presample draws, a row is as
//! hot as its vertex is often the source of an edge (PaGraph). Equally hot rows come in the order of their numbers.
//! Cost: a selection and a sort of what is selected; a pass over the edges without a presample.

use std::cmp::Reverse;

use gsplit_kernels::Graph;
use gsplit_store::{Dataset, Presample, Progress};
use rayon::prelude::*;

use crate::Result;
use crate::config::{TaskKind, TrainConfig};
use crate::job::Job;

/// The `count` hottest rows, all of them if there are no more, and what they are ranked by.
///
/// # Errors
/// What the file system says.
pub fn hottest(dataset: &Dataset, job: &Job<'_>, count: usize, progress: &dyn Progress) -> Result<(Vec<u32>, String)> {
    Ok(match presample_like(dataset, job.config, progress)? {
        Some(presample) => {
            let times = presample.input();
            (most(times.len(), count, |v| u64::from(times[v])), format!("presample {}", presample.key()))
        }
        None => {
            let times = out_degrees(&job.graph);
            (most(times.len(), count, |v| times[v]), "the number of edges that lead from them".to_string())
        }
    })
}

/// The presample that was drawn as `config` draws, or the one that comes nearest; none where links are learnt. One that cannot
/// be used is named.
pub fn presample_like(dataset: &Dataset, config: &TrainConfig, progress: &dyn Progress) -> Result<Option<Presample>> {
    if config.task.kind == TaskKind::Link {
        return Ok(None);
    }
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
    Ok(dataset.keys("presample")?.into_iter().filter_map(open).min_by_key(unlike))
}

/// How many edges lead from each vertex.
fn out_degrees(graph: &Graph<'_>) -> Vec<u64> {
    let mut times = vec![0u64; graph.num_vertices()];
    graph.indices.iter().for_each(|&source| times[source as usize] += 1);
    times
}

/// The `count` of `n` vertices with the largest `times`, by falling number, then by their own.
fn most(n: usize, count: usize, times: impl Fn(usize) -> u64 + Sync) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    let rank = |&v: &u32| (Reverse(times(v as usize)), v);
    if count < n {
        order.select_nth_unstable_by_key(count, rank);
        order.truncate(count);
    }
    order.par_sort_unstable_by_key(rank);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_most_edges_come_first() {
        let (indptr, indices) = ([0u64, 3, 5, 6, 9], [1u32, 2, 3, 1, 3, 3, 0, 1, 3]);
        let graph = Graph::new(&indptr, &indices).unwrap();
        let times = out_degrees(&graph);
        assert_eq!(times, [1, 3, 1, 4]);
        for (count, expected) in [(0, &[][..]), (2, &[3, 1]), (3, &[3, 1, 0]), (4, &[3, 1, 0, 2]), (9, &[3, 1, 0, 2])] {
            assert_eq!(most(4, count, |v| times[v]), expected);
        }
    }
}
