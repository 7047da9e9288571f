//! The parts of the multilevel scheme against their definitions.

mod servers;

use std::collections::BTreeMap;

use gsplit_store::{NoProgress, PartitionMap, Topology};

use super::cluster::Clustering;
use super::contract::{NONE, contract};
use super::cycles::{Cycles, Effort};
use super::fm::Fm;
use super::graph::Graph;
use super::initial::cut;
use super::jet::Jet;
use super::refine::{Cut, move_in_rounds};
use super::undirected::Undirected;
use crate::loads::Loads;
use crate::tests::{
    Fixture, check_made, communities, draws, graphs, on_threads, options, random_graph, save,
};
use crate::{Layout, Method, PartitionOptions, Quality, VertexWeights, Weights, partition};

/// The finest level of `topology`, in memory.
fn finest<'a>(topology: &'a Topology, counts: Option<&[u32]>) -> Undirected<'a> {
    Undirected::new(topology, counts, u64::MAX, None).unwrap()
}

/// Every arc with its weight; a row that names a neighbour twice fails.
fn arcs(graph: &impl Graph) -> BTreeMap<(u32, u32), u64> {
    let mut arcs = BTreeMap::new();
    for v in 0..graph.num_vertices() as u32 {
        graph.for_each(v, |u, weight| {
            assert!(arcs.insert((v, u), u64::from(weight)).is_none(), "{v} names {u} twice")
        });
    }
    arcs
}

/// The fixtures, with counts that need rounding where `large`.
fn cases() -> Vec<(Fixture, u32)> {
    let shapes = || graphs().into_iter().chain((0..40).map(random_graph));
    [0, 1, 2000].into_iter().flat_map(|scale| shapes().map(move |graph| (graph, scale))).collect()
}

#[test]
fn oracle_the_finest_level_names_each_pair_twice_with_one_weight() {
    for (graph, scale) in cases() {
        let dataset = graph.dataset();
        let topology = dataset.topology();
        let counts: Vec<u32> =
            graph.presample(&dataset).edge().iter().map(|&count| count * scale).collect();
        let counts = (scale > 0).then_some(&counts[..]);
        let found = arcs(&finest(topology, counts));
        // The same with a few edges at a time, in a file.
        let filed = Undirected::new(topology, counts, 64, Some(dataset.path())).unwrap();
        assert_eq!(arcs(&filed), found, "{}", graph.name);

        let (mut expected, mut e) = (BTreeMap::new(), 0);
        for v in 0..topology.num_vertices() as u32 {
            for &u in topology.in_neighbours(v) {
                let count = counts.map_or(0, |counts| u64::from(counts[e]));
                e += 1;
                for pair in [(u, v), (v, u)].into_iter().filter(|_| u != v) {
                    *expected.entry(pair).or_insert(1) += count;
                }
            }
        }
        assert!(found.keys().eq(expected.keys()), "{}", graph.name);
        for (&(u, v), &weight) in &found {
            assert_eq!(weight, found[&(v, u)], "{}: {u} and {v}", graph.name);
            let error = weight.abs_diff(expected[&(u, v)]) as f64;
            assert!(
                error <= expected[&(u, v)] as f64 / 12.0,
                "{}: {weight} for {}",
                graph.name,
                expected[&(u, v)]
            );
        }
    }
}

#[test]
fn clusters_keep_their_limit_and_contraction_keeps_weights_and_cuts() {
    for (seed, (graph, scale)) in (0..).zip(cases()) {
        let dataset = graph.dataset();
        let counts = (scale > 0).then(|| graph.presample(&dataset).edge().to_vec());
        let finest = finest(dataset.topology(), counts.as_deref());
        let n = dataset.num_vertices();
        let mut draws = draws(seed);
        let weights =
            VertexWeights::new(n, &[(0..n).map(|_| draws.below(4)).collect(), vec![1; n]]);
        let within: Vec<u16> = (0..n).map(|_| draws.below(2) as u16).collect();
        let limits = vec![7; weights.constraints()];
        let clustering = Clustering {
            graph: &finest,
            weights: &weights,
            limits,
            rounds: 3,
            small: seed % 2 == 0,
            seed,
            within: Some(&within),
        };
        let labels = clustering.run();

        let mut clusters: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        (0..).zip(&labels).for_each(|(v, &label)| clusters.entry(label).or_default().push(v));
        for members in clusters.values() {
            let load = |c: usize| members.iter().map(|&v| weights.of(v)[c]).sum::<u32>();
            assert!(
                (0..weights.constraints()).all(|c| load(c) <= 7),
                "{}: {members:?}",
                graph.name
            );
            assert!(
                members.iter().all(|&v| within[v as usize] == within[members[0] as usize]),
                "{}",
                graph.name
            );
        }

        let level = contract(&finest, &weights, labels.clone(), u64::MAX, 0);
        let filed =
            Undirected::new(dataset.topology(), counts.as_deref(), 64, Some(dataset.path()))
                .unwrap();
        let in_order = contract(&filed, &weights, labels.clone(), u64::MAX, 0);
        assert_eq!(arcs(&in_order.graph), arcs(&level.graph), "{}", graph.name);
        assert_eq!(in_order.coarse_of, level.coarse_of, "{}", graph.name);
        // A few arcs at a time; they are sampled where there are more.
        let few = contract(&filed, &weights, labels, 40, 0);
        let sampled = arcs(&few.graph);
        assert!(
            sampled.iter().all(|(&(u, v), weight)| sampled.get(&(v, u)) == Some(weight)),
            "{}",
            graph.name
        );
        assert!(sampled.keys().all(|pair| arcs(&level.graph).contains_key(pair)), "{}", graph.name);
        let mut parts = vec![0; level.weights.len()];
        let mut expected: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for (&(v, u), &weight) in &arcs(&finest) {
            let (a, b) = (level.coarse_of[v as usize], level.coarse_of[u as usize]);
            assert!(a != NONE && b != NONE, "{}", graph.name);
            (parts[a as usize], parts[b as usize]) = (within[v as usize], within[u as usize]);
            *expected.entry((a, b)).or_default() += if a == b { 0 } else { weight };
        }
        expected.retain(|_, weight| *weight > 0);
        assert_eq!(arcs(&level.graph), expected, "{}", graph.name);
        assert_eq!(cut(&level.graph, &parts), cut(&finest, &within), "{}", graph.name);
        let placed = (0..n as u32).filter(|&v| level.coarse_of[v as usize] != NONE);
        let sum = |c: usize| placed.clone().map(|v| u64::from(weights.of(v)[c])).sum::<u64>();
        assert_eq!(
            level.weights.totals(),
            (0..weights.constraints()).map(sum).collect::<Vec<_>>(),
            "{}",
            graph.name
        );
    }
}

#[test]
fn refinement_lowers_the_cut_by_what_it_says_and_fills_no_part() {
    for (seed, (graph, _)) in (0..).zip(cases()) {
        let dataset = graph.dataset();
        let finest = finest(dataset.topology(), None);
        let n = dataset.num_vertices();
        let weights = VertexWeights::unit(n);
        let k = 2 + seed as usize % 4;
        let mut draws = draws(seed);
        for way in ["rounds", "FM", "Jet"] {
            let mut parts: Vec<u16> = (0..n).map(|_| draws.below(k as u32) as u16).collect();
            let mut loads = Loads::of((k as u32).into(), &weights, &parts);
            let before = cut(&finest, &parts);
            let capacities = vec![loads.sizes().iter().copied().max().unwrap_or(0) + 1; k];
            let gained = match way {
                "FM" => Fm::new(&finest, &weights, &capacities, &mut parts, &mut loads).run(4),
                "Jet" => {
                    Jet::new(&finest, &weights, &capacities, &mut parts, &mut loads).run();
                    before.saturating_sub(cut(&finest, &parts))
                }
                _ => {
                    let moves = Cut {
                        graph: &finest,
                        weights: &weights,
                        capacities: &capacities,
                        parts: k,
                    };
                    move_in_rounds(&moves, 5, &mut parts, &mut loads)
                }
            };
            assert_eq!(before - cut(&finest, &parts), gained, "{} {way}", graph.name);
            assert_eq!(
                Loads::of((k as u32).into(), &weights, &parts).sizes(),
                loads.sizes(),
                "{}",
                graph.name
            );
            assert!(
                loads.sizes().iter().all(|&size| size <= capacities[0]),
                "{}: {loads:?}",
                graph.name
            );
        }
    }
}

#[test]
fn jet_gathers_a_core_that_single_moves_leave_torn() {
    let (core, n, parts) = (300, 3000, 4);
    for seed in 0..4 {
        let mut draws = draws(seed);
        let inside: Vec<(u32, u32)> =
            (0..20 * core).map(|_| (draws.below(core), draws.below(core))).collect();
        let leaves = (core..n).flat_map(|v| [0, 1].map(|_| (draws.below(core), v)));
        let edges: Vec<(u32, u32)> =
            leaves.chain(inside.into_iter().filter(|(u, v)| u != v)).collect();
        let graph = Fixture::new(&format!("core and leaves, seed {seed}"), n, &edges);
        let dataset = graph.dataset();
        let run = |quality| {
            let wanted = PartitionOptions {
                quality: Some(quality),
                ..options(Method::Multilevel, Some(Weights::Unit), parts)
            };
            partition(&dataset, None, &wanted, &NoProgress).unwrap().report.cut
        };
        // The core and as many leaves as fit are in part 0: the cut consists of the edges of the
        // other leaves.
        let room = (1.03 * f64::from(n / parts)) as u32;
        let assignment: Vec<u16> =
            (0..n).map(|v| if v < room { 0 } else { 1 + (v % 3) as u16 }).collect();
        let gathered = cut(&finest(dataset.topology(), None), &assignment);
        let (default, high) = (run(Quality::Default), run(Quality::High));
        println!("{}: gathered {gathered}, default {default}, high {high}", graph.name);
        assert!(
            high <= gathered && high < default,
            "{}: gathered {gathered}, {default}, {high}",
            graph.name
        );
    }
}

#[test]
fn jet_keeps_every_vertex_on_its_server_and_relieves_full_parts() {
    for seed in 0..40 {
        let graph = random_graph(seed);
        let dataset = graph.dataset();
        let finest = finest(dataset.topology(), None);
        let (n, layout) = (dataset.num_vertices(), Layout::new(6, 3));
        let (weights, mut draws) = (VertexWeights::unit(n), draws(seed));
        let before: Vec<u16> = (0..n).map(|_| draws.below(6) as u16).collect();
        let mut parts = before.clone();
        let mut loads = Loads::of(layout, &weights, &parts);
        let capacities = loads.capacities(0.2);
        let excess = loads.total_excess(&capacities);
        Jet::new(&finest, &weights, &capacities, &mut parts, &mut loads).run();
        assert_eq!(Loads::of(layout, &weights, &parts).sizes(), loads.sizes(), "seed {seed}");
        assert!(loads.total_excess(&capacities) <= excess, "seed {seed}");
        let server = |&part: &u16| layout.server_of(part);
        assert!(parts.iter().map(server).eq(before.iter().map(server)), "seed {seed}");
    }
}

/// Cycles of the default effort that hold at most this number of arcs.
fn cycles(layout: Layout<'static>, max_arcs: u64) -> Cycles<'static> {
    let effort = Effort::of(Quality::Default);
    let (thin, small_parts) = (false, false);
    Cycles {
        layout,
        epsilon: 0.03,
        seed: 1,
        effort,
        max_arcs,
        thin,
        small_parts,
        progress: &NoProgress,
    }
}

#[test]
fn a_cycle_improves_parts_of_few_vertices_each() {
    let (groups, size) = (64, 100);
    let graph = communities(groups, size);
    let dataset = graph.dataset();
    let finest = finest(dataset.topology(), None);
    let weights = VertexWeights::unit(dataset.num_vertices());
    let truth: Vec<u16> = (0..groups * size).map(|v| (v / size) as u16).collect();
    let mut draws = draws(1);
    let mut torn = truth.clone();
    for _ in 0..600 {
        torn.swap(draws.below(groups * size) as usize, draws.below(groups * size) as usize);
    }
    let cycles = cycles(Layout::from(groups), u64::MAX);
    let mended = cycles.partition(&finest, &weights, Some(&torn), None);
    let cuts = [&truth, &torn, &mended].map(|parts| cut(&finest, parts));
    assert!(cuts[2] <= cuts[0] && cuts[0] * 11 < cuts[1] * 10, "{cuts:?}");
}

/// The least cut of all balanced partitions into two parts.
fn least_cut(graph: &impl Graph, capacity: usize) -> u64 {
    let n = graph.num_vertices();
    let halves = (1u32..1 << n)
        .filter(|half| (n - capacity..=capacity).contains(&(half.count_ones() as usize)));
    let cuts = halves.map(|half| {
        let parts: Vec<u16> = (0..n).map(|v| (half >> v & 1) as u16).collect();
        cut(graph, &parts)
    });
    cuts.min().unwrap()
}

#[test]
fn brute_force_tiny_graphs_are_cut_as_well_as_possible_nearly_always() {
    let (mut best, mut all) = (0, 0);
    for seed in 0..60 {
        let mut draws = draws(seed);
        let n = 8 + draws.below(5);
        let edges: Vec<(u32, u32)> = (0..2 * n).map(|_| (draws.below(n), draws.below(n))).collect();
        let graph = Fixture::new(&format!("tiny graph of seed {seed}"), n, &edges);
        let dataset = graph.dataset();
        let wanted = PartitionOptions {
            quality: Some(Quality::High),
            epsilon: 0.2,
            ..options(Method::Multilevel, Some(Weights::Unit), 2)
        };
        let made = partition(&dataset, None, &wanted, &NoProgress).unwrap();
        let capacity = (f64::from(n) / 2.0 * 1.2) as usize;
        let least =
            least_cut(&finest(dataset.topology(), None), capacity.max(n.div_ceil(2) as usize));
        assert!(made.report.cut >= least, "{}: {} {least}", graph.name, made.report.cut);
        best += usize::from(made.report.cut == least);
        all += 1;
    }
    assert!(best * 10 >= all * 9, "{best} of {all}");
}

#[test]
fn large_graphs_take_several_levels_and_more_work_cuts_less() {
    let graph = communities(40, 500);
    let dataset = graph.dataset();
    let run = |quality| {
        let wanted = PartitionOptions {
            quality: Some(quality),
            ..options(Method::Multilevel, Some(Weights::Unit), 4)
        };
        partition(&dataset, None, &wanted, &NoProgress).unwrap().report.cut
    };
    let metis = options(Method::Metis, Some(Weights::Unit), 4);
    let metis = partition(&dataset, None, &metis, &NoProgress).unwrap().report.cut;
    let (fast, default, high) = (run(Quality::Fast), run(Quality::Default), run(Quality::High));
    println!("cut by METIS {metis}, fast {fast}, default {default}, high {high}");
    assert!(
        high <= default && default * 100 <= metis * 103,
        "METIS {metis}, default {default}, high {high}"
    );
}

#[test]
fn a_stored_partition_is_refined_and_stays() {
    let graph = communities(8, 300);
    let dataset = graph.dataset();
    let random = options(Method::Random, None, 4);
    let made = partition(&dataset, None, &random, &NoProgress).unwrap();
    save(&dataset, "r", None, &random, &made);
    let wanted = PartitionOptions {
        refine: Some("r".into()),
        ..options(Method::Multilevel, Some(Weights::Unit), 4)
    };
    assert_eq!(wanted.default_key(), "multilevel_from_r-unit-k4");
    let refined = partition(&dataset, None, &wanted, &NoProgress).unwrap();
    let cut = made.report.cut;
    assert!(
        refined.report.cut < cut && refined.report.imbalance <= 1.03,
        "{cut}: {:?}",
        refined.report
    );
    assert_eq!(PartitionMap::open(&dataset, "r").unwrap().assignment(), made.assignment);
    let other = PartitionOptions { parts: 5, ..wanted.clone() };
    let line = partition(&dataset, None, &other, &NoProgress).unwrap_err().to_string();
    assert!(line.contains("--refine r: it has 4 parts"), "{line}");
    let missing = PartitionOptions { refine: Some("no".into()), ..wanted };
    assert!(partition(&dataset, None, &missing, &NoProgress).is_err());
}

#[test]
fn coarse_graphs_together_keep_to_their_room() {
    let graph = communities(60, 200);
    let dataset = graph.dataset();
    let finest = finest(dataset.topology(), None);
    let weights = VertexWeights::unit(dataset.num_vertices());
    let cut_within = |max_arcs| {
        let cycles = cycles(4.into(), max_arcs);
        let held: u64 = cycles
            .coarsen(&finest, &weights, None, 0)
            .iter()
            .map(|level| level.graph.num_arcs())
            .sum();
        (held, cut(&finest, &cycles.partition(&finest, &weights, None, None)))
    };
    let (all, best) = cut_within(u64::MAX);
    let (held, cut) = cut_within(all / 4);
    assert!(
        held as f64 <= 1.1 * (all / 4) as f64 && cut as f64 <= 1.5 * best as f64,
        "{held} of {all}, {cut} {best}"
    );
}

#[test]
fn a_coarse_graph_that_is_too_large_is_sampled_without_bias() {
    let graph = communities(4, 500);
    let dataset = graph.dataset();
    let counts = graph.presample(&dataset).edge().to_vec();
    let finest = finest(dataset.topology(), Some(&counts));
    let n = dataset.num_vertices();
    let weights = VertexWeights::unit(n);
    let all: u64 = arcs(&finest).values().sum();
    let (mut sums, max_arcs) = (0.0, finest.num_arcs() / 3);
    for seed in 0..20 {
        let level = contract(&finest, &weights, (0..n as u32).collect(), max_arcs, seed);
        let found = arcs(&level.graph);
        assert!(
            found.iter().all(|(&(u, v), weight)| found.get(&(v, u)) == Some(weight)),
            "seed {seed}"
        );
        let size = level.graph.num_arcs() as f64 / max_arcs as f64;
        assert!((0.7..1.3).contains(&size), "seed {seed}: {size}");
        sums += found.values().sum::<u64>() as f64;
    }
    let mean = sums / 20.0 / all as f64;
    assert!((0.98..1.02).contains(&mean), "{mean}");
}

/// Shapes that are hard to coarsen, large enough to need it: thousands of components, hubs, one-way
/// and repeated edges, vertices without a neighbour.
fn large_shapes() -> Vec<Fixture> {
    let n = 12_000;
    let mut draws = draws(5);
    let star: Vec<(u32, u32)> = (1..n).map(|v| (v, 0)).collect();
    let triangles: Vec<(u32, u32)> = (0..n / 3)
        .flat_map(|t| [(3 * t, 3 * t + 1), (3 * t + 1, 3 * t + 2), (3 * t + 2, 3 * t)])
        .collect();
    let path: Vec<(u32, u32)> = (1..n).flat_map(|v| [(v - 1, v), (v, v - 1)]).collect();
    let one_way: Vec<(u32, u32)> =
        (0..4 * n).map(|_| (draws.below(n / 2), draws.below(n))).collect();
    // A third of all edges lead into one vertex.
    let hub: Vec<(u32, u32)> =
        (0..3 * n).map(|e| (draws.below(n), if e % 3 == 0 { 7 } else { draws.below(n) })).collect();
    let repeated: Vec<(u32, u32)> =
        (0..2 * n).map(|_| (draws.below(300), draws.below(n / 10))).collect();
    let shapes = [
        ("large star", star),
        ("thousands of triangles", triangles),
        ("long path", path),
        ("one-way edges", one_way),
        ("a third of all edges at one vertex", hub),
        ("repeated edges, most vertices isolated", repeated),
    ];
    shapes.map(|(name, edges)| Fixture::new(name, n, &edges)).into()
}

#[test]
fn oracle_promises_are_kept_on_large_hard_shapes() {
    promises_are_kept_on_large_hard_shapes(1);
}

#[test]
#[ignore = "takes long: make test-all"]
fn oracle_promises_are_kept_on_large_hard_shapes_with_all_weights() {
    promises_are_kept_on_large_hard_shapes(3);
}

/// Each shape by each quality, with `kinds` of three weights.
fn promises_are_kept_on_large_hard_shapes(kinds: usize) {
    for (i, graph) in large_shapes().into_iter().enumerate() {
        let (dataset, presample) = graph.presampled();
        let all = [Weights::Unit, Weights::Presampled, Weights::Degree];
        for (j, (parts, quality)) in
            [(2, Quality::High), (7, Quality::Fast), (64, Quality::Default)].into_iter().enumerate()
        {
            for weights in all.into_iter().cycle().skip((i + j) % 3).take(kinds) {
                let wanted = PartitionOptions {
                    quality: Some(quality),
                    ..options(Method::Multilevel, Some(weights), parts)
                };
                check_made(&graph, &dataset, &presample, &wanted);
            }
        }
    }
}

/// On the way some level has the vertices for more bundles than at first and for fewer than all
/// parts.
#[test]
fn bundles_become_all_parts_whatever_their_number_and_targets() {
    let side = 245;
    let pairs = |v: u32| {
        [(!v.is_multiple_of(side)).then(|| (v - 1, v)), (v >= side).then(|| (v - side, v))]
    };
    let edges: Vec<(u32, u32)> =
        (0..side * side).flat_map(pairs).flatten().flat_map(|(u, v)| [(u, v), (v, u)]).collect();
    let graph = Fixture::new("grid", side * side, &edges);
    let dataset = graph.dataset();
    let unequal = (0..63).map(|part| f64::from(part % 3 + 1)).collect();
    for (parts, targets) in [(63, vec![]), (100, vec![]), (63, unequal)] {
        let wanted =
            PartitionOptions { targets, ..options(Method::Multilevel, Some(Weights::Unit), parts) };
        let report = partition(&dataset, None, &wanted, &NoProgress).unwrap().report;
        assert_eq!(report.part_sizes.len(), parts as usize);
        assert!(
            report.imbalance <= 1.031,
            "{parts} parts, {:?}: {}",
            wanted.targets,
            report.imbalance
        );
        // A square of this number of vertices has a border of about as many.
        let border = 2.0 * (f64::from(side * side * parts)).sqrt();
        assert!((report.cut as f64) < 1.4 * border, "{parts} parts: cut {}", report.cut);
    }
}

#[test]
fn differential_one_thread_and_three_agree_on_graphs_that_are_coarsened() {
    for graph in large_shapes().into_iter().chain([communities(40, 500)]) {
        let (dataset, presample) = graph.presampled();
        let wanted = options(Method::Multilevel, Some(Weights::Presampled), 5);
        let run = |threads| {
            on_threads(threads, || {
                partition(&dataset, Some(&presample), &wanted, &NoProgress).unwrap().assignment
            })
        };
        assert!(run(1) == run(3), "{}", graph.name);
    }
}
