// Rows of a table of which the hottest lie in another place too, on the device.
#include "device.cuh"

// What is looked up: `cache` holds the rows that have a slot, `table` all of them. Scales are those of the rows of each, or null.
template <typename T> struct CachedTable {
    const T *table, *cache;
    const float *table_scales, *cache_scales;
    const u32 *slots;
    u64 rows, cached;
    u32 dim;
};

// One thread takes `W` values of one row.
template <typename T, int W>
__device__ __forceinline__ void gather_pieces(CachedTable<T> from, const u32 *positions, u64 count, float *out) {
    const u64 per_row = from.dim / W, total = count * per_row;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (u64)gridDim.x * blockDim.x) {
        const u64 row = i / per_row, column = (i - row * per_row) * W;
        const u64 position = positions[row];
        Packed<float, W> found;
        if (position >= from.rows) {
            for (int k = 0; k < W; k++) found.value[k] = not_a_number();
        } else {
            const u64 slot = from.slots[position];
            const bool hit = slot < from.cached;
            const T *values = hit ? from.cache + slot * from.dim : from.table + position * from.dim;
            const Packed<T, W> stored = *(const Packed<T, W> *)(values + column);
            for (int k = 0; k < W; k++) found.value[k] = widen(stored.value[k]);
            if (from.table_scales) {
                const float scale = hit ? from.cache_scales[slot] : from.table_scales[position];
                for (int k = 0; k < W; k++) found.value[k] *= scale;
            }
        }
        *(Packed<float, W> *)(out + row * from.dim + column) = found;
    }
}

#define GATHER_CACHED(name, T)                                                                                          \
    KERNEL_ENTRY void name(                                                                                             \
        const T *table, const T *cache, const float *table_scales, const float *cache_scales, const u32 *slots, u64 rows, \
        u64 cached, const u32 *positions, u64 count, u32 dim, float *out) {                                             \
        const CachedTable<T> from = {table, cache, table_scales, cache_scales, slots, rows, cached, dim};            \
        if (dim % 4 == 0) gather_pieces<T, 4>(from, positions, count, out);                                             \
        else gather_pieces<T, 1>(from, positions, count, out);                                                          \
    }                                                                                                                   \
    KERNEL(name)

GATHER_CACHED(gather_cached_f32, float)
GATHER_CACHED(gather_cached_f16, Half)
GATHER_CACHED(gather_cached_bf16, Bfloat16)
GATHER_CACHED(gather_cached_i8, Int8)
