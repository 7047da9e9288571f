// Weighted sums of rows over edges, from rows of any stored type to rows of f32, bf16 or f16. Each
// file that includes this has the kernels of some types: a run needs few of them, and they take
// long to compile.
#include "device.cuh"
#include "rows.cuh"

// Rows of `stride` values; columns from `offset` on count. If there are `positions`, row i is row
// positions[i] of the table, and its values count as if they were gathered: multiplied by the row's
// scale, and rounded to the type of rows. Without values, all values count as ones.
struct Table {
    const void *values;
    u64 rows;
    const float *scales;
    const u32 *positions;
    u64 count, stride, offset, dim;
};

// Part of a target's own row in its sum.
constexpr u32 NOTHING = 0, SELF_LOOP = 1, BESIDE = 2, ONTO = 3;

// Factors of an edge's row: a weight for each edge and head, and with `mean` one over the number of
// the target's edges. With self-loops the weight of the target's own row precedes the weights of
// its edges. `edges` has the edge of each place. With `keep` weights come from attention, after
// dropout. `relu` are rows of the output's shape and type, the output of ReLU and of dropout, which
// multiplied by `relu_keep`: sums by source, their gradients, then become gradients of the input of
// ReLU.
struct Factors {
    const float *weights;
    const u32 *edges, *indptr;
    u64 num_own;
    u32 heads, head_dim, own, mean;
    float keep, relu_keep;
    const void *relu;
};

// W values as they are stored, in words of 32 bits. As values of 16 bits they would take a register
// each.
template <typename T, int W> struct Raw {
    u32 word[(W * sizeof(T) + 3) / 4];

    template <int PART> __device__ __forceinline__ void load(const T *at, u32 count) {
        Packed<T, W> values = {};
        load_parts<PART>(values, at, count);
        memcpy(word, values.value, sizeof values.value);
    }
    __device__ __forceinline__ Packed<T, W> all() const {
        Packed<T, W> values;
        memcpy(values.value, word, sizeof values.value);
        return values;
    }
};

// Sums rows of T in f32 to rows of O: W columns of a row at once, PART of them per load or store.
// Rows of a multiple of PART columns may end within a chunk. PLAIN is for rows of a matrix without
// weights, whose kernel needs fewer registers.
template <typename T, typename O, int W, int PART, bool BY_SOURCE, bool PLAIN> struct Sum {
    typedef Chunk<W> Acc;
    struct Found {
        u32 position, edge;
    };
    // In the stored type: widened 16-bit values would take twice the registers while their loads
    // are under way.
    struct Term {
        Raw<T, W> values;
        float scale, factor;
    };
    const Table &table;
    const Factors &factors;
    const u32 *list;
    O *out;
    u64 out_stride, out_offset;
    u64 row;
    u32 column, columns, head, edges;
    float scale;

    __device__ Sum(const Table &table, const Factors &factors, const u32 *list, O *out, u64 out_stride, u64 out_offset)
        : table(table), factors(factors), list(list), out(out), out_stride(out_stride), out_offset(out_offset) {}

    __device__ __forceinline__ static float one_over(u32 edges) { return 1.0f / (float)(edges > 1 ? edges : 1); }

    __device__ __forceinline__ void begin(u64 row, u32 chunk, u32 edges) {
        this->row = row;
        column = chunk * W;
        columns = (u32)table.dim - column;
        head = factors.heads > 1 ? column / factors.head_dim : 0;
        this->edges = edges;
        scale = !BY_SOURCE && factors.mean ? one_over(edges) : 1.0f;
    }

    // The table's position of row `i`; beyond its end if there is none.
    __device__ __forceinline__ u32 place_of(u32 i) const {
        if (PLAIN || !table.positions) return i;
        return i < table.count ? table.positions[i] : ~0u;
    }

    // Loads W columns of the row at a position, from a column of the table's rows on, for
    // `value_of`. The term's factor becomes NaN if there is no such row.
    __device__ __forceinline__ void fetch(Term &term, u64 at, u64 column) const {
        if (!PLAIN && !table.values) return;
        if (at >= table.rows) {
            term.factor = not_a_number();
            return;
        }
        term.values.template load<PART>((const T *)table.values + at * table.stride + column, columns);
        if (!PLAIN && table.scales) term.scale = table.scales[at];
    }

    __device__ __forceinline__ Chunk<W> value_of(const Term &term) const {
        if (!PLAIN && !table.values) return filled<W>(1.0f);
        const Packed<T, W> stored = term.values.all();
        if (PLAIN || !table.positions) return widened(stored);
        Chunk<W> chunk;
#pragma unroll
        for (int k = 0; k < W; k++) {
            const T value = stored.value[k];
            chunk.value[k] = widen(table.scales ? Converted<T, O>::scaled(value, term.scale) : Converted<T, O>::of(value));
        }
        return chunk;
    }

    __device__ __forceinline__ Chunk<W> read(u64 i, u64 column) const {
        Term term = {};
        fetch(term, place_of((u32)i), column);
        return term.factor == 0.0f ? value_of(term) : filled<W>(not_a_number());
    }

    __device__ __forceinline__ float weight(u64 at) const {
        const float weight = factors.weights[at * factors.heads + head];
        return factors.keep > 0 ? kept_weight(weight, factors.keep) : weight;
    }

    __device__ __forceinline__ void zero(Acc &acc) const { acc = filled<W>(0.0f); }

    // A row stays as it is where nothing is added to it.
    __device__ __forceinline__ bool untouched() const { return factors.own == ONTO && edges == 0; }

    __device__ __forceinline__ void start(Acc &acc) const {
        zero(acc);
        if (untouched()) return;
        if (factors.own == ONTO) {
            Packed<O, W> before = {};
            load_parts<PART>(before, out + row * out_stride + out_offset + column, columns);
            acc = widened(before);
        }
        if (row >= factors.num_own) return;
        if (!PLAIN && factors.own == SELF_LOOP) add_scaled(acc, weight((u64)factors.indptr[row] + row), read(row, table.offset + column));
        if (factors.own == BESIDE && BY_SOURCE) acc = read(row, column);
    }

    __device__ __forceinline__ Found find(u32 place) const {
        return {place_of(list ? list[place] : place), !PLAIN && factors.edges ? factors.edges[place] : place};
    }

    __device__ __forceinline__ Term load(const Found &found) const {
        Term term = {};
        const u64 target = BY_SOURCE ? found.position : row;
        term.factor = scale;
        if (BY_SOURCE && factors.mean) term.factor = one_over(factors.indptr[target + 1] - factors.indptr[target]);
        if (!PLAIN && factors.weights) {
            const u64 before = factors.own == SELF_LOOP ? target + 1 : 0;
            term.factor = __fmul_rn(term.factor, weight(found.edge + before));
        }
        fetch(term, found.position, table.offset + column);
        return term;
    }

    __device__ __forceinline__ void add(Acc &acc, const Term &term) const { add_scaled(acc, term.factor, value_of(term)); }
    __device__ __forceinline__ void merge(Acc &acc, const Acc &piece) const { add_chunk(acc, piece); }

    __device__ __forceinline__ void finish(const Acc &acc) const {
        if (untouched()) return;
        O *to = out + row * out_stride + column;
        Acc sum = acc;
        if (BY_SOURCE && factors.relu) {
            Packed<O, W> made = {};
            load_parts<PART>(made, (const O *)factors.relu + row * table.dim + column, columns);
#pragma unroll
            for (int k = 0; k < W; k++) sum.value[k] = relu_backward(widen(made.value[k]), sum.value[k], factors.relu_keep);
        }
        store_parts<PART>(to + out_offset, narrowed<O>(sum), columns);
        if (factors.own == BESIDE && !BY_SOURCE) store_parts<PART>(to, narrowed<O>(read(row, table.offset + column)), columns);
    }
};

// The registers of a thread are limited, so that a multiprocessor holds three blocks of sums of f32
// rows without weights, and two of others.
#define SUM(name, T, O, BY_SOURCE, PLAIN)                                                                                     \
    KERNEL_WITH(__launch_bounds__(256, PLAIN && sizeof(T) == 4 ? 3 : 2), name, Rows rows, Table table, Factors factors, const u32 *list, O *out, u64 out_stride, u64 out_offset, u32 part) { \
        constexpr int W = sizeof(T) < 4 ? 8 : 4;                                                                              \
        if (part == W) for_rows(rows, Sum<T, O, W, W, BY_SOURCE, PLAIN>(table, factors, list, out, out_stride, out_offset));  \
        else if (part == 4) for_rows(rows, Sum<T, O, W, 4, BY_SOURCE, PLAIN>(table, factors, list, out, out_stride, out_offset)); \
        else for_rows(rows, Sum<T, O, 1, 1, BY_SOURCE, PLAIN>(table, factors, list, out, out_stride, out_offset));            \
    }

// From rows of every stored type.
#define SUM_TO(TO, O)                                                                                                  \
    SUM(sum_f32_to_##TO, float, O, false, false)                                                                       \
    SUM(sum_f16_to_##TO, Half, O, false, false)                                                                        \
    SUM(sum_bf16_to_##TO, Bfloat16, O, false, false)                                                                   \
    SUM(sum_i8_to_##TO, Int8, O, false, false)                                                                         \
    SUM(sum_by_source_f32_to_##TO, float, O, true, false)                                                              \
    SUM(sum_by_source_f16_to_##TO, Half, O, true, false)                                                               \
    SUM(sum_by_source_bf16_to_##TO, Bfloat16, O, true, false)
