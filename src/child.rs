//! gsplit started again, by itself.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use gsplit::ui::stop_after_child;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Runs `command` and returns what it printed into pipes. It ends when this process is asked to; then the error says that this was
/// interrupted, and that `kept` stays.
pub fn finished(command: &mut Command, kept: &str) -> anyhow::Result<Output> {
    let left = kept.to_string();
    let stop = stop_after_child(move || left.clone());
    let child = command.stdin(Stdio::null()).spawn().context("cannot start gsplit again")?;
    let id = Pid::from_raw(child.id() as i32);
    let mut told = false;
    let output = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| child.wait_with_output());
        while !waiting.is_finished() {
            if stop.load(Ordering::SeqCst) && !told {
                told = kill(id, Signal::SIGTERM).is_ok();
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
