//! Links the binary and its tests so that they find libtorch when they run (without training there
//! is nothing to link), and tells the version its commit.

#[path = "trainer/link.rs"]
mod link;

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=trainer/link.rs");
    println!("cargo::rerun-if-env-changed=GSPLIT_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = commit().map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=GSPLIT_VERSION={version}");
    if env::var_os("CARGO_FEATURE_TRAIN").is_some() {
        let _ = link::libtorch();
    }
}

/// Commit that is built: GSPLIT_COMMIT, for sources without git, or this repository's. Development
/// builds have none: a commit would compile them again.
fn commit() -> Option<String> {
    if let Some(named) = env::var("GSPLIT_COMMIT").ok().filter(|named| !named.is_empty()) {
        return Some(named);
    }
    // Sources that were unpacked inside another repository are not of its commit.
    let root = env::var("CARGO_MANIFEST_DIR").ok()?;
    if env::var("PROFILE").ok()? != "release"
        || Path::new(&git(&["rev-parse", "--show-toplevel"])?) != Path::new(&root)
    {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// Line that git prints; `None` without git, or a repository.
fn git(words: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string()).filter(|line| !line.is_empty())
}
