//! Variables that libtorch and OpenMP read when the process starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

/// Sampling and loading run on rayon's threads, computing on OpenMP's, by turns. OpenMP's spin while they wait, which takes
/// the cores from the others (several times slower where cores are few or shared).
pub const IDLE_THREADS_SLEEP: (&str, &str) = ("OMP_WAIT_POLICY", "passive");

/// Starts the process again, once, with those of `variables` that are not set.
pub fn set(variables: &[(&str, &str)]) -> anyhow::Result<()> {
    let unset: Vec<_> = variables.iter().filter(|(name, _)| std::env::var_os(name).is_none()).collect();
    if unset.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find gsplit's own executable")?;
    let mut again = Command::new(program);
    again.args(std::env::args_os().skip(1)).envs(unset.iter().map(|(name, value)| (name, value)));
    let settings: Vec<String> = unset.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Err(again.exec()).with_context(|| format!("cannot start gsplit again: set {} yourself", settings.join(" ")))
}
