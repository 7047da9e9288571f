//! Tests of the host sampler, against an independent version and against the definition of uniform.

use std::collections::{BTreeSet, HashMap};

use super::*;
use crate::philox::Stream;

const KEY: StreamKey = StreamKey { seed: 1, epoch: 2, step: 3, stream: Stream::Sample, layer: 1 };

/// Degrees 0, 1, 2 .. and a few large ones, in a random order; neighbours are arbitrary.
fn topology(seed: u64) -> (Vec<u64>, Vec<u32>) {
    let mut draws = Draws::new(&StreamKey::new(seed, Stream::Generate), 0);
    let mut indptr = vec![0];
    for v in 0..700u32 {
        let degree = if v % 50 == 49 { 100 + draws.below(900) } else { draws.below(40) };
        indptr.push(indptr[v as usize] + u64::from(degree));
    }
    let indices = (0..indptr[700]).map(|_| draws.below(700)).collect();
    (indptr, indices)
}

/// Floyd's algorithm, written down again with a set, for one vertex.
fn oracle(graph: &Graph<'_>, v: u32, fanout: Fanout, key: &StreamKey) -> Vec<u64> {
    let (start, degree) = (graph.in_edges(v).start, graph.degree(v));
    let mut draws = Draws::new(key, v);
    let mut picked = BTreeSet::new();
    match fanout {
        Fanout::Take(k) if u64::from(k) < degree => {
            for j in degree - u64::from(k)..degree {
                let t = u64::from(draws.below(j as u32 + 1));
                let new = picked.insert(start + t);
                if !new {
                    picked.insert(start + j);
                }
            }
        }
        _ => picked.extend(graph.in_edges(v)),
    }
    picked.into_iter().collect()
}

const FANOUTS: [Fanout; 9] = [
    Fanout::Take(1),
    Fanout::Take(5),
    Fanout::Take(15),
    Fanout::Take(64),
    Fanout::Take(65),
    Fanout::Take(99),
    Fanout::Take(500),
    Fanout::Take(1 << 18),
    Fanout::All,
];

#[test]
fn oracle_every_vertex_of_every_fanout() {
    for seed in 0..5 {
        let (indptr, indices) = topology(seed);
        let graph = Graph::new(&indptr, &indices).unwrap();
        let frontier: Vec<u32> = (0..700).rev().collect();
        for fanout in FANOUTS {
            let sampled = sample_layer(&graph, &frontier, fanout, &KEY).unwrap();
            assert_eq!(sampled.indptr.len(), frontier.len() + 1);
            for (i, &v) in frontier.iter().enumerate() {
                let edges = sampled.of(i);
                assert_eq!(edges, oracle(&graph, v, fanout, &KEY), "seed {seed}, fanout {fanout}, vertex {v}");
                assert_eq!(edges.len() as u64, fanout.kept(graph.degree(v)));
                assert!(edges.windows(2).all(|w| w[0] < w[1]), "ascending, without repeats");
                assert!(edges.iter().all(|e| graph.in_edges(v).contains(e)), "subset");
            }
            assert_eq!(*sampled.indptr.last().unwrap() as usize, sampled.num_edges());
        }
    }
}

#[test]
fn threads_and_chunks_change_nothing() {
    let (indptr, indices) = topology(9);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let frontier: Vec<u32> = (0..5000).map(|i| i * 37 % 700).collect();
    for fanout in [Fanout::Take(7), Fanout::Take(80)] {
        let expected = sample_layer(&graph, &frontier, fanout, &KEY).unwrap();
        for chunk in [1, 3, 100, 10_000] {
            assert_eq!(sample_in_chunks(&graph, &frontier, fanout, &KEY, chunk).unwrap(), expected);
        }
        for threads in [1, 2, 4, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| sample_layer(&graph, &frontier, fanout, &KEY)).unwrap(), expected);
        }
    }
}

#[test]
fn order_and_company_of_the_frontier_change_nothing() {
    let (indptr, indices) = topology(10);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let all: Vec<u32> = (0..700).collect();
    let whole = sample_layer(&graph, &all, Fanout::Take(6), &KEY).unwrap();
    for seed in 0..4 {
        let shuffled = crate::permute(700, &StreamKey::new(seed, Stream::Shuffle));
        let frontier = &shuffled[..700 / (seed as usize + 1)];
        let sampled = sample_layer(&graph, frontier, Fanout::Take(6), &KEY).unwrap();
        for (i, &v) in frontier.iter().enumerate() {
            assert_eq!(sampled.of(i), whole.of(v as usize), "seed {seed}, vertex {v}");
        }
    }
}

#[test]
fn every_part_of_the_key_changes_the_sample() {
    let (indptr, indices) = topology(11);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let frontier: Vec<u32> = (0..700).collect();
    let keys = [
        KEY,
        StreamKey { seed: 2, ..KEY },
        StreamKey { epoch: 0, ..KEY },
        StreamKey { step: 0, ..KEY },
        StreamKey { layer: 0, ..KEY },
    ];
    let samples = keys.map(|key| sample_layer(&graph, &frontier, Fanout::Take(5), &key).unwrap().edges);
    for (i, a) in samples.iter().enumerate() {
        assert!(samples[..i].iter().all(|b| a != b));
    }
}

/// Samples of one vertex with `degree` in-edges in `trials` different steps.
fn trials(degree: u64, fanout: u32, trials: u32) -> impl Iterator<Item = Vec<u64>> {
    (0..trials).map(move |step| {
        let (indptr, indices) = ([0, degree], vec![0; degree as usize]);
        let graph = Graph::new(&indptr, &indices).unwrap();
        sample_layer(&graph, &[0], Fanout::Take(fanout), &StreamKey { step, ..KEY }).unwrap().edges
    })
}

#[test]
fn every_edge_is_equally_likely() {
    for (degree, fanout) in [(20, 5), (30, 29), (100, 1), (200, 70)] {
        let mut counts = vec![0f64; degree as usize];
        trials(degree, fanout, 4000).flatten().for_each(|e| counts[e as usize] += 1.0);
        let (d, k) = (degree as f64, f64::from(fanout));
        let expected = 4000.0 * k / d;
        // Picks of one trial exclude each other, which shrinks the spread by (d - k) / (d - 1).
        let chi2: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum::<f64>() * (d - 1.0) / (d - k);
        assert!(chi2 < d - 1.0 + 4.5 * (2.0 * d).sqrt(), "degree {degree}, fanout {fanout}: chi-square {chi2}");
    }
}

#[test]
fn every_subset_is_equally_likely() {
    let mut counts: HashMap<Vec<u64>, f64> = HashMap::new();
    trials(6, 3, 20_000).for_each(|edges| *counts.entry(edges).or_default() += 1.0);
    assert_eq!(counts.len(), 20);
    let chi2: f64 = counts.values().map(|c| (c - 1000.0).powi(2) / 1000.0).sum();
    assert!(chi2 < 48.0, "chi-square {chi2} with 19 degrees of freedom");
}

#[test]
fn fixed_result() {
    // Pins the definition: every implementation and every later version draws exactly this. Computed by another
    // program.
    let (indptr, indices) = ([0, 1000, 1010], vec![0; 1010]);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let sampled = sample_layer(&graph, &[0, 1], Fanout::Take(4), &KEY).unwrap();
    assert_eq!(sampled.indptr, [0, 4, 8]);
    assert_eq!(sampled.edges, [27, 31, 471, 512, 1003, 1005, 1007, 1009]);
}

#[test]
fn empty_frontiers_and_isolated_vertices() {
    let graph = Graph::new(&[0, 0, 0], &[]).unwrap();
    for fanout in FANOUTS {
        let sampled = sample_layer(&graph, &[], fanout, &KEY).unwrap();
        assert_eq!(sampled, SampledEdges { indptr: vec![0], edges: vec![] });
        let sampled = sample_layer(&graph, &[1, 0], fanout, &KEY).unwrap();
        assert_eq!(sampled, SampledEdges { indptr: vec![0; 3], edges: vec![] });
    }
}

#[test]
fn bad_input_is_refused() {
    let graph = Graph::new(&[0, 1], &[0]).unwrap();
    let error = |frontier: &[u32], fanout| sample_layer(&graph, frontier, fanout, &KEY).unwrap_err();
    assert_eq!(error(&[0, 1], Fanout::All), KernelError::VertexOutOfRange { vertex: 1, num_vertices: 1 });
    assert_eq!(error(&[0], Fanout::Take(0)), KernelError::Fanout { got: "0".to_owned() });
    assert_eq!(error(&[0], Fanout::Take(u32::MAX)), KernelError::Fanout { got: u32::MAX.to_string() });
    // A graph whose edges are never read, so it need not have them.
    let many = Graph { indptr: &[0, 1 << 31, 1 << 33], indices: &[] };
    for (frontier, edges) in [(&[0u32, 0][..], 1 << 32), (&[1], (1 << 33) - (1 << 31))] {
        let error = sample_layer(&many, frontier, Fanout::All, &KEY).unwrap_err();
        assert_eq!(error, KernelError::TooManyEdges { edges });
    }
}

#[test]
fn neighbours_are_looked_up() {
    let graph = Graph::new(&[0, 2, 3], &[1, 0, 7]).unwrap();
    assert_eq!(neighbours(&graph, &[2, 0, 2]), [7, 1, 7]);
    assert_eq!(neighbours(&graph, &[]), []);
}
