//! Code that gsplit's programs share: how they talk to the user and listen; what is written from their options; and the steps that
//! `gsplit run` takes.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod child;
pub mod convert;
pub mod describe;
pub mod evaluate;
pub mod headings;
pub mod launch;
pub mod manual;
pub mod outputs;
pub mod partition;
pub mod presample;
pub mod ui;

/// Version; in release builds followed by the commit.
pub const VERSION: &str = env!("GSPLIT_VERSION");
