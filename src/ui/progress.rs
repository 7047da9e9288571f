//! How a stage's progress is shown, and how long it took.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gsplit_store::{Stage, Unit};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::{bytes, complain};

/// Stages that ended, and the seconds of each.
pub type Times = Arc<Mutex<Vec<(String, f64)>>>;

/// A stage that records its duration.
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
pub struct TerminalBar(ProgressBar);

impl TerminalBar {
    pub fn new(name: &str, total: Option<u64>, unit: Unit) -> Self {
        let (done, all, rate) = match unit {
            Unit::Bytes => ("{bytes}", "{total_bytes}", "{bytes_per_sec}".to_string()),
            Unit::Items(items) => ("{human_pos}", "{human_len}", format!("{items} {{rate}}")),
        };
        let (shape, bar) = match total {
            Some(total) => (
                format!("{{prefix:>20}} {{wide_bar}} {done}/{all} {rate} eta {{eta}}"),
                ProgressBar::new(total),
            ),
            None => (
                format!("{{prefix:>20}} {{spinner}} {done} {rate} {{elapsed}}"),
                ProgressBar::new_spinner(),
            ),
        };
        let style =
            ProgressStyle::with_template(&shape).unwrap_or_else(|_| ProgressStyle::default_bar());
        // indicatif writes four decimals.
        let rounded = |state: &ProgressState, out: &mut dyn Write| {
            _ = write!(out, "{}/s", short(state.per_sec()));
        };
        let bar = bar.with_style(style.with_key("rate", rounded)).with_prefix(name.to_string());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }
}

impl Stage for TerminalBar {
    fn advance(&self, by: u64) {
        self.0.inc(by);
    }
}

impl Drop for TerminalBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A line from time to time, for logs.
pub struct LogLines {
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

/// Time between two lines of one stage; a stage that ends sooner prints nothing.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

impl LogLines {
    pub fn new(name: &str, total: Option<u64>, unit: Unit) -> Self {
        let now = Instant::now();
        Self {
            name: name.into(),
            total,
            unit,
            state: Mutex::new(LineState { done: 0, started: now, spoken: now }),
        }
    }
}

impl Stage for LogLines {
    fn advance(&self, by: u64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.done += by;
        if state.spoken.elapsed() < BETWEEN_LINES {
            return;
        }
        state.spoken = Instant::now();
        complain(&self.line(state.done, state.started.elapsed().as_secs_f64()));
    }
}

impl LogLines {
    /// The line to print after `done` units in `seconds`.
    fn line(&self, done: u64, seconds: f64) -> String {
        let said = |count: f64| match self.unit {
            Unit::Bytes => bytes(count as u64),
            Unit::Items(_) => short(count),
        };
        let items =
            if let Unit::Items(items) = self.unit { format!(" {items}") } else { String::new() };
        let (name, per_second) = (&self.name, done as f64 / seconds);
        let (so_far, rate) = (said(done as f64), said(per_second));
        match self.total.filter(|&total| total >= done && done > 0) {
            Some(total) => {
                let (of, eta) = (said(total as f64), (total - done) as f64 / per_second);
                format!("{name}: {so_far} of {of}{items}, {rate}/s, {seconds:.0} s, eta {eta:.0} s")
            }
            None => format!("{name}: {so_far}{items}, {rate}/s, {seconds:.0} s"),
        }
    }
}

/// A count in two or three digits: 950, 1.2k, 12M.
pub fn short(count: f64) -> String {
    let mut scaled = count;
    for unit in ["", "k", "M", "G"] {
        match scaled.abs() {
            // 9.95 is rounded to 10.
            ..9.95 if !unit.is_empty() => return format!("{scaled:.1}{unit}"),
            ..999.5 => return format!("{scaled:.0}{unit}"),
            _ => scaled /= 1000.0,
        }
    }
    format!("{scaled:.0}T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded() {
        let found = [0.4, 950.4, 999.6, 1234.0, 9960.0, 123_456.0, 999_600.0, 1.24e6, 4.5e10, 2e13]
            .map(short);
        assert_eq!(
            found,
            ["0", "950", "1.0k", "1.2k", "10k", "123k", "1.0M", "1.2M", "45G", "20T"]
        );
        let edges = LogLines::new("reading", Some(4_000_000), Unit::Items("edges"));
        assert_eq!(edges.line(1_234_567, 1.0), "reading: 1.2M of 4.0M edges, 1.2M/s, 1 s, eta 2 s");
        let bytes = LogLines::new("reading", None, Unit::Bytes);
        assert_eq!(bytes.line(3 << 20, 2.0), "reading: 3.00 MiB, 1.50 MiB/s, 2 s");
    }
}
