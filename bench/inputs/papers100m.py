#!/usr/bin/env python3
"""A raw graph of ogbn-papers100M's shape: graph.py FOLDER SCALE PROCESSES.

At scale 1: 111,059,956 vertices, 1,615,685,872 edges. Written as a folder of NumPy arrays that
`gsplit convert` knows:

    edge_index.npy   int32 (E, 2)    citing and cited paper, in no order; duplicates and loops occur
    feat.npy         int8 (n, 128), small whole numbers: half the room of what is made of them
    label.npy        float32 (n,)    172 classes; NaN but for the 1.4 % in a split, as in papers100M
    train.npy, valid.npy, test.npy   int64 ids of 78 %, 8 % and 14 % of the labelled

With x uniform in [0, 1), the cited paper has rank n x^2, which makes in-degrees fall with the
square root of the rank, from 150,000; the citing paper has rank n (x + x^2) / 2, which spreads
expected out-degrees from 10 to 29. A multiplication modulo n scatters the ranks over the ids. A
chunk depends on its number alone: any number of processes writes the same bytes. Memory for one
chunk a process.
"""

import functools
import math
import multiprocessing
import sys
from pathlib import Path

import numpy as np

VERTICES, EDGES = 111_059_956, 1_615_685_872
LABELLED = 1_546_782
CLASSES, WIDTH = 172, 128
CHUNK = 1 << 20
EDGE_STREAM, FEATURE_STREAM, LABEL_STREAM = range(3)


def scatter(rank, n, stride):
    """The rank-th vertex of n: a permutation, where stride and n have no common factor."""
    product = rank * np.uint64(stride)
    return product - product // np.uint64(n) * np.uint64(n)


def stride_near(target, n):
    """The first number from `target` on that has no factor in common with n."""
    while math.gcd(target, n) != 1:
        target += 1
    return target


def edges(chunk, count, n):
    """int32 (count, 2): a chunk of edges, from 32 random bits an end."""
    bits = np.random.Generator(np.random.SFC64([EDGE_STREAM, chunk])).integers(0, 1 << 64, count, np.uint64)
    x, y, half = bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF), np.uint64(32)
    cited = (y * y >> half) * np.uint64(n) >> half
    citing = ((x + (x * x >> half)) >> np.uint64(1)) * np.uint64(n) >> half
    pairs = np.empty((count, 2), np.int32)
    pairs[:, 0] = scatter(citing, n, stride_near(int(0.382 * n), n))
    pairs[:, 1] = scatter(cited, n, stride_near(int(0.618 * n), n))
    return pairs


def features(chunk, count, _n):
    """int8 (count, 128): -4 to 3."""
    stream = np.random.Generator(np.random.SFC64([FEATURE_STREAM, chunk]))
    return np.right_shift(np.frombuffer(stream.bytes(count * WIDTH), np.int8), 5).reshape(count, WIDTH)


def fill(path, make, n, rows, chunk):
    """Writes one chunk of rows to its place."""
    array = np.load(path, mmap_mode="r+")
    first = chunk * CHUNK
    count = min(CHUNK, rows - first)
    offset = array.offset + first * array.strides[0]
    del array
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        data = memoryview(make(chunk, count, n)).cast("B")
        while data:
            data = data[file.write(data) :]


def write(path, make, n, shape, dtype, pool):
    np.lib.format.open_memmap(path, "w+", dtype, shape)
    chunks = range(-(-shape[0] // CHUNK))
    for done, _ in enumerate(pool.imap_unordered(functools.partial(fill, path, make, n, shape[0]), chunks), 1):
        if done % 200 == 0:
            print(f"{path.name}: {done * 100 // len(chunks)} %", file=sys.stderr, flush=True)


def write_labels(folder, n, labelled):
    stream = np.random.Generator(np.random.SFC64(LABEL_STREAM))
    chosen = np.unique(stream.integers(0, n, labelled))
    label = np.full(n, np.nan, np.float32)
    label[chosen] = stream.integers(0, CLASSES, len(chosen))
    np.save(folder / "label.npy", label)
    stream.shuffle(chosen)
    ends = [int(len(chosen) * share) for share in (0.78, 0.86)]
    for name, ids in zip(("train", "valid", "test"), np.split(chosen, ends)):
        np.save(folder / f"{name}.npy", np.sort(ids))


def main(folder, scale, processes):
    folder.mkdir(parents=True, exist_ok=True)
    n, num_edges = max(int(VERTICES * scale), CLASSES), int(EDGES * scale)
    with multiprocessing.Pool(processes) as pool:
        write(folder / "edge_index.npy", edges, n, (num_edges, 2), np.int32, pool)
        write(folder / "feat.npy", features, n, (n, WIDTH), np.int8, pool)
    write_labels(folder, n, max(int(LABELLED * scale), 3))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
