//! Invariants 1 and 2: the ranks' samples together are the single rank's, and nothing is done twice.

use std::collections::BTreeMap;

use gsplit_kernels::schedule::{Fanouts, epoch_seeds};
use gsplit_kernels::{Graph, Sampler, Solo};
use gsplit_store::Split;

use super::fixture::{Cut, dataset, on_ranks};
use crate::batch::{Ownership, Sampled, Seeds, sample};

/// Edges (source, target) of one layer by target, each list in sampling order.
type LayerEdges = BTreeMap<u32, Vec<u32>>;

fn edges_by_target(sampled: &Sampled) -> Vec<LayerEdges> {
    let of_layer = |layer: &crate::batch::SampledLayer| {
        let sources = |i: usize| {
            let range = layer.indptr[i] as usize..layer.indptr[i + 1] as usize;
            layer.local[range].iter().map(|&position| layer.mixed[position as usize]).collect()
        };
        layer.frontier.iter().enumerate().map(|(i, &v)| (v, sources(i))).collect()
    };
    sampled.layers.iter().map(of_layer).collect()
}

/// Merges the ranks' layers; a vertex on two ranks is a failure.
fn union(ranks: &[Sampled]) -> Vec<LayerEdges> {
    let mut layers = vec![LayerEdges::new(); ranks[0].layers.len()];
    for sampled in ranks {
        for (all, part) in layers.iter_mut().zip(edges_by_target(sampled)) {
            for (v, sources) in part {
                assert!(all.insert(v, sources).is_none(), "vertex {v} is computed on two ranks");
            }
        }
    }
    layers
}

#[test]
fn oracle_split_samples_are_the_single_sample() {
    for (seed, n, degree) in [(1, 60, 2), (2, 300, 6), (3, 500, 20)] {
        let fixture = dataset(seed, n, degree);
        let topology = fixture.dataset.topology();
        let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
        let train = fixture.dataset.split(Split::Train).unwrap();
        let order = epoch_seeds(&train, seed, 1).unwrap();
        for fanouts in ["5", "3,all", "4,3,2"].map(|text| text.parse::<Fanouts>().unwrap()) {
            for (step, batch) in [&order[..1], &order[..7], &order[10..]].into_iter().enumerate() {
                let at = (seed, 1, step as u32);
                let seeds = Seeds::of(batch, Ownership::Mine, 0, 1);
                let single = sample(&mut Sampler::new(2), &graph, seeds, &fanouts, at, Ownership::Mine, &Solo).unwrap();
                for (ranks, cut) in [1, 2, 3, 4, 8].into_iter().flat_map(|k| Cut::ALL.map(|cut| (k, cut))) {
                    let part = cut.assignment(n as usize, ranks);
                    let owner = Ownership::Map(&part);
                    let split = on_ranks(ranks, |comm| {
                        let seeds = Seeds::of(batch, owner, comm.rank(), ranks);
                        sample(&mut Sampler::new(2), &graph, seeds, &fanouts, at, owner, comm).unwrap()
                    });
                    check(&single, &split, &part, &format!("graph {seed}, {fanouts}, {ranks} ranks, {cut:?}"));
                }
            }
        }
    }
}

fn check(single: &Sampled, split: &[Sampled], part: &[u16], what: &str) {
    assert_eq!(union(split), edges_by_target(single), "{what}");
    let mut loaded: Vec<u32> = split.iter().flat_map(|sampled| sampled.input.iter().copied()).collect();
    let mut expected = single.input.clone();
    loaded.sort_unstable();
    expected.sort_unstable();
    assert_eq!(loaded, expected, "{what}: every input row is loaded exactly once");
    for (rank, sampled) in split.iter().enumerate() {
        let frontiers = sampled.layers.iter().map(|layer| &layer.frontier).chain([&sampled.input]);
        for v in frontiers.flatten() {
            assert_eq!(part[*v as usize] as usize, rank, "{what}: vertex {v} is computed by its owner");
        }
        for (above, below) in sampled.layers.iter().zip(sampled.layers.iter().skip(1)) {
            assert!(below.frontier.starts_with(&above.frontier), "{what}: a local frontier contains the one above");
        }
    }
}

#[test]
fn data_parallel_ranks_share_the_seeds_and_sample_alike() {
    let fixture = dataset(4, 300, 6);
    let topology = fixture.dataset.topology();
    let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
    let batch: Vec<u32> = (0..41).map(|i| i * 7).collect();
    let fanouts: Fanouts = "4,3".parse().unwrap();
    let all = Seeds::of(&batch, Ownership::Mine, 0, 1);
    let single = edges_by_target(
        &sample(&mut Sampler::new(2), &graph, all, &fanouts, (4, 1, 0), Ownership::Mine, &Solo).unwrap(),
    );
    let mut seen = Vec::new();
    for rank in 0..8 {
        let seeds = Seeds::of(&batch, Ownership::Mine, rank, 8);
        seen.extend(seeds.local.clone());
        let sampled = sample(&mut Sampler::new(2), &graph, seeds, &fanouts, (4, 1, 0), Ownership::Mine, &Solo).unwrap();
        for (mine, whole) in edges_by_target(&sampled).iter().zip(&single) {
            assert!(mine.iter().all(|(v, sources)| whole.get(v) == Some(sources)));
        }
    }
    assert_eq!(seen, batch);
}
