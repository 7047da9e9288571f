//! Loops compiled for the vector units that this machine has, and prefetching.
//!
//! The crates are compiled for any x86-64. `pulp` compiles a closure again for AVX2 and for AVX-512, and picks one when
//! it is called; its prefetch is safe because a prefetch never faults. On other machines nothing is picked and nothing
//! prefetched.

/// Bytes that one prefetch brings.
const LINE_BYTES: usize = 64;

/// Runs `body`, compiled for this machine's vector units. What it calls must be inlined into it.
#[inline(always)]
pub(crate) fn vectorised<R>(body: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(body)
}

/// Permission to prefetch, found out once for a whole loop.
#[derive(Clone, Copy)]
pub(crate) struct Prefetch {
    #[cfg(target_arch = "x86_64")]
    unit: Option<pulp::x86::V1>,
}

impl Prefetch {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            unit: pulp::x86::V1::try_new(),
        }
    }

    /// Asks for all of `values`, without waiting for them.
    #[inline(always)]
    pub(crate) fn slice<T>(self, values: &[T]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = self.unit {
            let start = values.as_ptr().cast::<i8>();
            for offset in (0..size_of_val(values)).step_by(LINE_BYTES) {
                unit.sse._mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(start.wrapping_add(offset));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (values, LINE_BYTES);
    }
}

/// How many rows of `dim` values ahead of its use a row is fetched.
#[inline(always)]
pub(crate) fn ahead(dim: usize) -> usize {
    const VALUES: usize = 1024;
    (VALUES / dim.max(1)).clamp(2, 16)
}

/// The product of two rows, in the same order of sums wherever it runs: 16 partial sums, then their sum.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
