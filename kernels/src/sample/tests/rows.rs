//! Tests of draws for rows of several types of vertices.

use super::*;
use crate::sample::{LayerFanout, RowLayout};

#[test]
fn oracle_rows_are_drawn_as_vertices_are_and_number_vertices() {
    // A type without relations into it, one with three, one with one.
    let layout = RowLayout::new([
        (70, Vec::new()),
        (200, ["a/x/b", "b/y/b", "c/x/b"].map(String::from).to_vec()),
        (130, vec!["b/z/c".to_owned()]),
    ])
    .unwrap();
    assert_eq!((layout.num_rows(), layout.type_of(69), layout.type_of(400)), (730, Some(0), None));
    let (rows, indices) = topology(12, 730);
    let indices: Vec<u32> = indices.iter().map(|index| index % 400).collect();
    let of_rows = Graph::new(&rows, &indices).unwrap();
    let row_of = |v: u32| match v {
        0..70 => 0..0,
        70..270 => (v - 70) * 3..(v - 70) * 3 + 3,
        _ => 600 + v - 270..601 + v - 270,
    };
    let starts = (0..=400).map(|v| match v {
        0..70 => 0,
        400 => indices.len() as u64,
        _ => rows[row_of(v).start as usize],
    });
    let indptr: Vec<u64> = starts.collect();
    let graph = Graph::new(&indptr, &indices).unwrap().with_rows(&rows, &layout).unwrap();
    let by_relation = ["3+y=0+z=all", "all+a/x/b=1+x=2", "40+b/z/c=1"];
    let fanouts = FANOUTS.iter().map(|&fanout| LayerFanout::from(fanout));
    let fanouts: Vec<LayerFanout> =
        fanouts.chain(by_relation.iter().map(|text| text.parse().unwrap())).collect();
    for (seed, fanout) in (0..3).flat_map(|seed| fanouts.iter().map(move |of| (seed, of))) {
        let of_relations = fanout.of_relations(Some(&layout)).unwrap();
        let of_row = |row: u32| match &of_relations {
            Some(fanouts) if row < 600 => fanouts[row as usize % 3],
            Some(fanouts) => fanouts[3],
            None => fanout.of_vertices().unwrap(),
        };
        let shuffled = crate::permute(400, &StreamKey::new(seed, Stream::Shuffle));
        let mut frontier = shuffled[..20 * (1 + seed as usize)].to_vec();
        let (mut counters, mut counted) = (Counters::new(400, indices.len()).by_rows(730), [0; 2]);
        let mut samplers = TUNINGS.map(|tuning| Sampler::tuned(3, tuning));
        samplers.iter_mut().for_each(|sampler| sampler.start(&frontier));
        for _ in 0..2 {
            let by_type = [0..70, 70..270, 270..400].into_iter().flat_map(|of: Range<u32>| {
                let of_type = frontier.iter().filter(move |v| of.contains(v));
                of_type.flat_map(|&v| row_of(v)).collect::<Vec<_>>()
            });
            let mut expected = SampledCsc { indptr: vec![0], ..SampledCsc::default() };
            for row in by_type.collect::<Vec<_>>() {
                for edge in oracle_edges(&of_rows, row, of_row(row), &[], &KEY) {
                    let source = indices[edge as usize];
                    let at = frontier.iter().position(|&v| v == source).unwrap_or_else(|| {
                        frontier.push(source);
                        frontier.len() - 1
                    });
                    expected.local.push(at as u32);
                    expected.edges.push(edge);
                }
                expected.indptr.push(expected.edges.len() as u32);
            }
            let before = samplers[0].mixed_frontier().to_vec();
            for sampler in &mut samplers {
                let mut sampled = SampledCsc::default();
                let draw = Draw::of(fanout);
                sampler.layer(&graph, &draw, &KEY, EdgeIds::Keep, &mut sampled).unwrap();
                assert!(
                    sampled == expected && sampler.mixed_frontier() == frontier,
                    "seed {seed}, fanout {fanout}"
                );
            }
            let merged = layout.by_vertex(&before, &expected).unwrap();
            let of_vertex = before.iter().flat_map(|&v| {
                row_of(v).flat_map(|row| oracle_edges(&of_rows, row, of_row(row), &[], &KEY))
            });
            assert_eq!((merged.num_vertices(), merged.edges), (before.len(), of_vertex.collect()));
            counted[0] += expected.edges.len();
        }
        let mut sampler = Sampler::tuned(3, TUNINGS[0]);
        sampler.start(&shuffled[..20 * (1 + seed as usize)]);
        for _ in 0..2 {
            let ids = EdgeIds::Count(&mut counters);
            let draw = Draw::of(fanout);
            sampler.layer(&graph, &draw, &KEY, ids, &mut SampledCsc::default()).unwrap();
        }
        let parts = counters.into_parts().unwrap();
        let work = layout.sums(&parts.work);
        counted[1] = work.iter().map(|&work| work as usize).sum();
        assert_eq!((work.len(), counted[0], work[..70].iter().max()), (400, counted[1], Some(&0)));
    }
    let wrong =
        RowLayout::new([(u32::MAX.into(), vec![String::new()]), (1, Vec::new())]).unwrap_err();
    assert!(wrong.to_string().contains("4294967296 vertices or rows"), "{wrong}");
    assert!(graph.with_rows(&rows[1..], &layout).is_err());
    let error = layout.positions(&[400]).unwrap_err();
    assert_eq!(error, KernelError::VertexOutOfRange { vertex: 400, num_vertices: 400 });
}
