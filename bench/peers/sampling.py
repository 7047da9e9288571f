#!/usr/bin/env python3
"""DGL's fused neighbour sampler on a gsplit dataset: sampling.py DATASET FANOUTS BATCH_SIZE BATCHES
THREADS.

Prints one JSON line like kernels/examples/sampling.rs: seconds and CPU seconds inside
`sample_blocks`, sampled edges and input vertices of BATCHES mini-batches of the training split,
after ten that are not timed. The graph has int64 ids: with int32 ids DGL 2.1.0's fused sampler
returns edges that are not there, silently.
"""

import json
import os
import sys
import time
from pathlib import Path

from train import graph, integers

WARM_UP = 10


def main(dataset, fanouts, batch_size, batches, threads):
    os.environ["DGLBACKEND"] = "pytorch"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import dgl
    import torch

    torch.set_num_threads(threads)
    dgl.utils.set_num_threads(threads)
    whole = graph(dataset)
    # DGL's list starts at the layer that is farthest from the seeds.
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], fused=True)
    train = integers(dataset / "splits" / "train.npy")
    seconds, cpu_seconds, edges, vertices, done = 0.0, 0.0, 0, 0, 0
    torch.manual_seed(0)
    while True:
        order = train[torch.randperm(len(train))]
        for seeds in order.split(batch_size):
            if len(seeds) < batch_size:
                continue
            start, cpu = time.perf_counter(), time.process_time()
            inputs, _, blocks = sampler.sample_blocks(whole, seeds)
            took, cpu = time.perf_counter() - start, time.process_time() - cpu
            if done >= WARM_UP:
                seconds += took
                cpu_seconds += cpu
                edges += sum(block.num_edges() for block in blocks)
                vertices += len(inputs)
            done += 1
            if done == WARM_UP + batches:
                said = {"seconds": seconds, "cpu_seconds": cpu_seconds, "edges": edges, "vertices": vertices}
                print(json.dumps(said))
                return


if __name__ == "__main__":
    words = sys.argv[1:]
    main(Path(words[0]), [int(fanout) for fanout in words[1].split(",")], *map(int, words[2:]))
