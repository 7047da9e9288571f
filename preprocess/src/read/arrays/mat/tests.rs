use gsplit_store::{NoProgress, Notes};

use super::*;
use crate::read::golden::{Part::*, *};

fn read(path: &Path) -> Result<Raw> {
    open(path, &ArrayOptions::default(), &NoProgress)
}

#[test]
fn golden_inputs() {
    let (path, notes) = (data("mat/v7.mat"), Notes::default());
    assert!(recognises(&path, &std::fs::read(&path).unwrap()));
    let raw = open(&path, &ArrayOptions { split: Some("1"), ..Default::default() }, &notes).unwrap();
    check(&raw, &[Vertices, Features, Labels, Splits]);
    assert_eq!(raw.class_names.unwrap(), ["1", "2", "3"]);
    let notes = notes.lines().join("\n");
    assert!(notes.contains("Label counts from 1 to 3; classes are numbered 0 to 2, and keep"), "{notes}");
    assert!(notes.contains("not read: title") && !notes.contains("masks"), "{notes}");
    let notes = Notes::default();
    assert_eq!(
        open(&path, &ArrayOptions::default(), &notes).unwrap().splits,
        Some(Default::default()),
        "mask 0 is empty"
    );
    assert!(
        notes
            .lines()
            .join("\n")
            .contains("has 2 masks for each split; --split-name 0 is taken, the last is --split-name 1")
    );

    let (raw, notes) = (data("mat/v6.mat"), Notes::default());
    let raw = open(&raw, &ArrayOptions::default(), &notes).unwrap();
    check(&raw, &[Vertices, Features, Labels]);
    for (edge, weight) in std::iter::zip(&read_edges(&*raw.edges).unwrap().0, f64s(&read_edges(&*raw.edges).unwrap().1))
    {
        assert_eq!(EDGES[(weight * 2.0) as usize], *edge);
    }
    let notes = notes.lines().join("\n");
    assert!(notes.contains("Problem.Y has at most one 1 in a row, which is the class"), "{notes}");
    assert!(notes.contains("not read: Problem.aux.name"), "{notes}");
}

#[test]
fn dense_networks_and_sets_of_classes() {
    let notes = Notes::default();
    let raw = open(&data("mat/dense.mat"), &ArrayOptions::default(), &notes).unwrap();
    let mut edges = read_edges(&*raw.edges).unwrap().0;
    edges.sort();
    let mut expected = EDGES[..9].to_vec();
    expected.sort();
    assert_eq!((edges, raw.edges.columns()), (expected, &[][..]));
    assert!(notes.lines()[0].contains("the weights in adj are not read; write it as a sparse matrix, sparse(adj)"));
    let labels = raw.labels.unwrap();
    let expected: Vec<f64> = (0..24).map(|at| f64::from(at % 2)).collect();
    assert_eq!((labels.width(), numbers(&*labels)), (4, expected));
}

/// A matrix of a class, its dimensions and the parts after its name.
fn variable(name: &str, class: u8, dims: [u32; 2], parts: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let part = |kind: u32, data: &[u8]| {
        let padding = vec![0; data.len().next_multiple_of(8) - data.len()];
        [&kind.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data, &padding].concat()
    };
    let dims = dims.map(u32::to_le_bytes).concat();
    let mut content = [part(6, &[class, 0, 0, 0, 0, 0, 0, 0]), part(5, &dims), part(1, name.as_bytes())].concat();
    parts.iter().for_each(|(kind, data)| content.extend(part(*kind, data)));
    part(14, &content)
}

fn file(folder: &tempfile::TempDir, variables: &[Vec<u8>]) -> std::path::PathBuf {
    let path = folder.path().join("x.mat");
    let header = [format!("{:124}", "MATLAB 5.0 MAT-file").as_bytes(), &[0, 1], b"IM"].concat();
    std::fs::write(&path, [header, variables.concat()].concat()).unwrap();
    path
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn what_is_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let network =
        |name| variable(name, 5, [2, 2], &[(5, words(&[1, 0, 9])), (5, words(&[0, 1, 2])), (2, vec![1, 1, 1])]);
    let told = |variables: &[Vec<u8>]| problem(read(&file(&folder, variables)));
    // Room for three entries, of which two are there; the only square matrix, whatever its name.
    let raw = read(&file(&folder, &[network("PAP")])).unwrap();
    assert_eq!(read_edges(&*raw.edges).unwrap(), (vec![(1, 0), (0, 1)], vec![]));
    let message = told(&[network("PAP"), network("PLP")]);
    assert!(message.contains("called network, adj or A") && message.contains("PAP (2 x 2, sparse), PLP"), "{message}");
    let message = told(&[network("A"), variable("X", 6, [3, 1], &[(2, vec![1, 2, 3])])]);
    assert!(message.contains("X (3 x 1, numbers): expected a row for each of 2 vertices"), "{message}");
    let message = told(&[network("A"), variable("y", 6, [2, 1], &[(7, [1.5f32, 0.0].map(f32::to_le_bytes).concat())])]);
    assert!(message.contains("y, row 1: 1.5, expected whole numbers of classes"), "{message}");
    // What is claimed without bytes costs nothing.
    let message = told(&[variable("A", 6, [u32::MAX, u32::MAX], &[(2, vec![1; 4])])]);
    assert!(message.contains("A: shape [4294967295, 4294967295] of |u1 in 4 bytes: truncated or damaged"), "{message}");
    let message = told(&[variable("A", 5, [2, 2], &[(5, words(&[1, 0])), (5, words(&[0, 1, 5])), (2, vec![1, 1])])]);
    assert!(message.contains("A: room for 2 of 5 entries"), "{message}");
    let message = told(&[variable("A", 5, [2, 2], &[(5, words(&[1, 7])), (5, words(&[0, 1, 2])), (2, vec![1, 1])])]);
    assert!(message.contains("expected ids below the number of vertices, 2"), "{message}");
    let mut deep = variable("f", 6, [1, 1], &[(2, vec![1])]);
    for _ in 0..20 {
        deep = variable("s", 2, [1, 1], &[(5, words(&[2])), (1, b"s\0".to_vec()), (14, deep[8..].to_vec())]);
    }
    assert!(told(&[deep]).contains("4096 variables at most, 8 in each other"));

    let path = folder.path().join("x.mat");
    for (bytes, words) in [
        (
            &b"MATLAB 7.3 MAT-file, Platform: GLNXA64"[..],
            "a file of save -v7.3, which is HDF5: write it again with save -v7",
        ),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (&[&[b' '; 124][..], &[1, 0], b"MI"].concat(), "big-endian"),
        (b"\0\0\0\0\x02\0\0\0", "of save -v4: write it again with save -v7"),
        (&[&[b' '; 124][..], &[0, 1], b"IM", &[15, 0, 0, 0, 255, 255, 255, 255]].concat(), "it ends early"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let message = problem(read(&path));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.mat");
    for name in ["mat/v7.mat", "mat/v6.mat", "mat/dense.mat"] {
        let good = std::fs::read(data(name)).unwrap();
        let expected = read_edges(&*read(&data(name)).unwrap().edges).unwrap();
        for at in 0..good.len() {
            std::fs::write(&path, &good[..at]).unwrap();
            if at == 0 || at > 128 {
                // Between two variables a cut leaves a sound file of fewer.
                let _ = read(&path).map(|raw| assert_eq!(read_edges(&*raw.edges).unwrap(), expected));
            }
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            let Ok(raw) = read(&path) else { continue };
            for column in raw.features.iter().chain(&raw.labels) {
                let _ = read_column(&**column);
            }
            let found = read_edges(&*raw.edges);
            // Compressed variables have a checksum.
            assert!(name != "mat/v7.mat" || found.unwrap() == expected, "byte {at}");
        }
    }
}
