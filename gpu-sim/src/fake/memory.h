// Memory of the fake driver: pools with a limit, pages that can be touched only from allocation to
// free, pinned memory.
#pragma once
#include <sys/mman.h>

#include "streams.h"

extern "C" {
void *emulate_alloc(size_t bytes);
void emulate_free(void *at, size_t bytes);
void emulate_watch(int is);
int emulate_is_mapped(uint64_t start, size_t bytes, int written);
}

namespace fake {

constexpr u64 PAGE = 4096;
// Number of freed ranges that stay untouchable before their addresses are used again.
constexpr size_t REMEMBERED = 256;

// Allows or forbids touching memory of a device.
inline void open(const Memory &part, bool touched) {
    const u64 first = part.start / PAGE * PAGE;
    mprotect((void *)first, part.start + part.bytes - first, touched ? PROT_READ | PROT_WRITE : PROT_NONE);
}

// The allocation that holds `bytes` from `at` on; null if there is none or it was freed.
inline Part find(u64 at, size_t bytes) {
    auto next = state.memory.upper_bound(at);
    if (next == state.memory.begin()) return nullptr;
    const Part &part = std::prev(next)->second;
    return part->holds(at, bytes) && !part->freed ? part : nullptr;
}

// The reason why `context` may not touch `part`; null if it may.
inline const char *barred(const Part &part, const Context &context) {
    if (!part) return "no memory that is there";
    if (!part->on_device()) {
        const bool portable = part->flags & 1;
        return portable || part->context == &context ? nullptr : "host memory of another context that is not portable";
    }
    if (part->kind != Memory::DEVICE || part->is_torchs) {
        const bool may = part->context == &context || context.peers.count(part->context);
        return may ? nullptr : "memory of another device that is not of its pool, to which access was not enabled";
    }
    const Device &owner = *part->context->device;
    return owner.readers.count(context.device->ordinal) ? nullptr : "memory of another device that was not shown to this one";
}

// With `is_torchs`, for torch's own allocator. Memory cached by torch cannot be used by the pool,
// and vice versa.
inline Code allocate(Context &context, const std::shared_ptr<Stream> &stream, size_t bytes, u64 *address, bool is_torchs = false) {
    Device &device = *context.device;
    const u64 taken = (bytes + 511) / 512 * 512;
    u64 &kept = is_torchs ? device.torch_kept : device.kept;
    // Only memory that the host knows to be free, or that this stream has freed itself, is
    // allocated again.
    const u64 of_others = is_torchs ? 0 : unseen(device) - unseen(*stream);
    if (taken > kept - of_others) {
        if (is_torchs && device.free() < taken) kept = 0;
        if (device.free() < taken) return OUT_OF_MEMORY;
    } else {
        kept -= taken;
        for (u64 rest = is_torchs ? 0 : taken; rest > 0 && !stream->unseen.empty();) {
            const auto oldest = stream->unseen.begin();
            const u64 part = std::min(rest, oldest->second);
            rest -= part;
            if ((oldest->second -= part) == 0) stream->unseen.erase(oldest);
        }
    }
    void *start = emulate_alloc((bytes + 15) / 16 * 16);
    if (!start) return OUT_OF_MEMORY;
    device.used += taken;
    u64 &most = state.counts["most"];
    most = std::max(most, device.used + device.kept + device.torch_kept);
    Part part(new Memory{Memory::DEVICE, (u64)start, (bytes + 15) / 16 * 16, &context});
    part->exists = false;
    part->is_torchs = is_torchs;
    open(*part, false);
    state.memory[part->start] = part;
    launch(stream, {"cuMemAllocAsync", [part] {
        part->exists = true;
        open(*part, true);
        return true;
    }});
    *address = part->start;
    return SUCCESS;
}

// Releases the addresses of the oldest freed ranges for reuse.
inline void forget(size_t but) {
    for (; state.remembered.size() > but; state.remembered.pop_front()) {
        const Part &oldest = state.remembered.front();
        state.memory.erase(oldest->start);
        emulate_free((void *)oldest->start, oldest->bytes);
    }
}

inline Code free_in_order(const std::shared_ptr<Stream> &stream, u64 address) {
    const auto found = state.memory.find(address);
    if (found == state.memory.end() || found->second->kind != Memory::DEVICE) {
        return refuse(INVALID_VALUE, "%#lx is not what was allocated in a stream's order", address);
    }
    const Part part = found->second;
    if (part->freed) undefined("%#lx is freed twice", address);
    if (part->context != stream->context) return refuse(INVALID_VALUE, "memory of another context");
    part->freed = true;
    const std::weak_ptr<Stream> on = stream;
    launch(stream, {"cuMemFreeAsync", [part, on] {
        if (!part->exists) undefined("freed on a stream that nothing made wait for the one that allocates it");
        std::string by;
        if (is_pending(part, by)) undefined("memory is freed before %s, launched on another stream, which nothing waits for", by.c_str());
        part->gone = true;
        open(*part, false);
        Device &device = *part->context->device;
        const u64 taken = (part->bytes + 511) / 512 * 512;
        device.used -= taken;
        (part->is_torchs ? device.torch_kept : device.kept) += taken;
        if (!part->is_torchs) on.lock()->unseen[on.lock()->done + 1] += taken;
        state.remembered.push_back(part);
        forget(REMEMBERED);
        return true;
    }});
    return SUCCESS;
}

inline Code pin(Context &context, u64 start, size_t bytes, unsigned flags, Memory::Kind kind) {
    // Whole pages are pinned, each once.
    const u64 first = start / PAGE * PAGE, end = (start + bytes + PAGE - 1) / PAGE * PAGE;
    auto next = state.memory.lower_bound(first);
    const bool behind = next != state.memory.end() && next->first < end;
    const bool before = next != state.memory.begin() && std::prev(next)->second->start + std::prev(next)->second->bytes > first;
    if (behind || before) return HOST_MEMORY_ALREADY_REGISTERED;
    state.memory[start] = Part(new Memory{kind, start, bytes, &context, flags});
    return SUCCESS;
}

inline Code unpin(u64 start, Memory::Kind kind) {
    const auto found = state.memory.find(start);
    if (found == state.memory.end()) {
        return refuse(kind == Memory::PINNED ? INVALID_VALUE : HOST_MEMORY_NOT_REGISTERED, "%#lx is not pinned", start);
    }
    const Part part = found->second;
    if (part->kind != kind) return refuse(INVALID_VALUE, "%#lx was pinned in another way", start);
    std::string by;
    if (!part->context->failed && is_pending(part, by)) undefined("host memory that %s, launched before, has yet to use", by.c_str());
    state.memory.erase(found);
    return SUCCESS;
}

} // namespace fake
