//! Exports that are refused; they leave nothing behind.

use std::io::{Seek, SeekFrom, Write};

use super::*;

fn refused(example: &Example, format: ExportFormat, out: &str, options: &ExportOptions) -> String {
    export(&example.dataset, format, &example.folder.join(out), options, &NoProgress)
        .unwrap_err()
        .to_string()
}

#[test]
fn only_an_earlier_export_is_replaced() {
    let example = example(Kind::Single, 40, 100, 1);
    let force = ExportOptions { force: true, ..Default::default() };
    for format in ALL {
        let out = format.to_string();
        let path = example.write(format, &out);
        let before = read_tree(&path);
        if format.is_folder() {
            let again =
                export(&example.dataset, format, &path, &ExportOptions::default(), &NoProgress)
                    .unwrap();
            assert!(again.reused && read_tree(&path) == before, "{format}");
            fs::write(path.join("stale"), "x").unwrap();
        } else {
            fs::write(&path, "stale").unwrap();
        }
        assert!(
            refused(&example, format, &out, &ExportOptions::default()).contains("pass --force")
        );
        example.export(format, &out, &force);
        assert!(read_tree(&path) == before, "{format}");
        for other in ["ds", "mine"] {
            fs::create_dir_all(example.folder.join("mine")).unwrap();
            let message = refused(&example, format, other, &force);
            let words =
                if format.is_folder() { "--force will not replace it" } else { "is no plain file" };
            assert!(message.contains(words), "{format}: {message}");
        }
        fs::write(example.folder.join("file"), "x").unwrap();
        if format.is_folder() {
            assert!(
                refused(&example, format, "file", &force).contains("holds no gsplit-export.json")
            );
        }
    }
    assert!(example.folder.join("ds/dataset.json").exists());
}

#[test]
fn a_damaged_graph_is_named_and_leaves_nothing() {
    let example = example(Kind::Single, 40, 100, 1);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(example.folder.join("ds/topology/indices.npy"))
        .unwrap();
    file.seek(SeekFrom::End(-4 * 30)).unwrap();
    file.write_all(&40u32.to_le_bytes()).unwrap();
    drop(file);
    for format in ALL {
        let message = refused(&example, format, "out", &ExportOptions::default());
        let damage = "indices.npy: edge 70 comes from a vertex that is not below 40";
        assert!(message.contains(damage), "{format}: {message}");
        let left: Vec<_> = fs::read_dir(&example.folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["ds"], "{format}");
    }
}

#[test]
fn options_of_other_formats_are_refused() {
    let example = example(Kind::Single, 40, 100, 1);
    let original = ExportOptions { original_ids: true, ..Default::default() };
    for format in [ExportFormat::Pyg, ExportFormat::Metis, ExportFormat::Mtx] {
        let error =
            export(&example.dataset, format, &example.folder.join("x"), &original, &NoProgress)
                .unwrap_err();
        assert!(
            matches!(&error, crate::Error::Option(problem) if problem.starts_with("--original-ids")),
            "{error}"
        );
    }
}

#[test]
fn ids_that_a_format_cannot_hold_are_named() {
    let original = ExportOptions { original_ids: true, ..Default::default() };
    let bare = example(Kind::Bare, 10, 20, 1);
    assert!(refused(&bare, ExportFormat::Snap, "x", &original).contains("has no original ids"));
    let weights = example(Kind::Single, 10, 20, 1);
    let path = weights.folder.join("ds/edges/weight.npy");
    let length = fs::metadata(&path).unwrap().len();
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(length as usize - 4 * 20);
    bytes.extend(std::iter::repeat_n(f32::INFINITY.to_le_bytes(), 20).flatten());
    fs::write(&path, bytes).unwrap();
    assert!(
        refused(&weights, ExportFormat::Metis, "x", &ExportOptions::default())
            .contains("an edge has the weight inf")
    );
}
