#!/usr/bin/env python3
"""PyG training on a GPU, mini-batches from its CPU loader: peer.py FOLDER FANOUTS BATCH_SIZE HIDDEN EPOCHS WORKERS DEVICE [STEPS].

FOLDER is what `gsplit export --format pyg` wrote. GraphSAGE (mean), a layer for each of FANOUTS, ReLU and dropout 0.5 between
them, Adam; NeighborLoader with WORKERS processes that stay, pinned memory, and copies that do not wait; feature rows are on DEVICE, and are
gathered there; each layer computes the vertices that are still needed (`trim_to_layer`). With STEPS an epoch ends after so many mini-batches. NeighborLoader draws the neighbours of a vertex once for all layers, gsplit
anew for each: PyG has fewer rows to load. Prints one JSON line: the seconds of each epoch after one that is not timed, the last
loss, the mini-batches of an epoch, and milliseconds of one in the fastest epoch.
"""

import itertools
import json
import sys
import time
from functools import partial
from pathlib import Path

DROPOUT, LEARNING_RATE = 0.5, 1e-3


def network(sizes):
    """A layer for each pair of neighbours in `sizes`."""
    import torch
    from torch.nn import functional
    from torch_geometric.nn import SAGEConv
    from torch_geometric.utils import trim_to_layer

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(map(SAGEConv, sizes, sizes[1:]))

        def forward(self, batch):
            rows, edges = batch.x, batch.edge_index
            for index, layer in enumerate(self.layers):
                rows, edges, _ = trim_to_layer(index, batch.num_sampled_nodes, batch.num_sampled_edges, rows, edges)
                rows = layer(rows, edges)
                if index < len(self.layers) - 1:
                    rows = functional.dropout(rows.relu(), DROPOUT, self.training)
            return rows[: batch.batch_size]

    return Network()


def with_hops(hops, batch):
    """`batch` with its numbers of vertices and edges by hop: pyg-lib's sampler tells them, torch-sparse's does not.

    Both number the vertices in the order in which they are met, and list the edges by target.
    """
    import torch

    if "num_sampled_nodes" not in batch:
        sources, targets = batch.edge_index
        nodes, edges = [batch.batch_size], []
        for _ in range(hops):
            before = sum(nodes)
            so_far = int(torch.searchsorted(targets, before))
            met = int(sources[:so_far].max()) + 1 if so_far else 0
            nodes.append(max(met - before, 0))
            edges.append(so_far - sum(edges))
        batch.num_sampled_nodes, batch.num_sampled_edges = nodes, edges
    return batch


def main(folder, fanouts, batch_size, hidden, epochs, workers, device, most=None):
    import torch
    from torch.nn import functional
    from torch_geometric.loader import NeighborLoader

    sys.path.insert(0, str(folder))
    from load import load

    data = load(folder)
    features, data.x = data.x.to(device), None
    sizes = [features.shape[1], *[hidden] * (len(fanouts) - 1), int(data.y.max()) + 1]
    loader = NeighborLoader(
        data,
        fanouts,
        data.train_mask,
        transform=partial(with_hops, len(fanouts)),
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device != "cpu",
    )
    torch.manual_seed(0)
    net = network(sizes).to(device)
    optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
    seconds, losses = [], []
    for _ in range(epochs + 1):
        started = time.perf_counter()
        for batch in itertools.islice(loader, most):
            batch = batch.to(device, non_blocking=True)
            batch.x = features[batch.n_id].float()
            loss = functional.cross_entropy(net(batch), batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        loss = losses[-1].item()  # waits for the GPU
        seconds.append(time.perf_counter() - started)
    batches = len(losses) // (epochs + 1)
    ms = round(1e3 * min(seconds[1:]) / batches, 3)
    print(json.dumps({"seconds": seconds[1:], "loss": loss, "batches": batches, "ms": ms}))


if __name__ == "__main__":
    words = sys.argv[1:]
    fanouts = [int(fanout) for fanout in words[1].split(",")]
    main(Path(words[0]), fanouts, *map(int, words[2:6]), words[6], *map(int, words[7:]))
