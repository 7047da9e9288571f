//! Limits of the system and faults below the program: each ends with one line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{command, community, errors, fails, gsplit, ok, scratch};

/// Runs gsplit below the limit that `ulimit` takes as its arguments.
fn below(limit: &str, folder: &Path, args: &str) -> Output {
    let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &script, env!("CARGO_BIN_EXE_gsplit")])
        .args(args.split(' '))
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The only line on standard error of a run that failed.
fn one_line(output: &Output) -> String {
    let errors = errors(output);
    assert_eq!(output.status.code(), Some(1), "{:?}: {errors}", output.status);
    let complaints = errors.lines().filter(|line| line.starts_with("error: ")).count();
    assert!(
        complaints == 1 && errors.trim_end().lines().last().unwrap().starts_with("error: "),
        "{errors}"
    );
    errors.trim_end().lines().last().unwrap().to_string()
}

#[test]
fn a_limit_on_memory_is_one_line() {
    let folder = &*scratch();
    let generate =
        "--quiet generate rmat --vertices 1000000 --edges 30000000 --memory 2GiB --out ds";
    // More than the program and its threads take, less than the edges do.
    let line = one_line(&below("-v 300000", folder, &format!("--threads 1 {generate}")));
    assert!(line.contains("out of memory") && line.contains("ulimit -v"), "{line}");
    assert!(!folder.join("ds").exists());
    // Files that were left do not hinder the next run.
    community(folder, 300);
}

#[test]
fn a_thread_that_cannot_start_is_one_line() {
    let folder = &*scratch();
    community(folder, 3000);
    fs::write(folder.join("edges.csv"), "a,b\n1,2\n").unwrap();
    let mut lines = vec![
        "convert edges.csv --out raw",
        "presample ds --fanouts 2,2",
        "partition ds --parts 2 --weights unit",
    ];
    if cfg!(feature = "train") {
        lines.extend([
            "train ds --layers 1 --fanouts 2 --epochs 1 --parallelism data --ranks 2",
            "train ds --layers 1 --fanouts 2 --epochs 1 --prefetch 2",
        ]);
    }
    for line in lines {
        // Stacks for which no machine has the addresses.
        let huge = usize::MAX >> 8;
        let output =
            command(folder, line).env("RUST_MIN_STACK", huge.to_string()).output().unwrap();
        let told = one_line(&output);
        assert!(
            told.contains("cannot start a thread: raise the limits (ulimit -u and -v)"),
            "{line}: {told}"
        );
    }
    assert!(!folder.join(".raw.partial").exists());
}

#[cfg(feature = "train")]
#[test]
fn memory_that_libtorch_lacks_is_one_line() {
    let folder = &*scratch();
    // Less than the libraries take.
    let line = one_line(&below("-v 100000", folder, "doctor --profile p.toml"));
    // Where it runs short depends on the machine: of memory, of the stack of a thread, or of room
    // for a library.
    assert!(line.contains("ulimit") || line.contains("failed to map segment"), "{line}");
}

#[cfg(feature = "train")]
#[test]
fn a_limit_on_files_is_one_line_of_training_too() {
    let folder = &*scratch();
    community(folder, 300);
    let train = "train ds --parallelism single --layers 1 --fanouts 2 --hidden 256 --epochs 1 --checkpoint run --quiet";
    let line = one_line(&below("-f 16", folder, train));
    assert!(line.contains("model.safetensors") && line.contains("File too large"), "{line}");
    ok(folder, train);
}

#[test]
fn a_file_that_is_cut_while_it_is_mapped_is_named() {
    let folder = &*scratch();
    community(folder, 100_000);
    let endless = "--quiet presample ds --fanouts 5,5 --epochs 100000 --batch-size 512";
    let mut child = command(folder, endless).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // Every page is read again and again: it makes no difference when it goes.
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    let indices = folder.join("ds/topology/indices.npy");
    fs::File::options().write(true).open(&indices).unwrap().set_len(4096).unwrap();
    let output = child.wait_with_output().unwrap();
    let line = one_line(&output);
    assert!(
        line.contains("ds/topology/indices.npy: was cut from") && line.contains("to 4096 bytes"),
        "{line}"
    );
    assert!(
        !folder.join("ds/presample").exists()
            || fs::read_dir(folder.join("ds/presample")).unwrap().count() == 0
    );
}

#[test]
fn names_do_not_reach_the_terminal_as_they_are() {
    let folder = &*scratch();
    let name = "a\u{1b}[2J\nb\u{202e}";
    let line = fails(folder, ["inspect", name], 1);
    assert!(line.starts_with("error: a\\u{1b}[2J\\nb\\u{202e}: "), "{line:?}");
    ok(folder, ["generate", "community", "--vertices", "50", "--edges", "100", "--out", name]);
    for args in [&["inspect", name][..], &["verify", name], &["presample", name, "--fanouts", "2"]]
    {
        let output = gsplit(folder, args);
        for text in [output.stdout, output.stderr] {
            let text = String::from_utf8(text).unwrap();
            let hidden = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(output.status.success() && !text.contains(hidden), "{args:?}: {text:?}");
        }
    }
    // JSON has escapes of its own.
    let text = ok(folder, ["inspect", name, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["path"].as_str(), Some(name));
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_disk_that_is_full_leaves_the_rest_of_a_profile() {
    let folder = &*scratch();
    let output = below("-f 2000", folder, "doctor --profile p.toml --disk .");
    let told = errors(&output);
    assert!(
        output.status.success() && told.contains("note: the disk is left out, .: File too large"),
        "{told}"
    );
    let profile = fs::read_to_string(folder.join("p.toml")).unwrap();
    assert!(profile.contains("[peer]") && !profile.contains("[disk]"), "{profile}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is left behind");
    let output = gsplit(folder, "doctor --profile p.toml --disk none");
    let told = errors(&output);
    assert!(
        output.status.success()
            && told.contains("none: No such file")
            && told.contains("--disk DIR"),
        "{told}"
    );
}
