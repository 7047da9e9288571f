//! BENCHMARKS.md and REPRODUCTION.md: short, with commands that exist; README's numbers are found
//! there; and the files of raw results are complete.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The names of the files in `folder` of the repository with the extension `end`, without it.
fn names(folder: &str, end: &str) -> BTreeSet<String> {
    let paths = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let named = paths.filter(|path| path.extension().is_some_and(|extension| extension == end));
    named.map(|path| path.file_stem().unwrap().to_str().unwrap().to_string()).collect()
}

/// The first word after each `before` in `text`, up to a quotation mark or space.
fn words_after<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c));
    text.split(before)
        .skip(1)
        .filter_map(|rest| rest.split(ends).next())
        .filter(|word| !word.is_empty())
        .collect()
}

/// The numbers of a cell, as they are written.
fn numbers(cell: &str) -> impl Iterator<Item = &str> {
    let words = cell.split(|c: char| !(c.is_ascii_digit() || ".,".contains(c)));
    words.map(|word| word.trim_matches(['.', ','])).filter(|word| !word.is_empty())
}

#[test]
fn measurements_are_short() {
    let measurements = read("BENCHMARKS.md");
    assert!(measurements.lines().count() <= 250, "{} lines", measurements.lines().count());
    for paper in read("REPRODUCTION.md").split("\n## ").skip(1) {
        assert!(paper.lines().count() <= 60, "{}", paper.lines().next().unwrap());
    }
}

#[test]
fn the_named_benchmarks_and_tables_are_there() {
    let benchmarks = names("bench/benchmarks", "py");
    let help = Command::new("python3")
        .args(["bench/reproduce.py", "--help"])
        .current_dir(root())
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap().split_whitespace().collect::<String>();
    for path in ["README.md", "BENCHMARKS.md", "CONTRIBUTING.md", "REPRODUCTION.md"] {
        let text = read(path);
        for name in words_after(&text, "make bench NAME=") {
            assert!(benchmarks.contains(name), "{path} names a benchmark {name}");
        }
        for table in words_after(&text, "make reproduce TABLE=") {
            assert!(help.contains(table), "{path} names a table {table}");
        }
    }
    let claims = read("BENCHMARKS.md");
    let cited: BTreeSet<String> =
        words_after(&claims, "make bench NAME=").into_iter().map(str::to_string).collect();
    assert_eq!(cited, benchmarks, "BENCHMARKS.md cites every benchmark");
}

#[test]
fn numbers_of_the_readme_are_in_the_measurements() {
    let claims = read("BENCHMARKS.md");
    for row in read("README.md")
        .lines()
        .filter(|line| line.starts_with('|') && line.contains("make bench NAME="))
    {
        for number in numbers(row) {
            assert!(
                claims.contains(number),
                "README.md has {number}, BENCHMARKS.md does not: {row}"
            );
        }
    }
}

#[test]
fn raw_results_are_complete() {
    let others = BTreeSet::from(["gpu".to_string()]);
    let known = &names("bench/benchmarks", "py") | &others;
    for name in names("bench/results", "json") {
        let of_a_paper = name.starts_with("reproduce-");
        assert!(
            of_a_paper || known.contains(&name),
            "bench/results/{name}.json is of no benchmark"
        );
        let results: Value =
            serde_json::from_str(&read(&format!("bench/results/{name}.json"))).unwrap();
        assert_eq!(results["bench"], name.as_str());
        for measured in results["measurements"].as_array().unwrap() {
            let title = measured["title"].as_str().unwrap();
            for key in ["machine", "date"] {
                assert!(
                    measured[key].as_str().is_some_and(|text| !text.is_empty()),
                    "{name}, {title}: {key}"
                );
            }
            assert!(
                measured["command"].is_string() || measured["command"].is_array(),
                "{name}, {title}: command"
            );
            let columns = measured["columns"].as_array().unwrap().len();
            for row in measured["rows"].as_array().unwrap() {
                assert_eq!(row.as_array().unwrap().len(), columns, "{name}, {title}: {row}");
            }
        }
    }
}
