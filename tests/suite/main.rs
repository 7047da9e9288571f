//! The whole of gsplit from outside: the binary on real input, bad input, interruption; and the promises that span crates.

mod layering;
#[cfg(feature = "train")]
mod pipeline;
mod support;
#[cfg(feature = "train")]
mod theorem;
mod bad_input;
mod damage;
mod documents;
