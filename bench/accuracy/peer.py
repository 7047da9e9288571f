#!/usr/bin/env python3
"""DGL training and scoring on a gsplit dataset:
peer.py DATASET MODEL HIDDEN FANOUTS BATCH_SIZE EPOCHS LEARNING_RATE SEED THREADS.

The network of bench/train/peer.py with gsplit's initial weights (Glorot's uniform, biases zero; DGL's own are larger by the
square root of two), on sampled mini-batches of the training split; after each epoch exact inference over the whole graph. Prints one JSON line: loss, valid and test accuracy of every epoch. The graph has int64 ids: with int32
ids DGL 2.1.0's fused sampler returns edges that are not there, silently.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import measure  # noqa: E402


def main(dataset, model, hidden, fanouts, batch_size, epochs, learning_rate, seed, threads):
    os.environ["DGLBACKEND"] = "pytorch"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import dgl
    import numpy as np
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    dgl.utils.set_num_threads(threads)
    torch.manual_seed(seed)
    dgl.seed(seed)
    peer = measure.script("train/peer.py")
    graph, rows, label = peer.graph(dataset), peer.features(dataset), peer.integers(dataset / "nodes" / "label.npy")
    train, valid, test = (peer.integers(dataset / "splits" / f"{name}.npy") for name in ("train", "valid", "test"))
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1], fused=True)
    net = peer.network(model, [rows.shape[1], *[hidden] * (len(fanouts) - 1), int(label.max()) + 1])
    for parameter in net.parameters():
        torch.nn.init.xavier_uniform_(parameter) if parameter.dim() > 1 else torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.Adam(net.parameters(), learning_rate)
    said = []
    for _ in range(epochs):
        net.train()
        losses = []
        for seeds in train[torch.randperm(len(train))].split(batch_size):
            inputs, _, blocks = sampler.sample_blocks(graph, seeds)
            loss = functional.cross_entropy(net(blocks, torch.index_select(rows, 0, inputs)), label[seeds])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            right = net([graph] * len(fanouts), rows).argmax(1) == label
        score = {name: right[of].double().mean().item() for name, of in (("valid", valid), ("test", test))}
        said.append({"loss": float(np.mean(losses)), **score})
    print(json.dumps({"epochs": said}))


if __name__ == "__main__":
    words = sys.argv[1:]
    fanouts = [int(fanout) for fanout in words[3].split(",")]
    numbers = [int(words[4]), int(words[5]), float(words[6]), int(words[7]), int(words[8])]
    main(Path(words[0]), words[1], int(words[2]), fanouts, *numbers)
