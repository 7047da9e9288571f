//! Ends of the program that are not its own: signals, panics, threads that hang, command lines that are refused.
//!
//! Each is one line on standard error, and with `--json` one object on standard output. A signal ends every command within two seconds: a gentle
//! one has a second for itself, then unfinished files are removed and the process ends, whatever its threads do ([`on_interrupt`]).

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

use super::complain;

/// Version of the objects that `--json` prints: it grows where a key goes or means something else (docs/json.md).
pub(super) const SCHEMA: u64 = 1;
/// Exit codes of a program that ended because it was asked to: 128 and the number of the signal, as shells have it.
pub(super) const SIGINT: u8 = 130;
const SIGTERM: u8 = 143;

/// Set by Ctrl-C and its kin.
pub(super) static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The exit code of the signal that set it.
pub(super) static SIGNAL: AtomicU8 = AtomicU8::new(SIGINT);
/// The command line has `--json`.
pub(super) static JSON: AtomicBool = AtomicBool::new(false);
/// Time that a subcommand has for an end of its own after an interrupt. All is over within two seconds.
const GRACE: Duration = Duration::from_secs(1);
/// After that, time to remove what is unfinished, and then to say so.
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

/// For a subcommand that ends by itself when it is interrupted: the flag that it has to watch. One that takes too long for it, in a long
/// mini-batch or a slow disk, is ended, and `left` says what it leaves.
pub fn stop_gently(left: impl Fn() -> String + Send + 'static) -> &'static AtomicBool {
    stop_within(GRACE, left)
}

/// The same for one that waits for another gsplit, which has the usual time.
pub fn stop_after_child(left: impl Fn() -> String + Send + 'static) -> &'static AtomicBool {
    stop_within(GRACE + 2 * LAST + Duration::from_millis(100), left)
}

fn stop_within(grace: Duration, left: impl Fn() -> String + Send + 'static) -> &'static AtomicBool {
    *gentle() = Some(Gentle { grace, left: Box::new(left) });
    &INTERRUPTED
}

/// Says once that the program ends because it was asked to, whoever notices first.
pub(super) fn tell_interrupt(line: &str) {
    // Whoever comes second waits until all is told, and may then end the program.
    static TOLD: Mutex<bool> = Mutex::new(false);
    let mut told = TOLD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !std::mem::replace(&mut *told, true) {
        complain(line);
        if JSON.load(Ordering::SeqCst) {
            let _ = writeln!(std::io::stdout(), "{}", failure(line, SIGNAL.load(Ordering::SeqCst)));
        }
    }
}

/// A failure for a script.
pub(super) fn failure(told: &str, exit: u8) -> Value {
    json!({ "error": told, "exit": exit, "schema": SCHEMA })
}

/// The exit code for why nothing is done, found before the options are read: told on standard error, and with `--json` to a script.
pub fn refuse(told: &str, exit: u8) -> ExitCode {
    complain(&format!("error: {told}"));
    tell_script(told, exit);
    ExitCode::from(exit)
}

fn tell_script(told: &str, exit: u8) {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    if words.any(|word| word == "--json") {
        let _ = writeln!(std::io::stdout(), "{}", failure(told, exit));
    }
}

/// The words of `error`, with plain ones in place of the standard library's for what it cannot parse.
pub fn plainly(error: &clap::Error) -> String {
    let told = error.render().to_string();
    let told = told.replace("invalid float literal", "expected a number, such as 0.5");
    told.replace("invalid digit found in string", "expected a whole number")
}

/// `error` of clap's without tips that mislead: an option that is merely the least unlike, and `--` before an option.
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
    let near = text(&error, ContextKind::SuggestedArg).is_some_and(|other| distance(&given, &other) <= 2);
    if !near {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// Letters to insert, remove or replace in `a` to get `b`.
pub fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.chars().count()]
}

/// Ends the program as clap does, where the command line is wrong or asks for help; with `--json` a script is told too.
pub fn end(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let told = plainly(error);
    let problem = told.strip_prefix("error: ").unwrap_or(&told);
    let problem = problem.split_once("\n\n").map_or(problem, |(problem, _)| problem);
    let tip = told.lines().map(str::trim).find(|line| line.starts_with("tip: "));
    let words =
        problem.split_whitespace().chain(tip.map(|_| ";")).chain(tip.into_iter().flat_map(str::split_whitespace));
    tell_script(&words.collect::<Vec<_>>().join(" ").replace(" ; ", "; "), 2);
    let _ = write!(std::io::stderr(), "{told}");
    std::process::exit(2)
}

pub(super) fn complain_of_interrupt(kept: &[PathBuf]) {
    tell_interrupt(&match kept {
        [] => "interrupted: what was unfinished is removed, what was finished before is kept".to_string(),
        kept => {
            let places: Vec<String> = kept.iter().map(|path| path.display().to_string()).collect();
            let places = places.join(", ");
            format!("interrupted: finished stages are kept in {places}; run the same command again to go on")
        }
    });
}

/// For work that ended because a library took the signal in this program's stead: ends as an interrupt does.
pub fn interrupted() -> ! {
    SIGNAL.store(SIGTERM, Ordering::SeqCst);
    complain_of_interrupt(&staging::remove_all());
    end_at_once(SIGTERM)
}

/// Ends the program because of `error` although some of its threads hang and keep it from returning.
pub fn give_up(error: &str) -> ! {
    complain(&format!("error: {error}"));
    if JSON.load(Ordering::SeqCst) {
        let _ = writeln!(std::io::stdout(), "{}", failure(error, 1));
    }
    let _ = std::io::stdout().flush();
    staging::remove_all();
    end_at_once(1)
}

/// Runs on a thread of its own and ends the process, in two seconds whatever the other threads do: computing, waiting for a disk or
/// for whoever reads what is printed. Polls in every loop would be late all the same: a read is as long as the disk is slow.
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
        (Err(_), _) => {
            tell_interrupt("interrupted: the next run removes what is unfinished, what was finished before is kept")
        }
        (Ok(_), Some(gentle)) => tell_interrupt(&format!("interrupted: {}", (gentle.left)())),
        (Ok(kept), None) => complain_of_interrupt(&kept),
    }
    end_at_once(exit)
}

pub(super) fn on_panic(info: &PanicHookInfo<'_>) {
    // Places in dependencies would name folders of the machine that built this.
    let place = info.location().filter(|place| !place.file().starts_with('/'));
    let place = place.map(|place| format!(" ({}:{})", place.file(), place.line())).unwrap_or_default();
    let words = info.payload().downcast_ref::<String>().map(String::as_str);
    let words = words.or(info.payload().downcast_ref::<&str>().copied()).map_or("no message", first_line);
    // torch's operators panic where a GPU has not the memory; the error that follows says so.
    if words.contains("CUDA out of memory") {
        return;
    }
    // Other threads may wait for what this one was to do.
    if let Some(refused) = refused_by_system(words) {
        give_up(&refused);
    }
    complain(&format!(
        "internal: {words}{place}; `gsplit verify DATASET` tells whether an artifact is damaged, else please report this"
    ));
}

/// The one line for a panic whose cause is that the system refuses a thread, or memory to libtorch.
fn refused_by_system(panic: &str) -> Option<String> {
    // The words of the standard library and of rayon.
    if ["failed to spawn thread", "global thread pool has not been initialized"].iter().any(|word| panic.contains(word))
    {
        return Some("cannot start a thread: raise the limits (ulimit -u and -v), or pass a smaller --threads".into());
    }
    let (_, asked) = panic.split_once("can't allocate memory: you tried to allocate ")?;
    let bytes = asked.split(' ').next()?;
    Some(format!(
        "out of memory: the system refuses libtorch {bytes} bytes more: raise the limit (ulimit -v), or ask for less with smaller options"
    ))
}

/// Takes SIGTERM on a thread of its own, as an interrupt. Every other thread keeps it blocked, those too that start later:
/// METIS would handle it by a jump out of whatever it is doing, and a jump out of malloc leaves malloc locked for good.
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

/// The first line of a panic's message: libtorch appends its stack, sometimes with the line ends escaped.
fn first_line(message: &str) -> &str {
    let end = message.find('\n').unwrap_or(message.len());
    let end = message.find("\\n").map_or(end, |escaped| escaped.min(end));
    &message[..end]
}
