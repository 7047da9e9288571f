// Weighted sums of rows over edges in f32, and the gradients of their weights.
#include "sum.cuh"

SUM_TO(f32, float)
SUM(sum_f32_to_f32_plain, float, float, false, true)
SUM(sum_f16_to_f32_plain, Half, float, false, true)
SUM(sum_bf16_to_f32_plain, Bfloat16, float, false, true)
SUM(sum_by_source_f32_to_f32_plain, float, float, true, true)

// The value of out at an edge and head: the product of its source's row with its target's gradient,
// divided by the number of edges for the mean.
#define END_PRODUCTS(NAME, T)                                                                                          \
    KERNEL(end_products_##NAME, Ends ends, float *out, const T *rows, const float *gradient, u64 stride, u64 offset) { \
        products_of_ends<false>(ends, out, rows, gradient, stride, offset, nullptr, 0.0f);                             \
    }
FOR_ROW_TYPES(END_PRODUCTS)
