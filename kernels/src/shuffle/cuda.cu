// The index of a shuffle: sources and destinations of rows.
#include "device.cuh"
#include "table.cuh"

KERNEL(shuffle_select, const u32 *values, u64 len, const u32 *positions, u64 count, u32 *out) {
    const u64 i = thread_id();
    if (i >= count) return;
    const u32 position = positions[i];
    out[i] = position < len ? values[position] : 0xFFFFFFFFu;
}

// Computes the source of each mixed row, and the rows to read: first of the `*rows` vertices `ids`
// of the local frontier, then of the `others` vertices `needed` of other ranks. `order` lists the
// mixed rows of the latter, then of this rank's own vertices; `slots` are the table's slots of the
// own vertices, then of the vertices that other ranks asked for, whose rows become `asked_rows`.
KERNEL(shuffle_index, const u32 *slots, u64 own, u64 asked, TABLE, const u64 *rows_at, const u32 *ids, const u32 *order,
                                const u32 *needed, u64 others, u32 *source, u32 *asked_rows, u32 *read) {
    TABLE_OF(table);
    const u64 i = thread_id(), rows = *rows_at;
    if (i < own + asked) {
        const u32 row = slots[i] == NO_SLOT ? NO_SLOT : position_of(table, slots[i]);
        if (i < own) source[order[others + i]] = row;
        else asked_rows[i - own] = row;
    }
    if (i < rows) read[i] = ids[i];
    if (i < others) {
        source[order[i]] = (u32)(rows + i);
        read[rows + i] = needed[i];
    }
}
