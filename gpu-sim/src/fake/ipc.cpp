// The fake driver's calls for memory outside its pool. Only such memory may be shared with other
// processes (CUDA IPC). The fake refuses to open the memory of another process, like a driver whose
// GPUs do not reach each other. The emulated GPU tests the protocol with threads.
#include "call.h"

using namespace fake;

namespace {

// The driver may take smaller allocations from a block of memory, all of which is shared then.
constexpr size_t BLOCK = 2 << 20;
enum { LAZY_ENABLE_PEER_ACCESS = 1 };

// The 64 bytes that other processes get.
struct Handle {
    int process;
    char unused[60];
};
static_assert(sizeof(Handle) == 64, "CU_IPC_HANDLE_SIZE");

Part shown_at(u64 address) {
    const auto found = state.memory.find(address);
    return found != state.memory.end() && found->second->kind == Memory::ALLOCATED ? found->second : nullptr;
}

u64 in_blocks(size_t bytes) { return (bytes + BLOCK - 1) / BLOCK * BLOCK; }

} // namespace

extern "C" {

int cuMemAlloc_v2(u64 *address, size_t bytes) {
    CALL("cuMemAlloc", CONTEXT);
    if (!bytes) return refuse(INVALID_VALUE, "of no bytes");
    Device &device = *current->device;
    const u64 taken = in_blocks(bytes);
    if (device.free() < taken) return OUT_OF_MEMORY;
    void *start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return OUT_OF_MEMORY;
    const Part part(new Memory{Memory::ALLOCATED, (u64)start, bytes, current});
    state.memory[part->start] = part;
    memset(start, 0xCD, bytes);
    device.used += taken;
    *address = part->start;
    return SUCCESS;
}

int cuMemFree_v2(u64 address) {
    CALL("cuMemFree", CONTEXT);
    const Part part = shown_at(address);
    if (!part) return refuse(INVALID_VALUE, "%#lx is not what cuMemAlloc gave", address);
    if (part->context != current) return refuse(INVALID_VALUE, "memory of another context");
    // Kernels find such memory by addresses that they read, so any kernel may be about to use it.
    for (const auto &stream : current->streams) {
        if (!stream->waiting.empty()) undefined("memory is freed before %s, which was launched, has ended", stream->waiting.front().what.c_str());
    }
    part->context->device->used -= in_blocks(part->bytes);
    munmap((void *)part->start, part->bytes);
    state.memory.erase(address);
    return SUCCESS;
}

int cuIpcGetMemHandle(Handle *handle, u64 address) {
    CALL("cuIpcGetMemHandle", CONTEXT);
    const Part part = shown_at(address);
    if (!part) return refuse(INVALID_VALUE, "%#lx is not where memory of cuMemAlloc starts", address);
    if (part->bytes % BLOCK) undefined("%zu bytes are shared with what else is in their blocks of 2 MiB", part->bytes);
    part->shown = true;
    *handle = {getpid(), {}};
    return SUCCESS;
}

int cuIpcOpenMemHandle_v2(u64 *, Handle handle, unsigned flags) {
    CALL("cuIpcOpenMemHandle", CONTEXT);
    if (flags != LAZY_ENABLE_PEER_ACCESS) return refuse(INVALID_VALUE, "flags %u", flags);
    if (handle.process == getpid()) return refuse(INVALID_CONTEXT, "memory of this process");
    return refuse(MAPPING_FAILED, "memory of another process");
}

} // extern "C"
