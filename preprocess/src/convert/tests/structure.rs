//! Tables whose structure is wrong: columns, headers, ids and files that are not where they are expected.

use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;

use super::bad_input::{Wrong, message};
use super::meaning::options as options_with;
use super::tables::{EDGES, converted, folder, labels, names, options_of, rows};
use super::*;
use crate::read::options::Scale;

/// Rows below those that types are told by.
const LATE: usize = 1100;
const ROWS: usize = 1500;

/// A cycle of [`ROWS`] vertices, from 0.
fn cycle() -> String {
    (0..ROWS).fold("src,dst\n".to_string(), |text, v| text + &format!("{v},{}\n", (v + 1) % ROWS))
}

/// A table of that cycle's vertices in which most columns begin at row [`LATE`].
fn late_table(header: &str) -> String {
    let row = |v: usize| match v < LATE {
        true => format!("{v},{},,,,,\n", v % 7),
        false => format!(
            "{v},{},{}.5,2020-01-{:02},{},{},{}\n",
            v % 7,
            v,
            1 + v % 3,
            ["a", "b"][v % 2],
            ["x", "y", "z"][v % 3],
            ["train", "valid", "test"][v % 3]
        ),
    };
    (0..ROWS).fold(format!("{header}\n"), |text, v| text + &row(v))
}

#[test]
fn columns_that_begin_below_the_first_rows_are_columns() {
    let input = folder(&cycle(), &late_table("id,age,income,since,plan,label,split"));
    let mut options = options_of(&input);
    options.read.node_table.fill = Some("0".parse().unwrap());
    let (out, dataset, notes) = converted(&input, &options);
    let row = |v: usize| rows(&dataset)[v].clone();
    // Age; income and its indicator; days and their indicator; two plans.
    assert_eq!(row(3), [3.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(row(1400), [0.0, 1400.5, 0.0, 18264.0, 0.0, 1.0, 0.0]);
    assert_eq!(
        (labels(&dataset)[0], labels(&dataset)[1400], dataset.manifest().class_names.clone()),
        (-1, 2, names(&["x", "y", "z"]))
    );
    assert_eq!(dataset.split(Split::Test).unwrap()[..3], [1100, 1103, 1106]);
    assert!(!notes.contains("left out the columns"), "{notes}");
    // New tables have the same types, also where they lack all values of a column.
    let dir = out.path().join("ds");
    for nodes in [
        late_table("id,age,income,since,plan,label,split"),
        late_table("id,age,income,since,plan,a,b").replace(".5,", ","),
    ] {
        fs::write(input.path().join("nodes.csv"), nodes).unwrap();
        let mut new = options_of(&input);
        (new.read.node_table.recipe, new.directed) = (Some(dir.clone()), false);
        assert_eq!(rows(&converted(&input, &new).1)[3], row(3));
    }
    let blank =
        (0..ROWS).fold("id,age,income,since,plan,label,split\n".to_string(), |text, v| text + &format!("{v},1,,,,,\n"));
    fs::write(input.path().join("nodes.csv"), blank).unwrap();
    let mut new = options_of(&input);
    (new.read.node_table.recipe, new.directed) = (Some(dir), false);
    assert_eq!(rows(&converted(&input, &new).1)[3], [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn late_columns_of_edges_and_of_parts_are_columns() {
    let input = tempfile::tempdir().unwrap();
    let path = input.path().join("edges");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("part-0.csv"), "src,dst,w,none\n1,2,,\n").unwrap();
    fs::write(path.join("part-1.csv"), format!("src,dst,w,none\n{}2,3,7.5,\n", "1,2,,\n".repeat(3000))).unwrap();
    let notes = gsplit_store::Notes::default();
    let (dataset, _) = convert(&path, &input.path().join("ds"), &ConvertOptions::default(), false, &notes).unwrap();
    let found = dataset.edge_column("w").unwrap().as_slice::<f64>().unwrap().to_vec();
    assert!(found[0].is_nan() && found[1] == 7.5, "{found:?}");
    assert!(notes.lines().join("\n").contains("left out the columns none, which are empty in every row"));
    fs::write(
        path.join("part-1.csv"),
        format!("src,dst,w,none\n{}2,3,7.5,\n2,4,1.0,\n2,5,soon,\n", "1,2,,\n".repeat(3000)),
    )
    .unwrap();
    let found = message(&path, &ConvertOptions::default());
    assert!(found.contains("part-1.csv, line 3004: column `w` holds numbers for the most part, and `soon`"), "{found}");
    let named = ReadOptions { edge_columns: names(&["none"]), ..ReadOptions::default() };
    fs::write(path.join("part-1.csv"), "src,dst,w,none\n").unwrap();
    let named = ReadOptions { edge_columns: names(&["w"]), ..named };
    let found = message(&path, &ConvertOptions { read: named, ..ConvertOptions::default() });
    assert!(found.contains("column `w` is empty in every row: expected numbers, for --edge-columns"), "{found}");
}

#[test]
fn broken_tables_are_named_with_their_cause() {
    let mut wrong = Wrong::default();
    let good = "id,f0,label\n10,1,a\n20,2,b\n30,3,a\n40,4,b\n";
    let many: String = (0..2000).map(|row| format!("{row},{}\n", row + 1)).collect();
    let cases: &[(&str, &str, &str)] = &[
        (EDGES, "id,age,plan,age\n10,1,a,2\n", "nodes.csv, line 1: two columns are named `age`: columns 2 and 4"),
        ("src,dst,w, w \n10,20,1,2\n", good, "edges.csv, line 1: two columns are named `w`: columns 3 and 4"),
        (EDGES, "id,f0,label\n", "nodes.csv: has columns and no rows"),
        (EDGES, "id,label\n10,a\nID,Label\n20,b\n", "nodes.csv, line 3: repeats the header of line 1"),
        (EDGES, "id,label\n10,a\n\u{feff}\"id\",\"label\"\n20,b\n", "nodes.csv, line 3: repeats the header of line 1"),
        ("src,dst\n10,20\nsrc,dst\n20,30\n", good, "edges.csv, line 3: repeats the header of line 1"),
        (&format!("src,dst\n{many}src,dst\n"), good, "edges.csv, line 2002: repeats the header of line 1"),
    ];
    for (edges, nodes, expected) in cases {
        let input = folder(edges, nodes);
        wrong.expect(expected, &message(&input.path().join("edges.csv"), &options_of(&input)), &[expected]);
    }
    wrong.check();
}

#[test]
fn an_empty_label_is_called_empty() {
    let input = folder(EDGES, "id,f0,kind\n10,1,\n20,2,\n30,3,NA\n40,4,\n");
    let mut options = options_of(&input);
    options.read.node_table.label_column = names(&["kind"]);
    let found = message(&input.path().join("edges.csv"), &options);
    assert!(
        found.contains("column `kind` is empty in every row: expected numbers or strings, for --label-column"),
        "{found}"
    );
    options.read.node_table.label_column = names(&["none"]);
    options.read.node_table.feature_columns = names(&["kind"]);
    let found = message(&input.path().join("edges.csv"), &options);
    assert!(found.contains("column `kind` is empty in every row: expected numbers, for --feature-columns"), "{found}");
    options.read.node_table.feature_columns = None;
    let notes = converted(&input, &options).2;
    assert!(notes.contains("left out the columns kind, which are empty in every row"), "{notes}");
}

#[test]
fn text_of_other_encodings_is_named() {
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let input = folder(EDGES, "");
    let nodes = "id,f0,label\n10,1,a\n20,2,b\n30,3,a\n40,4,b\n";
    for (bytes, encoding) in [
        (wide(&format!("\u{feff}{nodes}")), "UTF-16"),
        (wide(nodes), "UTF-16LE"),
        (nodes.encode_utf16().flat_map(u16::to_be_bytes).collect(), "UTF-16BE"),
    ] {
        fs::write(input.path().join("nodes.csv"), bytes).unwrap();
        let found = message(&input.path().join("edges.csv"), &options_of(&input));
        let expected = format!(
            "nodes.csv: text in {encoding}: expected UTF-8: `iconv -f {encoding} -t UTF-8 nodes.csv > utf8-nodes.csv`"
        );
        assert!(found.contains(&expected), "{found}");
    }
    fs::write(input.path().join("edges.csv.gz"), gz(&String::from_utf8(wide(EDGES)).unwrap())).unwrap();
    let found = message(&input.path().join("edges.csv.gz"), &ConvertOptions::default());
    assert!(found.contains("unpack it, and `iconv -f UTF-16LE -t UTF-8 edges.csv > utf8-edges.csv`"), "{found}");
    fs::write(input.path().join("edges.csv"), wide(EDGES)).unwrap();
    let found = message(&input.path().join("edges.csv"), &ConvertOptions::default());
    assert!(found.contains("edges.csv: text in UTF-16LE"), "{found}");
}

/// Writes these columns as Parquet.
fn write_parquet(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn typed_tables_have_the_same_rules() {
    let input = folder(EDGES, "");
    let path = input.path().join("nodes.parquet");
    let ages: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["10", "20", "30", "40"]));
    let mut options = options_of(&input);
    options.read.nodes = Some(path.clone());
    write_parquet(&path, vec![("id", ids.clone()), ("age", ages.clone()), ("age", ages.clone())]);
    let found = message(&input.path().join("edges.csv"), &options);
    assert!(found.contains("nodes.parquet: two columns are named `age`: columns 2 and 3"), "{found}");
    write_parquet(&path, vec![("customer", ids), ("age", ages)]);
    assert_eq!(rows(&converted(&input, &options).1), [[1.0], [2.0], [3.0], [4.0]]);
    let padded: ArrayRef = Arc::new(StringArray::from(vec!["0010", "0020", "0030", "0040"]));
    write_parquet(&path, vec![("customer", padded)]);
    let found = message(&input.path().join("edges.csv"), &options);
    assert!(
        found.contains("`0010` and `0020`, the same but for zeros before numbers: pass --id-type number"),
        "{found}"
    );
    options.read.id_type = options_with("--id-type number").read.id_type;
    assert_eq!(converted(&input, &options).1.num_vertices(), 4);
}

#[test]
fn a_stray_among_ids_is_named_with_its_line() {
    let vertices: String = (10..40).map(|v| format!("{v},{}.5,a\n", v + 3)).collect();
    let edges: String = (10..40).map(|v| format!("{v},{}\n", if v == 39 { 10 } else { v + 1 })).collect();
    let mut wrong = Wrong::default();
    for (edges, nodes, expected) in [
        (
            format!("src,dst\n{edges}"),
            format!("customer,x,label\n{vertices}Total,5,a\n"),
            "nodes.csv, line 32: column `customer`: `Total`: expected a whole number below 2^64, as in other rows: fix or remove the line, \
             or pass --id-type text if ids are strings",
        ),
        (
            // Another column of the same numbers is not taken for the ids.
            "src,dst\n1,2\n2,3\n3,1\n".into(),
            "id,x,label\n1,1,a\n2,2,b\n3,3,a\nTotal,6,\n".into(),
            "nodes.csv, line 5: column `id`: `Total`: expected a whole number",
        ),
        (
            format!("src,dst\n{edges}Total,31\n"),
            format!("customer,x,label\n{vertices}"),
            "edges.csv, line 32: column `src`: `Total`: expected a whole number below 2^64",
        ),
    ] {
        let input = folder(&edges, &nodes);
        wrong.expect(expected, &message(&input.path().join("edges.csv"), &options_of(&input)), &[expected]);
    }
    wrong.check();
}

#[test]
fn ids_that_do_not_match_are_shown() {
    let edges = |id: fn(u32) -> String| {
        (1..30).fold("src,dst\n".to_string(), |all, v| all + &format!("{},{}\n", id(v), id(v + 1)))
    };
    let nodes =
        |id: fn(u32) -> String| (1..31).fold("customer,x\n".to_string(), |all, v| all + &format!("{},{v}.5\n", id(v)));
    let mut wrong = Wrong::default();
    type Write = fn(u32) -> String;
    let cases: [(Write, Write, &str); 5] = [
        (
            |v| format!("c{v}"),
            |v| format!("C{v}"),
            "`customer` has `C1` and `C2`, the same but for upper and lower case: write them alike in both tables",
        ),
        (|v| format!("c{v}"), |v| format!("c-{v}"), "the same but for blanks and punctuation"),
        (
            |v| format!("c{v}"),
            |v| v.to_string(),
            "`customer` has `1` and `2`, the same but for what is before or after the digits",
        ),
        (|v| format!("c{v}"), |v| format!("c0{v}x"), "the same but for what is before or after the digits"),
        (
            |v| v.to_string(),
            |v| (v + 1000).to_string(),
            "`customer` has `1001` and `1002`: pass --id-column COLUMN if another holds them",
        ),
    ];
    for (of_edges, of_nodes, expected) in cases {
        let input = folder(&edges(of_edges), &nodes(of_nodes));
        wrong.expect(expected, &message(&input.path().join("edges.csv"), &options_of(&input)), &[expected]);
    }
    let makes = (1..30).fold("firm,product\n".to_string(), |all, v| all + &format!("F{v},P{v}\n"));
    let input = folder(&makes, &nodes(|v| format!("F{v}")));
    let expected = "`customer` holds the ids of the sources of the edges and none of the targets, such as `P";
    wrong.expect("one end", &message(&input.path().join("edges.csv"), &options_of(&input)), &[expected]);
    let input = folder(EDGES, "customer,age\n10,1\n20,2\n30,3\n40,4\n");
    let mut options = options_of(&input);
    options.read.node_table.label_column = names(&["customer"]);
    for id in [None, Some("customer".to_string())] {
        options.read.node_table.id_column = id;
        let expected = ["nodes.csv: column `customer` holds the ids", "name another with --label-column, or none"];
        wrong.expect("label", &message(&input.path().join("edges.csv"), &options), &expected);
    }
    wrong.check();
}

#[test]
fn titles_above_the_header_are_skipped() {
    let edges = "Edges of 2026\n\nsrc,dst\n10,20\n20,30\n30,10\n40,10\n";
    let nodes = "Customers,,\n\"as of May, all\",,\nid,f0,label\n10,1,a\n20,2,b\n30,3,a\n40,4,b\n";
    let input = folder(edges, nodes);
    let (_out, dataset, notes) = converted(&input, &options_of(&input));
    assert_eq!((rows(&dataset), dataset.topology().num_edges()), (vec![vec![1.0], vec![2.0], vec![3.0], vec![4.0]], 4));
    for expected in [
        "edges.csv: the header is line 3: skipped the lines above it, such as `Edges of 2026`",
        "nodes.csv: the header is line 3: skipped the lines above it, such as `Customers,,`",
    ] {
        assert!(notes.contains(expected), "{notes}");
    }
}

#[test]
fn folders_hold_one_table_and_documents() {
    let input = folder("", "");
    let write = |name: &str, text: &str| {
        let path = input.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (name, text) in [
        ("e/part-0.csv", "src,dst\n10,20\n20,30\n"),
        ("e/part-1.csv", "src,dst\n30,10\n40,10\n"),
        ("v/part-0.csv", "id,f0,label\n10,1,a\n20,2,b\n"),
        ("v/part-1.csv", "id,f0,label\n30,3,a\n40,4,b\n"),
        ("several/firms.csv", "firm_id,sector,employees\n10,a,5\n20,b,6\n"),
        ("several/makes.csv", "firm,product\n10,20\n"),
        ("several/products.csv", "product_id,kg\n20,5\n"),
    ] {
        write(name, text);
    }
    write("e/README.txt", "Edges.\n");
    write("v/README.txt", "Vertices.\n");
    write("v/LICENSE", "Free.\n");
    let notes = gsplit_store::Notes::default();
    let mut options = options_of(&input);
    options.read.nodes = Some(input.path().join("v"));
    let out = input.path().join("ds");
    let (dataset, _) = convert(&input.path().join("e"), &out, &options, false, &notes).unwrap();
    assert_eq!((rows(&dataset).len(), dataset.topology().num_edges()), (4, 4));
    let notes = notes.lines().join("\n");
    assert!(
        notes.contains("e: passed over README.txt (not") && notes.contains("v: passed over LICENSE, README.txt (not"),
        "{notes}"
    );
    let expected = "several: its files have different columns, so they are several tables and not parts of one (firms.csv has `firm_id`, \
                    `sector`, `employees`; makes.csv has `firm`, `product`; products.csv has `product_id`, `kg`): name a table of edges as INPUT";
    let found = message(&input.path().join("several"), &ConvertOptions::default());
    assert!(found.contains(expected), "{found}");
    options.read.nodes = Some(input.path().join("several"));
    let found = message(&input.path().join("e"), &options);
    assert!(found.contains(expected), "{found}");
}

#[test]
fn a_number_too_large_for_a_feature_is_named_with_its_line() {
    let input = folder(EDGES, "id,f0,label\n10,1,a\n20,2.5,b\n30,1e300,a\n40,4,b\n");
    let mut options = options_of(&input);
    options.read.node_table.scale = Some(Scale::Standard);
    let found = message(&input.path().join("edges.csv"), &options);
    assert!(
        found.contains("nodes.csv, line 4: column `f0`: 1e300: expected a number of at most 3.4e38, the largest f32"),
        "{found}"
    );
}

#[test]
fn exchanged_tables_are_told_by_their_values() {
    let customers: String = (1..60).map(|v| format!("{v},{},{}\n", 1000 + v, v % 5)).collect();
    let payments: String = (1..200).map(|v| format!("{},{}\n", 1 + v % 59, 1 + v * v % 59)).collect();
    for (nodes, edges) in [("customer,account,shoe", "payer,payee"), ("customer,x,y", "a,b")] {
        let input = folder(&format!("{nodes}\n{customers}"), &format!("{edges}\n{payments}"));
        let found = message(&input.path().join("edges.csv"), &options_of(&input));
        let (source, target) = edges.split_once(',').unwrap();
        let expected = format!(
            "INPUT and --nodes seem to be exchanged: `{source}` and `{target}` of nodes.csv hold values of `customer`: pass nodes.csv as \
             INPUT, and --nodes edges.csv"
        );
        assert!(found.contains(&expected), "{found}");
    }
    // Another mistake is not taken for it.
    let input = folder(&format!("src,dst\n{payments}5\n"), &format!("customer,account,shoe\n{customers}"));
    let found = message(&input.path().join("edges.csv"), &options_of(&input));
    assert!(found.contains("edges.csv, line 201: 1 field: expected 2"), "{found}");
}
