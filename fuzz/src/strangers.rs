//! A stranger at each end of the wire on which the processes of a run meet.
//!
//! Whatever it says: nobody panics, nobody waits for more than what was said, and without the secret nothing is proved.

use std::io::Write;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::callers::Callers;
use super::frames::{self, Frame};
use super::wire::{Hello, Secret, challenge, read_verdict};

/// Both ends of a connection, which is none of the few that a machine can have over TCP.
fn pair() -> (TcpStream, TcpStream) {
    let (near, far) = UnixStream::pair().expect("two sockets");
    (TcpStream::from(OwnedFd::from(near)), TcpStream::from(OwnedFd::from(far)))
}

/// The end of a connection on which `said` was said, and nothing more will be.
fn after(said: &[u8]) -> TcpStream {
    let (near, far) = pair();
    // More than fits is more than anybody reads.
    let _ = (&far).write(said);
    near
}

/// Says something to rank 0, to another rank, and to both once all have met; returns whether any of it was understood.
pub fn run([to_first, to_other, once_met]: [&[u8]; 3]) -> bool {
    let (secret, soon) = (Secret::new(b"sesame"), Instant::now() + Duration::from_millis(50));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut callers = Callers::at(listener).expect("a port");
    let (near, far) = pair();
    let _ = (&far).write(to_first);
    assert!(callers.admit((near, IpAddr::from([10, 0, 0, 1])), Instant::now()).is_none(), "there is a place");
    let known = callers.hear(&secret, Duration::from_millis(1)).expect("a wait");
    assert!(known.iter().all(|(_, proved, _)| !proved), "nobody can prove what it does not know");

    let opening = matches!(challenge(&after(to_other), soon), Ok(Some(_)));
    let hello = Hello::new(1, 2, Secret::name("run")).expect("random bytes");
    let verdict = read_verdict(&after(to_other), &hello, &secret, soon);
    if let Ok((_, said, proved)) = &verdict {
        assert!(!proved && said.len() <= 1024);
    }

    let frame = frames::read(&mut after(once_met));
    if let Ok(Frame::Failed { reason, .. }) = &frame {
        assert!(!reason.contains(char::is_control), "one line: {reason:?}");
    }
    if let Ok(Frame::Message { bytes, .. }) = &frame {
        assert!(bytes.len() <= once_met.len(), "no more than was said");
    }
    !known.is_empty() || opening || verdict.is_ok() || frame.is_ok()
}
