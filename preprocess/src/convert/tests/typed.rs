//! Graphs of several types of vertices.

use std::collections::BTreeMap;

use gsplit_kernels::StreamKey;
use gsplit_kernels::{Draws, Stream};
use gsplit_store::{Relation, verify};

use super::*;

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
fn rows(dataset: &Dataset) -> BTreeMap<String, Vec<u64>> {
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
