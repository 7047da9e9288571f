#!/usr/bin/env python3
"""Writes the graph of make.py as PyTorch files. Needs torch and torch_geometric.

The bytes depend on their versions: what is committed was written with torch 2.15.0 and torch_geometric 2.8.1.
"""

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

HERE = Path(__file__).parent
# Functions of make.py, which puts its own modules in the place of NumPy's.
EDGES = [(0, 1), (0, 2), (1, 2), (2, 0), (2, 3), (3, 3), (3, 4), (4, 5), (5, 4), (0, 1)]
LABELS = [0, 1, None, 2, 1, 0]
SPLITS = {"train": [3, 0], "valid": [1], "test": [4, 5]}
X = np.array([[vertex + column / 4 for column in range(3)] for vertex in range(6)], np.float32)
# Mask 0 is empty.
MASKS = {split: np.array([[False, v in vertices] for v in range(6)]) for split, vertices in SPLITS.items()}


def pt():
    (HERE / "pt/folder").mkdir(parents=True, exist_ok=True)
    tensors = {
        "x": torch.tensor(X),
        "edge_index": torch.tensor(EDGES).t(),
        "y": torch.tensor([-1 if label is None else label for label in LABELS]),
        "train_mask": torch.tensor(MASKS["train"]),
        "val_mask": torch.tensor(MASKS["valid"]),
        "test_mask": torch.tensor(MASKS["test"][:, 1]),
    }
    data = Data(**tensors, pos=torch.zeros(6, 2))
    torch.save(data, HERE / "pt/data.pt")
    torch.save(data, HERE / "pt/legacy.pt", _use_new_zipfile_serialization=False)
    torch.save((data.to_dict(), None, Data), HERE / "pt/processed.pt")
    torch.save(tensors["edge_index"].contiguous(), HERE / "pt/index.pt")
    torch.save({"edge_index": tensors["edge_index"], "num_nodes": 8}, HERE / "pt/isolated.pt")
    slices = {"x": torch.tensor([0, 3, 6]), "edge_index": torch.tensor([0, 5, 10])}
    torch.save((data, slices), HERE / "pt/several.pt")
    for name in ["x", "edge_index", "y"]:
        torch.save(tensors[name], HERE / f"pt/folder/{name}.pt")
    splits = {"train": [0, 3], "valid": [1], "test": [4, 5], "test-dev": [4], "test-challenge": [5]}
    splits = {name: np.array(vertices) for name, vertices in splits.items()}
    torch.save(splits, HERE / "pt/split_dict.pt")


if __name__ == "__main__":
    pt()
