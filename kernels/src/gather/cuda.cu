// Rows of a matrix copied to where they are needed, widened to f32; and summed back in a fixed order.
#include "device.cuh"

// One thread takes `W` values of one row.
template <typename T, int W>
__device__ __forceinline__ void gather(const T *table, u64 rows, const u32 *positions, u64 count, u32 dim, const float *scale, float *out) {
    const u64 per_row = dim / W, total = count * per_row;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (u64)gridDim.x * blockDim.x) {
        const u64 row = i / per_row, column = (i - row * per_row) * W;
        const u64 position = positions[row];
        float values[W];
        if (position >= rows) {
            for (int k = 0; k < W; k++) values[k] = not_a_number();
        } else {
            const float factor = scale ? scale[position] : 1.0f;
            if (W == 4) {
                const Packed<T, 4> four = *(const Packed<T, 4> *)(table + position * dim + column);
                for (int k = 0; k < W; k++) values[k] = widen(four.value[k]);
            } else {
                values[0] = widen(table[position * dim + column]);
            }
            if (scale) {
                for (int k = 0; k < W; k++) values[k] *= factor;
            }
        }
        float *to = out + row * dim + column;
        if (W == 4) {
            *(float4 *)to = make_float4(values[0], values[W > 1 ? 1 : 0], values[W > 2 ? 2 : 0], values[W > 3 ? 3 : 0]);
        } else {
            *to = values[0];
        }
    }
}

#define GATHER(name, T)                                                                                                \
    KERNEL_ENTRY void name(const T *table, u64 rows, const u32 *positions, u64 count, u32 dim, const float *scale, float *out) {  \
        if (dim % 4 == 0) gather<T, 4>(table, rows, positions, count, dim, scale, out);                                  \
        else gather<T, 1>(table, rows, positions, count, dim, scale, out);                                               \
    }                                                                                                                 \
    KERNEL(name)

GATHER(gather_f32, float)
GATHER(gather_f16, Half)
GATHER(gather_bf16, Bfloat16)
GATHER(gather_i8, Int8)
