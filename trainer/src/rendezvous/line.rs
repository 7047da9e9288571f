//! The line by which the processes of a run learn that one of them has failed.
//!
//! NCCL waits for a rank that has gone for as long as it is let. So every rank keeps its connection to rank 0 open: one that fails
//! says why, one whose connection ends without a farewell has died, and rank 0 passes both on. A rank that waits in a
//! collective looks here ([`Alarm::raised`]).

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gsplit_kernels::{Alarm, CommError};

/// The longest reason that is passed on, in bytes.
const MOST: usize = 512;
/// What a rank says: that it has finished, or that one has failed, whose number, a length and a reason follow.
const DONE: u8 = 3;
const FAILED: u8 = 4;
/// How long a rank may take to read.
const PATIENCE: Duration = Duration::from_secs(5);

/// One process's end. Dropped before [`Line::finish`], it tells the others that this rank has failed.
#[derive(Debug)]
pub(crate) struct Line {
    bell: Arc<Bell>,
    finished: AtomicBool,
}

/// What is looked at while a rank waits.
#[derive(Debug)]
struct Bell {
    rank: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// To rank 0; on rank 0 to every other.
    streams: Vec<Mutex<TcpStream>>,
    /// The rank that failed first, as far as is known here, and its reason.
    failed: Mutex<Option<(usize, String)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    /// Rank 0's, with a stream for each other rank in their order.
    pub(super) fn of_first(streams: Vec<TcpStream>) -> Result<Self> {
        Self::new(0, (1..).zip(streams).collect())
    }

    /// That of `rank`, with its stream to rank 0.
    pub(super) fn of_other(rank: usize, stream: TcpStream) -> Result<Self> {
        Self::new(rank, vec![(0, stream)])
    }

    fn new(rank: usize, streams: Vec<(usize, TcpStream)>) -> Result<Self> {
        let mut readers = Vec::new();
        for (other, stream) in &streams {
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(Some(PATIENCE))?;
            readers.push((*other, stream.try_clone()?));
        }
        let streams = streams.into_iter().map(|(_, stream)| Mutex::new(stream)).collect();
        let shared = Arc::new(Shared { streams, failed: Mutex::default() });
        for (other, stream) in readers {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("line".into()).spawn(move || shared.listen(other, stream))?;
        }
        Ok(Self { bell: Arc::new(Bell { rank, shared }), finished: AtomicBool::new(false) })
    }

    /// For [`Nccl`](gsplit_kernels::Nccl).
    pub(crate) fn alarm(&self) -> Arc<dyn Alarm> {
        self.bell.clone()
    }

    /// Tells the others that this rank has done all it had to.
    pub(crate) fn finish(&self) {
        if !self.finished.swap(true, Ordering::Relaxed) && self.bell.raised().is_none() {
            self.bell.shared.send(&[DONE]);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.finished.load(Ordering::Relaxed) {
            self.bell.raise(if thread::panicking() { "it panicked" } else { "it ended before the others" });
        }
    }
}

impl Alarm for Bell {
    fn raise(&self, reason: &str) {
        self.shared.fail(self.rank, reason);
    }

    fn raised(&self) -> Option<CommError> {
        let failed = lock(&self.shared.failed);
        failed.as_ref().map(|(rank, reason)| CommError::PeerFailed { rank: *rank, reason: reason.clone() })
    }
}

impl Shared {
    /// Reads what `other` says until it has finished or gone.
    fn listen(&self, other: usize, mut stream: TcpStream) {
        match read_failure(&mut stream) {
            Ok(None) => {}
            Ok(Some((rank, reason))) => self.fail(rank, &reason),
            Err(_) => self.fail(other, "its process has ended"),
        }
    }

    /// Notes the failure of `rank` and passes it on, if it is the first.
    fn fail(&self, rank: usize, reason: &str) {
        let mut failed = lock(&self.failed);
        if failed.is_some() {
            return;
        }
        *failed = Some((rank, reason.to_string()));
        drop(failed);
        let end =
            reason.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|&end| end <= MOST).last();
        let reason = &reason.as_bytes()[..end.unwrap_or(0)];
        let head = [&[FAILED][..], &(rank as u32).to_le_bytes(), &(reason.len() as u16).to_le_bytes()].concat();
        self.send(&[&head[..], reason].concat());
    }

    /// To all that are still there.
    fn send(&self, bytes: &[u8]) {
        for stream in &self.streams {
            let _ = lock(stream).write_all(bytes);
        }
    }
}

/// The failure that the other side reports; `None` once it has finished.
pub(super) fn read_failure(stream: &mut TcpStream) -> Result<Option<(usize, String)>> {
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    if kind[0] != FAILED {
        // Whatever else it is: nothing more is to be learnt from it.
        return Ok(None);
    }
    let mut head = [0; 6];
    stream.read_exact(&mut head)?;
    let rank = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let mut reason = vec![0; usize::from(u16::from_le_bytes([head[4], head[5]])).min(MOST)];
    stream.read_exact(&mut reason)?;
    // One line, whatever came.
    let reason = String::from_utf8_lossy(&reason).replace(|letter: char| letter.is_control(), " ");
    Ok(Some((rank, reason)))
}
