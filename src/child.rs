//! Starting gsplit again as a child process.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{
    Pid, Signal, getppid, kill_process, set_parent_process_death_signal, test_kill_process,
};

use crate::ui::stop_after_child;

/// Environment variable with the id of the process that starts a child, for [`end_with_parent`].
const PARENT: &str = "GSPLIT_PARENT";

/// Makes the process of `command`, which must be a gsplit, end when this one does, even if this one
/// is killed. The kernel watches the thread that starts the child, so that thread must wait for it.
pub fn tied(command: &mut Command) -> &mut Command {
    command.env(PARENT, std::process::id().to_string())
}

/// Ends this process when the gsplit that started it ends, if one did ([`tied`]). Call it first in
/// `main`.
pub fn end_with_parent() -> Result<(), String> {
    let named = std::env::var(PARENT).ok().and_then(|id| Pid::from_raw(id.parse().ok()?));
    let Some(parent) = named else { return Ok(()) };
    let is_parent = || getppid() == Some(parent);
    // Another program in between passes the variable on: then the variable names that program's
    // parent.
    if !is_parent() && test_kill_process(parent).is_ok() {
        return Ok(());
    }
    // Request the signal first and check the parent afterwards, so that a parent which ends in
    // between is noticed.
    let asked = set_parent_process_death_signal(Some(Signal::TERM));
    match (is_parent(), asked) {
        (true, Ok(())) => Ok(()),
        (true, Err(error)) => {
            Err(format!("cannot ask the system to end with the gsplit that started this: {error}"))
        }
        (false, _) => Err("the gsplit that started this has ended".into()),
    }
}

/// Runs `command` and returns the output that it wrote into pipes. If this process is asked to end,
/// the child is ended too and the error says that the work was interrupted, followed by `kept`. The
/// child also ends if this process is killed.
pub fn finished(command: &mut Command, kept: &str) -> anyhow::Result<Output> {
    let left = kept.to_string();
    let stop = stop_after_child(move || left.clone());
    let child = tied(command).stdin(Stdio::null()).spawn().context("cannot start gsplit again")?;
    let id = Pid::from_child(&child);
    let mut told = false;
    let output = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| child.wait_with_output());
        while !waiting.is_finished() {
            if stop.load(Ordering::SeqCst) && !told {
                told = kill_process(id, Signal::TERM).is_ok();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if stop.load(Ordering::SeqCst) {
        bail!("interrupted: {kept}");
    }
    output.context("cannot read what gsplit prints")
}
