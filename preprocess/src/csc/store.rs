//! Store of bucketed edges until all are read: in memory, and beyond their share of it in runs on
//! disk.
//!
//! A run is written when the edges in memory become too many: all of them, ordered by bucket:
//! `sources` (u32), `targets` (u16) and values of the first bucket, then of the next. It is written
//! in one sweep and read back in few large reads, so that the disk never seeks for single edges.
//!
//! Chunks are moved to disk in the order of the input, so runs precede the chunks in memory, and
//! the edges of a bucket are found in the input's order.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::chunk::Chunk;
use crate::edges::lock;
use crate::{Error, Result};

/// Bytes of a source and the low bits of a target.
pub const EDGE_BYTES: u64 = 6;
/// Edges that are read from disk at a time.
const EDGES_PER_READ: u64 = 1 << 18;

/// Bucketed edges, added by many threads.
pub struct EdgeStore {
    path: PathBuf,
    value_bytes: usize,
    /// Maximum bytes of chunks before they are moved to disk. Meanwhile as many bytes again may be
    /// added.
    limit: u64,
    memory: Mutex<InMemory>,
    disk: Mutex<OnDisk>,
}

#[derive(Default)]
struct InMemory {
    chunks: Vec<Chunk>,
    bytes: u64,
    /// Number of the first chunk that is not yet on disk.
    next: u64,
}

/// Runs, one behind the other in one file.
#[derive(Default)]
struct OnDisk {
    file: Option<File>,
    end: u64,
    runs: Vec<Run>,
}

/// Part of the edges, on disk: bucket, where its bytes start, and its edges; ascending.
type Run = Vec<(u32, u64, u64)>;

/// All edges, when every chunk was added.
pub struct Stored {
    path: PathBuf,
    file: Option<File>,
    /// On disk, the earlier ones first.
    pub runs: Vec<Run>,
    /// In memory, in the order of the input.
    pub chunks: Vec<Chunk>,
    /// Bytes of one edge's values.
    pub value_bytes: usize,
}

impl EdgeStore {
    /// For edges with `value_bytes` of values each. Runs go to `folder`, which is made if need be,
    /// when more than `memory` bytes are held.
    pub fn new(folder: &Path, value_bytes: usize, memory: u64) -> Self {
        Self {
            path: folder.join("runs"),
            value_bytes,
            limit: memory / 2,
            memory: Mutex::new(InMemory { next: 1, ..InMemory::default() }),
            disk: Mutex::default(),
        }
    }

    /// Adds a chunk; chunks are numbered from 1 without gaps, and may come in any order. Number 0
    /// may come last.
    pub fn add(&self, chunk: Chunk) -> Result<()> {
        let full = {
            let mut memory = lock(&self.memory);
            memory.bytes += chunk.bytes();
            memory.chunks.push(chunk);
            memory.bytes > self.limit
        };
        if !full {
            return Ok(());
        }
        let mut disk = lock(&self.disk);
        let leaving = {
            let mut memory = lock(&self.memory);
            if memory.bytes <= self.limit {
                return Ok(()); // another thread was first
            }
            memory.take_front()
        };
        match leaving.is_empty() {
            true => Ok(()),
            false => {
                disk.write(&self.path, &leaving, self.value_bytes).map_err(Error::io(&self.path))
            }
        }
    }

    /// The edges that were added.
    pub fn finish(self) -> Stored {
        let mut memory = self.memory.into_inner().unwrap_or_else(PoisonError::into_inner);
        memory.chunks.sort_unstable_by_key(|chunk| chunk.number);
        let OnDisk { file, runs, .. } =
            self.disk.into_inner().unwrap_or_else(PoisonError::into_inner);
        Stored { path: self.path, file, runs, chunks: memory.chunks, value_bytes: self.value_bytes }
    }
}

impl InMemory {
    /// The chunks that follow those on disk without a gap.
    fn take_front(&mut self) -> Vec<Chunk> {
        self.chunks.sort_unstable_by_key(|chunk| chunk.number);
        let start = usize::from(self.chunks.first().is_some_and(|chunk| chunk.number == 0));
        let follows = |(at, chunk): (usize, &Chunk)| chunk.number == self.next + at as u64;
        let count =
            self.chunks[start..].iter().enumerate().take_while(|&pair| follows(pair)).count();
        let front: Vec<Chunk> = self.chunks.drain(start..start + count).collect();
        self.next += count as u64;
        self.bytes -= front.iter().map(Chunk::bytes).sum::<u64>();
        front
    }
}

impl OnDisk {
    /// Appends `chunks` as a run.
    fn write(&mut self, path: &Path, chunks: &[Chunk], value_bytes: usize) -> std::io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
                let file = File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .open(path)?;
                self.file.insert(file)
            }
        };
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut run = Run::new();
        let mut parts: Vec<(u32, InChunk)> = parts_of(chunks, 0).collect();
        parts.sort_by_key(|(bucket, _)| *bucket); // stable: the chunks stay in order
        for bucket in parts.chunk_by(|a, b| a.0 == b.0) {
            let edges: u64 = bucket.iter().map(|(_, part)| part.range().len() as u64).sum();
            run.push((bucket[0].0, self.end, edges));
            self.end += edges * (EDGE_BYTES + value_bytes as u64);
            for (_, part) in bucket {
                out.write_all(bytemuck::cast_slice(&chunks[part.chunk].sources[part.range()]))?;
            }
            for (_, part) in bucket {
                out.write_all(bytemuck::cast_slice(&chunks[part.chunk].targets[part.range()]))?;
            }
            for (_, part) in bucket {
                out.write_all(part.values(&chunks[part.chunk], value_bytes))?;
            }
        }
        out.flush()?;
        drop(out);
        self.runs.push(run);
        Ok(())
    }
}

/// The edges of one bucket in one chunk.
#[derive(Clone, Copy, Debug)]
struct InChunk {
    chunk: usize,
    start: u32,
    end: u32,
}

impl InChunk {
    fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn values<'a>(&self, chunk: &'a Chunk, width: usize) -> &'a [u8] {
        &chunk.values[self.start as usize * width..self.end as usize * width]
    }
}

/// Every bucket of every chunk; the first of `chunks` is number `base`.
fn parts_of(chunks: &[Chunk], base: usize) -> impl Iterator<Item = (u32, InChunk)> {
    (base..).zip(chunks).flat_map(|(chunk, edges)| {
        let mut start = 0;
        edges.ends.iter().map(move |&(bucket, end)| {
            (bucket, InChunk { chunk, start: std::mem::replace(&mut start, end), end })
        })
    })
}

/// The edges of one bucket, or some of them, in the order of the input.
#[derive(Debug, Default)]
pub struct BucketEdges {
    /// Source of each.
    pub sources: Vec<u32>,
    /// The low bits of the target of each edge.
    pub targets: Vec<u16>,
    /// The values of each.
    pub values: Vec<u8>,
}

/// Takes edges of a bucket: their sources, the low bits of their targets, and their values.
pub type TakeEdges<'a> = dyn FnMut(&[u32], &[u16], &[u8]) + 'a;

/// Places of the edges of one bucket.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The bucket.
    pub bucket: u32,
    /// Number of its edges.
    pub edges: u64,
    parts: Vec<BucketPart>,
}

#[derive(Clone, Debug)]
enum BucketPart {
    Run { offset: u64, edges: u64 },
    Chunk(InChunk),
}

impl Stored {
    /// Every bucket that has edges, ascending.
    pub fn buckets(&self) -> Vec<Parts> {
        // Chunk 0 is the beginning of the input, which was reported last.
        let (first, later) =
            self.chunks.split_at(usize::from(self.chunks.first().is_some_and(|c| c.number == 0)));
        let in_memory = |(bucket, part)| (bucket, BucketPart::Chunk(part));
        let on_disk = self.runs.iter().flatten();
        let on_disk =
            on_disk.map(|&(bucket, offset, edges)| (bucket, BucketPart::Run { offset, edges }));
        let later = parts_of(later, first.len()).map(in_memory);
        let mut found: Vec<(u32, BucketPart)> =
            parts_of(first, 0).map(in_memory).chain(on_disk).chain(later).collect();
        found.sort_by_key(|(bucket, _)| *bucket);
        let buckets = found.chunk_by(|a, b| a.0 == b.0).map(|parts| {
            let bucket = parts[0].0;
            let parts: Vec<BucketPart> = parts.iter().map(|(_, part)| part.clone()).collect();
            Parts { bucket, edges: parts.iter().map(BucketPart::edges).sum(), parts }
        });
        buckets.collect()
    }

    /// Passes the bucket's edges to `take` in the order of the input. Parts in memory are passed
    /// without copying.
    pub fn for_each(&self, parts: &Parts, take: &mut TakeEdges<'_>) -> Result<()> {
        let (width, mut room) = (self.value_bytes, BucketEdges::default());
        let row = EDGE_BYTES + width as u64;
        for part in &parts.parts {
            match *part {
                BucketPart::Chunk(part) => {
                    let chunk = &self.chunks[part.chunk];
                    take(
                        &chunk.sources[part.range()],
                        &chunk.targets[part.range()],
                        part.values(chunk, width),
                    );
                }
                BucketPart::Run { offset, edges } => {
                    let mut done = 0;
                    while done < edges {
                        let count = (edges - done).min(EDGES_PER_READ);
                        self.read_run(offset..offset + edges * row, done, count, &mut room)?;
                        take(&room.sources, &room.targets, &room.values);
                        done += count;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads `count` edges from number `first` on of those at `place` in the file.
    fn read_run(
        &self,
        place: Range<u64>,
        first: u64,
        count: u64,
        room: &mut BucketEdges,
    ) -> Result<()> {
        let width = self.value_bytes as u64;
        let edges = (place.end - place.start) / (EDGE_BYTES + width);
        room.sources.resize(count as usize, 0);
        room.targets.resize(count as usize, 0);
        room.values.resize((count * width) as usize, 0);
        let read = |bytes: &mut [u8], at: u64| match &self.file {
            Some(file) => file.read_exact_at(bytes, place.start + at),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        read(bytemuck::cast_slice_mut(&mut room.sources), 4 * first)
            .and_then(|()| read(bytemuck::cast_slice_mut(&mut room.targets), 4 * edges + 2 * first))
            .and_then(|()| read(&mut room.values, EDGE_BYTES * edges + width * first))
            .map_err(Error::io(&self.path))
    }

    /// The edges of the bucket to the targets in `range`, of which there are `edges`, in the order
    /// of the input.
    pub fn read(&self, parts: &Parts, range: &Range<usize>, edges: u64) -> Result<BucketEdges> {
        let (mut all, width) = (BucketEdges::default(), self.value_bytes);
        all.sources.reserve(edges as usize);
        all.targets.reserve(edges as usize);
        all.values.reserve(edges as usize * width);
        self.for_each(parts, &mut |sources, targets, values| {
            if edges == parts.edges {
                all.sources.extend_from_slice(sources);
                all.targets.extend_from_slice(targets);
                all.values.extend_from_slice(values);
                return;
            }
            for (at, (&source, &target)) in sources.iter().zip(targets).enumerate() {
                if range.contains(&usize::from(target)) {
                    all.sources.push(source);
                    all.targets.push(target);
                    all.values.extend_from_slice(&values[at * width..(at + 1) * width]);
                }
            }
        })?;
        Ok(all)
    }
}

impl BucketPart {
    fn edges(&self) -> u64 {
        match self {
            Self::Run { edges, .. } => *edges,
            Self::Chunk(part) => part.range().len() as u64,
        }
    }
}
