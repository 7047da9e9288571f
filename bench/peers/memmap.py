"""Gathers rows by numpy.memmap: memmap.py DATASET FEATURES FANOUTS BATCH_SIZE.

The mini-batches are those of `gsplit train` with its default seed, sampled by gsplit.NeighborLoader
without features; FEATURES has the rows of all vertices as f32. Prints {"rows", "seconds"} after
each mini-batch; sampling takes none of the seconds.
"""

import json
import sys
import time

import gsplit
import numpy as np
import torch


def main(dataset, features, fanouts, batch_size):
    ds = gsplit.open(dataset)
    options = {"form": "blocks", "numpy": True, "features": False, "labels": False}
    rows = np.load(features, mmap_mode="r")
    for batch in gsplit.NeighborLoader(ds, fanouts, int(batch_size), **options):
        start = time.perf_counter()
        x = torch.from_numpy(rows[batch.n_id])
        print(json.dumps({"rows": len(x), "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
