//! Checksums: XXH3-128, computed while bytes are written, so that nothing is read twice.
//!
//! They catch accidents (a flipped bit, a truncated copy, another file's content), not forgery. XXH3 was chosen
//! over BLAKE3 because it runs at memory speed on one core.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::{Error, MappedFile, Result};

/// A 128-bit XXH3 digest, written as `xxh3:` and 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checksum(String);

impl Checksum {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_digest(xxhash_rust::xxh3::xxh3_128(bytes))
    }

    /// One digest over several, in order.
    pub fn combine<'a>(parts: impl IntoIterator<Item = &'a Checksum>) -> Self {
        let joined: Vec<&str> = parts.into_iter().map(|part| part.0.as_str()).collect();
        Self::of(joined.join("\n").as_bytes())
    }

    pub(crate) fn from_digest(digest: u128) -> Self {
        Self(format!("xxh3:{digest:032x}"))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Passes bytes on and digests them.
pub struct HashingWriter<W> {
    inner: W,
    hasher: Box<Xxh3>,
    bytes: u64,
}

impl<W: Write> HashingWriter<W> {
    /// Starts with nothing written.
    pub fn new(inner: W) -> Self {
        Self { inner, hasher: Box::new(Xxh3::new()), bytes: 0 }
    }

    /// The writer underneath, the number of bytes that went through and their digest.
    pub fn finish(self) -> (W, u64, Checksum) {
        let checksum = Checksum::from_digest(self.hasher.digest128());
        (self.inner, self.bytes, checksum)
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

/// Length and digest of the file at `path`, read through a memory map.
pub fn checksum_file(path: &Path) -> Result<(u64, Checksum)> {
    let map = MappedFile::open(path)?;
    Ok((map.len() as u64, Checksum::of(&map)))
}

/// [`checksum_file`] of many files at once, in the order given.
pub(crate) fn checksum_files(paths: &[std::path::PathBuf]) -> Vec<Result<(u64, Checksum), Error>> {
    paths.par_iter().map(|path| checksum_file(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_digest_equals_whole_digest() {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| ((i * 7919) >> 3) as u8).collect();
        let mut writer = HashingWriter::new(Vec::new());
        for chunk in bytes.chunks(777) {
            writer.write_all(chunk).unwrap();
        }
        let (written, length, checksum) = writer.finish();
        assert_eq!((written.len() as u64, &written), (length, &bytes));
        assert_eq!(checksum, Checksum::of(&bytes));
    }
}
