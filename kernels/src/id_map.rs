//! A map from vertex id to position, for batches: only insertion and look-up.
//!
//! Input: any `u32` keys (`u32::MAX` too); values below `u32::MAX`. Idea: open addressing with
//! linear probing in one array of packed (key, value) words, at most half full, doubled when it
//! gets fuller; the slot comes from the high bits of a multiplicative hash (Knuth, TAOCP 3, section
//! 6.4). Cost: 16 to 32 bytes per key, one cache miss for most look-ups. Why not `HashMap`: it
//! hashes more and stores control bytes apart from the entries.

use crate::prefetch::prefetch;

const MIN_SLOTS: usize = 16;
/// Marks a free slot: no entry looks like this, because no value is `u32::MAX`.
const EMPTY: u64 = u64::MAX;

/// Map `u32` → `u32`; see the module's documentation. At first it has few slots.
pub(crate) struct IdMap {
    slots: Vec<u64>,
    len: usize,
    /// Entries that are being moved to a larger table.
    moving: Vec<u64>,
}

impl IdMap {
    /// Returns the value of `key`; if the key is new, inserts it with `value`.
    #[inline]
    pub(crate) fn get_or_insert(&mut self, key: u32, value: u32) -> u32 {
        debug_assert_ne!(value, u32::MAX);
        let slot = self.find(key);
        if self.slots[slot] != EMPTY {
            return self.slots[slot] as u32;
        }
        self.slots[slot] = u64::from(key) << 32 | u64::from(value);
        self.len += 1;
        if 2 * self.len > self.slots.len() {
            self.grow();
        }
        value
    }

    /// Forgets every key and keeps the memory. The table starts again from its smallest size, so
    /// that a small batch does not pay for a large one before it.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.slots.resize(MIN_SLOTS, EMPTY);
        self.len = 0;
    }

    /// Prefetches the slot of `key`.
    #[inline]
    pub(crate) fn prefetch(&self, key: u32) {
        prefetch(&self.slots, self.first_slot(key));
    }

    /// The slot that holds `key`, or the free one where it belongs. One always exists: the table is
    /// never more than half full.
    #[inline]
    fn find(&self, key: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.first_slot(key);
        while self.slots[slot] != EMPTY && (self.slots[slot] >> 32) as u32 != key {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[inline]
    fn first_slot(&self, key: u32) -> usize {
        let hash = u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    #[cold]
    fn grow(&mut self) {
        let mut entries = std::mem::take(&mut self.moving);
        entries.extend(self.slots.iter().copied().filter(|&entry| entry != EMPTY));
        let doubled = 2 * self.slots.len();
        self.slots.clear();
        self.slots.resize(doubled, EMPTY);
        for entry in entries.drain(..) {
            let slot = self.find((entry >> 32) as u32);
            self.slots[slot] = entry;
        }
        self.moving = entries;
    }
}

impl Default for IdMap {
    fn default() -> Self {
        Self { slots: vec![EMPTY; MIN_SLOTS], len: 0, moving: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_first_value_while_it_grows() {
        let mut table = IdMap::default();
        // Runs, multiples of a power of two, and both ends of the range.
        let keys: Vec<u32> = (0..500)
            .chain((1..500).map(|i| i << 20))
            .chain((0..500).map(|i| u32::MAX - i))
            .collect();
        for (value, &key) in (0..).zip(&keys) {
            assert_eq!(table.get_or_insert(key, value), value);
        }
        for (value, &key) in (0..).zip(&keys) {
            assert_eq!(table.get_or_insert(key, 9999), value);
        }
        table.clear();
        assert_eq!(table.get_or_insert(u32::MAX, 5), 5);
        assert_eq!(table.get_or_insert(u32::MAX, 6), 5);
    }
}
