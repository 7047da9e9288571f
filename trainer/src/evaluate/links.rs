//! Ranks held-out edges among negatives.
//!
//! Each held-out edge u → v is ranked by its score among `--eval-negatives` pairs u → v' with v' of
//! v's kind, drawn by Philox from the pair and `--edge-seed`: the same in every epoch and run. A v'
//! that u is joined to (in the whole graph), or that is u itself, is drawn again, up to 16 draws in
//! all. Ties count half, as in OGB's evaluator for MRR.
//!
//! A split that came with the dataset has its own negatives, and is scored as OGB's evaluators do
//! (`ogb/linkproppred/evaluate.py`): among the targets of each edge as above, or against pairs that
//! all edges share. With shared pairs, Hits@K is the share of edges that score above the K-th best
//! pair; ties do not count.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use gsplit_kernels::{Draws, Graph, Stream, StreamKey};
use gsplit_store::{Baseline, LinkNegatives, Split, Stage};
use rayon::prelude::*;

use crate::Result;
use crate::config::TaskConfig;
use crate::error::check_stop;
use crate::infer::{Hidden, LayerWise};
use crate::metric::{Metric, SharedNegatives, rank_of_positive, roc_auc};
use crate::model::PairScorer;
use crate::task::LinkSplit;

/// Maximum number of draws of a negative.
const TRIES: usize = 16;
/// Approximate number of pairs that are scored at once.
const PAIRS: usize = 1 << 15;

/// Scores the held-out edges of `split` with the rows that `pass` computes on the training graph;
/// `whole` is the graph with all edges. A score is `None` if no edges are held out.
pub fn evaluate(
    pass: &mut LayerWise<'_>,
    split: &LinkSplit,
    whole: &Graph<'_>,
    config: &TaskConfig,
    metric: Metric,
    stage: &dyn Stage,
) -> Result<Vec<(Split, Option<f64>)>> {
    let dim = pass.model().out_dim(pass.model().num_layers() - 1);
    let rows = pass.rows(stage)?;
    let values = rows.as_ref().map_or(&[][..], Hidden::values);
    let ranker =
        Ranker { by: ScoredBy::Model(pass.model().pair_scorer(), values, dim), stop: pass.stop() };
    let score = |which| ranker.score(which, split, whole, config, metric);
    Ok(vec![(Split::Valid, score(Split::Valid)?), (Split::Test, score(Split::Test)?)])
}

/// Baseline of a link model: ranks the same edges among the same negatives by the number of edges
/// into the target in the training graph.
pub fn popularity(
    split: &LinkSplit,
    whole: &Graph<'_>,
    config: &TaskConfig,
    metric: Metric,
    stop: Option<&'static AtomicBool>,
) -> Result<Baseline> {
    let ranker = Ranker { by: ScoredBy::Popularity(split), stop };
    let score = |which| ranker.score(which, split, whole, config, metric);
    Ok(Baseline {
        name: "popularity".into(),
        class: None,
        valid: score(Split::Valid)?,
        test: score(Split::Test)?,
    })
}

/// Scores and ranks pairs.
struct Ranker<'r> {
    by: ScoredBy<'r>,
    stop: Option<&'static AtomicBool>,
}

/// Source of the scores of pairs.
enum ScoredBy<'r> {
    /// A model's scorer, with rows of all vertices and their width.
    Model(&'r PairScorer, &'r [f32], usize),
    /// Number of edges into the target.
    Popularity(&'r LinkSplit),
}

impl Ranker<'_> {
    /// The score of the held-out edges of `which`; `None` if there are none, or if the metric is
    /// undefined.
    fn score(
        &self,
        which: Split,
        split: &LinkSplit,
        whole: &Graph<'_>,
        config: &TaskConfig,
        metric: Metric,
    ) -> Result<Option<f64>> {
        let edges = if which == Split::Valid { &split.valid } else { &split.test };
        let given = split
            .links()
            .and_then(|links| Some((links.info().negatives?, links.negatives(which)?)));
        match given {
            _ if edges.is_empty() => Ok(None),
            Some((LinkNegatives::Pairs, (negatives, _))) => self.shared(edges, negatives, metric),
            Some((LinkNegatives::Targets, (negatives, width))) => {
                let among = |edge: usize| negatives[edge * width..][..width].iter().copied();
                Ok(Some(of_ranks(&self.ranks(edges, width, among)?, metric)))
            }
            None => {
                let among =
                    |edge: usize| negatives(whole, split, config, edges[edge].0, edges[edge].1);
                Ok(Some(of_ranks(&self.ranks(edges, config.eval_negatives, among)?, metric)))
            }
        }
    }

    /// The metric of `edges` that share `negatives`, given as consecutive pairs. `None` if it is
    /// undefined.
    fn shared(
        &self,
        edges: &[(u32, u32)],
        negatives: &[u32],
        metric: Metric,
    ) -> Result<Option<f64>> {
        let links = self.scores(edges.len(), |edge| edges[edge])?;
        let pairs = negatives.as_chunks::<2>().0;
        let negatives = self.scores(pairs.len(), |pair| (pairs[pair][0], pairs[pair][1]))?;
        if metric == Metric::RocAuc {
            let labelled =
                |scores: Vec<f32>, label| scores.into_iter().map(move |score| (score, label));
            let mut all: Vec<(f32, bool)> =
                labelled(links, true).chain(labelled(negatives, false)).collect();
            return Ok(roc_auc(&mut all));
        }
        let negatives = SharedNegatives::new(negatives);
        Ok(Some(match metric {
            Metric::Hits(k) => negatives.hits(k, &links),
            _ => negatives.mrr(&links),
        }))
    }

    /// Scores `count` pairs.
    fn scores(&self, count: usize, pair: impl Fn(usize) -> (u32, u32)) -> Result<Vec<f32>> {
        self.by_blocks(count, PAIRS, |block| {
            let (sources, targets): (Vec<u32>, Vec<u32>) = block.map(&pair).unzip();
            self.scores_of([&sources, &targets])
        })
    }

    /// The rank of each edge among `negatives` other targets: `among(i)` yields the targets for
    /// edge i.
    fn ranks<I: Iterator<Item = u32>>(
        &self,
        edges: &[(u32, u32)],
        negatives: usize,
        among: impl Fn(usize) -> I + Sync,
    ) -> Result<Vec<f64>> {
        let each = 1 + negatives;
        self.by_blocks(edges.len(), (PAIRS / each).max(1), |block| {
            let with = |edge: usize| -> Vec<u32> {
                [edges[edge].1].into_iter().chain(among(edge)).collect()
            };
            let targets = block.clone().into_par_iter().map(with).collect::<Vec<_>>().concat();
            let sources: Vec<u32> =
                block.flat_map(|edge| std::iter::repeat_n(edges[edge].0, each)).collect();
            let scores = self.scores_of([&sources, &targets])?;
            Ok(scores
                .chunks_exact(each)
                .map(|scores| rank_of_positive(scores[0], &scores[1..]))
                .collect())
        })
    }

    /// The scores of the pairs of these sources and targets.
    fn scores_of(&self, [sources, targets]: [&[u32]; 2]) -> Result<Vec<f32>> {
        match &self.by {
            ScoredBy::Model(scorer, rows, dim) => scorer.scores(rows, *dim, [sources, targets]),
            ScoredBy::Popularity(split) => {
                Ok(targets.iter().map(|&v| split.degree(v) as f32).collect())
            }
        }
    }

    /// Results of `work` for each of `count` items, in blocks of `size`.
    fn by_blocks<T>(
        &self,
        count: usize,
        size: usize,
        work: impl Fn(Range<usize>) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::with_capacity(count);
        for start in (0..count).step_by(size) {
            check_stop(self.stop)?;
            found.extend(work(start..count.min(start + size))?);
        }
        Ok(found)
    }
}

/// The metric of edges with the given ranks.
fn of_ranks(ranks: &[f64], metric: Metric) -> f64 {
    let points = ranks.iter().map(|&rank| match metric {
        Metric::Hits(k) => f64::from(u8::from(rank <= f64::from(k))),
        _ => 1.0 / rank,
    });
    points.sum::<f64>() / ranks.len() as f64
}

/// The vertices among which the target of an edge is ranked: others of its kind.
fn negatives(
    whole: &Graph<'_>,
    split: &LinkSplit,
    config: &TaskConfig,
    source: u32,
    target: u32,
) -> impl Iterator<Item = u32> {
    let key =
        StreamKey { step: target, layer: 1, ..StreamKey::new(config.edge_seed, Stream::Negatives) };
    let (mut draws, others) = (Draws::new(&key, source), split.kinds().of(target));
    let mut draw = move || others.start + draws.below(others.len() as u32);
    (0..config.eval_negatives).map(move |_| {
        let mut v = draw();
        for _ in 1..TRIES {
            if v != target && !split.is_known(whole, source, v) {
                break;
            }
            v = draw();
        }
        v
    })
}
