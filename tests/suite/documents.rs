//! README, the pages of `docs/` and `--help`: every subcommand has help, every link leads to
//! something, and documents stay short.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{ok, root, scratch};

#[cfg(feature = "train")]
mod commands;
mod lists;

/// Maximum number of words of README, as `wc -w` counts them.
const README_WORDS: usize = 800;
/// Pages of the manual, and the maximum number of their words together.
const PAGES: usize = 13;
const MANUAL_WORDS: usize = 17_900;
/// Maximum number of characters of a line of prose.
const COLUMNS: usize = 100;

/// The subcommands that `gsplit NAME.. --help` lists.
fn subcommands(folder: &Path, of: &str) -> Vec<String> {
    let help = ok(folder, format!("{of} --help"));
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let lines =
        lines.take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_string)
        .collect()
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    let folder = &*scratch();
    let commands = subcommands(folder, "");
    assert!(commands.len() >= 7, "{commands:?}");
    for name in commands {
        let text = ok(folder, format!("{name} --help"));
        assert!(
            text.contains(&format!("gsplit {name}")) && text.contains("Example"),
            "{name}: {text}"
        );
    }
}

/// The Markdown files in `folder` of the repository, by name.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(root().join(folder)).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    found.sort();
    found
}

#[test]
fn the_readme_is_short_and_says_first_what_was_not_tried() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let words = readme.split_whitespace().count();
    assert!(
        words <= README_WORDS,
        "README.md has {words} words, at most {README_WORDS}: move some to docs/"
    );
    let first_screen = readme.lines().take(25).collect::<Vec<_>>().join(" ");
    assert!(
        first_screen.contains("Several GPUs and several hosts have not been"),
        "{first_screen}"
    );
}

#[test]
fn the_manual_is_short_and_both_indexes_have_every_page() {
    let pages = markdown("docs");
    assert_eq!(pages.len(), PAGES, "{pages:?}");
    let [readme, index] =
        ["README.md", "docs/llms.txt"].map(|path| fs::read_to_string(root().join(path)).unwrap());
    let mut words = 0;
    for page in pages {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(readme.contains(&format!("](docs/{name})")), "README.md has no link to {name}");
        assert!(index.contains(&format!("]({name})")), "docs/llms.txt has no link to {name}");
        words += fs::read_to_string(&page).unwrap().split_whitespace().count();
    }
    assert!(words <= MANUAL_WORDS, "docs/ has {words} words, at most {MANUAL_WORDS}");
}

/// The part of a document below its heading `heading` of level two, up to the next one.
pub fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let sections = text.split("\n## ").skip(1);
    let mut found =
        sections.filter_map(|part| part.split_once('\n')).filter(|(name, _)| *name == heading);
    found.next().unwrap_or_else(|| panic!("no heading {heading}")).1
}

/// Tables, fences, indented code and pictures cannot be wrapped.
#[test]
fn prose_is_wrapped() {
    let own = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/llms.txt"];
    let own = own.map(|name| root().join(name)).to_vec();
    let mut long = Vec::new();
    for path in [own, markdown("docs"), markdown("python")].concat() {
        let text = fs::read_to_string(&path).unwrap();
        for (at, part) in text.split("```").step_by(2).enumerate() {
            let lines = part
                .lines()
                .filter(|line| !["|", "    ", "!["].iter().any(|mark| line.starts_with(mark)));
            let lines = lines.filter(|line| line.chars().count() > COLUMNS);
            long.extend(lines.map(|line| format!("{}, after fence {at}: {line}", path.display())));
        }
    }
    assert!(long.is_empty(), "lines are longer than {COLUMNS} characters: {long:#?}");
}

/// The name by which GitHub links to a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_matches(['#', ' ']).to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[test]
fn the_documents_name_only_files_that_are_there() {
    let index = vec![root().join("docs/llms.txt")];
    for path in [markdown(""), markdown("docs"), markdown("python"), index].concat() {
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
            let found =
                heading.is_empty() || fs::read_to_string(&linked).unwrap().lines().any(named);
            assert!(found, "{} links to {target}: no such heading", path.display());
        }
    }
}
