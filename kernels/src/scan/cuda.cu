// Exclusive sums of one list or two: replaces every number by the sum of those before it. Chunks
// are summed, the sums are summed by one block, and every chunk is summed again from there. Sums of
// chunks have 64 bits, so that the caller can detect an overflow.
#include "device.cuh"

#define THREADS 256
// Numbers per thread, which are adjacent.
#define ITEMS 8

// A list of `len` values, and room for their sum.
struct Scan {
    u32 *values;
    u64 len;
    // One for each block, if there are several.
    u64 *sums;
    // A second destination of the sum, or null.
    u64 *total;
    u64 blocks;
    u64 unused[3];
};

struct Items {
    u32 value[ITEMS];
};

__device__ __forceinline__ Items load(const u32 *values, u64 from, u64 len) {
    Items items;
    if (from + ITEMS <= len && (u64)values % 16 == 0) {
        const uint4 *quads = (const uint4 *)(values + from);
#pragma unroll
        for (int q = 0; q < ITEMS / 4; q++) {
            const uint4 quad = quads[q];
            items.value[4 * q] = quad.x, items.value[4 * q + 1] = quad.y;
            items.value[4 * q + 2] = quad.z, items.value[4 * q + 3] = quad.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) items.value[i] = from + i < len ? values[from + i] : 0;
    }
    return items;
}

// Computes one sum for each chunk of THREADS * ITEMS.
KERNEL(scan_sums, const Scan one, const Scan other) {
    const Scan scan = blockIdx.x < one.blocks ? one : other;
    const u64 block = blockIdx.x < one.blocks ? blockIdx.x : blockIdx.x - one.blocks;
    const Items items = load(scan.values, (block * THREADS + threadIdx.x) * ITEMS, scan.len);
    u64 sum = 0, total;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) sum += items.value[i];
    sum_before<THREADS>(sum, &total);
    if (threadIdx.x == 0) scan.sums[block] = total;
}

// Sums these sums, by one block for each list.
KERNEL(scan_of_sums, const Scan one, const Scan other) {
    const Scan scan = blockIdx.x == 0 ? one : other;
    u64 before = 0;
    for (u64 from = 0; from < scan.blocks; from += THREADS) {
        const u64 at = from + threadIdx.x;
        u64 total;
        const u64 sum = before + sum_before<THREADS>(at < scan.blocks ? scan.sums[at] : 0, &total);
        if (at < scan.blocks) scan.sums[at] = sum;
        before += total;
    }
}

// `values` has one more element than `len`, which becomes the sum of all.
KERNEL(scan_write, const Scan one, const Scan other) {
    const Scan scan = blockIdx.x < one.blocks ? one : other;
    const u64 block = blockIdx.x < one.blocks ? blockIdx.x : blockIdx.x - one.blocks;
    u32 *const values = scan.values;
    const u64 len = scan.len, from = (block * THREADS + threadIdx.x) * ITEMS;
    Items items = load(values, from, len);
    u64 sum = 0, of_block;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) sum += items.value[i];
    const u64 base = scan.sums ? scan.sums[block] : 0;
    u64 before = base + sum_before<THREADS>(sum, &of_block);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 value = items.value[i];
        items.value[i] = (u32)before;
        before += value;
    }
    if (from + ITEMS <= len && (u64)values % 16 == 0) {
        uint4 *quads = (uint4 *)(values + from);
#pragma unroll
        for (int q = 0; q < ITEMS / 4; q++) {
            quads[q] = make_uint4(items.value[4 * q], items.value[4 * q + 1], items.value[4 * q + 2], items.value[4 * q + 3]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (from + i < len) values[from + i] = items.value[i];
        }
    }
    if (block == scan.blocks - 1 && threadIdx.x == 0) {
        values[len] = (u32)(base + of_block);
        if (scan.total) *scan.total = base + of_block;
    }
}
