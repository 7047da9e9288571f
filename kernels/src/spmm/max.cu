// Maxima of rows over edges, and their gradients: the first of equal values, and any NaN; in the
// type of the rows.
#include "device.cuh"
#include "rows.cuh"

template <int W> struct Best {
    Chunk<W> value;
    u32 edge[W];
};

template <int W, typename T> struct Max {
    typedef Best<W> Acc;
    typedef uint2 Found;
    typedef Best<W> Term;
    const T *values;
    u64 num_sources, dim;
    const u32 *indptr, *list;
    T *out;
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
        term.value = source < num_sources ? load_widened<W>(values + source * dim + column) : filled<W>(not_a_number());
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
        store_narrowed(out + row * dim + column, acc.value);
        for (int k = 0; k < W; k++) picked[row * dim + column + k] = acc.edge[k];
    }
};

#define MAX_FORWARD(NAME, T)                                                                                           \
    KERNEL(max_forward_##NAME, Rows rows, const T *values, u64 num_sources, u64 dim, const u32 *list, T *out, u32 *picked, u32 wide) { \
        if (wide) for_rows(rows, Max<4, T>{values, num_sources, dim, rows.indptr, list, out, picked});                 \
        else for_rows(rows, Max<1, T>{values, num_sources, dim, rows.indptr, list, out, picked});                      \
    }
FOR_ROW_TYPES(MAX_FORWARD)

template <int W, typename T> struct MaxBackward {
    typedef Chunk<W> Acc;
    typedef uint2 Found;
    typedef Chunk<W> Term;
    const u32 *picked;
    const T *gradient;
    u64 dim;
    const u32 *targets, *edges;
    T *out;
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
        Term term = load_widened<W>(gradient + at);
#pragma unroll
        for (int k = 0; k < W; k++) term.value[k] = from.value[k] == found.y ? term.value[k] : 0.0f;
        return term;
    }
    __device__ __forceinline__ void add(Acc &acc, const Term &term) const { add_chunk(acc, term); }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add_chunk(acc, piece); }
    __device__ __forceinline__ void finish(const Acc &acc) const { store_narrowed(out + row * dim + column, acc); }
};

#define MAX_BACKWARD(NAME, T)                                                                                          \
    KERNEL(max_backward_##NAME, Rows rows, const u32 *picked, const T *gradient, u64 dim, const u32 *targets, const u32 *edges, T *out, u32 wide) { \
        if (wide) for_rows(rows, MaxBackward<4, T>{picked, gradient, dim, targets, edges, out});                       \
        else for_rows(rows, MaxBackward<1, T>{picked, gradient, dim, targets, edges, out});                            \
    }
FOR_ROW_TYPES(MAX_BACKWARD)
