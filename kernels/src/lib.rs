//! Computation on plain slices and on GPUs: sampling, splitting, gathering, aggregation, attention,
//! counting, components, activations, norms, dropout masks, and products in bf16; and the
//! communicators that join ranks.
//!
//! Vertices are `u32`, edge indices `u64`. Every random number is a pure function of its key
//! ([`StreamKey`]) and of the vertex it is drawn for, so no result depends on thread count, rank or
//! order. There is one folder per operation: `mod.rs` holds the contract, `cpu.rs` the
//! implementation on host memory, `cuda.rs` and `cuda.cu` that on GPUs.
//!
//! # Errors
//! A function may return [`KernelError::Length`] for a buffer of another length than its
//! documentation says, and the errors of the function whose part, variant, gradient or twin on a
//! GPU it is. One that returns [`GpuError`] may return [`GpuError::OutOfMemory`] and errors of the
//! driver and of the GPU, of earlier launches too; one that returns [`CommError`] the errors of a
//! [`Communicator`]. Sections on errors name only others.
//! ```
//! use gsplit_kernels::schedule::Step;
//! use gsplit_kernels::{Draw, EdgeIds, Fanout, Graph, SampledCsc, Sampler, gather_rows};
//!
//! // Edges 1 → 0, 2 → 0 and 0 → 1: the in-neighbours of vertex 0, and a feature row for each vertex that is reached.
//! let graph = Graph::new(&[0, 2, 3, 3], &[1, 2, 0])?;
//! let (mut sampler, mut layer) = (Sampler::new(1), SampledCsc::default());
//! sampler.start(&[0]);
//! let key = Step { seed: 0, epoch: 1, step: 0 }.layer_key(0);
//! sampler.layer(&graph, &Draw::new(Fanout::All), &key, EdgeIds::Drop, &mut layer)?;
//! assert_eq!((sampler.mixed_frontier(), &layer.local[..]), (&[0, 1, 2][..], &[1, 2][..]));
//!
//! let (features, mut rows) = ([[0.0f32, 0.5], [1.0, 1.5], [2.0, 2.5]], [0.0; 6]);
//! gather_rows(|v| &features[v as usize][..], sampler.mixed_frontier(), 2, &mut rows)?;
//! assert_eq!(rows, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
//! # Ok::<(), gsplit_kernels::KernelError>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

// For code that the tests include from gpu-sim.
#[cfg(test)]
extern crate self as gsplit_kernels;

mod activation;
mod attention;
mod columns;
mod comm;
mod count;
mod cuda;
mod dropout;
mod edges;
mod error;
mod forest;
mod gather;
mod group;
mod id_map;
mod machine;
mod norm;
mod philox;
mod prefetch;
mod product;
mod reduce;
mod sample;
mod scan;
pub mod schedule;
mod segment;
mod shuffle;
mod simd;
mod split;
mod spmm;
mod unique;

pub use activation::{
    Activation, DeviceEpilogue, Epilogue, add_rows, column_sums, column_sums_on_device,
};
pub use attention::{
    Attention, AttentionGradient, DeviceAttention, DeviceAttentionGradient, DeviceDynamicGradient,
    DeviceDynamicRows, DynamicGradient, DynamicRows, head_products, head_products_backward,
    head_products_backward_on_device, head_products_on_device,
};
pub use comm::{
    Communicator, Counted, DeviceExchange, Limit, Nccl, Route, Seat, Sent, SentByRoute, Since,
    Solo, Threads, Wait, all_gather_v, all_to_all_counts, all_to_all_into, all_to_all_v,
    device_all_to_all_v, in_phase, lock,
    messages::{Messages, check_message},
};
pub use count::{CounterParts, Counters, DeviceCounters};
pub use cuda::{
    CudaLibrary, CudaSurvey, DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, GpuFacts,
    HostBytes, IpcHandle, LateBytes, Link, MappedHost, backend, before_cuda, before_out_of_memory,
    load_torch_cuda, make_room, pinned_copy_speed,
};
pub use dropout::{MAX_DROPOUT_DIM, dropout_mask};
pub use edges::{
    BySource, DeviceEdges, DeviceSegments, HostEdges, sort_on_device, symmetric,
    symmetric_on_device,
};
pub use error::{CommError, KernelError, check_len};
pub use forest::Forest;
pub use gather::{
    CacheHits, DeviceCache, DeviceHits, DeviceRow, DeviceScatter, DeviceTable, DeviceValue,
    RowHandles, RowStore, ScaledRow, StoredRow, Widen, gather_f32, gather_on_device, gather_rows,
    scatter_add_f32,
};
pub use machine::{cache_folder, has_avx512, processor};
pub use norm::{
    ColumnNorm, column_moments, divide_by_row_sums, divide_by_row_sums_on_device, layer_norm,
    layer_norm_backward,
};
pub use philox::{DRAWS_PER_ITEM, Draws, Stream, StreamKey, permute};
pub use prefetch::prefetch;
pub use product::{MatrixView, PackedFactor, has_amx, has_bf16, product_bf16};
pub use reduce::{DeviceAddend, device_all_reduce_sum};
pub use sample::{
    DeviceDraw, DeviceEdgeIds, DeviceExcludedEdges, DeviceGraph, DeviceLayer, DeviceSampler,
    DeviceSubgraph, Draw, EdgeIds, ExcludedEdges, Expansion, Fanout, Graph, LayerFanout,
    PreferredVertices, ReceptiveField, RowLayout, SampledCsc, Sampler, TypeRows, VertexSet,
};
pub use shuffle::{DeviceShuffle, DeviceSplit, select_on_device};
pub use split::{DeviceOwners, Split, split_by_owner};
pub use spmm::{
    Aggregation, DeviceAggregation, DeviceRows, Reduce, aggregate_max, aggregate_max_backward,
    aggregate_max_backward_on_device, aggregate_max_on_device,
};
pub use unique::unique;
