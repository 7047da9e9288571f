//! Positions in the mixed frontier, for the sources that the segments drew.
//!
//! Returns: the mixed frontier extended by the new sources in order of first occurrence, and the
//! position of every source. Input: segments in the order of the frontier, and the mixed frontier
//! above them, of distinct vertices. Idea, for a layer with many edges compared with the vertices
//! ([`Bits`]): a bitmap marks the vertices of the mixed frontier. Its bits, counted up to a vertex,
//! give the vertex's rank, and `positions[rank]` its position: a hash table without collisions,
//! whose size is that of the mixed frontier, below a bitmap that fits into the cache. Each segment
//! has found its own first occurrences; one sweep over all bitmaps removes the ones that an earlier
//! segment has, and counts the rest, so that every segment knows where its new vertices go. For a
//! layer of few edges in a large graph ([`Sparse`]), where a sweep over the bitmap would take
//! longer than everything else: a hash table, on one thread. Cost: [`Bits`] 3 bits per vertex of
//! the graph and another for each segment; a cache hit and a miss to the third-level cache for each
//! edge. [`Sparse`] about 10 ns per edge. Why not a hash table for all: with ten times the size of
//! the positions it does not fit into the cache. Why not one position for each vertex of the graph:
//! memory proportional to the graph for each worker.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use super::segment::Segment;
use crate::error::KernelError;
use crate::id_map::IdMap;
use crate::prefetch::prefetch;
use crate::simd::vectorised;

/// Vertices per word of [`Bits::ranks`].
const PER_RANK: usize = 32;
/// Number of vertices by which bits and slots are prefetched.
const AHEAD: usize = 16;

/// Numbers vertices by counting bits.
#[derive(Default)]
pub(super) struct Bits {
    /// One bit per vertex: whether it is in the mixed frontier.
    members: Vec<u64>,
    /// For 32 vertices, the number of members before them (high half) and their bits.
    ranks: Vec<u64>,
    /// Position in the mixed frontier by rank. Atomic so that segments write side by side; no two
    /// write the same place.
    positions: Vec<AtomicU32>,
    /// Number of vertices of the mixed frontier that are in `members`.
    known: usize,
}

impl Bits {
    /// Forgets the vertices of `mixed_frontier`, the mixed frontier of the last mini-batch, and
    /// makes room for another graph.
    pub(super) fn restart(&mut self, mixed_frontier: &[u32], num_vertices: usize) {
        let words = num_vertices.div_ceil(64);
        let few = self.known < self.members.len() / 16;
        match mixed_frontier.get(..self.known) {
            Some(known) if few && self.members.len() == words => {
                known.iter().for_each(|&v| self.members[v as usize / 64] = 0);
            }
            _ => {
                self.members.clear();
                self.members.resize(if self.known > 0 { words } else { 0 }, 0);
            }
        }
        self.known = 0;
    }

    /// The bits of `mixed_frontier`, whose vertices must be below `num_vertices`.
    pub(super) fn members(
        &mut self,
        mixed_frontier: &[u32],
        num_vertices: usize,
    ) -> Result<&[u64], KernelError> {
        self.members.resize(num_vertices.div_ceil(64), 0);
        for &vertex in &mixed_frontier[self.known..] {
            if vertex as usize >= num_vertices {
                return Err(KernelError::VertexOutOfRange { vertex, num_vertices });
            }
            let word = &mut self.members[vertex as usize / 64];
            if *word >> (vertex % 64) & 1 != 0 {
                return Err(KernelError::RepeatedVertex { vertex });
            }
            *word |= 1 << (vertex % 64);
            // Updated here so that the bits are also cleared after an error.
            self.known += 1;
        }
        Ok(&self.members)
    }

    /// Extends `mixed_frontier` and writes the position of every source to `local`.
    pub(super) fn number(
        &mut self,
        segments: &mut [Segment],
        mixed_frontier: &mut Vec<u32>,
        local: &mut [u32],
    ) {
        let kept = self.sweep(segments);
        let frontier = mixed_frontier.len();
        let total = frontier + kept.iter().sum::<usize>();
        mixed_frontier.resize(total, 0);
        self.known = total;
        if self.positions.len() < total {
            self.positions.resize_with(total + total / 4, AtomicU32::default);
        }
        let (above, mut below) = mixed_frontier.split_at_mut(frontier);
        let portion = frontier.div_ceil(segments.len()).max(1);
        let portions = above.chunks(portion).chain(std::iter::repeat(&[][..]));
        let mut tasks = Vec::with_capacity(segments.len());
        let mut position = frontier;
        for (i, ((segment, above), kept)) in segments.iter().zip(portions).zip(kept).enumerate() {
            let (fresh, rest) = below.split_at_mut(kept);
            tasks.push((segment, (i * portion, above), (position, fresh)));
            position += kept;
            below = rest;
        }
        let this = &*self;
        each(tasks, |(segment, (first, above), (position, fresh))| {
            this.place(first, above);
            keep_first(segment, fresh);
            this.place(position, fresh);
        });

        let mut tasks = Vec::with_capacity(segments.len());
        let mut rest = local;
        for segment in segments.iter() {
            let (local, others) = rest.split_at_mut(segment.sources.len());
            tasks.push((segment, local));
            rest = others;
        }
        each(tasks, |(segment, local)| {
            vectorised!({
                let positions = &this.positions[..];
                for (local, rank) in local.iter_mut().zip(this.ranks_of(&segment.sources)) {
                    *local = positions[rank].load(Relaxed);
                }
            });
        });
    }

    /// Gives `members` the positions from `first` on.
    fn place(&self, first: usize, members: &[u32]) {
        vectorised!({
            let positions = &self.positions[..];
            for (position, rank) in (first as u32..).zip(self.ranks_of(members)) {
                positions[rank].store(position, Relaxed);
            }
        });
    }

    /// Leaves in each segment's bitmap only the vertices that no earlier segment has, adds them to
    /// the members, and ranks the members. Returns the number left in each segment.
    fn sweep(&mut self, segments: &mut [Segment]) -> Vec<usize> {
        let num_segments = segments.len();
        let words = self.members.len();
        self.ranks.resize(2 * words, 0);
        // Each task sweeps the same range of all bitmaps.
        let portion = words.div_ceil(num_segments).max(1);
        let mut tasks: Vec<_> =
            self.members.chunks_mut(portion).map(|members| (members, Vec::new())).collect();
        for segment in segments.iter_mut() {
            tasks
                .iter_mut()
                .zip(segment.seen.chunks_mut(portion))
                .for_each(|((_, seen), part)| seen.push(part));
        }
        let sweep = |(members, mut seen): (&mut [u64], Vec<&mut [u64]>)| {
            let mut kept = vec![0usize; num_segments];
            let mut before = 0;
            for (i, word) in members.iter_mut().enumerate() {
                before += word.count_ones() as usize;
                for (kept, seen) in kept.iter_mut().zip(&mut seen) {
                    let first = seen[i] & !*word;
                    *word |= first;
                    seen[i] = first;
                    *kept += first.count_ones() as usize;
                }
            }
            (kept, before)
        };
        let swept: Vec<(Vec<usize>, usize)> = each(tasks, sweep);
        let mut first = 0;
        let mut tasks = Vec::with_capacity(swept.len());
        for ((members, ranks), (kept, before)) in
            self.members.chunks(portion).zip(self.ranks.chunks_mut(2 * portion)).zip(&swept)
        {
            tasks.push((members, ranks, first));
            first += kept.iter().sum::<usize>() as u64 + *before as u64;
        }
        each(tasks, |(members, ranks, mut rank)| {
            for (&word, ranks) in members.iter().zip(ranks.chunks_exact_mut(2)) {
                let (low, high) = (word & 0xFFFF_FFFF, word >> 32);
                ranks[0] = rank << 32 | low;
                rank += u64::from(low.count_ones());
                ranks[1] = rank << 32 | high;
                rank += u64::from(high.count_ones());
            }
        });
        (0..num_segments).map(|i| swept.iter().map(|(kept, _)| kept[i]).sum()).collect()
    }

    /// Number of members before each of `members`. Prefetches bits; for the look-ups that use the
    /// ranks, the processor has enough loads under way by itself.
    #[inline(always)]
    fn ranks_of(&self, members: &[u32]) -> impl Iterator<Item = usize> {
        let ranks = &self.ranks[..];
        members.iter().enumerate().map(
            #[inline(always)]
            move |(i, &v)| {
                if let Some(&later) = members.get(i + AHEAD) {
                    prefetch(ranks, later as usize / PER_RANK);
                }
                let word = ranks[v as usize / PER_RANK];
                let before = word as u32 & ((1u32 << (v % PER_RANK as u32)) - 1);
                (word >> 32) as usize + before.count_ones() as usize
            },
        )
    }
}

/// Copies the vertices that are left in the segment to `kept`.
fn keep_first(segment: &Segment, kept: &mut [u32]) {
    let fresh = &segment.fresh[..segment.num_fresh];
    let mut places = kept.iter_mut();
    for (i, &v) in fresh.iter().enumerate() {
        if let Some(&later) = fresh.get(i + AHEAD) {
            prefetch(&segment.seen, later as usize / 64);
        }
        if segment.seen[v as usize / 64] >> (v % 64) & 1 != 0
            && let Some(place) = places.next()
        {
            *place = v;
        }
    }
}

/// The results of `task` on each of `tasks`, in parallel if there are several.
fn each<T: Send, R: Send>(tasks: Vec<T>, task: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
    if tasks.len() == 1 {
        tasks.into_iter().map(task).collect()
    } else {
        tasks.into_par_iter().map(task).collect()
    }
}

/// Numbers vertices by a hash table.
#[derive(Default)]
pub(super) struct Sparse {
    table: IdMap,
    /// Number of vertices of the mixed frontier that are in the table.
    known: usize,
}

impl Sparse {
    /// Forgets everything.
    pub(super) fn restart(&mut self) {
        self.table.clear();
        self.known = 0;
    }

    /// Puts `mixed_frontier`, whose vertices are below `num_vertices`, into the table.
    pub(super) fn add(
        &mut self,
        mixed_frontier: &[u32],
        num_vertices: usize,
    ) -> Result<(), KernelError> {
        for (position, &vertex) in (0..).zip(mixed_frontier).skip(self.known) {
            if vertex as usize >= num_vertices {
                return Err(KernelError::VertexOutOfRange { vertex, num_vertices });
            }
            if self.table.get_or_insert(vertex, position) != position {
                return Err(KernelError::RepeatedVertex { vertex });
            }
        }
        self.known = mixed_frontier.len();
        Ok(())
    }

    /// Extends `mixed_frontier`, which the table knows, and writes the position of every source to
    /// `local`.
    pub(super) fn number(
        &mut self,
        segments: &[Segment],
        mixed_frontier: &mut Vec<u32>,
        local: &mut [u32],
    ) {
        let mut rest = local;
        for Segment { sources, .. } in segments {
            let (local, others) = rest.split_at_mut(sources.len());
            rest = others;
            for (i, (local, &source)) in local.iter_mut().zip(sources).enumerate() {
                if let Some(&later) = sources.get(i + AHEAD) {
                    self.table.prefetch(later);
                }
                let next = mixed_frontier.len() as u32;
                *local = self.table.get_or_insert(source, next);
                if *local == next {
                    mixed_frontier.push(source);
                }
            }
        }
        self.known = mixed_frontier.len();
    }
}
