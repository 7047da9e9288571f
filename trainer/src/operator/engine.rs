//! Engines that compute dense products on the host.
//!
//! The fastest engine depends on the processor: torch's MKL uses AVX-512 only on Intel's
//! processors, and bf16 instructions are twice as fast as those for f32 on some processors, slower
//! on others. So the engines are timed once per machine (`calibrate.rs`), and the choice is kept:
//! later runs there have the same sums, to the bit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, RwLock};
use std::thread;

use gsplit_kernels::has_bf16;
use serde::{Deserialize, Serialize};

use super::calibrate::calibrated;
use crate::config::{Dtype, Products};

/// Engine that computes dense products on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The `gemm` crate, in tiles.
    Gemm,
    /// torch's own products, on whole matrices.
    Torch,
    /// bf16 instructions, in tiles ([`product_bf16`](gsplit_kernels::product_bf16)).
    Bf16,
    /// The `gemm` crate, with factors rounded to bf16 first.
    GemmOfRounded,
    /// torch's own products, with factors rounded to bf16 first.
    TorchOfRounded,
}

impl Engine {
    /// The engine of this machine for factors of type `dtype`.
    pub fn of(dtype: Dtype) -> Self {
        static ENGINES: [OnceLock<Engine>; 2] = [const { OnceLock::new() }; 2];
        // The host never computes in f16.
        *ENGINES[usize::from(dtype == Dtype::Bf16)].get_or_init(|| calibrated(dtype).engine)
    }

    /// An engine whose results do not depend on the number of threads.
    pub fn in_tiles(dtype: Dtype) -> Self {
        Self::candidates(dtype)
            .into_iter()
            .find(|engine| engine.takes_tiles())
            .unwrap_or(Self::Gemm)
    }

    /// The engine of `products` for factors of type `dtype`. `None` if there is no such engine, or
    /// this processor does not support it.
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

    /// Engines for factors of type `dtype` on this processor. The first is chosen unless another is
    /// clearly faster.
    pub fn candidates(dtype: Dtype) -> Vec<Self> {
        match dtype {
            Dtype::F32 | Dtype::F16 => vec![Self::Gemm, Self::Torch],
            Dtype::Bf16 if has_bf16() => {
                vec![Self::Bf16, Self::GemmOfRounded, Self::TorchOfRounded]
            }
            Dtype::Bf16 => vec![Self::GemmOfRounded, Self::TorchOfRounded],
        }
    }

    /// Whether it computes tiles of rows, on rayon's threads.
    pub(super) fn takes_tiles(self) -> bool {
        matches!(self, Self::Gemm | Self::Bf16 | Self::GemmOfRounded)
    }
}

/// Sets the number of threads of torch's operators on the calling thread.
///
/// # Panics
/// If the system cannot start that many threads.
pub fn set_torch_threads(threads: usize) {
    let threads = threads.max(1);
    try_threads(threads);
    // A thread's first query copies the number set last by any thread, so it must come before
    // setting the thread's own.
    let _ = tch::get_num_threads();
    tch::set_num_threads(threads as i32);
}

/// Largest number of threads that [`try_threads`] has started.
static TRIED: AtomicUsize = AtomicUsize::new(0);

/// Starts and ends `threads` threads: if the system cannot start one of libtorch's own, libtorch
/// would hang forever.
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
            let started = thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || drop(gate.read()));
            if let Err(error) = started {
                panic!("failed to spawn thread: {error}");
            }
        }
    });
}
