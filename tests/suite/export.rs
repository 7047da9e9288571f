//! `gsplit export` from outside; what is in the files is tested in preprocess, and by `make test-peers` with other tools.

use crate::support::{community, fails, ok};

#[test]
fn every_format_is_written_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 500);
    ok(folder, &["partition", "ds", "--parts", "2", "--partitioner", "random", "--key", "two"]);
    for (format, out) in [
        ("graphbolt", "gb/metadata.yaml"),
        ("dgl", "dgl/partition/_N.txt"),
        ("pyg", "pyg/load.py"),
        ("parquet", "tables/nodes/part-00000.parquet"),
        ("metis", "g.graph"),
        ("mtx", "g.mtx"),
        ("snap", "g.txt.gz"),
    ] {
        let path = out.split('/').next().unwrap();
        let mut args = vec!["export", "ds", "--format", format, "--out", path];
        args.extend(if format == "dgl" { &["--partition", "two"][..] } else { &[] });
        let said = ok(folder, &args);
        assert!(said.starts_with(&format!("{path}: 500 vertices and ")), "{said}");
        assert!(folder.join(out).is_file());
        match path == out {
            true => assert!(fails(folder, &args, 1).contains("pass --force")),
            false => assert!(ok(folder, &args).contains("already there, made the same way")),
        }
        args.push("--force");
        let object: serde_json::Value = serde_json::from_str(&ok(folder, &[&args[..], &["--json"]].concat())).unwrap();
        assert_eq!((&object["format"], &object["num_vertices"]), (&format.into(), &500.into()));
    }
    // The parts of another partition.
    ok(
        folder,
        &["partition", "ds", "--parts", "2", "--partitioner", "random", "--key", "two", "--seed", "9", "--force"],
    );
    let other = ["export", "ds", "--format", "dgl", "--out", "dgl", "--partition", "two"];
    assert!(fails(folder, &other, 1).contains("pass --force"));
    assert!(fails(folder, &["export", "ds", "--format", "mtx", "--out", "x", "--partition", "two"], 2).contains("dgl"));
    assert!(fails(folder, &["export", "ds", "--format", "dgl", "--out", "x", "--partition", "no"], 1).contains("no"));
    assert!(fails(folder, &["export", "gb", "--format", "pyg", "--out", "x"], 1).contains("not a gsplit dataset"));
    ok(folder, &["verify", "ds"]);
}
