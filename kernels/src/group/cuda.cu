// A stable counting sort of several lists at once, one digit of a few bits at a time.
#include "device.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)
#define ITEMS 16
#define TILE (THREADS * ITEMS)

// A list of `count` items; keys of `most` or more belong to no group.
struct List {
    const u32 *keys;
    u64 count, most;
    // Numbers of items, tiles, and threads of the last kernel, in the lists before it.
    u64 first_item, first_tile, first_thread;
    // The values to sort along, the sorted items, their sorted values, and where the items of each
    // key start.
    const u32 *payload;
    u32 *order, *sorted_payload, *starts;
};
#define LISTS const List *lists, u32 num_lists

// The list that contains tile or thread `at`.
#define LIST_OF(list, first, at)                                    \
    u32 which = 0;                                                  \
    while (which + 1 < num_lists && lists[which + 1].first <= (at)) which++; \
    const List list = lists[which]

// A tile of a list, in the pass over one digit.
struct Tile {
    // Keys of the list, its number of items, and the first item of the warp.
    const u32 *keys;
    u64 count, first;
    u32 most;
    // Position of the counts of its digits, and the distance between them.
    u64 at, apart;
};

// `sorted` are the keys in the order of the last digit's pass, or null before the first.
__device__ __forceinline__ Tile tile_of(const List &list, const u32 *sorted, u32 bits) {
    const u64 number = blockIdx.x - list.first_tile, apart = (list.count + TILE - 1) / TILE;
    const u64 first = number * TILE + threadIdx.x / WARP * (WARP * ITEMS) + lane_id();
    return {sorted ? sorted + list.first_item : list.keys, list.count, first, (u32)list.most, (list.first_tile << bits) + number, apart};
}

// Counts the digits of each tile, by list and digit.
KERNEL(group_count, LISTS, const u32 *sorted, u32 shift, u32 bits, u32 *places) {
    DYNAMIC_SHARED(u32, found);
    LIST_OF(list, first_tile, blockIdx.x);
    const Tile tile = tile_of(list, sorted, bits);
    const u32 digits = 1u << bits;
    for (u32 digit = threadIdx.x; digit < digits; digit += THREADS) found[digit] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 i = 0; i < ITEMS; i++) {
        const u64 at = tile.first + i * WARP;
        if (at < tile.count) atomicAdd(&found[min(tile.keys[at], tile.most) >> shift & (digits - 1)], 1u);
    }
    __syncthreads();
    for (u32 digit = threadIdx.x; digit < digits; digit += THREADS) places[tile.at + digit * tile.apart] = found[digit];
}

// Moves each item to its place. A warp's items follow one another, so that equal keys keep their
// order.
KERNEL(group_place, LISTS, const u32 *sorted, u32 shift, u32 bits, const u32 *places, const u32 *order, u32 *keys_out, u32 *order_out) {
    DYNAMIC_SHARED(u32, all);
    LIST_OF(list, first_tile, blockIdx.x);
    const Tile tile = tile_of(list, sorted, bits);
    const u32 digits = 1u << bits;
    u32 *const next = all + threadIdx.x / WARP * digits;
    for (u32 i = threadIdx.x; i < WARPS * digits; i += THREADS) all[i] = 0;
    __syncthreads();
#pragma unroll 4
    for (u32 i = 0; i < ITEMS; i++) {
        const u64 at = tile.first + i * WARP;
        if (at < tile.count) atomicAdd(&next[min(tile.keys[at], tile.most) >> shift & (digits - 1)], 1u);
    }
    __syncthreads();
    for (u32 digit = threadIdx.x; digit < digits; digit += THREADS) {
        u32 start = places[tile.at + digit * tile.apart];
        for (u32 w = 0; w < WARPS; w++) {
            const u32 found = all[w * digits + digit];
            all[w * digits + digit] = start;
            start += found;
        }
    }
    __syncthreads();
    for (u32 i = 0; i < ITEMS; i++) {
        const u64 at = tile.first + i * WARP;
        const bool mine = at < tile.count;
        const u32 key = mine ? min(tile.keys[at], tile.most) : 0;
        // Lanes without an item match only each other.
        const u32 digit = mine ? key >> shift & (digits - 1) : digits;
        const u32 peers = __match_any_sync(FULL, digit);
        const u32 rank = __popc(peers & ((1u << lane_id()) - 1));
        const u32 start = mine ? next[digit] : 0;
        __syncwarp();
        if (mine && rank == 0) next[digit] = start + __popc(peers);
        __syncwarp();
        if (mine) {
            keys_out[start + rank] = key;
            order_out[start + rank] = order ? order[list.first_item + at] : (u32)at;
        }
    }
}

// Each list's part of the sorted items, and where the items of each key start and the last ones
// end.
KERNEL(group_finish, LISTS, u64 threads, const u32 *sorted, const u32 *order) {
    const u64 thread = thread_id();
    if (thread >= threads) return;
    LIST_OF(list, first_thread, thread);
    const u64 i = thread - list.first_thread;
    if (i < list.count) {
        const u32 item = order[list.first_item + i];
        list.order[i] = item;
        if (list.payload) list.sorted_payload[i] = list.payload[item];
    }
    if (i > list.most) return;
    u64 low = 0, high = list.count;
    while (low < high) {
        const u64 middle = low + (high - low) / 2;
        if (sorted[list.first_item + middle] < i) low = middle + 1;
        else high = middle;
    }
    list.starts[i] = (u32)low;
}
