// A stable counting sort, one digit of 8 bits at a time.
#include "device.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)
#define ITEMS 16
#define TILE (THREADS * ITEMS)
#define DIGITS 256

// Counts the digits of each tile: `places[digit][tile]`.
KERNEL_ENTRY void group_count(const u32 *keys, u64 count, u32 most, u32 shift, u64 tiles, u32 *places) {
    __shared__ u32 found[DIGITS];
    found[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 i = 0; i < ITEMS; i++) {
        const u64 at = (u64)blockIdx.x * TILE + i * THREADS + threadIdx.x;
        if (at < count) atomicAdd(&found[min(keys[at], most) >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    places[threadIdx.x * tiles + blockIdx.x] = found[threadIdx.x];
}
KERNEL(group_count)

// Takes each item to its place. A warp's items follow one another, so that ranks keep their order.
KERNEL_ENTRY void group_place(const u32 *keys, u64 count, u32 most, u32 shift, u64 tiles, const u32 *order, const u32 *places, u32 *keys_out, u32 *order_out) {
    __shared__ u32 next[WARPS][DIGITS];
    const u32 warp = threadIdx.x / WARP, lane = lane_id();
    const u64 first = (u64)blockIdx.x * TILE + warp * (WARP * ITEMS) + lane;
    for (u32 w = 0; w < WARPS; w++) next[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 i = 0; i < ITEMS; i++) {
        const u64 at = first + i * WARP;
        if (at < count) atomicAdd(&next[warp][min(keys[at], most) >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    u32 start = places[threadIdx.x * tiles + blockIdx.x];
    for (u32 w = 0; w < WARPS; w++) {
        const u32 found = next[w][threadIdx.x];
        next[w][threadIdx.x] = start;
        start += found;
    }
    __syncthreads();
    for (u32 i = 0; i < ITEMS; i++) {
        const u64 at = first + i * WARP;
        const bool mine = at < count;
        const u32 key = mine ? min(keys[at], most) : 0;
        // Lanes without an item agree with each other alone.
        const u32 digit = mine ? key >> shift & (DIGITS - 1) : DIGITS;
        const u32 peers = __match_any_sync(FULL, digit);
        const u32 rank = __popc(peers & ((1u << lane) - 1));
        const u32 start = mine ? next[warp][digit] : 0;
        __syncwarp();
        if (mine && rank == 0) next[warp][digit] = start + __popc(peers);
        __syncwarp();
        if (mine) {
            keys_out[start + rank] = key;
            order_out[start + rank] = order ? order[at] : (u32)at;
        }
    }
}
KERNEL(group_place)

// Where the items of each key start, and where the last one's end.
KERNEL_ENTRY void group_starts(const u32 *keys, u64 count, u64 num_keys, u32 *starts) {
    const u64 key = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (key > num_keys) return;
    u64 low = 0, high = count;
    while (low < high) {
        const u64 middle = low + (high - low) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    starts[key] = (u32)low;
}
KERNEL(group_starts)
