//! Data parallelism where each rank draws the rows that it keeps more often (Song and Jiang, section 4).
//!
//! Returns: work of a mini-batch, where its rows come from, and the factor that a run settles at. Input: the rows that each rank keeps.
//! Idea: the micro-batches of all ranks are sampled one by one, like `gsplit train --draw locality` samples them, with a factor that follows
//! from the portion of rows that were moved: from 1 until it grows no more.
//! Cost: sampling, once for each rank and factor; two bits a vertex and layer for each rank.

use gsplit_kernels::{Graph, PreferredVertices, VertexSet};
use gsplit_store::{CachedRows, Dataset, NoProgress, Split};
use serde::Serialize;

use super::sample::MiniBatch;
use super::schedule::for_each_batch;
use super::volume::{Counts, LayerCounts};
use super::{Setting, Work, ratio};
use crate::Result;

/// Work of a mini-batch, and the places where its rows come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Local {
    /// Over all ranks.
    pub work: Work,
    /// Portions of the loaded rows that the rank itself keeps, that another rank keeps, and that none does.
    pub sources: [f64; 3],
    /// Factor by which a rank draws the rows that it keeps more often.
    pub factor: f64,
}

/// Counts the mini-batches of `setting` on a rank for each list of `kept`. `next` is the factor after one that moved such a portion of
/// the rows to a rank.
///
/// # Errors
/// On a damaged topology.
pub fn locality(
    dataset: &Dataset,
    kept: &CachedRows,
    setting: &Setting,
    next: impl Fn(f64, f64) -> f64,
) -> Result<Local> {
    let (topology, train) = (dataset.topology(), dataset.split(Split::Train)?);
    let graph = Graph::new(topology.indptr(), topology.indices())?;
    let of_rank = |own: &Vec<u32>| kept.shared.iter().chain(own).copied().collect::<Vec<u32>>();
    let mut preferred: Vec<PreferredVertices> =
        kept.own.iter().map(|own| PreferredVertices::new(&graph, &of_rank(own), setting.fanouts.len())).collect();
    let set = |rows: Vec<u32>| VertexSet::new(graph.num_vertices(), rows);
    let own: Vec<VertexSet> = kept.own.iter().map(|own| set(of_rank(own))).collect();
    let anywhere = set(kept.shared.iter().chain(kept.own.iter().flatten()).copied().collect());
    let mut factor = 1.0;
    loop {
        preferred.iter_mut().for_each(|preferred| preferred.set_factor(factor));
        let counted = for_each_batch(&train, setting, &NoProgress, |sampler, seeds, step| {
            let mut counts =
                Counts { layers: vec![LayerCounts::default(); setting.fanouts.len()], ..Counts::default() };
            let (ranks, mut held) = (preferred.len(), [0, 0]);
            for (rank, preferred) in preferred.iter().enumerate() {
                let share = &seeds[seeds.len() * rank / ranks..seeds.len() * (rank + 1) / ranks];
                let batch = MiniBatch::sample(sampler, &graph, share, &setting.fanouts, step, Some(preferred))?;
                counts.add_alone(&batch);
                held[0] += batch.input().iter().filter(|&&v| own[rank].contains(v)).count() as u64;
                held[1] += batch.input().iter().filter(|&&v| anywhere.contains(v)).count() as u64;
            }
            Ok((counts, held))
        })?;
        let rows = counted.iter().map(|(counts, _)| counts.rows).sum();
        let held = [0, 1].map(|which: usize| ratio(counted.iter().map(|(_, held)| held[which]).sum(), rows, 0.0));
        let after = next(factor, 1.0 - held[0]);
        if after > factor {
            factor = after;
            continue;
        }
        let work = Work::of(counted.iter().map(|(counts, _)| counts), preferred.len() as u32);
        return Ok(Local { work, sources: [held[0], held[1] - held[0], 1.0 - held[1]], factor });
    }
}

impl Counts {
    /// Adds the work of a rank that samples `batch` by itself.
    fn add_alone(&mut self, batch: &MiniBatch) {
        let mut edges = 0;
        for (sums, layer) in self.layers.iter_mut().zip(&batch.layers) {
            sums.vertices += layer.num_vertices() as u64;
            sums.edges += layer.num_edges() as u64;
            edges += layer.num_edges() as u64;
        }
        let rows = batch.input().len() as u64;
        self.rows += rows;
        self.most_rows = self.most_rows.max(rows);
        self.most_edges = self.most_edges.max(edges);
    }
}
