// A CUDA driver without a GPU, for tests of what calls the driver: libcuda.so with the entry points that this crate uses, whose
// devices are the host. It loads the cubins that NVRTC made, and launches the kernels of the same names that are compiled for the
// host (../emulate.h).
//
// Stricter than the real one: what its documentation forbids is refused with the error that it names, or ends the process with
// a line where it leaves open what happens. Nothing happens before it must (streams.h). What is not given back when a context
// goes, or when the process ends, ends the process too.
//
//   FAKE_CUDA_DEVICES=n        devices [1]; of 0, cuInit says that there is none
//   FAKE_CUDA_LINK=none|pcie   how they reach each other [nvlink]
//   FAKE_CUDA_MEMORY_MIB=n     memory of each [1024]
//   FAKE_CUDA_VERSION=n        the newest CUDA that it can run [13000]
//   FAKE_CUDA_READ_ONLY=0      cannot register host memory for reading alone
//   FAKE_CUDA_ASKS=n           how many times work is said to be under way before it is begun [3]
//   FAKE_CUDA_HASTE=seed       streams go on by themselves, by chance
//   FAKE_CUDA_REFUSE=CALL:n    the n-th call of CALL, from 1, runs out of memory
#include <csetjmp>
#include <csignal>
#include <utility>

#include "image.h"
#include "memory.h"

extern "C" {
int emulate_launch(const char *name, unsigned blocks, unsigned threads, size_t shared, void **arguments, const size_t *sizes, size_t count);
void emulate_order(unsigned order);
const size_t *emulate_sizes(const char *name, size_t *count);
}

using namespace fake;

namespace {

constexpr int ARCHITECTURE[] = {9, 0};
// Shared memory of a block, of a kernel that asks for no more; registers of a block; both of sm_90.
constexpr unsigned MOST_SHARED = 48 << 10, MOST_REGISTERS = 64 << 10;
enum { NON_BLOCKING = 1, DISABLE_TIMING = 2, PORTABLE = 1, DEVICEMAP = 2, READ_ONLY = 8 };

enum Needs { NOTHING, INITIALISED, CONTEXT };

// Whether a test wants this call to be refused.
bool is_unlucky(const char *name) {
    static const char *wanted = getenv("FAKE_CUDA_REFUSE");
    static unsigned calls = 0;
    const size_t length = strlen(name);
    if (!wanted || strncmp(wanted, name, length) || wanted[length] != ':') return false;
    return ++calls == strtoul(wanted + length + 1, nullptr, 10);
}

// Every entry point begins with one: it holds the lock, and has the error where the call cannot be served.
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

Device *device(int at) { return at >= 0 && at < (int)state.devices.size() ? &state.devices[at] : nullptr; }

// The current context's stream behind a handle; none for one that is not its own.
std::shared_ptr<Stream> stream(void *handle) {
    if (!handle) return current->null;
    for (const auto &stream : current->streams) {
        if (stream.get() == handle && stream != current->null) return stream;
    }
    return nullptr;
}

#define STREAM(handle)                                                                                                    \
    const std::shared_ptr<Stream> on = stream(handle);                                                                    \
    if (!on) return refuse(INVALID_HANDLE, "no stream of the current context")

// --- a kernel that touches what it must not ---

thread_local sigjmp_buf before_kernel;
thread_local const char *running = nullptr;
struct sigaction previous;

void faulted(int, siginfo_t *info, void *) {
    if (!running) {
        sigaction(SIGSEGV, &previous, nullptr);
        return;
    }
    // The stack of a handler is too small for a stream.
    char line[200];
    const int length = snprintf(line, sizeof line, "fake libcuda.so: kernel %s touches %p, which is not its\n", running, info->si_addr);
    if (write(2, line, length) < 0) _exit(97);
    siglongjmp(before_kernel, 1);
}

void catch_faults() {
    struct sigaction action = {};
    action.sa_sigaction = faulted;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &previous);
}

// Runs a kernel that only sees what its device may.
Code execute(const Context &context, const Function &function, unsigned blocks, unsigned threads, size_t shared, void **arguments) {
    std::vector<Part> closed;
    if (state.devices.size() > 1) {
        for (const auto &entry : state.memory) {
            const Part &part = entry.second;
            if (part->kind == Memory::DEVICE && part->exists && !part->gone && barred(part, context)) closed.push_back(part);
        }
    }
    for (const Part &part : closed) open(*part, false);
    emulate_order(state.launches++ % 4);
    volatile Code code = SUCCESS;
    running = function.name.c_str();
    if (sigsetjmp(before_kernel, 1)) {
        code = ILLEGAL_ADDRESS;
    } else if (emulate_launch(function.name.c_str(), blocks, threads, shared, arguments, function.sizes.data(), function.sizes.size())) {
        undefined("kernel %s is not that of its name that is compiled for the host", function.name.c_str());
    }
    running = nullptr;
    for (const Part &part : closed) open(*part, true);
    return code;
}

// What arguments point to. Numbers are too small to be addresses; words of a struct may be two numbers in one.
std::vector<Part> pointed_to(const Function &function, const std::vector<std::vector<u64>> &arguments) {
    std::vector<Part> found;
    for (size_t at = 0; at < arguments.size(); at++) {
        for (size_t word = 0; word < function.sizes[at] / 8; word++) {
            const u64 address = arguments[at][word];
            if (address >> 40 == 0 || address >> 47 != 0) continue;
            const Part part = find(address, 0);
            if (!part && function.sizes[at] > 8) continue;
            if (const char *why = barred(part, *current)) {
                undefined("argument %zu of %s is %#lx: %s", at, function.name.c_str(), address, why);
            }
            found.push_back(part);
        }
    }
    return found;
}

// --- copies ---

// The memory on the device, or pinned and mapped, that a copy touches.
Code reached(u64 at, size_t bytes, const Context &context, const char *what, Part &part) {
    if (bytes == 0) return refuse(INVALID_VALUE, "nothing is to be copied");
    part = find(at, bytes);
    if (const char *why = barred(part, context)) return refuse(INVALID_VALUE, "%zu bytes from %#lx on, %s: %s", bytes, at, what, why);
    return SUCCESS;
}

void copy(const std::shared_ptr<Stream> &on, u64 to, u64 from, size_t bytes, std::vector<Part> uses) {
    launch(on, {calling, [=] {
        memmove((void *)to, (const void *)from, bytes);
        return true;
    }, std::move(uses)});
}

void say_leaks(const Context &context) {
    calling = "at the end of a context";
    if (!context.events.empty()) undefined("%zu events were not destroyed", context.events.size());
    if (context.streams.size() > 1) undefined("%zu streams were not destroyed", context.streams.size() - 1);
    for (const auto &entry : state.memory) {
        const Memory &part = *entry.second;
        if (part.context != &context || part.gone) continue;
        const char *kinds[] = {"on the device were not freed", "of pinned host memory were not freed", "of host memory were not unregistered"};
        undefined("%zu bytes %s", part.bytes, kinds[part.kind]);
    }
}

} // namespace

State::~State() {
    for (const Context &context : contexts) {
        calling = "at the end of the process";
        if (context.retained && !context.failed) {
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
    state.asks = number("FAKE_CUDA_ASKS", 3);
    state.hasty = getenv("FAKE_CUDA_HASTE");
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

int cuGetErrorString(int code, const char **text) {
    switch (code) {
    case INVALID_VALUE: *text = "invalid argument"; break;
    case OUT_OF_MEMORY: *text = "out of memory"; break;
    case NOT_INITIALIZED: *text = "initialization error"; break;
    case NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
    case INVALID_DEVICE: *text = "invalid device ordinal"; break;
    case INVALID_IMAGE: *text = "device kernel image is invalid"; break;
    case INVALID_CONTEXT: *text = "invalid device context"; break;
    case INVALID_HANDLE: *text = "invalid resource handle"; break;
    case NOT_FOUND: *text = "named symbol not found"; break;
    case ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; break;
    case LAUNCH_OUT_OF_RESOURCES: *text = "too many resources requested for launch"; break;
    case CONTEXT_IS_DESTROYED: *text = "context is destroyed"; break;
    case HOST_MEMORY_ALREADY_REGISTERED: *text = "part or all of the requested memory range is already mapped"; break;
    case HOST_MEMORY_NOT_REGISTERED: *text = "pointer does not correspond to a registered memory region"; break;
    case NOT_SUPPORTED: *text = "operation not supported"; break;
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
        {8, MOST_SHARED}, {16, 2}, {75, ARCHITECTURE[0]}, {76, ARCHITECTURE[1]}, {97, 227 << 10}, {99, 1}, {113, (int)number("FAKE_CUDA_READ_ONLY", 1)},
    };
    const auto found = values.find(attribute);
    if (found == values.end()) return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    *value = found->second;
    return SUCCESS;
}

int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    CALL("cuDeviceGetP2PAttribute", INITIALISED);
    if (!device(from) || !device(to) || from == to) return refuse(INVALID_DEVICE, "devices %d and %d", from, to);
    const char *link = getenv("FAKE_CUDA_LINK");
    const std::string by = link ? link : "nvlink";
    // Access, and atomic operations.
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

// --- memory ---

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    CALL("cuMemGetInfo", CONTEXT);
    const Device &device = *current->device;
    *total = device.total;
    *free = device.total - device.used - device.kept;
    return SUCCESS;
}

int cuMemAllocAsync(u64 *address, size_t bytes, void *handle) {
    CALL("cuMemAllocAsync", CONTEXT);
    STREAM(handle);
    return bytes ? allocate(*current, on, bytes, address) : refuse(INVALID_VALUE, "of no bytes");
}

int cuMemFreeAsync(u64 address, void *handle) {
    CALL("cuMemFreeAsync", CONTEXT);
    STREAM(handle);
    return free_in_order(on, address);
}

int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, void *handle) {
    CALL("cuMemcpyHtoDAsync", CONTEXT);
    STREAM(handle);
    Part there;
    if (Code code = reached(to, bytes, *current, "the destination", there)) return code;
    if (const Part pinned = find((u64)from, bytes)) {
        if (pinned->kind == Memory::DEVICE) return refuse(INVALID_VALUE, "the source is on a device");
        copy(on, to, (u64)from, bytes, {there, pinned});
        return SUCCESS;
    }
    // Of memory that may be swapped out the driver takes a copy before it returns.
    const std::shared_ptr<std::vector<char>> taken(new std::vector<char>((const char *)from, (const char *)from + bytes));
    launch(on, {calling, [=] {
        memcpy((void *)to, taken->data(), bytes);
        return true;
    }, {there}});
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, void *handle) {
    CALL("cuMemcpyDtoHAsync", CONTEXT);
    STREAM(handle);
    Part there;
    if (Code code = reached(from, bytes, *current, "the source", there)) return code;
    const Part pinned = find((u64)to, bytes);
    if (pinned && pinned->kind == Memory::DEVICE) return refuse(INVALID_VALUE, "the destination is on a device");
    if (pinned) {
        copy(on, (u64)to, from, bytes, {there, pinned});
        return SUCCESS;
    }
    copy(on, (u64)to, from, bytes, {there});
    return wait(on);
}

int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void *handle) {
    CALL("cuMemcpyDtoDAsync", CONTEXT);
    STREAM(handle);
    Part there, here;
    if (Code code = reached(to, bytes, *current, "the destination", there)) return code;
    if (Code code = reached(from, bytes, *current, "the source", here)) return code;
    copy(on, to, from, bytes, {there, here});
    return SUCCESS;
}

int cuMemcpyPeerAsync(u64 to, void *to_handle, u64 from, void *from_handle, size_t bytes, void *handle) {
    CALL("cuMemcpyPeerAsync", CONTEXT);
    STREAM(handle);
    Context *contexts[] = {(Context *)to_handle, (Context *)from_handle};
    for (const Context *context : contexts) {
        const bool known = std::any_of(state.contexts.begin(), state.contexts.end(), [=](const Context &at) { return &at == context; });
        if (!known || !context->retained) return refuse(INVALID_CONTEXT, "one of the contexts is not there");
        if (context->failed) return context->failed;
    }
    Part there, here;
    if (Code code = reached(to, bytes, *contexts[0], "the destination", there)) return code;
    if (Code code = reached(from, bytes, *contexts[1], "the source", here)) return code;
    copy(on, to, from, bytes, {there, here});
    return SUCCESS;
}

int cuMemsetD8Async(u64 to, unsigned char value, size_t bytes, void *handle) {
    CALL("cuMemsetD8Async", CONTEXT);
    STREAM(handle);
    Part there;
    if (Code code = reached(to, bytes, *current, "the destination", there)) return code;
    launch(on, {calling, [=] {
        memset((void *)to, value, bytes);
        return true;
    }, {there}});
    return SUCCESS;
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    CALL("cuMemHostAlloc", CONTEXT);
    if (flags & ~7u) return refuse(INVALID_VALUE, "flags %u", flags);
    *address = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    memset(*address, 0xCD, bytes);
    return pin(*current, (u64)*address, bytes, flags, Memory::PINNED);
}

int cuMemFreeHost(void *address) {
    CALL("cuMemFreeHost", INITIALISED);
    if (Code code = unpin((u64)address, Memory::PINNED)) return code;
    free(address);
    return SUCCESS;
}

int cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    CALL("cuMemHostRegister", CONTEXT);
    if (flags & ~15u || !bytes || !start) return refuse(INVALID_VALUE, "%zu bytes, flags %u", bytes, flags);
    if (flags & READ_ONLY && !number("FAKE_CUDA_READ_ONLY", 1)) return NOT_SUPPORTED;
    if (!is_mapped((u64)start, bytes, !(flags & READ_ONLY))) return refuse(INVALID_VALUE, "memory that is not there, or must not be written");
    return pin(*current, (u64)start, bytes, flags, Memory::REGISTERED);
}

int cuMemHostUnregister(void *start) {
    CALL("cuMemHostUnregister", INITIALISED);
    return unpin((u64)start, Memory::REGISTERED);
}

int cuMemHostGetDevicePointer_v2(u64 *address, void *start, unsigned flags) {
    CALL("cuMemHostGetDevicePointer", CONTEXT);
    const Part part = find((u64)start, 1);
    if (flags || !part || part->kind == Memory::DEVICE) return refuse(INVALID_VALUE, "%p is not pinned", start);
    if (const char *why = barred(part, *current)) return refuse(INVALID_VALUE, "%p: %s", start, why);
    *address = (u64)start;
    return SUCCESS;
}

// --- the pool ---

int cuDeviceGetDefaultMemPool(void **pool, int at) {
    CALL("cuDeviceGetDefaultMemPool", INITIALISED);
    if (!device(at)) return refuse(INVALID_DEVICE, "device %d", at);
    *pool = device(at);
    return SUCCESS;
}

int cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
    CALL("cuMemPoolSetAttribute", INITIALISED);
    // The release threshold.
    if (attribute != 4) return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    ((Device *)pool)->threshold = *(u64 *)value;
    return SUCCESS;
}

int cuMemPoolTrimTo(void *pool, size_t bytes) {
    CALL("cuMemPoolTrimTo", INITIALISED);
    Device &device = *(Device *)pool;
    trim(device, bytes > device.used ? bytes - device.used : 0);
    return SUCCESS;
}

int cuMemPoolSetAccess(void *pool, const int *description, size_t count) {
    CALL("cuMemPoolSetAccess", INITIALISED);
    // A place of type device, its number, and what it may do: 0 or 3.
    for (; count > 0; count--, description += 3) {
        const int reader = description[1], owner = ((Device *)pool)->ordinal;
        int can = 0;
        if (description[0] != 1 || !device(reader) || reader == owner) return refuse(INVALID_DEVICE, "device %d", reader);
        if (Code code = (Code)cuDeviceCanAccessPeer(&can, reader, owner)) return code;
        if (!can) return refuse(INVALID_DEVICE, "device %d does not reach device %d", reader, owner);
        if (description[2] == 3) ((Device *)pool)->readers.insert(reader);
        else if (description[2] == 0) ((Device *)pool)->readers.erase(reader);
        else return refuse(INVALID_VALUE, "access %d", description[2]);
    }
    return SUCCESS;
}

// --- streams and events ---

int cuStreamCreate(void **handle, unsigned flags) {
    CALL("cuStreamCreate", CONTEXT);
    if (flags > NON_BLOCKING) return refuse(INVALID_VALUE, "flags %u", flags);
    current->streams.emplace_back(new Stream{current, flags != NON_BLOCKING});
    *handle = current->streams.back().get();
    return SUCCESS;
}

int cuStreamDestroy_v2(void *handle) {
    CALL("cuStreamDestroy", CONTEXT);
    STREAM(handle);
    if (on == current->null) return refuse(INVALID_HANDLE, "the null stream");
    // The real one returns at once and goes on; here nobody could see its end.
    wait(on);
    current->streams.erase(std::find(current->streams.begin(), current->streams.end(), on));
    return SUCCESS;
}

int cuStreamSynchronize(void *handle) {
    CALL("cuStreamSynchronize", CONTEXT);
    STREAM(handle);
    return wait(on);
}

int cuCtxSynchronize() {
    CALL("cuCtxSynchronize", CONTEXT);
    for (const auto &stream : std::vector<std::shared_ptr<Stream>>(current->streams)) wait(stream);
    return current->failed;
}

int cuStreamQuery(void *handle) {
    CALL("cuStreamQuery", CONTEXT);
    STREAM(handle);
    pass_waits(*on);
    if (on->done < on->queued && (++on->asked <= state.asks || !run(on, on->queued))) return NOT_READY;
    on->asked = 0;
    return current->failed;
}

int cuStreamWaitEvent(void *handle, void *event_handle, unsigned flags) {
    CALL("cuStreamWaitEvent", CONTEXT);
    STREAM(handle);
    const Event *event = nullptr;
    for (const Context &context : state.contexts) {
        for (const Event *at : context.events) event = at == event_handle ? at : event;
    }
    if (!event || flags) return refuse(INVALID_HANDLE, "no event, or flags");
    if (!event->recorded) undefined("the event was not recorded, so nothing is waited for");
    launch(on, {calling, nullptr, {}, {event->point}});
    return SUCCESS;
}

int cuEventCreate(void **handle, unsigned flags) {
    CALL("cuEventCreate", CONTEXT);
    if (flags & ~3u) return refuse(INVALID_VALUE, "flags %u", flags);
    Event *event = new Event{current};
    current->events.insert(event);
    *handle = event;
    return SUCCESS;
}

int cuEventRecord(void *event_handle, void *handle) {
    CALL("cuEventRecord", CONTEXT);
    STREAM(handle);
    Event *event = (Event *)event_handle;
    if (!current->events.count(event)) return refuse(INVALID_HANDLE, "no event of the stream's context");
    event->recorded = true;
    event->point = {on, on->queued};
    return SUCCESS;
}

int cuEventQuery(void *handle) {
    CALL("cuEventQuery", CONTEXT);
    Event *event = (Event *)handle;
    if (!current->events.count(event)) return refuse(INVALID_HANDLE, "no event of the current context");
    const std::shared_ptr<Stream> on = event->point.stream;
    if (!event->recorded) undefined("the event was not recorded");
    if (on->done < event->point.at && (++on->asked <= state.asks || !run(on, event->point.at))) return NOT_READY;
    return current->failed;
}

int cuEventDestroy_v2(void *handle) {
    CALL("cuEventDestroy", INITIALISED);
    for (Context &context : state.contexts) {
        if (context.events.erase((Event *)handle)) {
            delete (Event *)handle;
            return SUCCESS;
        }
    }
    return refuse(INVALID_HANDLE, "no event that is there");
}

// --- kernels ---

int cuModuleLoadData(void **handle, const void *bytes) {
    CALL("cuModuleLoadData", CONTEXT);
    const Image image((const char *)bytes);
    if (!image.is_cubin()) return refuse(INVALID_IMAGE, "no cubin");
    std::unique_ptr<Module> module(new Module{current});
    module->image.assign((const char *)bytes, (const char *)bytes + image.bytes());
    *handle = module.get();
    current->modules.push_back(std::move(module));
    return SUCCESS;
}

int cuModuleGetFunction(void **handle, void *module_handle, const char *name) {
    CALL("cuModuleGetFunction", CONTEXT);
    for (const auto &module : current->modules) {
        if (module.get() != module_handle) continue;
        std::unique_ptr<Function> &function = module->functions[name];
        if (!function) {
            std::unique_ptr<Function> found(new Function);
            if (!Image(module->image.data()).describe(name, *found)) return NOT_FOUND;
            size_t count = 0;
            const size_t *sizes = emulate_sizes(name, &count);
            if (!sizes || found->sizes != std::vector<size_t>(sizes, sizes + count)) {
                undefined("%s takes other arguments in its cubin than on the host", name);
            }
            function = std::move(found);
        }
        *handle = function.get();
        return SUCCESS;
    }
    return refuse(INVALID_HANDLE, "no module of the current context");
}

int cuLaunchKernel(void *handle, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void *stream_handle, void **values, void **extra) {
    CALL("cuLaunchKernel", CONTEXT);
    STREAM(stream_handle);
    const Function *function = nullptr;
    for (const auto &module : current->modules) {
        for (const auto &entry : module->functions) function = entry.second.get() == handle ? entry.second.get() : function;
    }
    if (!function) return refuse(INVALID_HANDLE, "no kernel of the current context");
    const char *name = function->name.c_str();
    if (blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1 || extra) undefined("%s: more than the emulation does", name);
    if (blocks == 0 || blocks >> 31 || threads == 0 || threads > 1024) return refuse(INVALID_VALUE, "%s: %u blocks of %u threads", name, blocks, threads);
    if (threads > function->most_threads) return refuse(INVALID_VALUE, "%s: %u threads, compiled for %u", name, threads, function->most_threads);
    if (shared + function->shared > MOST_SHARED) return refuse(INVALID_VALUE, "%s: %u bytes of shared memory", name, shared + function->shared);
    if ((function->registers + 7) / 8 * 8 * ((threads + 31) / 32 * 32) > MOST_REGISTERS) {
        return refuse(LAUNCH_OUT_OF_RESOURCES, "%s: %u threads of %u registers", name, threads, function->registers);
    }
    std::vector<std::vector<u64>> arguments;
    for (size_t at = 0; at < function->sizes.size(); at++) {
        arguments.emplace_back((function->sizes[at] + 7) / 8);
        memcpy(arguments.back().data(), values[at], function->sizes[at]);
    }
    Context &context = *current;
    launch(on, {function->name, [=, &context]() mutable {
        std::vector<void *> pointers;
        for (std::vector<u64> &argument : arguments) pointers.push_back(argument.data());
        context.failed = execute(context, *function, blocks, threads, shared, pointers.data());
        return true;
    }, pointed_to(*function, arguments)});
    return SUCCESS;
}

// --- for NCCL (nccl.cpp) ---

// The current context; the number of its device, or -1 without one.
int fake_cuda_current(void **context) {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    *context = current;
    return current && current->retained ? current->device->ordinal : -1;
}

// Launches what `step` does, with memory of the context.
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

// Goes on with all streams of the context as far as they come.
void fake_cuda_run(void *context) {
    std::lock_guard<std::recursive_mutex> lock(state.lock);
    for (const auto &stream : std::vector<std::shared_ptr<Stream>>(((Context *)context)->streams)) run(stream, stream->queued);
}
}
