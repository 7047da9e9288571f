// Sums over the rows of a matrix, column by column, in an order that depends only on its size.
//
// A block takes a tile of columns and a piece of the rows; each thread adds up every n-th row of
// the piece, then the threads' sums are added up. The sums of the pieces are the rows of the next,
// much smaller, matrix.
#pragma once
#include "device.cuh"

constexpr u32 COLUMN_THREADS = 256;
// Rows of a piece that one thread adds up, as in columns/cuda.rs.
constexpr u32 ROWS_PER_THREAD = 64;

// `tile` columns, a power of 2 up to a warp, belong to one block. `Op` has a type `Sum`, `SUMS` of
// them for a column, and add(row, column, sums). `out` is pieces × SUMS × dim.
template <class Op> __device__ __forceinline__ void sum_columns(const Op &op, u64 rows, u32 dim, u32 tile, typename Op::Sum *out) {
    typedef typename Op::Sum Sum;
    __shared__ Sum shared[Op::SUMS][COLUMN_THREADS];
    const u32 tiles = (dim + tile - 1) / tile, lanes = COLUMN_THREADS / tile;
    const u64 piece = divide(blockIdx.x, tiles);
    const u32 column = (blockIdx.x - (u32)piece * tiles) * tile + threadIdx.x % tile, lane = threadIdx.x / tile;
    Sum sums[Op::SUMS];
#pragma unroll
    for (int k = 0; k < Op::SUMS; k++) sums[k] = 0;
    if (column < dim) {
        const u64 first = piece * lanes * ROWS_PER_THREAD, end = first + (u64)lanes * ROWS_PER_THREAD;
#pragma unroll 8
        for (u64 row = first + lane; row < (end < rows ? end : rows); row += lanes) op.add(row, column, sums);
    }
#pragma unroll
    for (int k = 0; k < Op::SUMS; k++) shared[k][threadIdx.x] = sums[k];
    __syncthreads();
    for (u32 half = lanes / 2; half > 0; half /= 2) {
        if (lane < half) {
#pragma unroll
            for (int k = 0; k < Op::SUMS; k++) shared[k][threadIdx.x] += shared[k][threadIdx.x + half * tile];
        }
        __syncthreads();
    }
    if (lane > 0 || column >= dim) return;
#pragma unroll
    for (int k = 0; k < Op::SUMS; k++) out[(piece * Op::SUMS + k) * dim + column] = shared[k][threadIdx.x];
}
