//! A dataset whose vertices have numbers to learn goes through every command.

use std::fs;
use std::path::Path;

use gsplit_store::{DatasetWriter, FeatureDtype, Provenance, Split};

use crate::support::{json, losses, ok, refused, scratch};

/// A graph of 600 vertices with the numbers 1000 and 50 times the first feature; every seventh
/// vertex has none.
fn numbers(path: &Path) {
    let n = 600u32;
    let indptr: Vec<u64> = (0..=u64::from(n)).map(|v| 4 * v).collect();
    let sources = |v: u32| {
        let mut sources = [1, 2, 3, 40].map(|step| (v + step) % n);
        sources.sort_unstable();
        sources
    };
    let indices: Vec<u32> = (0..n).flat_map(sources).collect();
    let mut writer = DatasetWriter::create(path, false, &indptr, &indices).unwrap();
    let first = |v: u32| ((v * 37 % 101) as f32 - 50.0) / 25.0;
    let mut rows = writer.feature_writer(FeatureDtype::F32, 2).unwrap();
    rows.push_rows(&(0..n).flat_map(|v| [first(v), 1.0]).collect::<Vec<f32>>()).unwrap();
    writer.add_features(rows, None).unwrap();
    let number = |v: u32| if v.is_multiple_of(7) { f32::NAN } else { 1000.0 + 50.0 * first(v) };
    writer.add_numeric_labels(&(0..n).map(number).collect::<Vec<f32>>()).unwrap();
    for (at, split) in [Split::Train, Split::Valid, Split::Test].into_iter().enumerate() {
        writer.add_split(split, (0..n).filter(|v| *v as usize % 3 == at).collect()).unwrap();
    }
    writer.finish(Provenance::default()).unwrap();
}

#[test]
fn numbers_go_through_every_command() {
    let folder = &*scratch();
    numbers(&folder.join("ds"));
    let shown = ok(folder, "inspect ds");
    assert!(shown.contains("a number a vertex"), "{shown}");
    ok(folder, "verify ds");
    ok(folder, "presample ds --fanouts 3,3 --batch-size 64");
    ok(folder, "partition ds --parts 2");
    let key =
        fs::read_dir(folder.join("ds/partition")).unwrap().next().unwrap().unwrap().file_name();
    ok(folder, format!("shard ds --hosts 2 --partition {} --out shards", key.to_str().unwrap()));
    ok(folder, "verify shards/host-0");
    ok(folder, "plan ds --profile a100-4 --layers 2 --fanouts 3,3 --batch-size 64 --batches 2");
    let base =
        "train ds --fanouts 3,3 --hidden 16 --batch-size 64 --epochs 20 --lr 0.02 --dropout 0";
    let train = |rest: &str| json(folder, format!("{base} {rest}"));
    let single = train("--parallelism single --log runs/single.jsonl --checkpoint runs/one");
    let split = train("--parallelism split --ranks 2 --log runs/split.jsonl");
    assert_eq!(single["config"]["data"]["task"]["kind"], "regression");
    assert_eq!(single["summary"]["metric"], "rmse");
    for (one, other) in losses(&single).iter().zip(losses(&split)) {
        assert!((one - other).abs() < 1e-2 * one.max(0.01), "{one}, {other}");
    }
    let errors: Vec<f64> = single["summary"]["epochs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|epoch| epoch["valid"].as_f64().unwrap())
        .collect();
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(single["summary"]["best"]["valid"].as_f64(), Some(least));
    // The deviation is 58.
    assert!(least < 20.0 && errors[0] > least, "{errors:?}");
    assert!(ok(folder, "compare runs/single.jsonl runs/split.jsonl").contains("split"));
    ok(folder, "report runs --dataset ds --out report.html");
    let html = fs::read_to_string(folder.join("report.html")).unwrap();
    let best = single["summary"]["best"]["epoch"].as_u64().unwrap();
    assert!(html.contains(&format!("<td>{best}</td>")), "the epoch with the least error");
    ok(folder, "infer ds --checkpoint runs/one/best --split test --out p.npy");
    let by_class = "infer ds --checkpoint runs/one --predict class --out c.npy";
    refused(folder, by_class, 2, "the model was trained on numbers");
    ok(folder, "export ds --format pyg --out pyg");
    refused(folder, "train ds --task node", 2, "choose --task regression");
}
