//! How the processes of a run find each other over TCP, before NCCL joins their GPUs.
//!
//! Returns: on every rank the bytes that rank 0 has for it (the ids of its groups for NCCL), and a [`Line`] by which ranks learn that
//! another has failed. Idea: rank 0 listens; the others call until it answers. Who calls proves that it belongs to the run by a
//! keyed hash (HMAC-SHA256) of both sides' random challenges, so that what was overheard is of no use later, and so does who
//! answers. A caller that cannot is told and dropped, and rank 0 goes on waiting; whoever says nothing, or too slowly, holds
//! up nobody ([`callers`]). Messages are of fixed length, or say one that is checked.
//! The key is the run's secret; without one it is empty, and whoever reaches the port can take a rank's place. Nothing is
//! encrypted: a secret keeps others out, it hides nothing. The name that the launcher gives a run goes into the hash, so that
//! two runs on one port do not mix.
//! Cost: one connection a rank, kept open.

mod callers;
mod line;
mod wire;

#[cfg(test)]
#[path = "../../../fuzz/src/strangers.rs"]
mod strangers;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::CommError;

use crate::Result;
use callers::Callers;
pub(crate) use line::Line;
use wire::{Hello, Kind, Secret, after, challenge, read_verdict, refuse, write_verdict};

/// How long one caller may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
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
                let callers = self.gather(self.listen()?, size)?;
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
    fn gather(&self, listener: TcpListener, size: usize) -> Result<Vec<Caller>> {
        let failed = |error| start(format!("rank 0: the listening port: {error}"));
        let (deadline, mut callers) = (after(self.timeout), Callers::at(listener).map_err(failed)?);
        let (secret, run) = (Secret::new(&self.secret), Secret::name(&self.run));
        let mut there: Vec<Option<Caller>> = (1..size).map(|_| None).collect();
        while there.iter().any(Option::is_none) {
            if Instant::now() >= deadline {
                return Err(self.give_up(there, &secret));
            }
            for (hello, proved, stream) in callers.hear(&secret, PAUSE).map_err(failed)? {
                // What is written next is short, and the first on this connection.
                if stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(HANDSHAKE))).is_ok() {
                    seat(Caller { hello, stream }, proved, (size, run), &mut there, &secret);
                }
            }
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
        let place = format!("{}:{}", self.host, self.port);
        let answer = |deadline| match read_verdict(stream, &hello, secret, deadline) {
            Ok((Kind::Refused, text, true)) => Err(Refusal::Final(String::from_utf8_lossy(&text).into_owned())),
            Ok((kind, bytes, true)) => Ok((kind, bytes)),
            // Whoever sent this cannot be believed.
            Ok((_, _, false)) => Err(Refusal::Final(format!(
                "{place} does not know this run's secret, or this rank does not: give all ranks the same"
            ))),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(Refusal::Final(format!("{place}: {error}"))),
            Err(error) => Err(Refusal::Again(error)),
        };
        let odd = || Refusal::Final(format!("{place}: the answer is no gsplit's"));
        match answer(after(HANDSHAKE))? {
            (Kind::Seated, _) => {}
            _ => return Err(odd()),
        }
        // Rank 0's own time ends before, and then it says for whom it waited.
        match answer(deadline.max(after(HANDSHAKE)) + HANDSHAKE) {
            Ok((Kind::Welcome, bytes)) => Ok(Some(bytes)),
            Ok(_) => Err(odd()),
            Err(Refusal::Again(error)) => {
                Err(Refusal::Final(format!("rank 0 at {place} has gone before the run started: {error}")))
            }
            Err(refusal) => Err(refusal),
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

/// Gives a caller that has said who it is its seat in the run of `size` ranks, or tells it why it has none.
fn seat(caller: Caller, proved: bool, (size, run): (usize, [u8; 32]), there: &mut [Option<Caller>], secret: &Secret) {
    let Caller { hello, stream } = &caller;
    let taken = |rank: u32| (rank as usize).checked_sub(1).and_then(|at| there.get(at)).map(Option::is_some);
    let reason = if !proved {
        "the secret is another".to_string()
    } else if hello.run != run {
        "this is another run: give each its own port with --rendezvous HOST:PORT".to_string()
    } else if hello.size as usize != size {
        format!("rank 0 was started as one of {size} ranks, this one as one of {}", hello.size)
    } else {
        match taken(hello.rank) {
            None => format!("there are ranks 0 to {}", size - 1),
            Some(true) => format!("rank {} has come already: each rank is started once", hello.rank),
            Some(false) => {
                // One that has gone by now leaves the seat to who calls again.
                if write_verdict(stream, hello, secret, Kind::Seated, &[]).is_ok() {
                    let at = hello.rank as usize - 1;
                    there[at] = Some(caller);
                }
                return;
            }
        }
    };
    refuse(stream, hello, secret, &reason);
}
