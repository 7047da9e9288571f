//! Contiguous ranges of vertices.
//!
//! Returns ranges in vertex order that share the weights evenly, like a distributed file system or
//! a loader that cuts files; a strong baseline where neighbours have near numbers (crawls, road
//! networks, sorted communities). Idea: lay the vertices end to end, each as long as its weight,
//! cut the whole into stretches, equal or by the targets, and give each vertex to the stretch of
//! its middle. With several weights the sum of their shares is used. With one weight every part
//! carries at most the mean plus its heaviest vertex; with several that holds for the sum. No part
//! is empty: a range that would be takes the vertex next to it. Cost: O(n), sequential.

use gsplit_store::Progress;

use crate::{Layout, Partitioner, Problem, Result, VertexWeights};

/// Equal ranges.
pub(crate) struct Range;

impl Partitioner for Range {
    fn assign(&self, problem: &Problem<'_>, _progress: &dyn Progress) -> Result<Vec<u16>> {
        let n = problem.topology.num_vertices();
        let mut assignment = vec![0; n];
        let starts = starts(&problem.weights, n, problem.layout());
        let ends = starts[1..].iter().copied().chain([n]);
        for ((part, &start), end) in (0..).zip(&starts).zip(ends) {
            assignment[start..end].fill(part);
        }
        Ok(assignment)
    }
}

/// The first vertex of each part, ascending. There are at least as many vertices as parts.
fn starts(weights: &VertexWeights, n: usize, layout: Layout<'_>) -> Vec<usize> {
    let parts = layout.parts() as usize;
    let length = |v: usize| {
        let shares = weights.of(v as u32).iter().zip(weights.totals());
        // A share in units of 2^-64 of the total: exact enough for any weight of 32 bits, and sums
        // fit.
        shares.map(|(&weight, &total)| (u128::from(weight) << 64) / u128::from(total)).sum::<u128>()
    };
    let total: u128 = (0..n).map(length).sum();
    let fractions = layout.ends();
    let mut starts = vec![0];
    let mut before = 0;
    for v in 0..n {
        let length = length(v);
        let middle = (2 * before + length) as f64 / (2 * total).max(1) as f64;
        let part = fractions.partition_point(|&end| end <= middle);
        before += length;
        // Ranges that end before this vertex; each takes one vertex at least.
        while starts.len() <= part.min(parts - 1) {
            let after_last = starts[starts.len() - 1] + 1;
            starts.push(v.max(after_last));
        }
    }
    while starts.len() < parts {
        starts.push(starts[starts.len() - 1] + 1);
    }
    // Vertices pushed beyond the end move back.
    for (part, start) in starts.iter_mut().enumerate() {
        *start = (*start).min(n - (parts - part));
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_share_the_weight_and_none_is_empty() {
        let cut = |weights: &[u32], parts: u32| {
            starts(
                &VertexWeights::new(weights.len(), &[weights.to_vec()]),
                weights.len(),
                parts.into(),
            )
        };
        assert_eq!(cut(&[1; 12], 3), [0, 4, 8]);
        assert_eq!(cut(&[1; 7], 7), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(cut(&[6, 1, 1, 1, 1, 1, 1], 2), [0, 1]);
        // A vertex that outweighs the rest fills a range by itself wherever it is.
        assert_eq!(cut(&[100, 1, 1, 1], 3), [0, 1, 2]);
        assert_eq!(cut(&[1, 1, 1, 100], 3), [0, 2, 3]);
        assert_eq!(cut(&[0, 0, 0, 5], 4), [0, 1, 2, 3]);
        assert_eq!(cut(&[5, 0, 0, 0], 4), [0, 1, 2, 3]);
    }

    #[test]
    fn several_weights_are_laid_out_by_their_shares() {
        // Ten targets at the end weigh as much as a hundred vertices.
        let targets: Vec<u32> = (0..100).map(|v| u32::from(v >= 90)).collect();
        let weights = VertexWeights::new(100, &[vec![1; 100], targets]);
        let starts = starts(&weights, 100, 2.into());
        assert!((90..92).contains(&starts[1]), "{starts:?}");
    }
}
