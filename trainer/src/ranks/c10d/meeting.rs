//! The processes of a run find each other at a store, in the process of rank 0.
//!
//! ```text
//! run        what rank 0 was started with; another's call with something else is refused
//! came/3     how often rank 3 has come; the second is refused
//! came       how many have come
//! failed     the rank that failed first, and why; all name this one
//! is failed  whether one has
//! ```
//!
//! The first rank that fails, is refused or waits too long for others reports it here, and all
//! others report the same.

use std::collections::BTreeMap;
use std::env;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::{CommError, Seat};

use super::C10d;
use super::raw::{Group, Store, Via};
use crate::Result;

/// Variable with the interface that Gloo takes, as for PyTorch.
const INTERFACE: &str = "GLOO_SOCKET_IFNAME";
/// Error of a store that does not respond.
const NO_ANSWER: &str = "no answer";
/// Interval between two looks at the store.
const PAUSE: Duration = Duration::from_millis(20);
/// Additional time for an answer of the store, which may have died or hang.
const PATIENCE: Duration = Duration::from_secs(2);
/// A store that does not answer for this long has died or hangs.
const SILENCE: Duration = Duration::from_secs(if cfg!(test) { 4 } else { 10 });

/// One process of a run that has met the others.
pub struct Meeting {
    board: Arc<Board>,
    seat: Seat,
    host: String,
    port: u16,
    timeout: Duration,
}

/// Notices that ranks exchange through the store, next to their messages.
pub struct Board {
    store: Arc<Store>,
    /// The failure that all ranks report, once this rank has asked.
    failed: Mutex<Option<CommError>>,
}

fn came_of(rank: usize) -> String {
    format!("came/{rank}")
}

fn start(reason: String) -> crate::Error {
    CommError::Start { reason }.into()
}

/// Result of `call`, within `limit` and some patience: a store whose process hangs would block it.
fn within<R: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> std::result::Result<R, String> + Send + 'static,
) -> std::result::Result<R, String> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || sender.send(call()));
    receiver
        .recv_timeout(limit.saturating_add(PATIENCE))
        .unwrap_or_else(|_| Err(NO_ANSWER.to_string()))
}

impl Board {
    fn add(&self, key: String, amount: i64) -> std::result::Result<i64, String> {
        let store = Arc::clone(&self.store);
        within(Duration::ZERO, move || store.add(&key, amount))
    }

    fn offer(&self, key: &'static str, value: String) -> std::result::Result<String, String> {
        let store = Arc::clone(&self.store);
        within(Duration::ZERO, move || store.offer(key, &value))
    }

    /// The failure that all ranks report: the first reported by any rank, or this one if there is
    /// none.
    pub fn failed(&self, rank: usize, reason: &str) -> CommError {
        let mut known = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| self.first_failed(rank, reason)).clone()
    }

    /// The failure after the connection to `other` has ended: the cause that a rank reports, else
    /// the end of its process. After a timeout Gloo ends all of a rank's connections, before that
    /// rank can report it.
    pub fn cut(&self, other: usize) -> CommError {
        let since = Instant::now();
        let is_told = || {
            Ok::<_, String>(
                self.add("is failed".to_string(), 0)? > 0 || since.elapsed() >= PATIENCE,
            )
        };
        loop {
            match is_told() {
                Ok(false) => thread::sleep(PAUSE),
                Ok(true) => return self.failed(other, "its process has ended"),
                // The store is in the process of rank 0, which may be busy.
                Err(error) if error == NO_ANSWER && since.elapsed() < SILENCE => {}
                Err(error) if error == NO_ANSWER => {
                    return self.failed(0, "its process does not answer");
                }
                Err(_) => return self.failed(0, "its process has ended"),
            }
        }
    }

    /// Whether a rank has reported a failure; `None` if the store does not answer soon.
    pub fn is_failed(&self) -> Option<bool> {
        self.add("is failed".to_string(), 0).ok().map(|told| told > 0)
    }

    /// The failure that this process has reported or received.
    pub fn known(&self) -> Option<CommError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn first_failed(&self, rank: usize, reason: &str) -> CommError {
        let own = || CommError::PeerFailed { rank, reason: reason.to_string() };
        // One line, whatever the reason.
        let told = format!("{rank} {}", reason.replace(|letter: char| letter.is_control(), " "));
        let told = self.offer("failed", told).ok();
        let _ = self.add("is failed".to_string(), 1);
        match told.as_deref().and_then(|told| told.split_once(' ')) {
            Some((first, why)) => first.parse().map_or_else(
                |_| own(),
                |rank| CommError::PeerFailed { rank, reason: why.to_string() },
            ),
            None => own(),
        }
    }
}

impl Meeting {
    /// Meets the other ranks at the `host` and `port` of rank 0. The name of the `run` and its
    /// `options` are the same for all ranks, which wait for each other for `timeout`. Collective.
    ///
    /// # Errors
    /// [`CommError::Start`] that names the ranks that have not come in time, the port that is
    /// taken, or the option that this rank was started with by mistake.
    pub fn at(
        host: &str,
        port: u16,
        rank: usize,
        size: usize,
        run: &str,
        options: &BTreeMap<String, String>,
        timeout: Duration,
    ) -> Result<Self> {
        let (listener, address) =
            (if rank == 0 { Some(listen(host, port)?) } else { None }, format!("{host}:{port}"));
        let (to, from) = (host.to_string(), rank);
        let store = within(timeout, move || Store::open(&to, port, listener, timeout)).map_err(|error| {
            start(format!(
                "rank {from}: rank 0 did not answer at {address} within {} s ({error}): see what \
                 it printed, give its address with \
                 --rendezvous HOST:PORT, or raise --timeout",
                timeout.as_secs_f64()
            ))
        })?;
        let meeting = Self {
            board: Arc::new(Board { store: Arc::new(store), failed: Mutex::default() }),
            seat: Seat::among_all(rank, size),
            host: host.to_string(),
            port,
            timeout,
        };
        let options: Vec<String> =
            options.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let own = [
            format!("run {run}"),
            format!("version {}", env!("CARGO_PKG_VERSION")),
            format!("ranks {size}"),
            options.join("\n"),
        ];
        meeting.be_seated(&own.join("\n"))?;
        Ok(meeting)
    }

    fn lost(&self, error: &str) -> crate::Error {
        start(format!(
            "rank {}: rank 0 has gone before the run started: {error}; see what it printed",
            self.seat.rank
        ))
    }

    /// Registers this rank and waits until all ranks have come.
    fn be_seated(&self, own: &str) -> Result<()> {
        let (Seat { rank, size, .. }, lost) = (self.seat, |error: String| self.lost(&error));
        let deadline = Instant::now() + self.timeout;
        if rank > 0 {
            // Rank 0 adds this key at once.
            while self.board.add("run is there".to_string(), 0).map_err(lost)? == 0 {
                if Instant::now() >= deadline {
                    return Err(self.lost("it does not say which run this is"));
                }
                thread::sleep(PAUSE);
            }
        }
        let of_first = self.board.offer("run", own.to_string()).map_err(lost)?;
        if rank == 0 {
            self.board.add("run is there".to_string(), 1).map_err(lost)?;
        }
        if let Some((reason, is_of_run)) = difference(rank, own, &of_first) {
            // A refused rank cannot fail a run that has started.
            let first_size = of_first.lines().find_map(|line| line.strip_prefix("ranks "));
            let first_size = first_size.and_then(|size| size.parse().ok()).unwrap_or(i64::MAX);
            if is_of_run && self.board.add("came".to_string(), 0).map_err(lost)? < first_size {
                self.board.failed(rank, &reason);
            }
            return Err(start(format!("rank {rank}: {reason}")));
        }
        if self.board.add(came_of(rank), 1).map_err(lost)? > 1 {
            return Err(start(format!(
                "rank {rank} has come already to {}:{}: each rank is started once, each run has a \
                 port of its own",
                self.host, self.port
            )));
        }
        let mut came = self.board.add("came".to_string(), 1).map_err(lost)?;
        while came < size as i64 {
            if Instant::now() >= deadline {
                let problem = self.not_come();
                self.linger();
                return Err(problem);
            }
            if self.board.is_failed() == Some(true) {
                self.linger();
                return Err(self.board.failed(rank, "it was refused").into());
            }
            thread::sleep(PAUSE);
            came = self.board.add("came".to_string(), 0).map_err(lost)?;
        }
        Ok(())
    }

    /// The error that other ranks have not come in time; reports the first of them to all.
    fn not_come(&self) -> crate::Error {
        let is_missing = |rank: &usize| self.board.add(came_of(*rank), 0) == Ok(0);
        let missing: Vec<usize> = (0..self.seat.size).filter(is_missing).collect();
        missing
            .first()
            .iter()
            .for_each(|first| drop(self.board.failed(**first, "it did not come in time")));
        let missing: Vec<String> = missing.iter().map(usize::to_string).collect();
        start(format!(
            "{} {} did not come to {}:{} within {} s: see what they printed and whether they reach \
             this address, or raise --timeout",
            if missing.len() == 1 { "rank" } else { "ranks" },
            missing.join(", "),
            self.host,
            self.port,
            self.timeout.as_secs_f64()
        ))
    }

    /// Opens this rank's end of the group of `seat`, separate from groups of other `name`s.
    /// Collective over the group.
    pub fn group(&self, name: &str, seat: Seat) -> Result<C10d> {
        let (host, port, timeout, is_here) =
            (self.host.clone(), self.port, self.timeout, is_loopback(&self.host));
        let name = format!("{name}/{}/", seat.first);
        let group = within(timeout, move || {
            // A separate store connection: while one waits for a key, other calls on it are
            // blocked.
            let store = Store::open(&host, port, None, timeout)?;
            let named = env::var(INTERFACE).ok().filter(|name| !name.is_empty());
            let first = named.as_deref().and_then(|names| names.split(',').next());
            let via = match first {
                Some(interface) => Via::Interface(interface),
                None if is_here => Via::Host("127.0.0.1"),
                None => Via::Chosen,
            };
            Group::open(&store, &name, seat.rank, seat.size, timeout, &via)
        });
        let rank = self.seat.rank;
        let failed = match group {
            Ok(group) => return Ok(C10d::over(group, seat, Arc::clone(&self.board), self.timeout)),
            Err(error) => match self.board.failed(rank, &format!("Gloo: {error}")) {
                CommError::PeerFailed { rank: first, .. } if first == rank => start(format!(
                    "rank {rank}: Gloo does not connect the ranks: {error}; open the ports between \
                     their hosts, or name the interface by \
                     {INTERFACE}"
                )),
                other => other.into(),
            },
        };
        // The other ranks ask here who failed.
        self.linger();
        Err(failed)
    }

    /// The number of this rank, out of all.
    pub fn seat(&self) -> Seat {
        self.seat
    }

    /// Keeps the store open for a moment, so that other ranks can ask who failed.
    pub fn linger(&self) {
        if self.seat.rank == 0 {
            thread::sleep(PATIENCE / 2);
        }
    }
}

/// Difference between this rank's options and the ones of rank 0, and whether both belong to the
/// same run.
fn difference(rank: usize, own: &str, of_first: &str) -> Option<(String, bool)> {
    let (own, of_first) =
        own.lines().zip(of_first.lines()).find(|(own, of_first)| own != of_first)?;
    let ((name, own), (_, of_first)) = (own.split_once(' ')?, of_first.split_once(' ')?);
    Some(match name {
        "run" => {
            let problem = "this is another run: give each its own port with --rendezvous HOST:PORT";
            (problem.to_string(), false)
        }
        name => (
            format!(
                "--{name} {own} of rank {rank} is {of_first} on rank 0: start all with the same \
                 options, of the same gsplit"
            ),
            true,
        ),
    })
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Binds rank 0's socket for the store: only this host reaches it if `host` is a local address.
fn listen(host: &str, port: u16) -> Result<TcpListener> {
    let everywhere = [SocketAddr::from(([0u16; 8], port)), SocketAddr::from(([0u8; 4], port))];
    let bound = match is_loopback(host) {
        true => (host, port)
            .to_socket_addrs()
            .and_then(|found| TcpListener::bind(&found.collect::<Vec<_>>()[..])),
        false => TcpListener::bind(&everywhere[..]),
    };
    bound.map_err(|error| {
        let why =
            if error.kind() == ErrorKind::AddrInUse { "the port is taken".to_string() } else { error.to_string() };
        start(format!("rank 0: cannot listen at {host}:{port}: {why}; choose another with --rendezvous HOST:PORT"))
    })
}
