//! Tests of the host sampler: against an independent version, and against the definition of random
//! draws.

mod device;
mod layers;
mod locality;
mod refused;
mod rows;
mod weights;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::*;
use crate::count::Counters;
use crate::philox::{Draws, Stream};
use crate::sample::{ExcludedEdges, Fanout, VertexSet};

const KEY: StreamKey = StreamKey { seed: 1, epoch: 2, step: 3, stream: Stream::Sample, layer: 1 };

/// Both ways of numbering, and segments of few edges.
const TUNINGS: [Tuning; 2] = [
    Tuning { segment_edges: 50, swept_per_edge: u64::MAX },
    Tuning { segment_edges: 50, swept_per_edge: 0 },
];

const FANOUTS: [Fanout; 11] = [
    Fanout::Take(1),
    Fanout::Take(4),
    Fanout::Take(5),
    Fanout::Take(15),
    Fanout::Take(16),
    Fanout::Take(17),
    Fanout::Take(64),
    Fanout::Take(65),
    Fanout::Take(500),
    Fanout::Take(1 << 18),
    Fanout::All,
];

/// Degrees from 0 to 90, a few up to 1000 and two of thousands, in a random order; neighbours are
/// arbitrary.
fn topology(seed: u64, n: u32) -> (Vec<u64>, Vec<u32>) {
    let mut draws = Draws::new(&StreamKey::new(seed, Stream::Generate), 0);
    let mut indptr = vec![0];
    for v in 0..n {
        let degree = match v {
            7 | 13 => 1025 + draws.below(5000),
            _ if v % 50 == 49 => 100 + draws.below(900),
            _ if v % 5 == 4 => 60 + draws.below(30),
            _ => draws.below(25),
        };
        indptr.push(indptr[v as usize] + u64::from(degree));
    }
    let indices = (0..indptr[n as usize]).map(|_| draws.below(n)).collect();
    (indptr, indices)
}

/// Floyd's algorithm with a set, for one vertex, among its edges that are not excluded.
fn oracle_edges(
    graph: &Graph<'_>,
    v: u32,
    fanout: Fanout,
    excluded: &[u64],
    key: &StreamKey,
) -> Vec<u64> {
    let candidates: Vec<u64> = graph.in_edges(v).filter(|edge| !excluded.contains(edge)).collect();
    let degree = candidates.len();
    let mut draws = Draws::new(key, v);
    let mut picked = BTreeSet::new();
    match fanout {
        Fanout::Take(k) if (k as usize) < degree => {
            for j in degree - k as usize..degree {
                let t = draws.below(j as u32 + 1) as usize;
                if !picked.insert(t) {
                    picked.insert(j);
                }
            }
        }
        _ => picked.extend(0..degree),
    }
    picked.into_iter().map(|at| candidates[at]).collect()
}

/// A layer by [`oracle_edges`] and a hash map, vertex after vertex; extends `mixed_frontier`.
fn oracle_layer(
    graph: &Graph<'_>,
    mixed_frontier: &mut Vec<u32>,
    fanout: Fanout,
    excluded: &[u64],
    key: &StreamKey,
) -> SampledCsc {
    let mut position: HashMap<u32, u32> = mixed_frontier.iter().copied().zip(0..).collect();
    let mut layer = SampledCsc { indptr: vec![0], ..SampledCsc::default() };
    for v in mixed_frontier.clone() {
        for edge in oracle_edges(graph, v, fanout, excluded, key) {
            let source = graph.indices[edge as usize];
            let at = *position.entry(source).or_insert_with(|| {
                mixed_frontier.push(source);
                mixed_frontier.len() as u32 - 1
            });
            layer.local.push(at);
            layer.edges.push(edge);
        }
        layer.indptr.push(layer.edges.len() as u32);
    }
    layer
}

/// One layer from `frontier`, with the ids of its edges.
fn layer(
    sampler: &mut Sampler,
    graph: &Graph<'_>,
    frontier: &[u32],
    draw: &Draw<'_>,
    key: &StreamKey,
) -> SampledCsc {
    let mut layer = SampledCsc::default();
    sampler.start(frontier);
    sampler.layer(graph, draw, key, EdgeIds::Keep, &mut layer).unwrap();
    layer
}

/// The edges drawn for frontier position `i`.
fn edges_of(layer: &SampledCsc, i: usize) -> &[u64] {
    &layer.edges[layer.indptr[i] as usize..layer.indptr[i + 1] as usize]
}

/// Samples of one vertex with `degree` in-edges, all alike or of `weights`, in `trials` different
/// steps.
fn trials(
    degree: u64,
    weights: Option<&[f32]>,
    draw: Draw<'_>,
    trials: u32,
) -> impl Iterator<Item = Vec<u64>> {
    let (indptr, indices) = ([0, degree], vec![0; degree as usize]);
    let mut sampler = Sampler::new(1);
    (0..trials).map(move |step| {
        let graph = Graph { weights, ..Graph::new(&indptr, &indices).unwrap() };
        layer(&mut sampler, &graph, &[0], &draw, &StreamKey { step, ..KEY }).edges
    })
}

/// Samples of vertex 0 of the graph in `trials` different steps.
fn samples<'a>(
    graph: Graph<'a>,
    draw: Draw<'a>,
    trials: u32,
) -> impl Iterator<Item = SampledCsc> + 'a {
    let mut sampler = Sampler::new(1);
    (0..trials)
        .map(move |step| layer(&mut sampler, &graph, &[0], &draw, &StreamKey { step, ..KEY }))
}

/// Fails unless corrected means of samples of a vertex with `degree` in-edges have the mean over
/// all that `can_be_drawn` as expectation, and each of these edges counts alike.
fn assert_unbiased(
    samples: impl Iterator<Item = SampledCsc>,
    degree: u32,
    can_be_drawn: &dyn Fn(usize) -> bool,
    what: &str,
) {
    // Arbitrary values of the edges, some large.
    let value = |edge: usize| {
        (edge * edge % 11) as f64 - 3.0 + if edge.is_multiple_of(5) { 20.0 } else { 0.0 }
    };
    // Sums and squares of the mean, and of the weight of each edge in it.
    let (mut moments, mut trials) = (vec![[0f64; 2]; 1 + degree as usize], 0.0);
    let mut add = |at: usize, value: f64| {
        moments[at] = [moments[at][0] + value, moments[at][1] + value * value]
    };
    for sampled in samples {
        assert_eq!(sampled.factors.len(), sampled.edges.len(), "{what}");
        let mut mean = 0.0;
        for (&edge, &factor) in sampled.edges.iter().zip(&sampled.factors) {
            let counts = f64::from(factor) / sampled.edges.len() as f64;
            add(1 + edge as usize, counts);
            mean += counts * value(edge as usize);
        }
        add(0, mean);
        trials += 1.0;
    }
    let left: Vec<usize> = (0..degree as usize).filter(|&edge| can_be_drawn(edge)).collect();
    let of_edge = |edge: usize| if can_be_drawn(edge) { 1.0 / left.len() as f64 } else { 0.0 };
    let expected = [left.iter().map(|&edge| value(edge)).sum::<f64>() / left.len() as f64];
    let expected = expected.into_iter().chain((0..degree as usize).map(of_edge));
    for (at, ([sum, squares], expected)) in moments.iter().zip(expected).enumerate() {
        let mean = sum / trials;
        let error = ((squares / trials - mean * mean) / trials).max(0.0).sqrt();
        // The largest of hundreds of deviations.
        let off = (mean - expected).abs();
        assert!(
            off <= 4.5 * error + 1e-6,
            "{what}: {at}: {mean}, expected {expected}, error {error}"
        );
    }
}

/// Fails unless the counts match the probabilities, which add up to `picks` per trial. A count's
/// variance is `spread` times that of independent picks.
fn chi_square(what: &str, counts: &[f64], expected: &[f64], spread: f64) {
    let chi2: f64 =
        counts.iter().zip(expected).map(|(c, e)| (c - e).powi(2) / e).sum::<f64>() / spread;
    let d = counts.len() as f64 - 1.0;
    assert!(
        chi2 < d + 4.5 * (2.0 * (d + 1.0)).sqrt(),
        "{what}: chi-square {chi2} with {d} degrees of freedom"
    );
}
