//! Tests of generated features.

use gsplit_store::{FeatureDtype, FeatureTable, NoProgress};

use super::*;

/// Two cliques of eight, one edge between them, and two isolated vertices at the end.
fn cliques() -> (Vec<u64>, Vec<u32>) {
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    for v in 0..18u32 {
        let clique = (v / 8 * 8..v / 8 * 8 + 8).filter(|&u| v < 16 && u != v);
        indices.extend(clique.chain((v == 15).then_some(0)));
        indices[*indptr.last().unwrap() as usize..].sort_unstable();
        indptr.push(indices.len() as u64);
    }
    (indptr, indices)
}

fn rows(
    features: &str,
    indptr: &[u64],
    indices: &[u32],
    seed: u64,
    threads: usize,
) -> Vec<Vec<f32>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feat.arrow");
    let features: GeneratedFeatures = features.parse().unwrap();
    let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, features.dim()).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| features.generate_rows(indptr, indices, seed, &mut writer, &NoProgress))
        .unwrap();
    writer.finish().unwrap();
    let table = FeatureTable::open(&path).unwrap();
    (0..table.num_rows() as u32).map(|v| table.row::<f32>(v).to_vec()).collect()
}

/// A ring with chords of many lengths, long enough for several chunks.
fn ring(n: u32) -> (Vec<u64>, Vec<u32>) {
    let indptr = (0..=u64::from(n)).map(|v| 3 * v).collect();
    let indices =
        (0..n).flat_map(|v| [1, 2 + v % 7, 100 + v % 50].map(|step| (v + step) % n)).collect();
    (indptr, indices)
}

#[test]
fn rows_depend_on_seed_but_not_on_threads() {
    let (indptr, indices) = ring(20_000);
    for features in ["random:5", "fastrp:6"] {
        let one = rows(features, &indptr, &indices, 3, 1);
        assert_eq!(one.len(), 20_000);
        assert!(one == rows(features, &indptr, &indices, 3, 2), "{features}");
        assert!(one == rows(features, &indptr, &indices, 3, 4), "{features}");
        assert!(one != rows(features, &indptr, &indices, 4, 1), "{features}");
    }
}

#[test]
fn columns_have_mean_0_and_variance_1() {
    let (indptr, indices) = ring(20_000);
    for features in ["random:5", "fastrp:6"] {
        let rows = rows(features, &indptr, &indices, 0, 2);
        for column in 0..rows[0].len() {
            let values = rows.iter().map(|row| f64::from(row[column]));
            let mean = values.clone().sum::<f64>() / 20_000.0;
            let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / 20_000.0;
            assert!(
                mean.abs() < 0.04 && (variance - 1.0).abs() < 0.05,
                "{features}: mean {mean}, variance {variance}"
            );
        }
    }
}

#[test]
fn fastrp_tells_surroundings_apart_and_survives_isolated_vertices() {
    let (indptr, indices) = cliques();
    for seed in 0..5 {
        let rows = rows("fastrp:64", &indptr, &indices, seed, 2);
        assert!(rows.iter().flatten().all(|value| value.is_finite()), "seed {seed}");
        let distance = |a: usize, b: usize| -> f32 {
            rows[a].iter().zip(&rows[b]).map(|(x, y)| (x - y).powi(2)).sum()
        };
        for (a, b) in [(1, 2), (3, 7), (9, 14)] {
            assert!(
                3.0 * distance(a, b) < distance(a, b ^ 8).min(distance(a ^ 8, b)),
                "seed {seed}: {a}, {b}"
            );
        }
        assert_eq!(rows[16], rows[17]);
    }
}

#[test]
fn graphs_without_edges_or_vertices() {
    assert_eq!(rows("fastrp:2", &[0, 0, 0], &[], 0, 1), vec![vec![0.0; 2]; 2]);
    assert!(rows("fastrp:2", &[0], &[], 0, 1).is_empty());
    assert!(rows("random:2", &[0], &[], 0, 1).is_empty());
}

#[test]
fn parses_prints_and_refuses() {
    for text in ["random:64", "fastrp:128", "random:1", "fastrp:65536"] {
        let features: GeneratedFeatures = text.parse().unwrap();
        assert_eq!(features.to_string(), text);
        assert_eq!(serde_json::to_string(&features).unwrap(), format!("\"{text}\""));
    }
    for text in ["", "random", "random:0", "fastrp:65537", "fastrp:-1", "node2vec:8", "random:64:1"]
    {
        let error = text.parse::<GeneratedFeatures>().unwrap_err().to_string();
        assert!(
            error.contains(&format!("got `{text}`")) && error.contains("fastrp:128"),
            "{error}"
        );
    }
}
