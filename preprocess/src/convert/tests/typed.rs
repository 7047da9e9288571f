//! Graphs of several types of vertices.

use std::collections::BTreeMap;

use gsplit_kernels::StreamKey;
use gsplit_kernels::{Draws, Stream};
use gsplit_store::{Relation, verify};

use super::*;
use crate::read::golden::{i64s, npy};

/// A folder as OGB's of ogbn-mag: 3 authors, 4 papers with features, labels and years, and 2
/// institutions. `change` replaces texts of files.
fn mag(change: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let relation = |name: &str, edges: &'static str| {
        let lines = edges.lines().count();
        [
            (format!("raw/relations/{name}/edge.csv.gz"), edges.to_string()),
            (format!("raw/relations/{name}/num-edge-list.csv.gz"), format!("{lines}\n")),
        ]
    };
    let text = |name: &str, content: &str| (name.to_string(), content.to_string());
    let mut files = vec![
        text("raw/num-node-dict.csv.gz", "author,institution,paper\n3,2,4\n"),
        text(
            "raw/triplet-type-list.csv.gz",
            "author,affiliated_with,institution\nauthor,writes,paper\npaper,cites,paper\n",
        ),
        text("raw/node-feat/paper/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n"),
        text("raw/node-feat/paper/node_year.csv.gz", "2010\n2011\n2012\n2013\n"),
        text("raw/node-label/paper/node-label.csv.gz", "0\n1\n\n1\n"),
        text(
            "split/time/nodetype-has-split.csv.gz",
            "author,institution,paper\nFalse,False,True\n",
        ),
        text("split/time/paper/train.csv.gz", "0\n"),
        text("split/time/paper/valid.csv.gz", "1\n"),
        text("split/time/paper/test.csv.gz", "3\n"),
    ];
    files.extend(relation("author___affiliated_with___institution", "0,0\n1,0\n2,1\n"));
    files.extend(relation("author___writes___paper", "2,0\n0,0\n1,3\n2,3\n2,3\n"));
    files.extend(relation("paper___cites___paper", "3,0\n1,1\n0,2\n"));
    for (name, content) in files {
        let other = change.iter().find(|(of, _)| name.ends_with(of)).map(|(_, content)| *content);
        let path = folder.path().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, gz(other.unwrap_or(&content))).unwrap();
    }
    folder
}

/// The sources of each row of a vertex, by type and relation: `paper 0 author/writes/paper` has
/// authors 0 and 2.
pub fn rows(dataset: &Dataset) -> BTreeMap<String, Vec<u64>> {
    let (types, topology) = (dataset.types().unwrap(), dataset.topology());
    let (starts, mut row, mut found) = (types.rows(), 0, BTreeMap::new());
    for (at, of) in types.vertices.iter().enumerate() {
        for v in 0..of.count {
            for place in types.into_type(at) {
                let relation = &types.relations[place];
                let first = starts[types.position(&relation.source).unwrap()].vertices.start;
                let ends = &topology.rows().unwrap()[row..row + 2];
                let sources = topology.indices()[ends[0] as usize..ends[1] as usize].iter();
                let sources: Vec<u64> = sources.map(|&u| u64::from(u) - first).collect();
                found.insert(format!("{} {v} {relation}", of.name), sources);
                row += 1;
            }
        }
    }
    assert_eq!(row + 1, topology.rows().unwrap().len());
    found.retain(|_, sources| !sources.is_empty());
    found
}

#[test]
fn ogbn_mag_keeps_its_types_and_relations() {
    let folder = mag(&[]);
    let (kept, dataset) = convert_new(folder.path(), &ConvertOptions::default()).unwrap();
    assert!(verify(dataset.path()).unwrap().iter().all(|finding| finding.problem.is_none()));
    let expected = [
        ("institution 0 author/affiliated_with/institution", vec![0, 1]),
        ("institution 1 author/affiliated_with/institution", vec![2]),
        ("paper 0 author/writes/paper", vec![0, 2]),
        ("paper 0 paper/cites/paper", vec![3]),
        ("paper 1 paper/cites/paper", vec![1]),
        ("paper 2 paper/cites/paper", vec![0]),
        ("paper 3 author/writes/paper", vec![1, 2]),
    ];
    let as_map = |rows: &[(&str, Vec<u64>)]| -> BTreeMap<String, Vec<u64>> {
        rows.iter().map(|(name, sources)| (name.to_string(), sources.clone())).collect()
    };
    assert_eq!(rows(&dataset), as_map(&expected));
    // All in-neighbours of paper 0, which is vertex 5.
    assert_eq!((dataset.num_vertices(), dataset.topology().in_neighbours(5)), (9, &[0, 2, 8][..]));
    assert_eq!(dataset.labels().unwrap()[..], [-1, -1, -1, -1, -1, 0, 1, -1, 1]);
    let splits = Split::ALL.map(|split| dataset.split(split).unwrap().to_vec());
    assert_eq!(splits, [vec![5], vec![6], vec![8]]);
    let year = fs::read(kept.path().join("ds/nodes/year.npy")).unwrap();
    let year: Vec<i64> =
        year[128..].as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect();
    assert_eq!(year, [0, 0, 0, 0, 0, 2010, 2011, 2012, 2013]);
    let [none, papers] = [0, 2].map(|at| dataset.features_of(at).unwrap());
    let papers = papers.unwrap();
    assert_eq!(papers.row::<f32>(3), [7.0, 8.0]);
    assert!(none.is_none() && dataset.features().is_err());

    // Reverses between types are relations of their own; those within one are edges of it.
    let both = options("--symmetrise --drop-self-loops");
    let (_kept, dataset) = convert_new(folder.path(), &both).unwrap();
    let names: Vec<String> =
        dataset.types().unwrap().relations.iter().map(Relation::to_string).collect();
    assert_eq!(
        names[..3],
        [
            "author/affiliated_with/institution",
            "author/writes/paper",
            "institution/rev_affiliated_with/author"
        ]
    );
    assert_eq!(names[3..], ["paper/cites/paper", "paper/rev_writes/author"]);
    let mut expected: Vec<_> = expected.into_iter().filter(|(_, of)| *of != [1]).collect();
    expected.extend([
        ("author 0 institution/rev_affiliated_with/author", vec![0]),
        ("author 1 institution/rev_affiliated_with/author", vec![0]),
        ("author 2 institution/rev_affiliated_with/author", vec![1]),
        ("author 0 paper/rev_writes/author", vec![0]),
        ("author 1 paper/rev_writes/author", vec![3]),
        ("author 2 paper/rev_writes/author", vec![0, 3]),
        ("paper 0 paper/cites/paper", vec![2, 3]),
        ("paper 3 paper/cites/paper", vec![0]),
    ]);
    assert_eq!(rows(&dataset), as_map(&expected));
    let facts = &dataset.manifest().provenance.facts;
    let count = |fact: &str| facts[fact];
    // 3, 5 and 3 edges, of which one is a loop and one is there twice, as is its reverse.
    let found = ["edges_read", "self_loops_dropped", "duplicates_merged"].map(count);
    assert_eq!(found, [11, 1, 2]);
    for (words, says) in [
        ("--edge-columns weight", "no such column"),
        ("--nodes x.csv", "the graph has several"),
        ("--bipartite", "leave --bipartite out"),
    ] {
        let error = convert_new(folder.path(), &options(words)).unwrap_err().to_string();
        assert!(error.contains(says), "{words}: {error}");
    }
    // Damaged offsets of rows are found when the dataset is opened.
    let path = dataset.path().join("topology/rows.npy");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 16;
    bytes[at..at + 8].copy_from_slice(&0u64.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = Dataset::open_unchecked(dataset.path()).unwrap_err().to_string();
    assert!(error.contains("rows.npy"), "{error}");
}

#[test]
fn typed_inputs_that_are_wrong_are_refused_by_file() {
    for (file, content, says) in [
        ("num-node-dict.csv.gz", "author,institution,paper\n3,2\n", "type `paper`: expected the"),
        ("num-node-dict.csv.gz", "author\n", "expected a line of types"),
        ("num-node-dict.csv.gz", "author,author,paper\n3,2,4\n", "are called `author`"),
        ("triplet-type-list.csv.gz", "author,writes\n", "line 1: expected a relation"),
        ("triplet-type-list.csv.gz", "author,writes,paper\nauthor,writes,paper\n", "two relations"),
        (
            "num-node-dict.csv.gz",
            "author,institute,paper\n3,2,4\n",
            "the type `institution` is unknown",
        ),
        (
            "writes___paper/edge.csv.gz",
            "2,0\n0,0\n3,3\n2,3\n2,3\n",
            "an edge names author 3, there",
        ),
        ("cites___paper/edge.csv.gz", "3,0\n1,4\n0,2\n", "an edge names paper 4, there are 4"),
        ("cites___paper/num-edge-list.csv.gz", "4\n", "4 edges"),
        ("node-feat.csv.gz", "1,2\n3,4\n5,6\n", "3 feature rows for the 4 vertices"),
        ("paper/train.csv.gz", "9\n", "names paper 9, there are 4"),
    ] {
        let folder = mag(&[(file, content)]);
        let error = convert_new(folder.path(), &ConvertOptions::default()).unwrap_err().to_string();
        assert!(error.contains(says) && error.lines().count() == 1, "{file}, {content}: {error}");
    }
}

#[test]
fn oracle_random_relations_equal_a_list_of_their_edges() {
    let mut draws = Draws::new(&StreamKey::new(77, Stream::Generate), 0);
    for case in 0..6 {
        let (a, b) = (1 + draws.below(300), 1 + draws.below(300));
        let mut edges = |of: u32, to: u32| -> Vec<(u32, u32)> {
            (0..draws.below(3000)).map(|_| (draws.below(of), draws.below(to))).collect()
        };
        let lists = [
            ("a", "r", "b", edges(a, b)),
            ("b", "s", "b", edges(b, b)),
            ("b", "t", "a", edges(b, a)),
        ];
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: String| {
            let path = folder.path().join("raw").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, gz(&content)).unwrap();
        };
        write("num-node-dict.csv.gz", format!("a,b\n{a},{b}\n"));
        write("triplet-type-list.csv.gz", "a,r,b\nb,s,b\nb,t,a\n".into());
        let mut expected = BTreeMap::<String, Vec<u64>>::new();
        for (source, name, target, list) in &lists {
            let text: String = list.iter().map(|(u, v)| format!("{u},{v}\n")).collect();
            write(&format!("relations/{source}___{name}___{target}/edge.csv.gz"), text);
            let count = format!("{}\n", list.len());
            write(&format!("relations/{source}___{name}___{target}/num-edge-list.csv.gz"), count);
            for (u, v) in list {
                let row =
                    expected.entry(format!("{target} {v} {source}/{name}/{target}")).or_default();
                row.push(u64::from(*u));
                row.sort_unstable();
                row.dedup();
            }
        }
        let (_kept, dataset) = convert_new(folder.path(), &ConvertOptions::default()).unwrap();
        assert_eq!(rows(&dataset), expected, "case {case}");
        for (u, v) in (0..a + b).flat_map(|u| (0..a + b).step_by(7).map(move |v| (u, v))) {
            let has = dataset.topology().in_neighbours(v).contains(&u);
            assert_eq!(dataset.topology().has_edge(u, v), has, "case {case}: {u} to {v}");
        }
    }
}

/// A `.npy` file of `numbers`.
fn array(shape: &str, numbers: &[i64]) -> Vec<u8> {
    npy("<i8", false, shape, &i64s(numbers))
}

fn floats(shape: &str, numbers: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    npy("<f4", false, shape, &bytes)
}

/// A pickle of a dict of numbers below 256.
fn dict(entries: &[(&str, u8)]) -> Vec<u8> {
    let entry = |&(name, number): &(&str, u8)| {
        [b"X", &(name.len() as u32).to_le_bytes()[..], name.as_bytes(), &[b'K', number]].concat()
    };
    let entries: Vec<u8> = entries.iter().flat_map(entry).collect();
    [b"\x80\x02}(", &entries[..], b"u."].concat()
}

/// A folder of `files`, of which `change` replaces or adds some; one without bytes is left out.
fn folder_of(files: &[(&str, Vec<u8>)], change: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files.iter().chain(change) {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match bytes.is_empty() {
            true => fs::remove_file(path).unwrap(),
            false => fs::write(path, bytes).unwrap(),
        }
    }
    folder
}

/// The rows in `lines`, each `VERTEX RELATION: SOURCES`.
pub fn expected_rows(lines: &str) -> BTreeMap<String, Vec<u64>> {
    let line = |line: &str| {
        let (name, sources) = line.split_once(": ").unwrap();
        (name.to_string(), sources.split(' ').map(|id| id.parse().unwrap()).collect())
    };
    lines.split("; ").map(line).collect()
}

#[test]
fn mag240m_and_igbh_are_read_whole() {
    let nan = f32::NAN;
    let halves: Vec<u8> =
        [15360u16, 16384, 0, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes).collect();
    let mag = folder_of(
        &[
            (
                "meta.pt",
                dict(&[("paper", 6), ("author", 3), ("institution", 2), ("num_classes", 9)]),
            ),
            ("split_dict.pt", fs::read(data("pt/split_dict.pt")).unwrap()),
            (
                "processed/author___affiliated_with___institution/edge_index.npy",
                array("(2, 2)", &[0, 2, 1, 1]),
            ),
            (
                "processed/author___writes___paper/edge_index.npy",
                array("(2, 3)", &[0, 1, 2, 5, 5, 0]),
            ),
            ("processed/paper___cites___paper/edge_index.npy", array("(2, 2)", &[0, 1, 3, 4])),
            ("processed/paper/node_feat.npy", npy("<f2", false, "(6, 1)", &halves)),
            ("processed/paper/node_label.npy", floats("(6,)", &[0.0, 1.0, nan, 1.0, nan, nan])),
            ("processed/paper/node_year.npy", array("(6,)", &[2010, 2011, 2012, 2013, 2014, 2015])),
        ],
        &[],
    );
    for (words, test) in [("--feature-dtype f16", 9), ("--schema split-name=test-challenge", 10)] {
        let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
        let made = convert(mag.path(), &out.path().join("ds"), &options(words), false, &notes);
        let (dataset, notes) = (made.unwrap().0, notes.lines().join("\n"));
        let found = "author/affiliated_with/institution: 0 2";
        let found = format!(
            "institution 1 {found}; paper 5 author/writes/paper: 0 1; \
             paper 0 author/writes/paper: 2; paper 3 paper/cites/paper: 0; \
             paper 4 paper/cites/paper: 1"
        );
        assert_eq!(rows(&dataset), expected_rows(&found));
        assert_eq!(dataset.labels().unwrap()[..], [-1, -1, -1, -1, -1, 0, 1, -1, 1, -1, -1]);
        let splits = Split::ALL.map(|split| dataset.split(split).unwrap().to_vec());
        assert_eq!(splits, [vec![5, 8], vec![6], vec![test]]);
        for says in [
            "3 author, 2 institution, 6 paper; relations: author/affiliated_with/institution, ",
            "the test split is test-",
            "labels: 3 of 6 vertices are unlabelled",
        ] {
            assert!(notes.contains(says), "{says}: {notes}");
        }
        assert_eq!(dataset.manifest().provenance.facts["unlabelled"], 3);
        let papers = dataset.features_of(2).unwrap().unwrap();
        assert_eq!(papers.dtype() == gsplit_store::FeatureDtype::F16, words.contains("f16"));
    }

    // Two edges (2, 2) are pairs by their folder's name. One author has 1024 features.
    let author: Vec<u8> = (0..1024).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let igbh = folder_of(
        &[
            ("paper__cites__paper/edge_index.npy", array("(2, 2)", &[0, 1, 2, 0])),
            ("paper__written_by__author/edge_index.npy", array("(3, 2)", &[0, 0, 1, 0, 2, 0])),
            ("paper__topic__fos/edge_index.npy", array("(2, 2)", &[0, 3, 2, 1])),
            ("paper/node_feat.npy", floats("(3, 2)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            ("paper/node_label_19.npy", floats("(3,)", &[0.0, 2.0, 1.0])),
            ("paper/node_label_2K.npy", floats("(3,)", &[7.0, 8.0, 9.0])),
            ("author/node_feat.npy", author),
            ("journal/node_feat.npy", floats("(2, 1)", &[1.0, 2.0])),
            ("empty/notes.txt", b"x".to_vec()),
        ],
        &[],
    );
    let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
    let made = convert(
        igbh.path(),
        &out.path().join("ds"),
        &options("--random-split=auto"),
        false,
        &notes,
    );
    let (dataset, notes) = (made.unwrap().0, notes.lines().join("\n"));
    let found = "author 0 paper/written_by/author: 0 1 2; fos 3 paper/topic/fos: 0; \
         fos 1 paper/topic/fos: 2; paper 1 paper/cites/paper: 0; paper 0 paper/cites/paper: 2";
    assert_eq!(rows(&dataset), expected_rows(found));
    assert_eq!(dataset.labels().unwrap()[..], [-1, -1, -1, -1, -1, -1, -1, 0, 2, 1]);
    assert_eq!(dataset.features_of(0).unwrap().unwrap().dim(), 1024);
    assert_eq!(dataset.features_of(2).unwrap().unwrap().row::<f32>(1), [2.0]);
    for says in [
        "1 author, 4 fos, 2 journal, 3 paper",
        "the largest id gives the number of vertices of fos;",
        "not read: empty",
    ] {
        assert!(notes.contains(says), "{says}: {notes}");
    }
    assert!(!notes.contains("unlabelled"), "{notes}");
    let drawn = Split::ALL.map(|split| dataset.split(split).unwrap().to_vec()).concat();
    assert!(drawn.iter().all(|v| (7..10).contains(v)), "{drawn:?}");
}

/// A graph of 3 users and 2 items, with labels, splits and a mask, and a count for the items.
fn shop() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("user___buys___item/edge_index.npy", array("(2, 2)", &[0, 2, 1, 0])),
        ("item___near___item/edge_index.npy", array("(2, 1)", &[0, 1])),
        ("user/node_feat.npy", floats("(3, 1)", &[1.0, 2.0, 3.0])),
        ("user/node_label.npy", array("(3,)", &[1, -1, 0])),
        ("user/train.npy", array("(1,)", &[2])),
        ("user/test_mask.npy", npy("|b1", false, "(3,)", &[1, 0, 0])),
        ("item/num_nodes.npy", array("()", &[2])),
    ]
}

#[test]
fn arrays_by_type_are_read_by_the_names_of_their_folders() {
    let folder = folder_of(&shop(), &[]);
    let (_kept, dataset) = convert_new(folder.path(), &options("--symmetrise")).unwrap();
    let found = "item 1 user/buys/item: 0; item 0 user/buys/item: 2; item 1 item/near/item: 0; \
         item 0 item/near/item: 1; user 0 item/rev_buys/user: 1; user 2 item/rev_buys/user: 0";
    assert_eq!(rows(&dataset), expected_rows(found));
    // Whole numbers leave vertices of other types unlabelled too.
    assert_eq!(dataset.labels().unwrap()[..], [-1, -1, 1, -1, 0]);
    assert_eq!(dataset.split(Split::Train).unwrap()[..], [4]);
    assert_eq!(dataset.split(Split::Test).unwrap()[..], [2]);
}

#[test]
fn arrays_by_type_that_are_wrong_are_refused_by_file() {
    let edges = "user___buys___item/edge_index.npy";
    let table: &[(&str, Vec<u8>, &str)] = &[
        (
            edges,
            array("(2, 1)", &[3, 0]),
            "item/edge_index.npy: relation user/buys/item: an edge names user 3, there are 3",
        ),
        (edges, array("(2, 1)", &[0, 2]), "an edge names item 2, there are 2"),
        (edges, array("(2, 1)", &[0, -2]), "edge 0, target -2: expected an id"),
        (edges, array("(3, 4)", &[0; 12]), "item/edge_index.npy: shape [3, 4]: expected (2, E)"),
        (edges, floats("(2, 1)", &[0.0; 2]), "item/edge_index.npy: type <f4: expected integer ids"),
        (
            "user__buys__item/edge_index.npy",
            array("(1, 2)", &[0, 0]),
            "two relations are user/buys/item",
        ),
        ("a b___r___item/edge_index.npy", array("(2, 0)", &[]), "`a b` names a type"),
        (
            "user/num_nodes.npy",
            array("(1,)", &[4]),
            "node_feat.npy: features has 3 rows for 4 vertices",
        ),
        (
            "user/node_label.npy",
            array("(2,)", &[0, 1]),
            "node_label.npy: labels has 2 rows for 3 vertices",
        ),
        (
            "user/node_age.npy",
            array("(2,)", &[0, 1]),
            "node_age.npy: age has 2 rows for 3 vertices",
        ),
        ("user/valid.npy", array("(1,)", &[3]), "user: the valid split names user 3, there are 3"),
        (
            "user/valid.npy",
            array("(2,)", &[1, 2]),
            "user: user 2 is in the train split and in valid",
        ),
        ("user/valid.npy", array("(1,)", &[-1]), "valid.npy: entry 0: -1"),
        ("item/num_nodes.npy", array("(2,)", &[2, 2]), "num_nodes.npy: expected one number"),
        ("item/num_nodes.npy", array("()", &[1 << 40]), "1099511627779 vertices: expected up to"),
        ("item/num_nodes.npy", array("()", &[-2]), "num_nodes.npy: entry 0: -2"),
        ("item/node_label.npy", array("(2,)", &[0, 1]), "labels of two types, next to"),
        ("meta.pt", dict(&[("item", 3)]), "num_nodes.npy: 2 vertices, and 3 in"),
        ("user___buys___shop/edge_index.npy", array("(2, 0)", &[]), ""),
    ];
    for (name, bytes, says) in table {
        let folder = folder_of(&shop(), &[(name, bytes.clone())]);
        let made = convert_new(folder.path(), &ConvertOptions::default());
        if says.is_empty() {
            // A type that nothing counts has the vertices of its edges.
            assert_eq!(made.unwrap().1.num_vertices(), 5);
            continue;
        }
        let error = made.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(says) && error.lines().count() == 1, "{name}, {says}: {error}");
    }
    let refused = |change: &[(&str, Vec<u8>)], words: &str, says: &str| {
        let folder = folder_of(&shop(), change);
        let error = convert_new(folder.path(), &options(words)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
    };
    let shop_only = ("user___buys___shop/edge_index.npy", array("(2, 0)", &[]));
    refused(
        &[("meta.pt", dict(&[("item", 2)])), shop_only],
        "",
        "meta.pt: no number of vertices of `shop`",
    );
    let age = |of| (of, array("(3,)", &[1, 2, 3]));
    let pages = ("page/node_age.npy", array("(1,)", &[1]));
    refused(&[age("user/node_age.npy"), pages], "", "a column of the same name as");
    let unlabelled = [
        ("user/node_label.npy", Vec::new()),
        ("user/train.npy", Vec::new()),
        ("user/test_mask.npy", Vec::new()),
    ];
    refused(&unlabelled, "--random-split=0.6,0.2,0.2", "no type of this graph has any");
    let dict = ("split_dict.pt", fs::read(data("pt/split_dict.pt")).unwrap());
    refused(
        &[&unlabelled[..], &[dict]].concat(),
        "",
        "split_dict.pt: splits of the type with labels",
    );
    refused(&[], "--features=random:8", "--features random:8 is for vertices of one type");
    refused(&[], "--edge-columns=weight", "no such column");
    let many = |count: u32, name: &dyn Fn(u32) -> String| {
        let names: Vec<String> = (0..count).map(|at| name(at) + "/edge_index.npy").collect();
        let files: Vec<_> = names.iter().map(|name| (&**name, array("(2, 0)", &[]))).collect();
        refused(&files, "", "expected up to 255 and 1000");
    };
    many(255, &|at| format!("user___buys___{at}"));
    many(999, &|at| format!("user___buys{at}___item"));
}
