//! Held-out edges, ranked among negatives.
//!
//! Each held-out edge u → v is ranked by its score among `--eval-negatives` pairs u → v', drawn by Philox from the pair and
//! `--edge-seed`: the same in every epoch and run. A v' that u is joined to (in the whole graph), or that is u itself, is
//! drawn again, up to 16 times. Ties count half, as in OGB's evaluator for MRR.

use std::sync::atomic::{AtomicUsize, Ordering};

use gsplit_kernels::{Draws, Graph, Stream, StreamKey};
use gsplit_store::{Split, Stage};
use rayon::prelude::*;

use super::LinkSplit;
use super::split::in_neighbours;
use crate::Result;
use crate::config::TaskConfig;
use crate::infer::{Hidden, LayerWise, check_stop};
use crate::metric::{Metric, rank_of_positive};

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
    let rows = rows.as_ref().map_or(&[][..], Hidden::values);
    let mut score = |edges: &[(u32, u32)]| -> Result<Option<f64>> {
        let ranks = ranks(pass, (rows, dim), whole, config, edges)?;
        let points = ranks.iter().map(|&rank| match metric {
            Metric::Hits(k) => f64::from(u8::from(rank <= f64::from(k))),
            _ => 1.0 / rank,
        });
        Ok((!ranks.is_empty()).then(|| points.sum::<f64>() / ranks.len() as f64))
    };
    Ok(vec![(Split::Valid, score(&split.valid)?), (Split::Test, score(&split.test)?)])
}

/// The rank of each edge among its negatives, by the score of their rows. The workers of `pass` take blocks of edges in turn.
fn ranks(
    pass: &mut LayerWise<'_>,
    (rows, dim): (&[f32], usize),
    whole: &Graph<'_>,
    config: &TaskConfig,
    edges: &[(u32, u32)],
) -> Result<Vec<f64>> {
    let each = 1 + config.eval_negatives;
    let blocks: Vec<&[(u32, u32)]> = edges.chunks((PAIRS / each).max(1)).collect();
    let (next, stop) = (AtomicUsize::new(0), pass.stop());
    let found = pass.team().each(|model, _, failed| {
        let mut found = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            check_stop(stop)?;
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(edges) = blocks.get(number) else { break };
            let among = |&(source, target): &(u32, u32)| -> Vec<u32> {
                [target].into_iter().chain(negatives(whole, config, source, target)).collect()
            };
            let targets = edges.par_iter().map(among).collect::<Vec<_>>().concat();
            let sources: Vec<u32> = edges.iter().flat_map(|&(source, _)| std::iter::repeat_n(source, each)).collect();
            let scores = model.pair_scorer().scores(rows, dim, [&sources, &targets])?;
            let ranks = scores.chunks_exact(each).map(|scores| rank_of_positive(scores[0], &scores[1..]));
            found.push((number, ranks.collect::<Vec<f64>>()));
        }
        Ok(found)
    })?;
    let mut found = found.concat();
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found.into_iter().flat_map(|(_, ranks)| ranks).collect())
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
