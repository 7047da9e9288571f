//! Outputs of commands: never over their inputs, over one another, into an artifact, or over the
//! user's files.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{community, content, ok, refused, scratch};

#[cfg(feature = "train")]
const TRAIN: &str =
    "train ds --parallelism single --layers 1 --fanouts 3 --hidden 4 --epochs 1 --eval-every 0";

#[test]
fn no_output_lies_in_an_artifact_or_takes_away_what_is_read() {
    let folder = &*scratch();
    community(folder, 300);
    ok(folder, "presample ds --fanouts 3 --epochs 1 --key p");
    ok(folder, "partition ds --parts 2 --key two");
    ok(folder, "export ds --format pyg --out packed");
    fs::write(folder.join("edges.txt"), "0 1\n1 2\n").unwrap();
    fs::create_dir(folder.join("raw")).unwrap();
    fs::hard_link(folder.join("edges.txt"), folder.join("raw/edges.txt")).unwrap();
    symlink("ds", folder.join("way")).unwrap();
    let before = content(folder);
    for (line, problem) in [
        ("report ds --out ds/dataset.json", "lies in"),
        ("report ds --out way/page.html", "lies in"),
        ("export ds --format snap --out ds/topology/indices.npy --force", "lies in"),
        ("export ds --format pyg --out ds/new", "lies in"),
        ("export ds --format pyg --out ds --force", "which is read (DATASET)"),
        ("export ds --format mtx --out packed/x.mtx", "lies in"),
        ("export ds --format pyg --out . --force", "which is read (DATASET)"),
        ("generate rmat --vertices 10 --edges 30 --out way/presample/new", "lies in"),
        ("convert edges.txt --out edges.txt --force", "which is read (INPUT)"),
        ("convert raw --out raw --force --format csv", "which is read (INPUT)"),
        ("convert edges.txt --nodes raw --out raw --force", "which is read (--nodes)"),
        ("convert edges.txt --out ds/nodes", "lies in"),
    ] {
        refused(folder, line, 2, problem);
        assert!(content(folder) == before, "{line}");
    }
}

#[test]
fn pages_and_exports_replace_no_file_of_the_users() {
    let folder = &*scratch();
    community(folder, 300);
    ok(folder, "presample ds --fanouts 3 --epochs 1");
    ok(folder, "partition ds --parts 2");
    for (line, force) in
        [("report ds --out thesis", ""), ("export ds --format mtx --out thesis", "--force")]
    {
        let thesis = folder.join("thesis");
        fs::write(&thesis, "finished").unwrap();
        refused(folder, line, 1, "thesis: is there already");
        assert_eq!(fs::read_to_string(&thesis).unwrap(), "finished");
        match force {
            // A page is known to be one of gsplit's.
            "" => {
                fs::remove_file(&thesis).unwrap();
                ok(folder, line);
                ok(folder, line);
            }
            force => drop(ok(folder, format!("{line} {force}"))),
        }
        assert_ne!(fs::read_to_string(&thesis).unwrap(), "finished");
        symlink("thesis", folder.join("link")).unwrap();
        refused(folder, format!("{line} {force}").replace("thesis", "link"), 1, "is a link");
        fs::remove_file(folder.join("link")).unwrap();
        fs::remove_file(&thesis).unwrap();
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing but the dataset");
}

#[cfg(feature = "train")]
#[test]
fn logs_replace_logs_and_nothing_else() {
    let folder = &*scratch();
    community(folder, 300);
    fs::write(folder.join("thesis"), "finished").unwrap();
    fs::write(folder.join("run.toml"), "run.epochs = 1\n").unwrap();
    fs::create_dir(folder.join("board")).unwrap();
    fs::write(folder.join("board/events.out.tfevents.1.host"), "another program's").unwrap();
    let before = content(folder);
    for (options, code, problem) in [
        ("--log ds/dataset.json --force", 2, "lies in"),
        ("--checkpoint x --log ./ds/../x", 2, "is where --checkpoint writes"),
        ("--config run.toml --log run.toml --force", 2, "which is read (--config)"),
        ("--log thesis", 1, "gsplit did not write it"),
        ("--tensorboard board", 1, "is not of gsplit's"),
    ] {
        let line = format!("{TRAIN} {options}");
        refused(folder, &line, code, problem);
        assert!(content(folder) == before, "{line}");
    }
    let logged = format!("{TRAIN} --log log.jsonl --tensorboard mine --log-every 1");
    ok(folder, &logged);
    ok(folder, &logged);
    let logged = logged.replace(" --log-every 1", " --checkpoint ck");
    ok(folder, &logged);
    ok(folder, format!("{logged} --resume").replace("--epochs 1", "--epochs 2"));
    assert_eq!(fs::read_to_string(folder.join("log.jsonl")).unwrap().lines().count(), 2);
    assert_eq!(fs::read_to_string(folder.join("thesis")).unwrap(), "finished");
    ok(folder, format!("{TRAIN} --log thesis --tensorboard board --force"));
    assert_ne!(fs::read_to_string(folder.join("thesis")).unwrap(), "finished");
    assert_eq!(
        fs::read_to_string(folder.join("board/events.out.tfevents.1.host")).unwrap(),
        "another program's"
    );
}

#[cfg(feature = "train")]
#[test]
fn predictions_collide_with_nothing() {
    let folder = &*scratch();
    community(folder, 300);
    let train = format!("{TRAIN} --checkpoint run")
        .replace("--layers 1 --fanouts 3", "--layers 2 --fanouts 3,3");
    ok(folder, &train);
    let before = content(folder);
    for (options, problem) in [
        ("--out p.npy --embeddings p.ids.npy", "is where --out writes"),
        ("--out run/epoch-00001/p.npy", "lies in"),
        ("--out p.npy --scratch ds", "lies in"),
    ] {
        let line = format!("infer ds --checkpoint run {options}");
        refused(folder, &line, 2, problem);
        assert!(content(folder) == before, "{line}");
    }
    let both = "infer ds --checkpoint run --out run/p.npy --embeddings run/e.npy";
    ok(folder, both);
    // Where the file system keeps how files were made.
    let mut value = [0; 256];
    if rustix::fs::getxattr(folder.join("run/p.npy"), "user.gsplit.made_by", &mut value).is_ok() {
        let before = content(folder);
        assert!(
            ok(folder, both).contains("run/p.npy, run/e.npy: already there, made the same way")
        );
        assert!(content(folder) == before);
        refused(folder, format!("{both} --predict logits"), 1, "is there already");
    }
    refused(folder, "infer ds --checkpoint run --out run/p.ids.npy", 1, "is there already");
    // A run that was killed right after its checkpoint appeared leaves the folder in which it wrote
    // it.
    let left = folder.join("run/.epoch-00001.partial");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("lock"), "").unwrap();
    ok(folder, train + " --resume");
    assert!(!left.exists());
}
