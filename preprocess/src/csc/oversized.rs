//! A bucket that is larger than the memory there is: a hub, or ids that crowd together.
//!
//! Idea: the edges of the bucket are read several times, each time for a range of targets whose
//! lists fit. The list of a single vertex that does not fit is made for ranges of its sources,
//! whose duplicates meet there too. Cost: one more reading of the bucket for every share of memory
//! that it takes.

use std::ops::Range;

use super::assemble::Sink;
use super::bucket::Rules;
use super::store::{BucketEdges, Parts, Stored};
use crate::{Error, Result};

/// Edges that are read at a time.
const AT_A_TIME: usize = 1 << 18;
/// Sources of a range, as a power of two.
const SOURCE_SHIFT: u32 = 16;

/// Pushes the vertices of the bucket at `parts`, within about `memory` bytes.
pub fn push(
    stored: &Stored,
    parts: &Parts,
    rules: &Rules<'_>,
    memory: u64,
    sink: &mut Sink,
) -> Result<()> {
    let per_edge = 2 * (super::store::EDGE_BYTES + 4 + 2 * rules.value_bytes as u64);
    let fits = (memory / per_edge).clamp(1 << 12, u64::from(u32::MAX / 2));
    let mut counts = vec![0u64; 1 << rules.shift];
    read(stored, parts, |_, target, _| counts[usize::from(target)] += 1)?;
    for range in ranges(&counts, fits) {
        let total: u64 = counts[range.clone()].iter().sum();
        if total > fits {
            push_hub(stored, parts, rules, range.start as u16, fits, sink)?;
            continue;
        }
        let mut edges = BucketEdges::default();
        let wanted = range.start as u16..=(range.end - 1) as u16;
        read(stored, parts, |source, target, value| {
            if wanted.contains(&target) {
                edges.sources.push(source);
                edges.targets.push(target);
                edges.values.extend_from_slice(value);
            }
        })?;
        let lists = rules.lists_of(parts.bucket, range, &edges)?;
        sink.push(&lists)?;
    }
    Ok(())
}

/// Cuts positions into ranges whose counts add up to at most `fits`; a larger count has a range of
/// its own.
fn ranges(counts: &[u64], fits: u64) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut sum = 0;
    for (at, &count) in counts.iter().enumerate() {
        match ranges.last_mut().filter(|_| sum + count <= fits) {
            Some(range) => {
                range.end = at + 1;
                sum += count;
            }
            None => {
                ranges.push(at..at + 1);
                sum = count;
            }
        }
    }
    ranges
}

/// Pushes the one vertex `target`, range of sources after range.
fn push_hub(
    stored: &Stored,
    parts: &Parts,
    rules: &Rules<'_>,
    target: u16,
    fits: u64,
    sink: &mut Sink,
) -> Result<()> {
    let mut counts = vec![0u64; 1 << (u32::BITS - SOURCE_SHIFT)];
    read(stored, parts, |source, to, _| {
        counts[(source >> SOURCE_SHIFT) as usize] += u64::from(to == target)
    })?;
    for range in ranges(&counts, fits) {
        let total: u64 = counts[range.clone()].iter().sum();
        if total == 0 {
            continue;
        }
        if total > fits {
            let problem =
                "too many parallel edges between a few vertices for this memory: raise --memory";
            return Err(Error::Graph(problem.into()));
        }
        let mut edges = BucketEdges::default();
        read(stored, parts, |source, to, value| {
            if to == target && range.contains(&((source >> SOURCE_SHIFT) as usize)) {
                edges.sources.push(source);
                edges.targets.push(target);
                edges.values.extend_from_slice(value);
            }
        })?;
        let lists = rules.lists_of(parts.bucket, rules.whole(), &edges)?;
        sink.push_part(&lists)?;
    }
    sink.topology.end_vertex()?;
    Ok(())
}

/// Hands over every edge of the bucket.
fn read(stored: &Stored, parts: &Parts, mut take: impl FnMut(u32, u16, &[u8])) -> Result<()> {
    let width = stored.value_bytes;
    let mut room = BucketEdges::default();
    stored.for_each(parts, AT_A_TIME, &mut room, |sources, targets, values| {
        for (edge, (&source, &target)) in sources.iter().zip(targets).enumerate() {
            take(source, target, &values[edge * width..(edge + 1) * width]);
        }
        Ok(())
    })
}
