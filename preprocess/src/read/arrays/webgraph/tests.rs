use std::io::Read;

use flate2::read::MultiGzDecoder;
use gsplit_store::{NoProgress, Notes};

use super::*;
use crate::read::golden::*;

fn read(path: &Path) -> Result<Raw> {
    open(path, &Schema::default(), &NoProgress)
}

/// cnr-2000 in a folder of its own, with its offsets or without.
fn cnr(with_offsets: bool) -> Option<tempfile::TempDir> {
    let from = real("bv-cnr-2000-java")?;
    let folder = tempfile::tempdir().unwrap();
    for end in ["graph", "properties", "offsets"] {
        if end != "offsets" || with_offsets {
            let bytes = std::fs::read(from.join(format!("cnr-2000.{end}"))).unwrap();
            std::fs::write(folder.path().join(format!("cnr-2000.{end}")), bytes).unwrap();
        }
    }
    Some(folder)
}

#[test]
fn oracle_the_same_arcs_as_in_text() {
    let Some(path) = real("bv-cnr-2000-java/cnr-2000.graph-txt.gz") else { return };
    let mut text = String::new();
    MultiGzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("325557"));
    let expected: Vec<(u64, u64)> = (0..)
        .zip(lines)
        .flat_map(|(u, line)| line.split_ascii_whitespace().map(move |v| (u, v.parse().unwrap())))
        .collect();
    assert_eq!(expected.len(), 3_216_152);
    for with_offsets in [true, false] {
        let folder = cnr(with_offsets).unwrap();
        for name in ["cnr-2000.graph", "cnr-2000", ""] {
            let path = folder.path().join(name);
            assert!(recognises(&path, &[]));
            let raw = read(&path).unwrap();
            assert_eq!(
                (raw.files.len(), raw.ids),
                (2 + usize::from(with_offsets), Ids::Dense(Some(325_557)))
            );
            // All names are of the same files.
            if name.is_empty() {
                assert!(read_edges(&*raw.edges).unwrap().0 == expected, "offsets: {with_offsets}");
            }
        }
    }
}

#[test]
fn a_folder_names_its_only_graph() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let told = |path: &Path| problem(read(path));
    assert!(
        !recognises(path, &[])
            && told(path).contains("expected NAME.graph next to NAME.properties")
    );
    for name in ["a.graph", "a.properties", "a.graph-txt.gz", "b.graph", "b.labels"] {
        std::fs::write(path.join(name), "").unwrap();
    }
    // The graph is opened: the error concerns its properties.
    assert!(recognises(path, &[]) && told(path).contains("a.properties"), "{}", told(path));
    std::fs::write(path.join("b.properties"), "").unwrap();
    let line = told(path);
    assert!(
        recognises(path, &[]) && line.contains("several BVGraphs: name the .graph file of one"),
        "{line}"
    );
}

#[test]
fn damage_is_an_error_or_other_arcs_but_no_panic() {
    for with_offsets in [true, false] {
        let Some(folder) = cnr(with_offsets) else { return };
        let path = folder.path().join("cnr-2000.graph");
        let good = std::fs::read(&path).unwrap();
        for length in [0, 40_000, good.len() - 1] {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(problem(read(&path)).contains("cnr-2000.graph"));
        }
        let mut state = 11u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for round in 0..5 {
            let mut bytes = good.clone();
            for _ in 0..1 + round % 5 {
                let (at, bit) = (random(good.len()), random(8));
                bytes[at] ^= 1 << bit;
            }
            std::fs::write(&path, &bytes).unwrap();
            let _ = read(&path).and_then(|raw| read_edges(&*raw.edges));
        }
    }
}

#[test]
fn bad_properties() {
    let table: &[(&str, &str, &[&str])] = &[
        ("nodes=325557", "", &["expected a line nodes=NUMBER"]),
        ("nodes=325557", "nodes=many", &["nodes=many: expected a number"]),
        (
            "nodes=325557",
            "nodes=1152921504606846976",
            &["expected a number from 0 to 1099511627776"],
        ),
        (
            "nodes=325557",
            "nodes=900000000000",
            &["1430488 bytes for the records of 900000000000 nodes"],
        ),
        ("nodes=325557", "nodes=325556", &["a successor above the number of nodes"]),
        ("nodes=325557", "nodes=325559", &["record of node 32555"]),
        (
            "arcs=3216152",
            "arcs=3216151",
            &["cnr-2000.properties", "promises 3216151 arcs, the graph has 3216152"],
        ),
        ("zetak=3", "zetak=0", &["expected a number from 1 to 31"]),
        ("windowsize=7", "windowsize=99999999", &["from 0 to 65536"]),
        ("windowsize=7", "windowsize=0", &["record of node"]),
        ("BVGraph\n", "EFGraph\n", &["graphclass=it.unimi.dsi.webgraph.EFGraph: expected BVGraph"]),
        ("version=0", "endianness=little", &["endianness=little: expected big"]),
        (
            "compressionflags=",
            "compressionflags=RESIDUALS_NIBBLE",
            &["RESIDUALS_NIBBLE is not read"],
        ),
        ("maxrefcount=3", "maxrefcount=0", &["than maxrefcount"]),
    ];
    let Some(folder) = cnr(true) else { return };
    let path = folder.path().join("cnr-2000.properties");
    let good = std::fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
    for (from, to, parts) in table {
        assert!(good.contains(from), "{from}");
        std::fs::write(&path, good.replace(from, to)).unwrap();
        refused(read(&path), to, parts);
    }
    std::fs::write(&path, good.replace("maxrefcount=3", "maxrefcount=-1")).unwrap();
    let notes = Notes::default();
    open(&path, &Schema::default(), &notes).unwrap();
    assert!(notes.lines()[0].contains("references without a bound, so one thread"));
}
