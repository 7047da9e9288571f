//! What computes dense products, by the one of two engines that suits this machine.
//!
//! The `gemm` crate uses AVX-512 where the processor has it; torch's MKL does so on Intel's processors only, and takes
//! AVX2 elsewhere. Without AVX-512, or with neither, torch's own is chosen. `GSPLIT_GEMM=torch` or `GSPLIT_GEMM=gemm`
//! chooses by hand, for measurements.

use std::sync::OnceLock;

/// What computes dense products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The `gemm` crate.
    Gemm,
    /// torch's own.
    Torch,
}

/// The engine of this process.
pub fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    *ENGINE.get_or_init(|| match std::env::var("GSPLIT_GEMM").as_deref() {
        Ok("torch") => Engine::Torch,
        Ok("gemm") => Engine::Gemm,
        _ => detect(),
    })
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Engine {
    if std::arch::is_x86_feature_detected!("avx512f") { Engine::Gemm } else { Engine::Torch }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Engine {
    Engine::Torch
}
