// Optimizers over flat vectors, and the norm of a gradient.
#include "columns.cuh"
#include "device.cuh"

struct Squares {
    typedef double Sum;
    static constexpr int SUMS = 1;
    const float *values;
    __device__ __forceinline__ void add(u64 row, u32, double (&sums)[1]) const {
        const double value = values[row];
        sums[0] += value * value;
    }
};

KERNEL_ENTRY void squared_norm(u64 count, u32 dim, u32 tile, double *out, const float *values) {
    sum_columns(Squares{values}, count, dim, tile, out);
}
KERNEL(squared_norm)

// Where the values of one tensor are: from `values` on, and in the flat vectors from `start` on; `first` is the first block that
// has any of them. Behind the last comes one of no tensor.
struct Part {
    float *values;
    u64 start, first;
};

// What all rules share. The gradient is clipped if there is a norm; decay is added to it, or with `decoupled` to the change.
struct Step {
    const Part *parts;
    const float *gradient;
    const double *squared_norm;
    double most;
    float rate, decay;
    u32 num_parts, decoupled;
    u64 unused[2];
};

// Values that one block has.
constexpr u32 PIECE = 1024;

static __device__ __forceinline__ float clip_factor(const Step &step) {
    if (!step.squared_norm) return 1.0f;
    const double norm = sqrt(*step.squared_norm);
    return norm > step.most ? (float)(step.most / (norm + 1e-6)) : 1.0f;
}

// Changes W values at `place`, those from `at` on of the flat vectors.
template <int W, class Rule>
static __device__ __forceinline__ void take(const Step &step, const Rule &rule, float factor, float *place, u64 at) {
    Packed<float, W> values = *(const Packed<float, W> *)place;
    Packed<float, W> gradient = *(const Packed<float, W> *)(step.gradient + at);
    const bool coupled = step.decay != 0.0f && !step.decoupled, decoupled = step.decay != 0.0f && step.decoupled;
#pragma unroll
    for (int k = 0; k < W; k++) {
        if (step.squared_norm) gradient.value[k] = __fmul_rn(gradient.value[k], factor);
        if (coupled) gradient.value[k] = __fadd_rn(gradient.value[k], __fmul_rn(step.decay, values.value[k]));
    }
    Packed<float, W> change = rule.template direction<W>(gradient, at);
#pragma unroll
    for (int k = 0; k < W; k++) {
        if (decoupled) change.value[k] = __fadd_rn(change.value[k], __fmul_rn(step.decay, values.value[k]));
        values.value[k] = __fsub_rn(values.value[k], __fmul_rn(step.rate, change.value[k]));
    }
    *(Packed<float, W> *)place = values;
}

// Changes the values of this block by `rule`.
template <class Rule> static __device__ __forceinline__ void update(const Step &step, const Rule &rule) {
    // The last part that begins with this block or before. None is empty.
    u32 low = 0, high = step.num_parts;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (step.parts[middle].first <= blockIdx.x) low = middle;
        else high = middle;
    }
    const Part part = step.parts[low];
    const u64 from = (blockIdx.x - part.first) * PIECE, length = step.parts[low + 1].start - part.start;
    const u32 count = (u32)(length - from < PIECE ? length - from : PIECE);
    float *const values = part.values + from;
    const u64 at = part.start + from;
    const float factor = clip_factor(step);
    const bool wide = ((u64)values | (u64)(step.gradient + at) | rule.places(at)) % 16 == 0;
    const u32 packed = wide ? count / 4 * 4 : 0;
    for (u32 i = threadIdx.x * 4; i < packed; i += blockDim.x * 4) take<4>(step, rule, factor, values + i, at + i);
    for (u32 i = packed + threadIdx.x; i < count; i += blockDim.x) take<1>(step, rule, factor, values + i, at + i);
}

// The first moment over the root of the second, both without their bias towards zero.
struct Adam {
    float *first, *second;
    // 1 - beta1; beta2; 1 - beta2; what the bias leaves of the first and of the root of the second.
    float moves, keeps, takes, epsilon, left_first, left_root;

    __device__ __forceinline__ u64 places(u64 at) const { return (u64)(first + at) | (u64)(second + at); }

    template <int W> __device__ __forceinline__ Packed<float, W> direction(const Packed<float, W> &gradient, u64 at) const {
        Packed<float, W> m = *(const Packed<float, W> *)(first + at), v = *(const Packed<float, W> *)(second + at), change;
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float g = gradient.value[k];
            m.value[k] = __fadd_rn(m.value[k], __fmul_rn(moves, __fsub_rn(g, m.value[k])));
            v.value[k] = __fadd_rn(__fmul_rn(keeps, v.value[k]), __fmul_rn(__fmul_rn(g, g), takes));
            const float root = __fadd_rn(sqrtf(v.value[k]) / left_root, epsilon);
            change.value[k] = m.value[k] / root / left_first;
        }
        *(Packed<float, W> *)(first + at) = m;
        *(Packed<float, W> *)(second + at) = v;
        return change;
    }
};

KERNEL_ENTRY void update_adam(Step step, float *first, float *second, float moves, float keeps, float takes, float epsilon, float left_first, float left_root) {
    update(step, Adam{first, second, moves, keeps, takes, epsilon, left_first, left_root});
}
KERNEL(update_adam)

struct Sgd {
    // None without momentum.
    float *kept;
    float momentum;
    u32 nesterov;

    __device__ __forceinline__ u64 places(u64 at) const { return kept ? (u64)(kept + at) : 0; }

    template <int W> __device__ __forceinline__ Packed<float, W> direction(const Packed<float, W> &gradient, u64 at) const {
        if (!kept) return gradient;
        Packed<float, W> sum = *(const Packed<float, W> *)(kept + at), change;
#pragma unroll
        for (int k = 0; k < W; k++) {
            sum.value[k] = __fadd_rn(__fmul_rn(momentum, sum.value[k]), gradient.value[k]);
            change.value[k] = nesterov ? __fadd_rn(gradient.value[k], __fmul_rn(momentum, sum.value[k])) : sum.value[k];
        }
        *(Packed<float, W> *)(kept + at) = sum;
        return change;
    }
};

KERNEL_ENTRY void update_sgd(Step step, float *kept, float momentum, u32 nesterov) {
    update(step, Sgd{kept, momentum, nesterov});
}
KERNEL(update_sgd)
