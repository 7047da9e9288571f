//! Weighted draws.

use super::*;

/// Probability of each set of `k` out of `weights` drawn one after another, each in proportion to what is left.
fn successive(weights: &[f64], k: usize) -> HashMap<Vec<u64>, f64> {
    let mut sets = HashMap::from([(vec![], 1.0)]);
    for _ in 0..k {
        let mut larger: HashMap<Vec<u64>, f64> = HashMap::new();
        for (set, probability) in sets {
            let left: f64 = (0..weights.len()).filter(|&i| !set.contains(&(i as u64))).map(|i| weights[i]).sum();
            for (i, weight) in weights.iter().enumerate().filter(|&(i, _)| !set.contains(&(i as u64))) {
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
            .map(|(set, probability)| (counts.get(&set).copied().unwrap_or(0.0), 40_000.0 * probability))
            .unzip();
        assert_eq!(counts.iter().sum::<f64>(), 40_000.0);
        chi_square(&format!("{k} of 6"), &counts, &expected, 1.0);
    }
}

#[test]
fn equal_weights_are_uniform() {
    let weights = vec![0.7f32; 300];
    let mut counts = vec![0f64; 300];
    for edges in trials(300, Some(&weights), Draw::new(Fanout::Take(20)), 4000) {
        assert!(edges.len() == 20 && edges.windows(2).all(|w| w[0] < w[1]));
        edges.iter().for_each(|&edge| counts[edge as usize] += 1.0);
    }
    chi_square("equal weights", &counts, &[4000.0 * 20.0 / 300.0; 300], 280.0 / 299.0);
}

#[test]
fn what_has_no_weight_is_not_drawn_and_costs_no_other() {
    let (indptr, indices) = topology(20, 200);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let weights: Vec<f32> = (0..indices.len()).map(|i| [0.0, 1.0, 2.0][i % 3]).collect();
    let graph = graph.with_weights(&weights).unwrap();
    let excluded = ExcludedEdges::new((0..indices.len() as u64).filter(|edge| edge % 4 == 0).collect());
    let frontier: Vec<u32> = (0..200).collect();
    for threads in [1, 2, 4, 8] {
        let mut sampler = Sampler::tuned(threads, TUNINGS[1]);
        for fanout in [Fanout::Take(5), Fanout::Take(70), Fanout::All] {
            let draw = Draw::new(fanout).without(&excluded);
            let sampled = layer(&mut sampler, &graph, &frontier, &draw, &KEY);
            assert_eq!(sampled, layer(&mut Sampler::new(1), &graph, &frontier, &draw, &KEY), "{threads} threads");
            for v in frontier.iter().copied() {
                let possible = graph.in_edges(v).filter(|edge| edge % 4 != 0 && edge % 3 != 0).count() as u64;
                let edges = edges_of(&sampled, v as usize);
                assert_eq!(edges.len() as u64, fanout.kept(possible));
                assert!(edges.iter().all(|edge| edge % 4 != 0 && edge % 3 != 0 && graph.in_edges(v).contains(edge)));
                assert!(edges.windows(2).all(|w| w[0] < w[1]));
            }
        }
    }
}

#[test]
fn hubs_with_more_edges_than_words_of_a_sequence() {
    // Beyond 2^18 words; the same sequence again would draw the same offsets in each stretch.
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
    assert!(matches!(error(&[1.0; 3], Fanout::All), Err(KernelError::Length { expected: 4, got: 3, .. })));
}
