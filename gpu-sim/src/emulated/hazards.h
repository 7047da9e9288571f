// Detects errors of kernels that a GPU would not report, as NVIDIA's compute-sanitizer does on
// hardware: two unordered accesses of threads to the same memory of which one is a write; reads of
// memory that was never written; accesses that are not aligned; and arithmetic that GPUs do
// otherwise than hosts (shifts by a word's width, floats too large for an integer).
//
// The compiler calls `__tsan_read4` and the like before each access to memory of a kernel
// (-fsanitize=thread, whose own library is not used), and `__ubsan_handle_...` where arithmetic
// goes wrong. Every four bytes of device memory, and of shared memory, remember their last writer
// and the readers since then; other memory (the host's, tensors') is not watched. Accesses are
// ordered as follows:
//
//   in a thread       in program order in a warp         if a __syncwarp is between them; shuffles
//   and votes do not order in a block        if a __syncthreads is between them between blocks   
//   never between launches  if they are on one stream, after `emulate_wait`, or if the host has
//   waited for the stream
//
// Atomics do not race with each other, nor with `relaxed` reads and writes (device.cuh).
#pragma once

#include <map>
#include <mutex>
#include <vector>

// Marks functions whose accesses are the emulation's own.
#define UNWATCHED __attribute__((no_sanitize("thread", "undefined")))

namespace emulate {

constexpr uint32_t MANY = 0xFFFFFFFF;
constexpr uint16_t MANY_LANES = 0x4000, MANY_THREADS_OF_BLOCK = 0xFFFF;

enum Kind : uint8_t { PLAIN, RELAXED, ATOMIC };

// The thread that made an access; none if `launch` is 0.
struct Access {
    uint32_t launch, stream, block, barrier, warp_sync;
    // A thread of the block; MANY_LANES and the number of a warp; or MANY_THREADS_OF_BLOCK.
    uint16_t thread;
    // The bytes of the four, one bit each.
    uint8_t bytes;
    Kind kind;
};

// Four bytes of memory.
struct Granule {
    Access write;
    // Of plain readers, and of all others.
    Access read[2];
    // In shared memory: the block that owns it, by its number among all that ever ran.
    uint64_t owner;
    // The bytes that were ever written, one bit each.
    uint8_t written;
    // Whether a thread is reading or changing this.
    uint8_t busy;
};

// --- device memory: a reserved range of addresses, none of which is used twice, and its granules
// ---

constexpr size_t ARENA = 1ull << 38, PAGE = 4096;

// Constant once `open_arena` was called, which every allocation does.
static char *arena_start = nullptr;
static Granule *arena_granules = nullptr;
static size_t arena_used = 0;

UNWATCHED inline void open_arena() {
    static std::once_flag opened;
    std::call_once(opened, [] {
        const auto reserve = [](size_t bytes, int access) {
            return mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        };
        const size_t granules = ARENA / 4 * sizeof(Granule);
        void *memory = reserve(ARENA, PROT_NONE), *shadow = reserve(granules, PROT_READ | PROT_WRITE);
        if (memory == MAP_FAILED || shadow == MAP_FAILED) {
            fprintf(stderr, "the emulated GPU needs %zu GiB of addresses, which this process may not have\n", granules >> 30);
            abort();
        }
        arena_start = (char *)memory;
        arena_granules = (Granule *)shadow;
    });
}

// The granule of an address in device memory; null for other memory.
UNWATCHED inline Granule *arena_granule(const void *at) {
    const size_t offset = (const char *)at - arena_start;
    return offset < ARENA ? arena_granules + offset / 4 : nullptr;
}

// --- streams ---

struct Streams {
    std::mutex lock;
    // For each stream, up to which launch of each other one it has waited, and up to which the host
    // has.
    std::vector<std::map<uint32_t, uint32_t>> waited{1};
    std::vector<uint32_t> completed{0}, last{0};
    uint32_t launches = 0;

    UNWATCHED uint32_t launch(uint32_t stream) {
        const std::lock_guard<std::mutex> guard(lock);
        return last[stream] = ++launches;
    }
    UNWATCHED bool comes_before(uint32_t launch, uint32_t of, uint32_t stream) {
        if (of == stream) return true;
        const std::lock_guard<std::mutex> guard(lock);
        if (launch <= completed[of]) return true;
        const auto found = waited[stream].find(of);
        return found != waited[stream].end() && launch <= found->second;
    }
};

UNWATCHED inline Streams &streams() {
    static Streams streams;
    return streams;
}

// --- an access ---

struct Here {
    Access access;
    bool shared;
    // The block's number among all that ever ran.
    uint64_t owner;
};

UNWATCHED inline bool same_warp(uint16_t thread, uint16_t mine) {
    if (thread == MANY_THREADS_OF_BLOCK) return false;
    return (thread & MANY_LANES ? thread & ~MANY_LANES : thread / 32) == mine / 32;
}

UNWATCHED inline bool comes_before(const Access &then, const Here &here) {
    const Access &now = here.access;
    if (then.launch != now.launch) return streams().comes_before(then.launch, then.stream, now.stream);
    if (then.block != now.block) return false;
    if (then.thread == now.thread || then.barrier < now.barrier) return true;
    return same_warp(then.thread, now.thread) && then.warp_sync < now.warp_sync;
}

UNWATCHED inline bool both_in_one_go(Kind a, Kind b) { return a != PLAIN && b != PLAIN; }

// Whether the earlier access `then` races with the access `here`.
UNWATCHED inline bool races(const Access &then, const Here &here) {
    return then.launch && then.bytes & here.access.bytes && !both_in_one_go(then.kind, here.access.kind) && !comes_before(then, here);
}

// Adds a reader to those since the last write.
UNWATCHED inline void add_reader(Access &readers, const Here &here) {
    const Access &now = here.access;
    if (readers.launch == now.launch && readers.block == MANY) {
        readers.bytes |= now.bytes;
        return;
    }
    // A later writer that comes after this access also comes after the accesses before it.
    if (readers.launch != now.launch || comes_before(readers, here)) {
        readers = now;
        return;
    }
    if (readers.block != now.block) {
        readers.block = MANY;
    } else if (readers.thread != now.thread) {
        readers.thread = same_warp(readers.thread, now.thread) ? MANY_LANES | now.thread / 32 : MANY_THREADS_OF_BLOCK;
    }
    readers.barrier = readers.barrier > now.barrier ? readers.barrier : now.barrier;
    readers.warp_sync = readers.warp_sync > now.warp_sync ? readers.warp_sync : now.warp_sync;
    readers.bytes |= now.bytes;
}

// The error of an access to one granule, if any.
struct AccessError {
    const char *reason;
    // The access that it races with.
    Access then;
};

// Whether an access to one granule is right; if not, `error` gets the reason.
UNWATCHED inline bool touch(Granule &granule, const Here &here, bool writes, bool reads, AccessError &error) {
    if (here.shared && granule.owner != here.owner) {
        granule.write.launch = granule.read[0].launch = granule.read[1].launch = 0;
        granule.written = 0;
        granule.owner = here.owner;
    }
    if (races(granule.write, here)) {
        error = {writes ? "writes what another wrote" : "reads what another wrote", granule.write};
        return false;
    }
    if (reads && (granule.written & here.access.bytes) != here.access.bytes) {
        error = {"reads what nobody wrote", {}};
        return false;
    }
    if (!writes) {
        add_reader(granule.read[here.access.kind != PLAIN], here);
        return true;
    }
    for (const Access &read : granule.read) {
        if (!races(read, here)) continue;
        error = {"writes what another read", read};
        return false;
    }
    granule.write = here.access;
    granule.written |= here.access.bytes;
    granule.read[0].launch = granule.read[1].launch = 0;
    return true;
}

// Like `touch`, for `bytes` from `at` on, whose granules begin with `granule`.
UNWATCHED inline bool touch_all(Granule *granule, uintptr_t at, size_t bytes, Here here, bool writes, bool reads, AccessError &error) {
    for (size_t done = 0; done < bytes; granule++) {
        const unsigned from = (at + done) % 4, count = bytes - done < 4 - from ? bytes - done : 4 - from;
        here.access.bytes = ((1u << count) - 1) << from;
        while (__atomic_test_and_set(&granule->busy, __ATOMIC_ACQUIRE)) {}
        const bool right = touch(*granule, here, writes, reads, error);
        __atomic_clear(&granule->busy, __ATOMIC_RELEASE);
        if (!right) return false;
        done += count;
    }
    return true;
}

// Functions of the calling thread of an emulated block, defined in threads.h.
uint32_t launch_number();
Here here(Kind kind);
// Notes the error, and ends the launch.
void tell(const char *format, ...);
[[noreturn]] void leave();

// Shared memory: either the bytes that the launch asked for, or a range that contains the
// `__shared__` variables.
struct SharedMemory {
    char *start = nullptr;
    size_t bytes = 0;
    Granule *granules = nullptr;

    UNWATCHED Granule *of(const void *at) const {
        const size_t offset = (const char *)at - start;
        return offset < bytes ? granules + offset / 4 : nullptr;
    }
};
static thread_local SharedMemory dynamic_memory, static_memory;
// Whether the calling thread is running a kernel, and not the emulation's own code.
static thread_local bool watching = false;
// Whether kernels are watched at all.
static bool watched = true;
// Loads and stores of device memory by the kernels that the calling thread launched and watched,
// each of at most 16 bytes; and their bytes.
static thread_local uint64_t accesses[2] = {0, 0};

// Describes the thread of an access in brackets; writes nothing if there is none.
UNWATCHED inline void describe(const Access &then, char *text, size_t size) {
    const char *how = then.kind == ATOMIC ? "an atomic of " : "";
    const unsigned warp = then.thread & ~MANY_LANES;
    if (then.launch == 0) snprintf(text, size, "%s", "");
    else if (then.launch != launch_number()) snprintf(text, size, " (%slaunch %u of stream %u)", how, then.launch, then.stream);
    else if (then.block == MANY) snprintf(text, size, " (%sseveral blocks)", how);
    else if (then.thread == MANY_THREADS_OF_BLOCK) snprintf(text, size, " (%sseveral warps of block %u)", how, then.block);
    else if (then.thread & MANY_LANES) snprintf(text, size, " (%sseveral lanes of warp %u of block %u)", how, warp, then.block);
    else snprintf(text, size, " (%sthread %u of block %u)", how, then.thread, then.block);
}

UNWATCHED inline void watch(const void *at, size_t bytes, bool writes, bool reads, Kind kind) {
    if (!watching) return;
    Granule *granule = arena_granule(at);
    const bool shared = !granule;
    if (shared && !(granule = static_memory.of(at)) && !(granule = dynamic_memory.of(at))) return;
    if (!shared) accesses[0] += (bytes + 15) / 16, accesses[1] += bytes;
    watching = false;
    Here where = here(kind);
    where.shared = shared;
    AccessError error;
    if (!touch_all(granule, (uintptr_t)at, bytes, where, writes, reads, error)) {
        char who[96];
        describe(error.then, who, sizeof who);
        tell("%s%s, %zu bytes of %s memory at %p", error.reason, who, bytes, shared ? "shared" : "device", at);
        leave();
    }
    watching = true;
}

} // namespace emulate

// --- functions that the compiler calls ---

extern "C" {
#define WATCHED(bytes)                                                                                                     \
    UNWATCHED void __tsan_read##bytes(void *at) { emulate::watch(at, bytes, false, true, emulate::PLAIN); }                  \
    UNWATCHED void __tsan_write##bytes(void *at) { emulate::watch(at, bytes, true, false, emulate::PLAIN); }                 \
    UNWATCHED void __tsan_unaligned_read##bytes(void *at) { __tsan_read##bytes(at); }                                        \
    UNWATCHED void __tsan_unaligned_write##bytes(void *at) { __tsan_write##bytes(at); }
WATCHED(1) WATCHED(2) WATCHED(4) WATCHED(8) WATCHED(16)
#undef WATCHED
UNWATCHED void __tsan_read_range(void *at, unsigned long bytes) { emulate::watch(at, bytes, false, true, emulate::PLAIN); }
UNWATCHED void __tsan_write_range(void *at, unsigned long bytes) { emulate::watch(at, bytes, true, false, emulate::PLAIN); }
UNWATCHED void *__tsan_memcpy(void *to, const void *from, unsigned long bytes) {
    __tsan_read_range((void *)from, bytes);
    __tsan_write_range(to, bytes);
    return memcpy(to, from, bytes);
}
UNWATCHED void *__tsan_memset(void *to, int value, unsigned long bytes) {
    __tsan_write_range(to, bytes);
    return memset(to, value, bytes);
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void *) {}
UNWATCHED unsigned char __tsan_atomic8_load(const volatile unsigned char *at, int) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

// A place in the source, with which the data of each handler begins.
struct Place {
    const char *file;
    unsigned line, column;
};
#define WRONG(name, what, ...)                                                                                             \
    UNWATCHED void __ubsan_handle_##name(const Place *place, ##__VA_ARGS__) {                                                \
        if (!emulate::watching) return;                                                                                     \
        emulate::watching = false;                                                                                         \
        emulate::tell("%s, at %s:%u", what, place->file, place->line);                                                       \
        emulate::leave();                                                                                                  \
    }
WRONG(type_mismatch_v1, "an address that is not a multiple of the size read or written there", void *)
WRONG(out_of_bounds, "an index beyond its array", void *)
WRONG(shift_out_of_bounds, "a shift by a word's width or more", void *, void *)
WRONG(float_cast_overflow, "a float beyond the integer that it is to be", void *)
WRONG(divrem_overflow, "a division by zero", void *, void *)
#undef WRONG
}
