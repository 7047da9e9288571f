//! Rendezvous of the processes of a run over TCP, before NCCL joins their GPUs.
//!
//! Returns: on every rank the bytes that rank 0 has for it (the ids of its groups for NCCL), and its [`Links`] to all
//! others. Idea: rank 0 listens; the others call until it answers. Then rank 0 tells all ranks where each listens, and
//! each rank calls those before it. Both sides prove that they belong to the run, by a keyed hash (HMAC-SHA256) of both
//! sides' random challenges, so that a message that was overheard is of no use later. A caller that cannot prove it is
//! told and dropped, and the listener goes on waiting. A caller that says nothing, or is too slow, holds up nobody
//! ([`callers`]). Messages have a fixed length, or state one that is checked.
//! The key is the run's secret. Without a secret it is empty, and anybody who reaches a port can take a rank's place.
//! Nothing is encrypted: a secret keeps others out, it hides nothing. The name that the launcher gives a run goes into
//! the hash, so that two runs on one port do not mix.
//! Cost: one connection between each two ranks, kept open.

mod callers;
mod wire;

#[cfg(test)]
#[path = "../../../../kernels/src/comm/sockets/frames.rs"]
#[expect(dead_code, reason = "only what hears is under test")]
mod frames;
#[cfg(test)]
#[path = "../../../../fuzz/src/strangers.rs"]
mod strangers;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::{CommError, Links};

use crate::Result;
use callers::Callers;
use wire::{
    Address, Hello, Kind, Secret, after, challenge, read_addresses, read_port, read_verdict, refuse, write_addresses,
    write_port, write_verdict,
};

/// How long one caller may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// From one call to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Meeting place of the processes of a run.
#[derive(Clone)]
pub struct Rendezvous {
    /// Name or address of rank 0's host.
    pub host: String,
    /// Port on which rank 0 listens.
    pub port: u16,
    /// Secret that all ranks of the run know and nobody else; empty for none.
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
    /// Meets the other ranks and returns what rank 0 has for this one, its `bytes` are those of each rank, and the connections to all.
    /// Collective.
    ///
    /// # Errors
    /// [`CommError::Start`] that names the ranks which have not come in time, the port that is taken, or the rank that was refused
    /// and why.
    pub(crate) fn meet(
        &self,
        rank: usize,
        size: usize,
        bytes: impl FnOnce() -> Result<Vec<Vec<u8>>>,
    ) -> Result<(Vec<u8>, Links)> {
        let (own, streams) = match rank {
            0 => {
                let mut bytes = bytes()?.into_iter();
                let own = bytes.next().unwrap_or_default();
                let mut streams = vec![None];
                streams.extend(self.admit((0, size), self.listen(0)?, bytes)?.into_iter().map(Some));
                introduce(&streams).map_err(lost(0))?;
                (own, streams)
            }
            _ => {
                let (own, first) = self.call(rank, size, 0)?;
                (own, self.meet_others(rank, size, first)?)
            }
        };
        Ok((own, Links::new(rank, streams).map_err(lost(rank))?))
    }

    /// The connections of `rank`, which has `first` to rank 0: to those before it, which it calls, and to those after it.
    fn meet_others(&self, rank: usize, size: usize, first: TcpStream) -> Result<Vec<Option<TcpStream>>> {
        let at = |address: &Address| {
            let host = address.host.map_or_else(|| self.host.clone(), |host| host.to_string());
            Self { host, port: address.port, ..self.clone() }
        };
        let listener = Self { port: 0, ..self.clone() }.listen(rank)?;
        let deadline = after(2 * HANDSHAKE);
        let port = listener.local_addr().map_err(lost(rank))?.port();
        write_port(&first, port).map_err(lost(rank))?;
        let addresses = read_addresses(&first, size - 1, deadline).map_err(lost(rank))?;
        let mut streams = vec![Some(first)];
        for (other, address) in (1..rank).zip(&addresses) {
            streams.push(Some(at(address).call(rank, size, other)?.1));
        }
        streams.push(None);
        let none = std::iter::repeat_with(Vec::new);
        streams.extend(self.admit((rank, size), listener, none)?.into_iter().map(Some));
        Ok(streams)
    }

    /// The connections of those after `rank`, once all have come to its `listener`. Each gets its `bytes`.
    fn admit(
        &self,
        (rank, size): (usize, usize),
        listener: TcpListener,
        bytes: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Vec<TcpStream>> {
        self.welcome(rank, self.gather((rank, size), listener)?, bytes)
    }

    fn listen(&self, rank: usize) -> Result<TcpListener> {
        let place = format!("{}:{}", self.host, self.port);
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| {
                start(format!("rank {rank}: --rendezvous {place}: {error}; give a name or address of rank 0's host"))
            })?
            .collect();
        // A host may know itself by an address that others do not reach.
        let everywhere = [SocketAddr::from(([0u16; 8], self.port)), SocketAddr::from(([0u8; 4], self.port))];
        let here = found.iter().all(|address| address.ip().is_loopback());
        TcpListener::bind(if here { &found[..] } else { &everywhere[..] }).map_err(|error| {
            start(format!(
                "rank {rank}: cannot listen at {place}: {error}; choose another port with --rendezvous HOST:PORT"
            ))
        })
    }

    /// Waits at `listener` for all ranks after `rank`; returns them in their order.
    fn gather(&self, (rank, size): (usize, usize), listener: TcpListener) -> Result<Vec<Caller>> {
        let failed = |error| start(format!("rank {rank}: the listening port: {error}"));
        let (deadline, mut callers) = (after(self.timeout), Callers::at(listener).map_err(failed)?);
        let (secret, run) = (Secret::new(&self.secret), Secret::name(&self.run));
        let mut arrived: Vec<Option<Caller>> = (rank + 1..size).map(|_| None).collect();
        while arrived.iter().any(Option::is_none) {
            if Instant::now() >= deadline {
                return Err(self.give_up(rank, arrived, &secret));
            }
            for (hello, proved, stream) in callers.hear(&secret, PAUSE).map_err(failed)? {
                // What is written next is short, and the first on this connection.
                if stream.set_nonblocking(false).and_then(|()| stream.set_write_timeout(Some(HANDSHAKE))).is_ok() {
                    seat(Caller { hello, stream }, proved, (rank, size, run), &mut arrived, &secret);
                }
            }
        }
        Ok(arrived.into_iter().flatten().collect())
    }

    /// Tells those who came why the run does not start.
    fn give_up(&self, rank: usize, arrived: Vec<Option<Caller>>, secret: &Secret) -> crate::Error {
        let missing: Vec<String> =
            (rank + 1..).zip(&arrived).filter(|(_, who)| who.is_none()).map(|(rank, _)| rank.to_string()).collect();
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let reason = format!(
            "{ranks} {} did not come to {} within {} s: see what they printed and whether they reach this address, or raise \
             --timeout",
            missing.join(", "),
            if rank == 0 { format!("{}:{}", self.host, self.port) } else { format!("rank {rank}'s host") },
            self.timeout.as_secs_f64()
        );
        for caller in arrived.into_iter().flatten() {
            refuse(&caller.stream, &caller.hello, secret, &reason);
        }
        start(reason)
    }

    /// Gives all `callers` at `rank` what they came for, each its `bytes`.
    fn welcome(
        &self,
        rank: usize,
        callers: Vec<Caller>,
        bytes: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Vec<TcpStream>> {
        let secret = Secret::new(&self.secret);
        for ((rank, caller), bytes) in (rank + 1..).zip(&callers).zip(bytes) {
            let sent = write_verdict(&caller.stream, &caller.hello, &secret, Kind::Welcome, &bytes);
            sent.map_err(|error| start(format!("rank {rank} has gone before the run started: {error}")))?;
        }
        Ok(callers.into_iter().map(|caller| caller.stream).collect())
    }

    /// Message of `other` for `rank`, which calls it until it answers, and the connection.
    fn call(&self, rank: usize, size: usize, other: usize) -> Result<(Vec<u8>, TcpStream)> {
        let (secret, run) = (Secret::new(&self.secret), Secret::name(&self.run));
        let deadline = after(self.timeout);
        loop {
            let problem = match self.connect(deadline) {
                Ok(stream) => match self.ask(&stream, (rank, size, run), (other, &secret), deadline) {
                    Ok(Some(bytes)) => return Ok((bytes, stream)),
                    Ok(None) => "who answers is no gsplit".to_string(),
                    Err(Refusal::Final(reason)) => return Err(start(format!("rank {rank}: {reason}"))),
                    Err(Refusal::Again(error)) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                let remedy = if other == 0 { "give its address with --rendezvous HOST:PORT" } else { "open its ports" };
                return Err(start(format!(
                    "rank {rank}: rank {other} did not answer at {}:{} within {} s ({problem}): see what it printed, \
                     {remedy}, or raise --timeout",
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
        (other, secret): (usize, &Secret),
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
        // The other's own time ends before, and then it says for whom it waited.
        match answer(deadline.max(after(HANDSHAKE)) + HANDSHAKE) {
            Ok((Kind::Welcome, bytes)) => Ok(Some(bytes)),
            Ok(_) => Err(odd()),
            Err(Refusal::Again(error)) => {
                Err(Refusal::Final(format!("rank {other} at {place} has gone before the run started: {error}")))
            }
            Err(refusal) => Err(refusal),
        }
    }
}

/// A connection of `rank` that has broken before the run started.
fn lost(rank: usize) -> impl Fn(std::io::Error) -> crate::Error {
    move |error| start(format!("rank {rank}: the connections to the others: {error}"))
}

/// Tells all others, which rank 0 has these streams to, where each of them listens. Those that came from rank 0's own host by its
/// loopback are reached where rank 0 is.
fn introduce(streams: &[Option<TcpStream>]) -> std::io::Result<()> {
    let others = || streams.iter().flatten();
    let deadline = after(HANDSHAKE);
    let mut addresses = Vec::new();
    for stream in others() {
        let from = stream.peer_addr()?.ip().to_canonical();
        let host = if from.is_loopback() { None } else { Some(from) };
        addresses.push(Address { host, port: read_port(stream, deadline)? });
    }
    others().try_for_each(|stream| write_addresses(stream, &addresses))
}

/// Why a call has come to nothing.
enum Refusal {
    /// The next one may succeed.
    Again(std::io::Error),
    /// None will.
    Final(String),
}

/// Gives a caller of `rank` that has said who it is its seat in the run of `size` ranks, or tells it why it has none.
fn seat(
    caller: Caller,
    proved: bool,
    (rank, size, run): (usize, usize, [u8; 32]),
    arrived: &mut [Option<Caller>],
    secret: &Secret,
) {
    let Caller { hello, stream } = &caller;
    let seat = (hello.rank as usize).checked_sub(rank + 1);
    let taken = seat.and_then(|at| arrived.get(at)).map(Option::is_some);
    let reason = if !proved {
        "the secret is another".to_string()
    } else if hello.run != run {
        "this is another run: give each its own port with --rendezvous HOST:PORT".to_string()
    } else if hello.size as usize != size {
        format!("rank {rank} was started as one of {size} ranks, this one as one of {}", hello.size)
    } else {
        match taken {
            None => format!("there are ranks 0 to {}", size - 1),
            Some(true) => format!("rank {} has come already: each rank is started once", hello.rank),
            Some(false) => {
                // One that has gone by now leaves the seat to who calls again.
                if write_verdict(stream, hello, secret, Kind::Seated, &[]).is_ok() {
                    arrived[seat.unwrap_or_default()] = Some(caller);
                }
                return;
            }
        }
    };
    refuse(stream, hello, secret, &reason);
}
