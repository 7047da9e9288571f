//! What a way of drawing in-edges is to the sampler.

use super::{Fanout, Graph};
use crate::error::KernelError;
use crate::philox::StreamKey;
use crate::table::Table;

/// A way of drawing in-edges: [`Uniform`](super::Uniform) or [`Weighted`](super::Weighted).
pub trait Draw: DrawVertex {}

/// The part of [`Draw`] that the sampler calls.
pub trait DrawVertex: Sync {
    /// The number of in-edges kept.
    fn fanout(&self) -> Fanout;

    /// Refuses what cannot be drawn from `graph`.
    fn check(&self, graph: &Graph<'_>) -> Result<(), KernelError>;

    /// Draws from the in-edges of `vertex`; appends what it keeps to `picks`, ascending, unless that is all.
    fn draw(
        &self,
        vertex: Vertex,
        key: &StreamKey,
        scratch: &mut Scratch,
        picks: &mut Picks,
    ) -> Result<Kept, KernelError>;
}

/// A vertex to draw for.
#[derive(Clone, Copy, Debug)]
pub struct Vertex {
    /// The vertex.
    pub id: u32,
    /// Its first in-edge.
    pub start: u64,
    /// The number of its in-edges.
    pub degree: u32,
}

/// What a vertex keeps of its in-edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Every one.
    All,
    /// This many, which were appended to the picks.
    Picked(u32),
}

/// What drawing needs besides, kept from vertex to vertex.
#[derive(Default)]
pub struct Scratch {
    /// Picks of the present vertex, where they are too many to be compared with each other.
    pub(super) seen: Table,
    /// One word for each candidate.
    pub(super) keys: Vec<u64>,
}

/// Lanes that [`Picks::lanes`] hands out at once.
pub(super) const LANES: usize = 16;

/// Picked in-edges, as offsets from the first one of their vertex.
#[derive(Default)]
pub struct Picks {
    offsets: Vec<u32>,
    len: usize,
}

impl Picks {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// All picks.
    pub(super) fn as_slice(&self) -> &[u32] {
        &self.offsets[..self.len]
    }

    /// The last `count` picks.
    #[inline]
    pub(super) fn last(&mut self, count: usize) -> &mut [u32] {
        &mut self.offsets[self.len - count..self.len]
    }

    /// The next `count` places, to be filled.
    #[inline]
    pub(super) fn places(&mut self, count: usize) -> &mut [u32] {
        let from = self.len;
        self.len += count;
        if self.offsets.len() < self.len {
            self.grow();
        }
        &mut self.offsets[from..self.len]
    }

    /// The next `count` places and further ones that belong to nobody, [`LANES`] in all: what has a fixed size is
    /// cheaper to fill.
    #[inline]
    pub(super) fn lanes(&mut self, count: usize) -> &mut [u32; LANES] {
        debug_assert!(count <= LANES);
        let from = self.len;
        self.len += count;
        if self.offsets.len() < from + LANES {
            self.grow();
        }
        let (lanes, _) = self.offsets[from..].as_chunks_mut();
        &mut lanes[0]
    }

    #[cold]
    fn grow(&mut self) {
        self.offsets.resize(2 * self.len + 64 * LANES, 0);
    }
}
