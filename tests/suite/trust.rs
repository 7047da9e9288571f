//! The user's files are not touched: no link leads gsplit out of its output folders, and files that
//! it did not make stay.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{command, community, content, fails, ok, refused, scratch};

/// A folder of the user's next to the dataset `ds`.
fn home(folder: &Path) -> PathBuf {
    let home = folder.join("home");
    fs::create_dir_all(home.join("thesis")).unwrap();
    fs::write(home.join("thesis/chapter-1"), "It was a dark and stormy night").unwrap();
    fs::write(home.join("lock"), "the key is under the mat").unwrap();
    home
}

#[test]
fn links_in_a_dataset_lead_nowhere() {
    let folder = &*scratch();
    community(folder, 300);
    ok(folder, "presample ds --fanouts 3 --epochs 1 --key good");
    ok(folder, "partition ds --parts 2 --key good");
    let home = home(folder);
    let before = content(&home);
    for (kind, line) in [
        ("presample", "presample ds --fanouts 3 --epochs 1 --key k"),
        ("partition", "partition ds --parts 2 --presample good --key k"),
        ("placement", "place ds --cache 20% --partition good --presample good --key k"),
    ] {
        let link = folder.join("ds").join(kind).join(".k.partial");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink("../../home", &link).unwrap();
        for line in [line, &format!("{line} --force")] {
            refused(folder, line, 1, &format!("ds/{kind}/.k.partial"));
            assert!(content(&home) == before, "{line}");
        }
        fails(folder, "verify ds", 1);
        fs::remove_file(&link).unwrap();
    }
    ok(folder, "verify ds");
    let stray = folder.join("ds/presample/good/edge.npy.bak");
    fs::write(&stray, "x").unwrap();
    let found = command(folder, "verify ds").output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&found).contains("presample.json does not list it"));
    fs::remove_file(&stray).unwrap();
    // A link to the very file is a link.
    fs::rename(folder.join("ds/topology/indptr.npy"), folder.join("indptr.npy")).unwrap();
    symlink("../../indptr.npy", folder.join("ds/topology/indptr.npy")).unwrap();
    fails(folder, "verify ds", 1);
}

#[test]
fn staging_folders_that_are_not_gsplits_are_refused_by_every_command() {
    let folder = &*scratch();
    community(folder, 300);
    let home = home(folder);
    let before = content(&home);
    fs::write(folder.join("edges.txt"), "0 1\n").unwrap();
    let partial = folder.join(".x.partial");
    for line in [
        "generate rmat --vertices 10 --edges 30 --out x --force",
        "convert edges.txt --out x --force",
        "export ds --format pyg --out x --force",
    ] {
        symlink("home", &partial).unwrap();
        refused(folder, line, 1, ".x.partial: is a link, and not gsplit's own");
        fs::remove_file(&partial).unwrap();
        fs::rename(&home, &partial).unwrap();
        refused(folder, line, 1, "without gsplit's lock in it");
        fs::rename(&partial, &home).unwrap();
        // A folder of the user's where the output goes.
        fs::rename(&home, folder.join("x")).unwrap();
        refused(folder, line, 1, "even --force will not replace it");
        fs::rename(folder.join("x"), &home).unwrap();
        ok(folder, line);
        assert!(content(&home) == before, "{line}");
        fs::remove_dir_all(folder.join("x")).unwrap();
    }
}

#[cfg(feature = "train")]
#[test]
fn checkpoints_leave_what_they_did_not_make() {
    let folder = &*scratch();
    community(folder, 300);
    let train = "train ds --parallelism single --layers 1 --fanouts 3 --hidden 4 --eval-every 0 --checkpoint ck --epochs 1";
    let home = home(folder);
    let before = content(&home);
    let ck = folder.join("ck");
    fs::create_dir(&ck).unwrap();
    for (name, words) in [
        (".epoch-00001.partial", ".epoch-00001.partial: is a link"),
        ("lock", "ck/lock: is a link"),
        ("best", "best"),
        (".epoch.partial", ".epoch.partial: is a link"),
    ] {
        let to = if name == "lock" { "../home/lock" } else { "../home" };
        // Earlier rounds have locked the folder.
        let _ = fs::remove_file(ck.join(name));
        if name == "best" {
            fs::write(ck.join(name), "of all worlds").unwrap();
        } else {
            symlink(to, ck.join(name)).unwrap();
        }
        refused(folder, train, 1, words);
        assert!(content(&home) == before, "{name}");
        fs::remove_file(ck.join(name)).unwrap();
    }
    fs::write(ck.join("lock"), "the key is under the mat").unwrap();
    refused(folder, train, 1, "ck/lock: is a file of another program");
    fs::remove_file(ck.join("lock")).unwrap();
    ok(folder, train);
    // A folder that is called as an old checkpoint is none.
    fs::rename(&home, ck.join("epoch-0")).unwrap();
    ok(folder, train.replace("--epochs 1", "--epochs 4 --resume"));
    assert!(content(&ck.join("epoch-0")) == before && !ck.join("epoch-00002").exists());
}

#[cfg(feature = "train")]
#[test]
fn predictions_appear_all_or_none_whatever_ends_the_command() {
    let folder = &*scratch();
    community(folder, 4000);
    let train = "train ds --parallelism single --layers 2 --fanouts 3,3 --hidden 64 --epochs 1 --eval-every 0 --checkpoint run";
    ok(folder, train);
    fs::create_dir(folder.join("elsewhere")).unwrap();
    let infer = "infer ds --checkpoint run --out p.npy --embeddings elsewhere/e.npy --memory 64MiB --predict logits";
    let names = ["p.npy", "p.ids.npy", "elsewhere/e.npy", "elsewhere/e.ids.npy"];
    let there = || names.iter().filter(|name| folder.join(name).exists()).count();
    let started = std::time::Instant::now();
    ok(folder, infer);
    let taken = started.elapsed();
    let whole = content(folder);
    assert_eq!(there(), 4);
    let remove = || names.iter().for_each(|name| drop(fs::remove_file(folder.join(name))));
    // A file that may not become as long ends the process, or the write, as a full disk does.
    remove();
    let longest = names.iter().map(|name| whole[*name].len()).max().unwrap();
    for blocks in [1, (longest - 1) / 1024] {
        let limited = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let mut limited_infer = std::process::Command::new("sh");
        limited_infer
            .current_dir(folder)
            .args(["-c", &limited, env!("CARGO_BIN_EXE_gsplit")])
            .args(infer.split(' '));
        assert!(!limited_infer.output().unwrap().status.success(), "{blocks} blocks");
        assert_eq!(there(), 0, "{blocks} blocks");
    }
    ok(folder, infer);
    assert!(content(folder) == whole, "the same bytes, and nothing is left of what failed");
    // `make test-faults` kills it at 200 moments.
    remove();
    let mut child =
        command(folder, infer).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(taken / 2);
    child.kill().unwrap();
    child.wait().unwrap();
    match folder.join("p.npy").exists() {
        true => assert_eq!(there(), 4),
        false => drop(ok(folder, infer)),
    }
    ok(folder, format!("{infer} --force"));
    assert!(content(folder) == whole);
}
