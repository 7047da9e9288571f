//! Reads feature rows from their file, with many reads in flight, and keeps some rows in memory.
//!
//! Returns: the stored bytes of the rows of given vertices, each with its scale. Input: a mapped
//! table, and the vertices whose rows stay in memory. Idea: the rows of a mini-batch are known
//! before any is used. They are sorted by their place in the file. Rows in the same block, or at
//! most a block apart, share a read, and [`IN_FLIGHT`] reads are in flight at a time, as many as an
//! SSD needs for its full rate. Kept rows are copied meanwhile. Reads bypass the page cache if the
//! file system allows it: only kept rows stay in memory, and a random row costs one block instead
//! of a page that evicts another (`store/examples/reads.rs` measures both). The scales of i8 rows
//! are stored elsewhere in the file and stay in memory, 4 bytes per row. Cost: a 4 KiB block for
//! each row without a neighbour nearby. Memory: the kept rows, and [`MEMORY`] for each thread that
//! reads at the same time.
//!
//! Why not the mapped file: a page fault waits for one read, and a thread has only one at a time.
//! The system reads ahead at each fault, megabytes on some disks. A thread in a fault handles no
//! signal, and a disk error is a SIGBUS.
//!
//! ```text
//! runs.rs      rows that are read together
//! ring.rs      reads in flight by io_uring
//! threads.rs   the same by threads, where the kernel has no io_uring or forbids it
//! rates.rs     how fast a disk is so
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_buffer::Buffer;
use memmap2::MmapMut;
use rayon::prelude::*;

use crate::mmap::{HostMemory, allocate, frozen};
use crate::{Error, Result, RowIndex, open_file};

mod rates;
#[cfg(target_os = "linux")]
mod ring;
mod runs;
mod threads;

#[cfg(test)]
mod tests;

pub use rates::DiskRates;
pub(super) use runs::Layout;
pub use runs::planned_reads;
use runs::{Run, Runs};

/// Bytes that the start and length of a read past the page cache are multiples of.
const BLOCK: u64 = 4096;
/// Maximum number of reads in flight per thread.
const IN_FLIGHT: usize = 128;
/// Maximum number of bytes of a read, unless a row is longer.
const PIECE: usize = 8 * BLOCK as usize;
/// Bytes of all reads in flight on a thread, unless rows are so long that eight take more.
const MEMORY: usize = 4 << 20;
/// Number of kept rows copied between two checks for finished reads.
const KEPT_AT_ONCE: usize = 64;
/// Time after which a thread that waits for reads checks whether it should stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// Way in which reads are kept in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBy {
    /// The kernel's io_uring.
    Ring,
    /// Threads, each with a read at a time.
    Threads,
}

impl std::fmt::Display for ReadBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ring => "io_uring",
            Self::Threads => "threads",
        })
    }
}

/// Options for reading; the default is the fastest way that this machine supports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// How reads are kept in flight; `None` uses io_uring if the kernel allows it.
    pub by: Option<ReadBy>,
    /// Whether reads go through the page cache; `None` uses it only if the file system requires it.
    pub cached: Option<bool>,
    /// Becomes true when reading is to stop.
    pub stop: Option<&'static AtomicBool>,
}

/// Number of requested rows, by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsRead {
    /// Rows that were read from the file.
    pub read: u64,
    /// Bytes read for these rows, in whole blocks.
    pub bytes: u64,
    /// Rows that were in memory.
    pub kept: u64,
}

impl std::ops::AddAssign for RowsRead {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.bytes += other.bytes;
        self.kept += other.kept;
    }
}

/// Callback that receives the index of a row among the requested rows, its stored bytes, and its
/// scale.
pub type VisitRow<'a> = dyn FnMut(usize, &[u8], f32) + 'a;

/// Result of a read: its slot, and the number of bytes.
type Finished = (usize, io::Result<usize>);

/// Reads in flight, each in a slot with memory of its own.
trait Queue: Send {
    /// Begins to read `length` bytes at `offset` into the free slot `slot`.
    fn start(&mut self, slot: usize, offset: u64, length: usize) -> io::Result<()>;
    /// Returns a read that has finished, and frees its slot; `None` if none has within `wait`.
    fn next(&mut self, wait: Duration) -> io::Result<Option<Finished>>;
    /// Bytes of the free slot `slot`.
    fn bytes(&self, slot: usize) -> &[u8];
}

/// The rows of a file, some of them kept in memory.
pub(super) struct RowReads {
    path: PathBuf,
    /// The file through the page cache, used to retry reads that a queue could not complete.
    file: File,
    /// The file as queues read it.
    queued: Arc<File>,
    how: (ReadBy, bool),
    layout: Layout,
    /// Most reads in flight.
    in_flight: usize,
    /// Scale of every row, where they have one.
    scales: Vec<f32>,
    kept: RowIndex,
    /// Positions of the kept rows, which ascend.
    kept_positions: Buffer,
    kept_rows: Buffer,
    /// Queues that no thread uses.
    idle: Mutex<Vec<Box<dyn Queue>>>,
    stop: Option<&'static AtomicBool>,
}

impl std::fmt::Debug for RowReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowReads")
            .field("path", &self.path)
            .field("how", &self.how)
            .finish_non_exhaustive()
    }
}

impl RowReads {
    /// Opens the file at `path` with rows placed by `layout`, and reads the rows at the ascending
    /// positions `kept`; or takes the kept rows and their positions from a host's shared memory.
    pub fn open(
        path: &Path,
        layout: Layout,
        kept: &[u32],
        host: Option<&HostMemory>,
        how: &Reading,
    ) -> Result<Self> {
        let io = || Error::io(path);
        let file = open_file(path).map_err(io())?;
        let direct = if how.cached == Some(true) { None } else { past_the_cache(path) };
        let cached = direct.is_none();
        let queued = match direct {
            Some(file) => file,
            None => {
                let file = open_file(path).map_err(io())?;
                // Reading ahead is useless for random rows. A system without this advice reads
                // more.
                #[cfg(target_os = "linux")]
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
                file
            }
        };
        let (queued, slots) = (Arc::new(queued), layout.slots());
        let wanted = how.by.unwrap_or(ReadBy::Ring);
        let (by, queue) = match if wanted == ReadBy::Ring { ring(&queued, slots) } else { None } {
            Some(queue) => (ReadBy::Ring, queue),
            None => (ReadBy::Threads, threads(&queued, slots).map_err(io())?),
        };
        let mut scales = Vec::with_capacity(layout.scales.len() * super::ROWS_PER_BATCH);
        for &(offset, rows) in &layout.scales {
            let mut batch = vec![0f32; rows];
            exactly(path, &file, offset, bytemuck::cast_slice_mut(&mut batch))?;
            scales.extend(batch);
        }
        let mut reads = Self {
            path: path.to_path_buf(),
            file,
            queued,
            how: (by, cached),
            in_flight: slots.0,
            layout,
            scales,
            kept: RowIndex::none(),
            kept_positions: Buffer::from(&[]),
            kept_rows: Buffer::from(&[]),
            idle: Mutex::new(vec![queue]),
            stop: how.stop,
        };
        // First the rows, aligned as a GPU needs them, then their positions.
        let (position, row) = (size_of::<u32>(), reads.layout.row);
        let end_of = |rows: usize| (rows * row).next_multiple_of(size_of::<u32>());
        let memory = match host.filter(|host| !host.is_own()) {
            Some(host) if host.is_empty() => None,
            Some(host) => Some(allocate(host.len(), Some(host)).map_err(io())?),
            None if kept.is_empty() => None,
            None => {
                let mut memory =
                    allocate(end_of(kept.len()) + size_of_val(kept), host).map_err(io())?;
                let (rows, positions) = memory.split_at_mut(end_of(kept.len()));
                positions.copy_from_slice(bytemuck::cast_slice(kept));
                reads.read(kept.iter().copied(), &mut |at, bytes, _| {
                    rows[at * row..][..row].copy_from_slice(bytes)
                })?;
                Some(memory)
            }
        };
        if let Some(memory) = memory.map(frozen) {
            let fits = |rows: &usize| end_of(*rows) + rows * position <= memory.len();
            let rows = (0..=memory.len() / (row + position)).rev().find(fits).unwrap_or(0);
            (reads.kept_rows, reads.kept_positions) =
                (memory.slice_with_length(0, rows * row), memory.slice(end_of(rows)));
            reads.kept =
                RowIndex::new(reads.layout.rows, reads.kept().0).map_err(Error::Invalid)?;
        }
        Ok(reads)
    }

    /// Positions and bytes of the rows that are kept, in the same order.
    pub fn kept(&self) -> (&[u32], &[u8]) {
        (bytemuck::cast_slice(&self.kept_positions), &self.kept_rows)
    }

    /// How they are read, and whether through the page cache.
    pub fn how(&self) -> (ReadBy, bool) {
        self.how
    }

    /// Hands the rows at `positions` of the file to `each`, in any order.
    pub fn read(
        &self,
        positions: impl Iterator<Item = u32>,
        each: &mut VisitRow<'_>,
    ) -> Result<RowsRead> {
        let (mut kept, mut missing) = (Vec::new(), Vec::new());
        for (at, position) in (0u32..).zip(positions) {
            match self.kept.row_of(position) {
                Some(_) => kept.push((position, at)),
                None => missing.push((position, at)),
            }
        }
        missing.par_sort_unstable();
        let runs = Runs::new(&self.layout, &missing);
        let mut queue = self.idle().pop().map_or_else(|| self.queue(), Ok)?;
        // A queue that failed is dropped together with its reads in flight.
        let bytes = self.run(queue.as_mut(), runs, &kept, each)?;
        self.idle().push(queue);
        Ok(RowsRead { read: missing.len() as u64, bytes, kept: kept.len() as u64 })
    }

    /// Reads all `runs` through `queue`, and copies the `kept` rows; returns the bytes read.
    fn run<'r>(
        &self,
        queue: &mut dyn Queue,
        mut runs: Runs<'r>,
        kept: &[(u32, u32)],
        each: &mut VisitRow<'_>,
    ) -> Result<u64> {
        let count = self.in_flight.min(self.layout.slots().0);
        let mut free: Vec<usize> = (0..count).collect();
        let mut active: Vec<Option<Run<'r>>> = (0..count).map(|_| None).collect();
        let (mut kept, mut bytes) = (kept.chunks(KEPT_AT_ONCE), 0);
        loop {
            while let Some(&slot) = free.last()
                && let Some(run) = runs.next()
            {
                queue.start(slot, run.start, run.length).map_err(Error::io(&self.path))?;
                bytes += run.length as u64;
                active[slot] = Some(run);
                free.pop();
            }
            let copied = kept.next();
            for &(position, at) in copied.unwrap_or_default() {
                each(at as usize, self.kept_row(position), self.scale(position));
            }
            if free.len() == count {
                match copied {
                    Some(_) => continue,
                    None => return Ok(bytes),
                }
            }
            let mut wait = if copied.is_some() { Duration::ZERO } else { PATIENCE };
            while let Some((slot, got)) = queue.next(wait).map_err(Error::io(&self.path))? {
                wait = Duration::ZERO;
                free.push(slot);
                if let Some(run) = active[slot].take() {
                    self.deliver(&run, got, queue.bytes(slot), each)?;
                }
                if free.len() >= count / 4 {
                    break;
                }
            }
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(Error::Interrupted);
            }
        }
    }

    /// Passes the rows of `run` to `each`; `got` is the number of bytes that a queue read.
    fn deliver(
        &self,
        run: &Run<'_>,
        got: io::Result<usize>,
        bytes: &[u8],
        each: &mut VisitRow<'_>,
    ) -> Result<()> {
        let again;
        let bytes = match got {
            Ok(got) if got >= run.needed => bytes,
            // The end of the file, a signal or an error: reading again synchronously shows which.
            _ => {
                // Aligned for every type of values.
                let mut all = vec![0u64; run.needed.div_ceil(size_of::<u64>())];
                let wanted = &mut bytemuck::cast_slice_mut(&mut all)[..run.needed];
                exactly(&self.path, &self.file, run.start, wanted)?;
                again = all;
                bytemuck::cast_slice(&again)
            }
        };
        for &(position, at) in run.rows {
            let from = (self.layout.offset(position) - run.start) as usize;
            each(at as usize, &bytes[from..from + self.layout.row], self.scale(position));
        }
        Ok(())
    }

    fn kept_row(&self, position: u32) -> &[u8] {
        let (row, at) = (self.layout.row, self.kept.row_of(position).unwrap_or(0));
        &self.kept_rows[at * row..][..row]
    }

    fn scale(&self, position: u32) -> f32 {
        self.scales.get(position as usize).copied().unwrap_or(1.0)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Queue>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another queue, for a thread that reads while the others are in use.
    fn queue(&self) -> Result<Box<dyn Queue>> {
        let ring =
            if self.how.0 == ReadBy::Ring { ring(&self.queued, self.layout.slots()) } else { None };
        ring.map_or_else(|| threads(&self.queued, self.layout.slots()), Ok)
            .map_err(Error::io(&self.path))
    }
}

/// Memory of a slot, which begins at a multiple of [`BLOCK`].
fn slot_memory(count: usize, bytes: usize) -> io::Result<Vec<MmapMut>> {
    (0..count).map(|_| MmapMut::map_anon(bytes)).collect()
}

/// A queue by io_uring, if the kernel has it and reads `file` so.
fn ring(file: &Arc<File>, slots: (usize, usize)) -> Option<Box<dyn Queue>> {
    #[cfg(target_os = "linux")]
    return ring::Ring::new(file.clone(), slots).ok().map(|ring| Box::new(ring) as Box<dyn Queue>);
    #[cfg(not(target_os = "linux"))]
    return None;
}

fn threads(file: &Arc<File>, slots: (usize, usize)) -> io::Result<Box<dyn Queue>> {
    Ok(Box::new(threads::Threads::new(file.clone(), slots)?))
}

/// The file at `path` past the page cache, if its file system can read it so.
fn past_the_cache(path: &Path) -> Option<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(direct).open(path).ok()?;
        let mut memory = MmapMut::map_anon(BLOCK as usize).ok()?;
        file.read_at(&mut memory, 0).ok().map(|_| file)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Fills `bytes` from `offset` of the file on.
fn exactly(path: &Path, file: &File, offset: u64, bytes: &mut [u8]) -> Result<()> {
    file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let (end, now) =
                (offset + bytes.len() as u64, file.metadata().map_or(0, |file| file.len()));
            Error::corrupt(
                path,
                format!("ends at byte {now}, rows reach to {end}: it was cut while it was read"),
            )
        }
        _ => Error::io(path)(error),
    })
}
