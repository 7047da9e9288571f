// Functions that Rust and the fake driver call: launches, memory, and streams, which are numbers
// used to order launches.
#pragma once
#include "language.h"

extern "C" {
// Turns the watching of memory accesses on or off; it is on at first.
void emulate_watch(int is) { emulate::watched = is; }

// Sets the stream of the calling thread's next launches.
void emulate_on(uint32_t stream) { emulate::make_current().stream = stream; }

// Runs a kernel. Returns 1 if no kernel has this name, 2 if the sizes of the arguments differ, 3 if
// it failed.
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

// The error message of the calling thread's last launch.
const char *emulate_failure() { return emulate::make_current().failure.c_str(); }

// Records a copy or a fill on the calling thread's stream; returns 3 if it is an error.
UNWATCHED int emulate_touch(const void *at, size_t bytes, int writes) {
    emulate::State &s = emulate::make_current();
    emulate::Granule *const granule = emulate::arena_granule(at);
    if (!granule || bytes == 0) return 0;
    s.number = emulate::streams().launch(s.stream);
    const emulate::Here here = {{s.number, s.stream, 0, 0, 0, 0, 0, emulate::PLAIN}, false, 0};
    emulate::AccessError error;
    if (emulate::touch_all(granule, (uintptr_t)at, bytes, here, writes, false, error)) return 0;
    char who[96];
    emulate::describe(error.then, who, sizeof who);
    s.failure = "stream " + std::to_string(s.stream) + " " + error.reason + who;
    return 3;
}

// Returns the number of a new stream.
UNWATCHED uint32_t emulate_stream() {
    emulate::Streams &streams = emulate::streams();
    const std::lock_guard<std::mutex> guard(streams.lock);
    streams.waited.emplace_back();
    streams.completed.push_back(0);
    streams.last.push_back(0);
    return streams.last.size() - 1;
}

// Orders later launches on `stream` after all earlier launches on `other`.
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

// Records that the host has waited for all earlier launches on `stream`.
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

// Loads and stores of device memory, and their bytes, since the calling thread last called this.
void emulate_accesses(uint64_t *found) {
    for (int i = 0; i < 2; i++) found[i] = emulate::accesses[i], emulate::accesses[i] = 0;
}

// The sizes of a kernel's arguments; null if no kernel has this name.
const size_t *emulate_sizes(const char *name, size_t *count) {
    const auto found = emulate::kernels().find(name);
    if (found == emulate::kernels().end()) return nullptr;
    *count = found->second.sizes.size();
    return found->second.sizes.data();
}

// Sets the order in which the threads of a block run in the calling thread's launches.
void emulate_order(unsigned order) { emulate::make_current().order = order; }

// Allocates `bytes`, a multiple of 16; touching memory beyond their end ends the process. Returns 0
// if none is left.
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

// Whether the process may read, and write, all of a range of the host's memory.
UNWATCHED int emulate_is_mapped(uint64_t start, size_t bytes, int written) {
    FILE *maps = fopen("/proc/self/maps", "r");
    uint64_t at = start, from, to;
    char may[8], line[512];
    while (maps && at < start + bytes && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &from, &to, may) != 3 || to <= at) continue;
        if (from > at || may[0] != 'r' || (written && may[1] != 'w')) break;
        at = to;
    }
    if (maps) fclose(maps);
    return at >= start + bytes;
}

UNWATCHED void emulate_free(void *at, size_t bytes) {
    const size_t pages = (bytes + emulate::PAGE - 1) / emulate::PAGE * emulate::PAGE;
    char *start = (char *)at + bytes - pages;
    mmap(start, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    // Drop the whole pages of its granules.
    const uintptr_t page = emulate::PAGE, from = ((uintptr_t)emulate::arena_granule(start) + page - 1) / page * page;
    const uintptr_t to = (uintptr_t)emulate::arena_granule(start + pages) / page * page;
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}
}
