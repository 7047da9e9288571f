// The fake driver's calls for kernels: cubins, and launches of the kernels that are compiled for
// the host.
#include <csetjmp>
#include <csignal>
#include <unistd.h>

#include "call.h"
#include "image.h"

extern "C" {
int emulate_launch(const char *name, unsigned blocks, unsigned threads, size_t shared, void **arguments, const size_t *sizes, size_t count);
void emulate_order(unsigned order);
const size_t *emulate_sizes(const char *name, size_t *count);
}

using namespace fake;

namespace {

// Registers of a block of sm_90.
constexpr unsigned MOST_REGISTERS = 64 << 10;
// Threads that may wait for the host and still leave room for other kernels.
constexpr u64 MOST_WAITING = 64 * 256;

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

// Runs a kernel that sees only the memory that its device may access.
Code execute(const Context &context, const Function &function, unsigned blocks, unsigned threads, size_t shared, void **arguments) {
    std::vector<Part> closed;
    if (state.devices.size() > 1) {
        for (const auto &entry : state.memory) {
            const Part &part = entry.second;
            if (part->on_device() && part->exists && !part->gone && barred(part, context)) closed.push_back(part);
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

// The kernel behind a handle, loaded on the device if it was not.
Function *loaded(void *handle) {
    Function *function = nullptr;
    for (const auto &module : current->modules) {
        for (const auto &entry : module->functions) function = entry.second.get() == handle ? entry.second.get() : function;
    }
    if (function && !function->loaded) wait_to_load(*current);
    if (function) function->loaded = true;
    return function;
}

// The memory that arguments point to. Numbers are too small to be addresses; words of a struct may
// be two numbers in one.
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

} // namespace

void fake::catch_faults() {
    struct sigaction action = {};
    action.sa_sigaction = faulted;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &previous);
}

extern "C" {

int cuModuleLoadData(void **handle, const void *bytes) {
    CALL("cuModuleLoadData", CONTEXT);
    const Image image((const char *)bytes);
    if (!image.is_cubin()) return refuse(INVALID_IMAGE, "no cubin");
    wait_to_load(*current);
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
            const char *loading = getenv("CUDA_MODULE_LOADING");
            found->loaded = loading && !strcmp(loading, "EAGER");
            state.counts["eager"] += found->loaded;
            function = std::move(found);
        }
        *handle = function.get();
        return SUCCESS;
    }
    return refuse(INVALID_HANDLE, "no module of the current context");
}

int cuFuncGetAttribute(int *value, int attribute, void *handle) {
    CALL("cuFuncGetAttribute", CONTEXT);
    Function *function = loaded(handle);
    if (!function) return refuse(INVALID_HANDLE, "no kernel of the current context");
    // Threads of a block, bytes of shared and of local memory, registers.
    switch (attribute) {
    case 0: *value = function->most_threads; break;
    case 1: *value = function->shared; break;
    case 3: *value = 0; break;
    case 4: *value = function->registers; break;
    default: return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    }
    return SUCCESS;
}

int cuLaunchKernel(void *handle, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void *stream_handle, void **values, void **extra) {
    CALL("cuLaunchKernel", CONTEXT);
    STREAM(stream_handle);
    const Function *function = loaded(handle);
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
    const std::vector<Part> uses = pointed_to(*function, arguments);
    // It occupies its multiprocessors while it waits for the host's memory.
    const bool reads_host = std::any_of(uses.begin(), uses.end(), [](const Part &part) { return part && !part->on_device(); });
    state.counts["crowded"] += reads_host && on != context.null && (u64)blocks * threads > MOST_WAITING;
    state.counts["threads"] += (u64)blocks * threads;
    launch(on, {function->name, [=, &context]() mutable {
        std::vector<void *> pointers;
        for (std::vector<u64> &argument : arguments) pointers.push_back(argument.data());
        context.failed = execute(context, *function, blocks, threads, shared, pointers.data());
        return true;
    }, uses});
    return SUCCESS;
}
}
