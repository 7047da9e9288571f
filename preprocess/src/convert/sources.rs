//! Checks whether an input is the one that a dataset was made from.
//!
//! Each file is recorded with its length, its [`Stamp`](gsplit_store::Stamp) and the checksum of
//! its whole content. If length and stamp are as recorded, the file is the same and is not read. If
//! only the stamp differs, it is read and its checksum decides: a copy, a `touch` and a move change
//! no content, and another file can have the same length and time.
//!
//! A separate thread computes the checksums while the graph is built. It reads the files in the
//! readers' order, so that files that fit in memory are read from the disk once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{panic, thread};

use gsplit_store::{
    Checksum, Progress, Provenance, SourceFile, Unit, checksum_stream, open_file, other_option,
};
use serde_json::Value;

use crate::read::text::some;
use crate::{Error, Result};

/// The identity of a dataset: everything that decides its bytes, as its writer records it.
pub fn as_identity(provenance: &Provenance) -> Result<Value> {
    serde_json::to_value(provenance)
        .map_err(|error| Error::Option(format!("the options cannot be recorded: {error}")))
}

/// The first difference between how a dataset `was` made and how it would be made `now` from
/// `files`, as a clause. `None` if there is none; `now` gets the checksums of all files before the
/// difference.
pub fn difference(
    files: &[PathBuf],
    was: &Provenance,
    now: &mut Provenance,
) -> Result<Option<String>> {
    if was.command != now.command {
        return Ok(Some(format!("it was made by `gsplit {}`", was.command)));
    }
    if let Some(difference) = other_option(&was.options, &now.options) {
        return Ok(Some(difference));
    }
    let names =
        |sources: &[SourceFile]| sources.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
    let (before, after) = (names(&was.sources), names(&now.sources));
    if before != after {
        return Ok(Some(format!(
            "it was made from {}, now there are {}",
            some(&before),
            some(&after)
        )));
    }
    for ((path, was), now) in files.iter().zip(&was.sources).zip(&mut now.sources) {
        if let Some(difference) = other_content(path, was, now)? {
            return Ok(Some(difference));
        }
    }
    Ok(None)
}

fn other_content(path: &Path, was: &SourceFile, now: &mut SourceFile) -> Result<Option<String>> {
    let name = &was.path;
    if was.bytes != now.bytes {
        return Ok(Some(format!("{name} had {} bytes and has {}", was.bytes, now.bytes)));
    }
    let Some(recorded) = &was.checksum else {
        return Ok(Some(format!("it has no checksum of {name}")));
    };
    let untouched = was.stamp.is_some() && was.stamp == now.stamp;
    now.checksum = match untouched {
        true => Some(recorded.clone()),
        false => digest(path, &AtomicBool::new(false))?,
    };
    let same = now.checksum.as_ref() == Some(recorded);
    Ok((!same).then(|| format!("{name} has other content than it had, in as many bytes")))
}

/// Computes the checksums that `sources` lacks while `work` runs. Returns the error of `work`, or
/// else of reading.
pub fn digest_beside(
    files: &[PathBuf],
    sources: &mut [SourceFile],
    progress: &dyn Progress,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let digest_all = || {
        for (path, source) in
            files.iter().zip(sources).filter(|(_, source)| source.checksum.is_none())
        {
            source.checksum = digest(path, &stop)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let digests = scope.spawn(digest_all);
        let done = work();
        stop.store(done.is_err(), Ordering::Relaxed);
        let _waiting = (!digests.is_finished())
            .then(|| progress.stage("checksums of the input", None, Unit::Bytes));
        let digested = digests.join().unwrap_or_else(|cause| panic::resume_unwind(cause));
        done.and(digested)
    })
}

fn digest(path: &Path, stop: &AtomicBool) -> Result<Option<Checksum>> {
    let digest =
        open_file(path).and_then(|file| checksum_stream(file, stop)).map_err(Error::io(path))?;
    Ok(digest.map(|(_, checksum)| checksum))
}
