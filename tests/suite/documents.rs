//! README, the pages of `docs/` and `--help`: every subcommand has help, every link leads to something, and README stays short.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{ok, root, scratch};

#[cfg(feature = "train")]
mod commands;

/// Words of README, as `wc -w` counts them.
const README_WORDS: usize = 900;

/// The subcommands that `gsplit NAME.. --help` lists.
fn subcommands(folder: &Path, of: &str) -> Vec<String> {
    let help = ok(folder, format!("{of} --help"));
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_string).collect()
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    let folder = &*scratch();
    let commands = subcommands(folder, "");
    assert!(commands.len() >= 7, "{commands:?}");
    for name in commands {
        let text = ok(folder, format!("{name} --help"));
        assert!(text.contains(&format!("gsplit {name}")) && text.contains("Example"), "{name}: {text}");
    }
}

/// The Markdown files in `folder` of the repository, by name.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    found.sort();
    found
}

#[test]
fn the_readme_is_short_and_says_first_what_was_not_tried() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let words = readme.split_whitespace().count();
    assert!(words <= README_WORDS, "README.md has {words} words, at most {README_WORDS}: move some to docs/");
    let first_screen = readme.lines().take(25).collect::<Vec<_>>().join(" ");
    assert!(first_screen.contains("Several GPUs and several hosts have not been"), "{first_screen}");
}

#[test]
fn the_index_of_the_manual_has_every_page() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for page in markdown("docs") {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "docs/README.md has no link to {name}");
    }
}

/// The name by which GitHub links to a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_matches(['#', ' ']).to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[test]
fn the_documents_name_only_files_that_are_there() {
    for path in [markdown(""), markdown("docs"), markdown("python")].concat() {
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            assert!(linked.exists(), "{} links to {target}", path.display());
            let named = |line: &str| line.starts_with('#') && anchor(line) == heading;
            let found = heading.is_empty() || fs::read_to_string(&linked).unwrap().lines().any(named);
            assert!(found, "{} links to {target}: no such heading", path.display());
        }
    }
}
