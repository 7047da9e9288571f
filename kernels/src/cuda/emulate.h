// CUDA C on the host, for tests: a launch runs its blocks one after another, and a block's threads as fibers that
// change places where they wait for each other. Every thread sees what a GPU would show it, in an order that a GPU
// might take; `emulate_order` chooses among several, so that a missing barrier shows itself. Device memory ends at a page that
// cannot be touched, so that an access beyond a buffer ends the process.
//
// Stricter than a GPU: waiting for a lane that has returned is an error, and so is a barrier that not all reach.
#pragma once
#define EMULATED

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulate {

constexpr int LANES = 32;
constexpr size_t STACK = 64 << 10;

struct Warp {
    uint64_t value[LANES];
    uint32_t arrived = 0, returned = 0, released = 0;
};

struct Fiber {
    ucontext_t context;
    uint3 thread;
    unsigned index;
    bool returned, at_barrier;
};

struct Launch {
    uint3 grid, block;
    size_t shared;
};

struct State {
    Launch launch;
    uint3 block_index;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<char> stacks;
    std::vector<unsigned char> shared;
    ucontext_t scheduler;
    Fiber *fiber = nullptr;
    void (*body)(void *) = nullptr;
    void *arguments = nullptr;
    uint64_t progress = 0;
    unsigned order = 0;
    const char *kernel = "";
};

inline thread_local State state;

[[noreturn]] inline void fail(const char *what) {
    const uint3 b = state.block_index;
    fprintf(stderr, "kernel %s, block %u, thread %u: %s\n", state.kernel, b.x, state.fiber ? state.fiber->index : 0, what);
    abort();
}

inline void pause() { swapcontext(&state.fiber->context, &state.scheduler); }

inline Warp &warp() { return state.warps[state.fiber->index / LANES]; }

inline void block_barrier() {
    Fiber &mine = *state.fiber;
    mine.at_barrier = true;
    bool all = true;
    for (Fiber &fiber : state.fibers) {
        if (fiber.returned) fail("__syncthreads after a thread of the block has returned");
        all &= fiber.at_barrier;
    }
    if (all) {
        for (Fiber &fiber : state.fibers) fiber.at_barrier = false;
        state.progress++;
        return;
    }
    while (mine.at_barrier) pause();
}

inline void warp_barrier(uint32_t mask) {
    const unsigned lane = state.fiber->index % LANES;
    if (!(mask >> lane & 1)) fail("a lane outside the mask");
    Warp &w = warp();
    w.arrived |= 1u << lane;
    w.released &= ~(1u << lane);
    for (;;) {
        if (w.released >> lane & 1) return;
        if (mask & w.returned) fail("waits for a lane that has returned");
        if ((w.arrived & mask) == mask) {
            w.arrived &= ~mask;
            w.released |= mask;
            state.progress++;
            return;
        }
        pause();
    }
}

template <typename T> T exchange(uint32_t mask, T value, unsigned from) {
    static_assert(sizeof(T) <= 8);
    Warp &w = warp();
    const unsigned lane = state.fiber->index % LANES;
    memcpy(&w.value[lane], &value, sizeof(T));
    warp_barrier(mask);
    if (!(mask >> from % LANES & 1)) fail("a shuffle from a lane outside the mask");
    T found;
    memcpy(&found, &w.value[from % LANES], sizeof(T));
    warp_barrier(mask);
    return found;
}

// The lanes of the mask whose values are `wanted`.
template <typename W> uint32_t lanes_with(uint32_t mask, W wanted, uint64_t value) {
    Warp &w = warp();
    w.value[state.fiber->index % LANES] = value;
    warp_barrier(mask);
    uint32_t found = 0;
    for (unsigned lane = 0; lane < LANES; lane++) found |= (uint32_t)(mask >> lane & 1 && wanted(w.value[lane])) << lane;
    warp_barrier(mask);
    return found;
}

inline void enter() {
    state.body(state.arguments);
    Fiber &fiber = *state.fiber;
    fiber.returned = true;
    state.warps[fiber.index / LANES].returned |= 1u << fiber.index % LANES;
    state.progress++;
    pause();
}

inline void run_block(uint3 index) {
    State &s = state;
    const unsigned threads = s.launch.block.x;
    s.block_index = index;
    s.fibers.assign(threads, Fiber{});
    s.warps.assign((threads + LANES - 1) / LANES, Warp{});
    // Lanes beyond the block's end have returned, as far as masks are concerned.
    for (unsigned i = threads; i < s.warps.size() * LANES; i++) s.warps[i / LANES].returned |= 1u << i % LANES;
    s.stacks.resize(threads * STACK);
    s.shared.assign(s.launch.shared + 16, 0xCD);
    for (unsigned i = 0; i < threads; i++) {
        Fiber &fiber = s.fibers[i];
        fiber.thread = {i, 0, 0};
        fiber.index = i;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = &s.stacks[i * STACK];
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, enter, 0);
    }
    for (unsigned done = 0; done < threads;) {
        const uint64_t before = s.progress;
        done = 0;
        for (unsigned i = 0; i < threads; i++) {
            // Odd orders start at the last thread; orders from 2 on take every seventh, which shares no factor with a power of 2.
            unsigned at = s.order & 1 ? threads - 1 - i : i;
            if (s.order >= 2 && threads % 7) at = (at * 7u) % threads;
            Fiber &fiber = s.fibers[at];
            if (!fiber.returned) {
                s.fiber = &fiber;
                swapcontext(&s.scheduler, &fiber.context);
            }
            done += fiber.returned;
        }
        if (s.progress == before) fail("no thread can go on: a barrier is not reached by all");
    }
    s.fiber = nullptr;
}

struct Kernel {
    void (*run)(void **arguments);
    std::vector<size_t> sizes;
};

inline std::map<std::string, Kernel> &kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

struct Register {
    Register(const char *name, void (*run)(void **), std::vector<size_t> sizes) { kernels()[name] = {run, sizes}; }
};

template <typename... A, size_t... I>
void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_cv_t<A> *)arguments[I]...);
}
template <typename... A> void call(void (*kernel)(A...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>{});
}
template <typename... A> std::vector<size_t> sizes(void (*)(A...)) { return {sizeof(A)...}; }

inline float half_to_float(uint16_t bits) {
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
}
// To the nearest, of two as near to the even one; beyond the largest to infinity.
inline uint16_t float_to_half(float value) {
    const _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
}

} // namespace emulate

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static thread_local
#define __constant__ static const
#define KERNEL_ENTRY static
#define KERNEL(name)                                                                                                      \
    static emulate::Register registered_##name(                                                                           \
        #name, [](void **arguments) { emulate::call(name, arguments); }, emulate::sizes(name));
#define DYNAMIC_SHARED(type, name)                                                                                        \
    type *name = (type *)(((uintptr_t)emulate::state.shared.data() + 15) / 16 * 16)

#define threadIdx (emulate::state.fiber->thread)
#define blockIdx (emulate::state.block_index)
#define blockDim (emulate::state.launch.block)
#define gridDim (emulate::state.launch.grid)

inline void __syncthreads() { emulate::block_barrier(); }
inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu) { emulate::warp_barrier(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T> T __shfl_sync(uint32_t mask, T value, int lane) { return emulate::exchange(mask, value, lane); }
template <typename T> T __shfl_xor_sync(uint32_t mask, T value, int lanes) {
    return emulate::exchange(mask, value, (threadIdx.x % 32) ^ lanes);
}
template <typename T> T __shfl_up_sync(uint32_t mask, T value, unsigned lanes) {
    const unsigned lane = threadIdx.x % 32;
    return emulate::exchange(mask, value, lane < lanes ? lane : lane - lanes);
}
template <typename T> T __shfl_down_sync(uint32_t mask, T value, unsigned lanes) {
    const unsigned lane = threadIdx.x % 32;
    return emulate::exchange(mask, value, lane + lanes > 31 ? lane : lane + lanes);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) { return emulate::lanes_with(mask, [=](uint64_t at) { return at != 0; }, predicate != 0); }
template <typename T> uint32_t __match_any_sync(uint32_t mask, T value) {
    return emulate::lanes_with(mask, [=](uint64_t at) { return at == (uint64_t)value; }, (uint64_t)value);
}
inline int __any_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

template <typename T, typename U> T atomicAdd(T *at, U value) { T old = *at; *at = old + (T)value; return old; }
template <typename T, typename U> T atomicMin(T *at, U value) { T old = *at; if ((T)value < old) *at = value; return old; }
template <typename T, typename U> T atomicMax(T *at, U value) { T old = *at; if ((T)value > old) *at = value; return old; }
template <typename T, typename U> T atomicOr(T *at, U value) { T old = *at; *at = old | (T)value; return old; }
template <typename T, typename U> T atomicExch(T *at, U value) { T old = *at; *at = value; return old; }
template <typename T, typename U, typename V> T atomicCAS(T *at, U expected, V value) {
    T old = *at;
    if (old == (T)expected) *at = value;
    return old;
}

template <typename T> T __ldg(const T *at) { return *at; }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint64_t)a * b >> 32; }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (unsigned __int128)a * b >> 64; }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(uint64_t x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(uint32_t x) { return __builtin_ffs(x); }
inline float __uint_as_float(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
inline uint32_t __float_as_uint(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }

// --- for Rust ---

extern "C" {
// Runs a kernel; 1 where there is none of this name, 2 where the arguments are not of its sizes.
int emulate_launch(const char *name, unsigned blocks, unsigned threads, size_t shared, void **arguments, const size_t *sizes, size_t count) {
    const auto found = emulate::kernels().find(name);
    if (found == emulate::kernels().end()) return 1;
    if (found->second.sizes != std::vector<size_t>(sizes, sizes + count)) return 2;
    struct Call {
        void (*run)(void **);
        void **arguments;
    } call = {found->second.run, arguments};
    emulate::State &s = emulate::state;
    s.kernel = found->first.c_str();
    s.launch = {{blocks, 1, 1}, {threads, 1, 1}, shared};
    s.body = [](void *call) { ((Call *)call)->run(((Call *)call)->arguments); };
    s.arguments = &call;
    for (unsigned block = 0; block < blocks; block++) emulate::run_block({block, 0, 0});
    return 0;
}

// The sizes of a kernel's arguments; null where there is none of this name.
const size_t *emulate_sizes(const char *name, size_t *count) {
    const auto found = emulate::kernels().find(name);
    if (found == emulate::kernels().end()) return nullptr;
    *count = found->second.sizes.size();
    return found->second.sizes.data();
}

// Which thread of a block goes first in the calling thread's launches.
void emulate_order(unsigned order) { emulate::state.order = order; }

static const size_t PAGE = 4096;

// Memory of `bytes`, a multiple of 16, that ends where touching it ends the process; 0 where there is none left.
void *emulate_alloc(size_t bytes) {
    const size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    char *start = (char *)mmap(nullptr, pages + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    mprotect(start + pages, PAGE, PROT_NONE);
    memset(start, 0xCD, pages);
    return start + (pages - bytes);
}

void emulate_free(void *at, size_t bytes) {
    const size_t pages = (bytes + PAGE - 1) / PAGE * PAGE;
    munmap((char *)at + bytes - pages, pages + PAGE);
}
}
