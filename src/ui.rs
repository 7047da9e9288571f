//! Messages to the user: results on standard output, progress and errors on standard error.

mod progress;

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_store::{NoProgress, Progress, Stage, Unit, check, end_at_once, staging, take_signals};
use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};

use crate::capture;
use progress::{LogLines, TerminalBar, Timed, Times};

/// Options of every subcommand.
#[derive(clap::Args, Clone, Copy)]
pub struct Output {
    /// Print results only: no progress, no notes, no line for each epoch
    #[arg(long, short, global = true, help_heading = "Every subcommand")]
    quiet: bool,
    /// Print the result as one JSON object on standard output, and no progress; of a failure {"error", "exit", "schema"}
    #[arg(long, global = true, help_heading = "Every subcommand")]
    json: bool,
    /// Open artifacts without a check for damage. Else files are checked against their checksums when they are first opened
    /// after they were made or moved, long ones while the work goes on, and what is sound is noted in .verified
    #[arg(long, global = true, help_heading = "Every subcommand")]
    no_check: bool,
    /// Threads to compute with [default: one for each core]; train's ranks share them, each with one at least. Results do
    /// not depend on it, but for the last bits of a loss
    #[arg(long, global = true, help_heading = "Every subcommand", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Number of these that the subcommand starts by itself.
    #[arg(skip)]
    own: usize,
}

impl Output {
    /// With `own` of the threads left for the subcommand to start.
    pub fn leaving(self, own: usize) -> Self {
        Self { own, ..self }
    }
}

/// A command line that parsed but contradicts itself: exit code 2, as for clap's own usage errors.
#[derive(Debug)]
struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// An error of usage: `--option` and what is wrong with it.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    UsageError(message.into()).into()
}

/// Whether options contradict themselves, or one is missing.
fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<UsageError>()
}

/// `path`, which `--option` names, where only text can be recorded.
///
/// # Errors
/// Of usage, where it is no UTF-8.
pub fn as_text<'p>(option: &str, path: &'p Path) -> anyhow::Result<&'p str> {
    let problem = || {
        usage(format!("{option} {}: expected a path in UTF-8, so that it can be recorded: rename it", path.display()))
    };
    path.to_str().ok_or_else(problem)
}

/// Set in the environment by a program that reads `--json` and shows its user the progress on standard error, as the Python package.
const PROGRESS: &str = "GSPLIT_PROGRESS";

/// Version of the objects that `--json` prints: it grows where a key goes or means something else (docs/json.md).
const SCHEMA: u64 = 1;
/// Exit codes of a program that ended because it was asked to: 128 and the number of the signal, as shells have it.
const SIGINT: u8 = 130;
const SIGTERM: u8 = 143;

/// Set by Ctrl-C and its kin.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The exit code of the signal that set it.
static SIGNAL: AtomicU8 = AtomicU8::new(SIGINT);
/// The command line has `--json`.
static JSON: AtomicBool = AtomicBool::new(false);
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
fn tell_interrupt(line: &str) {
    // Whoever comes second waits until all is told, and may then end the program.
    static TOLD: Mutex<bool> = Mutex::new(false);
    let mut told = TOLD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !std::mem::replace(&mut *told, true) {
        complain(line);
        if JSON.load(Ordering::SeqCst) {
            capture::give_back();
            let _ = writeln!(std::io::stdout(), "{}", failure(line, SIGNAL.load(Ordering::SeqCst)));
        }
    }
}

/// A failure for a script.
fn failure(told: &str, exit: u8) -> Value {
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

fn complain_of_interrupt(kept: &[PathBuf]) {
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
        capture::give_back();
        let _ = writeln!(std::io::stdout(), "{}", failure(error, 1));
    }
    let _ = std::io::stdout().flush();
    staging::remove_all();
    end_at_once(1)
}

/// Runs on a thread of its own and ends the process, in two seconds whatever the other threads do: computing, waiting for a disk or
/// for whoever reads what is printed. Polls in every loop would be late all the same: a read is as long as the disk is slow.
fn on_interrupt(exit: u8) {
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

fn on_panic(info: &PanicHookInfo<'_>) {
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

/// Runs a subcommand: every failure becomes one `error:` line and exit code 1 (usage: 2), a request to stop one of its own and 130
/// (SIGTERM: 143).
pub fn guard(output: Output, run: impl FnOnce(&Ui) -> anyhow::Result<()>) -> ExitCode {
    JSON.store(output.json, Ordering::SeqCst);
    if let Err(error) = wait_for_sigterm() {
        complain(&format!("warning: SIGTERM will leave a hidden unfinished directory: {error}"));
    }
    if let Err(error) = take_signals(|fault| give_up(fault)) {
        complain(&format!(
            "warning: a file that is too long, or cut while it is read, ends gsplit by a signal: {error}"
        ));
    }
    if let Err(error) = ctrlc::set_handler(|| on_interrupt(SIGINT)) {
        complain(&format!("warning: Ctrl-C will leave a hidden unfinished directory: {error}"));
    }
    panic::set_hook(Box::new(on_panic));
    let ui = Ui {
        output,
        terminal: std::io::stderr().is_terminal(),
        mute: false,
        lost: Mutex::new(None),
        times: Times::default(),
    };
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
        if gentle().is_some() {
            // It knows what is left.
            match result.as_ref().ok().and_then(|result| result.as_ref().err()).map(|error| format!("{error:#}")) {
                Some(told) if told.starts_with("interrupted: ") => tell_interrupt(&told),
                _ => complain_of_interrupt(&[]),
            }
            return ExitCode::from(SIGNAL.load(Ordering::SeqCst));
        }
        // The interrupt pulled files from under `run`, and is about to exit with its own line.
        thread::sleep(Duration::from_millis(10));
    }
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            // Damage explains other failures.
            let damage = check::sound_so_far().err().filter(|_| !is_usage(&error));
            let error = damage.map_or(error, Into::into);
            let (exit, told) = (if is_usage(&error) { 2 } else { 1 }, format!("{error:#}"));
            complain(&format!("error: {told}"));
            if output.json {
                ui.print(failure(&told, exit));
            }
            ExitCode::from(exit)
        }
        Err(_) => {
            let damage = check::settled().err().map(|damage| damage.to_string());
            let told = damage.unwrap_or_else(|| "stopped by the internal failure above".into());
            complain(&format!("error: {told}"));
            if output.json {
                ui.print(failure(&told, 1));
            }
            ExitCode::FAILURE
        }
    }
}

/// Takes SIGTERM on a thread of its own, as an interrupt. Every other thread keeps it blocked, those too that start later:
/// METIS would handle it by a jump out of whatever it is doing, and a jump out of malloc leaves malloc locked for good.
fn wait_for_sigterm() -> std::io::Result<()> {
    let signals: SigSet = [Signal::SIGTERM].into_iter().collect();
    signals.thread_block()?;
    let wait = move || {
        if signals.wait().is_ok() {
            on_interrupt(SIGTERM);
        }
    };
    thread::Builder::new().name("sigterm".into()).spawn(wait).map(drop)
}

fn start_threads(output: Output) -> anyhow::Result<()> {
    let threads = match (output.threads, output.own) {
        (Some(threads), _) => threads.into(),
        (None, 0) => return Ok(()),
        (None, _) => thread::available_parallelism().map_or(1, usize::from),
    };
    // Whether any are left is for the subcommand to say.
    let shared = threads.saturating_sub(output.own).max(1);
    let started = rayon::ThreadPoolBuilder::new().num_threads(shared).build_global();
    started.map_err(|error| usage(format!("--threads {threads}: {error}; ask for fewer")))
}

/// The first line of a panic's message: libtorch appends its stack, sometimes with the line ends escaped.
fn first_line(message: &str) -> &str {
    let end = message.find('\n').unwrap_or(message.len());
    let end = message.find("\\n").map_or(end, |escaped| escaped.min(end));
    &message[..end]
}

/// Says one line on standard error.
pub fn complain(line: &str) {
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(std::io::stderr(), "{}", visible(line));
}

/// `line` with its control characters escaped: a name may hold line ends, and what moves a terminal's cursor or colours it.
fn visible(line: &str) -> Cow<'_, str> {
    match line.contains(is_hidden) {
        false => line.into(),
        true => line
            .chars()
            .fold(String::new(), |mut shown, character| {
                match is_hidden(character) {
                    true => shown.extend(character.escape_default()),
                    false => shown.push(character),
                }
                shown
            })
            .into(),
    }
}

/// Whether a character is no part of a line as it is read: control characters, and those that turn the direction of writing.
fn is_hidden(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writer of results, notes and progress.
pub struct Ui {
    output: Output,
    terminal: bool,
    /// Results are not printed either.
    mute: bool,
    /// Why a line of the result could not be printed.
    lost: Mutex<Option<std::io::Error>>,
    times: Times,
}

impl Ui {
    /// One that says nothing, for ranks of which another speaks.
    pub fn muted(&self) -> Self {
        let output = Output { quiet: true, json: false, ..self.output };
        Self { output, terminal: false, mute: true, lost: Mutex::new(None), times: Times::default() }
    }

    /// The stages that ended so far, and the seconds of each, for scripts.
    pub fn stage_times(&self) -> Value {
        let times = self.times.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        times.iter().map(|(name, seconds)| json!({ "name": name, "seconds": seconds })).collect()
    }

    /// Prints one line of the result for a person; nothing with `--json`.
    pub fn say(&self, line: impl std::fmt::Display) {
        if !self.output.json {
            self.print(visible(&line.to_string()));
        }
    }

    /// Prints one line of what is told on the way to the result; nothing with `--quiet`, nor with `--json` unless who reads that also
    /// shows progress.
    pub fn table(&self, line: impl std::fmt::Display) {
        if self.output.json {
            self.note(&line.to_string());
        } else if !self.output.quiet {
            self.say(line);
        }
    }

    /// Prints the whole result for a script, with `--json`; nothing when it was made of damaged files, which [`guard`] says.
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
            // A reader that closed the pipe has seen what it wanted.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                *self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
            }
            _ => {}
        }
    }

    /// Fails when a line of the result could not be printed.
    fn delivered(&self) -> anyhow::Result<()> {
        match self.lost.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            None => Ok(()),
            Some(error) => {
                anyhow::bail!("standard output: {error}: the result could not be printed; what was stored is kept")
            }
        }
    }

    /// The most threads to use, when the user said.
    pub fn threads(&self) -> Option<usize> {
        self.output.threads.map(usize::from)
    }

    /// Whether the result is for a script.
    pub fn is_json(&self) -> bool {
        self.output.json
    }

    /// The options of every subcommand that were given, for a subcommand that starts another.
    pub fn options(&self) -> Vec<String> {
        let Output { quiet, json, no_check, threads, own: _ } = self.output;
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

/// The most memory this process has held, in megabytes, mapped files that were read included, where the system tells.
pub fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

/// A size for people, as `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}
