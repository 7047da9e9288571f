//! Processes that see only their part of a dataset.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::{TRAIN, complaint, outputs_in};
use crate::gpus::{as_torchrun, printed, with_gpus};
use crate::support::{community, losses, ok, scratch};

/// A folder for each rank, in which `ds` is the shard of its host, cut `by` these options, and
/// nothing else is.
fn homes(folder: &Path, (ranks, hosts): (usize, usize), by: &str) -> Vec<PathBuf> {
    ok(folder, format!("shard ds {by} --hosts {hosts} --out cut"));
    let apart = tempfile::tempdir_in(folder).unwrap().keep();
    let home = |host: usize| apart.join(host.to_string());
    for host in 0..hosts {
        fs::create_dir(home(host)).unwrap();
        fs::rename(folder.join(format!("cut/host-{host}")), home(host).join("ds")).unwrap();
    }
    (0..ranks).map(|rank| home(rank * hosts / ranks)).collect()
}

/// Result of `run`, from which the whole dataset is hidden.
fn without_the_whole<R>(folder: &Path, run: impl FnOnce() -> R) -> R {
    fs::rename(folder.join("ds"), folder.join("hidden")).unwrap();
    let result = run();
    fs::rename(folder.join("hidden"), folder.join("ds")).unwrap();
    result
}

fn paths(homes: &[PathBuf]) -> Vec<&Path> {
    homes.iter().map(PathBuf::as_path).collect()
}

/// Losses of `found` equal `whole`'s, its scores nearly.
fn assert_alike(found: &Value, whole: &Value, what: &str) {
    assert_eq!(losses(found), losses(whole), "{what}");
    let epochs = |run: &Value| run["summary"]["epochs"].as_array().unwrap().clone();
    for (found, whole) in epochs(found).iter().zip(&epochs(whole)) {
        for score in ["valid", "test"] {
            let [found, whole] =
                [&found[score], &whole[score]].map(|score| score.as_f64().unwrap());
            assert!((found - whole).abs() < 1e-6, "{what}: {score}: {found}, {whole}");
        }
    }
}

/// Processes that `start` runs, one in each folder, train on the shards as on the whole of `ds`,
/// for each case of ranks, hosts and options; the shard of another host is refused.
fn train_on_shards(
    folder: &Path,
    train: &str,
    cases: &[(usize, usize, &str)],
    start: &dyn Fn(&[&Path], &str) -> Vec<Output>,
) {
    for (ranks, map) in [(2, "--weights degree"), (4, "--partitioner random")] {
        ok(folder, format!("partition ds --parts {ranks} {map} --key parts-{ranks}"));
    }
    for &(ranks, hosts, more) in cases {
        let by = format!("--partition parts-{ranks}");
        let train = format!("{train} {more} {by}");
        let whole = printed(&start(&vec![folder; ranks], &train)[0]);
        let homes = homes(folder, (ranks, hosts), &by);
        without_the_whole(folder, || {
            let outputs = start(&paths(&homes), &train);
            assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
            assert_alike(
                &printed(&outputs[0]),
                &whole,
                &format!("{ranks} ranks on {hosts} hosts, {more}"),
            );
            if ranks == hosts {
                for output in start(&vec![homes[0].as_path(); ranks], &train) {
                    let line = complaint(&output);
                    assert!(line.contains("give that rank the shard of host "), "{line}");
                }
            }
        });
    }
}

#[test]
fn processes_that_see_their_own_shard_alone_train_as_on_the_whole_dataset() {
    let folder = &*scratch();
    community(folder, 900);
    let train = format!("{TRAIN} --epochs 2 --threads 1 --json");
    let cases = [(2, 2, "--model gcn --norm batch")];
    train_on_shards(folder, &train, &cases, &outputs_in);
}

#[test]
#[ignore = "takes long: make test-all"]
fn processes_with_fake_gpus_train_on_their_shards() {
    let folder = &*scratch();
    community(folder, 900);
    let train = "train ds --layers 2 --fanouts 4,4 --batch-size 300 --epochs 1 --hidden 8 --threads 1 --device cuda";
    if with_gpus(folder, 1, train).is_none() {
        return;
    }
    let cases = [
        (2, 2, "--model gcn --norm batch"),
        (2, 2, "--preset intel --placement host"),
        (4, 2, "--model gat"),
    ];
    train_on_shards(folder, train, &cases, &as_torchrun);
}
