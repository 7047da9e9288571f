//! Engines that compute dense products on the host.
//!
//! Which engine is fastest depends on the processor: torch's MKL uses AVX-512 on Intel's processors only, and instructions for bf16 are
//! twice as fast as those for f32 on some processors, slower on others. So the engines are timed once on a machine (`calibrate.rs`), and the
//! choice is kept: later runs there have the same sums, to the bit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, RwLock};
use std::thread;

use gsplit_kernels::has_bf16;
use serde::{Deserialize, Serialize};

use super::calibrate::calibrated;
use crate::config::Dtype;

/// Engine that computes dense products on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The `gemm` crate, in tiles.
    Gemm,
    /// torch's own, with whole matrices.
    Torch,
    /// Instructions for bf16, in tiles ([`product_bf16`](gsplit_kernels::product_bf16)).
    Bf16,
    /// The `gemm` crate, of factors that are rounded to bf16 first.
    GemmOfRounded,
    /// torch's own, of factors that are rounded to bf16 first.
    TorchOfRounded,
}

/// Library whose engine computes dense products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Products {
    /// The gemm crate's, in tiles
    Gemm,
    /// torch's (MKL), with whole matrices
    Torch,
    /// gsplit's own, for --dtype bf16: by the processor's instructions for it
    Own,
    /// With --device cuda and --dtype f32: torch's on tensor cores, which keep 11 bits of each factor's 24
    Tf32,
}

impl Engine {
    /// The engine of this machine for factors of this type.
    pub fn of(dtype: Dtype) -> Self {
        static ENGINES: [OnceLock<Engine>; 2] = [const { OnceLock::new() }; 2];
        // Nobody asks the host for f16.
        *ENGINES[usize::from(dtype == Dtype::Bf16)].get_or_init(|| calibrated(dtype).engine)
    }

    /// One whose results do not depend on the number of threads.
    pub fn in_tiles(dtype: Dtype) -> Self {
        Self::candidates(dtype).into_iter().find(|engine| engine.takes_tiles()).unwrap_or(Self::Gemm)
    }

    /// The engine of `products` for factors of this type. `None` where there is no such engine, or this processor
    /// cannot.
    pub fn named(products: Products, dtype: Dtype) -> Option<Self> {
        let engine = match (products, dtype == Dtype::Bf16) {
            (Products::Gemm, false) => Self::Gemm,
            (Products::Torch, false) => Self::Torch,
            (Products::Gemm, true) => Self::GemmOfRounded,
            (Products::Torch, true) => Self::TorchOfRounded,
            (Products::Own, true) => Self::Bf16,
            (Products::Own, false) | (Products::Tf32, _) => return None,
        };
        Self::candidates(dtype).contains(&engine).then_some(engine)
    }

    /// Engines that compute with factors of this type on this processor. The first is taken unless another is clearly faster.
    pub fn candidates(dtype: Dtype) -> Vec<Self> {
        match dtype {
            Dtype::F32 | Dtype::F16 => vec![Self::Gemm, Self::Torch],
            Dtype::Bf16 if has_bf16() => vec![Self::Bf16, Self::GemmOfRounded, Self::TorchOfRounded],
            Dtype::Bf16 => vec![Self::GemmOfRounded, Self::TorchOfRounded],
        }
    }

    /// Whether it takes less than a product of f32: by instructions for rounded factors.
    pub fn by_instructions(self) -> bool {
        self == Self::Bf16
    }

    /// Whether it computes tiles of rows, on rayon's threads.
    pub(super) fn takes_tiles(self) -> bool {
        matches!(self, Self::Gemm | Self::Bf16 | Self::GemmOfRounded)
    }
}

/// How many threads torch's operators take that the calling thread runs.
///
/// # Panics
/// If the system refuses a thread.
pub fn set_torch_threads(threads: usize) {
    let threads = threads.max(1);
    try_threads(threads);
    // The first question of a thread takes over what any other has set last: it comes before the thread's own number.
    let _ = tch::get_num_threads();
    tch::set_num_threads(threads as i32);
}

/// Most threads that [`try_threads`] has started.
static TRIED: AtomicUsize = AtomicUsize::new(0);

/// Starts so many threads and ends them: for one of its own that the system refuses, libtorch waits for ever.
fn try_threads(threads: usize) {
    // The usual limit on a thread's stack.
    const STACK_BYTES: usize = 8 << 20;
    if TRIED.fetch_max(threads, Ordering::Relaxed) >= threads {
        return;
    }
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let _closed = gate.write();
        for _ in 0..threads {
            let started = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || drop(gate.read()));
            if let Err(error) = started {
                panic!("failed to spawn thread: {error}");
            }
        }
    });
}
