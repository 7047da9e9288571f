//! A GPU's sampler, emulated, compared with the host's.

#[path = "subgraphs.rs"]
mod subgraphs;

use super::*;
use crate::cuda::{Gpu, GpuError};
use crate::sample::{
    DeviceDraw, DeviceEdgeIds, DeviceExcludedEdges, DeviceGraph, DeviceLayer, DeviceSampler,
};
use crate::{CounterParts, DeviceCounters, KernelError};

/// Limits that select a table with a word for each vertex, and a hash table.
const DIRECT: [usize; 2] = [usize::MAX, 0];

/// Copies a layer to the host.
fn to_host(layer: &DeviceLayer) -> SampledCsc {
    let edges = layer.edges.as_ref().map_or(vec![], |edges| edges.to_vec().unwrap());
    let (indptr, local) = (layer.indptr.to_vec().unwrap(), layer.local.to_vec().unwrap());
    SampledCsc { indptr, local, edges, factors: Vec::new() }
}

/// The host's side of one layer.
type OnHost<'a> = &'a dyn Fn(&mut Sampler, &StreamKey, &mut SampledCsc);

/// Input of both samplers.
struct Both {
    gpu: Gpu,
    indptr: Vec<u64>,
    indices: Vec<u32>,
}

impl Both {
    fn new(order: usize, (indptr, indices): (Vec<u64>, Vec<u32>)) -> Self {
        Self { gpu: Gpu::under_test(order as u32 % 4), indptr, indices }
    }

    /// Samples layers of `draws` from `seeds` on both, and compares everything.
    fn compare(
        &self,
        sampler: &mut DeviceSampler,
        seeds: &[u32],
        draws: &[(OnHost<'_>, DeviceDraw<'_>)],
        what: &str,
    ) {
        let gpu = &self.gpu;
        // On pages of their own: each page can be pinned only once.
        let indptr = gpu.map_host_or_copy(&self.indptr, u64::MAX).unwrap();
        let indices = gpu.map_host_or_copy(&self.indices, u64::MAX).unwrap();
        let graph = DeviceGraph::new(gpu, indptr.slice(), indices.slice()).unwrap();
        self.compare_from(&graph, sampler, seeds, draws, what);
    }

    /// [`Both::compare`] with a GPU that reads `graph`.
    fn compare_from(
        &self,
        graph: &DeviceGraph<'_>,
        sampler: &mut DeviceSampler,
        seeds: &[u32],
        draws: &[(OnHost<'_>, DeviceDraw<'_>)],
        what: &str,
    ) {
        let gpu = &self.gpu;
        let (mut host, mut expected) = (Sampler::new(1), SampledCsc::default());
        host.start(seeds);
        sampler.start(graph, gpu.upload(seeds).unwrap().slice()).unwrap();
        for (depth, (on_host, draw)) in draws.iter().enumerate() {
            let key = StreamKey { layer: depth as u8, ..KEY };
            on_host(&mut host, &key, &mut expected);
            let keep =
                if depth.is_multiple_of(2) { DeviceEdgeIds::Keep } else { DeviceEdgeIds::Drop };
            let layer = sampler.layer(graph, draw, &key, keep).unwrap();
            let mut found = to_host(&layer);
            assert_eq!(
                (layer.num_vertices(), layer.num_edges()),
                (expected.num_vertices(), expected.num_edges())
            );
            if depth % 2 == 1 {
                assert!(found.edges.is_empty());
                found.edges.clone_from(&expected.edges);
            }
            assert!(found == expected, "{what}, depth {depth}");
            assert!(
                sampler.mixed_frontier().to_vec(gpu).unwrap() == host.mixed_frontier(),
                "{what}, depth {depth}: mixed frontier"
            );
        }
        // All layers at once.
        host.start(seeds);
        sampler.start(graph, gpu.upload(seeds).unwrap().slice()).unwrap();
        for (depth, (_, draw)) in draws.iter().enumerate() {
            sampler
                .launch(graph, draw, &StreamKey { layer: depth as u8, ..KEY }, DeviceEdgeIds::Keep)
                .unwrap();
        }
        let layers = sampler.finish(graph).unwrap();
        assert_eq!(layers.len(), draws.len());
        for (depth, (layer, (on_host, _))) in layers.iter().zip(draws).enumerate() {
            on_host(&mut host, &StreamKey { layer: depth as u8, ..KEY }, &mut expected);
            assert!(to_host(layer) == expected, "{what}, depth {depth} of all at once");
            if let Some(targets) = &layer.targets {
                let of = |(target, ends): (u32, &[u32])| {
                    std::iter::repeat_n(target, (ends[1] - ends[0]) as usize)
                };
                let expected = (0..).zip(expected.indptr.windows(2)).flat_map(of);
                assert!(targets.to_vec().unwrap().into_iter().eq(expected), "{what}");
            }
        }
        assert!(
            sampler.take_mixed_frontier().unwrap().to_vec().unwrap() == host.mixed_frontier(),
            "{what}: mixed frontier of all"
        );
    }

    fn graph(&self) -> Graph<'_> {
        Graph::new(&self.indptr, &self.indices).unwrap()
    }
}

/// A layer of `draw` on the host.
fn on_host<'a>(
    graph: Graph<'a>,
    draw: Draw<'a>,
) -> impl Fn(&mut Sampler, &StreamKey, &mut SampledCsc) + 'a {
    move |sampler, key, layer| sampler.layer(&graph, &draw, key, EdgeIds::Keep, layer).unwrap()
}

#[test]
fn differential_every_fanout() {
    for (i, fanout) in
        FANOUTS.into_iter().chain([Fanout::Take(8), Fanout::Take(25), Fanout::Take(32)]).enumerate()
    {
        for direct in DIRECT {
            let both = Both::new(i, topology(i as u64, 300));
            let mut sampler = DeviceSampler::new(&both.gpu).unwrap();
            sampler.tuned(direct, 1 << 24);
            let host = on_host(both.graph(), Draw::new(fanout));
            let seeds: Vec<u32> = (0..300).rev().step_by(4).collect();
            both.compare(
                &mut sampler,
                &seeds,
                &[(&host, DeviceDraw::new(fanout))],
                &format!("{fanout}, {direct}"),
            );
        }
    }
}

#[test]
fn differential_batches_of_one_sampler_after_another() {
    let graphs = [topology(3, 900), topology(4, 60), topology(5, 300)];
    for (order, direct) in [(0, DIRECT[0]), (1, DIRECT[1]), (2, 400), (3, 400)] {
        let gpu = Gpu::under_test(order);
        let mut sampler = DeviceSampler::new(&gpu).unwrap();
        sampler.tuned(direct, 1 << 24);
        for step in 0..7 {
            sampler.tuned(direct, [1 << 24, 0, 100][step % 3]);
            let (indptr, indices) = graphs[step % 3].clone();
            let both = Both { gpu: gpu.clone(), indptr, indices };
            let seeds = crate::permute(
                both.indptr.len() as u32 - 1,
                &StreamKey { step: step as u32, ..KEY },
            );
            let seeds = &seeds[..seeds.len().min([20, 3, 0, 1][step % 4])];
            let fanouts = [5, 20, 3].map(Fanout::Take);
            let hosts = fanouts.map(|fanout| on_host(both.graph(), Draw::new(fanout)));
            let [a, b, c] = &hosts;
            let [x, y, z] = fanouts.map(DeviceDraw::new);
            both.compare(
                &mut sampler,
                seeds,
                &[(a, x), (b, y), (c, z)],
                &format!("order {order}, step {step}"),
            );
        }
    }
}

/// The host waits once, for the numbers of all layers. It waits earlier if a layer could have more
/// places than allowed, and for the number of edges if the fanout does not bound it well.
#[test]
fn layers_are_waited_for_together() {
    let both = Both::new(1, topology(3, 900));
    let gpu = &both.gpu;
    let (indptr, indices) = (gpu.upload(&both.indptr).unwrap(), gpu.upload(&both.indices).unwrap());
    let graph = DeviceGraph::new(gpu, indptr.slice(), indices.slice()).unwrap();
    let few = [4, 3, 2].map(Fanout::Take);
    let cases = [
        (few, 1 << 24, 1, 17),
        (few, 0, 3, 17),
        ([Fanout::Take(4), Fanout::All, Fanout::All], 1 << 24, 3, 21),
    ];
    for (fanouts, most_places, waits, launches) in cases {
        let mut sampler = DeviceSampler::new(gpu).unwrap();
        sampler.tuned(usize::MAX, most_places);
        // The first mini-batch allocates memory.
        for step in 0..2 {
            let seeds = gpu.upload(&[step, 7]).unwrap();
            let before = gpu.counts();
            sampler.start(&graph, seeds.slice()).unwrap();
            for (layer, fanout) in (0..).zip(fanouts) {
                let key = StreamKey { layer, step, ..KEY };
                sampler
                    .launch(&graph, &DeviceDraw::new(fanout), &key, DeviceEdgeIds::Drop)
                    .unwrap();
            }
            assert_eq!(sampler.finish(&graph).unwrap().len(), 3);
            let after = gpu.counts();
            if step > 0 && std::env::var_os("GSPLIT_TEST_GPU").is_none() {
                assert_eq!(
                    (after.waits - before.waits, after.launches - before.launches),
                    (waits, launches),
                    "{fanouts:?}"
                );
            }
        }
    }
}

#[test]
fn differential_without_excluded_edges() {
    for (i, fanout) in
        [1, 7, 16, 20, 40, 90].map(Fanout::Take).into_iter().chain([Fanout::All]).enumerate()
    {
        let both = Both::new(i, topology(i as u64, 80));
        let seeds: Vec<u32> = (0..80).collect();
        let mut sampler = DeviceSampler::new(&both.gpu).unwrap();
        let mut draws = Draws::new(&StreamKey::new(i as u64, Stream::Split), 0);
        for one_in in [1, 2, 50] {
            let excluded =
                (0..both.indices.len() as u64).filter(|_| draws.below(one_in) == 0).collect();
            let excluded = ExcludedEdges::new(excluded);
            let on_device = DeviceExcludedEdges::new(&both.gpu, &excluded).unwrap();
            let (host, device) = (Draw::new(fanout), DeviceDraw::new(fanout));
            let fewer = on_host(both.graph(), host.without(&excluded));
            both.compare(
                &mut sampler,
                &seeds,
                &[(&fewer, device.without(&on_device))],
                &format!("{fanout} of fewer"),
            );
        }
    }
}

/// Vertex 0 has more than 2^20 in-edges, vertex 1 one, the others none.
fn hub() -> (Vec<u64>, Vec<u32>) {
    let degree = (1 << 20) + 5u64;
    let indptr = [0, degree].into_iter().chain(std::iter::repeat_n(degree + 1, 999)).collect();
    (indptr, (0..=degree).map(|i| (i * 7 % 1000) as u32).collect())
}

#[test]
fn differential_hubs() {
    for (i, fanout) in [Fanout::Take(15), Fanout::Take(5000), Fanout::All].into_iter().enumerate() {
        let both = Both::new(i, hub());
        let host = on_host(both.graph(), Draw::new(fanout));
        let mut sampler = DeviceSampler::new(&both.gpu).unwrap();
        both.compare(
            &mut sampler,
            &[5, 0, 1],
            &[(&host, DeviceDraw::new(fanout))],
            &format!("{fanout}"),
        );
    }
}

#[test]
fn differential_empty_frontiers_and_isolated_vertices() {
    let both = Both::new(0, (vec![0, 0, 0], vec![]));
    let mut sampler = DeviceSampler::new(&both.gpu).unwrap();
    for fanout in FANOUTS {
        for seeds in [&[][..], &[1, 0]] {
            let host = on_host(both.graph(), Draw::new(fanout));
            both.compare(&mut sampler, seeds, &[(&host, DeviceDraw::new(fanout))], "nothing");
        }
    }
}

#[test]
fn differential_counts_while_drawing() {
    let (indptr, indices) = topology(8, 200);
    let graph = Graph::new(&indptr, &indices).unwrap();
    for order in 0..4 {
        let gpu = Gpu::under_test(order);
        let (starts, sources) = (gpu.upload(&indptr).unwrap(), gpu.upload(&indices).unwrap());
        let on_device = DeviceGraph::new(&gpu, starts.slice(), sources.slice()).unwrap();
        let (mut host, mut sampler) = (Sampler::new(1), DeviceSampler::new(&gpu).unwrap());
        let mut expected = Counters::new(200, indices.len());
        let mut counters = DeviceCounters::new(&gpu, 200, indices.len()).unwrap();
        for step in 0..4 {
            let seeds = &crate::permute(200, &StreamKey { step, ..KEY })[..12];
            host.start(seeds);
            sampler.start(&on_device, gpu.upload(seeds).unwrap().slice()).unwrap();
            let (mut sizes, mut layer) = (vec![12], SampledCsc::default());
            for (depth, fanout) in
                [Fanout::Take(9), Fanout::Take(40), Fanout::All].into_iter().enumerate()
            {
                let key = StreamKey { layer: depth as u8, step, ..KEY };
                host.layer(
                    &graph,
                    &Draw::new(fanout),
                    &key,
                    EdgeIds::Count(&mut expected),
                    &mut layer,
                )
                .unwrap();
                let ids = DeviceEdgeIds::Count(&mut counters);
                let found = sampler.layer(&on_device, &DeviceDraw::new(fanout), &key, ids).unwrap();
                assert!(found.edges.is_none());
                sizes.push(host.mixed_frontier().len());
            }
            expected.count_vertices(host.mixed_frontier(), &sizes).unwrap();
            counters.count_vertices(sampler.mixed_frontier(), &sizes).unwrap();
        }
        let (expected, found): (CounterParts, _) =
            (expected.into_parts().unwrap(), counters.into_parts().unwrap());
        assert!(found == expected, "order {order}");
    }
}

#[test]
fn bad_input_is_refused_and_the_sampler_goes_on() {
    let both = Both::new(1, topology(30, 100));
    let gpu = &both.gpu;
    let (indptr, indices) = (gpu.upload(&both.indptr).unwrap(), gpu.upload(&both.indices).unwrap());
    let graph = DeviceGraph::new(gpu, indptr.slice(), indices.slice()).unwrap();
    for direct in DIRECT {
        let mut sampler = DeviceSampler::new(gpu).unwrap();
        sampler.tuned(direct, 1 << 24);
        for fanout in [Fanout::Take(5), Fanout::Take(40), Fanout::All] {
            let mut error = |seeds: &[u32]| {
                sampler.start(&graph, gpu.upload(seeds).unwrap().slice()).unwrap();
                sampler
                    .layer(&graph, &DeviceDraw::new(fanout), &KEY, DeviceEdgeIds::Drop)
                    .unwrap_err()
            };
            for vertex in [100, u32::MAX] {
                let expected = KernelError::VertexOutOfRange { vertex, num_vertices: 100 };
                assert_eq!(error(&[3, vertex]), GpuError::Input(expected));
            }
            assert_eq!(
                error(&[4, 3, 5, 3]),
                GpuError::Input(KernelError::RepeatedVertex { vertex: 3 })
            );
            let host = on_host(both.graph(), Draw::new(fanout));
            both.compare(
                &mut sampler,
                &[5, 3],
                &[(&host, DeviceDraw::new(fanout))],
                "after an error",
            );
        }
        let draw = DeviceDraw::new(Fanout::Take(0));
        let error = sampler.layer(&graph, &draw, &KEY, DeviceEdgeIds::Drop).unwrap_err();
        assert_eq!(error, GpuError::Input(KernelError::Fanout { got: "0".to_owned() }));
    }
}

#[test]
fn damaged_graphs_are_refused() {
    let gpu = Gpu::under_test(2);
    let layer = |indptr: &[u64], indices: &[u32], seeds: &[u32]| {
        let (indptr, indices) = (gpu.upload(indptr).unwrap(), gpu.upload(indices).unwrap());
        let graph = DeviceGraph::new(&gpu, indptr.slice(), indices.slice())?;
        let mut sampler = DeviceSampler::new(&gpu)?;
        sampler.start(&graph, gpu.upload(seeds).unwrap().slice())?;
        sampler.layer(&graph, &DeviceDraw::new(Fanout::Take(3)), &KEY, DeviceEdgeIds::Keep)
    };
    for indptr in [&[][..], &[1, 2], &[0, 3]] {
        let error = layer(indptr, &[0, 0], &[]).unwrap_err();
        assert!(matches!(error, GpuError::Input(KernelError::Topology { .. })), "{error}");
    }
    for vertex in [1, 0] {
        let error = layer(&[0, 9, 2], &[0, 1], &[vertex]).unwrap_err();
        assert!(matches!(error, GpuError::Input(KernelError::Topology { .. })), "{error}");
    }
    let error = layer(&[0, 1, 2], &[0, 7], &[0, 1]).unwrap_err();
    assert_eq!(
        error,
        GpuError::Input(KernelError::VertexOutOfRange { vertex: 7, num_vertices: 2 })
    );
    let many = [0, 1 << 33, 2];
    let error = layer(&many, &[0, 1], &[0]).unwrap_err();
    assert!(matches!(error, GpuError::Input(KernelError::Topology { .. })), "{error}");
}

#[test]
fn counters_of_another_graph_are_refused() {
    let gpu = Gpu::under_test(0);
    let (indptr, indices) = (gpu.upload(&[0u64, 1]).unwrap(), gpu.upload(&[0u32]).unwrap());
    let graph = DeviceGraph::new(&gpu, indptr.slice(), indices.slice()).unwrap();
    for (vertices, edges) in [(2, 1), (1, 2)] {
        let mut counters = DeviceCounters::new(&gpu, vertices, edges).unwrap();
        let mut sampler = DeviceSampler::new(&gpu).unwrap();
        sampler.start(&graph, gpu.upload(&[0]).unwrap().slice()).unwrap();
        let ids = DeviceEdgeIds::Count(&mut counters);
        let error = sampler.layer(&graph, &DeviceDraw::new(Fanout::All), &KEY, ids).unwrap_err();
        assert!(matches!(error, GpuError::Input(KernelError::Length { .. })), "{error}");
    }
}
