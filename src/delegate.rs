//! Subcommands that `gsplit-train` runs.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use gsplit::arguments::subcommand_at;
use gsplit::installed::remedy;

/// Subcommands of `gsplit-train`; it knows the options of both programs.
const SUBCOMMANDS: [&str; 7] = ["run", "train", "infer", "compare", "plan", "completions", "man"];

/// Environment variable that makes OpenMP's threads sleep while they wait. libtorch's OpenMP reads
/// it once, when it is loaded. Sampling and loading run on rayon's threads and computing on
/// OpenMP's, in turns; spinning threads would take cores from the others, which is several times
/// slower where cores are few or shared.
const IDLE_THREADS: (&str, &str) = ("OMP_WAIT_POLICY", "passive");

/// Replaces this process by `gsplit-train`, which is in the same folder, if the command line is for
/// it. Returns only if it is not, or if that program cannot be started.
pub fn to_trainer() -> Option<ExitCode> {
    let line: Vec<OsString> = std::env::args_os().collect();
    if !is_for_trainer(&line) {
        return None;
    }
    let beside = std::env::current_exe().map(|program| program.with_file_name("gsplit-train"));
    let error = match beside {
        Ok(program) => missing_libraries(&program).unwrap_or_else(|| {
            let mut trainer = Command::new(&program);
            if std::env::var_os(IDLE_THREADS.0).is_none() {
                trainer.env(IDLE_THREADS.0, IDLE_THREADS.1);
            }
            let cause = trainer.args(&line[1..]).exec();
            format!(
                "{}: {cause}: it trains, and belongs next to gsplit: copy both, or {}",
                program.display(),
                remedy()
            )
        }),
        Err(cause) => format!("cannot find gsplit's own executable: {cause}"),
    };
    Some(gsplit::ui::refuse(&error, 1))
}

/// The reason why the system cannot start `program`, if libraries are missing: otherwise only the
/// system's loader would report it, in its own words. Asks the loader like `ldd` does, which takes
/// a few milliseconds.
fn missing_libraries(program: &Path) -> Option<String> {
    let listed = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let missing: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.trim().split_once(" => not found"))
        .map(|(name, _)| name)
        .collect();
    (!missing.is_empty())
        .then(|| format!("{}: {} not found: {}", program.display(), missing.join(", "), remedy()))
}

/// Whether the subcommand of a command line (or the word after `help`) is one of `gsplit-train`.
fn is_for_trainer(line: &[OsString]) -> bool {
    let words = &line[subcommand_at(line).min(line.len())..];
    let word =
        if words.first().is_some_and(|word| word == "help") { words.get(1) } else { words.first() };
    word.is_some_and(|word| SUBCOMMANDS.iter().any(|subcommand| word == subcommand))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_is_handed_over_and_nothing_else() {
        let is = |line: &str| {
            let words = ["gsplit"].into_iter().chain(line.split_whitespace());
            is_for_trainer(&words.map(OsString::from).collect::<Vec<_>>())
        };
        for line in [
            "train ds",
            "infer ds",
            "--json --threads 2 train",
            "help compare",
            "--threads=2 train --help",
            "-q compare a b",
            "run raw --out run",
            "completions zsh",
        ] {
            assert!(is(line), "{line}");
        }
        for line in [
            "",
            "--help",
            "convert train",
            "--threads train",
            "inspect train --json",
            "help",
            "help convert train",
        ] {
            assert!(!is(line), "{line}");
        }
    }
}
