//! How many copies a row deserves when every device loads it equally often (data parallelism).
//!
//! Returns how many rows replace copies of hotter ones, and the rows on each device. Input: the
//! rows by falling probability p of being loaded by a device, k devices with room for C rows each,
//! alpha.
//!
//! Idea (Song & Jiang, Algorithm 1): let every device hold the C hottest rows; then give up copies,
//! of the coldest first, for rows that nobody holds, the hottest first. A row always keeps one
//! copy, so that slot C − 1 takes k − 1 new rows, then slot C − 2, until a new row is not worth the
//! copy. The criteria:
//!
//! * [`Criterion::Published`]: p(new) > alpha · p(old), the gain of the device that holds them.
//!   Devices take turns by the least probability gained so far.
//! * [`Criterion::AllDevices`]: also counts the gain of the others, which read the new row from a
//!   peer instead of the host: (alpha + k (1 − alpha)) p(new) > alpha · p(old). No placement costs
//!   less in expectation, summed over the devices: the first copy of a row saves p(alpha + k (1 −
//!   alpha)), each further one p · alpha; this rule keeps the k · C copies that save most. The rows
//!   of a slot are dealt so that the probabilities on two devices never differ by more than the
//!   hottest row's, so that no device costs more than the mean by more than alpha times that.
//!
//! Why not only the published criterion: with 8 devices it costs up to a third more, because it
//! counts only one device's gain. Why not the authors' code: it mixes periods of k and k − 1 rows,
//! so that for k ≥ 3 rows that were placed are overwritten.
//!
//! Cost: O(log² n) for the number of rows, O(C · k log k) for the devices.

use gsplit_store::CachedRows;

use super::Ranking;

/// Criterion by which a row takes the place of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Criterion {
    /// Song & Jiang's.
    Published,
    /// The gain of all devices.
    AllDevices,
}

/// Number of copies of each of the hottest rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    devices: usize,
    /// Slots of a device: rows that every device holds at first.
    slots: usize,
    /// Rows after those that replaced a copy.
    replaced: usize,
}

impl Copies {
    /// The copies that pay on `devices` devices with room for `capacity` rows each.
    pub(crate) fn choose(
        ranking: &Ranking,
        devices: usize,
        capacity: usize,
        alpha: f64,
        criterion: Criterion,
    ) -> Self {
        let slots = capacity.min(ranking.len());
        let candidates = ranking.len().min(slots.saturating_mul(devices)) - slots;
        let others = devices.saturating_sub(1).max(1);
        let worth = match criterion {
            Criterion::Published => 1.0,
            Criterion::AllDevices => alpha + devices as f64 * (1.0 - alpha),
        };
        let pays = |i: usize| {
            worth * ranking.loads(slots + i) > alpha * ranking.loads(slots - 1 - i / others)
        };
        // A peer that is not cheaper than the host is not read.
        let replaced = if alpha < 1.0 { first_without(candidates, pays) } else { 0 };
        Self { devices, slots, replaced }
    }

    /// Slots whose copies were given up, the last of them perhaps not all.
    fn rounds(self) -> usize {
        self.replaced.div_ceil(self.devices.saturating_sub(1).max(1))
    }

    /// The rows that took copies' places in `round`, by rank.
    fn newcomers(self, round: usize) -> std::ops::Range<usize> {
        let others = self.devices - 1;
        let first = round * others;
        self.slots + first..self.slots + (first + others).min(self.replaced)
    }

    /// Rows that are on every device.
    fn shared(self) -> usize {
        self.slots - self.rounds()
    }

    /// Expected loads by all devices from their own caches, and from any device's cache.
    pub(crate) fn served(self, ranking: &Ranking) -> (f64, f64) {
        let k = self.devices as f64;
        let held = ranking.sum(self.slots + self.replaced);
        let mut local = held + (k - 1.0) * ranking.sum(self.shared());
        if let Some(last) = self.rounds().checked_sub(1) {
            // The last slot to be given up may have kept some copies of its old row.
            let kept = self.devices - self.newcomers(last).len();
            local += (kept - 1) as f64 * ranking.loads(self.slots - 1 - last);
        }
        (local, k * held)
    }

    /// Deals the rows of `order`, hottest first, to the devices.
    pub(crate) fn deal(self, order: &[u32], ranking: &Ranking, criterion: Criterion) -> CachedRows {
        let mut kept: Vec<Vec<u32>> = vec![Vec::new(); self.devices];
        let mut new: Vec<Vec<u32>> = vec![Vec::new(); self.devices];
        let mut carried = vec![0.0f64; self.devices];
        let mut turn: Vec<usize> = (0..self.devices).collect();
        for round in 0..self.rounds() {
            let old = self.slots - 1 - round;
            turn.sort_unstable_by(|&a, &b| carried[a].total_cmp(&carried[b]).then(a.cmp(&b)));
            let newcomers = self.newcomers(round);
            let (keepers, takers) = match criterion {
                // The hottest row of a slot is the old one: it goes to who carries least.
                Criterion::AllDevices => turn.split_at(self.devices - newcomers.len()),
                Criterion::Published => {
                    let (takers, keepers) = turn.split_at(newcomers.len());
                    (keepers, takers)
                }
            };
            for (&device, row) in takers.iter().zip(newcomers) {
                new[device].push(order[row]);
                carried[device] += ranking.loads(row);
            }
            for &device in keepers {
                kept[device].push(order[old]);
                if criterion == Criterion::AllDevices {
                    carried[device] += ranking.loads(old);
                }
            }
        }
        // Old rows were given up coldest first.
        let hottest_first =
            |(kept, new): (Vec<u32>, Vec<u32>)| kept.into_iter().rev().chain(new).collect();
        let own = kept.into_iter().zip(new).map(hottest_first).collect();
        CachedRows { shared: order[..self.shared()].to_vec(), own }
    }
}

/// The first of `0..end` for which `holds` does not hold; it holds for none behind.
fn first_without(end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
