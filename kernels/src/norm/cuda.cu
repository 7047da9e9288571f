// Rows divided by the sums of their absolute values.
#include "device.cuh"
#include "rows.cuh"

// Divides each row by the sum of its absolute values, added up in the host's order.
KERNEL(norm_divide_rows, float *rows, u64 count, u32 dim) {
    const u64 row = thread_id() / WARP;
    if (row >= count) return;
    float *values = rows + row * dim;
    double sum = 0;
    for (u32 c = lane_id(); c < dim; c += WARP) sum += (double)fabsf(values[c]);
    sum = warp_sum(sum);
    if (!(sum > 0)) return;
    const double factor = 1.0 / sum;
    for (u32 c = lane_id(); c < dim; c += WARP) values[c] = (float)((double)values[c] * factor);
}
