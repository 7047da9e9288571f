// CUDA C on the host, for tests: a launch runs its blocks one after another, and a block's threads
// as fibers that switch where they wait for each other. Every thread sees the values that it would
// see on a GPU, in an order that a GPU might take; `emulate_order` (calls.h) chooses among several,
// so that a missing barrier shows. Device memory ends at a page that cannot be touched, so that an
// access beyond a buffer ends the process. Accesses without an order are found in every order of
// the threads (hazards.h).
//
// Stricter than a GPU: waiting for a lane that has returned is an error, and so is a barrier that
// some threads miss.
#pragma once

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
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

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
    // Number of __syncwarp that it has passed.
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
    // Left uninitialised: most threads use a page or two of their stacks, and many launches are a
    // thread's first.
    std::unique_ptr<char[]> stacks;
    unsigned num_stacks = 0;
    std::vector<unsigned char> shared;
    jmp_buf scheduler;
    void (*body)(void *) = nullptr;
    void *arguments = nullptr;
    uint64_t progress = 0;
    // Threads of the block that have returned, and that wait at a barrier; number of barriers that
    // all have reached.
    uint32_t returned = 0, at_barrier = 0, barriers = 0;
    unsigned order = 0;
    // Of the launch: its stream, its number, the number of its block among all, and the granules of
    // shared memory.
    uint32_t stream = 0, number = 0;
    uint64_t block_number = 0;
    std::vector<Granule> dynamic_granules, static_granules;
    // The error message.
    std::string failure;
};

// The calling thread's state. A plain pointer: every use of another type begins with a check that
// it was initialised, which would be watched.
static thread_local State *current = nullptr;
UNWATCHED inline State &make_current() {
    static thread_local const std::unique_ptr<State> kept(new State);
    return *(current = kept.get());
}
// The thread of an emulated block that the calling thread is running, if any.
static thread_local Fiber *running = nullptr;

// `_setjmp` does not save the signal mask, for which `swapcontext` makes a system call.
UNWATCHED inline void pause() {
    watching = false;
    if (_setjmp(running->place) == 0) _longjmp(current->scheduler, 1);
    watching = watched;
}

// Runs a fiber until it pauses.
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

// Finds this thread's thread-local memory in the library that contains this code, where
// `__shared__` variables are.
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
    // Lanes beyond the block's end count as returned in masks.
    for (unsigned i = threads; i < s.warps.size() * LANES; i++) s.warps[i / LANES].returned |= 1u << i % LANES;
    if (s.num_stacks < threads) {
        s.stacks.reset(new char[threads * STACK]);
        s.num_stacks = threads;
    }
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
            // Odd orders start at the last thread; orders from 2 on take every seventh, which
            // shares no factor with a power of 2.
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
// Rounds to the nearest value, ties to even; values beyond the largest become infinity.
inline uint16_t float_to_half(float value) {
    const _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
}

} // namespace emulate
