//! Memory maps of files, and memory that processes share: the only unsafe code of the workspace's
//! data side.
#![allow(unsafe_code)]

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_buffer::Buffer;
use memmap2::{Mmap, MmapMut};
use serde::{Deserialize, Serialize};

use crate::memory::{Memory, shown};
use crate::{Error, Result, open_file};

/// Files that are mapped now, and their lengths when they were.
static MAPS: Mutex<Vec<(PathBuf, u64)>> = Mutex::new(Vec::new());

fn maps() -> MutexGuard<'static, Vec<(PathBuf, u64)>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Describes which mapped file has lost pages, after a SIGBUS: reading a page that is no longer in
/// the file, or that the disk cannot read.
pub(crate) fn lost_pages() -> String {
    let now = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    match maps().iter().find(|(path, bytes)| now(path) < *bytes) {
        Some((path, bytes)) => {
            let (path, now) = (path.display(), now(path));
            format!(
                "{path}: was cut from {bytes} to {now} bytes while it was read: make it again, \
                 then run this again"
            )
        }
        None => {
            "a mapped file could not be read, or memory is full (SIGBUS): check the disks".into()
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
        // SAFETY: the map is read-only and private to this value. Artifacts are written next to
        // their final path and renamed, never modified in place, so the bytes do not change while
        // the map lives; a process that truncates a mapped artifact by hand breaks this contract,
        // as with every memory-mapped format.
        let map = unsafe { Mmap::map(file) }.map_err(Error::io(path))?;
        maps().push((path.to_path_buf(), map.len() as u64));
        Ok(Self { path: path.to_path_buf(), map: Some(map) })
    }

    /// A copy of `bytes`, at least one, in memory without a file; `name` is for messages.
    pub fn in_memory(name: &str, bytes: &[u8]) -> Result<Self> {
        let path = PathBuf::from(name);
        let mut map = MmapMut::map_anon(bytes.len()).map_err(Error::io(&path))?;
        map.copy_from_slice(bytes);
        let map = Some(map.make_read_only().map_err(Error::io(&path))?);
        Ok(Self { path, map })
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

/// Anonymous memory of a host: one process makes and fills it, others open it by its
/// [`MemoryAddress`]. It is freed with the last process that has it, however that ends.
#[derive(Debug)]
pub struct HostMemory {
    file: File,
    is_own: bool,
}

/// Place of a [`HostMemory`], for other processes of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryAddress {
    process: u32,
    descriptor: i32,
    /// Its device and inode, which no other memory of the host has: processes in containers have
    /// numbers of their own.
    identity: [u64; 2],
}

impl HostMemory {
    /// Memory of no bytes yet, which this process will fill.
    pub fn new() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{MemfdFlags, memfd_create};
            let file =
                memfd_create("gsplit-rows", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            Ok(Self { file: file.into(), is_own: true })
        }
        #[cfg(not(target_os = "linux"))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Address of the memory.
    pub fn address(&self) -> io::Result<MemoryAddress> {
        let (process, descriptor) = (std::process::id(), self.file.as_raw_fd());
        Ok(MemoryAddress { process, descriptor, identity: identity(&self.file.metadata()?) })
    }

    /// Opens that of another process of this host.
    ///
    /// # Errors
    /// Where the system does not let this process see the other's, or the one of that number here
    /// is another.
    pub fn open(address: &MemoryAddress) -> io::Result<Self> {
        let path = format!("/proc/{}/fd/{}", address.process, address.descriptor);
        let is_it = |found: &Metadata| match identity(found) == address.identity {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the process of that number is another",
            )),
        };
        // Looked at before it is opened: to open a device may do something.
        is_it(&std::fs::metadata(&path)?)?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        is_it(&file.metadata()?)?;
        Ok(Self { file, is_own: false })
    }

    /// Whether this process fills it.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in it.
    pub(crate) fn len(&self) -> usize {
        self.file.metadata().map_or(0, |file| file.len() as usize)
    }

    /// Maps the memory; the owner sets its size to `bytes` first, once.
    fn map(&self, bytes: usize) -> io::Result<MmapMut> {
        #[cfg(target_os = "linux")]
        if self.is_own {
            use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals};
            // The kernel refuses none: it ends processes until there is enough.
            let free = Memory::of_this_machine().available();
            if bytes as u64 > free {
                let [wanted, free] = [bytes as u64, free].map(shown);
                let problem =
                    format!("{wanted} of feature rows do not fit in memory, {free} are free");
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, problem));
            }
            fallocate(&self.file, FallocateFlags::empty(), 0, bytes as u64)?;
            fcntl_add_seals(&self.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        }
        if self.len() != bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "another length of shared memory",
            ));
        }
        // SAFETY: it is sealed, so no page is lost. Only its own process writes it, before the
        // others map it. The map is writable in all, since drivers pin none that is not.
        unsafe { MmapMut::map_mut(&self.file) }
    }
}

/// Values in a file without a name, which the system may write to the disk to free memory; derefs
/// to them. The file goes with this value, however the process ends.
#[derive(Debug)]
pub struct ScratchValues(MmapMut);

impl ScratchValues {
    /// `len` zeros, at least one, in a file in `folder`.
    ///
    /// # Errors
    /// If the disk does not have room for them.
    pub fn new(folder: &Path, len: usize) -> Result<Self> {
        let make = || {
            let (file, bytes) = (tempfile::tempfile_in(folder)?, len as u64 * 4);
            // Room that the disk only seems to have would end the process on a later write.
            #[cfg(target_os = "linux")]
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
            file.set_len(bytes)?;
            // SAFETY: no other process can open the file, which has no name.
            let map = unsafe { MmapMut::map_mut(&file) }?;
            #[cfg(unix)]
            map.advise(memmap2::Advice::Random)?;
            Ok(Self(map))
        };
        make().map_err(Error::io(folder))
    }

    /// Begins to read the values of `range` from the disk, without waiting for them.
    pub fn expect(&self, range: Range<usize>) {
        #[cfg(unix)]
        // Only a hint: the values are read in any case.
        let _ = self.0.advise_range(memmap2::Advice::WillNeed, range.start * 4, range.len() * 4);
    }
}

impl Deref for ScratchValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }
}

impl DerefMut for ScratchValues {
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

fn identity(file: &Metadata) -> [u64; 2] {
    [file.dev(), file.ino()]
}

/// Memory of `bytes`, on huge pages where the kernel has them: this process's, or the one of the
/// `host`, which only its own process fills.
pub(crate) fn allocate(bytes: usize, host: Option<&HostMemory>) -> io::Result<MmapMut> {
    let memory = host.map_or_else(|| MmapMut::map_anon(bytes), |host| host.map(bytes))?;
    #[cfg(target_os = "linux")]
    // A kernel without huge pages says so; small ones will do.
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}

/// Bytes in `memory`, kept as long as they are used.
pub(crate) fn frozen(memory: MmapMut) -> Buffer {
    Buffer::from(bytes::Bytes::from_owner(memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_values_are_zeros_that_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut values = ScratchValues::new(folder.path(), 5000).unwrap();
        assert!(values.iter().all(|value| *value == 0.0) && values.len() == 5000);
        values[4999] = 2.5;
        values.expect(4000..5000);
        assert_eq!(values[4998..], [0.0, 2.5]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        assert!(ScratchValues::new(&folder.path().join("none"), 1).is_err());
        assert!(ScratchValues::new(folder.path(), 1 << 58).is_err(), "more than any disk has");
    }

    #[test]
    fn memory_of_one_process_is_that_of_others() {
        let own = HostMemory::new().unwrap();
        let address = own.address().unwrap();
        let other = HostMemory::open(&address).unwrap();
        assert!(own.is_own() && !other.is_own() && other.is_empty());
        assert!(allocate(8, Some(&other)).is_err(), "only its own process makes room");
        allocate(8, Some(&own)).unwrap().copy_from_slice(b"seven by");
        assert!(!other.is_empty() && allocate(9, Some(&other)).is_err());
        // Once it is open, neither the number of the owning process nor its mapping matters.
        drop(own);
        assert_eq!(frozen(allocate(8, Some(&other)).unwrap()).as_slice(), b"seven by");
        assert!(other.file.set_len(4).is_err() && other.file.set_len(16).is_err(), "sealed");
    }

    #[test]
    fn more_than_is_free_is_refused_before_anything_is_taken() {
        let own = HostMemory::new().unwrap();
        let total = Memory::of_this_machine().total() as usize;
        let refused = allocate(total + 1, Some(&own)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        assert!(
            refused.to_string().contains("of feature rows do not fit in memory, "),
            "{refused}"
        );
        assert!(own.is_empty());
        assert_eq!(allocate(8, Some(&own)).unwrap().len(), 8, "less is given after that");
    }

    #[test]
    fn what_is_not_that_memory_is_not_opened() {
        let (own, another) = (HostMemory::new().unwrap(), HostMemory::new().unwrap());
        let [address, of_another] = [&own, &another].map(|memory| memory.address().unwrap());
        for wrong in [
            MemoryAddress { identity: of_another.identity, ..address.clone() },
            MemoryAddress { process: u32::MAX, ..address.clone() },
            MemoryAddress { descriptor: 0, ..address.clone() },
            MemoryAddress { descriptor: -1, ..address },
        ] {
            assert!(HostMemory::open(&wrong).is_err(), "{wrong:?}");
        }
    }
}
