#!/usr/bin/env python3
"""Trains PyG's R-SAGE on a dataset with several types of vertices:
typed.py DATASET FANOUTS BATCH_SIZE BATCHES HIDDEN THREADS WORKERS.

Two layers of HeteroConv with a SAGEConv for each relation, sums over relations, below them a linear
layer for each type with features and an Embedding for each other type, whose gradients are sparse;
Adam and SparseAdam, f32. NeighborLoader draws the fanouts for each relation. Prints one JSON line:
milliseconds, edges of a mini-batch after some that are not timed, and the last loss.
"""

import json
import sys
import time

import torch
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import HeteroConv, SAGEConv

import gsplit

WARM_UP = 5


class Model(torch.nn.Module):
    def __init__(self, data, hidden, classes):
        super().__init__()
        types, relations = data.metadata()
        features = {of: data[of].x.shape[1] for of in types if "x" in data[of]}
        self.encoders = torch.nn.ModuleDict({of: torch.nn.Linear(width, hidden) for of, width in features.items()})
        learnt = {of: torch.nn.Embedding(data[of].num_nodes, hidden, sparse=True) for of in types if of not in features}
        self.learnt = torch.nn.ModuleDict(learnt)
        # Layers see the rows of every target once: SAGEConv's own weight is in the first relation into it.
        self.layers = torch.nn.ModuleList()
        for out in (hidden, classes):
            seen = set()
            convs = {}
            for relation in relations:
                convs[relation] = SAGEConv((hidden, hidden), out, root_weight=relation[2] not in seen)
                seen.add(relation[2])
            self.layers.append(HeteroConv(convs, aggr="sum"))

    def forward(self, batch):
        rows = {of: encoder(batch[of].x) for of, encoder in self.encoders.items()}
        rows |= {of: learnt(batch[of].n_id) for of, learnt in self.learnt.items()}
        first, last = self.layers
        rows = {of: row.relu() for of, row in first(rows, batch.edge_index_dict).items()}
        return last(rows, batch.edge_index_dict)


def main(dataset, fanouts, *numbers):
    batch_size, batches, hidden, threads, workers = map(int, numbers)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    data = gsplit.open(dataset).to_pyg()
    (target,) = (of for of in data.node_types if "y" in data[of] and "train_mask" in data[of])
    labels = data[target].y
    loader = NeighborLoader(
        data,
        {relation: [int(fanout) for fanout in fanouts.split(",")] for relation in data.edge_types},
        (target, data[target].train_mask),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    model = Model(data, hidden, int(labels.max()) + 1)
    dense = [*model.encoders.parameters(), *model.layers.parameters()]
    optimizers = torch.optim.Adam(dense, 1e-3), torch.optim.SparseAdam(list(model.learnt.parameters()), 1e-3)
    edges, start, loss = 0, 0.0, None
    for step, batch in zip(range(WARM_UP + batches), loader):
        if step == WARM_UP:
            edges, start = 0, time.perf_counter()
        seeds = batch[target].batch_size
        loss = torch.nn.functional.cross_entropy(model(batch)[target][:seeds], batch[target].y[:seeds].long())
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        edges += sum(index.shape[1] for index in batch.edge_index_dict.values())
    seconds = time.perf_counter() - start
    print(json.dumps({"ms": 1e3 * seconds / batches, "edges": edges / batches, "loss": float(loss.detach())}))


main(*sys.argv[1:])
