#!/usr/bin/env python3
"""DGL training on a gsplit dataset: peer.py DATASET MODEL HIDDEN FANOUTS BATCH_SIZE BATCHES THREADS.

Mini-batches of the training split: DGL's fused sampler, `index_select` of the input rows, SAGEConv (mean) or GATConv
(2 heads), cross entropy, Adam; one after the other in one process. Prints one JSON line: seconds and those of each
phase over BATCHES mini-batches, after ten that are not timed, and what was sampled. The graph has int64 ids: with int32 ids
DGL 2.1.0's fused sampler returns edges that are not there, silently.
"""

import json
import os
import sys
import time
from pathlib import Path

WARM_UP, HEADS, LEARNING_RATE, DROPOUT = 10, 2, 1e-3, 0.5


def network(model, sizes):
    """A layer for each pair of neighbours in `sizes`, ReLU (ELU for GAT) and dropout between them."""
    import dgl.nn
    import torch
    from torch import nn
    from torch.nn import functional

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList()
            for index, (width, out) in enumerate(zip(sizes, sizes[1:], strict=False)):
                heads = 1 if index == len(sizes) - 2 else HEADS
                gat = model == "gat"
                self.layers.append(
                    dgl.nn.GATConv(width, out // heads, heads, allow_zero_in_degree=True)
                    if gat
                    else dgl.nn.SAGEConv(width, out, "mean")
                )

        def forward(self, blocks, rows):
            for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
                if model == "gat":
                    rows = layer(block, (rows, rows[: block.num_dst_nodes()])).flatten(1)
                else:
                    rows = layer(block, rows)
                if index < len(self.layers) - 1:
                    rows = functional.elu(rows) if model == "gat" else torch.relu(rows)
                    rows = functional.dropout(rows, DROPOUT, self.training)
            return rows

    return Network()


def features(dataset):
    """The dataset's feature rows, in memory of their own."""
    import numpy as np
    import pyarrow as pa
    import torch

    with pa.memory_map(str(dataset / "nodes" / "feat.arrow")) as file:
        (column,) = pa.ipc.open_file(file).read_all().columns
        rows = np.concatenate([chunk.flatten().to_numpy() for chunk in column.chunks])
        return torch.from_numpy(rows.reshape(len(column), -1))


def integers(file):
    """The values of `file`, as int64."""
    import numpy as np
    import torch

    return torch.from_numpy(np.load(file).astype(np.int64))


def graph(dataset):
    """The dataset's topology."""
    import dgl
    import torch

    indptr, indices = (integers(dataset / "topology" / f"{name}.npy") for name in ("indptr", "indices"))
    return dgl.graph(("csc", (indptr, indices, torch.tensor([], dtype=torch.int64))), num_nodes=len(indptr) - 1)


def main(dataset, model, hidden, fanouts, batch_size, batches, threads):
    os.environ["DGLBACKEND"] = "pytorch"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import dgl
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    dgl.utils.set_num_threads(threads)
    whole, rows = graph(dataset), features(dataset)
    label, train = integers(dataset / "nodes" / "label.npy"), integers(dataset / "splits" / "train.npy")
    # DGL's list starts at the layer that is farthest from the seeds.
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], fused=True)
    torch.manual_seed(0)
    sizes = [rows.shape[1], *[hidden] * (len(fanouts) - 1), int(label.max()) + 1]
    net = network(model, sizes)
    optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
    seconds = dict.fromkeys(("sample", "load", "forward", "backward", "update"), 0.0)
    edges, vertices, done, losses = 0, 0, 0, []
    while done < WARM_UP + batches:
        for seeds in train[torch.randperm(len(train))].split(batch_size):
            if len(seeds) < batch_size or done == WARM_UP + batches:
                continue
            times = [time.perf_counter()]
            inputs, _, blocks = sampler.sample_blocks(whole, seeds)
            times.append(time.perf_counter())
            loaded = torch.index_select(rows, 0, inputs)
            times.append(time.perf_counter())
            loss = functional.cross_entropy(net(blocks, loaded), label[seeds])
            times.append(time.perf_counter())
            optimizer.zero_grad()
            loss.backward()
            times.append(time.perf_counter())
            optimizer.step()
            times.append(time.perf_counter())
            losses.append(loss.item())
            done += 1
            if done > WARM_UP:
                for phase, start, end in zip(seconds, times, times[1:], strict=False):
                    seconds[phase] += end - start
                edges += sum(block.num_edges() for block in blocks)
                vertices += len(inputs)
    said = {"seconds": sum(seconds.values()), "phases": seconds, "edges": edges, "vertices": vertices}
    print(json.dumps({**said, "loss": sum(losses[-10:]) / 10}))


if __name__ == "__main__":
    words = sys.argv[1:]
    fanouts = [int(fanout) for fanout in words[3].split(",")]
    main(Path(words[0]), words[1], int(words[2]), fanouts, *map(int, words[4:]))
