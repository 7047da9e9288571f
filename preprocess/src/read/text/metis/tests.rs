use super::*;
use crate::read::golden::*;

fn read(path: &Path) -> Result<Raw> {
    open(path, &Schema::default(), false)
}

/// The golden graph in both directions, without loops and repetitions.
fn both_ways() -> Vec<(u64, u64)> {
    let pairs = EDGES.iter().filter(|(u, v)| u != v).flat_map(|&(u, v)| [(u, v), (v, u)]);
    pairs.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

#[test]
fn golden_inputs() {
    let plain = data("metis/plain.graph");
    assert!(recognises(&plain, &std::fs::read(&plain).unwrap()));
    assert!(
        !recognises(Path::new("x.graph"), b"\x00\x01") && !recognises(Path::new("x.txt"), b"2 1\n")
    );
    let raw = read(&plain).unwrap();
    assert_eq!(
        (read_edges(&*raw.edges).unwrap().0, raw.ids),
        (from_one(&both_ways()), Ids::FromOne(6))
    );
    let raw = read(&data("metis/weighted.graph")).unwrap();
    let (edges, values) = read_edges(&*raw.edges).unwrap();
    let weights: Vec<i64> = both_ways().iter().map(|&(u, v)| (u * v + 1) as i64).collect();
    assert_eq!((edges, values), (from_one(&both_ways()), i64s(&weights)));
    let columns: Vec<_> =
        raw.columns.iter().map(|c| (c.name(), c.width(), numbers(&**c))).collect();
    let size: Vec<f64> = (0..6).map(|v| f64::from(10 + v)).collect();
    let weight: Vec<f64> = (0..6).flat_map(|v| [f64::from(v), f64::from(2 * v)]).collect();
    assert_eq!(columns, [("vertex_size", 1, size), ("vertex_weight", 2, weight)]);
}

#[test]
fn vertices_keep_their_numbers_over_many_pieces() {
    // A cycle with comments here and there, long enough for several pieces.
    let n = 200_000u64;
    let mut text = format!("%\n{n} {n}\n");
    for v in 0..n {
        if v % 1000 == 7 {
            text += "% 1 2 3\n";
        }
        text += &format!("{} {}\n", (v + n - 1) % n + 1, (v + 1) % n + 1);
    }
    text += "\n\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.graph");
    std::fs::write(&path, &text).unwrap();
    assert!(text.len() > 2 * crate::edges::TEXT_PER_PIECE);
    let expected: Vec<(u64, u64)> =
        (0..n).flat_map(|v| [(v, (v + n - 1) % n), (v, (v + 1) % n)]).collect();
    assert!(read_edges(&*read(&path).unwrap().edges).unwrap().0 == from_one(&expected));
}

#[test]
fn bad_lines() {
    let table: &[(&str, &[&str])] = &[
        ("", &["found the end of the file"]),
        ("% x\n3\n", &["line 2", "expected `VERTICES EDGES", "found `3`"]),
        ("3 2 2\n", &["FORMAT of up to three digits"]),
        ("3 2 0011\n", &["FORMAT of up to three digits"]),
        ("3 2 10 0\n", &["with 1 to 1024 weights"]),
        ("3 2 10 99999999999\n", &["with 1 to 1024 weights"]),
        ("3 99999999999999999999\n", &["expected `VERTICES EDGES"]),
        ("2 1\n2\n3\n", &["line 3", "neighbour from 1 to 2, found `3`"]),
        ("2 1\n2\n0\n", &["line 3", "found `0`"]),
        ("2 1\n2\n-1\n", &["found `-1`"]),
        ("2 1\n2\n1\n\n1\n", &["line 5", "more lines than the 2 vertices"]),
        ("4 1\n2\n1\n", &["line 1", "promises 4 vertices, lines of 2 follow"]),
        ("3 1 10\n1 2\n1 1\n", &["line 1", "promises 3 vertices, lines of 2 follow"]),
        ("1152921504606846976 1\n2\n1\n", &["promises 1152921504606846976 vertices, lines of 2"]),
        (
            "2 2\n2\n1\n",
            &["line 1", "promises 2 edges, each listed at both ends; 2 neighbours follow"],
        ),
        ("2 1 1\n2 5\n1\n", &["line 3", "expected a weight behind"]),
        ("2 1 1\n2 5\n1 x\n", &["line 3", "expected a weight from 0", "found `x`"]),
        ("2 1 10\n7 2\n\n", &["line 3", "expected 1 numbers of the vertex"]),
        ("2 1 110 2\n7 2 x 2\n1 2 3 1\n", &["line 2", "expected vertex_weight from 0", "`x`"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.graph");
    for (text, parts) in table {
        std::fs::write(&path, text).unwrap();
        refused(read(&path), text, &[&["x.graph"], *parts].concat());
    }
}

#[test]
fn edges_at_one_end_alone_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.graph");
    // Two edges, by the header; four directed ones, two of which have no reverse.
    std::fs::write(&path, "4 2\n2 3\n1 4\n\n\n").unwrap();
    let message = problem(read(&path));
    let expected = "x.graph, line 1: edges are listed at only one end, METIS lists each at both: ";
    assert!(
        message.contains(expected)
            && message.contains(
                "pass --schema \
                                                            ignore-header=yes"
            ),
        "{message}"
    );
    let raw = open(&path, &Schema::default(), true).unwrap();
    assert_eq!(read_edges(&*raw.edges).unwrap().0, [(1, 2), (1, 3), (2, 1), (2, 4)]);
    let notes = raw.edges.finish(&Seen { edges: 4, ..Seen::default() }).unwrap().decisions;
    assert!(notes[0].ends_with("at both: entries are taken for directed edges"), "{notes:?}");
    // Loops are their own reverse, and edges that are listed twice are so at both ends.
    std::fs::write(&path, "2 3\n1 2 2 1\n1 1\n").unwrap();
    read_edges(&*read(&path).unwrap().edges).unwrap();
}

#[test]
fn real_meshes() {
    for (name, n, m) in [("4elt", 15_606, 45_878), ("wing", 62_032, 121_544)] {
        let Some(path) = real(&format!("metis-graphs/{name}.graph")) else { return };
        assert!(recognises(&path, &std::fs::read(&path).unwrap()[..4096]));
        let raw = read(&path).unwrap();
        let (mut edges, _) = read_edges(&*raw.edges).unwrap();
        assert_eq!((edges.len(), raw.ids), (2 * m, Ids::FromOne(n)));
        let mut mirrored: Vec<(u64, u64)> = edges.iter().map(|&(u, v)| (v, u)).collect();
        edges.sort();
        mirrored.sort();
        assert!(edges == mirrored);
    }
}
