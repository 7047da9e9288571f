// Plain sums of columns.
#include "columns.cuh"
#include "device.cuh"

template <typename T> struct Plain {
    typedef float Sum;
    static constexpr int SUMS = 1;
    const T *values;
    u64 dim;
    __device__ __forceinline__ void add(u64 row, u32 column, float (&sums)[1]) const { sums[0] += widen(values[row * dim + column]); }
};

#define COLUMNS(NAME, T)                                                                                               \
    KERNEL(columns_##NAME, u64 rows, u32 dim, u32 tile, float *out, const T *values) {                       \
        sum_columns(Plain<T>{values, dim}, rows, dim, tile, out);                                                      \
    }
FOR_ROW_TYPES(COLUMNS)
