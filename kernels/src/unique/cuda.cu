// Numbers ids in order of first occurrence: every id is noted in a table at the positions where it
// occurs, and the smallest one stays. An item that finds its own position there is the first; these
// are counted, and take the next numbers.
#include "device.cuh"
#include "table.cuh"

// Items at positions after the ids that have a number, `*known` of them (0 if `known` is null).
struct Items {
    u32 *slots;
    u64 count;
    u32 base;
};
#define ITEMS u32 *slots, const u64 *rows, u64 width
#define ITEMS_OF(name, known) const Items name = {slots, rows ? *rows * width : width, (u32)(known ? *known : 0)}

// Registers ids that have a number: id `i` has number `i`. `*len` gets their number.
KERNEL(number_known, const u32 *from, u64 count, u32 *ids, u64 *len, u64 limit, TABLE, u64 *status) {
    TABLE_OF(table);
    const u64 i = thread_id();
    if (i == 0) *len = count;
    if (i >= count) return;
    const u32 id = from[i];
    ids[i] = id;
    if (id >= limit) report(status, i, OUT_OF_RANGE);
    else note(table, id, (u32)i);
}

// Registers the ids in another table.
KERNEL(number_again, const u32 *ids, const u64 *len, u64 limit, TABLE) {
    TABLE_OF(table);
    const u64 i = thread_id();
    if (i < *len && ids[i] < limit) note(table, ids[i], (u32)i);
}

// Slots of the ids of two lists.
KERNEL(number_note, const u32 *one, u64 ones, const u32 *other, u64 others, TABLE, u64 limit, u32 *slots, u64 *status) {
    TABLE_OF(table);
    const u64 i = thread_id();
    if (i >= ones + others) return;
    const u32 id = i < ones ? one[i] : other[i - ones];
    if (id >= limit) report(status, i, OUT_OF_RANGE);
    slots[i] = id < limit ? note(table, id, (u32)i) : NO_SLOT;
}

// Per 32 items, a mask of the items that are the first of their id, and their number.
KERNEL(number_first, ITEMS, const u64 *known, TABLE, u32 *firsts, u32 *counts, u64 words) {
    TABLE_OF(table);
    ITEMS_OF(items, known);
    const u64 i = thread_id(), word = i / WARP;
    const u32 slot = i < items.count ? items.slots[i] : NO_SLOT;
    const bool first = slot != NO_SLOT && position_of(table, slot) == items.base + (u32)i;
    const u32 bits = __ballot_sync(FULL, first);
    if (lane_id() == 0 && word < words) {
        firsts[word] = bits;
        counts[word] = __popc(bits);
    }
}

// The first items, `*added` of them, take the next numbers. `*len` gets the new total.
KERNEL(number_place, ITEMS, const u64 *known, TABLE, const u32 *firsts, const u32 *before, u32 *ids, const u64 *added, u64 *len) {
    TABLE_OF(table);
    ITEMS_OF(items, known);
    const u64 i = thread_id();
    if (i == 0) *len = items.base + *added;
    if (i >= items.count) return;
    const u32 bits = firsts[i / WARP], lane = (u32)i % WARP;
    if (!(bits >> lane & 1)) return;
    const u32 slot = items.slots[i], number = items.base + before[i / WARP] + __popc(bits & ((1u << lane) - 1));
    ids[number] = id_of(table, slot);
    move_to(table, slot, number);
}

// Slots become numbers.
KERNEL(number_all, ITEMS, TABLE) {
    TABLE_OF(table);
    const u64 i = thread_id();
    if (i < (rows ? *rows * width : width) && slots[i] != NO_SLOT) slots[i] = position_of(table, slots[i]);
}

// Forgets ids.
KERNEL(number_forget, const u32 *ids, const u64 *len, u64 limit, u32 *direct) {
    const u64 i = thread_id();
    if (i < *len && ids[i] < limit) direct[ids[i]] = 0;
}
