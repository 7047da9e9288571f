//! A graph of 6 vertices gives the same dataset in every format.

use std::collections::BTreeSet;

use gsplit_store::verify;
use half::bf16;

use super::*;

/// In-neighbours of every vertex, as the edges in `tests/data/make.py` have them.
const IN_NEIGHBOURS: [&[u32]; 6] = [&[2], &[0], &[0, 1], &[2, 3], &[3, 5], &[4]];

fn neighbours(dataset: &Dataset) -> Vec<&[u32]> {
    (0..dataset.num_vertices() as u32).map(|v| dataset.topology().in_neighbours(v)).collect()
}

fn assert_sound(dataset: &Dataset) {
    let problems: Vec<_> =
        verify(dataset.path()).unwrap().into_iter().filter_map(|finding| finding.problem).collect();
    assert!(problems.is_empty(), "{problems:?}");
}

/// Contents of an input, in addition to its edges.
struct Holds {
    /// Features: `Some(3)` are the ones of `make.py`; wider ones start with the same whole numbers.
    features: Option<usize>,
    labels: bool,
    splits: bool,
    /// Name of the split to take, where there are several.
    split: Option<&'static str>,
    /// Names of node columns, in order.
    columns: &'static [&'static str],
    /// Names of edge columns, in order.
    edge_columns: &'static [&'static str],
    /// Original ids.
    ids: Option<[u64; 6]>,
}

const EDGES_ALONE: Holds = Holds {
    features: None,
    labels: false,
    splits: false,
    split: None,
    columns: &[],
    edge_columns: &[],
    ids: None,
};
const ALL: Holds = Holds { features: Some(3), labels: true, splits: true, ..EDGES_ALONE };
const WEIGHTED: Holds = Holds { edge_columns: &["weight"], ..EDGES_ALONE };
const TABLE: Holds =
    Holds { edge_columns: &["weight", "time", "flag", "pair", "day"], ..EDGES_ALONE };

/// Every input of the graph with its directions, its detected format, and its contents.
const INPUTS: &[(&str, &str, Holds)] = &[
    ("ogb-csv", "ogb", ALL),
    ("ogb-npz", "ogb", ALL),
    ("igb", "relations", Holds { splits: false, columns: &["label_2K"], ..ALL }),
    ("igb-raw", "relations", Holds { features: Some(1024), splits: false, ..ALL }),
    ("mag240m", "relations", Holds { splits: false, columns: &["year"], ..ALL }),
    ("graphsaint", "graphsaint", ALL),
    ("npy", "npy", Holds { edge_columns: &["weight", "feat"], ..ALL }),
    ("npy/edge_index.npy", "npy", EDGES_ALONE),
    ("npy-pairs", "npy", EDGES_ALONE),
    ("npy-coo", "npy", Holds { splits: true, ..EDGES_ALONE }),
    ("npy-csr", "npy", WEIGHTED),
    ("npy-csc", "npy", WEIGHTED),
    ("npz/graph.npz", "npz", Holds { split: Some("1"), edge_columns: &["weight"], ..ALL }),
    ("npz/csr-ones.npz", "npz", EDGES_ALONE),
    ("npz/csr-weights.npz", "npz", WEIGHTED),
    ("npz/coo.npz", "npz", WEIGHTED),
    ("pt/data.pt", "pt", Holds { split: Some("1"), ..ALL }),
    ("pt/folder", "npy", Holds { splits: false, ..ALL }),
    ("dimacs/arcs.gr", "dimacs", Holds { ids: Some([1, 2, 3, 4, 5, 6]), ..WEIGHTED }),
    ("mtx/general.mtx", "mtx", Holds { ids: Some([1, 2, 3, 4, 5, 6]), ..WEIGHTED }),
    ("snap/edges.txt", "snap", EDGES_ALONE),
    ("snap/gaps.txt.gz", "snap", Holds { ids: Some([10, 11, 14, 19, 26, 35]), ..EDGES_ALONE }),
    ("tables/plain.parquet", "parquet", TABLE),
    ("tables/snappy.parquet", "parquet", TABLE),
    (
        "tables/spark.parquet",
        "parquet",
        // The year is in the names of folders.
        Holds { edge_columns: &["weight", "time", "flag", "pair", "day", "year"], ..TABLE },
    ),
    (
        "tables/duckdb.parquet",
        "parquet",
        Holds { edge_columns: &["weight", "time", "pair"], ..EDGES_ALONE },
    ),
    ("tables/file.arrow", "arrow", TABLE),
    ("tables/lz4.feather", "arrow", TABLE),
    ("tables/edges.csv", "csv", Holds { edge_columns: &["weight", "time", "day"], ..EDGES_ALONE }),
    ("tables/graph", "parquet", Holds { edge_columns: &["time"], features: Some(4), ..ALL }),
];

#[test]
fn every_format_gives_the_same_dataset() {
    for (name, format, holds) in INPUTS {
        let options = options(
            &holds
                .split
                .map(|split| {
                    format!(
                        "--schema \
                                                      split-name={split}"
                    )
                })
                .unwrap_or_default(),
        );
        let (_folder, dataset) = convert_new(&data(name), &options).unwrap();
        assert_sound(&dataset);
        assert_eq!(neighbours(&dataset), IN_NEIGHBOURS, "{name}");
        let provenance = &dataset.manifest().provenance;
        assert_eq!(
            (&provenance.options["found"], dataset.name()),
            (&(*format).into(), "ds"),
            "{name}"
        );
        let facts = ["edges_read", "duplicates_merged", "self_loops_dropped"]
            .map(|key| provenance.facts[key]);
        assert_eq!(facts, [10, 1, 0], "{name}");
        assert!(!provenance.sources.is_empty(), "{name}");
        check_columns(name, &dataset, holds);
        assert_eq!(dataset.labels().is_ok(), holds.labels, "{name}");
        if holds.labels {
            assert_eq!(dataset.labels().unwrap()[..], [0, 1, -1, 2, 1, 0], "{name}");
            assert_eq!(
                (dataset.manifest().num_classes, provenance.facts["unlabelled"]),
                (Some(3), 1),
                "{name}"
            );
        }
        let splits =
            Split::ALL.map(|split| dataset.split(split).ok().map(|vertices| vertices.to_vec()));
        let expected =
            [vec![0, 3], vec![1], vec![4, 5]].map(|vertices| holds.splits.then_some(vertices));
        assert_eq!(splits, expected, "{name}");
        let ids = dataset.original_ids().unwrap().map(|ids| ids.to_vec());
        assert_eq!(ids, holds.ids.map(Vec::from), "{name}");
    }
}

fn check_columns(name: &str, dataset: &Dataset, holds: &Holds) {
    assert_eq!(dataset.features().is_ok(), holds.features.is_some(), "{name}");
    if let Some(width) = holds.features {
        let table = dataset.features().unwrap();
        assert_eq!(table.dim(), width, "{name}");
        for v in 0..6 {
            let expected: Vec<f32> = match width {
                3 => (0..3).map(|column| v as f32 + column as f32 / 4.0).collect(),
                // The list, and the standardised years behind it, which ascend by one.
                4 => {
                    let list = (0..3).map(|column| v as f32 + column as f32 / 4.0);
                    let year = (f64::from(v) - 2.5) / (35f64 / 12.0).sqrt();
                    list.chain([year as f32]).collect()
                }
                _ => (0..width).map(|column| v as f32 + column as f32 / width as f32).collect(),
            };
            assert_eq!(table.row::<f32>(v), expected, "{name}");
        }
    }
    let sorted = |names: &[&str]| BTreeSet::from_iter(names.iter().map(|name| name.to_string()));
    let manifest = dataset.manifest();
    assert_eq!(
        manifest.columns.keys().cloned().collect::<BTreeSet<_>>(),
        sorted(holds.columns),
        "{name}"
    );
    assert_eq!(
        manifest.edge_columns.keys().cloned().collect::<BTreeSet<_>>(),
        sorted(holds.edge_columns),
        "{name}"
    );
}

#[test]
fn ogb_names_its_files_below_the_folder() {
    let (_folder, dataset) =
        convert_new(&ogb(data("ogb-csv")), &ConvertOptions::default()).unwrap();
    let sources = &dataset.manifest().provenance.sources;
    assert!(sources.iter().any(|file| file.path.starts_with("raw/")), "{sources:?}");
    assert!(sources.iter().any(|file| file.path == "split/only/train.csv.gz"), "{sources:?}");
}

#[test]
fn strings_become_vertices_in_their_order() {
    // five, four, one, three, two, zero
    let expected: [&[u32]; 6] = [&[1], &[0, 3], &[5], &[3, 4], &[2, 5], &[4]];
    for name in ["names.parquet", "large.parquet", "names.arrows"] {
        let (_folder, dataset) =
            convert_new(&data(&format!("tables/{name}")), &ConvertOptions::default()).unwrap();
        assert_sound(&dataset);
        assert_eq!(neighbours(&dataset), expected, "{name}");
        let names = dataset.original_names().unwrap().unwrap();
        let names: Vec<String> = names.iter().map(|name| name.unwrap().to_string()).collect();
        assert_eq!(names, ["five", "four", "one", "three", "two", "zero"], "{name}");
    }
}

#[test]
fn formats_without_directions_give_both() {
    for (name, format) in [("metis/plain.graph", "metis"), ("metis/weighted.graph", "metis")] {
        let (_folder, dataset) = convert_new(&data(name), &ConvertOptions::default()).unwrap();
        assert_sound(&dataset);
        let expected: [&[u32]; 6] = [&[1, 2], &[0, 2], &[0, 1, 3], &[2, 4], &[3, 5], &[4]];
        assert_eq!(neighbours(&dataset), expected, "{name}");
        assert_eq!(dataset.manifest().provenance.options["found"], format);
    }
    let (_folder, dataset) =
        convert_new(&data("mtx/symmetric.mtx"), &ConvertOptions::default()).unwrap();
    assert_sound(&dataset);
    let expected: [&[u32]; 6] = [&[1, 2], &[0], &[0, 2], &[], &[5], &[4]];
    assert_eq!(neighbours(&dataset), expected);
}

#[test]
fn several_labels_a_vertex_are_kept() {
    let (_folder, dataset) =
        convert_new(&data("graphsaint-multi"), &ConvertOptions::default()).unwrap();
    assert_sound(&dataset);
    assert_eq!(neighbours(&dataset), IN_NEIGHBOURS);
    let labels = dataset.multi_labels().unwrap();
    for v in 0..6u32 {
        let found: Vec<bool> = (0..3).map(|class| labels.has(v, class)).collect();
        assert_eq!(found, [v % 2 == 1, true, v > 2]);
    }
}

#[test]
fn options_change_what_they_say() {
    let csv = ogb(data("ogb-csv"));
    let many = "--symmetrise --drop-self-loops --feature-dtype bf16 --random-split 0.6,0.2,0.2";
    let (_folder, dataset) = convert_new(&csv, &options(many)).unwrap();
    assert_sound(&dataset);
    let expected: [&[u32]; 6] = [&[1, 2], &[0, 2], &[0, 1, 3], &[2, 4], &[3, 5], &[4]];
    assert_eq!(neighbours(&dataset), expected);
    assert_eq!(dataset.features().unwrap().row::<bf16>(5)[1], bf16::from_f32(5.25));
    // 5 of the 6 vertices have labels.
    let splits = Split::ALL.map(|split| dataset.split(split).unwrap().to_vec());
    assert_eq!(splits.each_ref().map(Vec::len), [3, 1, 1]);
    assert!(!splits.concat().contains(&2));
    assert_eq!(dataset.manifest().provenance.options["symmetrise"], true);
    assert_eq!(dataset.manifest().provenance.options["random_split"], "0.6,0.2,0.2");

    let (_folder, dataset) = convert_new(&csv, &options("--keep-duplicates")).unwrap();
    assert_eq!(dataset.topology().in_neighbours(1), [0, 0]);
}

#[test]
fn generated_features_are_recorded_as_such() {
    for how in ["random:5", "fastrp:8"] {
        let options = options(&format!("--features {how}"));
        for source in [snap(data("snap/edges.txt")), ogb(data("ogb-npz"))] {
            let (_folder, dataset) = convert_new(&source, &options).unwrap();
            assert_sound(&dataset);
            let features = dataset.manifest().features.clone().unwrap();
            assert_eq!(features.generated.as_deref(), Some(how));
            assert_eq!(dataset.features().unwrap().dim(), features.dim as usize);
        }
    }
}

#[test]
fn features_of_the_structure_do_not_tell_of_links_that_are_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ratings.csv");
    let lines = |kept: &dyn Fn(u32, u32) -> bool| {
        let pairs = (0..40u32).flat_map(|user| {
            (0..8u32).filter(move |item| (user * 7 + item * 5) % 3 > 0).map(move |i| (user, i))
        });
        pairs
            .filter(|&(u, i)| kept(u, 40 + i))
            .map(|(u, i)| format!("{u},{i}\n"))
            .collect::<String>()
    };
    let rows = |held_out: &str, kept: &dyn Fn(u32, u32) -> bool| {
        fs::write(&path, "user_id,item_id\n".to_string() + &lines(kept)).unwrap();
        let options = options(&format!("--features fastrp:8 --bipartite {held_out}"));
        let (dataset, _) =
            convert(&path, &folder.path().join("ds"), &options, true, &NoProgress).unwrap();
        let features = dataset.features().unwrap();
        let rows: Vec<f32> = (0..48).flat_map(|v| features.row::<f32>(v).to_vec()).collect();
        (rows, dataset.manifest().features.clone().unwrap().generated.unwrap())
    };
    let all = |_, _| true;
    for (text, share, seed) in
        [("", 0.15, 0), ("--held-out-links 0.15", 0.15, 0), ("--held-out-links 0.3,7", 0.3, 7)]
    {
        let held_out = gsplit_kernels::schedule::HeldOutLinks { share, seed };
        let (found, generated) = rows(text, &all);
        assert_eq!(generated, format!("fastrp:8 without links {held_out}"));
        // Equal to the result for a graph that has none of these links.
        assert_eq!(found, rows("--held-out-links 0", &|u, v| !held_out.holds(u, v)).0);
        assert_ne!(found, rows("--held-out-links 0", &all).0);
    }
    assert_eq!(rows("--held-out-links 0", &all).1, "fastrp:8");
    for text in ["1", "x", "0.1,y", "-0.1", "0.1,0.2"] {
        assert!(text.parse::<gsplit_kernels::schedule::HeldOutLinks>().is_err(), "{text}");
    }
}

#[test]
fn unpacked_tables_serve_as_well() {
    let folder = copy("ogb-csv");
    let edges = folder.path().join("raw/edge.csv");
    fs::remove_file(edges.with_extension("csv.gz")).unwrap();
    fs::write(edges, "0,1\n0,2\n1,2\n2,0\n2,3\n3,3\n3,4\n\n4, 5\n5,4\n0,1").unwrap();
    let (_folder, dataset) = convert_new(&ogb(folder.path()), &ConvertOptions::default()).unwrap();
    assert_eq!(neighbours(&dataset), IN_NEIGHBOURS);
}
