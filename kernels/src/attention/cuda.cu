// Kernels of attention other than weighted sums and softmax: products of heads, and the gradients
// of dynamic attention.
#include "columns.cuh"
#include "device.cuh"
#include "rows.cuh"

// --- products of the heads of rows with the heads of a vector ---

template <typename T>
__device__ __forceinline__ void products_of_heads(const T *rows, const float *vector, u64 count, u32 heads, u32 head_dim, u32 lanes, u32 wide, float *out) {
    const u64 item = divide(thread_id(), lanes), row = divide(item, heads);
    const u32 lane = (u32)(thread_id() - item * lanes), column = (u32)(item - row * heads) * head_dim;
    float sum = 0;
    if (row < count) {
        const T *a = rows + row * heads * head_dim + column;
        const float *b = vector + column;
        sum = wide ? lane_product<4, false>(a, b, nullptr, 0, head_dim, lane, lanes)
                   : lane_product<1, false>(a, b, nullptr, 0, head_dim, lane, lanes);
    }
    sum = group_sum(sum, lanes);
    if (row < count && lane == 0) out[item] = sum;
}

template <typename T> struct HeadProductsBackward {
    typedef float Sum;
    static constexpr int SUMS = 1;
    const T *rows;
    const float *gradient;
    u32 dim, heads, head_dim;
    __device__ __forceinline__ void add(u64 row, u32 column, float (&sums)[1]) const {
        sums[0] += gradient[row * heads + column / head_dim] * widen(rows[row * dim + column]);
    }
};

#define HEAD_PRODUCTS(NAME, T)                                                                                         \
    KERNEL(head_products_##NAME, const T *rows, const float *vector, u64 count, u32 heads, u32 head_dim, u32 lanes, u32 wide, float *out) { \
        products_of_heads(rows, vector, count, heads, head_dim, lanes, wide, out);                                     \
    }                                                                                                                  \
    KERNEL(head_products_backward_##NAME, u64 count, u32 dim, u32 tile, float *out, const T *rows, const float *gradient, u32 heads) { \
        sum_columns(HeadProductsBackward<T>{rows, gradient, dim, heads, dim / heads}, count, dim, tile, out);          \
    }
FOR_ROW_TYPES(HEAD_PRODUCTS)

// --- the gradient of rows ---

// Inputs. Weights are per head, before dropout; with `own` the weights of a target's own row
// precede those of its edges. With vectors the scores are products of the rows' heads with them,
// and the gradients of the scores count too.
struct Attended {
    const float *gradient, *weights, *of_source, *of_target, *by_source, *by_target;
    u32 num_targets, heads, head_dim, own;
};

// The contribution of a source's edges to the gradient of its row.
template <int W, typename T> struct AttendedSources {
    typedef Chunk<W> Acc;
    struct Found {
        u32 target, edge;
    };
    struct Term {
        Chunk<W> gradient;
        float weight;
    };
    const Attended &of;
    const u32 *indptr, *targets, *edges;
    float keep;
    T *out;
    u64 row;
    u32 dim, column, head;

    __device__ AttendedSources(const Attended &of, const u32 *indptr, const u32 *targets, const u32 *edges, float keep, T *out)
        : of(of), indptr(indptr), targets(targets), edges(edges), keep(keep), out(out), dim(of.heads * of.head_dim) {}

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32) {
        this->row = row;
        column = chunk * W;
        head = column / of.head_dim;
    }
    __device__ __forceinline__ Term read(u64 target, u64 edge) const {
        return {load_chunk<W>(of.gradient + target * dim + column), kept_weight(of.weights[edge * of.heads + head], keep)};
    }
    __device__ __forceinline__ void zero(Acc &acc) const { acc = filled<W>(0.0f); }
    __device__ __forceinline__ void start(Acc &acc) const {
        zero(acc);
        if (of.own && row < of.num_targets) add(acc, read(row, (u64)indptr[row] + row));
    }
    __device__ __forceinline__ Found find(u32 place) const { return {targets[place], edges[place]}; }
    __device__ __forceinline__ Term load(const Found &found) const {
        return read(found.target, (u64)found.edge + (of.own ? found.target + 1ull : 0));
    }
    __device__ __forceinline__ void add(Acc &acc, const Term &term) const { add_scaled(acc, term.weight, term.gradient); }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add_chunk(acc, piece); }
    __device__ __forceinline__ void finish(const Acc &acc) const {
        Acc sum = acc;
        if (of.by_source) add_scaled(sum, of.of_source[row * of.heads + head], load_chunk<W>(of.by_source + column));
        if (of.by_target && row < of.num_targets)
            add_scaled(sum, of.of_target[row * of.heads + head], load_chunk<W>(of.by_target + column));
        store_narrowed(out + row * dim + column, sum);
    }
};

#define ATTENDED(NAME, T)                                                                                              \
    KERNEL(attended_sources_##NAME, Rows rows, Attended of, const u32 *indptr, const u32 *targets, const u32 *edges, float keep, T *out, u32 wide) { \
        if (wide) for_rows(rows, AttendedSources<4, T>(of, indptr, targets, edges, keep, out));                        \
        else for_rows(rows, AttendedSources<1, T>(of, indptr, targets, edges, keep, out));                             \
    }
FOR_ROW_TYPES(ATTENDED)

// --- dynamic attention ---

#define DYNAMIC_SCORES(NAME, T)                                                                                        \
    KERNEL(dynamic_scores_##NAME, Ends ends, float *out, const T *sources, const T *targets, const float *vector, float slope) { \
        products_of_ends<true>(ends, out, sources, targets, (u64)ends.heads * ends.head_dim, 0, vector, slope);        \
    }
FOR_ROW_TYPES(DYNAMIC_SCORES)

// Inputs of the backward pass, rows of T. Values of edges are per head; with `own` the value of a
// target's own row is the first.
template <typename T> struct Dynamic {
    const T *sources, *targets;
    const float *vector, *weights, *of_scores, *gradient;
    u32 num_sources, num_targets, heads, head_dim;
};

struct DynamicShape {
    const u32 *indptr, *list, *edges;
    float slope;
    u32 own, wide;
    float keep;
    u32 unused[6];
};

template <int W> struct Pair {
    Chunk<W> first, second;
};

// The contribution of a target's edges to the gradients of its row and of the vector.
template <int W, typename T> struct DynamicTargets {
    typedef Pair<W> Acc;
    struct Found {
        u32 source, edge;
    };
    struct Term {
        Chunk<W> source;
        float of_score;
    };
    const Dynamic<T> &of;
    const DynamicShape &shape;
    T *of_targets;
    float *of_vector;
    u64 row;
    u32 dim, column, head;
    Chunk<W> own, vector;

    __device__ DynamicTargets(const Dynamic<T> &of, const DynamicShape &shape, T *of_targets, float *of_vector)
        : of(of), shape(shape), of_targets(of_targets), of_vector(of_vector), dim(of.heads * of.head_dim) {}

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32) {
        this->row = row;
        column = chunk * W;
        head = column / of.head_dim;
        own = load_widened<W>(of.targets + row * dim + column);
        vector = load_chunk<W>(of.vector + column);
    }
    __device__ __forceinline__ Term read(u64 source, u64 edge) const {
        const Chunk<W> values = source < of.num_sources ? load_widened<W>(of.sources + source * dim + column) : filled<W>(not_a_number());
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
        store_narrowed(of_targets + row * dim + column, acc.first);
        store_chunk(of_vector + row * dim + column, acc.second);
    }
};

// The contribution of a source's edges to the gradient of its row: by the sum, and by the scores.
template <int W, typename T> struct DynamicSources {
    typedef Chunk<W> Acc;
    struct Found {
        u32 target, edge;
    };
    struct Term {
        Chunk<W> target, gradient;
        float weight, of_score;
    };
    const Dynamic<T> &of;
    const DynamicShape &shape;
    T *out;
    u64 row;
    u32 dim, column, head;
    Chunk<W> own, vector;

    __device__ DynamicSources(const Dynamic<T> &of, const DynamicShape &shape, T *out)
        : of(of), shape(shape), out(out), dim(of.heads * of.head_dim) {}

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32) {
        this->row = row;
        column = chunk * W;
        head = column / of.head_dim;
        own = load_widened<W>(of.sources + row * dim + column);
        vector = load_chunk<W>(of.vector + column);
    }
    __device__ __forceinline__ Term read(u64 target, u64 edge) const {
        const u64 at = target * dim + column, value = edge * of.heads + head;
        return {load_widened<W>(of.targets + at), load_chunk<W>(of.gradient + at), kept_weight(of.weights[value], shape.keep), of.of_scores[value]};
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
            acc.value[k] += term.weight * term.gradient.value[k] + slope * vector.value[k];
        }
    }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add_chunk(acc, piece); }
    __device__ __forceinline__ void finish(const Acc &acc) const { store_narrowed(out + row * dim + column, acc); }
};

#define DYNAMIC_BACKWARD(NAME, T)                                                                                      \
    KERNEL(dynamic_targets_backward_##NAME, Rows rows, Dynamic<T> of, DynamicShape shape, T *of_targets, float *of_vector) { \
        if (shape.wide) for_rows(rows, DynamicTargets<4, T>(of, shape, of_targets, of_vector));                        \
        else for_rows(rows, DynamicTargets<1, T>(of, shape, of_targets, of_vector));                                   \
    }                                                                                                                  \
    KERNEL(dynamic_sources_backward_##NAME, Rows rows, Dynamic<T> of, DynamicShape shape, T *out) {          \
        if (shape.wide) for_rows(rows, DynamicSources<4, T>(of, shape, out));                                          \
        else for_rows(rows, DynamicSources<1, T>(of, shape, out));                                                     \
    }
FOR_ROW_TYPES(DYNAMIC_BACKWARD)
