//! Where mini-batches come from, and what single systems need beyond the common loop.
//!
//! Who computes which rows is a row of the table in `config/parallelism.rs`; the loop over mini-batches is the same for all.
//!
//! ```text
//! prepared.rs      a mini-batch that is ready to compute
//! drawn.rs         drawn anew in every epoch: all systems but one
//! cooperative.rs   made once, server by server (GraNNDis)
//! push_pull.rs     the bottom layer by columns of the features (P3)
//! ```

mod cooperative;
mod drawn;
mod prepared;
mod push_pull;

pub use cooperative::Made;
pub use drawn::drawn;
#[cfg(test)]
pub use drawn::prepare;
pub use prepared::Prepared;
pub use push_pull::PushPull;
