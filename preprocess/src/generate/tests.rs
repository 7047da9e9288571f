//! Tests of the generators.

use clap::Parser;
use gsplit_store::{Checksum, NoProgress, Topology};

use super::*;

#[derive(Parser)]
struct Line<O: clap::Args> {
    #[command(flatten)]
    options: O,
}

fn options<O: clap::Args>(line: &str) -> O {
    Line::<O>::try_parse_from(std::iter::once("").chain(line.split_whitespace())).unwrap().options
}

fn rmat(line: &str) -> Generator {
    Generator::Rmat(options(line))
}

fn community(line: &str) -> Generator {
    Generator::Community(options(line))
}

fn made(generator: &Generator) -> (tempfile::TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, reused) =
        generate(generator, &folder.path().join("g"), false, &NoProgress).unwrap();
    assert!(!reused);
    dataset.topology().check_indices().unwrap();
    (folder, dataset)
}

fn degrees(topology: &Topology) -> Vec<usize> {
    let mut degrees: Vec<usize> =
        (0..topology.num_vertices() as u32).map(|v| topology.in_neighbours(v).len()).collect();
    degrees.sort_unstable_by(|a, b| b.cmp(a));
    degrees
}

#[test]
fn datasets_depend_on_options_but_not_on_threads() {
    let line = "--vertices 3000 --edges 20000 --feature-dtype f16";
    for (generator, other) in [
        (
            rmat(&format!("{line} --features random:3")),
            rmat(&format!("{line} --features random:3 --seed 1")),
        ),
        (
            community(&format!("{line} --label-noise 0.1")),
            community(&format!("{line} --label-noise 0.1 --seed 1")),
        ),
        (
            community(&format!("{line} --features fastrp:8")),
            community(&format!("{line} --features fastrp:9")),
        ),
    ] {
        let files = |generator: &Generator, threads| -> Vec<Checksum> {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (_folder, dataset) = pool.install(|| made(generator));
            dataset.manifest().files.values().map(|record| record.checksum.clone()).collect()
        };
        let one = files(&generator, 1);
        assert_eq!(one, files(&generator, 2));
        assert_eq!(one, files(&generator, 4));
        assert_ne!(one, files(&other, 1));
    }
}

#[test]
fn rmat_has_skewed_degrees_and_any_number_of_vertices() {
    for n in [1, 2, 3, 1000, 1024, 1025] {
        let (_folder, dataset) = made(&rmat(&format!("--vertices {n} --edges 5000")));
        assert_eq!(dataset.num_vertices(), n);
    }
    let (_folder, dataset) = made(&rmat("--vertices 10000 --edges 100000 --directed"));
    let degrees = degrees(dataset.topology());
    let facts = &dataset.manifest().provenance.facts;
    let merged = facts["duplicates_merged"] + facts["self_loops_dropped"];
    assert_eq!(dataset.manifest().num_edges + merged, facts["edges_drawn"]);
    let hubs: usize = degrees[..1000].iter().sum();
    assert!(
        10 * hubs > 5 * dataset.topology().num_edges(),
        "a tenth of the vertices have {hubs} of the edges"
    );
    // Scrambled ids: the lower half does not hold the hubs.
    let half = dataset.topology().indptr()[5000] as f64 / dataset.topology().num_edges() as f64;
    assert!((0.4..0.6).contains(&half), "{half}");
}

#[test]
fn rmat_fills_the_quadrants_as_graph500_says() {
    let model = rmat::Rmat::new(&options("--vertices 1024 --edges 1"));
    let mut counts = [0f64; 4];
    for i in 0..20_000 {
        let (row, column) = model.edge(i);
        counts[(row >> 9 << 1 | column >> 9) as usize] += 1.0 / 20_000.0;
    }
    for (found, expected) in counts.into_iter().zip([0.57, 0.19, 0.19, 0.05]) {
        assert!((found - expected).abs() < 0.015, "{counts:?}");
    }
}

#[test]
fn options_decide_about_directions_loops_and_duplicates() {
    let line = "--vertices 50 --edges 4000";
    let (_a, plain) = made(&rmat(line));
    let topology = plain.topology();
    for v in 0..50 {
        assert!(
            topology
                .in_neighbours(v)
                .iter()
                .all(|&u| u != v && topology.in_neighbours(u).contains(&v))
        );
        assert!(topology.in_neighbours(v).windows(2).all(|pair| pair[0] < pair[1]));
    }
    let (_b, all) = made(&rmat(&format!("{line} --directed --keep-self-loops --keep-duplicates")));
    assert_eq!(all.manifest().num_edges, 4000);
}

#[test]
fn communities_mix_as_asked_and_have_power_law_degrees() {
    for mixing in [0.0, 0.2, 0.7] {
        let line =
            format!("--vertices 20000 --edges 200000 --classes 10 --mixing {mixing} --directed");
        let (_folder, dataset) = made(&community(&line));
        let (topology, labels) = (dataset.topology(), dataset.labels().unwrap());
        let leaves = |v: u32| {
            topology
                .in_neighbours(v)
                .iter()
                .filter(|&&u| labels[u as usize] != labels[v as usize])
                .count()
        };
        let share = (0..20_000).map(leaves).sum::<usize>() as f64 / topology.num_edges() as f64;
        assert!((share - mixing).abs() < 0.02, "mixing {mixing}: {share} of the edges leave");
        let kept = topology.num_edges() as f64 / 200_000.0;
        assert!(kept > 0.9, "{kept} of the edges are distinct");
    }
    let degrees_at = |exponent: &str| {
        let line = format!("--vertices 20000 --edges 200000 --exponent {exponent}");
        degrees(made(&community(&line)).1.topology())
    };
    let (skewed, flat) = (degrees_at("2.5"), degrees_at("100"));
    // The cap is √(1250 · 20) = 158, the mean 20.
    assert!((100..250).contains(&skewed[0]) && flat[0] < 60, "{} {}", skewed[0], flat[0]);
    // The share of the degrees above 2x is 2^(1 - exponent) = 0.35 times that above x.
    let above = |x: usize| skewed.iter().filter(|&&degree| degree > x).count() as f64;
    let ratio = above(60) / above(30);
    assert!((0.2..0.5).contains(&ratio), "{ratio}");
}

/// Test accuracy of a nearest-centre classifier that knows the training vertices' rows.
fn nearest_centre(rows: &[Vec<f32>], labels: &[i32], train: &[u32], test: &[u32]) -> f64 {
    let classes = *labels.iter().max().unwrap() as usize + 1;
    let mut centres = vec![vec![0f32; rows[0].len()]; classes];
    let mut counts = vec![0f32; classes];
    for &v in train {
        let class = labels[v as usize] as usize;
        counts[class] += 1.0;
        centres[class].iter_mut().zip(&rows[v as usize]).for_each(|(sum, value)| *sum += value);
    }
    for (centre, count) in centres.iter_mut().zip(counts) {
        centre.iter_mut().for_each(|value| *value /= count);
    }
    let right = test.iter().filter(|&&v| {
        let distance = |centre: &[f32]| {
            rows[v as usize].iter().zip(centre).map(|(a, b)| (a - b).powi(2)).sum::<f32>()
        };
        let best =
            (0..classes).min_by(|&a, &b| distance(&centres[a]).total_cmp(&distance(&centres[b])));
        best == Some(labels[v as usize] as usize)
    });
    right.count() as f64 / test.len() as f64
}

/// The mean of every vertex's row and its in-neighbours'.
fn averaged(topology: &Topology, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mean = |v: u32| {
        let mut sum = rows[v as usize].clone();
        for &u in topology.in_neighbours(v) {
            sum.iter_mut().zip(&rows[u as usize]).for_each(|(sum, value)| *sum += value);
        }
        let count = 1.0 + topology.in_neighbours(v).len() as f32;
        sum.iter_mut().for_each(|value| *value /= count);
        sum
    };
    (0..rows.len() as u32).map(mean).collect()
}

#[test]
fn community_features_need_the_neighbours() {
    let (_folder, dataset) = made(&community("--vertices 8000 --edges 80000"));
    let (features, labels) = (dataset.features().unwrap(), dataset.labels().unwrap());
    let (train, test) = (dataset.split(Split::Train).unwrap(), dataset.split(Split::Test).unwrap());
    let own: Vec<Vec<f32>> = (0..8000).map(|v| features.row::<f32>(v).to_vec()).collect();
    let two_hops = averaged(dataset.topology(), &averaged(dataset.topology(), &own));
    let accuracy = |rows: &[Vec<f32>]| nearest_centre(rows, &labels, &train, &test);
    let (alone, together) = (accuracy(&own), accuracy(&two_hops));
    assert!(
        (0.4..0.75).contains(&alone) && together > 0.93,
        "{alone} alone, {together} with two hops"
    );
    let square =
        own.iter().flatten().map(|&value| f64::from(value).powi(2)).sum::<f64>() / (8000.0 * 64.0);
    assert!((square - 1.0).abs() < 0.15, "{square}");
}

#[test]
fn label_noise_changes_its_share_of_the_labels() {
    let labels = |noise: &str| {
        let (_folder, dataset) = made(&community(&format!(
            "--vertices 5000 --edges 9 --classes 5 --label-noise {noise}"
        )));
        dataset.labels().unwrap().to_vec()
    };
    let (pure, noisy) = (labels("0"), labels("0.3"));
    let changed = pure.iter().zip(&noisy).filter(|(a, b)| a != b).count() as f64 / 5000.0;
    // One in five drawn labels is the old one.
    assert!((changed - 0.24).abs() < 0.03, "{changed}");
    assert!((0..5).all(|class| pure.iter().filter(|&&label| label == class).count() == 1000));
}

#[test]
fn finished_datasets_are_reused_and_others_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("g");
    let run =
        |generator: &Generator, out: &Path, force| generate(generator, out, force, &NoProgress);
    let wanted = community("--vertices 300 --edges 900 --mixing 0.3 --noise 0.1");
    assert!(!run(&wanted, &out, false).unwrap().1);
    assert!(run(&wanted, &out, false).unwrap().1);
    assert!(!run(&wanted, &out, true).unwrap().1);
    for other in [
        community("--vertices 300 --edges 901 --mixing 0.3 --noise 0.1"),
        rmat("--vertices 300 --edges 900"),
    ] {
        let error = run(&other, &out, false).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
    }
    let (dataset, _) = run(&rmat("--vertices 30 --edges 90"), &out, true).unwrap();
    let made = &dataset.manifest().provenance;
    assert_eq!((made.command.as_str(), &made.options["vertices"]), ("generate rmat", &30.into()));
    assert_eq!(made.options["random_split"], "0.1,0.05,0.05");

    let notes = folder.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    for force in [false, true] {
        assert!(run(&wanted, &notes, force).is_err());
    }
    assert!(notes.exists());
}

#[test]
fn bad_options_are_named() {
    for (line, option) in [
        ("--classes 11", "--classes"),
        ("--classes 1", "--classes"),
        ("--classes 2 --exponent 2", "--exponent"),
        ("--classes 2 --mixing 1.5", "--mixing"),
        ("--classes 2 --mixing NaN", "--mixing"),
        ("--classes 2 --noise=-1", "--noise"),
        ("--classes 2 --label-noise 2", "--label-noise"),
        ("--classes 2 --feature-dim 0", "--feature-dim"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let wrong = community(&format!("--vertices 10 --edges 10 {line}"));
        let error = generate(&wrong, &folder.path().join("deep/g"), false, &NoProgress)
            .unwrap_err()
            .to_string();
        assert!(error.contains(option), "{line}: {error}");
        assert!(!folder.path().join("deep").exists(), "{line}: checked before anything is written");
    }
    let folder = tempfile::tempdir().unwrap();
    let huge = generate(
        &rmat("--vertices 10 --edges 4611686018427387903"),
        &folder.path().join("g"),
        false,
        &NoProgress,
    );
    assert!(huge.unwrap_err().to_string().contains("--edges"));
}
