//! A dataset goes through Parquet and comes back, presamples and partitions included.

use crate::support::{community, content, fails, ok};

#[test]
fn packing_and_unpacking_gives_the_same_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 2000);
    ok(folder, &["presample", "ds", "--fanouts", "5,5", "--epochs", "2"]);
    ok(folder, &["partition", "ds", "--parts", "4"]);
    let text = ok(folder, &["pack", "ds", "--out", "packed", "--level", "9", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(report["ratio"].as_f64().unwrap() > 1.0 && report["seconds"].is_number(), "{report}");
    let said = ok(folder, &["unpack", "packed", "--out", "back"]);
    assert!(said.contains("back: unpacked") && said.contains("to 1"), "{said}");
    let [before, after] = ["ds", "back"].map(|name| content(&folder.join(name)));
    assert!(before.keys().any(|name| name.starts_with("presample/")));
    assert!(before.keys().any(|name| name.starts_with("partition/")));
    assert!(before == after);
    ok(folder, &["verify", "back"]);

    assert!(fails(folder, &["unpack", "packed", "--out", "back"], 1).contains("already there"));
    ok(folder, &["unpack", "packed", "--out", "back", "--force"]);
    assert!(fails(folder, &["pack", "ds", "--out", "ds", "--force"], 2).contains("which is read"));
    fails(folder, &["pack", "ds", "--out", "other", "--level", "23"], 2);
}
