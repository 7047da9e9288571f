//! Inputs of a run, opened and checked before the first mini-batch.
//!
//! ```text
//! setup.rs        opens dataset, map, caches and checkpoint
//! host.rs         feature rows in the host's memory, within a budget
//! processes.rs    processes of one host: one budget, and one copy of rows
//! dry_run.rs      mini-batches on trial: how much memory a GPU has left
//! shard.rs        a dataset that holds only the rows of some vertices
//! locality.rs     the factor by which kept rows are preferred
//! advice.rs       what to do after an error
//! ```

pub mod advice;
pub mod dry_run;
pub mod host;
pub mod locality;
pub mod processes;
pub mod setup;
pub mod shard;
