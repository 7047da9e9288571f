// Plain sums of columns.
#include "columns.cuh"
#include "device.cuh"

template <typename T> struct Plain {
    typedef T Sum;
    static constexpr int SUMS = 1;
    const T *values;
    u64 dim;
    __device__ __forceinline__ void add(u64 row, u32 column, T (&sums)[1]) const { sums[0] += values[row * dim + column]; }
};

KERNEL_ENTRY void columns_f32(u64 rows, u32 dim, u32 tile, float *out, const float *values) {
    sum_columns(Plain<float>{values, dim}, rows, dim, tile, out);
}
KERNEL(columns_f32)

KERNEL_ENTRY void columns_f64(u64 rows, u32 dim, u32 tile, double *out, const double *values) {
    sum_columns(Plain<double>{values, dim}, rows, dim, tile, out);
}
KERNEL(columns_f64)
