//! Shards: made as a user makes them, trained on by processes that see nothing else, refused where
//! they are not enough.

use std::fs;

use crate::support::{community, content, json, ok, refused, scratch};

#[test]
fn shards_are_datasets_that_verify_inspect_and_pack() {
    let folder = &*scratch();
    community(folder, 600);
    ok(folder, "partition ds --parts 4 --weights degree --key four");
    ok(folder, "partition ds --parts 4 --servers 2 --weights degree --key servers");
    let before = content(&folder.join("ds"));
    // A host for each part, for each server of the partition, and as many as are asked for.
    for (partition, hosts, expected) in
        [("four", "", 4), ("servers", "", 2), ("servers", "--hosts 4", 4), ("four", "--hosts 1", 1)]
    {
        let cut = json(
            folder,
            format!("shard ds --partition {partition} {hosts} --out s-{expected} --force"),
        );
        let shards = cut["shards"].as_array().unwrap();
        assert_eq!(shards.len(), expected);
        assert_eq!(shards.iter().map(|shard| shard["rows"].as_u64().unwrap()).sum::<u64>(), 600);
        for shard in shards {
            let path = shard["path"].as_str().unwrap();
            ok(folder, ["verify", path]);
            let inspected = json(folder, ["inspect", path]);
            let info = &inspected["dataset"]["shard"];
            assert!(
                info["hosts"] == expected && info["by"]["partition"][0] == partition,
                "{inspected}"
            );
        }
    }
    assert!(content(&folder.join("ds")) == before);
    let said = ok(folder, "inspect s-2/host-1");
    assert!(said.contains("shard     of host 1 of 2, cut by partition servers"), "{said}");
    let cut = json(folder, "shard ds --columns --hosts 3 --out columns");
    assert!(cut["shards"].as_array().unwrap().iter().all(|shard| shard["rows"] == 600), "{cut}");
    ok(folder, "verify columns/host-2");
    let said = ok(folder, "inspect columns/host-2");
    assert!(
        said.contains("shard     of host 2 of 3, cut by columns")
            && said.contains("of the features"),
        "{said}"
    );

    // A row that was changed.
    let features = folder.join("s-4/host-2/nodes/feat.arrow");
    let mut bytes = fs::read(&features).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&features, bytes).unwrap();
    refused(folder, "verify s-4/host-2", 1, "1 of ");
}

#[test]
fn what_cannot_be_cut_or_needs_all_rows_is_told_in_one_line() {
    let folder = &*scratch();
    community(folder, 300);
    ok(folder, "partition ds --parts 2 --weights degree --key two");
    ok(folder, "shard ds --partition two --out shards");
    ok(folder, "partition shards/host-0 --parts 2 --partitioner random --key other");
    fs::create_dir_all(folder.join("mine/host-1")).unwrap();
    fs::write(folder.join("mine/host-1/diary.txt"), "dear").unwrap();
    let before = content(folder);
    let again = json(folder, "shard ds --partition two --out shards");
    assert!(again["reused"] == true && content(folder) == before, "{again}");
    for (line, code, told) in [
        ("shard ds --partition none --out x", 1, "has no partition `none`: there are two"),
        ("shard ds --partition two --hosts 4 --out x", 2, "--hosts 4: partition two has 2 parts"),
        ("shard ds --partition two --hosts 0 --out x", 2, "--help"),
        ("shard ds --out x", 2, "--help"),
        ("shard ds --columns --out x", 2, "--help"),
        ("shard ds --columns --partition two --out x", 2, "--help"),
        ("shard ds --columns --hosts 65 --out x", 1, "65 hosts for "),
        ("shard ds --columns --hosts 2 --out shards", 1, "shards/host-0: already there"),
        ("shard ds --partition two --out mine", 1, "mine/host-1: already there"),
        ("shard ds --partition two --out mine --force", 1, "even --force will not replace it"),
        ("shard ds --partition two --out ds/shards", 2, "lies in"),
        ("shard shards/host-0 --partition two --out shards --force", 2, "which is read (DATASET)"),
        (
            "shard shards/host-1 --partition two --out x",
            1,
            "it is the shard of host 1 of 2, cut by partition two: use",
        ),
        (
            "export shards/host-1 --format pyg --out x",
            1,
            "of all vertices: it is the shard of host 1 of 2",
        ),
        ("place shards/host-1 --cache 20%", 1, "of all vertices: it is the shard of host 1 of 2"),
    ] {
        refused(folder, line, code, told);
        assert!(content(folder) == before, "{line}");
    }
    #[cfg(feature = "train")]
    {
        let train = "train ds --layers 1 --fanouts 3 --hidden 4 --epochs 1 --parallelism single --checkpoint run";
        ok(folder, train);
        refused(
            folder,
            "infer shards/host-0 --checkpoint run --out x.npy",
            1,
            "the shard of host 0 of 2",
        );
    }
}
