//! Running the binary, and finding the inputs.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A folder for one test, which is removed at its end.
pub struct Scratch(TempDir);

pub fn scratch() -> Scratch {
    Scratch(tempfile::tempdir().unwrap())
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

/// The words of a command line: a text in which blanks separate them, or a list.
pub trait Line {
    fn words(&self) -> Vec<&str>;
}

impl Line for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Line for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl<S: AsRef<str>> Line for [S] {
    fn words(&self) -> Vec<&str> {
        self.iter().map(AsRef::as_ref).collect()
    }
}

impl<S: AsRef<str>, const N: usize> Line for [S; N] {
    fn words(&self) -> Vec<&str> {
        self.as_slice().words()
    }
}

impl<S: AsRef<str>> Line for Vec<S> {
    fn words(&self) -> Vec<&str> {
        self.as_slice().words()
    }
}

impl<L: Line + ?Sized> Line for &L {
    fn words(&self) -> Vec<&str> {
        (**self).words()
    }
}

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
pub fn command(folder: &Path, line: impl Line) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gsplit"));
    command.current_dir(folder).args(line.words());
    command
}

/// Runs gsplit in `folder` and returns its output, whatever it was.
pub fn gsplit(folder: &Path, line: impl Line) -> Output {
    command(folder, line).output().unwrap()
}

/// The text that a program has written to standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs gsplit, which must succeed; returns standard output.
pub fn ok(folder: &Path, line: impl Line) -> String {
    let output = gsplit(folder, &line);
    assert!(output.status.success(), "gsplit {:?}: {}", line.words(), errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs gsplit with `--json`, which must succeed; returns the object.
pub fn json(folder: &Path, line: impl Line) -> serde_json::Value {
    let words = [line.words(), vec!["--json"]].concat();
    let text = ok(folder, &words);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("gsplit {words:?}: {error}: {text}"))
}

/// The loss of each epoch of a training run that was printed as JSON.
#[cfg(feature = "train")]
pub fn losses(run: &serde_json::Value) -> Vec<f64> {
    run["summary"]["epochs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|epoch| epoch["loss"].as_f64().unwrap())
        .collect()
}

/// Runs gsplit, which must fail with exit code `code`, and with one error where that is 1; returns
/// the last line on standard error.
pub fn fails(folder: &Path, line: impl Line, code: i32) -> String {
    refused(folder, line, code, "").lines().last().unwrap_or_default().to_string()
}

/// Runs gsplit, which must fail as in [`fails`] and say `told`; returns all of standard error.
pub fn refused(folder: &Path, line: impl Line, code: i32, told: &str) -> String {
    let (output, words) = (gsplit(folder, &line), line.words());
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(code), "gsplit {words:?}: {errors}");
    assert!(
        !errors.contains("panicked") && !errors.contains("RUST_BACKTRACE"),
        "gsplit {words:?}: {errors}"
    );
    let complaints = errors.lines().filter(|line| line.starts_with("error:")).count();
    assert!(code != 1 || complaints == 1, "gsplit {words:?}: {errors}");
    assert!(errors.contains(told), "gsplit {words:?}: expected `{told}`: {errors}");
    errors.trim_end().to_string()
}

/// Output of a process that must end within `seconds`.
pub fn ended(mut child: Child, seconds: u64) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(seconds) {
            child.kill().unwrap();
            panic!("it has not ended after {seconds} s");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// The bytes of every file below `folder`, by its relative path; without the notes of sound files.
pub fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if name == gsplit_store::check::NOTE {
            continue;
        }
        match path.is_dir() {
            true => found.extend(
                content(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)),
            ),
            false => drop(found.insert(name, fs::read(&path).unwrap())),
        }
    }
    found
}

/// A generated dataset `ds` in `folder`, quick to train on.
pub fn community(folder: &Path, vertices: u32) {
    let edges = vertices * 8;
    ok(
        folder,
        format!("generate community --vertices {vertices} --edges {edges} --seed 1 --out ds"),
    );
}
