//! Edges that count several times, against edges that occur several times.

use super::*;

const COUNTS: [f32; 4] = [2.0, 1.0, 3.0, 0.0];

/// Copies `few`, repeating each edge as often as `count` of its number says.
fn repeated(few: &HostEdges, count: impl Fn(usize) -> usize) -> HostEdges {
    let (mut indptr, mut sources) = (vec![0], Vec::new());
    for target in 0..few.num_targets() {
        few.of(target).for_each(|edge| sources.extend(vec![few.sources()[edge]; count(edge)]));
        indptr.push(sources.len() as u32);
    }
    HostEdges::new(indptr, sources, few.num_sources()).unwrap()
}

#[test]
fn oracle_an_edge_that_counts_twice_is_two_edges() {
    for (case, (targets, sources, degree, hub)) in
        [(3, 7, 2, 0), (20, 50, 4, 0), (60, 90, 5, 400)].into_iter().enumerate()
    {
        let few = edges(case as u32, targets, sources, degree, hub);
        let factors: Vec<f32> =
            (0..few.num_edges()).map(|edge| COUNTS[edge % COUNTS.len()]).collect();
        let many = repeated(&few, |edge| factors[edge] as usize);
        for ((heads, head_dim), form) in
            [(1, 3), (3, 5)].into_iter().flat_map(|of| [(of, Static), (of, Dynamic)])
        {
            let attended = |edges, factors| {
                let op = Attention { self_loops: true, factors, ..plain(edges, heads, head_dim) };
                let inputs = form.inputs(&op);
                let (out, weights) = form.forward(&op, &inputs);
                let [a, b, c] = form.backward(&op, &inputs, &weights, &values(4, out.len()));
                [out, a, b, c]
            };
            let (found, expected) = (attended(&few, Some(&factors[..])), attended(&many, None));
            for (which, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let scale = expected.iter().fold(0.1f32, |most, value| most.max(value.abs()));
                for (found, expected) in found.iter().zip(expected) {
                    let off = (found - expected).abs();
                    assert!(
                        off <= 1e-5 * scale,
                        "case {case}, {form:?}, {which}: {found}, {expected}"
                    );
                }
            }
        }
    }
}
