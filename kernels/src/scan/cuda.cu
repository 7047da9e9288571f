// Sums of all values before each one, tile by tile.
#include "device.cuh"

#define THREADS 256
#define ITEMS 8
#define TILE (THREADS * ITEMS)

// The sum of `value` over the block's threads before this one; `total` becomes that of all.
static __device__ __forceinline__ u32 sum_before(u32 value, u32 *warps, u32 *total) {
    const u32 sum = warp_scan(value), warp = threadIdx.x / WARP;
    if (lane_id() == WARP - 1) warps[warp] = sum;
    __syncthreads();
    u32 before = 0, all = 0;
    for (u32 w = 0; w < THREADS / WARP; w++) {
        if (w < warp) before += warps[w];
        all += warps[w];
    }
    // The next call writes to `warps` again.
    __syncthreads();
    *total = all;
    return before + sum - value;
}

KERNEL_ENTRY void scan_tile_sums(const u32 *values, u64 count, u32 *sums) {
    __shared__ u32 warps[THREADS / WARP];
    const u64 tile = (u64)blockIdx.x * TILE;
    u32 sum = 0, total;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        const u64 at = tile + i * THREADS + threadIdx.x;
        if (at < count) sum += values[at];
    }
    sum_before(sum, warps, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}
KERNEL(scan_tile_sums)

// One block scans them all.
KERNEL_ENTRY void scan_sums(u32 *sums, u64 count) {
    __shared__ u32 warps[THREADS / WARP];
    u32 before = 0;
    for (u64 start = 0; start < count; start += THREADS) {
        const u64 at = start + threadIdx.x;
        const u32 value = at < count ? sums[at] : 0;
        u32 total;
        const u32 sum = before + sum_before(value, warps, &total);
        if (at < count) sums[at] = sum;
        before += total;
    }
}
KERNEL(scan_sums)

KERNEL_ENTRY void scan_tiles(u32 *values, u64 count, const u32 *sums) {
    __shared__ u32 warps[THREADS / WARP];
    const u64 first = (u64)blockIdx.x * TILE + threadIdx.x * ITEMS;
    u32 mine[ITEMS], sum = 0, total;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        mine[i] = first + i < count ? values[first + i] : 0;
        sum += mine[i];
    }
    sum = sums[blockIdx.x] + sum_before(sum, warps, &total);
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        if (first + i < count) values[first + i] = sum;
        sum += mine[i];
    }
}
KERNEL(scan_tiles)
