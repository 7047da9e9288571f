// A CUDA driver without a GPU, for tests of code that calls the driver: libcuda.so with the entry
// points that this crate uses, whose devices are the host. It loads the cubins that NVRTC made, and
// launches the kernels of the same names that are compiled for the host (../emulated).
//
// Stricter than the real one: a call that the documentation forbids fails with the documented error
// or, where the documentation leaves the result open, ends the process with a message. Nothing
// happens before it must (streams.h). A resource that is not freed when its context or the process
// ends also ends the process, except memory that other processes may have open.
//
//   FAKE_CUDA_DEVICES=n        devices [1]; with 0, cuInit says that there is none
//   FAKE_CUDA_LINK=none|pcie   link between devices [nvlink]; pairs: nvlink within each pair, none
//   between pairs FAKE_CUDA_MEMORY_MIB=n     memory of each [1024] FAKE_CUDA_VERSION=n        the
//   newest CUDA that it can run [13000] FAKE_CUDA_READ_ONLY=1      can register read-only host
//   memory [0] FAKE_CUDA_POOLS=0          devices say that they have no memory pools [1]
//   FAKE_CUDA_ASKS=n           how many queries say that work is under way before it is begun [3]
//   FAKE_CUDA_HASTE=seed       streams go on by themselves, by chance FAKE_CUDA_REGISTER_MIB=n  
//   most host memory that one call registers FAKE_CUDA_PATIENCE_MS=n    how long a wait may last
//   before it counts as a hang [120000] CUDA_MODULE_LOADING=EAGER  as for the real one: kernels are
//   loaded with their module; otherwise when they are first needed FAKE_CUDA_REFUSE=CALL:n    the
//   n-th call of CALL, from 1, runs out of memory FAKE_CUDA_COUNTS=path      at its end the process
//   appends its counts to this file: a name and a number per line
#include <utility>

#include "call.h"

using namespace fake;

namespace {

constexpr int ARCHITECTURE[] = {9, 0};

void say_leaks(const Context &context) {
    calling = "at the end of a context";
    if (!context.events.empty()) undefined("%zu events were not destroyed", context.events.size());
    if (context.streams.size() > 1) undefined("%zu streams were not destroyed", context.streams.size() - 1);
    for (const auto &entry : state.memory) {
        const Memory &part = *entry.second;
        if (part.context != &context || part.gone) continue;
        const char *kinds[] = {"on the device were not freed", "on the device were not freed", "of another process were not closed", "of pinned host memory were not freed", "of host memory were not unregistered"};
        undefined("%zu bytes %s", part.bytes, kinds[part.kind]);
    }
}

} // namespace

State::~State() {
    const char *path = getenv("FAKE_CUDA_COUNTS");
    if (FILE *file = path ? fopen(path, "a") : nullptr) {
        for (const auto &count : counts) fprintf(file, "%s %lu\n", count.first.c_str(), count.second);
        fclose(file);
    }
    for (const Context &context : contexts) {
        calling = "at the end of the process";
        // Memory that other processes may have open must not be freed before they close it, and
        // stays to the end.
        const auto is_shown = [&](const auto &entry) { return entry.second->context == &context && entry.second->shown; };
        const bool stays = std::any_of(memory.begin(), memory.end(), is_shown);
        if (context.retained && !context.failed && !stays) {
            fprintf(stderr, "fake libcuda.so: the context of device %d was retained and not released\n", context.device->ordinal);
            fflush(stderr);
            _exit(98);
        }
    }
}

extern "C" {

// --- the driver and its devices ---

int cuInit(unsigned flags) {
    CALL("cuInit", NOTHING);
    if (flags) return refuse(INVALID_VALUE, "flags");
    const u64 devices = number("FAKE_CUDA_DEVICES", 1);
    if (devices == 0) return NO_DEVICE;
    if (state.initialised) return SUCCESS;
    // Kernels are watched only if no copies bypass the emulation.
    emulate_watch(0);
    state.asks = number("FAKE_CUDA_ASKS", 3);
    const char *haste = getenv("FAKE_CUDA_HASTE");
    state.hasty = haste && *haste;
    state.chance.seed(number("FAKE_CUDA_HASTE", 0));
    for (int at = 0; at < (int)devices; at++) {
        Device device = {at};
        device.total = number("FAKE_CUDA_MEMORY_MIB", 1024) << 20;
        device.readers.insert(at);
        state.devices.push_back(device);
        state.contexts.push_back(Context{&state.devices.back()});
    }
    catch_faults();
    state.initialised = true;
    return SUCCESS;
}

int cuDriverGetVersion(int *version) {
    *version = number("FAKE_CUDA_VERSION", 13000);
    return SUCCESS;
}

int cuGetErrorName(int code, const char **name) {
    (void)code;
    *name = nullptr;
    return INVALID_VALUE;
}

// Only texts that tests compare: without one, the program prints the name of the error.
int cuGetErrorString(int code, const char **text) {
    switch (code) {
    case INVALID_VALUE: *text = "invalid argument"; break;
    case OUT_OF_MEMORY: *text = "out of memory"; break;
    case NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
    case INVALID_CONTEXT: *text = "invalid device context"; break;
    case MAPPING_FAILED: *text = "mapping of buffer object failed"; break;
    case ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; break;
    case HOST_MEMORY_ALREADY_REGISTERED: *text = "part or all of the requested memory range is already mapped"; break;
    default: *text = nullptr; return INVALID_VALUE;
    }
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    CALL("cuDeviceGetCount", INITIALISED);
    *count = state.devices.size();
    return SUCCESS;
}

int cuDeviceGet(int *handle, int ordinal) {
    CALL("cuDeviceGet", INITIALISED);
    if (!device(ordinal)) return refuse(INVALID_DEVICE, "device %d", ordinal);
    *handle = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char *name, int bytes, int at) {
    CALL("cuDeviceGetName", INITIALISED);
    if (!device(at)) return refuse(INVALID_DEVICE, "device %d", at);
    snprintf(name, bytes, "Fake GPU %d", at);
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int at) {
    CALL("cuDeviceGetAttribute", INITIALISED);
    if (!device(at)) return refuse(INVALID_DEVICE, "device %d", at);
    const std::map<int, int> values = {
        {8, MOST_SHARED}, {16, 2}, {75, ARCHITECTURE[0]}, {76, ARCHITECTURE[1]}, {91, 1}, {97, 227 << 10}, {99, 1}, {113, read_only_is_registered()}, {115, (int)number("FAKE_CUDA_POOLS", 1)},
    };
    const auto found = values.find(attribute);
    if (found == values.end()) return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    *value = found->second;
    return SUCCESS;
}

int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    CALL("cuDeviceGetP2PAttribute", INITIALISED);
    if (!device(from) || !device(to) || from == to) return refuse(INVALID_DEVICE, "devices %d and %d", from, to);
    const std::string by = peer_link();
    // The attributes: access, and atomic operations.
    if (attribute != 2 && attribute != 3) return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    *value = attribute == 2 ? by != "none" : by == "nvlink";
    return SUCCESS;
}

int cuDeviceCanAccessPeer(int *can, int from, int to) {
    CALL("cuDeviceCanAccessPeer", INITIALISED);
    if (!device(from) || !device(to)) return refuse(INVALID_DEVICE, "devices %d and %d", from, to);
    *can = 0;
    return from == to ? SUCCESS : cuDeviceGetP2PAttribute(can, 2, from, to);
}

// --- contexts ---

int cuDevicePrimaryCtxRetain(void **handle, int at) {
    CALL("cuDevicePrimaryCtxRetain", INITIALISED);
    if (!device(at)) return refuse(INVALID_DEVICE, "device %d", at);
    Context &context = state.contexts[at];
    if (context.retained++ == 0) {
        context.failed = SUCCESS;
        context.null.reset(new Stream{&context, true});
        context.streams = {context.null};
    }
    *handle = &context;
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int at) {
    CALL("cuDevicePrimaryCtxRelease", INITIALISED);
    if (!device(at)) return refuse(INVALID_DEVICE, "device %d", at);
    Context &context = state.contexts[at];
    if (!context.retained) return refuse(INVALID_CONTEXT, "released more often than retained");
    if (--context.retained) return SUCCESS;
    for (const auto &stream : context.streams) wait(stream);
    if (!context.failed) say_leaks(context);
    context.modules.clear();
    context.peers.clear();
    context.streams.clear();
    context.null.reset();
    forget(0);
    return SUCCESS;
}

int cuCtxSetCurrent(void *handle) {
    CALL("cuCtxSetCurrent", INITIALISED);
    for (Context &context : state.contexts) {
        if (&context == handle && context.retained) {
            current = &context;
            return SUCCESS;
        }
    }
    return refuse(INVALID_CONTEXT, "no context that is there");
}

// Lets the current context access memory of `peer` outside its pool.
int cuCtxEnablePeerAccess(void *peer, unsigned flags) {
    CALL("cuCtxEnablePeerAccess", CONTEXT);
    Context *other = nullptr;
    for (Context &context : state.contexts) other = &context == peer && context.retained ? &context : other;
    if (!other || other == current || flags) return refuse(INVALID_CONTEXT, "no other context, or flags");
    if (peer_link() == "none") return refuse(PEER_ACCESS_UNSUPPORTED, "the devices do not reach each other");
    return current->peers.insert(other).second ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}

// --- for torch (torch_cuda.cpp) ---

// Like cuMemAllocAsync on the null stream, for memory that torch allocates by cudaMalloc and caches
// between tensors.
int fake_cuda_allocate(u64 *address, size_t bytes) {
    CALL("fake_cuda_allocate", CONTEXT);
    return allocate(*current, current->null, bytes, address, true);
}

// Whether torch's cached memory has room for `bytes`.
int fake_cuda_has_room(size_t bytes) {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    return (bytes + 511) / 512 * 512 <= current->device->torch_kept;
}

// Counts a copy by torch itself between a device and pageable host memory.
void fake_cuda_copied() {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    state.counts["by_torch"]++;
}

// Sets whether the calling thread currently runs in place of one of torch's kernels.
void fake_cuda_compute(bool begins) { computes = begins; }

// Gives torch's cached memory back to all devices.
void fake_cuda_empty() {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    for (Device &device : state.devices) device.torch_kept = 0;
}

// --- for tests ---

// How often something slow happened, as it would on a real device: "staged", copies between devices
// without access; "crowded", kernels that read host memory on all of a device outside its null
// stream; "pageable", copies from unpinned host memory, including the fake's own for torch's
// kernels; "by_torch", the copies that torch was asked for; "loading", waits for all of a device
// because something was loaded; "registering", threads that have registered host memory; "eager",
// kernels that were loaded with their module. Also "threads" of all kernels, and "most", the
// largest number of bytes that were allocated on a device or kept for later.
u64 fake_cuda_count(const char *what) {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    return state.counts[what];
}

// --- for NCCL (nccl.cpp) ---

// The current context; the number of its device, or -1 without one.
int fake_cuda_current(void **context) {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    *context = current;
    return current && current->retained ? current->device->ordinal : -1;
}

// Launches `step`, with memory of the context.
int fake_cuda_launch(void *context, void *handle, const char *what, const std::function<bool()> &step,
                     const std::vector<std::pair<u64, size_t>> &ranges) {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    Context *before = std::exchange(current, (Context *)context);
    const std::shared_ptr<Stream> on = stream(handle);
    std::vector<Part> uses;
    Code code = on ? current->failed : INVALID_HANDLE;
    for (size_t at = 0; at < ranges.size() && !code; at++) {
        uses.emplace_back();
        code = reached(ranges[at].first, ranges[at].second, *current, "of a message", uses.back());
    }
    if (!code) launch(on, {what, step, uses});
    current = before;
    return code;
}

// Runs all streams of the context as far as they can go.
void fake_cuda_run(void *context) {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    for (const auto &stream : std::vector<std::shared_ptr<Stream>>(((Context *)context)->streams)) run(stream, stream->queued);
}
}
