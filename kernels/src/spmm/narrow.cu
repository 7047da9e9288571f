// Weighted sums of rows over edges, rounded to bf16 or f16.
#include "sum.cuh"

SUM_TO(bf16, Bfloat16)
SUM_TO(f16, Half)
SUM(sum_bf16_to_bf16_plain, Bfloat16, Bfloat16, false, true)
SUM(sum_f16_to_f16_plain, Half, Half, false, true)
