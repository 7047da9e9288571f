//! JSON documents with a checksum of themselves: `dataset.json`, `presample.json`,
//! `partition.json`, `placement.json` and the trainer's `checkpoint.json`.
//!
//! ```json
//! { "format": "gsplit-dataset", "format_version": 1, "checksum": "xxh3:...", "content": { ... } }
//! ```
//!
//! `checksum` is the digest of the whole text with its own 32 digits replaced by zeros, so that any
//! flipped bit is found, even in white space.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Checksum, Error, Result, read_file};

/// Content of a self-checking JSON document.
pub trait Document: Serialize + DeserializeOwned {
    /// Name of the format, e.g. `gsplit-dataset`.
    const FORMAT: &'static str;
    /// Version that this build writes and reads.
    const VERSION: u32;
}

/// Format of the trainer's checkpoints, whose recipe is also read here.
pub const CHECKPOINT: &str = "gsplit-checkpoint";
/// Version of the checkpoints' format.
pub const CHECKPOINT_VERSION: u32 = 3;

const NO_CHECKSUM: &str = "xxh3:00000000000000000000000000000000";

#[derive(Serialize)]
struct Envelope<'a, T> {
    format: &'a str,
    format_version: u32,
    checksum: &'a str,
    content: &'a T,
}

#[derive(Deserialize)]
struct Head {
    format: String,
    format_version: u32,
    checksum: String,
}

#[derive(Deserialize)]
struct Body<T> {
    content: T,
}

/// Writes `content` to `path` and fsyncs it. Returns the document's checksum.
pub fn write<T: Document>(path: &Path, content: &T) -> Result<Checksum> {
    let (text, checksum) = text(path, content)?;
    let mut file = File::create(path).map_err(Error::io(path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(Error::io(path))?;
    Ok(checksum)
}

/// Returns the text of `content`, to be written to `path`, and its checksum.
pub(crate) fn text<T: Document>(path: &Path, content: &T) -> Result<(String, Checksum)> {
    let envelope =
        Envelope { format: T::FORMAT, format_version: T::VERSION, checksum: NO_CHECKSUM, content };
    let mut text = serde_json::to_string_pretty(&envelope).map_err(|error| {
        Error::Invalid(format!("{}: cannot be written as JSON: {error}", path.display()))
    })?;
    text.push('\n');
    let checksum = Checksum::of(text.as_bytes());
    Ok((text.replacen(NO_CHECKSUM, &checksum.to_string(), 1), checksum))
}

/// Reads the document at `path` and checks format, version and checksum.
pub fn read<T: Document>(path: &Path) -> Result<(T, Checksum)> {
    let text = read_file(path).map_err(Error::io(path))?;
    let text = String::from_utf8(text)
        .map_err(|_| Error::corrupt(path, "expected text, found other bytes"))?;
    let damaged = |error: serde_json::Error| {
        Error::corrupt(path, format!("not a {} document: {error}", T::FORMAT))
    };
    let head: Head = serde_json::from_str(&text).map_err(damaged)?;
    if head.format != T::FORMAT || head.format_version != T::VERSION {
        return Err(Error::Version {
            path: path.to_path_buf(),
            expected: format!("{} version {}", T::FORMAT, T::VERSION),
            found: format!("{} version {}", head.format, head.format_version),
            newer: head.format == T::FORMAT && head.format_version > T::VERSION,
        });
    }
    let checksum = Checksum::of(text.replacen(&head.checksum, NO_CHECKSUM, 1).as_bytes());
    if checksum.to_string() != head.checksum {
        return Err(Error::corrupt(
            path,
            format!("its text gives checksum {checksum}, it states {}", head.checksum),
        ));
    }
    let body: Body<T> = serde_json::from_str(&text).map_err(damaged)?;
    Ok((body.content, checksum))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Note {
        words: Vec<String>,
    }
    impl Document for Note {
        const FORMAT: &'static str = "gsplit-note";
        const VERSION: u32 = 1;
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note.json");
        write(&path, &Note { words: vec!["one".into(), "two".into()] }).unwrap();
        let good = fs::read(&path).unwrap();
        assert_eq!(read::<Note>(&path).unwrap().0.words.len(), 2);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bad).unwrap();
            assert!(read::<Note>(&path).is_err(), "bit {bit}");
        }
    }
}
