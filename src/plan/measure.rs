//! The profile of this machine's CPU.

use gsplit_kernels::processor;
use gsplit_preprocess::memory::machine;
use gsplit_trainer::{Device, Rates};

use super::profile::{Dense, Link, Profile};

/// Measures this machine, in some seconds.
///
/// # Errors
/// Those of the operators.
pub fn measure() -> anyhow::Result<Profile> {
    let Rates { sampled_edges, rows, stream, layer, dense: [f32, bf16], exchange: [bytes, latency] } =
        Rates::measure()?;
    let threads = rayon::current_num_threads();
    Ok(Profile {
        about: format!("{}, {threads} threads, measured by gsplit {}", processor(), env!("CARGO_PKG_VERSION")),
        device: Device::Cpu,
        hosts: 1,
        ranks: threads,
        shared: true,
        memory: machine() as f64,
        sampled_edges,
        rows,
        stream,
        layer,
        dense: Dense { f32, bf16 },
        peer: Link { bytes, latency },
        pairs: Vec::new(),
        bus: None,
        network: None,
    })
}
