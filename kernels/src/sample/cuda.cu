// Uniform draws, by Floyd's algorithm in parallel: pick j is a random one of the first n - k + j +
// 1 candidates unless that was picked before, and then the last of these. Whether it was picked
// before is known for all picks at once: either an earlier pick drew the same, or an earlier pick
// was a repeat and took its last candidate, which is this one. The second case is a chain of ever
// earlier picks, so it is resolved by iterating until nothing changes.
#include "device.cuh"
#include "table.cuh"
#include "draw.cuh"

// Threads of a block that handles several vertices, or one thread per vertex.
#define THREADS 256
// Threads of a block that handles one vertex at a time.
#define MANY_THREADS 128
// Edges of a block that copies.
#define COPIED 2048

// Counts the edges of each frontier vertex, and on request lists the vertices that have to pick
// some.
KERNEL(sample_count, GRAPH, FRONTIER, u32 fanout, EXCLUDED, TABLE, u32 *counts, u32 *work, u32 *list, u64 *listed,
                               u64 *status) {
    FRONTIER_OF(frontier);
    EXCLUDED_OF(excluded);
    TABLE_OF(table);
    for (u64 i = thread_id(); i < frontier.most; i += (u64)gridDim.x * blockDim.x) {
        if (i >= frontier.len) {
            counts[i] = 0;
            continue;
        }
        const InEdges in = in_edges(graph, frontier.vertices[i]);
        const u32 candidates = in.degree - (u32)within(excluded, in).count;
        const u32 count = min(candidates, fanout);
        counts[i] = count;
        tell(graph, frontier, table, i, in, count, work, status);
        if (list && count > 0 && count < candidates) list[atomicAdd(listed, 1ull)] = (u32)i;
    }
}

// Draws up to W edges of vertex `i` of the frontier, if it exists, by as many lanes. The vertex has
// `fanout` places, of which it fills the first.
template <u32 W>
__device__ __forceinline__ void few_of(const Graph &graph, Frontier frontier, u32 fanout, Key key, Excluded excluded, Table table,
                                       u32 *counts, u32 *work, Sampled sampled, u32 *drawn, u64 i) {
    const u32 lane = threadIdx.x % W, tile = threadIdx.x - lane;
    u32 vertex = 0;
    InEdges in = {nullptr, 0, 0, 0};
    if (i < frontier.len) {
        vertex = frontier.vertices[i];
        in = in_edges(graph, vertex);
    }
    const Excluded banned = within(excluded, in);
    const u32 candidates = in.degree - (u32)banned.count, count = min(candidates, fanout), lowest = candidates - count;
    const bool draws = lane < count && count < candidates;
    if (lane == 0 && i < frontier.most) counts[i] = count;
    if (lane == 0 && i < frontier.len) tell(graph, frontier, table, i, in, count, work, sampled.status);

    u32 pick = lane;
    if (draws) {
        const u32 word = word_of(philox(key, vertex, lane / 4), lane % 4);
        pick = below(word, lowest + lane + 1);
    }
    drawn[threadIdx.x] = pick;
    __syncwarp();
    bool again = false;
#pragma unroll
    for (u32 j = 0; j < W; j++) again |= j < lane && drawn[tile + j] == pick;
    again &= draws;
    const u32 link = pick - lowest, linked_to = (tile + link) % WARP;
    const bool linked = draws && pick >= lowest && link < lane;
    u32 replaced = __ballot_sync(FULL, again);
    for (u32 before = 0; replaced != before;) {
        before = replaced;
        replaced = __ballot_sync(FULL, again || (linked && before >> linked_to & 1));
    }
    if (draws && replaced >> lane_id() & 1) pick = lowest + lane;

    __syncwarp();
    drawn[threadIdx.x] = pick;
    __syncwarp();
    u32 rank = 0;
#pragma unroll
    for (u32 j = 0; j < W; j++) {
        const u32 other = drawn[tile + j];
        rank += j < count && other < pick;
    }
    const u32 first = (u32)i * fanout;
    if (lane < count) take(graph, table, sampled, (u32)frontier.len, first + rank, in, skip(pick, in.start, banned));
    else if (lane < fanout && i < frontier.most) sampled.local[first + lane] = NO_SLOT;
    __syncwarp();
}

// All lanes of a warp stay together.
template <u32 W>
__device__ __forceinline__ void few(const Graph &graph, Frontier frontier, u32 fanout, Key key, Excluded excluded, Table table,
                                    u32 *counts, u32 *work, Sampled sampled) {
    __shared__ u32 drawn[THREADS];
    constexpr u64 AT_ONCE = THREADS / W;
    for (u64 from = blockIdx.x * AT_ONCE; from < frontier.most; from += gridDim.x * AT_ONCE) {
        few_of<W>(graph, frontier, fanout, key, excluded, table, counts, work, sampled, drawn, from + threadIdx.x / W);
    }
}

#define SAMPLE_FEW(W)                                                                                                     \
    KERNEL(sample_few_##W, GRAPH, FRONTIER, u32 fanout, EXCLUDED, TABLE, u32 *counts, u32 *work, Key key, SAMPLED) { \
        FRONTIER_OF(frontier);                                                                                            \
        EXCLUDED_OF(excluded);                                                                                            \
        TABLE_OF(table);                                                                                                  \
        SAMPLED_OF(sampled);                                                                                              \
        few<W>(graph, frontier, fanout, key, excluded, table, counts, work, sampled);                                     \
    }

SAMPLE_FEW(4)
SAMPLE_FEW(8)
SAMPLE_FEW(16)
SAMPLE_FEW(32)

// Moves the edges from the places of `sample_few`, whose slots are numbered, into contiguous lists,
// with the target of each.
KERNEL(sample_close, const u64 *len, u32 fanout, u64 room, TABLE, const u32 *indptr, const u32 *slots, const u64 *ids,
                               u32 *local, u32 *targets, u64 *edges) {
    TABLE_OF(table);
    const u64 place = thread_id(), i = divide(place, fanout);
    if (place >= room || i >= *len) return;
    const u32 lane = (u32)(place - i * fanout), first = indptr[i];
    if (lane >= indptr[i + 1] - first) return;
    local[first + lane] = position_of(table, slots[place]);
    targets[first + lane] = (u32)i;
    if (edges) edges[first + lane] = ids[place];
}

// The last of the vertices `from` .. `to` whose edges begin at `edge` or before.
__device__ __forceinline__ u64 vertex_of(const u32 *indptr, u64 from, u64 to, u32 edge) {
    while (to - from > 1) {
        const u64 middle = from + (to - from) / 2;
        if (indptr[middle] <= edge) from = middle;
        else to = middle;
    }
    return from;
}

// Copies the edges of vertices that keep all allowed edges: one thread per edge, so that no vertex
// is too large.
KERNEL(sample_copy, GRAPH, FRONTIER, EXCLUDED, TABLE, const u32 *indptr, SAMPLED) {
    FRONTIER_OF(frontier);
    EXCLUDED_OF(excluded);
    TABLE_OF(table);
    SAMPLED_OF(sampled);
    __shared__ u64 range[2];
    const u64 len = frontier.len;
    const u32 total = indptr[len];
    for (u64 begin = (u64)blockIdx.x * COPIED; begin < total; begin += (u64)gridDim.x * COPIED) {
        const u64 end = min(begin + COPIED, (u64)total);
        if (threadIdx.x < 2) range[threadIdx.x] = vertex_of(indptr, 0, len, threadIdx.x == 0 ? begin : end - 1);
        __syncthreads();
        for (u64 at = begin + threadIdx.x; at < end; at += THREADS) {
            const u64 i = vertex_of(indptr, range[0], range[1] + 1, (u32)at);
            const u32 first = indptr[i], count = indptr[i + 1] - first;
            const InEdges in = in_edges(graph, frontier.vertices[i]);
            const Excluded banned = within(excluded, in);
            if (count < in.degree - (u32)banned.count) continue;
            take(graph, table, sampled, (u32)len, (u32)at, in, skip((u32)at - first, in.start, banned));
        }
        __syncthreads();
    }
}

// The place of `pick`, which was drawn by pick `j`, in a table of the first pick to draw each
// value.
__device__ __forceinline__ u32 first_to_draw(const u32 *picks, u32 *table, u32 mask, u32 j) {
    const u32 pick = picks[j];
    u32 slot = (pick * 0x9E3779B1u >> 7) & mask;
    for (;; slot = (slot + 1) & mask) {
        u32 found = relaxed_load(&table[slot]);
        if (found == 0xFFFFFFFFu) found = atomicCAS(&table[slot], 0xFFFFFFFFu, j);
        if (found == 0xFFFFFFFFu) return slot;
        if (picks[found] == pick) {
            atomicMin(&table[slot], j);
            return slot;
        }
    }
}

// Draws for the vertices on the list, one block per vertex. `size` is a power of two, the fanout or
// more; if 4 · size words do not fit in shared memory, every block uses a part of `memory`.
KERNEL(sample_many, GRAPH, FRONTIER, EXCLUDED, TABLE, const u32 *indptr, SAMPLED, Key key, const u32 *list,
                              const u64 *listed, u32 size, u32 *memory) {
    FRONTIER_OF(frontier);
    EXCLUDED_OF(excluded);
    TABLE_OF(table);
    SAMPLED_OF(sampled);
    DYNAMIC_SHARED(u32, shared);
    __shared__ u32 changed;
    u32 *const picks = memory ? memory + (u64)blockIdx.x * 4 * size : shared, *const drawn = picks + size;
    u32 *const firsts = picks + 2 * size;
    for (u64 at = blockIdx.x; at < *listed; at += gridDim.x) {
        const u32 i = list[at], vertex = frontier.vertices[i], first = indptr[i], count = indptr[i + 1] - first;
        const InEdges in = in_edges(graph, vertex);
        const Excluded banned = within(excluded, in);
        const u32 candidates = in.degree - (u32)banned.count, lowest = candidates - count;
        for (u32 block = threadIdx.x; block < size / 4; block += MANY_THREADS) {
            const Words words = philox(key, vertex, block);
            for (u32 k = 0; k < 4; k++) {
                const u32 j = 4 * block + k;
                const u32 pick = below(words.word[k], lowest + j + 1);
                // Larger than all picks, which are below 2^32 - 1.
                drawn[j] = j < count ? pick : 0xFFFFFFFFu;
                picks[j] = drawn[j];
                firsts[2 * j] = firsts[2 * j + 1] = 0xFFFFFFFFu;
            }
        }
        __syncthreads();
        for (u32 j = threadIdx.x; j < count; j += MANY_THREADS) first_to_draw(drawn, firsts, 2 * size - 1, j);
        __syncthreads();
        for (u32 j = threadIdx.x; j < count; j += MANY_THREADS) {
            if (relaxed_load(&firsts[first_to_draw(drawn, firsts, 2 * size - 1, j)]) < j) picks[j] = lowest + j;
        }
        do {
            __syncthreads();
            if (threadIdx.x == 0) changed = 0;
            __syncthreads();
            for (u32 j = threadIdx.x; j < count; j += MANY_THREADS) {
                const u32 link = drawn[j] - lowest;
                if (picks[j] != drawn[j] || drawn[j] < lowest || link >= j) continue;
                // Another thread may or may not have replaced it yet: if not, the next round sees
                // it.
                if (relaxed_load(&picks[link]) != drawn[link]) {
                    relaxed_store(&picks[j], lowest + j);
                    relaxed_store(&changed, 1u);
                }
            }
            __syncthreads();
        } while (changed);
        sort_of_block(picks, size);
        for (u32 j = threadIdx.x; j < count; j += MANY_THREADS) {
            take(graph, table, sampled, (u32)frontier.len, first + j, in, skip(picks[j], in.start, banned));
        }
        __syncthreads();
    }
}

template <typename T>
static __device__ __forceinline__ void degrees(const Graph &graph, const u32 *vertices, u64 count, T *out) {
    for (u64 i = thread_id(); i < count; i += (u64)gridDim.x * blockDim.x) {
        const u64 vertex = vertices[i];
        if (vertex >= graph.num_vertices) {
            out[i] = (T)0;
            continue;
        }
        const InEdges in = graph.held ? in_edges(graph, (u32)vertex) : InEdges{nullptr, 0, 0, NOT_HELD};
        out[i] = in.problem ? (T)(graph.indptr[vertex + 1] - graph.indptr[vertex]) : (T)in.degree;
    }
}

// Number of in-edges of each vertex; 0 for ids that are not vertices.
KERNEL(vertex_degrees, GRAPH, const u32 *vertices, u64 count, u64 *out) {
    degrees(graph, vertices, count, out);
}

KERNEL(vertex_degrees_f32, GRAPH, const u32 *vertices, u64 count, float *out) {
    degrees(graph, vertices, count, out);
}
