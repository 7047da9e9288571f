//! `gsplit verify`: is everything as it was written?

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use gsplit_store::{shell_path, shell_word, tried, verify};
use serde_json::json;

use crate::ui::Ui;

/// Check the checksums and the invariants of every artifact of a dataset
///
/// Reads every byte. Names each file that is damaged, missing or contradicts another; the exit code
/// is 1 if there is any.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit verify products")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
}

/// Verifies everything, prints the problems, and fails if there are any.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let findings = verify(&args.dataset)?;
    let damaged = findings.iter().filter_map(|found| Some((&found.path, found.problem.as_ref()?)));
    let damaged: Vec<_> = damaged.collect();
    for (path, problem) in &damaged {
        // Most errors of the store start with the path.
        let prefix = format!("{}: ", path.display());
        let problem = problem.strip_prefix(&prefix).unwrap_or(problem);
        ui.say(format!("{prefix}{problem}"));
    }
    let problem = |(path, problem): &(&PathBuf, &String)| json!({ "path": path.display().to_string(), "problem": problem });
    let problems: Vec<_> = damaged.iter().map(problem).collect();
    ui.json(&json!({ "checks": findings.len(), "problems": problems }));
    if !damaged.is_empty() {
        let remedies: BTreeSet<String> =
            damaged.iter().map(|(path, _)| remedy(&args.dataset, path)).collect();
        let remedies = remedies.into_iter().collect::<Vec<_>>().join("; ");
        bail!(
            "{}: {} of {} checks failed: restore the files that are named above from a copy, or \
             {remedies}",
            args.dataset.display(),
            damaged.len(),
            findings.len()
        );
    }
    ui.say(format_args!("{}: all {} checks passed", args.dataset.display(), findings.len()));
    Ok(())
}

/// The remedy for a damaged file at `path`: how to make its artifact again in `dataset`.
fn remedy(dataset: &Path, path: &Path) -> String {
    let below = path.strip_prefix(dataset).unwrap_or(path);
    if below.starts_with(tried("")) {
        return format!("run `gsplit clean {}`", shell_path(dataset));
    }
    let mut names = below.iter();
    let command = match (names.next().and_then(OsStr::to_str), names.next()) {
        (Some(kind @ ("presample" | "partition")), Some(key)) => Some((kind, key)),
        (Some("placement"), Some(key)) => Some(("place", key)),
        _ => None,
    };
    match command {
        Some((command, key)) => {
            let (dataset, key) = (shell_path(dataset), shell_word(key));
            format!("run `gsplit {command} {dataset} --key {key} --force` again")
        }
        None => "make the dataset again with --force".into(),
    }
}
