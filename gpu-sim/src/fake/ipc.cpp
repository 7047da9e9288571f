// The fake driver's calls of memory that processes read from each other (CUDA IPC). Such memory lies in a file without a name, which
// others open by the number that its process has for it, and lock for as long as they have it open, be it until they die.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "call.h"

using namespace fake;

namespace {

// The driver may take smaller ones from a block of memory, all of which is shared then.
constexpr size_t BLOCK = 2 << 20;
constexpr u64 MARK = 0x66616b65697063;
enum { LAZY_ENABLE_PEER_ACCESS = 1 };

// Of 64 bytes, as others get it.
struct Handle {
    u64 mark, unique, bytes;
    int process, file, device;
    char unused[28];
};
static_assert(sizeof(Handle) == 64, "CU_IPC_HANDLE_SIZE");

// The first page of the file says which memory it is; the memory is behind it.
Part map(int file, size_t bytes, Memory::Kind kind) {
    void *start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, PAGE);
    if (start == MAP_FAILED) return nullptr;
    const Part part(new Memory{kind, (u64)start, bytes, current});
    part->file = file;
    state.memory[part->start] = part;
    return part;
}

void unmap(const Part &part) {
    munmap((void *)part->start, part->bytes);
    close(part->file);
    state.memory.erase(part->start);
}

Part starts_at(u64 address, Memory::Kind kind) {
    const auto found = state.memory.find(address);
    return found != state.memory.end() && found->second->kind == kind ? found->second : nullptr;
}

// Kernels find such memory by addresses that they read, so any may be about to use it.
void check_idle(const Context &context, const char *what) {
    for (const auto &stream : context.streams) {
        if (!stream->waiting.empty()) undefined("%s before %s, which was launched, has ended", what, stream->waiting.front().what.c_str());
    }
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
    static u64 made = 0;
    const u64 unique = (u64)getpid() << 32 | ++made;
    const int file = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, PAGE + taken) || pwrite(file, &unique, sizeof unique, 0) != sizeof unique) return OUT_OF_MEMORY;
    const Part part = map(file, bytes, Memory::ALLOCATED);
    if (!part) return OUT_OF_MEMORY;
    part->unique = unique;
    memset((void *)part->start, 0xCD, bytes);
    device.used += taken;
    *address = part->start;
    return SUCCESS;
}

int cuMemFree_v2(u64 address) {
    CALL("cuMemFree", CONTEXT);
    const Part part = starts_at(address, Memory::ALLOCATED);
    if (!part) return refuse(INVALID_VALUE, "%#lx is not what cuMemAlloc gave", address);
    if (part->context != current) return refuse(INVALID_VALUE, "memory of another context");
    // Kernels find what others may read by addresses, and the rest as they are told.
    std::string by;
    if (part->shown) check_idle(*current, "memory is freed");
    else if (is_pending(part, by)) undefined("memory is freed before %s, which was launched, has ended", by.c_str());
    if (flock(part->file, LOCK_EX | LOCK_NB)) undefined("memory is freed that another process has open");
    const u64 gone = 0;
    if (pwrite(part->file, &gone, sizeof gone, 0) != sizeof gone) undefined("the file of the memory is not there");
    part->context->device->used -= in_blocks(part->bytes);
    unmap(part);
    return SUCCESS;
}

int cuIpcGetMemHandle(Handle *handle, u64 address) {
    CALL("cuIpcGetMemHandle", CONTEXT);
    const Part part = starts_at(address, Memory::ALLOCATED);
    if (!part) return refuse(INVALID_VALUE, "%#lx is not where memory of cuMemAlloc starts", address);
    if (part->bytes % BLOCK) undefined("%zu bytes are shared with what else is in their blocks of 2 MiB", part->bytes);
    part->shown = true;
    *handle = {MARK, part->unique, part->bytes, getpid(), part->file, part->context->device->ordinal, {}};
    return SUCCESS;
}

int cuIpcOpenMemHandle_v2(u64 *address, Handle handle, unsigned flags) {
    CALL("cuIpcOpenMemHandle", CONTEXT);
    if (flags != LAZY_ENABLE_PEER_ACCESS) return refuse(INVALID_VALUE, "flags %u", flags);
    if (handle.mark != MARK) return refuse(INVALID_HANDLE, "no handle of memory");
    if (handle.process == getpid()) return refuse(INVALID_CONTEXT, "memory of this process");
    for (const auto &entry : state.memory) {
        const Part &part = entry.second;
        if (part->kind != Memory::OPENED || part->context != current || part->unique != handle.unique) continue;
        part->opened++;
        *address = part->start;
        return SUCCESS;
    }
    const int here = current->device->ordinal;
    if (handle.device != here && link_of(here, handle.device) == "none") {
        return refuse(MAPPING_FAILED, "device %d does not reach device %d", here, handle.device);
    }
    const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    u64 unique = 0;
    const bool there = file >= 0 && !flock(file, LOCK_SH | LOCK_NB) && pread(file, &unique, sizeof unique, 0) == sizeof unique;
    if (!there || unique != handle.unique) {
        if (file >= 0) close(file);
        return refuse(INVALID_HANDLE, "memory of process %d that is not there any more", handle.process);
    }
    const Part part = map(file, handle.bytes, Memory::OPENED);
    if (!part) return OUT_OF_MEMORY;
    part->unique = unique;
    part->opened = 1;
    *address = part->start;
    return SUCCESS;
}

int cuIpcCloseMemHandle(u64 address) {
    CALL("cuIpcCloseMemHandle", CONTEXT);
    const Part part = starts_at(address, Memory::OPENED);
    if (!part || part->context != current) return refuse(INVALID_VALUE, "%#lx is not what was opened", address);
    check_idle(*current, "memory is closed");
    if (--part->opened == 0) unmap(part);
    return SUCCESS;
}
}
