//! `gsplit export` from outside; what is in the files is tested in preprocess, and by `make test-peers` with other tools.

use crate::support::{community, fails, ok};

#[test]
fn every_format_is_written_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 500);
    for (format, out) in [
        ("pyg", "pyg/load.py"),
        ("parquet", "tables/nodes/part-00000.parquet"),
        ("metis", "g.graph"),
        ("mtx", "g.mtx"),
        ("snap", "g.txt.gz"),
    ] {
        let path = out.split('/').next().unwrap();
        let mut args = vec!["export", "ds", "--format", format, "--out", path];
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
    assert!(fails(folder, &["export", "pyg", "--format", "pyg", "--out", "x"], 1).contains("not a gsplit dataset"));
    ok(folder, &["verify", "ds"]);
}
