//! Lists in documents that follow from the code: each is compared with it.

use std::collections::BTreeSet;
use std::fs;

use gsplit_trainer::name_of;
use gsplit_trainer::systems::System;

use super::section;
use crate::layering::UNSAFE;
use crate::support::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The words of `text` between two `quote` characters.
fn quoted(text: &str, quote: char) -> BTreeSet<&str> {
    text.split(quote).skip(1).step_by(2).collect()
}

/// The part of `text` between the first `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("no {begin}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {begin}")).0
}

#[test]
fn extending_lists_the_files_with_unsafe_code() {
    let page = read("docs/extending.md");
    let listed: BTreeSet<&str> =
        between(section(&page, "Unsafe code"), "```text\n", "```").split_whitespace().collect();
    assert_eq!(listed, UNSAFE.split_whitespace().collect());
    for path in listed {
        assert!(root().join(path).exists(), "{path}");
    }
}

#[test]
fn extending_lists_the_crates() {
    let page = read("docs/extending.md");
    let crates = section(&page, "Crates");
    let manifest = read("Cargo.toml");
    for member in quoted(between(&manifest, "members = [", "]"), '"') {
        assert!(
            crates.contains(&format!("* `{member}/`")),
            "docs/extending.md has no crate {member}"
        );
    }
}

#[test]
fn dependencies_that_extending_explains_are_direct_ones() {
    let page = read("docs/extending.md");
    let manifest = read("Cargo.toml");
    let direct = between(&manifest, "[workspace.dependencies]\n", "\n[");
    let names = direct.lines().filter_map(|line| line.split_once(" = "));
    let direct: BTreeSet<&str> = names.map(|(name, _)| name).collect();
    let items = section(&page, "Dependencies").lines().filter(|line| line.starts_with("* "));
    let explained: BTreeSet<&str> =
        items.flat_map(|line| quoted(line.split(':').next().unwrap_or_default(), '`')).collect();
    assert!(explained.len() > 4, "{explained:?}");
    let others: Vec<_> = explained.difference(&direct).collect();
    assert!(others.is_empty(), "docs/extending.md explains no direct dependencies: {others:?}");
}

#[test]
fn install_lists_the_commands_that_are_handed_to_the_trainer() {
    let page = read("docs/install.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let source = read("src/delegate.rs");
    let handed = quoted(between(&source, "const SUBCOMMANDS: ", ";\n"), '"');
    assert!(handed.len() > 3, "{handed:?}");
    let mut named = quoted(between(&page, "It hands ", " too."), '`');
    named.remove("gsplit-train");
    assert_eq!(named, handed);
}

#[test]
fn train_lists_the_systems() {
    let page = read("docs/train.md");
    for system in gsplit_trainer::systems::ALL {
        let layers = system.split_layers.map_or("all".to_string(), |layers| layers.to_string());
        let map = system.map.map_or("none".to_string(), |map| name_of(&map));
        let System { key, name, parallelism, placement, paper, .. } = system;
        let row = format!(
            "| `{key}` | {name} | `{parallelism}` | {layers} | `{placement}` | {map} | {paper} |"
        );
        assert!(page.contains(&row), "docs/train.md has no row {row}");
    }
}
