//! Recommendations of a model of links: for each source the targets with the highest scores.
//!
//! Returns: up to K targets per source, the best first; on equal scores, the first in the dataset's
//! order. Candidates are the vertices of the target kind, or all others in a graph of one kind,
//! except the ones already joined to the source. Input: the rows of all vertices, by exact
//! inference. Idea: blocks of sources are scored against blocks of targets, for dot products by one
//! matrix product; each source keeps the K best in a heap. A pair's link is looked up only if the
//! pair would enter the heap. Cost: one score per source and target; memory in addition to the
//! rows: the scores of one block, and K targets per source of the block. Blocks have fixed sizes,
//! so the result does not depend on the number of threads.

mod file;
mod sources;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicBool;

use gsplit_kernels::Graph;
use gsplit_sample::links::LinkRelation;
use gsplit_store::staging::Staging;
use gsplit_store::{Dataset, Kinds, Progress, Unit};
use rayon::prelude::*;
use serde::Serialize;

use super::table::OutputIds;
use super::{InferConfig, Trained, Wanted};
use crate::error::check_stop;
use crate::infer::Predict;
use crate::model::PairScorer;
use crate::task::is_known;
use crate::{Error, Result};
pub(super) use file::RecommendationFile;

/// Sources per block.
const SOURCES: usize = 64;
/// Targets per block.
const TARGETS: u32 = 2048;

/// Counts of recommendations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recommended {
    /// Number of requested sources.
    pub sources: u64,
    /// Number of sources without any candidate: they are joined to all targets.
    pub without: u64,
    /// Number of recommendations written.
    pub rows: u64,
}

/// A candidate with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub target: u32,
    pub score: f32,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    /// Orders the better one first.
    fn cmp(&self, other: &Self) -> Ordering {
        // Adding 0 turns -0 into 0.
        (other.score + 0.0).total_cmp(&(self.score + 0.0)).then(self.target.cmp(&other.target))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Recommendations to be made.
pub(super) struct Recommender<'a> {
    top: usize,
    with_known: bool,
    kinds: Kinds,
    relation: Option<LinkRelation>,
    sources: Vec<u32>,
    file: RecommendationFile<'a>,
}

impl<'a> Recommender<'a> {
    /// Returns the recommender for `config` and begins its file, if recommendations are asked for.
    pub fn begin(
        config: &InferConfig,
        trained: &Trained,
        dataset: &Dataset,
        ids: &'a OutputIds,
        relation: Option<LinkRelation>,
    ) -> Result<Option<Self>> {
        let Some(top) = config.top else { return Ok(None) };
        let classes = config.split != Wanted::All
            || config.predict.is_some_and(|form| form != Predict::Class);
        let is_link = trained.config().data.task.is_link();
        let Some(out) = config.out.as_ref().filter(|_| top > 0 && is_link && !classes) else {
            return Err(Error::Option(format!(
                "--top {top}: expected 1 or more, a model that was trained with --task link, a \
                 file --out recommendations.parquet or .csv, and no --split or --predict, which are for \
                 classes: list sources with --sources FILE"
            )));
        };
        let kinds = relation.as_ref().map_or_else(|| dataset.kinds(), |of| Ok(of.kinds()))?;
        let sources = match &config.sources {
            Some(path) => sources::listed(path, ids, kinds)?,
            None => {
                let is_wanted =
                    |v: &u32| config.rows.as_ref().is_none_or(|rows| rows.binary_search(v).is_ok());
                kinds.sources().filter(is_wanted).collect()
            }
        };
        let file = RecommendationFile::begin(out, ids, config.force)?;
        let (top, with_known) = (top as usize, config.with_known);
        Ok(Some(Self { top, with_known, kinds, relation, sources, file }))
    }

    /// Writes the recommendations from the `rows` of all vertices of `graph`, with the given width,
    /// and completes the file, which the caller makes visible.
    pub fn write(
        mut self,
        scorer: &PairScorer,
        rows: &[f32],
        dim: usize,
        graph: &Graph<'_>,
        stop: Option<&'static AtomicBool>,
        progress: &dyn Progress,
    ) -> Result<(Recommended, Staging)> {
        let stage =
            progress.stage("recommend", Some(self.sources.len() as u64), Unit::Items("sources"));
        let mut done = Recommended { sources: self.sources.len() as u64, ..Recommended::default() };
        for sources in self.sources.chunks(SOURCES) {
            check_stop(stop)?;
            let best = self.best(scorer, rows, dim, graph, sources)?;
            done.rows += best.iter().map(Vec::len).sum::<usize>() as u64;
            done.without += best.iter().filter(|best| best.is_empty()).count() as u64;
            self.file.push(sources, &best)?;
            stage.advance(sources.len() as u64);
        }
        drop(stage);
        if done.without > 0 {
            let without = done.without;
            progress.note(&format!(
                "{without} sources are joined to all targets already and get no recommendations"
            ));
        }
        Ok((done, self.file.finish()?))
    }

    /// The best targets of each of `sources`.
    fn best(
        &self,
        scorer: &PairScorer,
        rows: &[f32],
        dim: usize,
        graph: &Graph<'_>,
        sources: &[u32],
    ) -> Result<Vec<Vec<Candidate>>> {
        let mut best: Vec<BinaryHeap<Candidate>> = vec![BinaryHeap::new(); sources.len()];
        let (top, with_known, candidates) = (self.top, self.with_known, self.kinds.targets());
        let relation = self.relation.as_ref();
        for start in candidates.clone().step_by(TARGETS as usize) {
            let targets = start..candidates.end.min(start.saturating_add(TARGETS));
            let scores = scorer.table(rows, dim, sources, targets.clone())?;
            let of_source =
                best.par_iter_mut().zip(sources).zip(scores.par_chunks_exact(targets.len()));
            of_source.for_each(|((best, &source), scores)| {
                for (target, &score) in targets.clone().zip(scores) {
                    let candidate = Candidate { target, score };
                    let is_full = best.len() == top;
                    let is_known = || match relation {
                        Some(of) => of.is_known(graph, source, target),
                        None => is_known(graph, source, target),
                    };
                    let excluded = || source == target || (!with_known && is_known());
                    if is_full && best.peek().is_some_and(|worst| *worst < candidate) || excluded()
                    {
                        continue;
                    }
                    if is_full {
                        best.pop();
                    }
                    best.push(candidate);
                }
            });
        }
        Ok(best.into_iter().map(BinaryHeap::into_sorted_vec).collect())
    }
}
