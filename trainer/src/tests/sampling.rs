//! Invariants 1 and 2 hold on a GPU as on the host (`sample/src/tests.rs`): both sample the same.

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{DeviceGraph, Draws, ExcludedEdges, Graph, Sampler, Stream, StreamKey};
use gsplit_sample::{Frontiers, Ownership, Seeds};
use gsplit_store::Split;

use super::fixture::{Cut, dataset, on_ranks};
use crate::operator::Place;
use crate::sample::{BatchSampler, OnDevice, Sampled, sample};

fn on_host(graph: Graph<'_>) -> BatchSampler<'_> {
    BatchSampler::on_host(Sampler::new(2), graph, &Place::host())
}

/// Compares two samples of the same mini-batch, their exchanges by the rows that they move.
fn assert_same(
    host: &Sampled<'_>,
    device: &Sampled<'_>,
    comm: &dyn gsplit_kernels::Communicator,
    what: &str,
) {
    assert_eq!(device.input.on_host().unwrap(), host.input.on_host().unwrap(), "{what}");
    assert_eq!(
        (device.num_edges(), device.rows_exchanged()),
        (host.num_edges(), host.rows_exchanged()),
        "{what}"
    );
    let below = |sampled: &Sampled<'_>, layer: usize| match sampled.layers.get(layer + 1) {
        Some(layer) => layer.frontier.len(),
        None => sampled.input.len(),
    };
    for (at, (host_layer, layer)) in host.layers.iter().zip(&device.layers).enumerate() {
        let what = format!("{what}, layer {at}");
        let [ours, theirs] = [layer, host_layer].map(|layer| {
            let edges = layer.edges.on_host().unwrap();
            let ids = [&layer.frontier, &layer.read].map(|ids| ids.on_host().unwrap());
            let exchanged =
                (layer.replicated, layer.exchange.is_identity(), layer.exchange.is_in_order());
            (ids, edges.indptr(), edges.sources(), edges.num_sources(), exchanged)
        });
        assert_eq!(ours, theirs, "{what}");
        let rows = |count: usize, step: u32| -> Vec<f32> {
            let key =
                StreamKey { step, epoch: comm.rank() as u32, ..StreamKey::new(8, Stream::Split) };
            (0..count as u32).map(|i| Draws::new(&key, i).unit_f32() - 0.5).collect()
        };
        let (mut x, y) = (
            rows(below(host, at), 0),
            rows(below(host, at) + host_layer.exchange.rows_received(), 1),
        );
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
        let (indptr, indices) = (
            gpu.upload(graph.indptr).unwrap(),
            gpu.map_host_or_copy(graph.indices, u64::MAX).unwrap(),
        );
        let graph_on_gpu = DeviceGraph::new(gpu, indptr.slice(), indices.slice()).unwrap();
        let owners = gpu.upload(&part).unwrap();
        let owners = Some(owners.slice());
        let excluded = ExcludedEdges::new((0..graph.num_edges() as u64).step_by(3).collect());
        // Every fanout with every cut.
        let at = (case + case / 3) % 3;
        let text = ["4,3,2", "3,all", "40,2"][at];
        let fanouts = text.parse::<Fanouts>().unwrap();
        // Split in part, too.
        let (all, part_of) =
            (Frontiers::all, |layers| Frontiers::split_below(&part, fanouts.len(), layers));
        let several = [
            (all(Ownership::Map(&part), fanouts.len()), owners),
            (part_of(1), owners),
            (part_of(0), owners),
            (all(Ownership::Mine, fanouts.len()), None),
        ];
        for (frontiers, owners) in
            several.into_iter().take(if matches!(cut, Cut::Lopsided) { 2 } else { 4 })
        {
            let ownership = frontiers.seeds();
            on_ranks(ranks, |comm| {
                let on_device = OnDevice { graph: graph_on_gpu, owners };
                let mut device = BatchSampler::on_device(&place, on_device, at == 1).unwrap();
                let mut host = on_host(graph);
                for (step, batch) in [&order[..30], &order[..2]].into_iter().enumerate() {
                    let mut seeds = Seeds::of(batch, ownership, comm.rank(), ranks);
                    seeds.excluded = (at != 2).then(|| excluded.clone());
                    let step = Step { seed: 7, epoch: 2, step: step as u32 };
                    let expected =
                        sample(&mut host, seeds.clone(), &fanouts, step, &frontiers, comm).unwrap();
                    let found =
                        sample(&mut device, seeds, &fanouts, step, &frontiers, comm).unwrap();
                    assert!(expected.on_gpu.is_none());
                    found.on_gpu.as_ref().unwrap().gpu.synchronise().unwrap();
                    assert_same(
                        &expected,
                        &found,
                        comm,
                        &format!("{text}, {ranks} ranks, {cut:?}"),
                    );
                }
            });
        }
    }
}
