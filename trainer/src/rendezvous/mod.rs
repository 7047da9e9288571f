//! How the processes of a run find each other over TCP, before NCCL joins their GPUs.
//!
//! Returns: on every rank the bytes that rank 0 has for it (the ids of its groups for NCCL), and a [`Line`] by which ranks learn that
//! another has failed. Idea: rank 0 listens; the others call until it answers. Who calls proves that it belongs to the run by a
//! keyed hash (HMAC-SHA256) of both sides' random challenges, so that what was overheard is of no use later, and so does who
//! answers. A caller that cannot is told and dropped, and rank 0 goes on waiting; whoever says nothing, or too slowly, holds
//! up nobody. Messages are of fixed length, or say one that is checked.
//! The key is the run's secret; without one it is empty, and whoever reaches the port can take a rank's place. Nothing is
//! encrypted: a secret keeps others out, it hides nothing. The name that the launcher gives a run goes into the hash, so that
//! two runs on one port do not mix.
//! Cost: one connection a rank, kept open.

mod line;
mod wire;

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::CommError;

use crate::Result;
pub(crate) use line::Line;
use wire::{Hello, Kind, Secret, after, challenge, read_verdict, refuse, write_verdict};

/// How long one caller may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Callers that say who they are at the same time.
const MOST_CALLERS: usize = 256;
/// From one call to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the processes of a run meet.
#[derive(Clone)]
pub struct Rendezvous {
    /// Name or address of rank 0's host.
    pub host: String,
    /// Where rank 0 listens there.
    pub port: u16,
    /// What all ranks of the run know and nobody else; empty for none.
    pub secret: Vec<u8>,
    /// The name of the run, the same on all ranks; may be empty.
    pub run: String,
    /// How long ranks wait for each other.
    pub timeout: Duration,
}

impl std::fmt::Debug for Rendezvous {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rendezvous({}:{}, run {:?}, {:?})", self.host, self.port, self.run, self.timeout)
    }
}

/// A caller that has said who it is and proved it.
struct Caller {
    hello: Hello,
    stream: TcpStream,
}

fn start(reason: String) -> crate::Error {
    CommError::Start { reason }.into()
}

impl Rendezvous {
    /// Meets the other ranks and returns what rank 0 has for this one: its `bytes` are those of each rank. Collective.
    ///
    /// # Errors
    /// [`CommError::Start`] that names the ranks which have not come in time, the port that is taken, or the rank that was refused
    /// and why.
    pub(crate) fn meet(
        &self,
        rank: usize,
        size: usize,
        bytes: impl FnOnce() -> Result<Vec<Vec<u8>>>,
    ) -> Result<(Vec<u8>, Line)> {
        match rank {
            0 => {
                let mut bytes = bytes()?.into_iter();
                let own = bytes.next().unwrap_or_default();
                let callers = self.gather(&self.listen()?, size)?;
                self.welcome(callers, bytes).map(|line| (own, line))
            }
            _ => self.call(rank, size),
        }
    }

    fn listen(&self) -> Result<TcpListener> {
        let place = format!("{}:{}", self.host, self.port);
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| {
                start(format!("rank 0: --rendezvous {place}: {error}; give a name or address of this host"))
            })?
            .collect();
        // A host may know itself by an address that others do not reach.
        let everywhere = [SocketAddr::from(([0u16; 8], self.port)), SocketAddr::from(([0u8; 4], self.port))];
        let here = found.iter().all(|address| address.ip().is_loopback());
        TcpListener::bind(if here { &found[..] } else { &everywhere[..] }).map_err(|error| {
            start(format!("rank 0: cannot listen at {place}: {error}; choose another port with --rendezvous HOST:PORT"))
        })
    }

    /// Waits at `listener` for all ranks but this one, the first; they come in their order.
    fn gather(&self, listener: &TcpListener, size: usize) -> Result<Vec<Caller>> {
        listener.set_nonblocking(true).map_err(|error| start(format!("rank 0: the listening port: {error}")))?;
        let (deadline, (sender, callers)) = (after(self.timeout), channel());
        let (secret, run) = (Arc::new(Secret::new(&self.secret)), Secret::name(&self.run));
        let busy = Arc::new(AtomicUsize::new(0));
        let mut there: Vec<Option<Caller>> = (1..size).map(|_| None).collect();
        while there.iter().any(Option::is_none) {
            if Instant::now() >= deadline {
                return Err(self.give_up(there, &secret));
            }
            match listener.accept() {
                Ok((stream, _)) if busy.load(Ordering::Relaxed) < MOST_CALLERS => {
                    busy.fetch_add(1, Ordering::Relaxed);
                    let (secret, sender, busy) = (Arc::clone(&secret), sender.clone(), Arc::clone(&busy));
                    thread::spawn(move || {
                        shake_hands(stream, &secret, (size, run), &sender);
                        busy.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                // It calls again.
                Ok(_) => {}
                // A caller that has gone, or no descriptors left for now.
                Err(error) => thread::sleep(if error.kind() == ErrorKind::WouldBlock { PAUSE / 10 } else { PAUSE }),
            }
            seat(&callers, &mut there, &secret);
        }
        Ok(there.into_iter().flatten().collect())
    }

    /// Tells those who came why the run does not start.
    fn give_up(&self, there: Vec<Option<Caller>>, secret: &Secret) -> crate::Error {
        let missing: Vec<String> =
            (1..).zip(&there).filter(|(_, who)| who.is_none()).map(|(rank, _)| rank.to_string()).collect();
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let reason = format!(
            "{ranks} {} did not come to {}:{} within {} s: see what they printed and whether they reach this address, or \
             raise --timeout",
            missing.join(", "),
            self.host,
            self.port,
            self.timeout.as_secs_f64()
        );
        for caller in there.into_iter().flatten() {
            refuse(&caller.stream, &caller.hello, secret, &reason);
        }
        start(reason)
    }

    /// Gives all `callers` what they came for, each its `bytes`.
    fn welcome(&self, callers: Vec<Caller>, bytes: impl Iterator<Item = Vec<u8>>) -> Result<Line> {
        let secret = Secret::new(&self.secret);
        for ((rank, caller), bytes) in (1..).zip(&callers).zip(bytes) {
            let sent = write_verdict(&caller.stream, &caller.hello, &secret, Kind::Welcome, &bytes);
            sent.map_err(|error| start(format!("rank {rank} has gone before the run started: {error}")))?;
        }
        let streams = callers.into_iter().map(|caller| caller.stream).collect();
        Line::of_first(streams).map_err(|error| start(format!("rank 0: the connections to the others: {error}")))
    }

    fn call(&self, rank: usize, size: usize) -> Result<(Vec<u8>, Line)> {
        let (secret, run) = (Secret::new(&self.secret), Secret::name(&self.run));
        let deadline = after(self.timeout);
        loop {
            let problem = match self.connect(deadline) {
                Ok(stream) => match self.ask(&stream, (rank, size, run), &secret, deadline) {
                    Ok(Some(bytes)) => {
                        let line = Line::of_other(rank, stream);
                        return Ok((
                            bytes,
                            line.map_err(|error| start(format!("rank {rank}: the line to rank 0: {error}")))?,
                        ));
                    }
                    Ok(None) => "who answers is no gsplit".to_string(),
                    Err(Refusal::Final(reason)) => return Err(start(format!("rank {rank}: {reason}"))),
                    Err(Refusal::Again(error)) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                return Err(start(format!(
                    "rank {rank}: rank 0 did not answer at {}:{} within {} s ({problem}): see what it printed, give its \
                     address with --rendezvous HOST:PORT, or raise --timeout",
                    self.host,
                    self.port,
                    self.timeout.as_secs_f64()
                )));
            }
            thread::sleep(PAUSE);
        }
    }

    fn connect(&self, deadline: Instant) -> std::io::Result<TcpStream> {
        let mut last = std::io::Error::from(ErrorKind::NotFound);
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now()).clamp(PAUSE, HANDSHAKE);
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Says who this is and waits for the answer; `None` from who is no gsplit.
    fn ask(
        &self,
        stream: &TcpStream,
        (rank, size, run): (usize, usize, [u8; 32]),
        secret: &Secret,
        deadline: Instant,
    ) -> std::result::Result<Option<Vec<u8>>, Refusal> {
        let Some(theirs) = challenge(stream, after(HANDSHAKE)).map_err(Refusal::Again)? else { return Ok(None) };
        let hello = Hello::new(rank as u32, size as u32, run).map_err(Refusal::Again)?;
        hello.write(stream, &theirs, secret).map_err(Refusal::Again)?;
        // Rank 0's own time ends before, and then it says for whom it waited.
        let answer = read_verdict(stream, &hello, secret, deadline.max(after(HANDSHAKE)) + HANDSHAKE);
        let place = format!("{}:{}", self.host, self.port);
        match answer {
            Ok((Kind::Welcome, bytes, true)) => Ok(Some(bytes)),
            Ok((Kind::Refused, text, true)) => Err(Refusal::Final(String::from_utf8_lossy(&text).into_owned())),
            // Whoever sent this cannot be believed.
            Ok((_, _, false)) => Err(Refusal::Final(format!(
                "{place} does not know this run's secret, or this rank does not: give all ranks the same"
            ))),
            Err(error) => Err(Refusal::Final(format!("rank 0 at {place} has gone before the run started: {error}"))),
        }
    }
}

/// Why a call has come to nothing.
enum Refusal {
    /// The next one may succeed.
    Again(std::io::Error),
    /// None will.
    Final(String),
}

/// Lets one caller say who it is; sends it on if it belongs to the run of `size` ranks.
fn shake_hands(stream: TcpStream, secret: &Secret, (size, run): (usize, [u8; 32]), callers: &Sender<Caller>) {
    let deadline = after(HANDSHAKE);
    let prepared = stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(HANDSHAKE)));
    let Ok(nonce) = prepared.and_then(|()| wire::send_challenge(&stream)) else { return };
    let Ok((hello, proved)) = Hello::read(&stream, &nonce, secret, deadline) else { return };
    let reason = if !proved {
        "the secret is another".to_string()
    } else if hello.run != run {
        "this is another run: give each its own port with --rendezvous HOST:PORT".to_string()
    } else if hello.size as usize != size {
        format!("rank 0 was started as one of {size} ranks, this one as one of {}", hello.size)
    } else if !(1..size).contains(&(hello.rank as usize)) {
        format!("there are ranks 0 to {}", size - 1)
    } else {
        // Nobody listens any more once all have come.
        let _ = callers.send(Caller { hello, stream });
        return;
    };
    refuse(&stream, &hello, secret, &reason);
}

/// Gives those who have said who they are their seats.
fn seat(callers: &Receiver<Caller>, there: &mut [Option<Caller>], secret: &Secret) {
    for caller in callers.try_iter() {
        let seat = &mut there[caller.hello.rank as usize - 1];
        match seat {
            Some(_) => {
                let reason = format!("rank {} has come already: each rank is started once", caller.hello.rank);
                refuse(&caller.stream, &caller.hello, secret, &reason);
            }
            None => *seat = Some(caller),
        }
    }
}
