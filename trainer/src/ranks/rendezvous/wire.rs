//! Messages on the wire while ranks meet.
//!
//! ```text
//! rank 0 → rank r    MAGIC, challenge                                         8 + 32 bytes
//! rank r → rank 0    MAGIC, rank, size, run, challenge, proof                 8 + 4 + 4 + 32 + 32 + 32
//! rank 0 → rank r    kind, length, that many bytes (at most 1024), proof      1 + 2 + length + 32
//! ```
//!
//! The last comes twice, or once where it is a refusal: when rank r has its seat, and when all have come. A connection that ends
//! before the first of them was dropped for other callers, and rank r calls again. Then
//!
//! ```text
//! rank r → rank 0    the port where it listens                                2
//! rank 0 → rank r    for each rank but 0 its address, 0 for rank 0's host, and port    16 + 2
//! ```
//!
//! and rank r calls the ranks before it as it called rank 0, but for these.
//! Numbers are little-endian. A proof is HMAC-SHA256, under the run's secret, of all that was said before it and of the other
//! side's challenge.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

const MAGIC: [u8; 8] = *b"gsplit2\n";
/// Bytes by which a rank says who it is.
pub(super) const HELLO: usize = 112;
/// The most that rank 0 sends.
const MOST: usize = 1024;
/// A deadline where a duration is beyond the clock.
const YEAR: Duration = Duration::from_secs(365 * 86400);

/// In `time`.
pub(super) fn after(time: Duration) -> Instant {
    Instant::now() + time.min(YEAR)
}

/// Secret that proofs are made with.
pub(super) struct Secret(Vec<u8>);

impl Secret {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(secret.to_vec())
    }

    /// The name of a run, as long as every other.
    pub(super) fn name(run: &str) -> [u8; 32] {
        Sha256::digest(run.as_bytes()).into()
    }

    fn hash(&self, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        // Keys may have any length.
        let mut hash = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        parts.iter().for_each(|part| hash.update(part));
        Some(hash)
    }

    fn proof(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.hash(parts).map(|hash| hash.finalize().into_bytes().into()).unwrap_or_default()
    }

    /// Compares in a time that does not depend on the bytes.
    fn is_proved(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.hash(parts).is_some_and(|hash| hash.verify_slice(proof).is_ok())
    }
}

/// Random bytes that nobody can know before.
fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads all of `bytes` before `deadline`, however slowly they come.
fn read(mut stream: &TcpStream, bytes: &mut [u8], deadline: Instant) -> Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(rest) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Rank 0's opening; returns the challenge.
pub(super) fn send_challenge(mut stream: &TcpStream) -> Result<[u8; 32]> {
    let nonce = random()?;
    stream.write_all(&[&MAGIC[..], &nonce].concat())?;
    Ok(nonce)
}

/// Reads rank 0's opening; `None` if it is another's.
pub(super) fn challenge(stream: &TcpStream, deadline: Instant) -> Result<Option<[u8; 32]>> {
    let mut opening = [0; 40];
    read(stream, &mut opening, deadline)?;
    let (magic, nonce) = opening.split_at(8);
    Ok(if magic == MAGIC { nonce.try_into().ok() } else { None })
}

/// Call of a rank.
pub(super) struct Hello {
    pub rank: u32,
    pub size: u32,
    /// [`Secret::name`].
    pub run: [u8; 32],
    nonce: [u8; 32],
}

impl Hello {
    pub(super) fn new(rank: u32, size: u32, run: [u8; 32]) -> Result<Self> {
        Ok(Self { rank, size, run, nonce: random()? })
    }

    fn bytes(&self) -> Vec<u8> {
        [&MAGIC[..], &self.rank.to_le_bytes(), &self.size.to_le_bytes(), &self.run, &self.nonce].concat()
    }

    /// `theirs` is rank 0's challenge.
    pub(super) fn write(&self, mut stream: &TcpStream, theirs: &[u8; 32], secret: &Secret) -> Result<()> {
        let said = self.bytes();
        let proof = secret.proof(&[b"rank", theirs, &said]);
        stream.write_all(&[&said[..], &proof].concat())
    }

    /// The call in `bytes`, and whether it has proved that it knows the secret; `challenge` is what it was sent. `None` as long
    /// as there are fewer than [`HELLO`].
    pub(super) fn parse(bytes: &[u8], challenge: &[u8; 32], secret: &Secret) -> Option<(Self, bool)> {
        if bytes.len() < HELLO {
            return None;
        }
        let (said, proof) = bytes[..HELLO].split_at(80);
        let number = |at: usize| u32::from_le_bytes([said[at], said[at + 1], said[at + 2], said[at + 3]]);
        let field = |at: usize| said[at..at + 32].try_into().unwrap_or_default();
        let hello = Self { rank: number(8), size: number(12), run: field(16), nonce: field(48) };
        let proved = secret.is_proved(&[b"rank", challenge, said], proof);
        Some((hello, proved))
    }
}

/// Whether `bytes` begin as a rank says who it is.
pub(super) fn may_be_hello(bytes: &[u8]) -> bool {
    let both = bytes.len().min(MAGIC.len());
    bytes[..both] == MAGIC[..both]
}

/// Answer of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All have come; its bytes follow.
    Welcome = 1,
    /// The reason follows.
    Refused = 2,
    /// It belongs to the run, and waits for the others.
    Seated = 3,
}

/// Answers the caller of `hello`.
pub(super) fn write_verdict(
    mut stream: &TcpStream,
    hello: &Hello,
    secret: &Secret,
    kind: Kind,
    bytes: &[u8],
) -> Result<()> {
    let length =
        u16::try_from(bytes.len()).ok().filter(|&length| length as usize <= MOST).ok_or(ErrorKind::InvalidInput)?;
    let said = [&[kind as u8][..], &length.to_le_bytes(), bytes].concat();
    let proof = secret.proof(&[b"zero", &hello.bytes(), &said]);
    stream.write_all(&[&said[..], &proof].concat())
}

/// Tells the caller of `hello` why it is not wanted. It may have gone.
pub(super) fn refuse(stream: &TcpStream, hello: &Hello, secret: &Secret, reason: &str) {
    let end = reason.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|&end| end <= MOST).last();
    let _ = write_verdict(stream, hello, secret, Kind::Refused, &reason.as_bytes()[..end.unwrap_or(0)]);
}

/// Rank 0's answer, and whether who gave it has proved that it knows the secret.
pub(super) fn read_verdict(
    stream: &TcpStream,
    hello: &Hello,
    secret: &Secret,
    deadline: Instant,
) -> Result<(Kind, Vec<u8>, bool)> {
    let mut head = [0; 3];
    read(stream, &mut head, deadline)?;
    let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
    let kind = match head[0] {
        1 => Kind::Welcome,
        2 => Kind::Refused,
        3 => Kind::Seated,
        _ => return Err(Error::new(ErrorKind::InvalidData, "the answer is no gsplit's")),
    };
    if length > MOST {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("an answer of {length} bytes, at most {MOST} expected"),
        ));
    }
    let mut rest = vec![0; length + 32];
    read(stream, &mut rest, deadline.max(after(Duration::from_secs(1))))?;
    let proof = rest.split_off(length);
    let proved = secret.is_proved(&[b"zero", &hello.bytes(), &head, &rest], &proof);
    Ok((kind, rest, proved))
}

/// Address at which a rank listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// `None` for rank 0's host.
    pub host: Option<IpAddr>,
    pub port: u16,
}

/// Tells rank 0 where this rank listens.
pub(super) fn write_port(mut stream: &TcpStream, port: u16) -> Result<()> {
    stream.write_all(&port.to_le_bytes())
}

/// Port on which the other rank listens.
pub(super) fn read_port(stream: &TcpStream, deadline: Instant) -> Result<u16> {
    let mut port = [0; 2];
    read(stream, &mut port, deadline)?;
    Ok(u16::from_le_bytes(port))
}

/// Tells a rank where all but rank 0 listen.
pub(super) fn write_addresses(mut stream: &TcpStream, addresses: &[Address]) -> Result<()> {
    let bytes = addresses.iter().flat_map(|address| {
        let host = match address.host {
            None => Ipv6Addr::UNSPECIFIED,
            Some(IpAddr::V4(host)) => host.to_ipv6_mapped(),
            Some(IpAddr::V6(host)) => host,
        };
        host.octets().into_iter().chain(address.port.to_le_bytes())
    });
    stream.write_all(&bytes.collect::<Vec<u8>>())
}

/// Addresses at which `count` ranks listen.
pub(super) fn read_addresses(stream: &TcpStream, count: usize, deadline: Instant) -> Result<Vec<Address>> {
    let mut bytes = vec![0; 18 * count];
    read(stream, &mut bytes, deadline)?;
    let address = |[host @ .., low, high]: &[u8; 18]| {
        let host = Ipv6Addr::from(*host);
        let host = if host.is_unspecified() { None } else { Some(IpAddr::from(host).to_canonical()) };
        Address { host, port: u16::from_le_bytes([*low, *high]) }
    };
    Ok(bytes.as_chunks().0.iter().map(address).collect())
}
