#!/usr/bin/env python3
"""Whether the driver's pool gives memory that was freed on the null stream to another stream, and what a program must wait for first.

The calls are those of `gsplit train --prefetch 1`: rows are allocated and written on a stream of their own, for which the host waits; the
null stream reads and frees them; the host asks whether the step before is over. Prints a JSON line for each way to wait, with the most that
the pool held, and ends with status 9 if none keeps that below 2.5 GB. Takes 20 seconds, and needs cuda.bindings.
"""

import itertools
import json
import sys
import time

from cuda.bindings import driver

MIB, STEPS, ROWS, MOST = 1 << 20, 80, 585 << 20, 2.5e9
POOL = driver.CUmemPool_attribute


def call(function, *words):
    error, *values = function(*words)
    if error != driver.CUresult.CUDA_SUCCESS:
        sys.exit(f"error: {function.__name__}: {error}")
    return values[0] if len(values) == 1 else values


def held(pool, wait):
    """The most bytes that the pool held in all steps."""
    call(driver.cuCtxSynchronize)
    call(driver.cuMemPoolTrimTo, pool, 0)
    call(driver.cuMemPoolSetAttribute, pool, POOL.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, driver.cuuint64_t(0))
    side, null = call(driver.cuStreamCreate, 1), driver.CUstream(0)
    work = call(driver.cuMemAlloc, 600 * MIB)
    events = []
    for step in range(STEPS):
        if wait == "the other stream waits for the event of the step before" and len(events) > 1:
            call(driver.cuStreamWaitEvent, side, events[-2], 0)
        size = ROWS + step % 7 * MIB
        rows = call(driver.cuMemAllocAsync, size, side)
        call(driver.cuMemsetD8Async, rows, 1, size, side)
        call(driver.cuStreamSynchronize, side)
        call(driver.cuMemcpyDtoDAsync, work, rows, 500 * MIB, null)
        call(driver.cuMemFreeAsync, rows, null)
        for _ in range(4):
            call(driver.cuMemsetD8Async, work, 0, 600 * MIB, null)
        events.append(call(driver.cuEventCreate, 2))
        call(driver.cuEventRecord, events[-1], null)
        if len(events) > 1:
            while driver.cuEventQuery(events[-2])[0] == driver.CUresult.CUDA_ERROR_NOT_READY:
                time.sleep(0)
            if wait == "the host waits for the event that is over":
                call(driver.cuEventSynchronize, events[-2])
    most = int(call(driver.cuMemPoolGetAttribute, pool, POOL.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH))
    call(driver.cuCtxSynchronize)
    for event in events:
        call(driver.cuEventDestroy, event)
    call(driver.cuMemFree, work)
    call(driver.cuStreamDestroy, side)
    return most


def main():
    call(driver.cuInit, 0)
    device = call(driver.cuDeviceGet, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))
    pool = call(driver.cuDeviceGetDefaultMemPool, device)
    everything, no = driver.cuuint64_t(2**64 - 1), 0
    call(driver.cuMemPoolSetAttribute, pool, POOL.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, everything)
    call(driver.cuMemPoolSetAttribute, pool, POOL.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, no)
    ways = ("the host asks alone", "the host waits for the event that is over", "the other stream waits for the event of the step before")
    found = {}
    for opportunistic, way in itertools.product((1, 0), ways):
        call(driver.cuMemPoolSetAttribute, pool, POOL.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, opportunistic)
        began = time.perf_counter()
        most = found[way, opportunistic] = held(pool, way)
        ms = 1e3 * (time.perf_counter() - began) / STEPS
        print(json.dumps({"way": way, "opportunistic": bool(opportunistic), "gb": round(most / 1e9, 2), "ms": round(ms, 3)}), flush=True)
    asks, waits = found[ways[0], 1], found[ways[1], 1]
    print(f"= {asks / 1e9:.1f} GB where the host asks, {waits / 1e9:.1f} where it waits")
    sys.exit(0 if min(found.values()) <= MOST else 9)


if __name__ == "__main__":
    main()
