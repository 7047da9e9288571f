//! `gsplit verify`: is everything as it was written?

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use gsplit_store::{Dataset, PartitionMap, Presample, shell_path, shell_word, tried, verify};
use serde_json::json;

use gsplit::ui::Ui;

/// Check the checksums and the invariants of every artifact of a dataset
///
/// Reads every byte. Names each file that is damaged, missing or contradicts another; the exit code is 1 if there is any.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gsplit verify products")]
pub struct Args {
    /// Dataset directory
    dataset: PathBuf,
}

/// Verifies everything, prints the problems, and fails if there are any.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    let mut findings: Vec<(PathBuf, Option<String>)> =
        verify(&args.dataset)?.into_iter().map(|finding| (finding.path, finding.problem)).collect();
    // Recompute cuts only on undamaged graphs: the edges of a damaged one may be out of bounds.
    if findings.iter().all(|(_, problem)| problem.is_none()) {
        let dataset = Dataset::open(&args.dataset)?;
        for key in dataset.keys("partition")?.into_iter().chain(dataset.tried("partition")?) {
            if let Ok(map) = PartitionMap::open(&dataset, &key) {
                findings.push((PartitionMap::folder(&dataset, &key), recomputed_cut(&dataset, &map)));
            }
        }
    }
    for (path, problem) in findings.iter().filter_map(|(path, problem)| Some((path, problem.as_ref()?))) {
        // The store's errors start with the path; ours do not.
        let prefix = format!("{}: ", path.display());
        ui.say(if problem.starts_with(&prefix) { problem.clone() } else { format!("{prefix}{problem}") });
    }
    let bad = findings.iter().filter(|(_, problem)| problem.is_some()).count();
    let problems: Vec<_> = findings
        .iter()
        .filter_map(|(path, problem)| Some(json!({ "path": path.display().to_string(), "problem": problem.as_ref()? })))
        .collect();
    ui.json(&json!({ "checks": findings.len(), "problems": problems }));
    if bad > 0 {
        let damaged = findings.iter().filter(|(_, problem)| problem.is_some());
        let remedies: BTreeSet<String> = damaged.map(|(path, _)| remedy(&args.dataset, path)).collect();
        let remedies = remedies.into_iter().collect::<Vec<_>>().join("; ");
        bail!(
            "{}: {bad} of {} checks failed: restore the files that are named above from a copy, or {remedies}",
            args.dataset.display(),
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

/// Recomputes the figures of the partition's report.
fn recomputed_cut(dataset: &Dataset, map: &PartitionMap) -> Option<String> {
    let presample = match &map.meta().made_from.presample {
        Some((key, checksum)) => match Presample::open(dataset, key) {
            Ok(presample) if presample.checksum() == checksum => Some(presample),
            // Rebuilt or removed since: the map is undamaged, but its weighted figures cannot be recomputed.
            _ => return None,
        },
        None => None,
    };
    let report = &map.meta().report;
    let differ = |what: &str, assignment: &[u16], expected: (u64, u64)| {
        let found = gsplit_partition::cuts(dataset.topology(), assignment, presample.as_ref());
        (found != expected).then(|| format!("{what} are {found:?}, the report says {expected:?}"))
    };
    let of_parts = differ("cut and weighted cut", map.assignment(), (report.cut, report.weighted_cut));
    of_parts.or_else(|| {
        let between = report.between_servers.as_ref()?;
        let servers: Vec<u16> = map.assignment().iter().map(|&part| map.server_of(part)).collect();
        differ("cut and weighted cut between servers", &servers, (between.cut, between.weighted_cut))
    })
}
