//! Invariants 1 and 2: ranks together draw exactly the sample of one rank, without doing anything
//! twice; and the exchange brings each row from its owner.

use std::collections::BTreeMap;
use std::thread;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{
    CommError, Communicator, Draws, ExcludedEdges, Graph, KernelError, Sampler, Solo, Stream,
    StreamKey, Threads, all_to_all_v,
};

use crate::{Frontiers, HostSample, HostSampler, Ownership, SampleError, Seeds};

/// A random graph of in-neighbours, a factor of each edge, and their sum for each vertex.
struct Topology {
    indptr: Vec<u64>,
    indices: Vec<u32>,
    factors: Vec<f32>,
    degrees: Vec<f32>,
}

impl Topology {
    /// Graph of `n` vertices of up to `3 * degree` in-neighbours.
    fn random(seed: u64, n: u32, degree: u32) -> Self {
        println!("seed {seed}, {n} vertices");
        let key = StreamKey::new(seed, Stream::Generate);
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for v in 0..n {
            let mut draws = Draws::new(&key, v);
            let mut list: Vec<u32> =
                (0..draws.below(3 * degree + 1)).map(|_| draws.below(n)).collect();
            list.sort_unstable();
            list.dedup();
            indices.extend(list);
            indptr.push(indices.len() as u64);
        }
        let factors: Vec<f32> = (0..indices.len()).map(|edge| (edge % 7) as f32 + 0.5).collect();
        let degrees = Graph::new(&indptr, &indices).unwrap().weighted_degrees(&factors).unwrap();
        Self { indptr, indices, factors, degrees }
    }

    fn graph(&self) -> Graph<'_> {
        Graph::new(&self.indptr, &self.indices).unwrap()
    }
}

/// Runs `body` on each of `ranks` threads.
fn on_ranks<T: Send>(ranks: usize, body: impl Fn(&dyn Communicator) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let run = |comm: Threads| scope.spawn(move || body(&comm));
        let threads: Vec<_> = Threads::group(ranks).into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Maps of `n` vertices to `ranks` ranks: at random, by ranges, and all on rank 0 except one vertex
/// per other rank.
fn cuts(n: u32, ranks: usize) -> [Vec<u16>; 3] {
    let (key, ranks) = (StreamKey::new(9, Stream::Assign), ranks as u32);
    let by_chance = |v| Draws::new(&key, v).below(ranks);
    let map = |rank: &dyn Fn(u32) -> u32| (0..n).map(|v| rank(v) as u16).collect();
    [map(&by_chance), map(&|v| v * ranks / n), map(&|v| if v < ranks { v } else { 0 })]
}

/// In-edges of one layer by target: source, id and factor of each, in the order in which they were
/// sampled.
type LayerEdges = BTreeMap<u32, Vec<(u32, u64, f32)>>;

fn edges(sample: &HostSample) -> Vec<LayerEdges> {
    let of_layer = |(depth, layer): (usize, &crate::HostLayer)| {
        let read = sample.read(depth);
        let edge = |at: usize| {
            (read[layer.edges.sources()[at] as usize], layer.edge_ids[at], layer.factors[at])
        };
        let of_target = |(i, &v): (usize, &u32)| (v, layer.edges.of(i).map(edge).collect());
        layer.frontier.iter().enumerate().map(of_target).collect()
    };
    sample.layers.iter().enumerate().map(of_layer).collect()
}

/// Applies the exchange below layer `depth` to rows that hold their vertices' ids; also returns the
/// rank of each row received.
fn exchanged(
    sample: &HostSample,
    depth: usize,
    comm: &dyn Communicator,
) -> (Vec<u32>, Vec<(usize, u32)>) {
    let mut rows = sample.frontier(depth + 1).to_vec();
    let Some(exchange) = &sample.layers[depth].exchange else { return (rows, Vec::new()) };
    let sent: Vec<u32> = exchange.asked.iter().map(|&at| rows[at as usize]).collect();
    let [send, receive] = exchange.counts.values(1);
    assert_eq!(
        (sent.len(), send[comm.rank()], receive[comm.rank()]),
        (exchange.counts.num_sent(), 0, 0)
    );
    let received: Vec<u32> = all_to_all_v(comm, &sent, &send, &receive).unwrap();
    assert_eq!(received.len(), exchange.counts.num_received());
    let ranks = receive.iter().enumerate().flat_map(|(rank, &count)| vec![rank; count]);
    let from = ranks.zip(received.iter().copied()).collect();
    rows.extend(received);
    match &exchange.order {
        Some(order) => (order.iter().map(|&at| rows[at as usize]).collect(), from),
        None => (rows, from),
    }
}

#[test]
fn oracle_ranks_sample_together_what_one_samples_alone() {
    for (seed, n, degree) in [(1, 60, 2), (2, 300, 6), (3, 400, 15)] {
        let topology = Topology::random(seed, n, degree);
        let graph = topology.graph().with_factors(&topology.factors, &topology.degrees).unwrap();
        let order: Vec<u32> = (0..n / 2).map(|i| i * 7 % n).collect();
        let excluded = ExcludedEdges::new((0..graph.num_edges() as u64).step_by(5).collect());
        let excluded = (seed != 2).then_some(excluded);
        for (step, text, batch) in
            [(0, "5", &order[..1]), (1, "3,all", &order[..9]), (2, "4,3,2", &order)]
        {
            let (fanouts, step): (Fanouts, _) =
                (text.parse().unwrap(), Step { seed, epoch: 1, step });
            let sampled = |frontiers: &Frontiers<'_>, comm: &dyn Communicator| {
                let Seeds { local, .. } =
                    Seeds::of(batch, frontiers.seeds(), comm.rank(), comm.size());
                let seeds = Seeds { local, excluded: excluded.clone() };
                let mut sampler = HostSampler::new(Sampler::new(2), graph).keep_edge_ids();
                let sample = sampler.sample(seeds, &fanouts, step, frontiers, comm).unwrap();
                check_exchanges(&sample, frontiers, comm);
                sample
            };
            let mine = Frontiers::all(Ownership::Mine, fanouts.len());
            let single = sampled(&mine, &Solo);
            for (target, edges) in edges(&single).iter().flatten() {
                for (source, id, factor) in edges {
                    assert!(
                        graph.in_edges(*target).contains(id)
                            && graph.indices[*id as usize] == *source
                    );
                    assert_eq!(*factor, topology.factors[*id as usize]);
                    assert!(
                        excluded.as_ref().is_none_or(|excluded| !excluded.as_slice().contains(id))
                    );
                }
            }
            for (ranks, part) in [1, 2, 3, 4, 8]
                .into_iter()
                .flat_map(|ranks| cuts(n, ranks).map(|part| (ranks, part)))
            {
                let split = (0..=fanouts.len())
                    .map(|layers| Frontiers::split_below(&part, fanouts.len(), layers));
                for (at, frontiers) in split.chain([mine.clone()]).enumerate() {
                    let samples = on_ranks(ranks, |comm| sampled(&frontiers, comm));
                    let what = format!("seed {seed}, {text}, {ranks} ranks, {at} layers split");
                    check_union(&single, &samples, &frontiers, &what);
                }
            }
        }
    }
}

#[test]
fn the_lowest_layers_and_the_seeds_are_split() {
    let part = [0, 1];
    for (layers, expected) in [
        (0, [true, false, false, false]),
        (1, [true, false, false, true]),
        (2, [true, false, true, true]),
        (3, [true, true, true, true]),
    ] {
        let frontiers = Frontiers::split_below(&part, 3, layers);
        assert_eq!([0, 1, 2, 3].map(|depth| frontiers.at(depth).map().is_some()), expected);
        let maps = [
            frontiers.seeds().map(),
            frontiers.loaded().map(),
            frontiers.map(),
            frontiers.map_of_all(),
        ];
        assert_eq!(maps.map(|map| map.is_some()), [true, layers > 0, layers > 0, layers == 3]);
    }
}

/// Each row that is read comes from its owner, and a rank receives no row that it has.
fn check_exchanges(sample: &HostSample, frontiers: &Frontiers<'_>, comm: &dyn Communicator) {
    for (depth, layer) in sample.layers.iter().enumerate() {
        let (rows, received) = exchanged(sample, depth, comm);
        assert_eq!(rows, sample.read(depth), "each row is the one that is read");
        assert!(
            rows.starts_with(&layer.frontier),
            "a layer's own rows are the first that it reads"
        );
        assert_eq!(layer.edges.num_sources(), rows.len());
        assert_eq!(layer.replicated, frontiers.at(depth).map().is_none());
        match frontiers.at(depth + 1).map() {
            None => assert!(layer.exchange.is_none()),
            Some(part) => {
                let below = sample.frontier(depth + 1);
                assert!(below.iter().all(|&v| part[v as usize] as usize == comm.rank()));
                assert!(layer.replicated || below.starts_with(&layer.frontier));
                assert!(
                    received
                        .iter()
                        .all(|&(rank, v)| part[v as usize] as usize == rank && rank != comm.rank())
                );
            }
        }
    }
}

/// All ranks' layers together have exactly the edges of the `single` rank; under a map each vertex
/// is on only one rank.
fn check_union(single: &HostSample, samples: &[HostSample], frontiers: &Frontiers<'_>, what: &str) {
    let mut union = vec![LayerEdges::new(); single.layers.len()];
    for sample in samples {
        for (depth, edges) in edges(sample).into_iter().enumerate() {
            for (v, list) in edges {
                let before = union[depth].insert(v, list.clone());
                assert!(
                    before
                        .is_none_or(|before| frontiers.at(depth).map().is_none() && before == list),
                    "{what}: {v}"
                );
            }
        }
    }
    assert_eq!(union, edges(single), "{what}");
    let sorted = |mut ids: Vec<u32>| {
        ids.sort_unstable();
        ids
    };
    let mut loaded =
        sorted(samples.iter().flat_map(|sample| sample.input.iter().copied()).collect());
    if frontiers.loaded().map().is_none() {
        loaded.dedup();
    }
    assert_eq!(loaded, sorted(single.input.clone()), "{what}: what is loaded");
}

#[test]
fn layers_with_all_edges_end_where_nothing_is_new() {
    let topology = Topology::random(4, 200, 3);
    for part in cuts(200, 3) {
        let frontiers = Frontiers::all(Ownership::Map(&part), 40);
        let alike = on_ranks(3, |comm| {
            let seeds = Seeds::of(&[3, 5, 8], frontiers.seeds(), comm.rank(), 3);
            let sampler = || HostSampler::new(Sampler::new(1), topology.graph());
            let short = sampler().sample_all(seeds.local.clone(), 40, &frontiers, comm).unwrap();
            let (depth, fanouts) = (short.layers.len(), vec!["all"; 40].join(",").parse().unwrap());
            let step = Step { seed: 8, epoch: 1, step: 0 };
            let whole = sampler().sample(seeds, &fanouts, step, &frontiers, comm).unwrap();
            assert!(depth < 20 && whole.layers.len() == 40);
            assert_eq!(short.input, whole.input);
            let same = |a: usize, b: usize| {
                let [a_layer, b_layer] = [&short.layers[a], &whole.layers[b]];
                assert_eq!(
                    (&a_layer.frontier, &a_layer.exchange),
                    (&b_layer.frontier, &b_layer.exchange)
                );
                assert_eq!(a_layer.edges.sources(), b_layer.edges.sources());
            };
            (0..40).for_each(|at| same(at.min(depth - 1), at));
            depth
        });
        assert!(
            alike.iter().all(|depth| *depth == alike[0]),
            "all ranks stop at the same layer: {alike:?}"
        );
    }
}

#[test]
fn portions_of_seeds_are_equal_or_by_the_map() {
    let batch: Vec<u32> = (0..41).map(|i| i * 7 % 50).collect();
    for ranks in [1, 2, 5, 60] {
        let portions: Vec<Vec<u32>> =
            (0..ranks).map(|rank| Seeds::of(&batch, Ownership::Mine, rank, ranks).local).collect();
        assert_eq!(portions.concat(), batch);
        assert!(
            portions
                .iter()
                .all(|portion| portion.len() == 41 / ranks || portion.len() == 41 / ranks + 1)
        );
        let part: Vec<u16> = (0..50).map(|v| (v % ranks) as u16).collect();
        for rank in 0..ranks {
            let owned = Seeds::of(&batch, Ownership::Map(&part), rank, ranks).local;
            assert!(owned.iter().eq(batch.iter().filter(|&&v| v as usize % ranks == rank)));
        }
    }
}

#[test]
fn errors_are_those_of_kernels_and_of_the_group() {
    let topology = Topology::random(5, 50, 3);
    let (fanouts, step): (Fanouts, _) =
        ("3,3".parse().unwrap(), Step { seed: 1, epoch: 1, step: 0 });
    let sample = |seeds: &[u32], frontiers: &Frontiers<'_>, comm: &dyn Communicator| {
        let seeds = Seeds { local: seeds.to_vec(), excluded: None };
        HostSampler::new(Sampler::new(1), topology.graph())
            .sample(seeds, &fanouts, step, frontiers, comm)
            .unwrap_err()
    };
    let mine = Frontiers::all(Ownership::Mine, 2);
    assert_eq!(sample(&[4, 4], &mine, &Solo), KernelError::RepeatedVertex { vertex: 4 }.into());
    let part = vec![1; 50];
    let split = Frontiers::all(Ownership::Map(&part), 2);
    let beyond = sample(&[4], &split, &Solo);
    assert!(
        matches!(beyond, SampleError::Kernel(KernelError::Owner { owner: 1, ranks: 1, .. })),
        "{beyond}"
    );
    let found = on_ranks(2, |comm| match comm.rank() {
        0 => None,
        _ => Some(sample(&[4], &split, comm)),
    });
    assert!(
        matches!(found[1], Some(SampleError::Comm(CommError::PeerFailed { rank: 0, .. }))),
        "{found:?}"
    );
}
