// Softmax over the rows of each segment, column by column, and its gradient; with the scores of
// attention and the dropout of its weights, or without.
//
// A warp has a segment, a block one of very many rows. Neighbouring lanes have neighbouring columns
// (heads) of a row, so memory is read contiguously; the lanes of one column exchange their sums.
#include "device.cuh"
#include "rows.cuh"

constexpr u32 BLOCK = 256, BIG_BLOCK = 512;

// The values of segments: rows `indptr[s]` to `indptr[s + 1]` of `columns` values; with `own` one
// more for each segment, before its others.
struct Segments {
    const u32 *indptr;
    u64 count;
    const u32 *counts, *heavy;
    u32 columns, own, heavy_only, unused;
    u64 unused_too[2];
};

// Terms of scores; there are none if `from_source` is null. Row s of `from_target` belongs to
// segment s.
struct Scores {
    const u32 *sources;
    const float *from_source, *from_target;
    u64 num_sources;
    float slope;
    u32 unused;
    u64 unused_too[3];

    // The sum, before LeakyReLU.
    __device__ __forceinline__ float sum(u64 segment, u64 source, u32 columns, u32 column) const {
        if (source >= num_sources) return not_a_number();
        return from_source[source * columns + column] + from_target[segment * columns + column];
    }
};

// Lanes that share a segment.
struct Team {
    u32 rank, size;
    // Columns that lanes share out, a power of 2 up to a warp.
    u32 columns;
    // Shared memory of a block; a warp needs none.
    float *shared;
};

static __device__ __forceinline__ float larger(float a, float b) { return a < b ? b : a; }

// The largest value, or the sum, over the lanes of each column.
template <bool MAX> static __device__ __forceinline__ float over_team(const Team &team, float value) {
    for (u32 offset = WARP / 2; offset >= team.columns; offset /= 2) {
        const float other = __shfl_xor_sync(FULL, value, offset);
        value = MAX ? larger(value, other) : value + other;
    }
    if (team.size == WARP) return value;
    team.shared[team.rank] = value;
    __syncthreads();
    value = team.shared[lane_id()];
    for (u32 at = WARP + lane_id(); at < team.size; at += WARP)
        value = MAX ? larger(value, team.shared[at]) : value + team.shared[at];
    __syncthreads();
    return value;
}

// The rows of a segment's values.
struct Range {
    u64 edges, first, count;
};

static __device__ __forceinline__ Range range_of(const Segments &segments, u64 segment) {
    const u64 edges = segments.indptr[segment], count = segments.indptr[segment + 1] - edges;
    return {edges, edges + (segments.own ? segment : 0), count + segments.own};
}

// The source of a segment's row i.
static __device__ __forceinline__ u64 source_of(const Segments &segments, const Scores &scores, const Range &range, u64 segment, u64 i) {
    if (!segments.own) return scores.sources[range.edges + i];
    return i == 0 ? segment : scores.sources[range.edges + i - 1];
}

// The weights of one segment that dropout drops: weight n is dropped like feature n of the host's
// RowMask for `vertex`.
struct Mask {
    const Key &key;
    u32 vertex, threshold;
    // The block of the words that the last weight used.
    u64 block;
    Words words;

    __device__ __forceinline__ bool drops(u64 n) {
        const u64 wanted = n / 128 * 16 + n % 16;
        if (wanted != block) words = long_sequence(key, vertex, wanted);
        block = wanted;
        return (word_of(words, (u32)(n % 128 / 32)) >> (u32)(n % 32 / 16 * 16) & 0xFFFFu) < threshold;
    }
};

// With DROPS a dropped weight gets a minus sign.
template <bool DROPS>
static __device__ __forceinline__ void softmax(const Segments &segments, const Scores &scores, const Team &team, u64 segment, Mask &mask, float *values) {
    const Range range = range_of(segments, segment);
    const u32 columns = segments.columns, slots = team.size / team.columns;
    for (u32 first = 0; first < columns; first += team.columns) {
        const u32 column = first + team.rank % team.columns;
        const u64 slot = column < columns ? team.rank / team.columns : range.count;
        float *mine = values + range.first * columns + column;
        float largest = -infinity();
        for (u64 i = slot; i < range.count; i += slots) {
            float value;
            if (!scores.from_source) {
                value = mine[i * columns];
            } else {
                value = scores.sum(segment, source_of(segments, scores, range, segment, i), columns, column);
                value = value > 0 ? value : scores.slope * value;
                mine[i * columns] = value;
            }
            largest = larger(largest, value);
        }
        // Subtracting the largest only changes the range.
        largest = over_team<true>(team, largest);
        float total = 0;
        for (u64 i = slot; i < range.count; i += slots) {
            const float value = expf(mine[i * columns] - largest);
            mine[i * columns] = value;
            total += value;
        }
        const float factor = 1.0f / over_team<false>(team, total);
        for (u64 i = slot; i < range.count; i += slots) {
            const float weight = mine[i * columns] * factor;
            mine[i * columns] = DROPS && mask.drops(i * columns + column) ? -weight : weight;
        }
    }
}

// Turns the gradient of the weights after dropout into the gradient of the softmax's input; with
// scores, into that of the sums that the scores are made of, with their totals.
static __device__ __forceinline__ void softmax_backward(const Segments &segments, const Scores &scores, const Team &team, u64 segment, const float *weights, float keep, float *gradient, float *totals) {
    const Range range = range_of(segments, segment);
    const u32 columns = segments.columns, slots = team.size / team.columns;
    for (u32 first = 0; first < columns; first += team.columns) {
        const u32 column = first + team.rank % team.columns;
        const u64 slot = column < columns ? team.rank / team.columns : range.count;
        const float *weight = weights + range.first * columns + column;
        float *mine = gradient + range.first * columns + column;
        float mean = 0;
        for (u64 i = slot; i < range.count; i += slots) mean += kept_weight(weight[i * columns], keep) * mine[i * columns];
        mean = over_team<false>(team, mean);
        float total = 0;
        for (u64 i = slot; i < range.count; i += slots) {
            const float of_weight = weight[i * columns] < 0 ? 0.0f : keep * mine[i * columns];
            float value = fabsf(weight[i * columns]) * (of_weight - mean);
            if (scores.from_source) {
                const bool rises = scores.sum(segment, source_of(segments, scores, range, segment, i), columns, column) > 0;
                value *= rises ? 1.0f : scores.slope;
                total += value;
            }
            mine[i * columns] = value;
        }
        if (!totals) continue;
        total = over_team<false>(team, total);
        if (team.rank < team.columns && column < columns) totals[segment * columns + column] = total;
    }
}

// Runs `body(team, segment)` for the calling thread's segment, if it has one.
template <class Body> static __device__ __forceinline__ void for_segment(const Segments &segments, Body body) {
    __shared__ float shared[BIG_BLOCK];
    u32 columns = 1;
    while (columns < segments.columns && columns < WARP) columns *= 2;
    if (segments.heavy_only) {
        if (blockIdx.x >= segments.counts[0]) return;
        body(Team{threadIdx.x, blockDim.x, columns, shared}, segments.heavy[3 * blockIdx.x]);
    } else {
        const u64 segment = thread_id() / WARP;
        if (segment >= segments.count) return;
        if (segments.counts && segments.indptr[segment + 1] - segments.indptr[segment] > PIECE) return;
        body(Team{lane_id(), WARP, columns, nullptr}, segment);
    }
}

template <bool DROPS> struct Softmax {
    const Segments &segments;
    const Scores &scores;
    float *values;
    const u32 *vertices;
    u32 threshold;
    Key key;
    __device__ __forceinline__ void operator()(const Team &team, u64 segment) const {
        Mask mask{key, DROPS ? vertices[segment] : 0, threshold, ~0ull, Words{}};
        softmax<DROPS>(segments, scores, team, segment, mask, values);
    }
};

KERNEL(segment_softmax, Segments segments, Scores scores, float *values) {
    for_segment(segments, Softmax<false>{segments, scores, values, nullptr, 0, Key{}});
}

KERNEL(segment_softmax_dropout, Segments segments, Scores scores, float *values, const u32 *vertices, u32 threshold, Key key) {
    for_segment(segments, Softmax<true>{segments, scores, values, vertices, threshold, key});
}

struct SoftmaxBackward {
    const Segments &segments;
    const Scores &scores;
    const float *weights;
    float keep, *gradient, *totals;
    __device__ __forceinline__ void operator()(const Team &team, u64 segment) const {
        softmax_backward(segments, scores, team, segment, weights, keep, gradient, totals);
    }
};

KERNEL(segment_softmax_backward, Segments segments, Scores scores, const float *weights, float keep, float *gradient, float *totals) {
    for_segment(segments, SoftmaxBackward{segments, scores, weights, keep, gradient, totals});
}
