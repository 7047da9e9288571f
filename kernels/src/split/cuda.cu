// A stable counting sort by owner. A warp goes through a stretch of the vertices, 32 at a time: it first counts how many each
// rank owns, and when these counts have been summed up, over the stretches of one rank after those of the rank before, it goes
// through them again and puts each vertex's position into its place. Nobody else touches a stretch's counts.
#include "device.cuh"

#define OUT_OF_RANGE 1
#define NO_RANK 2

struct Owner {
    u32 rank;
    bool known;
};

// Without `owners`, vertices are dealt to the ranks in turn.
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

// `counts` starts as zeros: for each rank, one for each stretch.
KERNEL_ENTRY void split_count(const u32 *ids, u64 len, const u16 *owners, u64 num_vertices, u32 ranks, u32 stretch, u64 stretches,
                              u32 *counts, u64 *status) {
    const u64 mine = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (mine >= stretches) return;
    for (u64 from = mine * stretch; from < min(len, (mine + 1) * stretch); from += WARP) {
        const Owner owner = owner_of(ids, from + lane_id(), len, owners, num_vertices, ranks, status);
        const u32 peers = __match_any_sync(FULL, owner.rank);
        // The first lane of an owner counts all.
        if (owner.known && __ffs(peers) - 1 == (int)lane_id()) counts[owner.rank * stretches + mine] += __popc(peers);
        __syncwarp();
    }
}
KERNEL(split_count)

// `next` holds the counts, summed up.
KERNEL_ENTRY void split_place(const u32 *ids, u64 len, const u16 *owners, u64 num_vertices, u32 ranks, u32 stretch, u64 stretches,
                              u32 *next, u32 *order, u64 *status) {
    const u64 mine = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (mine >= stretches) return;
    for (u64 from = mine * stretch; from < min(len, (mine + 1) * stretch); from += WARP) {
        const Owner owner = owner_of(ids, from + lane_id(), len, owners, num_vertices, ranks, status);
        const u32 peers = __match_any_sync(FULL, owner.rank);
        u32 *const place = next + owner.rank * stretches + mine;
        if (owner.known) order[*place + __popc(peers & ((1u << lane_id()) - 1))] = (u32)(from + lane_id());
        __syncwarp();
        if (owner.known && __ffs(peers) - 1 == (int)lane_id()) *place += __popc(peers);
        __syncwarp();
    }
}
KERNEL(split_place)

// Where each rank's begin.
KERNEL_ENTRY void split_starts(const u32 *sums, u64 stretches, u32 ranks, u32 *starts) {
    const u32 rank = blockIdx.x * blockDim.x + threadIdx.x;
    if (rank <= ranks) starts[rank] = sums[rank * stretches];
}
KERNEL(split_starts)
