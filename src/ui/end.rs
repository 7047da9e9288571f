//! Ends of the program from outside: signals, panics, threads that hang, command lines that are
//! refused.
//!
//! Each is one line on standard error, and with `--json` one object on standard output. A signal
//! ends every command within two seconds: a gentle command gets a second to end itself, then
//! unfinished files are removed and the process ends, whatever its threads do ([`on_interrupt`]).

use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use gsplit_store::{end_at_once, staging};
use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};
use strsim::levenshtein;

use super::complain;

/// Version of the objects that `--json` prints: it is increased if a key is removed or changes its
/// meaning (docs/reference.md).
pub(super) const SCHEMA: u64 = 1;
/// Exit codes of a program that was asked to end: 128 plus the number of the signal, as in shells.
pub(super) const SIGINT: u8 = 130;
const SIGTERM: u8 = 143;

/// Set by Ctrl-C and similar signals.
pub(super) static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The exit code of the signal that set it.
pub(super) static SIGNAL: AtomicU8 = AtomicU8::new(SIGINT);
/// Time for a subcommand to end itself after an interrupt. Everything is over within two seconds.
const GRACE: Duration = Duration::from_secs(1);
/// Time to remove unfinished files after that, and again to print the last line.
const LAST: Duration = Duration::from_millis(200);

/// Set for a subcommand that watches [`INTERRUPTED`] and ends by itself.
static GENTLE: Mutex<Option<Gentle>> = Mutex::new(None);

struct Gentle {
    grace: Duration,
    left: Box<dyn Fn() -> String + Send>,
}

fn gentle() -> MutexGuard<'static, Option<Gentle>> {
    GENTLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the subcommand ends by itself when it is interrupted.
pub(super) fn is_gentle() -> bool {
    gentle().is_some()
}

/// For a subcommand that ends itself when it is interrupted: returns the flag that it must watch.
/// If it takes too long, because of a long mini-batch or a slow disk, it is ended, and `left`
/// returns the text about the files that it leaves.
pub fn stop_gently(left: impl Fn() -> String + Send + 'static) -> &'static AtomicBool {
    *gentle() = Some(Gentle { grace: GRACE, left: Box::new(left) });
    &INTERRUPTED
}

/// Like [`stop_gently`], for a subcommand that waits for another gsplit, which gets the usual time.
pub fn stop_after_child(left: impl Fn() -> String + Send + 'static) -> &'static AtomicBool {
    let grace = GRACE + 2 * LAST + Duration::from_millis(100);
    *gentle() = Some(Gentle { grace, left: Box::new(left) });
    &INTERRUPTED
}

/// Prints once that the program was interrupted; the first caller's line counts.
pub(super) fn tell_interrupt(line: &str) {
    // A second caller waits until everything is printed, and may then end the program.
    static TOLD: Mutex<bool> = Mutex::new(false);
    let mut told = TOLD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !std::mem::replace(&mut *told, true) {
        complain(line);
        tell_script(line, SIGNAL.load(Ordering::SeqCst));
    }
}

/// A failure as a JSON object.
pub(super) fn failure(told: &str, exit: u8) -> Value {
    json!({ "error": told, "exit": exit, "schema": SCHEMA })
}

/// Prints why nothing is done, before the options are read: on standard error, and with `--json`
/// also as JSON. Returns the exit code.
pub fn refuse(told: &str, exit: u8) -> ExitCode {
    complain(&format!("error: {told}"));
    tell_script(told, exit);
    ExitCode::from(exit)
}

/// Prints a failure as JSON, if the command line has `--json`.
fn tell_script(told: &str, exit: u8) {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    if words.any(|word| word == "--json") {
        let _ = writeln!(std::io::stdout(), "{}", failure(told, exit));
    }
}

/// The text of `error`, with plain words instead of the standard library's for values that it
/// cannot parse.
pub fn plainly(error: &clap::Error) -> String {
    let told = error.render().to_string();
    let told = told.replace("invalid float literal", "expected a number, such as 0.5");
    told.replace("invalid digit found in string", "expected a whole number")
}

/// `error` of clap without misleading tips: an option that is merely the least different one, and
/// `--` before an option.
pub fn sober(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(all)) => all.first().cloned(),
        _ => None,
    };
    let given = text(&error, ContextKind::InvalidArg).unwrap_or_default();
    let is_long = given.starts_with("--");
    if is_long {
        error.remove(ContextKind::Suggested);
        error.remove(ContextKind::TrailingArg);
    }
    let near = text(&error, ContextKind::SuggestedArg)
        .is_some_and(|other| levenshtein(&given, &other) <= 2);
    if !near {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// Ends the program as clap does, if the command line is wrong or asks for help; with `--json` also
/// prints JSON.
pub fn end(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let told = plainly(error);
    let problem = told.strip_prefix("error: ").unwrap_or(&told);
    let problem = problem.split_once("\n\n").map_or(problem, |(problem, _)| problem);
    let tip = told.lines().map(str::trim).find(|line| line.starts_with("tip: "));
    let words = problem
        .split_whitespace()
        .chain(tip.map(|_| ";"))
        .chain(tip.into_iter().flat_map(str::split_whitespace));
    tell_script(&words.collect::<Vec<_>>().join(" ").replace(" ; ", "; "), 2);
    let _ = write!(std::io::stderr(), "{told}");
    std::process::exit(2)
}

pub(super) fn complain_of_interrupt(kept: &[PathBuf]) {
    tell_interrupt(&match kept {
        [] => "interrupted: unfinished files are removed, finished ones are kept".to_string(),
        kept => {
            let places: Vec<String> = kept.iter().map(|path| path.display().to_string()).collect();
            let places = places.join(", ");
            format!(
                "interrupted: finished stages are kept in {places}; run the same command again to \
                 go on"
            )
        }
    });
}

/// Ends as an interrupt does, for work that ended because a library caught the signal.
pub fn interrupted() -> ! {
    SIGNAL.store(SIGTERM, Ordering::SeqCst);
    complain_of_interrupt(&staging::remove_all());
    end_at_once(SIGTERM)
}

/// Ends the program with `error`, although some of its threads hang and keep it from returning.
pub fn give_up(error: &str) -> ! {
    complain(&format!("error: {error}"));
    tell_script(error, 1);
    let _ = std::io::stdout().flush();
    staging::remove_all();
    end_at_once(1)
}

/// Runs on its own thread and ends the process within two seconds, whatever the other threads do:
/// compute, or wait for a disk or for the reader of the output. Polling in every loop would still
/// be late: a read takes as long as the disk is slow.
pub(super) fn on_interrupt(exit: u8) {
    let since = Instant::now();
    SIGNAL.store(exit, Ordering::SeqCst);
    INTERRUPTED.store(true, Ordering::SeqCst);
    let grace = gentle().as_ref().map(|gentle| gentle.grace);
    let removed_by = since + grace.unwrap_or(GRACE).max(GRACE) + LAST;
    let end = move || {
        thread::sleep((removed_by + LAST).saturating_duration_since(Instant::now()));
        end_at_once(exit)
    };
    let _ = thread::Builder::new().name("end".into()).spawn(end);
    thread::sleep(grace.unwrap_or_default());
    let (removed, kept) = mpsc::channel();
    let remove = move || removed.send(staging::remove_all());
    let _ = thread::Builder::new().name("remove".into()).spawn(remove);
    match (kept.recv_timeout(removed_by.saturating_duration_since(Instant::now())), &*gentle()) {
        (Err(_), _) => tell_interrupt(
            "interrupted: the next run removes unfinished files, finished ones are kept",
        ),
        (Ok(_), Some(gentle)) => tell_interrupt(&format!("interrupted: {}", (gentle.left)())),
        (Ok(kept), None) => complain_of_interrupt(&kept),
    }
    end_at_once(exit)
}

pub(super) fn on_panic(info: &PanicHookInfo<'_>) {
    // Places in dependencies would name folders of the build machine.
    let place = info.location().filter(|place| !place.file().starts_with('/'));
    let place =
        place.map(|place| format!(" ({}:{})", place.file(), place.line())).unwrap_or_default();
    let words = info.payload().downcast_ref::<String>().map(String::as_str);
    let words =
        words.or(info.payload().downcast_ref::<&str>().copied()).map_or("no message", first_line);
    // torch's operators panic if a GPU is out of memory; the error that follows reports it.
    if words.contains("CUDA out of memory") {
        return;
    }
    // Other threads may wait for this one.
    if let Some(refused) = refused_by_system(words) {
        give_up(&refused);
    }
    complain(&format!(
        "internal: {words}{place}; `gsplit verify DATASET` shows whether an artifact is damaged, \
         else please report this"
    ));
}

/// The error line for a panic because the system refuses a thread, or memory to libtorch.
fn refused_by_system(panic: &str) -> Option<String> {
    // Messages of the standard library and of rayon.
    if ["failed to spawn thread", "global thread pool has not been initialized"]
        .iter()
        .any(|word| panic.contains(word))
    {
        return Some("cannot start a thread: raise the limits (ulimit -u and -v), or pass a smaller --threads".into());
    }
    let (_, asked) = panic.split_once("can't allocate memory: you tried to allocate ")?;
    let bytes = asked.split(' ').next()?;
    Some(format!(
        "out of memory: the system refuses libtorch {bytes} bytes more: raise the limit (ulimit \
         -v), or ask for less with smaller options"
    ))
}

/// Takes SIGTERM on its own thread, as an interrupt. Every other thread keeps it blocked, including
/// later ones: METIS would handle it with a jump out of its work, and a jump out of malloc leaves
/// malloc locked for good.
pub(super) fn wait_for_sigterm() -> std::io::Result<()> {
    let signals: SigSet = [Signal::SIGTERM].into_iter().collect();
    signals.thread_block()?;
    let wait = move || {
        if signals.wait().is_ok() {
            on_interrupt(SIGTERM);
        }
    };
    thread::Builder::new().name("sigterm".into()).spawn(wait).map(drop)
}

/// The first line of a panic's message: libtorch appends its stack, sometimes with the line ends
/// escaped.
fn first_line(message: &str) -> &str {
    let end = message.find('\n').unwrap_or(message.len());
    let end = message.find("\\n").map_or(end, |escaped| escaped.min(end));
    &message[..end]
}
