// Layer norm of rows, and norm of columns by given moments.
#include "columns.cuh"
#include "device.cuh"
#include "rows.cuh"

// --- rows: a warp has one, which is in the nearest cache for all passes but the first ---

template <int W>
static __device__ __forceinline__ void layer_norm(const float *row, const float *scale, const float *shift, float epsilon, u32 dim, float *moments, float *out) {
    const u32 first = lane_id() * W;
    float sum = 0;
#pragma unroll 4
    for (u32 c = first; c < dim; c += WARP * W) {
        const Chunk<W> x = load_chunk<W>(row + c);
#pragma unroll
        for (int k = 0; k < W; k++) sum += x.value[k];
    }
    const float mean = warp_sum(sum) / (float)dim;
    float square = 0;
#pragma unroll 4
    for (u32 c = first; c < dim; c += WARP * W) {
        const Chunk<W> x = load_chunk<W>(row + c);
#pragma unroll
        for (int k = 0; k < W; k++) square += (x.value[k] - mean) * (x.value[k] - mean);
    }
    const float inverse = 1.0f / sqrtf(warp_sum(square) / (float)dim + epsilon);
#pragma unroll 4
    for (u32 c = first; c < dim; c += WARP * W) {
        Chunk<W> x = load_chunk<W>(row + c);
        const Chunk<W> a = load_chunk<W>(scale + c), b = load_chunk<W>(shift + c);
#pragma unroll
        for (int k = 0; k < W; k++) x.value[k] = (x.value[k] - mean) * inverse * a.value[k] + b.value[k];
        store_chunk(out + c, x);
    }
    if (lane_id() == 0) {
        moments[0] = mean;
        moments[1] = inverse;
    }
}

KERNEL_ENTRY void norm_rows(const float *rows, const float *scale, const float *shift, float epsilon, u64 count, u32 dim, float *moments, float *out, u32 wide) {
    const u64 row = thread_id() / WARP;
    if (row >= count) return;
    const float *from = rows + row * dim;
    if (wide) layer_norm<4>(from, scale, shift, epsilon, dim, moments + 2 * row, out + row * dim);
    else layer_norm<1>(from, scale, shift, epsilon, dim, moments + 2 * row, out + row * dim);
}
KERNEL(norm_rows)

template <int W>
static __device__ __forceinline__ void layer_norm_backward(const float *row, const float *scale, float mean, float inverse, const float *gradient, u32 dim, float *out) {
    const u32 first = lane_id() * W;
    float of_mean = 0, of_spread = 0;
#pragma unroll 4
    for (u32 c = first; c < dim; c += WARP * W) {
        const Chunk<W> x = load_chunk<W>(row + c), a = load_chunk<W>(scale + c), g = load_chunk<W>(gradient + c);
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float term = g.value[k] * a.value[k];
            of_mean += term;
            of_spread += term * (x.value[k] - mean);
        }
    }
    of_mean = warp_sum(of_mean) / (float)dim;
    of_spread = warp_sum(of_spread) * inverse / (float)dim;
#pragma unroll 4
    for (u32 c = first; c < dim; c += WARP * W) {
        Chunk<W> x = load_chunk<W>(row + c);
        const Chunk<W> a = load_chunk<W>(scale + c), g = load_chunk<W>(gradient + c);
#pragma unroll
        for (int k = 0; k < W; k++)
            x.value[k] = inverse * (g.value[k] * a.value[k] - of_mean - (x.value[k] - mean) * inverse * of_spread);
        store_chunk(out + c, x);
    }
}

KERNEL_ENTRY void norm_rows_backward(const float *rows, const float *scale, const float *moments, const float *gradient, u64 count, u32 dim, float *out, u32 wide) {
    const u64 row = thread_id() / WARP;
    if (row >= count) return;
    const float mean = moments[2 * row], inverse = moments[2 * row + 1];
    const u64 at = row * dim;
    if (wide) layer_norm_backward<4>(rows + at, scale, mean, inverse, gradient + at, dim, out + at);
    else layer_norm_backward<1>(rows + at, scale, mean, inverse, gradient + at, dim, out + at);
}
KERNEL(norm_rows_backward)

// --- sums over rows, in f64 ---

// Gradients of scale and shift of layer norm.
struct RowSums {
    typedef double Sum;
    static constexpr int SUMS = 2;
    const float *rows, *moments, *gradient;
    u64 dim;
    __device__ __forceinline__ void add(u64 row, u32 column, double (&sums)[2]) const {
        const float g = gradient[row * dim + column];
        sums[0] += (double)__fmul_rn(__fmul_rn(g, __fsub_rn(rows[row * dim + column], moments[2 * row])), moments[2 * row + 1]);
        sums[1] += (double)g;
    }
};

KERNEL_ENTRY void norm_row_sums(u64 count, u32 dim, u32 tile, double *out, const float *rows, const float *moments, const float *gradient) {
    sum_columns(RowSums{rows, moments, gradient, dim}, count, dim, tile, out);
}
KERNEL(norm_row_sums)

// A gradient, and its product with the normalised value.
struct Products {
    typedef double Sum;
    static constexpr int SUMS = 2;
    const float *rows, *mean, *inverse, *gradient;
    u64 dim;
    __device__ __forceinline__ void add(u64 row, u32 column, double (&sums)[2]) const {
        const float g = gradient[row * dim + column];
        sums[0] += (double)g;
        sums[1] += (double)__fmul_rn(__fmul_rn(g, __fsub_rn(rows[row * dim + column], mean[column])), inverse[column]);
    }
};

KERNEL_ENTRY void norm_products(u64 count, u32 dim, u32 tile, double *out, const float *rows, const float *mean, const float *inverse, const float *gradient) {
    sum_columns(Products{rows, mean, inverse, gradient, dim}, count, dim, tile, out);
}
KERNEL(norm_products)

// Values and their squares, weighted.
struct Moments {
    typedef double Sum;
    static constexpr int SUMS = 2;
    const float *rows, *weights;
    u64 dim;
    __device__ __forceinline__ void add(u64 row, u32 column, double (&sums)[2]) const {
        const double value = rows[row * dim + column], term = weights ? weights[row] * value : value;
        sums[0] += term;
        sums[1] += term * value;
    }
};

KERNEL_ENTRY void norm_moments(u64 count, u32 dim, u32 tile, double *out, const float *rows, const float *weights) {
    sum_columns(Moments{rows, weights, dim}, count, dim, tile, out);
}
KERNEL(norm_moments)

struct Weights {
    typedef double Sum;
    static constexpr int SUMS = 1;
    const float *weights;
    __device__ __forceinline__ void add(u64 row, u32, double (&sums)[1]) const { sums[0] += weights[row]; }
};

KERNEL_ENTRY void norm_weights(u64 count, u32 dim, u32 tile, double *out, const float *weights) {
    sum_columns(Weights{weights}, count, dim, tile, out);
}
KERNEL(norm_weights)

// The weight of all rows, or their number, before the sums.
KERNEL_ENTRY void norm_join(const double *weight, u64 rows, const double *sums, u64 count, double *out) {
    const u64 at = thread_id();
    if (at <= count) out[at] = at > 0 ? sums[at - 1] : weight ? weight[0] : (double)rows;
}
KERNEL(norm_join)

KERNEL_ENTRY void norm_narrow(const double *from, u64 count, float *out) {
    const u64 at = thread_id();
    if (at < count) out[at] = (float)from[at];
}
KERNEL(norm_narrow)

// Each row over the sum of its absolute values, in the host's order.
KERNEL_ENTRY void norm_divide_rows(float *rows, u64 count, u32 dim) {
    const u64 row = thread_id() / WARP;
    if (row >= count) return;
    float *values = rows + row * dim;
    double sum = 0;
    for (u32 c = lane_id(); c < dim; c += WARP) sum += (double)fabsf(values[c]);
    sum = warp_sum(sum);
    if (!(sum > 0)) return;
    const double factor = 1.0 / sum;
    for (u32 c = lane_id(); c < dim; c += WARP) values[c] = (float)((double)values[c] * factor);
}
KERNEL(norm_divide_rows)

// --- columns ---

KERNEL_ENTRY void norm_columns(const float *rows, const float *mean, const float *inverse, const float *scale, const float *shift, u64 values, u32 dim, float *out) {
    const u64 at = thread_id();
    if (at >= values) return;
    const u32 column = (u32)(at - divide(at, dim) * dim);
    const float factor = __fmul_rn(scale[column], inverse[column]);
    out[at] = __fadd_rn(__fmul_rn(__fsub_rn(rows[at], mean[column]), factor), shift[column]);
}
KERNEL(norm_columns)

KERNEL_ENTRY void norm_columns_backward(const float *inverse, const float *scale, const float *gradient, u64 values, u32 dim, float *out) {
    const u64 at = thread_id();
    if (at >= values) return;
    const u32 column = (u32)(at - divide(at, dim) * dim);
    out[at] = __fmul_rn(gradient[at], __fmul_rn(scale[column], inverse[column]));
}
KERNEL(norm_columns_backward)

KERNEL_ENTRY void norm_correct(const float *rows, const float *mean, const float *inverse, const float *weights, const double *means, u64 values, u32 dim, float *gradient) {
    const u64 at = thread_id();
    if (at >= values) return;
    const u64 row = divide(at, dim);
    const u32 column = (u32)(at - row * dim);
    const float spread = __fmul_rn(__fmul_rn(__fsub_rn(rows[at], mean[column]), inverse[column]), (float)means[dim + column]);
    const float sum = __fadd_rn((float)means[column], spread);
    gradient[at] = __fsub_rn(gradient[at], __fmul_rn(weights ? weights[row] : 1.0f, sum));
}
KERNEL(norm_correct)

// --- moments of the rows of all ranks: their number, and sums of their columns and of the squares ---

KERNEL_ENTRY void norm_factors(const double *sums, u32 dim, double epsilon, float *mean, float *inverse, float *unbiased) {
    const u32 c = (u32)thread_id();
    if (c >= dim) return;
    const double rows = sums[0], divisor = rows > 1.0 ? rows : 1.0;
    const double m = sums[1 + c] / divisor;
    const double v = fmax(__dsub_rn(sums[1 + dim + c] / divisor, __dmul_rn(m, m)), 0.0);
    mean[c] = (float)m;
    inverse[c] = (float)(1.0 / sqrt(v + epsilon));
    unbiased[c] = (float)(rows > 1.0 ? __dmul_rn(v, rows / (rows - 1.0)) : v);
}
KERNEL(norm_factors)

KERNEL_ENTRY void norm_means(const double *moments, double *sums, u64 count) {
    const u64 at = thread_id();
    if (at < count) sums[at] /= moments[0] > 1.0 ? moments[0] : 1.0;
}
KERNEL(norm_means)
