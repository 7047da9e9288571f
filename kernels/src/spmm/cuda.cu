// Weighted sums and maxima of rows over edges, and their gradients.
#include "device.cuh"
#include "rows.cuh"

// Rows of `stride` values, of which those from `offset` on count; row i is that of vertices[i] if there are any. No values
// at all count as ones.
struct Table {
    const void *values;
    u64 rows;
    const float *scales;
    const u32 *vertices;
    u64 count, stride, offset, unused;
};

// What a row's own row is to its sum.
constexpr u32 NOTHING = 0, SELF_LOOP = 1, BESIDE = 2, ONTO = 3;

// What an edge's row is multiplied by: a weight for each edge and head, and with `mean` one over the target's edges. With
// self-loops a weight of the target's own row stands before those of its edges. `edges` has the edge of each place.
struct Factors {
    const float *weights;
    const u32 *edges, *indptr;
    u64 num_own;
    u32 heads, head_dim, own, mean;
    u64 unused[2];
};

// From rows of T, summed in f32, to rows of O. PLAIN is for rows of a matrix without weights, whose kernel needs fewer registers.
template <typename T, typename O, int W, bool BY_SOURCE, bool PLAIN> struct Sum {
    typedef Chunk<W> Acc;
    struct Found {
        u32 position, edge;
    };
    struct Term {
        Chunk<W> values;
        float factor;
    };
    const Table &table;
    const Factors &factors;
    const u32 *list;
    O *out;
    u64 out_stride, out_offset;
    u64 row;
    u32 column, head, edges;
    float scale;

    __device__ Sum(const Table &table, const Factors &factors, const u32 *list, O *out, u64 out_stride, u64 out_offset)
        : table(table), factors(factors), list(list), out(out), out_stride(out_stride), out_offset(out_offset) {}

    __device__ __forceinline__ static float one_over(u32 edges) { return 1.0f / (float)(edges > 1 ? edges : 1); }

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32 edges) {
        this->row = row;
        column = chunk * W;
        head = factors.heads > 1 ? column / factors.head_dim : 0;
        this->edges = edges;
        scale = !BY_SOURCE && factors.mean ? one_over(edges) : 1.0f;
    }

    // W columns of a row, from a column of the table's rows on.
    __device__ __forceinline__ Chunk<W> read(u64 position, u64 column) const {
        if (!PLAIN && !table.values) return filled<W>(1.0f);
        if (position >= table.count) return filled<W>(not_a_number());
        const u64 at = !PLAIN && table.vertices ? table.vertices[position] : position;
        if (!PLAIN && at >= table.rows) return filled<W>(not_a_number());
        Chunk<W> chunk = load_widened<W>((const T *)table.values + at * table.stride + column);
        if (!PLAIN && table.scales) {
            const float scale = table.scales[at];
#pragma unroll
            for (int k = 0; k < W; k++) chunk.value[k] = __fmul_rn(scale, chunk.value[k]);
        }
        return chunk;
    }

    __device__ __forceinline__ float weight(u64 at) const { return factors.weights[at * factors.heads + head]; }

    __device__ __forceinline__ void zero(Acc &acc) const { acc = filled<W>(0.0f); }

    // What is added to stays as it is where nothing is.
    __device__ __forceinline__ bool untouched() const { return factors.own == ONTO && edges == 0; }

    __device__ __forceinline__ void start(Acc &acc) const {
        zero(acc);
        if (untouched()) return;
        if (factors.own == ONTO) acc = load_widened<W>(out + row * out_stride + out_offset + column);
        if (row >= factors.num_own) return;
        if (!PLAIN && factors.own == SELF_LOOP) add_scaled(acc, weight((u64)factors.indptr[row] + row), read(row, table.offset + column));
        if (factors.own == BESIDE && BY_SOURCE) acc = read(row, column);
    }

    __device__ __forceinline__ Found find(u32 place) const {
        return {list ? list[place] : place, !PLAIN && factors.edges ? factors.edges[place] : place};
    }

    __device__ __forceinline__ Term load(const Found &found) const {
        Term term;
        const u64 target = BY_SOURCE ? found.position : row;
        term.factor = scale;
        if (BY_SOURCE && factors.mean) term.factor = one_over(factors.indptr[target + 1] - factors.indptr[target]);
        if (!PLAIN && factors.weights) {
            const u64 before = factors.own == SELF_LOOP ? target + 1 : 0;
            term.factor = __fmul_rn(term.factor, weight(found.edge + before));
        }
        term.values = read(found.position, table.offset + column);
        return term;
    }

    __device__ __forceinline__ void add(Acc &acc, const Term &term) const { add_scaled(acc, term.factor, term.values); }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add_chunk(acc, piece); }

    __device__ __forceinline__ void finish(const Acc &acc) const {
        if (untouched()) return;
        O *to = out + row * out_stride + column;
        store_narrowed(to + out_offset, acc);
        if (factors.own == BESIDE && !BY_SOURCE) store_narrowed(to, read(row, table.offset + column));
    }
};

#define SUM(name, T, O, BY_SOURCE, PLAIN)                                                                                     \
    KERNEL_ENTRY void name(Rows rows, Table table, Factors factors, const u32 *list, O *out, u64 out_stride, u64 out_offset, u32 wide) { \
        if (wide) for_rows(rows, Sum<T, O, 4, BY_SOURCE, PLAIN>(table, factors, list, out, out_stride, out_offset));          \
        else for_rows(rows, Sum<T, O, 1, BY_SOURCE, PLAIN>(table, factors, list, out, out_stride, out_offset));               \
    }                                                                                                                  \
    KERNEL(name)

SUM(sum_f32, float, float, false, false)
SUM(sum_f32_plain, float, float, false, true)
SUM(sum_f16, Half, float, false, false)
SUM(sum_bf16, Bfloat16, float, false, false)
SUM(sum_bf16_plain, Bfloat16, float, false, true)
SUM(sum_i8, Int8, float, false, false)
SUM(sum_by_source, float, float, true, false)
SUM(sum_by_source_plain, float, float, true, true)
// To rows of bf16.
SUM(sum_f32_to_bf16, float, Bfloat16, false, false)
SUM(sum_f16_to_bf16, Half, Bfloat16, false, false)
SUM(sum_i8_to_bf16, Int8, Bfloat16, false, false)
SUM(sum_bf16_to_bf16, Bfloat16, Bfloat16, false, false)
SUM(sum_bf16_to_bf16_plain, Bfloat16, Bfloat16, false, true)
SUM(sum_by_source_f32_to_bf16, float, Bfloat16, true, false)
SUM(sum_by_source_bf16_to_f32, Bfloat16, float, true, false)
SUM(sum_by_source_bf16_to_bf16, Bfloat16, Bfloat16, true, false)

// Out's value at an edge and head: the product of its source's row with its target's gradient, over the number of edges for the
// mean.
KERNEL_ENTRY void end_products(Ends ends, float *out, const float *rows, const float *gradient, u64 stride, u64 offset) {
    products_of_ends<false>(ends, out, rows, gradient, stride, offset, nullptr, 0.0f);
}
KERNEL(end_products)

// --- maxima: the first of equals, and any NaN ---

template <int W> struct Best {
    Chunk<W> value;
    u32 edge[W];
};

template <int W> struct Max {
    typedef Best<W> Acc;
    typedef uint2 Found;
    typedef Best<W> Term;
    const float *values;
    u64 num_sources, dim;
    const u32 *indptr, *list;
    float *out;
    u32 *picked;
    u64 row;
    u32 column, edges;

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32 edges) {
        this->row = row;
        this->edges = edges;
        column = chunk * W;
    }
    __device__ __forceinline__ void zero(Acc &acc) const {
        acc.value = filled<W>(edges ? -infinity() : 0.0f);
        for (int k = 0; k < W; k++) acc.edge[k] = edges ? indptr[row] : ~0u;
    }
    __device__ __forceinline__ void start(Acc &acc) const { zero(acc); }
    __device__ __forceinline__ uint2 find(u32 place) const { return make_uint2(list[place], place); }
    __device__ __forceinline__ Term load(const uint2 &found) const {
        Term term;
        const u64 source = found.x;
        term.value = source < num_sources ? load_chunk<W>(values + source * dim + column) : filled<W>(not_a_number());
        for (int k = 0; k < W; k++) term.edge[k] = found.y;
        return term;
    }
    __device__ __forceinline__ void add(Acc &acc, const Term &term) const {
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float value = term.value.value[k];
            if (value > acc.value.value[k] || value != value) {
                acc.value.value[k] = value;
                acc.edge[k] = term.edge[k];
            }
        }
    }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add(acc, piece); }
    __device__ __forceinline__ void finish(const Acc &acc) const {
        store_chunk(out + row * dim + column, acc.value);
        for (int k = 0; k < W; k++) picked[row * dim + column + k] = acc.edge[k];
    }
};

KERNEL_ENTRY void max_forward(Rows rows, const float *values, u64 num_sources, u64 dim, const u32 *list, float *out, u32 *picked, u32 wide) {
    if (wide) for_rows(rows, Max<4>{values, num_sources, dim, rows.indptr, list, out, picked});
    else for_rows(rows, Max<1>{values, num_sources, dim, rows.indptr, list, out, picked});
}
KERNEL(max_forward)

template <int W> struct MaxBackward {
    typedef Chunk<W> Acc;
    typedef uint2 Found;
    typedef Chunk<W> Term;
    const u32 *picked;
    const float *gradient;
    u64 dim;
    const u32 *targets, *edges;
    float *out;
    u64 row;
    u32 column;

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32) {
        this->row = row;
        column = chunk * W;
    }
    __device__ __forceinline__ void zero(Acc &acc) const { acc = filled<W>(0.0f); }
    __device__ __forceinline__ void start(Acc &acc) const { zero(acc); }
    __device__ __forceinline__ uint2 find(u32 place) const { return make_uint2(targets[place], edges[place]); }
    __device__ __forceinline__ Term load(const uint2 &found) const {
        const u64 at = found.x * dim + column;
        const Packed<u32, W> from = *(const Packed<u32, W> *)(picked + at);
        Term term = load_chunk<W>(gradient + at);
#pragma unroll
        for (int k = 0; k < W; k++) term.value[k] = from.value[k] == found.y ? term.value[k] : 0.0f;
        return term;
    }
    __device__ __forceinline__ void add(Acc &acc, const Term &term) const { add_chunk(acc, term); }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add_chunk(acc, piece); }
    __device__ __forceinline__ void finish(const Acc &acc) const { store_chunk(out + row * dim + column, acc); }
};

KERNEL_ENTRY void max_backward(Rows rows, const u32 *picked, const float *gradient, u64 dim, const u32 *targets, const u32 *edges, float *out, u32 wide) {
    if (wide) for_rows(rows, MaxBackward<4>{picked, gradient, dim, targets, edges, out});
    else for_rows(rows, MaxBackward<1>{picked, gradient, dim, targets, edges, out});
}
KERNEL(max_backward)
