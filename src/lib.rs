//! Code that gsplit's programs share: the subcommands that need no libtorch; how the programs talk
//! to the user and listen; and what is written from their options.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod child;
mod clean;
pub mod cli;
pub mod completions;
pub mod convert;
pub mod describe;
mod doctor;
pub mod evaluate;
mod export;
mod figures;
mod generate;
pub mod headings;
mod inspect;
pub mod installed;
pub mod launch;
pub mod outputs;
pub mod partition;
mod place;
pub mod presample;
mod report;
mod schema;
mod shard;
pub mod ui;
mod verify;

/// Version; in release builds followed by the commit.
pub const VERSION: &str = env!("GSPLIT_VERSION");
