// Rows of a matrix copied to their destinations, converted to the type that is wanted there.
#include "device.cuh"

// One thread copies `W` values of one row.
template <int W, typename T, typename O>
__device__ __forceinline__ void gather(const T *table, u64 rows, const u32 *positions, u64 count, u32 dim, const float *scale, O *out) {
    const u32 per_row = dim / W;
    const u64 total = count * per_row;
    for (u64 i = thread_id(); i < total; i += (u64)gridDim.x * blockDim.x) {
        const u64 row = divide(i, per_row), column = (i - row * per_row) * W;
        const u64 position = positions[row];
        Packed<O, W> found;
        if (position >= rows) {
#pragma unroll
            for (int k = 0; k < W; k++) found.value[k] = narrow<O>(not_a_number());
        } else {
            const Packed<T, W> stored = *(const Packed<T, W> *)(table + position * dim + column);
            const float factor = scale ? scale[position] : 1.0f;
#pragma unroll
            for (int k = 0; k < W; k++)
                found.value[k] = scale ? Converted<T, O>::scaled(stored.value[k], factor) : Converted<T, O>::of(stored.value[k]);
        }
        *(Packed<O, W> *)(out + row * dim + column) = found;
    }
}

#define GATHER(FROM, T, TO, O)                                                                                                  \
    KERNEL(gather_##FROM##_to_##TO, const T *table, u64 rows, const u32 *positions, u64 count, u32 dim, const float *scale, O *out, u32 width) { \
        BY_PART(width, gather, table, rows, positions, count, dim, scale, out); \
    }

#define GATHER_TO(TO, O) GATHER(f32, float, TO, O) GATHER(f16, Half, TO, O) GATHER(bf16, Bfloat16, TO, O) GATHER(i8, Int8, TO, O)
FOR_ROW_TYPES(GATHER_TO)
