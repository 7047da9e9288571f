// Start of every entry point of the fake driver: takes the lock, and returns the error if the call
// cannot be served.
#pragma once
#include <cstring>

#include "memory.h"

namespace fake {

// Shared memory of a block for a kernel that asks for no more.
constexpr unsigned MOST_SHARED = 48 << 10;

// Makes a kernel that touches forbidden memory fail, instead of the process.
void catch_faults();

enum Needs { NOTHING, INITIALISED, CONTEXT };

// Whether a test wants this call to fail.
inline bool is_unlucky(const char *name) {
    static const char *wanted = getenv("FAKE_CUDA_REFUSE");
    static unsigned calls = 0;
    const size_t length = strlen(name);
    if (!wanted || strncmp(wanted, name, length) || wanted[length] != ':') return false;
    return ++calls == strtoul(wanted + length + 1, nullptr, 10);
}

// Every entry point begins with one: it holds the lock, and the error if the call cannot be served.
struct Call {
    std::unique_lock<std::recursive_mutex> lock;
    Code code = SUCCESS;

    Call(const char *name, Needs needs) : lock(state.lock) {
        calling = name;
        if (is_unlucky(name)) code = OUT_OF_MEMORY;
        if (needs >= INITIALISED && !state.initialised) code = refuse(NOT_INITIALIZED, "before cuInit");
        if (needs < CONTEXT || code) return;
        if (!current) {
            code = refuse(INVALID_CONTEXT, "this thread has no current context");
        } else if (!current->retained) {
            code = refuse(CONTEXT_IS_DESTROYED, "this thread's current context was released");
        } else {
            hurry();
            code = current->failed;
        }
    }
};

#define CALL(name, needs)                                                                                                 \
    Call call(name, needs);                                                                                               \
    if (call.code) return call.code

// Whether the driver can register read-only host memory; many machines' drivers cannot.
inline int read_only_is_registered() { return number("FAKE_CUDA_READ_ONLY", 0) != 0; }

inline Device *device(int at) { return at >= 0 && at < (int)state.devices.size() ? &state.devices[at] : nullptr; }

// How two devices reach each other.
inline std::string peer_link() {
    const char *link = getenv("FAKE_CUDA_LINK");
    return link ? link : "nvlink";
}

// The current context's stream for a handle; null for a handle of another context.
inline std::shared_ptr<Stream> stream(void *handle) {
    if (!handle) return current->null;
    for (const auto &stream : current->streams) {
        if (stream.get() == handle && stream != current->null) return stream;
    }
    return nullptr;
}

#define STREAM(handle)                                                                                                    \
    const std::shared_ptr<Stream> on = stream(handle);                                                                    \
    if (!on) return refuse(INVALID_HANDLE, "no stream of the current context")

// The memory on the device, or pinned and mapped, that a copy touches.
inline Code reached(u64 at, size_t bytes, const Context &context, const char *what, Part &part) {
    if (bytes == 0) return refuse(INVALID_VALUE, "nothing is to be copied");
    part = find(at, bytes);
    if (const char *why = barred(part, context)) return refuse(INVALID_VALUE, "%zu bytes from %#lx on, %s: %s", bytes, at, what, why);
    return SUCCESS;
}

} // namespace fake
