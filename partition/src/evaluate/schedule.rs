//! Schedule of the mini-batches that are drawn; their counts are put in order.
//!
//! The mini-batches are the same as in training: consecutive runs of the batch size in each epoch's
//! order, epochs numbered from 1. Epochs and mini-batches are spread over threads. Records come
//! back in their order, and only integers are summed in between.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_kernels::schedule::{Step, epoch_seeds};
use gsplit_kernels::{Graph, Sampler};
use gsplit_store::{Progress, Unit};
use rayon::prelude::*;

use super::sample::{Layer, MiniBatch};
use super::split::{SplitCounts, split_parallel};
use super::volume::{self, Counts, Sharing};
use super::{MeasuredMap, Setting};
use crate::Result;

/// Work of all ranks together, at one layer or over several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Vertices computed.
    pub vertices: u64,
    /// Edges sampled.
    pub edges: u64,
}

/// Counts of one mini-batch.
pub(super) struct Record {
    pub seeds: u64,
    /// From the seeds' layer downwards.
    pub layers: Vec<Size>,
    /// Distinct vertices whose feature rows are loaded.
    pub input: u64,
    /// One for each candidate.
    pub split: Vec<SplitCounts>,
    /// Data parallelism, one for each candidate; equal for equal numbers of parts.
    pub data: Vec<Counts>,
    /// One for each candidate and number of split layers, from none to all.
    pub in_part: Vec<Vec<Counts>>,
}

impl Record {
    /// Sampled edges over all layers.
    pub fn edges(&self) -> u64 {
        self.layers.iter().map(|layer| layer.edges).sum()
    }

    /// Cross edges of candidate `i` over all layers.
    pub fn cross(&self, i: usize) -> u64 {
        self.split[i].layers.iter().map(|layer| layer.cross).sum()
    }

    /// Split parallelism under candidate `i`.
    pub fn whole(&self, i: usize) -> &Counts {
        &self.in_part[i][self.layers.len()]
    }

    /// All layers together.
    pub fn size(&self) -> Size {
        Size { vertices: self.layers.iter().map(|layer| layer.vertices).sum(), edges: self.edges() }
    }
}

/// Counts of all mini-batches.
pub(super) struct Measured {
    /// In the order in which training comes to them.
    pub records: Vec<Record>,
    /// For each candidate, the sampled edges of each part over all mini-batches.
    pub work: Vec<Vec<u64>>,
}

/// Samples the mini-batches of `setting`, one after another on each thread, and counts them for all
/// `candidates`.
pub(super) fn measure(
    graph: &Graph<'_>,
    train: &[u32],
    setting: &Setting,
    candidates: &[MeasuredMap<'_>],
    progress: &dyn Progress,
) -> Result<Measured> {
    let work: Vec<Vec<AtomicU64>> =
        candidates.iter().map(|candidate| zeros(candidate.layout.parts())).collect();
    let records = for_each_batch(train, setting, progress, |sampler, seeds, step| {
        let batch = MiniBatch::sample(sampler, graph, seeds, &setting.fanouts, step)?;
        Ok(count(&batch, candidates, &work))
    })?;
    let plain = |sums: Vec<AtomicU64>| sums.into_iter().map(AtomicU64::into_inner).collect();
    Ok(Measured { records, work: work.into_iter().map(plain).collect() })
}

/// Results of `visit` for the seeds of each mini-batch of `setting`, in order.
pub(super) fn for_each_batch<T: Send>(
    train: &[u32],
    setting: &Setting,
    progress: &dyn Progress,
    visit: impl Fn(&mut Sampler, &[u32], Step) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let batch_size = usize::try_from(setting.batch_size).unwrap_or(usize::MAX).min(train.len());
    let (batches, an_epoch) = (setting.batches as usize, train.len().div_ceil(batch_size));
    let stage = progress.stage("evaluating", Some(batches as u64), Unit::Items("batches"));
    let epochs = (0..batches.div_ceil(an_epoch)).into_par_iter().map(|past| {
        let epoch = past as u32 + 1;
        let order = epoch_seeds(train, setting.seed, epoch)?;
        let steps = order.par_chunks(batch_size).enumerate().take(batches - past * an_epoch);
        // Mini-batches side by side: each is sampled by one thread.
        let visited = steps.map_init(
            || Sampler::new(1),
            |sampler, (step, seeds)| {
                let visited =
                    visit(sampler, seeds, Step { seed: setting.seed, epoch, step: step as u32 });
                stage.advance(1);
                visited
            },
        );
        visited.collect::<Result<Vec<_>>>()
    });
    Ok(epochs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn zeros(parts: u32) -> Vec<AtomicU64> {
    (0..parts).map(|_| AtomicU64::new(0)).collect()
}

fn count(batch: &MiniBatch, candidates: &[MeasuredMap<'_>], work: &[Vec<AtomicU64>]) -> Record {
    let (mut split, mut data, mut in_part) = (Vec::new(), Vec::<Counts>::new(), Vec::new());
    for (i, candidate) in candidates.iter().enumerate() {
        let (counts, edges) = split_parallel(batch, &candidate.assignment, candidate.layout);
        for (sum, edges) in work[i].iter().zip(edges) {
            sum.fetch_add(edges, Relaxed);
        }
        split.push(counts);
        let (layout, parts) = (candidate.layout, candidate.layout.parts());
        let same = candidates[..i].iter().position(|earlier| earlier.layout.parts() == parts);
        data.push(same.map_or_else(
            || volume::count(batch, layout, Sharing::Equal),
            |earlier| data[earlier].clone(),
        ));
        let of = |split_layers| {
            volume::count(batch, layout, Sharing::Owned(&candidate.assignment, split_layers))
        };
        in_part.push((0..=batch.layers.len()).map(of).collect());
    }
    let size = |layer: &Layer| Size {
        vertices: layer.num_vertices() as u64,
        edges: layer.num_edges() as u64,
    };
    Record {
        seeds: batch.num_seeds() as u64,
        layers: batch.layers.iter().map(size).collect(),
        input: batch.input().len() as u64,
        split,
        data,
        in_part,
    }
}
