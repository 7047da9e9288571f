// Sums over ranks, in their order.
#include "device.cuh"

// `parts` holds a list of `len` values per rank; `out` gets their sum `ranks` times, once for each
// rank.
template <typename T> static __device__ __forceinline__ void sum_ranks(const T *parts, u64 len, u32 ranks, T *out) {
    const u64 i = thread_id();
    if (i >= len) return;
    T sum = parts[i];
    for (u32 rank = 1; rank < ranks; rank++) sum += parts[rank * len + i];
    for (u32 rank = 0; rank < ranks; rank++) out[rank * len + i] = sum;
}

KERNEL(sum_ranks_f32, const float *parts, u64 len, u32 ranks, float *out) { sum_ranks(parts, len, ranks, out); }

KERNEL(sum_ranks_f64, const double *parts, u64 len, u32 ranks, double *out) { sum_ranks(parts, len, ranks, out); }
