//! Damage is found before results are made of it.
//!
//! Whoever opens an artifact has the files checked that it opens, against the checksums that its document records:
//!
//! * a file of up to 32 MiB at once, which takes some milliseconds: damage is an error of the opening;
//! * a longer one on a thread of its own, while the work begins, if it fits the memory, where who reads it finds it then.
//!   Before anything becomes visible, and before a program ends, [`settled`] waits for the checks under way and fails with
//!   the damage found. What does not fit is left to [`verify`](crate::verify).
//!
//! A sound file is noted in `.verified` beside the artifact's document, with its [`Stamp`], and is not read again while it has
//! that stamp. The note guards itself as all documents do: a damaged one counts as none. It is a convenience: where it cannot
//! be written, as on a read-only file system, files are checked each time.
//!
//! Checks and their outcome are the process's, as its unfinished artifacts are: what any of its threads has opened must be
//! sound before any result of the process is.

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

/// Longest file that is checked before it is used.
const AT_ONCE: u64 = 32 << 20;

/// Content of `.verified`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// Sound files by their path below the artifact's folder.
    files: BTreeMap<String, Sound>,
}

/// A file that had this content when it had this stamp.
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

/// Checks on threads of their own.
#[derive(Default)]
struct Checks {
    running: usize,
    /// Checks that were begun: files and the checksums that they should have.
    begun: HashSet<(PathBuf, Checksum)>,
    /// The first damage found: the file, and what is wrong.
    damage: Option<(PathBuf, String)>,
}

static CHECKS: LazyLock<(Mutex<Checks>, Condvar)> = LazyLock::new(Default::default);
static WANTED: AtomicBool = AtomicBool::new(true);
/// Held while a note is replaced.
static NOTING: Mutex<()> = Mutex::new(());

/// From here on this process opens what there is without a check.
pub fn turn_off() {
    WANTED.store(false, Ordering::Relaxed);
}

/// Waits for the checks under way. Fails when any has found damage.
pub fn settled() -> Result<()> {
    let (checks, ended) = &*CHECKS;
    let checks = ended.wait_while(lock(checks), |checks| checks.running > 0).unwrap_or_else(PoisonError::into_inner);
    found(&checks)
}

/// Fails when damage was found so far.
pub fn sound_so_far() -> Result<()> {
    found(&lock(&CHECKS.0))
}

fn found(checks: &Checks) -> Result<()> {
    checks.damage.as_ref().map_or(Ok(()), |(path, problem)| Err(Error::corrupt(path, problem.as_str())))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For who opens the file `name` of the artifact in `folder`: checks it, now or beside what follows, unless it is noted as
/// sound.
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

/// Checks a file on a thread of its own, once in a process. Where no thread is to be had the file stays unchecked.
fn begin(folder: PathBuf, name: String, record: FileRecord) {
    let path = folder.join(&name);
    let (checks, ended) = &*CHECKS;
    let mut state = lock(checks);
    if !state.begun.insert((path.clone(), record.checksum.clone())) {
        return;
    }
    let check = move || {
        let checked = examine(&path, &record, |path| {
            let digest = open_file(path).and_then(|file| checksum_stream(file, &AtomicBool::new(false)));
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

/// Compares the file at `path` with its record. Returns its stamp, where it kept it meanwhile.
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
        let problem = format!("{bytes} bytes with checksum {checksum}, expected {expected_bytes} with {expected}");
        return Err(Error::corrupt(path, problem));
    }
    Ok(before.filter(|_| before == stamp()))
}

fn is_noted(folder: &Path, name: &str, record: &FileRecord) -> bool {
    let Ok((note, _)) = document::read::<Note>(&folder.join(NOTE)) else { return false };
    let stamp = || Stamp::of(&fs::metadata(folder.join(name)).ok()?);
    note.files.get(name).is_some_and(|sound| sound.checksum == record.checksum && Some(sound.stamp) == stamp())
}

/// Notes what was found of files of the artifact in `folder`: the stamps of sound ones; `None` removes the file from the note.
/// Best effort: whoever may not write there checks again.
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

/// Writes the note where it is, so that a kill leaves nothing else; one that is torn is damaged, so none. Follows no link, and waits for
/// no reader of a pipe.
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

    /// A file `x` of `length` bytes that is at rest, and its record.
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
        // Another file takes its place: the note is of that one no more.
        let other = FileRecord { checksum: Checksum::of(b"other"), ..record.clone() };
        assert!(!is_noted(folder, "x", &other));
        flip(&folder.join("x"));
        let message = opened(folder, "x", &record).unwrap_err().to_string();
        assert!(message.contains("/x: 100 bytes with checksum"), "{message}");

        // Without a look at the content: the note decides.
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
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the file and what stands in the way");
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
