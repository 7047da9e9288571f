//! Parts on several servers.

use gsplit_store::{NoProgress, PartitionMap};

use super::large_shapes;
use crate::report::EdgeTotals;
use crate::tests::{Fixture, check_made, draws, graphs, on_threads, options, random_graph, save};
use crate::{Method, PartitionOptions, Partitioned, Quality, Weights, partition};

/// Communities within communities: `outer` groups of `inner` groups of `size` vertices. Of eight
/// edges of a vertex five stay in the inner group, two in the outer one, and one leads anywhere.
/// Ids are scattered.
fn nested_communities(outer: u32, inner: u32, size: u32) -> Fixture {
    let mut draws = draws(11);
    let n = outer * inner * size;
    let mut edges = Vec::new();
    for u in 0..n {
        for e in 0..8 {
            let group = [size, size * inner, n][usize::from(e > 4) + usize::from(e > 6)];
            edges.push((u, u / group * group + draws.below(group)));
        }
    }
    let mut ids: Vec<u32> = (0..n).collect();
    (1..n as usize).rev().for_each(|i| ids.swap(i, draws.below(i as u32 + 1) as usize));
    let edges: Vec<(u32, u32)> =
        edges.into_iter().map(|(u, v)| (ids[u as usize], ids[v as usize])).collect();
    Fixture::new(&format!("{outer} groups of {inner} groups"), n, &edges)
}

/// Multilevel with unit weights, on servers.
fn on_servers(parts: u32, servers: u32) -> PartitionOptions {
    PartitionOptions { servers, ..options(Method::Multilevel, Some(Weights::Unit), parts) }
}

fn between_servers(made: &Partitioned) -> u64 {
    made.report.between_servers.as_ref().unwrap().cut
}

#[test]
fn servers_are_cut_as_if_they_were_all_the_parts() {
    // 24 inner groups on two servers of four: three for each part, twelve for each server.
    let graph = nested_communities(4, 6, 400);
    let dataset = graph.dataset();
    for quality in [Quality::Fast, Quality::Default, Quality::High] {
        let run = |parts, servers| {
            let wanted = PartitionOptions { quality: Some(quality), ..on_servers(parts, servers) };
            partition(&dataset, None, &wanted, &NoProgress).unwrap()
        };
        let (nested, two, flat) = (run(8, 2), run(2, 1), run(8, 1));
        let (outer, plain) = (between_servers(&nested), two.report.cut);
        assert!(outer * 100 <= plain * 103, "{quality:?}: {outer}, two parts {plain}");
        assert!(nested.report.imbalance <= 1.03, "{quality:?}: {}", nested.report.imbalance);
        // Inner groups are found as well. Every other flat part on one server: the servers are cut
        // far more.
        let grouped: Vec<u16> = flat.assignment.iter().map(|part| part % 2).collect();
        let grouped = EdgeTotals::count(dataset.topology(), &grouped, None).cut;
        assert!(outer * 10 <= grouped * 7, "{quality:?}: {outer}, flat {grouped}");
        let (cut, flat) = (nested.report.cut, flat.report.cut);
        assert!(cut * 100 <= flat * 110, "{quality:?}: {cut} in all, flat {flat}");
    }
}

#[test]
fn one_part_a_server_is_a_flat_partition() {
    let graph = nested_communities(2, 2, 1000);
    let dataset = graph.dataset();
    let run = |servers| partition(&dataset, None, &on_servers(4, servers), &NoProgress).unwrap();
    let (flat, apart) = (run(1), run(4));
    assert_eq!(flat.assignment, apart.assignment);
    assert_eq!(flat.report.between_servers, None);
    let between = apart.report.between_servers.unwrap();
    assert_eq!((between.cut, between.weighted_cut), (flat.report.cut, flat.report.weighted_cut));
    assert_eq!(between.expected_cross_share, flat.report.expected_cross_share);
}

#[test]
fn oracle_promises_are_kept_on_servers() {
    promises_are_kept_on_servers(1, 6);
}

#[test]
#[ignore = "takes long: make test-all"]
fn oracle_promises_are_kept_on_servers_with_all_weights() {
    promises_are_kept_on_servers(3, 2);
}

/// Each graph with `ways` of three weights and qualities, and one of every `step` numbers of parts
/// and servers.
fn promises_are_kept_on_servers(ways: usize, step: usize) {
    let shapes = large_shapes().into_iter().chain(graphs()).chain((0..20).map(random_graph));
    for (i, graph) in shapes.enumerate() {
        let (dataset, presample) = graph.presampled();
        let all = [
            (Weights::Unit, Quality::High),
            (Weights::Presampled, Quality::Default),
            (Weights::Degree, Quality::Fast),
        ];
        for (weights, quality) in all.into_iter().cycle().skip(i % 3).take(ways) {
            let shapes = [(2, 2), (4, 2), (6, 3), (8, 2), (9, 3), (64, 8)];
            let n = dataset.num_vertices() as u32;
            for (parts, servers) in
                shapes.into_iter().filter(|&(parts, _)| parts <= n).skip(i % step).step_by(step)
            {
                let (quality, weights) = (Some(quality), Some(weights));
                let wanted = PartitionOptions { quality, weights, ..on_servers(parts, servers) };
                let made = check_made(&graph, &dataset, &presample, &wanted);
                let server_of: Vec<u16> = made
                    .assignment
                    .iter()
                    .map(|&part| (u32::from(part) / (parts / servers)) as u16)
                    .collect();
                let between = made.report.between_servers.unwrap();
                let counts = Some(presample.edge());
                let found = EdgeTotals::count(dataset.topology(), &server_of, counts);
                assert_eq!(
                    (between.cut, between.weighted_cut),
                    (found.cut, found.cross),
                    "{}: {wanted:?}",
                    graph.name
                );
                assert!(between.cut <= made.report.cut, "{}: {wanted:?}", graph.name);
            }
        }
    }
}

#[test]
fn differential_one_thread_and_three_agree_on_servers() {
    for graph in large_shapes().into_iter().chain([nested_communities(2, 4, 1500)]) {
        let (dataset, presample) = graph.presampled();
        let wanted = PartitionOptions { weights: Some(Weights::Presampled), ..on_servers(6, 2) };
        let run = |threads| {
            on_threads(threads, || {
                partition(&dataset, Some(&presample), &wanted, &NoProgress).unwrap()
            })
        };
        let (one, three) = (run(1), run(3));
        assert!(one.assignment == three.assignment && one.report == three.report, "{}", graph.name);
    }
}

#[test]
fn a_stored_partition_is_refined_on_its_servers() {
    let graph = nested_communities(4, 4, 300);
    let dataset = graph.dataset();
    let save = |key: &str, wanted: &PartitionOptions| {
        let made = partition(&dataset, None, wanted, &NoProgress).unwrap();
        save(&dataset, key, None, wanted, &made);
        made
    };
    save("random", &options(Method::Random, None, 8));
    let random = PartitionOptions { refine: Some("random".into()), ..on_servers(8, 2) };
    assert_eq!(random.default_key(), "multilevel_from_random-unit-k2x4");
    let made = save("made", &on_servers(8, 2));
    let from_random = partition(&dataset, None, &random, &NoProgress).unwrap();
    let again = PartitionOptions { refine: Some("made".into()), ..on_servers(8, 2) };
    let from_made = partition(&dataset, None, &again, &NoProgress).unwrap();
    assert!(from_made.report.imbalance <= 1.03 && from_random.report.imbalance <= 1.03);
    assert!(between_servers(&from_made) <= between_servers(&made));
    // Clusters that respect random parts are small: the cut is a good one, not the best.
    assert!(
        between_servers(&from_random) < 2 * between_servers(&made),
        "{:?} {:?}",
        from_random.report,
        made.report
    );
    // The servers that the labels name stay: most of the vertices are on them.
    let stored = PartitionMap::open(&dataset, "made").unwrap();
    let same = stored
        .assignment()
        .iter()
        .zip(&from_made.assignment)
        .filter(|(a, b)| **a / 4 == **b / 4)
        .count();
    assert!(same * 10 >= stored.assignment().len() * 9, "{same}");
}
