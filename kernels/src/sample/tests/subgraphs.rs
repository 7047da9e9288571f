//! Graphs of which a GPU holds only some vertices' in-edges.

use super::*;
use crate::sample::DeviceSubgraph;

/// A bit for each of `n` vertices: 1 for the chosen ones.
fn chosen(n: usize, is_in: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut words = vec![0; n.div_ceil(64)];
    (0..n).filter(|&v| is_in(v)).for_each(|v| words[v / 64] |= 1 << (v % 64));
    words
}

/// Compares all draws other than the plain draw of `fanout`.
fn compare_draws(both: &Both, graph: &DeviceGraph<'_>, seeds: &[u32], fanout: Fanout, what: &str) {
    let (gpu, edges) = (&both.gpu, both.indices.len() as u64);
    let mut sampler = DeviceSampler::new(gpu).unwrap();
    let excluded = ExcludedEdges::new((0..edges).filter(|edge| edge % 3 != 1).collect());
    let left_out = DeviceExcludedEdges::new(gpu, &excluded).unwrap();
    let (host, draw) = (Draw::new(fanout), DeviceDraw::new(fanout));
    let plain = on_host(both.graph(), host);
    both.compare_from(graph, &mut sampler, seeds, &[(&plain, draw)], what);
    let fewer = on_host(both.graph(), host.without(&excluded));
    both.compare_from(graph, &mut sampler, seeds, &[(&fewer, draw.without(&left_out))], what);
}

#[test]
fn differential_every_draw_from_every_tier() {
    let n = 130;
    let (indptr, indices) = topology(9, n);
    // Only the hubs, a random half, and all vertices of one word but none of another.
    let some = |v: usize| v == 7 || v == 13;
    let half = |v: usize| indices[v].is_multiple_of(2);
    let words = |v: usize| !(64..128).contains(&v);
    let subgraphs: [&dyn Fn(usize) -> bool; 5] = [&|_| false, &some, &half, &words, &|_| true];
    for (order, is_in) in subgraphs.into_iter().enumerate() {
        let both = Both::new(order, (indptr.clone(), indices.clone()));
        let gpu = &both.gpu;
        let chosen = chosen(n as usize, is_in);
        let subgraph = DeviceSubgraph::new(gpu, &both.graph(), &chosen).unwrap();
        assert_eq!(subgraph.num_chosen(), (0..n as usize).filter(|&v| is_in(v)).count());
        let edges: u64 =
            (0..n).filter(|&v| is_in(v as usize)).map(|v| both.graph().degree(v)).sum();
        assert_eq!(subgraph.num_chosen_edges() as u64, edges);
        assert_eq!(
            subgraph.num_bytes(),
            3 * 16 + 8 * (subgraph.num_chosen() as u64 + 1) + 4 * edges
        );
        let starts = gpu.map_host(&both.indptr).unwrap();
        let seeds: Vec<u32> = (0..n).rev().collect();
        let fanout =
            [Fanout::Take(4), Fanout::Take(15), Fanout::All, Fanout::Take(40), Fanout::Take(20)]
                [order];
        let part = DeviceGraph::of_subgraph(gpu, starts.slice(), &subgraph).unwrap();
        assert_eq!((part.num_vertices(), part.num_edges()), (n as usize, both.indices.len()));
        let own: Vec<u32> = seeds.iter().copied().filter(|&v| is_in(v as usize)).collect();
        compare_draws(&both, &part, &own, fanout, &format!("subgraph {order}, {fanout}"));
        // Degrees of all vertices, including those whose in-edges are elsewhere, and of ids that
        // are not vertices.
        let asked: Vec<u32> = seeds.iter().copied().chain([n, u32::MAX]).collect();
        let expected: Vec<u64> =
            seeds.iter().map(|&v| both.graph().degree(v)).chain([0, 0]).collect();
        let asked = gpu.upload(&asked).unwrap();
        assert_eq!(part.degrees(gpu, asked.slice()).unwrap().to_vec().unwrap(), expected);
        let Some(&other) = seeds.iter().find(|&&v| !is_in(v as usize)) else { continue };
        for fanout in [Fanout::Take(3), Fanout::Take(40), Fanout::All] {
            let seeds: Vec<u32> = own.first().copied().into_iter().chain([other]).collect();
            let mut sampler = DeviceSampler::new(gpu).unwrap();
            sampler.start(&part, gpu.upload(&seeds).unwrap().slice()).unwrap();
            let error = sampler.layer(&part, &DeviceDraw::new(fanout), &KEY, DeviceEdgeIds::Drop);
            let expected = KernelError::NotHeld { vertex: other };
            assert_eq!(error.unwrap_err(), GpuError::Input(expected));
        }
    }
}

#[test]
fn differential_counts_and_hubs_of_a_tier() {
    let both = Both::new(2, hub());
    let gpu = &both.gpu;
    let starts = gpu.map_host(&both.indptr).unwrap();
    // The hub, with a vertex of one edge and without.
    for (other, seeds, fanout) in
        [(6, &[5, 0, 1][..], Fanout::Take(300)), (1, &[5, 0], Fanout::Take(15))]
    {
        let subgraph =
            DeviceSubgraph::new(gpu, &both.graph(), &chosen(1000, |v| v != other)).unwrap();
        let graph = DeviceGraph::of_subgraph(gpu, starts.slice(), &subgraph).unwrap();
        let mut sampler = DeviceSampler::new(gpu).unwrap();
        let drawn = on_host(both.graph(), Draw::new(fanout));
        both.compare_from(&graph, &mut sampler, seeds, &[(&drawn, DeviceDraw::new(fanout))], "hub");
        let mut counted = DeviceCounters::new(gpu, 1000, both.indices.len()).unwrap();
        let mut expected = Counters::new(1000, both.indices.len());
        let (mut host, mut layer) = (Sampler::new(1), SampledCsc::default());
        for fanout in [Fanout::Take(20), Fanout::Take(90)] {
            host.start(&seeds[1..]);
            sampler.start(&graph, gpu.upload(&seeds[1..]).unwrap().slice()).unwrap();
            host.layer(
                &both.graph(),
                &Draw::new(fanout),
                &KEY,
                EdgeIds::Count(&mut expected),
                &mut layer,
            )
            .unwrap();
            let ids = DeviceEdgeIds::Count(&mut counted);
            sampler.layer(&graph, &DeviceDraw::new(fanout), &KEY, ids).unwrap();
        }
        assert!(counted.into_parts().unwrap() == expected.into_parts().unwrap());
    }
}

#[test]
fn tiers_that_do_not_fit_are_refused() {
    let gpu = Gpu::under_test(1);
    let subgraph = |indptr: &[u64], indices: &[u32], chosen: &[u64]| {
        DeviceSubgraph::new(
            &gpu,
            &Graph { indptr, indices, ..Graph::new(&[0], &[]).unwrap() },
            chosen,
        )
        .map(|_| ())
    };
    assert!(matches!(
        subgraph(&[0, 1], &[0], &[]),
        Err(GpuError::Input(KernelError::Length { .. }))
    ));
    let beyond = KernelError::VertexOutOfRange { vertex: 1, num_vertices: 1 };
    assert_eq!(subgraph(&[0, 1], &[0], &[2]), Err(GpuError::Input(beyond)));
    // Of another graph: other vertices, other edges.
    let starts = gpu.upload(&[0u64, 1, 2]).unwrap();
    for (indptr, indices) in [(&[0u64, 2][..], &[0u32, 0][..]), (&[0, 0, 1], &[0])] {
        let subgraph = DeviceSubgraph::new(
            &gpu,
            &Graph { indptr, indices, ..Graph::new(&[0], &[]).unwrap() },
            &[1],
        )
        .unwrap();
        assert!(DeviceGraph::of_subgraph(&gpu, starts.slice(), &subgraph).is_err());
    }
    // A source that is not a vertex.
    let host = Graph { indptr: &[0, 1, 2], indices: &[0, 7], ..Graph::new(&[0], &[]).unwrap() };
    let subgraph = DeviceSubgraph::new(&gpu, &host, &[3]).unwrap();
    let mut sampler = DeviceSampler::new(&gpu).unwrap();
    let part = DeviceGraph::of_subgraph(&gpu, starts.slice(), &subgraph).unwrap();
    sampler.start(&part, gpu.upload(&[0, 1]).unwrap().slice()).unwrap();
    let error = sampler
        .layer(&part, &DeviceDraw::new(Fanout::Take(3)), &KEY, DeviceEdgeIds::Drop)
        .unwrap_err();
    assert_eq!(
        error,
        GpuError::Input(KernelError::VertexOutOfRange { vertex: 7, num_vertices: 2 })
    );
}
