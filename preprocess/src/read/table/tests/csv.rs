//! Text tables.

use std::fs;
use std::io::Write;

use xxhash_rust::xxh3::xxh3_64;

use super::*;

fn table(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_table_with_quotes_and_gaps() {
    let wanted = ["weight", "time"].map(String::from).to_vec();
    let options = ReadOptions::from(Schema { edge_columns: Some(wanted), ..Schema::default() });
    let raw = opened(&fixture("edges.csv"), &options).unwrap();
    let names: Vec<_> =
        raw.edges.columns().iter().map(|column| (column.name.as_str(), column.value)).collect();
    assert_eq!(names, [("weight", ValueType::F32), ("time", ValueType::I64)]);
    let batch = read(raw.edges.as_ref()).unwrap();
    assert_eq!((&batch.sources[..], &batch.targets[..]), (&SOURCES[..], &TARGETS[..]));
    let weight = |row: i64| if row == 4 { f32::NAN } else { row as f32 / 4.0 };
    let row = |row: i64| [&weight(row).to_le_bytes()[..], &(row - 3).to_le_bytes()].concat();
    assert_eq!(batch.values, (0..10).flat_map(row).collect::<Vec<u8>>());
}

#[test]
fn oracle_long_tables_in_parts_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = 150_000u64;
    let row = |row: u64| format!("n{};{row};{}.25;{}\r\n", row % 997, row, row.is_multiple_of(2));
    let text = |range: std::ops::Range<u64>| {
        "From;To;w;odd\r\n".to_string() + &range.map(row).collect::<String>()
    };
    let raw_text = text(0..rows).replace(";", "\t").replace('n', "");
    let plain = table(folder, "one.tsv", &raw_text);
    table(folder, "parts/b.csv", &text(100_000..rows).replace(';', ","));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text(0..100_000).replace(';', ",").as_bytes()).unwrap();
    fs::write(folder.join("parts/a.csv.gz"), gz.finish().unwrap()).unwrap();
    table(folder, "parts/c.csv", "");

    let numbers = by_default(&plain).unwrap();
    let batch = read(numbers.edges.as_ref()).unwrap();
    assert!(batch.sources.iter().copied().eq((0..rows).map(|row| row % 997)));
    assert!(batch.targets.iter().copied().eq(0..rows));
    let values = |row: u64| {
        [(row as f64 + 0.25).to_le_bytes(), i64::from(row.is_multiple_of(2)).to_le_bytes()].concat()
    };
    assert!(batch.values.iter().copied().eq((0..rows).flat_map(values)));
    let estimate = numbers.edges.estimate().unwrap();
    assert!(estimate.edges.abs_diff(rows) < rows / 3, "{estimate:?}");

    let mixed = by_default(&folder.join("parts")).err().unwrap().to_string();
    assert!(mixed.contains("one holds integers, the other strings"), "{mixed}");
    let options = ReadOptions::from(Schema {
        source_column: Some("From".into()),
        target_column: Some("odd".into()),
        edge_columns: Some(vec!["w".into()]),
        ..Schema::default()
    });
    let strings = opened(&folder.join("parts"), &options).unwrap();
    let batch = read(strings.edges.as_ref()).unwrap();
    assert!(
        batch
            .sources
            .iter()
            .copied()
            .eq((0..rows).map(|row| xxh3_64(format!("n{}", row % 997).as_bytes())))
    );
    assert_eq!(batch.names.len(), 997 + 2);
    assert_eq!(batch.values.len() as u64, rows * 8);
}

#[test]
fn bad_rows_are_named_by_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let many: String = (0..1500).map(|row| format!("{row},1,{row}\n")).collect();
    for (text, expected) in [
        ("", "x.csv: empty: expected a header"),
        ("u,v\n1,2\n3\n", "line 3: 1 field: expected 2"),
        ("u,v\n1,2\n3,4,5\n", "line 3: 3 fields: expected 2"),
        ("u,v\n1,2\n\"3,4\n", "line 3: a quote is not closed"),
        ("u,v\n1,2\n3,-4\n", "line 3: column `v`: `-4`: expected ids from 0"),
        ("u,v\n1,2.5\n3,4.5\n", "expected two columns of integers or strings"),
        (
            &format!("u,v,t\n{many}x,1,1\n"),
            "line 1502: column `u`: `x`: expected a whole number below 2^64, as in other rows: fix \
             or remove the line",
        ),
        (
            &format!("u,v,t\n{many}1,1,0.5\n"),
            "line 1502: column `t`: `0.5`: expected a whole number",
        ),
        (&format!("u,v,t\n{many}1,1,\n"), "line 1502: column `t`: ``: expected a whole number"),
        ("u,v\na,b\n,b\n", "line 3: column `u`: is empty"),
    ] {
        let path = table(folder.path(), "x.csv", text);
        let message = problem(&path);
        assert!(message.contains("x.csv") && message.contains(expected), "{message}");
    }
    table(folder.path(), "parts/a.csv", "u,v\n1,2\n");
    table(folder.path(), "parts/b.csv", "v,u\n1,2\n");
    let message = problem(&folder.path().join("parts"));
    assert!(
        message
            .ends_with("b.csv, line 1: expected the header of the first part, `u,v`, found `v,u`"),
        "{message}"
    );
}

#[test]
fn a_header_alone_is_a_graph_without_edges() {
    let folder = tempfile::tempdir().unwrap();
    let path = table(folder.path(), "x.csv", "\u{feff}src,dst\n");
    let raw = by_default(&path).unwrap();
    assert!(read(raw.edges.as_ref()).unwrap().is_empty());
}
