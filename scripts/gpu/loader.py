#!/usr/bin/env python3
"""Mini-batches of gsplit.torch that a GPU samples, compared with those that the CPU samples, and timed.

    loader.py DATASET FANOUTS BATCH_SIZE STEPS DEVICE

All tensors of five mini-batches with features are compared, for the graph in the GPU's memory and in the host's. STEPS mini-batches without
features are timed for each place. The last line, after `= `, has the milliseconds of a mini-batch; without a GPU the CPU alone samples.
"""

import itertools
import sys
import time

import torch

from gsplit.torch import SplitLoader

COMPARED, WARM_UP = 5, 5


def tensors(batch):
    found = {"x": batch.x, "y": batch.y, "n_id": batch.n_id}
    for k, layer in enumerate(batch.layers):
        found |= {f"layer {k}: {name}": getattr(layer, name) for name in ("indptr", "indices", "edge_ids", "src")}
    return found


def compare(made, expected):
    for step, (one, other) in enumerate(itertools.islice(zip(made, expected), COMPARED)):
        right = tensors(other)
        for name, found in tensors(one).items():
            if found.dtype != right[name].dtype or not torch.equal(found, right[name]):
                sys.exit(f"error: mini-batch {step}, {name}: the GPU has sampled another one")


def milliseconds(loader, steps, device):
    # Epoch after epoch: cycle() would keep the mini-batches.
    for step, _ in enumerate(batch for _ in itertools.count() for batch in loader):
        if step in (WARM_UP, WARM_UP + steps) and device == "cuda":
            torch.cuda.synchronize()
        if step == WARM_UP:
            began = time.monotonic()
        if step == WARM_UP + steps:
            return 1e3 * (time.monotonic() - began) / steps


def main():
    dataset, fanouts, batch_size, steps, device = sys.argv[1:]
    times = {}
    for topology in ("device", "pinned", "host") if device == "cuda" else ("host",):
        options = (dataset, fanouts, int(batch_size))
        compare(SplitLoader(*options, device=device, topology=topology), SplitLoader(*options, device=device))
        loader = SplitLoader(*options, device=device, topology=topology, features=False)
        times[topology] = milliseconds(loader, int(steps), device)
    print("= " + ", ".join(f"{topology} {ms:.2f} ms" for topology, ms in times.items()) + " a mini-batch")


if __name__ == "__main__":
    main()
