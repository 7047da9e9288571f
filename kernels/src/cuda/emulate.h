// CUDA C on the host, for tests: a launch runs its blocks one after another, and a block's threads as fibers that
// change places where they wait for each other. Every thread sees what a GPU would show it, in an order that a GPU
// might take; `emulate_order` chooses among several, so that a missing barrier shows itself. Device memory ends at a page that
// cannot be touched, so that an access beyond a buffer ends the process. Accesses that nothing puts in order are found whatever
// the order (hazards.h).
//
// Stricter than a GPU: waiting for a lane that has returned is an error, and so is a barrier that not all reach.
#pragma once
#define EMULATED

#include <cmath>
#include <cstdint>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <map>
#include <memory>
#include <setjmp.h>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "hazards.h"

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
    jmp_buf place;
    uint3 thread;
    unsigned index;
    bool begun, returned;
    // How many __syncwarp it has passed.
    uint32_t warp_syncs;
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
    jmp_buf scheduler;
    void (*body)(void *) = nullptr;
    void *arguments = nullptr;
    uint64_t progress = 0;
    // Threads of the block that have returned, and that wait for the others; how often all have come.
    uint32_t returned = 0, at_barrier = 0, barriers = 0;
    unsigned order = 0;
    // Of the launch: its stream, its number, the number of its block among all, what is known of shared memory.
    uint32_t stream = 0, number = 0;
    uint64_t block_number = 0;
    std::vector<Granule> dynamic_granules, static_granules;
    // What went wrong.
    std::string failure;
};

// The calling thread's. A plain pointer, since each use of anything else begins with a question whether it is there yet, which
// would be watched.
static thread_local State *current = nullptr;
UNWATCHED inline State &make_current() {
    static thread_local const std::unique_ptr<State> kept(new State);
    return *(current = kept.get());
}
// The thread of an emulated block that the calling thread is at, if any.
static thread_local Fiber *running = nullptr;

// `_setjmp` leaves the mask of signals alone, for which `swapcontext` asks the system.
UNWATCHED inline void pause() {
    watching = false;
    if (_setjmp(running->place) == 0) _longjmp(current->scheduler, 1);
    watching = watched;
}

// Goes to a fiber, until it pauses.
UNWATCHED inline void go_on(Fiber &fiber) {
    running = &fiber;
    if (_setjmp(current->scheduler) == 0) {
        if (fiber.begun) _longjmp(fiber.place, 1);
        fiber.begun = true;
        setcontext(&fiber.context);
    }
    running = nullptr;
}

UNWATCHED inline void tell(const char *format, ...) {
    char text[512];
    const int start = snprintf(text, sizeof text, "block %u, thread %u: ", current->block_index.x, running->index);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + start, sizeof text - start, format, arguments);
    va_end(arguments);
    current->failure = text;
}

[[noreturn]] UNWATCHED inline void leave() {
    for (;;) pause();
}

[[noreturn]] UNWATCHED inline void fail(const char *what) {
    tell("%s", what);
    leave();
}

UNWATCHED inline uint32_t launch_number() { return current->number; }

UNWATCHED inline Here here(Kind kind) {
    const State &s = *current;
    const Fiber &fiber = *running;
    const uint16_t thread = (uint16_t)fiber.index;
    return {{s.number, s.stream, s.block_index.x, s.barriers, fiber.warp_syncs, thread, 0, kind}, false, s.block_number};
}

// Finds the memory that this thread has of its own in the program that this is part of, where `__shared__` variables are.
UNWATCHED inline void find_static_memory() {
    if (static_memory.start) return;
    dl_iterate_phdr(
        [](dl_phdr_info *object, size_t, void *) {
            for (int i = 0; i < object->dlpi_phnum; i++) {
                const size_t bytes = object->dlpi_phdr[i].p_memsz;
                const size_t offset = (size_t)((char *)&running - (char *)object->dlpi_tls_data);
                if (object->dlpi_phdr[i].p_type != PT_TLS || !object->dlpi_tls_data || offset >= bytes) continue;
                current->static_granules.assign(bytes / 4 + 1, Granule{});
                static_memory = {(char *)object->dlpi_tls_data, bytes, current->static_granules.data()};
                return 1;
            }
            return 0;
        },
        nullptr);
}

UNWATCHED inline Warp &warp() { return current->warps[running->index / LANES]; }

UNWATCHED inline void block_barrier() {
    State &s = *current;
    if (s.returned) fail("a barrier is not reached by all: a thread of the block has returned");
    const uint32_t passed = s.barriers;
    if (++s.at_barrier == s.launch.block.x) {
        s.at_barrier = 0;
        s.barriers++;
        s.progress++;
    }
    while (s.barriers == passed) pause();
}

UNWATCHED inline void warp_barrier(uint32_t mask) {
    const unsigned lane = running->index % LANES;
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
            current->progress++;
            return;
        }
        pause();
    }
}

template <typename T> UNWATCHED T exchange(uint32_t mask, T value, unsigned from) {
    static_assert(sizeof(T) <= 8);
    Warp &w = warp();
    const unsigned lane = running->index % LANES;
    memcpy(&w.value[lane], &value, sizeof(T));
    warp_barrier(mask);
    if (!(mask >> from % LANES & 1)) fail("a shuffle from a lane outside the mask");
    T found;
    memcpy(&found, &w.value[from % LANES], sizeof(T));
    warp_barrier(mask);
    return found;
}

// The lanes of the mask whose values are `wanted`.
template <typename W> UNWATCHED uint32_t lanes_with(uint32_t mask, W wanted, uint64_t value) {
    Warp &w = warp();
    w.value[running->index % LANES] = value;
    warp_barrier(mask);
    uint32_t found = 0;
    for (unsigned lane = 0; lane < LANES; lane++) found |= (uint32_t)(mask >> lane & 1 && wanted(w.value[lane])) << lane;
    warp_barrier(mask);
    return found;
}

UNWATCHED inline void enter() {
    watching = watched;
    current->body(current->arguments);
    watching = false;
    Fiber &fiber = *running;
    fiber.returned = true;
    current->returned++;
    current->warps[fiber.index / LANES].returned |= 1u << fiber.index % LANES;
    current->progress++;
    pause();
}

UNWATCHED inline void run_block(uint3 index) {
    static uint64_t blocks = 0;
    State &s = *current;
    const unsigned threads = s.launch.block.x;
    s.block_index = index;
    s.returned = s.at_barrier = s.barriers = 0;
    s.block_number = __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    s.fibers.assign(threads, Fiber{});
    s.warps.assign((threads + LANES - 1) / LANES, Warp{});
    // Lanes beyond the block's end have returned, as far as masks are concerned.
    for (unsigned i = threads; i < s.warps.size() * LANES; i++) s.warps[i / LANES].returned |= 1u << i % LANES;
    s.stacks.resize(threads * STACK);
    s.shared.assign(s.launch.shared + 16, 0xCD);
    if (s.dynamic_granules.size() < s.shared.size() / 4 + 1) s.dynamic_granules.assign(s.shared.size() / 4 + 1, Granule{});
    dynamic_memory = {(char *)s.shared.data(), s.shared.size(), s.dynamic_granules.data()};
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
                go_on(fiber);
                if (!s.failure.empty()) return;
            }
            done += fiber.returned;
        }
        if (s.progress == before) {
            s.failure = "block " + std::to_string(index.x) + ": no thread can go on: a barrier is not reached by all";
            return;
        }
    }
}

struct Kernel {
    void (*run)(void **arguments);
    std::vector<size_t> sizes;
};

UNWATCHED inline std::map<std::string, Kernel> &kernels() {
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
    // A part of a warp is taken for none.
    if (mask == 0xFFFFFFFFu) emulate::running->warp_syncs++;
}
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

// A read, a change and a write that nobody comes between: `changed` makes the new value of the old.
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
template <typename T, typename U> T atomicOr(T *at, U value) { return emulate::at_once(at, [=](T old) { return old | (T)value; }); }
template <typename T, typename U> T atomicExch(T *at, U value) { return emulate::at_once(at, [=](T) { return (T)value; }); }
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
// Whether what kernels do is watched; it is unless this says otherwise.
void emulate_watch(int is) { emulate::watched = is; }

// The stream of the calling thread's launches from now on.
void emulate_on(uint32_t stream) { emulate::make_current().stream = stream; }

// Runs a kernel; 1 where there is none of this name, 2 where the arguments are not of its sizes, 3 where it went wrong.
UNWATCHED int emulate_launch(const char *name, unsigned blocks, unsigned threads, size_t shared, void **arguments, const size_t *sizes, size_t count) {
    const auto found = emulate::kernels().find(name);
    if (found == emulate::kernels().end()) return 1;
    if (found->second.sizes != std::vector<size_t>(sizes, sizes + count)) return 2;
    struct Call {
        void (*run)(void **);
        void **arguments;
    } call = {found->second.run, arguments};
    emulate::State &s = emulate::make_current();
    emulate::find_static_memory();
    s.number = emulate::streams().launch(s.stream);
    s.failure.clear();
    s.launch = {{blocks, 1, 1}, {threads, 1, 1}, shared};
    s.body = [](void *call) { ((Call *)call)->run(((Call *)call)->arguments); };
    s.arguments = &call;
    for (unsigned block = 0; block < blocks && s.failure.empty(); block++) emulate::run_block({block, 0, 0});
    return s.failure.empty() ? 0 : 3;
}

// What went wrong in the calling thread's last launch.
const char *emulate_failure() { return emulate::make_current().failure.c_str(); }

// A copy or a fill by the calling thread's stream: 3 where it went wrong.
UNWATCHED int emulate_touch(const void *at, size_t bytes, int writes) {
    emulate::State &s = emulate::make_current();
    emulate::Granule *const granule = emulate::arena_granule(at);
    if (!granule || bytes == 0) return 0;
    s.number = emulate::streams().launch(s.stream);
    const emulate::Here here = {{s.number, s.stream, 0, 0, 0, 0, 0, emulate::PLAIN}, false, 0};
    emulate::Wrong wrong;
    if (emulate::touch_all(granule, (uintptr_t)at, bytes, here, writes, false, wrong)) return 0;
    char who[96];
    emulate::describe(wrong.then, who, sizeof who);
    s.failure = "stream " + std::to_string(s.stream) + " " + wrong.what + who;
    return 3;
}

// A new stream's number.
UNWATCHED uint32_t emulate_stream() {
    emulate::Streams &streams = emulate::streams();
    const std::lock_guard<std::mutex> guard(streams.lock);
    streams.waited.emplace_back();
    streams.completed.push_back(0);
    streams.last.push_back(0);
    return streams.last.size() - 1;
}

// What is launched on `stream` from now on comes after what was launched on `other`.
UNWATCHED void emulate_wait(uint32_t stream, uint32_t other) {
    emulate::Streams &streams = emulate::streams();
    const std::lock_guard<std::mutex> guard(streams.lock);
    std::map<uint32_t, uint32_t> known = streams.waited[other];
    known[other] = streams.last[other];
    for (const auto &[of, launch] : known) {
        uint32_t &mine = streams.waited[stream][of];
        mine = mine > launch ? mine : launch;
    }
}

// The host has waited for what was launched on `stream`.
UNWATCHED void emulate_completed(uint32_t stream) {
    emulate::Streams &streams = emulate::streams();
    const std::lock_guard<std::mutex> guard(streams.lock);
    std::map<uint32_t, uint32_t> known = streams.waited[stream];
    known[stream] = streams.last[stream];
    for (const auto &[of, launch] : known) {
        uint32_t &done = streams.completed[of];
        done = done > launch ? done : launch;
    }
}

// The sizes of a kernel's arguments; null where there is none of this name.
const size_t *emulate_sizes(const char *name, size_t *count) {
    const auto found = emulate::kernels().find(name);
    if (found == emulate::kernels().end()) return nullptr;
    *count = found->second.sizes.size();
    return found->second.sizes.data();
}

// Which thread of a block goes first in the calling thread's launches.
void emulate_order(unsigned order) { emulate::make_current().order = order; }

// Memory of `bytes`, a multiple of 16, that ends where touching it ends the process; 0 where there is none left.
UNWATCHED void *emulate_alloc(size_t bytes) {
    if (bytes > emulate::ARENA) return nullptr;
    const size_t pages = (bytes + emulate::PAGE - 1) / emulate::PAGE * emulate::PAGE;
    emulate::open_arena();
    const size_t at = __atomic_fetch_add(&emulate::arena_used, pages + emulate::PAGE, __ATOMIC_RELAXED);
    if (at + pages > emulate::ARENA) return nullptr;
    char *start = emulate::arena_start + at;
    if (mprotect(start, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
    memset(start, 0xCD, pages);
    return start + (pages - bytes);
}

UNWATCHED void emulate_free(void *at, size_t bytes) {
    const size_t pages = (bytes + emulate::PAGE - 1) / emulate::PAGE * emulate::PAGE;
    char *start = (char *)at + bytes - pages;
    mmap(start, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    // Whole pages of what was known of it.
    const uintptr_t page = emulate::PAGE, from = ((uintptr_t)emulate::arena_granule(start) + page - 1) / page * page;
    const uintptr_t to = (uintptr_t)emulate::arena_granule(start + pages) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}
}
