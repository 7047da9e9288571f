//! Memory maps of files, and memory that processes share: the only unsafe code of the workspace's data side.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memmap2::{Mmap, MmapMut};
use rustix::fs::OFlags;

use crate::{Error, Result, open_file};

/// Files that are mapped now, and their lengths when they were.
static MAPS: Mutex<Vec<(PathBuf, u64)>> = Mutex::new(Vec::new());

fn maps() -> MutexGuard<'static, Vec<(PathBuf, u64)>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says which mapped file has lost pages, for who was told so by SIGBUS: reading a page that a file has no more, or that the
/// disk does not give.
pub(crate) fn lost_pages() -> String {
    let now = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    match maps().iter().find(|(path, bytes)| now(path) < *bytes) {
        Some((path, bytes)) => {
            let (path, now) = (path.display(), now(path));
            format!("{path}: was cut from {bytes} to {now} bytes while it was read: make it again, then run this again")
        }
        None => {
            "a mapped file could not be read, or shared memory is full (SIGBUS): check the disks and /dev/shm".into()
        }
    }
}

/// A file mapped into memory for reading; derefs to its bytes. An empty file gives an empty slice.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Option<Mmap>,
}

impl MappedFile {
    /// Maps the whole file at `path`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::of(path, &open_file(path).map_err(Error::io(path))?)
    }

    /// Maps the whole of `file`, which may have no name any more; `path` is for messages.
    pub fn of(path: &Path, file: &File) -> Result<Self> {
        let metadata = file.metadata().map_err(Error::io(path))?;
        if metadata.len() == 0 {
            return Ok(Self { path: path.to_path_buf(), map: None });
        }
        // SAFETY: the map is read-only and private to this value. Artifacts are written beside their final path and
        // renamed, never modified in place, so the bytes stay what they were for as long as the map lives; a process
        // that truncates a mapped artifact by hand breaks this contract, as with every memory-mapped format.
        let map = unsafe { Mmap::map(file) }.map_err(Error::io(path))?;
        maps().push((path.to_path_buf(), map.len() as u64));
        Ok(Self { path: path.to_path_buf(), map: Some(map) })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let Some(map) = &self.map else { return };
        let (mut maps, own) = (maps(), (self.path.as_path(), map.len() as u64));
        if let Some(at) = maps.iter().rposition(|(path, bytes)| (path.as_path(), *bytes) == own) {
            maps.swap_remove(at);
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Folder with the names of memory that processes share.
const SHARED: &str = "/dev/shm";

/// Memory that processes of a host find by a name: the first fills it, the others wait until it has, and the last to end removes it.
///
/// A lock on its file, which the system ends with the process, says who has it. Memory that a killed process was filling is filled
/// anew. A name stands for one content, so what killed processes left is of use to the next run that has the same; any run removes
/// what else they left.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    map: MmapMut,
    file: File,
    path: PathBuf,
}

/// Function that fills it.
type Fill<'a> = &'a dyn Fn(&mut [u8]);

impl SharedMemory {
    /// Memory of `bytes` by this name, filled by `fill` unless another process has done so.
    ///
    /// # Errors
    /// If there is not as much, and what the system says.
    pub fn open(name: &str, bytes: usize, fill: Fill<'_>) -> io::Result<Self> {
        let folder = Path::new(SHARED);
        remove_left(folder, name);
        Self::at(folder.join(name), bytes, fill)
    }

    fn at(path: PathBuf, bytes: usize, fill: Fill<'_>) -> io::Result<Self> {
        loop {
            let file = open_shared(&path, true)?;
            if file.metadata()?.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "shared memory of another user"));
            }
            let alone = file.try_lock().is_ok();
            if !alone {
                // Who fills it has the lock alone, and who is the last removes it.
                file.lock_shared()?;
            }
            if is_at(&file, &path)
                && let Some(map) = filled(&file, bytes, alone.then_some(fill)).inspect_err(|_| {
                    let _ = if alone { std::fs::remove_file(&path) } else { Ok(()) };
                })?
            {
                file.lock_shared()?;
                return Ok(Self { map, file, path });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Start of all names of memory that this program shares.
pub(crate) const PREFIX: &str = "gsplit-";

/// Opens the file of shared memory at `path`, and makes it if it is to be `created`.
fn open_shared(path: &Path, created: bool) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(created).truncate(false).mode(0o600);
    how.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(path)
}

/// Whether `file` is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let both = file.metadata().ok().zip(std::fs::symlink_metadata(path).ok());
    both.is_some_and(|(file, now)| (now.dev(), now.ino()) == (file.dev(), file.ino()))
}

/// Removes what no process has any more from `folder`, but for the memory `kept`. Best effort.
fn remove_left(folder: &Path, kept: &str) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_other = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name != kept);
        if !is_other || !entry.metadata().is_ok_and(|found| found.is_file() && found.uid() == own) {
            continue;
        }
        // A process that has just made it, and has no lock yet, finds it gone and makes another.
        if let Ok(file) = open_shared(&entry.path(), false)
            && file.try_lock().is_ok()
            && is_at(&file, &entry.path())
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The memory of `bytes` in `file`, whose last byte says whether it is filled; where it is not, filled by `fill`, or none.
fn filled(file: &File, bytes: usize, fill: Option<Fill<'_>>) -> io::Result<Option<MmapMut>> {
    let length = bytes as u64 + 1;
    if file.metadata()?.len() != length {
        if fill.is_none() {
            return Ok(None);
        }
        file.set_len(0)?;
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length)?;
    }
    // SAFETY: the file is this user's, and of this format by its name; only who has its lock alone writes it.
    let mut map = unsafe { MmapMut::map_mut(file) }?;
    if map[bytes] == 0 {
        let Some(fill) = fill else { return Ok(None) };
        #[cfg(target_os = "linux")]
        // A kernel without huge pages for shared memory says so; small ones will do.
        let _ = map.advise(memmap2::Advice::HugePage);
        fill(&mut map[..bytes]);
        map[bytes] = 1;
    }
    Ok(Some(map))
}

impl AsRef<[u8]> for SharedMemory {
    fn as_ref(&self) -> &[u8] {
        &self.map[..self.map.len() - 1]
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.file.try_lock().is_ok() && is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn memory_by_one_name_is_filled_once_and_goes_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let (path, fills) = (folder.path().join("rows"), Cell::new(0));
        let open = || {
            let fill = |memory: &mut [u8]| {
                memory.copy_from_slice(b"seven by");
                fills.set(fills.get() + 1);
            };
            SharedMemory::at(path.clone(), 8, &fill).unwrap()
        };
        let (first, second) = (open(), open());
        assert_eq!((first.as_ref(), second.as_ref(), fills.get()), (&b"seven by"[..], &b"seven by"[..], 1));
        drop(first);
        assert!(path.exists());
        let third = open();
        drop((second, third));
        assert!(!path.exists());
        // Many at once.
        let (times, all) = (std::sync::atomic::AtomicUsize::new(0), std::sync::Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let fill = |memory: &mut [u8]| {
                        times.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                        memory.fill(5);
                    };
                    let found = SharedMemory::at(path.clone(), 9000, &fill).unwrap();
                    assert!(found.as_ref().iter().all(|&byte| byte == 5));
                    all.wait();
                });
            }
        });
        assert_eq!((times.into_inner(), path.exists()), (1, false));
        // What a killed process left, whole or not.
        for (left, times) in [(&b"was left\x01"[..], 1), (b"was left\0", 2), (b"was", 3)] {
            std::fs::write(&path, left).unwrap();
            let found = open();
            assert_eq!(fills.get(), times, "{left:?}");
            assert_eq!(found.as_ref(), if times == 1 { &b"was left"[..] } else { b"seven by" });
        }
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_what_is_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("gsplit-left"), b"was left\x01").unwrap();
        std::fs::write(at("gsplit-wanted"), b"was left\x01").unwrap();
        std::fs::write(at("another's"), b"stays").unwrap();
        std::fs::create_dir(at("gsplit-folder")).unwrap();
        symlink(at("another's"), at("gsplit-link")).unwrap();
        let used = SharedMemory::at(at("gsplit-used"), 8, &|memory| memory.fill(3)).unwrap();
        remove_left(folder.path(), "gsplit-wanted");
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["another's", "gsplit-folder", "gsplit-link", "gsplit-used", "gsplit-wanted"]);
        assert_eq!(used.as_ref(), [3; 8]);
        // Memory whose name is gone removes no other's.
        std::fs::remove_file(at("gsplit-used")).unwrap();
        let second = SharedMemory::at(at("gsplit-used"), 8, &|memory| memory.fill(4)).unwrap();
        drop(used);
        assert!(at("gsplit-used").exists());
        drop(second);
        assert!(!at("gsplit-used").exists());
    }

    #[test]
    fn a_link_in_its_place_is_not_followed_and_too_much_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("rows"), folder.path().join("other"));
        std::fs::write(&other, b"another's").unwrap();
        symlink(&other, &path).unwrap();
        assert!(SharedMemory::at(path.clone(), 8, &|memory| memory.fill(1)).is_err());
        assert_eq!(std::fs::read(&other).unwrap(), b"another's");
        std::fs::remove_file(&path).unwrap();
        assert!(SharedMemory::at(path.clone(), 1 << 55, &|_| {}).is_err());
        assert!(!path.exists());
    }
}
