// Bias, activation and dropout, and their gradient: the host's operations in the host's order, so the host's bits.
#include "device.cuh"

constexpr u32 RELU = 1, ELU = 2;

// e^x - 1 for x up to 0, as crate::simd has it.
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

// W values at once, from f32 to rows of O, which may be the same.
template <int W, typename O>
static __device__ __forceinline__ void apply(const float *rows, u64 count, u32 dim, const float *bias, u32 activation, O *out) {
    const u64 at = thread_id() * W;
    if (at >= count) return;
    const u32 column = (u32)(at - divide(at, dim) * dim);
    const Packed<float, W> values = *(const Packed<float, W> *)(rows + at);
    Packed<O, W> to;
#pragma unroll
    for (int k = 0; k < W; k++) {
        float value = values.value[k];
        if (bias) value = __fadd_rn(value, bias[column + k]);
        to.value[k] = narrow<O>(activate(activation, value));
    }
    *(Packed<O, W> *)(out + at) = to;
}

// The same with dropout. One thread takes the eight features that one group of random words decides, 16 columns apart; sixteen
// neighbouring threads take the groups of 128 columns.
template <typename O>
static __device__ __forceinline__ void apply_dropout(const float *rows, u64 num_rows, u32 dim, const float *bias, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, O *out) {
    const u32 groups = (dim + 127) / 128;
    const u64 item = thread_id() / 16, row = divide(item, groups);
    if (row >= num_rows) return;
    const u32 lane = threadIdx.x % 16, group = (u32)(item - row * groups);
    const u32 first = group * 128 + lane;
    if (first >= dim) return;
    const float *at = rows + row * dim + first;
    O *to = out + row * dim + first;
    float values[8];
#pragma unroll
    for (u32 k = 0; k < 8; k++)
        if (first + 16 * k < dim) values[k] = at[16 * k];
    const Words words = philox(key, ids[row], group * 16 + lane);
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (first + 16 * k >= dim) continue;
        float value = values[k];
        if (bias) value = __fadd_rn(value, bias[first + 16 * k]);
        const u32 bits = words.word[k / 2] >> (k % 2 * 16) & 0xFFFFu;
        to[16 * k] = narrow<O>(__fmul_rn(activate(activation, value), bits >= threshold ? keep : 0.0f));
    }
}

// Without dropout but for ReLU, whose derivative is 0 where the value is, dropped or not; `keep` is what dropout multiplied with.
static __device__ __forceinline__ float backward(float value, float gradient, u32 activation, float keep) {
    // A NaN passes, as it did forwards.
    if (activation == RELU) return value <= 0.0f ? 0.0f : __fmul_rn(keep, gradient);
    // Below zero the derivative is e^x: the value before dropout, and 1.
    const float slope = activation == ELU && value < 0.0f ? __fadd_rn(__fdiv_rn(value, keep), 1.0f) : 1.0f;
    return __fmul_rn(slope, gradient);
}

template <int W, typename O>
static __device__ __forceinline__ void backward(const O *rows, const O *gradient, u64 count, u32 activation, float keep, float *out) {
    const u64 at = thread_id() * W;
    if (at >= count) return;
    const Packed<O, W> values = *(const Packed<O, W> *)(rows + at), given = *(const Packed<O, W> *)(gradient + at);
    Packed<float, W> to;
#pragma unroll
    for (int k = 0; k < W; k++) to.value[k] = backward(widen(values.value[k]), widen(given.value[k]), activation, keep);
    *(Packed<float, W> *)(out + at) = to;
}

// The same with dropout, for all but ReLU. Threads have what they have in apply_dropout.
template <typename O>
static __device__ __forceinline__ void backward_dropout(const O *rows, const O *gradient, u64 num_rows, u32 dim, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, float *out) {
    const u32 groups = (dim + 127) / 128;
    const u64 item = thread_id() / 16, row = divide(item, groups);
    if (row >= num_rows) return;
    const u32 lane = threadIdx.x % 16, group = (u32)(item - row * groups);
    const u32 first = group * 128 + lane;
    if (first >= dim) return;
    const u64 at = row * dim + first;
    float values[8];
#pragma unroll
    for (u32 k = 0; k < 8; k++)
        if (first + 16 * k < dim) values[k] = backward(widen(rows[at + 16 * k]), widen(gradient[at + 16 * k]), activation, keep);
    const Words words = philox(key, ids[row], group * 16 + lane);
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (first + 16 * k >= dim) continue;
        const u32 bits = words.word[k / 2] >> (k % 2 * 16) & 0xFFFFu;
        out[at + 16 * k] = __fmul_rn(values[k], bits >= threshold ? keep : 0.0f);
    }
}

// For finished rows of O.
#define EPILOGUE(O, applied, dropped, backwards, dropped_backwards)                                                    \
    KERNEL_ENTRY void applied(const float *rows, u64 count, u32 dim, const float *bias, u32 activation, O *out, u32 wide) { \
        if (wide) apply<4>(rows, count, dim, bias, activation, out);                                                   \
        else apply<1>(rows, count, dim, bias, activation, out);                                                        \
    }                                                                                                                  \
    KERNEL(applied)                                                                                                    \
    KERNEL_ENTRY void dropped(const float *rows, u64 num_rows, u32 dim, const float *bias, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, O *out) { \
        apply_dropout(rows, num_rows, dim, bias, activation, ids, threshold, keep, key, out);                          \
    }                                                                                                                  \
    KERNEL(dropped)                                                                                                    \
    KERNEL_ENTRY void backwards(const O *rows, const O *gradient, u64 count, u32 activation, float keep, float *out, u32 wide) { \
        if (wide) backward<4>(rows, gradient, count, activation, keep, out);                                           \
        else backward<1>(rows, gradient, count, activation, keep, out);                                                \
    }                                                                                                                  \
    KERNEL(backwards)                                                                                                  \
    KERNEL_ENTRY void dropped_backwards(const O *rows, const O *gradient, u64 num_rows, u32 dim, u32 activation, const u32 *ids, u32 threshold, float keep, Key key, float *out) { \
        backward_dropout(rows, gradient, num_rows, dim, activation, ids, threshold, keep, key, out);                   \
    }                                                                                                                  \
    KERNEL(dropped_backwards)

EPILOGUE(float, epilogue_apply, epilogue_dropout, epilogue_backward, epilogue_dropout_backward)
EPILOGUE(Bfloat16, epilogue_apply_bf16, epilogue_dropout_bf16, epilogue_backward_bf16, epilogue_dropout_backward_bf16)
EPILOGUE(Half, epilogue_apply_f16, epilogue_dropout_f16, epilogue_backward_f16, epilogue_dropout_backward_f16)
