//! Numbers of layers that are being sampled: they stay on the GPU until the host reads several
//! layers' numbers at once.

use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError};

/// Error code; 0 if there was no error.
pub(super) const STATUS: usize = 0;
/// Edges that were drawn.
pub(super) const EDGES: usize = 1;
/// Number of vertices that pick, if a separate kernel draws for them.
pub(super) const LISTED: usize = 2;
/// Number of new vertices.
pub(super) const NEW: usize = 3;
/// Vertices of the mixed frontier.
pub(super) const LEN: usize = 4;
/// Error code of splitting vertices by owner.
pub(super) const OF_SPLIT: usize = 5;
/// Words per layer.
const WORDS: usize = 8;
/// Layers that a block has words for, which are zero at first and used once.
const LAYERS: usize = 64;

/// Numbers of one layer, by their address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers(u64);

impl Numbers {
    /// Address of a number.
    pub(super) fn at(self, which: usize) -> u64 {
        self.0 + (which * size_of::<u64>()) as u64
    }
}

/// Numbers of many layers.
#[derive(Debug)]
pub(super) struct Block {
    words: DeviceBuffer<u64>,
    /// The first layer whose numbers were not read.
    from: usize,
    next: usize,
}

impl Block {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self { words: gpu.zeros(LAYERS * WORDS)?, from: 0, next: 0 })
    }

    /// Whether all are in use.
    pub(super) fn is_full(&self) -> bool {
        self.next == LAYERS
    }

    /// The numbers of the next layer, unless all are in use.
    pub(super) fn take(&mut self) -> Numbers {
        self.next += 1;
        self.latest()
    }

    /// The place of the numbers that were taken last.
    pub(super) fn last(&self) -> usize {
        self.next - 1
    }

    /// The numbers that were taken last.
    pub(super) fn latest(&self) -> Numbers {
        Numbers(self.words.slice().address() + (self.last() * WORDS * size_of::<u64>()) as u64)
    }

    /// The place of the first numbers that were not read.
    pub(super) fn first_unread(&self) -> usize {
        self.from
    }

    /// The numbers that were not read yet.
    pub(super) fn unread(&self) -> Result<DeviceSlice<'_, u64>, GpuError> {
        self.words.slice().part(self.from * WORDS, self.next * WORDS)
    }

    /// The numbers that were read, by layer.
    pub(super) fn layers(read: &[u64]) -> impl Iterator<Item = &[u64]> {
        read.chunks(WORDS)
    }

    /// Marks all as read and, except the last `open`, complete.
    pub(super) fn settle(&mut self, open: usize) {
        self.from = self.next - open;
    }
}
