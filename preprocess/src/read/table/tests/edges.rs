//! A graph written by every writer is read identically.

use super::*;

fn column(name: &str, value: ValueType, width: usize) -> EdgeColumn {
    EdgeColumn { name: name.into(), value, width }
}

/// The values of the columns `names` among weight, time, flag and pair, in the order of `names`.
fn expected_values(names: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in 0..10i64 {
        for &name in names {
            match name {
                "weight" if row == 4 => bytes.extend(f32::NAN.to_le_bytes()),
                "weight" => bytes.extend((row as f32 / 4.0).to_le_bytes()),
                "time" => bytes.extend((row - 3).to_le_bytes()),
                "flag" => bytes.extend(i64::from(row % 2 == 0).to_le_bytes()),
                "pair" => [row as f32, row as f32 + 0.5]
                    .iter()
                    .for_each(|item| bytes.extend(item.to_le_bytes())),
                other => panic!("{other}"),
            }
        }
    }
    bytes
}

#[test]
fn integers_and_values_come_from_every_writer() {
    for (name, columns) in [
        ("snappy.parquet", &["weight", "time", "flag", "pair"][..]),
        ("plain.parquet", &["weight", "time", "flag", "pair"]),
        ("spark.parquet", &["weight", "time", "flag", "pair"]),
        ("duckdb.parquet", &["weight", "time", "pair"]),
        ("file.arrow", &["weight", "time", "flag", "pair"]),
        ("lz4.feather", &["weight", "time", "flag", "pair"]),
    ] {
        let wanted = columns.iter().map(|name| name.to_string()).collect();
        let options = ReadOptions::from(Schema { edge_columns: Some(wanted), ..Schema::default() });
        let raw = opened(&fixture(name), &options).unwrap();
        let edges = raw.edges.as_ref();
        let found: Vec<&str> = edges.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(found, columns, "{name}");
        assert_eq!(edges.columns()[0], column("weight", ValueType::F32, 1));
        assert_eq!(*edges.columns().last().unwrap(), column("pair", ValueType::F32, 2));
        let batch = read(edges).unwrap();
        assert_eq!(
            (&batch.sources[..], &batch.targets[..]),
            (&SOURCES[..], &TARGETS[..]),
            "{name}"
        );
        assert_eq!(batch.values, expected_values(columns), "{name}");
        assert!(batch.names.is_empty() && !edges.has_string_ids() && raw.ids == Ids::Sparse);
        let estimate = edges.estimate().unwrap();
        assert_eq!((estimate.edges, estimate.vertices), (10, 6), "{name}");
    }
}

#[test]
fn options_choose_columns() {
    let schema = Schema {
        source_column: Some("dst".into()),
        target_column: Some("src".into()),
        edge_columns: Some(vec!["flag".into(), "weight".into()]),
        ..Schema::default()
    };
    let options = ReadOptions { keep_ids: true, ..schema.into() };
    for name in ["spark.parquet", "file.arrow"] {
        let raw = opened(&fixture(name), &options).unwrap();
        let batch = read(raw.edges.as_ref()).unwrap();
        assert_eq!((&batch.sources[..], &batch.targets[..]), (&TARGETS[..], &SOURCES[..]));
        assert_eq!(batch.values, expected_values(&["flag", "weight"]), "{name}");
        assert_eq!(raw.ids, Ids::Dense(None));
    }
}

#[test]
fn what_is_left_out_is_said_once() {
    let (path, mut notes) = (fixture("spark.parquet"), Vec::new());
    open(&path, None, &ReadOptions::default(), &NoProgress, &mut notes).unwrap();
    let endings = [
        "year=2022/part-00002-c000.snappy.parquet",
        "edges from `src` to `dst`",
        "left out the columns kind, which hold no numbers",
        "dates, read as days since 1970-01-01: day",
    ];
    assert!(
        notes.len() == 4 && notes.iter().zip(endings).all(|(note, ending)| note.ends_with(ending)),
        "{notes:?}"
    );
}

#[test]
fn bad_choices_are_named() {
    let with = |change: fn(&mut ReadOptions)| {
        let mut options = ReadOptions::default();
        change(&mut options);
        options
    };
    for (name, options, expected) in [
        (
            "snappy.parquet",
            with(|o| o.schema.source_column = Some("nope".into())),
            "has no column `nope`",
        ),
        (
            "snappy.parquet",
            with(|o| o.schema.source_column = Some("pair".into())),
            "`pair`: expected integers or strings",
        ),
        (
            "snappy.parquet",
            with(|o| {
                (o.schema.source_column, o.schema.target_column) =
                    (Some("kind".into()), Some("dst".into()))
            }),
            "one holds integers, the other strings",
        ),
        (
            "snappy.parquet",
            with(|o| o.schema.edge_columns = Some(vec!["kind".into()])),
            "`kind`: expected numbers",
        ),
        ("names.parquet", with(|o| o.keep_ids = true), "--keep-ids"),
    ] {
        let message = opened(&fixture(name), &options).err().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    }
    // Found while reading: a negative id, and a null among integers.
    let options = with(|o| {
        (o.schema.source_column, o.schema.target_column) =
            (Some("time".into()), Some("dst".into()));
        o.schema.bipartite = Some(Answer::No);
    });
    for name in ["snappy.parquet", "file.arrow"] {
        let raw = opened(&fixture(name), &options).unwrap();
        let message = read_once(raw.edges.as_ref()).unwrap_err().to_string();
        assert!(
            message.contains(name)
                && message.ends_with("row 0, column `time`: is -3: expected ids from 0"),
            "{message}"
        );
    }
}
