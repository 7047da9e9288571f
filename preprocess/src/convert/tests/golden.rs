//! The same graph of 6 vertices in every format gives the same dataset.

use gsplit_store::verify;
use half::bf16;

use super::*;

/// In-neighbours of every vertex, as the edges in `tests/data/make.py` have them.
const IN_NEIGHBOURS: [&[u32]; 6] = [&[2], &[0], &[0, 1], &[2, 3], &[3, 5], &[4]];

fn neighbours(dataset: &Dataset) -> Vec<&[u32]> {
    (0..dataset.num_vertices() as u32).map(|v| dataset.topology().in_neighbours(v)).collect()
}

fn assert_sound(dataset: &Dataset) {
    let problems: Vec<_> = verify(dataset.path()).unwrap().into_iter().filter_map(|finding| finding.problem).collect();
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn every_format_gives_the_same_dataset() {
    let sources = [
        ogb(data().join("ogb-csv")),
        ogb(data().join("ogb-npz")),
        snap(data().join("snap/edges.txt")),
        snap(data().join("snap/gaps.txt.gz")),
    ];
    for source in &sources {
        let (_folder, dataset) = convert_new(source, &ConvertOptions::default()).unwrap();
        assert_sound(&dataset);
        assert_eq!(neighbours(&dataset), IN_NEIGHBOURS, "{source:?}");
        let provenance = &dataset.manifest().provenance;
        let facts = ["edges_read", "duplicates_merged", "self_loops_dropped"].map(|key| provenance.facts[key]);
        assert_eq!((facts, dataset.name()), ([10, 1, 0], "ds"));
        match source {
            Source::Ogb(_) => {
                let table = dataset.features().unwrap();
                for v in 0..6 {
                    assert_eq!(table.row::<f32>(v), [v as f32, v as f32 + 0.25, v as f32 + 0.5], "{source:?}");
                }
                assert_eq!(dataset.labels().unwrap()[..], [0, 1, -1, 2, 1, 0]);
                assert_eq!((dataset.manifest().num_classes, provenance.facts["unlabelled"]), (Some(3), 1));
                let splits = Split::ALL.map(|split| dataset.split(split).unwrap().to_vec());
                assert_eq!(splits, [vec![0, 3], vec![1], vec![4, 5]]);
                assert!(provenance.sources.iter().any(|file| file.path.starts_with("raw/")));
                assert!(provenance.sources.iter().any(|file| file.path == "split/only/train.csv.gz"));
            }
            Source::Snap(source) => {
                assert!(dataset.features().is_err() && dataset.labels().is_err());
                let ids = dataset.original_ids().unwrap().map(|ids| ids.to_vec());
                let gaps = source.file.ends_with("gaps.txt.gz");
                assert_eq!(ids, gaps.then(|| vec![10, 11, 14, 19, 26, 35]));
            }
        }
    }
}

#[test]
fn options_change_what_they_say() {
    let csv = ogb(data().join("ogb-csv"));
    let build = BuildOptions { symmetrise: true, drop_self_loops: true, keep_duplicates: false };
    let options = ConvertOptions {
        build,
        feature_dtype: FeatureDtype::Bf16,
        random_split: Some("0.6,0.2,0.2".parse().unwrap()),
        ..Default::default()
    };
    let (_folder, dataset) = convert_new(&csv, &options).unwrap();
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

    let keep = BuildOptions { keep_duplicates: true, ..Default::default() };
    let (_folder, dataset) = convert_new(&csv, &ConvertOptions { build: keep, ..Default::default() }).unwrap();
    assert_eq!(dataset.topology().in_neighbours(1), [0, 0]);
}

#[test]
fn generated_features_are_recorded_as_such() {
    for how in ["random:5", "fastrp:8"] {
        let options = ConvertOptions { features: Some(how.parse().unwrap()), ..Default::default() };
        for source in [snap(data().join("snap/edges.txt")), ogb(data().join("ogb-npz"))] {
            let (_folder, dataset) = convert_new(&source, &options).unwrap();
            assert_sound(&dataset);
            let features = dataset.manifest().features.clone().unwrap();
            assert_eq!(features.generated.as_deref(), Some(how));
            assert_eq!(dataset.features().unwrap().dim(), features.dim as usize);
        }
    }
}

#[test]
fn unpacked_tables_serve_as_well() {
    let folder = copy("ogb-csv");
    let edges = folder.path().join("raw/edge.csv");
    std::fs::remove_file(edges.with_extension("csv.gz")).unwrap();
    std::fs::write(edges, "0,1\n0,2\n1,2\n2,0\n2,3\n3,3\n3,4\n\n4, 5\n5,4\n0,1").unwrap();
    let (_folder, dataset) = convert_new(&ogb(folder.path()), &ConvertOptions::default()).unwrap();
    assert_eq!(neighbours(&dataset), IN_NEIGHBOURS);
}
