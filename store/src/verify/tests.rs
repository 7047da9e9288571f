//! Damage that checksums do not see: wrong content was written, and is unchanged since.

use std::fs;

use super::*;
use crate::{ColumnInfo, DatasetWriter, FeatureDtype, Provenance, Split, checksum_file, write_npy};

/// A sound dataset with one of everything.
fn dataset(path: &Path, multi_label: bool, string_ids: bool) {
    let mut writer = DatasetWriter::create(path, true, &[0, 1, 2, 3], &[1, 2, 0]).unwrap();
    match multi_label {
        true => {
            let mut labels = writer.multi_label_writer(3).unwrap();
            labels.push(&[0b101, 0]).unwrap();
            labels.push_known(&[0b10], &[0b110]).unwrap();
            writer.add_multi_labels(labels).unwrap();
        }
        false => writer.add_labels(&[0, -1, 1]).unwrap(),
    }
    match string_ids {
        true => {
            let mut names = writer.original_names_writer().unwrap();
            ["x", "y", "z"].iter().try_for_each(|name| names.push(name)).unwrap();
            writer.add_original_names(names).unwrap();
        }
        false => writer.add_original_ids(&[7, 9, 8]).unwrap(),
    }
    let mut year = writer.node_column_writer("year", "<i4", 1).unwrap();
    year.push(&[0; 12]).unwrap();
    writer.add_node_column("year", year).unwrap();
    let mut weight = writer.edge_column_writer("weight", "<f4", 1).unwrap();
    weight.push(&[0; 12]).unwrap();
    writer.add_edge_column("weight", weight).unwrap();
    let mut features = writer.feature_writer(FeatureDtype::I8, 2).unwrap();
    features.push_rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    writer.add_features(features, None).unwrap();
    writer.add_split(Split::Train, vec![0]).unwrap();
    writer.finish(Provenance::default()).unwrap();
}

/// Changes the manifest, after updating the records of all files to match their content.
fn edit(path: &Path, change: impl FnOnce(&mut DatasetManifest)) {
    let document_path = path.join("dataset.json");
    let (mut manifest, _) = document::read::<DatasetManifest>(&document_path).unwrap();
    change(&mut manifest);
    for (name, record) in &mut manifest.files {
        (record.bytes, record.checksum) = checksum_file(&path.join(name)).unwrap();
    }
    document::write(&document_path, &manifest).unwrap();
}

fn problems(path: &Path) -> Vec<String> {
    let named =
        |finding: Finding| Some(format!("{}: {}", finding.path.display(), finding.problem?));
    verify(path).unwrap().into_iter().filter_map(named).collect()
}

#[test]
fn what_checksums_do_not_see_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds");
    for (multi_label, string_ids) in [(false, false), (true, true)] {
        dataset(&path, multi_label, string_ids);
        assert_eq!(problems(&path), Vec::<String>::new());
    }
    type Damage = fn(&Path, &mut DatasetManifest);
    let rewrite =
        |name: &'static str, multi: bool, strings: bool, expected: &'static str, damage: Damage| {
            dataset(&path, multi, strings);
            edit(&path, |manifest| damage(&path, manifest));
            let found = problems(&path);
            assert!(
                found.iter().any(|line| line.contains(name) && line.contains(expected)),
                "{expected}: {found:?}"
            );
        };
    rewrite("nodes/year.npy", false, false, "each of the 3 vertices, found 2", |path, _| {
        write_npy(path.join("nodes/year.npy"), &[1i32, 2]).unwrap();
    });
    rewrite(
        "nodes/year.npy",
        false,
        false,
        "expected (\"<i4\", 1) (type, width), found (\"<f4\", 1)",
        |path, _| {
            write_npy(path.join("nodes/year.npy"), &[1f32, 2.0, 3.0]).unwrap();
        },
    );
    rewrite("edges/weight.npy", false, false, "each of the 3 edges, found 4", |path, _| {
        write_npy(path.join("edges/weight.npy"), &[1f32; 4]).unwrap();
    });
    rewrite("nodes/label.npy", true, false, "expected rows of 2 bytes", |_, manifest| {
        manifest.num_classes = Some(9)
    });
    rewrite("nodes/label.known.npy", true, false, "expected 3 rows, as in label.npy", |path, _| {
        let file = path.join("nodes/label.known.npy");
        let mut rows = crate::NpyWriter::<u8>::create_rows(&file, 1).unwrap();
        rows.push(&[7, 7]).unwrap();
        rows.finish().unwrap();
    });
    dataset(&path, false, true);
    let mut writer = crate::NamesWriter::create(path.join("nodes/original_id.arrow")).unwrap();
    ["x", "y"].iter().try_for_each(|name| writer.push(name)).unwrap();
    writer.finish().unwrap();
    edit(&path, |_| {});
    let found = problems(&path);
    assert!(found.len() == 1 && found[0].contains("each of the 3 vertices, found 2"), "{found:?}");
    rewrite("nodes/gone.npy", false, false, "has no node column `gone`", |_, manifest| {
        manifest.columns.insert("gone".into(), ColumnInfo { descr: "<f4".into(), width: 1 });
    });
}

#[test]
fn strays_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds");
    dataset(&path, false, false);
    let names = [
        "topology/old.npy",
        "nodes/deep/er.npy",
        "edges/.hidden",
        "splits/train.npy.bak",
        "notes.txt",
    ];
    for name in names.into_iter().chain(["presample/notes.txt", "other/presample/dataset.json.txt"])
    {
        let stray = path.join(name);
        fs::create_dir_all(stray.parent().unwrap()).unwrap();
        fs::write(&stray, "x").unwrap();
        let expected = format!(
            "{}: is not part of the dataset, dataset.json does not list it: move it elsewhere",
            stray.display()
        );
        assert_eq!(problems(&path), [expected]);
        fs::remove_file(&stray).unwrap();
    }
}
