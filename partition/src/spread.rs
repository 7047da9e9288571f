//! Spreading vertices over parts without considering edges.
//!
//! Returns nothing; gives each vertex of a list a part. Idea: the heaviest vertex first, always to
//! the part with most room (Graham, "Bounds on multiprocessing timing anomalies", 1969), so that no
//! part ends more than one vertex above the mean with this step. Vertices that weigh nothing go to
//! the part with the fewest vertices. Ties go to the lowest number. Cost: O(n log n).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rayon::prelude::*;

use crate::VertexWeights;
use crate::loads::Loads;

/// Adds `vertices` to the parts whose loads are `loads`, in `assignment`.
pub(crate) fn spread(
    vertices: &mut [u32],
    weights: &VertexWeights,
    loads: &mut Loads,
    assignment: &mut [u16],
) {
    // The bits of floats that are not negative are ordered as they are.
    vertices.par_sort_unstable_by_key(|&v| (Reverse(loads.portion(weights.of(v)).to_bits()), v));
    let weighty = vertices.partition_point(|&v| loads.portion(weights.of(v)) > 0.0);
    let (weighty, weightless) = vertices.split_at(weighty);
    let lightness: fn(&Loads, u16) -> u64 = |loads, part| loads.lack_of_room(part).to_bits();
    let fewness: fn(&Loads, u16) -> u64 = |loads, part| loads.sizes()[part as usize];
    for (vertices, rank) in [(weighty, lightness), (weightless, fewness)] {
        let mut queue: BTreeSet<(u64, u16)> =
            (0..loads.num_parts() as u16).map(|part| (rank(loads, part), part)).collect();
        for &v in vertices {
            if let Some((_, part)) = queue.pop_first() {
                loads.add(part, weights.of(v));
                assignment[v as usize] = part;
                queue.insert((rank(loads, part), part));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaviest_first_to_the_lightest_part_and_weightless_ones_evenly() {
        let weights = VertexWeights::new(9, &[vec![3, 0, 5, 4, 0, 6, 0, 0, 0]]);
        let mut loads = Loads::empty(2.into(), &weights);
        let mut assignment = vec![9; 9];
        spread(&mut [0, 1, 2, 3, 4, 5, 6, 7, 8], &weights, &mut loads, &mut assignment);
        // 6 | 5, 5 + 4, 6 + 3; then five vertices that weigh nothing.
        assert_eq!(assignment, [0, 0, 1, 1, 1, 0, 0, 1, 0]);
        assert_eq!(loads.sizes(), [5, 4]);
        assert_eq!(loads.imbalance(), 1.0);
    }
}
