//! What gsplit's programs share: how they talk to the user, and listen.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod launch;
pub mod outputs;
pub mod ui;
