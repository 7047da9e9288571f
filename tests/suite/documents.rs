//! What README and --help say is run: every `gsplit` command in a README code fence, and every subcommand's help.

use std::fs;

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

/// The commands of README's `sh` fences that call gsplit, continuation lines joined.
#[cfg(feature = "train")]
fn readme_commands() -> Vec<String> {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let fences = text.split("```").skip(1).step_by(2).filter_map(|fence| fence.strip_prefix("sh\n"));
    let joined: Vec<String> = fences.map(|fence| fence.replace("\\\n", " ")).collect();
    let lines = joined.iter().flat_map(|fence| fence.lines());
    lines
        .map(|line| line.split(" #").next().unwrap_or_default().trim().to_string())
        .filter(|line| line.starts_with("gsplit "))
        .collect()
}

#[cfg(feature = "train")]
#[test]
fn every_gsplit_command_in_the_readme_runs() {
    let folder = tempfile::tempdir().unwrap();
    let data = root().join("tests/data");
    std::os::unix::fs::symlink(data, folder.path().join("data")).unwrap();
    let commands = readme_commands();
    assert!(commands.len() >= 6, "{commands:?}");
    for line in commands {
        let args: Vec<&str> = line.split_whitespace().skip(1).collect();
        ok(folder.path(), &args);
    }
}

#[test]
fn the_documents_name_only_files_that_are_there() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    for part in text.split("](").skip(1) {
        let target = part.split(')').next().unwrap();
        if !target.contains("://") && !target.starts_with('#') {
            assert!(root().join(target).exists(), "README links to {target}");
        }
    }
}
