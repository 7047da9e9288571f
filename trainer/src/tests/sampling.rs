//! Invariants 1 and 2: the ranks' samples together are the single rank's, and nothing is done twice.

use std::collections::BTreeMap;

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{DeviceGraph, Draws, ExcludedEdges, Graph, Sampler, Solo, Stream, StreamKey};
use gsplit_store::Split;

use super::fixture::{Cut, dataset, on_ranks};
use crate::operator::Place;
use crate::sample::{BatchSampler, Frontiers, OnDevice, Ownership, Sampled, Seeds, sample};

/// Edges (source, target) of one layer by target, each list in sampling order.
type LayerEdges = BTreeMap<u32, Vec<u32>>;

fn on_host(graph: Graph<'_>) -> BatchSampler<'_> {
    BatchSampler::on_host(Sampler::new(2), graph, &Place::host())
}

fn edges_by_target(sampled: &Sampled<'_>) -> Vec<LayerEdges> {
    let of_layer = |layer: &crate::sample::SampledLayer| {
        let (edges, read) = (layer.edges.on_host().unwrap(), layer.read.on_host().unwrap());
        let sources = |i: usize| edges.sources()[edges.of(i)].iter().map(|&at| read[at as usize]).collect();
        layer.frontier.on_host().unwrap().iter().enumerate().map(|(i, &v)| (v, sources(i))).collect()
    };
    sampled.layers.iter().map(of_layer).collect()
}

/// Merges the ranks' layers; a vertex on two ranks is a failure.
fn union(ranks: &[Sampled<'_>]) -> Vec<LayerEdges> {
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
                let step = Step { seed, epoch: 1, step: step as u32 };
                let seeds = Seeds::of(batch, Ownership::Mine, 0, 1);
                let mine = Frontiers::all(Ownership::Mine, fanouts.len());
                let single = sample(&mut on_host(graph), seeds, &fanouts, step, &mine, &Solo).unwrap();
                for (ranks, cut) in [1, 2, 3, 4, 8].into_iter().flat_map(|k| Cut::ALL.map(|cut| (k, cut))) {
                    let part = cut.assignment(n as usize, ranks);
                    let what = format!("graph {seed}, {fanouts}, {ranks} ranks, {cut:?}");
                    for split_layers in 0..=fanouts.len() {
                        let frontiers = Frontiers::split_below(&part, fanouts.len(), split_layers);
                        let split = on_ranks(ranks, |comm| {
                            let seeds = Seeds::of(batch, frontiers.seeds(), comm.rank(), ranks);
                            sample(&mut on_host(graph), seeds, &fanouts, step, &frontiers, comm).unwrap()
                        });
                        match split_layers == fanouts.len() {
                            true => check(&single, &split, &part, &what),
                            false => check_in_part(&single, &split, (&part, &frontiers), &what),
                        }
                    }
                }
            }
        }
    }
}

fn check(single: &Sampled<'_>, split: &[Sampled<'_>], part: &[u16], what: &str) {
    assert_eq!(union(split), edges_by_target(single), "{what}");
    let mut loaded: Vec<u32> =
        split.iter().flat_map(|sampled| sampled.input.on_host().unwrap().iter().copied()).collect();
    let mut expected = single.input.on_host().unwrap().to_vec();
    loaded.sort_unstable();
    expected.sort_unstable();
    assert_eq!(loaded, expected, "{what}: every input row is loaded exactly once");
    for (rank, sampled) in split.iter().enumerate() {
        let frontiers = sampled.layers.iter().map(|layer| &layer.frontier).chain([&sampled.input]);
        for v in frontiers.flat_map(|ids| ids.on_host().unwrap()) {
            assert_eq!(part[*v as usize] as usize, rank, "{what}: vertex {v} is computed by its owner");
        }
        for (above, below) in sampled.layers.iter().zip(sampled.layers.iter().skip(1)) {
            let [above, below] = [above, below].map(|layer| layer.frontier.on_host().unwrap());
            assert!(below.starts_with(above), "{what}: a local frontier contains the one above");
        }
    }
}

/// Every rank has edges of the single sample and no others, and together all of them; what a map holds is on its owner alone.
fn check_in_part(single: &Sampled<'_>, ranks: &[Sampled<'_>], (part, frontiers): (&[u16], &Frontiers<'_>), what: &str) {
    let whole = edges_by_target(single);
    let mut found = vec![LayerEdges::new(); whole.len()];
    for (rank, sampled) in ranks.iter().enumerate() {
        for (depth, (edges, whole)) in edges_by_target(sampled).into_iter().zip(&whole).enumerate() {
            let layer = &sampled.layers[depth];
            let [frontier, read] = [&layer.frontier, &layer.read].map(|ids| ids.on_host().unwrap());
            assert!(read.starts_with(frontier), "{what}: a layer's own rows are the first that it reads");
            assert_eq!(layer.replicated, frontiers.at(depth).map().is_none(), "{what}");
            assert!(edges.iter().all(|(v, sources)| whole.get(v) == Some(sources)), "{what}");
            found[depth].extend(edges);
        }
        let all = sampled.layers.iter().map(|layer| &layer.frontier).chain([&sampled.input]);
        for (depth, ids) in all.enumerate().filter(|(depth, _)| frontiers.at(*depth).map().is_some()) {
            let is_own = |v: &u32| part[*v as usize] as usize == rank;
            assert!(ids.on_host().unwrap().iter().all(is_own), "{what}: frontier {depth} is of the owners");
        }
    }
    assert_eq!(found, whole, "{what}");
}

#[test]
fn data_parallel_ranks_share_the_seeds_and_sample_alike() {
    const STEP: Step = Step { seed: 4, epoch: 1, step: 0 };
    let fixture = dataset(4, 300, 6);
    let topology = fixture.dataset.topology();
    let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
    let batch: Vec<u32> = (0..41).map(|i| i * 7).collect();
    let fanouts: Fanouts = "4,3".parse().unwrap();
    let all = Seeds::of(&batch, Ownership::Mine, 0, 1);
    let mine = Frontiers::all(Ownership::Mine, fanouts.len());
    let single = edges_by_target(&sample(&mut on_host(graph), all, &fanouts, STEP, &mine, &Solo).unwrap());
    let mut seen = Vec::new();
    for rank in 0..8 {
        let seeds = Seeds::of(&batch, Ownership::Mine, rank, 8);
        seen.extend(seeds.local.clone());
        let sampled = sample(&mut on_host(graph), seeds, &fanouts, STEP, &mine, &Solo).unwrap();
        for (mine, whole) in edges_by_target(&sampled).iter().zip(&single) {
            assert!(mine.iter().all(|(v, sources)| whole.get(v) == Some(sources)));
        }
    }
    assert_eq!(seen, batch);
}

/// Everything of two samples of the same mini-batch, exchanges by what they move.
fn assert_same(host: &Sampled<'_>, device: &Sampled<'_>, comm: &dyn gsplit_kernels::Communicator, what: &str) {
    assert_eq!(device.input.on_host().unwrap(), host.input.on_host().unwrap(), "{what}");
    assert_eq!((device.num_edges(), device.rows_exchanged()), (host.num_edges(), host.rows_exchanged()), "{what}");
    let below = |sampled: &Sampled<'_>, layer: usize| match sampled.layers.get(layer + 1) {
        Some(layer) => layer.frontier.len(),
        None => sampled.input.len(),
    };
    for (at, (host_layer, layer)) in host.layers.iter().zip(&device.layers).enumerate() {
        let what = format!("{what}, layer {at}");
        let [ours, theirs] = [layer, host_layer].map(|layer| {
            let edges = layer.edges.on_host().unwrap();
            let ids = [&layer.frontier, &layer.read].map(|ids| ids.on_host().unwrap());
            let exchanged = (layer.replicated, layer.exchange.is_identity(), layer.exchange.is_in_order());
            (ids, edges.indptr(), edges.sources(), edges.num_sources(), exchanged)
        });
        assert_eq!(ours, theirs, "{what}");
        let rows = |count: usize, step: u32| -> Vec<f32> {
            let key = StreamKey { step, epoch: comm.rank() as u32, ..StreamKey::new(8, Stream::Split) };
            (0..count as u32).map(|i| Draws::new(&key, i).unit_f32() - 0.5).collect()
        };
        let (mut x, y) = (rows(below(host, at), 0), rows(below(host, at) + host_layer.exchange.rows_received(), 1));
        x.resize(y.len(), 0.0);
        let [ours, theirs] = [layer, host_layer].map(|layer| {
            let (mut forward, mut backward) = (x.clone(), y.clone());
            layer.exchange.forward(comm, &mut forward, 1).unwrap();
            layer.exchange.backward(comm, &mut backward, 1).unwrap();
            (forward, backward)
        });
        assert_eq!(ours, theirs, "{what}: what is exchanged");
    }
}

#[test]
fn differential_a_gpu_samples_what_the_host_samples() {
    let fixture = dataset(5, 300, 6);
    let topology = fixture.dataset.topology();
    let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
    let train = fixture.dataset.split(Split::Train).unwrap();
    let order = epoch_seeds(&train, 5, 1).unwrap();
    let cases = [1, 2, 4].into_iter().flat_map(|ranks| Cut::ALL.map(|cut| (ranks, cut)));
    for (case, (ranks, cut)) in cases.enumerate() {
        let part = cut.assignment(300, ranks);
        let place = Place::under_test(case as u32 % 4);
        let gpu = place.gpu().unwrap();
        let (indptr, indices) =
            (gpu.upload(graph.indptr).unwrap(), gpu.map_host_or_copy(graph.indices, u64::MAX).unwrap());
        let graph_on_gpu = DeviceGraph::new(gpu, indptr.slice(), indices.slice()).unwrap();
        let owners = gpu.upload(&part).unwrap();
        let owners = Some(owners.slice());
        let excluded = ExcludedEdges::new((0..graph.num_edges() as u64).step_by(3).collect());
        // Every fanout with every cut.
        let at = (case + case / 3) % 3;
        let text = ["4,3,2", "3,all", "40,2"][at];
        let fanouts = text.parse::<Fanouts>().unwrap();
        // With owners on the GPU, and with those of the host; split in part, too.
        let (all, part_of) = (Frontiers::all, |layers| Frontiers::split_below(&part, fanouts.len(), layers));
        let several = [
            (all(Ownership::Map(&part), fanouts.len()), owners),
            (part_of(1), owners),
            (part_of(0), owners),
            (all(Ownership::Map(&part), fanouts.len()), None),
            (part_of(1), None),
            (all(Ownership::Mine, fanouts.len()), None),
        ];
        for (frontiers, owners) in several.into_iter().take(if matches!(cut, Cut::Lopsided) { 2 } else { 6 }) {
            let ownership = frontiers.seeds();
            on_ranks(ranks, |comm| {
                let on_device = OnDevice { graph: graph_on_gpu, owners };
                let mut device = BatchSampler::on_device(&place, on_device, at == 1).unwrap();
                let mut host = on_host(graph);
                for (step, batch) in [&order[..30], &order[..2]].into_iter().enumerate() {
                    let mut seeds = Seeds::of(batch, ownership, comm.rank(), ranks);
                    seeds.excluded = (at != 2).then(|| excluded.clone());
                    let step = Step { seed: 7, epoch: 2, step: step as u32 };
                    let expected = sample(&mut host, seeds.clone(), &fanouts, step, &frontiers, comm).unwrap();
                    let found = sample(&mut device, seeds, &fanouts, step, &frontiers, comm).unwrap();
                    assert!(expected.there.is_none());
                    found.there.as_ref().unwrap().gpu.synchronise().unwrap();
                    assert_same(&expected, &found, comm, &format!("{text}, {ranks} ranks, {cut:?}"));
                }
            });
        }
    }
}
