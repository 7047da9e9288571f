// Ids and their first positions, and error reports. A file that includes this has its own copy.
//
// The table keeps for each id the smallest position at which it was noted, in whatever order
// threads come: either one word for each possible id, or open addressing in words of (id,
// position). Positions are kept as their complements, so that zero means empty.

struct Table {
    // One of the two, indexed by id or by slot.
    u32 *direct;
    u64 *slots;
    // Slots less one.
    u32 mask;
};
#define TABLE u32 *table_direct, u64 *table_slots, u32 table_mask
#define TABLE_OF(name) const Table name = {table_direct, table_slots, table_mask}

// The slot of an id that is not noted. No table is as large.
#define NO_SLOT 0xFFFFFFFFu

// Notes `id` at `position`, below 2^32 - 1. Returns its slot.
__device__ __forceinline__ u32 note(Table table, u32 id, u32 position) {
    const u32 rest = ~position;
    if (table.direct) {
        // Most ids of a mini-batch have been noted before: reading is cheaper than an atomic.
        if (relaxed_load(&table.direct[id]) < rest) atomicMax(&table.direct[id], rest);
        return id;
    }
    const u64 word = (u64)id << 32 | rest;
    // Fibonacci hashing; the mask selects the bits.
    u32 slot = (u32)((id * 0x9E3779B97F4A7C15ull) >> 32) & table.mask;
    for (;; slot = (slot + 1) & table.mask) {
        u64 found = relaxed_load(&table.slots[slot]);
        if (found == 0) found = atomicCAS(&table.slots[slot], 0ull, word);
        if (found == 0) return slot;
        if ((u32)(found >> 32) == id) {
            if (found < word) atomicMax(&table.slots[slot], word);
            return slot;
        }
    }
}

__device__ __forceinline__ u32 position_of(Table table, u32 slot) {
    return ~(table.direct ? relaxed_load(&table.direct[slot]) : (u32)relaxed_load(&table.slots[slot]));
}

__device__ __forceinline__ u32 id_of(Table table, u32 slot) {
    return table.direct ? slot : (u32)(table.slots[slot] >> 32);
}

// Whether `id` was first noted at `position`.
__device__ __forceinline__ bool is_first(Table table, u32 id, u32 position) {
    return position_of(table, note(table, id, position)) == position;
}

// Only one thread may move an id.
__device__ __forceinline__ void move_to(Table table, u32 slot, u32 position) {
    if (table.direct) table.direct[slot] = ~position;
    else table.slots[slot] = (table.slots[slot] >> 32) << 32 | (u32)~position;
}

// --- error reports: the first of several, by position ---

#define OUT_OF_RANGE 1
#define REPEATED 2
#define DEGREE 3
#define SOURCE 5
#define TOPOLOGY 6
#define OVERFLOW_OF_COUNTER 7
// Reported in the same three bits, where it is 0.
#define NOT_HELD 8

__device__ __forceinline__ void report(u64 *status, u64 where, u32 what) { atomicMax(status, ~(where << 3 | (what & 7))); }
