//! The connections between the processes of a run: one between each two.
//!
//! Idea: a thread reads each connection as fast as bytes come, so a sender never waits for a rank that is busy. A
//! process that fails says why; one whose connection ends without a farewell has died. The first process to learn of a
//! failure passes it on, so that all name the same rank.

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Sockets;
use super::frames::{self, Frame};
use crate::comm::Seat;
use crate::error::CommError;

/// How long a rank may take to read what was written to it.
const PATIENCE: Duration = Duration::from_secs(30);

/// One process's ends. Dropped before [`Links::finish`], they tell the others that this rank has failed.
#[derive(Debug)]
pub struct Links {
    shared: Arc<Connections>,
    finished: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Connections {
    rank: usize,
    /// To each rank of the run but this one.
    streams: Vec<Option<Mutex<TcpStream>>>,
    arrived: Mutex<Arrived>,
    wake: Condvar,
}

/// Messages that have arrived and were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// The rank that failed first, as far as is known here, and its reason.
    failed: Option<(usize, String)>,
    /// Queues by channel and sender.
    pub messages: HashMap<(u8, usize), VecDeque<Message>>,
}

/// A collective's number, and the bytes.
type Message = (u8, Vec<u8>);

impl Arrived {
    /// Why the run has ended, if it has.
    pub fn failed(&self) -> Option<CommError> {
        self.failed.as_ref().map(|(rank, reason)| CommError::PeerFailed { rank: *rank, reason: reason.clone() })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links {
    /// The ends of `rank`, which has a connection to each rank of the run but itself.
    ///
    /// # Errors
    /// Errors of a connection, or of the threads that read them.
    pub fn new(rank: usize, streams: Vec<Option<TcpStream>>) -> Result<Self> {
        let mut readers = Vec::new();
        for (other, stream) in streams.iter().enumerate() {
            let Some(stream) = stream else { continue };
            stream.set_nodelay(true)?;
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(Some(PATIENCE))?;
            readers.push((other, stream.try_clone()?));
        }
        let streams = streams.into_iter().map(|stream| stream.map(Mutex::new)).collect();
        let shared = Arc::new(Connections { rank, streams, arrived: Mutex::default(), wake: Condvar::new() });
        for (other, stream) in readers {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("link {other}")).spawn(move || shared.listen(other, stream))?;
        }
        Ok(Self { shared, finished: AtomicBool::new(false) })
    }

    /// This rank's end of the group of `seat`. Messages of one `channel` meet those of no other. A rank that waits for longer than
    /// `timeout` gives up.
    pub fn group(&self, channel: u8, seat: Seat, timeout: Option<Duration>) -> Sockets {
        Sockets::new(Arc::clone(&self.shared), channel, seat, timeout)
    }

    /// Tells the others that this rank has done all it had to.
    pub fn finish(&self) {
        if !self.finished.swap(true, Ordering::Relaxed) && self.failed().is_none() {
            self.shared.send_to_all(&frames::finished());
        }
    }

    /// Ends all connections without a word, as the system does when a process is killed.
    #[cfg(test)]
    pub(crate) fn cut(self) {
        self.finished.store(true, Ordering::Relaxed);
        for stream in self.shared.streams.iter().flatten() {
            lock(stream).shutdown(std::net::Shutdown::Both).unwrap();
        }
    }

    /// [`CommError::PeerFailed`] once a rank has failed.
    pub fn failed(&self) -> Option<CommError> {
        self.shared.arrived().failed()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if !self.finished.load(Ordering::Relaxed) {
            let reason = if thread::panicking() { "it panicked" } else { "it ended before the others" };
            self.shared.fail(self.shared.rank, reason);
        }
    }
}

impl Connections {
    /// Takes what `other` sends, until it has finished or gone.
    fn listen(&self, other: usize, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            match frames::read(&mut stream) {
                Ok(Frame::Message { channel, called, bytes }) => {
                    self.arrived().messages.entry((channel, other)).or_default().push_back((called, bytes));
                    self.wake.notify_all();
                }
                Ok(Frame::Finished) => return,
                Ok(Frame::Failed { rank, reason }) => return self.fail(rank, &reason),
                Err(_) => return self.fail(other, "its process has ended"),
            }
        }
    }

    pub fn arrived(&self) -> MutexGuard<'_, Arrived> {
        lock(&self.arrived)
    }

    /// Lets go of what has `arrived` until more has, for at most `time` if one is given.
    pub fn wait<'a>(&self, arrived: MutexGuard<'a, Arrived>, time: Option<Duration>) -> MutexGuard<'a, Arrived> {
        match time {
            None => self.wake.wait(arrived).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.wake.wait_timeout(arrived, time).unwrap_or_else(PoisonError::into_inner).0,
        }
    }

    /// Notes the failure of `rank` and passes it on, if it is the first.
    pub fn fail(&self, rank: usize, reason: &str) {
        let mut arrived = self.arrived();
        if arrived.failed.is_none() {
            arrived.failed = Some((rank, reason.to_string()));
            drop(arrived);
            self.wake.notify_all();
            self.send_to_all(&frames::failed(rank, reason));
        }
    }

    /// One that has gone is noticed by who listens to it.
    pub fn send(&self, to: usize, bytes: &[u8]) {
        if let Some(stream) = &self.streams[to]
            && lock(stream).write_all(bytes).is_err()
        {
            self.fail(to, "it takes no more messages");
        }
    }

    /// To all that are still there.
    fn send_to_all(&self, bytes: &[u8]) {
        for stream in self.streams.iter().flatten() {
            let _ = lock(stream).write_all(bytes);
        }
    }
}
