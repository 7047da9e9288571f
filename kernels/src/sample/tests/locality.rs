//! Draws that prefer a set, and factors of edges.

use super::*;

/// A vertex with `degree` in-neighbours, 1 and up, of which every third and the last are preferred.
fn star(degree: u32) -> (Vec<u64>, Vec<u32>, VertexSet) {
    let indptr = [vec![0], vec![u64::from(degree); degree as usize + 1]].concat();
    let set = VertexSet::new(degree as usize + 1, (1..=degree).filter(|v| v % 3 == 0 || *v == degree));
    (indptr, (1..=degree).collect(), set)
}

/// Samples of vertex 0 of the graph in `trials` different steps.
fn samples<'a>(graph: Graph<'a>, draw: Draw<'a>, trials: u32) -> impl Iterator<Item = SampledCsc> + 'a {
    let mut sampler = Sampler::new(1);
    (0..trials).map(move |step| layer(&mut sampler, &graph, &[0], &draw, &StreamKey { step, ..KEY }))
}

#[test]
fn oracle_edges_are_drawn_as_often_as_the_factor_says_and_means_stay() {
    const TRIALS: u32 = 20_000;
    for (degree, fanout, factor) in
        [(7, 3, 2.0), (7, 1, 8.0), (20, 5, 1.5), (20, 15, 8.0), (9, 6, 1e6), (90, 15, 4.0), (300, 20, 8.0)]
    {
        let (indptr, indices, set) = star(degree);
        let excluded = ExcludedEdges::new((0..u64::from(degree)).filter(|edge| edge % 7 == 4).collect());
        let graph = Graph::new(&indptr, &indices).unwrap();
        for excluded in [ExcludedEdges::default(), excluded] {
            let what = format!("{fanout} of {degree} by {factor}, {} excluded", excluded.as_slice().len());
            let draw = Draw::new(Fanout::Take(fanout)).without(&excluded).near(&set, factor);
            let is_left = |i: &u32| !excluded.as_slice().contains(&u64::from(*i));
            let is = |i: &u32, near: bool| is_left(i) && set.contains(indices[*i as usize]) == near;
            let of = |near: bool| (0..degree).filter(|i| is(i, near)).count() as f64;
            let (a, b, k) = (of(true), of(false), f64::from(fanout));
            let p_in = (k * factor / (a * factor + b)).min(1.0);
            let p_out = (k - a * p_in) / b;
            // Arbitrary values of the sources, some large.
            let value =
                |source: u32| f64::from(source * source % 11) - 3.0 + if source.is_multiple_of(5) { 20.0 } else { 0.0 };
            let mut counts = vec![0f64; degree as usize];
            let (mut sum, mut squares) = (0f64, 0f64);
            for sample in samples(graph, draw, TRIALS) {
                assert_eq!((sample.edges.len(), sample.factors.len()), (fanout as usize, fanout as usize), "{what}");
                assert!(sample.edges.windows(2).all(|pair| pair[0] < pair[1]), "{what}");
                let mut mean = 0.0;
                for (&edge, &correction) in sample.edges.iter().zip(&sample.factors) {
                    let source = indices[edge as usize];
                    let p = if set.contains(source) { p_in } else { p_out };
                    assert!((f64::from(correction) * p * (a + b) / k - 1.0).abs() < 1e-6, "{what}");
                    counts[edge as usize] += 1.0;
                    mean += f64::from(correction) * value(source) / k;
                }
                (sum, squares) = (sum + mean, squares + mean * mean);
            }
            let trials = f64::from(TRIALS);
            for (i, &count) in counts.iter().enumerate() {
                let p = match set.contains(indices[i]) {
                    _ if !is_left(&(i as u32)) => 0.0,
                    true => p_in,
                    false => p_out,
                };
                let error = (p * (1.0 - p) / trials).sqrt();
                // The largest of hundreds of deviations.
                assert!((count / trials - p).abs() <= 4.5 * error + 1e-9, "{what}: edge {i}: {count}, expected {p}");
            }
            let left = (0..degree).filter(is_left);
            let expected = left.map(|i| value(indices[i as usize])).sum::<f64>() / (a + b);
            let mean = sum / trials;
            let error = ((squares / trials - mean * mean) / trials).sqrt();
            assert!((mean - expected).abs() <= 3.0 * error, "{what}: mean {mean}, expected {expected}, error {error}");
        }
    }
}

#[test]
fn nothing_to_prefer_is_uniform_to_the_bit() {
    let (indptr, indices) = topology(21, 300);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let frontier: Vec<u32> = (0..300).collect();
    let some = VertexSet::new(300, (0..300).filter(|v| v % 4 == 0));
    let sets = [VertexSet::new(300, []), VertexSet::new(300, 0..300), some];
    for fanout in FANOUTS {
        let plain = Draw::new(fanout);
        let uniform = layer(&mut Sampler::new(1), &graph, &frontier, &plain, &KEY);
        assert!(uniform.factors.is_empty());
        for (set, factor) in [(&sets[2], 1.0), (&sets[0], 8.0), (&sets[1], 8.0)] {
            let mut found = layer(&mut Sampler::new(1), &graph, &frontier, &plain.near(set, factor), &KEY);
            let count = if factor > 1.0 { found.num_edges() } else { 0 };
            assert_eq!(std::mem::take(&mut found.factors), vec![1.0; count], "{fanout}");
            assert_eq!(found, uniform, "{fanout}");
        }
        let local = layer(&mut Sampler::new(1), &graph, &frontier, &plain.near(&sets[2], 8.0), &KEY);
        let drawn = matches!(fanout, Fanout::Take(most) if most < 90);
        assert!(!drawn || local != uniform, "{fanout}");
        // Degrees up to the fanout keep all.
        for v in 0..300 {
            let of = local.indptr[v as usize] as usize..local.indptr[v as usize + 1] as usize;
            assert_eq!(of.len() as u64, fanout.kept(graph.degree(v)));
            let all = of.len() as u64 == graph.degree(v);
            assert!(!all || local.factors[of].iter().all(|&factor| factor == 1.0));
        }
    }
}

#[test]
fn factors_are_the_edges_own_for_any_number_of_threads() {
    let (indptr, indices) = topology(22, 400);
    let plain = Graph::new(&indptr, &indices).unwrap();
    let of_edges: Vec<f32> = (0..indices.len()).map(|edge| (edge % 9) as f32 / 4.0).collect();
    let degrees = plain.weighted_degrees(&of_edges).unwrap();
    let graph = plain.with_factors(&of_edges, &degrees).unwrap();
    let (frontier, set) = ((0..400).collect::<Vec<u32>>(), VertexSet::new(400, (0..400).filter(|v| v % 3 == 0)));
    for fanout in [Fanout::Take(5), Fanout::Take(70), Fanout::All] {
        let uniform = Draw::new(fanout);
        for draw in [uniform, uniform.near(&set, 4.0)] {
            let alone = layer(&mut Sampler::new(1), &plain, &frontier, &draw, &KEY);
            for (threads, tuning) in [1, 3, 8].into_iter().zip([TUNINGS[0], TUNINGS[1], TUNINGS[0]]) {
                let sampled = layer(&mut Sampler::tuned(threads, tuning), &graph, &frontier, &draw, &KEY);
                assert_eq!(
                    (&sampled.edges, &sampled.local),
                    (&alone.edges, &alone.local),
                    "{threads} threads, {fanout}"
                );
                assert_eq!(sampled.factors.len(), sampled.num_edges());
                for (at, (&edge, &factor)) in sampled.edges.iter().zip(&sampled.factors).enumerate() {
                    let correction = alone.factors.get(at).copied().unwrap_or(1.0);
                    assert_eq!(factor, of_edges[edge as usize] * correction, "{threads} threads, {fanout}");
                }
            }
        }
    }
    // Weights to draw by are no factors.
    let drawn = graph.with_weights(&of_edges).unwrap();
    let sampled = layer(&mut Sampler::new(1), &drawn, &frontier, &Draw::new(Fanout::Take(5)), &KEY);
    assert!(sampled.edges.iter().zip(&sampled.factors).all(|(&edge, &factor)| factor == of_edges[edge as usize]));
}
