// What CUDA C has beyond C++, on the host.
#pragma once
#define EMULATED

#include "threads.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static thread_local
#define KERNEL_WITH(attributes, name, ...)                                                                                \
    static void name(__VA_ARGS__);                                                                                        \
    static emulate::Register registered_##name(                                                                           \
        #name, [](void **arguments) { emulate::call(name, arguments); }, emulate::sizes(name));                           \
    static void name(__VA_ARGS__)
#define DYNAMIC_SHARED(type, name) type *name = (type *)emulate::dynamic_shared()

namespace emulate {
UNWATCHED inline void *dynamic_shared() { return (void *)(((uintptr_t)current->shared.data() + 15) / 16 * 16); }
UNWATCHED inline uint3 thread_index() { return running->thread; }
UNWATCHED inline uint3 block_index() { return current->block_index; }
UNWATCHED inline uint3 block_size() { return current->launch.block; }
UNWATCHED inline uint3 grid_size() { return current->launch.grid; }
} // namespace emulate

#define threadIdx (emulate::thread_index())
#define blockIdx (emulate::block_index())
#define blockDim (emulate::block_size())
#define gridDim (emulate::grid_size())

inline void __syncthreads() { emulate::block_barrier(); }
UNWATCHED inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu) {
    emulate::warp_barrier(mask);
    // A barrier for a part of a warp does not count.
    if (mask == 0xFFFFFFFFu) emulate::running->warp_syncs++;
}

template <typename T> T __shfl_sync(uint32_t mask, T value, int lane) { return emulate::exchange(mask, value, lane); }
template <typename T> T __shfl_xor_sync(uint32_t mask, T value, int lanes) {
    return emulate::exchange(mask, value, (threadIdx.x % 32) ^ lanes);
}
template <typename T> T __shfl_up_sync(uint32_t mask, T value, unsigned lanes) {
    const unsigned lane = threadIdx.x % 32;
    return emulate::exchange(mask, value, lane < lanes ? lane : lane - lanes);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) { return emulate::lanes_with(mask, [=](uint64_t at) { return at != 0; }, predicate != 0); }
template <typename T> uint32_t __match_any_sync(uint32_t mask, T value) {
    return emulate::lanes_with(mask, [=](uint64_t at) { return at == (uint64_t)value; }, (uint64_t)value);
}

// An atomic read-modify-write: `changed` makes the new value from the old.
namespace emulate {
template <typename T, typename C> UNWATCHED T at_once(T *at, C changed) {
    watch(at, sizeof(T), true, true, ATOMIC);
    const T old = *at;
    *at = changed(old);
    return old;
}
} // namespace emulate
template <typename T, typename U> T atomicAdd(T *at, U value) { return emulate::at_once(at, [=](T old) { return old + (T)value; }); }
template <typename T, typename U> T atomicMin(T *at, U value) { return emulate::at_once(at, [=](T old) { return (T)value < old ? (T)value : old; }); }
template <typename T, typename U> T atomicMax(T *at, U value) { return emulate::at_once(at, [=](T old) { return (T)value > old ? (T)value : old; }); }
template <typename T, typename U, typename V> T atomicCAS(T *at, U expected, V value) {
    return emulate::at_once(at, [=](T old) { return old == (T)expected ? (T)value : old; });
}
template <typename T> UNWATCHED T relaxed_load(const T *at) {
    emulate::watch(at, sizeof(T), false, true, emulate::RELAXED);
    return *at;
}
template <typename T> UNWATCHED void relaxed_store(T *at, T value) {
    emulate::watch(at, sizeof(T), true, false, emulate::RELAXED);
    *at = value;
}

inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint64_t)a * b >> 32; }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __ffs(uint32_t x) { return __builtin_ffs(x); }
inline float __uint_as_float(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
inline uint32_t __float_as_uint(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
template <typename T> T min(T a, T b) { return b < a ? b : a; }
