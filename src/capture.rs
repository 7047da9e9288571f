//! Standard output of C libraries, kept out of the results.
//!
//! METIS says on standard output that it "cannot bisect a graph with 0 vertices" and goes on. Here such lines become text
//! that the caller can show where it belongs.
//! A C program that writes to a pipe or a file keeps its lines until it ends, when standard output is the user's again.
//! It writes them out at once to a terminal only: so the other end is a pseudo-terminal, from the first line on.
//! Standard error stays as it is: progress and the word about an interrupt are written there meanwhile.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::stdio::dup2_stdout;

/// Most bytes of what was printed that are kept.
const KEPT: usize = 2000;

/// Runs `work`; returns what it returned and the lines that it printed on standard output, joined by `; `. Nothing else may
/// print there meanwhile. Where the system has no pseudo-terminals they go to standard output as ever.
pub fn stdout_of<T>(work: impl FnOnce() -> T) -> (T, String) {
    match Capture::begin() {
        Ok(capture) => {
            let result = work();
            (result, capture.end())
        }
        Err(_) => (work(), String::new()),
    }
}

/// The user's standard output, while it is captured.
static CAPTURED: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Gives standard output back to the user, if it is captured: what is written next is the program's last word.
pub fn give_back() {
    if let Some(stdout) = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Fails only where standard output was closed all along.
        let _ = dup2_stdout(&stdout);
    }
}

/// Standard output on its way elsewhere. Comes back when this goes.
struct Capture {
    /// Closes the terminal once standard output is what it was.
    restore: Restore,
    reader: JoinHandle<Vec<u8>>,
}

struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        give_back();
    }
}

impl Capture {
    fn begin() -> Result<Self, Errno> {
        let stdout = rustix::io::fcntl_dupfd_cloexec(std::io::stdout().as_fd(), 3)?;
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        unlockpt(&terminal)?;
        let name = ptsname(&terminal, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inner = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
        dup2_stdout(&inner)?;
        *CAPTURED.lock().unwrap_or_else(PoisonError::into_inner) = Some(stdout);
        let reader = thread::spawn(move || read_all(terminal.into()));
        Ok(Self { restore: Restore, reader })
    }

    /// Brings standard output back. What was written is all read when the last end of the terminal is closed.
    fn end(self) -> String {
        drop(self.restore);
        let bytes = self.reader.join().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join("; ")
    }
}

/// Reads until the other end is closed (an error then, on Linux), so that no writer ever waits.
fn read_all(mut terminal: File) -> Vec<u8> {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = terminal.read(&mut buffer) {
        let room = KEPT - kept.len();
        kept.extend_from_slice(&buffer[..length.min(room)]);
    }
    kept
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_metis_prints_comes_to_the_caller() {
        let too_many_parts = || {
            let mut part = [0; 2];
            metis::Graph::new(1, 5, &[0, 1, 2], &[1, 0]).unwrap().part_recursive(&mut part).unwrap();
        };
        // Twice: the C library settles at its first line how it will write the later ones.
        for _ in 0..2 {
            let ((), printed) = stdout_of(too_many_parts);
            // The test harness may report other tests, run beside this one, between METIS's lines.
            let said = |line: &str| printed.split("; ").any(|other| other.contains(line));
            assert!(said("***Cannot bisect a graph with 0 vertices!"), "{printed}");
            assert!(said("***You are trying to partition a graph into too many parts!"), "{printed}");
            assert!(!printed.contains('\n'), "{printed}");
        }
        assert_eq!(stdout_of(|| 7).0, 7);
    }
}
