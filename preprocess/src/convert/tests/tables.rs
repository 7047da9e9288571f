//! Tables of vertices as people have them: many columns of numbers, classes by name, the index of
//! pandas.

use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{DictionaryArray, Float64Array, Int64Array, StringArray, UInt8Array};
use arrow_ipc::writer::FileWriter;

use super::bad_input::{Wrong, message};
use super::*;
use crate::read::options::{Encode, Fill};

pub(super) const EDGES: &str = "src,dst\n10,20\n20,30\n30,10\n40,10\n";

const NODES: &str = "id,f0,f1,city,subject,split\n\
    40,4,0.25,Rome,physics,train\n30,3,-1.5,Oslo,maths,val\n20,2,1e-3,Rome,physics,\n10,1,16777217,Bonn,,test\n";

#[test]
fn numbers_become_features_and_strings_classes() {
    let input = folder(EDGES, NODES);
    let (dataset, notes) = converted(&input, "--label-column subject");
    // In the order of the vertices 10, 20, 30, 40; as precise as f32 is.
    assert_eq!(
        rows(&dataset),
        [vec![1.0, 16777216.0], vec![2.0, 1e-3], vec![3.0, -1.5], vec![4.0, 0.25]]
    );
    assert_eq!(labels(&dataset), [-1, 1, 0, 1]);
    assert_eq!(dataset.manifest().class_names, names(&["maths", "physics"]));
    assert_eq!(dataset.split(Split::Train).unwrap()[..], [3]);
    assert_eq!(dataset.split(Split::Valid).unwrap()[..], [2]);
    assert_eq!(dataset.split(Split::Test).unwrap()[..], [0]);
    assert!(dataset.manifest().columns.is_empty());
    let said = "ids from `id`; features from 2 columns, `f0`, `f1`; labels from `subject` (2 classes by name); splits from `split`";
    assert!(notes.contains(said), "{notes}");
    let unused =
        "nodes.csv: `city` is not used for training: hardly any of its strings occurs twice";
    assert!(notes.contains(unused), "{notes}");
}

#[test]
fn categories_are_codes_or_one_hot() {
    let input = folder(EDGES, NODES);
    let one_hot =
        [[1.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 1.0], [3.0, 0.0, 1.0, 0.0], [4.0, 0.0, 0.0, 1.0]];
    for (how, expected) in [
        ("code", [[1.0, 0.0], [2.0, 2.0], [3.0, 1.0], [4.0, 2.0]].map(Vec::from)),
        ("onehot", one_hot.map(Vec::from)),
    ] {
        let words = format!("--feature-columns f0 --label-column subject --schema encode=c*={how}");
        let (dataset, _) = converted(&input, &words);
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
        let (dataset, _) = converted(&input, "--feature-columns none");
        assert_eq!(labels(&dataset), expected, "{label}");
        assert_eq!(dataset.manifest().class_names, classes, "{label}");
        let (dataset, _) = converted(&input, "--feature-columns none --label-column none");
        assert_eq!(dataset.manifest().num_classes, None);
    }
    let input = folder(EDGES, &people("job", ["x", "y", "x", "y"]));
    let question = "which column is the label? `job` has `x`, `y`: pass --label-column COLUMN, or --label-column none";
    refused(&input, "", &["nodes.csv: ", question]);
    let nodes = "id,job,town,member\n10,x,a,0\n20,y,a,1\n30,x,b,1\n40,y,b,0\n";
    fs::write(input.path().join("nodes.csv"), nodes).unwrap();
    refused(
        &input,
        "",
        &["? `job` has `x`, `y`; `town` has `a`, `b`; `member` has `0`, `1`: pass"],
    );
    assert_eq!(converted(&input, "--label-column none").0.manifest().num_classes, None);
}

#[test]
fn the_index_of_pandas_is_understood() {
    let plain = folder(EDGES, "id,f0,label\n10,1,0\n20,2,1\n30,3,0\n40,4,1\n");
    let edges = ",0,1\n0,10,20\n1,20,30\n2,30,10\n3,40,10\n";
    let pandas = folder(edges, "Unnamed: 0,id,f0,label\n0,10,1,0\n1,20,2,1\n2,30,3,0\n3,40,4,1\n");
    let (expected, _) = converted(&plain, "");
    let (found, notes) = converted(&pandas, "");
    assert_eq!(rows(&found), rows(&expected));
    let topology = |dataset: &Dataset| dataset.topology().indices().to_vec();
    assert_eq!(topology(&found), topology(&expected));
    assert!(found.manifest().edge_columns.is_empty() && found.manifest().columns.is_empty());
    assert!(
        notes.contains(
            "edges.csv: left out the column without a name: the index that pandas writes"
        ),
        "{notes}"
    );
    assert!(
        notes.contains("nodes.csv: left out the column Unnamed: 0: the index that pandas writes"),
        "{notes}"
    );
}

#[test]
fn ids_are_found_by_those_of_the_edges() {
    for (nodes, column) in [
        ("f0,key,label\n1,10,0\n2,20,1\n3,30,0\n4,40,1\n", "key"),
        (",f0,label\n10,1,0\n20,2,1\n30,3,0\n40,4,1\n", ""),
    ] {
        let input = folder(EDGES, nodes);
        let (dataset, notes) = converted(&input, "");
        assert_eq!(rows(&dataset), [[1.0], [2.0], [3.0], [4.0]]);
        assert_eq!(labels(&dataset), [0, 1, 0, 1]);
        assert!(
            notes.contains(&format!("ids from `{column}`, which holds those of the edges")),
            "{notes}"
        );
    }
    let strings = folder("src,dst\na,b\nb,c\nc,d\n", "kind,age,code\nx,1,a\nx,2,b\ny,3,c\ny,4,d\n");
    let (dataset, notes) = converted(&strings, "--label-column kind");
    assert!(
        notes.contains("ids from `code`")
            && notes.contains("labels from `kind` (2 classes by name)"),
        "{notes}"
    );
    assert_eq!(rows(&dataset), [[1.0], [2.0], [3.0], [4.0]]);
    assert_eq!(labels(&dataset), [0, 0, 1, 1]);
}

#[test]
fn missing_values_are_refused_or_filled() {
    let nodes = "id,f0,city\n10,1,x\n20,,y\n30,NaN,\n40,4,x\n";
    let input = folder(EDGES, nodes);
    let words = "--label-column none --schema encode=city=onehot";
    refused(
        &input,
        words,
        &["nodes.csv, line 3: column `f0`: has no value: pass --schema fill=NUMBER or --schema \
           fill=mean"],
    );
    for (fill, filled) in [("mean", 2.5), ("-3", -3.0)] {
        let (dataset, _) = converted(&input, &format!("{words} --schema fill={fill}"));
        let expected = [
            [1.0, 0.0, 1.0, 0.0],
            [filled, 1.0, 0.0, 1.0],
            [filled, 1.0, 0.0, 0.0],
            [4.0, 0.0, 1.0, 0.0],
        ];
        assert_eq!(rows(&dataset), expected, "the second says where a number is missing");
        let recipe = dataset.manifest().recipe.clone().unwrap();
        assert_eq!(recipe.feature_names(), ["f0", "f0 missing", "city=x", "city=y"]);
    }
}

#[test]
fn the_result_does_not_depend_on_threads() {
    let seed = 7u64;
    let mut nodes = String::from("key,a,b,kind\n");
    let mut edges = String::from("src,dst\n");
    let random = |v: u64| (v + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 40;
    for v in 0..60_000u64 {
        let (a, b) = (random(v), random(v + 1_000_000) as f64 / 977.0);
        nodes += &format!(
            "{},{},{b},k{}\n",
            v * 3,
            if a % 11 == 0 { String::new() } else { a.to_string() },
            a % 5
        );
        edges += &format!("{},{}\n", v * 3, (v * 31 % 60_000) * 3);
    }
    let input = folder(&edges, &nodes);
    let words = "--schema fill=mean --label-column kind --schema scale=standard";
    let files = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| converted(&input, words)).0.manifest().files.clone()
    };
    assert_eq!(files(1), files(3), "seed {seed}");
}

#[test]
fn parquet_and_arrow_give_what_text_gives() {
    let input = folder(
        EDGES,
        "id,age,height,town,job\n40,4,0.1,Rome,b\n30,3,,Oslo,a\n20,2,7.5,,b\n10,1,1,Bonn,a\n",
    );
    let columns = vec![
        ("id", Arc::new(Int64Array::from(vec![40, 30, 20, 10])) as ArrayRef),
        ("age", Arc::new(UInt8Array::from(vec![4, 3, 2, 1]))),
        ("height", Arc::new(Float64Array::from(vec![Some(0.1), None, Some(7.5), Some(1.0)]))),
        (
            "town",
            Arc::new(DictionaryArray::<Int8Type>::from_iter([
                Some("Rome"),
                Some("Oslo"),
                None,
                Some("Bonn"),
            ])),
        ),
        ("job", Arc::new(StringArray::from(vec!["b", "a", "b", "a"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns.clone()).unwrap();
    write_parquet(&input.path().join("nodes.parquet"), columns);
    let file = fs::File::create(input.path().join("nodes.arrow")).unwrap();
    let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let words = |name: &str| {
        format!(
            "--nodes {} --schema encode=town=onehot --label-column job",
            input.path().join(name).display()
        )
    };
    for name in ["nodes.parquet", "nodes.arrow"] {
        refused(
            &input,
            &words(name),
            &[&format!("{name}: row 1, column `height`: has no value: pass --schema fill")],
        );
    }
    let files = ["nodes.csv", "nodes.parquet", "nodes.arrow"].map(|name| {
        let (dataset, _) = converted(&input, &format!("{} --schema fill=mean", words(name)));
        assert_eq!(dataset.manifest().class_names, names(&["a", "b"]), "{name}");
        assert_eq!(rows(&dataset)[2], [3.0, (8.6f64 / 3.0) as f32, 1.0, 0.0, 1.0, 0.0], "{name}");
        dataset.manifest().files.clone()
    });
    assert_eq!(files[0], files[1]);
    assert_eq!(files[0], files[2]);
}

#[test]
fn a_folder_of_two_tables_is_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("x_edges.csv", "node_1,node_2\n0,1\n1,2\n2,0\n");
    let pages =
        "id,x_id,page_name,page_type\n2,7,a b,tv\n1,8,\"c, d\",company\n0,9,e,tv\n3,5,f,company\n";
    write("x_target.csv", pages);
    write("x_features.json", "{}");
    let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
    let (dataset, _) =
        convert(folder.path(), &out.path().join("ds"), &options(""), false, &notes).unwrap();
    assert_eq!(labels(&dataset), vec![1, 0, 1, 0]);
    assert_eq!(dataset.manifest().class_names, names(&["company", "tv"]));
    assert_eq!(dataset.manifest().provenance.sources.len(), 2);
    let told = notes.lines().join("\n");
    assert!(
        told.contains("not read: x_features.json. --nodes names a table of vertices"),
        "{told}"
    );
    // The edges may use another column than `id`.
    write(
        "x_target.csv",
        "id,days,mature,new_id\n900,7,True,2\n901,8,False,1\n17,9,True,0\n2,5,False,3\n",
    );
    let (out, notes) = (tempfile::tempdir().unwrap(), Notes::default());
    convert(folder.path(), &out.path().join("ds"), &options(""), false, &notes).unwrap();
    let ids = notes.lines().join("\n");
    assert!(ids.contains("ids from `new_id`, which holds those of the edges"), "{ids}");
    write("y_edges.csv", "node_1,node_2\n0,1\n");
    let told = message(folder.path(), &ConvertOptions::default());
    assert!(told.contains("holds 2 tables `edges`: expected one"), "{told}");
}

#[test]
fn bad_tables_and_options() {
    let mut wrong = Wrong::default();
    let plain = "id,f0\n10,1\n20,2\n30,3\n40,4\n";
    for (nodes, words, parts) in [
        (
            "id,f0\n10,1\n20,2\n30,x\n40,4\n",
            "--feature-columns f?",
            &["nodes.csv, line 4: column `f0`: `x`: expected a number or a date, as in most \
                 rows: pass --schema na=x"][..],
        ),
        (
            "id,f0\n10,1\n20,2\n30,inf\n40,4\n",
            "",
            &["nodes.csv, line 4: column `f0`: `inf`: expected a finite"],
        ),
        (
            plain,
            "--feature-columns g*",
            &["nodes.csv", "no column `g*` for --feature-columns", "`id`, `f0`"],
        ),
        (plain, "--label-column kind", &["no column `kind` for --label-column"]),
        (plain, "--split-column f0", &["column `f0`: expected the strings train"]),
        (
            plain,
            "--schema encode=g=code",
            &["no column `g` of strings or numbers for --schema \
                                             encode"],
        ),
        (
            "id,s\n10,dev\n20,train\n30,fold\n40,\n",
            "--split-column s",
            &["line 4: column `s`: `fold`: expected train"],
        ),
        ("id,y\n10,0\n20,0.5\n30,1\n40,1\n", "--schema label-kind=class", &["label 0.5"]),
        (
            "f0,f1\n1,2\n3,4\n",
            "",
            &[
                "nodes.csv: no column holds most ids of the edges, which are integers",
                "--id-column",
            ],
        ),
    ] {
        refused(&folder(EDGES, nodes), words, parts);
    }
    let without = folder(EDGES, "id\n");
    let told = message(&without.path().join("edges.csv"), &options("--schema fill=mean"));
    assert!(told.contains("--schema fill has no effect"), "{told}");
    for (text, expected) in
        [("x", "COLUMN=onehot"), ("=code", "COLUMN=onehot"), ("a=b", "COLUMN=none, auto or none")]
    {
        wrong.expect(text, &text.parse::<Encode>().unwrap_err(), &[expected]);
    }
    for text in ["nan", "inf", "median", ""] {
        wrong.expect(
            text,
            &text.parse::<Fill>().unwrap_err(),
            &["expected a finite number, or mean"],
        );
    }
    wrong.check();
}
