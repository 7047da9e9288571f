//! Running the binary, and finding the inputs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A real graph of the shared collection, when this machine has it; says so when not.
pub fn shared(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared/data").join(name);
    if !path.exists() {
        println!("skipped: the shared data set {name} is not here");
        return None;
    }
    Some(path)
}

/// A gsplit command, ready to run in `folder`.
pub fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gsplit"));
    command.current_dir(folder).args(args);
    command
}

/// Runs gsplit in `folder` and returns its output, whatever it was.
pub fn gsplit(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Runs gsplit, which must succeed; returns standard output.
pub fn ok(folder: &Path, args: &[&str]) -> String {
    let output = gsplit(folder, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "gsplit {args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs gsplit with `--json`, which must succeed; returns the object.
pub fn json(folder: &Path, args: &[&str]) -> serde_json::Value {
    let text = ok(folder, &[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("gsplit {args:?} --json: {error}: {text}"))
}

/// The loss of each epoch of a training run that was printed as JSON.
#[cfg(feature = "train")]
pub fn losses(run: &serde_json::Value) -> Vec<f64> {
    run["summary"]["epochs"].as_array().unwrap().iter().map(|epoch| epoch["loss"].as_f64().unwrap()).collect()
}

/// Runs gsplit, which must fail with exit code `code` and one line on standard error; returns the line.
pub fn fails(folder: &Path, args: &[&str], code: i32) -> String {
    let output = gsplit(folder, args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "gsplit {args:?}: {errors}");
    assert!(!errors.contains("panicked") && !errors.contains("RUST_BACKTRACE"), "gsplit {args:?}: {errors}");
    let last = errors.trim_end().lines().last().unwrap_or_default().to_string();
    if code == 1 {
        let complaints = errors.lines().filter(|line| line.starts_with("error:")).count();
        assert_eq!(complaints, 1, "gsplit {args:?}: {errors}");
    }
    last
}

/// The bytes of every file below `folder`, by its relative path; without the notes of what was found sound.
pub fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if name == gsplit_store::check::NOTE {
            continue;
        }
        match path.is_dir() {
            true => found.extend(content(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes))),
            false => drop(found.insert(name, fs::read(&path).unwrap())),
        }
    }
    found
}

/// A generated dataset `ds` in `folder`, quick to train on.
pub fn community(folder: &Path, vertices: u32) {
    let (vertices, edges) = (vertices.to_string(), (vertices * 8).to_string());
    ok(folder, &["generate", "community", "--vertices", &vertices, "--edges", &edges, "--seed", "1", "--out", "ds"]);
}
