// State of the fake driver: devices, contexts, streams with their pending operations, and memory.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace fake {

typedef uint64_t u64;

// The values of CUresult that the fake returns.
enum Code : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    MAPPING_FAILED = 205,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    CONTEXT_IS_DESTROYED = 709,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
};

struct Context;

// A range of memory known to the driver.
struct Memory {
    // On a device, from its pool or outside it (ipc.cpp); on the host.
    enum Kind { DEVICE, ALLOCATED, PINNED, REGISTERED } kind;
    u64 start;
    size_t bytes;
    Context *context;
    unsigned flags = 0;
    // For pool memory only, in its stream's order: whether it is allocated yet, and whether it was
    // freed.
    bool exists = true, gone = false;
    // The host has called free.
    bool freed = false;
    // In the order of a stream but not from the pool: GPUs with access to the pool cannot read it.
    bool is_torchs = false;
    // Whether other processes may have it open.
    bool shown = false;
    bool on_device() const { return kind < PINNED; }
    bool holds(u64 at, size_t length) const { return start <= at && at + length <= start + bytes; }
};
typedef std::shared_ptr<Memory> Part;

struct Stream;
// Reached once `at` operations of the stream have ended.
struct Point {
    std::shared_ptr<Stream> stream;
    u64 at;
};

struct Operation {
    std::string what;
    // Returns whether it has ended; it may wait for another rank. Empty if it only waits for
    // `after`.
    std::function<bool()> step;
    std::vector<Part> uses = {};
    std::vector<Point> after = {};
};

struct Stream {
    Context *context;
    // Waits for the null stream, and the null stream for it.
    bool blocking;
    std::deque<Operation> waiting = {};
    u64 queued = 0, done = 0;
    // Number of queries in a row whether it is done.
    unsigned asked = 0;
    // Bytes of the pool that it has freed, by the number of the operation, until the host has
    // waited for that operation. Until then no trim gives them back, and no other stream gets them.
    // (The driver may also notice by itself that a free has ended; when is not documented.)
    std::map<u64, u64> unseen = {};
};

struct Event {
    Context *context;
    bool recorded = false;
    Point point = {};
};

struct Device {
    int ordinal;
    u64 total = 0;
    // Of its pool: in use, and kept for later; the part above the threshold is given back when the
    // host waits.
    u64 used = 0, kept = 0, threshold = 0;
    // Bytes that torch's own allocator keeps for later.
    u64 torch_kept = 0;
    u64 free() const { return total - used - kept - torch_kept; }
    // Devices that may access its pool.
    std::set<int> readers = {};
};

struct Function {
    std::string name;
    // Already on the device.
    bool loaded = false;
    std::vector<size_t> sizes;
    unsigned most_threads, registers, shared;
};

struct Module {
    Context *context;
    std::vector<char> image = {};
    std::map<std::string, std::unique_ptr<Function>> functions = {};
};

struct Context {
    Device *device;
    int retained = 0;
    // The error that every call returns once a kernel has failed.
    Code failed = SUCCESS;
    std::shared_ptr<Stream> null = {};
    std::vector<std::shared_ptr<Stream>> streams = {};
    std::set<Event *> events = {};
    // The contexts whose memory outside of pools it may access.
    std::set<Context *> peers = {};
    std::vector<std::unique_ptr<Module>> modules = {};
};

struct State {
    std::recursive_mutex lock;
    bool initialised = false;
    std::deque<Device> devices;
    std::deque<Context> contexts;
    std::map<u64, Part> memory;
    std::deque<Part> remembered;
    u64 launches = 0;
    std::map<std::string, u64> counts;
    // Number of queries that report pending work as not done before it is begun.
    unsigned asks = 3;
    // Whether streams go on by themselves, by chance; otherwise nothing happens before the host
    // waits for it.
    bool hasty = false;
    std::mt19937 chance;
    ~State();
};

inline State state;
inline thread_local Context *current = nullptr;
inline thread_local const char *calling = "";
// Whether the thread runs in place of one of torch's kernels, which would not wait.
inline thread_local bool computes = false;

inline u64 number(const char *variable, u64 otherwise) {
    const char *value = getenv(variable);
    return value && *value ? strtoull(value, nullptr, 10) : otherwise;
}

inline void say(const char *what, va_list values) {
    fprintf(stderr, "fake libcuda.so: %s: ", calling);
    vfprintf(stderr, what, values);
    fputc('\n', stderr);
}

// An error that the real driver would return, too.
inline Code refuse(Code code, const char *what, ...) {
    va_list values;
    va_start(values, what);
    say(what, values);
    va_end(values);
    return code;
}

// Ends the process where the real driver's documentation leaves the behaviour open.
[[noreturn]] inline void undefined(const char *what, ...) {
    va_list values;
    va_start(values, what);
    say(what, values);
    va_end(values);
    abort();
}

} // namespace fake
