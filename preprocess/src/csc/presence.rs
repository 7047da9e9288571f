//! Set of the ids that occur, for ids below 2^32, and their ranks.
//!
//! Returns: the number of distinct ids, and the rank of each among them, so that order is
//! preserved. Idea: a bitmap in segments that are allocated when their first id occurs, and running
//! counts. Cost: 12 KiB for every 2^16 ids around an id that occurs, and 1 MiB.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Ids of a segment, as a power of two.
const SEGMENT_SHIFT: u32 = 16;
const WORDS: usize = 1 << (SEGMENT_SHIFT - 6);
/// Bytes of a segment with its running counts.
const SEGMENT_BYTES: usize = WORDS * 12;

/// A set of ids that threads add to.
pub struct Presence {
    segments: Vec<OnceLock<Box<[AtomicU64]>>>,
    allocated: AtomicUsize,
}

impl Presence {
    /// The empty set.
    pub fn new() -> Self {
        let segments = (0..1usize << (32 - SEGMENT_SHIFT)).map(|_| OnceLock::new()).collect();
        Self { segments, allocated: AtomicUsize::new(0) }
    }

    /// Adds `ids`, all below 2^32. Stops and returns false when the set would take more than about
    /// `limit` bytes.
    pub fn add(&self, ids: &[u64], limit: u64) -> bool {
        let mut last = u64::MAX;
        for &id in ids {
            if id == last {
                continue;
            }
            last = id;
            let place = &self.segments[(id >> SEGMENT_SHIFT) as usize];
            if place.get().is_none() && self.bytes() + SEGMENT_BYTES as u64 > limit {
                return false;
            }
            let segment = place.get_or_init(|| {
                self.allocated.fetch_add(1, Relaxed);
                (0..WORDS).map(|_| AtomicU64::new(0)).collect()
            });
            let (word, bit) = (&segment[(id >> 6) as usize % WORDS], 1 << (id % 64));
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
        true
    }

    /// Whether 0 is in it.
    pub fn has_zero(&self) -> bool {
        self.segments[0].get().is_some_and(|segment| segment[0].load(Relaxed) & 1 == 1)
    }

    /// Number of ids.
    pub fn len(&self) -> u64 {
        let segments = self.segments.iter().filter_map(OnceLock::get);
        segments
            .flat_map(|segment| segment.iter())
            .map(|word| u64::from(word.load(Relaxed).count_ones()))
            .sum()
    }

    /// Bytes that this set and its ranks take.
    pub fn bytes(&self) -> u64 {
        (self.segments.len() * size_of::<OnceLock<Box<[AtomicU64]>>>()
            + self.allocated.load(Relaxed) * SEGMENT_BYTES) as u64
    }

    /// The ranks of the ids.
    pub fn into_ranks(self) -> Ranks {
        let mut count = 0u64;
        let mut starts = Vec::with_capacity(self.segments.len());
        let segments = self.segments.into_iter().map(|segment| {
            starts.push(count);
            let words: Vec<u64> =
                Vec::from(segment.into_inner()?).into_iter().map(AtomicU64::into_inner).collect();
            let before = words.iter().map(|word| {
                let before = count as u32;
                count += u64::from(word.count_ones());
                before
            });
            let before = before.collect();
            Some(Segment { words, before })
        });
        let mut segments: Vec<Option<Segment>> = segments.collect();
        while segments.last().is_some_and(Option::is_none) {
            segments.pop();
        }
        Ranks { segments, starts, count }
    }
}

/// The ranks of a set of ids.
pub struct Ranks {
    segments: Vec<Option<Segment>>,
    /// How many ids occur before each segment.
    starts: Vec<u64>,
    count: u64,
}

struct Segment {
    words: Vec<u64>,
    /// How many ids occur before each word.
    before: Vec<u32>,
}

impl Ranks {
    /// Number of ids.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether `id` occurs.
    pub fn contains(&self, id: u32) -> bool {
        let segment = self.segments.get((id >> SEGMENT_SHIFT) as usize).and_then(Option::as_ref);
        segment
            .is_some_and(|segment| segment.words[(id >> 6) as usize % WORDS] >> (id % 64) & 1 == 1)
    }

    /// The rank of `id`, which must occur.
    pub fn rank(&self, id: u32) -> u32 {
        match &self.segments[(id >> SEGMENT_SHIFT) as usize] {
            Some(segment) => {
                let word = (id >> 6) as usize % WORDS;
                let lower = segment.words[word] & !(u64::MAX << (id % 64));
                segment.before[word] + lower.count_ones()
            }
            None => 0,
        }
    }

    /// Number of ids below `id`.
    pub fn below(&self, id: u64) -> u64 {
        match self.segments.get((id >> SEGMENT_SHIFT) as usize) {
            Some(Some(_)) => u64::from(self.rank(id as u32)),
            Some(None) => self.starts[(id >> SEGMENT_SHIFT) as usize],
            None => self.count,
        }
    }

    /// Whether the ids are `0..len()`, so that each is its own rank.
    pub fn is_identity(&self) -> bool {
        self.ids().next_back().is_none_or(|last| u64::from(last) + 1 == self.count)
    }

    /// The ids, ascending.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = u32> {
        let present = self
            .segments
            .iter()
            .enumerate()
            .filter_map(|(at, segment)| Some((at, segment.as_ref()?)));
        present.flat_map(|(at, segment)| {
            segment.words.iter().enumerate().flat_map(move |(word, &bits)| {
                let start = (at << SEGMENT_SHIFT | word << 6) as u32;
                (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| start + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn oracle_ranks_are_those_of_a_sorted_set() {
        for factor in [1u64, 3, 1000, 10_000_000] {
            let ids: Vec<u64> = (0..500).map(|i: u64| i * i % 397 * factor).collect();
            let expected: Vec<u64> =
                ids.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            let presence = Presence::new();
            rayon::scope(|scope| {
                ids.chunks(100)
                    .for_each(|ids| scope.spawn(|_| assert!(presence.add(ids, u64::MAX))));
            });
            let ranks = presence.into_ranks();
            assert_eq!(ranks.len(), expected.len() as u64);
            assert!(ranks.ids().map(u64::from).eq(expected.iter().copied()));
            assert!(
                expected.iter().enumerate().all(|(rank, &id)| ranks.rank(id as u32) == rank as u32)
            );
            assert!(ids.iter().all(|&id| ranks.contains(id as u32)) && !ranks.contains(u32::MAX));
            assert!(!ranks.is_identity());
            for id in [0, 1, 397, 1000, 10_000_000, 123_456_789, 1 << 32, u64::MAX] {
                assert_eq!(
                    ranks.below(id),
                    expected.iter().filter(|&&other| other < id).count() as u64,
                    "{id}"
                );
            }
        }
        let dense = Presence::new();
        assert!(dense.add(&(0..100_000).collect::<Vec<_>>(), u64::MAX));
        assert!(!dense.add(&[1 << 31], dense.bytes()) && dense.add(&[7], dense.bytes()));
        assert!(dense.into_ranks().is_identity() && Presence::new().into_ranks().is_identity());
    }
}
