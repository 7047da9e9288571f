//! Folders as they are downloaded: the graph in them is found, or asked for. Other programs' files
//! are refused.

use std::fs;

use super::*;
use crate::read::detect::detect;
use crate::read::options::TextOptions;

/// Names of files and their contents.
type Files<'a> = &'a [(&'a str, &'a str)];

fn unpack(folder: &Path, files: Files<'_>) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Edges and first decision of the conversion of `input` in `folder`, or `error: ` and its line.
fn converted(folder: &Path, input: &str) -> String {
    let (path, out) = (folder.join(input), folder.join("ds"));
    match convert(&path, &out, &ConvertOptions::default(), true, &NoProgress) {
        Ok((dataset, _)) => {
            let topology = dataset.topology();
            let edges = (0..dataset.num_vertices() as u32)
                .flat_map(|v| topology.in_neighbours(v).iter().map(move |u| format!("{u}>{v}")));
            let edges = edges.collect::<Vec<_>>().join(" ");
            let decision =
                dataset.manifest().provenance.decisions.first().cloned().unwrap_or_default();
            fs::remove_dir_all(&out).unwrap();
            format!("{edges}; {}", decision.replace(&format!("{}/", folder.display()), ""))
        }
        Err(error) => {
            format!("error: {}", error.to_string().replace(&format!("{}/", folder.display()), ""))
        }
    }
}

const PATTERN: &str = "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n";
const VECTOR: &str = "%%MatrixMarket matrix array real general\n2 1\n0.5\n0.5\n";

#[test]
fn the_graph_is_found_in_folders() {
    let suitesparse: Files<'_> = &[
        ("net/net.mtx", PATTERN),
        ("net/net_coord.mtx", VECTOR),
        ("net/net_b.mtx", VECTOR),
        ("net/README.txt", "a\n"),
    ];
    let konect: Files<'_> = &[
        ("wiki/out.wiki", "% asym unweighted\n% 1 2 2\n1 2\n"),
        ("wiki/meta.wiki", "name: Wiki\n"),
        ("wiki/README.wiki", "1 2\n"),
        ("wiki/ent.wiki.person", "1 2\n3 4\n"),
    ];
    let one: Files<'_> = &[
        ("edges.csv", "src,dst\n1,2\n"),
        ("LICENSE.txt", "1 2\n"),
        ("notes.txt", "Some text\nof it here\n"),
    ];
    let parts: Files<'_> = &[("part-0.csv", "src,dst\n1,2\n"), ("part-1.csv", "src,dst\n2,1\n")];
    let mac: Files<'_> =
        &[("__MACOSX/._a.txt", "1 2\n"), ("a.txt", "0 1\n"), (".DS_Store", "0 1\n")];
    // mt-kahypar's graph_empty_lines.graph: the third vertex has no line.
    let metis: Files<'_> = &[("a.graph", "3 1\n2\n1\n")];
    for (files, expected) in [
        (metis, "1>0 0>1; x/a.graph: found METIS graph file (metis)"),
        (suitesparse, "0>1; x/net/net.mtx: found Matrix Market coordinate file (mtx)"),
        (konect, "0>1; x/wiki/out.wiki: found edge list as of SNAP (snap)"),
        (one, "0>1; x/edges.csv: found table of edges in text, e.g. CSV or TSV (csv)"),
        (parts, "1>0 0>1; x: found table of edges in text, e.g. CSV or TSV (csv)"),
        (mac, "0>1; x/a.txt: found edge list as of SNAP (snap)"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        unpack(&folder.path().join("x"), files);
        assert_eq!(converted(folder.path(), "x"), expected);
    }
}

#[test]
fn several_that_could_be_it_are_a_question() {
    for (files, expected) in [
        (
            &[
                ("x/a.txt", "1 2\n"),
                ("x/b.txt", "2 3\n3 4\n"),
                ("x/c/edges.txt", "0 1\n"),
                ("README", "x"),
            ][..],
            "error: x/x: 3 files could be the graph, a.txt, b.txt, c/edges.txt: name one of them \
             as the input",
        ),
        (
            &[("a.txt", "x\ny z\n"), ("b.txt", "x\ny z\n")],
            "error: x: a folder without files of a known format",
        ),
        (&[("d/a.txt", "1 2\n3 x\n")], "error: x/d/a.txt, line 2: expected a vertex id"),
        (
            &[("metadata.yaml", "graph:\n"), ("edges/edges.csv", "0,1\n")],
            "error: x: not a format that gsplit reads",
        ),
        (
            &[("MUTAG_A.txt", "1, 2\n2, 1\n"), ("MUTAG_graph_indicator.txt", "1\n1\n")],
            "error: x: many small graphs in one file (TUDataset): gsplit reads one graph; to take",
        ),
        (
            &[("adjM.npz", "x"), ("node_types.npy", "x"), ("labels.npy", "x")],
            "error: x: vertices of several types (node_types.npy)",
        ),
        (
            &[("processed/train_hrt.npy", "x"), ("processed/val_hr.npy", "x")],
            "error: x: a knowledge graph",
        ),
        (
            &[("a/raw/edge.csv", "0,1\n"), ("b/raw/edge.csv", "0,1\n")],
            "error: x: holds folders of OGB: pass one of them, x/a, x/b",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        unpack(&folder.path().join("x"), files);
        let found = converted(folder.path(), "x");
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn inputs_next_to_the_right_one_name_it() {
    let folder = tempfile::tempdir().unwrap();
    unpack(
        folder.path(),
        &[
            ("ogbn_arxiv/raw/edge.csv", "0,1\n"),
            ("cr.csv", "src,dst\r1,2\r2,3\r"),
            ("utf-16", "1\x00 \x002\x00\n\x00"),
            ("train2id.txt", "2\n0 1 0\n1 2 0\n"),
            ("data.json", "{\"features\": [[0.5]], \"links\": [[0]]}"),
            ("TU/X_A.txt", "1, 2\n"),
            ("TU/X_graph_indicator.txt", "1\n1\n"),
        ],
    );
    for (input, expected) in [
        ("ogbn_arxiv/raw", "a part of OGB's folder: pass ogbn_arxiv"),
        (
            "cr.csv",
            "lines end in CR, as on old Macs: expected LF: `tr '\\r' '\\n' < cr.csv > lf-cr.csv`",
        ),
        ("utf-16", "text in UTF-16LE: expected UTF-8: `iconv -f UTF-16LE -t UTF-8 utf-16"),
        (
            "train2id.txt",
            "line 1 counts the lines below, which have 3 numbers each: begin it with #",
        ),
        ("data.json", "not a format that gsplit reads: see docs/formats.md, name the format"),
        ("TU/X_A.txt", "many small graphs"),
    ] {
        let found = converted(folder.path(), input);
        let expected = format!("error: {input}: {expected}");
        assert!(found.starts_with(&expected) && found.lines().count() == 1, "{found}");
    }
}

#[test]
fn tables_of_vertices_have_any_name_and_a_header() {
    let folder = tempfile::tempdir().unwrap();
    unpack(
        folder.path(),
        &[
            ("cora.cites", "1\t2\n"),
            ("cora.content", "1 0 1 A\n2 1 0 B\n"),
            ("out1.txt", "node_id\tfeature\tlabel\n1\t0,1,1\t0\n2\t1,0,1\t1\n"),
        ],
    );
    let with = |nodes: &str| {
        let words = format!("--nodes {}", folder.path().join(nodes).display());
        let (notes, out) = (Notes::default(), tempfile::tempdir().unwrap());
        let (edges, out) = (folder.path().join("cora.cites"), out.path().join("ds"));
        let made = convert(&edges, &out, &options(&words), false, &notes);
        made.map(|(dataset, _)| (labels(&dataset), notes.lines().join("\n")))
    };
    let found = with("cora.content").unwrap_err().to_string();
    let expected = "cora.content, line 1: expected a header line with the names of the columns, \
                    found numbers: write one above it, 4 names such as id and label";
    assert!(found.contains(expected), "{found}");
    let (labels, notes) = with("out1.txt").unwrap();
    assert_eq!(labels, [0, 1]);
    assert!(notes.contains("`feature` holds lists of numbers in text, e.g. `0,1,1`"), "{notes}");
}

#[test]
fn files_of_other_programs_are_refused_in_one_line() {
    let mut tar = [vec![0; 512], vec![b'x'; 512]].concat();
    tar[..5].copy_from_slice(b"a.txt");
    tar[257..262].copy_from_slice(b"ustar");
    let (gz, zst) =
        (gz(std::str::from_utf8(&tar).unwrap()), zstd::encode_all(&tar[..], 1).unwrap());
    let matlab = [format!("{:124}", "MATLAB 5.0 MAT-file").as_bytes(), &[0, 1], b"IM"].concat();
    for (name, content) in [
        ("a.tar", &tar[..]),
        ("a.tar.gz", &gz),
        ("a.tar.zst", &zst),
        ("a.zip", b"PK\x03\x04\x14\0"),
        ("a.mat", &matlab),
        ("a.sg", &[1, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0]),
        ("a.adj", b"AdjacencyGraph\n2\n1\n0\n1\n1\n"),
        ("a.xml", b"<?xml version=\"1.0\"?>\n<graphml xmlns=\"x\">\n"),
        ("a.gexf", b"<gexf version=\"1.2\">"),
        ("a.gml", b"Creator \"x\"\ngraph\n[\n  directed 0\n"),
        ("b.txt", b"graph [ node [ id 0 ] ]\n"),
        ("a.net", b"*Vertices 2\n1 \"a\"\n2 \"b\"\n"),
        ("a.json", b"{\"nodes\": [], \"links\": []}"),
        ("a.txt", b"[[0, 1],\n[1, 2]]\n"),
        ("b.json", b"[{\"source\": 0}]"),
        ("c.csv", b"{\"a\": 1, \"b\": 2}\n{\"a\": 1, \"b\": 2}\n"),
        ("a.h5", b"\x89HDF\r\n\x1a\n\0"),
        ("a.db", b"SQLite format 3\0"),
        ("a.rds", b"X\n\0\0\0\x03"),
        ("a.ttl", b"@prefix a: <http://a/> .\na:b a:c a:d .\n"),
        ("a.nt", b"<a> <b> <c> .\n<a> <b> <c> <d> .\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), content).unwrap();
        let found = converted(folder.path(), name);
        let expected =
            format!("error: {name}: not a format that gsplit reads: see docs/formats.md, ");
        assert!(found.starts_with(&expected) && found.lines().count() == 1, "{found}");
    }
    // Their names decide nothing.
    for (name, content) in
        [("a.net", "1 2\n2 3\n"), ("a.json", "1 2\n"), ("a.nt", "<a> <b> <c> .\n<d> <b> <c> .\n")]
    {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), content).unwrap();
        detect(&folder.path().join(name), TextOptions::default()).unwrap();
    }
}
