// Shared by all kernels: integers of a known width, Philox, sums over a warp, widening loads.
//
// Also compiled as C++ for the host (`gpu-sim/src/emulated/language.h` is then included first),
// where kernels are tested without a GPU.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

// The head of a kernel, by its name and its parameters. Where kernels are emulated, it registers the
// kernel by its name.
#ifndef EMULATED
#define KERNEL_WITH(attributes, name, ...) extern "C" __global__ void attributes name(__VA_ARGS__)
// A block's shared memory whose size is given at launch.
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) unsigned char name##_bytes[]; type *name = (type *)name##_bytes
#endif
#define KERNEL(name, ...) KERNEL_WITH(, name, __VA_ARGS__)

// Loads and stores of memory that other threads may write meanwhile, by atomics or `relaxed_store`:
// a load gives some value that was there, whole, and the compiler must not cache it.
#ifndef EMULATED
template <typename T> __device__ __forceinline__ T relaxed_load(const T *at) { return *(const volatile T *)at; }
template <typename T> __device__ __forceinline__ void relaxed_store(T *at, T value) { *(volatile T *)at = value; }
#endif

#define WARP 32
#define FULL 0xFFFFFFFFu

__device__ __forceinline__ u64 thread_id() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// a / b, in 32 bits where they suffice: that takes a third of the time.
__device__ __forceinline__ u64 divide(u64 a, u32 b) { return a >> 32 ? a / b : (u32)a / b; }

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7F800000u); }
__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7FC00000u); }

// --- Philox4x32-10, keyed as gsplit_kernels::StreamKey is ---

// A family of random sequences: seed, stream, layer, step and epoch.
struct Key {
    u32 seed_low, seed_high, what, step, epoch;
};

struct Words {
    u32 word[4];
};

// Words 4·block .. 4·block + 4 of the sequence of `item`.
__device__ __forceinline__ Words philox(Key key, u32 item, u32 block) {
    u32 c0 = item, c1 = key.what | block, c2 = key.step, c3 = key.epoch;
    u32 k0 = key.seed_low, k1 = key.seed_high;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u32 a_low = c0 * 0xD2511F53u, a_high = __umulhi(c0, 0xD2511F53u);
        const u32 b_low = c2 * 0xCD9E8D57u, b_high = __umulhi(c2, 0xCD9E8D57u);
        c0 = b_high ^ c1 ^ k0;
        c1 = b_low;
        c2 = a_high ^ c3 ^ k1;
        c3 = a_low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

// Block `block` of the sequence of `item`, however far: as StreamKey::page, 2^16 blocks at a time.
__device__ __forceinline__ Words long_sequence(Key key, u32 item, u64 block) {
    constexpr u32 PAGES = 8; // Stream::Pages
    const u32 page = (u32)(block >> 16) & 0xFFFFu;
    if (page > 0) {
        Key pages = key;
        pages.what = (key.what & 0x00FF0000u) | PAGES << 24;
        const Words seed = philox(pages, item, page);
        key.seed_low = seed.word[0], key.seed_high = seed.word[1];
    }
    return philox(key, item, (u32)block & 0xFFFFu);
}

// One of four words: with a variable index, an array would be put into memory.
__device__ __forceinline__ u32 word_of(Words words, u32 which) {
    const u32 low = which & 1 ? words.word[1] : words.word[0], high = which & 1 ? words.word[3] : words.word[2];
    return which & 2 ? high : low;
}

// An integer in 0..n from one random word, as Draws::below has it.
__device__ __forceinline__ u32 below(u32 word, u32 n) { return __umulhi(word, n); }

// An attention weight after dropout; a minus sign marks a dropped weight. A NaN passes.
__device__ __forceinline__ float kept_weight(float weight, float keep) { return weight < 0 ? 0.0f : __fmul_rn(keep, weight); }

// --- sums over the lanes of a warp ---

__device__ __forceinline__ u32 lane_id() { return threadIdx.x % WARP; }

template <typename T> __device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(FULL, value, offset);
    return value;
}

// The sum over the group of `lanes` neighbours that a lane belongs to; `lanes` is a power of 2.
template <typename T> __device__ __forceinline__ T group_sum(T value, u32 lanes) {
    for (u32 offset = lanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(FULL, value, offset);
    return value;
}

template <typename T> __device__ __forceinline__ T warp_max(T value) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        const T other = __shfl_xor_sync(FULL, value, offset);
        value = value < other ? other : value;
    }
    return value;
}

// The sum of the lanes up to this one, itself included.
template <typename T> __device__ __forceinline__ T warp_scan(T value) {
#pragma unroll
    for (int offset = 1; offset < WARP; offset *= 2) {
        const T other = __shfl_up_sync(FULL, value, offset);
        if (lane_id() >= (u32)offset) value += other;
    }
    return value;
}

// The sum of `value` in the threads of a block of THREADS before this one; `total` gets the sum of
// all.
template <u32 THREADS> __device__ __forceinline__ u64 sum_before(u64 value, u64 *total) {
    constexpr u32 warps = THREADS / WARP;
    __shared__ u64 sums[warps];
    const u32 warp = threadIdx.x / WARP;
    const u64 inclusive = warp_scan(value);
    if (lane_id() == WARP - 1) sums[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        const u64 up_to = warp_scan(lane_id() < warps ? sums[lane_id()] : 0ull);
        if (lane_id() < warps) sums[lane_id()] = up_to;
    }
    __syncthreads();
    const u64 before = warp > 0 ? sums[warp - 1] : 0;
    *total = sums[warps - 1];
    // For the next call.
    __syncthreads();
    return before + inclusive - value;
}

// --- stored values, widened to f32 ---

struct Half {
    u16 bits;
};
struct Bfloat16 {
    u16 bits;
};

__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ float widen(Bfloat16 value) { return __uint_as_float((u32)value.bits << 16); }
__device__ __forceinline__ float widen(Half value) {
#ifdef EMULATED
    return emulate::half_to_float(value.bits);
#else
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
#endif
}

// Rounds f32 to a stored type: to nearest, ties to even, as the crate `half` does. A NaN stays one.
template <typename T> __device__ __forceinline__ T narrow(float value);
template <> __device__ __forceinline__ float narrow<float>(float value) { return value; }
template <> __device__ __forceinline__ Bfloat16 narrow<Bfloat16>(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return Bfloat16{(u16)(bits >> 16 | 0x40u)};
    return Bfloat16{(u16)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}
template <> __device__ __forceinline__ Half narrow<Half>(float value) {
    u16 bits;
#ifdef EMULATED
    bits = emulate::float_to_half(value);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#endif
    return Half{bits};
}

struct Int8 {
    signed char value;
};
__device__ __forceinline__ float widen(Int8 value) { return value.value; }

// W values of a row at once, where rows have a multiple of W. No load takes more than 16 bytes, so
// alignment beyond that is not needed.
template <typename T, int W> struct alignas(W * sizeof(T) < 16 ? W * sizeof(T) : 16) Packed {
    T value[W];
};

// The first `count` of W values, PART per load or store, where `count` is a multiple of PART.
template <int PART, typename T, int W> __device__ __forceinline__ void load_parts(Packed<T, W> &values, const T *at, u32 count) {
#pragma unroll
    for (u32 k = 0; k < W; k += PART) {
        if (k > 0 && k >= count) continue;
        const Packed<T, PART> part = *(const Packed<T, PART> *)(at + k);
#pragma unroll
        for (int i = 0; i < PART; i++) values.value[k + i] = part.value[i];
    }
}
template <int PART, typename T, int W> __device__ __forceinline__ void store_parts(T *at, const Packed<T, W> &values, u32 count) {
#pragma unroll
    for (u32 k = 0; k < W; k += PART) {
        if (k > 0 && k >= count) continue;
        Packed<T, PART> part;
#pragma unroll
        for (int i = 0; i < PART; i++) part.value[i] = values.value[k + i];
        *(Packed<T, PART> *)(at + k) = part;
    }
}

// The gradient of ReLU's input. Its derivative is 0 where its output `made` is, dropped or not;
// `keep` is the factor of dropout. A NaN passes, as in the forward pass.
__device__ __forceinline__ float relu_backward(float made, float gradient, float keep) {
    return made <= 0.0f ? 0.0f : __fmul_rn(keep, gradient);
}

// Converts a stored value to another type, times a factor; a value of the same type stays as it is.
template <typename T, typename O> struct Converted {
    static __device__ __forceinline__ O of(T value) { return narrow<O>(widen(value)); }
    static __device__ __forceinline__ O scaled(T value, float factor) { return narrow<O>(widen(value) * factor); }
};
template <typename T> struct Converted<T, T> {
    static __device__ __forceinline__ T of(T value) { return value; }
    static __device__ __forceinline__ T scaled(T value, float factor) { return narrow<T>(widen(value) * factor); }
};

// Calls FUNCTION<W>(...) for the number W of values that a thread takes at once: 8, 4 or 1.
#define BY_PART(part, FUNCTION, ...)                                                                                   \
    if (part == 8) FUNCTION<8>(__VA_ARGS__);                                                                           \
    else if (part == 4) FUNCTION<4>(__VA_ARGS__);                                                                      \
    else FUNCTION<1>(__VA_ARGS__)

// Calls MACRO(name, type) for each type that hidden rows are kept in.
#define FOR_ROW_TYPES(MACRO) MACRO(f32, float) MACRO(bf16, Bfloat16) MACRO(f16, Half)
