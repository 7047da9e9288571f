//! The budget: lines of the product and options of the command line, which may only fall.
//!
//! Lines are counted in Rust, CUDA and C++ files, blank ones and comments included, without tests:
//! folders called `tests`, files called `tests.rs`, and modules `tests` at the end of a file. Where
//! a crate needs more, another gives as much up in the same commit. Only graphs of several types,
//! times and tables with keys add to the sum, by at most 4,500 lines to the 108,951 before them.

use std::fs;
use std::path::Path;

use crate::layering::is_test;
use crate::support::{gsplit, root};

/// Endings of source files.
const SOURCES: [&str; 5] = ["rs", "cu", "cuh", "cpp", "h"];
/// Most lines below each folder.
const LINES: [(&str, usize); 9] = [
    ("store/src", 11189),
    ("kernels/src", 19031),
    ("sample/src", 1086),
    ("preprocess/src", 29407),
    ("partition/src", 8367),
    ("trainer/src", 26903),
    ("gpu-sim/src", 3892),
    ("python/native/src", 2083),
    ("src", 11490),
];
/// Most options of all subcommands together, except the options that every subcommand has. An
/// option of several subcommands counts for each.
const OPTIONS: usize = 251;
/// A maximum that exceeds its number by more than this must be lowered.
const SLACK: usize = 100;
/// Maximum characters of a line, as in rustfmt.toml.
const COLUMNS: usize = 100;
/// Most lines of source files, tests included, that are longer: messages, tables and diagrams.
const LONG_LINES: usize = 780;

fn product_lines(folder: &Path) -> usize {
    let mut lines = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let extension =
            path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if is_test(path.strip_prefix(root()).unwrap()) {
            continue;
        } else if path.is_dir() {
            lines += product_lines(&path);
        } else if SOURCES.contains(&extension) {
            let text = fs::read_to_string(&path).unwrap();
            lines +=
                text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count();
        }
    }
    lines
}

/// Compares a number with the most that it may be.
fn check(what: &str, found: usize, most: usize, problems: &mut Vec<String>) {
    if found > most {
        problems.push(format!("{what}: {found}, at most {most}"));
    } else if found + SLACK < most {
        problems.push(format!("{what}: {found}, so lower the number from {most}"));
    }
}

#[test]
fn crates_do_not_grow() {
    let mut problems = Vec::new();
    for (folder, most) in LINES {
        check(folder, product_lines(&root().join(folder)), most, &mut problems);
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn options_do_not_become_more() {
    let help = |line: &str| String::from_utf8(gsplit(&root(), line).stdout).unwrap();
    let listed = help("--help");
    let commands = listed
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let mut options = 0;
    for command in commands
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
    {
        let text = help(&format!("{command} --help"));
        let own = text.lines().take_while(|line| *line != "Every subcommand:").map(str::trim_start);
        let long =
            own.filter(|line| line.starts_with('-')).filter_map(|line| line.split_once("--"));
        options +=
            long.filter(|(short, name)| short.len() < 5 && !name.starts_with("help")).count();
    }
    let mut problems = Vec::new();
    check("options", options, OPTIONS, &mut problems);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn lines_do_not_grow() {
    fn long_lines(folder: &Path) -> usize {
        let mut lines = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                lines += long_lines(&path);
            } else if extension.is_some_and(|extension| SOURCES.contains(&extension)) {
                let text = fs::read_to_string(&path).unwrap();
                lines += text.lines().filter(|line| line.chars().count() > COLUMNS).count();
            }
        }
        lines
    }
    let found = LINES.map(|(folder, _)| long_lines(&root().join(folder)));
    let mut problems = Vec::new();
    check("lines beyond 100 characters", found.iter().sum(), LONG_LINES, &mut problems);
    assert!(problems.is_empty(), "{problems:#?}");
}
