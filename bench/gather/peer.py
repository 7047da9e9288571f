#!/usr/bin/env python3
"""PyTorch's ways to gather rows, on a gsplit dataset's features: peer.py DATASET ROWS ROUNDS THREADS.

ROWS distinct rows at random, other ones every round, from memory. Prints one JSON line: for each way the GB/s of rows of
every round.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(dataset, count, rounds, threads):
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import numpy as np
    import pyarrow as pa
    import torch

    torch.set_num_threads(threads)
    with pa.memory_map(str(dataset / "nodes" / "feat.arrow")) as file:
        (column,) = pa.ipc.open_file(file).read_all().columns
        rows = np.concatenate([chunk.flatten().to_numpy() for chunk in column.chunks]).reshape(len(column), -1)
    rows = torch.from_numpy(rows)
    reused = torch.empty(count, rows.shape[1])
    ways = {
        "index_select, memory reused": lambda ids: torch.index_select(rows, 0, ids, out=reused),
        "index_select": lambda ids: torch.index_select(rows, 0, ids),
        "x[ids]": lambda ids: rows[ids],
    }
    speeds = {way: [] for way in ways}
    torch.manual_seed(0)
    for turn in range(rounds + 1):
        ids = torch.randperm(len(rows))[:count]
        for way, gather in ways.items():
            start = time.perf_counter()
            found = gather(ids)
            seconds = time.perf_counter() - start
            if turn > 0:
                speeds[way].append(found.numel() * 4 / seconds / 1e9)
    print(json.dumps(speeds))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
