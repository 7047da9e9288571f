// Sums over the edges of rows: their distribution among threads, for any summand.
//
// A chunk of a row, one column or several, belongs to one thread, which adds up its terms in the
// order of the edges, as the host does; the loads of several edges are under way at a time.
// Neighbouring threads own neighbouring chunks, so a row is read contiguously: by a part of a warp
// where it is narrow, by several warps where it is wide. A row of more edges than a piece holds
// would keep the others waiting: its pieces are summed by threads of their own, in a second launch,
// and added up in their order in a third. Then sums are the host's up to rounding; results never
// depend on the order of threads.
#pragma once
#include "device.cuh"

// Edges of a piece, as in edges/cuda.rs.
constexpr u32 PIECE = 512;
// Edges whose loads are under way at a time.
constexpr u32 AHEAD = 8;

// Kinds of launches.
constexpr u32 WHOLE_ROWS = 0, PIECES = 1, FROM_PIECES = 2;

// Rows with their edges. `counts` holds the numbers of rows in pieces and of pieces; for each such
// row `heavy` has the row, its first piece and the number of its pieces, and for each piece
// `pieces` has its row and its number there.
struct Rows {
    const u32 *indptr;
    u64 count;
    const u32 *counts, *heavy, *pieces;
    void *scratch;
    u32 launch, chunks;
    // Threads per row, a power of 2 or a multiple of 32.
    u64 width;
};

// `Op` defines the sum:
//   Acc, Term                      the sum of a chunk, and the summand of an edge
//   begin(row, edges)              called first
//   zero(acc), start(acc)          an empty sum; the initial value of a row's sum
//   find(place, k)                 loads the location of an edge's terms
//   load(k, term), add(acc, term)
//   merge(acc, piece)              adds the sum of a piece
//   finish(acc)                    writes the sum
template <class Op>
__device__ __forceinline__ void add_edges(Op &op, u32 place, u32 end, typename Op::Acc &acc) {
    // Positions in 32 bits save registers.
    for (u32 left = end - place; left > 0;) {
        const u32 count = left < AHEAD ? left : AHEAD;
        typename Op::Found found[AHEAD];
        typename Op::Term terms[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++)
            if (k < count) found[k] = op.find(place + k);
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++)
            if (k < count) terms[k] = op.load(found[k]);
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++)
            if (k < count) op.add(acc, terms[k]);
        place += count;
        left -= count;
    }
}

template <class Op> __device__ __forceinline__ void for_rows(const Rows &rows, Op op) {
    const u64 item = divide(thread_id(), (u32)rows.width);
    const u32 chunk = (u32)(thread_id() - item * rows.width);
    if (chunk >= rows.chunks) return;
    const bool in_pieces = rows.launch == PIECES;
    u64 row = item, piece = 0, pieces = 0;
    if (in_pieces) {
        if (item >= rows.counts[1]) return;
        row = rows.pieces[2 * item];
        piece = rows.pieces[2 * item + 1];
    } else if (rows.launch == FROM_PIECES) {
        if (item >= rows.counts[0]) return;
        row = rows.heavy[3 * item];
        piece = rows.heavy[3 * item + 1];
        pieces = rows.heavy[3 * item + 2];
    } else if (item >= rows.count) {
        return;
    }
    u32 place = rows.indptr[row], end = rows.indptr[row + 1];
    const u32 edges = end - place;
    if (in_pieces) {
        place += (u32)piece * PIECE;
        end = end - place > PIECE ? place + PIECE : end;
    } else if (rows.counts && edges > PIECE) {
        if (!pieces) return;
        end = place;
    }
    typename Op::Acc acc;
    op.begin(row, chunk, edges);
    if (in_pieces) op.zero(acc);
    else op.start(acc);
    add_edges(op, place, end, acc);
    typename Op::Acc *sums = (typename Op::Acc *)rows.scratch;
    if (in_pieces) {
        sums[item * rows.chunks + chunk] = acc;
        return;
    }
#pragma unroll 4
    for (u64 i = piece; i < piece + pieces; i++) op.merge(acc, sums[i * rows.chunks + chunk]);
    op.finish(acc);
}

// --- W columns of a row ---

template <int W> using Chunk = Packed<float, W>;

template <int W> __device__ __forceinline__ Chunk<W> filled(float value) {
    Chunk<W> chunk;
#pragma unroll
    for (int k = 0; k < W; k++) chunk.value[k] = value;
    return chunk;
}

template <int W> __device__ __forceinline__ Chunk<W> load_chunk(const float *at) { return *(const Chunk<W> *)at; }
template <int W> __device__ __forceinline__ void store_chunk(float *at, const Chunk<W> &chunk) { *(Chunk<W> *)at = chunk; }

// Like the above, from and to values of another type.
template <typename T, int W> __device__ __forceinline__ Chunk<W> widened(const Packed<T, W> &values) {
    Chunk<W> chunk;
#pragma unroll
    for (int k = 0; k < W; k++) chunk.value[k] = widen(values.value[k]);
    return chunk;
}
template <typename T, int W> __device__ __forceinline__ Packed<T, W> narrowed(const Chunk<W> &chunk) {
    Packed<T, W> values;
#pragma unroll
    for (int k = 0; k < W; k++) values.value[k] = narrow<T>(chunk.value[k]);
    return values;
}
template <int W, typename T> __device__ __forceinline__ Chunk<W> load_widened(const T *at) { return widened(*(const Packed<T, W> *)at); }
template <int W, typename T> __device__ __forceinline__ void store_narrowed(T *at, const Chunk<W> &chunk) {
    *(Packed<T, W> *)at = narrowed<T>(chunk);
}

// Adds factor × chunk, rounding twice as the host does.
template <int W> __device__ __forceinline__ void add_scaled(Chunk<W> &sum, float factor, const Chunk<W> &chunk) {
#pragma unroll
    for (int k = 0; k < W; k++) sum.value[k] = __fadd_rn(sum.value[k], __fmul_rn(factor, chunk.value[k]));
}

template <int W> __device__ __forceinline__ void add_chunk(Chunk<W> &sum, const Chunk<W> &chunk) {
#pragma unroll
    for (int k = 0; k < W; k++) sum.value[k] = __fadd_rn(sum.value[k], chunk.value[k]);
}

// --- products of the rows at both ends of an edge, a number for each edge and head ---

// Their locations. With `own`, each target has an edge from its own row, before its others.
struct Ends {
    const u32 *indptr, *sources, *targets;
    u64 edges;
    u32 num_targets, num_sources, heads, head_dim;
    u32 own, mean, lanes, wide;
};

// a · b, or vector · LeakyReLU(a + b), over the columns of one of `lanes` lanes.
template <int W, bool LEAKY, typename A, typename B>
__device__ __forceinline__ float lane_product(const A *a, const B *b, const float *vector, float slope, u32 dim, u32 lane, u32 lanes) {
    float sum = 0;
#pragma unroll 4
    for (u32 c = lane * W; c < dim; c += lanes * W) {
        const Chunk<W> x = load_widened<W>(a + c), y = load_widened<W>(b + c);
        if (LEAKY) {
            const Chunk<W> v = load_chunk<W>(vector + c);
#pragma unroll
            for (int k = 0; k < W; k++) {
                const float z = x.value[k] + y.value[k];
                sum += v.value[k] * (z > 0 ? z : slope * z);
            }
        } else {
#pragma unroll
            for (int k = 0; k < W; k++) sum += x.value[k] * y.value[k];
        }
    }
    return sum;
}

// Neighbouring lanes share a head of an edge; neighbouring groups of them have the edge's other
// heads, so rows are read contiguously. `b` has rows of `b_stride` values; columns from `b_offset`
// on count.
template <bool LEAKY, typename A, typename B>
__device__ __forceinline__ void products_of_ends(const Ends &ends, float *out, const A *a, const B *b, u64 b_stride, u64 b_offset, const float *vector, float slope) {
    const u64 group = divide(thread_id(), ends.lanes);
    const u32 lane = (u32)(thread_id() - group * ends.lanes);
    const u64 edge = divide(group, ends.heads);
    const u32 head = (u32)(group - edge * ends.heads), column = head * ends.head_dim;
    u64 at = ~0ull;
    float sum = 0, scale = 1;
    if (edge < ends.edges + (ends.own ? ends.num_targets : 0)) {
        u64 source, target;
        if (edge < ends.edges) {
            target = ends.targets[edge];
            source = ends.sources[edge];
            at = edge + (ends.own ? target + 1 : 0);
        } else {
            target = source = edge - ends.edges;
            at = ends.indptr[target] + target;
        }
        at = at * ends.heads + head;
        if (ends.mean) scale = 1.0f / (float)(ends.indptr[target + 1] - ends.indptr[target]);
        if (source >= ends.num_sources) {
            sum = not_a_number();
        } else {
            const A *x = a + source * ends.heads * ends.head_dim + column;
            const B *y = b + target * b_stride + b_offset + column;
            const float *v = LEAKY ? vector + column : nullptr;
            sum = ends.wide ? lane_product<4, LEAKY>(x, y, v, slope, ends.head_dim, lane, ends.lanes)
                            : lane_product<1, LEAKY>(x, y, v, slope, ends.head_dim, lane, ends.lanes);
        }
    }
    sum = group_sum(sum, ends.lanes);
    if (at != ~0ull && lane == 0) out[at] = scale * sum;
}
