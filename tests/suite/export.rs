//! `gsplit export` from outside; the contents of the files are tested in preprocess, and by `make
//! test-peers` with other tools.

use crate::support::{community, json, ok, refused, scratch};

#[test]
fn every_format_is_written_and_not_overwritten() {
    let folder = &*scratch();
    community(folder, 500);
    for (format, out) in [
        ("pyg", "pyg/load.py"),
        ("parquet", "tables/nodes/part-00000.parquet"),
        ("metis", "g.graph"),
        ("mtx", "g.mtx"),
        ("snap", "g.txt.gz"),
    ] {
        let path = out.split('/').next().unwrap();
        let line = format!("export ds --format {format} --out {path}");
        let said = ok(folder, &line);
        assert!(said.starts_with(&format!("{path}: 500 vertices and ")), "{said}");
        assert!(folder.join(out).is_file());
        match path == out {
            true => drop(refused(folder, &line, 1, "pass --force")),
            false => assert!(ok(folder, &line).contains("already there, made the same way")),
        }
        let object = json(folder, line + " --force");
        assert_eq!((&object["format"], &object["num_vertices"]), (&format.into(), &500.into()));
    }
    refused(folder, "export pyg --format pyg --out x", 1, "not a gsplit dataset");
    ok(folder, "verify ds");
}
