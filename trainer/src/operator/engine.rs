//! What computes dense products.
//!
//! For f32 the one of two that suits this machine: the `gemm` crate uses AVX-512 where the processor has it; torch's MKL does so
//! on Intel's processors only, and takes AVX2 elsewhere. Without AVX-512, torch's own is chosen. `GSPLIT_GEMM=torch`
//! or `GSPLIT_GEMM=gemm` chooses by hand, for measurements. For bf16 it is [`product_bf16`](gsplit_kernels::product_bf16).

use std::sync::OnceLock;

use crate::config::Dtype;

/// What computes dense products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The `gemm` crate.
    Gemm,
    /// torch's own.
    Torch,
    /// Of factors rounded to bf16.
    Bf16,
}

impl Engine {
    /// The engine of this process for factors of this type.
    pub fn of(dtype: Dtype) -> Self {
        static F32: OnceLock<Engine> = OnceLock::new();
        match dtype {
            Dtype::Bf16 => Self::Bf16,
            // Nobody asks the host for f16.
            Dtype::F32 | Dtype::F16 => *F32.get_or_init(|| match std::env::var("GSPLIT_GEMM").as_deref() {
                Ok("torch") => Self::Torch,
                Ok("gemm") => Self::Gemm,
                _ if has_avx512() => Self::Gemm,
                _ => Self::Torch,
            }),
        }
    }
}

fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
