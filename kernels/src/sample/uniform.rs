//! Every in-edge equally likely.
//!
//! Returns: ascending offsets of the edges drawn. Input: a vertex of fewer than 2^32 in-edges.
//! Idea: Floyd's algorithm needs one draw a pick, whatever the degree, and a set of the picks so far. Up to 16 picks of
//! up to 64 edges that set is one word, which holds the picks in order as well; of up to 1024, sixteen words, and the
//! picks are ordered by counting for each the smaller ones, which takes no branches; of more, where a pick that repeats
//! is rare, all are drawn first and compared with each other. Beyond 16 picks the earlier ones are searched, beyond 64
//! in a hash table.
//! Source: Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987.
//! Cost: O(picks) for the usual fanouts.

use super::Fanout;
use super::draw::{Draw, DrawVertex, Kept, LANES, Picks, Scratch, Vertex};
use super::excluded::skip;
use crate::error::KernelError;
use crate::id_map::IdMap;
use crate::philox::{BLOCKS, Draws, StreamKey};

/// Below this, searching the picks so far beats any set.
const SCAN_UP_TO: usize = 64;
/// Words of the set of up to 1024 edges.
const SET_WORDS: usize = 16;

/// Draws every in-edge with the same probability.
pub(super) struct Uniform<'a>(pub Draw<'a>);

impl DrawVertex for Uniform<'_> {
    const READS_ALL: bool = false;

    #[inline]
    fn draw(
        &self,
        vertex: Vertex,
        key: &StreamKey,
        scratch: &mut Scratch,
        picks: &mut Picks,
    ) -> Result<Kept, KernelError> {
        let Self(to_draw) = self;
        let excluded = to_draw.excluded_of(vertex);
        let candidates = vertex.degree - excluded.len() as u32;
        let count = match to_draw.fanout {
            Fanout::Take(fanout) if fanout < candidates => fanout,
            _ if excluded.is_empty() => return Ok(Kept::All),
            _ => candidates,
        };
        if count == candidates {
            picks.places(count as usize).iter_mut().zip(0..).for_each(|(pick, rank)| *pick = rank);
        } else {
            floyd(candidates, count as usize, key, vertex.id, &mut scratch.seen, picks);
        }
        if !excluded.is_empty() {
            skip(picks.last(count as usize), vertex.start, excluded);
        }
        Ok(Kept::Picked(count))
    }
}

/// An integer in `0..n` from a word, as [`Draws::below`] has it.
#[inline]
fn below(word: u32, n: u32) -> u32 {
    ((u64::from(word) * u64::from(n)) >> 32) as u32
}

/// Appends `count` distinct numbers below `n`, ascending; `count` is less than `n`.
#[inline]
pub(super) fn floyd(n: u32, count: usize, key: &StreamKey, id: u32, seen: &mut IdMap, picks: &mut Picks) {
    // Lanes that hold no pick are numbered from the top, above all picks.
    if count > LANES || n > i32::MAX as u32 - LANES as u32 {
        return floyd_many(n, key, id, seen, picks.places(count));
    }
    let words = key.words(id, 0);
    const { assert!(4 * BLOCKS == LANES) };
    let lowest = n - count as u32;
    if n <= u64::BITS {
        let mut set = 0u64;
        for (word, last) in words.into_iter().zip(lowest..n) {
            let bit = 1u64 << below(word, last + 1);
            set |= if set & bit == 0 { bit } else { 1 << last };
        }
        for place in &mut picks.lanes(count)[..count] {
            *place = set.trailing_zeros();
            set &= set.wrapping_sub(1);
        }
        return;
    }
    let mut drawn: [u32; LANES] = std::array::from_fn(|lane| {
        let pick = below(words[lane], lowest + lane as u32 + 1);
        if lane < count { pick } else { i32::MAX as u32 - lane as u32 }
    });
    if n <= u64::BITS * SET_WORDS as u32 {
        let mut set = [0u64; SET_WORDS];
        for (pick, last) in drawn.iter_mut().zip(lowest..n) {
            let is_in = set[(*pick / 64) as usize % SET_WORDS] >> (*pick % 64) & 1 != 0;
            *pick = if is_in { last } else { *pick };
            set[(*pick / 64) as usize % SET_WORDS] |= 1 << (*pick % 64);
        }
    } else if any_equal(&drawn) {
        for (i, last) in (0..count).zip(lowest..) {
            if drawn[..i].contains(&drawn[i]) {
                drawn[i] = last;
            }
        }
    }
    order(&drawn, picks.lanes(count));
}

/// Whether two lanes are equal.
#[inline]
fn any_equal(lanes: &[u32; LANES]) -> bool {
    let mut equal = [0i32; LANES];
    for other in lanes {
        for (equal, lane) in equal.iter_mut().zip(lanes) {
            *equal += i32::from(lane == other);
        }
    }
    equal.iter().sum::<i32>() > LANES as i32
}

/// Writes distinct numbers below 2^31 in ascending order: each to the place that is the number of smaller ones.
#[inline]
fn order(lanes: &[u32; LANES], places: &mut [u32; LANES]) {
    let mut smaller = [0i32; LANES];
    for &other in lanes {
        for (smaller, &lane) in smaller.iter_mut().zip(lanes) {
            *smaller += i32::from((other as i32) < lane as i32);
        }
    }
    for (&lane, &smaller) in lanes.iter().zip(&smaller) {
        places[smaller as usize % LANES] = lane;
    }
}

/// [`floyd`] for many picks, or for more edges than lanes can tell apart.
fn floyd_many(n: u32, key: &StreamKey, id: u32, seen: &mut IdMap, picks: &mut [u32]) {
    let mut draws = Draws::new(key, id);
    let candidates = n - picks.len() as u32..n;
    if picks.len() <= SCAN_UP_TO {
        for (i, last) in candidates.enumerate() {
            let pick = draws.below(last + 1);
            picks[i] = if picks[..i].contains(&pick) { last } else { pick };
        }
    } else {
        seen.clear();
        for (i, last) in candidates.enumerate() {
            let mut pick = draws.below(last + 1);
            if seen.get_or_insert(pick, i as u32) != i as u32 {
                pick = last;
                seen.get_or_insert(last, i as u32);
            }
            picks[i] = pick;
        }
    }
    picks.sort_unstable();
}
