// What a shuffle needs to know, from where rows are to where they are needed.
#include "device.cuh"

KERNEL_ENTRY void shuffle_select(const u32 *values, u64 len, const u32 *positions, u64 count, u32 *out) {
    const u64 i = thread_id();
    if (i >= count) return;
    const u32 position = positions[i];
    out[i] = position < len ? values[position] : 0xFFFFFFFFu;
}
KERNEL(shuffle_select)

// Where each mixed row comes from: this rank's own rows, those of `order` from `from` to `to`, from `local`, the others from behind
// the `rows` local ones, in their order.
KERNEL_ENTRY void shuffle_source(const u32 *order, u64 mixed, u64 from, u64 to, const u32 *local, u64 rows, u32 *source) {
    const u64 i = thread_id();
    if (i >= mixed) return;
    const u64 received = i < from ? i : i - (to - from);
    source[order[i]] = i >= from && i < to ? local[i - from] : (u32)(rows + received);
}
KERNEL(shuffle_source)
