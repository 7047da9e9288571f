//! Checksums: XXH3-128 of every [`CHUNK`] bytes, and of those digests, computed while bytes are
//! written, so that nothing is read twice.
//!
//! A file of up to [`CHUNK`] bytes has the plain XXH3-128 of its content. A longer file has the
//! XXH3-128 of its chunks' digests, 16 little-endian bytes each, concatenated. So all threads can
//! check a large file, and a header whose numbers are known last can be written last: only the
//! first chunk has to wait for it.
//!
//! They catch accidents (a flipped bit, a truncated copy, another file's content), not forgery.
//! XXH3 was chosen over BLAKE3 because it runs at memory speed on one core.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{MappedFile, Result};

/// Number of bytes digested together.
pub const CHUNK: usize = 1 << 20;

/// A 128-bit digest, written as `xxh3:` followed by 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checksum(String);

impl Checksum {
    /// The digest of `bytes`, computed by all threads.
    pub fn of(bytes: &[u8]) -> Self {
        let digests: Vec<u128> = bytes.par_chunks(CHUNK).map(xxh3_128).collect();
        Self::from_chunks(&digests)
    }

    /// One digest over several, in order.
    pub fn combine<'a>(parts: impl IntoIterator<Item = &'a Checksum>) -> Self {
        let joined: Vec<&str> = parts.into_iter().map(|part| part.0.as_str()).collect();
        Self::of(joined.join("\n").as_bytes())
    }

    fn from_chunks(digests: &[u128]) -> Self {
        let digest = match digests {
            [] => xxh3_128(&[]),
            [only] => *only,
            many => {
                xxh3_128(&many.iter().flat_map(|digest| digest.to_le_bytes()).collect::<Vec<u8>>())
            }
        };
        Self(format!("xxh3:{digest:032x}"))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Digests a stream of bytes chunk by chunk.
pub(crate) struct Hasher {
    full: Vec<u128>,
    open: Box<Xxh3>,
    open_bytes: usize,
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher").field("chunks", &self.full.len()).finish_non_exhaustive()
    }
}

impl Hasher {
    pub(crate) fn new() -> Self {
        Self { full: Vec::new(), open: Box::new(Xxh3::new()), open_bytes: 0 }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while self.open_bytes + bytes.len() >= CHUNK {
            let (now, later) = bytes.split_at(CHUNK - self.open_bytes);
            let digest = if self.open_bytes == 0 { xxh3_128(now) } else { self.close(now) };
            self.full.push(digest);
            bytes = later;
        }
        if !bytes.is_empty() {
            self.open.update(bytes);
            self.open_bytes += bytes.len();
        }
    }

    fn close(&mut self, rest: &[u8]) -> u128 {
        self.open.update(rest);
        let digest = self.open.digest128();
        self.open.reset();
        self.open_bytes = 0;
        digest
    }

    /// Digests `chunk` in place of the first one: the whole chunk, or the whole stream if that is
    /// shorter.
    pub(crate) fn replace_first(&mut self, chunk: &[u8]) {
        match self.full.first_mut() {
            Some(first) => *first = xxh3_128(chunk),
            None => {
                self.open.reset();
                self.open.update(chunk);
                self.open_bytes = chunk.len();
            }
        }
    }

    pub(crate) fn finish(mut self) -> Checksum {
        if self.open_bytes > 0 {
            let digest = self.close(&[]);
            self.full.push(digest);
        }
        Checksum::from_chunks(&self.full)
    }
}

/// Passes bytes on and digests them.
pub struct HashingWriter<W> {
    inner: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W: Write> HashingWriter<W> {
    /// Starts with nothing written.
    pub fn new(inner: W) -> Self {
        Self { inner, hasher: Hasher::new(), bytes: 0 }
    }

    /// The writer underneath, the number of bytes that went through and their digest.
    pub fn finish(self) -> (W, u64, Checksum) {
        (self.inner, self.bytes, self.hasher.finish())
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Length and digest of the file at `path`, read through a memory map by all threads.
pub fn checksum_file(path: &Path) -> Result<(u64, Checksum)> {
    let map = MappedFile::open(path)?;
    Ok((map.len() as u64, Checksum::of(&map)))
}

/// Like [`checksum_file`] for `file` from its current position, read in pieces by this thread to
/// save memory. `None` once `stop` is set.
pub fn checksum_stream(
    mut file: impl Read,
    stop: &AtomicBool,
) -> io::Result<Option<(u64, Checksum)>> {
    let mut hasher = HashingWriter::new(io::sink());
    let mut room = vec![0; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        match file.read(&mut room) {
            Ok(0) => {
                let (_, bytes, checksum) = hasher.finish();
                return Ok(Some((bytes, checksum)));
            }
            Ok(length) => hasher.write_all(&room[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length as u32).map(|i| (i.wrapping_mul(7919) >> 3) as u8).collect()
    }

    #[test]
    fn streamed_digest_equals_whole_digest() {
        for length in [0, 1, 100_000, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
            for step in [777, CHUNK / 2 + 1, CHUNK, 2 * CHUNK + 3] {
                let bytes = bytes(length);
                let mut writer = HashingWriter::new(Vec::new());
                for chunk in bytes.chunks(step) {
                    writer.write_all(chunk).unwrap();
                }
                let (written, length, checksum) = writer.finish();
                assert_eq!(written.len() as u64, length);
                assert!(
                    written == bytes && checksum == Checksum::of(&bytes),
                    "{length} bytes by {step}"
                );
            }
        }
        assert_eq!(Checksum::of(b"abc").to_string(), format!("xxh3:{:032x}", xxh3_128(b"abc")));
    }

    #[test]
    fn a_stream_has_the_digest_of_its_bytes() {
        for length in [0, 5, CHUNK, 2 * CHUNK + 5] {
            let bytes = bytes(length);
            let digest = |stopped| checksum_stream(&bytes[..], &AtomicBool::new(stopped)).unwrap();
            assert_eq!(digest(false), Some((length as u64, Checksum::of(&bytes))));
            assert_eq!(digest(true), None);
        }
    }

    #[test]
    fn the_first_chunk_may_come_last() {
        for length in [10, CHUNK, CHUNK + 10] {
            let mut bytes = bytes(length);
            let mut hasher = Hasher::new();
            hasher.update(&bytes);
            bytes[3] ^= 1;
            hasher.replace_first(&bytes[..length.min(CHUNK)]);
            assert_eq!(hasher.finish(), Checksum::of(&bytes), "{length} bytes");
        }
    }
}
