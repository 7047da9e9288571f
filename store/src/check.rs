//! Finds damaged files before results are computed from them.
//!
//! Opening an artifact checks the files that are opened against the checksums in its document:
//!
//! * a file of up to 32 MiB at once, which takes some milliseconds: opening it fails if it is
//!   damaged;
//! * a longer file on its own thread while the work begins, if it fits into memory, where its
//!   reader then finds it cached. Before anything becomes visible, and before a program ends,
//!   [`settled`] waits for the running checks and fails if damage was found. Files that do not fit
//!   are left to [`verify`](crate::verify).
//!
//! A sound file is noted with its [`Stamp`] in `.verified`, next to the artifact's document, and is
//! not read again while it has that stamp. The note has a checksum like all documents; a damaged
//! note is ignored. It is only a convenience: if it cannot be written, e.g. on a read-only file
//! system, files are checked each time.
//!
//! Checks and their results belong to the whole process, like its unfinished artifacts: everything
//! that any of its threads has opened must be sound before any result becomes visible.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::checksum::checksum_stream;
use crate::document::{self, Document};
use crate::memory::Memory;
use crate::open::open_file;
use crate::{Checksum, Error, FileRecord, Result, Stamp, checksum_file};

/// Name of the note in an artifact's folder.
pub const NOTE: &str = ".verified";

/// Maximum length of a file that is checked before it is used.
const AT_ONCE: u64 = 32 << 20;

/// Content of `.verified`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// Sound files by their path below the artifact's folder.
    files: BTreeMap<String, Sound>,
}

/// Records that a file had this content when it had this stamp.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sound {
    stamp: Stamp,
    checksum: Checksum,
}

impl Document for Note {
    const FORMAT: &'static str = "gsplit-verified";
    const VERSION: u32 = 1;
}

/// State of the checks that run on their own threads.
#[derive(Default)]
struct Checks {
    running: usize,
    /// Checks started so far: files and their expected checksums.
    begun: HashSet<(PathBuf, Checksum)>,
    /// The first damage found: the file, and its problem.
    damage: Option<(PathBuf, String)>,
}

static CHECKS: LazyLock<(Mutex<Checks>, Condvar)> = LazyLock::new(Default::default);
static WANTED: AtomicBool = AtomicBool::new(true);
/// Held while a note is replaced.
static NOTING: Mutex<()> = Mutex::new(());

/// Turns checks off for this process from here on.
pub fn turn_off() {
    WANTED.store(false, Ordering::Relaxed);
}

/// Waits for running checks. Fails if any has found damage.
pub fn settled() -> Result<()> {
    let (checks, ended) = &*CHECKS;
    let checks = ended
        .wait_while(lock(checks), |checks| checks.running > 0)
        .unwrap_or_else(PoisonError::into_inner);
    found(&checks)
}

/// Fails if damage has been found so far.
pub fn sound_so_far() -> Result<()> {
    found(&lock(&CHECKS.0))
}

fn found(checks: &Checks) -> Result<()> {
    checks
        .damage
        .as_ref()
        .map_or(Ok(()), |(path, problem)| Err(Error::corrupt(path, problem.as_str())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called when the file `name` of the artifact in `folder` is opened: checks it, now or in the
/// background, unless it is noted as sound.
pub(crate) fn opened(folder: &Path, name: &str, record: &FileRecord) -> Result<()> {
    if !WANTED.load(Ordering::Relaxed) || is_noted(folder, name, record) {
        return Ok(());
    }
    let path = folder.join(name);
    if record.bytes <= AT_ONCE {
        let stamp = examine(&path, record, checksum_file)?;
        note(folder, vec![(name.to_string(), record.checksum.clone(), stamp)]);
    } else if record.bytes <= Memory::of_this_machine().available() / 2 {
        begin(folder.to_path_buf(), name.to_string(), record.clone());
    }
    Ok(())
}

/// Checks a file on its own thread, once per process. If no thread can be started, the file stays
/// unchecked.
fn begin(folder: PathBuf, name: String, record: FileRecord) {
    let path = folder.join(&name);
    let (checks, ended) = &*CHECKS;
    let mut state = lock(checks);
    if !state.begun.insert((path.clone(), record.checksum.clone())) {
        return;
    }
    let check = move || {
        let checked = examine(&path, &record, |path| {
            let digest =
                open_file(path).and_then(|file| checksum_stream(file, &AtomicBool::new(false)));
            Ok(digest.map_err(Error::io(path))?.unwrap_or_else(|| unreachable!("nothing stops it")))
        });
        let damage = match checked {
            Ok(stamp) => {
                note(&folder, vec![(name, record.checksum, stamp)]);
                None
            }
            Err(Error::Corrupt { path, problem }) => Some((path, problem)),
            Err(error) => Some((path, error.to_string())),
        };
        let mut state = lock(checks);
        state.running -= 1;
        state.damage = state.damage.take().or(damage);
        ended.notify_all();
    };
    state.running += thread::Builder::new().name("check".into()).spawn(check).map_or(0, |_| 1);
}

/// Compares the file at `path` with its record. Returns its stamp if it did not change meanwhile.
pub(crate) fn examine(
    path: &Path,
    record: &FileRecord,
    digest: impl FnOnce(&Path) -> Result<(u64, Checksum)>,
) -> Result<Option<Stamp>> {
    let stamp = || fs::metadata(path).ok().and_then(|file| Stamp::of(&file));
    let before = stamp();
    let (bytes, checksum) = digest(path)?;
    if (bytes, &checksum) != (record.bytes, &record.checksum) {
        let (expected_bytes, expected) = (record.bytes, &record.checksum);
        let problem = format!(
            "{bytes} bytes with checksum {checksum}, expected {expected_bytes} with {expected}"
        );
        return Err(Error::corrupt(path, problem));
    }
    Ok(before.filter(|_| before == stamp()))
}

fn is_noted(folder: &Path, name: &str, record: &FileRecord) -> bool {
    let Ok((note, _)) = document::read::<Note>(&folder.join(NOTE)) else { return false };
    let stamp = || Stamp::of(&fs::metadata(folder.join(name)).ok()?);
    note.files
        .get(name)
        .is_some_and(|sound| sound.checksum == record.checksum && Some(sound.stamp) == stamp())
}

/// Updates the note of the artifact in `folder` with the stamps of sound files; `None` removes a
/// file from the note. Best effort: without write access, files are checked again the next time.
pub(crate) fn note(folder: &Path, found: Vec<(String, Checksum, Option<Stamp>)>) {
    let _noting = lock(&NOTING);
    let path = folder.join(NOTE);
    let mut note = document::read::<Note>(&path).map(|(note, _)| note).unwrap_or_default();
    let before = note.files.clone();
    for (name, checksum, stamp) in found {
        match stamp {
            Some(stamp) => drop(note.files.insert(name, Sound { stamp, checksum })),
            None => drop(note.files.remove(&name)),
        }
    }
    if note.files != before {
        let _ = replace(&path, &note);
    }
}

/// Writes the note in place, so that a kill leaves no other file; a torn note is damaged and
/// therefore ignored. Does not follow links, and does not wait for the reader of a pipe.
fn replace(path: &Path, note: &Note) -> Result<()> {
    let (text, _) = document::text(path, note)?;
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = options.write(true).create(true).truncate(true).custom_flags(flags).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    /// A file `x` of `length` bytes, old enough to have a stamp, and its record.
    fn file(folder: &Path, length: usize) -> FileRecord {
        fs::write(folder.join("x"), vec![7; length]).unwrap();
        thread::sleep(Duration::from_millis(2100));
        let (bytes, checksum) = checksum_file(&folder.join("x")).unwrap();
        FileRecord { bytes, checksum }
    }

    fn flip(path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn what_is_sound_is_read_once_and_what_was_touched_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let record = file(folder, 100);
        assert!(!is_noted(folder, "x", &record));
        opened(folder, "x", &record).unwrap();
        assert!(is_noted(folder, "x", &record) && !is_noted(folder, "y", &record));
        // Another file takes its place: the note no longer applies.
        let other = FileRecord { checksum: Checksum::of(b"other"), ..record.clone() };
        assert!(!is_noted(folder, "x", &other));
        flip(&folder.join("x"));
        let message = opened(folder, "x", &record).unwrap_err().to_string();
        assert!(message.contains("/x: 100 bytes with checksum"), "{message}");

        // The content is not read: the note decides.
        thread::sleep(Duration::from_millis(2100));
        let stamp = Stamp::of(&fs::metadata(folder.join("x")).unwrap());
        assert!(stamp.is_some());
        note(folder, vec![("x".into(), record.checksum.clone(), stamp)]);
        opened(folder, "x", &record).unwrap();
        flip(&folder.join(NOTE));
        assert!(opened(folder, "x", &record).is_err(), "a damaged note is none");
        note(folder, vec![("x".into(), record.checksum.clone(), stamp)]);
        opened(folder, "x", &record).unwrap();
        note(folder, vec![("x".into(), record.checksum.clone(), None)]);
        assert!(opened(folder, "x", &record).is_err());
    }

    #[test]
    fn a_note_that_cannot_be_written_is_done_without() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, precious) = (folder.path().join("ds"), folder.path().join("precious"));
        fs::create_dir(&folder).unwrap();
        let record = file(&folder, 10);
        fs::create_dir(folder.join(NOTE)).unwrap();
        opened(&folder, "x", &record).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the file and what is in the way");
        // Nothing is written through a link.
        fs::remove_dir(folder.join(NOTE)).unwrap();
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, folder.join(NOTE)).unwrap();
        opened(&folder, "x", &record).unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }

    #[test]
    fn a_long_file_is_checked_beside_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let record = file(folder.path(), AT_ONCE as usize + 1);
        opened(folder.path(), "x", &record).unwrap();
        settled().unwrap();
        assert!(is_noted(folder.path(), "x", &record));
    }
}
