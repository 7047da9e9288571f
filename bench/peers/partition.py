#!/usr/bin/env python3
"""KaMinPar and Mt-KaHyPar on a gsplit dataset.

    partition.py write DATASET FILE [PRESAMPLE]
    partition.py partition FILE PARTS SEED [PRESET]    KaMinPar
    partition.py hypar FILE PARTS SEED                 Mt-KaHyPar's default preset, unit weights

`write` makes a ParHiP file of the symmetrised graph; a pair weighs 1, or with a presample 1 + its
counters of both directions, as in gsplit. The others print one JSON line: the seconds of
partitioning only and the cut; KaMinPar's also the peak of memory beyond the loaded graph.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

THREADS, EPSILON = 2, 0.03
# ParHiP's header: bits mark absent and narrow arrays (KaMinPar's parhip_parser.cc).
NO_EDGE_WEIGHTS, NO_NODE_WEIGHTS, NARROW_NODES, NARROW_NODE_WEIGHTS, NARROW_EDGE_WEIGHTS = 1, 2, 8, 16, 32


def write(dataset, file, presample=None):
    indptr = np.load(dataset / "topology" / "indptr.npy", mmap_mode="r").astype(np.int64)
    sources = np.load(dataset / "topology" / "indices.npy", mmap_mode="r").astype(np.int64)
    n = len(indptr) - 1
    targets = np.repeat(np.arange(n), np.diff(indptr))
    counts = np.zeros(len(sources), np.int64)
    weights = None
    if presample is not None:
        counts = np.load(dataset / "presample" / presample / "edge.npy").astype(np.int64)
    keep = sources != targets
    sources, targets, counts = sources[keep], targets[keep], counts[keep]
    keys = np.concatenate([sources * n + targets, targets * n + sources])
    counts = np.concatenate([counts, counts])
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    rows, heads = np.divmod(keys[first], n)
    version = NO_EDGE_WEIGHTS | NO_NODE_WEIGHTS | NARROW_NODES | NARROW_NODE_WEIGHTS | NARROW_EDGE_WEIGHTS
    node_weights = None
    if presample is not None:
        weights = (1 + np.add.reduceat(counts, first)).astype(np.uint32)
        node_weights = np.load(dataset / "presample" / presample / "work.npy").astype(np.uint32)
        version &= ~(NO_EDGE_WEIGHTS | NO_NODE_WEIGHTS)
    starts = np.searchsorted(rows, np.arange(n + 1)).astype(np.uint64)
    with file.open("wb") as out:
        np.array([version, n, len(heads)], np.uint64).tofile(out)
        (starts * 4 + 24 + 8 * (n + 1)).astype(np.uint64).tofile(out)
        heads.astype(np.uint32).tofile(out)
        if weights is not None:
            node_weights.tofile(out)
            weights.tofile(out)


def partition(file, parts, seed, preset="default"):
    import kaminpar

    kaminpar.reseed(seed)
    graph = kaminpar.load_graph(str(file), kaminpar.GraphFileFormat.PARHIP, compress=False)
    solver = kaminpar.KaMinPar(THREADS, kaminpar.context_by_name(preset))
    before = resident()
    start = time.perf_counter()
    assignment = solver.compute_partition(graph, parts, EPSILON)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cut = kaminpar.edge_cut(graph, assignment)
    print(json.dumps({"seconds": seconds, "cut": cut, "extra_bytes": peak - before}))


def hypar(file, parts, seed):
    import mtkahypar

    words = np.fromfile(file, np.uint64, 3)
    vertices, arcs = int(words[1]), int(words[2])
    starts = np.fromfile(file, np.uint64, vertices + 1, offset=24)
    heads = np.fromfile(file, np.uint32, arcs, offset=24 + 8 * (vertices + 1)).astype(np.int64)
    rows = np.repeat(np.arange(vertices), np.diff(starts.astype(np.int64)) // 4)
    pairs = np.stack([rows, heads], 1)[rows < heads]
    mtkahypar.set_seed(seed)
    solver = mtkahypar.initialize(THREADS)
    context = solver.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.logging = False
    context.set_partitioning_parameters(parts, EPSILON, mtkahypar.Objective.CUT)
    graph = solver.create_graph(context, vertices, len(pairs), [tuple(pair) for pair in pairs.tolist()])
    start = time.perf_counter()
    found = graph.partition(context)
    print(json.dumps({"seconds": time.perf_counter() - start, "cut": int(found.cut())}))


def resident():
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "write":
        write(Path(rest[0]), Path(rest[1]), *rest[2:])
    elif command == "hypar":
        hypar(Path(rest[0]), int(rest[1]), int(rest[2]))
    else:
        partition(Path(rest[0]), int(rest[1]), int(rest[2]), *rest[3:])
