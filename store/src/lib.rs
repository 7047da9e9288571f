//! The gsplit dataset directory: the only crate that knows the format of artifacts on disk;
//! [`Progress`], to which their readers and writers report; and the [`memory`] available for them.
//!
//! Every other crate meets the others here: `preprocess` writes what `partition` and `trainer`
//! read.
//!
//! ```text
//! products/
//!   dataset.json                   manifest: counts, dtypes, bytes and checksum of each file, provenance
//!   topology/indptr.npy  u64[n+1]  CSC: the in-neighbours of v are indices[indptr[v]..indptr[v+1]]
//!   topology/indices.npy u32[m]    ascending within a vertex
//!   edges/<name>.npy               edge columns, aligned with the indices: [m] or [m, w] of f32, f64 or i64; `weight` (f32)
//!                                  is the edge weight, `feat` are edge features
//!   nodes/feat.arrow               Arrow IPC file, one FixedSizeList column (f32, f16, bf16; i8 with a column of scales),
//!                                  read in place
//!   nodes/label.npy      i32[n]    class of each vertex, -1 = unlabelled; multi-label: u8[n, ⌈classes / 8⌉], packed bits;
//!                                  of numbers to learn f32[n], NaN = unlabelled
//!   nodes/label.known.npy          multi-label, where some cells have no value: the cells that do
//!   nodes/<name>.npy               further node columns: [n] or [n, w] of any little-endian number
//!   nodes/original_id.npy u64[n]   id of each vertex in the raw input, when ids were changed;
//!   nodes/original_id.arrow        one LargeUtf8 column in its stead where those ids were strings; neither where vertex v has the
//!                                  id v, or v + `first_id` of the manifest
//!   splits/{train,valid,test}.npy  u32, ascending
//!   links/                         pairs of vertices and their negatives, where the graph came with a split of links ([`Links`])
//!   presample/<key>/               presample.json and the counters of [`Presample`]
//!   partition/<key>/               partition.json and the arrays of [`PartitionMap`]
//!   placement/<key>/               placement.json and the arrays of [`Placement`]
//!   tried/                         the same three folders again: a cache of `gsplit plan` and `gsplit compare` ([`tried`])
//! ```
//!
//! * A dataset may be a shard, which holds only the rows of some vertices, or some columns of the
//!   rows ([`ShardInfo`]).
//! * Each of the four JSON documents holds its own checksum and that of every file next to it
//!   ([`document`]).
//! * Opening a file checks it against that checksum, once after it was made or moved; `.verified`,
//!   next to the documents, notes sound files ([`check`]).
//! * Artifacts appear by one rename of a finished, fsynced sibling ([`staging`]): a killed run
//!   leaves the old state or the new one. A dataset that takes long is resumed at its last finished
//!   stage ([`DatasetWriter::resume`]).
//! * A derived artifact records the checksums of its inputs ([`MadeFrom`]); a partition of another
//!   graph is refused by name.
//!
//! ```
//! use gsplit_store::{Dataset, DatasetWriter, Provenance, Split};
//!
//! // Edges 1 → 0, 2 → 0 and 0 → 1, and the class of each vertex.
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("ds");
//! let mut writer = DatasetWriter::create(&path, false, &[0, 2, 3, 3], &[1, 2, 0])?;
//! writer.add_labels(&[0, 1, 1])?;
//! writer.add_split(Split::Train, vec![2, 0])?;
//! writer.finish(Provenance::default())?;
//!
//! let dataset = Dataset::open(&path)?;
//! assert_eq!(dataset.topology().in_neighbours(0), [1, 2]);
//! assert_eq!((&dataset.labels()?[..], &dataset.split(Split::Train)?[..]), (&[0, 1, 1][..], &[0, 2][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arrow;
mod artifact;
pub mod check;
mod checksum;
mod choose;
mod dataset;
pub mod document;
mod epoch;
mod error;
mod faults;
mod features;
mod ids;
mod journal;
mod kinds;
mod labels;
mod links;
mod manifest;
pub mod memory;
mod mmap;
mod names;
mod npy;
mod open;
mod partition;
mod placement;
mod presample;
mod progress;
mod recipe;
mod rows;
mod scores;
mod shard;
mod shell;
mod size;
pub mod staging;
mod stamp;
pub mod text;
mod topology;
mod tried;
mod types;
mod verify;
mod weights;
mod writer;

pub use artifact::{FileRecord, Files, MadeFrom, SourceFile, artifact_key, other_option};
pub use checksum::{Checksum, HashingWriter, checksum_file, checksum_stream};
pub use choose::choose;
pub use dataset::Dataset;
pub use epoch::{EpochReport, GpuMemory, LayerRows, SentRecord, Timings, Work};
pub use error::{Error, Result, not_found};
pub use faults::{Allocator, attempt, end_at_once, take_signals};
pub use features::{
    DiskRates, FeatureDtype, FeatureTable, FeatureWriter, Narrowing, ROWS_PER_BATCH, ReadBy,
    Reading, RowsRead, VisitRow, WrittenFeatures, planned_reads,
};
pub use ids::OriginalIds;
pub use kinds::Kinds;
pub use labels::{
    ClassLabels, HeldLabels, Label, LabelWriter, MultiLabelWriter, MultiLabels, NumericLabels,
};
pub use links::{LinkFile, LinkInfo, LinkNegatives, Links};
pub use manifest::{
    ColumnInfo, Columns, DatasetManifest, EDGE_WEIGHT, FeatureInfo, KIND, Provenance, Split,
    VERTEX_WEIGHT, WITHOUT_LINKS,
};
pub use mmap::{HostMemory, MappedFile, MemoryAddress, ScratchValues};
pub use names::{Names, NamesWriter};
pub use npy::{Column, ColumnFile, ColumnWriter, Element, NpyHeader, NpyWriter, write_npy};
pub use open::{entries, open_file, read_file, read_text};
pub use partition::{
    Balance, OwnWeightsReport, PartitionConfig, PartitionMap, PartitionMeta, PartitionReport,
    Pieces, ServerCut,
};
pub use placement::{
    CachedRows, EVERY_DEVICE, HOST, MAX_DEVICES, Placement, PlacementConfig, PlacementMeta,
    PlacementReport, Readers, RowLoads, deal_rows, hottest_rows, out_degrees,
};
pub use presample::{Counters, Presample, PresampleConfig, PresampleMeta};
pub use progress::{NoProgress, Notes, Progress, Stage, Unit};
pub use recipe::{EdgeRecipe, FeatureEncoding, FeatureRecipe, LabelShape, LeftOut, OTHER, Recipe};
pub use rows::RowIndex;
pub use scores::{Baseline, ClassScores, Confused, ModelScores, SplitScores, diverged, notes};
pub use shard::{Cut, ShardInfo, columns_of};
pub use shell::{as_argument, shell_path, shell_word};
pub use size::Size;
pub use stamp::Stamp;
pub use topology::{Topology, TopologyWriter};
pub use tried::{Cleaned, bare_key, stored_key, tried};
pub use types::{GraphTypes, Relation, RowsOfType, VertexType};
pub use verify::{Finding, verify};
pub use weights::{EdgeWeights, VertexLoads, vertex_weight};
pub use writer::{DatasetWriter, dataset_target, finished_shards, write_shards};
