// The fake driver's calls for memory: pools, pinned memory, copies.
#include <thread>

#include "call.h"

using namespace fake;

namespace {

enum { READ_ONLY = 8 };

void copy(const std::shared_ptr<Stream> &on, u64 to, u64 from, size_t bytes, std::vector<Part> uses) {
    launch(on, {calling, [=] {
        memmove((void *)to, (const void *)from, bytes);
        return true;
    }, std::move(uses)});
}

} // namespace

extern "C" {

int cuDeviceCanAccessPeer(int *can, int from, int to);

// --- memory ---

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    CALL("cuMemGetInfo", CONTEXT);
    const Device &device = *current->device;
    *total = device.total;
    *free = device.free();
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
        if (pinned->on_device()) return refuse(INVALID_VALUE, "the source is on a device");
        copy(on, to, (u64)from, bytes, {there, pinned});
        return SUCCESS;
    }
    if (find((u64)from, 1)) return refuse(INVALID_VALUE, "the source is of several registrations, or of one in part");
    // The driver copies from pageable memory before it returns.
    state.counts["pageable"]++;
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
    if (pinned && pinned->on_device()) return refuse(INVALID_VALUE, "the destination is on a device");
    if (pinned) {
        copy(on, (u64)to, from, bytes, {there, pinned});
        return SUCCESS;
    }
    if (find((u64)to, 1)) return refuse(INVALID_VALUE, "the destination is of several registrations, or of one in part");
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
    state.counts["staged"] += barred(here, *contexts[0]) || barred(there, *contexts[1]);
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
    static std::set<std::thread::id> threads;
    threads.insert(std::this_thread::get_id());
    state.counts["registering"] = threads.size();
    if (flags & ~15u || !bytes || !start) return refuse(INVALID_VALUE, "%zu bytes, flags %u", bytes, flags);
    if (flags & READ_ONLY && !read_only_is_registered()) return NOT_SUPPORTED;
    if (bytes > number("FAKE_CUDA_REGISTER_MIB", 1 << 20) << 20) return refuse(INVALID_VALUE, "%zu bytes at once", bytes);
    if (!emulate_is_mapped((u64)start, bytes, !(flags & READ_ONLY))) return refuse(INVALID_VALUE, "memory that is not there, or must not be written");
    return pin(*current, (u64)start, bytes, flags, Memory::REGISTERED);
}

int cuMemHostUnregister(void *start) {
    CALL("cuMemHostUnregister", INITIALISED);
    return unpin((u64)start, Memory::REGISTERED);
}

int cuMemHostGetDevicePointer_v2(u64 *address, void *start, unsigned flags) {
    CALL("cuMemHostGetDevicePointer", CONTEXT);
    const Part part = find((u64)start, 1);
    if (flags || !part || part->on_device()) return refuse(INVALID_VALUE, "%p is not pinned", start);
    if (const char *why = barred(part, *current)) return refuse(INVALID_VALUE, "%p: %s", start, why);
    *address = (u64)start;
    return SUCCESS;
}

int cuPointerGetAttribute(void *value, int attribute, u64 address) {
    CALL("cuPointerGetAttribute", INITIALISED);
    // The attributes: whether the memory is the host's or a device's; start and bytes of its
    // allocation or registration.
    if (attribute != 2 && attribute != 11 && attribute != 12) return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    const Part part = find(address, 1);
    if (!part) return INVALID_VALUE;
    if (attribute == 2) *(unsigned *)value = part->on_device() ? 2 : 1;
    else *(u64 *)value = attribute == 11 ? part->start : part->bytes;
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
    // The attributes: whether streams may wait for each other's memory, and the release threshold.
    if (attribute == 3) return SUCCESS;
    if (attribute != 4) return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    ((Device *)pool)->threshold = *(u64 *)value;
    return SUCCESS;
}

int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
    CALL("cuMemPoolGetAttribute", INITIALISED);
    // The attributes: bytes reserved by the pool, and bytes in use.
    if (attribute != 5 && attribute != 7) return refuse(INVALID_VALUE, "attribute %d is not one of the fake's", attribute);
    const Device &device = *(Device *)pool;
    *(u64 *)value = device.used + (attribute == 5 ? device.kept : 0);
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
    // A location of type device, its number, and the access flags: 0 or 3.
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
}
