//! Held-out edges, ranked among negatives.
//!
//! Each held-out edge u → v is ranked by its score among `--eval-negatives` pairs u → v', drawn by Philox from the pair and
//! `--edge-seed`: the same in every epoch and run. A v' that u is joined to (in the whole graph), or that is u itself, is
//! drawn again, up to 16 times. Ties count half, as in OGB's evaluator for MRR.
//!
//! A split that came with the dataset has negatives of its own, and is scored as OGB's evaluators do (`ogb/linkproppred/evaluate.py`):
//! among the targets of each edge as above, or against pairs that all edges share. Of those Hits@K is the share of edges that score above
//! the K-th best of them, ties lost.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use gsplit_kernels::{Draws, Graph, Stream, StreamKey};
use gsplit_store::{LinkNegatives, Split, Stage};
use rayon::prelude::*;

use crate::Result;
use crate::config::TaskConfig;
use crate::error::check_stop;
use crate::infer::{Hidden, LayerWise};
use crate::metric::{Metric, SharedNegatives, rank_of_positive, roc_auc};
use crate::model::PairScorer;
use crate::task::{LinkSplit, in_neighbours};

/// Times that a negative is drawn again.
const TRIES: usize = 16;
/// Pairs that are scored at once, about.
const PAIRS: usize = 1 << 15;

/// Scores the held-out edges of `split` with the rows that `pass` computes on the training graph; `whole` is the graph with
/// all edges. `None` where none are held out.
pub fn evaluate(
    pass: &mut LayerWise<'_>,
    split: &LinkSplit,
    whole: &Graph<'_>,
    (config, metric): (&TaskConfig, Metric),
    stage: &dyn Stage,
) -> Result<Vec<(Split, Option<f64>)>> {
    let dim = pass.model().out_dim(pass.model().num_layers() - 1);
    let rows = pass.rows(stage)?;
    let rows = (rows.as_ref().map_or(&[][..], Hidden::values), dim);
    let mut score = |which: Split, edges: &[(u32, u32)]| -> Result<Option<f64>> {
        let given = split.links().and_then(|links| Some((links.info().negatives?, links.negatives(which)?)));
        let score = match given {
            _ if edges.is_empty() => return Ok(None),
            Some((LinkNegatives::Pairs, (negatives, _))) => shared(pass, rows, edges, negatives, metric)?,
            Some((LinkNegatives::Targets, (negatives, width))) => {
                let among = |edge: usize| negatives[edge * width..][..width].iter().copied();
                Some(of_ranks(&ranks(pass, rows, edges, (width, among))?, metric))
            }
            None => {
                let among = |edge: usize| negatives(whole, config, edges[edge].0, edges[edge].1);
                Some(of_ranks(&ranks(pass, rows, edges, (config.eval_negatives, among))?, metric))
            }
        };
        Ok(score)
    };
    Ok(vec![(Split::Valid, score(Split::Valid, &split.valid)?), (Split::Test, score(Split::Test, &split.test)?)])
}

/// The metric of edges that have these ranks.
fn of_ranks(ranks: &[f64], metric: Metric) -> f64 {
    let points = ranks.iter().map(|&rank| match metric {
        Metric::Hits(k) => f64::from(u8::from(rank <= f64::from(k))),
        _ => 1.0 / rank,
    });
    points.sum::<f64>() / ranks.len() as f64
}

/// The metric of `edges` that have the same `negatives`, pairs one after the other. `None` where it is not defined.
fn shared(
    pass: &mut LayerWise<'_>,
    rows: (&[f32], usize),
    edges: &[(u32, u32)],
    negatives: &[u32],
    metric: Metric,
) -> Result<Option<f64>> {
    let links = scores(pass, rows, edges.len(), |edge| edges[edge])?;
    let pairs = negatives.as_chunks::<2>().0;
    let negatives = scores(pass, rows, pairs.len(), |pair| (pairs[pair][0], pairs[pair][1]))?;
    if metric == Metric::RocAuc {
        let labelled = |scores: Vec<f32>, label| scores.into_iter().map(move |score| (score, label));
        let mut all: Vec<(f32, bool)> = labelled(links, true).chain(labelled(negatives, false)).collect();
        return Ok(roc_auc(&mut all));
    }
    let negatives = SharedNegatives::new(negatives);
    Ok(Some(match metric {
        Metric::Hits(k) => negatives.hits(k, &links),
        _ => negatives.mrr(&links),
    }))
}

/// Scores of `count` pairs.
fn scores(
    pass: &mut LayerWise<'_>,
    (rows, dim): (&[f32], usize),
    count: usize,
    pair: impl Fn(usize) -> (u32, u32) + Sync,
) -> Result<Vec<f32>> {
    by_blocks(pass, count, PAIRS, |scorer, block| {
        let (sources, targets): (Vec<u32>, Vec<u32>) = block.map(&pair).unzip();
        scorer.scores(rows, dim, [&sources, &targets])
    })
}

/// The rank of each edge among so many others, by the score of their rows: those of edge i are `among(i)`.
fn ranks<I: Iterator<Item = u32>>(
    pass: &mut LayerWise<'_>,
    (rows, dim): (&[f32], usize),
    edges: &[(u32, u32)],
    (negatives, among): (usize, impl Fn(usize) -> I + Sync),
) -> Result<Vec<f64>> {
    let each = 1 + negatives;
    by_blocks(pass, edges.len(), (PAIRS / each).max(1), |scorer, block| {
        let with = |edge: usize| -> Vec<u32> { [edges[edge].1].into_iter().chain(among(edge)).collect() };
        let targets = block.clone().into_par_iter().map(with).collect::<Vec<_>>().concat();
        let sources: Vec<u32> = block.flat_map(|edge| std::iter::repeat_n(edges[edge].0, each)).collect();
        let scores = scorer.scores(rows, dim, [&sources, &targets])?;
        Ok(scores.chunks_exact(each).map(|scores| rank_of_positive(scores[0], &scores[1..])).collect())
    })
}

/// Results of `work` for each of `count` items. The workers of `pass` take blocks of `size` in turn.
fn by_blocks<T: Send + Copy>(
    pass: &mut LayerWise<'_>,
    count: usize,
    size: usize,
    work: impl Fn(&PairScorer, Range<usize>) -> Result<Vec<T>> + Sync,
) -> Result<Vec<T>> {
    let (next, stop) = (AtomicUsize::new(0), pass.stop());
    let found = pass.team().each(|model, _, failed| {
        let mut found = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            check_stop(stop)?;
            let number = next.fetch_add(1, Ordering::Relaxed);
            let block = number * size..count.min((number + 1) * size);
            if block.is_empty() {
                break;
            }
            found.push((number, work(model.pair_scorer(), block)?));
        }
        Ok(found)
    })?;
    let mut found: Vec<(usize, Vec<T>)> = found.into_iter().flatten().collect();
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found.into_iter().flat_map(|(_, items)| items).collect())
}

/// The vertices that `target` is ranked among.
fn negatives(whole: &Graph<'_>, config: &TaskConfig, source: u32, target: u32) -> impl Iterator<Item = u32> {
    let key = StreamKey { step: target, layer: 1, ..StreamKey::new(config.edge_seed, Stream::Negatives) };
    let mut draws = Draws::new(&key, source);
    let n = whole.num_vertices() as u32;
    let joined = move |v: u32| {
        let either = |a, b| in_neighbours(whole, a).binary_search(&b).is_ok();
        v == source || v == target || either(v, source) || either(source, v)
    };
    (0..config.eval_negatives).map(move |_| {
        let mut v = draws.below(n);
        for _ in 1..TRIES {
            if !joined(v) {
                break;
            }
            v = draws.below(n);
        }
        v
    })
}
