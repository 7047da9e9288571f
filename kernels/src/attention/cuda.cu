// What attention needs beside weighted sums and softmax: products of heads, and the gradients of dynamic attention.
#include "columns.cuh"
#include "device.cuh"
#include "rows.cuh"

// --- products of the heads of rows with those of a vector ---

KERNEL_ENTRY void head_products(const float *rows, const float *vector, u64 count, u32 heads, u32 head_dim, u32 lanes, u32 wide, float *out) {
    const u64 item = divide(thread_id(), lanes), row = divide(item, heads);
    const u32 lane = (u32)(thread_id() - item * lanes), column = (u32)(item - row * heads) * head_dim;
    float sum = 0;
    if (row < count) {
        const float *a = rows + row * heads * head_dim + column, *b = vector + column;
        sum = wide ? lane_product<4, false>(a, b, nullptr, 0, head_dim, lane, lanes)
                   : lane_product<1, false>(a, b, nullptr, 0, head_dim, lane, lanes);
    }
    sum = group_sum(sum, lanes);
    if (row < count && lane == 0) out[item] = sum;
}
KERNEL(head_products)

struct HeadProductsBackward {
    typedef float Sum;
    static constexpr int SUMS = 1;
    const float *rows, *gradient;
    u32 dim, heads, head_dim;
    __device__ __forceinline__ void add(u64 row, u32 column, float (&sums)[1]) const {
        sums[0] += gradient[row * heads + column / head_dim] * rows[row * dim + column];
    }
};

KERNEL_ENTRY void head_products_backward(u64 count, u32 dim, u32 tile, float *out, const float *rows, const float *gradient, u32 heads) {
    sum_columns(HeadProductsBackward{rows, gradient, dim, heads, dim / heads}, count, dim, tile, out);
}
KERNEL(head_products_backward)

// Adds to each head of a row the vector's, times a value of the row's.
KERNEL_ENTRY void add_scores_backward(const float *of_scores, const float *vector, u64 count, u32 heads, u32 head_dim, float *rows) {
    const u32 dim = heads * head_dim;
    const u64 at = thread_id(), row = divide(at, dim);
    if (row >= count) return;
    const u32 column = (u32)(at - row * dim);
    rows[at] = __fadd_rn(rows[at], __fmul_rn(of_scores[row * heads + column / head_dim], vector[column]));
}
KERNEL(add_scores_backward)

// --- dynamic attention ---

KERNEL_ENTRY void dynamic_scores(Ends ends, float *out, const float *sources, const float *targets, const float *vector, float slope) {
    products_of_ends<true>(ends, out, sources, targets, (u64)ends.heads * ends.head_dim, 0, vector, slope);
}
KERNEL(dynamic_scores)

// What is read backwards. Values of edges are those of heads, and with `own` those of a target's own row before its others.
struct Dynamic {
    const float *sources, *targets, *vector, *shares, *of_scores, *gradient;
    u32 num_sources, num_targets, heads, head_dim;
};

struct DynamicShape {
    const u32 *indptr, *list, *edges;
    float slope;
    u32 own, wide;
    u32 unused[7];
};

template <int W> struct Pair {
    Chunk<W> first, second;
};

// What the edges of a target contribute to the gradients of its row and of the vector.
template <int W> struct DynamicTargets {
    typedef Pair<W> Acc;
    struct Found {
        u32 source, edge;
    };
    struct Term {
        Chunk<W> source;
        float of_score;
    };
    const Dynamic &of;
    const DynamicShape &shape;
    float *of_targets, *of_vector;
    u64 row;
    u32 dim, column, head;
    Chunk<W> own, vector;

    __device__ DynamicTargets(const Dynamic &of, const DynamicShape &shape, float *of_targets, float *of_vector)
        : of(of), shape(shape), of_targets(of_targets), of_vector(of_vector), dim(of.heads * of.head_dim) {}

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32) {
        this->row = row;
        column = chunk * W;
        head = column / of.head_dim;
        own = load_chunk<W>(of.targets + row * dim + column);
        vector = load_chunk<W>(of.vector + column);
    }
    __device__ __forceinline__ Term read(u64 source, u64 edge) const {
        const Chunk<W> values = source < of.num_sources ? load_chunk<W>(of.sources + source * dim + column) : filled<W>(not_a_number());
        return {values, of.of_scores[edge * of.heads + head]};
    }
    __device__ __forceinline__ void zero(Acc &acc) const { acc.first = acc.second = filled<W>(0.0f); }
    __device__ __forceinline__ void start(Acc &acc) const {
        zero(acc);
        if (shape.own) add(acc, read(row, shape.indptr[row] + row));
    }
    __device__ __forceinline__ Found find(u32 place) const { return {shape.list[place], place}; }
    __device__ __forceinline__ Term load(const Found &found) const {
        return read(found.source, found.edge + (shape.own ? row + 1 : 0));
    }
    __device__ __forceinline__ void add(Acc &acc, const Term &term) const {
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float sum = term.source.value[k] + own.value[k];
            const float slope = term.of_score * (sum > 0 ? 1.0f : shape.slope);
            acc.first.value[k] += slope * vector.value[k];
            acc.second.value[k] += slope * sum;
        }
    }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const {
        add_chunk(acc.first, piece.first);
        add_chunk(acc.second, piece.second);
    }
    __device__ __forceinline__ void finish(const Acc &acc) const {
        store_chunk(of_targets + row * dim + column, acc.first);
        store_chunk(of_vector + row * dim + column, acc.second);
    }
};

KERNEL_ENTRY void dynamic_targets_backward(Rows rows, Dynamic of, DynamicShape shape, float *of_targets, float *of_vector) {
    if (shape.wide) for_rows(rows, DynamicTargets<4>(of, shape, of_targets, of_vector));
    else for_rows(rows, DynamicTargets<1>(of, shape, of_targets, of_vector));
}
KERNEL(dynamic_targets_backward)

// What the edges of a source contribute to the gradient of its row: by the sum, and by the scores.
template <int W> struct DynamicSources {
    typedef Chunk<W> Acc;
    struct Found {
        u32 target, edge;
    };
    struct Term {
        Chunk<W> target, gradient;
        float share, of_score;
    };
    const Dynamic &of;
    const DynamicShape &shape;
    float *out;
    u64 row;
    u32 dim, column, head;
    Chunk<W> own, vector;

    __device__ DynamicSources(const Dynamic &of, const DynamicShape &shape, float *out)
        : of(of), shape(shape), out(out), dim(of.heads * of.head_dim) {}

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32) {
        this->row = row;
        column = chunk * W;
        head = column / of.head_dim;
        own = load_chunk<W>(of.sources + row * dim + column);
        vector = load_chunk<W>(of.vector + column);
    }
    __device__ __forceinline__ Term read(u64 target, u64 edge) const {
        const u64 at = target * dim + column, value = edge * of.heads + head;
        return {load_chunk<W>(of.targets + at), load_chunk<W>(of.gradient + at), of.shares[value], of.of_scores[value]};
    }
    __device__ __forceinline__ void zero(Acc &acc) const { acc = filled<W>(0.0f); }
    __device__ __forceinline__ void start(Acc &acc) const {
        zero(acc);
        if (shape.own && row < of.num_targets) add(acc, read(row, shape.indptr[row] + row));
    }
    __device__ __forceinline__ Found find(u32 place) const { return {shape.list[place], shape.edges[place]}; }
    __device__ __forceinline__ Term load(const Found &found) const {
        return read(found.target, (u64)found.edge + (shape.own ? found.target + 1ull : 0));
    }
    __device__ __forceinline__ void add(Acc &acc, const Term &term) const {
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float slope = term.of_score * (own.value[k] + term.target.value[k] > 0 ? 1.0f : shape.slope);
            acc.value[k] += term.share * term.gradient.value[k] + slope * vector.value[k];
        }
    }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add_chunk(acc, piece); }
    __device__ __forceinline__ void finish(const Acc &acc) const { store_chunk(out + row * dim + column, acc); }
};

KERNEL_ENTRY void dynamic_sources_backward(Rows rows, Dynamic of, DynamicShape shape, float *out) {
    if (shape.wide) for_rows(rows, DynamicSources<4>(of, shape, out));
    else for_rows(rows, DynamicSources<1>(of, shape, out));
}
KERNEL(dynamic_sources_backward)
