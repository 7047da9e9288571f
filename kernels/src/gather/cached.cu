// Rows of a table, some of which are also in the caches of this GPU and of others that it reaches.
#include "device.cuh"

// The place of a row that is in no cache.
constexpr u32 NOWHERE = 0xFFFFFFFFu;
// Threads of a block that counts, as in cached.rs.
constexpr u32 COUNTING_THREADS = 256;

// Rows that a launch writes, as in cached.rs: rows of caches and out-of-range rows; rows of the
// table.
enum : u32 { CACHED = 1, UNCACHED = 2 };

// Inputs of a look-up: `table` holds all rows, `caches` the addresses of the caches' values
// followed by those of their scales. A place is the number of a cache above `shift` bits that hold
// the slot there. Scales are null where rows have none. `wanted` selects the rows to write.
template <typename T> struct CachedTable {
    const T *table;
    const float *scales;
    const u64 *caches;
    const u32 *places;
    u64 rows;
    u32 num_caches, shift, dim, wanted;
};

// One thread copies `W` values of one row.
template <int W, typename T, typename O>
__device__ __forceinline__ void gather_pieces(CachedTable<T> from, const u32 *positions, u64 count, O *out) {
    const u32 per_row = from.dim / W;
    const u64 total = count * per_row;
    for (u64 i = thread_id(); i < total; i += (u64)gridDim.x * blockDim.x) {
        const u64 row = divide(i, per_row), column = (i - row * per_row) * W;
        const u64 position = positions[row];
        const u64 place = position < from.rows ? from.places[position] : 0;
        if (!(from.wanted & (place == NOWHERE ? UNCACHED : CACHED))) continue;
        Packed<O, W> found;
        if (position >= from.rows) {
#pragma unroll
            for (int k = 0; k < W; k++) found.value[k] = narrow<O>(not_a_number());
        } else {
            const T *values = from.table;
            const float *scales = from.scales;
            u64 at = position;
            if (place != NOWHERE) {
                const u64 cache = place >> from.shift;
                at = place & ((1ull << from.shift) - 1);
                values = (const T *)from.caches[cache];
                scales = (const float *)from.caches[from.num_caches + cache];
            }
            const Packed<T, W> stored = *(const Packed<T, W> *)(values + at * from.dim + column);
            const float factor = scales ? scales[at] : 1.0f;
#pragma unroll
            for (int k = 0; k < W; k++)
                found.value[k] = scales ? Converted<T, O>::scaled(stored.value[k], factor) : Converted<T, O>::of(stored.value[k]);
        }
        *(Packed<O, W> *)(out + row * from.dim + column) = found;
    }
}

#define GATHER_CACHED(FROM, T, TO, O)                                                                                   \
    KERNEL(gather_cached_##FROM##_to_##TO, \
        const T *table, const float *scales, const u64 *caches, const u32 *places, u64 rows, u32 num_caches, u32 shift,  \
        const u32 *positions, u64 count, u32 dim, O *out, u32 width, u32 wanted) {                                       \
        const CachedTable<T> from = {table, scales, caches, places, rows, num_caches, shift, dim, wanted};             \
        BY_PART(width, gather_pieces, from, positions, count, out); \
    }

#define GATHER_CACHED_TO(TO, O)                                                                                         \
    GATHER_CACHED(f32, float, TO, O)                                                                                    \
    GATHER_CACHED(f16, Half, TO, O)                                                                                     \
    GATHER_CACHED(bf16, Bfloat16, TO, O)                                                                                \
    GATHER_CACHED(i8, Int8, TO, O)
FOR_ROW_TYPES(GATHER_CACHED_TO)

// The slots of the rows at `positions` in the only cache, which has all rows.
KERNEL(cache_slots, const u32 *places, u64 rows, const u32 *positions, u64 count, u32 *slots) {
    const u64 i = thread_id();
    if (i < count) slots[i] = positions[i] < rows ? places[positions[i]] : NOWHERE;
}

// Counts the rows at `positions` in the own cache, and in the upper half the rows in other caches:
// a sum for each block.
KERNEL(cache_hits, const u32 *places, u64 rows, u32 shift, const u32 *positions, u64 count, u64 *hits) {
    u64 found = 0, total;
    for (u64 i = thread_id(); i < count; i += (u64)gridDim.x * blockDim.x) {
        const u32 position = positions[i];
        const u32 place = position < rows ? places[position] : NOWHERE;
        if (place != NOWHERE) found += (u64)place >> shift == 0 ? 1 : 1ull << 32;
    }
    sum_before<COUNTING_THREADS>(found, &total);
    if (threadIdx.x == 0) hits[blockIdx.x] = total;
}
