//! Compares figures with brute force on tiny random graphs, and with values worked out by hand.

use std::collections::BTreeSet;

use gsplit_store::{DatasetWriter, NoProgress, Provenance};

use super::pairs::Homophily;
use super::*;

/// A dataset with these edges, each from its first to its second vertex, and classes.
fn dataset(n: usize, edges: &[(u32, u32)], labels: Option<&[i32]>) -> (tempfile::TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let mut sorted: Vec<(u32, u32)> = edges.iter().map(|&(from, to)| (to, from)).collect();
    sorted.sort_unstable();
    let indptr: Vec<u64> = (0..=n).map(|v| sorted.partition_point(|&(to, _)| (to as usize) < v) as u64).collect();
    let indices: Vec<u32> = sorted.iter().map(|&(_, from)| from).collect();
    let mut writer = DatasetWriter::create(&folder.path().join("ds"), false, &indptr, &indices).unwrap();
    if let Some(labels) = labels {
        writer.add_labels(labels).unwrap();
    }
    let dataset = writer.finish(Provenance::default()).unwrap();
    (folder, dataset)
}

/// A step of the generator of Knuth's MMIX.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 32) * below) >> 32
}

/// Figures by definition, however slow.
fn oracle(n: usize, edges: &[(u32, u32)], labels: &[i32]) -> Figures {
    let degrees = |end: fn(&(u32, u32)) -> u32| -> Vec<u32> {
        (0..n as u32).map(|v| edges.iter().filter(|edge| end(edge) == v).count() as u32).collect()
    };
    let (into, out) = (degrees(|edge| edge.1), degrees(|edge| edge.0));
    let quantiles = |degrees: &[u32]| {
        let share = |percent: u32| {
            let least = |d: &u32| {
                let at_most = degrees.iter().filter(|&other| other <= d).count();
                at_most * 100 >= n * percent as usize
            };
            degrees.iter().copied().filter(least).min().unwrap()
        };
        let width = |d: u32| if d == 0 { 0 } else { 1 << d.ilog2() };
        let froms: BTreeSet<u32> = degrees.iter().map(|&d| width(d)).collect();
        let max = *degrees.iter().max().unwrap();
        let all = [0].into_iter().chain((0..31).map(|bit| 1 << bit)).filter(|&from| from <= max);
        let bar = |from: u32| {
            let vertices = degrees.iter().filter(|&&d| width(d) == from).count() as u64;
            assert_eq!(vertices > 0, froms.contains(&from));
            degrees::DegreeCount { from, vertices }
        };
        let mean = degrees.iter().sum::<u32>() as f64 / n as f64;
        let min = *degrees.iter().min().unwrap();
        Some(Degrees {
            min,
            p50: share(50),
            p90: share(90),
            p99: share(99),
            max,
            mean,
            histogram: all.map(bar).collect(),
        })
    };
    // The lowest vertex that is reached; repeated until nothing changes.
    let mut lowest: Vec<u32> = (0..n as u32).collect();
    for _ in 0..n {
        for &(u, v) in edges {
            let low = lowest[u as usize].min(lowest[v as usize]);
            (lowest[u as usize], lowest[v as usize]) = (low, low);
        }
    }
    let size = |root: u32| lowest.iter().filter(|&&low| low == root).count() as u64;
    let roots: BTreeSet<u32> = lowest.iter().copied().collect();
    let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
    let others: Vec<_> = edges.iter().filter(|(u, v)| u != v).collect();
    let labelled: Vec<_> =
        others.iter().filter(|(u, v)| labels[*u as usize] >= 0 && labels[*v as usize] >= 0).collect();
    let alike = labelled.iter().filter(|(u, v)| labels[*u as usize] == labels[*v as usize]).count();
    let classes: BTreeSet<i32> = labels.iter().copied().filter(|&label| label >= 0).collect();
    let class = |class: i32| ClassCount {
        name: None,
        class: class as u32,
        vertices: labels.iter().filter(|&&label| label == class).count() as u64,
    };
    Figures {
        in_degree: quantiles(&into),
        classes: Some(classes.into_iter().map(class).collect()),
        numbers: None,
        edges: Some(EdgeFigures {
            out_degree: quantiles(&out),
            isolated: (0..n).filter(|&v| into[v] == 0 && out[v] == 0).count() as u64,
            components: Components {
                number: roots.len() as u64,
                largest: roots.iter().map(|&root| size(root)).max().unwrap(),
            },
            pairs: Pairs {
                self_loops: (edges.len() - others.len()) as u64,
                reciprocal_share: share(others.iter().filter(|(u, v)| edges.contains(&(*v, *u))).count(), others.len()),
                homophily: share(alike, labelled.len())
                    .map(|share| Homophily { labelled_edges: labelled.len() as u64, share }),
            },
        }),
    }
}

#[test]
fn oracle_random_graphs() {
    let of_today = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs() / 86_400 * 1000);
    for seed in (0..30).chain(of_today..of_today + 30) {
        let mut state = seed;
        let n = 1 + draw(&mut state, 40) as usize;
        let m = draw(&mut state, 3 * n as u64);
        // Includes self-loops and repeated edges.
        let edges: Vec<(u32, u32)> =
            (0..m).map(|_| (draw(&mut state, n as u64) as u32, draw(&mut state, n as u64) as u32)).collect();
        let labels: Vec<i32> = (0..n).map(|_| draw(&mut state, 4) as i32 - 1).collect();
        let (_folder, dataset) = dataset(n, &edges, Some(&labels));
        let found = Figures::of(&dataset, false, &NoProgress).unwrap();
        assert_eq!(found, oracle(n, &edges, &labels), "seed {seed}: {n} vertices, {edges:?}, {labels:?}");
    }
}

#[test]
fn threads_change_nothing() {
    // More vertices than one task handles, in long paths, which are the hard case for components.
    let n = 3 * VERTICES_PER_TASK as u32;
    let edges: Vec<(u32, u32)> = (0..n - 2).map(|v| (v, (v + 2) % n)).chain([(7, 7), (9, 5), (5, 9)]).collect();
    let (_folder, dataset) = dataset(n as usize, &edges, None);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| Figures::of(&dataset, false, &NoProgress).unwrap())
    };
    let one = with(1);
    assert_eq!((one.clone(), one.clone()), (with(2), with(7)));
    let found = one.edges.unwrap();
    assert_eq!(found.components, Components { number: 2, largest: u64::from(n / 2) });
    assert_eq!((found.isolated, found.pairs.self_loops), (0, 1));
}

#[test]
fn numbers_are_described_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = DatasetWriter::create(&folder.path().join("ds"), false, &[0; 10], &[]).unwrap();
    writer.add_numeric_labels(&[2.0, 4.0, 4.0, f32::NAN, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
    let dataset = writer.finish(Provenance::default()).unwrap();
    let figures = Figures::of(&dataset, false, &NoProgress).unwrap();
    let numbers = NumberFigures { vertices: 8, mean: 5.0, deviation: 2.0, min: 2.0, max: 9.0 };
    assert_eq!((figures.numbers, &figures.classes), (Some(numbers), &None));
    let facts = crate::inspect::words::facts(&Figures { edges: None, ..figures });
    let words = "of 8 vertices to learn: mean 5.00000, deviation 2.00000, from 2 to 9";
    assert!(facts.contains(&("numbers", words.to_string())), "{facts:?}");
}
