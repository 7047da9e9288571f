// Draws by weight, with the keys and the arithmetic of the host (weighted.rs): every float operation is rounded by itself.
// A vertex has a warp, or a block where it has many in-edges. Without replacement, the time up to which edges are kept is
// found digit by digit from counts of the candidates by their next eight bits, and the edges are written in order; keys
// are computed again for each digit, of which three or four are needed, so no vertex is too large. With replacement, a block
// sorts its vertex's places in the sum of the weights and sweeps over the edges.
#include "device.cuh"
#include "table.cuh"
#include "draw.cuh"

#define THREADS 256
// In-edges beyond which a vertex has a block.
#define LARGE 4096
#define DIGITS 256

// --- a group: a warp or a block ---

template <u32 G> __device__ __forceinline__ void group_sync() {
    if (G == WARP) __syncwarp();
    else __syncthreads();
}

// How many threads of the group before this one have `flag`; `total` becomes how many have.
template <u32 G> __device__ __forceinline__ u32 group_rank(bool flag, u32 *total) {
    const u32 bits = __ballot_sync(FULL, flag), before = __popc(bits & ((1u << lane_id()) - 1));
    if (G == WARP) {
        *total = __popc(bits);
        return before;
    }
    __shared__ u32 of_warp[THREADS / WARP];
    if (lane_id() == 0) of_warp[threadIdx.x / WARP] = __popc(bits);
    __syncthreads();
    u32 sum = 0, rank = before;
    for (u32 warp = 0; warp < THREADS / WARP; warp++) {
        if (warp < threadIdx.x / WARP) rank += of_warp[warp];
        sum += of_warp[warp];
    }
    __syncthreads();
    *total = sum;
    return rank;
}

// --- one vertex ---

struct Weighted {
    InEdges in;
    Excluded banned;
    const float *weights;
};

// The weight of a candidate, or 0 for what is none.
__device__ __forceinline__ float weight_of(Weighted vertex, u32 offset) {
    const u64 edge = vertex.in.start + offset;
    const float weight = vertex.weights[edge];
    return weight > 0.0f && weight < __uint_as_float(0x7F800000u) && !is_excluded(edge, vertex.banned) ? weight : 0.0f;
}

__device__ __forceinline__ u32 random_word(Key key, u32 vertex, u64 number) {
    return word_of(long_sequence(key, vertex, number / 4), (u32)number % 4);
}

// -ln of (2^33 - (2 word + 1)) / 2^33, as `exponential` of the host.
__device__ __forceinline__ float exponential(u32 word) {
    const i64 one = 1ll << 33, root = 6074001000ll;
    const i64 number = one - (2 * (i64)word + 1);
    i32 shift = __clzll(number) - 31;
    if (number << shift < root) shift++;
    const float difference = __fdiv_rn((float)((number << shift) - one), (float)one);
    const float s = __fdiv_rn(difference, __fadd_rn(2.0f, difference));
    const float square = __fmul_rn(s, s);
    float series = __fadd_rn(1.0f / 7.0f, __fmul_rn(square, 1.0f / 9.0f));
    series = __fadd_rn(1.0f / 5.0f, __fmul_rn(square, series));
    series = __fadd_rn(1.0f / 3.0f, __fmul_rn(square, series));
    series = __fadd_rn(1.0f, __fmul_rn(square, series));
    return __fsub_rn(__fmul_rn((float)shift, 0.69314718056f), __fmul_rn(__fmul_rn(2.0f, s), series));
}

// Candidates are kept in the order of these.
__device__ __forceinline__ u64 time_of(Key key, u32 vertex, u32 offset, float weight) {
    const float time = __fdiv_rn(exponential(random_word(key, vertex, offset)), weight);
    return (u64)__float_as_uint(time) << 32 | offset;
}

// --- how many ---

template <u32 G>
__device__ __forceinline__ void weigh(const Graph &graph, u64 i, u32 id, InEdges in, u32 fanout, u32 replace, Excluded excluded,
                                      const float *weights, u32 *counts, u32 *work, u64 *status) {
    const u32 lane = threadIdx.x % G;
    const Weighted vertex = {in, within(excluded, in), weights};
    u32 candidates = 0;
    for (u64 from = 0; from < in.degree; from += G) {
        const u64 offset = from + lane;
        bool is = false;
        if (offset < in.degree) {
            const float weight = weights[in.start + offset];
            if (!(weight >= 0.0f && weight < __uint_as_float(0x7F800000u))) report(status, in.start + offset, WEIGHT);
            is = weight_of(vertex, (u32)offset) > 0.0f;
        }
        u32 more;
        group_rank<G>(is, &more);
        candidates += more;
    }
    const u32 count = replace && candidates > 0 ? fanout : min(candidates, fanout);
    if (lane == 0) {
        counts[i] = count;
        if (in.problem) report(status, i, in.problem);
        else charge(work, id, count, i, status);
    }
}

KERNEL_ENTRY void weigh_count(GRAPH, const u32 *frontier, u64 len, u32 fanout, u32 replace, EXCLUDED, const float *weights, u32 *counts,
                              u32 *work, u32 *list, u64 *listed, u64 *status) {
    EXCLUDED_OF(excluded);
    const u64 i = ((u64)blockIdx.x * THREADS + threadIdx.x) / WARP;
    if (i >= len) return;
    const InEdges in = in_edges(graph, frontier[i]);
    if (in.degree > LARGE) {
        if (lane_id() == 0) list[atomicAdd(listed, 1ull)] = (u32)i;
        return;
    }
    weigh<WARP>(graph, i, frontier[i], in, fanout, replace, excluded, weights, counts, work, status);
}
KERNEL(weigh_count)

KERNEL_ENTRY void weigh_count_large(GRAPH, const u32 *frontier, u32 fanout, u32 replace, EXCLUDED, const float *weights, u32 *counts,
                                    u32 *work, const u32 *list, const u64 *listed, u64 *status) {
    EXCLUDED_OF(excluded);
    for (u64 at = blockIdx.x; at < *listed; at += gridDim.x) {
        const u32 i = list[at];
        const InEdges in = in_edges(graph, frontier[i]);
        weigh<THREADS>(graph, i, frontier[i], in, fanout, replace, excluded, weights, counts, work, status);
    }
}
KERNEL(weigh_count_large)

// --- without replacement ---

// The time of the last candidate kept, of which there are `need`, or a later one before the next. `counts` has DIGITS + 3.
template <u32 G> __device__ __forceinline__ u64 last_kept(Weighted vertex, Key key, u32 id, u32 need, u32 *counts) {
    const u32 lane = threadIdx.x % G;
    u32 *const found = counts + DIGITS;
    u64 prefix = 0;
    for (i32 shift = 56; shift >= 0; shift -= 8) {
        for (u32 digit = lane; digit < DIGITS; digit += G) counts[digit] = 0;
        group_sync<G>();
        for (u64 offset = lane; offset < vertex.in.degree; offset += G) {
            const float weight = weight_of(vertex, (u32)offset);
            if (weight == 0.0f) continue;
            const u64 time = time_of(key, id, (u32)offset, weight);
            if (time >> shift >> 8 == prefix) atomicAdd(&counts[time >> shift & (DIGITS - 1)], 1u);
        }
        group_sync<G>();
        if (lane < WARP) {
            u32 mine = 0;
            for (u32 k = 0; k < DIGITS / WARP; k++) mine += counts[lane * (DIGITS / WARP) + k];
            u32 before = warp_scan(mine) - mine;
            for (u32 k = 0; k < DIGITS / WARP; k++) {
                const u32 digit = lane * (DIGITS / WARP) + k, there = counts[digit];
                if (before < need && need <= before + there) found[0] = digit, found[1] = before, found[2] = there;
                before += there;
            }
        }
        group_sync<G>();
        prefix = prefix << 8 | found[0];
        need -= found[1];
        const bool whole = found[2] == need;
        group_sync<G>();
        if (whole) return prefix << shift | ((1ull << shift) - 1);
    }
    return prefix;
}

template <u32 G>
__device__ __forceinline__ void race(const Graph &graph, Table table, Sampled sampled, Weighted vertex, Key key, u32 id, u64 i,
                                     u32 frontier, u32 fanout, u32 *digits) {
    const u32 lane = threadIdx.x % G, first = sampled.indptr[i], count = sampled.indptr[i + 1] - first;
    if (count == 0) return;
    const bool races = vertex.in.degree > fanout && count == fanout;
    const u64 last = races ? last_kept<G>(vertex, key, id, count, digits) : ~0ull;
    u32 written = 0;
    for (u64 from = 0; from < vertex.in.degree && written < count; from += G) {
        const u64 offset = from + lane;
        const float weight = offset < vertex.in.degree ? weight_of(vertex, (u32)offset) : 0.0f;
        const bool keeps = weight > 0.0f && (!races || time_of(key, id, (u32)offset, weight) <= last);
        u32 more;
        const u32 rank = group_rank<G>(keeps, &more);
        if (keeps) take(graph, table, sampled, frontier, first + written + rank, vertex.in, (u32)offset);
        written += more;
    }
}

KERNEL_ENTRY void weigh_race(GRAPH, const u32 *frontier, u64 len, u32 fanout, Key key, EXCLUDED, TABLE, SAMPLED, const float *weights) {
    EXCLUDED_OF(excluded);
    TABLE_OF(table);
    SAMPLED_OF(sampled);
    __shared__ u32 digits[THREADS / WARP][DIGITS + 3];
    const u64 i = ((u64)blockIdx.x * THREADS + threadIdx.x) / WARP;
    if (i >= len) return;
    const u32 id = frontier[i];
    const InEdges in = in_edges(graph, id);
    if (in.degree > LARGE) return;
    const Weighted vertex = {in, within(excluded, in), weights};
    race<WARP>(graph, table, sampled, vertex, key, id, i, (u32)len, fanout, digits[threadIdx.x / WARP]);
}
KERNEL(weigh_race)

KERNEL_ENTRY void weigh_race_large(GRAPH, const u32 *frontier, u64 len, u32 fanout, Key key, EXCLUDED, TABLE, SAMPLED, const float *weights,
                                   const u32 *list, const u64 *listed) {
    EXCLUDED_OF(excluded);
    TABLE_OF(table);
    SAMPLED_OF(sampled);
    __shared__ u32 digits[DIGITS + 3];
    for (u64 at = blockIdx.x; at < *listed; at += gridDim.x) {
        const u32 i = list[at], id = frontier[i];
        const InEdges in = in_edges(graph, id);
        const Weighted vertex = {in, within(excluded, in), weights};
        race<THREADS>(graph, table, sampled, vertex, key, id, i, (u32)len, fanout, digits);
    }
}
KERNEL(weigh_race_large)

// --- with replacement ---

// The largest of positive floats of a block.
__device__ __forceinline__ float largest_of_block(float value) {
    __shared__ float of_warp[THREADS / WARP];
    value = warp_max(value);
    if (lane_id() == 0) of_warp[threadIdx.x / WARP] = value;
    __syncthreads();
    for (u32 warp = 0; warp < THREADS / WARP; warp++) value = of_warp[warp] > value ? of_warp[warp] : value;
    __syncthreads();
    return value;
}

// A weight as a multiple of 2^-31 of the largest.
__device__ __forceinline__ u64 share_of(float weight, float largest) {
    return (u64)round((double)weight / (double)largest * 2147483648.0);
}

// How many of the first `count` of ascending places come before `at`.
__device__ __forceinline__ u32 places_before(const u64 *places, u32 count, u64 at) {
    u32 from = 0;
    while (from < count) {
        const u32 middle = from + (count - from) / 2;
        if (places[middle] < at) from = middle + 1;
        else count = middle;
    }
    return from;
}

// `size` is a power of two, the fanout or more; where so many places are too many for shared memory, every block has some of
// `memory`.
KERNEL_ENTRY void weigh_spin(GRAPH, const u32 *frontier, u64 len, Key key, EXCLUDED, TABLE, SAMPLED, const float *weights, u32 size,
                             u64 *memory) {
    EXCLUDED_OF(excluded);
    TABLE_OF(table);
    SAMPLED_OF(sampled);
    DYNAMIC_SHARED(u64, shared);
    u64 *const places = memory ? memory + (u64)blockIdx.x * size : shared;
    for (u64 i = blockIdx.x; i < len; i += gridDim.x) {
        const u32 id = frontier[i], first = sampled.indptr[i], count = sampled.indptr[i + 1] - first;
        if (count == 0) continue;
        const InEdges in = in_edges(graph, id);
        const Weighted vertex = {in, within(excluded, in), weights};
        float largest = 0.0f;
        for (u64 offset = threadIdx.x; offset < in.degree; offset += THREADS) {
            const float weight = weight_of(vertex, (u32)offset);
            largest = weight > largest ? weight : largest;
        }
        largest = largest_of_block(largest);
        u64 total = 0;
        for (u64 offset = threadIdx.x; offset < in.degree; offset += THREADS) {
            total += share_of(weight_of(vertex, (u32)offset), largest);
        }
        sum_before<THREADS>(total, &total);
        for (u32 pick = threadIdx.x; pick < size; pick += THREADS) {
            const u64 high = random_word(key, id, 2ull * pick), low = random_word(key, id, 2ull * pick + 1);
            places[pick] = pick < count ? __umul64hi(high << 32 | low, total) : ~0ull;
        }
        sort_of_block(places, size);
        u64 before = 0;
        for (u64 from = 0; from < in.degree; from += THREADS) {
            const u64 offset = from + threadIdx.x;
            const u64 share = offset < in.degree ? share_of(weight_of(vertex, (u32)offset), largest) : 0;
            u64 sum;
            const u64 start = before + sum_before<THREADS>(share, &sum);
            if (share > 0) {
                const u32 to = places_before(places, count, start + share);
                for (u32 place = places_before(places, count, start); place < to; place++) {
                    take(graph, table, sampled, (u32)len, first + place, in, (u32)offset);
                }
            }
            before += sum;
        }
        __syncthreads();
    }
}
KERNEL(weigh_spin)
