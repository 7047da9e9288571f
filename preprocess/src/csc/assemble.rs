//! Buckets become the topology, in order: some are sorted while those before them are written.

use std::sync::mpsc::sync_channel;

use gsplit_store::{Progress, TopologyWriter, Unit};
use rayon::prelude::*;

use super::bucket::{Lists, Rules};
use super::columns::ColumnWriters;
use super::ingest::Ingested;
use super::oversized;
use super::store::{BucketEdges, EDGE_BYTES, Parts, Stored};
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

    /// Appends in-neighbours of the next vertex.
    pub fn push_part(&mut self, lists: &Lists) -> Result<()> {
        self.topology.push_part(&lists.indices)?;
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
    let plan = SortPlan::new(buckets, rules, memory / 3);
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<Work>(0);
        let writer = scope.spawn(move || {
            let mut sink = sink;
            let mut next = 0;
            for work in receiver {
                match work {
                    Work::Sorted(wave) => {
                        for (bucket, lists) in wave {
                            push_gap(rules, &mut sink, next, bucket)?;
                            sink.push(&lists)?;
                            next = bucket + 1;
                        }
                    }
                    Work::Oversized(parts) => {
                        push_gap(rules, &mut sink, next, parts.bucket)?;
                        oversized::push(stored, &parts, rules, memory / 3, &mut sink)?;
                        next = parts.bucket + 1;
                    }
                }
            }
            push_gap(rules, &mut sink, next, u32::MAX)?;
            Ok(sink)
        });
        let mut failure = None;
        for wave in &plan.waves {
            let edges: u64 = wave.iter().map(|bucket| bucket.edges).sum();
            let work = match &wave[..] {
                [only] if !plan.fits(only) => Ok(Work::Oversized(only.clone())),
                _ => sort_wave(stored, wave, rules).map(Work::Sorted),
            };
            match work {
                Ok(work) => match sender.send(work) {
                    Ok(()) => stage.advance(edges),
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

enum Work {
    Sorted(Vec<(u32, Lists)>),
    Oversized(Parts),
}

/// Vertices of the buckets `from..to`, which have no edges.
fn push_gap(rules: &Rules<'_>, sink: &mut Sink, from: u32, to: u32) -> Result<()> {
    const AT_A_TIME: u64 = 1 << 16;
    let mut missing = rules.vertices_before(to) - rules.vertices_before(from);
    let zeros = vec![0; missing.min(AT_A_TIME) as usize];
    while missing > 0 {
        let now = missing.min(AT_A_TIME);
        sink.topology.push(&zeros[..now as usize], &[])?;
        missing -= now;
    }
    Ok(())
}

fn sort_wave(stored: &Stored, wave: &[Parts], rules: &Rules<'_>) -> Result<Vec<(u32, Lists)>> {
    let sort = |parts: &Parts| {
        let count =
            usize::try_from(parts.edges).map_err(|_| Error::Graph("too many edges".into()))?;
        let lists = if stored.runs.is_empty() {
            let mut room = BucketEdges::default();
            rules.lists(parts.bucket, rules.whole(), count, |take| {
                stored.for_each(parts, usize::MAX, &mut room, |sources, targets, values| {
                    take(sources, targets, values);
                    Ok(())
                })
            })
        } else {
            rules.lists_of(parts.bucket, rules.whole(), &stored.read(parts)?)
        };
        Ok((parts.bucket, lists?))
    };
    wave.par_iter().map(sort).collect()
}

/// Buckets that are sorted together, in waves.
struct SortPlan {
    waves: Vec<Vec<Parts>>,
    cost: Cost,
    /// Bytes that a wave may take.
    share: u64,
}

/// Bytes that sorting a bucket takes.
struct Cost {
    edge: u64,
    bucket: u64,
}

impl Cost {
    fn of(&self, parts: &Parts) -> u64 {
        self.bucket + parts.edges * self.edge
    }
}

impl SortPlan {
    /// Whether the bucket can be sorted as a whole.
    fn fits(&self, parts: &Parts) -> bool {
        self.cost.of(parts) <= self.share && parts.edges <= u64::from(u32::MAX / 2)
    }

    fn new(buckets: Vec<Parts>, rules: &Rules<'_>, share: u64) -> Self {
        let cost =
            Cost { edge: EDGE_BYTES + 4 + 2 * rules.value_bytes as u64, bucket: 24 << rules.shift };
        let most = EDGES_PER_WAVE * rayon::current_num_threads() as u64;
        let mut waves: Vec<Vec<Parts>> = Vec::new();
        let (mut bytes, mut edges) = (0, 0);
        for bucket in buckets {
            let own = cost.of(&bucket);
            match waves.last_mut().filter(|_| bytes + own <= share && edges + bucket.edges <= most)
            {
                Some(wave) => {
                    (bytes, edges) = (bytes + own, edges + bucket.edges);
                    wave.push(bucket);
                }
                None => {
                    (bytes, edges) = (own, bucket.edges);
                    waves.push(vec![bucket]);
                }
            }
        }
        Self { waves, cost, share }
    }
}
