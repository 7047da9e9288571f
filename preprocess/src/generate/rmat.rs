//! R-MAT: a graph with the skewed degrees of social networks and the web.
//!
//! Returns: any edge by its number. Input: the number of vertices, not necessarily a power of two.
//! Idea: an edge descends the adjacency matrix, each time into one of four quadrants with
//! probabilities A = 0.57, B = 0.19, C = 0.19, D = 0.05; an edge that ends outside the matrix is
//! drawn again. Source: Chakrabarti, Zhan, Faloutsos, "R-MAT", SDM 2004; the probabilities are from
//! Graph500. Cost: a random word per level: log2 of the vertices, less than twice that with the
//! edges drawn again.

use gsplit_kernels::Draws;
use serde::Serialize;

use super::{GraphOptions, Model, edge_key};
use crate::convert::RandomSplit;

/// Options of `generate rmat`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct RmatOptions {
    /// The graph.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(flatten)]
    pub graph: GraphOptions,
    /// Shares of the vertices for training, validation and testing, chosen at random
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "TRAIN,VALID,TEST", default_value = "0.1,0.05,0.05")
    )]
    pub random_split: RandomSplit,
}

/// Ends of the quadrants' shares of all words: A, A + B and A + B + C.
const QUADRANTS: [u32; 3] = [share(57), share(76), share(95)];

const fn share(percent: u64) -> u32 {
    ((percent << 32) / 100) as u32
}

/// The model.
pub(super) struct Rmat {
    vertices: u32,
    levels: u32,
    seed: u64,
}

impl Rmat {
    /// The model; there is at least one vertex.
    pub(super) fn new(options: &RmatOptions) -> Self {
        let GraphOptions { vertices, seed, .. } = options.graph;
        Self { vertices, levels: u32::BITS - (vertices - 1).leading_zeros(), seed }
    }
}

impl Model for Rmat {
    fn edge(&self, i: u64) -> (u32, u32) {
        let (key, item) = edge_key(self.seed, i);
        let mut draws = Draws::new(&key, item);
        loop {
            let (mut row, mut column) = (0, 0);
            for _ in 0..self.levels {
                let word = draws.next_u32();
                let quadrant = QUADRANTS.iter().filter(|&&end| word >= end).count() as u32;
                row = row << 1 | quadrant >> 1;
                column = column << 1 | quadrant & 1;
            }
            if row < self.vertices && column < self.vertices {
                return (row, column);
            }
        }
    }
}
