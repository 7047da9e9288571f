//! Written parts come back; parts that contradict the graph are refused with a reason.

use super::*;

#[test]
fn everything_comes_back() {
    let (_keep, path) = undisturbed();
    let dataset = Dataset::open(&path).unwrap();
    let manifest = dataset.manifest();
    let weight = dataset.edge_column("weight").unwrap();
    assert_eq!(weight.as_slice::<f32>().unwrap(), [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
    let year = dataset.node_column("year").unwrap();
    assert_eq!((year.descr(), year.rows(), year.width()), ("<i2", 4, 2));
    assert_eq!(year.as_slice::<i16>().unwrap(), [1999, 1, 2000, 2, 2001, 3, -5, 4]);
    let names = dataset.original_names().unwrap().unwrap();
    assert_eq!(names.iter().collect::<Result<Vec<_>>>().unwrap(), ["a", "b b", "", "ü"]);
    assert!(manifest.string_ids && dataset.original_ids().unwrap().is_none());
    assert_eq!(dataset.labels().unwrap()[..], [2, -1, 0, 1]);
    assert_eq!((manifest.num_classes, manifest.multi_label), (Some(3), false));
    assert_eq!(dataset.split(Split::Train).unwrap()[..], [0, 3]);
    let features = dataset.features().unwrap();
    assert_eq!((features.scale(1), features.row::<i8>(1)), (0.0, &[0i8, 0, 0][..]));
    assert_eq!((features.scale(3), features.row::<i8>(3)), (4.0 / 127.0, &[-127i8, 127, 0][..]));
    let narrowing = manifest.features.as_ref().unwrap().narrowing.unwrap();
    assert!(
        narrowing.max_abs_value == 4.0 && (0.001..0.016).contains(&narrowing.max_abs_error),
        "{narrowing:?}"
    );
    let facts = [("edges_read".to_string(), 6), ("told_at_the_end".to_string(), 1)];
    assert_eq!(manifest.provenance.facts, BTreeMap::from(facts));
    assert!(crate::verify(&path).unwrap().iter().all(|finding| finding.problem.is_none()));

    let line = dataset.node_column("month").unwrap_err().to_string();
    assert!(line.ends_with("has no node column `month`: it has year"), "{line}");
    let line = dataset.edge_column("../nodes/year").unwrap_err().to_string();
    assert!(line.contains("has no edge column") && line.ends_with("it has weight"), "{line}");
    assert!(dataset.multi_labels().unwrap_err().to_string().contains("one class each"));
}

#[test]
fn several_classes_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds");
    let mut writer = DatasetWriter::create(&path, false, &INDPTR, &INDICES).unwrap();
    let mut labels = writer.multi_label_writer(10).unwrap();
    assert_eq!(labels.row_bytes(), 2);
    labels.push(&[0b1000_0001, 0b10, 0, 0]).unwrap();
    labels.push(&[0xff, 0b11, 0, 1]).unwrap();
    writer.add_multi_labels(labels).unwrap();
    let dataset = writer.finish(provenance()).unwrap();
    let labels = dataset.multi_labels().unwrap();
    assert_eq!((labels.num_rows(), labels.num_classes()), (4, 10));
    let found: Vec<Vec<u32>> = (0..4).map(|v| labels.classes(v).collect()).collect();
    assert_eq!(found, [vec![0, 7, 9], vec![], (0..10).collect(), vec![8]]);
    assert!(labels.has(0, 9) && !labels.has(1, 0));
    // All cells have a value: nothing more is stored.
    let stored = dataset.manifest().files.keys().filter(|name| name.contains("label"));
    assert_eq!(stored.collect::<Vec<_>>(), ["nodes/label.npy"]);
    assert_eq!((labels.known_row(2), labels.num_known(2)), (None, Some(10)));
    assert_eq!(labels.cells(3).collect::<Vec<_>>()[7..], [false, true, false].map(Some));
    let line = dataset.labels().unwrap_err().to_string();
    assert!(
        line.contains("labels of one class a vertex") && line.contains("several classes"),
        "{line}"
    );
}

#[test]
fn cells_without_a_value_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = begun(folder.path());
    let mut labels = writer.multi_label_writer(10).unwrap();
    labels.push(&[1, 0b10]).unwrap();
    labels.push_known(&[0b101, 0], &[0b111, 0]).unwrap();
    labels.push_known(&[0, 0], &[0, 0]).unwrap();
    labels.push(&[0, 1]).unwrap();
    writer.add_multi_labels(labels).unwrap();
    let dataset = writer.finish(provenance()).unwrap();
    let labels = dataset.multi_labels().unwrap();
    assert!(dataset.lacks_label_cells());
    assert_eq!([0, 1, 2, 3].map(|v| labels.num_known(v).unwrap()), [10, 3, 0, 10]);
    let cells = |v| labels.cells(v).collect::<Vec<_>>();
    assert_eq!(cells(1), [&[Some(true), Some(false), Some(true)][..], &[None; 7]].concat());
    assert_eq!((cells(0)[9], cells(3)[8], cells(3)[9]), (Some(true), Some(true), Some(false)));
    // A row whose cells all have a value has a bit for each class, and none after the last.
    assert_eq!(labels.known_row(3), Some(&[0xff, 0b11][..]));
}

fn begun(folder: &Path) -> DatasetWriter {
    DatasetWriter::create(&folder.join("ds"), true, &INDPTR, &INDICES).unwrap()
}

#[test]
fn columns_that_contradict_the_graph_are_refused() {
    type Attempt = fn(&mut DatasetWriter) -> Result<()>;
    let attempts: [(&str, Attempt); 20] = [
        ("columns cannot be called `feat`", |writer| {
            writer.node_column_writer("feat", "<f4", 1).map(drop)
        }),
        ("columns cannot be called `label`", |writer| {
            writer.node_column_writer("label", "<f4", 1).map(drop)
        }),
        ("columns cannot be called `original_id`", |writer| {
            writer.node_column_writer("original_id", "<u8", 1).map(drop)
        }),
        ("columns cannot be called `../x`", |writer| {
            writer.edge_column_writer("../x", "<f4", 1).map(drop)
        }),
        ("columns cannot be called ``", |writer| writer.edge_column_writer("", "<f4", 1).map(drop)),
        ("columns cannot be called `ä`", |writer| {
            writer.node_column_writer("ä", "<f4", 1).map(drop)
        }),
        ("expected <f4, <f8 or <i8", |writer| writer.edge_column_writer("x", "<i4", 1).map(drop)),
        ("expected little-endian", |writer| writer.node_column_writer("x", ">f4", 1).map(drop)),
        ("expected little-endian", |writer| writer.node_column_writer("x", "|S8", 1).map(drop)),
        ("expected at least one", |writer| writer.node_column_writer("x", "<f4", 0).map(drop)),
        ("not whole elements of <f4", |writer| {
            writer.node_column_writer("x", "<f4", 1)?.push(&[0; 6])
        }),
        ("3 rows of node column `x` for 4 vertices", |writer| {
            let mut column = writer.node_column_writer("x", "<f4", 2)?;
            column.push(&[0; 24])?;
            writer.add_node_column("x", column)
        }),
        ("4 rows of edge column `x` for 6 edges", |writer| {
            let mut column = writer.edge_column_writer("x", "<f8", 1)?;
            column.push(&[0; 32])?;
            writer.add_edge_column("x", column)
        }),
        ("9 elements are not whole rows of 2", |writer| {
            let mut column = writer.node_column_writer("x", "|u1", 2)?;
            column.push(&[0; 9])?;
            writer.add_node_column("x", column)
        }),
        ("label -2 of vertex 1", |writer| writer.add_labels(&[0, -2, 0, 0])),
        ("3 labels for 4 vertices", |writer| writer.add_labels(&[0, 0, 0])),
        ("label 7: expected classes below 7", |writer| {
            let mut labels = writer.label_writer()?;
            labels.push(&[7, 0, -1, 6])?;
            writer.add_label_column(labels, 7)
        }),
        ("of 0 classes", |writer| writer.multi_label_writer(0).map(drop)),
        ("was added before", |writer| {
            writer.add_original_ids(&[5, 6, 7, 8])?;
            writer.original_names_writer().map(drop)
        }),
        ("was added before", |writer| writer.add_graph(&INDPTR, &INDICES)),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (expected, attempt) in attempts {
        let line = attempt(&mut begun(folder.path())).unwrap_err().to_string();
        assert!(line.contains(expected), "{line}, expected {expected}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_topology_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = DatasetWriter::begin(&folder.path().join("ds"), false).unwrap();
    let line = writer.add_labels(&[]).unwrap_err().to_string();
    assert_eq!(line, "ds: the topology must be added before this");
    assert!(writer.topology().is_err());
    assert!(
        writer.finish(provenance()).unwrap_err().to_string().contains("the topology must be added")
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_was_opened_and_not_added_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = begun(folder.path());
    writer.node_column_writer("unfinished", "<f4", 1).unwrap().push(&[0; 8]).unwrap();
    writer.add_original_ids(&[1, 2, 3, u64::MAX]).unwrap();
    fs::write(writer.scratch().join("x"), "x").unwrap();
    let dataset = writer.finish(provenance()).unwrap();
    let names: Vec<String> = contents(dataset.path()).into_keys().collect();
    assert_eq!(
        names,
        ["dataset.json", "nodes/original_id.npy", "topology/indices.npy", "topology/indptr.npy"]
    );
    assert_eq!(dataset.original_ids().unwrap().unwrap().to_vec(), [1, 2, 3, u64::MAX]);
    assert!(dataset.original_names().unwrap().is_none());
}

#[test]
fn version_1_is_refused_by_name() {
    let (_keep, path) = undisturbed();
    let document = path.join("dataset.json");
    let text = fs::read_to_string(&document).unwrap();
    fs::write(&document, text.replacen("\"format_version\": 2", "\"format_version\": 1", 1))
        .unwrap();
    let line = Dataset::open(&path).unwrap_err().to_string();
    assert!(
        line.contains(
            "gsplit-dataset version 1, this gsplit reads gsplit-dataset version 2: rebuild it"
        ),
        "{line}"
    );
}
