//! What README, its chapters and --help say is run: `sh` fences as a user runs them in a clone, and every subcommand's help.

use std::fs;
use std::path::PathBuf;
#[cfg(feature = "train")]
use std::{path::Path, process::Command};

#[cfg(feature = "train")]
use crate::support::{community, fails, json};
use crate::support::{ok, root};

#[test]
fn every_subcommand_has_help_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    let help = ok(folder.path(), &["--help"]);
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let commands: Vec<String> = commands
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_string))
        .collect();
    assert!(commands.len() >= 7, "{commands:?}");
    for name in commands.iter().filter(|name| *name != "help") {
        let text = ok(folder.path(), &[name, "--help"]);
        assert!(text.contains(&format!("gsplit {name}")) && text.contains("Example"), "{name}: {text}");
    }
}

/// README and its chapters.
fn documents() -> Vec<PathBuf> {
    let chapters = fs::read_dir(root().join("docs")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut chapters: Vec<_> = chapters.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    chapters.sort();
    [vec![root().join("README.md")], chapters].concat()
}

/// Their `sh` fences, README's first.
#[cfg(feature = "train")]
fn scripts() -> Vec<String> {
    let fences = |path: PathBuf| -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        let fences = text.split("```").skip(1).step_by(2).filter_map(|fence| fence.strip_prefix("sh\n"));
        fences.map(str::to_string).collect()
    };
    documents().into_iter().flat_map(fences).collect()
}

/// Copies what a clone of the repository has into `folder`; returns whether git told what that is.
#[cfg(feature = "train")]
fn clone_into(folder: &Path) -> bool {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else { return false };
    for name in String::from_utf8(listed.stdout).unwrap().split_terminator('\0') {
        let (from, to) = (root().join(name), folder.join(name));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // A file that was deleted just now is listed until that is committed.
        if from.exists() {
            fs::copy(from, to).unwrap();
        }
    }
    true
}

#[cfg(feature = "train")]
#[test]
fn the_blocks_of_the_readme_run_in_a_clone_and_the_model_learns() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !clone_into(folder) {
        println!("skipped: this is no clone, or git is not here");
        return;
    }
    let scripts = scripts();
    assert!(scripts.iter().map(|script| script.matches("gsplit ").count()).sum::<usize>() > 20, "{scripts:?}");
    let programs = Path::new(env!("CARGO_BIN_EXE_gsplit")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    for script in scripts {
        let run = Command::new("sh").args(["-euc", &script]).env("PATH", &path).current_dir(folder).output().unwrap();
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{script}\n{}\n{errors}", String::from_utf8_lossy(&run.stdout));
    }
    for log in ["split.jsonl", "single.jsonl"] {
        let log = fs::read_to_string(folder.join(log)).unwrap();
        let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert!(last["test"].as_f64().unwrap() > 0.9, "{last}");
    }
}

#[cfg(feature = "train")]
#[test]
fn logs_with_records_of_mini_batches_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 600);
    let train = ["train", "ds", "--parallelism", "single", "--layers", "2", "--fanouts", "3,3", "--hidden", "8"];
    let train = [&train[..], &["--batch-size", "64", "--epochs", "2"]].concat();
    ok(folder, &[&train[..], &["--log", "plain.jsonl"]].concat());
    ok(folder, &[&train[..], &["--log", "steps.jsonl", "--log-every", "2"]].concat());
    let lines = |log: &str| fs::read_to_string(folder.join(log)).unwrap().lines().count();
    assert!(lines("plain.jsonl") == 2 && lines("steps.jsonl") > 4);
    let both = json(folder, &["compare", "plain.jsonl", "steps.jsonl"]);
    for key in ["epochs", "loss", "valid", "test", "edges", "rows_loaded"] {
        assert_eq!(both["runs"][0][key], both["runs"][1][key], "{key}");
    }
    // What was interrupted in its first epoch, and what is something else.
    let log = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
    fs::write(folder.join("early.jsonl"), log.lines().next().unwrap()).unwrap();
    assert!(fails(folder, &["compare", "early.jsonl"], 1).contains("early.jsonl: no epoch was finished"));
    fs::write(folder.join("other.jsonl"), "{\"epoch\": 1}\n").unwrap();
    assert!(
        fails(folder, &["compare", "plain.jsonl", "other.jsonl"], 1).contains("other.jsonl, line 1: expected a line")
    );
}

#[test]
fn the_documents_name_only_files_that_are_there() {
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            assert!(linked.exists(), "{} links to {target}", path.display());
            let named = |line: &str| {
                line.starts_with('#') && line.trim_matches(['#', ' ']).to_lowercase().replace(' ', "-") == heading
            };
            let found = heading.is_empty() || fs::read_to_string(&linked).unwrap().lines().any(named);
            assert!(found, "{} links to {target}: no such heading", path.display());
        }
    }
}
