// A stable counting sort by owner. A warp goes through a stretch of the vertices, 32 at a time: it
// first counts the vertices of each rank. These counts are summed up by rank, then by stretch; then
// the warp goes through the vertices again and puts each vertex's position into its place. No other
// warp touches a stretch's counts.
#include "device.cuh"

#define OUT_OF_RANGE 1
#define NO_RANK 2

struct Owner {
    u32 rank;
    bool known;
};

// Without `owners`, the ranks own the vertices in turn.
__device__ __forceinline__ Owner owner_of(const u32 *ids, u64 at, u64 len, const u16 *owners, u64 num_vertices, u32 ranks, u64 *status) {
    if (at >= len) return {0xFFFFFFFFu, false};
    const u32 vertex = ids[at];
    if (vertex >= num_vertices) {
        atomicMax(status, ~(at << 3 | OUT_OF_RANGE));
        return {0xFFFFFFFFu, false};
    }
    const u32 rank = owners ? owners[vertex] : vertex % ranks;
    if (rank >= ranks) atomicMax(status, ~(at << 3 | NO_RANK));
    return {rank, rank < ranks};
}

// The group of a rank's vertices: by rank, except that `last` comes after all others.
__device__ __forceinline__ u32 group_of(u32 rank, u32 last, u32 ranks) {
    return rank < last ? rank : rank == last ? ranks - 1 : rank - 1;
}

#define VERTICES const u32 *ids, const u64 *len_at, const u16 *owners, u64 num_vertices, u32 ranks, u32 last, u32 stretch, u64 stretches
#define OWNER(at) owner_of(ids, at, len, owners, num_vertices, ranks, status)

// Counts the vertices of each group in each stretch.
KERNEL(split_count, VERTICES, u64 *status, u32 *counts) {
    const u64 mine = thread_id() / WARP, len = *len_at;
    if (mine >= stretches) return;
    for (u32 group = lane_id(); group < ranks; group += WARP) counts[group * stretches + mine] = 0;
    __syncwarp();
    for (u64 from = mine * stretch; from < min(len, (mine + 1) * stretch); from += WARP) {
        const Owner owner = OWNER(from + lane_id());
        const u32 peers = __match_any_sync(FULL, owner.rank);
        // The first lane of an owner counts for all its lanes.
        if (owner.known && __ffs(peers) - 1 == (int)lane_id()) {
            counts[group_of(owner.rank, last, ranks) * stretches + mine] += __popc(peers);
        }
        __syncwarp();
    }
}

// `next` holds the summed counts. `starts` gets the start of each group, and the end.
KERNEL(split_place, VERTICES, u64 *status, u32 *next, u32 *order, u32 *grouped, u32 *starts) {
    const u64 mine = thread_id() / WARP, len = *len_at;
    if (mine >= stretches) return;
    if (mine == 0) {
        for (u32 group = lane_id(); group <= ranks; group += WARP) starts[group] = next[group * stretches];
        __syncwarp();
    }
    for (u64 from = mine * stretch; from < min(len, (mine + 1) * stretch); from += WARP) {
        const u64 at = from + lane_id();
        const Owner owner = OWNER(at);
        const u32 peers = __match_any_sync(FULL, owner.rank);
        u32 *const place = next + group_of(owner.rank, last, ranks) * stretches + mine;
        if (owner.known) {
            const u32 to = *place + __popc(peers & ((1u << lane_id()) - 1));
            order[to] = (u32)at;
            grouped[to] = ids[at];
        }
        __syncwarp();
        if (owner.known && __ffs(peers) - 1 == (int)lane_id()) *place += __popc(peers);
        __syncwarp();
    }
}
