//! Whether every in-edge, and every set of them, is as likely as it should be.

use super::*;

#[test]
fn every_edge_is_equally_likely() {
    // One case for each way in which picks are kept apart.
    for (degree, fanout) in [(6, 3), (64, 15), (65, 15), (300, 16), (1100, 10), (3000, 16), (100, 40), (200, 90)] {
        let mut counts = vec![0f64; degree as usize];
        for edges in trials(degree, None, Draw::new(Fanout::Take(fanout)), 4000) {
            edges.iter().for_each(|&edge| counts[edge as usize] += 1.0);
        }
        let (d, k) = (degree as f64, f64::from(fanout));
        // Picks of one trial exclude each other, which shrinks the spread by (d - k) / (d - 1).
        let expected = vec![4000.0 * k / d; degree as usize];
        chi_square(&format!("degree {degree}, fanout {fanout}"), &counts, &expected, (d - k) / (d - 1.0));
    }
}

#[test]
fn every_subset_is_equally_likely() {
    let mut counts: HashMap<Vec<u64>, f64> = HashMap::new();
    trials(6, None, Draw::new(Fanout::Take(3)), 20_000).for_each(|edges| *counts.entry(edges).or_default() += 1.0);
    assert_eq!(counts.len(), 20);
    let chi2: f64 = counts.values().map(|c| (c - 1000.0).powi(2) / 1000.0).sum();
    assert!(chi2 < 48.0, "chi-square {chi2} with 19 degrees of freedom");
}

#[test]
fn the_edges_that_are_left_are_equally_likely() {
    let excluded = ExcludedEdges::new((0..100).filter(|edge| edge % 4 == 1).collect());
    for fanout in [5, 20] {
        let draw = Draw::new(Fanout::Take(fanout)).without(&excluded);
        let mut counts = vec![0f64; 100];
        for edges in trials(100, None, draw, 4000) {
            assert_eq!(edges.len(), fanout as usize);
            edges.iter().for_each(|&edge| counts[edge as usize] += 1.0);
        }
        let left: Vec<f64> = (0..100).filter(|edge| edge % 4 != 1).map(|edge| counts[edge]).collect();
        assert_eq!(left.iter().sum::<f64>(), 4000.0 * f64::from(fanout), "no excluded edge is drawn");
        let spread = (75.0 - f64::from(fanout)) / 74.0;
        chi_square("excluded", &left, &[4000.0 * f64::from(fanout) / 75.0; 75], spread);
    }
}
