//! A hint to the processor.
//!
//! Unsafe code of this file: the instruction for it.
#![allow(unsafe_code)]

/// Begins to bring `slice[index]` into the nearest cache, without waiting for it. Any `index` may be given; the result of a
/// program never depends on it. Does nothing where the processor's instruction is not known here.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads nothing that the program could see and never faults, whatever the address is; the
        // instruction is part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_index_will_do() {
        for index in [0, 2, 3, usize::MAX] {
            super::prefetch(&[1u64, 2, 3], index);
            super::prefetch::<u64>(&[], index);
        }
    }
}
