//! Reading all edges: pieces of the input become chunks, on every thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use gsplit_store::Progress;

use super::Build;
use super::chunk::{Bucketer, LARGEST_SHIFT};
use super::pieces::for_each_parallel;
use super::presence::{Presence, Ranks};
use super::store::{EdgeStore, Stored};
use super::weights::WeightPlace;
use crate::edges::{
    EDGES_PER_PIECE, EdgeBatch, EdgeSource, Piece, Seen, for_each_batch, row_bytes,
};
use crate::read::raw::Ids;
use crate::read::raw::plausible;
use crate::{Error, Result};

/// All edges, in buckets.
pub struct Ingested {
    /// The edges.
    pub stored: Stored,
    /// Bits of a target within its bucket.
    pub shift: u32,
    /// Number of vertices.
    pub num_vertices: u64,
    /// The ids that occur, where they are to be compacted and have gaps.
    pub ranks: Option<Ranks>,
    /// Edges of the input.
    pub edges: u64,
    /// Edges of the input from a vertex to itself.
    pub self_loops: u64,
    /// Edges of the input without a weight, where edges have weights.
    pub weights_missing: u64,
    /// Number of distinct ids, 0 where they were not counted.
    distinct: u64,
}

impl Ingested {
    /// Fails when only a damaged count or id explains the number of vertices.
    pub fn check_size(&self) -> Result<()> {
        plausible(self.num_vertices, self.edges.max(self.distinct)).map_err(Error::Graph)
    }
}

/// Target number of buckets: the edges of one stay in a core's cache while they are sorted, and all
/// of them can be filled at once.
const BUCKETS: u64 = 1024;
const SMALLEST_SHIFT: u32 = 8;
/// Bytes that a bitmap of ids may always take.
const LEAST_PRESENCE: u64 = 4 << 20;

/// Memory that a thread takes for the piece and the chunk under way, in bytes.
pub fn thread_bytes(value_bytes: usize) -> u64 {
    (4 << 20) + EDGES_PER_PIECE as u64 * (48 + 3 * value_bytes as u64)
}

/// Bits of a target within its bucket for about `vertices` ids, which is only a hint.
pub fn bucket_shift(vertices: u64) -> u32 {
    (vertices.max(1) / BUCKETS)
        .max(1)
        .ilog2()
        .saturating_add(1)
        .clamp(SMALLEST_SHIFT, LARGEST_SHIFT)
}

/// State that the threads share.
struct Shared {
    store: EdgeStore,
    /// Whether ids are to be compacted.
    sparse: bool,
    presence: Option<Presence>,
    /// Bytes that the presence may take.
    presence_limit: u64,
    /// Ids that are not compacted were too scattered to be counted.
    lost_count: AtomicBool,
    /// Id of vertex 0.
    first: u64,
    /// Ids must be below this.
    limit: u64,
    edges: AtomicU64,
    loops: AtomicU64,
    weights: Option<WeightPlace>,
    weights_missing: AtomicU64,
    /// Largest id and one.
    end: AtomicU64,
}

/// Why reading ends early.
enum Stop {
    Failed(Error),
    TooSparse,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Number of threads that read pieces: all of them, if half of `memory` is enough for the memory of
/// each.
pub fn num_threads(memory: u64, value_bytes: usize) -> usize {
    let enough = (memory / 2 / thread_bytes(value_bytes)).max(1);
    rayon::current_num_threads().min(usize::try_from(enough).unwrap_or(usize::MAX))
}

/// The largest id in the first pieces, and one: not exact, but of the right size.
fn sampled_end(source: &dyn EdgeSource) -> Result<u64> {
    const PIECES: usize = 4;
    let (mut piece, mut batch) = (Piece::default(), EdgeBatch::default());
    source.rewind()?;
    let mut end = 0;
    for _ in 0..PIECES {
        if !source.next(&mut piece)? {
            break;
        }
        batch.clear();
        // Errors of the input are reported when it is read.
        if source.parse(&mut piece, &mut batch).is_ok() {
            let largest = batch.sources.iter().chain(&batch.targets).max();
            end = end.max(largest.map_or(0, |largest| largest.saturating_add(1)));
        }
    }
    Ok(end)
}

/// Reads `build.source`. `None` when ids are to be compacted and are too large or too scattered for
/// a bitmap.
pub fn ingest(build: &Build<'_>, memory: u64, progress: &dyn Progress) -> Result<Option<Ingested>> {
    let vertices = match build.ids {
        Ids::Dense(Some(n)) | Ids::FromOne(n) | Ids::Rows { rows: n, .. } => n,
        _ => build.source.estimate()?.vertices.max(sampled_end(build.source)?),
    };
    let value_bytes = row_bytes(build.source.columns());
    let shift = bucket_shift(vertices);
    let threads = num_threads(memory, value_bytes);
    let fixed = threads as u64 * thread_bytes(value_bytes) + vertices.min(1 << 32) / 5;
    let shared = Shared {
        store: EdgeStore::new(
            &build.scratch,
            value_bytes,
            memory.saturating_sub(fixed).max(memory / 4),
        ),
        sparse: build.ids == Ids::Sparse,
        presence: build.ids.num_vertices().is_none().then(Presence::new),
        presence_limit: (memory / 4).max(LEAST_PRESENCE),
        lost_count: AtomicBool::new(false),
        first: build.ids.first(),
        limit: match build.ids {
            Ids::Rows { vertices, rows } => vertices.max(rows),
            ids => ids.num_vertices().map_or(1 << 32, |n| n.min(1 << 32) + ids.first()),
        },
        edges: AtomicU64::new(0),
        loops: AtomicU64::new(0),
        weights: WeightPlace::of(build.source.columns(), build.are_costs),
        weights_missing: AtomicU64::new(0),
        end: AtomicU64::new(0),
    };
    let bucketer = || Bucketer::new(shift, build.options, value_bytes, build.ids.first());
    let read = for_each_parallel(
        build.source,
        threads,
        "reading edges",
        progress,
        bucketer,
        |bucketer, number, batch| shared.take(number, batch, bucketer),
    );
    match read.and_then(|()| shared.finish(build, shift, progress)) {
        Ok(ingested) => Ok(Some(ingested)),
        Err(Stop::TooSparse) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

impl Shared {
    fn take(&self, number: u64, batch: &EdgeBatch, bucketer: &mut Bucketer) -> Result<(), Stop> {
        let sources = self.see(&batch.sources)?;
        let largest = sources.max(self.see(&batch.targets)?);
        self.edges.fetch_add(batch.len() as u64, Relaxed);
        if let Some(weights) = &self.weights {
            self.weights_missing.fetch_add(weights.missing(batch)?, Relaxed);
        }
        let (chunk, loops) = bucketer.sort(number, batch, largest.unwrap_or(0));
        self.loops.fetch_add(loops, Relaxed);
        Ok(self.store.add(chunk)?)
    }

    /// Counts ids among the vertices. Returns the largest.
    fn see(&self, ids: &[u64]) -> Result<Option<u64>, Stop> {
        let Some(largest) = ids.iter().copied().max() else { return Ok(None) };
        if largest >= self.limit {
            return Err(match self.sparse {
                true => Stop::TooSparse,
                false => Stop::Failed(self.too_large(largest)),
            });
        }
        if let Some(presence) = self.presence.as_ref().filter(|_| !self.lost_count.load(Relaxed))
            && !presence.add(ids, self.presence_limit)
        {
            if self.sparse {
                return Err(Stop::TooSparse);
            }
            self.lost_count.store(true, Relaxed);
        }
        self.end.fetch_max(largest + 1, Relaxed);
        Ok(Some(largest))
    }

    fn too_large(&self, id: u64) -> Error {
        match self.limit {
            limit if limit < 1 << 32 => {
                Error::Graph(format!("an edge names vertex {id}: expected ids below {limit}"))
            }
            _ => Error::Graph(format!(
                "vertex id {id} is too large for --keep-ids: expected ids below {}; leave it out, \
                 and ids are compacted",
                u32::MAX
            )),
        }
    }

    /// Adds ids that are known only at the end, and decides the range of vertices.
    fn finish(
        self,
        build: &Build<'_>,
        shift: u32,
        progress: &dyn Progress,
    ) -> Result<Ingested, Stop> {
        // If the number of vertices is stated, the columns of the table refuse other ids.
        if let Some(ids) = build.node_ids.filter(|_| build.ids.num_vertices().is_none()) {
            let mut seen = Ok(None);
            for_each_batch(ids, |batch| {
                if seen.is_ok() {
                    seen = self.see(&batch.sources);
                }
                Ok(())
            })?;
            seen?;
        }
        let counted = self.presence.as_ref().filter(|_| !self.lost_count.load(Relaxed));
        let seen = Seen {
            edges: self.edges.load(Relaxed),
            largest: self.end.load(Relaxed).checked_sub(1),
            distinct: counted.map(Presence::len),
            has_zero: counted.is_none_or(Presence::has_zero),
        };
        let ending = build.source.finish(&seen)?;
        ending.decisions.iter().for_each(|line| progress.decide(line));
        if let Some(last) = ending.last_id {
            const SOME: usize = 1 << 16;
            (1..=last).step_by(SOME).try_for_each(|id| {
                self.see(&(id..=last).take(SOME).collect::<Vec<_>>()).map(drop)
            })?;
        }
        if !ending.first.is_empty() {
            let mut bucketer =
                Bucketer::new(shift, build.options, row_bytes(build.source.columns()), self.first);
            self.take(0, &ending.first, &mut bucketer)?;
        }
        let end = self.end.load(Relaxed).saturating_sub(self.first);
        let stated = build.ids.num_vertices().or(ending.num_vertices);
        let ranks =
            self.presence.filter(|_| self.sparse && stated.is_none()).map(Presence::into_ranks);
        let ranks = ranks.filter(|ranks| !ranks.is_identity());
        let num_vertices = stated.unwrap_or(ranks.as_ref().map_or(end, Ranks::len));
        // There may be fewer rows than vertices, and their reader has checked them.
        let counts_all = ranks.is_none() && !matches!(build.ids, Ids::Rows { .. });
        if num_vertices > u64::from(u32::MAX) || (counts_all && num_vertices < end) {
            return Err(Stop::Failed(Error::Graph(format!(
                "{num_vertices} vertices, and an edge names vertex {}: expected ids below that, \
                 and at most {} vertices",
                end.saturating_sub(1),
                u32::MAX
            ))));
        }
        Ok(Ingested {
            stored: self.store.finish(),
            shift,
            num_vertices,
            ranks,
            edges: self.edges.into_inner(),
            self_loops: self.loops.into_inner(),
            weights_missing: self.weights_missing.into_inner(),
            distinct: seen.distinct.unwrap_or(0),
        })
    }
}
