//! What single systems need beyond the common loop, a file each.
//!
//! Who computes which rows is a row of the table in `config/parallelism.rs`; the loop over mini-batches is the same for all. A system
//! that exchanges something else than rows between layers, or makes its mini-batches otherwise, has its file here.

mod cooperative;
mod push_pull;

pub use cooperative::Made;
pub use push_pull::{PushPull, columns_of};
