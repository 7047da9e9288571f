//! The edges by their source, some sources at a time.
//!
//! Idea: a range of sources at a time, as many as their edges fit the memory: all edges are read in
//! order, and those from the range are scattered into its rows, each of which is then sorted. Cost:
//! O(m) a range and sorting rows, parallel; 8 bytes an edge of the range and 8 a vertex.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gsplit_store::{Topology, out_degrees};
use rayon::prelude::*;

use crate::Result;

/// Vertices that one task handles together.
const ROWS_PER_TASK: usize = 1024;
/// Bytes of an edge while its range is handled.
const BYTES_AT_WORK: u64 = 8;

/// Hands the results of runs of sources to `keep`, in order, a range at a time whose edges take about
/// `memory` bytes at a time. `merge` adds a source with its out-edges, loops left out, to the result
/// of its run: they ascend, each a head and below it the edge's number in `counts`.
pub(crate) fn by_source<T: Default + Send>(
    topology: &Topology,
    counts: Option<&[u32]>,
    memory: u64,
    merge: impl Fn(u32, &[u64], &mut T) + Sync,
    mut keep: impl FnMut(Vec<T>) -> Result<()>,
) -> Result<()> {
    for (range, degrees) in ranges(topology, memory) {
        let (ends, mut edges) = scatter(topology, counts, range.start, &degrees);
        let mut tasks = Vec::with_capacity(ends.len() / ROWS_PER_TASK + 1);
        let (mut rest, mut start) = (&mut edges[..], 0);
        for (task, (ends, degrees)) in
            ends.chunks(ROWS_PER_TASK).zip(degrees.chunks(ROWS_PER_TASK)).enumerate()
        {
            let slots = degrees.iter().map(|&degree| degree as usize).sum::<usize>();
            let (mine, others) = rest.split_at_mut(slots);
            tasks.push((range.start + task * ROWS_PER_TASK, start, ends, degrees, mine));
            (rest, start) = (others, start + slots as u32);
        }
        let merged = tasks.into_par_iter().map(|(first, base, ends, degrees, slots)| {
            let (mut merged, mut start) = (T::default(), 0);
            for (u, (&end, &degree)) in (first as u32..).zip(ends.iter().zip(degrees)) {
                // A loop leaves its slot at the end of the row free.
                let row = &mut slots[start..(end - base) as usize];
                row.sort_unstable();
                merge(u, row, &mut merged);
                start += degree as usize;
            }
            merged
        });
        keep(merged.collect())?;
    }
    Ok(())
}

/// Ranges of sources whose edges take at most `memory` bytes, if it is not one source, with the
/// out-degrees of each.
fn ranges(topology: &Topology, memory: u64) -> impl Iterator<Item = (Range<usize>, Vec<u32>)> {
    let most = (memory / BYTES_AT_WORK).min(u64::from(u32::MAX));
    let degrees = out_degrees(topology.num_vertices(), topology.indices());
    let mut first = 0;
    std::iter::from_fn(move || {
        let mut edges = 0;
        let fits = |&&degree: &&u32| {
            edges += u64::from(degree);
            edges <= most
        };
        let fitting = degrees[first..].iter().take_while(fits).count();
        let range = first..(first + fitting.max(1)).min(degrees.len());
        first = range.end;
        (!range.is_empty()).then(|| (range.clone(), degrees[range].to_vec()))
    })
}

/// The edges of the sources from `first` on, which have at most as many as `degrees`, and the end of
/// each source's.
fn scatter(
    topology: &Topology,
    counts: Option<&[u32]>,
    first: usize,
    degrees: &[u32],
) -> (Vec<u32>, Vec<u64>) {
    let mut total = 0;
    let start = |&degree: &u32| {
        let start = total;
        total += degree;
        AtomicU32::new(start)
    };
    let cursors: Vec<AtomicU32> = degrees.iter().map(start).collect();
    let slots: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
    let vertices = (0..topology.num_vertices() as u32).into_par_iter().with_min_len(ROWS_PER_TASK);
    vertices.for_each(|v| {
        let edges = topology.indptr()[v as usize] as usize..;
        for (e, &u) in edges.zip(topology.in_neighbours(v)) {
            let at = (u as usize).wrapping_sub(first);
            if at < cursors.len() && u != v {
                let slot = cursors[at].fetch_add(1, Relaxed);
                let count = counts.map_or(0, |counts| counts[e]);
                slots[slot as usize].store(u64::from(v) << 32 | u64::from(count), Relaxed);
            }
        }
    });
    // Each cursor has moved to the end of its row.
    let ends = cursors.into_iter().map(AtomicU32::into_inner).collect();
    (ends, slots.into_iter().map(AtomicU64::into_inner).collect())
}
