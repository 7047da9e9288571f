//! Whole mini-batches, edge for edge.

use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn oracle_every_vertex_of_every_fanout() {
    for seed in 0..2 {
        let (indptr, indices) = topology(seed, 700);
        let graph = Graph::new(&indptr, &indices).unwrap();
        let frontier: Vec<u32> = (0..700).rev().collect();
        for (fanout, tuning) in
            FANOUTS.into_iter().flat_map(|fanout| TUNINGS.map(|tuning| (fanout, tuning)))
        {
            let mut mixed_frontier = frontier.clone();
            let expected = oracle_layer(&graph, &mut mixed_frontier, fanout, &[], &KEY);
            let mut sampler = Sampler::tuned(3, tuning);
            let sampled = layer(&mut sampler, &graph, &frontier, &Draw::new(fanout), &KEY);
            assert!(
                sampled == expected && sampler.mixed_frontier() == mixed_frontier,
                "seed {seed}, fanout {fanout}, {tuning:?}"
            );
            for (i, &v) in frontier.iter().enumerate() {
                let edges = edges_of(&sampled, i);
                assert_eq!(edges.len() as u64, fanout.kept(graph.degree(v)));
                assert!(edges.windows(2).all(|w| w[0] < w[1]), "ascending, without repeats");
                assert!(edges.iter().all(|e| graph.in_edges(v).contains(e)), "subset");
            }
        }
    }
}

#[test]
fn oracle_batches_of_one_sampler_after_another() {
    let graphs = [topology(3, 5000), topology(4, 60), topology(5, 900)];
    for (threads, tuning) in
        [1, 2, 4, 8].into_iter().flat_map(|threads| TUNINGS.map(|tuning| (threads, tuning)))
    {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut sampler = Sampler::tuned(threads, tuning);
            let mut sampled = SampledCsc::default();
            for step in 0..9 {
                let (indptr, indices) = &graphs[step % 3];
                let graph = Graph::new(indptr, indices).unwrap();
                let key = StreamKey { step: step as u32, ..KEY };
                let seeds = crate::permute(indptr.len() as u32 - 1, &key);
                let seeds = &seeds[..seeds.len().min([40, 3, 0, 1][step % 4])];
                let mut mixed_frontier = seeds.to_vec();
                sampler.start(seeds);
                for (depth, fanout) in [5, 20, 3].into_iter().enumerate() {
                    // Layers may be numbered in different ways, with or without the edges' ids.
                    sampler.tuning = TUNINGS[(step * depth + threads) % 2];
                    let key = StreamKey { layer: depth as u8, ..key };
                    let mut expected =
                        oracle_layer(&graph, &mut mixed_frontier, Fanout::Take(fanout), &[], &key);
                    let ids = if depth == 1 { EdgeIds::Drop } else { EdgeIds::Keep };
                    sampler
                        .layer(&graph, &Draw::new(Fanout::Take(fanout)), &key, ids, &mut sampled)
                        .unwrap();
                    if depth == 1 {
                        expected.edges.clear();
                    }
                    let what = format!("{threads} threads, step {step}, depth {depth}");
                    assert!(
                        sampled == expected && sampler.mixed_frontier() == mixed_frontier,
                        "{what}"
                    );
                }
            }
        });
    }
}

#[test]
fn oracle_excluded_edges_are_never_drawn_and_cost_no_other() {
    let (indptr, indices) = topology(6, 300);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let frontier: Vec<u32> = (0..300).collect();
    for (seed, one_in) in [(1, 2), (2, 10), (3, 100), (4, 1)] {
        let mut draws = Draws::new(&StreamKey::new(seed, Stream::Split), 0);
        let excluded: Vec<u64> =
            (0..graph.num_edges() as u64).filter(|_| draws.below(one_in) == 0).collect();
        let set = ExcludedEdges::new(excluded.iter().rev().copied().collect());
        for (fanout, tuning) in [1, 15, 40, 90]
            .into_iter()
            .flat_map(|k| TUNINGS.map(|tuning| (Fanout::Take(k), tuning)))
        {
            let mut mixed_frontier = frontier.clone();
            let expected = oracle_layer(&graph, &mut mixed_frontier, fanout, &excluded, &KEY);
            let mut sampler = Sampler::tuned(2, tuning);
            let sampled =
                layer(&mut sampler, &graph, &frontier, &Draw::new(fanout).without(&set), &KEY);
            assert!(
                sampled == expected && sampler.mixed_frontier() == mixed_frontier,
                "seed {seed}, fanout {fanout}"
            );
        }
    }
    let (all, none) =
        (ExcludedEdges::new((0..graph.num_edges() as u64).collect()), ExcludedEdges::default());
    let mut sampler = Sampler::new(1);
    for fanout in FANOUTS {
        let draw = Draw::new(fanout);
        assert_eq!(
            layer(&mut sampler, &graph, &frontier, &draw.without(&all), &KEY).num_edges(),
            0
        );
        let whole = layer(&mut sampler, &graph, &frontier, &draw, &KEY);
        assert_eq!(layer(&mut sampler, &graph, &frontier, &draw.without(&none), &KEY), whole);
    }
}

#[test]
fn order_and_company_of_the_frontier_change_no_draw_by_weight() {
    let (indptr, indices) = topology(10, 700);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let weights: Vec<f32> = (0..indices.len()).map(|i| (i % 7) as f32).collect();
    let graph = graph.with_weights(&weights).unwrap();
    let draw = &Draw::new(Fanout::Take(6));
    let mut sampler = Sampler::tuned(4, TUNINGS[0]);
    let whole = layer(&mut sampler, &graph, &(0..700).collect::<Vec<_>>(), draw, &KEY);
    for seed in 0..4 {
        let shuffled = crate::permute(700, &StreamKey::new(seed, Stream::Shuffle));
        let frontier = &shuffled[..700 / (seed as usize + 1)];
        let sampled = layer(&mut sampler, &graph, frontier, draw, &KEY);
        for (i, &v) in frontier.iter().enumerate() {
            assert_eq!(
                edges_of(&sampled, i),
                edges_of(&whole, v as usize),
                "seed {seed}, vertex {v}"
            );
        }
    }
}

#[test]
fn fixed_result() {
    // Pins the definition: every implementation and every later version draws exactly this.
    // Computed by another program.
    let (indptr, indices) = ([0, 1000, 1010], vec![0; 1010]);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let sampled = layer(&mut Sampler::new(1), &graph, &[0, 1], &Draw::new(Fanout::Take(4)), &KEY);
    assert_eq!(sampled.indptr, [0, 4, 8]);
    assert_eq!(sampled.edges, [27, 31, 471, 512, 1003, 1005, 1007, 1009]);
    assert_eq!(sampled.local, [0; 8]);
}

#[test]
fn every_subset_is_equally_likely() {
    let mut counts: HashMap<Vec<u64>, f64> = HashMap::new();
    trials(6, None, Draw::new(Fanout::Take(3)), 20_000)
        .for_each(|edges| *counts.entry(edges).or_default() += 1.0);
    assert_eq!(counts.len(), 20);
    let chi2: f64 = counts.values().map(|c| (c - 1000.0).powi(2) / 1000.0).sum();
    assert!(chi2 < 48.0, "chi-square {chi2} with 19 degrees of freedom");
}

#[test]
fn oracle_counts_while_drawing() {
    let (indptr, indices) = topology(8, 900);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let (mut counters, mut sampler) =
        (Counters::new(900, indices.len()), Sampler::tuned(4, TUNINGS[0]));
    let mut expected = crate::CounterParts {
        input: vec![0; 900],
        appear: vec![0; 900],
        work: vec![0; 900],
        edge: vec![0; indices.len()],
    };
    for step in 0..30 {
        let key = StreamKey { step, ..KEY };
        let seeds = &crate::permute(900, &key)[..60];
        let (mut mixed_frontier, mut sizes, mut sampled) =
            (seeds.to_vec(), vec![60], SampledCsc::default());
        seeds.iter().for_each(|&v| expected.appear[v as usize] += 1);
        sampler.start(seeds);
        for (depth, fanout) in [15, 100].into_iter().enumerate() {
            let key = StreamKey { layer: depth as u8, ..key };
            let draw = Draw::new(Fanout::Take(fanout));
            sampler
                .layer(&graph, &draw, &key, EdgeIds::Count(&mut counters), &mut sampled)
                .unwrap();
            assert!(sampled.edges.is_empty());
            sizes.push(sampler.mixed_frontier().len());
            let frontier = mixed_frontier.clone();
            let layer = oracle_layer(&graph, &mut mixed_frontier, Fanout::Take(fanout), &[], &key);
            layer.edges.iter().for_each(|&edge| expected.edge[edge as usize] += 1);
            for (i, &v) in frontier.iter().enumerate() {
                expected.work[v as usize] += edges_of(&layer, i).len() as u32;
            }
            mixed_frontier.iter().for_each(|&v| expected.appear[v as usize] += 1);
        }
        mixed_frontier.iter().for_each(|&v| expected.input[v as usize] += 1);
        counters.count_vertices(sampler.mixed_frontier(), &sizes).unwrap();
    }
    assert!(counters.into_parts().unwrap() == expected);
}

#[test]
fn edges_that_are_read_ahead_are_drawn_alike_from_a_mapping_of_their_own() {
    let (indptr, indices) = topology(6, 5000);
    let weights: Vec<f32> = (0..indices.len()).map(|edge| (edge % 5) as f32).collect();
    let near = VertexSet::new(5000, (0..5000).filter(|v| v % 3 == 0));
    let frontier: Vec<u32> = (0..5000).rev().collect();
    // Passes over all edges would read these.
    let others = vec![0; indices.len()];
    let alike = |graph: Graph<'_>, beyond: Graph<'_>, draw: Draw<'_>, what: &str| {
        for threads in [1, 3] {
            let [expected, found] = [graph, beyond].map(|graph| {
                let mut sampler = Sampler::tuned(threads, TUNINGS[0]);
                let sampled = layer(&mut sampler, &graph, &frontier, &draw, &KEY);
                (sampled, sampler.mixed_frontier().to_vec())
            });
            assert!(expected == found, "{what}, {threads} threads");
        }
    };
    let whole = Graph::new(&indptr, &indices).unwrap();
    let beyond = Graph::new(&indptr, &others).unwrap();
    assert!(beyond.reading_ahead(&indices[1..], None).is_err());
    static STOP: AtomicBool = AtomicBool::new(true);
    let stopped = beyond.reading_ahead(&indices, Some(&STOP)).unwrap();
    let (mut sampler, draw, mut sampled) =
        (Sampler::new(2), Draw::new(Fanout::Take(5)), SampledCsc::default());
    sampler.start(&frontier);
    let error = sampler.layer(&stopped, &draw, &KEY, EdgeIds::Drop, &mut sampled).unwrap_err();
    assert_eq!(error, KernelError::Interrupted);
    let beyond = beyond.reading_ahead(&indices, None).unwrap();
    for fanout in [Fanout::Take(5), Fanout::Take(500), Fanout::All] {
        alike(whole, beyond, Draw::new(fanout), "uniform");
        alike(whole, beyond, Draw::new(fanout).prefer(&near, 4.0), "by locality");
        let [whole, beyond] =
            [whole, beyond].map(|graph| graph.with_weights(&weights).unwrap().correcting());
        alike(whole, beyond, Draw::new(fanout), "by weight");
    }
}
