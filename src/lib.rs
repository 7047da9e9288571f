//! What gsplit's programs share: how they talk to the user, and listen, and what is written from their options.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod launch;
pub mod manual;
pub mod outputs;
pub mod ui;
