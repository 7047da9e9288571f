// Numbers ids in order of first occurrence: every id is noted in a table at the positions where it occurs, and the smallest
// one stays. Who finds its own position there is the first; the firsts are counted, and take the next numbers.
#include "device.cuh"
#include "table.cuh"

__device__ __forceinline__ u64 thread_number() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// Ids that have a number: id `i` is number `base + i`.
KERNEL_ENTRY void number_known(const u32 *ids, u64 count, u32 base, u64 limit, TABLE, u64 *status) {
    TABLE_OF(table);
    const u64 i = thread_number();
    if (i >= count) return;
    const u32 id = ids[i];
    if (id >= limit) report(status, base + i, OUT_OF_RANGE);
    else note(table, id, base + (u32)i);
}
KERNEL(number_known)

// Reports ids that occur twice among the known ones.
KERNEL_ENTRY void number_check(const u32 *ids, u64 count, u32 base, u64 limit, TABLE, u64 *status) {
    TABLE_OF(table);
    const u64 i = thread_number();
    if (i >= count || ids[i] >= limit) return;
    const u32 slot = note(table, ids[i], base + (u32)i);
    if (position_of(table, slot) != base + (u32)i) report(status, base + i, REPEATED);
}
KERNEL(number_check)

// Ids become slots.
KERNEL_ENTRY void number_note(u32 *ids, u64 count, u32 base, TABLE) {
    TABLE_OF(table);
    const u64 i = thread_number();
    if (i < count) ids[i] = note(table, ids[i], base + (u32)i);
}
KERNEL(number_note)

// For 32 items each, who is the first of its id, and how many are. There are `*count` items.
KERNEL_ENTRY void number_first(const u32 *slots, const u32 *count, u64 words, u32 base, TABLE, u32 *firsts, u32 *counts) {
    TABLE_OF(table);
    const u64 i = thread_number(), word = i / WARP;
    const bool first = i < *count && position_of(table, slots[i]) == base + (u32)i;
    const u32 bits = __ballot_sync(FULL, first);
    if (lane_id() == 0 && word < words) {
        firsts[word] = bits;
        counts[word] = __popc(bits);
    }
}
KERNEL(number_first)

// The firsts take numbers from `base` on.
KERNEL_ENTRY void number_place(const u32 *slots, const u32 *count, u32 base, TABLE, const u32 *firsts, const u32 *before, u32 *ids) {
    TABLE_OF(table);
    const u64 i = thread_number();
    if (i >= *count) return;
    const u32 bits = firsts[i / WARP], lane = (u32)i % WARP;
    if (!(bits >> lane & 1)) return;
    const u32 slot = slots[i], number = base + before[i / WARP] + __popc(bits & ((1u << lane) - 1));
    ids[number] = id_of(table, slot);
    move_to(table, slot, number);
}
KERNEL(number_place)

// Slots become numbers.
KERNEL_ENTRY void number_all(u32 *slots, const u32 *count, TABLE) {
    TABLE_OF(table);
    const u64 i = thread_number();
    if (i < *count) slots[i] = position_of(table, slots[i]);
}
KERNEL(number_all)

// Forgets ids.
KERNEL_ENTRY void number_forget(const u32 *ids, u64 count, u64 limit, u32 *direct) {
    const u64 i = thread_number();
    if (i < count && ids[i] < limit) direct[ids[i]] = 0;
}
KERNEL(number_forget)
