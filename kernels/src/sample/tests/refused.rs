//! Bad input.

use super::*;

#[test]
fn bad_input_is_refused() {
    let graph = Graph::new(&[0, 1], &[0]).unwrap();
    for tuning in TUNINGS {
        let error = |graph: &Graph<'_>, frontier: &[u32], fanout| {
            let mut sampler = Sampler::tuned(2, tuning);
            sampler.start(frontier);
            let draw = Draw::new(fanout);
            sampler
                .layer(graph, &draw, &KEY, EdgeIds::Drop, &mut SampledCsc::default())
                .unwrap_err()
        };
        for vertex in [1, 64, u32::MAX] {
            let expected = KernelError::VertexOutOfRange { vertex, num_vertices: 1 };
            assert_eq!(error(&graph, &[0, vertex], Fanout::All), expected);
            assert_eq!(error(&graph, &[0, vertex], Fanout::Take(1)), expected);
        }
        assert_eq!(error(&graph, &[0, 0], Fanout::All), KernelError::RepeatedVertex { vertex: 0 });
        assert_eq!(
            error(&graph, &[0], Fanout::Take(0)),
            KernelError::Fanout { got: "0".to_owned() }
        );
        assert_eq!(
            error(&graph, &[0], Fanout::Take(u32::MAX)),
            KernelError::Fanout { got: u32::MAX.to_string() }
        );
        // A graph whose edges are never read, so it need not have them.
        let many = Graph {
            indptr: &[0, 1 << 31, 1 << 32, 1 << 34],
            indices: &[],
            ..Graph::new(&[0], &[]).unwrap()
        };
        for (frontier, edges) in [(&[0u32, 1][..], 1 << 32), (&[2], (1 << 34) - (1 << 32))] {
            assert_eq!(error(&many, frontier, Fanout::All), KernelError::TooManyEdges { edges });
        }
    }
}

#[test]
fn a_sampler_goes_on_after_an_error() {
    let (indptr, indices) = topology(30, 100);
    let graph = Graph::new(&indptr, &indices).unwrap();
    let draw = Draw::new(Fanout::Take(5));
    for tuning in TUNINGS {
        let mut sampler = Sampler::tuned(2, tuning);
        for bad in [&[3, 100][..], &[3, 5, 3]] {
            sampler.start(bad);
            sampler
                .layer(&graph, &draw, &KEY, EdgeIds::Keep, &mut SampledCsc::default())
                .unwrap_err();
            let mut mixed_frontier = vec![5, 3];
            let expected = oracle_layer(&graph, &mut mixed_frontier, Fanout::Take(5), &[], &KEY);
            assert_eq!(layer(&mut sampler, &graph, &[5, 3], &draw, &KEY), expected);
        }
    }
}

#[test]
fn counters_of_another_graph_are_refused() {
    let graph = Graph::new(&[0, 1], &[0]).unwrap();
    for mut counters in [Counters::new(2, 1), Counters::new(1, 2)] {
        let mut sampler = Sampler::new(1);
        sampler.start(&[0]);
        let ids = EdgeIds::Count(&mut counters);
        let error =
            sampler.layer(&graph, &Draw::new(Fanout::All), &KEY, ids, &mut SampledCsc::default());
        assert!(matches!(error, Err(KernelError::Length { .. })));
    }
}
