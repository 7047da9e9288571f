//! Every format is written from random datasets and read back by a parser of a few lines, edge by
//! edge and value by value.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::{DatasetWriter, FeatureDtype, NoProgress, Notes, Provenance, Split};

use super::*;
use crate::convert::{ConvertOptions, convert};

mod folders;
mod refused;
mod tables;
mod texts;

/// Contents of a test dataset beyond its graph.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bare,
    Single,
    Multi,
    Number,
}

const CLASSES: u32 = 11;
const DIM: usize = 3;

/// A dataset and its contents.
struct Example {
    _folder: tempfile::TempDir,
    folder: PathBuf,
    dataset: Dataset,
    n: usize,
    /// Source and target, in the dataset's order.
    edges: Vec<(u32, u32)>,
    weights: Vec<f32>,
    features: Vec<f32>,
    labels: Vec<i32>,
    splits: [Vec<u32>; 3],
    years: Vec<i64>,
}

/// A random graph with parallel edges, self-loops, isolated vertices and a hub.
fn example(kind: Kind, n: usize, m: usize, seed: u64) -> Example {
    let _folder = tempfile::tempdir().unwrap();
    let folder = _folder.path().to_path_buf();
    let mut draw = {
        let (mut key, mut left) = (0, 0);
        let mut draws = Draws::new(&StreamKey::new(seed, Stream::Generate), 0);
        move |below: usize| {
            if left == 0 {
                (key, left) = (key + 1, 50_000);
                draws = Draws::new(&StreamKey::new(seed, Stream::Generate), key);
            }
            left -= 1;
            draws.below(below as u32)
        }
    };
    let used = n - n / 5;
    let mut edges: Vec<(u32, u32)> =
        (0..m).map(|i| (draw(used), if i % 4 == 0 { 1 } else { draw(used) })).collect();
    edges.sort_by_key(|&(u, v)| (v, u));
    let mut indptr = vec![0u64; n + 1];
    edges.iter().for_each(|&(_, v)| indptr[v as usize + 1] += 1);
    (0..n).for_each(|v| indptr[v + 1] += indptr[v]);
    let indices: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
    let mut writer = DatasetWriter::create(&folder.join("ds"), false, &indptr, &indices).unwrap();
    let mut value = || draw(10_000) as f32 / 16.0 - 300.0;
    let features: Vec<f32> = (0..n * DIM).map(|_| value()).collect();
    let weights: Vec<f32> = (0..m).map(|_| value().abs() / 97.0).collect();
    let labels: Vec<i32> = (0..n).map(|_| draw(CLASSES as usize + 1) as i32 - 1).collect();
    let years: Vec<i64> = (0..n).map(|_| i64::from(draw(100)) - 50).collect();
    let split =
        |which: usize| (0..n as u32).filter(|v| *v as usize % 5 == which).collect::<Vec<u32>>();
    let splits = [split(0), split(3), split(4)];
    if kind != Kind::Bare {
        fill(&mut writer, kind, &features, &weights, &labels, &years);
        for (split, vertices) in Split::ALL.into_iter().zip(&splits) {
            writer.add_split(split, vertices.clone()).unwrap();
        }
    }
    let dataset = writer.finish(Provenance::default()).unwrap();
    Example { _folder, folder, dataset, n, edges, weights, features, labels, splits, years }
}

/// A name for each class up to the largest of `labels`.
fn class_names(labels: &[i32]) -> Vec<String> {
    (0..=labels.iter().copied().max().unwrap_or(0)).map(|class| format!("class: {class}")).collect()
}

fn fill(
    writer: &mut DatasetWriter,
    kind: Kind,
    features: &[f32],
    weights: &[f32],
    labels: &[i32],
    years: &[i64],
) {
    let mut rows = writer.feature_writer(FeatureDtype::F32, DIM).unwrap();
    rows.push_rows(features).unwrap();
    writer.add_features(rows, None).unwrap();
    let mut column = writer.edge_column_writer("weight", "<f4", 1).unwrap();
    column.push(&weights.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    writer.add_edge_column("weight", column).unwrap();
    let mut column = writer.edge_column_writer("feat", "<f8", 2).unwrap();
    for (e, w) in weights.iter().enumerate() {
        column.push(&[f64::from(*w).to_le_bytes(), (e as f64).to_le_bytes()].concat()).unwrap();
    }
    writer.add_edge_column("feat", column).unwrap();
    let mut column = writer.node_column_writer("year", "<i8", 1).unwrap();
    column.push(&years.iter().flat_map(|year| year.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    writer.add_node_column("year", column).unwrap();
    let n = labels.len();
    if kind == Kind::Single {
        writer.add_labels(labels).unwrap();
        writer.name_classes(&class_names(labels)).unwrap();
        writer.add_original_ids(&(0..n as u64).map(|v| v * 3 + 7).collect::<Vec<_>>()).unwrap();
        return;
    }
    if kind == Kind::Number {
        return writer
            .add_numeric_labels(&labels.iter().copied().map(number_of).collect::<Vec<_>>())
            .unwrap();
    }
    let mut bits = writer.multi_label_writer(CLASSES).unwrap();
    for label in labels {
        bits.push(&classes_of(*label).to_le_bytes()[..2]).unwrap();
    }
    writer.add_multi_labels(bits).unwrap();
    let mut names = writer.original_names_writer().unwrap();
    for v in 0..n {
        names.push(&format!("vertex/{v}")).unwrap();
    }
    writer.add_original_names(names).unwrap();
}

/// The classes that the multi-label examples give a vertex, as bits: its label and class 0; none
/// where it has no label.
fn classes_of(label: i32) -> u32 {
    if label < 0 { 0 } else { 1 << label | 1 }
}

/// The number that the examples with numbers give a vertex: NaN where it has no label.
fn number_of(label: i32) -> f32 {
    if label < 0 { f32::NAN } else { label as f32 / 4.0 - 1.0 }
}

impl Example {
    /// Exports to `out` in the example's folder.
    fn export(&self, format: ExportFormat, out: &str, options: &ExportOptions) -> PathBuf {
        let out = self.folder.join(out);
        let written = export(&self.dataset, format, &out, options, &NoProgress).unwrap();
        assert_eq!(written.path, out);
        assert_eq!((written.num_vertices, written.bytes), (self.n as u64, tree_bytes(&out)));
        out
    }

    fn write(&self, format: ExportFormat, out: &str) -> PathBuf {
        self.export(format, out, &ExportOptions::default())
    }
}

fn tree_bytes(path: &Path) -> u64 {
    read_tree(path).values().map(|bytes| bytes.len() as u64).sum()
}

/// Every file at or below `path` with its content.
fn read_tree(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    if path.is_file() {
        return BTreeMap::from([(PathBuf::new(), fs::read(path).unwrap())]);
    }
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        for (name, bytes) in read_tree(&entry.path()) {
            let parts = [PathBuf::from(entry.file_name()), name];
            files.insert(parts.into_iter().filter(|part| *part != PathBuf::new()).collect(), bytes);
        }
    }
    files
}

/// An array of a `.npy` file: its type, its shape and its numbers.
#[derive(Debug, PartialEq)]
struct StoredArray {
    descr: String,
    shape: Vec<usize>,
    values: Vec<f64>,
}

fn npy(path: &Path) -> StoredArray {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\0");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!(start % 64, 0);
    let head = String::from_utf8(bytes[10..start].to_vec()).unwrap();
    assert!(head.contains("'fortran_order': False"));
    let descr = head.split('\'').nth(3).unwrap().to_string();
    let shape = head.split(['(', ')']).nth(1).unwrap().split(',');
    let shape: Vec<usize> = shape.filter_map(|length| length.trim().parse().ok()).collect();
    let size: usize = descr[2..].parse().unwrap();
    let number = |b: &[u8]| match descr.as_str() {
        "|u1" => f64::from(b[0]),
        "<f4" => f64::from(f32::from_le_bytes(b.try_into().unwrap())),
        "<f8" => f64::from_le_bytes(b.try_into().unwrap()),
        "<i8" => i64::from_le_bytes(b.try_into().unwrap()) as f64,
        other => panic!("{other}"),
    };
    let values: Vec<f64> = bytes[start..].chunks(size).map(number).collect();
    assert_eq!(values.len(), shape.iter().product::<usize>());
    StoredArray { descr, shape, values }
}

const ALL: [ExportFormat; 5] = [
    ExportFormat::Pyg,
    ExportFormat::Metis,
    ExportFormat::Mtx,
    ExportFormat::Parquet,
    ExportFormat::Snap,
];

#[test]
fn differential_one_and_many_threads() {
    for kind in [Kind::Single, Kind::Multi] {
        let example = example(kind, 3000, 150_000, 4);
        for format in ALL {
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                read_tree(&pool.install(|| example.write(format, &format!("{format}{threads}"))))
            };
            assert!(run(1) == run(5), "{format}");
        }
    }
}

#[test]
fn labels_of_every_shape_come_back_from_an_export() {
    let classes = |labels: [i32; 4], classes: u32| {
        move |writer: &mut DatasetWriter| {
            let mut out = writer.label_writer().unwrap();
            out.push(&labels).unwrap();
            writer.add_label_column(out, classes).unwrap();
        }
    };
    let named = |writer: &mut DatasetWriter| {
        classes([2, 0, -1, 0], 4)(writer);
        writer.name_classes(&["no", "maybe", "yes", "nobody's"].map(String::from)).unwrap();
    };
    let sets = |writer: &mut DatasetWriter| {
        let mut out = writer.multi_label_writer(3).unwrap();
        out.push(&[1, 2, 4, 2]).unwrap();
        writer.add_multi_labels(out).unwrap();
        writer.name_classes(&["red", "green", "blue"].map(String::from)).unwrap();
    };
    let gaps = |writer: &mut DatasetWriter| {
        let mut out = writer.multi_label_writer(3).unwrap();
        out.push(&[1]).unwrap();
        out.push_known(&[2, 0, 4], &[3, 0, 7]).unwrap();
        writer.add_multi_labels(out).unwrap();
    };
    let numbers = |writer: &mut DatasetWriter| {
        writer.add_numeric_labels(&[1000.0, 7.0, f32::NAN, 7.0]).unwrap()
    };
    let with_gaps = classes([40, -1, 7, 0], 50);
    let fills: [&dyn Fn(&mut DatasetWriter); 5] = [&named, &sets, &gaps, &numbers, &with_gaps];
    for (which, fill) in fills.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer =
            DatasetWriter::create(&folder.path().join("ds"), false, &[0, 0, 1, 2, 3], &[0, 1, 2])
                .unwrap();
        fill(&mut writer);
        let dataset = writer.finish(Provenance::default()).unwrap();
        for format in [ExportFormat::Parquet, ExportFormat::Pyg] {
            let (out, back) =
                (folder.path().join(format.name()), folder.path().join(format!("{format}-back")));
            export(&dataset, format, &out, &ExportOptions::default(), &NoProgress).unwrap();
            let (back, _) =
                convert(&out, &back, &ConvertOptions::default(), false, &NoProgress).unwrap();
            let of = |dataset: &Dataset| {
                (dataset.manifest().label_shape(), dataset.manifest().class_names.clone())
            };
            assert_eq!(of(&back), of(&dataset), "{format}, {which}");
            let files = |dataset: &Dataset| {
                ["label", "label.known"]
                    .map(|name| fs::read(dataset.path().join(format!("nodes/{name}.npy"))).ok())
            };
            assert_eq!(files(&back), files(&dataset), "{format}, {which}");
            assert_eq!(
                back.manifest().features,
                None,
                "{format}, {which}: no name of a class is a feature"
            );
        }
    }
}

#[test]
fn what_is_left_out_is_said_once() {
    let example = example(Kind::Single, 30, 90, 2);
    let notes = Notes::default();
    let out = example.folder.join("g.mtx");
    let options = ExportOptions::default();
    let written = export(&example.dataset, ExportFormat::Mtx, &out, &options, &notes).unwrap();
    let left = "features, labels, class names, the train split, the valid split, the test split, node column year, edge column feat, \
                original ids";
    assert_eq!(written.left_out.join(", "), left);
    assert_eq!(notes.lines(), [format!("note: mtx has no place for {left}: left out")]);
    let everything = Notes::default();
    let out = example.folder.join("tables");
    export(&example.dataset, ExportFormat::Parquet, &out, &options, &everything).unwrap();
    assert!(everything.lines().is_empty());
}

/// Not a test of its own: tests/peers/run.py has it leave datasets that no generator makes, for
/// other tools to open.
#[test]
#[ignore = "run by tests/peers/run.py, with GSPLIT_PEERS naming a folder"]
fn leave_examples_for_the_peers() {
    let folder = PathBuf::from(std::env::var_os("GSPLIT_PEERS").unwrap());
    for (kind, name) in [(Kind::Single, "single"), (Kind::Multi, "multi"), (Kind::Bare, "bare")] {
        for (file, bytes) in read_tree(&example(kind, 700, 9000, 5).folder.join("ds")) {
            let path = folder.join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
}
