//! Weighted draws.

use super::*;

/// Probability of each set of `k` out of `weights` drawn one after another, each in proportion to
/// the remaining weights.
fn successive(weights: &[f64], k: usize) -> HashMap<Vec<u64>, f64> {
    let mut sets = HashMap::from([(vec![], 1.0)]);
    for _ in 0..k {
        let mut larger: HashMap<Vec<u64>, f64> = HashMap::new();
        for (set, probability) in sets {
            let left: f64 = (0..weights.len())
                .filter(|&i| !set.contains(&(i as u64)))
                .map(|i| weights[i])
                .sum();
            for (i, weight) in
                weights.iter().enumerate().filter(|&(i, _)| !set.contains(&(i as u64)))
            {
                let mut with: Vec<u64> = set.iter().copied().chain([i as u64]).collect();
                with.sort_unstable();
                *larger.entry(with).or_default() += probability * weight / left;
            }
        }
        sets = larger;
    }
    sets
}

#[test]
fn oracle_sets_are_drawn_as_one_after_another() {
    let weights = [1.0, 4.0, 0.5, 2.0, 1.0, 8.0];
    let as_f32 = weights.map(|weight| weight as f32);
    for k in [1, 2, 4] {
        let mut counts: HashMap<Vec<u64>, f64> = HashMap::new();
        trials(6, Some(&as_f32), Draw::new(Fanout::Take(k)), 40_000)
            .for_each(|edges| *counts.entry(edges).or_default() += 1.0);
        let (counts, expected): (Vec<f64>, Vec<f64>) = successive(&weights, k as usize)
            .into_iter()
            .map(|(set, probability)| {
                (counts.get(&set).copied().unwrap_or(0.0), 40_000.0 * probability)
            })
            .unzip();
        assert_eq!(counts.iter().sum::<f64>(), 40_000.0);
        chi_square(&format!("{k} of 6"), &counts, &expected, 1.0);
    }
}

/// For any weights and fanout, corrected means equal the means over all in-edges that can be drawn;
/// and single edges count once in expectation.
#[test]
fn oracle_corrected_means_are_those_of_all_that_can_be_drawn() {
    const TRIALS: u32 = 20_000;
    for (degree, fanout, steep) in
        [(7u32, 3, 1.0), (7, 1, 2.0), (9, 4, 4.0), (20, 5, 1.0), (20, 15, 2.0), (90, 15, 1.0)]
    {
        let weights: Vec<f32> =
            (0..degree).map(|i| ((i * 5 % 7) as f32 / 2.0).powf(steep)).collect();
        let excluded =
            ExcludedEdges::new((0..u64::from(degree)).filter(|edge| edge % 8 == 3).collect());
        let (indptr, indices) = ([0, u64::from(degree)], vec![0; degree as usize]);
        let graph =
            Graph::new(&indptr, &indices).unwrap().with_weights(&weights).unwrap().correcting();
        for excluded in [ExcludedEdges::default(), excluded] {
            let draw = Draw::new(Fanout::Take(fanout)).without(&excluded);
            let what = format!(
                "{fanout} of {degree}, {} excluded, seed {}",
                excluded.as_slice().len(),
                KEY.seed
            );
            let can_be_drawn =
                |edge: usize| weights[edge] > 0.0 && !excluded.as_slice().contains(&(edge as u64));
            let left = (0..degree as usize).filter(|&edge| can_be_drawn(edge)).count();
            let kept = left.min(fanout as usize);
            let samples = samples(graph, draw, TRIALS)
                .inspect(|sampled| assert_eq!(sampled.edges.len(), kept, "{what}"));
            assert_unbiased(samples, degree, &can_be_drawn, &what);
        }
    }
}

#[test]
fn corrections_are_asked_for_and_change_no_draw() {
    let (indptr, indices) = topology(23, 300);
    let weights: Vec<f32> = (0..indices.len()).map(|i| [0.0, 1.0, 2.5][i % 3]).collect();
    let graph = Graph::new(&indptr, &indices).unwrap().with_weights(&weights).unwrap();
    let frontier: Vec<u32> = (0..300).collect();
    for fanout in FANOUTS {
        let draw = Draw::new(fanout);
        let plain = layer(&mut Sampler::new(1), &graph, &frontier, &draw, &KEY);
        assert!(plain.factors.is_empty());
        for threads in [1, 4] {
            let mut sampler = Sampler::tuned(threads, TUNINGS[1]);
            let mut found = layer(&mut sampler, &graph.correcting(), &frontier, &draw, &KEY);
            let factors = std::mem::take(&mut found.factors);
            assert_eq!(found, plain, "{fanout}");
            assert_eq!(
                factors.len(),
                if fanout == Fanout::All { 0 } else { plain.num_edges() },
                "{fanout}"
            );
            for v in frontier.iter().copied().filter(|_| fanout != Fanout::All) {
                let of = plain.indptr[v as usize] as usize..plain.indptr[v as usize + 1] as usize;
                let all = graph.in_edges(v).filter(|edge| edge % 3 != 0).count() == of.len();
                assert!(
                    !all || factors[of].iter().all(|&factor| factor == 1.0),
                    "{fanout}, vertex {v}"
                );
            }
        }
    }
}

#[test]
fn what_has_no_weight_is_not_drawn_and_costs_no_other() {
    let (indptr, indices) = topology(20, 200);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let weights: Vec<f32> = (0..indices.len()).map(|i| [0.0, 1.0, 2.0][i % 3]).collect();
    let graph = graph.with_weights(&weights).unwrap();
    let excluded =
        ExcludedEdges::new((0..indices.len() as u64).filter(|edge| edge % 4 == 0).collect());
    let frontier: Vec<u32> = (0..200).collect();
    for threads in [1, 2, 4, 8] {
        let mut sampler = Sampler::tuned(threads, TUNINGS[1]);
        for fanout in [Fanout::Take(5), Fanout::Take(70), Fanout::All] {
            let draw = Draw::new(fanout).without(&excluded);
            let sampled = layer(&mut sampler, &graph, &frontier, &draw, &KEY);
            assert_eq!(
                sampled,
                layer(&mut Sampler::new(1), &graph, &frontier, &draw, &KEY),
                "{threads} threads"
            );
            for v in frontier.iter().copied() {
                let possible =
                    graph.in_edges(v).filter(|edge| edge % 4 != 0 && edge % 3 != 0).count() as u64;
                let edges = edges_of(&sampled, v as usize);
                assert_eq!(edges.len() as u64, fanout.kept(possible));
                assert!(edges.iter().all(|edge| edge % 4 != 0
                    && edge % 3 != 0
                    && graph.in_edges(v).contains(edge)));
                assert!(edges.windows(2).all(|w| w[0] < w[1]));
            }
        }
    }
}

#[test]
fn hubs_with_more_edges_than_words_of_a_sequence() {
    // More than 2^18 words; reusing the same sequence would draw the same offsets in each stretch.
    let degree = 3 << 18;
    let weights = vec![1f32; degree];
    let mut thirds = [0f64; 3];
    let mut offsets = BTreeSet::new();
    for edges in trials(degree as u64, Some(&weights), Draw::new(Fanout::Take(100)), 6) {
        edges.iter().for_each(|edge| thirds[(edge >> 18) as usize] += 1.0);
        offsets.extend(edges.iter().map(|edge| edge % (1 << 18)));
    }
    assert!(offsets.len() > 590, "{}", offsets.len());
    chi_square("thirds", &thirds, &[200.0; 3], 1.0);
}

#[test]
fn unsuitable_weights_are_refused() {
    let (indptr, indices) = ([0, 3, 4], [0, 1, 0, 1]);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let error = |weights: &[f32], fanout| {
        let mut sampler = Sampler::new(2);
        sampler.start(&[0, 1]);
        let graph = graph.with_weights(weights)?;
        sampler.layer(&graph, &Draw::new(fanout), &KEY, EdgeIds::Drop, &mut SampledCsc::default())
    };
    for (fanout, bad) in [Fanout::Take(1), Fanout::Take(3), Fanout::All]
        .into_iter()
        .flat_map(|f| [-1.0, f32::NAN, f32::INFINITY].map(|w| (f, w)))
    {
        let line = error(&[1.0, 1.0, bad, 1.0], fanout).unwrap_err().to_string();
        assert!(line.contains("edge 2") && line.contains("finite number"), "{line}");
    }
    assert!(matches!(
        error(&[1.0; 3], Fanout::All),
        Err(KernelError::Length { expected: 4, got: 3, .. })
    ));
}
