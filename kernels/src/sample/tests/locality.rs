//! Draws that prefer a set, and factors of edges.

use super::*;

/// A vertex with `degree` in-neighbours, 1 and up, of which every third and the last are preferred.
fn star(degree: u32) -> (Vec<u64>, Vec<u32>, VertexSet) {
    let indptr = [vec![0], vec![u64::from(degree); degree as usize + 1]].concat();
    let set =
        VertexSet::new(degree as usize + 1, (1..=degree).filter(|v| v % 3 == 0 || *v == degree));
    (indptr, (1..=degree).collect(), set)
}

#[test]
fn oracle_edges_are_drawn_as_often_as_the_factor_says_and_means_stay() {
    const TRIALS: u32 = 20_000;
    for (degree, fanout, factor) in [
        (7, 3, 2.0),
        (7, 1, 8.0),
        (20, 5, 1.5),
        (20, 15, 8.0),
        (9, 6, 1e6),
        (90, 15, 4.0),
        (300, 20, 8.0),
    ] {
        let (indptr, indices, set) = star(degree);
        let excluded =
            ExcludedEdges::new((0..u64::from(degree)).filter(|edge| edge % 7 == 4).collect());
        let graph = Graph::new(&indptr, &indices).unwrap();
        for excluded in [ExcludedEdges::default(), excluded] {
            let what =
                format!("{fanout} of {degree} by {factor}, {} excluded", excluded.as_slice().len());
            let draw = Draw::new(Fanout::Take(fanout)).without(&excluded).prefer(&set, factor);
            let is_left = |edge: usize| !excluded.as_slice().contains(&(edge as u64));
            let is_near = |edge: usize| set.contains(indices[edge]);
            let of = |near: bool| {
                (0..degree as usize).filter(|&edge| is_left(edge) && is_near(edge) == near).count()
                    as f64
            };
            let (a, b, k) = (of(true), of(false), f64::from(fanout));
            let p_in = (k * factor / (a * factor + b)).min(1.0);
            let p_out = (k - a * p_in) / b;
            // The mean of an edge's corrections is 1 if it is drawn as often as its factor says.
            let samples = samples(graph, draw, TRIALS).inspect(|sample| {
                assert_eq!(sample.edges.len(), fanout as usize, "{what}");
                assert!(sample.edges.windows(2).all(|pair| pair[0] < pair[1]), "{what}");
                for (&edge, &correction) in sample.edges.iter().zip(&sample.factors) {
                    let p = if is_near(edge as usize) { p_in } else { p_out };
                    assert!((f64::from(correction) * p * (a + b) / k - 1.0).abs() < 1e-6, "{what}");
                }
            });
            assert_unbiased(samples, degree, &is_left, &what);
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
            let mut found =
                layer(&mut Sampler::new(1), &graph, &frontier, &plain.prefer(set, factor), &KEY);
            let count = if factor > 1.0 { found.num_edges() } else { 0 };
            assert_eq!(std::mem::take(&mut found.factors), vec![1.0; count], "{fanout}");
            assert_eq!(found, uniform, "{fanout}");
        }
        let local =
            layer(&mut Sampler::new(1), &graph, &frontier, &plain.prefer(&sets[2], 8.0), &KEY);
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
    let (frontier, set) =
        ((0..400).collect::<Vec<u32>>(), VertexSet::new(400, (0..400).filter(|v| v % 3 == 0)));
    for fanout in [Fanout::Take(5), Fanout::Take(70), Fanout::All] {
        let uniform = Draw::new(fanout);
        for draw in [uniform, uniform.prefer(&set, 4.0)] {
            let alone = layer(&mut Sampler::new(1), &plain, &frontier, &draw, &KEY);
            for (threads, tuning) in [1, 3, 8].into_iter().zip([TUNINGS[0], TUNINGS[1], TUNINGS[0]])
            {
                let sampled =
                    layer(&mut Sampler::tuned(threads, tuning), &graph, &frontier, &draw, &KEY);
                assert_eq!(
                    (&sampled.edges, &sampled.local),
                    (&alone.edges, &alone.local),
                    "{threads} threads, {fanout}"
                );
                assert_eq!(sampled.factors.len(), sampled.num_edges());
                for (at, (&edge, &factor)) in sampled.edges.iter().zip(&sampled.factors).enumerate()
                {
                    let correction = alone.factors.get(at).copied().unwrap_or(1.0);
                    assert_eq!(
                        factor,
                        of_edges[edge as usize] * correction,
                        "{threads} threads, {fanout}"
                    );
                }
            }
        }
    }
    // Weights of draws do not count as factors.
    let drawn = graph.with_weights(&of_edges).unwrap();
    let sampled = layer(&mut Sampler::new(1), &drawn, &frontier, &Draw::new(Fanout::Take(5)), &KEY);
    assert!(
        sampled
            .edges
            .iter()
            .zip(&sampled.factors)
            .all(|(&edge, &factor)| factor == of_edges[edge as usize])
    );
}
