// Bias, activation and dropout, and their gradient: the host's operations in the host's order, so
// the host's bits.
#include "device.cuh"

constexpr u32 RELU = 1, ELU = 2;

// e^x - 1 for x up to 0, as in crate::simd.
static __device__ __forceinline__ float exp_m1_below_zero(float x) {
    const float round = 12582912.0f;
    x = x < -20.0f ? -20.0f : x > 0.0f ? 0.0f : x;
    const float rounded = __fadd_rn(__fmul_rn(x, 1.44269504088896340736f), round);
    const float n = __fsub_rn(rounded, round);
    const float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0.6933594f)), __fmul_rn(n, -2.1219444e-4f));
    float tail = __fadd_rn(1.0f / 720.0f, __fmul_rn(r, 1.0f / 5040.0f));
    tail = __fadd_rn(1.0f / 120.0f, __fmul_rn(r, tail));
    tail = __fadd_rn(1.0f / 24.0f, __fmul_rn(r, tail));
    tail = __fadd_rn(1.0f / 6.0f, __fmul_rn(r, tail));
    tail = __fadd_rn(0.5f, __fmul_rn(r, tail));
    const float series = __fadd_rn(r, __fmul_rn(__fmul_rn(r, r), tail));
    const float power = __uint_as_float((__float_as_uint(rounded) - __float_as_uint(round) + 127u) << 23);
    return __fadd_rn(__fmul_rn(power, series), __fsub_rn(power, 1.0f));
}

static __device__ __forceinline__ float activate(u32 activation, float x) {
    if (activation == RELU) return x < 0.0f ? 0.0f : x;
    if (activation == ELU) return x < 0.0f ? exp_m1_below_zero(x) : x;
    return x;
}

// Applies the epilogue to W values at once, from f32 to rows of O, which may be f32 too.
template <int W, typename O>
static __device__ __forceinline__ void apply(const float *rows, u64 count, u32 dim, const float *bias, u32 activation, O *out) {
    const u64 at = thread_id() * W;
    if (at >= count) return;
    const u32 column = (u32)(at - divide(at, dim) * dim);
    const Packed<float, W> values = *(const Packed<float, W> *)(rows + at);
    Packed<float, W> biases = {};
    if (bias) biases = *(const Packed<float, W> *)(bias + column);
    Packed<O, W> to;
#pragma unroll
    for (int k = 0; k < W; k++) {
        const float value = bias ? __fadd_rn(values.value[k], biases.value[k]) : values.value[k];
        to.value[k] = narrow<O>(activate(activation, value));
    }
    *(Packed<O, W> *)(out + at) = to;
}

// Eight values of a row; sixteen neighbouring threads share 128 columns. The values are contiguous
// where a load takes PART of them, and otherwise 16 columns apart, so that neighbouring threads
// access neighbouring addresses.
template <int PART> struct Eight {
    u64 row;
    u32 group, lane, first, dim;
    bool any;

    __device__ __forceinline__ Eight(u64 num_rows, u32 dim) : dim(dim) {
        const u32 groups = (dim + 127) / 128;
        const u64 item = thread_id() / 16;
        row = divide(item, groups);
        lane = threadIdx.x % 16, group = (u32)(item - row * groups);
        first = group * 128 + lane * (PART == 1 ? 1 : 8);
        any = row < num_rows && first < dim;
    }

    template <typename T> __device__ __forceinline__ Packed<T, 8> load(const T *row) const {
        Packed<T, 8> values = {};
        if (PART > 1) load_parts<PART>(values, row + first, dim - first);
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            if (PART == 1 && first + 16 * k < dim) values.value[k] = row[first + 16 * k];
        return values;
    }

    template <typename T> __device__ __forceinline__ void store(T *row, const Packed<T, 8> &values) const {
        if (PART > 1) store_parts<PART>(row + first, values, dim - first);
#pragma unroll
        for (u32 k = 0; k < 8; k++)
            if (PART == 1 && first + 16 * k < dim) row[first + 16 * k] = values.value[k];
    }

    // Bit k says whether dropout keeps the k-th value. A group of random words decides about values
    // that are 16 columns apart, so threads with contiguous values get the bits from the threads
    // that made the words. All threads of a warp call this.
    __device__ __forceinline__ u32 kept(u64 num_rows, const u32 *ids, u32 threshold, Key key) const {
        u32 own = 0, asked = 0;
        if (row < num_rows) {
            const Words words = philox(key, ids[row], group * 16 + lane);
#pragma unroll
            for (u32 k = 0; k < 8; k++) own |= (u32)((words.word[k / 2] >> (k % 2 * 16) & 0xFFFFu) >= threshold) << k;
        }
        if (PART == 1) return own;
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            const u32 of_warp = __ballot_sync(FULL, own >> k & 1);
            if (k == lane / 2) asked = of_warp;
        }
        return asked >> (threadIdx.x % WARP / 16 * 16 + lane % 2 * 8) & 0xFFu;
    }
};

// Like `apply`, with dropout.
template <int PART, typename O>
static __device__ __forceinline__ void apply_dropout(const float *rows, u64 num_rows, u32 dim, const float *bias, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, O *out) {
    const Eight<PART> at(num_rows, dim);
    Packed<float, 8> values = {}, biases = {};
    if (at.any) values = at.load(rows + at.row * dim);
    if (at.any && bias) biases = at.load(bias);
    const u32 kept = at.kept(num_rows, ids, threshold, key);
    if (!at.any) return;
    Packed<O, 8> to;
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        const float value = bias ? __fadd_rn(values.value[k], biases.value[k]) : values.value[k];
        to.value[k] = narrow<O>(__fmul_rn(activate(activation, value), kept >> k & 1 ? keep : 0.0f));
    }
    at.store(out + at.row * dim, to);
}

// Gradient without dropout, or with it for ReLU; `keep` is the factor of dropout.
static __device__ __forceinline__ float backward(float value, float gradient, u32 activation, float keep) {
    if (activation == RELU) return relu_backward(value, gradient, keep);
    // Below zero the derivative is e^x, which is the value before dropout plus 1.
    const float slope = activation == ELU && value < 0.0f ? __fadd_rn(__fdiv_rn(value, keep), 1.0f) : 1.0f;
    return __fmul_rn(slope, gradient);
}

// Computes the gradient of the product, of type G.
template <int W, typename O, typename G>
static __device__ __forceinline__ void backward(const O *rows, const O *gradient, u64 count, u32 activation, float keep, G *out) {
    const u64 at = thread_id() * W;
    if (at >= count) return;
    const Packed<O, W> values = *(const Packed<O, W> *)(rows + at), given = *(const Packed<O, W> *)(gradient + at);
    Packed<G, W> to;
#pragma unroll
    for (int k = 0; k < W; k++) to.value[k] = narrow<G>(backward(widen(values.value[k]), widen(given.value[k]), activation, keep));
    *(Packed<G, W> *)(out + at) = to;
}

// Like `backward`, with dropout, for all activations except ReLU.
template <int PART, typename O, typename G>
static __device__ __forceinline__ void backward_dropout(const O *rows, const O *gradient, u64 num_rows, u32 dim, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, G *out) {
    const Eight<PART> at(num_rows, dim);
    Packed<O, 8> values = {}, given = {};
    if (at.any) values = at.load(rows + at.row * dim), given = at.load(gradient + at.row * dim);
    const u32 kept = at.kept(num_rows, ids, threshold, key);
    if (!at.any) return;
    Packed<G, 8> to;
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        const float slope = backward(widen(values.value[k]), widen(given.value[k]), activation, keep);
        to.value[k] = narrow<G>(__fmul_rn(slope, kept >> k & 1 ? keep : 0.0f));
    }
    at.store(out + at.row * dim, to);
}

// For finished rows of O.
#define FORWARD(NAME, O)                                                                                               \
    KERNEL(epilogue_apply_##NAME, const float *rows, u64 count, u32 dim, const float *bias, u32 activation, O *out, u32 part) { \
        BY_PART(part, apply, rows, count, dim, bias, activation, out); \
    }                                                                                                                  \
    KERNEL(epilogue_dropout_##NAME, const float *rows, u64 num_rows, u32 dim, const float *bias, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, O *out, u32 part) { \
        BY_PART(part, apply_dropout, rows, num_rows, dim, bias, activation, ids, threshold, keep, key, out); \
    }
FOR_ROW_TYPES(FORWARD)

// From the gradient of finished rows of O to that of the product in G.
#define BACKWARD(NAME, O, G)                                                                                           \
    KERNEL(epilogue_backward_##NAME, const O *rows, const O *gradient, u64 count, u32 activation, float keep, G *out, u32 part) { \
        BY_PART(part, backward, rows, gradient, count, activation, keep, out); \
    }                                                                                                                  \
    KERNEL(epilogue_dropout_backward_##NAME, const O *rows, const O *gradient, u64 num_rows, u32 dim, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, G *out, u32 part) { \
        BY_PART(part, backward_dropout, rows, gradient, num_rows, dim, activation, ids, threshold, keep, key, out); \
    }
BACKWARD(f32, float, float)
BACKWARD(bf16, Bfloat16, float)
BACKWARD(f16, Half, float)
BACKWARD(rounded_f32, float, float)
BACKWARD(rounded_bf16, Bfloat16, Bfloat16)
BACKWARD(rounded_f16, Half, Half)
