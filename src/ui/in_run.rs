//! Remedies reworded for `gsplit run`, for messages of its steps: a step has options that `run`
//! lacks or sets itself.

use std::borrow::Cow;

/// Environment variable set for the steps of `gsplit run`.
pub const STEP_OF_RUN: &str = "GSPLIT_STEP_OF_RUN";

/// Remedies of steps, with their equivalents for users of `gsplit run`. The first match counts.
const REMEDIES: [(&str, &str); 9] = [
    (
        "resume with the same options, or start another --checkpoint",
        "give the same options, or pass --fresh to train anew",
    ),
    (
        "resume with the same --placement and --cache, or start another --checkpoint",
        "give the same --placement and --cache, or pass --fresh to train anew",
    ),
    ("start another --checkpoint", "pass --fresh to train anew"),
    (
        "choose another path, or pass --force to rebuild it",
        "pass --fresh to run anew, or choose another --out",
    ),
    (
        "choose another path or key, or pass --force to rebuild it",
        "run this step by itself to rebuild it: --force",
    ),
    (
        "make it again for this dataset, with --force",
        "run this step by itself to make it again: --force",
    ),
    ("name another path, or pass --force to replace it", "move it, or choose another --out"),
    ("or leave --init out", "or leave --from out"),
    ("--init ", "--from "),
];

/// `line`, reworded for `gsplit run` if this is a step of it.
pub fn reworded(line: &str) -> Cow<'_, str> {
    match std::env::var_os(STEP_OF_RUN) {
        Some(_) => in_run(line).into(),
        None => line.into(),
    }
}

/// `line` with the remedies of `gsplit run`.
pub fn in_run(line: &str) -> String {
    let apply = |line: String, (step, run): &(&str, &str)| line.replace(step, run);
    REMEDIES.iter().fold(line.to_string(), apply)
}
