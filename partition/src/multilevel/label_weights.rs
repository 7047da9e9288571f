//! Weight of the arcs from a vertex to each cluster, or part, that it touches.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Sums by label: a hash table while few of all labels are expected, else an array of all. It is
/// emptied in the time that it took to fill it. Sums end at 2^32 - 1.
#[derive(Default)]
pub(super) struct LabelWeights {
    /// Label and sum; a slot is taken where its label is not [`FREE`].
    slots: Vec<(u32, u32)>,
    /// Slots in use, less one: a power of two that fits the current counts, so that small counts
    /// stay in the cache.
    mask: usize,
    /// Sums of all labels.
    array: Vec<u32>,
    is_array: bool,
    /// Slots, or labels, that have a sum.
    taken: Vec<u32>,
}

const FREE: u32 = u32::MAX;
const LEAST_SLOTS: usize = 64;
/// Items of a run.
const RUN: usize = 64;
/// The array is used where more than one in this many of all labels may occur.
const SPARSE: usize = 16;

impl LabelWeights {
    /// Empties it, for at most `expected` different labels below `labels`.
    #[inline]
    pub fn clear(&mut self, expected: usize, labels: usize) {
        match self.is_array {
            true => self.taken.drain(..).for_each(|label| self.array[label as usize] = 0),
            false => self.taken.drain(..).for_each(|slot| self.slots[slot as usize] = (FREE, 0)),
        }
        self.is_array = expected * SPARSE > labels;
        if self.is_array {
            if self.array.len() < labels {
                self.array = vec![0; labels];
            }
            return;
        }
        let slots = (2 * expected).next_power_of_two().max(LEAST_SLOTS);
        if self.slots.len() < slots {
            self.slots = vec![(FREE, 0); slots];
        }
        self.mask = slots - 1;
    }

    /// Labels and their sums, in the order of first mention.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.taken.iter().map(|&at| {
            if self.is_array { (at, self.array[at as usize]) } else { self.slots[at as usize] }
        })
    }
}

impl Sums for LabelWeights {
    #[inline]
    fn add(&mut self, label: u32, weight: u32) {
        if self.is_array {
            let sum = &mut self.array[label as usize];
            if *sum == 0 {
                self.taken.push(label);
            }
            *sum = sum.saturating_add(weight);
            return;
        }
        let mut at = (label.wrapping_mul(0x9e37_79b1) >> 7) as usize & self.mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.0 == label {
                slot.1 = slot.1.saturating_add(weight);
                return;
            }
            if slot.0 == FREE {
                *slot = (label, weight);
                self.taken.push(at as u32);
                return;
            }
            at = (at + 1) & self.mask;
        }
    }
}

/// Sums by label.
pub(super) trait Sums {
    /// Adds `weight`, at least 1, to the sum of `label`.
    fn add(&mut self, label: u32, weight: u32);
}

/// Sums that items are added to some at a time: for labels that are read all over the memory.
/// Whatever an addition branches on waits for the item's label; the labels of a run wait for
/// nothing, so that the processor reads many of them at once.
pub(super) struct InRuns<S> {
    sums: S,
    run: [(u32, u32); RUN],
    length: usize,
}

impl<S: Sums> InRuns<S> {
    pub fn new(sums: S) -> Self {
        Self { sums, run: [(0, 0); RUN], length: 0 }
    }

    /// Adds what `fill` hands to [`InRuns::add`].
    #[inline]
    pub fn fill(&mut self, fill: impl FnOnce(&mut Self)) {
        fill(self);
        self.flush();
    }

    /// Adds `weight`, at least 1, to the sum of `label`, before [`InRuns::fill`] ends.
    #[inline]
    pub fn add(&mut self, label: u32, weight: u32) {
        self.run[self.length % RUN] = (label, weight);
        self.length += 1;
        if self.length == RUN {
            self.flush();
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.run[..self.length].iter().for_each(|&(label, weight)| self.sums.add(label, weight));
        self.length = 0;
    }
}

impl<S: Sums + Default> Default for InRuns<S> {
    fn default() -> Self {
        Self::new(S::default())
    }
}

impl<S> Deref for InRuns<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.sums
    }
}

impl<S> DerefMut for InRuns<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.sums
    }
}

/// Tables that are used again: they keep the memory that a vertex of high degree once took.
pub(super) struct Pool<S>(Mutex<Vec<InRuns<S>>>);

impl<S> Default for Pool<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: Sums> Pool<S> {
    /// Lends a table to `work`: one that is idle, or else one of `new` sums.
    pub fn with<R>(&self, new: impl FnOnce() -> S, work: impl FnOnce(&mut InRuns<S>) -> R) -> R {
        let idle = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = idle().pop();
        let mut table = table.unwrap_or_else(|| InRuns::new(new()));
        let result = work(&mut table);
        idle().push(table);
        result
    }
}
