//! Philox4x32-10, the counter-based generator behind every random number of the project.
//!
//! Returns: four random words for each (key, counter); streams of words, bounded integers, floats
//! and normals on top of it. Input: any key and counter; draws are independent as long as no two
//! uses share a [`StreamKey`] and an item. Idea: ten rounds of multiply, xor and key increment turn
//! a counter into random bits. There is no state to carry, so a draw depends only on its key and
//! counter, not on the thread or the time. Source: Salmon, Moraes, Dror, Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3", SC'11. Cost: about 20 multiplications for four words.

use rayon::prelude::*;

/// Words that one key yields for one item: 2^16 counters of four words. A stream that is read
/// further repeats.
pub const DRAWS_PER_ITEM: u32 = 1 << 18;

/// The Philox4x32 generator with ten rounds: the random words of `counter` under `key`.
#[inline]
pub(crate) fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let a = u64::from(c0) * 0xD251_1F53;
        let b = u64::from(c2) * 0xCD9E_8D57;
        (c0, c1, c2, c3) =
            ((b >> 32) as u32 ^ c1 ^ k0, b as u32, (a >> 32) as u32 ^ c3 ^ k1, a as u32);
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c0, c1, c2, c3]
}

/// [`philox4x32_10`] of `N` counters, word by word, each in the lower half of its lane. Lanes are
/// as wide as the products, so that the compiler vectorises them.
#[inline(always)]
pub(crate) fn philox_lanes<const N: usize>(
    counters: [[u32; N]; 4],
    key: [u32; 2],
) -> [[u64; N]; 4] {
    let [mut k0, mut k1] = key;
    let [mut c0, mut c1, mut c2, mut c3] = [[0u64; N]; 4];
    for lane in 0..N {
        [c0[lane], c1[lane], c2[lane], c3[lane]] = counters.map(|words| u64::from(words[lane]));
    }
    for _ in 0..10 {
        for lane in 0..N {
            // The products ignore the upper halves of c1 and c3.
            let a = (c0[lane] & 0xFFFF_FFFF) * 0xD251_1F53;
            let b = (c2[lane] & 0xFFFF_FFFF) * 0xCD9E_8D57;
            c0[lane] = (b >> 32) ^ c1[lane] ^ u64::from(k0);
            c2[lane] = (a >> 32) ^ c3[lane] ^ u64::from(k1);
            c1[lane] = b;
            c3[lane] = a;
        }
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c0, c1, c2, c3]
}

/// Purpose of random numbers. Streams of one seed never meet. The numbers are part of every result:
/// never change one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Neighbour sampling, by vertex.
    Sample = 0,
    /// Dropout masks, by vertex.
    Dropout = 1,
    /// Order of the training vertices in an epoch.
    Shuffle = 2,
    /// Initial weights of a model.
    Init = 3,
    /// Random features and random projections.
    Projection = 4,
    /// Generated graphs.
    Generate = 5,
    /// Choice of train, validation and test vertices.
    Split = 6,
    /// Random assignment of vertices to parts.
    Assign = 7,
    /// Seeds of the sequences that continue a sequence which is too short, by vertex.
    Pages = 8,
    /// Choice of the edges that link prediction holds out, by pair of vertices.
    Links = 9,
    /// Negative edges of link prediction, by edge.
    Negatives = 10,
    /// Dropout masks of models that score pairs of vertices, by pair.
    Pairs = 11,
    /// Dropout masks of the attention weights, by target.
    Attention = 12,
    /// In-neighbours beyond a server's own vertices, by vertex.
    Expansion = 14,
}

/// Names a family of random numbers, one sequence for each item (mostly a vertex).
///
/// The Philox key is the seed (low word, high word); the counter is `[item, stream << 24 | layer <<
/// 16 | block, step, epoch]`, where `block` counts groups of four words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The mini-batch within the epoch, from 0.
    pub step: u32,
    /// Purpose of the numbers.
    pub stream: Stream,
    /// The layer, from 0.
    pub layer: u8,
}

impl StreamKey {
    /// The key of `stream` under `seed`, with epoch, step and layer 0.
    pub fn new(seed: u64, stream: Stream) -> Self {
        Self { seed, epoch: 0, step: 0, stream, layer: 0 }
    }

    /// Words `4 * block .. 4 * block + 4` of the sequence of `item`.
    #[inline]
    pub fn block(&self, item: u32, block: u16) -> [u32; 4] {
        philox4x32_10([item, self.what() | u32::from(block), self.step, self.epoch], self.key())
    }

    #[inline(always)]
    fn key(&self) -> [u32; 2] {
        [self.seed as u32, (self.seed >> 32) as u32]
    }

    /// Stream and layer, with room for the block.
    #[inline(always)]
    fn what(&self) -> u32 {
        (self.stream as u32) << 24 | u32::from(self.layer) << 16
    }

    /// The key whose sequence of `item` continues the one under this key, for the `page`th time:
    /// each holds [`DRAWS_PER_ITEM`] words. Page 0 is this key's own sequence.
    #[inline]
    pub(crate) fn page(&self, item: u32, page: u16) -> Self {
        if page == 0 {
            return *self;
        }
        let [low, high, ..] = Self { stream: Stream::Pages, ..*self }.block(item, page);
        Self { seed: u64::from(high) << 32 | u64::from(low), ..*self }
    }

    /// The key as kernels of GPUs take it; its second word leaves room for the block.
    pub(crate) fn words_of_key(&self) -> [u32; 5] {
        let [low, high] = self.key();
        [low, high, self.what(), self.step, self.epoch]
    }

    /// [`StreamKey::block`] of `N` blocks from `first` on: word `w` of block `first + i` is
    /// `[w][i]`.
    #[inline(always)]
    pub(crate) fn blocks<const N: usize>(&self, item: u32, first: u16) -> [[u32; N]; 4] {
        let what = self.what();
        let second = std::array::from_fn(|i| what | u32::from(first.wrapping_add(i as u16)));
        let mut words = [[0; N]; 4];
        for (words, lanes) in words.iter_mut().zip(self.lanes([item; N], second)) {
            words.iter_mut().zip(lanes).for_each(|(word, lane)| *word = lane as u32);
        }
        words
    }

    /// [`StreamKey::block`] of `N` items: word `w` of item `i` is the lower half of `[w][i]`.
    #[inline(always)]
    pub(crate) fn block_of<const N: usize>(&self, items: [u32; N], block: u16) -> [[u64; N]; 4] {
        self.lanes(items, [self.what() | u32::from(block); N])
    }

    #[inline(always)]
    fn lanes<const N: usize>(&self, first: [u32; N], second: [u32; N]) -> [[u64; N]; 4] {
        philox_lanes([first, second, [self.step; N], [self.epoch; N]], self.key())
    }

    /// The words of blocks `first .. first + BLOCKS` of the sequence of `item`, one block after the
    /// other.
    #[inline(always)]
    pub(crate) fn words(&self, item: u32, first: u16) -> [u32; 4 * BLOCKS] {
        let lanes = self.blocks::<BLOCKS>(item, first);
        std::array::from_fn(|i| lanes[i % 4][i / 4])
    }
}

/// Number of blocks whose words [`StreamKey::words`] returns at once.
pub(crate) const BLOCKS: usize = 4;

/// Reads the sequence of one item under one key from its start. The reader must take at most
/// [`DRAWS_PER_ITEM`] words.
#[derive(Debug, Clone)]
pub struct Draws {
    key: StreamKey,
    item: u32,
    words: [u32; 4],
    drawn: u32,
}

impl Draws {
    /// The sequence of `item` under `key`.
    #[inline]
    pub fn new(key: &StreamKey, item: u32) -> Self {
        Self { key: *key, item, words: [0; 4], drawn: 0 }
    }

    /// The next word.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        debug_assert!(
            self.drawn < DRAWS_PER_ITEM,
            "item {} has used up its random words",
            self.item
        );
        let within = self.drawn as usize % 4;
        if within == 0 {
            self.words = self.key.block(self.item, (self.drawn / 4) as u16);
        }
        self.drawn = self.drawn.wrapping_add(1);
        self.words[within]
    }

    /// An integer in `0..n` from one word (0 if `n` is 0): the high half of word × n (Lemire, "Fast
    /// random integer generation in an interval", 2019, without its rejection step). A value's
    /// probability is off by less than 1/2^32, so relative to 1/n by less than n/2^32; in return
    /// the number of words used is fixed, and equal on every device.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        below(self.next_u32(), n)
    }

    /// A multiple of 2^-24 in `[0, 1)`, from one word.
    #[inline]
    pub fn unit_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 / 16_777_216.0
    }

    /// Two independent standard normals from two words (Box and Muller 1958). Unlike everything
    /// else here they go through `ln`, `sin` and `cos`, whose last bit may differ between
    /// platforms.
    pub fn normal_pair(&mut self) -> (f32, f32) {
        // 1 - unit is in (0, 1], where the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.unit_f32()).ln()).sqrt();
        let (sin, cos) = (std::f32::consts::TAU * self.unit_f32()).sin_cos();
        (radius * cos, radius * sin)
    }
}

/// [`Draws::below`] of a word.
#[inline(always)]
pub(crate) fn below(word: u32, n: u32) -> u32 {
    ((u64::from(word) * u64::from(n)) >> 32) as u32
}

/// A random permutation of `0..n`: the numbers sorted by 64 random bits each, equal bits by number.
/// Parallel; 20 bytes per number at the peak.
pub fn permute(n: u32, key: &StreamKey) -> Vec<u32> {
    let random = |item| {
        let [low, high, ..] = key.block(item, 0);
        (u64::from(high) << 32 | u64::from(low), item)
    };
    let mut order: Vec<(u64, u32)> = (0..n).into_par_iter().map(random).collect();
    order.par_sort_unstable();
    order.into_par_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: StreamKey =
        StreamKey { seed: 7, epoch: 0, step: 0, stream: Stream::Sample, layer: 0 };

    #[test]
    fn known_answers() {
        // Random123's kat_vectors, lines "philox4x32 10".
        let cases = [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn counter_layout_is_fixed() {
        let key = StreamKey {
            seed: 0x0123_4567_89AB_CDEF,
            epoch: 3,
            step: 5,
            stream: Stream::Generate,
            layer: 2,
        };
        let expected = philox4x32_10([11, 0x0502_0009, 5, 3], [0x89AB_CDEF, 0x0123_4567]);
        assert_eq!(key.block(11, 9), expected);
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let keys = [
            KEY,
            StreamKey { seed: 8, ..KEY },
            StreamKey { seed: 7 | 1 << 40, ..KEY },
            StreamKey { epoch: 1, ..KEY },
            StreamKey { step: 1, ..KEY },
            StreamKey { stream: Stream::Dropout, ..KEY },
            StreamKey { layer: 1, ..KEY },
        ];
        let mut words: Vec<_> = keys.iter().map(|key| key.block(0, 0)).collect();
        words.extend([KEY.block(1, 0), KEY.block(0, 1)]);
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), keys.len() + 2);
    }

    #[test]
    fn draws_read_the_blocks_in_order() {
        let mut draws = Draws::new(&KEY, 42);
        let words: Vec<u32> = (0..10).map(|_| draws.next_u32()).collect();
        let blocks: Vec<u32> = (0..3).flat_map(|block| KEY.block(42, block)).take(10).collect();
        assert_eq!(words, blocks);
    }

    #[test]
    fn several_blocks_at_once_are_the_blocks() {
        let key = StreamKey {
            seed: 0x0123_4567_89AB_CDEF,
            epoch: u32::MAX,
            step: 5,
            stream: Stream::Assign,
            layer: 255,
        };
        for (item, first) in [(0, 0), (u32::MAX, 9), (77, u16::MAX - 3)] {
            let expected: Vec<u32> =
                (first..=first + 3).flat_map(|block| key.block(item, block)).collect();
            assert_eq!(key.words(item, first)[..], expected);
        }
    }

    #[test]
    fn a_sequence_can_be_read_to_its_end() {
        let mut draws = Draws::new(&KEY, 1);
        let last = (0..DRAWS_PER_ITEM).map(|_| draws.next_u32()).last().unwrap();
        assert_eq!(last, KEY.block(1, u16::MAX)[3]);
    }

    #[test]
    fn below_is_uniform() {
        for n in [1, 2, 7, 100] {
            let mut draws = Draws::new(&KEY, n);
            let mut counts = vec![0f64; n as usize];
            (0..100_000).for_each(|_| counts[draws.below(n) as usize] += 1.0);
            let expected = 100_000.0 / f64::from(n);
            let chi2: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
            // Mean n - 1, standard deviation sqrt(2 (n - 1)).
            let limit = f64::from(n - 1) + 5.0 * f64::from(2 * n).sqrt();
            assert!(chi2 < limit, "n {n}: chi-square {chi2}");
        }
        assert_eq!(Draws::new(&KEY, 0).below(0), 0);
    }

    #[test]
    fn units_and_normals_have_their_moments() {
        let mut draws = Draws::new(&KEY, 3);
        let units: Vec<f32> = (0..50_000).map(|_| draws.unit_f32()).collect();
        assert!(units.iter().all(|u| (0.0..1.0).contains(u)));
        let normals: Vec<f32> =
            (0..50_000).flat_map(|_| <[f32; 2]>::from(draws.normal_pair())).collect();
        for (values, mean, variance) in [(units, 0.5, 1.0 / 12.0), (normals, 0.0, 1.0)] {
            let n = values.len() as f64;
            let m = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
            let v = values.iter().map(|&x| (f64::from(x) - m).powi(2)).sum::<f64>() / n;
            assert!(
                (m - mean).abs() < 0.02 && (v - variance).abs() < 0.02,
                "mean {m}, variance {v}"
            );
        }
    }

    #[test]
    fn permutations_are_complete_and_keyed() {
        for n in [0, 1, 2, 1000] {
            let mut order = permute(n, &KEY);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..n));
        }
        assert_eq!(permute(1000, &KEY), permute(1000, &KEY));
        assert_ne!(permute(1000, &KEY), permute(1000, &StreamKey { epoch: 1, ..KEY }));
    }

    #[test]
    fn permutations_of_three_are_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..6000 {
            *counts.entry(permute(3, &StreamKey::new(seed, Stream::Shuffle))).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|&c| (850..1150).contains(&c)), "{counts:?}");
    }
}
