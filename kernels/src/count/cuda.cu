// Pre-sample counters of vertices. Edges are counted as they are drawn (sample/draw.cuh).
#include "device.cuh"

// Counts the distinct vertices of a mini-batch, each of which appears `appearances` times in it.
KERNEL(count_vertices, const u32 *vertices, u64 count, u32 appearances, u64 num_vertices, u32 *appear, u32 *input) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const u32 vertex = vertices[i];
    if (vertex >= num_vertices) return;
    appear[vertex] += appearances;
    input[vertex] += 1;
}
