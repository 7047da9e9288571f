//! Order in which the vertices of a part deserve a cache slot.
//!
//! Returns the vertices of part 0, then of part 1 and so on; within a part by falling number of
//! mini-batches that load them (the presample's `input` counter; GNNLab's hotness), ties by id.
//! Without a presample by out-degree, the number of vertices that aggregate from them. Why not
//! `appear`: it counts a vertex once for every layer, but its feature row is loaded once a
//! mini-batch. Cost: O(n log n), without a presample O(m) more.

use std::cmp::Reverse;

use gsplit_store::{Presample, Topology, out_degrees};
use rayon::prelude::*;

/// The vertices of each part, hottest first. `assignment` holds a part for each vertex of
/// `topology`.
pub(crate) fn cache_order(
    topology: &Topology,
    assignment: &[u16],
    presample: Option<&Presample>,
) -> Vec<u32> {
    let counted;
    let heat = match presample {
        Some(presample) => presample.input(),
        None => {
            counted = out_degrees(topology.num_vertices(), topology.indices());
            &counted
        }
    };
    let mut order: Vec<u32> = (0..assignment.len() as u32).collect();
    order.par_sort_unstable_by_key(|&v| (assignment[v as usize], Reverse(heat[v as usize]), v));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Fixture, graphs};

    #[test]
    fn parts_in_order_and_hottest_first() {
        for graph in graphs() {
            let (dataset, presample) = graph.presampled();
            let assignment: Vec<u16> =
                (0..dataset.num_vertices()).map(|v| (v % 3) as u16).collect();
            let order = cache_order(dataset.topology(), &assignment, Some(&presample));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..dataset.num_vertices() as u32), "{}", graph.name);
            for pair in order.windows(2) {
                let (a, b) = (pair[0] as usize, pair[1] as usize);
                let heat = presample.input();
                assert!(
                    assignment[a] < assignment[b]
                        || assignment[a] == assignment[b]
                            && (heat[a] > heat[b] || heat[a] == heat[b] && a < b),
                    "{}: {a} before {b}",
                    graph.name
                );
            }
        }
    }

    #[test]
    fn out_degree_without_a_presample() {
        let dataset =
            Fixture::new("fan", 5, &[(3, 0), (3, 1), (3, 4), (2, 0), (2, 1), (0, 1)]).dataset();
        assert_eq!(cache_order(dataset.topology(), &[1, 1, 0, 0, 1], None), [3, 2, 0, 1, 4]);
    }
}
