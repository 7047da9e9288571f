// A layer's edges: the target of each, rows of many edges, the order of the sources, and the edges
// of a graph convolution.
#include "device.cuh"
#include "rows.cuh"

// The target of each edge: the first whose edges end beyond it.
KERNEL(edge_targets, const u32 *indptr, u64 targets, u64 edges, u32 *out) {
    const u64 edge = thread_id();
    if (edge >= edges) return;
    u64 low = 0, high = targets;
    while (low < high) {
        const u64 middle = low + (high - low) / 2;
        if (indptr[middle + 1] <= edge) low = middle + 1;
        else high = middle;
    }
    out[edge] = (u32)low;
}

// Cuts rows of more than PIECE edges into pieces. The order of the pieces only affects the
// positions of the partial sums.
KERNEL(edge_pieces, const u32 *indptr, u64 rows, u32 *counts, u32 *heavy, u32 *pieces) {
    const u64 row = thread_id();
    if (row >= rows) return;
    const u32 edges = indptr[row + 1] - indptr[row];
    if (edges <= PIECE) return;
    const u32 count = (edges - 1) / PIECE + 1;
    const u32 slot = atomicAdd(&counts[0], 1u), first = atomicAdd(&counts[1], count);
    heavy[3 * slot] = (u32)row;
    heavy[3 * slot + 1] = first;
    heavy[3 * slot + 2] = count;
    for (u32 i = 0; i < count; i++) {
        pieces[2 * (first + i)] = (u32)row;
        pieces[2 * (first + i) + 1] = i;
    }
}

__device__ __forceinline__ float inverse_root(u64 degree) { return __fdiv_rn(1.0f, __fsqrt_rn((float)(degree + 1))); }

// Where the edges of each target start with a loop before them, and the loops; as in symmetric.rs.
KERNEL(symmetric_loops, const u32 *indptr, u64 targets, const u64 *degrees, u32 *starts, u32 *sources, float *weights) {
    const u64 target = thread_id();
    if (target > targets) return;
    const u64 at = indptr[target] + target;
    starts[target] = (u32)at;
    if (target == targets) return;
    sources[at] = (u32)target;
    weights[at] = __fdiv_rn(1.0f, (float)(degrees[target] + 1));
}

// The edges between the loops.
KERNEL(symmetric_edges, const u32 *indptr, const u32 *targets, const u32 *from, u64 edges, const u64 *degrees, u64 rows,
                                  u32 *sources, float *weights) {
    const u64 edge = thread_id();
    if (edge >= edges) return;
    const u32 target = targets[edge], source = from[edge];
    const u64 degree = degrees[target], at = edge + target + 1;
    const float stands_for = __fdiv_rn((float)degree, (float)(indptr[target + 1] - indptr[target]));
    sources[at] = source;
    weights[at] = source >= rows ? not_a_number()
                                 : __fmul_rn(__fmul_rn(stands_for, inverse_root(degree)), inverse_root(degrees[source]));
}
