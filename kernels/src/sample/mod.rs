//! The training sampler: a frontier's in-neighbours drawn, de-duplicated, renumbered and written as CSC, in one call a
//! layer.
//!
//! Contract, on every device, of a graph without weights: a vertex of degree at most the fanout keeps all its in-edges. Any other one
//! keeps `fanout` of them, drawn by Floyd's algorithm from the words of its own Philox sequence, one word a pick, and stored ascending.
//! With weights the host alone draws (`weighted.rs`). What a vertex gets is a function of (seed, epoch, step, layer,
//! vertex) and the graph, and of nothing else. The mixed frontier is the frontier, then every other source once, in
//! order of first occurrence.
//!
//! ```text
//! sampler.rs    a mini-batch: layer after layer            uniform.rs    all edges alike
//! segment.rs      draw a part of the frontier              weighted.rs   by edge weights
//! numbering.rs    number what was drawn                    excluded.rs   edges that must not be drawn
//! cuda.rs       the same on a GPU                          device.rs     what it takes and gives
//!                                                          tier.rs       in-edges that a GPU holds of a graph it does not
//! ```

pub(crate) mod cuda;
mod device;
mod draw;
mod excluded;
mod fanout;
mod graph;
mod launch;
mod numbering;
mod record;
mod sampler;
mod segment;
mod tier;
mod uniform;
mod weighted;

pub use cuda::DeviceSampler;
pub use device::{DeviceDraw, DeviceEdgeIds, DeviceExcludedEdges, DeviceGraph, DeviceLayer};
pub use draw::Draw;
pub use excluded::ExcludedEdges;
pub use fanout::Fanout;
pub use graph::Graph;
pub use record::EdgeIds;
pub use sampler::{SampledLayer, Sampler};
pub use tier::DeviceTier;
