//! Code of the fuzz targets. The tests that replay their corpora include the same files.

pub mod convert;
mod input;
pub mod stored;
#[cfg(feature = "train")]
pub mod trained;
