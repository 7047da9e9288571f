//! The counters of pre-sampling: how often training touches each vertex and each edge.
//!
//! Contract, on every device: four counts of different things, never mixed up. `input[v]`: batches
//! that load the features of v (it ranks caches). `appear[v]`: appearances of v at any layer (the
//! load of GSplit, section 4). `work[v]`: sampled in-edges charged to v (the load in edges).
//! `edge[e]`: times e was sampled (the communication). Totals do not depend on the order of
//! batches.

mod cpu;
pub(crate) mod cuda;

use std::ops::Range;

use crate::error::{KernelError, check_len};

pub use cpu::Counters;
pub use cuda::DeviceCounters;

/// The part of a mini-batch's vertices that each of its nested frontiers of these `sizes` adds, and
/// the number of frontiers that the part is in. The last size is that of the mini-batch.
fn frontiers(vertices: usize, sizes: &[usize]) -> Result<Vec<(Range<usize>, u32)>, KernelError> {
    check_len("vertices of a mini-batch", vertices, sizes.last().copied().unwrap_or(0))?;
    let mut from = 0;
    let part = |(depth, &size): (usize, &usize)| {
        let start = std::mem::replace(&mut from, size);
        match start <= size && size <= vertices {
            true => Ok((start..size, (sizes.len() - depth) as u32)),
            false => {
                Err(KernelError::Length { what: "frontier of a layer", expected: start, got: size })
            }
        }
    };
    sizes.iter().enumerate().map(part).collect()
}

/// The final counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterParts {
    /// Batches that load the features of each vertex.
    pub input: Vec<u32>,
    /// Appearances of each vertex at any layer.
    pub appear: Vec<u32>,
    /// Sampled in-edges of each vertex, or each row ([`Counters::by_rows`]); their sum equals that
    /// of `edge`.
    pub work: Vec<u32>,
    /// Times each edge was sampled, in the order of the graph's `indices`.
    pub edge: Vec<u32>,
}
