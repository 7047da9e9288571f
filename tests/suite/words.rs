//! One name, one thing; and comments that begin with their noun.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::layering::{CRATES, is_test, rust_files};
use crate::support::root;

/// First words of comments that leave their noun out.
const FIRST_WORDS: [&str; 9] =
    ["What", "Where", "Of", "Those", "Who", "Which", "By", "That", "Whose"];

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    rust_files(folder)
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// The first lines of the blocks of doc comments in `text`, each with its number.
fn doc_comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let comment =
        |line: &str| ["///", "//!"].iter().any(|mark| line.trim_start().starts_with(mark));
    let mut within = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let begins = comment(line) && !within;
        within = comment(line);
        begins.then(|| (number, line.trim_start()[3..].trim_start()))
    })
}

/// The name of the type that a `line` at module level defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    let name = ["struct ", "enum ", "union ", "trait ", "type "]
        .iter()
        .find_map(|kind| line.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn doc_comments_begin_with_their_noun() {
    let mut found = Vec::new();
    for (path, text) in CRATES.split(' ').flat_map(sources) {
        let path = path.strip_prefix(root()).unwrap();
        for (number, comment) in doc_comments(&text) {
            let first = comment.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            if FIRST_WORDS.contains(&first) {
                found.push(format!("{}:{number}: {comment}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{} comments lack their noun:\n{}", found.len(), found.join("\n"));
}

#[test]
fn type_names_are_defined_once_in_a_crate() {
    for folder in CRATES.split(' ') {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (path, text) in sources(folder) {
            let path = path.strip_prefix(root()).unwrap();
            if is_test(path) {
                continue;
            }
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for (number, line) in (1..).zip(code.lines()) {
                // Each subcommand has its `Args`.
                if let Some(name) = defined_type(line).filter(|name| *name != "Args") {
                    places
                        .entry(name.to_string())
                        .or_default()
                        .push(format!("{}:{number}", path.display()));
                }
            }
        }
        places.retain(|_, places| places.len() > 1);
        assert!(
            places.is_empty(),
            "{folder} defines a type name more than once, give each type its own: {places:#?}"
        );
    }
}
