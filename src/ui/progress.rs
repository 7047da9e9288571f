//! How a stage's progress is shown, and how long it took.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gsplit_store::{Stage, Unit};
use indicatif::{ProgressBar, ProgressStyle};

use super::complain;

/// Stages that ended, and the seconds of each.
pub type Times = Arc<Mutex<Vec<(String, f64)>>>;

/// A stage that writes down how long it took.
pub struct Timed {
    name: String,
    started: Instant,
    shown: Box<dyn Stage>,
    times: Times,
}

impl Timed {
    pub fn new(name: &str, shown: Box<dyn Stage>, times: Times) -> Self {
        Self { name: name.to_string(), started: Instant::now(), shown, times }
    }
}

impl Stage for Timed {
    fn advance(&self, by: u64) {
        self.shown.advance(by);
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let took = (std::mem::take(&mut self.name), self.started.elapsed().as_secs_f64());
        self.times.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(took);
    }
}

/// A bar with rate and remaining time, for terminals.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn new(name: &str, total: Option<u64>, unit: Unit) -> Self {
        let counts = match (unit, total) {
            (Unit::Bytes, Some(_)) => "{bytes}/{total_bytes} {bytes_per_sec}".to_string(),
            (Unit::Bytes, None) => "{bytes} {bytes_per_sec}".to_string(),
            (Unit::Items(items), Some(_)) => format!("{{human_pos}}/{{human_len}} {items} {{per_sec}}"),
            (Unit::Items(items), None) => format!("{{human_pos}} {items} {{per_sec}}"),
        };
        let (shape, bar) = match total {
            Some(total) => (format!("{{prefix:>20}} {{wide_bar}} {counts} eta {{eta}}"), ProgressBar::new(total)),
            None => (format!("{{prefix:>20}} {{spinner}} {counts} {{elapsed}}"), ProgressBar::new_spinner()),
        };
        let style = ProgressStyle::with_template(&shape).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style).with_prefix(name.to_string());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }
}

impl Stage for Bar {
    fn advance(&self, by: u64) {
        self.0.inc(by);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A line now and then, for logs.
pub struct Lines {
    name: String,
    total: Option<u64>,
    unit: Unit,
    state: Mutex<LineState>,
}

struct LineState {
    done: u64,
    started: Instant,
    spoken: Instant,
}

/// Silence between two lines of one stage; a stage that ends sooner says nothing.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

impl Lines {
    pub fn new(name: &str, total: Option<u64>, unit: Unit) -> Self {
        let now = Instant::now();
        Self { name: name.into(), total, unit, state: Mutex::new(LineState { done: 0, started: now, spoken: now }) }
    }
}

impl Stage for Lines {
    fn advance(&self, by: u64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.done += by;
        if state.spoken.elapsed() < BETWEEN_LINES {
            return;
        }
        state.spoken = Instant::now();
        let unit = match self.unit {
            Unit::Bytes => "bytes",
            Unit::Items(items) => items,
        };
        let seconds = state.started.elapsed().as_secs_f64();
        let rate = state.done as f64 / seconds;
        complain(&match self.total.filter(|&total| total >= state.done && state.done > 0) {
            Some(total) => {
                let eta = (total - state.done) as f64 / rate;
                let done = format!("{} of {total} {unit}", state.done);
                format!("{}: {done}, {rate:.0}/s, {seconds:.0} s, eta {eta:.0} s", self.name)
            }
            None => format!("{}: {} {unit}, {rate:.0}/s, {seconds:.0} s", self.name, state.done),
        });
    }
}
