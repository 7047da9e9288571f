//! Bad command lines and bad artifacts: one line, the remedy in it, exit code 1 (usage 2). Raw
//! files with false contents are tested where they are read, in `preprocess`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Stdio;

#[cfg(feature = "train")]
use crate::support::fails;
use crate::support::{command, community, ended, errors, ok, refused, scratch};

#[test]
fn values_below_0_are_refused_by_their_own_options() {
    let folder = &*scratch();
    community(folder, 300);
    for (line, words) in [
        ("convert x --out y --memory -1GiB", "--memory -1GiB: expected a size"),
        (
            "generate community --vertices -5 --edges 9 --out x",
            "'--vertices <N>': -5 is not in 1..",
        ),
        (
            "generate community --vertices 9 --edges 9 --random-split -0.1,0.2,0.2 --out x",
            "expected three fractions",
        ),
        ("presample ds --fanouts -5,5", "fanout: expected a number from 1"),
        ("partition ds --parts 2 --epsilon -0.1", "--epsilon -0.1: expected a number above 0"),
        ("place ds --cache -20%", "expected a size such as 4GiB"),
        ("place ds --cache 20% --alpha -.5", "--alpha -0.5: expected 0"),
        ("--threads -1 inspect ds", "-1 is not in 1..=1024"),
    ] {
        let errors = refused(folder, line, 2, words);
        assert!(!errors.contains("unexpected argument"), "{line}: {errors}");
    }
    // An operand is not a value.
    refused(folder, "inspect -5", 2, "unexpected argument '-5'");
    // A file may be called so, behind `--`.
    refused(folder, "inspect -- -5", 1, "-5: No such file");
}

#[cfg(feature = "train")]
#[test]
fn gpus_that_cannot_be_used_are_told_in_one_line() {
    let folder = &*scratch();
    community(folder, 300);
    let train =
        |args: &str, code| fails(folder, format!("train ds --parallelism single {args}"), code);
    // No machine has that many: it lacks this one, or the driver, the compiler or torch for CUDA,
    // each with what to do.
    let line = train("--device cuda --gpus 4000", 1);
    assert!(
        ["--device cpu", "pip install", "GPU 4000"].iter().any(|remedy| line.contains(remedy)),
        "{line}"
    );
    for (args, words) in [
        ("--gpus 0", "--device cuda"),
        ("--placement peer", "--cache SIZE"),
        ("--device cuda --gpus 0,1", "the number of ranks is 1"),
    ] {
        refused(folder, format!("train ds --parallelism single {args}"), 2, words);
    }
    for args in ["--gpus first", "--cache much"] {
        train(&format!("--device cuda {args}"), 2);
    }
}

#[test]
fn results_that_cannot_be_printed_are_an_error() {
    let folder = &*scratch();
    community(folder, 300);
    for args in ["inspect ds", "inspect ds --json", "verify ds"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(folder, args).stdout(full).output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        assert!(errors.starts_with("error: standard output: No space left"), "{args:?}: {errors}");
        // A reader that closes the pipe early has seen enough.
        let mut child = command(folder, args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn names_of_any_bytes_are_taken_and_shown_on_one_line() {
    let folder = &*scratch();
    community(folder, 300);
    let name = OsStr::from_bytes(b"d\xff\n");
    fs::rename(folder.join("ds"), folder.join(name)).unwrap();
    // `@` is replaced by a byte that is not UTF-8.
    let run = |line: &str| {
        let words = line.split(' ').map(|word| match word {
            "DS" => name.to_os_string(),
            word => OsString::from_vec(
                word.bytes().map(|byte| if byte == b'@' { 0xff } else { byte }).collect(),
            ),
        });
        command(folder, "").args(words).output().unwrap()
    };
    let mut lines = vec![
        "presample DS --fanouts 2,2",
        "partition DS --parts 2",
        "inspect DS",
        "verify DS",
        "place DS --cache 20%",
        "evaluate DS",
        "shard DS --columns --hosts 2 --out s@ --force",
        "export DS --format parquet --out e@ --force",
    ];
    if cfg!(feature = "train") {
        lines.extend([
            "train DS --layers 2 --hidden 8 --fanouts 2,2 --epochs 1 --checkpoint c --resume --log \
             l.jsonl",
            "infer DS --checkpoint c --out o@.npy --embeddings h@.parquet --force",
            "plan DS --profile cpu-2 --layers 2 --hidden 8 --fanouts 2,2 --batches 2 --systems dgl",
        ]);
    }
    lines.push("report DS --out r@.html");
    for line in &lines {
        let output = run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(run("inspect DS --json").status.success());
    if cfg!(feature = "train") {
        let text = "expected a path in UTF-8, so that it can be recorded: rename it";
        for line in ["run DS --out o", "run edges --out o@", "train --print-config --log o@"] {
            let (output, before) = (run(line), fs::read_dir(folder).unwrap().count());
            assert_eq!(output.status.code(), Some(2), "{line}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(text), "{line}");
            assert_eq!(fs::read_dir(folder).unwrap().count(), before, "{line}");
        }
    }
    fs::write(folder.join(OsStr::from_bytes(b"e\xff.txt")), "1 2\n").unwrap();
    let errors = run("convert e@.txt --out c").stderr;
    assert!(
        String::from_utf8_lossy(&errors)
            .contains("expected a name in UTF-8, so that it can be recorded")
    );
    refused(folder, ["inspect", "no\nwhere\\now"], 1, "error: no\\nwhere\\now: No such file");
}

#[test]
fn missing_and_foreign_artifacts_are_named() {
    let folder = &*scratch();
    fs::create_dir(folder.join("empty")).unwrap();
    for args in [
        "inspect nowhere",
        "verify empty",
        "presample empty --fanouts 5",
        "partition nowhere --parts 2",
    ] {
        let problem =
            if args.contains("empty") { "not a gsplit dataset" } else { "check the path" };
        refused(folder, args, 1, problem);
    }
    community(folder, 300);
    refused(folder, "partition ds --parts 2", 1, "gsplit presample");
    ok(folder, "presample ds --fanouts 5");
    // A presample carried over to another graph.
    ok(folder, "generate community --vertices 301 --edges 900 --out other");
    fs::create_dir_all(folder.join("other/presample")).unwrap();
    fs::rename(
        folder.join("ds/presample/f5_b1024_e10_s0"),
        folder.join("other/presample/f5_b1024_e10_s0"),
    )
    .unwrap();
    let line = fails(folder, "partition other --parts 2", 1);
    assert!(
        line.contains("`ds`") && line.contains("`other`") && line.contains("another graph"),
        "{line}"
    );
}

#[test]
fn a_fifo_in_place_of_a_file_is_refused_by_every_command() {
    let folder = &*scratch();
    community(folder, 300);
    fs::write(folder.join("edges.txt"), "1 2\n").unwrap();
    let fifo = |name: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let formats = "snap csv parquet arrow npy npz mtx metis dimacs webgraph";
    let mut lines: Vec<String> =
        formats.split(' ').map(|format| format!("convert x --out y --format {format}")).collect();
    for name in
        "x raw/edge.csv raw/num-node-list.csv raw/num-edge-list.csv arrays/edge_index.npy saint/adj_full.npz".split(' ')
    {
        fifo(name);
    }
    let more = "convert x --out y; convert . --out y --format ogb; convert arrays --out y --format npy; \
                convert saint --out y --format graphsaint; convert edges.txt --out y --nodes x; \
                partition ds --import x --key z; compare x x";
    lines.extend(more.split("; ").map(String::from));
    if cfg!(feature = "train") {
        fifo("run/run.json");
        fifo("ended/epoch-00001/checkpoint.json");
        let more = "train ds --config x; plan ds --profile x; run ds --out run; infer ds --checkpoint ended --out o.npy";
        lines.extend(more.split("; ").map(String::from));
    }
    let refused = |line: &str| {
        let child = command(folder, line).stderr(Stdio::piped()).spawn().unwrap();
        let output = ended(child, 20);
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{line}: {errors}");
        assert!(errors.contains("error: "), "{line}: {errors}");
        errors
    };
    for line in &lines {
        let errors = refused(line);
        assert!(
            errors.contains("FIFO")
                || ["webgraph", "run ds"].iter().any(|word| line.contains(word)),
            "{line}: {errors}"
        );
    }
    fifo("ds/topology/indices.npy");
    refused("inspect ds");
    fifo("ds/dataset.json");
    assert!(refused("inspect ds").contains("is a FIFO"));
}
