//! The training sampler: a frontier's in-neighbours drawn, de-duplicated, renumbered and written as
//! CSC, in one call a layer.
//!
//! Contract, on every device, of a graph without weights: a vertex of degree at most the fanout
//! keeps all its in-edges. Any other one keeps `fanout` of them, drawn by Floyd's algorithm from
//! the words of its own Philox sequence, one word per pick, and stored ascending. Draws by weight
//! and by locality run only on the host (`weighted.rs`, `locality.rs`). The draws of a vertex are a
//! function of (seed, epoch, step, layer, vertex), the graph and the preferred set, and of nothing
//! else. With several types of vertices ([`RowLayout`]), a row takes the place of the vertex. The
//! mixed frontier is the frontier, then every other source once, in order of first occurrence.
//!
//! ```text
//! sampler.rs    a mini-batch: layer after layer            uniform.rs    all edges alike
//! segment.rs      draw a part of the frontier              weighted.rs   by edge weights
//! numbering.rs    number the drawn vertices                locality.rs   more often from a set of vertices
//! excluded.rs     edges that must not be drawn             vertex_set.rs   such a set
//! expansion.rs    vertices that a server of several reads  preferred.rs    such sets for each layer
//! cuda.rs       the sampler on a GPU                       device.rs     its inputs and outputs
//! rows.rs       rows of in-edges, with types of vertices
//! launch.rs       its launches                             subgraph.rs   in-edges that a GPU holds of a graph it does not
//! numbers.rs      counts of several layers, read at once
//! ```

pub(crate) mod cuda;
mod device;
mod draw;
mod excluded;
mod expansion;
mod fanout;
mod graph;
mod launch;
mod locality;
mod numbering;
mod numbers;
mod preferred;
mod record;
mod rows;
mod sampler;
mod segment;
mod subgraph;
mod uniform;
mod vertex_set;
mod weighted;

pub use cuda::DeviceSampler;
pub use device::{DeviceDraw, DeviceEdgeIds, DeviceExcludedEdges, DeviceGraph, DeviceLayer};
pub use draw::Draw;
pub use excluded::ExcludedEdges;
pub use expansion::{Expansion, ReceptiveField};
pub(crate) use fanout::serde_by_text;
pub use fanout::{Fanout, LayerFanout};
pub use graph::Graph;
pub use preferred::PreferredVertices;
pub use record::EdgeIds;
pub(crate) use record::Record;
pub use rows::{RowLayout, TypeRows};
pub use sampler::{SampledCsc, Sampler};
pub use subgraph::DeviceSubgraph;
pub use vertex_set::VertexSet;
