//! Tables whose structure is wrong: columns, headers, ids and files that are not where they are
//! expected.

use std::sync::Arc;

use arrow_array::{Int64Array, StringArray};

use super::bad_input::message;
use super::tables::EDGES;
use super::*;

/// A row below the rows that decide the types.
const LATE: usize = 1100;
const ROWS: usize = 1500;

/// A cycle of [`ROWS`] vertices, from 0.
fn cycle() -> String {
    (0..ROWS).fold("src,dst\n".to_string(), |text, v| text + &format!("{v},{}\n", (v + 1) % ROWS))
}

/// A table of that cycle's vertices in which most columns begin at row [`LATE`].
fn late_table(header: &str) -> String {
    let late = |v: usize| {
        let (plan, label, split) =
            (["a", "b"][v % 2], ["x", "y", "z"][v % 3], ["train", "valid", "test"][v % 3]);
        format!("{v}.5,2020-01-{:02},{plan},{label},{split}", 1 + v % 3)
    };
    let row = |v: usize| {
        format!("{v},{},{}\n", v % 7, if v < LATE { ",,,,".to_string() } else { late(v) })
    };
    (0..ROWS).fold(format!("{header}\n"), |text, v| text + &row(v))
}

#[test]
fn columns_that_begin_below_the_first_rows_are_columns() {
    let input = folder(&cycle(), &late_table("id,age,income,since,plan,label,split"));
    let (dataset, notes) = converted(&input, "--schema fill=0");
    let row = |v: usize| rows(&dataset)[v].clone();
    // Age; income and its indicator; days and their indicator; two plans.
    assert_eq!(row(3), [3.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(row(1400), [0.0, 1400.5, 0.0, 18264.0, 0.0, 1.0, 0.0]);
    assert_eq!([labels(&dataset)[0], labels(&dataset)[1400]], [-1, 2]);
    assert_eq!(dataset.manifest().class_names, names(&["x", "y", "z"]));
    assert_eq!(dataset.split(Split::Test).unwrap()[..3], [1100, 1103, 1106]);
    assert!(!notes.contains("left out the columns"), "{notes}");
    // New tables have the same types, also where they lack all values of a column.
    let recipe = format!("--recipe {}", dataset.path().display());
    let header = "id,age,income,since,plan,label,split";
    let blank = (0..ROWS).fold(format!("{header}\n"), |text, v| text + &format!("{v},1,,,,,\n"));
    for (nodes, expected) in [
        (late_table(header), row(3)),
        (late_table("id,age,income,since,plan,a,b").replace(".5,", ","), row(3)),
        (blank, vec![1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]),
    ] {
        fs::write(input.path().join("nodes.csv"), nodes).unwrap();
        assert_eq!(rows(&converted(&input, &recipe).0)[3], expected);
    }
}

#[test]
fn late_columns_of_edges_and_of_parts_are_columns() {
    let input = tempfile::tempdir().unwrap();
    let path = input.path().join("edges");
    fs::create_dir(&path).unwrap();
    let header = "src,dst,w,none";
    let part =
        |rows: &str| fs::write(path.join("part-1.csv"), format!("{header}\n{rows}")).unwrap();
    let late = "1,2,,\n".repeat(3000) + "2,3,7.5,\n";
    fs::write(path.join("part-0.csv"), format!("{header}\n1,2,,\n")).unwrap();
    part(&late);
    let notes = Notes::default();
    let (dataset, _) =
        convert(&path, &input.path().join("ds"), &options(""), false, &notes).unwrap();
    let found = dataset.edge_column("w").unwrap().as_slice::<f64>().unwrap().to_vec();
    assert!(found[0].is_nan() && found[1] == 7.5, "{found:?}");
    assert!(
        notes
            .lines()
            .join("\n")
            .contains("left out the columns none, which are empty in every row")
    );
    part(&format!("{late}2,4,1.0,\n2,5,soon,\n"));
    let found = message(&path, &options(""));
    assert!(
        found.contains(
            "part-1.csv, line 3004: column `w`: `soon`: expected a number, as in other rows; pass --schema na=soon"
        ),
        "{found}"
    );
    part("");
    let found = message(&path, &options("--edge-columns w"));
    assert!(
        found.contains("column `w` is empty in every row: expected numbers, for --edge-columns"),
        "{found}"
    );
}

#[test]
fn broken_tables_are_named_with_their_cause() {
    let good = "id,f0,label\n10,1,a\n20,2,b\n30,3,a\n40,4,b\n";
    let many: String = (0..2000).map(|row| format!("{row},{}\n", row + 1)).collect();
    for (edges, nodes, expected) in [
        (
            EDGES,
            "id,age,plan,age\n10,1,a,2\n",
            "nodes.csv, line 1: two columns are named `age`: columns 2 and 4",
        ),
        (
            "src,dst,w, w \n10,20,1,2\n",
            good,
            "edges.csv, line 1: two columns are named `w`: columns 3 and 4",
        ),
        (EDGES, "id,f0,label\n", "nodes.csv: has columns and no rows"),
        (
            EDGES,
            "id,label\n10,a\nID,Label\n20,b\n",
            "nodes.csv, line 3: repeats the header of line 1",
        ),
        (
            EDGES,
            "id,label\n10,a\n\u{feff}\"id\",\"label\"\n20,b\n",
            "nodes.csv, line 3: repeats the header of line 1",
        ),
        (
            "src,dst\n10,20\nsrc,dst\n20,30\n",
            good,
            "edges.csv, line 3: repeats the header of line 1",
        ),
        (
            &format!("src,dst\n{many}src,dst\n"),
            good,
            "edges.csv, line 2002: repeats the header of line 1",
        ),
    ] {
        refused(&folder(edges, nodes), "", &[expected]);
    }
}

#[test]
fn an_empty_label_is_called_empty() {
    let input = folder(EDGES, "id,f0,kind\n10,1,\n20,2,\n30,3,NA\n40,4,\n");
    let empty = "column `kind` is empty in every row: expected numbers";
    refused(&input, "--label-column kind", &[&format!("{empty} or strings, for --label-column")]);
    let words = "--label-column none --feature-columns kind";
    refused(&input, words, &[&format!("{empty}, for --feature-columns")]);
    let (_, notes) = converted(&input, "--label-column none");
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
        let remedy =
            format!("expected UTF-8: `iconv -f {encoding} -t UTF-8 nodes.csv > utf8-nodes.csv`");
        refused(&input, "", &[&format!("nodes.csv: text in {encoding}: {remedy}")]);
    }
    fs::write(input.path().join("edges.csv.gz"), gz(&String::from_utf8(wide(EDGES)).unwrap()))
        .unwrap();
    let found = message(&input.path().join("edges.csv.gz"), &options(""));
    assert!(
        found.contains("unpack it, and `iconv -f UTF-16LE -t UTF-8 edges.csv > utf8-edges.csv`"),
        "{found}"
    );
    fs::write(input.path().join("edges.csv"), wide(EDGES)).unwrap();
    let found = message(&input.path().join("edges.csv"), &options(""));
    assert!(found.contains("edges.csv: text in UTF-16LE"), "{found}");
}

#[test]
fn typed_tables_have_the_same_rules() {
    let input = folder(EDGES, "");
    let path = input.path().join("nodes.parquet");
    let ages: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["10", "20", "30", "40"]));
    let nodes = format!("--nodes {}", path.display());
    write_parquet(&path, vec![("id", ids.clone()), ("age", ages.clone()), ("age", ages.clone())]);
    refused(&input, &nodes, &["nodes.parquet: two columns are named `age`: columns 2 and 3"]);
    write_parquet(&path, vec![("customer", ids), ("age", ages)]);
    assert_eq!(rows(&converted(&input, &nodes).0), [[1.0], [2.0], [3.0], [4.0]]);
    let padded: ArrayRef = Arc::new(StringArray::from(vec!["0010", "0020", "0030", "0040"]));
    write_parquet(&path, vec![("customer", padded)]);
    let zeros = "`0010`, `0020`, `0030` ...: write them alike in both tables (--schema \
                 id-type=number takes 0010 for 10)";
    refused(&input, &nodes, &[zeros]);
    assert_eq!(converted(&input, &format!("{nodes} --schema id-type=number")).0.num_vertices(), 4);
}

#[test]
fn a_stray_among_ids_is_named_with_its_line() {
    let vertices: String = (10..40).map(|v| format!("{v},{}.5,{}\n", v + 3, v % 2)).collect();
    let edges: String =
        (10..40).map(|v| format!("{v},{}\n", if v == 39 { 10 } else { v + 1 })).collect();
    for (edges, nodes, expected) in [
        (
            format!("src,dst\n{edges}"),
            format!("customer,x,label\n{vertices}Total,5,1\n"),
            "nodes.csv, line 32: column `customer`: `Total`: expected a whole number below 2^64, \
             as in other rows: fix or remove the line, \
             or pass --schema id-type=text if ids are strings",
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
        refused(&folder(&edges, &nodes), "", &[expected]);
    }
}

#[test]
fn ids_that_do_not_match_are_shown() {
    let edges = |id: fn(u32) -> String| {
        (1..30).fold("src,dst\n".to_string(), |all, v| all + &format!("{},{}\n", id(v), id(v + 1)))
    };
    let nodes = |id: fn(u32) -> String| {
        (1..31).fold("customer,x\n".to_string(), |all, v| all + &format!("{},{v}.5\n", id(v)))
    };
    type Write = fn(u32) -> String;
    let cases: [(Write, Write, &str); 3] = [
        (
            |v| format!("c{v}"),
            |v| format!("C{v}"),
            "`customer` has `C1`, `C2`, `C3` ...: write them alike",
        ),
        (
            |v| format!("c{v}"),
            |v| v.to_string(),
            "`customer` has `1`, `2`, `3` ...: write them alike",
        ),
        (|v| v.to_string(), |v| (v + 1000).to_string(), "`customer` has `1001`, `1002`"),
    ];
    for (of_edges, of_nodes, expected) in cases {
        refused(&folder(&edges(of_edges), &nodes(of_nodes)), "", &[expected]);
    }
    let makes = (1..30).fold("firm,product\n".to_string(), |all, v| all + &format!("F{v},P{v}\n"));
    let expected =
        "`customer` holds the ids of the sources of the edges and none of the targets, such as `P";
    refused(&folder(&makes, &nodes(|v| format!("F{v}"))), "", &[expected]);
    let input = folder(EDGES, "customer,age\n10,1\n20,2\n30,3\n40,4\n");
    for words in ["--label-column customer", "--label-column customer --id-column customer"] {
        let parts = [
            "nodes.csv: column `customer` holds the ids",
            "name another with --label-column, or none",
        ];
        refused(&input, words, &parts);
    }
}

#[test]
fn titles_above_the_header_are_skipped() {
    let edges = "Edges of 2026\n\nsrc,dst\n10,20\n20,30\n30,10\n40,10\n";
    let nodes = "Customers,,\n\"as of May, all\",,\nid,f0,label\n10,1,a\n20,2,b\n30,3,a\n40,4,b\n";
    let input = folder(edges, nodes);
    let (dataset, notes) = converted(&input, "");
    assert_eq!(
        (rows(&dataset), dataset.topology().num_edges()),
        (vec![vec![1.0], vec![2.0], vec![3.0], vec![4.0]], 4)
    );
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
    let notes = Notes::default();
    let with = |nodes: &str| options(&format!("--nodes {}", input.path().join(nodes).display()));
    let (dataset, _) =
        convert(&input.path().join("e"), &input.path().join("ds"), &with("v"), false, &notes)
            .unwrap();
    assert_eq!((rows(&dataset).len(), dataset.topology().num_edges()), (4, 8));
    let notes = notes.lines().join("\n");
    for passed in ["e: passed over README.txt (not", "v: passed over LICENSE, README.txt (not"] {
        assert!(notes.contains(passed), "{notes}");
    }
    let expected = "several: its files have different columns, so they are several tables and not parts of one (firms.csv has `firm_id`, \
                    `sector`, `employees`; makes.csv has `firm`, `product`; products.csv has \
                    `product_id`, `kg`): name a table of edges as INPUT";
    for (edges, options) in [("several", options("")), ("e", with("several"))] {
        let found = message(&input.path().join(edges), &options);
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn a_number_too_large_for_a_feature_is_named_with_its_line() {
    let input = folder(EDGES, "id,f0,label\n10,1,a\n20,2.5,b\n30,1e300,a\n40,4,b\n");
    let told = "nodes.csv, line 4: column `f0`: `1e300`: expected a finite 32-bit number";
    refused(&input, "--schema scale=standard", &[told]);
}
