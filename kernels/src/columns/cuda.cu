// Plain sums of columns.
#include "columns.cuh"
#include "device.cuh"

struct Plain {
    typedef float Sum;
    static constexpr int SUMS = 1;
    const float *values;
    u64 dim;
    __device__ __forceinline__ void add(u64 row, u32 column, float (&sums)[1]) const { sums[0] += values[row * dim + column]; }
};

KERNEL_ENTRY void columns_f32(u64 rows, u32 dim, u32 tile, float *out, const float *values) {
    sum_columns(Plain{values, dim}, rows, dim, tile, out);
}
KERNEL(columns_f32)
