//! Rows against their definition.

use std::collections::BTreeMap;

use super::*;
use crate::tests::{Fixture, graphs};

/// Sums both directions of every edge in a map, straight from the definition.
fn oracle_pairs(topology: &Topology, counts: Option<&[u32]>) -> BTreeMap<(u32, u32), u64> {
    let mut pairs = BTreeMap::new();
    let mut e = 0;
    for v in 0..topology.num_vertices() as u32 {
        for &u in topology.in_neighbours(v) {
            if u != v {
                let count = counts.map_or(0, |counts| u64::from(counts[e]));
                *pairs.entry((u, v)).or_insert(0) += count;
                *pairs.entry((v, u)).or_insert(0) += count;
            }
            e += 1;
        }
    }
    pairs
}

fn pairs(adjacency: &Adjacency) -> Vec<((u32, u32), i64)> {
    let row = |row: usize| {
        let vertices = adjacency.vertices();
        adjacency
            .neighbours(row)
            .map(move |(other, weight)| ((vertices[row], vertices[other]), weight))
    };
    (0..adjacency.num_rows()).flat_map(row).collect()
}

#[test]
fn oracle_every_pair_in_both_rows_with_the_summed_count() {
    for graph in graphs() {
        let dataset = graph.dataset();
        let topology = dataset.topology();
        for counts in [None, Some(graph.presample(&dataset).edge().to_vec())] {
            let built = Adjacency::build(topology, counts.as_deref()).unwrap();
            let weight = |count: u64| counts.as_ref().map_or(1, |_| 1 + count as i64);
            let expected = oracle_pairs(topology, counts.as_deref());
            let expected: Vec<_> =
                expected.into_iter().map(|(pair, count)| (pair, weight(count))).collect();
            assert_eq!(pairs(&built), expected, "{}", graph.name);
        }
    }
}

#[test]
fn oracle_sizes_are_known_before_the_graph_is_built() {
    let random = (0..40).map(crate::tests::random_graph);
    for graph in graphs().into_iter().chain(random) {
        let dataset = graph.dataset();
        let topology = dataset.topology();
        let built = Adjacency::build(topology, None).unwrap();
        assert_eq!(
            crate::metis::count_arcs(topology),
            built.indices().len() as u64,
            "{}",
            graph.name
        );
    }
}

#[test]
fn huge_counts_are_scaled_down() {
    let dataset = Fixture::new("two edges", 4, &[(0, 1), (2, 3), (1, 0)]).dataset();
    let built = Adjacency::build(dataset.topology(), Some(&[u32::MAX, u32::MAX, 1000])).unwrap();
    let weights: Vec<i64> = pairs(&built).into_iter().map(|(_, weight)| weight).collect();
    assert_eq!(weights[0], weights[1]);
    assert!(weights[0] > 1 << 29 && weights[0] + weights[2] <= 1 << 30, "{weights:?}");
    // The proportion stays: 1000 of twice the largest counter.
    assert_eq!(weights[2], 1 + 1000 * (1 << 30) / (2 * i64::from(u32::MAX) + 1000));
}
