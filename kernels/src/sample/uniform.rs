//! Draws in which every in-edge is equally likely.
//!
//! Returns: ascending offsets of the edges drawn. Input: a vertex of fewer than 2^32 in-edges.
//! Idea: Floyd's algorithm needs one draw per pick, whatever the degree, and a set of the picks so
//! far. For up to 16 picks of up to 64 edges that set is one word, which also gives the picks in
//! order; of up to 1024, sixteen words, and the picks are ordered by counting the smaller ones for
//! each, without branches; of more, where a repeated pick is rare, the same count shows whether
//! there is one. With AVX-512, random words are made, and sets of one word filled, for eight
//! vertices side by side. Shorter vectors are filled by four blocks of words of one vertex, which
//! is faster there. Beyond 16 picks the earlier ones are searched, beyond 64 in a hash table.
//! Source: Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987. Cost: O(picks) for the
//! usual fanouts.

use super::Fanout;
use super::draw::{Draw, DrawVertex, GROUP, Kept, LANES, Picks, Scratch, Vertex, draw_each, fetch};
use super::excluded::skip;
use crate::error::KernelError;
use crate::id_map::IdMap;
use crate::machine::has_avx512;
use crate::philox::{BLOCKS, Draws, StreamKey, below};
use crate::simd::vectorised;

/// Up to this many picks, searching them is faster than any set.
const SCAN_UP_TO: usize = 64;
/// Most in-edges at which lanes without a pick can be distinguished from lanes with one.
const MOST: u32 = i32::MAX as u32 - LANES as u32;
/// Vertices for which edges are drawn side by side.
const SIDE_BY_SIDE: usize = 8;
const _: () = assert!(GROUP.is_multiple_of(SIDE_BY_SIDE));
/// Words of the set of up to 1024 edges.
const SET_WORDS: usize = 16;

/// Draws every in-edge with the same probability.
pub(super) struct Uniform<'a>(pub Draw<'a>);

impl DrawVertex for Uniform<'_> {
    const READS_ALL: bool = false;

    #[inline(always)]
    fn draw(
        &self,
        vertex: Vertex,
        key: &StreamKey,
        scratch: &mut Scratch,
    ) -> Result<Kept, KernelError> {
        let Self(to_draw) = self;
        let excluded = to_draw.excluded_of(vertex);
        let candidates = vertex.degree - excluded.len() as u32;
        let count = match to_draw.fanout {
            Fanout::Take(fanout) if fanout < candidates => fanout,
            _ if excluded.is_empty() => return Ok(Kept::All),
            _ => candidates,
        };
        let Scratch { picks, seen, .. } = scratch;
        if count == candidates {
            picks.places(count as usize).iter_mut().zip(0..).for_each(|(pick, rank)| *pick = rank);
        } else {
            floyd(candidates, count as usize, key, vertex.id, seen, picks);
        }
        if !excluded.is_empty() {
            skip(picks.last(count as usize), vertex.start, excluded);
        }
        Ok(Kept::Picked(count))
    }

    #[inline]
    fn draw_group(
        &self,
        indices: &[u32],
        vertices: &[Vertex],
        key: &StreamKey,
        scratch: &mut Scratch,
        kept: &mut [Kept; GROUP],
    ) -> Result<(), KernelError> {
        let Self(to_draw) = self;
        match to_draw.fanout {
            Fanout::Take(fanout)
                if fanout as usize <= LANES
                    && has_avx512()
                    && to_draw.excludes_none()
                    && vertices.iter().all(|vertex| vertex.degree <= MOST) =>
            {
                draw_side_by_side(fanout, indices, vertices, key, &mut scratch.picks, kept);
                Ok(())
            }
            _ => vectorised!(draw_each(self, indices, vertices, key, scratch, kept)),
        }
    }
}

/// A vertex to draw for, and its place in its group.
#[derive(Clone, Copy, Default)]
struct Lane {
    id: u32,
    n: u32,
    start: u64,
    place: usize,
}

/// Draws up to [`LANES`] in-edges of each vertex, which has up to [`MOST`].
fn draw_side_by_side(
    fanout: u32,
    indices: &[u32],
    vertices: &[Vertex],
    key: &StreamKey,
    picks: &mut Picks,
    kept: &mut [Kept; GROUP],
) {
    vectorised!({
        let count = fanout as usize;
        // The vertices whose set is one word, and the others.
        let (mut few, mut many) = ([Lane::default(); GROUP], [Lane::default(); GROUP]);
        let (mut num_few, mut num_many) = (0, 0);
        for (vertex, kept) in vertices.iter().zip(kept) {
            let n = vertex.degree;
            let lane = Lane { id: vertex.id, n, start: vertex.start, place: num_few + num_many };
            *kept = if n <= fanout { Kept::All } else { Kept::Picked(fanout) };
            // Written in any case, and kept if it needs a draw.
            few[num_few] = lane;
            many[num_many] = lane;
            num_few += usize::from(n > fanout && n <= u64::BITS);
            num_many += usize::from(n > fanout && n > u64::BITS);
        }
        let mut drawn = [[0; SIDE_BY_SIDE]; LANES];
        let places = picks.places((num_few + num_many) * count);
        for (lanes, first) in few.as_chunks().0.iter().zip((0..num_few).step_by(SIDE_BY_SIDE)) {
            draw_lanes(lanes, count, key, &mut drawn);
            let (mut sets, mut last) = ([0u64; SIDE_BY_SIDE], lowest(lanes, count));
            for drawn in &drawn[..count] {
                for lane in 0..SIDE_BY_SIDE {
                    // All ones if the pick repeats.
                    let repeats = 0u64.wrapping_sub(sets[lane] >> (drawn[lane] & 63) & 1);
                    let pick = drawn[lane] ^ ((drawn[lane] ^ last[lane]) & repeats);
                    sets[lane] |= 1 << (pick & 63);
                    last[lane] = last[lane].wrapping_add(1);
                }
            }
            for (lane, set) in lanes.iter().zip(sets).take(num_few - first) {
                let places = &mut places[lane.place * count..][..count];
                write_set(set, places);
                fetch(indices, lane.start, places);
            }
        }
        for (lanes, first) in many.as_chunks().0.iter().zip((0..num_many).step_by(SIDE_BY_SIDE)) {
            draw_lanes(lanes, count, key, &mut drawn);
            for (i, lane) in lanes.iter().enumerate().take(num_many - first) {
                let drawn = std::array::from_fn(|step| drawn[step][i] as u32);
                let places = &mut places[lane.place * count..][..count];
                settle(drawn, lane.n, places);
                fetch(indices, lane.start, places);
            }
        }
    });
}

/// The candidates that are not among the last `count`.
#[inline(always)]
fn lowest(lanes: &[Lane; SIDE_BY_SIDE], count: usize) -> [u64; SIDE_BY_SIDE] {
    let mut lowest = [0; SIDE_BY_SIDE];
    for lane in 0..SIDE_BY_SIDE {
        lowest[lane] = u64::from(lanes[lane].n).wrapping_sub(count as u64);
    }
    lowest
}

/// The first draw of each pick of Floyd's algorithm: pick `i` of lane `j` is `[i][j]`.
#[inline(always)]
fn draw_lanes(
    lanes: &[Lane; SIDE_BY_SIDE],
    count: usize,
    key: &StreamKey,
    drawn: &mut [[u64; SIDE_BY_SIDE]; LANES],
) {
    let mut items = [0; SIDE_BY_SIDE];
    for lane in 0..SIDE_BY_SIDE {
        items[lane] = lanes[lane].id;
    }
    let mut last = lowest(lanes, count);
    for (block, drawn) in (0..count.div_ceil(4)).zip(drawn.as_chunks_mut::<4>().0) {
        let words = key.block_of(items, block as u16);
        for w in 0..4 {
            for lane in 0..SIDE_BY_SIDE {
                last[lane] = last[lane].wrapping_add(1);
                drawn[w][lane] =
                    ((words[w][lane] & 0xFFFF_FFFF) * (last[lane] & 0xFFFF_FFFF)) >> 32;
            }
        }
    }
}

/// Appends `count` distinct numbers below `n`, ascending; `count` is less than `n`.
#[inline(always)]
pub(super) fn floyd(
    n: u32,
    count: usize,
    key: &StreamKey,
    id: u32,
    seen: &mut IdMap,
    picks: &mut Picks,
) {
    if count > LANES || n > MOST {
        return floyd_many(n, key, id, seen, picks.places(count));
    }
    const { assert!(4 * BLOCKS == LANES) };
    let (words, lowest) = (key.words(id, 0), n - count as u32);
    if n <= u64::BITS {
        let mut set = 0u64;
        for (word, last) in words.into_iter().zip(lowest..n) {
            let bit = 1u64 << below(word, last + 1);
            set |= if set & bit == 0 { bit } else { 1 << last };
        }
        return write_set(set, picks.places(count));
    }
    let drawn = std::array::from_fn(|lane| below(words[lane], lowest + lane as u32 + 1));
    settle(drawn, n, picks.places(count));
}

/// Writes the members of a set, as many as `picks` has places.
#[inline(always)]
fn write_set(mut set: u64, places: &mut [u32]) {
    for place in places {
        *place = set.trailing_zeros();
        set &= set.wrapping_sub(1);
    }
}

/// Writes the picks of `drawn` to `picks`, ascending; a repeated pick is replaced by its last
/// candidate.
#[inline(always)]
fn settle(mut drawn: [u32; LANES], n: u32, picks: &mut [u32]) {
    let lowest = n - picks.len() as u32;
    // Lanes that hold no pick are numbered from the top, above all picks.
    for (lane, drawn) in drawn.iter_mut().enumerate() {
        *drawn = if lane < picks.len() { *drawn } else { i32::MAX as u32 - lane as u32 };
    }
    if n <= u64::BITS * SET_WORDS as u32 {
        let mut set = [0u64; SET_WORDS];
        for (pick, last) in drawn.iter_mut().zip(lowest..n) {
            let is_in = set[(*pick / 64) as usize % SET_WORDS] >> (*pick % 64) & 1 != 0;
            *pick = if is_in { last } else { *pick };
            set[(*pick / 64) as usize % SET_WORDS] |= 1 << (*pick % 64);
        }
    }
    let mut smaller = count_smaller(&drawn);
    // Of two equal picks, neither is smaller.
    if smaller.iter().sum::<i32>() < (LANES * (LANES - 1) / 2) as i32 {
        for (i, last) in (0..picks.len()).zip(lowest..) {
            if drawn[..i].contains(&drawn[i]) {
                drawn[i] = last;
            }
        }
        smaller = count_smaller(&drawn);
    }
    for lane in 0..picks.len().min(LANES) {
        picks[smaller[lane] as usize] = drawn[lane];
    }
}

/// For each of `lanes`, numbers below 2^31, how many lanes are smaller.
#[inline(always)]
fn count_smaller(lanes: &[u32; LANES]) -> [i32; LANES] {
    let mut smaller = [0; LANES];
    for other in lanes {
        for (smaller, lane) in smaller.iter_mut().zip(lanes) {
            *smaller += i32::from((*other as i32) < *lane as i32);
        }
    }
    smaller
}

/// [`floyd`] for many picks, or for more edges than lanes can distinguish.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::Stream;

    /// Both methods of drawing for a group, one of which a processor uses, pick the same in-edges.
    #[test]
    fn vertices_side_by_side_have_the_same_picks_as_one_after_another() {
        let degrees = [0, 1, 4, 15, 16, 17, 40, 63, 64, 65, 300, 1023, 1024, 1025, 5000, 70_000];
        for fanout in 1..=LANES as u32 {
            for (num_vertices, key) in [1, 7, 8, 9, GROUP]
                .into_iter()
                .zip((0..).map(|seed| StreamKey::new(seed, Stream::Sample)))
            {
                let vertex = |id: u32| Vertex {
                    id,
                    start: 0,
                    degree: degrees[(id + fanout) as usize % degrees.len()],
                };
                let vertices: Vec<Vertex> = (0..num_vertices as u32).map(vertex).collect();
                let draw = Uniform(Draw::new(Fanout::Take(fanout)));
                let (mut one, mut other) = (Scratch::default(), Picks::default());
                let [mut kept, mut kept_other] = [[Kept::All; GROUP]; 2];
                draw_each(&draw, &[], &vertices, &key, &mut one, &mut kept).unwrap();
                draw_side_by_side(fanout, &[], &vertices, &key, &mut other, &mut kept_other);
                assert_eq!(kept, kept_other, "fanout {fanout}, {num_vertices} vertices, {key:?}");
                assert_eq!(
                    one.picks.as_slice(),
                    other.as_slice(),
                    "fanout {fanout}, {num_vertices} vertices, {key:?}"
                );
            }
        }
    }
}
