//! What gsplit's programs share: how they talk to the user, listen, and draw.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod chart;
pub mod launch;
pub mod outputs;
pub mod ui;
