#!/usr/bin/env python3
"""DGL training on a gsplit dataset.

    train.py time DATASET MODEL HIDDEN FANOUTS BATCH_SIZE BATCHES THREADS
    train.py score DATASET MODEL HIDDEN FANOUTS BATCH_SIZE EPOCHS THREADS LEARNING_RATE SEED

Mini-batches of the training split: DGL's fused sampler, `index_select` of the input rows, SAGEConv
(mean) or GATConv (2 heads), cross entropy, Adam; one after the other in one process. Prints one
JSON line. `time`: the seconds of all and of each phase over BATCHES mini-batches, after ten that
are not timed, and the numbers of sampled edges and vertices. `score`: loss, valid and test accuracy
of each epoch by exact inference over the whole graph, with gsplit's initial weights (Glorot's
uniform, biases zero; DGL's are larger by the square root of two). The graph has int64 ids: with
int32 ids the fused sampler of DGL 2.1.0 returns edges that are not there, silently.
"""

import json
import os
import sys
import time
from pathlib import Path

WARM_UP, HEADS, LEARNING_RATE, DROPOUT = 10, 2, 1e-3, 0.5


def network(model, sizes):
    """A layer for each pair of neighbours in `sizes`, activation and dropout between them."""
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
                    dgl.nn.GATConv(width, out // heads, heads, allow_zero_in_degree=True) if gat else dgl.nn.SAGEConv(width, out, "mean")
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


def steps(whole, rows, label, train, net, fanouts, batch_size, learning_rate):
    """Trains for ever; yields the cost and loss of each mini-batch, and None after each epoch."""
    import dgl
    import torch
    from torch.nn import functional

    # DGL's list starts at the layer that is farthest from the seeds.
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], fused=True)
    optimizer = torch.optim.Adam(net.parameters(), learning_rate)
    while True:
        net.train()
        for seeds in train[torch.randperm(len(train))].split(batch_size):
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
            yield len(seeds), times, sum(block.num_edges() for block in blocks), len(inputs), loss.item()
        yield None


def timed(epochs, batch_size, batches):
    """Sums over `batches` full mini-batches after the first ones."""
    seconds = dict.fromkeys(("sample", "load", "forward", "backward", "update"), 0.0)
    edges, vertices, losses = 0, 0, []
    for step in epochs:
        if step is None or step[0] < batch_size:
            continue
        losses.append(step[4])
        if len(losses) > WARM_UP:
            for phase, start, end in zip(seconds, step[1], step[1][1:], strict=False):
                seconds[phase] += end - start
            edges += step[2]
            vertices += step[3]
        if len(losses) == WARM_UP + batches:
            break
    said = {"seconds": sum(seconds.values()), "phases": seconds, "edges": edges, "vertices": vertices}
    return {**said, "loss": sum(losses[-10:]) / 10}


def scored(epochs, count, score):
    """The mean loss and the scores of each of `count` epochs."""
    said, losses = [], []
    for step in epochs:
        if step is not None:
            losses.append(step[4])
            continue
        said.append({"loss": sum(losses) / len(losses), **score()})
        losses.clear()
        if len(said) == count:
            return {"epochs": said}


def main(mode, dataset, model, hidden, fanouts, batch_size, count, threads, learning_rate=LEARNING_RATE, seed=0):
    os.environ["DGLBACKEND"] = "pytorch"
    os.environ["OMP_NUM_THREADS"] = threads
    import dgl
    import torch

    torch.set_num_threads(int(threads))
    dgl.utils.set_num_threads(int(threads))
    torch.manual_seed(int(seed))
    dgl.seed(int(seed))
    dataset, fanouts, batch_size = Path(dataset), [int(fanout) for fanout in fanouts.split(",")], int(batch_size)
    whole, rows, label = graph(dataset), features(dataset), integers(dataset / "nodes" / "label.npy")
    splits = {name: integers(dataset / "splits" / f"{name}.npy") for name in ("train", "valid", "test")}
    net = network(model, [rows.shape[1], *[int(hidden)] * (len(fanouts) - 1), int(label.max()) + 1])

    def score():
        net.eval()
        with torch.no_grad():
            right = net([whole] * len(fanouts), rows).argmax(1) == label
        return {name: right[splits[name]].double().mean().item() for name in ("valid", "test")}

    if mode == "score":
        for parameter in net.parameters():
            torch.nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else torch.nn.init.zeros_(parameter)
    epochs = steps(whole, rows, label, splits["train"], net, fanouts, batch_size, float(learning_rate))
    print(json.dumps(timed(epochs, batch_size, int(count)) if mode == "time" else scored(epochs, int(count), score)))


if __name__ == "__main__":
    main(*sys.argv[1:])
