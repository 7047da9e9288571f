//! Buckets become the topology, in order: some are sorted while those before them are written.

use std::ops::Range;
use std::sync::mpsc::sync_channel;

use gsplit_store::{Progress, TopologyWriter, Unit};
use rayon::prelude::*;

use super::bucket::{Lists, Rules};
use super::columns::ColumnWriters;
use super::ingest::Ingested;
use super::store::{EDGE_BYTES, Parts, Stored};
use crate::{Error, Result};

/// Edges sorted between two hand-overs to the writer, for each thread.
const EDGES_PER_WAVE: u64 = 1 << 20;

/// Writers that take the lists.
pub struct Sink {
    /// Vertices and their in-neighbours.
    pub topology: TopologyWriter,
    /// The values of the edges.
    pub columns: ColumnWriters,
}

impl Sink {
    /// Appends the next vertices.
    pub fn push(&mut self, lists: &Lists) -> Result<()> {
        self.topology.push(&lists.degrees, &lists.indices)?;
        self.columns.push(&lists.values)
    }
}

/// Sorts all buckets and pushes all vertices to `sink`, within `memory` bytes in addition to the
/// edges held already.
pub fn assemble(
    ingested: &Ingested,
    rules: &Rules<'_>,
    memory: u64,
    sink: Sink,
    progress: &dyn Progress,
) -> Result<Sink> {
    let stored = &ingested.stored;
    let buckets = stored.buckets();
    let total = buckets.iter().map(|bucket| bucket.edges).sum();
    let stage = progress.stage("building the graph", Some(total), Unit::Items("edges"));
    // One wave is sorted, one is handed over, one is written.
    let waves = waves(stored, &buckets, rules, memory / 3)?;
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Vec<(u32, Lists)>>(0);
        let writer = scope.spawn(move || {
            let mut sink = sink;
            let mut next = 0;
            for (bucket, lists) in receiver.into_iter().flatten() {
                push_gap(rules, &mut sink, next, bucket)?;
                sink.push(&lists)?;
                next = bucket + 1;
            }
            push_gap(rules, &mut sink, next, u32::MAX)?;
            Ok(sink)
        });
        let mut failure = None;
        for wave in &waves {
            let sorted = wave.par_iter().map(|section| section.sort(stored, rules)).collect();
            match sorted {
                Ok(sorted) => match sender.send(sorted) {
                    Ok(()) => stage.advance(wave.iter().map(|section| section.edges).sum()),
                    Err(_) => break, // the writer failed, and says why below
                },
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        drop(sender);
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match failure {
            Some(error) => Err(error),
            None => written,
        }
    })
}

/// Vertices of the buckets `from..to`, which have no edges.
fn push_gap(rules: &Rules<'_>, sink: &mut Sink, from: u32, to: u32) -> Result<()> {
    const AT_A_TIME: u64 = 1 << 16;
    let mut missing = rules.vertices_before(to).saturating_sub(rules.vertices_before(from));
    let zeros = vec![0; missing.min(AT_A_TIME) as usize];
    while missing > 0 {
        let now = missing.min(AT_A_TIME);
        sink.topology.push(&zeros[..now as usize], &[])?;
        missing -= now;
    }
    Ok(())
}

/// Edges that are sorted together: all of a bucket, or of a range of its targets where a bucket
/// is larger than the memory that there is.
struct Section<'a> {
    parts: &'a Parts,
    /// The targets, by their low bits.
    range: Range<usize>,
    edges: u64,
}

impl Section<'_> {
    fn sort(&self, stored: &Stored, rules: &Rules<'_>) -> Result<(u32, Lists)> {
        let Self { parts, ref range, edges } = *self;
        let count = u32::try_from(edges).map_err(|_| Error::Graph("too many edges".into()))?;
        let (bucket, targets, count) = (parts.bucket, range.clone(), count as usize);
        let lists = if stored.runs.is_empty() && edges == parts.edges {
            rules.lists(bucket, targets, count, |take| stored.for_each(parts, take))
        } else {
            let read = stored.read(parts, range, edges)?;
            rules.lists(bucket, targets, count, |take| {
                take(&read.sources, &read.targets, &read.values);
                Ok(())
            })
        };
        Ok((parts.bucket, lists?))
    }
}

/// All edges, in waves that are sorted together, each within about `share` bytes. Only the list of
/// one vertex may take more.
fn waves<'a>(
    stored: &Stored,
    buckets: &'a [Parts],
    rules: &Rules<'_>,
    share: u64,
) -> Result<Vec<Vec<Section<'a>>>> {
    let per_edge = EDGE_BYTES + 4 + 2 * rules.value_bytes as u64;
    let per_section = 24 << rules.shift;
    let fits = (share.saturating_sub(per_section) / per_edge).clamp(1 << 10, u32::MAX.into());
    let most = EDGES_PER_WAVE * rayon::current_num_threads() as u64;
    let mut waves: Vec<Vec<Section<'_>>> = Vec::new();
    let (mut bytes, mut edges) = (0, 0);
    for parts in buckets {
        let sections = match parts.edges <= fits {
            true => vec![Section { parts, range: rules.whole(), edges: parts.edges }],
            false => sections(stored, parts, rules, fits)?,
        };
        for section in sections {
            let own = per_section + section.edges * per_edge;
            (bytes, edges) = (bytes + own, edges + section.edges);
            match waves.last_mut().filter(|_| bytes <= share && edges <= most) {
                Some(wave) => wave.push(section),
                None => {
                    (bytes, edges) = (own, section.edges);
                    waves.push(vec![section]);
                }
            }
        }
    }
    Ok(waves)
}

/// A bucket cut into ranges of targets with at most `fits` edges each, or of one target.
fn sections<'a>(
    stored: &Stored,
    parts: &'a Parts,
    rules: &Rules<'_>,
    fits: u64,
) -> Result<Vec<Section<'a>>> {
    let mut counts = vec![0u64; 1 << rules.shift];
    stored.for_each(parts, &mut |_, targets, _| {
        targets.iter().for_each(|&target| counts[usize::from(target)] += 1)
    })?;
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (at, &count) in counts.iter().enumerate() {
        match sections.last_mut().filter(|section| section.edges + count <= fits) {
            Some(section) => {
                section.range.end = at + 1;
                section.edges += count;
            }
            None => sections.push(Section { parts, range: at..at + 1, edges: count }),
        }
    }
    Ok(sections)
}
