//! Callers: connections to rank 0 that have not said yet which rank they are.
//!
//! Idea: one thread watches them all and waits for none of them. A rank says who it is as soon as it is asked. So a
//! caller has [`FIRST_BYTE`] for its first byte, and [`HANDSHAKE`] for the whole message. There is room for [`MOST`]
//! callers, and for [`MOST_OF_ONE`] from one address. When the room is full, a newcomer takes the place of the caller
//! that has been silent for longest, once that one has had [`GRACE`]; until then newcomers wait, in the order in which
//! they called. Silent callers therefore delay a rank by milliseconds, however many they are and however often they
//! call again.
//! Cost: one system call for all, and one for each that has said something.

use std::io::{Error, ErrorKind, Read, Result};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::wire::{HELLO, Hello, Secret, may_be_hello, send_challenge};
use super::{HANDSHAKE, PAUSE};

/// How long a caller may say nothing.
pub(super) const FIRST_BYTE: Duration = Duration::from_secs(1);
/// How long a caller keeps its place, whoever wants it.
pub(super) const GRACE: Duration = Duration::from_millis(50);
/// Callers at the same time.
pub(super) const MOST: usize = 256;
/// Callers at the same time from one address.
pub(super) const MOST_OF_ONE: usize = 128;
/// Callers that the system lets wait, as far as it allows so many. Those beyond call again after a second.
const BACKLOG: i32 = 4096;

/// A caller that may say who it is.
struct NewCaller {
    stream: TcpStream,
    from: IpAddr,
    /// The challenge that it was sent.
    challenge: [u8; 32],
    since: Instant,
    heard: Vec<u8>,
}

impl NewCaller {
    fn new(stream: TcpStream, from: IpAddr, now: Instant) -> Result<Self> {
        stream.set_nonblocking(true)?;
        // The first bytes on a connection: there is room for them.
        let challenge = send_challenge(&stream)?;
        Ok(Self { stream, from, challenge, since: now, heard: Vec::new() })
    }

    fn is_in_time(&self, now: Instant) -> bool {
        now - self.since < if self.heard.is_empty() { FIRST_BYTE } else { HANDSHAKE }
    }

    /// Takes what it has said; fails where that is no rank's.
    fn hear(&mut self) -> Result<()> {
        let mut bytes = [0; HELLO];
        match (&self.stream).read(&mut bytes[self.heard.len()..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.heard.extend(&bytes[self.heard.len()..][..count]),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        if may_be_hello(&self.heard) { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    }
}

/// The callers at a port.
pub(super) struct Callers {
    listener: TcpListener,
    /// In the order in which they came.
    here: Vec<NewCaller>,
    /// Has called, and waits for a place.
    next: Option<(TcpStream, IpAddr)>,
}

impl Callers {
    pub(super) fn at(listener: TcpListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(Self { listener, here: Vec::new(), next: None })
    }

    /// Waits for at most `time`; returns those who have said who they are, and whether they have proved it.
    pub(super) fn hear(&mut self, secret: &Secret, time: Duration) -> Result<Vec<(Hello, bool, TcpStream)>> {
        let ready = self.wait(if self.next.is_some() { time.min(GRACE / 5) } else { time })?;
        let now = Instant::now();
        let mut known = Vec::new();
        let mut ready = ready.into_iter();
        for mut caller in std::mem::take(&mut self.here) {
            let fails = ready.next().unwrap_or(false) && caller.hear().is_err();
            match Hello::parse(&caller.heard, &caller.challenge, secret) {
                _ if fails => {}
                Some((hello, proved)) => known.push((hello, proved, caller.stream)),
                None if caller.is_in_time(now) => self.here.push(caller),
                None => {}
            }
        }
        self.accept(now);
        Ok(known)
    }

    /// Whether each of those who are here has something to say, once one of them has or somebody calls.
    fn wait(&self, time: Duration) -> Result<Vec<bool>> {
        let mut watched: Vec<PollFd<'_>> =
            self.here.iter().map(|caller| PollFd::new(&caller.stream, PollFlags::IN)).collect();
        if self.next.is_none() {
            watched.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let time = Timespec::try_from(time).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
        match poll(&mut watched, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(watched.iter().map(|watched| !watched.revents().is_empty()).collect())
    }

    /// Takes in those who call, as long as there are places for them.
    fn accept(&mut self, now: Instant) {
        loop {
            let newcomer = match self.next.take() {
                Some(newcomer) => newcomer,
                None => match self.listener.accept() {
                    Ok((stream, from)) => (stream, from.ip().to_canonical()),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                    // A caller that has gone, or no descriptors left: a silent caller's may become free.
                    Err(_) => {
                        self.make_room(None, now);
                        return std::thread::sleep(PAUSE / 10);
                    }
                },
            };
            self.next = self.admit(newcomer, now);
            if self.next.is_some() {
                return;
            }
        }
    }

    /// Takes in a caller, or returns it if there is no place for it yet.
    pub(super) fn admit(&mut self, (stream, from): (TcpStream, IpAddr), now: Instant) -> Option<(TcpStream, IpAddr)> {
        let of_one = self.here.iter().filter(|caller| caller.from == from).count();
        let has_place = match (of_one >= MOST_OF_ONE, self.here.len() >= MOST) {
            (true, _) => self.make_room(Some(from), now),
            (false, true) => self.make_room(None, now),
            (false, false) => true,
        };
        if !has_place {
            return Some((stream, from));
        }
        // One that has gone by now needs none.
        self.here.extend(NewCaller::new(stream, from, now));
        None
    }

    /// Drops the caller, if need be of one address, that has been silent for longest, or the first of those who said something;
    /// returns whether there was one that had its time.
    fn make_room(&mut self, of: Option<IpAddr>, now: Instant) -> bool {
        let may_go = |caller: &NewCaller| of.is_none_or(|of| caller.from == of) && now - caller.since >= GRACE;
        let silent = self.here.iter().position(|caller| caller.heard.is_empty() && may_go(caller));
        let first = silent.or_else(|| self.here.iter().position(may_go));
        first.map(|at| drop(self.here.remove(at))).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Callers, and the far end of the first.
    struct Port {
        callers: Callers,
        began: Instant,
        first: Option<TcpStream>,
    }

    impl Port {
        fn new() -> Self {
            let callers = Callers::at(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
            Self { callers, began: Instant::now(), first: None }
        }

        /// Somebody calls from 10.0.0.`from` at `ms`; returns whether there was a place.
        fn call(&mut self, from: u8, ms: u64) -> bool {
            let far = TcpStream::connect(self.callers.listener.local_addr().unwrap()).unwrap();
            self.callers.listener.set_nonblocking(false).unwrap();
            let (near, _) = self.callers.listener.accept().unwrap();
            self.first.get_or_insert(far);
            let newcomer = (near, IpAddr::from([10, 0, 0, from]));
            self.callers.admit(newcomer, self.began + Duration::from_millis(ms)).is_none()
        }

        /// The callers that are here, by their last digits.
        fn here(&self) -> Vec<u8> {
            let digit = |caller: &NewCaller| match caller.from {
                IpAddr::V4(from) => from.octets()[3],
                IpAddr::V6(_) => 0,
            };
            self.callers.here.iter().map(digit).collect()
        }
    }

    #[test]
    fn one_address_keeps_places_free_for_others() {
        let mut port = Port::new();
        (0..MOST_OF_ONE).for_each(|_| assert!(port.call(1, 0)));
        // All of them are new: the next one waits, and others come in.
        assert!(!port.call(1, 10) && port.call(2, 10));
        // Then it takes the place of the oldest of its own address, and of no other's.
        let later = 10 + GRACE.as_millis() as u64;
        (0..2 * MOST_OF_ONE).for_each(|turn| assert_eq!(port.call(1, later), turn < MOST_OF_ONE));
        assert_eq!(port.here().iter().filter(|&&from| from == 1).count(), MOST_OF_ONE);
        assert_eq!(port.here()[0], 2);
    }

    #[test]
    fn the_one_that_is_silent_for_longest_goes_first() {
        let mut port = Port::new();
        for at in 0..MOST {
            assert!(port.call((at / MOST_OF_ONE) as u8, 0));
        }
        // The first has said something.
        port.first.as_ref().unwrap().write_all(b"gsp").unwrap();
        while port.callers.here[0].heard.is_empty() {
            port.callers.here[0].hear().unwrap();
        }
        let (first, second) = (port.callers.here[0].challenge, port.callers.here[1].challenge);
        assert!(!port.call(7, 20), "there is no place for long enough yet");
        assert!(port.call(7, GRACE.as_millis() as u64));
        let challenges: Vec<_> = port.callers.here.iter().map(|caller| caller.challenge).collect();
        assert!(challenges.contains(&first) && !challenges.contains(&second) && port.here().ends_with(&[7]));
        // Those who say little go when nobody is silent.
        port.callers.here.iter_mut().for_each(|caller| caller.heard = b"gsp".to_vec());
        assert!(port.call(8, 200) && port.callers.here.iter().all(|caller| caller.challenge != first));
    }

    #[test]
    fn who_says_nothing_has_less_time_than_who_says_little() {
        let mut port = Port::new();
        assert!(port.call(1, 0));
        let (caller, now) = (&mut port.callers.here[0], port.began);
        assert!(caller.is_in_time(now) && !caller.is_in_time(now + FIRST_BYTE));
        caller.heard = b"gsplit".to_vec();
        assert!(caller.is_in_time(now + FIRST_BYTE) && !caller.is_in_time(now + HANDSHAKE));
    }
}
