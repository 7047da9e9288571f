//! The processes of a run, as rank 0 and as another, hear any bytes. These are the very files of the trainer and of the kernels, which
//! without the rest need no libtorch; its own tests replay the corpus (`trainer/src/ranks/rendezvous/tests.rs`).

#![allow(dead_code)] // Only what hears is under test.

use std::time::Duration;

#[path = "../../trainer/src/ranks/rendezvous/callers.rs"]
mod callers;
#[path = "../../kernels/src/comm/sockets/frames.rs"]
mod frames;
#[path = "../../trainer/src/ranks/rendezvous/wire.rs"]
mod wire;

#[path = "strangers.rs"]
mod strangers;

/// Says the three parts of an input.
pub fn run(bytes: &[u8]) -> bool {
    let mut parts = super::input::split(bytes);
    strangers::run([(); 3].map(|()| parts.next().unwrap_or_default()))
}

// As in `trainer/src/ranks/rendezvous/mod.rs`.
const HANDSHAKE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
