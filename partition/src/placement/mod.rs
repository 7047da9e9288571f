//! Placement of feature rows: the contents of each device's cache, and the loads that they save.
//!
//! Returns, for caches of any size, the expected row loads that are served from the reader's own
//! cache, from a peer's and from the host, for each rule of [`PlacementRule`]; and the rows of each
//! device by one of them, to be stored with `gsplit_store::Placement::save`. Input: a presample's
//! `input` counter, and a partition, which gives owners and devices.
//!
//! ```text
//! demand (who loads which row, how often) ──▶ curve (cache size → local, peer, host)
//!                                       └───▶ rows of each device ──▶ expected loads of each device
//! ```
//!
//! **Cost model** (Song & Jiang): reading a row costs 0 from the own cache, alpha from a peer's, 1
//! from the host. With alpha ≥ 1 no device reads from a peer. The unit is the load of one row from
//! the host.
//!
//! **Assumptions of the predictions.** λ(v) = `input[v]` / batches is the probability that a global
//! mini-batch loads the row of v, as pre-sampled: training is to use the same fanouts, batch size
//! and split. Caches are filled before training and do not change. Rows are ranked by the counts
//! that also predict their loads, so that few pre-sampled mini-batches predict a little more hits
//! than there will be.
//! * `split` parallelism: a row is loaded once a mini-batch, by its owner.
//! * `data` parallelism: the mini-batch is cut into equal random shares, one a device, and each
//!   device loads what its share needs. Every device then loads v with the same probability q; if
//!   the shares need v independently of each other, 1 − λ = (1 − q)^k, which gives q. A row that is
//!   loaded in every pre-sampled mini-batch counts as loaded by every device. Shares that depend on
//!   each other (all draw the same neighbours of a vertex) load a little more than that: 4 % in the
//!   test that samples fresh mini-batches, where split parallelism is predicted within 1 %.
//!
//! Cost: one sort of the vertices; then every point of the curve takes a few binary searches over
//! the runs of equal counts, and `partitioned` and `peer` one pass over all rows for all points.
//! Memory: 4 bytes a vertex.

mod curve;
mod demand;
mod options;
mod owned;
mod ranking;
mod replicas;
mod rows;
mod size;
#[cfg(test)]
mod tests;

pub use curve::{CurvePoint, cache_sizes, curve};
pub use demand::Demand;
pub use options::{Costs, PlaceOptions, PlacementRule};
pub(crate) use ranking::Ranking;
pub use rows::{expected_loads, place};
pub use size::{Bandwidth, row_bytes};
