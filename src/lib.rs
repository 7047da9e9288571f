//! What gsplit's programs share: how they talk to the user.
#![forbid(unsafe_code)]

pub mod launch;
pub mod ui;
