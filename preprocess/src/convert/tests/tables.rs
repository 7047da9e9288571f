//! Tables of vertices as people have them: many columns of numbers, classes by name, the index of pandas.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow_ipc::writer::FileWriter;
use gsplit_store::Notes;
use parquet::arrow::ArrowWriter;

use super::bad_input::{Wrong, message};
use super::*;
use crate::read::options::{Categories, Encode, Fill, LabelKind, NodeTableOptions, Scale};

pub(super) const EDGES: &str = "src,dst\n10,20\n20,30\n30,10\n40,10\n";

/// A folder with these edges and vertices.
pub(super) fn folder(edges: &str, nodes: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("edges.csv"), edges).unwrap();
    std::fs::write(folder.path().join("nodes.csv"), nodes).unwrap();
    folder
}

pub(super) fn options_of(folder: &TempDir) -> ConvertOptions {
    let nodes = Some(folder.path().join("nodes.csv"));
    let node_table = NodeTableOptions { scale: Some(Scale::None), ..Default::default() };
    ConvertOptions {
        read: ReadOptions { nodes, node_table, ..Default::default() },
        directed: true,
        ..Default::default()
    }
}

pub(super) fn names(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|&name| name.into()).collect())
}

pub(super) fn rows(dataset: &Dataset) -> Vec<Vec<f32>> {
    let features = dataset.features().unwrap();
    (0..dataset.num_vertices() as u32).map(|v| features.row::<f32>(v).to_vec()).collect()
}

pub(super) fn labels(dataset: &Dataset) -> Vec<i32> {
    dataset.labels().unwrap().to_vec()
}

/// The dataset of a conversion, and the notes it says on the way.
pub(super) fn converted(folder: &TempDir, options: &ConvertOptions) -> (TempDir, Dataset, String) {
    let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
    let edges = folder.path().join("edges.csv");
    let (dataset, _) = convert(&edges, &out.path().join("ds"), options, false, &notes).unwrap();
    (out, dataset, notes.lines().join("\n"))
}

const NODES: &str = "id,f0,f1,city,subject,split\n\
    40,4,0.25,Rome,physics,train\n30,3,-1.5,Oslo,maths,val\n20,2,1e-3,Rome,physics,\n10,1,16777217,Bonn,,test\n";

#[test]
fn numbers_become_features_and_strings_classes() {
    let input = folder(EDGES, NODES);
    let mut options = options_of(&input);
    options.read.node_table.label_column = names(&["subject"]);
    let (_out, dataset, notes) = converted(&input, &options);
    // In the order of the vertices 10, 20, 30, 40; as precise as f32 is.
    assert_eq!(rows(&dataset), [vec![1.0, 16777216.0], vec![2.0, 1e-3], vec![3.0, -1.5], vec![4.0, 0.25]]);
    assert_eq!(labels(&dataset), [-1, 1, 0, 1]);
    assert_eq!(dataset.manifest().class_names, names(&["maths", "physics"]));
    assert_eq!(dataset.split(Split::Train).unwrap()[..], [3]);
    assert_eq!(dataset.split(Split::Valid).unwrap()[..], [2]);
    assert_eq!(dataset.split(Split::Test).unwrap()[..], [0]);
    assert!(dataset.manifest().columns.is_empty());
    let said = "ids from `id`; features from 2 columns, `f0`, `f1`; labels from `subject` (2 classes by name); splits from `split`";
    assert!(notes.contains(said), "{notes}");
    assert!(
        notes.contains("nodes.csv: `city` is not used for training: hardly any of its strings occurs twice"),
        "{notes}"
    );
}

#[test]
fn categories_are_codes_or_one_hot() {
    let input = folder(EDGES, NODES);
    for (how, expected) in [
        (Categories::Code, [vec![1.0, 0.0], vec![2.0, 2.0], vec![3.0, 1.0], vec![4.0, 2.0]]),
        (
            Categories::OneHot,
            [vec![1.0, 1.0, 0.0, 0.0], vec![2.0, 0.0, 0.0, 1.0], vec![3.0, 0.0, 1.0, 0.0], vec![4.0, 0.0, 0.0, 1.0]],
        ),
    ] {
        let mut options = options_of(&input);
        options.read.node_table.feature_columns = names(&["f0"]);
        options.read.node_table.label_column = names(&["subject"]);
        options.read.node_table.encode = Some(vec![Encode::Column { pattern: "c*".into(), how }]);
        let (_out, dataset, _) = converted(&input, &options);
        assert_eq!(rows(&dataset), expected, "{how:?}");
        // What no option names stays as it is.
        assert_eq!(dataset.manifest().columns.keys().collect::<Vec<_>>(), ["f1"]);
        assert_eq!(dataset.manifest().class_names, names(&["maths", "physics"]));
    }
}

#[test]
fn labels_are_found_by_name_or_asked_for() {
    let people = |label: &str, values: [&str; 4]| {
        let row = |(id, value): (u32, &str)| format!("{id}0,person {id},{value}\n");
        format!("id,who,{label}\n{}", (1..5).zip(values).map(row).collect::<String>())
    };
    for (label, values, expected, classes) in [
        ("CLASS", ["b", "a", "b", "None"], [1, 0, 1, -1], names(&["a", "b"])),
        ("target", ["1", "0", "3", "2"], [1, 0, 3, 2], None),
        ("y", ["2010", "2009", "-1", "2010"], [1, 0, -1, 1], names(&["2009", "2010"])),
        ("Label", ["-5", "7", "100", "7"], [0, 1, 2, 1], names(&["-5", "7", "100"])),
        ("Label", ["1.0", "", "0.0", "1.0"], [1, -1, 0, 1], None),
    ] {
        let input = folder(EDGES, &people(label, values));
        let mut options = options_of(&input);
        options.read.node_table.feature_columns = names(&["none"]);
        let (_out, dataset, _) = converted(&input, &options);
        assert_eq!(labels(&dataset), expected, "{label}");
        assert_eq!(dataset.manifest().class_names, classes, "{label}");
        options.read.node_table.label_column = names(&["none"]);
        assert_eq!(converted(&input, &options).1.manifest().num_classes, None);
    }
    let input = folder(EDGES, &people("job", ["x", "y", "x", "y"]));
    let asked = message(&input.path().join("edges.csv"), &options_of(&input));
    let question = "nodes.csv: which column is the label? `job` (2 strings) can be: pass --label-column COLUMN, or --label-column none";
    assert!(asked.contains(question), "{asked}");
    let nodes = "id,job,town,member\n10,x,a,0\n20,y,a,1\n30,x,b,1\n40,y,b,0\n";
    std::fs::write(input.path().join("nodes.csv"), nodes).unwrap();
    let asked = message(&input.path().join("edges.csv"), &options_of(&input));
    assert!(asked.contains("? `job` (2 strings), `town` (2 strings), `member` (0 and 1) can be: pass"), "{asked}");
    let mut options = options_of(&input);
    options.read.node_table.label_column = names(&["none"]);
    assert_eq!(converted(&input, &options).1.manifest().num_classes, None);
    // An outcome is known by its name.
    std::fs::write(input.path().join("nodes.csv"), nodes.replace("member", "churned")).unwrap();
    let (_out, dataset, notes) = converted(&input, &options_of(&input));
    assert_eq!((labels(&dataset), dataset.manifest().class_names.clone()), (vec![0, 1, 1, 0], None));
    assert!(notes.contains("labels from `churned`"), "{notes}");
}

#[test]
fn the_index_of_pandas_is_understood() {
    let plain = folder(EDGES, "id,f0,label\n10,1,0\n20,2,1\n30,3,0\n40,4,1\n");
    let edges = ",0,1\n0,10,20\n1,20,30\n2,30,10\n3,40,10\n";
    let pandas = folder(edges, "Unnamed: 0,id,f0,label\n0,10,1,0\n1,20,2,1\n2,30,3,0\n3,40,4,1\n");
    let (_a, expected, _) = converted(&plain, &options_of(&plain));
    let (_b, found, notes) = converted(&pandas, &options_of(&pandas));
    assert_eq!(rows(&found), rows(&expected));
    let topology = |dataset: &Dataset| dataset.topology().indices().to_vec();
    assert_eq!(topology(&found), topology(&expected));
    assert!(found.manifest().edge_columns.is_empty() && found.manifest().columns.is_empty());
    assert!(notes.contains("edges.csv: left out the column without a name: the index that pandas writes"), "{notes}");
    assert!(notes.contains("nodes.csv: left out the column Unnamed: 0: the index that pandas writes"), "{notes}");
}

#[test]
fn ids_are_found_by_those_of_the_edges() {
    for (nodes, column) in
        [("f0,key,label\n1,10,0\n2,20,1\n3,30,0\n4,40,1\n", "key"), (",f0,label\n10,1,0\n20,2,1\n30,3,0\n40,4,1\n", "")]
    {
        let input = folder(EDGES, nodes);
        let (_out, dataset, notes) = converted(&input, &options_of(&input));
        assert_eq!(rows(&dataset), [[1.0], [2.0], [3.0], [4.0]]);
        assert_eq!(labels(&dataset), [0, 1, 0, 1]);
        assert!(notes.contains(&format!("ids from `{column}`, which holds those of the edges")), "{notes}");
    }
    let strings = folder("src,dst\na,b\nb,c\nc,d\n", "kind,age,code\nx,1,a\nx,2,b\ny,3,c\ny,4,d\n");
    let mut options = options_of(&strings);
    options.read.node_table.label_column = names(&["kind"]);
    let (_out, dataset, notes) = converted(&strings, &options);
    assert!(notes.contains("ids from `code`") && notes.contains("labels from `kind` (2 classes by name)"), "{notes}");
    assert_eq!(
        (rows(&dataset), labels(&dataset)),
        (vec![vec![1.0], vec![2.0], vec![3.0], vec![4.0]], vec![0, 0, 1, 1])
    );
}

#[test]
fn missing_values_are_refused_or_filled() {
    let nodes = "id,f0,city\n10,1,x\n20,,y\n30,NaN,\n40,4,x\n";
    let input = folder(EDGES, nodes);
    let mut options = options_of(&input);
    options.read.node_table.label_column = names(&["none"]);
    options.read.node_table.encode = Some(vec!["city=onehot".parse::<Encode>().unwrap()]);
    let refused = message(&input.path().join("edges.csv"), &options);
    assert!(
        refused.contains("nodes.csv, line 3: column `f0`: has no value: pass --fill NUMBER or --fill mean"),
        "{refused}"
    );
    for (fill, filled) in [(Fill::Mean, 2.5), (Fill::Value(-3.0), -3.0)] {
        options.read.node_table.fill = Some(fill);
        let (_out, dataset, _) = converted(&input, &options);
        let expected = [[1.0, 0.0, 1.0, 0.0], [filled, 1.0, 0.0, 1.0], [filled, 1.0, 0.0, 0.0], [4.0, 0.0, 1.0, 0.0]];
        assert_eq!(rows(&dataset), expected, "the second says where a number is missing");
        let recipe = dataset.manifest().recipe.clone().unwrap();
        assert_eq!(recipe.feature_names(), ["f0", "f0 missing", "city=x", "city=y"]);
    }
}

#[test]
fn the_result_does_not_depend_on_threads_and_changed_options_are_noticed() {
    let seed = 7u64;
    let mut nodes = String::from("key,a,b,kind\n");
    let mut edges = String::from("src,dst\n");
    let random = |v: u64| (v + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 40;
    for v in 0..60_000u64 {
        let (a, b) = (random(v), random(v + 1_000_000) as f64 / 977.0);
        nodes += &format!("{},{},{b},k{}\n", v * 3, if a % 11 == 0 { String::new() } else { a.to_string() }, a % 5);
        edges += &format!("{},{}\n", v * 3, (v * 31 % 60_000) * 3);
    }
    let input = folder(&edges, &nodes);
    let mut options = options_of(&input);
    options.read.node_table.fill = Some(Fill::Mean);
    options.read.node_table.label_column = names(&["kind"]);
    options.read.node_table.scale = None;
    let files = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (_out, dataset, _) = pool.install(|| converted(&input, &options));
        dataset.manifest().files.clone()
    };
    assert_eq!(files(1), files(3), "seed {seed}");
    let out = input.path().join("ds");
    let run = |options| convert(&input.path().join("edges.csv"), &out, options, false, &NoProgress);
    assert_eq!(run(&options).unwrap().1, Outcome::Converted);
    assert_eq!(run(&options).unwrap().1, Outcome::Reused);
    let mut other = options.clone();
    other.read.node_table.fill = Some(Fill::Value(0.0));
    let problem = run(&other).unwrap_err().to_string();
    assert!(problem.contains("made with --fill mean and is asked for with --fill 0"), "{problem}");
}

#[test]
fn parquet_and_arrow_give_what_text_gives() {
    let input = folder(EDGES, "id,age,height,town,job\n40,4,0.1,Rome,b\n30,3,,Oslo,a\n20,2,7.5,,b\n10,1,1,Bonn,a\n");
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(vec![40, 30, 20, 10])) as ArrayRef),
        ("age", Arc::new(UInt8Array::from(vec![4, 3, 2, 1]))),
        ("height", Arc::new(Float64Array::from(vec![Some(0.1), None, Some(7.5), Some(1.0)]))),
        ("town", Arc::new(DictionaryArray::<Int8Type>::from_iter([Some("Rome"), Some("Oslo"), None, Some("Bonn")]))),
        ("job", Arc::new(StringArray::from(vec!["b", "a", "b", "a"]))),
    ]);
    let batch = batch.unwrap();
    let create = |name: &str| std::fs::File::create(input.path().join(name)).unwrap();
    let mut writer = ArrowWriter::try_new(create("nodes.parquet"), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut writer = FileWriter::try_new(create("nodes.arrow"), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut options = options_of(&input);
    options.read.node_table.encode = Some(vec!["town=onehot".parse().unwrap()]);
    options.read.node_table.label_column = names(&["job"]);
    let refused = |options: &ConvertOptions| message(&input.path().join("edges.csv"), options);
    for name in ["nodes.parquet", "nodes.arrow"] {
        options.read.nodes = Some(input.path().join(name));
        options.read.node_table.fill = None;
        let message = refused(&options);
        assert!(message.contains(&format!("{name}: row 1, column `height`: has no value: pass --fill")), "{message}");
    }
    options.read.node_table.fill = Some(Fill::Mean);
    let files = ["nodes.csv", "nodes.parquet", "nodes.arrow"].map(|name| {
        options.read.nodes = Some(input.path().join(name));
        let (_out, dataset, _) = converted(&input, &options);
        assert_eq!(dataset.manifest().class_names, names(&["a", "b"]), "{name}");
        assert_eq!(rows(&dataset)[2], [3.0, (8.6f64 / 3.0) as f32, 1.0, 0.0, 1.0, 0.0], "{name}");
        dataset.manifest().files.clone()
    });
    assert_eq!(files[0], files[1]);
    assert_eq!(files[0], files[2]);
}

#[test]
fn a_folder_of_musae_is_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("musae_x_edges.csv", "node_1,node_2\n0,1\n1,2\n2,0\n");
    write(
        "musae_x_target.csv",
        "id,x_id,page_name,page_type\n2,7,a b,tv\n1,8,\"c, d\",company\n0,9,e,tv\n3,5,f,company\n",
    );
    write("musae_x_features.json", r#"{"0": [0, 3], "2": [1], "1": [], "3": [3, 3]}"#);
    write("README.txt", "MUSAE\n");
    let (_out, dataset) = convert_new(folder.path(), &ConvertOptions::default()).unwrap();
    let expected = [[1.0, 0.0, 0.0, 1.0], [0.0; 4], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
    assert_eq!((rows(&dataset), labels(&dataset)), (expected.map(|row| row.to_vec()).to_vec(), vec![1, 0, 1, 0]));
    assert_eq!(dataset.manifest().class_names, names(&["company", "tv"]));
    assert_eq!(dataset.manifest().columns.keys().collect::<Vec<_>>(), ["x_id"]);
    assert_eq!(dataset.manifest().provenance.sources.len(), 3);
    // Of twitch, `id` is not what the edges and features are named by.
    write("musae_x_target.csv", "id,days,mature,new_id\n900,7,True,2\n901,8,False,1\n17,9,True,0\n2,5,False,3\n");
    let notes = Notes::default();
    let out = tempfile::tempdir().unwrap();
    let (twitch, _) =
        convert(folder.path(), &out.path().join("ds"), &ConvertOptions::default(), false, &notes).unwrap();
    assert_eq!(rows(&twitch), rows(&dataset));
    let ids = notes.lines().join("\n");
    assert!(ids.contains("ids from `new_id`, which holds those of the edges"), "{ids}");
    assert!(twitch.manifest().columns.contains_key("id"), "kept as numbers");
    write("musae_x_target.csv", "id,x_id,page_type\n2,7,tv\n1,8,company\n0,9,tv\n3,5,company\n");
    let mut wrong = Wrong::default();
    for (json, parts) in [
        (r#"{"0": [0], "1": [1], "2": [1]}"#, &["musae_x_features.json", "has no list of vertex 3"][..]),
        (r#"{"0": [0], "1": [1], "2": [1], "3": [-1]}"#, &["features.json", "line 1 column"]),
        (
            r#"{"0": [0], "1": [1], "2": [1], "3": [99999999]}"#,
            &["100000000 features: expected numbers of features below"],
        ),
        (r#"{"0": [0], "0": [1]}"#, &["lists 0 and 1 are of one vertex"]),
        (r#"{"0": [0], "a": [1], "2": [], "3": []}"#, &["vertex \"a\": expected an id"]),
        (r#"{"0": [0], "1""#, &["features.json: expected {\"VERTEX\": [FEATURE, ...], ...}", "EOF"]),
        ("[]", &["features.json: expected {\"VERTEX\": [FEATURE, ...], ...}"]),
    ] {
        write("musae_x_features.json", json);
        wrong.expect(json, &message(folder.path(), &ConvertOptions::default()), parts);
    }
    write("musae_y_edges.csv", "node_1,node_2\n0,1\n");
    wrong.expect("two", &message(folder.path(), &ConvertOptions::default()), &["holds 2 tables `edges`: expected one"]);
    wrong.check();
}

#[test]
fn bad_tables_and_options() {
    let mut wrong = Wrong::default();
    type TableCase<'a> = (&'a str, fn(&mut ReadOptions), &'a [&'a str]);
    let set: &[TableCase<'_>] = &[
        (
            "id,f0\n10,1\n20,2\n30,x\n40,4\n",
            |read| read.node_table.feature_columns = names(&["f?"]),
            &[
                "nodes.csv, line 4: column `f0`: `x`: expected a number or a date, as in most rows: pass --na x --fill mean if it means",
            ],
        ),
        ("id,f0\n10,1\n20,2\n30,inf\n40,4\n", |_| {}, &["nodes.csv, line 4: column `f0`: `inf`: expected a finite"]),
        (
            "id,f0\n10,1\n20,2\n30,3\n40,4\n",
            |read| read.node_table.feature_columns = names(&["g*"]),
            &["nodes.csv", "no column `g*` for --feature-columns", "`id`, `f0`"],
        ),
        (
            "id,f0\n10,1\n20,2\n30,3\n40,4\n",
            |read| read.node_table.label_column = names(&["kind"]),
            &["no column `kind` for --label-column"],
        ),
        (
            "id,f0\n10,1\n20,2\n30,3\n40,4\n",
            |read| read.node_table.split_column = names(&["f0"]),
            &["column `f0`: expected the strings train"],
        ),
        (
            "id,f0\n10,1\n20,2\n30,3\n40,4\n",
            |read| read.node_table.encode = Some(vec!["g=code".parse().unwrap()]),
            &["no column `g` of strings or numbers for --encode"],
        ),
        (
            "id,s\n10,dev\n20,train\n30,fold\n40,\n",
            |read| read.node_table.split_column = names(&["s"]),
            &["line 4, column `s`: `fold`: expected train"],
        ),
        (
            "id,y\n10,0\n20,0.5\n30,1\n40,1\n",
            |read| read.node_table.label_kind = Some(LabelKind::Class),
            &["label 0.5"],
        ),
        (
            "f0,f1\n1,2\n3,4\n",
            |_| {},
            &["nodes.csv", "no column holds most ids of the edges, which are integers", "--id-column"],
        ),
    ];
    for (nodes, change, parts) in set {
        let input = folder(EDGES, nodes);
        let mut options = options_of(&input);
        change(&mut options.read);
        wrong.expect(nodes, &message(&input.path().join("edges.csv"), &options), parts);
    }
    let input = folder(EDGES, "id\n");
    let read = ReadOptions {
        node_table: NodeTableOptions { fill: Some(Fill::Mean), ..Default::default() },
        ..Default::default()
    };
    let without = ConvertOptions { read, ..Default::default() };
    wrong.expect(
        "no --nodes",
        &message(&input.path().join("edges.csv"), &without),
        &["--fill is for a table of vertices"],
    );
    for (text, expected) in [("x", "COLUMN=onehot"), ("=code", "COLUMN=onehot"), ("a=b", "COLUMN=none, auto or none")] {
        wrong.expect(text, &text.parse::<Encode>().unwrap_err(), &[expected]);
    }
    for text in ["nan", "inf", "median", ""] {
        wrong.expect(text, &text.parse::<Fill>().unwrap_err(), &["expected a finite number, or mean"]);
    }
    wrong.check();
}
