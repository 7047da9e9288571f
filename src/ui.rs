//! Messages to the user: results on standard output, progress and errors on standard error.

mod end;
mod progress;

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use gsplit_store::{NoProgress, Progress, Stage, Unit, check, take_signals};
use serde_json::{Value, json};

use end::{
    INTERRUPTED, SCHEMA, SIGINT, SIGNAL, complain_of_interrupt, failure, is_gentle, on_interrupt,
    on_panic, tell_interrupt, wait_for_sigterm,
};
pub use end::{end, give_up, interrupted, plainly, refuse, sober, stop_after_child, stop_gently};
use progress::{LogLines, TerminalBar, Timed, Times};
/// Number of letters to insert, remove or replace in one word to get the other.
pub use strsim::levenshtein as distance;

/// Options of every subcommand.
#[derive(clap::Args, Clone, Copy)]
pub struct Output {
    /// Print only results: no progress, no notes, no line for each epoch
    #[arg(long, short, global = true, help_heading = "Every subcommand")]
    quiet: bool,
    /// Print the result as one JSON object on standard output, and no progress; for a failure
    /// {"error", "exit", "schema"}
    #[arg(long, global = true, help_heading = "Every subcommand")]
    json: bool,
    /// Open artifacts without a check for damage. Otherwise files are checked against their
    /// checksums when they are first opened after they were made or moved, long ones in the
    /// background, and undamaged files are noted in .verified
    #[arg(long, global = true, help_heading = "Every subcommand")]
    no_check: bool,
    /// Threads to compute with [default: one for each core]; train's ranks share them, each with
    /// one at least. Results do not depend on it, except the last bits of a loss
    #[arg(long, global = true, help_heading = "Every subcommand", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Output {
    /// These options with this number of threads, unless they have one.
    pub fn with_threads(self, threads: Option<usize>) -> Self {
        Self {
            threads: self.threads.or(threads.and_then(|threads| threads.try_into().ok())),
            ..self
        }
    }
}

/// A command line that parsed but contradicts itself: exit code 2, as for clap's own usage errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// A usage error: `--option` and the problem with it.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    UsageError(message.into()).into()
}

/// Whether options contradict each other, or one is missing.
fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<UsageError>()
        || matches!(error.downcast_ref(), Some(gsplit_partition::Error::Option(_)))
        || matches!(error.downcast_ref(), Some(gsplit_preprocess::Error::Option(_)))
}

/// `path`, which `--option` names, as text to record.
pub fn as_text<'p>(option: &str, path: &'p Path) -> anyhow::Result<&'p str> {
    let problem = || {
        usage(format!(
            "{option} {}: expected a path in UTF-8, so that it can be recorded: rename it",
            path.display()
        ))
    };
    path.to_str().ok_or_else(problem)
}

/// Environment variable for programs that read `--json` and show the progress on standard error,
/// e.g. the Python package.
const PROGRESS: &str = "GSPLIT_PROGRESS";

/// Runs a subcommand: every failure becomes one `error:` line and exit code 1 (usage: 2), a request
/// to stop becomes its own line and 130 (SIGTERM: 143).
pub fn guard(output: Output, run: impl FnOnce(&Ui) -> anyhow::Result<()>) -> ExitCode {
    let handlers = wait_for_sigterm().and_then(|()| take_signals(|fault| give_up(fault)));
    let handlers = handlers.map_err(anyhow::Error::from);
    if let Err(error) = handlers.and_then(|()| Ok(ctrlc::set_handler(|| on_interrupt(SIGINT))?)) {
        complain(&format!(
            "warning: signals end gsplit at once, and leave hidden unfinished folders: {error}"
        ));
    }
    panic::set_hook(Box::new(on_panic));
    let ui = Ui::new(output, std::io::stderr().is_terminal(), false);
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        start_threads(output)?;
        if output.no_check {
            check::turn_off();
        }
        run(&ui)?;
        check::settled()?;
        ui.delivered()
    }));
    let finished = matches!(result, Ok(Ok(())));
    while INTERRUPTED.load(Ordering::SeqCst) && !finished {
        if is_gentle() {
            // The subcommand knows what it leaves.
            let told = match &result {
                Ok(Err(error)) => format!("{error:#}"),
                _ => String::new(),
            };
            match told.starts_with("interrupted: ") {
                true => tell_interrupt(&told),
                false => complain_of_interrupt(&[]),
            }
            return ExitCode::from(SIGNAL.load(Ordering::SeqCst));
        }
        // The interrupt removed files that `run` was using, and is about to exit with its own line.
        thread::sleep(Duration::from_millis(10));
    }
    let (exit, told) = match result {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => {
            // Damage is the cause of other failures.
            let damage = check::sound_so_far().err().filter(|_| !is_usage(&error));
            let error = damage.map_or(error, Into::into);
            (if is_usage(&error) { 2 } else { 1 }, format!("{error:#}"))
        }
        Err(_) => {
            let damage = check::settled().err().map(|damage| damage.to_string());
            (1, damage.unwrap_or_else(|| "stopped by the internal failure above".into()))
        }
    };
    complain(&format!("error: {told}"));
    if output.json {
        ui.print(failure(&told, exit));
    }
    ExitCode::from(exit)
}

fn start_threads(output: Output) -> anyhow::Result<()> {
    let Some(threads) = output.threads else { return Ok(()) };
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global();
    started.map_err(|error| usage(format!("--threads {threads}: {error}; ask for fewer")))
}

/// Prints one line on standard error.
pub fn complain(line: &str) {
    // If standard error is closed, there is nobody to inform.
    let _ = writeln!(std::io::stderr(), "{}", visible(line));
}

/// `line` with its control characters escaped: a name may contain line ends or characters that move
/// a terminal's cursor or set colours.
fn visible(line: &str) -> Cow<'_, str> {
    let shown = |character: char| match is_hidden(character) {
        true => character.escape_default().to_string(),
        false => character.into(),
    };
    match line.contains(is_hidden) {
        false => line.into(),
        true => line.chars().map(shown).collect::<String>().into(),
    }
}

/// Whether a character is not visible text: control characters, and characters that change the
/// direction of writing.
fn is_hidden(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writer of results, notes and progress.
pub struct Ui {
    output: Output,
    terminal: bool,
    /// Suppresses results too.
    mute: bool,
    /// The error of printing a line of the result, if any.
    lost: Mutex<Option<std::io::Error>>,
    times: Times,
}

impl Ui {
    /// A copy that prints nothing, for ranks while another one prints.
    pub fn muted(&self) -> Self {
        Self::new(Output { quiet: true, json: false, ..self.output }, false, true)
    }

    fn new(output: Output, terminal: bool, mute: bool) -> Self {
        Self { output, terminal, mute, lost: Mutex::default(), times: Times::default() }
    }

    /// The stages that ended so far, with their seconds, for scripts.
    pub fn stage_times(&self) -> Value {
        let times = self.times.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        times.iter().map(|(name, seconds)| json!({ "name": name, "seconds": seconds })).collect()
    }

    /// Prints one line of the result for people; nothing with `--json`.
    pub fn say(&self, line: impl std::fmt::Display) {
        if !self.output.json {
            self.print(visible(&line.to_string()));
        }
    }

    /// Prints a table of the result for people: `heads` has the heads of its columns with commas
    /// between them. The first column is aligned to the left, the others to the right.
    pub fn columns(&self, heads: &str, rows: impl IntoIterator<Item = Vec<String>>) {
        aligned(heads, rows).iter().for_each(|line| self.say(line));
    }

    /// Prints one line about the way to the result; nothing with `--quiet`, nor with `--json`
    /// unless the program that reads it also shows progress.
    pub fn table(&self, line: impl std::fmt::Display) {
        if self.output.json {
            self.note(&line.to_string());
        } else if !self.output.quiet {
            self.say(line);
        }
    }

    /// Prints the whole result for scripts, with `--json`; nothing if it was made of damaged files,
    /// which [`guard`] reports.
    pub fn json(&self, result: &serde_json::Value) {
        if self.output.json && check::settled().is_ok() {
            let mut result = result.clone();
            if let Some(keys) = result.as_object_mut() {
                keys.insert("schema".into(), SCHEMA.into());
            }
            self.print(result);
        }
    }

    fn print(&self, line: impl std::fmt::Display) {
        if self.mute {
            return;
        }
        match writeln!(std::io::stdout(), "{line}") {
            // A reader that closed the pipe has seen enough.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                *self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
            }
            _ => {}
        }
    }

    /// Fails if a line of the result could not be printed.
    fn delivered(&self) -> anyhow::Result<()> {
        match self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            None => Ok(()),
            Some(error) => {
                anyhow::bail!(
                    "standard output: {error}: the result could not be printed; stored files are \
                     kept"
                )
            }
        }
    }

    /// The maximum number of threads, if the user gave one.
    pub fn threads(&self) -> Option<usize> {
        self.output.threads.map(usize::from)
    }

    /// Whether the result is for a script.
    pub fn is_json(&self) -> bool {
        self.output.json
    }

    /// The given options of every subcommand, for a subcommand that starts another.
    pub fn options(&self) -> Vec<String> {
        let Output { quiet, json, no_check, threads } = self.output;
        let flags = [("--quiet", quiet), ("--json", json), ("--no-check", no_check)];
        let given = flags.into_iter().filter(|&(_, given)| given).map(|(flag, _)| flag.to_string());
        given.chain(threads.map(|threads| format!("--threads={threads}"))).collect()
    }

    fn silent(&self) -> bool {
        self.output.quiet || self.output.json && std::env::var_os(PROGRESS).is_none()
    }
}

impl Progress for Ui {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage> {
        let shown: Box<dyn Stage> = match (self.silent(), self.terminal) {
            (true, _) => Box::new(NoProgress),
            (false, true) => Box::new(TerminalBar::new(&visible(name), total, unit)),
            (false, false) => Box::new(LogLines::new(name, total, unit)),
        };
        Box::new(Timed::new(name, shown, self.times.clone()))
    }

    fn note(&self, line: &str) {
        if !self.silent() {
            complain(line);
        }
    }
}

/// The lines of a table ([`Ui::columns`]).
pub fn aligned(heads: &str, rows: impl IntoIterator<Item = Vec<String>>) -> Vec<String> {
    let mut all = vec![heads.split(", ").map(str::to_string).collect::<Vec<_>>()];
    all.extend(rows);
    let mut widths = vec![0; all.iter().map(Vec::len).max().unwrap_or_default()];
    for (at, cell) in all.iter().flat_map(|row| row.iter().enumerate()) {
        widths[at] = widths[at].max(cell.chars().count());
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        cells.collect::<String>().trim_end().to_string()
    };
    all.iter().map(line).collect()
}

/// The peak memory of this process in megabytes, including the mapped files that it read, if the
/// system reports it.
pub fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

/// A size for people, e.g. `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}
