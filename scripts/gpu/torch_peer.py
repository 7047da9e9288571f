#!/usr/bin/env python3
"""Training on one GPU by PyTorch alone: torch_peer.py VERTICES EDGES_A_VERTEX FANOUTS BATCH_SIZE HIDDEN STEPS DTYPE.

What a user who knows torch writes where no sampler for GPUs is at hand: graph and features are on the GPU, neighbours are drawn by tensor
operations, with replacement, and numbered by a table. GraphSAGE (mean), ReLU and dropout 0.5, fused Adam. The graph is random: its shape
alone matters here. Prints one JSON line: milliseconds of a step in all and of its parts, edges and rows of a step.
"""

import json
import sys
import time

import torch
from torch.nn import functional

FEATURES, CLASSES, DROPOUT, LEARNING_RATE = 100, 47, 0.5, 1e-3


def sample(graph, numbers, seeds, fanouts):
    """The vertices that are read, and for each layer, from the seeds down, the rows of its sources and how many targets it has."""
    indptr, indices = graph
    vertices, layers = seeds, []
    numbers[vertices] = torch.arange(len(vertices), device=seeds.device, dtype=numbers.dtype)
    for fanout in fanouts:
        begin, end = indptr[vertices], indptr[vertices + 1]
        drawn = torch.rand(len(vertices), fanout, device=seeds.device) * (end - begin)[:, None]
        sources = indices[(begin[:, None] + drawn.long()).flatten()].long()
        met = torch.unique(sources[numbers[sources] < 0])
        numbers[met] = torch.arange(len(vertices), len(vertices) + len(met), device=seeds.device, dtype=numbers.dtype)
        layers.append((numbers[sources].long(), len(vertices)))
        vertices = torch.cat([vertices, met])
    numbers[vertices] = -1
    return vertices, layers


class Network(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        pairs = list(zip(sizes, sizes[1:]))
        self.own = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in pairs)
        self.neighbours = torch.nn.ModuleList(torch.nn.Linear(*pair, bias=False) for pair in pairs)

    def forward(self, rows, layers):
        for index, (sources, targets) in enumerate(reversed(layers)):
            # Every target has as many edges: its mean needs no scatter, and backward adds by sorted positions.
            mean = functional.embedding(sources.view(targets, -1), rows).mean(1)
            rows = self.own[index](rows[:targets]) + self.neighbours[index](mean)
            if index + 1 < len(layers):
                rows = functional.dropout(rows.relu(), DROPOUT, self.training)
        return rows


def main(vertices, degree, fanouts, batch_size, hidden, steps, dtype):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    graph = (
        torch.arange(vertices + 1, device=device) * degree,
        torch.randint(vertices, (vertices * degree,), dtype=torch.int32, device=device),
    )
    features = torch.randn(vertices, FEATURES, device=device).half()
    labels = torch.randint(CLASSES, (vertices,), device=device)
    numbers = torch.full((vertices,), -1, dtype=torch.int32, device=device)
    network = Network([FEATURES, *[hidden] * (len(fanouts) - 1), CLASSES]).to(device)
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE, fused=device.type == "cuda")
    narrow = dtype == "bf16"
    rows_dtype = torch.bfloat16 if narrow else torch.float32

    def clock():
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    parts, edges, rows = [0.0] * 3, 0, 0
    warm_up = min(8, steps)
    for step in range(warm_up + steps):
        seeds = torch.randperm(vertices, device=device)[:batch_size]
        times = [clock()]
        read, layers = sample(graph, numbers, seeds, fanouts)
        times.append(clock())
        inputs = features[read].to(rows_dtype)
        times.append(clock())
        with torch.autocast(device.type, torch.bfloat16, enabled=narrow):
            loss = functional.cross_entropy(network(inputs, layers).float(), labels[seeds])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        times.append(clock())
        if step >= warm_up:
            parts = [total + end - begin for total, begin, end in zip(parts, times, times[1:])]
            edges += sum(len(sources) for sources, _ in layers)
            rows += len(read)
    sampling, loading, computing = (round(1e3 * part / steps, 3) for part in parts)
    ms = round(1e3 * sum(parts) / steps, 3)
    print(json.dumps({"ms": ms, "sampling": sampling, "loading": loading, "computing": computing, "edges": edges // steps, "rows": rows // steps}))


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]), int(words[1]), [int(fanout) for fanout in words[2].split(",")], *map(int, words[3:6]), words[6])
