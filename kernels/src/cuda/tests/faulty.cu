// Errors of kernels, for the tests of the emulation, which finds them.
#include "device.cuh"

// `n` is 32, which the compiler does not know; blocks have 64 threads.
KERNEL(faulty, u32 which, u32 n, const u32 *in, u32 *out) {
    __shared__ u32 shared[64];
    const u32 thread = threadIdx.x, at = (u32)thread_id();
    switch (which) {
    case 0: // nothing is wrong
        shared[thread] = thread;
        __syncthreads();
        out[at] = shared[thread ^ 32];
        __syncthreads();
        shared[thread] = out[at];
        __syncwarp();
        out[at] = shared[thread ^ 1];
        break;
    case 1: // another warp's
        shared[thread] = thread;
        __syncwarp();
        out[at] = shared[thread ^ 32];
        break;
    case 2: // a vote is no barrier for memory
        shared[thread] = thread;
        out[at] = __ballot_sync(FULL, thread & 1);
        out[at] = shared[thread ^ 1];
        break;
    case 3: // written before all have read
        shared[thread] = thread;
        __syncthreads();
        out[at] = shared[0];
        shared[thread] = 0;
        break;
    case 4: // blocks come in any order
        out[0] = blockIdx.x;
        break;
    case 5: // an atomic beside a plain read
        atomicAdd(&out[0], 1u);
        if (out[0] == n) out[1] = 1;
        break;
    case 6: // the same, allowed
        atomicAdd(&out[0], 1u);
        if (relaxed_load(&out[0]) == n) relaxed_store(&out[1], 1u);
        break;
    case 7: // what was never written
        out[at] = in[at];
        break;
    case 8: // what an earlier block left in shared memory
        if (blockIdx.x == 0) shared[thread] = thread;
        out[at] = shared[thread];
        break;
    case 9: { // no multiple of 16
        const uint4 quad = *(const uint4 *)(out + 1);
        out[0] = quad.x;
        break;
    }
    case 10: // the GPU's result is 0, a host's 1
        out[at] = 1u << n;
        break;
    case 11: // the GPU's is the largest integer
        out[at] = (u32)(__uint_as_float(0x7F000000u) * (float)n);
        break;
    case 12: shared[thread + n] = 0; break;
    case 13: // half of the block waits
        if (thread < n) __syncthreads();
        break;
    case 14: // a warp's other lanes have gone
        if (thread % WARP == 0) return;
        out[at] = __shfl_sync(FULL, thread, 0);
        break;
    }
}
